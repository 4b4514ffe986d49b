//! A rollback that fails because the store is dead, and what it would have to read is there: nothing of the transaction is ever committed, and the volume
//! opens again.

mod far;

use far::Run;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use terrace_engine::{Engine, Entry, Isolation, Lock, Row, Table, Txn, planted};

const NO_ENTRY: [Entry<'static>; 0] = [];
const KEYS: u32 = 4000;

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
    storage.map.keep_clean_copies(0);
    assert!((500..KEYS).all(|key| is(engine, table, key, 1)));
}

fn set_dead(run: &Run, dead: bool) {
    run.store.faults.dead.store(dead, Ordering::SeqCst);
}

/// Others come after the transaction; then power is lost.
fn goes_on(run: &Run, engine: Arc<Engine>, table: Arc<Table>, purges: bool) {
    for byte in 3..6 {
        let txn = begin(&engine);
        update(&txn, &table, 3000, byte);
        txn.commit().unwrap().wait().unwrap();
    }
    (0..if purges { 100 } else { 0 }).for_each(|_| run.pause());
    assert_eq!(engine.core().history.lock().is_empty(), purges);
    engine.make_durable().unwrap();
    run.sim.sched.drop_workers();
    drop((engine, table));
    run.disk.crash();
    let (engine, table) = run.open();
    (0..50).for_each(|_| run.pause());
    assert!(is(&engine, &table, 3000, 5));
    assert!(is(&engine, &table, 0, 1), "what was rolled back is there");
}

/// Of a whole transaction.
fn rolled_back(purges: bool) {
    let (run, engine, table) = filled();
    let txn = begin(&engine);
    update(&txn, &table, 0, 2);
    sink(&engine, &table);
    set_dead(&run, true);
    assert!(txn.rollback().is_err());
    drop(txn);
    set_dead(&run, false);
    goes_on(&run, engine, table, purges);
}

/// The switches are global.
static ONE: Mutex<()> = Mutex::new(());

fn finds(switch: &planted::Switch, fails: impl FnOnce() + std::panic::UnwindSafe) {
    let _one = ONE.lock();
    switch.set(true);
    let found = std::panic::catch_unwind(fails).is_err();
    switch.set(false);
    assert!(found);
}

#[test]
fn the_volume_opens_again() {
    let _one = ONE.lock();
    rolled_back(false);
}

#[test]
fn purge_of_the_next_transactions_forgets_nothing_of_it() {
    let _one = ONE.lock();
    rolled_back(true);
}

#[test]
fn half_a_statement_is_not_committed() {
    let _one = ONE.lock();
    statement_undone_in_part();
}

#[test]
fn a_stream_that_the_next_transaction_takes_is_found() {
    finds(&planted::UNFINISHED_STREAM_REUSED, || rolled_back(false));
    finds(&planted::UNFINISHED_STREAM_REUSED, || rolled_back(true));
}

#[test]
fn a_commit_of_half_a_statement_is_found() {
    finds(&planted::HALF_A_STATEMENT_COMMITTED, statement_undone_in_part);
}

/// Of a statement, in a transaction that is then to be committed.
fn statement_undone_in_part() {
    let (run, engine, table) = filled();
    let txn = begin(&engine);
    update(&txn, &table, 2000, 1);
    txn.statement_begin();
    update(&txn, &table, 0, 2);
    sink(&engine, &table);
    set_dead(&run, true);
    assert!(txn.statement_rollback().is_err());
    set_dead(&run, false);
    // Nor is it prepared: with the binary log it would be committed for a replica.
    assert!(txn.prepare(b"xid").is_err() || planted::HALF_A_STATEMENT_COMMITTED.on());
    let committed = txn.commit();
    assert!(committed.is_err() || planted::HALF_A_STATEMENT_COMMITTED.on());
    drop((committed, txn));
    goes_on(&run, engine, table, true);
}
