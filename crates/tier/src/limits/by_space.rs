//! Counters by space: the activity of a table or an index since the start.
//!
//! A space gets counters at its first event (a miss, an eviction, a request to the store), never at a hit alone: hits are counted
//! in the page's frame, and are added here when the page leaves memory. [`BySpace::forget`] drops the counters with their table.
//! So there are at most as many as spaces with pages, a few hundred bytes each.
//!
//! Locks: a shard's, for memory work only.

mod lately;

pub use lately::{Lately, covered};

use crate::address::Tier;
use crate::page::SpaceId;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::lock::{RwLock, RwLocks};

/// A power of two.
const SHARDS: usize = 16;

type Shard<T> = RwLock<HashMap<SpaceId, Arc<T>>, { RwLocks::Spaces as u8 }>;

/// One `T` for each space that has had an event.
pub struct BySpace<T> {
    shards: [Shard<T>; SHARDS],
}

impl<T> Default for BySpace<T> {
    fn default() -> BySpace<T> {
        BySpace { shards: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl<T: Default> BySpace<T> {
    fn shard(&self, space: SpaceId) -> &Shard<T> {
        &self.shards[space.0 as usize % SHARDS]
    }

    /// The space's counters; created if it has none.
    pub fn of(&self, space: SpaceId) -> Arc<T> {
        let shard = self.shard(space);
        if let Some(found) = shard.read().get(&space) {
            return found.clone();
        }
        shard.write().entry(space).or_default().clone()
    }

    /// The space's counters, if it has any.
    pub fn get(&self, space: SpaceId) -> Option<Arc<T>> {
        self.shard(space).read().get(&space).cloned()
    }

    /// The space was dropped. (Events of its last pages may create its counters again: see [`BySpace::retain`].)
    pub fn forget(&self, space: SpaceId) {
        self.shard(space).write().remove(&space);
    }

    /// Drops the counters of spaces that are not `live`.
    pub fn retain(&self, live: impl Fn(SpaceId) -> bool) {
        self.shards.iter().for_each(|shard| shard.write().retain(|space, _| live(*space)));
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads of a space's pages by the tier of the page; first uses of prefetched pages by the tier they were prefetched from. Reads
/// of the engine itself (checks, merges, redo) do not count.
#[derive(Default, Debug)]
pub struct PageReads {
    /// Hits of pages that have left memory; pages in memory have theirs in the frame.
    pub(crate) memory: AtomicU64,
    /// The highest value of `memory` reported so far: a counter never goes back.
    pub(crate) memory_told: AtomicU64,
    pub flash: AtomicU64,
    pub volume: AtomicU64,
    pub object: AtomicU64,
    /// The page existed only in the log.
    pub log: AtomicU64,
    /// Prefetched pages, including those that were never used.
    pub ahead: AtomicU64,
}

impl PageReads {
    pub(crate) fn from(&self, tier: Tier) -> &AtomicU64 {
        match tier {
            Tier::Flash => &self.flash,
            Tier::Volume => &self.volume,
            Tier::Object => &self.object,
            Tier::Log => &self.log,
        }
    }
}

/// What became of a space's pages that were evicted from memory.
#[derive(Default, Debug)]
pub struct FlashCounts {
    /// Images that were queued for flash.
    pub admitted: AtomicU64,
    /// Pages of which only the identifier was kept.
    pub remembered: AtomicU64,
    /// Pages that were evicted while the ghost list had their identifier.
    pub ghost_hits: AtomicU64,
}

/// Requests to the store for a space's objects, sent by reads and sinking. Retries at lower layers are not counted.
#[derive(Default, Debug)]
pub struct StoreCounts {
    /// Blocks that were sunk: whose object was put and published.
    pub sinks: AtomicU64,
    pub gets: AtomicU64,
    pub get_bytes: AtomicU64,
    pub puts: AtomicU64,
    pub put_bytes: AtomicU64,
    /// Recent requests of a running instance.
    pub lately_gets: Lately,
    pub lately_puts: Lately,
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_come_with_the_first_event_and_go_with_the_space() {
        let counts: BySpace<FlashCounts> = BySpace::default();
        assert!(counts.get(SpaceId(20)).is_none());
        (0..5000).for_each(|n| add(&counts.of(SpaceId(16 + n % 2500)).admitted, 1));
        assert_eq!(counts.len(), 2500);
        assert_eq!(counts.get(SpaceId(20)).unwrap().admitted.load(Ordering::Relaxed), 2);
        counts.forget(SpaceId(20));
        assert!(counts.get(SpaceId(20)).is_none());
        counts.retain(|space| space.0 < 26);
        assert_eq!(counts.len(), 9);
    }

    #[test]
    fn threads_share_one_space() {
        let counts: BySpace<FlashCounts> = BySpace::default();
        std::thread::scope(|scope| {
            (0..4).for_each(|_| {
                _ = scope.spawn(|| (0..10_000).for_each(|n| add(&counts.of(SpaceId(n % 64)).admitted, 1)))
            });
        });
        let all: u64 = (0..64).map(|n| counts.of(SpaceId(n)).admitted.load(Ordering::Relaxed)).sum();
        assert_eq!(all, 40_000);
    }
}
