//! A transaction ten times as large as the memory is rolled back. The process is killed during the
//! rollback, at several points, started and killed again, and the rollback ends in the background.
//! The table is unchanged each time, and the space can be reused.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::Txn;
use terrace_engine::config::{Config, MEMORY_MIN};
use terrace_engine::tree::space::{HEADER_PAGE, at};
use terrace_io::random::Random;
use terrace_tier::page::{PageId, SpaceId};

type Model = BTreeMap<u64, Vec<u8>>;

/// Rows of the table before the transaction.
const BASE: u64 = 2000;
const ROW: usize = 900;
/// Points of the rollback at which it is killed.
const POINTS: u64 = 3;
/// Rows that the transaction inserts.
const INSERTED: u64 = 26_000;

struct Run {
    on: Machine,
    base: Model,
}

fn row(key: u64, version: u64) -> Vec<u8> {
    let mut row = vec![(key * 31 + version) as u8; if key % 97 == 5 { 20_000 } else { ROW }];
    row[..8].copy_from_slice(&(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version).to_be_bytes());
    row
}

fn entry_key(key: u64, row: &[u8]) -> Vec<u8> {
    [&row[..8], &key.to_be_bytes()].concat()
}

fn entry(key: &[u8]) -> Entry<'_> {
    Entry { index: 1, key, unique_len: None, primary_at: 8, value: b"" }
}

impl Run {
    /// An instance with the base rows in it, on disk.
    fn new(seed: u64) -> (Run, Arc<Engine>, Arc<Table>) {
        let mut run = Run { on: Machine::new(seed), base: Model::new() };
        let engine = run.open().unwrap();
        let def = kit::indexes(&[("PRIMARY", true), ("plain", false)]);
        let table = engine.create_table("db/t", &def).unwrap();
        let txn = engine.begin(Isolation::RepeatableRead);
        for key in 0..BASE {
            let row = row(key, 0);
            txn.insert(&table, &key.to_be_bytes(), &row, &[entry(&entry_key(key, &row))]).unwrap();
            run.base.insert(key, row);
        }
        txn.commit().unwrap().wait().unwrap();
        engine.core().storage.checkpoint().unwrap();
        (run, engine, table)
    }

    fn config() -> Config {
        Config { log_partitions: 2, ..kit::config(MEMORY_MIN, 8 << 20, 512 << 20) }
    }

    fn open(&self) -> Result<Arc<Engine>, Error> {
        self.on.open(Run::config())
    }

    /// The transaction: all base rows changed or deleted, many inserted. Returns the bytes of rows written.
    fn change(&self, txn: &Arc<Txn>, table: &Arc<Table>) -> Result<u64, Error> {
        let mut bytes = 0;
        for (key, old) in &self.base {
            txn.statement_begin();
            let old_key = entry_key(*key, old);
            if key % 5 == 0 {
                txn.delete(table, &key.to_be_bytes(), &[entry(&old_key)])?;
                continue;
            }
            let new = row(*key, 1);
            let new_key = entry_key(*key, &new);
            txn.update(table, &key.to_be_bytes(), &new, &[entry(&old_key)], &[entry(&new_key)])?;
            bytes += new.len() as u64;
        }
        for key in BASE..BASE + INSERTED {
            txn.statement_begin();
            // Inserts come all over the key space.
            let key = BASE + (key - BASE).wrapping_mul(0x9E37_79B1) % (1 << 40);
            let new = row(key, 2);
            txn.insert(table, &key.to_be_bytes(), &new, &[entry(&entry_key(key, &new))])?;
            bytes += new.len() as u64;
        }
        Ok(bytes)
    }

    fn rows(&self, engine: &Arc<Engine>, table: &Arc<Table>, index: usize) -> Model {
        let txn = engine.begin(Isolation::RepeatableRead);
        let mut found = Model::new();
        let mut cursor = txn.cursor(table, index, Lock::None, Access::Scan).unwrap();
        let mut valid = cursor.seek(&[], Seek::First).unwrap();
        let mut row = Vec::new();
        while valid {
            cursor.row(&mut row).unwrap();
            found.insert(u64::from_be_bytes(cursor.primary_key().try_into().unwrap()), row.clone());
            valid = cursor.next().unwrap();
        }
        found
    }

    /// Everything is as before the transaction, down to the structures.
    fn as_it_was(&self, engine: &Arc<Engine>, table: &Arc<Table>, what: &str) {
        for index in 0..2 {
            assert!(self.rows(engine, table, index) == self.base, "{what}: index {index} is not what it was");
            assert_eq!(table.check(index).unwrap(), BASE, "{what}");
        }
        assert_eq!(engine.core().storage.map.faults(), Vec::<String>::new(), "{what}");
    }

    /// Workers run until nothing is left to roll back or to purge.
    fn settle(&self, engine: &Arc<Engine>) -> Result<(), Error> {
        let core = engine.core();
        for _ in 0..100_000 {
            self.on.sim.sched.run_some(100);
            self.on.sim.clock.advance(1_000_000);
            if self.on.sim.crashed() {
                return Err(Error::Poisoned("the power is off".into()));
            }
            core.ids.settle();
            if core.ids.known() == 0 && core.purge.history.lock().is_empty() {
                return Ok(());
            }
        }
        panic!(
            "the rollback does not end: {} known, {} in the history",
            core.ids.known(),
            core.purge.history.lock().len()
        );
    }

    /// Power is lost (unless it is already) and returns.
    fn power_cycle(&self) {
        self.on.power_cycle();
    }

