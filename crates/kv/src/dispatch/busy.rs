//! Commands that arrive while a script or function has run for longer than `busy-reply-threshold`: a few run, all others are refused.

use super::{UNQUEUED_COMMANDS, find, may_run};
use crate::client::{Client, ReplyMode};
use crate::command::{Arg, CommandError, Ctx, Flags};
use crate::keyspace::Databases;
use crate::server::Server;
use crate::server::running::BUSY_SCRIPT;

/// Answers a request of a client that is taken out of the list of clients.
pub fn answer(dbs: &mut Databases, server: &mut Server, client: &mut Client, args: &[Arg<'_>]) {
    if args.is_empty() {
        return;
    }
    let skips = client.reply_mode == ReplyMode::SkipNext;
    if let Err(error) = run(dbs, server, client, args) {
        if let Some(multi) = &mut client.multi {
            multi.is_refused = true;
        }
        server.count_error(error.text());
        client.reply.error(error.text());
        client.reply.codes.clear();
    }
    if skips && client.reply_mode == ReplyMode::SkipNext {
        client.reply_mode = ReplyMode::On;
        client.reply.muted = false;
    }
}

fn run(
    dbs: &mut Databases,
    server: &mut Server,
    client: &mut Client,
    args: &[Arg<'_>],
) -> Result<(), CommandError> {
    let found = find(args)?;
    may_run(dbs, server, client, found, args)?;
    // With a storage tier, the keys that are to be watched might have to be read first.
    let must_read = found.row.name == "watch" && server.tier.is_some();
    if !found.row.flags.contains(Flags::ALLOW_BUSY) || must_read {
        server.command_stats[found.number].rejected += 1;
        let refusal = server.running.as_ref().map_or(BUSY_SCRIPT, |running| running.refusal());
        if found.row.name == "exec" && client.multi.take().is_some() {
            server.unwatch(client);
            let text = format!("EXECABORT Transaction discarded because of: {refusal}");
            return Err(CommandError::Text(text.into()));
        }
        return Err(CommandError::of(refusal));
    }
    if let Some(multi) = &mut client.multi
        && !UNQUEUED_COMMANDS.contains(&found.row.name)
    {
        multi.commands.push(args.iter().map(|arg| arg.to_vec()).collect());
        client.reply.simple("QUEUED");
        return Ok(());
    }
    client.last_command = Some((found.parent.map(|parent| parent.name), found.row.name));
    let mut reply = std::mem::take(&mut client.reply);
    let mut ctx = Ctx {
        dbs,
        server,
        client,
        reply: &mut reply,
        is_nested: false,
        from_script: false,
        is_resumed: false,
    };
    ctx.call(found, args);
    client.reply = reply;
    Ok(())
}
