//! The world: clock, randomness and the count of I/O steps, shared by all its disks and stores.

use crate::disk::SimDisk;
use crate::sched::SimSched;
use crate::store::SimStore;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::World;
use terrace_io::clock::{Clock, Nanos};
use terrace_io::random::Random;

/// Small deterministic generator (SplitMix64): simulation only.
pub struct SimRandom(Mutex<u64>);

impl SimRandom {
    pub fn new(seed: u64) -> SimRandom {
        SimRandom(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03))
    }
    /// True once in `n`.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Random for SimRandom {
    fn next_u64(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = *state;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

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

/// Counts I/O steps over all disks and stores, and ends the world at a chosen one.
#[derive(Default)]
pub struct Steps {
    taken: AtomicU64,
    /// 0: never.
    crash_at: AtomicU64,
}

impl Steps {
    /// Takes a step. False: the machine is dead from here on.
    pub(crate) fn take(&self) -> bool {
        let step = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        let at = self.crash_at.load(Ordering::SeqCst);
        at == 0 || step < at
    }
    pub(crate) fn crashed(&self) -> bool {
        let at = self.crash_at.load(Ordering::SeqCst);
        at != 0 && self.taken.load(Ordering::SeqCst) >= at
    }
}

pub struct SimWorld {
    pub seed: u64,
    pub clock: Arc<SimClock>,
    pub random: Arc<SimRandom>,
    pub sched: Arc<SimSched>,
    pub(crate) steps: Arc<Steps>,
}

impl SimWorld {
    pub fn new(seed: u64) -> SimWorld {
        let clock = Arc::new(SimClock::default());
        clock.advance(1_000_000);
        SimWorld {
            seed,
            sched: Arc::new(SimSched::new(seed, clock.clone())),
            clock,
            random: Arc::new(SimRandom::new(seed)),
            steps: Arc::default(),
        }
    }

    /// What the engine gets.
    pub fn world(&self) -> World {
        World { clock: self.clock.clone(), random: self.random.clone(), sched: self.sched.clone() }
    }
    pub fn disk(&self, name: &str) -> Arc<SimDisk> {
        Arc::new(SimDisk::new(
            name,
            SimRandom::new(self.seed ^ name.len() as u64 ^ 0x0D15),
            self.steps.clone(),
        ))
    }
    pub fn store(&self, name: &str) -> Arc<SimStore> {
        Arc::new(SimStore::new(
            name,
            SimRandom::new(self.seed ^ 0x5708),
            self.clock.clone(),
            self.steps.clone(),
        ))
    }
    /// I/O steps taken since the start.
    pub fn steps(&self) -> u64 {
        self.steps.taken.load(Ordering::SeqCst)
    }
    /// From the given step on, every disk and store fails: the machine lost power there.
    pub fn crash_at(&self, step: u64) {
        self.steps.crash_at.store(step, Ordering::SeqCst);
    }
    /// Power is back. The disks' `crash` decides what they kept.
    pub fn power_on(&self) {
        self.steps.crash_at.store(0, Ordering::SeqCst);
    }
    pub fn crashed(&self) -> bool {
        self.steps.crashed()
    }
}
