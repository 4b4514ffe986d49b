//! Strings: reading and setting.

use super::compare::Condition;
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::value::decimal::add_decimals;
use crate::value::{Str, Value, string};

const READ: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const READ_SLOW: Flags = Flags::READONLY;
const SET: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);
const SET_FAST: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const TAKE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const PAIRS: Keys = Keys::At { first: 1, last: -1, step: 2, access: Access::Overwrite };
/// SET replaces the value unless an option asks for the old one.
const SET_KEY: Keys = Keys::Function(|args| {
    let reads = args.iter().skip(3).any(|arg| {
        args::is(arg, "GET")
            || args::is(arg, "NX")
            || args::is(arg, "XX")
            || args::is(arg, "KEEPTTL")
            || Condition::is_named(arg)
    });
    vec![(1, if reads { Access::ReadWrite } else { Access::Overwrite })]
});

pub const ROWS: &[Row] = &[
    Row::new("get", 2, READ, Keys::one(Access::Read), get).doc(
        Group::String,
        "1.0.0",
        "O(1)",
        "Returns the string of a key.",
    ),
    Row::new("set", -3, SET, SET_KEY, set).doc(
        Group::String,
        "1.0.0",
        "O(1)",
        "Sets the string of a key, on conditions if wanted.",
    ),
    Row::new("setnx", 3, SET_FAST, Keys::one(Access::ReadWrite), setnx).doc(
        Group::String,
        "1.0.0",
        "O(1)",
        "Sets the string of a key that is not there.",
    ),
    Row::new("setex", 4, SET, Keys::one(Access::Overwrite), setex).doc(
        Group::String,
        "2.0.0",
        "O(1)",
        "Sets a string with a time to live in seconds.",
    ),
    Row::new("psetex", 4, SET, Keys::one(Access::Overwrite), psetex).doc(
        Group::String,
        "2.6.0",
        "O(1)",
        "Sets a string with a time to live in milliseconds.",
    ),
    Row::new("getset", 3, SET_FAST, Keys::one(Access::ReadWrite), getset).doc(
        Group::String,
        "1.0.0",
        "O(1)",
        "Sets a string and returns the old one.",
    ),
    Row::new("getdel", 2, TAKE_FAST, Keys::one(Access::ReadWrite), getdel).doc(
        Group::String,
        "6.2.0",
        "O(1)",
        "Returns a string and deletes its key.",
    ),
    Row::new("getex", -2, TAKE_FAST, Keys::one(Access::ReadWrite), getex).doc(
        Group::String,
        "6.2.0",
        "O(1)",
        "Returns a string and changes when it expires.",
    ),
    Row::new("append", 3, SET_FAST, Keys::one(Access::ReadWrite), append).doc(
        Group::String,
        "2.0.0",
        "O(1), amortised",
        "Adds bytes at the end of a string.",
    ),
    Row::new("strlen", 2, READ, Keys::one(Access::Read), strlen).doc(
        Group::String,
        "2.2.0",
        "O(1)",
        "Returns the length of a string.",
    ),
    Row::new("setrange", 4, SET, Keys::one(Access::ReadWrite), setrange).doc(
        Group::String,
        "2.2.0",
        "O(1) for short values, O(N) of the value's length otherwise",
        "Overwrites a part of a string.",
    ),
    Row::new("getrange", 4, READ_SLOW, Keys::one(Access::Read), getrange).doc(
        Group::String,
        "2.4.0",
        "O(N) of the length returned",
        "Returns a part of a string.",
    ),
    Row::new("substr", 4, READ_SLOW, Keys::one(Access::Read), getrange).doc(
        Group::String,
        "1.0.0",
        "O(N) of the length returned",
        "Returns a part of a string; the old name of GETRANGE.",
    ),
    Row::new("mget", -2, READ, Keys::all(Access::Read), mget).doc(
        Group::String,
        "1.0.0",
        "O(N) of the number of keys",
        "Returns the strings of several keys.",
    ),
    Row::new("mset", -3, SET, PAIRS, mset).doc(
        Group::String,
        "1.0.1",
        "O(N) of the number of keys",
        "Sets several strings atomically.",
    ),
    Row::new("msetnx", -3, SET, Keys::At { first: 1, last: -1, step: 2, access: Access::ReadWrite }, msetnx)
        .doc(
            Group::String,
            "1.0.1",
            "O(N) of the number of keys",
            "Sets several strings if none of the keys is there.",
        ),
    Row::new("incr", 2, SET_FAST, Keys::one(Access::ReadWrite), incr).doc(
        Group::String,
        "1.0.0",
        "O(1)",
        "Adds one to an integer.",
    ),
    Row::new("decr", 2, SET_FAST, Keys::one(Access::ReadWrite), decr).doc(
        Group::String,
        "1.0.0",
        "O(1)",
        "Subtracts one from an integer.",
    ),
    Row::new("incrby", 3, SET_FAST, Keys::one(Access::ReadWrite), incrby).doc(
        Group::String,
        "1.0.0",
        "O(1)",
        "Adds a number to an integer.",
    ),
    Row::new("decrby", 3, SET_FAST, Keys::one(Access::ReadWrite), decrby).doc(
        Group::String,
        "1.0.0",
        "O(1)",
        "Subtracts a number from an integer.",
    ),
    Row::new("incrbyfloat", 3, SET_FAST, Keys::one(Access::ReadWrite), incrbyfloat).doc(
        Group::String,
        "2.6.0",
        "O(1)",
        "Adds a number to a decimal number.",
    ),
];

