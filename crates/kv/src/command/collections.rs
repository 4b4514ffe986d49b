//! What the families of collections share: typed access to keys, replies of elements, counts and scans.
//!
//! A collection that becomes empty is removed with its key: [`removed_from`] does that and records both changes.

use super::{Arg, CommandError, Ctx, args};
use crate::attached::large::Walked;
use crate::keyspace::{Class, Keyspace};
use crate::resp::Reply;
use crate::value::Value;
use crate::value::decimal::format_g17;
use crate::value::glob;
use crate::value::hash::Hash;
use crate::value::limits::CollectionLimits;
use crate::value::list::List;
use crate::value::listpack::Element;
use crate::value::set::Set;
use crate::value::zset::Zset;

pub const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
pub const NUMKEYS: &str = "ERR numkeys should be greater than 0";
pub const COUNT: &str = "ERR count should be greater than 0";

macro_rules! typed {
    ($variant:ident, $read:ident, $peek:ident, $write:ident, $or_new:ident) => {
        /// The collection of a key, for a command that reads.
        pub fn $read<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<Option<&'d $variant>, CommandError> {
            match db.read(key) {
                None => Ok(None),
                Some(Value::$variant(collection)) => Ok(Some(collection)),
                Some(_) => Err(CommandError::WrongType),
            }
        }

        /// The collection of a key that was looked up before.
        pub fn $peek<'d>(db: &'d Keyspace, key: &[u8]) -> Option<&'d $variant> {
            match db.peek_shared(key) {
                Some(Value::$variant(collection)) => Some(collection),
                _ => None,
            }
        }

        /// The collection of a key, for a command that changes it.
        pub fn $write<'d>(
            db: &'d mut Keyspace,
            key: &[u8],
        ) -> Result<Option<&'d mut $variant>, CommandError> {
            match db.write(key) {
                None => Ok(None),
                Some(Value::$variant(collection)) => Ok(Some(collection)),
                Some(_) => Err(CommandError::WrongType),
            }
        }

        /// The collection of a key, a new empty one if there is none: the caller adds to it.
        pub fn $or_new<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<&'d mut $variant, CommandError> {
            if !db.contains(key) {
                db.insert(key, Value::$variant(Box::default()));
            }
            $write(db, key)?.ok_or(CommandError::WrongType)
        }
    };
}

typed!(List, read_list, peek_list, write_list, list_or_new);
typed!(Set, read_set, peek_set, write_set, set_or_new);
typed!(Hash, read_hash, peek_hash, write_hash, hash_or_new);
typed!(Zset, read_zset, peek_zset, write_zset, zset_or_new);

/// Records that something was taken out of a collection, and removes the key if nothing is left.
pub fn removed_from(db: &mut Keyspace, key: &[u8], class: Class, event: &'static str, is_empty: bool) {
    db.changed(key, class, event);
    if is_empty {
        db.remove(key);
        db.changed(key, Class::Generic, "del");
    }
}

/// Replaces a key by the result of a command, or removes it if the result is empty.
pub fn store(db: &mut Keyspace, key: &[u8], result: Option<Value>, class: Class, event: &'static str) {
    match result {
        Some(value) => {
            db.insert(key, value);
            db.changed(key, class, event);
        }
        None => {
            if db.remove(key).is_some() {
                db.changed(key, Class::Generic, "del");
            }
        }
    }
}

/// What was read of a large collection for this HSCAN or SSCAN. Within a transaction or script the whole collection is in memory.
pub fn walked(ctx: &mut Ctx<'_>) -> Option<Walked> {
    match (&mut ctx.server.tier, ctx.is_nested) {
        (Some(tier), false) => tier.end_element_walk(ctx.client.id),
        _ => None,
    }
}

impl Ctx<'_> {
    /// When collections leave their compact encodings.
    pub fn limits(&self) -> CollectionLimits {
        self.server.collection_limits
    }
}

