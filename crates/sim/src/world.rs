//! The world: the disks and stores that share one clock, one seed and one count of I/O steps.

use crate::clock::SimClock;
use crate::disk::SimDisk;
use crate::random::SimRandom;
use crate::sched::SimSched;
use crate::steps::Steps;
use crate::store::{SimStore, Stores};
use std::sync::Arc;
use terrace_io::World;

pub struct SimWorld {
    pub seed: u64,
    pub clock: Arc<SimClock>,
    pub random: Arc<SimRandom>,
    pub sched: Arc<SimSched>,
    pub(crate) steps: Arc<Steps>,
    stores: Stores,
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
            stores: Stores::default(),
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
        let store = Arc::new(SimStore::new(
            name,
            self.stores.clone(),
            SimRandom::new(self.seed ^ 0x5708),
            self.clock.clone(),
            self.steps.clone(),
        ));
        self.stores.lock().insert(name.to_string(), Arc::downgrade(&store));
        store
    }
    /// I/O steps taken since the start.
    pub fn steps(&self) -> u64 {
        self.steps.taken()
    }
    /// From the given step on, every disk and store fails: the machine lost power there.
    pub fn crash_at(&self, step: u64) {
        self.steps.crash_at(step);
    }
    /// Power is back. The disks' `crash` decides what they kept.
    pub fn power_on(&self) {
        self.steps.crash_at(0);
    }
    pub fn crashed(&self) -> bool {
        self.steps.crashed()
    }
}
