//! Spaces that no table names any more, until nothing of them is left.
//!
//! A session that drops a table need not wait until that is durable (`Engine::drop_table_unwaited`): a crash may bring the table back then, whole. So
//! nothing of its pages is given up before the log has passed the record that took its name away: no dirty page of it, which would bound the checkpoint,
//! and no redo that waits for one. The log gets there with the commit of any session, or with a request for room (`slot_reservation`, `resize`), or with purge, [`LINGER`] later.
//!
//! Those still in use come here as well, and are tried again. What is here at a crash the next start drops, if no table names it.

use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_log::Redo;
use terrace_tier::page::{Glsn, SpaceId};

/// How long the log is not asked for. Tables are dropped one after the other, and each statement's own wait is good for those before.
const LINGER: Nanos = 100_000_000;
/// How long until one that was in use is tried again, if nothing else is to be done before.
const BUSY_REST: Nanos = 1_000_000_000;
/// Spaces that are dropped in one go: each is a walk over the pool.
const TOGETHER: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum DropState {
    Waits,
    /// A thread is about to drop it.
    Taken,
    /// It was in use when it was to be dropped.
    InUse,
}

struct Space {
    space: SpaceId,
    /// Where the log must have come to.
    after: Glsn,
    since: Nanos,
    state: DropState,
}

#[derive(Default)]
pub struct DroppedSpaces {
    spaces: Mutex<Vec<Space>, { Mutexes::Catalog as u8 }>,
}

impl DroppedSpaces {
    /// Nothing names the spaces when the log is durable to `after`.
    pub fn when_durable(&self, spaces: Vec<SpaceId>, after: Glsn, now: Nanos) {
        let waits = |space| Space { space, after, since: now, state: DropState::Waits };
        self.spaces.lock().extend(spaces.into_iter().map(waits));
    }

    /// Nothing names the space, durably, but it is in use.
    pub fn in_use(&self, space: SpaceId) {
        let mut spaces = self.spaces.lock();
        spaces.retain(|one| one.space != space);
        spaces.push(Space { space, after: 0, since: 0, state: DropState::InUse });
    }

    /// Nothing of the space is left.
    pub fn gone(&self, space: SpaceId) {
        self.spaces.lock().retain(|one| one.space != space);
    }

    /// Up to where the log must be durable for all that are dropped now, except those in use: they give room soon. None if there are none.
    pub fn last(&self) -> Option<Glsn> {
        let spaces = self.spaces.lock();
        spaces.iter().filter(|one| one.state != DropState::InUse).map(|one| one.after).max()
    }

    /// Whether of those that go when the log is durable to `last` some are there still, and are not in use.
    pub fn are_there(&self, last: Glsn) -> bool {
        self.spaces.lock().iter().any(|one| one.state != DropState::InUse && one.after <= last)
    }

    /// Some of those that no table can name again: `gone` or `in_use` is to be called for each. Makes the log durable if some have
    /// waited for long.
    pub fn take(&self, redo: &dyn Redo, now: Nanos) -> Vec<SpaceId> {
        let durable = redo.durable();
        let late = |one: &&Space| one.after > durable && now.saturating_sub(one.since) >= LINGER;
        let upto = self.spaces.lock().iter().filter(late).map(|one| one.after).max();
        if let Some(upto) = upto {
            let _ = redo.make_durable(upto); // if the log has stopped, they stay
        }
        let durable = redo.durable();
        let mut spaces = self.spaces.lock();
        let due = spaces.iter_mut().filter(|one| one.state != DropState::Taken && one.after <= durable);
        due.take(TOGETHER)
            .map(|one| {
                one.state = DropState::Taken;
                one.space
            })
            .collect()
    }

    /// How long to wait before there is something to do again, unless another thread brings it about.
    pub fn look_again(&self, durable: Glsn) -> Option<Nanos> {
        let rest = |one: &Space| match one.state {
            DropState::Waits if one.after <= durable => Some(0),
            DropState::Waits => Some(LINGER),
            DropState::InUse => Some(BUSY_REST),
            DropState::Taken => None,
        };
        self.spaces.lock().iter().filter_map(rest).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_tier::volume::temporary::Unlogged;

    #[test]
    fn a_dropped_space_counts_as_reclaimable_until_it_is_gone_or_found_in_use() {
        let (dropped, redo) = (DroppedSpaces::default(), Unlogged::default());
        let spaces: Vec<SpaceId> = (0..TOGETHER as u32 + 2).map(|n| SpaceId(20 + n)).collect();
        assert!(dropped.last().is_none() && dropped.look_again(0).is_none());
        dropped.when_durable(spaces.clone(), 0, 0);
        let last = dropped.last().unwrap();
        assert_eq!(dropped.look_again(redo.durable()), Some(0));
        let first = dropped.take(&redo, 0);
        assert_eq!(first, spaces[..TOGETHER], "some at a time");
        assert_eq!(dropped.take(&redo, 0), spaces[TOGETHER..], "and none twice");
        assert!(dropped.take(&redo, 0).is_empty() && dropped.are_there(last));
        assert_eq!(dropped.look_again(redo.durable()), None, "others have them in hand");
        spaces[1..].iter().for_each(|space| dropped.gone(*space));
        assert!(dropped.are_there(last));
        dropped.in_use(spaces[0]);
        assert!(!dropped.are_there(last) && dropped.last().is_none(), "nobody knows when that ends");
        assert_eq!(dropped.look_again(redo.durable()), Some(BUSY_REST));
        assert_eq!(dropped.take(&redo, 0), spaces[..1]);
        dropped.gone(spaces[0]);
        assert_eq!(dropped.look_again(redo.durable()), None);
    }
}
