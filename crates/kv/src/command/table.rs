//! The table of commands: what the dispatcher, ACL, clients (`COMMAND`) and the storage tier know of each.

use super::Handler;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Flags as `COMMAND INFO` names them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    pub const NONE: Flags = Flags(0);
    pub const WRITE: Flags = Flags(1);
    pub const READONLY: Flags = Flags(1 << 1);
    /// Refused while memory is above `maxmemory`.
    pub const DENYOOM: Flags = Flags(1 << 2);
    pub const ADMIN: Flags = Flags(1 << 3);
    pub const PUBSUB: Flags = Flags(1 << 4);
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    pub const BLOCKING: Flags = Flags(1 << 6);
    pub const LOADING: Flags = Flags(1 << 7);
    pub const STALE: Flags = Flags(1 << 8);
    pub const FAST: Flags = Flags(1 << 9);
    pub const NO_AUTH: Flags = Flags(1 << 10);
    pub const NO_MULTI: Flags = Flags(1 << 11);
    pub const MOVABLE_KEYS: Flags = Flags(1 << 12);
    pub const ALLOW_BUSY: Flags = Flags(1 << 13);
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 14);
    pub const SKIP_MONITOR: Flags = Flags(1 << 15);
    pub const MAY_REPLICATE: Flags = Flags(1 << 16);
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 17);
    /// Not shown: the command changes databases that are not selected, or runs others.
    pub const ALL_DATABASES: Flags = Flags(1 << 30);

    pub const NAMES: &[(Flags, &str)] = &[
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::PUBSUB, "pubsub"),
        (Flags::NOSCRIPT, "noscript"),
        (Flags::BLOCKING, "blocking"),
        (Flags::LOADING, "loading"),
        (Flags::STALE, "stale"),
        (Flags::SKIP_MONITOR, "skip_monitor"),
        (Flags::SKIP_SLOWLOG, "skip_slowlog"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::MAY_REPLICATE, "may_replicate"),
        (Flags::NO_ASYNC_LOADING, "no_async_loading"),
        (Flags::NO_MULTI, "no_multi"),
        (Flags::MOVABLE_KEYS, "movablekeys"),
        (Flags::ALLOW_BUSY, "allow_busy"),
    ];

    pub const fn contains(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// Joins flags in constants.
pub const fn flags(all: &[Flags]) -> Flags {
    let mut joined = 0;
    let mut at = 0;
    while at < all.len() {
        joined |= all[at].0;
        at += 1;
    }
    Flags(joined)
}

/// Categories of `ACL CAT`, a bit each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Acl(pub u32);

impl Acl {
    pub const KEYSPACE: Acl = Acl(1);
    pub const READ: Acl = Acl(1 << 1);
    pub const WRITE: Acl = Acl(1 << 2);
    pub const SET: Acl = Acl(1 << 3);
    pub const SORTEDSET: Acl = Acl(1 << 4);
    pub const LIST: Acl = Acl(1 << 5);
    pub const HASH: Acl = Acl(1 << 6);
    pub const STRING: Acl = Acl(1 << 7);
    pub const BITMAP: Acl = Acl(1 << 8);
    pub const HYPERLOGLOG: Acl = Acl(1 << 9);
    pub const GEO: Acl = Acl(1 << 10);
    pub const STREAM: Acl = Acl(1 << 11);
    pub const PUBSUB: Acl = Acl(1 << 12);
    pub const ADMIN: Acl = Acl(1 << 13);
    pub const FAST: Acl = Acl(1 << 14);
    pub const SLOW: Acl = Acl(1 << 15);
    pub const BLOCKING: Acl = Acl(1 << 16);
    pub const DANGEROUS: Acl = Acl(1 << 17);
    pub const CONNECTION: Acl = Acl(1 << 18);
    pub const TRANSACTION: Acl = Acl(1 << 19);
    pub const SCRIPTING: Acl = Acl(1 << 20);

    pub const NAMES: &[(Acl, &str)] = &[
        (Acl::KEYSPACE, "keyspace"),
        (Acl::READ, "read"),
        (Acl::WRITE, "write"),
        (Acl::SET, "set"),
        (Acl::SORTEDSET, "sortedset"),
        (Acl::LIST, "list"),
        (Acl::HASH, "hash"),
        (Acl::STRING, "string"),
        (Acl::BITMAP, "bitmap"),
        (Acl::HYPERLOGLOG, "hyperloglog"),
        (Acl::GEO, "geo"),
        (Acl::STREAM, "stream"),
        (Acl::PUBSUB, "pubsub"),
        (Acl::ADMIN, "admin"),
        (Acl::FAST, "fast"),
        (Acl::SLOW, "slow"),
        (Acl::BLOCKING, "blocking"),
        (Acl::DANGEROUS, "dangerous"),
        (Acl::CONNECTION, "connection"),
        (Acl::TRANSACTION, "transaction"),
        (Acl::SCRIPTING, "scripting"),
    ];

    pub const fn with(self, other: Acl) -> Acl {
        Acl(self.0 | other.0)
    }
}

/// Groups of `COMMAND DOCS`; each brings its ACL category.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Pubsub,
    Transactions,
    Connection,
    Server,
    Scripting,
    Hyperloglog,
    Cluster,
    Sentinel,
    Geo,
    Stream,
    Bitmap,
}

