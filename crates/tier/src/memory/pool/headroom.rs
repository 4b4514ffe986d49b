//! How many frames are kept free ahead of need: more if the evictors were late.
//!
//! The processor time that an evictor gets depends on the load, and so does the number of frames that are taken before it runs;
//! no fixed setting fits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) struct Headroom {
    target: AtomicUsize,
    low: AtomicUsize,
    /// The number of foreground evictions when an evictor last began.
    late: AtomicU64,
}

impl Headroom {
    /// For a pool of `frames` frames: 1/8 of them, at most 1024 (16 MiB); half as many again if evictors are late.
    pub fn new(frames: usize) -> Headroom {
        let headroom =
            Headroom { target: AtomicUsize::new(0), low: AtomicUsize::new(0), late: AtomicU64::new(0) };
        headroom.resize(frames);
        headroom
    }

    /// Sets the number of frames of the pool.
    pub fn resize(&self, frames: usize) {
        let low = (frames / 16).clamp(4, 512);
        self.low.store(low, Ordering::Relaxed);
        self.target.store(self.target().clamp(2 * low, 3 * low), Ordering::Relaxed);
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

    /// An evictor begins: `late` pages were evicted in the foreground until now.
    pub fn begin(&self, late: u64) {
        let target = self.target();
        // If two evictors begin at once, only one of them has an effect.
        let next = if self.late.swap(late, Ordering::Relaxed) == late {
            (target - 1).clamp(2 * self.low(), 3 * self.low())
        } else {
            (target + self.low() / 8 + 1).min(3 * self.low())
        };
        self.target.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_when_evictors_are_late_and_shrinks_when_they_are_in_time() {
        let headroom = Headroom::new(6400);
        assert_eq!((headroom.low(), headroom.wake(), headroom.target()), (400, 736, 800));
        for late in 1..100 {
            headroom.begin(late);
        }
        assert_eq!((headroom.wake(), headroom.target()), (1136, 1200));
        for _ in 0..1000 {
            headroom.begin(99);
        }
        assert_eq!(headroom.target(), 800);
        let least = Headroom::new(16);
        assert!(least.wake() < least.target() && least.target() < 16);
    }
}
