//! A simulated engine of little memory over an object store, with one table `db/t` that has a primary key.

use std::sync::Arc;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::{Engine, Error, IndexDef, Parts, Table, TableDef};
use terrace_sim::{SimDisk, SimStore, SimWorld};

pub struct Run {
    pub sim: SimWorld,
    pub disk: Arc<SimDisk>,
    pub store: Arc<SimStore>,
    object_buffer: u64,
}

impl Run {
    /// `object_buffer`: bytes.
    pub fn new(seed: u64, object_buffer: u64) -> Run {
        let sim = SimWorld::new(seed);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        Run { sim, disk, store, object_buffer }
    }

    /// Opens what is there, or makes it.
    pub fn open(&self) -> (Arc<Engine>, Arc<Table>) {
        let config = Config {
            memory: Bytes(10 << 20),
            log: Bytes(8 << 20),
            object_buffer: Bytes(self.object_buffer),
            ..Config::default()
        };
        let store = Some(self.store.clone() as _);
        let parts = Parts { world: self.sim.world(), volume: self.disk.clone(), flash: None, store };
        let engine = Engine::open(config, parts).unwrap();
        let table = match engine.open_table("db/t") {
            Err(Error::Absent(_)) => {
                let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
                engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() })
            }
            other => other,
        };
        (engine, table.unwrap())
    }

    /// Time passes, and workers work.
    pub fn pause(&self) {
        for _ in 0..4 {
            self.sim.clock.advance(10_000_000);
            self.sim.sched.run_some(200);
        }
    }
}
