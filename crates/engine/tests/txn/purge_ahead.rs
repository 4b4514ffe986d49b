//! Scattered rows are deleted, and by the time that purge comes to them their leaves are only in the store: purge fetches several in parallel.

#[path = "../kit/mod.rs"]
mod kit;

use kit::slow::Slow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Row;
use terrace_engine::Table;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::planted;
use terrace_sim::SimWorld;

const ROWS: u32 = 30_000;
const LENGTH: usize = 400;
const NO_ENTRY: [Entry<'static>; 0] = [];

fn row(key: u32) -> Vec<u8> {
    (0..LENGTH as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(key * 7919) >> 11) as u8).collect()
}

fn commit(txn: &Arc<Txn>) {
    txn.commit().unwrap().wait().unwrap();
}

fn open(store: &Arc<Slow>, sim: &SimWorld) -> (Arc<Engine>, Arc<Table>) {
    let config = Config {
        memory: Bytes(10 << 20),
        log: Bytes(16 << 20),
        object_buffer: Bytes(64 << 20),
        ..Config::default()
    };
    let parts = Parts {
        world: terrace_io::real::world(),
        volume: sim.disk("volume"),
        flash: None,
        store: Some(store.clone()),
    };
    let engine = Engine::open(config, parts).unwrap();
    let table = engine.create_table("db/t", &kit::primary()).unwrap();
    for keys in (0..ROWS).collect::<Vec<_>>().chunks(1000) {
        let txn = engine.begin(Isolation::RepeatableRead);
        for key in keys {
            txn.insert(&table, &key.to_be_bytes(), Row::from(&row(*key)), &NO_ENTRY).unwrap();
        }
        commit(&txn);
    }
    (engine, table)
}

fn purged(engine: &Engine) {
    let until = Instant::now() + Duration::from_secs(120);
    while !engine.core().purge.history.lock().is_empty() {
        assert!(Instant::now() < until, "purge comes to no end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The deletes of `of`, a transaction each; all are open at the same time.
fn delete(engine: &Arc<Engine>, table: &Arc<Table>, of: &[Vec<u32>]) {
    let delete = |keys: &Vec<u32>| {
        let txn = engine.begin(Isolation::RepeatableRead);
        for key in keys {
            txn.get(table, &key.to_be_bytes(), Lock::Exclusive, &mut Vec::new()).unwrap();
            txn.delete(table, &key.to_be_bytes(), &NO_ENTRY).unwrap();
        }
        txn
    };
    let open: Vec<_> = of.iter().map(delete).collect();
    open.iter().for_each(commit);
}

/// The most concurrent requests to the store while purge removed the rows that `of` deleted.
fn asked_at_a_time(of: &[Vec<u32>]) -> usize {
    let sim = SimWorld::new(1);
    let store = Slow::new(&sim, Duration::from_millis(5));
    let (engine, table) = open(&store, &sim);
    purged(&engine);
    let reader = engine.begin(Isolation::RepeatableRead);
    assert!(reader.get(&table, &0u32.to_be_bytes(), Lock::None, &mut Vec::new()).unwrap());
    delete(&engine, &table, of);
    let storage = &engine.core().storage;
    storage.checkpoint().unwrap();
    storage.cold.clone().unwrap().sinker.sink_all().unwrap();
    storage.map.keep_clean_copies(0);
    // Others' pages take memory.
    for key in 0..ROWS / 2 {
        reader.get(&table, &key.to_be_bytes(), Lock::None, &mut Vec::new()).unwrap();
    }
    store.slow.store(true, Ordering::SeqCst);
    commit(&reader);
    purged(&engine);
    store.slow.store(false, Ordering::SeqCst);
    // Gone is what was deleted, and nothing else.
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut found = Vec::new();
    let there = (0..ROWS).filter(|key| txn.get(&table, &key.to_be_bytes(), Lock::None, &mut found).unwrap());
    assert_eq!(there.count(), ROWS as usize - of.iter().map(Vec::len).sum::<usize>());
    commit(&txn);
    let pool = storage.pages.pool().clone();
    drop((txn, reader, table));
    engine.shutdown().unwrap();
    drop(engine);
    // Nothing is held for purge any more.
    assert_eq!(Arc::strong_count(&pool), 1);
    store.most.load(Ordering::SeqCst)
}

/// Rows scattered over the table's second half.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |n| ROWS / 2 + n * (ROWS / 2 / count))
}

#[test]
fn leaves_of_small_transactions_are_fetched_in_parallel() {
    let _one = kit::alone();
    let of: Vec<Vec<u32>> = scattered(60).map(|key| vec![key]).collect();
    let most = asked_at_a_time(&of);
    assert!(most > 1, "{most}");
}

#[test]
fn leaves_of_a_long_transaction_are_fetched_in_parallel() {
    let _one = kit::alone();
    // A first one, by which purge learns that it has to wait.
    let most = asked_at_a_time(&[vec![ROWS - 1], scattered(200).collect()]);
    assert!(most > 1, "{most}");
}

#[test]
fn without_purges_read_ahead_leaves_are_fetched_one_by_one() {
    let _one = kit::alone();
    let of: Vec<Vec<u32>> = scattered(60).map(|key| vec![key]).collect();
    planted::PURGE_LOOKS_NOT_AHEAD.set(true);
    let most = asked_at_a_time(&of);
    planted::PURGE_LOOKS_NOT_AHEAD.set(false);
    assert_eq!(most, 1);
}
