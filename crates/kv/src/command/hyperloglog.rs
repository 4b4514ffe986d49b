//! HyperLogLog: approximate counts of distinct elements, in strings.

use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::value::hyperloglog::{self as hll, Corrupt};
use crate::value::{Str, Value};

const WRITE: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);
const WRITE_FAST: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const DEBUG: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::ADMIN]);
const MERGE_KEYS: Keys = Keys::Function(|args| {
    (1..args.len()).map(|at| (at, if at == 1 { Access::ReadWrite } else { Access::Read })).collect()
});
const DEBUG_KEYS: Keys = Keys::At { first: 2, last: 2, step: 1, access: Access::ReadWrite };

pub const ROWS: &[Row] = &[
    Row::new("pfadd", -2, WRITE_FAST, Keys::one(Access::ReadWrite), pfadd).doc(
        Group::Hyperloglog,
        "2.8.9",
        "O(1) for each element",
        "Adds elements to a HyperLogLog.",
    ),
    Row::new(
        "pfcount",
        -2,
        flags(&[Flags::READONLY, Flags::MAY_REPLICATE]),
        Keys::all(Access::ReadWrite),
        pfcount,
    )
    .doc(
        Group::Hyperloglog,
        "2.8.9",
        "O(1) for one key, O(N) for several",
        "Estimates the number of distinct elements of one or several HyperLogLogs.",
    ),
    Row::new("pfmerge", -2, WRITE, MERGE_KEYS, pfmerge).doc(
        Group::Hyperloglog,
        "2.8.9",
        "O(N) of the number of keys",
        "Merges HyperLogLogs into one.",
    ),
    Row::new("pfdebug", 3, DEBUG, DEBUG_KEYS, pfdebug).doc(
        Group::Hyperloglog,
        "2.8.9",
        "O(1)",
        "Shows registers and encoding of a HyperLogLog.",
    ),
    Row::new("pfselftest", 1, Flags::ADMIN, Keys::None, pfselftest).doc(
        Group::Hyperloglog,
        "2.8.9",
        "O(1)",
        "Checks that sparse and dense HyperLogLogs agree.",
    ),
];

const NOT_ONE: CommandError = CommandError::of("WRONGTYPE Key is not a valid HyperLogLog string value.");

