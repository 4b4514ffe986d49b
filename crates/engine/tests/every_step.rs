//! One small workload, crashed at each of its I/O steps in turn: transactions with commits that are
//! waited for, a rollback, an unfinished transaction, flushes and checkpoints, a table made and dropped.
//!
//! Each run is the same up to its crash. `make test` takes every k-th step; `TERRACE_EVERY_STEP=1`
//! takes all.

use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::check::{self, Verdict};
use terrace_engine::config::{Bytes, Config};
use terrace_engine::look::Look;
use terrace_engine::{Access, Engine, Error, IndexDef, Isolation, Lock, Parts, Seek, Table, TableDef, Txn};
use terrace_sim::{SimDisk, SimWorld};

type Model = BTreeMap<u64, Vec<u8>>;

struct Run {
    sim: SimWorld,
    disk: Arc<SimDisk>,
    /// What was acknowledged; then each state committed since.
    candidates: Vec<Model>,
    /// The second table: acknowledged as made, being dropped, acknowledged as dropped.
    made: bool,
    dropping: bool,
    dropped: bool,
}

impl Run {
    fn new(seed: u64) -> Run {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        Run { sim, disk, candidates: vec![Model::new()], made: false, dropping: false, dropped: false }
    }

    fn open(&self, partitions: usize) -> Result<Arc<Engine>, Error> {
        let config = Config {
            memory: Bytes(4 << 20),
            log: Bytes((3 << 20) * partitions as u64),
            log_partitions: partitions,
            object_buffer: Bytes(128 << 20),
            ..Config::default()
        };
        let parts = Parts { world: self.sim.world(), volume: self.disk.clone(), flash: None, store: None };
        Engine::open(config, parts)
    }

    fn table(engine: &Arc<Engine>, name: &str) -> Result<Arc<Table>, Error> {
        match engine.open_table(name) {
            Err(Error::Absent(_)) => {
                let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
                engine.create_table(name, &TableDef { indexes, properties: Vec::new() })
            }
            other => other,
        }
    }

    /// Puts the keys with rows of the given length; commits and waits.
    fn commit(&mut self, engine: &Arc<Engine>, table: &Arc<Table>, keys: std::ops::Range<u64>, fill: u8, len: usize) -> Result<(), Error> {
        let txn = engine.begin(Isolation::RepeatableRead);
        let mut state = self.candidates.last().cloned().unwrap_or_default();
        for key in keys {
            txn.statement_begin();
            let row = vec![fill; len];
            match state.insert(key, row.clone()) {
                None => txn.insert(table, &key.to_be_bytes(), &row, &[])?,
                Some(_) => txn.update(table, &key.to_be_bytes(), &row, &[], &[])?,
            }
        }
        self.candidates.push(state.clone());
        txn.commit()?.wait()?;
        self.candidates = vec![state];
        Ok(())
    }

    fn delete(&mut self, engine: &Arc<Engine>, table: &Arc<Table>, keys: std::ops::Range<u64>) -> Result<(), Error> {
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.statement_begin();
        let mut state = self.candidates.last().cloned().unwrap_or_default();
        for key in keys {
            txn.delete(table, &key.to_be_bytes(), &[])?;
            state.remove(&key);
        }
        self.candidates.push(state.clone());
        txn.commit()?.wait()?;
        self.candidates = vec![state];
        Ok(())
    }

    fn work(&mut self, partitions: usize) -> Result<(), Error> {
        let engine = self.open(partitions)?;
        let table = Run::table(&engine, "db/t")?;
        self.commit(&engine, &table, 0..20, 1, 100)?;
        engine.core().storage.checkpoint()?;
        let view = engine.begin(Isolation::RepeatableRead);
        view.open_view();
        let seen = self.candidates[0].clone();
        self.commit(&engine, &table, 10..30, 2, 3000)?;
        self.delete(&engine, &table, 12..18)?;
        let other = Run::table(&engine, "db/other")?;
        self.made = true;
        drop(other);
        let back = engine.begin(Isolation::RepeatableRead);
        back.statement_begin();
        for key in 100..110u64 {
            back.insert(&table, &key.to_be_bytes(), &[9; 500], &[])?;
        }
        engine.core().storage.checkpoint()?;
        back.rollback()?;
        // Stays unfinished across the rest, with its changes flushed.
        let open = engine.begin(Isolation::RepeatableRead);
        open.statement_begin();
        for key in 200..210u64 {
            open.insert(&table, &key.to_be_bytes(), &[8; 40_000], &[])?;
        }
        engine.core().storage.checkpoint()?;
        self.commit(&engine, &table, 0..5, 3, 30_000)?;
        self.sim.sched.run_some(200);
        assert!(Run::rows(&table, &view)? == seen, "a view sees what was committed after it");
        drop(view);
        self.dropping = true;
        engine.drop_table("db/other")?;
        self.dropped = true;
        self.commit(&engine, &table, 0..40, 4, 50)?;
        self.sim.sched.run_some(500);
        drop(open);
        engine.shutdown()
    }

