//! Expiry of single fields: the commands of Redis 7.4.
//!
//! Each command replies a number for each field: -2 if there is no such field, and what its documentation says otherwise.

use super::collections::removed_from;
use super::hashes::{live, live_mut};
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::Class;

const SET: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const CLEAR: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const READ: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const ONE: Keys = Keys::one(Access::ReadWrite);
const ONE_READ: Keys = Keys::one(Access::Read);

const fn row(row: Row, summary: &'static str) -> Row {
    row.doc(Group::Hash, "7.4.0", "O(N) of the fields given", summary)
}

pub const ROWS: &[Row] = &[
    row(Row::new("hexpire", -6, SET, ONE, hexpire), "Sets the time to live of fields in seconds."),
    row(Row::new("hpexpire", -6, SET, ONE, hpexpire), "Sets the time to live of fields in milliseconds."),
    row(
        Row::new("hexpireat", -6, SET, ONE, hexpireat),
        "Sets when fields expire, in seconds since the epoch.",
    ),
    row(
        Row::new("hpexpireat", -6, SET, ONE, hpexpireat),
        "Sets when fields expire, in milliseconds since the epoch.",
    ),
    row(Row::new("httl", -5, READ, ONE_READ, httl), "Returns the time to live of fields in seconds."),
    row(Row::new("hpttl", -5, READ, ONE_READ, hpttl), "Returns the time to live of fields in milliseconds."),
    row(
        Row::new("hexpiretime", -5, READ, ONE_READ, hexpiretime),
        "Returns when fields expire, in seconds since the epoch.",
    ),
    row(
        Row::new("hpexpiretime", -5, READ, ONE_READ, hpexpiretime),
        "Returns when fields expire, in milliseconds since the epoch.",
    ),
    row(Row::new("hpersist", -5, CLEAR, ONE, hpersist), "Makes fields stay until they are removed."),
];

/// No such field.
const ABSENT: i64 = -2;
/// The field doesn't expire.
const STAYS: i64 = -1;
/// Times are 46 bits of milliseconds in the on-disk format of Redis.
const EXPIRY_MS_MAX: i64 = (1 << 46) - 1;

#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// On which old expiry time a new one is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    None,
    Any,
    Later,
    Earlier,
}

/// `FIELDS count field...`, which must be all of `args`.
fn fields<'a, 'b>(args: &'b [Arg<'a>]) -> Result<&'b [Arg<'a>], CommandError> {
    let [word, count, fields @ ..] = args else { return Err(CommandError::Syntax) };
    if !args::is(word, "FIELDS") {
        return Err(CommandError::of(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = args::int_within(count, 1, i64::MAX, "ERR Parameter `numFields` should be greater than 0")?;
    if count != fields.len() as i64 {
        return Err(CommandError::of("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(fields)
}

fn hexpire(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let now_ms = ctx.now_ms();
    expire(ctx, args, "hexpire", Unit::Seconds, now_ms)
}

fn hpexpire(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let now_ms = ctx.now_ms();
    expire(ctx, args, "hpexpire", Unit::Milliseconds, now_ms)
}

fn hexpireat(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    expire(ctx, args, "hexpireat", Unit::Seconds, 0)
}

fn hpexpireat(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    expire(ctx, args, "hpexpireat", Unit::Milliseconds, 0)
}

fn expire(ctx: &mut Ctx<'_>, args: &[Arg<'_>], name: &str, unit: Unit, base_ms: i64) -> Done {
    let time = args::int(args[2])?;
    if time < 0 {
        return Err(CommandError::of("ERR invalid expire time, must be >= 0"));
    }
    let at_ms = match unit {
        Unit::Seconds => time.checked_mul(1000),
        Unit::Milliseconds => Some(time),
    };
    let at_ms = at_ms
        .and_then(|ms| ms.checked_add(base_ms))
        .filter(|&at_ms| at_ms <= EXPIRY_MS_MAX)
        .ok_or_else(|| CommandError::invalid_expiry(name))?;
    let condition = match args[3] {
        word if args::is(word, "NX") => Condition::None,
        word if args::is(word, "XX") => Condition::Any,
        word if args::is(word, "GT") => Condition::Later,
        word if args::is(word, "LT") => Condition::Earlier,
        _ => Condition::Always,
    };
    let fields = fields(&args[if condition == Condition::Always { 3 } else { 4 }..])?;
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms;
    let hash = live_mut(db, args[1])?;
    reply.array(fields.len());
    let Some(hash) = hash else {
        fields.iter().for_each(|_| reply.int(ABSENT));
        return Ok(());
    };
    let (mut set, mut removed) = (0, 0);
    for field in fields {
        if !hash.contains(field) {
            reply.int(ABSENT);
            continue;
        }
        let old = hash.expiry_of(field);
        // A field without a time counts as one that expires after every other.
        let is_met = match condition {
            Condition::Always => true,
            Condition::None => old.is_none(),
            Condition::Any => old.is_some(),
            Condition::Later => old.is_some_and(|old| at_ms > old),
            Condition::Earlier => old.is_none_or(|old| at_ms < old),
        };
        if !is_met {
            reply.int(0);
        } else if at_ms <= now_ms {
            hash.remove(field);
            removed += 1;
            reply.int(2);
        } else {
            hash.expire_at(field, at_ms);
            set += 1;
            reply.int(1);
        }
    }
    let is_empty = hash.is_empty();
    if set > 0 {
        db.changed(args[1], Class::Hash, "hexpire");
    }
    if removed > 0 {
        removed_from(db, args[1], Class::Hash, "hdel", is_empty);
    }
    Ok(())
}

/// Replies for each field what `time` makes of its expiry time and the present.
fn times(ctx: &mut Ctx<'_>, args: &[Arg<'_>], time: fn(i64, i64) -> i64) -> Done {
    let fields = fields(&args[2..])?;
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms;
    let hash = live(db, args[1])?;
    reply.array(fields.len());
    for field in fields {
        reply.int(match hash {
            Some(hash) if hash.contains(field) => {
                hash.expiry_of(field).map_or(STAYS, |at_ms| time(at_ms, now_ms))
            }
            _ => ABSENT,
        });
    }
    Ok(())
}

fn httl(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    times(ctx, args, |at_ms, now_ms| (at_ms - now_ms + 999) / 1000)
}

fn hpttl(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    times(ctx, args, |at_ms, now_ms| at_ms - now_ms)
}

fn hexpiretime(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    times(ctx, args, |at_ms, _| (at_ms + 999) / 1000)
}

fn hpexpiretime(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    times(ctx, args, |at_ms, _| at_ms)
}

fn hpersist(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let fields = fields(&args[2..])?;
    let (db, reply) = ctx.split();
    let mut hash = live_mut(db, args[1])?;
    let mut changed = false;
    reply.array(fields.len());
    for field in fields {
        reply.int(match &mut hash {
            Some(hash) if hash.contains(field) => {
                let persisted = hash.persist(field);
                changed |= persisted;
                if persisted { 1 } else { STAYS }
            }
            _ => ABSENT,
        });
    }
    if changed {
        db.changed(args[1], Class::Hash, "hpersist");
    }
    Ok(())
}
