//! Calls for a front that has no thread for each request: reads that never wait, and commits that call back.

#[path = "../kit/mod.rs"]
mod kit;

use kit::small::Rig;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::TryGet;
use terrace_engine::Txn;

fn create(engine: &Engine) -> Arc<Table> {
    let primary = IndexDef { name: "PRIMARY".into(), unique: true };
    engine.create_table("d/t", &TableDef { indexes: vec![primary], properties: Vec::new() }).unwrap()
}

fn row(n: u64) -> Vec<u8> {
    vec![n as u8; if n == 3 { 20_000 } else { 1000 }]
}

fn insert(engine: &Engine, table: &Table, rows: std::ops::Range<u64>) {
    let txn = engine.begin(Isolation::RepeatableRead);
    rows.for_each(|n| txn.insert(table, &n.to_be_bytes(), &row(n), &[]).unwrap());
    txn.commit().unwrap().wait().unwrap();
}

/// Reads row `n` and then tries to: the page may go between the two (evictors free frames ahead of need), but not
/// again and again.
fn tries_what_was_read(txn: &Txn, table: &Table, n: u64, out: &mut Vec<u8>) -> TryGet {
    let key = n.to_be_bytes();
    for _ in 0..20 {
        txn.get(table, &key, Lock::None, out).unwrap();
        match txn.try_get(table, &key, out).unwrap() {
            TryGet::WouldBlock => continue,
            answer => return answer,
        }
    }
    TryGet::WouldBlock
}

fn reads(engine: &Engine) -> u64 {
    engine.status().into_iter().collect::<HashMap<_, _>>()["pool_misses"]
}

#[test]
fn a_read_that_would_wait_says_so_and_one_that_need_not_is_right() {
    let rig = Rig::new("front-reads");
    let engine = rig.open();
    let table = create(&engine);
    // Three times the memory.
    (0..24u64).for_each(|part| insert(&engine, &table, part * 1000..(part + 1) * 1000));
    // Purge reads pages, too: not any more.
    let until = Instant::now() + Duration::from_secs(300);
    while !engine.core().purge.history.lock().is_empty() {
        assert!(Instant::now() < until, "purge does not end");
        engine.core().purge.wanted.notify();
        std::thread::sleep(Duration::from_millis(5));
    }
    let txn = engine.begin(Isolation::RepeatableRead);
    let (mut out, mut hits, mut later, mut read) = (Vec::new(), 0, Vec::new(), 0);
    for n in 0..24_000u64 {
        let before = reads(&engine);
        match txn.try_get(&table, &n.to_be_bytes(), &mut out).unwrap() {
            TryGet::Hit => {
                assert!(out == row(n));
                hits += 1;
            }
            TryGet::Absent => panic!("row {n} is there"),
            TryGet::WouldBlock => later.push(n),
        }
        read += reads(&engine) - before;
    }
    // Workers may still read a page or two of their own; tries that read would be thousands.
    assert!(read < 20, "tries have read {read} pages");
    assert!(hits > 1000 && later.len() > 8000, "{hits} hits, {} would block", later.len());
    for n in later.into_iter().step_by(997).filter(|n| *n != 3) {
        assert_eq!(tries_what_was_read(&txn, &table, n, &mut out), TryGet::Hit);
        assert!(out == row(n));
    }
    assert_eq!(tries_what_was_read(&txn, &table, 30_000, &mut out), TryGet::Absent);
    // A large value is read whole if its pages are in memory.
    assert_eq!(tries_what_was_read(&txn, &table, 3, &mut out), TryGet::Hit);
    assert!(out == row(3));

    // Later changes of other transactions are not seen, whether committed or not; own changes are.
    let other = engine.begin(Isolation::RepeatableRead);
    let (changed, new) = (7u64.to_be_bytes(), 40_000u64.to_be_bytes());
    assert!(txn.get(&table, &changed, Lock::None, &mut out).unwrap());
    assert!(other.get(&table, &changed, Lock::Exclusive, &mut out).unwrap());
    other.update(&table, &changed, b"changed", &[], &[]).unwrap();
    other.insert(&table, &new, b"new", &[]).unwrap();
    for committed in [false, true] {
        assert_eq!(txn.try_get(&table, &changed, &mut out).unwrap(), TryGet::WouldBlock);
        assert_eq!(tries_what_was_read(&txn, &table, 40_000, &mut out), TryGet::Absent);
        assert!(txn.get(&table, &changed, Lock::None, &mut out).unwrap() && out == row(7));
        if !committed {
            assert_eq!(tries_what_was_read(&other, &table, 7, &mut out), TryGet::Hit);
            assert!(out == b"changed");
            other.commit().unwrap().wait().unwrap();
        }
    }
    let after = engine.begin(Isolation::ReadCommitted);
    assert_eq!(tries_what_was_read(&after, &table, 40_000, &mut out), TryGet::Hit);
    assert!(out == b"new");
    txn.rollback().unwrap();
    engine.shutdown().unwrap();
}

#[test]
fn a_commit_calls_back_when_it_is_durable() {
    let rig = Rig::new("front-commits");
    let engine = rig.open();
    let table = create(&engine);
    let (told, heard) = mpsc::channel();
    for n in 0..500u64 {
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.insert(&table, &n.to_be_bytes(), &n.to_le_bytes(), &[]).unwrap();
        let told = told.clone();
        txn.commit().unwrap().then(move |durable| told.send((n, durable.is_ok())).unwrap());
    }
    let mut all: Vec<(u64, bool)> = (0..500)
        .map(|_| heard.recv_timeout(Duration::from_secs(300)).expect("each commit calls back"))
        .collect();
    all.sort_unstable();
    assert!(all.into_iter().eq((0..500).map(|n| (n, true))));
    // Nothing is written any more: the commits that called back are found.
    engine.core().storage.stop();
    drop(table);
    drop(engine);
    let engine = rig.open();
    let table = engine.open_table("d/t").unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut out = Vec::new();
    for n in 0..500u64 {
        assert!(txn.get(&table, &n.to_be_bytes(), Lock::None, &mut out).unwrap() && out == n.to_le_bytes());
    }
    // What changed nothing is durable.
    txn.commit().unwrap().then(move |durable| told.send((1, durable.is_ok())).unwrap());
    assert_eq!(heard.try_recv(), Ok((1, true)));
    engine.shutdown().unwrap();
}

#[test]
fn a_commit_that_cannot_be_durable_calls_back_with_the_error() {
    // A checkpoint may write the log between the commit and the device's failure: not each time.
    let failed = (0..20).any(|_| {
        let rig = Rig::new("front-poisoned");
        let engine = rig.open();
        let table = create(&engine);
        let [failed, called] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.insert(&table, b"key", b"row", &[]).unwrap();
        let ticket = txn.commit().unwrap();
        engine.core().storage.log.poison("a device that failed");
        let told = (failed.clone(), called.clone());
        ticket.then(move |durable| {
            told.0.fetch_add(usize::from(durable.is_err()), Ordering::SeqCst);
            told.1.fetch_add(1, Ordering::SeqCst);
        });
        engine.core().storage.stop();
        assert_eq!(called.load(Ordering::SeqCst), 1);
        failed.load(Ordering::SeqCst) == 1
    });
    assert!(failed);
}
