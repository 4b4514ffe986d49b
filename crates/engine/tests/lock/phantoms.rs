//! Phantoms: a range that a locking read at REPEATABLE READ has counted does not change until its transaction ends,
//! beside threads that insert, delete and move entries in the same ranges.

#[path = "../kit/mod.rs"]
mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::Txn;

const KEYS: u64 = 48;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn entry_key(group: u64, key: u64) -> Vec<u8> {
    [group.to_be_bytes(), key.to_be_bytes()].concat()
}

fn entry(key: &[u8]) -> Entry<'_> {
    Entry { index: 1, key, unique_len: None, primary_at: 8, value: b"" }
}

/// Keys from `from` to `to` (exclusive) of an index, read with a lock.
fn range(
    txn: &Arc<Txn>,
    table: &Arc<Table>,
    index: usize,
    (from, to): (u64, u64),
    lock: Lock,
    backward: bool,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut cursor = txn.cursor(table, index, lock, Access::Normal)?;
    let mut found = Vec::new();
    let (first, last) = (from.to_be_bytes(), to.to_be_bytes());
    let mut valid =
        if backward { cursor.seek(&last, Seek::Before)? } else { cursor.seek(&first, Seek::AtLeast)? };
    while valid && (if backward { cursor.key() >= &first[..] } else { cursor.key() < &last[..] }) {
        found.push(cursor.key().to_vec());
        valid = if backward { cursor.prev()? } else { cursor.next()? };
    }
    if backward {
        found.reverse();
    }
    Ok(found)
}

/// One transaction of a thread. Reads a range twice, with its own and others' work in between.
fn turn(
    engine: &Arc<Engine>,
    table: &Arc<Table>,
    random: &mut Random,
    phantoms: &AtomicU64,
) -> Result<(), Error> {
    let isolation = if random.below(4) == 0 { Isolation::Serializable } else { Isolation::RepeatableRead };
    let txn = engine.begin(isolation);
    if random.below(2) == 0 {
        let (index, backward) = (random.below(2) as usize, random.below(2) == 0);
        let from = random.below(KEYS);
        let to = from + random.below(KEYS / 4);
        let lock = if random.below(2) == 0 { Lock::Shared } else { Lock::Exclusive };
        let before = range(&txn, table, index, (from, to), lock, backward)?;
        std::thread::sleep(Duration::from_micros(random.below(300)));
        let after = range(&txn, table, index, (from, to), lock, random.below(2) == 0)?;
        if before != after && phantoms.fetch_add(1, Ordering::Relaxed) < 5 {
            println!("index {index} {from}..{to} {lock:?} backward {backward}: {before:?} then {after:?}");
        }
    } else {
        for _ in 0..1 + random.below(3) {
            let key = random.below(KEYS);
            let mut row = Vec::new();
            if txn.get(table, &key.to_be_bytes(), Lock::Exclusive, &mut row)? {
                let old = entry_key(u64::from(row[0]), key);
                if random.below(2) == 0 {
                    txn.delete(table, &key.to_be_bytes(), &[entry(&old)])?;
                } else {
                    let group = random.below(KEYS);
                    let new = entry_key(group, key);
                    if new != old {
                        txn.update(
                            table,
                            &key.to_be_bytes(),
                            &[group as u8],
                            &[entry(&old)],
                            &[entry(&new)],
                        )?;
                    }
                }
            } else {
                let group = random.below(KEYS);
                txn.insert(table, &key.to_be_bytes(), &[group as u8], &[entry(&entry_key(group, key))])?;
            }
        }
    }
    if random.below(8) == 0 { txn.rollback() } else { txn.commit().map(|_| ()) }
}

#[test]
fn no_row_is_inserted_into_a_range_that_was_read_with_a_lock() {
    let (engine, table) = kit::threads::engine("group", false);
    let (phantoms, turns, deadlocks) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    // Four seconds, or longer until enough has been done.
    let (until, never) = (Instant::now() + Duration::from_secs(4), Instant::now() + Duration::from_secs(120));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (engine, table, phantoms, turns, deadlocks) =
                (&engine, &table, &phantoms, &turns, &deadlocks);
            scope.spawn(move || {
                let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (thread + 1));
                while Instant::now() < until || turns.load(Ordering::Relaxed) <= 200 && Instant::now() < never
                {
                    match turn(engine, table, &mut random, phantoms) {
                        Ok(()) => turns.fetch_add(1, Ordering::Relaxed),
                        Err(Error::Deadlock) => deadlocks.fetch_add(1, Ordering::Relaxed),
                        Err(other) => panic!("{other}"),
                    };
                }
            });
        }
    });
    let (turns, deadlocks) = (turns.into_inner(), deadlocks.into_inner());
    println!("{turns} transactions, {deadlocks} deadlocks");
    assert_eq!(phantoms.into_inner(), 0);
    assert!(turns > 200, "{turns} transactions");
    assert_eq!((engine.core().locks.held(), engine.core().locks.gaps_held()), (0, 0));
}

#[test]
fn read_committed_locks_no_gaps() {
    let (engine, table) = kit::threads::engine("group", false);
    let reader = engine.begin(Isolation::ReadCommitted);
    assert!(range(&reader, &table, 0, (0, 10), Lock::Exclusive, false).unwrap().is_empty());
    let writer = engine.begin(Isolation::ReadCommitted);
    writer.set_lock_wait_timeout_ms(0);
    writer.insert(&table, &5u64.to_be_bytes(), b"x", &[]).unwrap();
    writer.commit().unwrap();
    assert_eq!(range(&reader, &table, 0, (0, 10), Lock::Exclusive, false).unwrap().len(), 1);
}

#[test]
fn a_gap_ends_where_the_condition_ends() {
    let (engine, table) = kit::threads::engine("group", false);
    let reader = engine.begin(Isolation::RepeatableRead);
    let mut row = Vec::new();
    assert!(!reader.get(&table, &5u64.to_be_bytes(), Lock::Exclusive, &mut row).unwrap());
    let writer = engine.begin(Isolation::RepeatableRead);
    writer.set_lock_wait_timeout_ms(0);
    writer.insert(&table, &4u64.to_be_bytes(), b"x", &[]).unwrap();
    writer.insert(&table, &6u64.to_be_bytes(), b"x", &[]).unwrap();
    assert!(matches!(writer.insert(&table, &5u64.to_be_bytes(), b"x", &[]), Err(Error::LockTimeout)));
    reader.rollback().unwrap();
    writer.insert(&table, &5u64.to_be_bytes(), b"x", &[]).unwrap();
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_an_insert_into_a_locked_gap_is_found_by_one_run() {
    terrace_engine::planted::GAP_IGNORED.set(true);
    let found = std::panic::catch_unwind(a_gap_ends_where_the_condition_ends).is_err();
    terrace_engine::planted::GAP_IGNORED.set(false);
    assert!(found);
}
