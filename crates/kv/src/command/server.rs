//! Commands of the connection and the server.

use super::table::{Acl, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args, help};
use crate::keyspace::Class;

pub const ROWS: &[Row] = &[
    Row::new("ping", -1, flags(&[Flags::FAST, Flags::LOADING, Flags::STALE]), Keys::None, ping).doc(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Answers PONG, or the argument.",
    ),
    Row::new("echo", 2, flags(&[Flags::FAST, Flags::LOADING, Flags::STALE]), Keys::None, echo).doc(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Answers the argument.",
    ),
    Row::new("select", 2, flags(&[Flags::FAST, Flags::LOADING, Flags::STALE]), Keys::None, select).doc(
        Group::Connection,
        "1.0.0",
        "O(1)",
        "Changes the database of the connection.",
    ),
    row("dbsize", 1, READ, dbsize, "1.0.0", "Counts the keys of the database.").acl(Acl::KEYSPACE),
    row("flushdb", -1, Flags::WRITE, flushdb, "1.0.0", "Deletes all keys of the database.").acl(FLUSH),
    row("flushall", -1, flags(&[Flags::WRITE, Flags::ALL_DATABASES]), flushall, "1.0.0", "Deletes all keys.")
        .acl(FLUSH),
    row(
        "swapdb",
        3,
        flags(&[Flags::WRITE, Flags::FAST, Flags::ALL_DATABASES]),
        swapdb,
        "4.0.0",
        "Exchanges two databases.",
    )
    .acl(FLUSH),
    row("time", 1, LOOK, time, "2.6.0", "Returns the time of the server."),
    row("config", -2, Flags::NONE, |_, _| Err(CommandError::Syntax), "2.0.0", "Reads and changes settings.")
        .with_subcommands(&[
            row("get", -3, ADMIN, config_get, "2.0.0", "Returns settings that match patterns."),
            row("set", -4, ADMIN, config_set, "2.0.0", "Changes settings."),
            row(
                "rewrite",
                2,
                ADMIN,
                config_rewrite,
                "2.8.0",
                "Writes the settings into the configuration file.",
            ),
            row("resetstat", 2, ADMIN, resetstat, "2.0.0", "Sets the counters to zero."),
            help::row(Group::Server, "5.0.0"),
        ]),
    row("slowlog", -2, Flags::NONE, |_, _| Err(CommandError::Syntax), "2.2.12", "Looks at slow commands.")
        .with_subcommands(&[
            row("get", -2, ADMIN, slowlog_get, "2.2.12", "Returns slow commands."),
            row("len", 2, ADMIN, slowlog_len, "2.2.12", "Counts the slow commands that are kept."),
            row("reset", 2, ADMIN, slowlog_reset, "2.2.12", "Forgets the slow commands."),
            help::row(Group::Server, "6.2.0"),
        ]),
];

const READ: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const LOOK: Flags = flags(&[Flags::LOADING, Flags::STALE, Flags::FAST]);
const ADMIN: Flags = flags(&[Flags::ADMIN, Flags::NOSCRIPT, Flags::LOADING, Flags::STALE]);
const FLUSH: Acl = Acl::KEYSPACE.with(Acl::DANGEROUS);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: super::Handler,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, flags, Keys::None, handler).doc(Group::Server, since, "O(1)", summary)
}

fn ping(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args.len() <= 2 && !ctx.reply.resp3 && ctx.client.subscribed_at_all() {
        ctx.reply.array(2);
        ctx.reply.bulk(b"pong");
        ctx.reply.bulk(args.get(1).copied().unwrap_or_default());
        return Ok(());
    }
    match args {
        [_] => ctx.reply.simple("PONG"),
        [_, text] => ctx.reply.bulk(text),
        _ => return Err(CommandError::arity("ping")),
    }
    Ok(())
}

fn echo(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    ctx.reply.bulk(args[1]);
    Ok(())
}

fn select(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    ctx.client.db = database(ctx, args[1], "ERR invalid DB index")?;
    ctx.reply.ok();
    Ok(())
}

/// The number of an existing database.
pub fn database(ctx: &Ctx<'_>, arg: Arg<'_>, not_a_number: &'static str) -> Result<u16, CommandError> {
    let index = args::int(arg).map_err(|_| CommandError::of(not_a_number))?;
    match u16::try_from(index) {
        Ok(index) if usize::from(index) < ctx.dbs.all.len() => Ok(index),
        _ => Err(CommandError::of("ERR DB index is out of range")),
    }
}

fn dbsize(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let index = ctx.client.db;
    let len = match &ctx.server.tier {
        Some(tier) => tier.count(index),
        None => ctx.db().len() as u64,
    };
    ctx.reply.int(len as i64);
    Ok(())
}