impl Group {
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::Pubsub => "pubsub",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::Hyperloglog => "hyperloglog",
            Group::Cluster => "cluster",
            Group::Sentinel => "sentinel",
            Group::Geo => "geo",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
        }
    }

    const fn acl(self) -> Acl {
        match self {
            Group::Generic => Acl::KEYSPACE,
            Group::String => Acl::STRING,
            Group::List => Acl::LIST,
            Group::Set => Acl::SET,
            Group::SortedSet => Acl::SORTEDSET,
            Group::Hash => Acl::HASH,
            Group::Pubsub => Acl::PUBSUB,
            Group::Transactions => Acl::TRANSACTION,
            Group::Connection => Acl::CONNECTION,
            Group::Server | Group::Cluster | Group::Sentinel => Acl(0),
            Group::Scripting => Acl::SCRIPTING,
            Group::Hyperloglog => Acl::HYPERLOGLOG,
            Group::Geo => Acl::GEO,
            Group::Stream => Acl::STREAM,
            Group::Bitmap => Acl::BITMAP,
        }
    }
}

/// What a command does to keys, as key specifications name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads the value.
    Read,
    /// Changes the value.
    ReadWrite,
    /// Replaces the value whatever it was: the old one need not be fetched.
    Overwrite,
    /// Deletes the key.
    Remove,
}

/// Which arguments are keys.
#[derive(Clone, Copy)]
pub enum Keys {
    None,
    /// Positions of the first and the last (negative: from the end) and the distance.
    At {
        first: usize,
        last: i32,
        step: usize,
        access: Access,
    },
    /// The number of keys is an argument, the keys follow it.
    Counted {
        number: usize,
        access: Access,
    },
    /// As [`Keys::Counted`], and a destination at position 1 that is overwritten.
    CountedInto {
        number: usize,
    },
    /// The positions of the keys, with what is done to each.
    Function(fn(&[&[u8]]) -> Vec<(usize, Access)>),
}

impl Keys {
    pub const fn one(access: Access) -> Keys {
        Keys::At { first: 1, last: 1, step: 1, access }
    }

    pub const fn all(access: Access) -> Keys {
        Keys::At { first: 1, last: -1, step: 1, access }
    }

