//! Rows in the order of a secondary index are scattered, and so are the entries of one row: if their leaves are only in the store, several are fetched in parallel.

#[path = "../kit/mod.rs"]
mod kit;

use kit::slow::Slow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::KeyChange;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Row;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_sim::SimWorld;
use terrace_tier::ablation::{Mechanism, Without};

const ROWS: u32 = 24_000;
const LENGTH: usize = 400;
const INDEXES: usize = 5;

/// The entry's key: in order of `n` in the first secondary index, scattered in the others.
fn secondary(index: usize, n: u32) -> Vec<u8> {
    let first =
        if index == 1 { n } else { n.wrapping_mul(0x9E37_79B1 + 2 * index as u32).rotate_left(index as u32) };
    [&first.to_be_bytes()[..], &primary(n)].concat()
}

fn primary(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x85EB_CA6B).to_be_bytes()
}

fn row(n: u32) -> Vec<u8> {
    (0..LENGTH as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(n * 7919) >> 11) as u8).collect()
}

/// What a row has in all secondary indexes.
fn with_entries<R>(n: u32, work: impl FnOnce(&[Entry<'_>]) -> R) -> R {
    let keys: Vec<_> = (1..INDEXES).map(|index| secondary(index, n)).collect();
    let entry = |(at, key)| Entry { index: at + 1, key, unique_len: None, primary_at: 4, value: &[] };
    work(&keys.iter().map(|key| &key[..]).enumerate().map(entry).collect::<Vec<_>>())
}

fn commit(txn: &Arc<Txn>) {
    txn.commit().unwrap().wait().unwrap();
}

struct Instance {
    store: Arc<Slow>,
    engine: Arc<Engine>,
    table: Arc<Table>,
}

/// An instance whose rows only the store has.
fn far(without: Without) -> Instance {
    let sim = SimWorld::new(1);
    let (volume, store) = (sim.disk("volume"), Slow::new(&sim, Duration::from_millis(5)));
    let open = || {
        let parts = Parts {
            world: terrace_io::real::world(),
            volume: volume.clone(),
            flash: None,
            store: Some(store.clone()),
        };
        let (memory, log, object_buffer) = (Bytes(16 << 20), Bytes(16 << 20), Bytes(64 << 20));
        Engine::open(Config { memory, log, object_buffer, without, ..Config::default() }, parts).unwrap()
    };
    let engine = open();
    let indexes = (0..INDEXES).map(|n| IndexDef { name: format!("i{n}"), unique: n == 0 }).collect();
    let table = engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    for some in (0..ROWS).collect::<Vec<_>>().chunks(1000) {
        let txn = engine.begin(Isolation::RepeatableRead);
        for n in some {
            with_entries(*n, |entries| txn.insert(&table, &primary(*n), Row::from(&row(*n)), entries))
                .unwrap();
        }
        commit(&txn);
    }
    let storage = &engine.core().storage;
    storage.checkpoint().unwrap();
    storage.cold.clone().unwrap().sinker.sink_all().unwrap();
    drop(table);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open();
    engine.core().storage.map.keep_clean_copies(0);
    let table = engine.open_table("db/t").unwrap();
    // What lies above the leaves.
    let txn = engine.begin(Isolation::RepeatableRead);
    for index in 0..INDEXES {
        assert!(
            txn.cursor(&table, index, Lock::None, Access::Normal).unwrap().seek(&[], Seek::First).unwrap()
        );
    }
    commit(&txn);
    Instance { store, engine, table }
}

impl Instance {
    /// The most requests that the store had at a time meanwhile.
    fn slowly(&self, work: impl FnOnce(&Arc<Txn>)) -> usize {
        self.store.most.store(0, Ordering::SeqCst);
        self.store.slow.store(true, Ordering::SeqCst);
        let (txn, began) = (self.engine.begin(Isolation::ReadCommitted), Instant::now());
        work(&txn);
        commit(&txn);
        println!("{:?}", began.elapsed());
        // Requests that are still in flight or queued.
        let mut idle = 0;
        while idle < 100 {
            std::thread::sleep(Duration::from_millis(1));
            idle = if self.store.now.load(Ordering::SeqCst) > 0 { 0 } else { idle + 1 };
        }
        self.store.slow.store(false, Ordering::SeqCst);
        self.store.most.load(Ordering::SeqCst)
    }

    /// Reads `count` rows of the first secondary index from one on.
    fn scan(&self, from: u32, count: u32, lock: Lock, backward: bool, expected: usize) -> usize {
        self.slowly(|txn| {
            let mut cursor = txn.cursor(&self.table, 1, lock, Access::Scan).unwrap();
            cursor.expect(expected);
            let (key, mut out) = (secondary(1, from), Vec::new());
            let mut valid = cursor.seek(&key, if backward { Seek::AtMost } else { Seek::AtLeast }).unwrap();
            for n in 0..count {
                let n = if backward { from - n } else { from + n };
                assert!(valid && cursor.row(&mut out).unwrap() && out == row(n), "{n}");
                valid = if backward { cursor.prev().unwrap() } else { cursor.next().unwrap() };
            }
        })
    }

    fn end(self, rows: u32) {
        let Instance { engine, table, .. } = self;
        // All is what it should be.
        let txn = engine.begin(Isolation::RepeatableRead);
        for index in 1..INDEXES {
            let mut cursor = txn.cursor(&table, index, Lock::None, Access::Scan).unwrap();
            let (mut valid, mut count) = (cursor.seek(&[], Seek::First).unwrap(), 0);
            while valid {
                (valid, count) = (cursor.next().unwrap(), count + 1);
            }
            assert_eq!(count, rows, "index {index}");
        }
        commit(&txn);
        drop((txn, table));
        engine.shutdown().unwrap();
    }
}

#[test]
fn rows_of_a_secondary_index_are_fetched_in_parallel() {
    let far = far(Without::default());
    for (from, lock, backward, expected) in [
        (1000, Lock::None, false, 0),
        (3000, Lock::None, true, 40),
        (5000, Lock::None, false, 40),
        (7000, Lock::Exclusive, false, 0),
        (9000, Lock::Shared, true, 0),
    ] {
        let most = far.scan(from, 40, lock, backward, expected);
        assert!(most > 2, "{most} at a time, from {from}");
    }
    // Of few entries the rows are wanted.
    let most = far.slowly(|txn| {
        let mut cursor = txn.cursor(&far.table, 1, Lock::None, Access::Scan).unwrap();
        let (mut valid, mut out) = (cursor.seek(&secondary(1, 13_000), Seek::AtLeast).unwrap(), Vec::new());
        for n in 13_001..13_400 {
            valid &= cursor.next().unwrap();
            assert!(valid && (n % 20 != 0 || (cursor.row(&mut out).unwrap() && out == row(n))));
        }
    });
    assert_eq!(most, 1);
    // A single row prefetches no other.
    assert_eq!(far.scan(11_000, 1, Lock::None, false, 1), 1);
    far.end(ROWS);
}

#[test]
fn leaves_of_a_rows_entries_are_fetched_in_parallel() {
    let far = far(Without::default());
    let most = far.slowly(|txn| {
        with_entries(ROWS, |new| txn.insert(&far.table, &primary(ROWS), Row::from(&row(ROWS)), new)).unwrap()
    });
    assert!(most > 1, "insert: {most}");
    let most = far.slowly(|txn| {
        txn.get(&far.table, &primary(12_000), Lock::Exclusive, &mut Vec::new()).unwrap();
        with_entries(12_000, |old| txn.delete(&far.table, &primary(12_000), old)).unwrap();
    });
    assert!(most > 1, "delete: {most}");
    let n = 13_000;
    let most = far.slowly(|txn| {
        txn.get(&far.table, &primary(n), Lock::Exclusive, &mut Vec::new()).unwrap();
        let moved = |index| [&secondary(index, n + 7000)[..4], &primary(n)[..]].concat();
        let keys = [moved(2), moved(3), moved(4)];
        let new: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(at, key)| Entry { index: at + 2, key, unique_len: None, primary_at: 4, value: &[] })
            .collect();
        with_entries(n, |old| txn.update(&far.table, &primary(n), Row::from(&row(n)), &old[1..], &new))
            .unwrap();
    });
    assert!(most > 1, "update: {most}");
    far.end(ROWS);
}

#[test]
fn leaves_of_many_rows_entries_are_fetched_in_parallel() {
    let far = far(Without::default());
    let rows: Vec<u32> = (14_000..14_100).collect();
    let most = far.slowly(|txn| {
        let keys: Vec<_> = rows
            .iter()
            .map(|n| (secondary(3, *n), [&secondary(3, *n + 500)[..4], &primary(*n)].concat()))
            .collect();
        let change = |key, put| KeyChange { index: 3, key, primary_at: 4, put };
        let mut all: Vec<_> = keys
            .iter()
            .flat_map(|(old, new)| [change(&old[..], None), change(&new[..], Some(&[][..]))])
            .collect();
        txn.change_rows(&far.table, &mut all).unwrap();
    });
    assert!(most > 2, "{most}");
    far.end(ROWS);
}

#[test]
fn without_prefetch_leaves_are_fetched_one_by_one() {
    let far = far(Without::default().and(Mechanism::Prefetch));
    assert_eq!(far.scan(1000, 40, Lock::None, false, 40), 1);
    assert_eq!(
        far.slowly(|txn| with_entries(ROWS, |new| txn.insert(
            &far.table,
            &primary(ROWS),
            Row::from(&row(ROWS)),
            new
        ))
        .unwrap()),
        1
    );
    far.end(ROWS + 1);
}
