//! MULTI, EXEC and WATCH.
//!
//! EXEC runs what was queued as one command: nothing comes between, and what all of it changed is passed on once.

use super::table::{Access, CommandMatch, Flags, Group, Keys, Row, flags, table};
use super::{Arg, CommandError, Ctx, Done};
use crate::client::acl::Denied;
use crate::client::{Multi, Watched};
use crate::keyspace::Key;

const FAST: Flags = flags(&[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE, Flags::ALLOW_BUSY, Flags::FAST]);

pub const ROWS: &[Row] = &[
    Row::new("multi", 1, flags(&[FAST, Flags::NO_MULTI]), Keys::None, multi).doc(
        Group::Transactions,
        "1.2.0",
        "O(1)",
        "Begins a transaction.",
    ),
    Row::new(
        "exec",
        1,
        flags(&[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE, Flags::SKIP_SLOWLOG, Flags::ALL_DATABASES]),
        Keys::None,
        exec,
    )
    .doc(
        Group::Transactions,
        "1.2.0",
        "That of the queued commands",
        "Runs the commands of a transaction.",
    ),
    Row::new("discard", 1, FAST, Keys::None, discard).doc(
        Group::Transactions,
        "2.0.0",
        "O(N) of the queued commands",
        "Drops a transaction.",
    ),
    Row::new("watch", -2, flags(&[FAST, Flags::NO_MULTI]), Keys::all(Access::Read), watch).doc(
        Group::Transactions,
        "2.2.0",
        "O(1) a key",
        "Makes the next EXEC depend on keys that nobody changes.",
    ),
    Row::new("unwatch", 1, FAST, Keys::None, unwatch).doc(
        Group::Transactions,
        "2.2.0",
        "O(1)",
        "Forgets all watched keys.",
    ),
];

fn multi(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    if ctx.client.multi.is_some() {
        return Err(CommandError::of("ERR MULTI calls can not be nested"));
    }
    ctx.client.multi = Some(Multi::default());
    ctx.reply.ok();
    Ok(())
}

fn discard(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    if ctx.client.multi.take().is_none() {
        return Err(CommandError::of("ERR DISCARD without MULTI"));
    }
    ctx.server.unwatch(ctx.client);
    ctx.reply.ok();
    Ok(())
}

fn exec(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let Some(multi) = ctx.client.multi.take() else { return Err(CommandError::of("ERR EXEC without MULTI")) };
    let expired = ctx.client.watched.iter().any(|watched| {
        watched.was_there && ctx.dbs.get(watched.db).is_some_and(|db| !db.contains(&watched.key))
    });
    let changed = ctx.server.changed_for.contains(&ctx.client.id) || expired;
    ctx.server.unwatch(ctx.client);
    if multi.is_refused {
        return Err(CommandError::of("EXECABORT Transaction discarded because of previous errors."));
    }
    if changed {
        ctx.reply.null_array();
        return Ok(());
    }
    ctx.reply.array(multi.commands.len());
    let nested = std::mem::replace(&mut ctx.is_nested, true);
    for args in &multi.commands {
        let args: smallvec::SmallVec<[&[u8]; 8]> = args.iter().map(Vec::as_slice).collect();
        // It was found when it was queued, and the table does not change.
        match table().find_with_subcommand(&args) {
            Some(found) => call(ctx, found, &args),
            None => ctx.reply.error("ERR unknown command"),
        }
    }
    ctx.is_nested = nested;
    Ok(())
}

/// Runs a command of a transaction, if its user may still run it.
fn call(ctx: &mut Ctx<'_>, found: CommandMatch, args: &[Arg<'_>]) {
    let Err(denied) = super::rights::check(ctx.server, ctx.client, found, args) else {
        return ctx.call(found, args);
    };
    super::acl::refuse(ctx, denied, args, &found.full_name(), "multi");
    let reason = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments to the command",
    };
    let text = format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {reason}"
    );
    ctx.server.count_error(&text);
    ctx.reply.error(&text);
}

fn watch(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if ctx.client.multi.is_some() {
        return Err(CommandError::of("ERR WATCH inside MULTI is not allowed"));
    }
    for key in &args[1..] {
        let db = ctx.client.db;
        let key = Key::new(key);
        if ctx.client.watched.iter().any(|watched| watched.db == db && watched.key == key) {
            continue;
        }
        let was_there = ctx.db().contains(&key);
        ctx.server.watching.entry((db, key.clone())).or_default().push(ctx.client.id);
        ctx.client.watched.push(Watched { db, key, was_there });
    }
    ctx.dbs.record_changes(true);
    ctx.reply.ok();
    Ok(())
}

fn unwatch(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.server.unwatch(ctx.client);
    ctx.reply.ok();
    Ok(())
}
