//! Large values that pass by the log: little of them is logged, every committed one is whole after a crash at any I/O step, and
//! what was not committed gives its pages back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::check::{self, Verdict};
use terrace_engine::config::{Bytes, Config};
use terrace_engine::look::Look;
use terrace_engine::{
    Access, Engine, Entry, Error, IndexDef, Isolation, Lock, Parts, Seek, Table, TableDef, Txn,
};
use terrace_io::disk::Disk;
use terrace_sim::{SimDisk, SimWorld};
use terrace_tier::redo::Redo;

type Model = BTreeMap<u8, Vec<u8>>;

fn index_key(key: u8, row: &[u8]) -> [u8; 2] {
    [row[0], key]
}

fn entry(key: &[u8; 2]) -> [Entry<'_>; 1] {
    [Entry { index: 1, key, unique_len: None, primary_at: 1, value: b"" }]
}

fn insert(txn: &Txn, table: &Table, key: u8, row: &[u8]) -> Result<(), Error> {
    txn.insert(table, &[key], row, &entry(&index_key(key, row)))
}

fn update(txn: &Txn, table: &Table, key: u8, old: &[u8], row: &[u8]) -> Result<(), Error> {
    let (old, new) = (index_key(key, old), index_key(key, row));
    let changed = old != new;
    txn.update(table, &[key], row, &entry(&old)[..usize::from(changed)], &entry(&new)[..usize::from(changed)])
}

/// A row that no other has, of so many bytes.
fn row(serial: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(7) + i / 251 + serial * 31) as u8).collect()
}

fn begin(engine: &Arc<Engine>) -> Arc<Txn> {
    engine.begin(Isolation::RepeatableRead)
}

struct Run {
    sim: SimWorld,
    disk: Arc<SimDisk>,
    /// Values from this size on pass by the log.
    from: u64,
    /// What may be in the table: what was acknowledged, or is in doubt.
    may: Vec<Model>,
    prepared: bool,
}

impl Run {
    fn new(seed: u64, from: u64) -> Run {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        Run { sim, disk, from, may: vec![Model::new()], prepared: false }
    }

