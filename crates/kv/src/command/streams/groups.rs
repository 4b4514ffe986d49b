//! XGROUP, XACK and XPENDING.

use super::{
    Access, Arg, CommandError, Ctx, Done, Flags, Keys, Row, WRITE, args, id, no_group, no_such_group,
    range_end, range_start, read_stream, reply_id, write_stream,
};
use crate::command::table::{self, flags};
use crate::keyspace::Class;
use crate::value::Value;
use crate::value::stream::{Group, StreamId};

const KEY: Keys = Keys::At { first: 2, last: 2, step: 1, access: Access::ReadWrite };
const WRITE_OOM: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);

pub const SUBCOMMANDS: &[Row] = &[
    Row::new("create", -5, WRITE_OOM, KEY, create).doc(
        table::Group::Stream,
        "5.0.0",
        "O(1)",
        "Creates a consumer group.",
    ),
    Row::new("setid", -5, WRITE, KEY, setid).doc(
        table::Group::Stream,
        "5.0.0",
        "O(1)",
        "Sets the last identifier that a group has read.",
    ),
    Row::new("destroy", 4, WRITE, KEY, destroy).doc(
        table::Group::Stream,
        "5.0.0",
        "O(N) of the pending entries",
        "Removes a consumer group.",
    ),
    Row::new("createconsumer", 5, WRITE_OOM, KEY, create_consumer).doc(
        table::Group::Stream,
        "6.2.0",
        "O(1)",
        "Creates a consumer in a group.",
    ),
    Row::new("delconsumer", 5, WRITE, KEY, delete_consumer).doc(
        table::Group::Stream,
        "5.0.0",
        "O(1)",
        "Removes a consumer and its pending entries.",
    ),
    Row::new("help", 2, Flags::NONE, Keys::None, help).doc(
        table::Group::Stream,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
    ),
];

/// A container without a subcommand is refused by the dispatcher; this is never its handler's turn.
pub fn container(_ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    Err(CommandError::Syntax)
}

fn help(ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    super::info::reply_help(
        ctx,
        "XGROUP",
        &[
            "CREATE <key> <groupname> <id|$> [option]",
            "    Create a consumer group. MKSTREAM creates an absent stream; ENTRIESREAD sets the group's counter.",
            "CREATECONSUMER <key> <groupname> <consumer>",
            "    Create a consumer in the group.",
            "DELCONSUMER <key> <groupname> <consumer>",
            "    Remove a consumer from the group.",
            "DESTROY <key> <groupname>",
            "    Remove the group.",
            "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            "    Set the position of the group and its counter.",
        ],
    );
    Ok(())
}

const NO_KEY: CommandError = CommandError::of(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty \
     stream automatically.",
);

