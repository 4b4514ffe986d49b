//! Hashes. Fields whose time has come are removed before a command looks at its hash: see [`live`].

use super::collections::{self, Random, Scan, hash_or_new, read_hash, removed_from, write_hash};
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::value::Value;
use crate::value::decimal::add_decimals;
use crate::value::hash::Hash;
use crate::value::integer::parse_integer;
use crate::value::listpack::Element;

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const ADD_FAST: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const TAKE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const ONE: Keys = Keys::one(Access::ReadWrite);
const ONE_READ: Keys = Keys::one(Access::Read);

const fn row(row: Row, since: &'static str, complexity: &'static str, summary: &'static str) -> Row {
    row.doc(Group::Hash, since, complexity, summary)
}

pub const ROWS: &[Row] = &[
    row(Row::new("hset", -4, ADD_FAST, ONE, hset), "2.0.0", "O(1) for each field", "Sets fields of a hash."),
    row(
        Row::new("hmset", -4, ADD_FAST, ONE, hmset),
        "2.0.0",
        "O(1) for each field",
        "Sets fields of a hash; the old form of HSET.",
    ),
    row(Row::new("hsetnx", 4, ADD_FAST, ONE, hsetnx), "2.0.0", "O(1)", "Sets a field that doesn't exist."),
    row(Row::new("hget", 3, READ_FAST, ONE_READ, hget), "2.0.0", "O(1)", "Returns the value of a field."),
    row(
        Row::new("hmget", -3, READ_FAST, ONE_READ, hmget),
        "2.0.0",
        "O(N) of the fields given",
        "Returns the values of several fields.",
    ),
    row(Row::new("hdel", -3, TAKE_FAST, ONE, hdel), "2.0.0", "O(N) of the fields given", "Removes fields."),
    row(Row::new("hlen", 2, READ_FAST, ONE_READ, hlen), "2.0.0", "O(1)", "Returns the number of fields."),
    row(
        Row::new("hstrlen", 3, READ_FAST, ONE_READ, hstrlen),
        "3.2.0",
        "O(1)",
        "Returns the length of a field's value.",
    ),
    row(
        Row::new("hexists", 3, READ_FAST, ONE_READ, hexists),
        "2.0.0",
        "O(1)",
        "Returns whether a field exists.",
    ),
    row(
        Row::new("hkeys", 2, READ, ONE_READ, hkeys),
        "2.0.0",
        "O(N) of the size of the hash",
        "Returns all fields.",
    ),
    row(
        Row::new("hvals", 2, READ, ONE_READ, hvals),
        "2.0.0",
        "O(N) of the size of the hash",
        "Returns all values.",
    ),
    row(
        Row::new("hgetall", 2, READ, ONE_READ, hgetall),
        "2.0.0",
        "O(N) of the size of the hash",
        "Returns all fields with their values.",
    ),
    row(
        Row::new("hincrby", 4, ADD_FAST, ONE, hincrby),
        "2.0.0",
        "O(1)",
        "Adds an integer to a field's value.",
    ),
    row(
        Row::new("hincrbyfloat", 4, ADD_FAST, ONE, hincrbyfloat),
        "2.6.0",
        "O(1)",
        "Adds a number to a field's value.",
    ),
    row(
        Row::new("hrandfield", -2, READ, ONE_READ, hrandfield),
        "6.2.0",
        "O(N) of the fields returned",
        "Returns random fields.",
    ),
    row(
        Row::new("hscan", -3, READ, ONE_READ, hscan),
        "2.8.0",
        "O(1) for each call",
        "Iterates over the fields of a hash.",
    ),
];

/// Removes the fields of a hash whose time has come. Does nothing if the key holds no hash.
pub fn remove_expired_fields(db: &mut Keyspace, key: &[u8]) {
    let now_ms = db.now_ms;
    let Some(Value::Hash(hash)) = db.entry(key).map(|entry| &mut entry.value) else { return };
    if hash.next_expiry().is_none_or(|at_ms| at_ms > now_ms) {
        return;
    }
    if hash.remove_expired(now_ms, usize::MAX) == 0 {
        return;
    }
    let is_empty = hash.is_empty();
    removed_from(db, key, Class::Hash, "hexpired", is_empty);
}

