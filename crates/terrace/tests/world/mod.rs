//! Instances in a simulated world: one thread, time and failures by the seed.

#![allow(dead_code)]

use std::sync::Arc;
use terrace::{Db, Result};
use terrace_engine::Parts;
use terrace_engine::config::{Bytes, Config};
use terrace_io::store::ObjectStore;
use terrace_sim::{SimDisk, SimStore, SimWorld};

pub struct World {
    pub sim: SimWorld,
    pub disk: Arc<SimDisk>,
    pub store: Option<Arc<SimStore>>,
}

impl World {
    pub fn new(seed: u64, with_store: bool) -> World {
        let sim = SimWorld::new(seed);
        let (disk, store) = (sim.disk("volume"), with_store.then(|| sim.store("store")));
        World { sim, disk, store }
    }

    pub fn config(&self) -> Config {
        let has_store = self.store.is_some();
        Config {
            memory: Bytes(if has_store { 10 << 20 } else { 4 << 20 }),
            log: Bytes(3 << 20),
            object_buffer: Bytes(if has_store { 4 << 20 } else { 128 << 20 }),
            sink_after_ms: 5,
            lock_wait_timeout_ms: 1000,
            ..Config::default()
        }
    }

    pub fn open(&self) -> Result<Db> {
        self.open_with(self.config())
    }

    pub fn open_with(&self, config: Config) -> Result<Db> {
        let store = self.store.clone().map(|store| store as Arc<dyn ObjectStore>);
        Db::open_on(config, Parts { world: self.sim.world(), volume: self.disk.clone(), flash: None, store })
    }

    /// Power is lost and returns. The instance stops, unless it did before: its handles are invalid.
    pub fn lose_power(&self, db: Db) {
        db.abandon();
        self.sim.sched.drop_workers();
        self.disk.crash();
        self.sim.power_on();
    }

    /// Runs workers until `done`.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) {
        for _ in 0..1_000_000 {
            if done() {
                return;
            }
            if self.sim.sched.run_some(1) == 0 {
                self.sim.clock.advance(1_000_000);
            }
        }
        panic!("seed {}: it does not come to pass", self.sim.seed);
    }
}
