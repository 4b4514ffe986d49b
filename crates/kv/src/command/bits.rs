//! Strings as arrays of bits and of small integers.

use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::resp::parse::parse_i64;
use crate::value::bits::{self, Field, Operation, Overflow};
use crate::value::{Str, Value};

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const WRITE: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);
const BITOP_KEYS: Keys = Keys::Function(|args| {
    (2..args.len()).map(|at| (at, if at == 2 { Access::Overwrite } else { Access::Read })).collect()
});

pub const ROWS: &[Row] = &[
    Row::new("setbit", 4, WRITE, Keys::one(Access::ReadWrite), setbit).doc(
        Group::Bitmap,
        "2.2.0",
        "O(1)",
        "Sets or clears a bit of a string and returns the old one.",
    ),
    Row::new("getbit", 3, READ_FAST, Keys::one(Access::Read), getbit).doc(
        Group::Bitmap,
        "2.2.0",
        "O(1)",
        "Returns a bit of a string.",
    ),
    Row::new("bitcount", -2, READ, Keys::one(Access::Read), bitcount).doc(
        Group::Bitmap,
        "2.6.0",
        "O(N) of the length counted",
        "Counts the set bits of a string or a part of it.",
    ),
    Row::new("bitpos", -3, READ, Keys::one(Access::Read), bitpos).doc(
        Group::Bitmap,
        "2.8.7",
        "O(N) of the length searched",
        "Finds the first set or clear bit of a string.",
    ),
    Row::new("bitop", -4, WRITE, BITOP_KEYS, bitop).doc(
        Group::Bitmap,
        "2.6.0",
        "O(N) of the longest string",
        "Combines strings bit by bit and stores the result.",
    ),
    Row::new("bitfield", -2, WRITE, Keys::one(Access::ReadWrite), bitfield).doc(
        Group::Bitmap,
        "3.2.0",
        "O(1) for each operation",
        "Reads and changes integers of any width within a string.",
    ),
    Row::new("bitfield_ro", -2, READ_FAST, Keys::one(Access::Read), bitfield_ro).doc(
        Group::Bitmap,
        "6.0.0",
        "O(1) for each operation",
        "Reads integers of any width within a string.",
    ),
];

const BAD_OFFSET: CommandError = CommandError::of("ERR bit offset is not an integer or out of range");
const BAD_BIT: CommandError = CommandError::of("ERR bit is not an integer or out of range");

