//! Where the time of misses goes that neither memory nor flash could spare: to the volume, or to the object store.
//!
//! Flash chooses by it what to keep. While the store takes most of the time, a place on flash is worth most to a page that only the
//! store has. While the volume takes it (there is no store, or hardly anything is read from it), flash is the volume's cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::clock::{Clock, Nanos};

/// So many reads later, a read counts half.
const FADE: u64 = 4096;

/// Times of lately, in nanoseconds. What threads that note at once overwrite of each other is not missed.
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

    /// Reads a page of the volume, or whatever `read` does there.
    pub fn on_volume<T>(&self, read: impl FnOnce() -> T) -> T {
        self.timed(&self.volume, read)
    }

    /// Reads a page of the store.
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

    /// Whether misses wait for the store longer than for the volume, all together.
    pub fn store_takes_longer(&self) -> bool {
        self.store.load(Ordering::Relaxed) > self.volume.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_sim::SimWorld;

    #[test]
    fn the_tier_that_takes_the_time_is_told_and_what_was_long_ago_fades() {
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
