//! XINFO.

use super::{
    Access, Arg, CommandError, Ctx, Done, Flags, Keys, READ, Row, args, no_such_group, read_stream,
    reply_entry, reply_id, write_entries,
};
use crate::command::table;
use crate::resp::Reply;
use crate::value::stream::{Group, Stream, StreamId};

const KEY: Keys = Keys::At { first: 2, last: 2, step: 1, access: Access::Read };

pub const SUBCOMMANDS: &[Row] = &[
    Row::new("consumers", 4, READ, KEY, consumers).doc(
        table::Group::Stream,
        "5.0.0",
        "O(1)",
        "Lists the consumers of a group.",
    ),
    Row::new("groups", 3, READ, KEY, groups).doc(
        table::Group::Stream,
        "5.0.0",
        "O(1)",
        "Lists the consumer groups of a stream.",
    ),
    Row::new("stream", -3, READ, KEY, stream).doc(
        table::Group::Stream,
        "5.0.0",
        "O(1)",
        "Describes a stream.",
    ),
    Row::new("help", 2, Flags::NONE, Keys::None, help).doc(
        table::Group::Stream,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
    ),
];

pub fn reply_help(ctx: &mut Ctx<'_>, command: &str, lines: &[&str]) {
    ctx.reply.array(lines.len() + 3);
    ctx.reply.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for line in lines.iter().chain(&["HELP", "    Print this help."]) {
        ctx.reply.simple(line);
    }
}

fn help(ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    reply_help(
        ctx,
        "XINFO",
        &[
            "CONSUMERS <key> <groupname>",
            "    Show the consumers of the group.",
            "GROUPS <key>",
            "    Show the consumer groups of the stream.",
            "STREAM <key> [FULL [COUNT <count>]",
            "    Show what the stream holds.",
        ],
    );
    Ok(())
}

fn number(reply: &mut Reply, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.int(value as i64);
}

fn optional(reply: &mut Reply, name: &str, value: Option<i64>) {
    reply.bulk(name.as_bytes());
    match value {
        Some(value) => reply.int(value),
        None => reply.null(),
    }
}

fn identifier(reply: &mut Reply, name: &str, id: StreamId) {
    reply.bulk(name.as_bytes());
    reply_id(reply, id);
}

fn text(reply: &mut Reply, name: &str, value: &[u8]) {
    reply.bulk(name.as_bytes());
    reply.bulk(value);
}

fn consumers(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms;
    let stream = read_stream(db, args[2])?.ok_or(CommandError::NoSuchKey)?;
    let group = stream.group(args[3]).ok_or_else(|| no_such_group(args[2], args[3]))?;
    reply.array(group.consumers().len());
    for (name, consumer) in group.consumers() {
        reply.map(3);
        text(reply, "name", name);
        number(reply, "pending", consumer.pending().len() as u64);
        number(reply, "idle", (now_ms - consumer.seen_ms as i64).max(0) as u64);
    }
    Ok(())
}

fn groups(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let stream = read_stream(db, args[2])?.ok_or(CommandError::NoSuchKey)?;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(6);
        text(reply, "name", name);
        number(reply, "consumers", group.consumers().len() as u64);
        number(reply, "pending", group.pending().len() as u64);
        identifier(reply, "last-delivered-id", group.last_id);
        optional(reply, "entries-read", group.entries_read.map(|read| read as i64));
        optional(reply, "lag", stream.lag(group));
    }
    Ok(())
}

fn stream(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let mut count = 10;
    let full = match &args[3..] {
        [] => false,
        [full] if args::is(full, "FULL") => true,
        [full, name, number] if args::is(full, "FULL") && args::is(name, "COUNT") => {
            count = usize::try_from(args::int(number)?).unwrap_or(10);
            true
        }
        _ => {
            return Err(CommandError::err(format_args!(
                "unknown subcommand or wrong number of arguments for '{}'. Try XINFO HELP.",
                args::text(args[1])
            )));
        }
    };
    let (db, reply) = ctx.split();
    let stream = read_stream(db, args[2])?.ok_or(CommandError::NoSuchKey)?;
    reply.map(if full { 9 } else { 10 });
    number(reply, "length", stream.len());
    number(reply, "radix-tree-keys", stream.nodes().len() as u64);
    // The nodes are in a B-tree; clients know the number of a radix tree's nodes, which is at least this.
    number(reply, "radix-tree-nodes", stream.nodes().len() as u64 + 1);
    identifier(reply, "last-generated-id", stream.last_id);
    identifier(reply, "max-deleted-entry-id", stream.max_deleted_id);
    number(reply, "entries-added", stream.entries_added);
    identifier(reply, "recorded-first-entry-id", stream.first_id);
    if full {
        // A count of zero means all.
        let count = if count == 0 { usize::MAX } else { count };
        reply.bulk(b"entries");
        write_entries(reply, stream.range(StreamId::MIN, StreamId::MAX), count);
        reply.bulk(b"groups");
        reply.array(stream.groups().len());
        for (name, group) in stream.groups() {
            full_group(reply, stream, name, group, count);
        }
        return Ok(());
    }
    number(reply, "groups", stream.groups().len() as u64);
    for (name, entry) in [
        ("first-entry", stream.range(StreamId::MIN, StreamId::MAX).next()),
        ("last-entry", stream.range_back(StreamId::MIN, StreamId::MAX).next()),
    ] {
        reply.bulk(name.as_bytes());
        match entry {
            Some(entry) => reply_entry(reply, &entry),
            None => reply.null(),
        }
    }
    Ok(())
}

fn full_group(reply: &mut Reply, stream: &Stream, name: &[u8], group: &Group, count: usize) {
    reply.map(7);
    text(reply, "name", name);
    identifier(reply, "last-delivered-id", group.last_id);
    optional(reply, "entries-read", group.entries_read.map(|read| read as i64));
    optional(reply, "lag", stream.lag(group));
    number(reply, "pel-count", group.pending().len() as u64);
    reply.bulk(b"pending");
    reply.array(group.pending().len().min(count));
    for (id, pending) in group.pending().iter().take(count) {
        reply.array(4);
        reply_id(reply, *id);
        reply.bulk(&pending.consumer);
        reply.int(pending.delivered_ms as i64);
        reply.int(pending.deliveries as i64);
    }
    reply.bulk(b"consumers");
    reply.array(group.consumers().len());
    for (name, consumer) in group.consumers() {
        reply.map(4);
        text(reply, "name", name);
        number(reply, "seen-time", consumer.seen_ms);
        number(reply, "pel-count", consumer.pending().len() as u64);
        reply.bulk(b"pending");
        reply.array(consumer.pending().len().min(count));
        for (id, pending) in
            consumer.pending().iter().take(count).filter_map(|id| Some((id, group.pending().get(id)?)))
        {
            reply.array(3);
            reply_id(reply, *id);
            reply.int(pending.delivered_ms as i64);
            reply.int(pending.deliveries as i64);
        }
    }
}
