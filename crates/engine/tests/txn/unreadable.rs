//! Pages that purge or redo needs and can't read: a page lost for good blocks no other table and throttles no writer; a page that may become readable
//! is waited for; and the page is reported.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Row;
use terrace_engine::Table;
use terrace_engine::Txn;
use terrace_engine::config::Config;
use terrace_engine::planted;
use terrace_io::store::{ObjectStore, Purpose};
use terrace_tier::address::ObjectKey;

const NO_ENTRY: [Entry<'static>; 0] = [];
const KEYS: u32 = 3000;
const LARGE: u32 = 1;
const LAG_MAX: usize = 10;

struct Run {
    on: Machine,
}

impl Run {
    fn new(seed: u64) -> Run {
        Run { on: Machine::new(seed).and_store() }
    }

    fn open(&self) -> Arc<Engine> {
        let config = Config { purge_lag_max: LAG_MAX, ..kit::config(10 << 20, 8 << 20, 64 << 20) };
        self.on.open(config).unwrap()
    }

    fn pause(&self) {
        self.on.pass(100, 50_000_000, 200);
    }

    /// The object of the table's first pages is gone.
    fn lose(&self, engine: &Engine, table: &str) {
        let space = engine.spaces().into_iter().find(|one| one.table == table).unwrap().space;
        let keys =
            self.on.store().keys().into_iter().filter(|key| {
                ObjectKey::parse(key).is_some_and(|key| key.space.0 == space && key.block == 0)
            });
        let keys: Vec<String> = keys.collect();
        assert!(!keys.is_empty());
        keys.iter().for_each(|key| self.on.store().delete(Purpose::Collect, key).unwrap());
    }
}

fn make(engine: &Engine, name: &str) -> Arc<Table> {
    engine.create_table(name, &kit::primary()).unwrap()
}

fn row(key: u32) -> Vec<u8> {
    let len = if key == LARGE { 100_000 } else { 3000 };
    (0..len).map(|at: u32| (at.wrapping_mul(2_654_435_761).wrapping_add(key * 7919) >> 11) as u8).collect()
}

fn change(engine: &Arc<Engine>, with: impl FnOnce(&Txn)) {
    let txn = engine.begin(Isolation::RepeatableRead);
    with(&txn);
    txn.commit().unwrap().wait().unwrap();
}

fn is_there(engine: &Arc<Engine>, table: &Table, key: u32) -> bool {
    engine
        .begin(Isolation::RepeatableRead)
        .get(table, &key.to_be_bytes(), Lock::None, &mut Vec::new())
        .unwrap()
}

fn note(engine: &Engine, name: &str) -> Option<String> {
    engine.notes().into_iter().find(|(one, _)| *one == name).map(|(_, what)| what)
}

fn status(engine: &Engine, name: &str) -> u64 {
    engine.status().into_iter().find(|(one, _)| one == name).unwrap().1
}

/// Two tables: all rows of the first except its last are in the store alone.
fn filled(run: &Run) -> (Arc<Engine>, Arc<Table>, Arc<Table>) {
    let engine = run.open();
    let (table, other) = (make(&engine, "db/t"), make(&engine, "db/u"));
    for keys in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        change(&engine, |txn| {
            for key in keys {
                txn.insert(&table, &key.to_be_bytes(), Row::from(&row(*key)), &NO_ENTRY).unwrap();
            }
        });
        run.on.sim.sched.run_some(200);
    }
    change(&engine, |txn| {
        (0..100u32).for_each(|key| {
            txn.insert(&other, &key.to_be_bytes(), Row::from(&[1; 50][..]), &NO_ENTRY).unwrap();
        });
    });
    run.pause();
    assert_eq!(status(&engine, "history_length"), 0);
    (engine, table, other)
}

fn sink(engine: &Arc<Engine>, table: &Table) {
    let storage = &engine.core().storage;
    storage.checkpoint().unwrap();
    storage.cold.clone().unwrap().sinker.sink_all().unwrap();
    storage.map.keep_clean_copies(0);
    assert!((KEYS / 2..KEYS - 10).all(|key| is_there(engine, table, key)));
}

/// Rows of both tables are deleted, in the order of the tables, and a reader holds that back until their leaves are in the store alone.
fn deleted(run: &Run) -> (Arc<Engine>, Arc<Table>, Arc<Txn>) {
    let (engine, table, other) = filled(run);
    let reader = engine.begin(Isolation::RepeatableRead);
    reader.open_view();
    change(&engine, |txn| {
        (0..40u32).filter(|key| *key != LARGE).for_each(|key| {
            txn.delete(&table, &key.to_be_bytes(), &NO_ENTRY).unwrap();
        });
    });
    change(&engine, |txn| txn.delete(&table, &LARGE.to_be_bytes(), &NO_ENTRY).unwrap());
    change(&engine, |txn| txn.delete(&table, &(KEYS - 1).to_be_bytes(), &NO_ENTRY).unwrap());
    change(&engine, |txn| {
        (0..90u32).for_each(|key| txn.delete(&other, &key.to_be_bytes(), &NO_ENTRY).unwrap());
    });
    sink(&engine, &table);
    assert_eq!(status(&engine, "history_length"), 4);
    (engine, table, reader)
}

