//! MEMORY.

use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args, help};
use crate::memory::{allocated_bytes, resident_bytes};

const LOOK: Flags = flags(&[Flags::LOADING, Flags::STALE]);

const fn row(
    name: &'static str,
    handler: super::Handler,
    complexity: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, 2, Flags::NONE, Keys::None, handler).doc(Group::Server, "4.0.0", complexity, summary)
}

pub const ROWS: &[Row] = &[Row::new("memory", -2, LOOK, Keys::None, |_, _| Err(CommandError::Syntax))
    .doc(Group::Server, "4.0.0", "O(1)", "Looks at memory.")
    .with_subcommands(&[
        row("doctor", doctor, "O(1)", "Describes what takes memory."),
        row("malloc-stats", malloc_stats, "O(1)", "Describes the allocator."),
        row(
            "purge",
            purge,
            "Depends on how much memory the allocator has free",
            "Gives free memory of the allocator back to the system.",
        ),
        row("stats", stats, "O(N) of the databases", "Returns figures of memory."),
        Row::new(
            "usage",
            -3,
            Flags::READONLY,
            Keys::At { first: 2, last: 2, step: 1, access: Access::Read },
            usage,
        )
        .doc(Group::Server, "4.0.0", "O(1)", "Returns the memory that a key takes."),
        help::row(Group::Server, "4.0.0"),
    ])];

fn usage(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    match args[3..] {
        [] => {}
        [word, count] if args::is(word, "SAMPLES") => {
            args::int_within(count, 0, i64::MAX, "ERR syntax error")?;
        }
        _ => return Err(CommandError::Syntax),
    }
    let (db, reply) = ctx.split();
    match db.entry(args[2]) {
        Some(entry) => reply.int(entry.bytes() as i64),
        None => reply.null(),
    }
    Ok(())
}

fn purge(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    crate::memory::give_back();
    ctx.reply.ok();
    Ok(())
}

fn describe(ctx: &Ctx<'_>) -> String {
    let keys: usize = ctx.dbs.all.iter().map(|db| db.len()).sum();
    let overhead: usize = ctx.dbs.all.iter().map(|db| db.overhead_bytes()).sum();
    format!(
        "allocated bytes: {}\nresident bytes: {}\nkeys: {keys}\nbytes of dictionaries: {overhead}\n",
        allocated_bytes(),
        resident_bytes()
    )
}

fn doctor(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let text = describe(ctx);
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn malloc_stats(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let text = format!("allocated: {}\nresident: {}\n", allocated_bytes(), resident_bytes());
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The figures of Redis that mean something here.
fn stats(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let (allocated, resident) = (allocated_bytes(), resident_bytes());
    let used: Vec<(u16, usize)> =
        ctx.dbs.all.iter().filter(|db| !db.is_empty()).map(|db| (db.index, db.overhead_bytes())).collect();
    let keys: usize = ctx.dbs.all.iter().map(|db| db.len()).sum();
    let overhead: usize = used.iter().map(|(_, bytes)| bytes).sum();
    let dataset = allocated.saturating_sub(overhead);
    let reply = &mut *ctx.reply;
    reply.map(8 + used.len());
    reply.bulk(b"total.allocated");
    reply.int(allocated as i64);
    for (index, bytes) in used {
        reply.bulk(format!("db.{index}").as_bytes());
        reply.map(1);
        reply.bulk(b"overhead.hashtable.main");
        reply.int(bytes as i64);
    }
    for (name, value) in [
        ("overhead.total", overhead),
        ("keys.count", keys),
        ("keys.bytes-per-key", dataset.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", dataset),
        ("allocator.allocated", allocated),
        ("allocator.resident", resident),
    ] {
        reply.bulk(name.as_bytes());
        reply.int(value as i64);
    }
    reply.bulk(b"fragmentation");
    reply.double(resident as f64 / allocated.max(1) as f64);
    Ok(())
}