fn bytes_of(db: &mut Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, CommandError> {
    Ok(db.read(key).map(Value::as_str).transpose()?.map(Str::to_vec))
}

/// A bit offset; `#N` counts fields of `bits` bits.
fn offset(arg: Arg<'_>, bits: Option<u32>, bytes_max: usize) -> Result<u64, CommandError> {
    let (digits, unit) = match (arg.strip_prefix(b"#"), bits) {
        (Some(digits), Some(bits)) => (digits, i64::from(bits)),
        _ => (arg, 1),
    };
    let offset = parse_i64(digits).and_then(|number| number.checked_mul(unit)).ok_or(BAD_OFFSET)?;
    let offset = u64::try_from(offset).map_err(|_| BAD_OFFSET)?;
    if offset / 8 >= bytes_max as u64 { Err(BAD_OFFSET) } else { Ok(offset) }
}

/// Changes the string of a key, extended by zeros to `length` bytes and created if absent.
fn change<T>(
    db: &mut Keyspace,
    key: &[u8],
    length: usize,
    change: impl FnOnce(&mut [u8]) -> T,
) -> Result<T, CommandError> {
    if !db.contains(key) {
        db.insert(key, Str::raw(b""));
    }
    let text = db.write(key).ok_or(CommandError::NoSuchKey)?.as_str_mut()?;
    Ok(text.change(|bytes| {
        if bytes.len() < length {
            bytes.resize(length, 0);
        }
        change(bytes)
    }))
}

fn setbit(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let at = offset(args[2], None, ctx.server.bulk_bytes_max())?;
    let on = match parse_i64(args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(BAD_BIT),
    };
    let (db, reply) = ctx.split();
    let old = change(db, args[1], (at / 8) as usize + 1, |bytes| bits::set(bytes, at, on))?;
    db.changed(args[1], Class::String, "setbit");
    reply.int(i64::from(old));
    Ok(())
}

fn getbit(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let at = offset(args[2], None, ctx.server.bulk_bytes_max())?;
    let (db, reply) = ctx.split();
    let text = db.read(args[1]).map(Value::as_str).transpose()?;
    reply.int(i64::from(text.is_some_and(|text| text.with(|bytes| bits::get(bytes, at)))));
    Ok(())
}

/// Whether a range counts bits, as its last argument says.
fn counts_bits(arg: Option<&Arg<'_>>) -> Result<bool, CommandError> {
    match arg {
        None => Ok(false),
        Some(arg) if args::is(arg, "BIT") => Ok(true),
        Some(arg) if args::is(arg, "BYTE") => Ok(false),
        Some(_) => Err(CommandError::Syntax),
    }
}

/// First and last bit of the range from `start` to `end` (negative: from the end) of `length` bytes. Nothing if it is empty.
fn bit_range(start: i64, end: i64, by_bit: bool, length: usize) -> Option<(u64, u64)> {
    let total = if by_bit { length as i64 * 8 } else { length as i64 };
    let resolve = |at: i64| if at < 0 { (total + at).max(0) } else { at };
    let (start, end) = (resolve(start), resolve(end).min(total - 1));
    if start > end {
        return None;
    }
    Some(if by_bit { (start as u64, end as u64) } else { (start as u64 * 8, end as u64 * 8 + 7) })
}

fn bitcount(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(text) = db.read(args[1]).map(Value::as_str).transpose()? else {
        reply.int(0);
        return Ok(());
    };
    let count = match args.len() {
        2 => text.with(bits::count),
        4 | 5 => {
            let (start, end) = (args::int(args[2])?, args::int(args[3])?);
            let reversed = start < 0 && end < 0 && start > end;
            let by_bit = !reversed && counts_bits(args.get(4))?;
            let range = if reversed { None } else { bit_range(start, end, by_bit, text.len()) };
            range.map_or(0, |(first, last)| text.with(|bytes| bits::count_between(bytes, first, last)))
        }
        _ => return Err(CommandError::Syntax),
    };
    reply.int(count as i64);
    Ok(())
}

fn bitpos(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let on = match args::int(args[2])? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::of("ERR The bit argument must be 1 or 0.")),
    };
    let (db, reply) = ctx.split();
    let Some(text) = db.read(args[1]).map(Value::as_str).transpose()? else {
        reply.int(if on { -1 } else { 0 });
        return Ok(());
    };
    if args.len() > 6 {
        return Err(CommandError::Syntax);
    }
    let start = args.get(3).map_or(Ok(0), |arg| args::int(arg))?;
    let by_bit = counts_bits(args.get(5))?;
    let end = args.get(4).map_or(Ok(i64::MAX), |arg| args::int(arg))?;
    let length = text.len();
    let found = match bit_range(start, end, by_bit, length) {
        None => None,
        Some((first, last)) => {
            let found = text.with(|bytes| bits::position(bytes, on, first, last));
            // Without an end the string goes on with clear bits.
            let beyond = (!on && args.len() < 5).then_some(length as u64 * 8);
            found.or(beyond)
        }
    };
    reply.int(found.map_or(-1, |at| at as i64));
    Ok(())
}

fn bitop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let operation = match args[1] {
        arg if args::is(arg, "AND") => Operation::And,
        arg if args::is(arg, "OR") => Operation::Or,
        arg if args::is(arg, "XOR") => Operation::Xor,
        arg if args::is(arg, "NOT") => Operation::Not,
        _ => return Err(CommandError::Syntax),
    };
    if operation == Operation::Not && args.len() != 4 {
        return Err(CommandError::of("ERR BITOP NOT must be called with a single source key."));
    }
    let (db, reply) = ctx.split();
    let mut sources = Vec::with_capacity(args.len() - 3);
    for key in &args[3..] {
        sources.push(bytes_of(db, key)?.unwrap_or_default());
    }
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let result = bits::combine(operation, &sources);
    let length = result.len();
    if length > 0 {
        db.insert(args[2], Str::made(result));
        db.changed(args[2], Class::String, "set");
    } else if db.remove(args[2]).is_some() {
        db.changed(args[2], Class::Generic, "del");
    }
    reply.int(length as i64);
    Ok(())
}

