//! Epochs: protect traversals that carry page numbers without latches, so that a freed page is not reused before they are
//! finished.
//!
//! A traversal counts itself in the current epoch's bucket. The epoch advances only when the bucket of the previous epoch is
//! empty: a page freed in epoch `e` may be reused in `e + 2`. One count serves all spaces, because a count takes many cache lines
//! and there may be very many spaces; so reuse also waits for traversals of other spaces. Visits last from latch to latch, never
//! over I/O.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Counters are spread so that threads do not share a cache line.
const SHARDS: usize = 32;

#[derive(Default)]
#[repr(align(64))]
struct Shard([AtomicU32; 2]);

#[derive(Default)]
#[repr(align(64))]
struct Epoch(AtomicU64);

#[derive(Default)]
pub struct Visits {
    epoch: Epoch,
    shards: [Shard; SHARDS],
}

/// A traversal in progress. Ends when dropped.
pub struct Visit<'l>(&'l AtomicU32);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS));
    MINE.with(Cell::get)
}

impl Visits {
    /// Registers a traversal.
    #[inline]
    pub fn begin(&self) -> Visit<'_> {
        let shard = &self.shards[shard()];
        loop {
            let epoch = self.epoch();
            let bucket = &shard.0[epoch as usize % 2];
            bucket.fetch_add(1, Ordering::SeqCst);
            if self.epoch() == epoch {
                return Visit(bucket);
            }
            bucket.fetch_sub(1, Ordering::Release);
        }
    }

    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.0.load(Ordering::SeqCst)
    }

    /// Advances the epoch past those without traversals: by two if nothing traverses. Returns it.
    pub fn advance(&self) -> u64 {
        let from = self.epoch();
        let mut epoch = from;
        while epoch < from + 2 {
            let older = (epoch + 1) as usize % 2;
            if self.shards.iter().any(|shard| shard.0[older].load(Ordering::SeqCst) != 0) {
                break;
            }
            match self.epoch.0.compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => epoch += 1,
                Err(now) => epoch = now,
            }
        }
        epoch
    }
}
