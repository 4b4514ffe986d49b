//! LCS.

use super::table::{Access, Flags, Group, Keys, Row};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::value::Value;
use crate::value::lcs::{Lengths, table_bytes};

pub const ROWS: &[Row] = &[Row::new(
    "lcs",
    -3,
    Flags::READONLY,
    Keys::At { first: 1, last: 2, step: 1, access: Access::Read },
    lcs,
)
.doc(Group::String, "7.0.0", "O(N*M) of the two lengths", "Returns the longest common subsequence.")];

fn text(ctx: &mut Ctx<'_>, key: Arg<'_>) -> Result<Vec<u8>, CommandError> {
    match ctx.db().read(key) {
        None => Ok(Vec::new()),
        Some(Value::Str(text)) => Ok(text.to_vec()),
        Some(_) => Err(CommandError::of("ERR The specified keys must contain string values")),
    }
}

fn lcs(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (first, second) = (text(ctx, args[1])?, text(ctx, args[2])?);
    let (mut only_length, mut runs_wanted, mut with_lengths, mut shortest) = (false, false, false, 0);
    let mut at = 3;
    while at < args.len() {
        if args::is(args[at], "IDX") {
            runs_wanted = true;
        } else if args::is(args[at], "LEN") {
            only_length = true;
        } else if args::is(args[at], "WITHMATCHLEN") {
            with_lengths = true;
        } else if args::is(args[at], "MINMATCHLEN") && at + 1 < args.len() {
            shortest = usize::try_from(args::int(args[at + 1])?).unwrap_or(0);
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    if runs_wanted && only_length {
        return Err(CommandError::of("ERR If you want both the length and indexes, please just use IDX."));
    }
    if first.len().max(second.len()) >= u32::MAX as usize {
        return Err(CommandError::of("ERR String too long for LCS"));
    }
    if table_bytes(first.len(), second.len()).is_none_or(|bytes| bytes > ctx.server.bulk_bytes_max()) {
        return Err(CommandError::of(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let lengths = Lengths::new(&first, &second);
    let reply = &mut *ctx.reply;
    if only_length {
        reply.int(lengths.total() as i64);
        return Ok(());
    }
    let (common, mut runs) = lengths.trace();
    if !runs_wanted {
        reply.bulk(&common);
        return Ok(());
    }
    runs.retain(|run| run.len() >= shortest);
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(runs.len());
    for run in runs {
        reply.array(2 + usize::from(with_lengths));
        for (from, to) in [run.first, run.second] {
            reply.array(2);
            reply.int(from as i64);
            reply.int(to as i64);
        }
        if with_lengths {
            reply.int(run.len() as i64);
        }
    }
    reply.bulk(b"len");
    reply.int(lengths.total() as i64);
    Ok(())
}
