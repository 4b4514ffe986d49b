//! The HELP subcommand of commands with subcommands, from the table.

use super::table::{Flags, Group, Keys, Row, flags, table};
use super::{Arg, CommandError, Ctx, Done};

/// The row of HELP in a group of commands.
pub const fn row(group: Group, since: &'static str) -> Row {
    Row::new("help", 2, flags(&[Flags::LOADING, Flags::STALE]), Keys::None, help).doc(
        group,
        since,
        "O(1)",
        "Prints this help.",
    )
}

fn help(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let found = table().find(args[0]).ok_or(CommandError::Syntax)?;
    let name = found.row.name.to_ascii_uppercase();
    ctx.reply.array(1 + 2 * found.row.subcommands.len());
    ctx.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for sub in found.row.subcommands {
        ctx.reply.simple(&sub.name.to_ascii_uppercase());
        ctx.reply.simple(&format!("    {}", sub.summary));
    }
    Ok(())
}
