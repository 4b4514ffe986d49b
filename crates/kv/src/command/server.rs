//! Commands of the connection and the server.

use super::table::{Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};

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
];

fn ping(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
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

/// The number of a database that is there.
pub fn database(ctx: &Ctx<'_>, arg: Arg<'_>, not_a_number: &'static str) -> Result<u16, CommandError> {
    let index = args::int(arg).map_err(|_| CommandError::of(not_a_number))?;
    match u16::try_from(index) {
        Ok(index) if usize::from(index) < ctx.dbs.all.len() => Ok(index),
        _ => Err(CommandError::of("ERR DB index is out of range")),
    }
}
