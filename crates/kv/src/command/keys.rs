//! Keys of any type: deleting and expiring.

use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::Class;

const READ: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const WRITE: Flags = Flags::WRITE;
const WRITE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const ONE: Keys = Keys::one(Access::ReadWrite);

pub const ROWS: &[Row] = &[
    Row::new("del", -2, WRITE, Keys::all(Access::Remove), del).doc(
        Group::Generic,
        "1.0.0",
        "O(N) of the number of keys",
        "Deletes keys.",
    ),
    Row::new("unlink", -2, WRITE_FAST, Keys::all(Access::Remove), del).doc(
        Group::Generic,
        "4.0.0",
        "O(N) of the number of keys",
        "Deletes keys.",
    ),
    Row::new("exists", -2, READ, Keys::all(Access::Read), exists).doc(
        Group::Generic,
        "1.0.0",
        "O(N) of the number of keys",
        "Counts which of the keys are there.",
    ),
    Row::new("touch", -2, READ, Keys::all(Access::Read), exists).doc(
        Group::Generic,
        "3.2.1",
        "O(N) of the number of keys",
        "Marks keys as used and counts those that are there.",
    ),
    Row::new("type", 2, READ, Keys::one(Access::Read), type_of).doc(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Returns the type of a key.",
    ),
    Row::new("expire", -3, WRITE_FAST, ONE, expire).doc(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Sets the time to live of a key in seconds.",
    ),
    Row::new("pexpire", -3, WRITE_FAST, ONE, pexpire).doc(
        Group::Generic,
        "2.6.0",
        "O(1)",
        "Sets the time to live of a key in milliseconds.",
    ),
    Row::new("expireat", -3, WRITE_FAST, ONE, expireat).doc(
        Group::Generic,
        "1.2.0",
        "O(1)",
        "Sets the Unix time in seconds at which a key expires.",
    ),
    Row::new("pexpireat", -3, WRITE_FAST, ONE, pexpireat).doc(
        Group::Generic,
        "2.6.0",
        "O(1)",
        "Sets the Unix time in milliseconds at which a key expires.",
    ),
    Row::new("persist", 2, WRITE_FAST, ONE, persist).doc(
        Group::Generic,
        "2.2.0",
        "O(1)",
        "Removes the time to live of a key.",
    ),
    Row::new("ttl", 2, READ, Keys::one(Access::Read), ttl).doc(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Returns the time to live of a key in seconds.",
    ),
    Row::new("pttl", 2, READ, Keys::one(Access::Read), pttl).doc(
        Group::Generic,
        "2.6.0",
        "O(1)",
        "Returns the time to live of a key in milliseconds.",
    ),
    Row::new("expiretime", 2, READ, Keys::one(Access::Read), expiretime).doc(
        Group::Generic,
        "7.0.0",
        "O(1)",
        "Returns the Unix time in seconds at which a key expires.",
    ),
    Row::new("pexpiretime", 2, READ, Keys::one(Access::Read), pexpiretime).doc(
        Group::Generic,
        "7.0.0",
        "O(1)",
        "Returns the Unix time in milliseconds at which a key expires.",
    ),
];

fn del(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let mut count = 0;
    for key in &args[1..] {
        if db.remove(key).is_some() {
            db.changed(key, Class::Generic, "del");
            count += 1;
        }
    }
    reply.int(count);
    Ok(())
}

fn exists(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let count = args[1..].iter().filter(|key| db.read(key).is_some()).count();
    reply.int(count as i64);
    Ok(())
}

fn type_of(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.simple(db.peek(args[1]).map_or("none", |value| value.type_name()));
    Ok(())
}

/// `EXPIRE` and its variants: `from_ms` is what the number counts from.
fn expire_at(ctx: &mut Ctx<'_>, args: &[Arg<'_>], command: &str, unit: i64, from_ms: i64) -> Done {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for arg in &args[3..] {
        match () {
            () if args::is(arg, "NX") => nx = true,
            () if args::is(arg, "XX") => xx = true,
            () if args::is(arg, "GT") => gt = true,
            () if args::is(arg, "LT") => lt = true,
            () => return Err(CommandError::err(format_args!("Unsupported option {}", args::text(arg)))),
        }
    }
    if nx && (xx || gt || lt) {
        return Err(CommandError::of("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if gt && lt {
        return Err(CommandError::of("ERR GT and LT options at the same time are not compatible"));
    }
    let number = args::int(args[2])?;
    let at_ms = number.checked_mul(unit).and_then(|ms| ms.checked_add(from_ms));
    let at_ms = at_ms.ok_or_else(|| CommandError::invalid_expiry(command))?;

    let key = args[1];
    let (db, reply) = ctx.split();
    if !db.contains(key) {
        reply.int(0);
        return Ok(());
    }
    let current = db.expiry(key);
    let refused = (nx && current.is_some())
        || (xx && current.is_none())
        || (gt && current.is_none_or(|current| at_ms <= current))
        || (lt && current.is_some_and(|current| at_ms >= current));
    if refused {
        reply.int(0);
        return Ok(());
    }
    if at_ms <= db.now_ms {
        db.remove(key);
        db.changed(key, Class::Generic, "del");
    } else {
        db.set_expiry(key, Some(at_ms));
        db.changed(key, Class::Generic, "expire");
    }
    reply.int(1);
    Ok(())
}

fn expire(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let now_ms = ctx.now_ms();
    expire_at(ctx, args, "expire", 1000, now_ms)
}

fn pexpire(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let now_ms = ctx.now_ms();
    expire_at(ctx, args, "pexpire", 1, now_ms)
}

fn expireat(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    expire_at(ctx, args, "expireat", 1000, 0)
}

fn pexpireat(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    expire_at(ctx, args, "pexpireat", 1, 0)
}

fn persist(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let changed = db.set_expiry(args[1], None);
    if changed {
        db.changed(args[1], Class::Generic, "persist");
    }
    reply.int(i64::from(changed));
    Ok(())
}

/// Replies when a key expires, as `show` makes it from the Unix time in milliseconds and the present.
fn reply_expiry(ctx: &mut Ctx<'_>, key: Arg<'_>, show: fn(i64, i64) -> i64) -> Done {
    let (db, reply) = ctx.split();
    reply.int(match (db.contains(key), db.expiry(key)) {
        (false, _) => -2,
        (true, None) => -1,
        (true, Some(at_ms)) => show(at_ms, db.now_ms),
    });
    Ok(())
}

fn ttl(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    reply_expiry(ctx, args[1], |at_ms, now_ms| (at_ms.saturating_sub(now_ms).saturating_add(500)) / 1000)
}

fn pttl(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    reply_expiry(ctx, args[1], |at_ms, now_ms| at_ms - now_ms)
}

fn expiretime(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    reply_expiry(ctx, args[1], |at_ms, _| at_ms.saturating_add(500) / 1000)
}

fn pexpiretime(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    reply_expiry(ctx, args[1], |at_ms, _| at_ms)
}
