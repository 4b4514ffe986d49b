//! Large values that change completely, more of them than the object buffer holds: a change costs its own pages, on the volume and in the
//! store, and not those that it frees; and the space stops growing.

#[path = "../kit/mod.rs"]
mod kit;

use kit::far::Run;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Row;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::offline::check::Verdict;

const KEYS: u32 = 240;
const PAGES: u64 = 5;
const CHANGES: u32 = 600;
/// Changes that one reader sees nothing of.
const READ: u32 = 60;
const NO_ENTRY: [Entry<'static>; 0] = [];

fn value(key: u32, serial: u32) -> Vec<u8> {
    (0..65_536u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(key * 7919 + serial) >> 11) as u8)
        .collect()
}

fn rows(engine: &Arc<Engine>, table: &Arc<Table>) -> BTreeMap<u32, Vec<u8>> {
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut cursor = txn.cursor(table, 0, Lock::None, Access::Scan).unwrap();
    let (mut found, mut row) = (BTreeMap::new(), Vec::new());
    let mut valid = cursor.seek(&[], Seek::First).unwrap();
    while valid {
        cursor.row(&mut row).unwrap();
        let key = u32::from_be_bytes(cursor.primary_key().try_into().unwrap());
        found.insert(key, row.clone());
        valid = cursor.next().unwrap();
    }
    found
}

#[test]
fn a_change_of_a_large_value_costs_its_own_pages_and_few_blocks() {
    let run = Run::new(5, 12 << 20);
    let (engine, table) = run.open();
    let mut model = BTreeMap::new();
    for key in 0..KEYS {
        let txn = engine.begin(Isolation::RepeatableRead);
        let new = value(key, 0);
        txn.insert(&table, &key.to_be_bytes(), Row::from(&new), &NO_ENTRY).unwrap();
        txn.commit().unwrap().wait().unwrap();
        model.insert(key, new);
        run.pause();
    }
    let counts = || {
        let status: BTreeMap<String, u64> = engine.status().into_iter().collect();
        let written = status["flush_pages"]
            + engine.core().storage.flusher.bypass.pages.load(std::sync::atomic::Ordering::Relaxed);
        (written, status["sink_blocks"], table.tree(0).unwrap().space().counts())
    };
    let before = counts();
    let mut n = 1u32;
    let mut reader = None;
    for serial in 1..=CHANGES {
        // A reader stays open during many changes: the pages that they free are freed together, after it ends.
        if serial % READ == 1 {
            drop(reader.take());
            (0..10).for_each(|_| run.pause());
            let txn = engine.begin(Isolation::RepeatableRead);
            assert!(txn.cursor(&table, 0, Lock::None, Access::Scan).unwrap().seek(&[], Seek::First).unwrap());
            reader = Some(txn);
        }
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let key = (n >> 8) % KEYS;
        let txn = engine.begin(Isolation::RepeatableRead);
        let new = value(key, serial);
        txn.update(&table, &key.to_be_bytes(), Row::from(&new), &NO_ENTRY, &NO_ENTRY).unwrap();
        txn.commit().unwrap().wait().unwrap();
        model.insert(key, new);
        run.pause();
    }
    drop(reader);
    (0..10).for_each(|_| run.pause());
    let after = counts();
    let (written, sunk) = (after.0 - before.0, after.1 - before.1);
    let a_change = |n: u64| n as f64 / f64::from(CHANGES);
    println!(
        "a change writes {:.2} pages and sinks {:.3} blocks; {:?}",
        a_change(written),
        a_change(sunk),
        after.2
    );
    assert!(after.1 > 0, "nothing sank");
    assert!(rows(&engine, &table) == model);
    let values = u64::from(KEYS) * PAGES;
    let kept = u64::from(READ) * PAGES;
    assert!(
        u64::from(after.2.pages) < (values + kept) * 3 / 2 + 256,
        "{:?} for {values} pages of values",
        after.2
    );
    assert!(a_change(written) < 6.5 && a_change(sunk) < 0.1, "{written} pages, {sunk} blocks");
    drop(table);
    engine.shutdown().unwrap();
    drop(engine);
    let report = run.on.check();
    assert_eq!(report.verdict(), Verdict::Sound, "{:?} {:?}", report.faults, report.unchecked);
    assert_eq!((report.overflow, report.leaked.count), (values, 0), "{:?}", report.leaked);
}
