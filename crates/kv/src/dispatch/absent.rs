//! Keys that storage cannot have: the filter is asked before a read (`dispatch::reads`), told of each key that is written, and built here.
//!
//! A part of the filter is built when storage has been asked for absent keys of it several times: its range of positions is walked in each database, a piece
//! at a time. With a storage tier that is empty at the start, every part is known without a walk.

use crate::attached::{Event, Rebuild};
use crate::server::Core;
use crate::storage::{Key, Position, Scanned, StorageError};
use crate::tiering::filter::Filter;

/// Absent keys of a part that storage is asked for before the part is built.
const ASKED_MIN: u8 = 3;
/// The largest piece of a walk.
const TOGETHER_MAX: usize = 1000;

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
                let Some(part) = tier.to_build.pop_front() else { return };
                tier.asked_absent[part] = 0;
                if !tier.filter.begin(part, tier.stored.values().sum()) {
                    continue;
                }
                let (first, last) = Filter::range(part);
                for key in tier.queue.held().filter(|key| key.is_whole()) {
                    let position = Position::of(&key.name);
                    if (first..=last).contains(&position) {
                        tier.filter.scanned(key.db, position);
                    }
                }
                let databases =
                    tier.stored.keys().copied().filter(|db| tier.storage.count(*db) > 0).collect();
                tier.rebuild = Some(Rebuild { part, databases, from: first, is_asked: false });
            }
            let keys: u64 = tier.stored.values().sum();
            let Some(rebuild) = &mut tier.rebuild else { return };
            if rebuild.is_asked {
                return;
            }
            let Some(&db) = rebuild.databases.last() else {
                tier.filter.end_rebuild(rebuild.part, true);
                tier.rebuild = None;
                continue;
            };
            rebuild.is_asked = true;
            let together =
                (keys / crate::tiering::filter::PARTS as u64 * 5 / 4 + 16).min(TOGETHER_MAX as u64);
            let (mailbox, from) = (tier.mailbox.clone(), rebuild.from);
            let done = Box::new(move |piece| mailbox.send(Event::Walked(piece)));
            tier.storage.scan(db, from, together as usize, done);
            return;
        }
    }

    /// A piece of the walk has come.
    pub(super) fn filter_walked(&mut self, piece: Result<Scanned, StorageError>) {
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        let Some(rebuild) = &mut tier.rebuild else { return };
        rebuild.is_asked = false;
        let (first, last) = Filter::range(rebuild.part);
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
                tier.filter.end_rebuild(rebuild.part, false);
                tier.rebuild = None;
            }
        }
        self.build_filter();
    }
}