/// The string of a key for reading.
pub(super) fn read<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<Option<&'d Str>, CommandError> {
    db.read(key).map(Value::as_str).transpose().map_err(CommandError::from)
}

fn get(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    match read(db, args[1])? {
        Some(text) => text.with(|bytes| reply.bulk(bytes)),
        None => reply.null(),
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When<'a> {
    Always,
    Absent,
    Present,
    Compared(Condition<'a>),
}

/// What becomes of the time to live.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ttl {
    Remove,
    Keep,
    /// Unix time in milliseconds.
    At(i64),
}

/// The unit of an expiry option, and whether it is a duration.
pub(super) fn ttl_option(arg: Arg<'_>) -> Option<(i64, bool)> {
    [("EX", 1000, true), ("PX", 1, true), ("EXAT", 1000, false), ("PXAT", 1, false)]
        .into_iter()
        .find(|(word, ..)| args::is(arg, word))
        .map(|(_, unit, relative)| (unit, relative))
}

/// The Unix time in milliseconds that an expiry option of `command` means.
pub(super) fn expiry_of(
    command: &str,
    number: Arg<'_>,
    unit: i64,
    relative: bool,
    now_ms: i64,
) -> Result<i64, CommandError> {
    let number = args::int(number)?;
    let invalid = || CommandError::invalid_expiry(command);
    if number <= 0 {
        return Err(invalid());
    }
    let ms = number.checked_mul(unit).ok_or_else(invalid)?;
    if relative { ms.checked_add(now_ms).ok_or_else(invalid) } else { Ok(ms) }
}

fn set(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (key, value) = (args[1], args[2]);
    if args.len() == 3 {
        let (db, reply) = ctx.split();
        db.insert(key, Str::encoded(value));
        db.changed(key, Class::String, "set");
        reply.ok();
        return Ok(());
    }
    let (mut when, mut ttl, mut gets) = (When::Always, Ttl::Remove, false);
    let mut at = 3;
    while at < args.len() {
        let arg = args[at];
        if args::is(arg, "NX") && matches!(when, When::Always | When::Absent) {
            when = When::Absent;
        } else if args::is(arg, "XX") && matches!(when, When::Always | When::Present) {
            when = When::Present;
        } else if when == When::Always
            && at + 1 < args.len()
            && let Some(condition) = Condition::parse(arg, args[at + 1])?
        {
            when = When::Compared(condition);
            at += 1;
        } else if args::is(arg, "GET") {
            gets = true;
        } else if args::is(arg, "KEEPTTL") && ttl == Ttl::Remove {
            ttl = Ttl::Keep;
        } else if let Some((unit, relative)) = ttl_option(arg)
            && ttl == Ttl::Remove
            && at + 1 < args.len()
        {
            ttl = Ttl::At(expiry_of("set", args[at + 1], unit, relative, ctx.now_ms())?);
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let (db, reply) = ctx.split();
    if gets {
        // The old value is the reply, whether or not the new one is set.
        match read(db, key)? {
            Some(text) => text.with(|bytes| reply.bulk(bytes)),
            None => reply.null(),
        }
    }
    let holds = match when {
        When::Always => true,
        When::Absent => !db.contains(key),
        When::Present => db.contains(key),
        When::Compared(condition) => condition.holds(read(db, key)?),
    };
    if !holds {
        if !gets {
            reply.null();
        }
        return Ok(());
    }
    assign(db, key, value, ttl);
    if !gets {
        reply.ok();
    }
    Ok(())
}

pub(super) fn assign(db: &mut Keyspace, key: &[u8], value: &[u8], ttl: Ttl) {
    match ttl {
        Ttl::Keep => db.insert_keeping_expiry(key, Str::encoded(value)),
        Ttl::Remove => db.insert(key, Str::encoded(value)),
        Ttl::At(at_ms) => {
            db.insert(key, Str::encoded(value));
            db.set_expiry(key, Some(at_ms));
        }
    }
    db.changed(key, Class::String, "set");
    if let Ttl::At(_) = ttl {
        db.changed(key, Class::Generic, "expire");
    }
}

fn setnx(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let absent = !db.contains(args[1]);
    if absent {
        assign(db, args[1], args[2], Ttl::Remove);
    }
    reply.int(i64::from(absent));
    Ok(())
}

fn set_with_ttl(ctx: &mut Ctx<'_>, args: &[Arg<'_>], command: &str, unit: i64) -> Done {
    let at_ms = expiry_of(command, args[2], unit, true, ctx.now_ms())?;
    let (db, reply) = ctx.split();
    assign(db, args[1], args[3], Ttl::At(at_ms));
    reply.ok();
    Ok(())
}

fn setex(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    set_with_ttl(ctx, args, "setex", 1000)
}

fn psetex(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    set_with_ttl(ctx, args, "psetex", 1)
}

fn getset(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    get(ctx, args)?;
    assign(ctx.db(), args[1], args[2], Ttl::Remove);
    Ok(())
}

fn getdel(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    get(ctx, args)?;
    let db = ctx.db();
    if db.remove(args[1]).is_some() {
        db.changed(args[1], Class::Generic, "del");
    }
    Ok(())
}

fn getex(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let key = args[1];
    let now_ms = ctx.now_ms();
    let option = match args[2..] {
        [] => None,
        [word] if args::is(word, "PERSIST") => None,
        [word, number] => Some((number, ttl_option(word).ok_or(CommandError::Syntax)?)),
        _ => return Err(CommandError::Syntax),
    };
    let (db, reply) = ctx.split();
    let Some(text) = read(db, key)? else {
        reply.null();
        return Ok(());
    };
    // A key that does not exist is answered before a wrong number is.
    let ttl = match option {
        Some((number, (unit, relative))) => Ttl::At(expiry_of("getex", number, unit, relative, now_ms)?),
        None if args.len() > 2 => Ttl::Remove,
        None => Ttl::Keep,
    };
    text.with(|bytes| reply.bulk(bytes));
    match ttl {
        Ttl::Keep => {}
        Ttl::Remove => {
            if db.set_expiry(key, None) {
                db.changed(key, Class::Generic, "persist");
            }
        }
        Ttl::At(at_ms) if at_ms <= now_ms => {
            db.remove(key);
            db.changed(key, Class::Generic, "del");
        }
        Ttl::At(at_ms) => {
            db.set_expiry(key, Some(at_ms));
            db.changed(key, Class::Generic, "expire");
        }
    }
    Ok(())
}

/// Refuses a string that would be longer than `proto-max-bulk-len`.
fn check_length(ctx: &Ctx<'_>, length: Option<usize>) -> Done {
    match length {
        Some(length) if length <= ctx.server.bulk_bytes_max().min(string::BYTES_MAX) => Ok(()),
        _ => Err(CommandError::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)")),
    }
}

fn append(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (key, tail) = (args[1], args[2]);
    let old = ctx.db().write(key).map(|value| value.as_str()).transpose()?.map(Str::len);
    check_length(ctx, old.unwrap_or(0).checked_add(tail.len()))?;
    let (db, reply) = ctx.split();
    let length = match db.write(key) {
        Some(value) => value.as_str_mut()?.change(|bytes| {
            bytes.extend_from_slice(tail);
            bytes.len()
        }),
        None => {
            db.insert(key, Str::encoded(tail));
            tail.len()
        }
    };
    db.changed(key, Class::String, "append");
    reply.int(length as i64);
    Ok(())
}

fn strlen(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let length = read(db, args[1])?.map_or(0, Str::len);
    reply.int(length as i64);
    Ok(())
}

fn setrange(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (key, piece) = (args[1], args[3]);
    let offset = args::int(args[2])?;
    let offset = usize::try_from(offset).map_err(|_| CommandError::of("ERR offset is out of range"))?;
    let old = ctx.db().write(key).map(|value| value.as_str()).transpose()?.map(Str::len);
    if piece.is_empty() {
        ctx.reply.int(old.unwrap_or(0) as i64);
        return Ok(());
    }
    check_length(ctx, offset.checked_add(piece.len()))?;
    let (db, reply) = ctx.split();
    if old.is_none() {
        db.insert(key, Str::raw(b""));
    }
    let Some(value) = db.write(key) else { return Err(CommandError::NoSuchKey) };
    let length = value.as_str_mut()?.change(|bytes| {
        if bytes.len() < offset + piece.len() {
            bytes.resize(offset + piece.len(), 0);
        }
        bytes[offset..offset + piece.len()].copy_from_slice(piece);
        bytes.len()
    });
    db.changed(key, Class::String, "setrange");
    reply.int(length as i64);
    Ok(())
}

fn getrange(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (from, to) = (args::int(args[2])?, args::int(args[3])?);
    let (db, reply) = ctx.split();
    match read(db, args[1])? {
        Some(text) => text.with(|bytes| reply.bulk(part(bytes, from, to))),
        None => reply.bulk(b""),
    }
    Ok(())
}

/// The bytes from `from` to `to`, both included; negative positions count from the end.
fn part(bytes: &[u8], from: i64, to: i64) -> &[u8] {
    let len = bytes.len() as i64;
    if from < 0 && to < 0 && from > to {
        return b"";
    }
    let position = |at: i64| if at < 0 { (at + len).max(0) } else { at };
    let (from, to) = (position(from), position(to).min(len - 1));
    if from > to || len == 0 { b"" } else { &bytes[from as usize..=to as usize] }
}

fn mget(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.array(args.len() - 1);
    for key in &args[1..] {
        match db.read(key) {
            Some(Value::Str(text)) => text.with(|bytes| reply.bulk(bytes)),
            #[allow(unreachable_patterns, reason = "true while strings are the only type of value")]
            _ => reply.null(),
        }
    }
    Ok(())
}

fn mset(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::arity("mset"));
    }
    for pair in args[1..].chunks_exact(2) {
        assign(ctx.db(), pair[0], pair[1], Ttl::Remove);
    }
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::arity("msetnx"));
    }
    let (db, reply) = ctx.split();
    let absent = !args[1..].chunks_exact(2).any(|pair| db.contains(pair[0]));
    if absent {
        for pair in args[1..].chunks_exact(2) {
            assign(db, pair[0], pair[1], Ttl::Remove);
        }
    }
    reply.int(i64::from(absent));
    Ok(())
}

