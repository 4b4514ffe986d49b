//! An engine for races: threads of their own over disks in memory.

use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Parts;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_sim::SimWorld;

/// A new engine, and its table `d/t` with a primary key and one more index.
pub fn engine(name: &str, unique: bool) -> (Arc<Engine>, Arc<Table>) {
    let sim = SimWorld::new(1);
    let config = Config {
        memory: Bytes(16 << 20),
        log: Bytes(8 << 20),
        lock_wait_timeout_ms: 10_000,
        ..Config::default()
    };
    let parts =
        Parts { world: terrace_io::real::world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine = Engine::open(config, parts).unwrap();
    let index = |name: &str, unique| IndexDef { name: name.into(), unique };
    let def = TableDef { indexes: vec![index("PRIMARY", true), index(name, unique)], properties: Vec::new() };
    let table = engine.create_table("d/t", &def).unwrap();
    (engine, table)
}