/// `ASYNC` and `SYNC` both mean: now.
fn check_flush_mode(args: &[Arg<'_>]) -> Done {
    match args {
        [_] => Ok(()),
        [_, mode] if args::is(mode, "ASYNC") || args::is(mode, "SYNC") => Ok(()),
        _ => Err(CommandError::Syntax),
    }
}

fn flushdb(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    check_flush_mode(args)?;
    ctx.server.touch_all_watched(ctx.dbs, ctx.client.db, None);
    ctx.db().clear();
    ctx.server.tracking.is_flushed = true;
    wake_waiting(ctx, ctx.client.db);
    ctx.reply.ok();
    Ok(())
}

/// After all keys of a database were deleted or exchanged: clients that wait for a key look at it again. XREADGROUP fails if its stream is gone.
fn wake_waiting(ctx: &mut Ctx<'_>, db: u16) {
    for (_, key) in ctx.server.waiting.keys().filter(|(of, _)| *of == db) {
        ctx.dbs.all[usize::from(db)].changed(key, Class::Unnoticed, "");
    }
}

fn flushall(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    check_flush_mode(args)?;
    if ctx.server.tier.is_none() {
        // As Redis does: its file would have what is deleted here.
        crate::server::save::cancel(ctx.dbs, ctx.server);
    }
    for index in 0..ctx.dbs.all.len() {
        ctx.server.touch_all_watched(ctx.dbs, index as u16, None);
        ctx.dbs.all[index].clear();
        ctx.server.tracking.is_flushed = true;
        wake_waiting(ctx, index as u16);
    }
    ctx.reply.ok();
    Ok(())
}

fn swapdb(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let first = database(ctx, args[1], "ERR invalid first DB index")?;
    let second = database(ctx, args[2], "ERR invalid second DB index")?;
    if first != second {
        if let Some(tier) = &mut ctx.server.tier {
            tier.swap(first, second)
                .map_err(|error| CommandError::Text(format!("ERR storage: {error}").into()))?;
        }
        ctx.server.touch_all_watched(ctx.dbs, first, Some(second));
        ctx.server.touch_all_watched(ctx.dbs, second, Some(first));
        ctx.dbs.swap(first, second);
        if ctx.server.tier.is_some() {
            ctx.server.run_waiting_anew();
        } else {
            wake_waiting(ctx, first);
            wake_waiting(ctx, second);
        }
    }
    ctx.reply.ok();
    Ok(())
}

fn time(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let now_ms = ctx.server.world.clock.unix_ms();
    ctx.reply.array(2);
    ctx.reply.bulk_int((now_ms / 1000) as i64);
    ctx.reply.bulk_int((now_ms % 1000 * 1000) as i64);
    Ok(())
}

fn config_get(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for pattern in &args[2..] {
        for (name, value) in ctx.server.config.matching(pattern) {
            if !found.iter().any(|(known, _)| *known == name) {
                found.push((name, value));
            }
        }
    }
    ctx.reply.map(found.len());
    for (name, value) in found {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn config_set(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::arity("config|set"));
    }
    let pair = |pair: &[Arg<'_>]| (args::text(pair[0]).into_owned(), args::text(pair[1]).into_owned());
    let pairs: Vec<(String, String)> = args[2..].chunks_exact(2).map(pair).collect();
    ctx.server.config.set(&pairs).map_err(CommandError::err)?;
    ctx.server.apply_config();
    ctx.dbs.set_policies(|| ctx.server.eviction_policy());
    let follows = ctx.server.follows_changes();
    ctx.dbs.record_changes(follows);
    ctx.reply.ok();
    Ok(())
}

fn config_rewrite(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let server = &*ctx.server;
    let (Some(path), Some(files)) = (&server.config.file, &server.files) else {
        return Err(CommandError::of("ERR The server is running without a config file"));
    };
    let failed = |error: std::io::Error| CommandError::err(format_args!("Rewriting config file: {error}"));
    let text = files.read(path).map_err(failed)?;
    let users: Vec<Vec<u8>> = match server.config.text("aclfile") {
        "" => server.acl.users().map(|user| user.line()).collect(),
        _ => Vec::new(),
    };
    let text = server.config.rewrite(&String::from_utf8_lossy(&text), &users);
    files.replace(path, &text).map_err(failed)?;
    ctx.reply.ok();
    Ok(())
}

fn resetstat(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.server.stats = crate::server::Stats::default();
    ctx.server.error_stats.clear();
    ctx.server.command_stats.fill(crate::server::CommandStats::default());
    for db in &mut ctx.dbs.all {
        (db.hits, db.misses, db.expired) = (0, 0, 0);
    }
    ctx.reply.ok();
    Ok(())
}

fn slowlog_get(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let count = match args {
        [_, _] => 10,
        [_, _, count] => {
            args::int_within(count, -1, i64::MAX, "ERR count should be greater than or equal to -1")?
        }
        _ => return Err(CommandError::Syntax),
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let reply = &mut *ctx.reply;
    let slow = ctx.server.slow.newest(count);
    reply.array(slow.len());
    for slow in slow {
        reply.array(6);
        reply.int(slow.id as i64);
        reply.int(slow.at);
        reply.int(slow.micros as i64);
        reply.array(slow.args.len());
        for arg in &slow.args {
            reply.bulk(arg);
        }
        reply.bulk(slow.address.as_bytes());
        reply.bulk(&slow.name);
    }
    Ok(())
}

fn slowlog_len(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.int(ctx.server.slow.len() as i64);
    Ok(())
}

fn slowlog_reset(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.server.slow.clear();
    ctx.reply.ok();
    Ok(())
}
