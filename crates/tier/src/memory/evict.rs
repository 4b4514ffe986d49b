//! The evictors: keep frames free ahead of need, so that a miss does not have to evict itself; and keep as many frames out of
//! circulation as the pool lends memory for.

use crate::memory::pool::{Pool, Settled};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::sched::{Event, Step, Worker};

/// Maximum number of evictions in a step.
const BATCH: usize = 64;
/// Frames for each evictor, and the maximum number of evictors. One thread is enough for the work; but if hundreds of clients
/// compete for the processors, one thread gets a hundredth of them, and the clients' misses need more.
const FRAMES_EACH: usize = 1024;
const EVICTORS_MAX: usize = 4;

pub struct Evictor {
    pool: Arc<Pool>,
    /// It is in the middle of freeing frames.
    busy: bool,
}

impl Evictor {
    /// The number of evictors of a pool of `frames` frames.
    pub fn count(frames: usize) -> usize {
        (frames / FRAMES_EACH).clamp(1, EVICTORS_MAX)
    }

    pub fn new(pool: Arc<Pool>) -> Evictor {
        Evictor { pool, busy: false }
    }
}

impl Worker for Evictor {
    fn name(&self) -> &'static str {
        "evictor"
    }

    fn step(&mut self) -> Step {
        if !std::mem::replace(&mut self.busy, true) {
            let late = self.pool.counters.foreground_evictions.load(Ordering::Relaxed);
            self.pool.headroom.begin(late);
        }
        let behind = self.pool.settle() == Settled::Behind;
        let target = self.pool.headroom.target();
        for _ in 0..BATCH {
            if self.pool.free_frames() >= target {
                self.busy = behind;
                return if behind { Step::Worked } else { Step::Idle };
            }
            if !self.pool.evict_one() {
                self.busy = false;
                self.pool.flush_wanted.notify();
                return Step::Idle;
            }
        }
        Step::Worked
    }

    fn wake_event(&self) -> Arc<Event> {
        self.pool.frames_wanted.clone()
    }
}
