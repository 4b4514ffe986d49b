//! `SCAN`, `KEYS` and `RANDOMKEY` over storage and memory.
//!
//! Storage is walked in the order of positions (slot and hash), which are the cursor. A piece of the walk is what storage has in a range of positions, and
//! the keys of the range that were on their way there when it was asked. What memory knows of a key has the last word.

use crate::attached::{Event, Scan};
use crate::client::{Client, ClientId};
use crate::command::table::CommandMatch;
use crate::command::{Arg, CommandError, args, stored_keys};
use crate::server::Core;
use crate::storage::{Position, Scanned, StorageError};

/// Keys that one read of storage returns to `KEYS`.
const KEYS_TOGETHER: usize = 1000;
/// The largest piece of one `SCAN`.
const COUNT_MAX: usize = 10_000;

/// The cursor that `SCAN` was given, and how many keys it wants.
fn piece_of(args: &[Arg<'_>]) -> Result<(u64, usize), CommandError> {
    let cursor = std::str::from_utf8(args[1]).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or(CommandError::of("ERR invalid cursor"))?;
    let mut count = 10;
    for option in args[2..].chunks(2) {
        if let [word, value] = option
            && args::is(word, "COUNT")
        {
            count = args::int(value)?.max(1);
        }
    }
    Ok((cursor, usize::try_from(count).unwrap_or(COUNT_MAX).min(COUNT_MAX)))
}

impl Core {
    /// Begins the walk of a command; true if it has ended before.
    pub(super) fn prepare_walk(
        &mut self,
        client: &Client,
        found: CommandMatch,
        args: &[Arg<'_>],
    ) -> Result<bool, CommandError> {
        debug_assert!(stored_keys::is_walker(found));
        let (db, id) = (client.db, client.id);
        let random = self.dbs.get(db).map_or(0, |db| db.next_random());
        let Some(tier) = &mut self.server.tier else { return Ok(true) };
        if let Some(scan) = tier.scans.get(&id) {
            return match &scan.result {
                Some(Ok(())) => Ok(true),
                Some(Err(error)) => {
                    let text = super::reads::error_text(error);
                    tier.end_scan(id);
                    Err(CommandError::Text(text.into()))
                }
                None => Ok(false),
            };
        }
        let (from, limit) = match found.row.name {
            "scan" => piece_of(args)?,
            "keys" => (0, KEYS_TOGETHER),
            _ => (random >> 2, 10),
        };
        let scan = Scan {
            db,
            from: Position(from.min(Position::MAX.0)),
            limit,
            is_whole: found.row.name == "keys",
            wraps: found.row.name == "randomkey",
            found: Vec::new(),
            held: tier.queue.held().filter(|key| key.db == db && key.is_whole()).cloned().collect(),
            next: None,
            result: None,
        };
        let from = scan.from;
        tier.pin(&scan.held);
        tier.scans.insert(id, scan);
        self.ask_scan(id, db, from, limit);
        Ok(false)
    }

    fn ask_scan(&mut self, client: ClientId, db: u16, from: Position, limit: usize) {
        let Some(tier) = &mut self.server.tier else { return };
        let mailbox = tier.mailbox.clone();
        let done = Box::new(move |piece| mailbox.send(Event::Scanned { client, piece }));
        tier.storage.scan(db, from, limit, done);
    }

    /// A piece has come.
    pub(super) fn scanned(&mut self, client: ClientId, piece: Result<Scanned, StorageError>) {
        let Some(tier) = &mut self.server.tier else { return };
        // The client may be gone.
        let Some(scan) = tier.scans.get_mut(&client) else { return };
        match piece {
            Err(error) => scan.result = Some(Err(error)),
            Ok(piece) => {
                scan.found.extend(piece.keys);
                scan.next = piece.next;
                let again = match piece.next {
                    Some(next) if scan.is_whole => Some(next),
                    None if scan.wraps && scan.found.is_empty() => {
                        scan.wraps = false;
                        scan.from = Position::default();
                        Some(scan.from)
                    }
                    _ => None,
                };
                if let Some(from) = again {
                    let (db, limit) = (scan.db, scan.limit);
                    return self.ask_scan(client, db, from, limit);
                }
                scan.result = Some(Ok(()));
            }
        }
        tier.resume.push(client);
    }
}
