//! The simulated clock.

use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::clock::{Clock, Nanos};

/// Moves only when the scheduler or a slow device moves it.
#[derive(Default)]
pub struct SimClock(AtomicU64);

impl SimClock {
    pub fn advance(&self, by: Nanos) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }
    pub fn advance_to(&self, to: Nanos) {
        self.0.fetch_max(to, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Nanos {
        self.0.load(Ordering::SeqCst)
    }
    fn unix_ms(&self) -> u64 {
        1_800_000_000_000 + self.now() / 1_000_000
    }
}
