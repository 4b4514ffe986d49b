//! The real world: devices through direct I/O, the monotonic clock, threads.

pub mod batch;
pub mod disk;
mod file;
pub mod holder;
mod pool;
mod ring;
pub mod threads;

use crate::World;
use crate::clock::{Clock, Nanos};
use crate::random::Random;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub struct RealClock {
    start: Instant,
}

impl RealClock {
    pub fn new() -> RealClock {
        RealClock { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> RealClock {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos + 1
    }
    fn unix_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
    }
}

/// Randomness of the operating system's seeding, through the standard library's hasher keys.
pub struct RealRandom;

impl Random for RealRandom {
    fn next_u64(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }
}

/// The world that a server runs in.
pub fn world() -> World {
    World {
        clock: Arc::new(RealClock::new()),
        random: Arc::new(RealRandom),
        sched: Arc::new(threads::Threads),
    }
}