impl From<Corrupt> for CommandError {
    fn from(_: Corrupt) -> CommandError {
        CommandError::of("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// Checks that a value is a string that begins like a HyperLogLog.
fn check(value: &Value) -> Result<&Str, CommandError> {
    let text = value.as_str()?;
    if text.as_bytes().is_some_and(hll::is_valid) { Ok(text) } else { Err(NOT_ONE) }
}

fn read<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<Option<&'d Str>, CommandError> {
    db.read(key).map(check).transpose()
}

/// Changes the HyperLogLog of a key that has one.
fn change<T>(
    db: &mut Keyspace,
    key: &[u8],
    change: impl FnOnce(&mut Vec<u8>) -> Result<T, Corrupt>,
) -> Result<Option<T>, CommandError> {
    let Some(value) = db.write(key) else { return Ok(None) };
    check(value)?;
    Ok(Some(value.as_str_mut()?.change(change)?))
}

fn pfadd(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let sparse_max = ctx.server.hll_sparse_bytes_max();
    let (db, reply) = ctx.split();
    let created = !db.contains(args[1]);
    if created {
        db.insert(args[1], Str::raw(&hll::uncounted()));
    }
    let changed = change(db, args[1], |bytes| {
        args[2..]
            .iter()
            .try_fold(false, |changed, element| Ok(changed | hll::add(bytes, element, sparse_max)?))
    })?;
    let changed = created || changed == Some(true);
    if changed {
        db.changed(args[1], Class::String, "pfadd");
    }
    reply.int(i64::from(changed));
    Ok(())
}

/// The larger value of each register over all keys, and whether any of them is dense.
fn union(db: &mut Keyspace, keys: &[Arg<'_>]) -> Result<(Vec<u8>, bool), CommandError> {
    let mut union = vec![0; hll::REGISTERS];
    let mut dense = false;
    for key in keys {
        if let Some(text) = read(db, key)? {
            text.with(|bytes| {
                dense |= !hll::is_sparse(bytes);
                hll::merge_into(&mut union, bytes)
            })?;
        }
    }
    Ok((union, dense))
}

fn pfcount(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    if args.len() > 2 {
        let (union, _) = union(db, &args[1..])?;
        reply.int(hll::estimate(&union) as i64);
        return Ok(());
    }
    let Some(text) = read(db, args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let count = match text.with(hll::cached) {
        Some(count) => count,
        None => {
            let count = hll::estimate(&text.with(hll::registers)?);
            change(db, args[1], |bytes| {
                hll::cache(bytes, count);
                Ok(())
            })?;
            count
        }
    };
    reply.int(count as i64);
    Ok(())
}

fn pfmerge(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let sparse_max = ctx.server.hll_sparse_bytes_max();
    let (db, reply) = ctx.split();
    let (union, dense) = union(db, &args[1..])?;
    if !db.contains(args[1]) {
        db.insert(args[1], Str::raw(&hll::empty()));
    }
    change(db, args[1], |bytes| {
        hll::store(bytes, &union, dense, sparse_max);
        Ok(())
    })?;
    db.changed(args[1], Class::String, "pfadd");
    reply.ok();
    Ok(())
}

fn pfdebug(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(text) = read(db, args[2])? else {
        return Err(CommandError::of("ERR The specified key does not exist"));
    };
    let sparse = text.with(hll::is_sparse);
    match args[1] {
        arg if args::is(arg, "ENCODING") => reply.simple(if sparse { "sparse" } else { "dense" }),
        arg if args::is(arg, "DECODE") => {
            if !sparse {
                return Err(CommandError::of("ERR HLL encoding is not sparse"));
            }
            let runs = text.with(hll::stored_runs)?;
            let words: Vec<String> = runs
                .iter()
                .map(|run| match run.value {
                    0 if run.length <= 64 => format!("z:{}", run.length),
                    0 => format!("Z:{}", run.length),
                    value => format!("v:{value},{}", run.length),
                })
                .collect();
            reply.bulk(words.join(" ").as_bytes());
        }
        arg if args::is(arg, "GETREG") => {
            let registers = text.with(hll::registers)?;
            to_dense(db, args[2], sparse)?;
            reply.array(registers.len());
            for value in registers {
                reply.int(i64::from(value));
            }
        }
        arg if args::is(arg, "TODENSE") => {
            to_dense(db, args[2], sparse)?;
            reply.int(i64::from(sparse));
        }
        arg => {
            return Err(CommandError::err(format_args!("Unknown PFDEBUG subcommand '{}'", args::text(arg))));
        }
    }
    Ok(())
}

fn to_dense(db: &mut Keyspace, key: Arg<'_>, sparse: bool) -> Done {
    if sparse {
        change(db, key, hll::to_dense)?;
        db.changed(key, Class::String, "");
    }
    Ok(())
}

/// Adds elements to a sparse and a dense one, which must hold the same registers and estimate within four standard errors.
fn pfselftest(ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    const ELEMENTS: u32 = 20_000;
    let (mut sparse, mut dense) = (hll::empty(), hll::empty());
    hll::to_dense(&mut dense)?;
    for element in 0..ELEMENTS {
        let element = element.to_le_bytes();
        hll::add(&mut sparse, &element, usize::MAX)?;
        hll::add(&mut dense, &element, usize::MAX)?;
    }
    let registers = hll::registers(&sparse)?;
    if registers != hll::registers(&dense)? {
        return Err(CommandError::of("TESTFAILED dense/sparse disagree"));
    }
    let estimate = hll::estimate(&registers);
    if estimate.abs_diff(u64::from(ELEMENTS)) * 1000 > u64::from(ELEMENTS) * 33 {
        return Err(CommandError::Text(format!("TESTFAILED Too big error. card:{estimate}").into()));
    }
    ctx.reply.ok();
    Ok(())
}