    fn rows(table: &Arc<Table>, txn: &Arc<Txn>) -> Result<Model, Error> {
        let mut found = Model::new();
        let mut cursor = txn.cursor(table, 0, Lock::None, Access::Scan)?;
        let mut valid = cursor.seek(&[], Seek::First)?;
        let mut row = Vec::new();
        while valid {
            cursor.row(&mut row)?;
            found.insert(u64::from_be_bytes(cursor.primary_key().try_into().unwrap()), row.clone());
            valid = cursor.next()?;
        }
        Ok(found)
    }

    fn check(&mut self, partitions: usize, step: u64) {
        self.sim.sched.drop_workers();
        self.disk.crash();
        self.sim.power_on();
        if self.disk.exists("superblock").unwrap() {
            let look = Look::open(self.disk.clone(), None).unwrap_or_else(|e| panic!("step {step}: look: {e}"));
            let report = check::check(&look, &check::Options::default(), &mut |_, _, _| ());
            assert!(report.verdict() == Verdict::Sound, "step {step}: {:?} {:?}", report.faults, report.unchecked);
        }
        let engine = self.open(partitions).unwrap_or_else(|e| panic!("step {step}: open after the crash: {e}"));
        self.sim.sched.run_some(5000);
        let other = engine.open_table("db/other");
        let there = match &other {
            Ok(_) => true,
            Err(Error::Absent(_)) => false,
            Err(error) => panic!("step {step}: {error}"),
        };
        assert!(there || !self.made || self.dropping, "step {step}: a table made is gone");
        assert!(!(there && self.dropped), "step {step}: a table dropped is there");
        let table = Run::table(&engine, "db/t").unwrap_or_else(|e| panic!("step {step}: {e}"));
        let txn = engine.begin(Isolation::RepeatableRead);
        let found = Run::rows(&table, &txn).unwrap();
        assert!(self.candidates.contains(&found), "step {step}: {} rows are none of the {} states", found.len(), self.candidates.len());
        table.check(0).unwrap_or_else(|e| panic!("step {step}: {e}"));
        assert_eq!(engine.core().storage.map.faults(), Vec::<String>::new(), "step {step}");
    }
}

fn every_step(seed: u64, partitions: usize, budget: u64) {
    let mut whole = Run::new(seed);
    whole.work(partitions).unwrap();
    let steps = whole.sim.steps();
    assert!(steps > 100, "only {steps} steps");
    let stride = if std::env::var("TERRACE_EVERY_STEP").is_ok() { 1 } else { steps.div_ceil(budget) };
    println!("{steps} I/O steps, every {stride}");
    for step in (1..=steps).step_by(stride as usize) {
        let mut run = Run::new(seed);
        run.sim.crash_at(step);
        let result = run.work(partitions);
        assert!(run.sim.crashed(), "step {step}: the run is not the one that was counted");
        if step < steps / 2 {
            assert!(result.is_err(), "step {step}: work went on after the crash");
        }
        run.check(partitions, step);
    }
}

#[cfg(not(feature = "planted-bugs"))]
#[test]
fn a_crash_at_each_step_with_one_partition() {
    every_step(11, 1, 120);
}

#[cfg(not(feature = "planted-bugs"))]
#[test]
fn a_crash_at_each_step_with_four_partitions() {
    every_step(12, 4, 120);
}

/// Each planted bug is found by the crashes of one workload; see `terrace_engine::planted`.
#[cfg(feature = "planted-bugs")]
#[test]
fn each_planted_bug_is_found_within_three_seeds() {
    use terrace_engine::planted as engine;
    let bugs = [
        ("TICKET_NOT_WAITED", &engine::TICKET_NOT_WAITED),
        ("ACK_BEFORE_SYNC", &engine::ACK_BEFORE_SYNC),
        ("DIRTY_PAGE_PASSED", &engine::DIRTY_PAGE_PASSED),
        ("MAP_PASSED", &engine::MAP_PASSED),
        ("VIEW_IGNORED", &engine::VIEW_IGNORED),
        ("UNFINISHED_KEPT", &engine::UNFINISHED_KEPT),
        ("CATALOG_NOT_WAITED", &engine::CATALOG_NOT_WAITED),
    ];
    every_step(11, 1, 60);
    let mut missed = Vec::new();
    for (name, switch) in bugs {
        switch.set(true);
        let found = (11..14).find(|seed| std::panic::catch_unwind(|| every_step(*seed, 1, 120)).is_err());
        switch.set(false);
        println!("{name}: found with seed {found:?}");
        if found.is_none() {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
