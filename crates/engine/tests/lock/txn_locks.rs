//! Row locks against a model: sessions in one thread, interleaved by the seed, lock the same few rows for
//! reading, change what they read some statements later, set rows they never read, and commit or roll back.
//! No session waits: one that meets a conflicting lock rolls back. No other commit changes a row that a session has
//! locked, and each row's value is the one that its last commit gave it.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::Config;
use terrace_io::random::Random;

const KEYS: u64 = 5;
const SESSIONS: usize = 4;
const STEPS: usize = 500;

#[derive(Default)]
struct Session {
    txn: Option<Arc<Txn>>,
    /// Locked by a locking read, and the value it gave.
    locked: BTreeMap<u64, u64>,
    changed: BTreeMap<u64, u64>,
}

struct Run {
    on: Machine,
    engine: Arc<Engine>,
    table: Arc<Table>,
    committed: BTreeMap<u64, u64>,
    serial: u64,
    conflicts: u64,
    commits: u64,
}

fn number(row: &[u8]) -> u64 {
    u64::from_be_bytes(row[..8].try_into().unwrap())
}

impl Run {
    fn new(seed: u64) -> Run {
        let on = Machine::new(seed);
        let config = Config { log_partitions: 1, ..kit::config(4 << 20, 4 << 20, 16 << 20) };
        let engine = on.open(config).unwrap();
        let table = engine.create_table("db/t", &kit::primary()).unwrap();
        let txn = engine.begin(Isolation::RepeatableRead);
        for key in 0..KEYS {
            txn.insert(&table, &key.to_be_bytes(), &0u64.to_be_bytes(), &[]).unwrap();
        }
        txn.commit().unwrap();
        let committed = (0..KEYS).map(|key| (key, 0)).collect();
        Run { on, engine, table, committed, serial: 1000, conflicts: 0, commits: 0 }
    }

    fn put(&self, txn: &Txn, key: u64, value: u64) -> Result<(), Error> {
        txn.update(&self.table, &key.to_be_bytes(), &value.to_be_bytes(), &[], &[])
    }

    fn one(&mut self, s: &mut Session) -> Result<(), Error> {
        let (random, seed) = (self.on.sim.random.clone(), self.on.sim.seed);
        let txn = s.txn.get_or_insert_with(|| self.engine.begin(Isolation::RepeatableRead)).clone();
        txn.set_lock_wait_timeout_ms(0);
        txn.statement_begin();
        let key = random.below(KEYS);
        match random.below(10) {
            0..=2 => {
                let mut row = Vec::new();
                assert!(txn.get(&self.table, &key.to_be_bytes(), Lock::Exclusive, &mut row)?);
                let newest = s.changed.get(&key).unwrap_or(&self.committed[&key]);
                assert_eq!(number(&row), *newest, "seed {seed}: a locking read of key {key}");
                s.locked.insert(key, number(&row));
            }
            3..=5 => {
                let Some((key, read)) = s.locked.pop_first() else { return Ok(()) };
                let now = s.changed.get(&key).unwrap_or(&self.committed[&key]);
                assert_eq!(read, *now, "seed {seed}: key {key} was locked and has changed");
                self.put(&txn, key, read + 1)?;
                s.changed.insert(key, read + 1);
            }
            6 => {
                self.serial += 1000;
                self.put(&txn, key, self.serial)?;
                s.changed.insert(key, self.serial);
                s.locked.remove(&key);
            }
            7 => {
                let savepoint = txn.savepoint();
                self.put(&txn, key, 1)?;
                txn.rollback_to(savepoint)?;
            }
            8 => {
                txn.commit()?;
                self.committed.append(&mut s.changed);
                *s = Session::default();
                self.commits += 1;
            }
            _ => {
                txn.rollback()?;
                *s = Session::default();
            }
        }
        Ok(())
    }

    fn check(&self) {
        let txn = self.engine.begin(Isolation::RepeatableRead);
        let mut row = Vec::new();
        for (key, value) in &self.committed {
            assert!(txn.get(&self.table, &key.to_be_bytes(), Lock::None, &mut row).unwrap());
            assert_eq!(number(&row), *value, "seed {}: key {key}", self.on.sim.seed);
        }
    }
}

