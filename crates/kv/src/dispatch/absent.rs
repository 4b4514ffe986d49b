//! Keys that storage cannot have: the filter is asked before a read (`dispatch::reads`), told of each key that is written, and built here.
//!
//! A part of the filter is built when storage has been asked for absent keys of it several times: its range of positions is walked in each database, a piece
//! at a time. If storage is walked in an order of its own, all parts that are due are built by one walk, once they are an eighth of all.
//! With a storage tier that is empty at the start, every part is known without a walk.

use crate::attached::{Event, Rebuild, Tier};
use crate::server::Core;
use crate::storage::{Key, Position, Scanned, StorageError};
use crate::tiering::filter::{Filter, PARTS};

/// Absent keys of a part that storage is asked for before the part is built.
const ASKED_MIN: u8 = 3;
/// The largest piece of a walk.
const TOGETHER_MAX: usize = 1000;
/// The share of the parts that has to be due for a walk over everything, as a divisor.
const DUE_SHARE: usize = 8;

impl Tier {
    /// Begins to build the next part, or all that are due. `None`: none is to be built.
    fn begin_parts(&mut self) -> Option<Rebuild> {
        let keys: u64 = self.stored.values().sum();
        loop {
            let part = self.to_build.pop_front()?;
            self.asked_absent[part] = 0;
            let (mut parts, range) = match self.storage.is_ordered() {
                true => (vec![part], Filter::range(part)),
                false => {
                    let due: Vec<usize> = (0..PARTS).filter(|part| self.filter.is_due(*part)).collect();
                    if due.len() < PARTS / DUE_SHARE {
                        continue;
                    }
                    self.to_build.clear();
                    self.asked_absent.fill(0);
                    (due, (Position::default(), Position::MAX))
                }
            };
            parts.retain(|part| self.filter.begin(*part, keys));
            if parts.is_empty() {
                continue;
            }
            for key in self.queue.held().filter(|key| key.is_whole()) {
                let position = Position::of(&key.name);
                if (range.0..=range.1).contains(&position) {
                    self.filter.scanned(key.db, position);
                }
            }
            let databases = self.stored.keys().copied().filter(|db| self.storage.count(*db) > 0).collect();
            return Some(Rebuild { parts, range, databases, from: range.0, is_asked: false });
        }
    }

    /// Ends the walk of the filter.
    fn end_parts(&mut self, is_whole: bool) {
        if let Some(rebuild) = self.rebuild.take() {
            rebuild.parts.into_iter().for_each(|part| self.filter.end_rebuild(part, is_whole));
        }
    }
}

impl Core {
    /// Storage was asked for a key that it does not have.
    pub(super) fn note_absent(&mut self, key: &Key) {
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        if !key.is_whole() {
            return;
        }
        let part = Filter::part(Position::of(&key.name));
        tier.asked_absent[part] = tier.asked_absent[part].saturating_add(1);
        if tier.asked_absent[part] >= ASKED_MIN && tier.filter.is_due(part) && !tier.to_build.contains(&part)
        {
            tier.to_build.push_back(part);
        }
    }

    /// Goes on with building the filter, if there is something to build.
    pub fn build_filter(&mut self) {
        loop {
            let Some(tier) = self.server.tier.as_deref_mut() else { return };
            if tier.rebuild.is_none() {
                // An exchange of databases waits for the end of a walk.
                if !tier.swaps.is_empty() {
                    return;
                }
                tier.rebuild = tier.begin_parts();
            }
            let keys: u64 = tier.stored.values().sum();
            let Some(rebuild) = &mut tier.rebuild else { return };
            if rebuild.is_asked {
                return;
            }
            let Some(&db) = rebuild.databases.last() else {
                tier.end_parts(true);
                continue;
            };
            rebuild.is_asked = true;
            let of_walk = (keys / PARTS as u64 * 5 / 4 + 16).saturating_mul(rebuild.parts.len() as u64);
            let together = of_walk.min(TOGETHER_MAX as u64);
            let (mailbox, from) = (tier.mailbox.clone(), rebuild.from);
            let done = Box::new(move |piece| mailbox.send(Event::Walked(piece)));
            tier.storage.scan_names(db, from, together as usize, done);
            return;
        }
    }

    /// A piece of the walk has come.
    pub(super) fn filter_walked(&mut self, piece: Result<Scanned, StorageError>) {
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        let Some(rebuild) = &mut tier.rebuild else { return };
        rebuild.is_asked = false;
        let (first, last) = rebuild.range;
        match (piece, rebuild.databases.last().copied()) {
            (Ok(piece), Some(db)) => {
                for found in piece.keys.iter().filter(|found| found.position <= last) {
                    tier.filter.scanned(db, found.position);
                }
                match piece.next.filter(|next| *next <= last) {
                    Some(next) => rebuild.from = next,
                    None => {
                        rebuild.databases.pop();
                        rebuild.from = first;
                    }
                }
            }
            // The part stays unknown, and is built when its absent keys are asked for again.
            _ => {
                tier.end_parts(false);
            }
        }
        self.build_filter();
    }
}
