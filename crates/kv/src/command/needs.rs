//! What a command needs of a large collection before it runs: its head, some elements, a range of them, or all.
//!
//! The dispatcher reads all elements for a command that is not named here: an answer is never wrong, and `tiering_large_loads` of `INFO` counts it.

use super::table::{CommandMatch, Group, table};
use super::{Arg, args, stored_keys};
use crate::client::Client;
use crate::storage::Key;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Needs {
    /// What a key is, when it expires, how many elements it has. No element is looked at.
    Head,
    /// These elements. Fields that have expired are removed before.
    Elements(Vec<Box<[u8]>>),
    /// A range of elements, read from storage (`HSCAN`, `SSCAN`).
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

/// What a command needs of each of its keys that holds a large collection.
fn of(found: CommandMatch, args: &[Arg<'_>]) -> Needs {
    let is_of_object = found.parent.is_some_and(|parent| parent.name == "object");
    match found.row.group {
        Group::Hash => of_hash(found.row.name, args),
        Group::Set => of_set(found.row.name, args),
        // Commands of another type refuse the key or replace it.
        Group::String
        | Group::List
        | Group::SortedSet
        | Group::Hyperloglog
        | Group::Geo
        | Group::Stream
        | Group::Bitmap => Needs::Head,
        _ if is_of_object || OF_HEADS.contains(&found.row.name) => Needs::Head,
        _ => Needs::Whole,
    }
}

/// Whether a command walks over the elements of its key.
pub fn is_range(found: CommandMatch) -> bool {
    matches!((found.row.group, found.row.name), (Group::Hash, "hscan") | (Group::Set, "sscan"))
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
        moves |= matches!(found.row.name, "rename" | "renamenx");
        all.extend(stored_keys::of_one(found, &args, &mut db).into_iter().map(|key| (key, needs.clone())));
    }
    if moves {
        all.iter_mut().for_each(|(_, needs)| *needs = Needs::Whole);
    }
    all
}