    /// Opens, and lets the background rollback work until it ends or power is lost after `steps` I/O steps.
    /// Returns the pages of undo that it found, None if it did not get so far.
    fn live(&self, steps: Option<u64>, what: &str) -> (Option<u64>, Result<(), Error>) {
        if let Some(steps) = steps {
            self.on.sim.crash_at(self.on.sim.steps() + steps);
        }
        let opened = self.open().and_then(|engine| Ok((engine.open_table("db/t")?, engine)));
        let (table, engine) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                assert!(self.on.sim.crashed(), "{what}: open: {error}");
                return (None, Err(error));
            }
        };
        let left = pages(&engine, &table)[3];
        if steps.is_none() {
            // Changes that are not rolled back yet are locked and invisible.
            assert!(self.rows(&engine, &table, 0) == self.base, "{what}: unfinished changes are seen");
        }
        let settled = self.settle(&engine);
        if settled.is_ok() {
            self.on.sim.power_on(); // it was fast enough: the power stays
            self.as_it_was(&engine, &table, what);
            let [_, used, _, undo] = pages(&engine, &table);
            assert!(used < 400 && undo < 20, "{what}: {used} and {undo} pages are in use");
            // And the rows can be changed.
            let txn = engine.begin(Isolation::RepeatableRead);
            txn.delete(&table, &0u64.to_be_bytes(), &[entry(&entry_key(0, &self.base[&0]))]).unwrap();
            txn.rollback().unwrap();
        }
        assert!(settled.is_ok() || self.on.sim.crashed(), "{what}: {settled:?}");
        (Some(left), settled)
    }

    /// Lives that are cut short, then one that is not. Returns the pages of undo found by each.
    fn lives(&self, first: Option<u64>, steps: u64, what: &str) -> Vec<u64> {
        let mut left = Vec::new();
        let second = 1 + self.on.sim.random.below(steps / 2);
        for cut in [first, Some(second), None].into_iter().skip(usize::from(first.is_none())) {
            let (found, settled) = self.live(cut, what);
            left.extend(found);
            if settled.is_err() {
                self.power_cycle();
            }
        }
        left
    }
}

/// The table's pages ever used and in use, then those of undo.
fn pages(engine: &Engine, table: &Table) -> [u64; 4] {
    let mut size = [0; 4];
    for index in 0..2 {
        let counts = table.tree(index).unwrap().space().counts();
        size[0] += u64::from(counts.pages);
        size[1] += u64::from(counts.pages - counts.free);
    }
    let header =
        engine.core().storage.pages.read(PageId::new(SpaceId::UNDO, HEADER_PAGE), Access::Internal).unwrap();
    size[2] = u64::from(header.page().u32(at::NEXT));
    size[3] = size[2] - u64::from(header.page().u32(at::FREE_COUNT));
    size
}

#[test]
fn a_transaction_ten_times_the_memory_is_rolled_back_and_its_space_reused() {
    let (run, engine, table) = Run::new(1);
    run.settle(&engine).unwrap();
    let before = pages(&engine, &table);
    let mut after = [[0; 4]; 2];
    for (round, after) in after.iter_mut().enumerate() {
        let txn = engine.begin(Isolation::RepeatableRead);
        let bytes = run.change(&txn, &table).unwrap();
        assert!(bytes > 5 * MEMORY_MIN, "{bytes} bytes are not much");
        let large = pages(&engine, &table);
        let held = (large[1] - before[1] + large[3] - before[3]) * 16384;
        assert!(held > 10 * MEMORY_MIN, "{held} bytes of pages");
        txn.rollback().unwrap();
        run.settle(&engine).unwrap();
        run.as_it_was(&engine, &table, "rolled back");
        *after = pages(&engine, &table);
        println!("round {round}: {bytes} bytes of rows; before {before:?}, then {large:?}, after {after:?}");
        assert!(
            after[1] <= before[1] + before[1] / 4 && after[3] <= before[3] + 2,
            "{before:?} became {after:?}"
        );
    }
    // The first round's pages are enough for the second.
    let [first, second] = after;
    assert!(second[0] <= first[0] + first[0] / 50 && second[2] <= first[2] + first[2] / 50, "{after:?}");
    engine.shutdown().unwrap();
}

#[test]
fn a_rollback_killed_at_several_points_completes_after_the_restarts() {
    let (run, engine, table) = Run::new(2);
    let txn = engine.begin(Isolation::RepeatableRead);
    run.change(&txn, &table).unwrap();
    engine.make_durable().unwrap();
    let whole = pages(&engine, &table)[3];
    let unfinished = run.on.volume.snapshot();
    let before = run.on.sim.steps();
    txn.rollback().unwrap();
    let steps = run.on.sim.steps() - before;
    drop((txn, table, engine));
    println!("{steps} I/O steps, {whole} pages of undo");
    let mut midway = 0;
    for point in 1..=POINTS {
        run.power_cycle();
        run.on.volume.restore(&unfinished);
        let left = run.lives(Some(steps * point / (POINTS + 1)), steps, &format!("point {point}"));
        println!("point {point}: {left:?} pages of undo at the starts");
        midway += left.iter().filter(|left| (10..whole - 10).contains(*left)).count();
    }
    assert!(midway >= POINTS as usize / 2, "only {midway} starts in mid-rollback");
}

#[test]
fn a_rollback_killed_while_its_session_lives_completes_after_the_restart() {
    let (run, engine, table) = Run::new(3);
    let txn = engine.begin(Isolation::RepeatableRead);
    run.change(&txn, &table).unwrap();
    let whole = pages(&engine, &table)[3];
    run.on.sim.crash_at(run.on.sim.steps() + 40_000);
    assert!(txn.rollback().is_err() && run.on.sim.crashed());
    drop((txn, table, engine));
    run.power_cycle();
    let left = run.lives(None, 4000, "live");
    println!("{left:?} pages of undo at the starts, {whole} before");
    assert!((10..whole - 10).contains(&left[0]), "not in mid-rollback");
}
