//! A rollback fails because the pages that it has to read are in a dead store: no change of the transaction is ever committed, and the volume opens
//! again. When the store answers, the rollback resumes, whether the engine was restarted or not.

#[path = "../kit/mod.rs"]
mod kit;

use kit::far::Run;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Row;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::lock::Phase;
use terrace_engine::planted;
use terrace_io::sched::{Event, Step, Worker};
use terrace_sim::SimStore;

const NO_ENTRY: [Entry<'static>; 0] = [];
const KEYS: u32 = 6000;

fn begin(engine: &Arc<Engine>) -> Arc<Txn> {
    engine.begin(Isolation::RepeatableRead)
}

fn update(txn: &Txn, table: &Table, key: u32, byte: u8) {
    txn.update(table, &key.to_be_bytes(), Row::from(&vec![byte; 3000]), &NO_ENTRY, &NO_ENTRY).unwrap();
}

fn is(engine: &Arc<Engine>, table: &Table, key: u32, byte: u8) -> bool {
    let mut row = Vec::new();
    assert!(begin(engine).get(table, &key.to_be_bytes(), Lock::None, &mut row).unwrap());
    row == vec![byte; 3000]
}

/// A table of rows that memory does not hold.
fn filled() -> (Run, Arc<Engine>, Arc<Table>) {
    let run = Run::new(12, 64 << 20);
    let (engine, table) = run.open();
    let txn = begin(&engine);
    for key in 0..KEYS {
        txn.insert(&table, &key.to_be_bytes(), Row::from(&vec![1; 3000]), &NO_ENTRY).unwrap();
        if key % 100 == 0 {
            run.pause();
        }
    }
    txn.commit().unwrap().wait().unwrap();
    (run, engine, table)
}

/// All goes to the store, and the first rows leave memory.
fn sink(engine: &Arc<Engine>, table: &Table) {
    let storage = &engine.core().storage;
    storage.checkpoint().unwrap();
    storage.cold.clone().unwrap().sinker.sink_all().unwrap();
    leave_memory(engine, table);
}

fn leave_memory(engine: &Arc<Engine>, table: &Table) {
    engine.core().storage.map.keep_clean_copies(0);
    assert!((500..KEYS).all(|key| is(engine, table, key, 1)));
}

/// Time passes until no rollback is left to the background.
fn wait_for_rollbacks(run: &Run, engine: &Engine) {
    for _ in 0..10_000 {
        if left(engine) == 0 {
            return;
        }
        run.pause();
    }
    panic!("{} rollbacks are left", left(engine));
}

fn set_dead(run: &Run, dead: bool) {
    run.on.store().faults.dead.store(dead, Ordering::SeqCst);
}

/// Other transactions follow while this one can't be rolled back yet; then power is lost, and the store works again.
fn goes_on(run: &Run, engine: Arc<Engine>, table: Arc<Table>, purges: bool) {
    for byte in 3..6 {
        let txn = begin(&engine);
        update(&txn, &table, KEYS - 1, byte);
        txn.commit().unwrap().wait().unwrap();
    }
    (0..if purges { 100 } else { 0 }).for_each(|_| run.pause());
    assert_eq!(engine.core().purge.history.lock().is_empty(), purges);
    engine.make_durable().unwrap();
    run.on.sim.sched.drop_workers();
    drop((engine, table));
    run.on.volume.crash();
    set_dead(run, false);
    let (engine, table) = run.open();
    (0..50).for_each(|_| run.pause());
    assert!(is(&engine, &table, KEYS - 1, 5));
    assert!(is(&engine, &table, 0, 1), "what was rolled back is there");
}

/// The rollback of a whole transaction.
fn rolled_back(purges: bool) {
    let (run, engine, table) = filled();
    let txn = begin(&engine);
    update(&txn, &table, 0, 2);
    sink(&engine, &table);
    set_dead(&run, true);
    assert!(txn.rollback().is_err());
    drop(txn);
    goes_on(&run, engine, table, purges);
}

fn left(engine: &Engine) -> u64 {
    engine.core().rollbacks.count()
}

/// Several transactions, each with its own undo stream; one is rolled back in two parts, because the store fails in between.
#[test]
fn a_failed_rollback_resumes_when_the_store_answers() {
    let _one = kit::alone();
    let (run, engine, table) = filled();
    let txns: Vec<_> = (0..3).map(|_| begin(&engine)).collect();
    for (n, txn) in (0..).zip(&txns) {
        (0..50).for_each(|step| update(txn, &table, n + 3 * step, 2));
    }
    sink(&engine, &table);
    set_dead(&run, true);
    assert!(txns.iter().all(|txn| txn.rollback().is_err()));
    drop(txns);
    (0..100).for_each(|_| run.pause());
    assert_eq!(left(&engine), 3);
    let trouble =
        || engine.notes().into_iter().find(|(name, _)| *name == "rollback_trouble").map(|(_, what)| what);
    assert!(trouble().is_some_and(|what| what.contains("the store is dead")));
    let rolled_back = engine.core().counters.rolled_back.load(Ordering::SeqCst);
    let other = begin(&engine);
    other.set_lock_wait_timeout_ms(0);
    set_dead(&run, false);
    let tried = |key: u32| {
        let row = Row::from(&[3; 3000][..]);
        other.update(&table, &key.to_be_bytes(), row, &NO_ENTRY, &NO_ENTRY)
    };
    assert!(matches!(tried(0), Err(Error::LockTimeout)), "its rows are locked as long as it is there");
    for _ in 0..10_000 {
        if left(&engine) < 3 {
            break;
        }
        run.pause();
    }
    set_dead(&run, true);
    (0..100).for_each(|_| run.pause());
    set_dead(&run, false);
    wait_for_rollbacks(&run, &engine);
    assert_eq!(trouble(), None);
    assert_eq!(engine.core().counters.rolled_back.load(Ordering::SeqCst) - rolled_back, 3);
    assert!((0..150).all(|key| is(&engine, &table, key, 1)));
    (0..150).for_each(|key| tried(key).unwrap());
    other.commit().unwrap().wait().unwrap();
    assert!((0..150).all(|key| is(&engine, &table, key, 3)));
}

fn finds(switch: &planted::Switch, fails: impl FnOnce() + std::panic::UnwindSafe) {
    let _one = kit::alone();
    switch.set(true);
    let found = std::panic::catch_unwind(fails).is_err();
    switch.set(false);
    assert!(found);
}

#[test]
fn a_volume_with_a_failed_rollback_opens_again() {
    let _one = kit::alone();
    rolled_back(false);
}

#[test]
fn purge_of_later_transactions_keeps_the_undo_of_a_failed_rollback() {
    let _one = kit::alone();
    rolled_back(true);
}

#[test]
fn half_a_statement_is_not_committed() {
    let _one = kit::alone();
    statement_undone_in_part();
}

#[test]
fn a_planted_reuse_of_an_unfinished_rollbacks_undo_stream_is_found() {
    finds(&planted::UNFINISHED_STREAM_REUSED, || rolled_back(false));
    finds(&planted::UNFINISHED_STREAM_REUSED, || rolled_back(true));
}

#[test]
fn a_planted_commit_of_half_a_statement_is_found() {
    finds(&planted::HALF_A_STATEMENT_COMMITTED, statement_undone_in_part);
}

/// The rollback of a statement, in a transaction that is then to be committed.
fn statement_undone_in_part() {
    let (run, engine, table) = filled();
    let txn = begin(&engine);
    update(&txn, &table, 2000, 1);
    txn.statement_begin();
    update(&txn, &table, 0, 2);
    sink(&engine, &table);
    set_dead(&run, true);
    assert!(txn.statement_rollback().is_err());
    // Prepare fails, too: with the binary log the transaction would be committed on a replica.
    assert!(txn.prepare(b"xid").is_err() || planted::HALF_A_STATEMENT_COMMITTED.on());
    let committed = txn.commit();
    assert!(committed.is_err() || planted::HALF_A_STATEMENT_COMMITTED.on());
    drop((committed, txn));
    goes_on(&run, engine, table, true);
}

/// A prepared transaction found at recovery is to be rolled back by its name: the call fails once, and the name is gone.
#[test]
fn a_failed_rollback_of_a_recovered_prepared_transaction_is_resumed() {
    let _one = kit::alone();
    let (run, engine, table) = filled();
    let txn = begin(&engine);
    (0..50).for_each(|key| update(&txn, &table, key, 2));
    txn.prepare(b"xid").unwrap();
    sink(&engine, &table);
    run.on.sim.sched.drop_workers();
    drop((txn, engine, table));
    run.on.volume.crash();
    let (engine, table) = run.open();
    leave_memory(&engine, &table);
    let phases =
        |phase: Phase| engine.core().locks.running.all().into_iter().filter(|one| one.phase == phase).count();
    assert_eq!((phases(Phase::Prepared), phases(Phase::RollingBack)), (1, 0));
    set_dead(&run, true);
    assert!(engine.rollback_prepared(b"xid").is_err());
    assert!(engine.prepared().is_empty() && engine.tables_of_prepared(&[]).unwrap().is_empty());
    assert_eq!((phases(Phase::Prepared), phases(Phase::RollingBack)), (0, 1));
    assert!(engine.commit_prepared(b"xid").is_err());
    set_dead(&run, false);
    wait_for_rollbacks(&run, &engine);
    assert_eq!(phases(Phase::RollingBack), 0);
    let other = begin(&engine);
    other.set_lock_wait_timeout_ms(0);
    (0..50).for_each(|key| update(&other, &table, key, 3));
}

/// Sinks all blocks and kills the store while a transaction waits.
struct Killer {
    engine: Arc<Engine>,
    table: Arc<Table>,
    store: Arc<SimStore>,
    wake: Arc<Event>,
}

impl Worker for Killer {
    fn name(&self) -> &'static str {
        "killer"
    }
    fn step(&mut self) -> Step {
        if !self.store.faults.dead.load(Ordering::SeqCst) {
            sink(&self.engine, &self.table);
            self.store.faults.dead.store(true, Ordering::SeqCst);
        }
        Step::Idle
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}

/// A row's change can't be undone when its entry is in the way of another; then the store is back, and the statement is undone.
#[test]
fn a_transaction_may_commit_again_once_its_failed_statement_is_undone() {
    let _one = kit::alone();
    let (run, engine, filler) = filled();
    let indexes = ["PRIMARY", "u"].map(|name| IndexDef { name: name.into(), unique: true }).to_vec();
    let table = engine.create_table("db/u", &TableDef { indexes, properties: Vec::new() }).unwrap();
    let entry =
        |key: &'static [u8]| [Entry { index: 1, key, unique_len: Some(1), primary_at: 1, value: b"" }];
    let first = begin(&engine);
    first.insert(&table, b"A", Row::from(&[7; 40][..]), &entry(b"aA")).unwrap();
    first.commit().unwrap().wait().unwrap();
    let one = begin(&engine);
    one.insert(&table, b"B", Row::from(&[7; 40][..]), &entry(b"bB")).unwrap();
    let two = begin(&engine);
    two.insert(&table, b"C", Row::from(&[7; 40][..]), &entry(b"cC")).unwrap();
    two.statement_begin();
    two.set_lock_wait_timeout_ms(2000);
    let (store, wake) = (run.on.store().clone(), Arc::new(Event::new()));
    let killer = Killer { engine: engine.clone(), table: filler, store, wake };
    let killer = run.on.sim.world().sched.spawn(Box::new(killer));
    let failed = two.update(&table, b"A", Row::from(&[8; 40][..]), &entry(b"aA"), &entry(b"bA"));
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    drop(killer);
    assert!(two.commit().is_err());
    set_dead(&run, false);
    two.statement_rollback().unwrap();
    two.commit().unwrap().wait().unwrap();
    let now = begin(&engine);
    for key in [b"A", b"C"] {
        let mut row = Vec::new();
        assert!(now.get(&table, key, Lock::None, &mut row).unwrap() && row == [7; 40]);
    }
}
