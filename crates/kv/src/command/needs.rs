//! What a command needs of a large collection before it runs: its head, some elements, a range of them, or all.
//!
//! The dispatcher reads all elements for a command that is not named here: an answer is never wrong, and `tiering_large_loads` of `INFO` counts it.

use super::table::{CommandMatch, Group, table};
use super::{Arg, args, stored_keys};
use crate::client::Client;
use crate::resp::parse::parse_i64;
use crate::storage::Key;
use crate::value::list::{End, ListPart};
use std::collections::HashMap;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Needs {
    /// What a key is, when it expires, how many elements it has. No element is looked at.
    Head,
    /// These elements. Fields that have expired are removed before.
    Elements(Vec<Box<[u8]>>),
    /// A part of a list.
    List(ListPart),
    /// A range of elements, read from storage (`HSCAN`, `SSCAN`, `ZSCAN`).
    Range,
    Whole,
}

/// Commands on keys of any type that look at no element.
const OF_HEADS: [&str; 20] = [
    "del",
    "unlink",
    "exists",
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "expiretime",
    "pexpiretime",
    "persist",
    "ttl",
    "pttl",
    "rename",
    "renamenx",
    "touch",
    "type",
    "restore",
    "restore-asking",
    "watch",
    "usage",
];

/// What a command needs of a large hash.
fn of_hash(name: &str, args: &[Arg<'_>]) -> Needs {
    let elements = |fields: &[Arg<'_>], step: usize| {
        Needs::Elements(fields.iter().step_by(step).map(|&field| field.into()).collect())
    };
    match name {
        "hget" | "hexists" | "hstrlen" | "hsetnx" | "hincrby" | "hincrbyfloat" => elements(&args[2..3], 1),
        "hset" | "hmset" => elements(&args[2..], 2),
        "hmget" | "hdel" => elements(&args[2..], 1),
        "hlen" => Needs::Elements(Vec::new()),
        "hscan" => Needs::Range,
        "hexpire" | "hpexpire" | "hexpireat" | "hpexpireat" | "httl" | "hpttl" | "hexpiretime"
        | "hpexpiretime" | "hpersist" => {
            // `FIELDS count field...`; what stands elsewhere is refused.
            let at = args.iter().position(|arg| args::is(arg, "FIELDS")).unwrap_or(args.len());
            elements(args.get(at + 2..).unwrap_or_default(), 1)
        }
        _ => Needs::Whole,
    }
}

/// What a command needs of a large set.
fn of_set(name: &str, args: &[Arg<'_>]) -> Needs {
    let elements =
        |members: &[Arg<'_>]| Needs::Elements(members.iter().map(|&member| member.into()).collect());
    match name {
        "sismember" => elements(&args[2..3]),
        "sadd" | "srem" | "smismember" => elements(&args[2..]),
        // Of both sets.
        "smove" => elements(&args[3..4]),
        "scard" => Needs::Head,
        "sscan" => Needs::Range,
        _ => Needs::Whole,
    }
}

/// What a command needs of a large sorted set.
fn of_zset(name: &str, args: &[Arg<'_>]) -> Needs {
    let elements = |members: &[Arg<'_>], step: usize| {
        Needs::Elements(members.iter().step_by(step).map(|&member| member.into()).collect())
    };
    match name {
        "zscore" => elements(&args[2..3], 1),
        "zincrby" => elements(&args[3..4], 1),
        "zmscore" | "zrem" | "geopos" | "geohash" => elements(&args[2..], 1),
        "geodist" => elements(&args[2..4], 1),
        // The options of both stand before the first score or longitude.
        "zadd" => elements(args.get(options_end(args) + 1..).unwrap_or_default(), 2),
        "geoadd" => elements(args.get(options_end(args) + 2..).unwrap_or_default(), 3),
        "zcard" => Needs::Head,
        "zscan" => Needs::Range,
        _ => Needs::Whole,
    }
}

/// What a command needs of a large list. A number that cannot be read is the handler's to refuse.
fn of_list(name: &str, args: &[Arg<'_>]) -> Needs {
    let number = |at: usize| args.get(at).and_then(|&arg| parse_i64(arg));
    let count = |at: usize| match args.get(at) {
        None => 1,
        Some(&arg) => parse_i64(arg).and_then(|count| usize::try_from(count).ok()).unwrap_or(0),
    };
    let ends = |left: usize, right: usize| Needs::List(ListPart::Ends { left, right });
    match name {
        "llen" => Needs::Head,
        "lpush" | "lpushx" => Needs::List(ListPart::Push(End::Left)),
        "rpush" | "rpushx" => Needs::List(ListPart::Push(End::Right)),
        "lpop" => ends(count(2), 0),
        "rpop" => ends(0, count(2)),
        "blpop" => ends(1, 0),
        "brpop" => ends(0, 1),
        "rpoplpush" | "brpoplpush" | "lmove" | "blmove" => ends(1, 1),
        "lmpop" | "blmpop" => {
            let at = args.iter().rposition(|arg| args::is(arg, "COUNT"));
            let count = at.map_or(1, |at| count(at + 1));
            ends(count, count)
        }
        "lindex" => match number(2) {
            Some(index) => Needs::List(ListPart::Index(index)),
            None => Needs::Head,
        },
        "lrange" | "ltrim" => match (number(2), number(3)) {
            (Some(start), Some(stop)) if name == "lrange" => Needs::List(ListPart::Window(start, stop)),
            (Some(start), Some(stop)) => Needs::List(ListPart::Outside(start, stop)),
            _ => Needs::Head,
        },
        _ => Needs::Whole,
    }
}

/// What two commands of a transaction need of the same list: the second one finds what the first one left.
fn both(one: &Needs, other: &Needs) -> Needs {
    let ends = |needs: &Needs| match needs {
        Needs::List(ListPart::Ends { left, right }) => Some((*left, *right)),
        Needs::List(ListPart::Push(End::Left)) => Some((1, 0)),
        Needs::List(ListPart::Push(End::Right)) => Some((0, 1)),
        _ => None,
    };
    match (ends(one), ends(other)) {
        _ if one == other && matches!(one, Needs::List(ListPart::Push(_))) => one.clone(),
        (Some((left, right)), Some((more_left, more_right))) => Needs::List(ListPart::Ends {
            left: left.saturating_add(more_left),
            right: right.saturating_add(more_right),
        }),
        _ => Needs::Whole,
    }
}

/// Whether a command gives a key another name.
pub fn renames(found: CommandMatch) -> bool {
    found.parent.is_none() && matches!(found.row.name, "rename" | "renamenx")
}

/// Where the options of `ZADD` or `GEOADD` end.
fn options_end(args: &[Arg<'_>]) -> usize {
    let is_option =
        |arg: &Arg<'_>| ["NX", "XX", "GT", "LT", "CH", "INCR"].iter().any(|word| args::is(arg, word));
    2 + args[2..].iter().take_while(|arg| is_option(arg)).count()
}

/// What a command needs of each of its keys that holds a large collection.
fn of(found: CommandMatch, args: &[Arg<'_>]) -> Needs {
    let is_of_object = found.parent.is_some_and(|parent| parent.name == "object");
    match found.row.group {
        Group::Hash => of_hash(found.row.name, args),
        Group::Set => of_set(found.row.name, args),
        Group::SortedSet | Group::Geo => of_zset(found.row.name, args),
        Group::List => of_list(found.row.name, args),
        // Commands of another type refuse the key or replace it.
        Group::String | Group::Hyperloglog | Group::Stream | Group::Bitmap => Needs::Head,
        _ if is_of_object || OF_HEADS.contains(&found.row.name) => Needs::Head,
        _ => Needs::Whole,
    }
}

/// Whether a command walks over the elements of its key.
pub fn is_range(found: CommandMatch) -> bool {
    matches!(
        (found.row.group, found.row.name),
        (Group::Hash, "hscan") | (Group::Set, "sscan") | (Group::SortedSet, "zscan")
    )
}

/// Makes of what several commands need of a list what they need together.
fn add_needs_of_lists(all: &mut [(Key, Needs)]) {
    let mut together: HashMap<Key, Needs> = HashMap::new();
    for (key, needs) in all.iter().filter(|(_, needs)| matches!(needs, Needs::List(_))) {
        let sum = together.get(key).map_or_else(|| needs.clone(), |before| both(before, needs));
        together.insert(key.clone(), sum);
    }
    for (key, needs) in all.iter_mut().filter(|(_, needs)| matches!(needs, Needs::List(_))) {
        together.get(key).into_iter().for_each(|sum| *needs = sum.clone());
    }
}

/// What a command that is to run needs of its keys, or all commands of a transaction.
pub fn of_command(client: &Client, found: CommandMatch, args: &[Arg<'_>]) -> Vec<(Key, Needs)> {
    let multi = client.multi.as_ref().filter(|_| found.row.name == "exec");
    let Some(multi) = multi else {
        let needs = of(found, args);
        let mut db = client.db;
        return stored_keys::of_one(found, args, &mut db)
            .into_iter()
            .map(|key| (key, needs.clone()))
            .collect();
    };
    let (mut all, mut db, mut moves) = (Vec::new(), client.db, false);
    for args in &multi.commands {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let Some(found) = table().find_with_subcommand(&args) else { continue };
        let needs = match of(found, &args) {
            // Storage is not asked within a transaction.
            Needs::Range => Needs::Whole,
            needs => needs,
        };
        // Later commands find another collection under the key.
        moves |= renames(found);
        all.extend(stored_keys::of_one(found, &args, &mut db).into_iter().map(|key| (key, needs.clone())));
    }
    add_needs_of_lists(&mut all);
    if moves {
        all.iter_mut().for_each(|(_, needs)| *needs = Needs::Whole);
    }
    all
}