    /// Hands the position of each key of a command to `visit`. Positions are valid indices of `args`.
    pub fn for_each(&self, args: &[&[u8]], mut visit: impl FnMut(usize, Access)) {
        match *self {
            Keys::None => {}
            Keys::At { first, last, step, access } => {
                let last = if last < 0 { args.len() as i64 + i64::from(last) } else { i64::from(last) };
                let mut at = first;
                while at as i64 <= last && at < args.len() {
                    visit(at, access);
                    at += step;
                }
            }
            Keys::Counted { number, access } => {
                for at in counted(args, number) {
                    visit(at, access);
                }
            }
            Keys::CountedInto { number } => {
                if args.len() > 1 {
                    visit(1, Access::Overwrite);
                }
                for at in counted(args, number) {
                    visit(at, Access::Read);
                }
            }
            Keys::Function(find) => {
                for (at, access) in find(args) {
                    if at < args.len() {
                        visit(at, access);
                    }
                }
            }
        }
    }
}

fn counted(args: &[&[u8]], number: usize) -> std::ops::Range<usize> {
    let count = args.get(number).and_then(|arg| crate::resp::parse::parse_i64(arg)).unwrap_or(0);
    let from = number + 1;
    // A number that is too large is the handler's to refuse.
    let count = usize::try_from(count).unwrap_or(0);
    if count > args.len().saturating_sub(from) { 0..0 } else { from..from + count }
}

/// A command, or a subcommand of one.
pub struct Row {
    /// In lower case.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least its absolute value.
    pub arity: i32,
    pub flags: Flags,
    pub keys: Keys,
    pub acl: Acl,
    pub group: Group,
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    pub subcommands: &'static [Row],
    pub handler: Handler,
}

impl Row {
    pub const fn new(name: &'static str, arity: i32, flags: Flags, keys: Keys, handler: Handler) -> Row {
        Row {
            name,
            arity,
            flags,
            keys,
            acl: Acl(0),
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            subcommands: &[],
            handler,
        }
    }

    /// What `COMMAND DOCS` says.
    pub const fn doc(
        mut self,
        group: Group,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Row {
        self.group = group;
        self.since = since;
        self.complexity = complexity;
        self.summary = summary;
        self
    }

    /// Categories beyond those of the group and the flags.
    pub const fn acl(mut self, acl: Acl) -> Row {
        self.acl = self.acl.with(acl);
        self
    }

    pub const fn with_subcommands(mut self, subcommands: &'static [Row]) -> Row {
        self.subcommands = subcommands;
        self
    }

    /// All ACL categories.
    pub fn categories(&self) -> Acl {
        let mut acl = self.acl.with(self.group.acl());
        for (flag, implied) in [
            (Flags::WRITE, Acl::WRITE),
            (Flags::READONLY, Acl::READ),
            (Flags::ADMIN, Acl::ADMIN.with(Acl::DANGEROUS)),
            (Flags::PUBSUB, Acl::PUBSUB),
            (Flags::BLOCKING, Acl::BLOCKING),
        ] {
            if self.flags.contains(flag) {
                acl = acl.with(implied);
            }
        }
        // Scripts read and write, and are in neither category.
        if self.group == Group::Scripting {
            acl.0 &= !Acl::READ.0;
        }
        acl.with(if self.flags.contains(Flags::FAST) { Acl::FAST } else { Acl::SLOW })
    }

    pub fn accepts(&self, args: usize) -> bool {
        if self.arity >= 0 { args == self.arity as usize } else { args >= self.arity.unsigned_abs() as usize }
    }
}

/// The families, each a list of rows.
fn families() -> Vec<&'static [Row]> {
    vec![
        super::strings::ROWS,
        super::compare::ROWS,
        super::lcs::ROWS,
        super::lists::ROWS,
        super::sets::ROWS,
        super::hashes::ROWS,
        super::hash_expiry::ROWS,
        super::zsets::ROWS,
        super::zset_ranges::ROWS,
        super::zset_combine::ROWS,
        super::geo::ROWS,
        super::sort::ROWS,
        super::keys::ROWS,
        super::server::ROWS,
        super::saves::ROWS,
        super::standalone::ROWS,
        super::latency::ROWS,
        super::memory::ROWS,
        super::bits::ROWS,
        super::hyperloglog::ROWS,
        super::streams::ROWS,
        super::scripting::ROWS,
        super::functions::ROWS,
        super::dump::ROWS,
        super::scan::ROWS,
        super::transactions::ROWS,
        super::pubsub::ROWS,
        super::clients::ROWS,
        super::acl::ROWS,
        super::info::ROWS,
    ]
}

