//! `SCAN`, `KEYS` and `RANDOMKEY` over storage and memory.
//!
//! Storage is walked in the order of positions (slot and hash), which are the cursor. A piece of the walk is what storage has in a range of positions, and
//! the keys of the range that were on their way there when it was asked. What memory knows of a key has the last word.
//!
//! If storage has an order of its own ([`Storage::is_ordered`](crate::storage::Storage::is_ordered)), `SCAN` first walks the keys that are on their way there, by their positions, then storage, by its
//! cursors with [`STORAGE`] set. A key that exists from the first call to the last was stored when the walk of storage began, and is found by it, or was on its way there until then, and was found before.

use crate::attached::{Event, Scan};
use crate::client::{Client, ClientId};
use crate::command::table::CommandMatch;
use crate::command::{Arg, CommandError, args, stored_keys};
use crate::server::Core;
use crate::storage::{Key, Position, Scanned, StorageError};

/// Keys that one read of storage returns to `KEYS`.
const KEYS_TOGETHER: usize = 1000;
/// The largest piece of one `SCAN`.
const COUNT_MAX: usize = 10_000;

/// In a cursor: storage is walked, in its own order. Positions are smaller.
const STORAGE: u64 = 1 << 62;

/// Takes of the keys on their way to storage about `limit`, those from a position on. Returns where the next ones are, too, if there are some.
fn cut(held: &[Key], from: Position, limit: usize) -> (Vec<Key>, Option<Position>) {
    let placed = held.iter().map(|key| (Position::of(&key.name), key));
    let mut placed: Vec<(Position, &Key)> = placed.filter(|(position, _)| *position >= from).collect();
    let mut next = None;
    if placed.len() > limit {
        let (before, (at, _), _) = placed.select_nth_unstable_by_key(limit, |(position, _)| *position);
        // Keys of one position stay together.
        let at = *at;
        let end = if before.iter().any(|(position, _)| *position < at) { at } else { Position(at.0 + 1) };
        placed.retain(|(position, _)| *position < end);
        next = Some(end);
    }
    (placed.into_iter().map(|(_, key)| key.clone()).collect(), next)
}

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
        let is_ordered = tier.storage.is_ordered();
        let held: Vec<Key> =
            tier.queue.held().filter(|key| key.db == db && key.is_whole()).cloned().collect();
        let (mut from, mut next, mut shown) = (Position(from), None, None);
        if is_ordered {
            from = from.min(Position::MAX);
        } else if from.0 & STORAGE != 0 {
            from.0 &= STORAGE - 1;
            shown = Some(Vec::new());
        } else if found.row.name == "scan" {
            let (first, rest) = cut(&held, from, limit);
            (from, next, shown) = (Position::default(), rest, Some(first));
        } else {
            shown = Some(held.clone());
        }
        let scan = Scan {
            db,
            is_ordered,
            has_types: args.iter().skip(2).any(|word| args::is(word, "TYPE")),
            from,
            limit,
            is_whole: found.row.name == "keys",
            wraps: found.row.name == "randomkey",
            found: Vec::new(),
            held,
            was_emptying: tier.queue.is_emptying(db),
            shown,
            losses: tier.losses,
            next,
            // More keys are on their way to storage: they come first.
            result: next.map(|_| Ok(())),
        };
        let is_random = scan.wraps;
        tier.pin(&scan.held);
        tier.scans.insert(id, scan);
        if next.is_some() {
            return Ok(true);
        }
        self.ask_scan(id, db, from, limit, is_random);
        Ok(false)
    }

    fn ask_scan(&mut self, client: ClientId, db: u16, from: Position, limit: usize, is_random: bool) {
        let Some(tier) = &mut self.server.tier else { return };
        let mailbox = tier.mailbox.clone();
        let done = Box::new(move |piece| mailbox.send(Event::Scanned { client, piece }));
        let has_types = tier.scans.get(&client).is_some_and(|scan| scan.has_types);
        match (is_random, has_types) {
            (true, _) => tier.storage.random(db, from, limit, done),
            (false, true) => tier.storage.scan(db, from, limit, done),
            (false, false) => tier.storage.scan_names(db, from, limit, done),
        }
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
                scan.next = match scan.is_ordered {
                    true => piece.next,
                    false => piece.next.map(|next| Position(next.0 | STORAGE)),
                };
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
                    return self.ask_scan(client, db, from, limit, false);
                }
                scan.result = Some(Ok(()));
            }
        }
        tier.resume.push(client);
    }
}