enum Action {
    Get,
    Set(i64),
    Increment(i64),
}

struct Step {
    field: Field,
    at: u64,
    action: Action,
    overflow: Overflow,
}

fn parse_steps(args: &[Arg<'_>], bytes_max: usize) -> Result<Vec<Step>, CommandError> {
    const BAD_TYPE: CommandError = CommandError::of(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    );
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut rest = args;
    while let Some((name, after)) = rest.split_first() {
        if args::is(name, "OVERFLOW") && !after.is_empty() {
            overflow = match after[0] {
                arg if args::is(arg, "WRAP") => Overflow::Wrap,
                arg if args::is(arg, "SAT") => Overflow::Saturate,
                arg if args::is(arg, "FAIL") => Overflow::Fail,
                _ => return Err(CommandError::of("ERR Invalid OVERFLOW type specified")),
            };
            rest = &after[1..];
            continue;
        }
        let values = match () {
            () if args::is(name, "GET") && after.len() >= 2 => 2,
            () if args::is(name, "SET") && after.len() >= 3 => 3,
            () if args::is(name, "INCRBY") && after.len() >= 3 => 3,
            () => return Err(CommandError::Syntax),
        };
        let field = Field::parse(after[0]).ok_or(BAD_TYPE)?;
        let at = offset(after[1], Some(field.bits), bytes_max)?;
        let action = match () {
            () if values == 2 => Action::Get,
            () if args::is(name, "SET") => Action::Set(args::int(after[2])?),
            () => Action::Increment(args::int(after[2])?),
        };
        steps.push(Step { field, at, action, overflow });
        rest = &after[values..];
    }
    Ok(steps)
}

fn bitfield(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let steps = parse_steps(&args[2..], ctx.server.bulk_bytes_max())?;
    let written = steps.iter().filter(|step| !matches!(step.action, Action::Get));
    let end = written.map(|step| (step.at + u64::from(step.field.bits)).div_ceil(8)).max();
    let (db, reply) = ctx.split();
    let Some(end) = end else { return read_fields(db, reply, args[1], &steps) };
    let before = bytes_of(db, args[1])?.map(|bytes| bytes.len());
    let mut changes = 0;
    let results = change(db, args[1], end as usize, |bytes| {
        let mut results = Vec::with_capacity(steps.len());
        for step in &steps {
            let old = step.field.get(bytes, step.at);
            let (wanted, is_set) = match step.action {
                Action::Get => {
                    results.push(Some(old));
                    continue;
                }
                Action::Set(value) if step.field.is_signed => (i128::from(value), true),
                Action::Set(value) => (i128::from(value as u64), true),
                Action::Increment(by) => (i128::from(old) + i128::from(by), false),
            };
            let new = step.field.fit(wanted, step.overflow);
            if let Some(new) = new {
                step.field.set(bytes, step.at, new);
                changes += 1;
            }
            results.push(new.map(|new| if is_set { old } else { new }));
        }
        results
    })?;
    // A field that is left as it is, as its value does not fit, may have made the string longer.
    if changes > 0 || before.is_none_or(|bytes| bytes < end as usize) {
        db.changed(args[1], Class::String, "setbit");
    }
    reply.array(results.len());
    for result in results {
        match result {
            Some(value) => reply.int(value),
            None => reply.null(),
        }
    }
    Ok(())
}

fn read_fields(db: &mut Keyspace, reply: &mut crate::resp::Reply, key: Arg<'_>, steps: &[Step]) -> Done {
    let bytes = bytes_of(db, key)?.unwrap_or_default();
    reply.array(steps.len());
    for step in steps {
        reply.int(step.field.get(&bytes, step.at));
    }
    Ok(())
}

fn bitfield_ro(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let steps = parse_steps(&args[2..], ctx.server.bulk_bytes_max())?;
    if steps.iter().any(|step| !matches!(step.action, Action::Get)) {
        return Err(CommandError::of("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let (db, reply) = ctx.split();
    read_fields(db, reply, args[1], &steps)
}