/// A command as it was found: its row, the container's row if it is a subcommand, and its number in the statistics.
#[derive(Clone, Copy)]
pub struct CommandMatch {
    pub row: &'static Row,
    pub parent: Option<&'static Row>,
    pub number: usize,
}

impl CommandMatch {
    /// `get`, or `config|get`.
    pub fn full_name(&self) -> String {
        match self.parent {
            Some(parent) => format!("{}|{}", parent.name, self.row.name),
            None => self.row.name.to_owned(),
        }
    }
}

pub struct Table {
    by_name: HashMap<&'static [u8], CommandMatch, NameHash>,
    /// Every command and subcommand, by number.
    pub all: Vec<CommandMatch>,
}

/// Longest name of a command with its subcommand.
const NAME_BYTES_MAX: usize = 32;

impl Table {
    fn new() -> Table {
        let mut table = Table { by_name: HashMap::default(), all: Vec::new() };
        for row in families().into_iter().flatten() {
            let found = CommandMatch { row, parent: None, number: table.all.len() };
            table.all.push(found);
            let earlier = table.by_name.insert(row.name.as_bytes(), found);
            assert!(earlier.is_none(), "command {} is in the table twice", row.name);
            for sub in row.subcommands {
                table.all.push(CommandMatch { row: sub, parent: Some(row), number: table.all.len() });
            }
        }
        table
    }

    /// The commands without subcommands, in the order of the families.
    pub fn commands(&self) -> impl Iterator<Item = &CommandMatch> {
        self.all.iter().filter(|found| found.parent.is_none())
    }

    pub fn find(&self, name: &[u8]) -> Option<CommandMatch> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = &mut lower[..name.len()];
        for (to, from) in lower.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        self.by_name.get(&*lower).copied()
    }

    /// The subcommand that `args` name, if the command has any; the container itself if they name none of it.
    pub fn find_with_subcommand(&self, args: &[&[u8]]) -> Option<CommandMatch> {
        let found = self.find(args.first()?)?;
        if found.row.subcommands.is_empty() {
            return Some(found);
        }
        Some(args.get(1).and_then(|name| self.subcommand(found, name)).unwrap_or(found))
    }

    pub fn subcommand(&self, parent: CommandMatch, name: &[u8]) -> Option<CommandMatch> {
        let at =
            parent.row.subcommands.iter().position(|sub| name.eq_ignore_ascii_case(sub.name.as_bytes()))?;
        Some(self.all[parent.number + 1 + at])
    }
}

/// The one table.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(Table::new)
}

/// FNV-1a: names are short, and a client can only ask for names, not add any.
#[derive(Clone, Copy, Default)]
struct NameHash;

struct Fnv(u64);

impl std::hash::BuildHasher for NameHash {
    type Hasher = Fnv;
    fn build_hasher(&self) -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl std::hash::Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x100_0000_01b3);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_lower_case_documented_and_short_enough() {
        for found in &table().all {
            let row = found.row;
            assert_eq!(row.name, row.name.to_ascii_lowercase());
            assert!(row.name.len() <= NAME_BYTES_MAX, "{}", row.name);
            assert!(!row.summary.is_empty(), "{} has no summary", found.full_name());
            assert!(row.arity != 0, "{}", found.full_name());
        }
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(table().find(b"GeT").map(|found| found.row.name), Some("get"));
        assert!(table().find(b"no-such-command").is_none());
        assert!(table().find(&[b'x'; 1000]).is_none());
    }

    #[test]
    fn a_count_of_keys_beyond_the_arguments_names_no_key() {
        let args: &[&[u8]] = &[b"x", b"4", b"a", b"b"];
        let mut found = Vec::new();
        Keys::Counted { number: 1, access: Access::Read }.for_each(args, |at, _| found.push(at));
        assert!(found.is_empty());
    }
}