/// The hash of a key, without expired fields.
pub fn live<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<Option<&'d Hash>, CommandError> {
    remove_expired_fields(db, key);
    read_hash(db, key)
}

/// As [`live`], for a command that changes the hash.
pub fn live_mut<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<Option<&'d mut Hash>, CommandError> {
    remove_expired_fields(db, key);
    write_hash(db, key)
}

fn live_or_new<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<&'d mut Hash, CommandError> {
    remove_expired_fields(db, key);
    hash_or_new(db, key)
}

/// Sets the fields of HSET and HMSET; returns how many are new.
fn set_fields(ctx: &mut Ctx<'_>, args: &[Arg<'_>], name: &str) -> Result<usize, CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::arity(name));
    }
    let limits = ctx.limits();
    let db = ctx.db();
    let hash = live_or_new(db, args[1])?;
    // A value that is too long for a listpack converts the hash before anything is added.
    if args[2..].iter().any(|arg| arg.len() > limits.hash_max_listpack_value) {
        hash.to_table();
    }
    let added = args[2..].chunks_exact(2).filter(|pair| hash.insert(pair[0], pair[1], &limits)).count();
    db.changed(args[1], Class::Hash, "hset");
    Ok(added)
}

fn hset(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let added = set_fields(ctx, args, "hset")?;
    ctx.reply.int(added as i64);
    Ok(())
}

fn hmset(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    set_fields(ctx, args, "hmset")?;
    ctx.reply.ok();
    Ok(())
}

fn hsetnx(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let hash = live_or_new(db, args[1])?;
    if hash.contains(args[2]) {
        reply.int(0);
        return Ok(());
    }
    hash.insert(args[2], args[3], &limits);
    db.changed(args[1], Class::Hash, "hset");
    reply.int(1);
    Ok(())
}

fn hget(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let hash = live(db, args[1])?;
    collections::bulk_or_null(reply, hash.and_then(|hash| hash.get(args[2])));
    Ok(())
}

fn hmget(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let hash = live(db, args[1])?;
    reply.array(args.len() - 2);
    for field in &args[2..] {
        collections::bulk_or_null(reply, hash.and_then(|hash| hash.get(field)));
    }
    Ok(())
}

