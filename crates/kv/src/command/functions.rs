//! FUNCTION and FCALL.

use super::scripting::{Running, ScriptFlags, kill_running, run_lua, split_keys};
use super::table::{Access, Acl, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args, help};
use crate::rdb::payload;
use crate::script::Failure;
use crate::script::functions::{BadDump, parse_dump};
use crate::server::Server;
use crate::value::glob;

/// The name under which storage keeps the libraries.
pub const FUNCTIONS: &str = "functions";
const RUN: Flags =
    flags(&[Flags::NOSCRIPT, Flags::STALE, Flags::SKIP_MONITOR, Flags::MOVABLE_KEYS, Flags::MAY_REPLICATE]);
const RUN_READ: Flags =
    flags(&[Flags::NOSCRIPT, Flags::STALE, Flags::SKIP_MONITOR, Flags::MOVABLE_KEYS, Flags::READONLY]);
const CHANGE: Flags = flags(&[Flags::NOSCRIPT, Flags::WRITE, Flags::DENYOOM]);
const DELETE: Flags = flags(&[Flags::NOSCRIPT, Flags::WRITE]);
const LOOK: Flags = Flags::NOSCRIPT;
const ANYTIME: Flags = flags(&[Flags::NOSCRIPT, Flags::ALLOW_BUSY]);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: super::Handler,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, flags, Keys::None, handler).doc(
        Group::Scripting,
        "7.0.0",
        "O(N) of the libraries",
        summary,
    )
}

pub const ROWS: &[Row] = &[
    Row::new("fcall", -3, RUN, Keys::Counted { number: 2, access: Access::ReadWrite }, fcall).doc(
        Group::Scripting,
        "7.0.0",
        "Depends on the function",
        "Runs a function.",
    ),
    Row::new("fcall_ro", -3, RUN_READ, Keys::Counted { number: 2, access: Access::Read }, fcall_ro).doc(
        Group::Scripting,
        "7.0.0",
        "Depends on the function",
        "Runs a function that only reads.",
    ),
    row("function", -2, Flags::NONE, |_, _| Err(CommandError::Syntax), "Manages libraries of functions.")
        .with_subcommands(&[
            row("load", -3, CHANGE, load, "Loads a library.").acl(Acl::WRITE),
            row("delete", 3, DELETE, delete, "Deletes a library."),
            row("list", -2, LOOK, list, "Describes libraries."),
            row("flush", -2, DELETE, flush, "Deletes all libraries."),
            row("dump", 2, LOOK, dump, "Returns all libraries in serialised form."),
            row("restore", -3, CHANGE, restore, "Loads libraries from their serialised form."),
            row("stats", 2, ANYTIME, stats, "Describes the running function and counts libraries."),
            row("kill", 2, ANYTIME, kill, "Ends the running function."),
            help::row(Group::Scripting, "7.0.0"),
        ]),
];

fn call(ctx: &mut Ctx<'_>, args: &[Arg<'_>], must_only_read: bool) -> Done {
    let name = args::text(args[1]).into_owned();
    let Some(function) = ctx.server.functions.get(&name) else {
        return Err(CommandError::of("ERR Function not found"));
    };
    let only_reads = function.flags.contains(&"no-writes");
    let allows_oom = function.flags.contains(&"allow-oom");
    let (keys, values) = split_keys(args, CommandError::of("ERR Bad number of keys provided"))?;
    if must_only_read && !only_reads {
        return Err(CommandError::of("ERR Can not execute a script with write flag using *_ro command."));
    }
    run_lua(
        ctx,
        args,
        Running::Function(&name),
        keys,
        values,
        ScriptFlags { is_flagged: true, read_only: only_reads, allows_oom },
    )
}

fn fcall(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    call(ctx, args, false)
}

fn fcall_ro(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    call(ctx, args, true)
}

/// Changes the libraries. With a storage tier they are stored before the reply; if that fails, they are as before.
fn change<T>(
    ctx: &mut Ctx<'_>,
    work: impl FnOnce(&mut Server) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let server = &mut *ctx.server;
    let Some(storage) = server.tier.as_ref().map(|tier| tier.storage.clone()) else { return work(server) };
    let before = server.functions.dump();
    let result = work(server)?;
    let after = server.functions.dump();
    if let Err(error) = storage.keep(FUNCTIONS, &after) {
        let clock = server.world.clock.clone();
        let codes = parse_dump(&before).unwrap_or_default();
        // They were loaded before.
        let _: Result<(), Failure> = server.functions.restore(&codes, true, true, &clock);
        return Err(CommandError::err(format_args!("storage: {error}")));
    }
    Ok(result)
}

/// Loads the libraries that storage has.
///
/// # Errors
/// What is wrong with them.
pub fn take_stored(server: &mut Server) -> Result<(), String> {
    let Some(storage) = server.tier.as_ref().map(|tier| tier.storage.clone()) else { return Ok(()) };
    let Some(dump) = storage.kept(FUNCTIONS).map_err(|error| error.to_string())? else { return Ok(()) };
    let codes = parse_dump(&dump).map_err(|_| "stored libraries of functions cannot be read".to_owned())?;
    let clock = server.world.clock.clone();
    server.functions.restore(&codes, true, true, &clock).map_err(|failure| failure.0)
}