pub fn bulk(reply: &mut Reply, element: Element<'_>) {
    match element {
        Element::Int(number) => reply.bulk_int(number),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

pub fn bulk_or_null(reply: &mut Reply, element: Option<Element<'_>>) {
    match element {
        Some(element) => bulk(reply, element),
        None => reply.null(),
    }
}

/// A score, with the digits that Redis prints.
pub fn score(reply: &mut Reply, score: f64) {
    reply.double_text(format_g17(score).as_bytes());
}

/// An integer that must be at least `min`; every other text is an error of `text`.
pub fn at_least(arg: Arg<'_>, min: i64, text: &'static str) -> Result<usize, CommandError> {
    let number = args::int_within(arg, min, i64::MAX, text)?;
    usize::try_from(number).map_err(|_| CommandError::of(text))
}

/// A count that may be negative, as SRANDMEMBER takes it.
pub fn signed_count(arg: Arg<'_>) -> Result<i64, CommandError> {
    let count = args::int(arg)?;
    if count == i64::MIN {
        return Err(CommandError::of(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    Ok(count)
}

/// The count of HRANDFIELD and ZRANDMEMBER, and whether `word` asks for what belongs to the elements.
pub fn random_options(args: &[Arg<'_>], word: &str) -> Result<(Option<i64>, bool), CommandError> {
    let Some(count) = args.get(2) else { return Ok((None, false)) };
    let count = signed_count(count)?;
    match &args[3..] {
        [] => Ok((Some(count), false)),
        [option] if args::is(option, word) => {
            if count.unsigned_abs() > i64::MAX as u64 / 2 {
                return Err(CommandError::of("ERR value is out of range"));
            }
            Ok((Some(count), true))
        }
        _ => Err(CommandError::Syntax),
    }
}

/// Indices that may be negative, as a range inside `0..len`.
pub fn index_range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
    let start = from_end(start).max(0);
    let end = from_end(stop).min(len - 1) + 1;
    if start >= end { 0..0 } else { start as usize..end as usize }
}

/// `KEY count key...` at `at`: the keys and what follows them.
pub fn counted_keys<'a, 'b>(
    args: &'b [Arg<'a>],
    at: usize,
) -> Result<(&'b [Arg<'a>], &'b [Arg<'a>]), CommandError> {
    let count = at_least(args[at], 1, NUMKEYS)?;
    let rest = &args[at + 1..];
    if count > rest.len() {
        return Err(CommandError::Syntax);
    }
    Ok(rest.split_at(count))
}

/// Random numbers for one command.
pub struct Random(u64);

impl Random {
    pub fn of(db: &mut Keyspace) -> Random {
        Random(db.next_random() | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let wide = u128::from(self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * bound as u128;
        (wide >> 64) as usize
    }

    /// `count` different numbers below `bound`, in random order; all of them if there are fewer.
    pub fn distinct(&mut self, count: usize, bound: usize) -> Vec<usize> {
        let count = count.min(bound);
        if count * 3 > bound {
            let mut all: Vec<usize> = (0..bound).collect();
            for at in 0..count {
                let other = at + self.below(bound - at);
                all.swap(at, other);
            }
            all.truncate(count);
            return all;
        }
        let mut chosen = std::collections::HashSet::with_capacity(count);
        let mut order = Vec::with_capacity(count);
        while order.len() < count {
            let number = self.below(bound);
            if chosen.insert(number) {
                order.push(number);
            }
        }
        order
    }
}

/// Options of SSCAN, HSCAN and ZSCAN.
pub struct Scan<'a> {
    pub cursor: u64,
    pub count: usize,
    pattern: Option<&'a [u8]>,
}

impl<'a> Scan<'a> {
    /// Parses the cursor, which is refused even if the key doesn't exist.
    pub fn cursor(args: &[Arg<'a>]) -> Result<u64, CommandError> {
        let text = std::str::from_utf8(args[2]).ok();
        text.and_then(|text| text.parse().ok()).ok_or(CommandError::of("ERR invalid cursor"))
    }

    /// Parses `key cursor [MATCH pattern] [COUNT count]`.
    pub fn parse(args: &[Arg<'a>]) -> Result<Scan<'a>, CommandError> {
        let cursor = Scan::cursor(args)?;
        let mut scan = Scan { cursor, count: 10, pattern: None };
        for option in args[3..].chunks(2) {
            match option {
                [name, value] if args::is(name, "COUNT") => {
                    let count = args::int(value)?;
                    scan.count =
                        usize::try_from(count).ok().filter(|&count| count > 0).ok_or(CommandError::Syntax)?;
                }
                [name, value] if args::is(name, "MATCH") => {
                    scan.pattern = Some(value).filter(|pattern| **pattern != b"*").copied();
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(scan)
    }

    pub fn matches(&self, element: Element<'_>) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, element.bytes(&mut itoa::Buffer::new())))
    }

    /// Writes the reply of a scan that ended.
    pub fn reply(reply: &mut Reply, cursor: u64, elements: &[Vec<u8>]) {
        reply.array(2);
        reply.bulk(cursor.to_string().as_bytes());
        reply.array(elements.len());
        for element in elements {
            reply.bulk(element);
        }
    }
}