fn what_is_lost_is_passed_by() {
    let run = Run::new(1);
    let (engine, table, reader) = deleted(&run);
    run.lose(&engine, "db/t");
    drop(reader);
    run.pause();
    assert_eq!(status(&engine, "history_length"), 0, "{:?}", note(&engine, "purge_trouble"));
    // Memory has some leaves.
    let left = status(&engine, "purge_unreadable");
    assert!((10..=40).contains(&left), "{left}");
    let trouble = note(&engine, "purge_trouble").unwrap();
    assert!(
        trouble.contains(&format!("has left {left} "))
            && trouble.contains("page ")
            && trouble.contains("object"),
        "{trouble}"
    );
    assert!(!is_there(&engine, &table, KEYS - 1) && is_there(&engine, &table, KEYS - 2));
    assert_eq!(engine.core().purge.throttle.delay(), 0);
    engine.core().storage.stop();
}

#[test]
fn pages_lost_for_good_block_no_other_work() {
    let _one = kit::alone();
    what_is_lost_is_passed_by();
}

#[test]
fn a_purge_that_waits_for_a_lost_page_is_found() {
    let _one = kit::alone();
    planted::LOST_PAGE_WAITED_FOR.set(true);
    let found = std::panic::catch_unwind(what_is_lost_is_passed_by).is_err();
    planted::LOST_PAGE_WAITED_FOR.set(false);
    assert!(found);
}

#[test]
fn a_store_that_does_not_answer_is_waited_for_and_slows_no_writer() {
    let _one = kit::alone();
    let run = Run::new(2);
    let (engine, table, reader) = deleted(&run);
    run.on.store().faults.dead.store(true, Ordering::SeqCst);
    drop(reader);
    run.pause();
    let trouble = note(&engine, "purge_trouble").unwrap();
    assert!(trouble.contains("the store is dead"), "{trouble}");
    assert!(status(&engine, "purge_lag") > 10 * LAG_MAX as u64 && status(&engine, "history_length") > 0);
    assert_eq!((engine.core().purge.throttle.delay(), status(&engine, "purge_unreadable")), (0, 0));
    run.on.store().faults.dead.store(false, Ordering::SeqCst);
    run.pause();
    assert_eq!((status(&engine, "history_length"), note(&engine, "purge_trouble")), (0, None));
    assert_eq!(status(&engine, "purge_unreadable"), 0);
    assert!((0..40).all(|key| !is_there(&engine, &table, key)) && is_there(&engine, &table, 40));
    engine.core().storage.stop();
}

/// It has objects of another instance, and so none of this one's.
#[test]
fn pages_absent_from_a_foreign_store_do_not_count_as_lost() {
    let _one = kit::alone();
    let run = Run::new(3);
    let theirs = Run::new(4);
    drop(theirs.open());
    let (engine, _table, reader) = deleted(&run);
    let (epoch, _) = theirs.on.store().get(Purpose::Epoch, "epoch").unwrap();
    run.on.store().delete(Purpose::Epoch, "epoch").unwrap();
    run.on.store().put_if_absent(Purpose::Epoch, "epoch", &[epoch.into()]).unwrap();
    run.lose(&engine, "db/t");
    drop(reader);
    run.pause();
    assert!(status(&engine, "history_length") > 0 && status(&engine, "purge_unreadable") == 0);
    assert!(
        note(&engine, "purge_trouble").is_some_and(|what| what.contains("is no longer in the object store"))
    );
    assert_eq!(engine.core().purge.throttle.delay(), 0);
    engine.core().storage.stop();
}

#[test]
fn redo_that_can_t_be_applied_names_its_page() {
    let _one = kit::alone();
    let run = Run::new(5);
    let (engine, table, other) = filled(&run);
    sink(&engine, &table);
    change(&engine, |txn| {
        let new = Row::from(&[2; 3000][..]);
        txn.update(&table, &10u32.to_be_bytes(), new, &NO_ENTRY, &NO_ENTRY).unwrap();
    });
    run.lose(&engine, "db/t");
    run.on.sim.sched.drop_workers();
    drop((engine, table, other));
    run.on.volume.crash();
    let engine = run.open();
    run.pause();
    let trouble = note(&engine, "redo_trouble").unwrap();
    assert!(trouble.contains("page ") && trouble.contains("object"), "{trouble}");
    // It is gone with the table.
    engine.drop_table("db/t").unwrap();
    run.pause();
    assert_eq!(note(&engine, "redo_trouble"), None);
    engine.core().storage.stop();
}
