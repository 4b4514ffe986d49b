//! A sample of the reads, for the miss-ratio curve (`terrace_cost::shards`).
//!
//! A flag in its frame says whether a page is sampled, so a hit on a page that is not costs one look at a cache line that the pin
//! has just written. Hits of a page are recorded once in a period of the pool (1/32 of its turnover): a pool that holds the whole
//! working set records nothing, and one that misses pays along with its misses. So the curve underestimates the misses of smaller
//! memories, and is right for larger ones. A thread that finds the sample locked skips the record: a hit never waits for it.
//!
//! Old reads count less, both in the sample and in the number of all reads that it is compared with.
//!
//! Locks: the sample's, for memory work only, after no other.

use super::Pool;
use crate::memory::frame::FrameNo;
use crate::page::spread;
use crate::page::{PageId, SpaceId};
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_cost::{Curve, Shards};
use terrace_io::lock::{Mutex, Mutexes};

/// Maximum number of sampled pages.
const SAMPLES_MAX: usize = 8192;
const SAMPLES_MIN: usize = 1024;

/// The recorded reads.
struct ReadSamples {
    shards: Shards,
    /// The pool's reads when they were last halved, and the weight of the reads until then.
    halved_at: u64,
    past: f64,
}

impl ReadSamples {
    /// All reads, with their present weights.
    fn reads(&self, all: u64) -> f64 {
        self.past + all.saturating_sub(self.halved_at) as f64
    }
}

pub(super) struct Sample {
    seen: Mutex<ReadSamples, { Mutexes::PoolSamples as u8 }>,
    /// Pages whose hash is below it are sampled.
    threshold: AtomicU64,
    /// Records skipped because the sample was locked.
    skipped: AtomicU64,
}

impl Sample {
    /// For a pool of `frames` frames: about 50 bytes a sample.
    pub(super) fn new(frames: usize) -> Sample {
        let samples = frames.clamp(SAMPLES_MIN, SAMPLES_MAX);
        let shards = Shards::new(samples);
        Sample {
            threshold: AtomicU64::new(shards.threshold()),
            seen: Mutex::new(ReadSamples { shards, halved_at: 0, past: 0.0 }),
            skipped: AtomicU64::new(0),
        }
    }

    fn samples(&self, hash: u64) -> bool {
        hash < self.threshold.load(Ordering::Relaxed)
    }

    /// Records a read, or that a page was created. Returns whether the page is (still) sampled. `all` returns the number of all
    /// reads of the pool.
    fn note(&self, id: PageId, was_read: bool, all: impl FnOnce() -> u64) -> bool {
        let hash = spread(id);
        if !self.samples(hash) {
            return false;
        }
        let Some(mut seen) = self.seen.try_lock() else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        let page = id.as_u64();
        let sampled = if was_read { seen.shards.read(page, hash) } else { seen.shards.made(page, hash) };
        self.threshold.store(seen.shards.threshold(), Ordering::Relaxed);
        if seen.shards.is_due() {
            let all = all();
            seen.past = seen.reads(all) / 2.0;
            seen.halved_at = all;
            seen.shards.halve();
        }
        sampled
    }
}

impl Pool {
    /// A sampled page was read in memory.
    #[cold]
    pub(super) fn sample_hit(&self, no: FrameNo, id: PageId) {
        let frame = self.frame(no);
        frame.noted_at.store(self.period.load(Ordering::Relaxed), Ordering::Relaxed);
        if !self.sample.note(id, true, || self.reads()) {
            frame.sampled.store(false, Ordering::Relaxed);
        }
    }

    /// A page came into memory: `was_read` says whether for a counted read.
    pub(super) fn sample_arrival(&self, no: FrameNo, id: PageId, was_read: bool) {
        let frame = self.frame(no);
        let sampled = match was_read {
            true => self.sample.note(id, true, || self.reads()),
            false => self.sample.samples(spread(id)),
        };
        frame.sampled.store(sampled, Ordering::Relaxed);
        frame.noted_at.store(self.period.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A page was created in memory.
    pub(super) fn sample_made(&self, no: FrameNo, id: PageId) {
        let frame = self.frame(no);
        frame.sampled.store(self.sample.note(id, false, || self.reads()), Ordering::Relaxed);
        frame.noted_at.store(self.period.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) fn sample_forget(&self, space: SpaceId) {
        self.sample.seen.lock().shards.forget(|page| page >> 32 == u64::from(space.0));
    }

    /// Reads since the start.
    fn reads(&self) -> u64 {
        self.hits() + self.counters.reads_below.load(Ordering::Relaxed)
    }

    /// Which share of the reads an LRU cache of any size would have missed; recent reads weigh more.
    pub fn curve(&self) -> Curve {
        let all = self.reads();
        let seen = self.sample.seen.lock();
        seen.shards.curve(Some(seen.reads(all))).of_reads(all as f64)
    }
}
