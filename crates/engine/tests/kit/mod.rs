//! Shared by the engine's tests: a simulated machine with an engine on it, tables, and a lock for tests that plant bugs.
//!
//! A test file that needs it declares it with its path. Which memory and log a test has is part of what it tests, so each says so (`config`).

#![allow(dead_code, unused_imports)] // each test binary uses its part

pub mod far;
pub mod slow;
pub mod small;
pub mod threads;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Parts;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::offline::check;
use terrace_engine::offline::instance::OfflineInstance;
use terrace_io::clock::Nanos;
use terrace_io::disk::Disk;
use terrace_io::store::ObjectStore;
use terrace_sim::{SimDisk, SimStore, SimWorld};

pub const NO_ENTRY: [Entry<'static>; 0] = [];

/// A simulated machine with a volume; [`Machine::and_flash`] and [`Machine::and_store`] add the other tiers.
pub struct Machine {
    pub sim: SimWorld,
    pub volume: Arc<SimDisk>,
    flash: Option<Arc<SimDisk>>,
    store: Option<Arc<SimStore>>,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        let sim = SimWorld::new(seed);
        Machine { volume: sim.disk("volume"), sim, flash: None, store: None }
    }
    pub fn and_flash(self) -> Machine {
        Machine { flash: Some(self.sim.disk("flash")), ..self }
    }
    pub fn and_store(self) -> Machine {
        Machine { store: Some(self.sim.store("store")), ..self }
    }

    pub fn flash(&self) -> &Arc<SimDisk> {
        self.flash.as_ref().expect("the machine has flash")
    }
    pub fn store(&self) -> &Arc<SimStore> {
        self.store.as_ref().expect("the machine has a store")
    }

    /// The volume, and flash if there is any.
    pub fn disks(&self) -> impl Iterator<Item = &Arc<SimDisk>> {
        [&self.volume].into_iter().chain(&self.flash)
    }

    pub fn parts(&self) -> Parts {
        self.parts_on(self.store.as_ref())
    }
    /// The same with another store, or none.
    pub fn parts_on(&self, store: Option<&Arc<SimStore>>) -> Parts {
        Parts {
            world: self.sim.world(),
            volume: self.volume.clone(),
            flash: self.flash.clone().map(|flash| flash as Arc<dyn Disk>),
            store: store.map(|store| store.clone() as Arc<dyn ObjectStore>),
        }
    }

    /// Opens the instance that is on the volume, or makes it.
    pub fn open(&self, config: Config) -> Result<Arc<Engine>, Error> {
        Engine::open(config, self.parts())
    }

    /// Advances the clock by `nanos`, `times` times; after each advance the workers take up to `steps` steps.
    pub fn pass(&self, times: usize, nanos: Nanos, steps: usize) {
        for _ in 0..times {
            self.sim.clock.advance(nanos);
            self.sim.sched.run_some(steps);
        }
    }

    /// Power is lost and returns. The caller drops the old engine before or after that; it does nothing any more.
    pub fn power_cycle(&self) {
        self.sim.sched.drop_workers();
        self.disks().for_each(|disk| disk.crash());
        self.sim.power_on();
    }

    /// The instance on the volume, from outside. Nothing has it open.
    pub fn look(&self) -> Result<OfflineInstance, Error> {
        let Parts { volume, store, .. } = self.parts();
        OfflineInstance::open(volume, store)
    }

    /// What `terrace check` finds.
    pub fn check(&self) -> check::Report {
        let look = self.look().unwrap_or_else(|error| panic!("seed {}: {error}", self.sim.seed));
        check::check(&look, &check::Options::default(), &mut |_, _, _| ())
    }
}

/// A configuration of these sizes, in bytes.
pub fn config(memory: u64, log: u64, object_buffer: u64) -> Config {
    Config {
        memory: Bytes(memory),
        log: Bytes(log),
        object_buffer: Bytes(object_buffer),
        ..Config::default()
    }
}

/// A table with the indexes of these names; which of them are unique.
pub fn indexes(of: &[(&str, bool)]) -> TableDef {
    let index = |(name, unique): &(&str, bool)| IndexDef { name: (*name).into(), unique: *unique };
    TableDef { indexes: of.iter().map(index).collect(), properties: Vec::new() }
}

/// A table with a primary key alone.
pub fn primary() -> TableDef {
    indexes(&[("PRIMARY", true)])
}

/// Opens the table, or makes it.
pub fn table(engine: &Engine, name: &str, def: &TableDef) -> Result<Arc<Table>, Error> {
    match engine.open_table(name) {
        Err(Error::Absent(_)) => engine.create_table(name, def),
        other => other,
    }
}

/// For a test that plants a bug: the switches are the process's, so one such test runs at a time. Where a file plants bugs in tests that run
/// with the others, those others take it too.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
