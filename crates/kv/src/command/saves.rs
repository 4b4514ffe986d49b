//! Snapshot files, and the end of the server: `SAVE`, `BGSAVE`, `LASTSAVE`, `BGREWRITEAOF`, `SHUTDOWN`.

use super::table::{Acl, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::Databases;
use crate::server::save;
use crate::server::{Core, Server};

const ADMIN: Flags = flags(&[Flags::ADMIN, Flags::NOSCRIPT]);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: super::Handler,
    complexity: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, flags, Keys::None, handler).doc(Group::Server, "1.0.0", complexity, summary)
}

pub const ROWS: &[Row] = &[
    row(
        "save",
        1,
        flags(&[ADMIN, Flags::NO_ASYNC_LOADING, Flags::NO_MULTI]),
        save_now,
        "O(N) of all keys",
        "Writes a snapshot file while nothing else runs.",
    ),
    row(
        "bgsave",
        -1,
        flags(&[ADMIN, Flags::NO_ASYNC_LOADING]),
        bgsave,
        "O(1)",
        "Writes a snapshot file in the background.",
    ),
    row(
        "lastsave",
        1,
        flags(&[Flags::LOADING, Flags::STALE, Flags::FAST]),
        lastsave,
        "O(1)",
        "Returns the time of the last snapshot file that succeeded.",
    )
    .acl(Acl::ADMIN.with(Acl::DANGEROUS)),
    row(
        "bgrewriteaof",
        1,
        flags(&[ADMIN, Flags::NO_ASYNC_LOADING]),
        bgrewriteaof,
        "O(1)",
        "Is refused: there is no append only file.",
    ),
    row(
        "shutdown",
        -1,
        flags(&[ADMIN, Flags::LOADING, Flags::STALE, Flags::NO_MULTI, Flags::ALLOW_BUSY]),
        shutdown,
        "O(N) of all keys, if it saves",
        "Ends the server.",
    ),
];

const RUNNING: CommandError = CommandError::of("ERR Background save already in progress");

fn save_now(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    if ctx.server.saves.running.is_some() {
        return Err(RUNNING);
    }
    save::now(ctx.dbs, ctx.server).map_err(CommandError::err)?;
    ctx.reply.ok();
    Ok(())
}

fn bgsave(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    match args {
        [_] => {}
        // Nothing but another save can be in its way.
        [_, word] if args::is(word, "SCHEDULE") => {}
        _ => return Err(CommandError::Syntax),
    }
    if ctx.server.saves.running.is_some() {
        return Err(RUNNING);
    }
    if ctx.is_nested {
        // It would see half of the transaction.
        ctx.server.saves.is_scheduled = true;
        ctx.reply.simple("Background saving scheduled");
        return Ok(());
    }
    save::begin(ctx.dbs, ctx.server).map_err(CommandError::err)?;
    ctx.reply.simple("Background saving started");
    Ok(())
}

fn lastsave(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.int(ctx.server.saves.last_ms / 1000);
    Ok(())
}

fn bgrewriteaof(_: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    Err(CommandError::of("ERR There is no append only file: the storage engine shortens its log by itself"))
}

/// How the server is to end.
#[derive(Clone, Copy, Default)]
pub struct Ending {
    /// Whether a snapshot file is written; `None`: if `save` has points.
    saves: Option<bool>,
    /// Whether it ends though the file could not be written.
    is_forced: bool,
}

/// Ends the server, or says why not.
fn end(dbs: &mut Databases, server: &mut Server, ending: Ending) -> Result<(), String> {
    save::cancel(dbs, server);
    let has_points = !server.config.save_points.is_empty();
    if ending.saves.unwrap_or(has_points)
        && let Err(error) = save::now(dbs, server)
        && !ending.is_forced
    {
        return Err(error);
    }
    server.log(match server.tier {
        Some(_) => "ends when all changes are stored",
        None => "ends",
    });
    server.is_stopping = true;
    Ok(())
}

fn shutdown(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let mut ending = Ending::default();
    let (mut aborts, mut is_now) = (false, false);
    for arg in &args[1..] {
        match arg {
            word if args::is(word, "NOSAVE") && ending.saves != Some(true) => ending.saves = Some(false),
            word if args::is(word, "SAVE") && ending.saves != Some(false) => ending.saves = Some(true),
            word if args::is(word, "NOW") => is_now = true,
            word if args::is(word, "FORCE") => ending.is_forced = true,
            word if args::is(word, "ABORT") => aborts = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    if aborts {
        return match ending.saves.is_some() || is_now || ending.is_forced {
            true => Err(CommandError::Syntax),
            // It ends at once, as there are no replicas to wait for.
            false => Err(CommandError::of("ERR No shutdown in progress.")),
        };
    }
    // While a script runs, the server can only break it off.
    if let Some(running) = &ctx.server.running
        && ending.saves != Some(false)
    {
        return Err(CommandError::of(running.refusal()));
    }
    ctx.server.log("ends, as a client asks");
    end(ctx.dbs, ctx.server, ending)
        .map_err(|_| CommandError::of("ERR Errors trying to SHUTDOWN. Check logs."))
}

impl Core {
    /// Begins to end the server if a signal asks for it.
    pub fn look_at_signals(&mut self) {
        let Core { dbs, server } = self;
        let Some(signals) = server.signals else { return };
        let Some(signal) = signals.received().filter(|_| !server.is_stopping) else { return };
        server.log(&format!("ends, as {signal} asks"));
        if end(dbs, server, Ending::default()).is_err() {
            server.log("goes on, as the data could not be saved");
            signals.forget();
        }
    }
}
