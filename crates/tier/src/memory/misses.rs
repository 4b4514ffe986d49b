//! How much time misses of both memory and flash spend in the volume, and how much in the object store.
//!
//! The flash cache chooses by it which pages to keep. While the store takes most of the time, flash space is worth most to a page
//! that only the store has. While the volume takes it (there is no store, or hardly anything is read from it), flash caches the
//! volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::clock::{Clock, Nanos};

/// After this number of further reads, a read counts half.
const FADE: u64 = 4096;

/// Recent read times, in nanoseconds. Concurrent updates may overwrite each other; the loss does not matter.
pub struct Misses {
    clock: Arc<dyn Clock>,
    volume: AtomicU64,
    store: AtomicU64,
    reads: AtomicU64,
}

impl Misses {
    pub fn new(clock: Arc<dyn Clock>) -> Misses {
        let zero = || AtomicU64::new(0);
        Misses { clock, volume: zero(), store: zero(), reads: zero() }
    }

    /// Reads a page from the volume, by calling `read`, and records the time.
    pub fn on_volume<T>(&self, read: impl FnOnce() -> T) -> T {
        self.timed(&self.volume, read)
    }

    /// Reads a page from the store, and records the time.
    pub fn in_store<T>(&self, read: impl FnOnce() -> T) -> T {
        self.timed(&self.store, read)
    }

    fn timed<T>(&self, sum: &AtomicU64, read: impl FnOnce() -> T) -> T {
        let since = self.clock.now();
        let result = read();
        self.note(sum, self.clock.now().saturating_sub(since));
        result
    }

    fn note(&self, sum: &AtomicU64, time: Nanos) {
        sum.fetch_add(time, Ordering::Relaxed);
        if self.reads.fetch_add(1, Ordering::Relaxed) % FADE == FADE - 1 {
            for sum in [&self.volume, &self.store] {
                sum.store(sum.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// Whether misses wait longer for the store than for the volume, in total.
    pub fn store_takes_longer(&self) -> bool {
        self.store.load(Ordering::Relaxed) > self.volume.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_sim::SimWorld;

    #[test]
    fn the_tier_that_takes_the_time_is_known_and_old_reads_fade() {
        let misses = Misses::new(SimWorld::new(1).world().clock);
        assert!(!misses.store_takes_longer(), "nothing was read");
        misses.note(&misses.volume, 250);
        assert!(!misses.store_takes_longer());
        misses.note(&misses.store, 30_000);
        assert!(misses.store_takes_longer(), "one read of the store, one of the volume");
        (0..100).for_each(|_| misses.note(&misses.volume, 250));
        assert!(misses.store_takes_longer(), "30 µs and 25");
        (0..100).for_each(|_| misses.note(&misses.volume, 250));
        assert!(!misses.store_takes_longer());
        misses.note(&misses.store, 1_000_000_000);
        (0..20 * FADE).for_each(|_| misses.note(&misses.volume, 250));
        assert!(!misses.store_takes_longer(), "that one was long ago");
    }
}
