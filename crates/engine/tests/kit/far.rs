//! A simulated engine of little memory over an object store, with one table `db/t` that has a primary key.

use super::{Machine, config, primary, table};
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Table;

pub struct Run {
    pub on: Machine,
    object_buffer: u64,
}

impl Run {
    /// `object_buffer`: bytes.
    pub fn new(seed: u64, object_buffer: u64) -> Run {
        Run { on: Machine::new(seed).and_store(), object_buffer }
    }

    /// Opens the instance and its table; creates what does not exist yet.
    pub fn open(&self) -> (Arc<Engine>, Arc<Table>) {
        let engine = self.on.open(config(10 << 20, 8 << 20, self.object_buffer)).unwrap();
        let table = table(&engine, "db/t", &primary()).unwrap();
        (engine, table)
    }

    /// Time passes, and workers work.
    pub fn pause(&self) {
        self.on.pass(4, 10_000_000, 200);
    }
}
