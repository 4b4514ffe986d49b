//! XREAD and XREADGROUP.

use super::{
    Arg, CommandError, Ctx, Done, args, id, read_stream, reply_entry, reply_id, write_entries, write_stream,
};
use crate::command::table::Access;
use crate::keyspace::{Class, Keyspace};
use crate::resp::Reply;
use crate::resp::parse::parse_i64;
use crate::value::stream::{Pending, StreamId};

/// The keys of `… STREAMS key… id…`.
pub fn key_positions(args: &[&[u8]], access: Access) -> Vec<(usize, Access)> {
    let mut at = 1;
    while at < args.len() {
        match args[at] {
            arg if args::is(arg, "STREAMS") => {
                let keys = (args.len() - at - 1) / 2;
                return (at + 1..at + 1 + keys).map(|at| (at, access)).collect();
            }
            arg if args::is(arg, "BLOCK") || args::is(arg, "COUNT") => at += 2,
            arg if args::is(arg, "GROUP") => at += 3,
            _ => at += 1,
        }
    }
    Vec::new()
}

/// From where a stream is read.
#[derive(Clone, Copy)]
enum After {
    Id(StreamId),
    /// `>`: what the group has not read.
    New,
}

struct Request<'a> {
    /// Where the keys begin in the arguments.
    keys_at: usize,
    keys: &'a [Arg<'a>],
    ids: &'a [Arg<'a>],
    group: Option<(Arg<'a>, Arg<'a>)>,
    count: usize,
    no_ack: bool,
    /// Milliseconds; 0 means for ever.
    block_ms: Option<i64>,
}

