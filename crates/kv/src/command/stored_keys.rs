//! The keys of a command, and the commands that cannot run with a storage tier.

use super::table::{CommandMatch, Flags, table};
use super::{Arg, CommandError, args, sort};
use crate::client::Client;
use crate::resp::parse::parse_i64;
use crate::storage::row::NAME_MAX;
use crate::storage::{Key, Storage};
use smallvec::SmallVec;

/// The keys of a command: most often one.
pub type Keys = SmallVec<[Key; 1]>;

/// Commands that ask storage for keys they do not name.
const WALKERS: [&str; 3] = ["scan", "keys", "randomkey"];

pub fn is_walker(found: CommandMatch) -> bool {
    found.parent.is_none() && WALKERS.contains(&found.row.name)
}

/// Adds the keys that a command names. `db` is the selected database, which `SELECT` changes for the next one.
fn keys_of(found: CommandMatch, args: &[Arg<'_>], db: &mut u16, keys: &mut Keys) {
    let mut add = |key: Key| {
        if !keys.contains(&key) {
            keys.push(key);
        }
    };
    found.row.keys.for_each(args, |at, _| add(Key::new(*db, args[at])));
    let number = |arg: Arg<'_>| parse_i64(arg).and_then(|number| u16::try_from(number).ok());
    match found.row.name {
        "select" if args.len() == 2 => *db = number(args[1]).unwrap_or(*db),
        "move" if args.len() == 3 => number(args[2]).into_iter().for_each(|to| add(Key::new(to, args[1]))),
        "copy" if args.len() > 4 => {
            for pair in args[3..].windows(2).filter(|pair| args::is(pair[0], "DB")) {
                number(pair[1]).into_iter().for_each(|to| add(Key::new(to, args[2])));
            }
        }
        _ => {}
    }
}

/// The keys of one command. `SELECT` changes the database.
pub fn of_one(found: CommandMatch, args: &[Arg<'_>], db: &mut u16) -> Keys {
    let mut keys = Keys::new();
    keys_of(found, args, db, &mut keys);
    keys
}

/// The keys of a command that is to run, or of all commands of a transaction.
pub fn of_command(client: &Client, found: CommandMatch, args: &[Arg<'_>]) -> Keys {
    let (mut keys, mut db) = (Keys::new(), client.db);
    match &client.multi {
        Some(multi) if found.row.name == "exec" => {
            for args in &multi.commands {
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                if let Some(found) = table().find_with_subcommand(&args) {
                    keys_of(found, &args, &mut db, &mut keys);
                }
            }
        }
        _ => keys_of(found, args, &mut db, &mut keys),
    }
    keys
}

/// Why a command cannot run with a storage tier. `is_nested`: in a transaction or a script.
pub fn refusal(
    storage: &dyn Storage,
    found: CommandMatch,
    args: &[Arg<'_>],
    is_nested: bool,
) -> Option<CommandError> {
    let name = found.row.name;
    let refused = |what: std::fmt::Arguments<'_>| Some(CommandError::err(what));
    if is_nested && (is_walker(found) || name == "swapdb") {
        return refused(format_args!(
            "{} is not possible in a transaction or script while a storage tier is attached",
            name.to_ascii_uppercase()
        ));
    }
    if is_nested && sort::has_patterns(found, args) {
        return refused(format_args!(
            "SORT by patterns of keys is not possible in a transaction or script while a storage tier is attached"
        ));
    }
    if found.row.flags.contains(Flags::WRITE) {
        let (mut longest, mut is_reserved) = (0, false);
        found.row.keys.for_each(args, |at, _| {
            longest = longest.max(args[at].len());
            // In all databases: a key may be moved to the one in which it is.
            is_reserved |= storage.reserves(0, args[at]);
        });
        if is_reserved {
            return refused(format_args!("the key is reserved: the storage tier keeps its own data in it"));
        }
        if longest > NAME_MAX {
            return refused(format_args!("a stored key has at most {NAME_MAX} bytes, this one {longest}"));
        }
    }
    None
}