fn wrong_arguments(args: &[Arg<'_>]) -> CommandError {
    CommandError::err(format_args!(
        "unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        args::text(&args[1][..args[1].len().min(128)]),
        args::text(args[0]).to_ascii_uppercase()
    ))
}

struct Options {
    make_stream: bool,
    entries_read: Option<u64>,
}

fn parse_options(args: &[Arg<'_>], may_create: bool) -> Result<Options, CommandError> {
    let mut options = Options { make_stream: false, entries_read: None };
    let mut rest = &args[5..];
    loop {
        rest = match rest {
            [] => return Ok(options),
            [name, after @ ..] if may_create && args::is(name, "MKSTREAM") => {
                options.make_stream = true;
                after
            }
            [name, value, after @ ..] if args::is(name, "ENTRIESREAD") => {
                let read = args::int(value)?;
                if read < -1 {
                    return Err(CommandError::of("ERR value for ENTRIESREAD must be positive or -1"));
                }
                options.entries_read = u64::try_from(read).ok();
                after
            }
            _ => return Err(wrong_arguments(args)),
        };
    }
}

fn create(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let options = parse_options(args, true)?;
    let (db, reply) = ctx.split();
    let last = match read_stream(db, args[2])? {
        None if !options.make_stream => return Err(NO_KEY),
        stream => stream.map_or(StreamId::MIN, |stream| stream.last_id),
    };
    let last = if args[4] == b"$" { last } else { id(args[4], 0)? };
    if !db.contains(args[2]) {
        db.insert(args[2], Value::Stream(Box::default()));
    }
    let Some(stream) = write_stream(db, args[2])? else { return Err(NO_KEY) };
    if !stream.create_group(args[3], Group::new(last, options.entries_read)) {
        return Err(CommandError::of("BUSYGROUP Consumer Group name already exists"));
    }
    db.changed(args[2], Class::Stream, "xgroup-create");
    reply.ok();
    Ok(())
}

fn setid(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let options = parse_options(args, false)?;
    let (db, reply) = ctx.split();
    let stream = write_stream(db, args[2])?.ok_or(NO_KEY)?;
    let last_id = stream.last_id;
    let group = stream.group_mut(args[3]).ok_or_else(|| no_such_group(args[2], args[3]))?;
    group.last_id = match args[4] {
        b"$" => last_id,
        b"-" => StreamId::MIN,
        b"+" => StreamId::MAX,
        arg => id(arg, 0)?,
    };
    group.entries_read = options.entries_read;
    db.changed(args[2], Class::Stream, "xgroup-setid");
    reply.ok();
    Ok(())
}

fn destroy(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let destroyed = write_stream(db, args[2])?.ok_or(NO_KEY)?.destroy_group(args[3]);
    if destroyed {
        db.changed(args[2], Class::Stream, "xgroup-destroy");
    }
    reply.int(i64::from(destroyed));
    Ok(())
}

fn create_consumer(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms.max(0) as u64;
    let stream = write_stream(db, args[2])?.ok_or(NO_KEY)?;
    let group = stream.group_mut(args[3]).ok_or_else(|| no_such_group(args[2], args[3]))?;
    let created = group.create_consumer(args[4], now_ms);
    if created {
        db.changed(args[2], Class::Stream, "xgroup-createconsumer");
    }
    reply.int(i64::from(created));
    Ok(())
}

fn delete_consumer(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let stream = write_stream(db, args[2])?.ok_or(NO_KEY)?;
    let group = stream.group_mut(args[3]).ok_or_else(|| no_such_group(args[2], args[3]))?;
    let deleted = group.delete_consumer(args[4]);
    if deleted.is_some() {
        db.changed(args[2], Class::Stream, "xgroup-delconsumer");
    }
    reply.int(deleted.unwrap_or(0) as i64);
    Ok(())
}

pub fn xack(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(group) = write_stream(db, args[1])?.and_then(|stream| stream.group_mut(args[2])) else {
        reply.int(0);
        return Ok(());
    };
    let ids = args[3..].iter().map(|arg| id(arg, 0)).collect::<Result<Vec<_>, _>>()?;
    let acknowledged = ids.into_iter().filter(|id| group.acknowledge(*id)).count();
    if acknowledged > 0 {
        db.changed(args[1], Class::Stream, "");
    }
    reply.int(acknowledged as i64);
    Ok(())
}

pub fn xpending(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args.len() == 3 {
        return summary(ctx, args);
    }
    if !(6..=9).contains(&args.len()) {
        return Err(CommandError::Syntax);
    }
    let mut rest = &args[3..];
    let mut idle_min = 0;
    if args::is(rest[0], "IDLE") {
        idle_min = args::int(rest[1])?;
        if args.len() < 8 {
            return Err(CommandError::Syntax);
        }
        rest = &rest[2..];
    }
    let count = usize::try_from(args::int(rest[2])?).unwrap_or(0);
    let (start, end) = (range_start(rest[0])?, range_end(rest[1])?);
    let consumer = rest.get(3);
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms;
    let group = read_stream(db, args[1])?
        .and_then(|stream| stream.group(args[2]))
        .ok_or_else(|| no_group(args[1], args[2]))?;
    let owned = match consumer {
        Some(name) => match group.consumers().get(*name) {
            Some(consumer) => Some(consumer),
            None => {
                reply.array(0);
                return Ok(());
            }
        },
        None => None,
    };
    let in_range = |id: &StreamId| (start..=end).contains(id);
    let ids: Box<dyn Iterator<Item = &StreamId>> = match owned {
        Some(consumer) => Box::new(consumer.pending().range(start..).take_while(|id| in_range(id))),
        None => Box::new(group.pending().range(start..).map(|(id, _)| id).take_while(|id| in_range(id))),
    };
    let listed: Vec<_> = ids
        .filter_map(|id| Some((*id, group.pending().get(id)?)))
        .filter(|(_, pending)| idle_min == 0 || now_ms - pending.delivered_ms as i64 >= idle_min)
        .take(count)
        .collect();
    reply.array(listed.len());
    for (id, pending) in listed {
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(&pending.consumer);
        reply.int((now_ms - pending.delivered_ms as i64).max(0));
        reply.int(pending.deliveries as i64);
    }
    Ok(())
}

fn summary(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let group = read_stream(db, args[1])?
        .and_then(|stream| stream.group(args[2]))
        .ok_or_else(|| no_group(args[1], args[2]))?;
    reply.array(4);
    reply.int(group.pending().len() as i64);
    let (Some((first, _)), Some((last, _))) =
        (group.pending().first_key_value(), group.pending().last_key_value())
    else {
        reply.null();
        reply.null();
        reply.null_array();
        return Ok(());
    };
    reply_id(reply, *first);
    reply_id(reply, *last);
    reply.counted_array(|reply| {
        let busy = group.consumers().iter().filter(|(_, consumer)| !consumer.pending().is_empty());
        busy.inspect(|(name, consumer)| {
            reply.array(2);
            reply.bulk(name);
            reply.bulk_int(consumer.pending().len() as i64);
        })
        .count()
    });
    Ok(())
}