/// Commits, and locks that were in the way.
fn interleaved(seed: u64) -> (u64, u64) {
    let mut run = Run::new(seed);
    let mut sessions: [Session; SESSIONS] = Default::default();
    for step in 0..STEPS {
        let s = &mut sessions[run.on.sim.random.below(SESSIONS as u64) as usize];
        match run.one(s) {
            Ok(()) => {}
            Err(Error::LockTimeout | Error::Deadlock) => {
                run.conflicts += 1;
                s.txn.take().unwrap().rollback().unwrap();
                *s = Session::default();
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
        if step % 20 == 0 {
            run.check();
            run.on.sim.sched.run_some(3);
            run.on.sim.clock.advance(10_000_000);
        }
    }
    drop(sessions);
    run.check();
    run.table.check(0).unwrap();
    (run.commits, run.conflicts)
}

#[test]
fn no_session_changes_a_row_that_another_has_locked_and_the_last_commit_counts() {
    let seeds = std::env::var("TERRACE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(24);
    let runs = (0..seeds).map(interleaved).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert!(runs.0 > 20 * seeds && runs.1 > 20 * seeds, "{} commits, {} conflicts", runs.0, runs.1);
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_each_bug_of_locks_is_found_within_ten_seeds() {
    use terrace_engine::planted as engine;
    let bugs = [
        ("LOCK_RELEASED_EARLY", &engine::LOCK_RELEASED_EARLY),
        ("ROW_LOCK_IGNORED", &engine::ROW_LOCK_IGNORED),
        ("ROLLBACK_SKIPS", &engine::ROLLBACK_SKIPS),
    ];
    (0..10).for_each(|seed| _ = interleaved(seed));
    for (name, switch) in bugs {
        switch.set(true);
        let found = (0..10).find(|seed| std::panic::catch_unwind(|| interleaved(*seed)).is_err());
        switch.set(false);
        println!("{name}: found with seed {found:?}");
        assert!(found.is_some(), "{name} was not found");
    }
}

/// The read tried again endlessly and ignored KILL.
#[test]
fn a_locking_read_of_an_index_entry_without_a_row_fails_as_corrupt() {
    let run = Run::new(1);
    let indexes = ["PRIMARY", "k"].map(|name| IndexDef { name: name.into(), unique: name != "k" }).to_vec();
    let table = run.engine.create_table("db/two", &TableDef { indexes, properties: Vec::new() }).unwrap();
    let txn = run.engine.begin(Isolation::ReadCommitted);
    let entry = Entry { index: 1, key: b"k1", unique_len: None, primary_at: 1, value: b"" };
    txn.insert(&table, b"1", b"row", &[entry]).unwrap();
    txn.commit().unwrap();
    assert!(table.tree(0).unwrap().remove(b"1").unwrap());
    for lock in [Lock::Shared, Lock::Exclusive] {
        let txn = run.engine.begin(Isolation::RepeatableRead);
        let mut cursor = txn.cursor(&table, 1, lock, Access::Normal).unwrap();
        let read = cursor.seek(&[], Seek::First).and_then(|_| cursor.row(&mut Vec::new()));
        assert!(
            matches!(&read, Err(Error::Corrupt(what)) if what.contains("has no row")),
            "{lock:?}: {read:?}"
        );
    }
}

#[test]
fn a_savepoint_inside_a_statement_leaves_the_statements_start_where_it_is() {
    let run = Run::new(1);
    let txn = run.engine.begin(Isolation::RepeatableRead);
    let set = |key: u64, value: u64| {
        txn.update(&run.table, &key.to_be_bytes(), &value.to_be_bytes(), &[], &[]).unwrap();
    };
    let value = |key: u64| {
        let mut row = Vec::new();
        assert!(txn.get(&run.table, &key.to_be_bytes(), Lock::None, &mut row).unwrap());
        number(&row)
    };
    txn.statement_begin();
    let before = txn.savepoint();
    set(0, 1);
    txn.statement_begin();
    set(1, 1);
    let inside = txn.savepoint();
    set(2, 1);
    txn.rollback_to(inside).unwrap();
    set(3, 1);
    txn.statement_rollback().unwrap();
    assert_eq!((0..KEYS).map(value).collect::<Vec<_>>(), [1, 0, 0, 0, 0]);
    // Back behind the statement's start: then that is where it starts.
    txn.statement_begin();
    txn.rollback_to(before).unwrap();
    set(4, 1);
    txn.statement_rollback().unwrap();
    assert_eq!((0..KEYS).map(value).collect::<Vec<_>>(), [0; KEYS as usize]);
    txn.commit().unwrap();
}
