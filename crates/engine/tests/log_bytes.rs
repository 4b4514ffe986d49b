//! What a row costs in the log: everything that is durable goes through it, under one lock.

use std::sync::atomic::Ordering;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::{Engine, Entry, IndexDef, Isolation, Parts, TableDef};
use terrace_sim::SimWorld;

/// Any order of the numbers below 2^32.
fn mixed(n: u32) -> u32 {
    (n ^ n >> 15).wrapping_mul(0x2C1B_3C6D).rotate_left(13).wrapping_mul(0x297A_2D39)
}

/// Bytes of log for each row of 100 bytes with one entry in a random place, so many in a transaction.
fn bytes_a_row(together: u32, partitions: usize) -> u64 {
    const ROWS: u32 = 2000;
    let sim = SimWorld::new(1);
    let config = Config {
        memory: Bytes(32 << 20),
        log: Bytes(32 << 20),
        log_partitions: partitions,
        object_buffer: Bytes(64 << 20),
        ..Config::default()
    };
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine = Engine::open(config, parts).unwrap();
    let indexes = ["PRIMARY", "k"].map(|name| IndexDef { name: name.into(), unique: name == "PRIMARY" });
    let table =
        engine.create_table("d/t", &TableDef { indexes: indexes.to_vec(), properties: Vec::new() }).unwrap();
    let put = |rows: std::ops::Range<u32>| {
        let txn = engine.begin(Isolation::RepeatableRead);
        for n in rows {
            let primary = n.to_be_bytes();
            let key = [mixed(n).to_be_bytes(), primary].concat();
            let entry = Entry { index: 1, key: &key, unique_len: None, primary_at: 4, value: &[] };
            txn.insert(&table, &primary, &[n as u8; 100], &[entry]).unwrap();
        }
        txn.commit().unwrap().wait().unwrap();
    };
    // The first ones would be loaded in bulk if they were many.
    (0..100).for_each(|part| put(part * 100..part * 100 + 100));
    let counter = &engine.core().storage.log.counters.bytes;
    let before = counter.load(Ordering::Relaxed);
    (0..ROWS / together).for_each(|part| put(10_000 + part * together..10_000 + (part + 1) * together));
    let bytes = counter.load(Ordering::Relaxed) - before;
    engine.shutdown().unwrap();
    bytes / u64::from(ROWS)
}

#[test]
fn a_row_with_an_entry_costs_little_more_than_its_bytes() {
    for (together, partitions, most) in [(1, 1, 340), (1000, 1, 300), (1000, 8, 300)] {
        let bytes = bytes_a_row(together, partitions);
        assert!(bytes <= most, "{bytes} bytes a row, {together} in a transaction, {partitions} partitions");
    }
}
