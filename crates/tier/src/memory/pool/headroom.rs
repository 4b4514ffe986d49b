//! How many frames are kept free ahead of need: more if the evictors were late, so that readers had to evict or a prefetch was cut short.
//!
//! The processor time that an evictor gets depends on the load, and so does the number of frames that are taken before it runs;
//! no fixed setting fits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) struct Headroom {
    target: AtomicUsize,
    /// The largest target.
    most: AtomicUsize,
    low: AtomicUsize,
    /// How often a prefetch was cut short for want of free frames.
    short: AtomicU64,
    /// The number of foreground evictions and of short prefetches when an evictor last began.
    late: AtomicU64,
}

impl Headroom {
    /// For a pool of `frames` frames: 1/32 of them, at most 256 (4 MiB); if evictors are late, up to 3/16, at most 1536 (24 MiB).
    pub fn new(frames: usize) -> Headroom {
        let headroom = Headroom {
            target: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            low: AtomicUsize::new(0),
            short: AtomicU64::new(0),
            late: AtomicU64::new(0),
        };
        headroom.resize(frames);
        headroom
    }

    /// Sets the number of frames of the pool.
    pub fn resize(&self, frames: usize) {
        let low = (frames / 64).clamp(4, 128);
        self.low.store(low, Ordering::Relaxed);
        self.most.store((frames * 3 / 16).clamp(3 * low, 1536), Ordering::Relaxed);
        self.set_target(self.target());
    }

    fn set_target(&self, target: usize) {
        let target = target.clamp(2 * self.low(), self.most.load(Ordering::Relaxed));
        self.target.store(target, Ordering::Relaxed);
    }

    /// Below this number of free frames there is no read-ahead, and pages are flushed to free frames.
    pub fn low(&self) -> usize {
        self.low.load(Ordering::Relaxed)
    }

    /// The number of free frames at which the evictors stop.
    pub fn target(&self) -> usize {
        self.target.load(Ordering::Relaxed)
    }

    /// The number of free frames at which the evictors are woken. It is close below the target: the frames left at that point
    /// must last until the evictors run.
    pub fn wake(&self) -> usize {
        self.target().saturating_sub((self.low() / 4).min(64))
    }

    /// A prefetch found fewer free frames than it asked for.
    pub fn prefetch_was_short(&self) {
        self.short.fetch_add(1, Ordering::Relaxed);
    }

    /// An evictor begins: `foreground` pages were evicted in the foreground until now.
    pub fn begin(&self, foreground: u64) {
        let late = foreground + self.short.load(Ordering::Relaxed);
        let target = self.target();
        // If two evictors begin at once, only one of them has an effect.
        let in_time = self.late.swap(late, Ordering::Relaxed) == late;
        self.set_target(if in_time { target - 1 } else { target + self.low() / 2 + 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_when_evictors_are_late_and_shrinks_when_they_are_in_time() {
        let headroom = Headroom::new(6400);
        assert_eq!((headroom.low(), headroom.wake(), headroom.target()), (100, 175, 200));
        for late in 1..100 {
            headroom.begin(late);
        }
        assert_eq!((headroom.wake(), headroom.target()), (1175, 1200));
        for _ in 0..1000 {
            headroom.begin(99);
        }
        assert_eq!(headroom.target(), 200);
        headroom.prefetch_was_short();
        headroom.begin(99);
        assert_eq!(headroom.target(), 251);
        let least = Headroom::new(16);
        assert!(least.wake() < least.target() && least.target() < 16);
    }
}