    fn open(&self) -> Result<(Arc<Engine>, Arc<Table>), Error> {
        let config = Config {
            memory: Bytes(4 << 20),
            log: Bytes(3 << 20),
            object_buffer: Bytes(64 << 20),
            ..Config::default()
        };
        let parts = Parts { world: self.sim.world(), volume: self.disk.clone(), flash: None, store: None };
        let engine = Engine::open(config, parts)?;
        engine.set_bypass_from(self.from);
        let table = match engine.open_table("db/t") {
            Err(Error::Absent(_)) => {
                let index = |name: &str, unique| IndexDef { name: name.into(), unique };
                let indexes = vec![index("PRIMARY", true), index("first", false)];
                engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() })?
            }
            other => other?,
        };
        Ok((engine, table))
    }

    /// Others work.
    fn pause(&self) {
        for _ in 0..4 {
            self.sim.clock.advance(10_000_000);
            self.sim.sched.run_some(100);
        }
    }

    fn commit(&mut self, txn: &Txn, model: &Model) -> Result<(), Error> {
        self.may.push(model.clone());
        txn.commit()?.wait()?;
        self.may = vec![model.clone()];
        Ok(())
    }

    /// Inserts, updates, deletes, goes back to savepoints, of statements and wholly, prepares. Pages that were given back are
    /// used again.
    fn work(&mut self) -> Result<(), Error> {
        let (engine, table) = self.open()?;
        let mut model = Model::new();
        let put = |model: &mut Model, key: u8, row: &[u8]| _ = model.insert(key, row.to_vec());
        // Several rows of one statement, a small one between.
        let txn = begin(&engine);
        for (key, len) in [(1, 100_000), (2, 300), (3, 70_000), (4, 1_200_000)] {
            let new = row(u32::from(key), len);
            insert(&txn, &table, key, &new)?;
            put(&mut model, key, &new);
            // As others' commits do.
            engine.make_durable()?;
        }
        self.commit(&txn, &model)?;
        // A savepoint, and a statement that goes back.
        let txn = begin(&engine);
        let (five, six) = (row(5, 90_000), row(6, 200_000));
        insert(&txn, &table, 5, &five)?;
        let savepoint = txn.savepoint();
        insert(&txn, &table, 6, &six)?;
        update(&txn, &table, 1, &model[&1], &six)?;
        engine.make_durable()?;
        self.pause();
        txn.rollback_to(savepoint)?;
        txn.statement_begin();
        update(&txn, &table, 3, &model[&3], &six)?;
        engine.make_durable()?;
        txn.statement_rollback()?;
        insert(&txn, &table, 7, &row(7, 150_000))?;
        put(&mut model, 5, &five);
        put(&mut model, 7, &row(7, 150_000));
        self.commit(&txn, &model)?;
        // One that nobody waits for, and one behind it.
        let txn = begin(&engine);
        let one = row(11, 250_000);
        update(&txn, &table, 1, &model[&1], &one)?;
        put(&mut model, 1, &one);
        self.may.push(model.clone());
        txn.commit()?;
        self.pause();
        // All of it goes back; the flusher has been at it.
        let txn = begin(&engine);
        insert(&txn, &table, 8, &row(8, 400_000))?;
        engine.make_durable()?;
        self.pause();
        txn.rollback()?;
        // What was freed is used again, twice in one transaction.
        for round in 0..3 {
            let txn = begin(&engine);
            let four = row(40 + round, 1_000_000);
            update(&txn, &table, 4, &model[&4], &row(50 + round, 120_000))?;
            engine.make_durable()?;
            update(&txn, &table, 4, &row(50 + round, 120_000), &four)?;
            engine.make_durable()?;
            put(&mut model, 4, &four);
            self.commit(&txn, &model)?;
            self.pause();
        }
        let txn = begin(&engine);
        txn.delete(&table, &[3], &entry(&index_key(3, &model[&3])))?;
        model.remove(&3);
        self.commit(&txn, &model)?;
        // In two phases.
        let txn = begin(&engine);
        let nine = row(9, 180_000);
        insert(&txn, &table, 9, &nine)?;
        self.prepared = true;
        txn.prepare(b"x")?;
        self.pause();
        put(&mut model, 9, &nine);
        self.commit(&txn, &model)?;
        self.prepared = false;
        engine.core().storage.checkpoint()?;
        drop((txn, table));
        engine.shutdown()
    }

    fn look(&self, step: u64) -> check::Report {
        let look = Look::open(self.disk.clone(), None).unwrap_or_else(|e| panic!("step {step}: {e}"));
        let report = check::check(&look, &check::Options::default(), &mut |_, _, _| ());
        assert!(
            report.verdict() == Verdict::Sound && report.leaked.is_empty(),
            "step {step}: {:?} {:?} {:?}",
            report.faults,
            report.leaked,
            report.unchecked
        );
        report
    }

    fn crash(&self) {
        self.sim.sched.drop_workers();
        self.disk.crash();
        self.sim.power_on();
    }

    fn seen(&self, engine: &Arc<Engine>, table: &Arc<Table>, index: usize) -> Result<Model, Error> {
        let txn = begin(engine);
        let mut cursor = txn.cursor(table, index, Lock::None, Access::Scan)?;
        let (mut found, mut row) = (Model::new(), Vec::new());
        let mut valid = cursor.seek(&[], Seek::First)?;
        while valid {
            cursor.row(&mut row)?;
            found.insert(cursor.primary_key()[0], row.clone());
            valid = cursor.next()?;
        }
        Ok(found)
    }

    /// After a crash. Returns whether a transaction was unfinished.
    fn check(&self, step: u64) -> bool {
        self.crash();
        let unfinished = self.disk.exists("superblock").unwrap() && self.look(step).unfinished > 0;
        let (engine, table) = self.open().unwrap_or_else(|e| panic!("step {step}: open: {e}"));
        if engine.prepared().first().is_some() {
            assert!(self.prepared, "step {step}: one is prepared that never was");
            // Its value must be whole.
            engine.commit_prepared(b"x").unwrap();
        }
        self.sim.sched.run_some(20_000);
        let found = self.seen(&engine, &table, 0).unwrap_or_else(|e| panic!("step {step}: {e}"));
        let mut may = self.may.clone();
        if self.prepared {
            may.push(
                self.may[0].iter().map(|(k, v)| (*k, v.clone())).chain([(9, row(9, 180_000))]).collect(),
            );
        }
        assert!(may.contains(&found), "step {step}: rows {:?}", found.keys());
        assert!(self.seen(&engine, &table, 1).unwrap() == found, "step {step}: the index differs");
        for _ in 0..100 {
            self.pause();
            if engine.core().history.lock().is_empty() {
                break;
            }
        }
        assert!(engine.core().history.lock().is_empty(), "step {step}: purge does not come to its end");
        drop(table);
        engine.shutdown().unwrap();
        drop(engine);
        self.crash();
        let report = self.look(step);
        assert_eq!(report.unfinished, 0, "step {step}");
        let pages: u64 = found
            .values()
            .filter(|row| row.len() > 10_000)
            .map(|row| row.len().div_ceil(16_320) as u64)
            .sum();
        assert_eq!(report.overflow, pages, "step {step}: pages of large values");
        unfinished
    }
}

