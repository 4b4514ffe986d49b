//! XCLAIM and XAUTOCLAIM.

use super::{
    Arg, CommandError, Ctx, Done, args, id, no_group, range_start, reply_entry, reply_id, write_stream,
};
use crate::keyspace::Class;
use crate::resp::Reply;
use crate::resp::parse::parse_i64;
use crate::value::stream::{Pending, Stream, StreamId};

struct Claim<'a> {
    group: Arg<'a>,
    consumer: Arg<'a>,
    now_ms: u64,
    idle_min: i64,
    delivered_ms: u64,
    retry_count: Option<u64>,
    force: bool,
    just_id: bool,
    last_id: StreamId,
}

/// What became of an entry.
#[derive(PartialEq)]
enum Claimed {
    Yes,
    /// Not pending, or not for long enough.
    No,
    /// No longer in the stream: taken off the list.
    Deleted,
}

impl Claim<'_> {
    fn claim(&self, stream: &mut Stream, reply: &mut Reply, id: StreamId) -> Claimed {
        let exists = stream.contains(id);
        let Some(group) = stream.group_mut(self.group) else { return Claimed::No };
        let before = group.pending().get(&id).cloned();
        if !exists {
            let was_pending = group.acknowledge(id);
            return if was_pending { Claimed::Deleted } else { Claimed::No };
        }
        let deliveries = match &before {
            None if !self.force => return Claimed::No,
            None => 0,
            Some(pending)
                if self.idle_min > 0
                    && (self.now_ms as i64 - pending.delivered_ms as i64) < self.idle_min =>
            {
                return Claimed::No;
            }
            Some(pending) => pending.deliveries,
        };
        let deliveries = match self.retry_count {
            Some(count) => count,
            None => deliveries + u64::from(!self.just_id),
        };
        let consumer = group.see_consumer(self.consumer, self.now_ms);
        group.assign(id, Pending { consumer, delivered_ms: self.delivered_ms, deliveries });
        match stream.range(id, id).next() {
            Some(entry) if !self.just_id => reply_entry(reply, &entry),
            _ => reply_id(reply, id),
        }
        Claimed::Yes
    }
}

fn int(arg: Arg<'_>, text: &'static str) -> Result<i64, CommandError> {
    parse_i64(arg).ok_or(CommandError::of(text))
}

fn parse_claim<'a>(args: &'a [Arg<'a>], now_ms: i64) -> Result<(Claim<'a>, Vec<StreamId>), CommandError> {
    let idle_min = int(args[4], "ERR Invalid min-idle-time argument for XCLAIM")?.max(0);
    let ids: Vec<StreamId> = args[5..].iter().map_while(|arg| StreamId::parse(arg, 0)).collect();
    let mut claim = Claim {
        group: args[2],
        consumer: args[3],
        now_ms: now_ms.max(0) as u64,
        idle_min,
        delivered_ms: 0,
        retry_count: None,
        force: false,
        just_id: false,
        last_id: StreamId::MIN,
    };
    let mut delivered_ms = None;
    let mut rest = &args[5 + ids.len()..];
    loop {
        rest = match rest {
            [] => break,
            [name, after @ ..] if args::is(name, "FORCE") => {
                claim.force = true;
                after
            }
            [name, after @ ..] if args::is(name, "JUSTID") => {
                claim.just_id = true;
                after
            }
            [name, value, after @ ..] if args::is(name, "IDLE") => {
                delivered_ms =
                    Some(now_ms.wrapping_sub(int(value, "ERR Invalid IDLE option argument for XCLAIM")?));
                after
            }
            [name, value, after @ ..] if args::is(name, "TIME") => {
                delivered_ms = Some(int(value, "ERR Invalid TIME option argument for XCLAIM")?);
                after
            }
            [name, value, after @ ..] if args::is(name, "RETRYCOUNT") => {
                claim.retry_count =
                    u64::try_from(int(value, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?).ok();
                after
            }
            [name, value, after @ ..] if args::is(name, "LASTID") => {
                claim.last_id = id(value, 0)?;
                after
            }
            [name, ..] => {
                return Err(CommandError::err(format_args!(
                    "Unrecognized XCLAIM option '{}'",
                    args::text(name)
                )));
            }
        };
    }
    claim.delivered_ms = delivered_ms.filter(|ms| (0..=now_ms).contains(ms)).unwrap_or(now_ms).max(0) as u64;
    Ok((claim, ids))
}

pub fn xclaim(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms;
    let stream = write_stream(db, args[1])?.filter(|stream| stream.group(args[2]).is_some());
    let stream = stream.ok_or_else(|| no_group(args[1], args[2]))?;
    let (claim, ids) = parse_claim(args, now_ms)?;
    if let Some(group) = stream.group_mut(args[2]) {
        group.last_id = group.last_id.max(claim.last_id);
    }
    reply.counted_array(|reply| {
        ids.iter().filter(|id| claim.claim(stream, reply, **id) == Claimed::Yes).count()
    });
    db.changed(args[1], Class::Stream, "");
    Ok(())
}

pub fn xautoclaim(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    /// Pending entries looked at for each one wanted.
    const LOOKS: usize = 10;
    let idle_min = int(args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?.max(0);
    let start = range_start(args[5])?;
    let (mut count, mut just_id) = (100, false);
    let mut rest = &args[6..];
    loop {
        rest = match rest {
            [] => break,
            [name, value, after @ ..] if args::is(name, "COUNT") => {
                count = args::int_within(value, 1, i64::MAX / 16, "ERR COUNT must be > 0")? as usize;
                after
            }
            [name, after @ ..] if args::is(name, "JUSTID") => {
                just_id = true;
                after
            }
            _ => return Err(CommandError::Syntax),
        };
    }
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms.max(0) as u64;
    let stream = write_stream(db, args[1])?;
    let Some((stream, group)) =
        stream.and_then(|stream| stream.group(args[2]).cloned().map(|group| (stream, group)))
    else {
        return Err(no_group(args[1], args[2]));
    };
    let claim = Claim {
        group: args[2],
        consumer: args[3],
        now_ms,
        idle_min,
        delivered_ms: now_ms,
        retry_count: None,
        force: false,
        just_id,
        last_id: StreamId::MIN,
    };
    let mut looked = group.pending().range(start..).map(|(id, _)| *id);
    let mut inner = Reply::new(reply.resp3);
    let (mut claimed, mut deleted) = (0, Vec::new());
    let mut looks = count.saturating_mul(LOOKS);
    let mut next = looked.next();
    while let Some(id) = next {
        if looks == 0 || claimed + deleted.len() == count {
            break;
        }
        looks -= 1;
        match claim.claim(stream, &mut inner, id) {
            Claimed::Yes => claimed += 1,
            Claimed::Deleted => deleted.push(id),
            Claimed::No => {}
        }
        next = looked.next();
    }
    db.changed(args[1], Class::Stream, "");
    reply.array(3);
    reply_id(reply, next.unwrap_or(StreamId::MIN));
    reply.array(claimed);
    reply.raw(&inner.buffer);
    reply.array(deleted.len());
    for id in deleted {
        reply_id(reply, id);
    }
    Ok(())
}
