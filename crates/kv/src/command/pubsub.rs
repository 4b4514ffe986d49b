//! Publish and subscribe, by channel, pattern and shard channel.

use super::table::{Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done};
use crate::pubsub::Kind;
use crate::resp::Reply;
use crate::value::glob;

const SUBSCRIBE: Flags = flags(&[Flags::PUBSUB, Flags::NOSCRIPT, Flags::LOADING, Flags::STALE]);
const PUBLISH: Flags =
    flags(&[Flags::PUBSUB, Flags::LOADING, Flags::STALE, Flags::FAST, Flags::MAY_REPLICATE]);
const LOOK: Flags = flags(&[Flags::PUBSUB, Flags::LOADING, Flags::STALE]);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: super::Handler,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, flags, Keys::None, handler).doc(
        Group::Pubsub,
        since,
        "O(N) of the channels",
        summary,
    )
}

pub const ROWS: &[Row] = &[
    row(
        "subscribe",
        -2,
        SUBSCRIBE,
        |ctx, args| subscribe(ctx, args, Kind::Channel),
        "2.0.0",
        "Listens to channels.",
    ),
    row(
        "psubscribe",
        -2,
        SUBSCRIBE,
        |ctx, args| subscribe(ctx, args, Kind::Pattern),
        "2.0.0",
        "Listens to the channels that match patterns.",
    ),
    row(
        "ssubscribe",
        -2,
        SUBSCRIBE,
        |ctx, args| subscribe(ctx, args, Kind::Shard),
        "7.0.0",
        "Listens to shard channels.",
    ),
    row(
        "unsubscribe",
        -1,
        SUBSCRIBE,
        |ctx, args| unsubscribe(ctx, args, Kind::Channel),
        "2.0.0",
        "Stops listening to channels.",
    ),
    row(
        "punsubscribe",
        -1,
        SUBSCRIBE,
        |ctx, args| unsubscribe(ctx, args, Kind::Pattern),
        "2.0.0",
        "Stops listening to patterns.",
    ),
    row(
        "sunsubscribe",
        -1,
        SUBSCRIBE,
        |ctx, args| unsubscribe(ctx, args, Kind::Shard),
        "7.0.0",
        "Stops listening to shard channels.",
    ),
    row(
        "publish",
        3,
        PUBLISH,
        |ctx, args| publish(ctx, args, false),
        "2.0.0",
        "Sends a message to a channel.",
    ),
    row(
        "spublish",
        3,
        PUBLISH,
        |ctx, args| publish(ctx, args, true),
        "7.0.0",
        "Sends a message to a shard channel.",
    ),
    row("pubsub", -2, LOOK, |_, _| Err(CommandError::Syntax), "2.8.0", "Looks at channels.")
        .with_subcommands(&[
            row(
                "channels",
                -2,
                LOOK,
                |ctx, args| channels(ctx, args, Kind::Channel),
                "2.8.0",
                "Lists channels that have subscribers.",
            ),
            row(
                "shardchannels",
                -2,
                LOOK,
                |ctx, args| channels(ctx, args, Kind::Shard),
                "7.0.0",
                "Lists shard channels that have subscribers.",
            ),
            row(
                "numsub",
                -2,
                LOOK,
                |ctx, args| subscribers(ctx, args, Kind::Channel),
                "2.8.0",
                "Counts the subscribers of channels.",
            ),
            row(
                "shardnumsub",
                -2,
                LOOK,
                |ctx, args| subscribers(ctx, args, Kind::Shard),
                "7.0.0",
                "Counts the subscribers of shard channels.",
            ),
            row("numpat", 2, LOOK, patterns, "2.8.0", "Counts the patterns that are subscribed to."),
            super::help::row(Group::Pubsub, "6.2.0"),
        ]),
];

fn words(kind: Kind) -> (&'static [u8], &'static [u8]) {
    match kind {
        Kind::Channel => (b"subscribe", b"unsubscribe"),
        Kind::Pattern => (b"psubscribe", b"punsubscribe"),
        Kind::Shard => (b"ssubscribe", b"sunsubscribe"),
    }
}

/// Says that a subscription began or ended.
fn confirm(reply: &mut Reply, word: &[u8], name: Option<&[u8]>, count: usize) {
    reply.message(|reply| {
        reply.push(3);
        reply.bulk(word);
        reply.bulk_or_null(name);
        reply.int(count as i64);
    });
}

fn subscribe(ctx: &mut Ctx<'_>, args: &[Arg<'_>], kind: Kind) -> Done {
    if ctx.client.denies_blocking && !ctx.reply.resp3 {
        return Err(CommandError::of("ERR SUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    for &name in &args[1..] {
        let own = &mut ctx.client.subscriptions[kind as usize];
        if !own.iter().any(|known| known == name) {
            own.push(name.to_vec());
            ctx.server.channels.add(kind, name, ctx.client.id);
        }
        let count = ctx.client.subscribed(kind);
        confirm(ctx.reply, words(kind).0, Some(name), count);
    }
    Ok(())
}

fn unsubscribe(ctx: &mut Ctx<'_>, args: &[Arg<'_>], kind: Kind) -> Done {
    let names: Vec<Vec<u8>> = match args {
        [_] => ctx.client.subscriptions[kind as usize].clone(),
        _ => args[1..].iter().map(|name| name.to_vec()).collect(),
    };
    for name in &names {
        ctx.client.subscriptions[kind as usize].retain(|known| known != name);
        ctx.server.channels.remove(kind, name, ctx.client.id);
        let count = ctx.client.subscribed(kind);
        confirm(ctx.reply, words(kind).1, Some(name), count);
    }
    if names.is_empty() {
        let count = ctx.client.subscribed(kind);
        confirm(ctx.reply, words(kind).1, None, count);
    }
    Ok(())
}

fn publish(ctx: &mut Ctx<'_>, args: &[Arg<'_>], is_shard: bool) -> Done {
    let own = Some((ctx.client.id, &mut *ctx.reply));
    let count = ctx.server.channels.publish(&mut ctx.server.clients, own, is_shard, args[1], args[2]);
    ctx.reply.int(count as i64);
    Ok(())
}

fn channels(ctx: &mut Ctx<'_>, args: &[Arg<'_>], kind: Kind) -> Done {
    if args.len() > 3 {
        return Err(CommandError::arity("pubsub|channels"));
    }
    let pattern = args.get(2).copied().unwrap_or(b"*");
    let names = ctx.server.channels.names(kind);
    let names: Vec<&[u8]> = names.filter(|name| glob::matches(pattern, name)).collect();
    ctx.reply.array(names.len());
    for name in names {
        ctx.reply.bulk(name);
    }
    Ok(())
}

fn subscribers(ctx: &mut Ctx<'_>, args: &[Arg<'_>], kind: Kind) -> Done {
    ctx.reply.array(2 * (args.len() - 2));
    for name in &args[2..] {
        ctx.reply.bulk(name);
        ctx.reply.int(ctx.server.channels.subscribers(kind, name) as i64);
    }
    Ok(())
}

fn patterns(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.int(ctx.server.channels.len(Kind::Pattern) as i64);
    Ok(())
}
