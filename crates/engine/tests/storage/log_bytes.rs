//! The bytes that a row takes in the log: all durable changes go through the log, under one lock.

use std::sync::atomic::Ordering;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Row;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_sim::SimWorld;

/// Any order of the numbers below 2^32.
fn mixed(n: u32) -> u32 {
    (n ^ n >> 15).wrapping_mul(0x2C1B_3C6D).rotate_left(13).wrapping_mul(0x297A_2D39)
}

/// Bytes of log for each row of 100 bytes with one entry in a random place, `together` rows in a transaction.
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

/// Bytes of log for an update of `changed` bytes in the middle of a row of `row` bytes.
fn bytes_an_update(row: usize, changed: usize) -> u64 {
    const ROWS: u32 = 500;
    let sim = SimWorld::new(1);
    let config = Config { memory: Bytes(32 << 20), log: Bytes(32 << 20), ..Config::default() };
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine = Engine::open(config, parts).unwrap();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let table = engine.create_table("d/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    let begin = || engine.begin(Isolation::RepeatableRead);
    let txn = begin();
    let mut rows: Vec<Vec<u8>> = (0..ROWS).map(|n| vec![n as u8; row]).collect();
    for (n, row) in (0..ROWS).zip(&rows) {
        txn.insert(&table, &n.to_be_bytes(), row, &[]).unwrap();
    }
    txn.commit().unwrap().wait().unwrap();
    let old_view = begin();
    old_view.open_view();
    let counter = &engine.core().storage.log.counters.bytes;
    let before = counter.load(Ordering::Relaxed);
    let txn = begin();
    for (n, row) in (0..ROWS).zip(&mut rows) {
        let half = row.len() / 2;
        row[half..half + changed].iter_mut().for_each(|byte| *byte ^= 1);
        txn.update(&table, &n.to_be_bytes(), Row::from(&*row), &[] as &[Entry<'_>], &[]).unwrap();
    }
    let undone = txn.savepoint();
    txn.update(&table, &7u32.to_be_bytes(), Row::from(&vec![9; row]), &[] as &[Entry<'_>], &[]).unwrap();
    txn.rollback_to(undone).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let bytes = counter.load(Ordering::Relaxed) - before;
    let is_read = |txn: &Txn, n: u32, expected: &[u8]| {
        let mut found = Vec::new();
        assert!(txn.get(&table, &n.to_be_bytes(), Lock::None, &mut found).unwrap());
        found == expected
    };
    let now = begin();
    assert!((0..ROWS).zip(&rows).all(|(n, row)| is_read(&now, n, row)));
    assert!((0..ROWS).all(|n| is_read(&old_view, n, &vec![n as u8; row])));
    drop((now, old_view));
    engine.shutdown().unwrap();
    bytes / u64::from(ROWS)
}

#[test]
fn an_update_costs_what_it_changes_and_not_the_row() {
    for (row, changed, most) in [(200, 4, 130), (2000, 4, 130), (2000, 100, 320)] {
        let bytes = bytes_an_update(row, changed);
        assert!(bytes <= most, "{bytes} bytes for {changed} of {row}");
    }
}
