//! The pool's counters for operators.

use super::Pool;
use crate::memory::frame::{Frame, FrameState};
use crate::page::SpaceId;
use hashbrown::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Event counts since the start.
#[derive(Default, Debug)]
pub struct PoolCounters {
    pub misses: AtomicU64,
    /// Counted reads (not the engine's own) that found their page below, and first uses of prefetched pages.
    pub reads_below: AtomicU64,
    /// Pages that were read along with another one, before any read asked for them.
    pub read_ahead: AtomicU64,
    /// Those of them that a prefetcher fetched.
    pub prefetched: AtomicU64,
    pub evictions: AtomicU64,
    /// Evictions by a reader that found no free frame: the evictors were late.
    pub foreground_evictions: AtomicU64,
    pub frame_waits: AtomicU64,
    /// Writers held back because too many pages are dirty.
    pub writer_waits: AtomicU64,
    pub claim_waits: AtomicU64,
    pub promoted: AtomicU64,
}

/// Reads of a space, by where the page was: see [`PageReads`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reads {
    pub memory: u64,
    pub flash: u64,
    pub volume: u64,
    pub object: u64,
    pub log: u64,
    pub ahead: u64,
}

impl Pool {
    /// Reads that found their page in memory, except first uses of prefetched pages. Looks at every frame.
    pub fn hits(&self) -> u64 {
        let left: u64 = self.shards.iter().map(|s| s.hits.load(Ordering::Relaxed)).sum();
        let here: u64 = self.arena.frames().map(Frame::hits).sum();
        // The hits of a page that is being evicted are briefly in neither sum: the maximum keeps the counter from going back.
        let told = self.hits_told.fetch_max(left + here, Ordering::Relaxed);
        told.max(left + here)
    }

    /// Pages in memory of each space.
    pub fn pages_by_space(&self) -> HashMap<SpaceId, u64> {
        let mut counts = HashMap::new();
        for frame in self.arena.frames().filter(|frame| frame.state() != FrameState::Free) {
            *counts.entry(frame.id().space).or_insert(0) += 1;
        }
        counts
    }

    /// Reads of each space. Looks at every frame.
    pub fn reads_by_space(&self, spaces: &[SpaceId]) -> HashMap<SpaceId, Reads> {
        let mut here: HashMap<SpaceId, u64> = HashMap::new();
        for frame in self.arena.frames().filter(|frame| frame.state() != FrameState::Free) {
            *here.entry(frame.id().space).or_insert(0) += frame.hits();
        }
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of = |space: &SpaceId| {
            let here = here.get(space).copied().unwrap_or(0);
            let Some(counts) = self.reads.get(*space) else {
                return Reads { memory: here, ..Reads::default() };
            };
            let memory = here + get(&counts.memory);
            Reads {
                memory: counts.memory_told.fetch_max(memory, Ordering::Relaxed).max(memory),
                flash: get(&counts.flash),
                volume: get(&counts.volume),
                object: get(&counts.object),
                log: get(&counts.log),
                ahead: get(&counts.ahead),
            }
        };
        spaces.iter().map(|space| (*space, of(space))).collect()
    }

    /// Forgets counters of spaces that are not `live`.
    pub fn retain_reads(&self, live: impl Fn(SpaceId) -> bool) {
        self.reads.retain(live);
    }
}
