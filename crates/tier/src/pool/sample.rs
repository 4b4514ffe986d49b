//! A sample of the reads, for the miss-ratio curve (`terrace_cost::shards`).
//!
//! Whether a page is sampled stands in its frame, so a hit on one that is not costs one look at a cache line that the
//! pin has just written. A sampled page that was seen a moment ago is not noted again: it is near the top of
//! the stack either way, and most hits are of such pages. Who finds the sample busy goes on without: a hit is
//! never worth a wait.
//!
//! Locks: the sample's, for memory work only, after no other.

use super::Pool;
use crate::frame::{Frame, FrameNo};
use crate::ghost::spread;
use crate::page::{PageId, SpaceId};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use terrace_cost::{Curve, Shards};

/// Sampled pages, at the most.
const SAMPLES_MAX: usize = 8192;
const SAMPLES_MIN: usize = 1024;
/// One noted page in so many samples has to lie between two notes of a page.
const NEAR: u32 = 512;

pub(super) struct Sample {
    shards: Mutex<Shards>,
    /// Pages whose hash is below it are sampled.
    threshold: AtomicU64,
    /// Notes so far.
    noted: AtomicU32,
    near: u32,
    /// Notes that found the sample busy.
    skipped: AtomicU64,
}

impl Sample {
    /// For a pool of so many frames: about 50 bytes a sample.
    pub(super) fn new(frames: usize) -> Sample {
        let samples = frames.clamp(SAMPLES_MIN, SAMPLES_MAX);
        let shards = Shards::new(samples);
        Sample {
            threshold: AtomicU64::new(shards.threshold()),
            shards: Mutex::new(shards),
            noted: AtomicU32::new(0),
            near: samples as u32 / NEAR,
            skipped: AtomicU64::new(0),
        }
    }

    fn samples(&self, hash: u64) -> bool {
        hash < self.threshold.load(Ordering::Relaxed)
    }

    /// Notes a read, or that a page was made. Returns whether the page is (still) sampled.
    fn note(&self, frame: &Frame, id: PageId, was_read: bool) -> bool {
        let hash = spread(id);
        if !self.samples(hash) {
            return false;
        }
        let Some(mut shards) = self.shards.try_lock() else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        let page = id.as_u64();
        let sampled = if was_read { shards.read(page, hash) } else { shards.made(page, hash) };
        self.threshold.store(shards.threshold(), Ordering::Relaxed);
        frame.noted_at.store(self.noted.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        sampled
    }
}

impl Pool {
    /// A page that is sampled was read in memory.
    #[cold]
    pub(super) fn sample_hit(&self, no: FrameNo, id: PageId) {
        let frame = self.frame(no);
        let since =
            self.sample.noted.load(Ordering::Relaxed).wrapping_sub(frame.noted_at.load(Ordering::Relaxed));
        if since > self.sample.near && !self.sample.note(frame, id, true) {
            frame.sampled.store(false, Ordering::Relaxed);
        }
    }

    /// A page came into memory: `was_read` says whether for a read that counts.
    pub(super) fn sample_arrival(&self, no: FrameNo, id: PageId, was_read: bool) {
        let frame = self.frame(no);
        let sampled =
            if was_read { self.sample.note(frame, id, true) } else { self.sample.samples(spread(id)) };
        frame.sampled.store(sampled, Ordering::Relaxed);
    }

    /// A page was made in memory.
    pub(super) fn sample_made(&self, no: FrameNo, id: PageId) {
        let frame = self.frame(no);
        frame.sampled.store(self.sample.note(frame, id, false), Ordering::Relaxed);
    }

    pub(super) fn sample_forget(&self, space: SpaceId) {
        self.sample.shards.lock().forget(|page| page >> 32 == u64::from(space.0));
    }

    /// Which share of the reads since the start an LRU of any size would have missed.
    pub fn curve(&self) -> Curve {
        let reads = self.hits() + self.counters.reads_below.load(Ordering::Relaxed);
        self.sample.shards.lock().curve(Some(reads as f64))
    }
}
