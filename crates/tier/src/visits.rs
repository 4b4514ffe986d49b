//! Visits: who carries page numbers without latches, so that a page that was freed is not made another one before they are through.
//!
//! A traversal counts itself into the current epoch's bucket. The epoch moves on only when the bucket of the epoch before is
//! empty: what was freed in epoch `e` may be used anew in `e + 2`. There is one count for all spaces, for a count takes many cache lines, and
//! there may be very many spaces; so it also waits for traversals of others. Visits last from latch to latch, never over I/O.

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

/// A traversal under way. Ends when dropped.
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
    /// Counts a traversal in.
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

    /// Moves the epoch on, past those that have no traversals left: by two if nothing traverses. Returns it.
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
