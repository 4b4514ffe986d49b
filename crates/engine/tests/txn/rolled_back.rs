//! Neither a unique check nor a locking read takes account of a change that is rolled back, however shortly before the
//! rollback they meet it.
//!
//! `TERRACE_MS` sets how long each race goes on, in milliseconds (default 500).

#[path = "../kit/mod.rs"]
mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Table;
use terrace_engine::Txn;

fn entry_key(key: u64) -> Vec<u8> {
    [&b"value"[..], &key.to_be_bytes()].concat()
}
fn entry(key: &[u8]) -> Entry<'_> {
    Entry { index: 1, key, unique_len: Some(5), primary_at: 5, value: b"" }
}
fn insert(txn: &Txn, table: &Table, key: u64) -> Result<(), Error> {
    txn.insert(table, &key.to_be_bytes(), b"0", &[entry(&entry_key(key))])
}

/// Two threads change and roll back, two do `look`, for a while.
fn race(
    isolation: Isolation,
    change: impl Fn(&Txn, &Table, u64) -> Result<(), Error> + Sync,
    look: impl Fn(&Arc<Txn>, &Table, u64) + Sync,
    before: impl Fn(&Txn, &Table),
) {
    let (engine, table) = kit::threads::engine("unique", true);
    let txn = engine.begin(Isolation::ReadCommitted);
    before(&txn, &table);
    txn.commit().unwrap().wait().unwrap();
    let ms = std::env::var("TERRACE_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(500);
    let end = Instant::now() + Duration::from_millis(ms);
    let failed = AtomicBool::new(false);
    let goes_on = || Instant::now() < end && !failed.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for key in [2, 3] {
            let (change, goes_on, engine, table) = (&change, &goes_on, &engine, &table);
            scope.spawn(move || {
                while goes_on() {
                    let txn = engine.begin(isolation);
                    txn.statement_begin();
                    match change(&txn, table, key) {
                        Ok(()) | Err(Error::Deadlock) => {}
                        Err(error) => panic!("{error}"),
                    }
                    txn.rollback().unwrap();
                }
            });
        }
        for key in [4, 5] {
            let (look, goes_on, engine, table, failed) = (&look, &goes_on, &engine, &table, &failed);
            scope.spawn(move || {
                while goes_on() {
                    let txn = engine.begin(isolation);
                    txn.statement_begin();
                    let seen =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&txn, table, key)));
                    txn.rollback().unwrap();
                    if let Err(panic) = seen {
                        failed.store(true, Ordering::Relaxed);
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

#[test]
fn a_unique_key_whose_deletion_is_rolled_back_keeps_others_out() {
    race(
        Isolation::ReadCommitted,
        |txn, table, _| txn.delete(table, &1u64.to_be_bytes(), &[entry(&entry_key(1))]),
        |txn, table, key| {
            let inserted = insert(txn, table, key);
            assert!(matches!(inserted, Err(Error::Duplicate { index: 1 } | Error::Deadlock)), "{inserted:?}");
        },
        |txn, table| insert(txn, table, 1).unwrap(),
    );
}

#[test]
fn a_unique_key_that_is_always_rolled_back_is_no_duplicate() {
    race(
        Isolation::ReadCommitted,
        insert,
        |txn, table, key| {
            let inserted = insert(txn, table, key);
            assert!(matches!(inserted, Ok(()) | Err(Error::Deadlock)), "{inserted:?}");
        },
        |_, _| (),
    );
}

#[test]
fn a_locking_read_gets_the_committed_row_beside_roll_backs() {
    for deletes in [false, true] {
        race(
            Isolation::ReadCommitted,
            |txn, table, _| match deletes {
                true => txn.delete(table, &1u64.to_be_bytes(), &[entry(&entry_key(1))]),
                false => txn.update(table, &1u64.to_be_bytes(), b"1", &[], &[]),
            },
            |txn, table, _| {
                let mut row = Vec::new();
                match txn.get(table, &1u64.to_be_bytes(), Lock::Exclusive, &mut row) {
                    Err(Error::Deadlock) => {}
                    found => assert_eq!((found.unwrap(), &row[..]), (true, &b"0"[..]), "deletes: {deletes}"),
                }
            },
            |txn, table| insert(txn, table, 1).unwrap(),
        );
    }
}

#[test]
fn a_reader_sees_the_committed_row_though_a_delete_mark_takes_the_place_of_an_update_that_is_rolled_back() {
    let key = 1u64.to_be_bytes();
    race(
        Isolation::ReadCommitted,
        |txn, table, _| {
            let before = txn.savepoint();
            txn.update(table, &key, b"1", &[], &[])?;
            txn.rollback_to(before)?;
            txn.delete(table, &key, &[entry(&entry_key(1))])
        },
        |txn, table, _| {
            let mut row = Vec::new();
            assert_eq!((txn.get(table, &key, Lock::None, &mut row).unwrap(), &row[..]), (true, &b"0"[..]));
        },
        |txn, table| insert(txn, table, 1).unwrap(),
    );
}