fn load(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (code, options) = args[2..].split_last().ok_or(CommandError::of("ERR Function code is missing"))?;
    let mut replaces = false;
    for option in options {
        if !args::is(option, "REPLACE") {
            return Err(CommandError::err(format_args!("Unknown option given: {}", args::text(option))));
        }
        replaces = true;
    }
    let clock = ctx.server.world.clock.clone();
    let name = change(ctx, |server| Ok(server.functions.load(code, replaces, clock)?))?;
    ctx.reply.bulk(name.as_bytes());
    Ok(())
}

fn delete(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let name = args::text(args[2]);
    change(ctx, |server| match server.functions.remove(&name) {
        true => Ok(()),
        false => Err(CommandError::of("ERR Library not found")),
    })?;
    ctx.reply.ok();
    Ok(())
}

fn list(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (mut with_code, mut pattern) = (false, None);
    let mut rest = &args[2..];
    loop {
        rest = match rest {
            [] => break,
            [word, after @ ..] if !with_code && args::is(word, "WITHCODE") => {
                with_code = true;
                after
            }
            [word] if pattern.is_none() && args::is(word, "LIBRARYNAME") => {
                return Err(CommandError::of("ERR library name argument was not given"));
            }
            [word, name, after @ ..] if pattern.is_none() && args::is(word, "LIBRARYNAME") => {
                pattern = Some(*name);
                after
            }
            [other, ..] => {
                return Err(CommandError::err(format_args!("Unknown argument {}", args::text(other))));
            }
        };
    }
    let Ctx { server, reply, .. } = ctx;
    let is_wanted =
        |name: &str| pattern.is_none_or(|pattern| glob::matches_ignoring_case(pattern, name.as_bytes()));
    let found: Vec<_> = server.functions.libraries().filter(|(name, _)| is_wanted(name)).collect();
    reply.array(found.len());
    for (name, library) in found {
        reply.map(3 + usize::from(with_code));
        reply.bulk(b"library_name");
        reply.bulk(name.as_bytes());
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(library.functions.len());
        for (name, function) in &library.functions {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(name.as_bytes());
            reply.bulk(b"description");
            reply.bulk_or_null(function.description.as_deref());
            reply.bulk(b"flags");
            reply.set(function.flags.len());
            function.flags.iter().for_each(|flag| reply.simple(flag));
        }
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(&library.code);
        }
    }
    Ok(())
}

fn wrong_arguments(args: &[Arg<'_>]) -> CommandError {
    CommandError::err(format_args!(
        "unknown subcommand or wrong number of arguments for '{}'. Try FUNCTION HELP.",
        args::text(args[1])
    ))
}

fn flush(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    match &args[2..] {
        [] => {}
        [how] if args::is(how, "SYNC") || args::is(how, "ASYNC") => {}
        [_] => return Err(CommandError::of("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        _ => return Err(wrong_arguments(args)),
    }
    change(ctx, |server| {
        server.functions.clear();
        Ok(())
    })?;
    ctx.reply.ok();
    Ok(())
}

fn dump(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.bulk(&payload::seal(ctx.server.functions.dump()));
    Ok(())
}

fn restore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (flushes, replaces) = match &args[3..] {
        [] => (false, false),
        [word] if args::is(word, "APPEND") => (false, false),
        [word] if args::is(word, "REPLACE") => (false, true),
        [word] if args::is(word, "FLUSH") => (true, false),
        [_] => {
            return Err(CommandError::of(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
        _ => {
            return Err(wrong_arguments(args));
        }
    };
    let bytes = payload::open_any(args[2])
        .ok_or(CommandError::of("ERR DUMP payload version or checksum are wrong"))?;
    let codes = parse_dump(bytes).map_err(|bad| match bad {
        BadDump::NotALibrary => CommandError::of("ERR given type is not a function"),
        BadDump::Malformed => CommandError::of("ERR failed loading the given functions payload"),
    })?;
    let clock = ctx.server.world.clock.clone();
    change(ctx, |server| Ok(server.functions.restore(&codes, flushes, replaces, &clock)?))?;
    ctx.reply.ok();
    Ok(())
}

fn stats(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let Ctx { server, reply, .. } = ctx;
    let libraries = server.functions.libraries();
    reply.map(2);
    reply.bulk(b"running_script");
    match &server.running {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(running.name.as_bytes());
            reply.bulk(b"command");
            reply.array(running.command.len());
            running.command.iter().for_each(|arg| reply.bulk(arg));
            reply.bulk(b"duration_ms");
            let nanos = server.world.clock.now().saturating_sub(running.started);
            reply.int((nanos / 1_000_000) as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.int(libraries.len() as i64);
    reply.bulk(b"functions_count");
    reply.int(libraries.map(|(_, library)| library.functions.len() as i64).sum());
    Ok(())
}

fn kill(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    kill_running(ctx, true)
}