fn add(ctx: &mut Ctx<'_>, key: Arg<'_>, by: i64) -> Done {
    let (db, reply) = ctx.split();
    let sum = match db.write(key) {
        Some(value) => {
            let text = value.as_str_mut()?;
            let number = match text.as_int() {
                Some(number) => number,
                None => text.with(args::int)?,
            };
            let sum = number
                .checked_add(by)
                .ok_or(CommandError::of("ERR increment or decrement would overflow"))?;
            *text = Str::int(sum);
            sum
        }
        None => {
            db.insert(key, Str::int(by));
            by
        }
    };
    db.changed(key, Class::String, "incrby");
    reply.int(sum);
    Ok(())
}

fn incr(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    add(ctx, args[1], 1)
}

fn decr(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    add(ctx, args[1], -1)
}

fn incrby(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    add(ctx, args[1], args::int(args[2])?)
}

fn decrby(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let by = args::int(args[2])?.checked_neg().ok_or(CommandError::of("ERR decrement would overflow"))?;
    add(ctx, args[1], by)
}

fn incrbyfloat(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let old = read(db, args[1])?.map_or(b"0".to_vec(), Str::to_vec);
    args::float(&old)?;
    args::float(args[2])?;
    let sum =
        add_decimals(&old, args[2]).ok_or(CommandError::of("ERR increment would produce NaN or Infinity"))?;
    db.insert_keeping_expiry(args[1], Str::raw(sum.as_bytes()));
    db.changed(args[1], Class::String, "incrbyfloat");
    reply.bulk(sum.as_bytes());
    Ok(())
}
