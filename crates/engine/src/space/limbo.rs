//! Limbo: freed pages wait here until every traversal that may still be on its way to them has
//! ended.
//!
//! A traversal reads a page's number, lets go of the latch, and latches that page. A page that is
//! unlinked in between is found to be free, and the traversal starts again. But if it were used anew
//! at once, the traversal could take a stranger for its own. So each traversal counts itself into the
//! current epoch's bucket while it carries page numbers without a latch; the epoch moves on only when
//! the bucket of the epoch before is empty; a page freed in epoch `e` may be used anew in `e + 2`.
//!
//! A crash empties limbo: after a restart nothing traverses. The map of free pages knows nothing of this.
//!
//! Locks: the mutex is for memory work only and innermost. Visits last from latch to latch, never
//! over I/O, so limbo is short.

use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use terrace_io::lock::{Mutex, Mutexes};

/// Counters are spread so that threads do not share a cache line.
const SHARDS: usize = 16;

#[derive(Default)]
#[repr(align(64))]
struct Shard([AtomicU32; 2]);

#[derive(Default)]
pub struct Limbo {
    epoch: AtomicU64,
    visits: [Shard; SHARDS],
    /// Page and the epoch it was freed in, oldest first.
    waiting: Mutex<VecDeque<(u32, u64)>, { Mutexes::SpacePages as u8 }>,
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

impl Limbo {
    /// Counts a traversal in.
    #[inline]
    pub fn visit(&self) -> Visit<'_> {
        let shard = &self.visits[shard()];
        loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            let bucket = &shard.0[epoch as usize % 2];
            bucket.fetch_add(1, Ordering::SeqCst);
            if self.epoch.load(Ordering::SeqCst) == epoch {
                return Visit(bucket);
            }
            bucket.fetch_sub(1, Ordering::Release);
        }
    }

    /// A page was unlinked, and is still latched exclusively by the caller.
    pub fn add(&self, page: u32) {
        let mut waiting = self.waiting.lock();
        self.drain(&mut waiting);
        waiting.push_back((page, self.epoch.load(Ordering::SeqCst)));
    }

    /// The pages that traversals may still be on their way to.
    pub fn waiting(&self) -> SmallVec<[u32; 8]> {
        let mut waiting = self.waiting.lock();
        self.drain(&mut waiting);
        waiting.iter().map(|(page, _)| *page).collect()
    }

    fn drain(&self, waiting: &mut VecDeque<(u32, u64)>) {
        // Two steps at most free everything that waits, if nothing traverses.
        for _ in 0..2 {
            self.advance();
        }
        let epoch = self.epoch.load(Ordering::SeqCst);
        while waiting.front().is_some_and(|(_, freed)| freed + 2 <= epoch) {
            waiting.pop_front();
        }
    }

    /// Moves the epoch on if the one before has no traversals left. Called under the mutex.
    fn advance(&self) {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let older = (epoch + 1) as usize % 2;
        if self.visits.iter().all(|shard| shard.0[older].load(Ordering::SeqCst) == 0) {
            self.epoch.store(epoch + 1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests;
