//! Strings, set or deleted on a comparison: DIGEST, DELEX and the conditions of SET as Redis 8.4 has them, CAS and CAD as Tair and Kvrocks
//! have them.
//!
//! A digest is XXH3 of the value, 64 bits as 16 hexadecimal digits, so that a client can compare a large value without sending it.

use super::strings::{Ttl, assign, expiry_of, read, ttl_option};
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::value::{Str, Value};
use twox_hash::XxHash3_64;

const READ: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const SET_FAST: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const TAKE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const COST: &str = "O(1) for values, O(N) of the value's length for digests";

pub const ROWS: &[Row] = &[
    Row::new("digest", 2, READ, Keys::one(Access::Read), digest).doc(
        Group::String,
        "8.4.0",
        "O(N) of the value's length",
        "Returns the digest of a string.",
    ),
    Row::new("delex", -2, TAKE_FAST, Keys::one(Access::ReadWrite), delex).doc(
        Group::String,
        "8.4.0",
        COST,
        "Deletes a key, on a comparison if wanted.",
    ),
    Row::new("cas", -4, SET_FAST, Keys::one(Access::ReadWrite), cas).doc(
        Group::String,
        "8.4.0",
        "O(N) of the value's length",
        "Sets a string if it is equal to the given one.",
    ),
    Row::new("cad", 3, TAKE_FAST, Keys::one(Access::ReadWrite), cad).doc(
        Group::String,
        "8.4.0",
        "O(N) of the value's length",
        "Deletes a string if it is equal to the given one.",
    ),
];

/// A comparison that a string must pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition<'a> {
    Equal(&'a [u8]),
    NotEqual(&'a [u8]),
    /// Digests are text in any case; text that is no number is another digest, as in Redis.
    DigestEqual(&'a [u8]),
    DigestNotEqual(&'a [u8]),
}

impl<'a> Condition<'a> {
    /// Whether `word` names a comparison.
    pub fn is_named(word: Arg<'_>) -> bool {
        ["IFEQ", "IFNE", "IFDEQ", "IFDNE"].iter().any(|name| args::is(word, name))
    }

    /// The comparison that `word` names; `None` if it names none.
    pub fn parse(word: Arg<'_>, operand: Arg<'a>) -> Result<Option<Condition<'a>>, CommandError> {
        Ok(Some(if args::is(word, "IFEQ") {
            Condition::Equal(operand)
        } else if args::is(word, "IFNE") {
            Condition::NotEqual(operand)
        } else if args::is(word, "IFDEQ") {
            Condition::DigestEqual(checked_digest(operand)?)
        } else if args::is(word, "IFDNE") {
            Condition::DigestNotEqual(checked_digest(operand)?)
        } else {
            return Ok(None);
        }))
    }

    /// A key that does not exist is equal to nothing.
    pub fn holds(self, text: Option<&Str>) -> bool {
        match (self, text) {
            (Condition::Equal(_) | Condition::DigestEqual(_), None) => false,
            (Condition::NotEqual(_) | Condition::DigestNotEqual(_), None) => true,
            (Condition::Equal(wanted), Some(text)) => text.with(|bytes| bytes == wanted),
            (Condition::NotEqual(refused), Some(text)) => text.with(|bytes| bytes != refused),
            (Condition::DigestEqual(wanted), Some(text)) => {
                digest_of(text).as_bytes().eq_ignore_ascii_case(wanted)
            }
            (Condition::DigestNotEqual(refused), Some(text)) => {
                !digest_of(text).as_bytes().eq_ignore_ascii_case(refused)
            }
        }
    }
}

fn digest_of(text: &Str) -> String {
    format!("{:016x}", text.with(XxHash3_64::oneshot))
}

fn checked_digest(arg: Arg<'_>) -> Result<Arg<'_>, CommandError> {
    if arg.len() == 16 {
        return Ok(arg);
    }
    Err(CommandError::of("ERR must be exactly 16 hexadecimal characters"))
}

fn digest(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    match read(db, args[1])? {
        Some(text) => reply.bulk(digest_of(text).as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

fn delete(db: &mut Keyspace, key: &[u8]) {
    db.remove(key);
    db.changed(key, Class::Generic, "del");
}

fn delex(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let key = args[1];
    if !matches!(args.len(), 2 | 4) {
        return Err(CommandError::arity("delex"));
    }
    let Some(value) = db.read(key) else {
        reply.int(0);
        return Ok(());
    };
    if let [_, _, word, operand] = *args {
        let Value::Str(text) = value else {
            return Err(CommandError::of("ERR Key should be of string type if conditions are specified"));
        };
        let condition = Condition::parse(word, operand)?
            .ok_or(CommandError::of("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
        if !condition.holds(Some(text)) {
            reply.int(0);
            return Ok(());
        }
    }
    delete(db, key);
    reply.int(1);
    Ok(())
}

/// Replies -1 for a key that does not exist and 0 for another value. Returns whether the value is the wanted one.
fn compare(ctx: &mut Ctx<'_>, key: Arg<'_>, wanted: Arg<'_>) -> Result<bool, CommandError> {
    let (db, reply) = ctx.split();
    let equal = read(db, key)?.map(|text| Condition::Equal(wanted).holds(Some(text)));
    match equal {
        None => reply.int(-1),
        Some(equal) => reply.int(i64::from(equal)),
    }
    Ok(equal == Some(true))
}

fn cas(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let ttl = match args[4..] {
        [] => Ttl::Remove,
        [word, number] => {
            let (unit, relative) = ttl_option(word).ok_or(CommandError::Syntax)?;
            Ttl::At(expiry_of("cas", number, unit, relative, ctx.now_ms())?)
        }
        _ => return Err(CommandError::Syntax),
    };
    if compare(ctx, args[1], args[2])? {
        assign(ctx.db(), args[1], args[3], ttl);
    }
    Ok(())
}

fn cad(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if compare(ctx, args[1], args[2])? {
        delete(ctx.db(), args[1]);
    }
    Ok(())
}