fn hdel(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(hash) = live_mut(db, args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let removed = args[2..].iter().filter(|field| hash.remove(field)).count();
    let is_empty = hash.is_empty();
    if removed > 0 {
        removed_from(db, args[1], Class::Hash, "hdel", is_empty);
    }
    reply.int(removed as i64);
    Ok(())
}

fn hlen(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.int(live(db, args[1])?.map_or(0, |hash| hash.len() as i64));
    Ok(())
}

fn hstrlen(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let value = live(db, args[1])?.and_then(|hash| hash.get(args[2]));
    reply.int(value.map_or(0, |value| value.byte_len() as i64));
    Ok(())
}

fn hexists(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.int(live(db, args[1])?.map_or(0, |hash| i64::from(hash.contains(args[2]))));
    Ok(())
}

fn hkeys(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(hash) = live(db, args[1])? else {
        reply.array(0);
        return Ok(());
    };
    reply.array(hash.len());
    hash.iter().for_each(|(field, _)| collections::bulk(reply, field));
    Ok(())
}

fn hvals(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(hash) = live(db, args[1])? else {
        reply.array(0);
        return Ok(());
    };
    reply.array(hash.len());
    hash.iter().for_each(|(_, value)| collections::bulk(reply, value));
    Ok(())
}

fn hgetall(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(hash) = live(db, args[1])? else {
        reply.map(0);
        return Ok(());
    };
    reply.map(hash.len());
    for (field, value) in hash.iter() {
        collections::bulk(reply, field);
        collections::bulk(reply, value);
    }
    Ok(())
}

fn hincrby(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let increment = args::int(args[3])?;
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let old = match live_mut(db, args[1])?.and_then(|hash| hash.get(args[2])) {
        None => 0,
        Some(Element::Int(number)) => number,
        Some(Element::Bytes(text)) => {
            parse_integer(text).ok_or(CommandError::of("ERR hash value is not an integer"))?
        }
    };
    let sum =
        old.checked_add(increment).ok_or(CommandError::of("ERR increment or decrement would overflow"))?;
    hash_or_new(db, args[1])?.update(args[2], itoa::Buffer::new().format(sum).as_bytes(), &limits);
    reply.int(sum);
    db.changed(args[1], Class::Hash, "hincrby");
    Ok(())
}

fn hincrbyfloat(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if !args::float(args[3])?.is_finite() {
        return Err(CommandError::of("ERR value is NaN or Infinity"));
    }
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let old =
        live_mut(db, args[1])?.and_then(|hash| hash.get(args[2])).map_or(b"0".to_vec(), Element::to_vec);
    args::parse_float(&old).ok_or(CommandError::of("ERR hash value is not a float"))?;
    let sum =
        add_decimals(&old, args[3]).ok_or(CommandError::of("ERR increment would produce NaN or Infinity"))?;
    hash_or_new(db, args[1])?.update(args[2], sum.as_bytes(), &limits);
    reply.bulk(sum.as_bytes());
    db.changed(args[1], Class::Hash, "hincrbyfloat");
    Ok(())
}

fn hrandfield(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (count, with_values) = collections::random_options(args, "WITHVALUES")?;
    let (db, reply) = ctx.split();
    let mut random = Random::of(db);
    let Some(hash) = live(db, args[1])? else {
        match count {
            Some(_) => reply.array(0),
            None => reply.null(),
        }
        return Ok(());
    };
    let Some(count) = count else {
        collections::bulk_or_null(reply, hash.nth(random.below(hash.len())).map(|(field, _)| field));
        return Ok(());
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let mut chosen = if count < 0 { Vec::new() } else { random.distinct(wanted, hash.len()) };
    if chosen.len() == hash.len() {
        chosen.sort_unstable();
    }
    let len = if count < 0 { wanted } else { chosen.len() };
    reply.array(if with_values && !reply.resp3 { 2 * len } else { len });
    for at in 0..len {
        let index = if count < 0 { random.below(hash.len()) } else { chosen[at] };
        let Some((field, value)) = hash.nth(index) else { continue };
        if with_values && reply.resp3 {
            reply.array(2);
        }
        collections::bulk(reply, field);
        if with_values {
            collections::bulk(reply, value);
        }
    }
    Ok(())
}

fn hscan(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    Scan::cursor(args)?;
    let walked = collections::walked(ctx);
    let now_ms = ctx.now_ms().max(0) as u64;
    let (db, reply) = ctx.split();
    let Some(hash) = live(db, args[1])? else {
        Scan::reply(reply, 0, &[]);
        return Ok(());
    };
    let scan = Scan::parse(args)?;
    let mut elements = Vec::new();
    let cursor = match walked {
        Some(walked) => {
            let mut names: Vec<&[u8]> = walked.held.iter().map(|name| &**name).collect();
            for found in &walked.found {
                // What memory knows of a field is newer.
                if hash.has_element(&found.name) {
                    names.push(&found.name);
                } else if !hash.is_known_absent(&found.name)
                    && found.value.expires_ms.is_none_or(|at_ms| at_ms > now_ms)
                    && scan.matches(Element::Bytes(&found.name))
                {
                    elements.push(found.name.to_vec());
                    elements.push(found.value.rdb.clone());
                }
            }
            names.sort_unstable();
            names.dedup();
            for name in names.into_iter().filter(|name| scan.matches(Element::Bytes(name))) {
                if hash.has_element(name)
                    && let Some(value) = hash.get(name)
                {
                    elements.push(name.to_vec());
                    elements.push(value.to_vec());
                }
            }
            walked.cursor
        }
        None => hash.scan(scan.cursor, scan.count, |field, value| {
            if scan.matches(field) {
                elements.push(field.to_vec());
                elements.push(value.to_vec());
            }
        }),
    };
    Scan::reply(reply, cursor, &elements);
    Ok(())
}