fn parse<'a>(args: &'a [Arg<'a>], is_group: bool) -> Result<Request<'a>, CommandError> {
    let mut request =
        Request { keys_at: 0, keys: &[], ids: &[], group: None, count: 0, no_ack: false, block_ms: None };
    let mut at = 1;
    while at < args.len() {
        let (arg, more) = (args[at], args.len() - at - 1);
        if args::is(arg, "BLOCK") && more > 0 {
            at += 1;
            let ms = parse_i64(args[at])
                .ok_or(CommandError::of("ERR timeout is not an integer or out of range"))?;
            if ms < 0 {
                return Err(CommandError::of("ERR timeout is negative"));
            }
            request.block_ms = Some(ms);
        } else if args::is(arg, "COUNT") && more > 0 {
            at += 1;
            request.count = usize::try_from(args::int(args[at])?).unwrap_or(0);
        } else if args::is(arg, "STREAMS") && more > 0 {
            if more % 2 != 0 {
                return Err(CommandError::of(
                    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
                ));
            }
            request.keys_at = at + 1;
            (request.keys, request.ids) = args[at + 1..].split_at(more / 2);
            break;
        } else if args::is(arg, "GROUP") && more >= 2 {
            if !is_group {
                return Err(CommandError::of(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            request.group = Some((args[at + 1], args[at + 2]));
            at += 2;
        } else if args::is(arg, "NOACK") {
            if !is_group {
                return Err(CommandError::of(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            request.no_ack = true;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    if request.keys.is_empty() {
        return Err(CommandError::Syntax);
    }
    if is_group && request.group.is_none() {
        return Err(CommandError::of("ERR Missing GROUP option for XREADGROUP"));
    }
    if request.count == 0 {
        request.count = usize::MAX;
    }
    Ok(request)
}

pub fn xread(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let request = parse(args, false)?;
    read_or_block(ctx, args, &request)
}

pub fn xreadgroup(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let request = parse(args, true)?;
    read_or_block(ctx, args, &request)
}

fn read_or_block(ctx: &mut Ctx<'_>, args: &[Arg<'_>], request: &Request<'_>) -> Done {
    let (now_ms, is_resumed) = (ctx.now_ms(), ctx.is_resumed);
    let (db, reply) = ctx.split();
    if is_resumed {
        check_waited_for(db, request)?;
        // A key that got another type is waited for as an absent one.
        if request.keys.iter().any(|key| read_stream(db, key).is_err()) {
            return ctx.block(request.keys, None, None);
        }
    }
    let starts = starts(db, request)?;
    let ready = ready(db, request, &starts)?;
    let count = ready.iter().flatten().count();
    if count > 0 {
        let resp3 = reply.resp3;
        if resp3 {
            reply.map(count)
        } else {
            reply.array(count)
        }
        for (key, after) in request.keys.iter().zip(&ready) {
            let Some(after) = after else { continue };
            if !resp3 {
                reply.array(2);
            }
            reply.bulk(key);
            match (request.group, after) {
                (None, After::Id(after)) => reply_after(db, reply, key, *after, request.count)?,
                (None, After::New) => reply.array(0),
                (Some((group, consumer)), after) => {
                    see_consumer(db, key, group, consumer)?;
                    match after {
                        After::New => deliver(db, reply, key, (group, consumer), request)?,
                        After::Id(after) => {
                            reply_history(db, reply, key, (group, consumer), *after, request.count)?
                        }
                    }
                    db.changed(key, Class::Stream, "");
                }
            }
        }
        return Ok(());
    }
    let Some(block_ms) = request.block_ms else {
        reply.null_array();
        return Ok(());
    };
    let deadline_ms = match block_ms {
        0 => None,
        ms => Some(now_ms.checked_add(ms).ok_or(CommandError::of("ERR timeout is out of range"))?),
    };
    // `$` means the end of the stream now, not when the command runs again.
    let mut again: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_vec()).collect();
    for (at, start) in starts.iter().enumerate() {
        if let After::Id(id) = start {
            again[request.keys_at + request.keys.len() + at] = id.to_string().into_bytes();
        }
    }
    ctx.block(request.keys, deadline_ms, Some(again))
}

/// A reader of a group stops waiting when the stream or the group is gone.
fn check_waited_for(db: &mut Keyspace, request: &Request<'_>) -> Done {
    let Some((group, _)) = request.group else { return Ok(()) };
    for key in request.keys {
        let stream = read_stream(db, key).ok().flatten();
        let stream = stream.ok_or(CommandError::of("UNBLOCKED the stream key no longer exists"))?;
        if stream.group(group).is_none() {
            return Err(CommandError::of(
                "NOGROUP the consumer group this client was blocked on no longer exists",
            ));
        }
    }
    Ok(())
}

/// The identifiers after which the streams are read; checks keys, groups and arguments.
fn starts(db: &mut Keyspace, request: &Request<'_>) -> Result<Vec<After>, CommandError> {
    let mut starts = Vec::with_capacity(request.keys.len());
    for (key, arg) in request.keys.iter().zip(request.ids) {
        let stream = read_stream(db, key)?;
        if let Some((group, _)) = request.group
            && stream.is_none_or(|stream| stream.group(group).is_none())
        {
            return Err(CommandError::Text(
                format!(
                    "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                    args::text(key),
                    args::text(group)
                )
                .into(),
            ));
        }
        starts.push(match (*arg, request.group) {
            (b"$", None) => After::Id(stream.map_or(StreamId::MIN, |stream| stream.last_id)),
            (b"$", Some(_)) => {
                return Err(CommandError::of(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
                     specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
                ));
            }
            (b">", Some(_)) => After::New,
            (b">", None) => {
                return Err(CommandError::of(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
                ));
            }
            (arg, _) => After::Id(id(arg, 0)?),
        });
    }
    Ok(starts)
}

/// For each stream that has something to return, from where.
fn ready(
    db: &mut Keyspace,
    request: &Request<'_>,
    starts: &[After],
) -> Result<Vec<Option<After>>, CommandError> {
    let mut ready = Vec::with_capacity(starts.len());
    for (key, start) in request.keys.iter().zip(starts) {
        let Some(stream) = read_stream(db, key)? else {
            ready.push(None);
            continue;
        };
        let top = stream.last_live();
        ready.push(match (request.group, start) {
            (None, After::Id(after)) => top.filter(|top| top > after).map(|_| *start),
            (Some((group, _)), After::New) => {
                let read = stream.group(group).map(|group| group.last_id);
                top.filter(|top| read.is_some_and(|read| *top > read)).map(|_| *start)
            }
            // The history of a consumer is returned also if it is empty.
            _ => Some(*start),
        });
    }
    Ok(ready)
}

fn reply_after(db: &mut Keyspace, reply: &mut Reply, key: Arg<'_>, after: StreamId, count: usize) -> Done {
    let (Some(stream), Some(start)) = (read_stream(db, key)?, after.successor()) else {
        reply.array(0);
        return Ok(());
    };
    write_entries(reply, stream.range(start, StreamId::MAX), count);
    Ok(())
}

fn see_consumer(db: &mut Keyspace, key: Arg<'_>, group: Arg<'_>, consumer: Arg<'_>) -> Done {
    let now_ms = db.now_ms.max(0) as u64;
    let Some(group) = write_stream(db, key)?.and_then(|stream| stream.group_mut(group)) else {
        return Ok(());
    };
    let created = !group.consumers().contains_key(consumer);
    group.see_consumer(consumer, now_ms);
    if created {
        db.changed(key, Class::Stream, "xgroup-createconsumer");
    }
    Ok(())
}

/// Delivers entries that the group has not read to a consumer.
fn deliver(
    db: &mut Keyspace,
    reply: &mut Reply,
    key: Arg<'_>,
    (group, consumer): (Arg<'_>, Arg<'_>),
    request: &Request<'_>,
) -> Done {
    let now_ms = db.now_ms.max(0) as u64;
    let Some(stream) = write_stream(db, key)? else { return Ok(()) };
    let start = stream.group(group).and_then(|group| group.last_id.successor()).unwrap_or(StreamId::MAX);
    let mut delivered = Vec::new();
    reply.counted_array(|reply| {
        for entry in stream.range(start, StreamId::MAX).take(request.count) {
            reply_entry(reply, &entry);
            delivered.push(entry.id);
        }
        delivered.len()
    });
    for id in delivered {
        stream.advance_group(group, id);
        if !request.no_ack
            && let Some(group) = stream.group_mut(group)
        {
            let consumer = group.see_consumer(consumer, now_ms);
            group.assign(id, Pending { consumer, delivered_ms: now_ms, deliveries: 1 });
        }
    }
    Ok(())
}

/// Returns a consumer's own pending entries after `after` once more.
fn reply_history(
    db: &mut Keyspace,
    reply: &mut Reply,
    key: Arg<'_>,
    (group, consumer): (Arg<'_>, Arg<'_>),
    after: StreamId,
    count: usize,
) -> Done {
    let now_ms = db.now_ms.max(0) as u64;
    let Some(stream) = write_stream(db, key)? else { return Ok(()) };
    let pending: Vec<StreamId> =
        match (stream.group(group).and_then(|group| group.consumers().get(consumer)), after.successor()) {
            (Some(consumer), Some(start)) => consumer.pending().range(start..).take(count).copied().collect(),
            _ => Vec::new(),
        };
    reply.array(pending.len());
    for id in pending {
        match stream.range(id, id).next() {
            Some(entry) => reply_entry(reply, &entry),
            None => {
                reply.array(2);
                reply_id(reply, id);
                reply.null_array();
                continue;
            }
        }
        if let Some(group) = stream.group_mut(group) {
            group.redeliver(id, now_ms);
        }
    }
    Ok(())
}