/// `make test` takes some steps; `TERRACE_EVERY_STEP=1` all of them, `TERRACE_SEEDS` more orders of waits.
#[test]
fn a_crash_at_any_step_leaves_every_committed_value_whole_and_no_page_of_others() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    for seed in 60..60 + number("TERRACE_SEEDS").unwrap_or(1) {
        let mut whole = Run::new(seed, 64 << 10);
        whole.work().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let steps = whole.sim.steps();
        whole.check(0);
        let stride = if number("TERRACE_EVERY_STEP").is_some() { 1 } else { steps.div_ceil(50) };
        println!("{steps} I/O steps, every {stride}");
        let mut unfinished = 0;
        for step in (1..=steps).step_by(stride as usize) {
            let mut run = Run::new(seed, 64 << 10);
            run.sim.crash_at(step);
            let _ = run.work();
            assert!(run.sim.crashed(), "step {step}: the run is not the one that was counted");
            unfinished += u64::from(run.check(step));
        }
        assert!(unfinished * stride > steps / 10, "{unfinished} were unfinished: this proves little");
    }
}

/// Log bytes of inserting, then updating, and deleting a value.
fn logged(len: usize, from: u64) -> u64 {
    let run = Run::new(7, from);
    let (engine, table) = run.open().unwrap();
    let before = engine.core().storage.log.appended();
    let txn = begin(&engine);
    insert(&txn, &table, 1, &row(1, len)).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let bytes = engine.core().storage.log.appended() - before;
    let pages = engine.core().storage.flusher.bypass.pages.load(Ordering::Relaxed);
    assert_eq!(pages > 0, len as u64 >= from, "{pages} pages were written through");
    assert!(run.seen(&engine, &table, 0).unwrap()[&1] == row(1, len));
    bytes
}

#[test]
fn a_value_from_the_size_on_leaves_a_fiftieth_of_itself_in_the_log() {
    for len in [64 << 10, 1 << 20] {
        let (past, through) = (logged(len, 64 << 10), logged(len, u64::MAX));
        println!("{len} bytes: {past} bytes of log, {through} without bypass");
        assert!(past < len as u64 / 50 && through > len as u64, "{past}, {through}");
    }
    assert!(logged(60_000, 64 << 10) > 60_000, "a smaller one is logged");
}

/// A space whose only value is written anew again and again stays as large as two or three of it.
#[test]
fn the_pages_of_a_value_that_is_updated_again_and_again_are_used_again() {
    let run = Run::new(8, 64 << 10);
    let (engine, table) = run.open().unwrap();
    let txn = begin(&engine);
    insert(&txn, &table, 1, &row(1, 800_000)).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let mut most = 0;
    for n in 2..60 {
        let txn = begin(&engine);
        update(&txn, &table, 1, &row(n - 1, 800_000), &row(n, 800_000)).unwrap();
        txn.commit().unwrap().wait().unwrap();
        run.pause();
        most = most.max(table.tree(0).unwrap().space().counts().pages);
    }
    assert!(most < 4 * 50, "{most} pages for a value of 50");
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use std::sync::Mutex;
    use terrace_tier::planted::Switch;

    /// The switches are global.
    static ONE: Mutex<()> = Mutex::new(());

    /// The run is cut at each of its steps in turn, until the bug is found; the same cut finds nothing without it.
    fn is_found(name: &str, switch: &'static Switch) {
        let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
        let cut = |step: u64| {
            let mut run = Run::new(61, 64 << 10);
            run.sim.crash_at(step);
            let _ = run.work();
            run.check(step);
        };
        let fails = |step| std::panic::catch_unwind(|| cut(step)).is_err();
        switch.set(true);
        let mut whole = Run::new(61, 64 << 10);
        let steps = whole.work().map_or(0, |()| whole.sim.steps());
        let found = (1..=steps).find(|step| fails(*step));
        switch.set(false);
        let Some(step) = found else { panic!("{name} was not found") };
        println!("{name}: found at step {step} of {steps}");
        assert!(!fails(step), "{name}: found without it");
    }

    #[test]
    fn a_commit_before_its_values_are_written_is_found() {
        is_found("COMMITTED_HOLLOW", &terrace_engine::planted::COMMITTED_HOLLOW);
    }
    #[test]
    fn values_named_before_they_are_synced_are_found() {
        is_found("BYPASS_NOT_SYNCED", &terrace_tier::planted::BYPASS_NOT_SYNCED);
    }
    #[test]
    fn values_written_without_a_word_in_undo_are_found() {
        is_found("LARGE_NOT_NOTED", &terrace_engine::planted::LARGE_NOT_NOTED);
    }
}
