//! What the rules of users see of commands: the catalogue of them, and what a command asks for.

use super::table::{Access, Acl, CommandMatch, table};
use super::{Arg, Flags, args};
use crate::client::Client;
use crate::client::acl::catalogue::{Catalogue, Command, Request};
use crate::client::acl::{Denied, User};
use crate::server::Server;
use std::sync::OnceLock;

/// The one catalogue.
pub fn catalogue() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| {
        let command = |found: &CommandMatch| Command {
            full_name: found.full_name(),
            is_subcommand: found.parent.is_some(),
            subcommands: found.row.subcommands.len(),
            categories: found.row.categories().0,
        };
        let categories = Acl::NAMES.iter().map(|(category, name)| (category.0, *name)).collect();
        Catalogue::new(table().all.iter().map(command).collect(), categories)
    })
}

/// Why the user of a client may not run a command.
pub fn check(
    server: &Server,
    client: &mut Client,
    found: CommandMatch,
    args: &[Arg<'_>],
) -> Result<(), Denied> {
    client.take_rules(&server.acl);
    check_user(&client.user, found, args)
}

/// Why a user may not run a command.
pub fn check_user(user: &User, found: CommandMatch, args: &[Arg<'_>]) -> Result<(), Denied> {
    if user.is_unlimited() {
        return Ok(());
    }
    let mut keys = Vec::new();
    found.row.keys.for_each(args, |at, access| {
        let (reads, writes) = rights(found, args, at, access);
        keys.push((at, reads, writes));
    });
    let (channels, are_patterns) = channels(found, args);
    let is_free = found.row.flags.contains(Flags::NO_AUTH);
    user.check(&Request { number: found.number, is_free, args, keys, channels, are_patterns })
}

/// Commands that change a key without telling anything of its value: a right to write is enough.
const WRITE_ONLY: &[&str] = &[
    "append",
    "create",
    "createconsumer",
    "delconsumer",
    "destroy",
    "expire",
    "expireat",
    "geoadd",
    "hdel",
    "hmset",
    "hset",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "persist",
    "pexpire",
    "pexpireat",
    "pfadd",
    "rpush",
    "rpushx",
    "sadd",
    "setid",
    "setrange",
    "srem",
    "xack",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xsetid",
    "xtrim",
    "zadd",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
    "hexpire",
    "hpexpire",
    "hexpireat",
    "hpexpireat",
    "hpersist",
];
/// Commands that tell of a key no more than that it is there, its type or size: a right of either kind is enough.
const NO_VALUE: &[&str] = &[
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "usage",
    "encoding",
    "freq",
    "idletime",
    "refcount",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "xlen",
    "zcard",
];
/// Commands that move an element from their first key to their second.
const MOVERS: &[&str] = &["smove", "rpoplpush", "brpoplpush", "lmove", "blmove"];
/// Commands whose first argument is overwritten, or read too with the option GET.
const OVERWRITES_AND_MAY_GET: &[&str] = &["set"];

/// Whether a command reads and changes a key at a position.
fn rights(found: CommandMatch, args: &[Arg<'_>], at: usize, access: Access) -> (bool, bool) {
    let name = found.row.name;
    match access {
        Access::Read if NO_VALUE.contains(&name) => (false, false),
        Access::Read => (true, false),
        Access::Remove => (false, true),
        Access::Overwrite if OVERWRITES_AND_MAY_GET.contains(&name) => {
            (args.iter().skip(3).any(|arg| args::is(arg, "GET")), true)
        }
        Access::Overwrite => (false, true),
        Access::ReadWrite if WRITE_ONLY.contains(&name) => (false, true),
        Access::ReadWrite if name == "copy" => (at == 1, at == 2),
        Access::ReadWrite if name == "bitfield" => {
            let is_write = |arg: &&[u8]| args::is(arg, "SET") || args::is(arg, "INCRBY");
            (true, args[2..].iter().any(is_write))
        }
        Access::ReadWrite if name == "pfcount" => (true, false),
        Access::ReadWrite if MOVERS.contains(&name) => (at == 1, true),
        Access::ReadWrite if name == "set" => (args.iter().skip(3).any(|arg| args::is(arg, "GET")), true),
        Access::ReadWrite => (true, true),
    }
}

/// The arguments of a command that are channels, and whether they are patterns.
fn channels(found: CommandMatch, args: &[Arg<'_>]) -> (std::ops::Range<usize>, bool) {
    match found.row.name {
        "publish" | "spublish" if found.parent.is_none() => (1..2.min(args.len()), false),
        "subscribe" | "ssubscribe" => (1..args.len(), false),
        "psubscribe" => (1..args.len(), true),
        _ => (0..0, false),
    }
}
