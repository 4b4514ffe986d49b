//! Flash fails during a run, between memory, a volume and a store: the engine stops using it and counts that. Reads, writes, and a start
//! after power loss go on without flash, and with it when it works again.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Table;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::offline::check::Verdict;
use terrace_io::disk::Class;
use terrace_io::random::Random;

type Model = BTreeMap<u64, u64>;

const ROWS: u64 = 4000;
/// Status counters: reads of each tier.
const READS: [&str; 3] = ["reads_flash", "reads_volume", "reads_object"];

struct Run {
    on: Machine,
    /// What was acknowledged; then what may have been committed since.
    candidates: Vec<Model>,
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn row(n: u64, version: u64) -> Vec<u8> {
    let mut row = vec![n as u8; 3500];
    row[..8].copy_from_slice(&version.to_be_bytes());
    row
}

fn status(engine: &Engine, name: &str) -> u64 {
    engine.status().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
}

impl Run {
    fn new(seed: u64) -> Run {
        Run { on: Machine::new(seed).and_flash().and_store(), candidates: vec![Model::new()] }
    }

    fn open(&self) -> Arc<Engine> {
        let config = Config { flash: Bytes(8 << 20), ..kit::config(10 << 20, 8 << 20, 8 << 20) };
        self.on.open(config).unwrap_or_else(|e| panic!("seed {}: {e}", self.on.sim.seed))
    }

    fn flash_fails(&self, fails: bool) {
        [Class::BpeFill, Class::BpeRead]
            .iter()
            .for_each(|class| self.on.flash().faults().fail_class(*class, fails));
    }

    fn asked_of_flash(&self) -> u64 {
        self.on.flash().requests(Class::BpeFill) + self.on.flash().requests(Class::BpeRead)
    }

    fn fill(&mut self, engine: &Engine) -> Arc<Table> {
        let table = engine.create_table("db/t", &kit::primary()).unwrap();
        for from in (0..ROWS).step_by(100) {
            let txn = engine.begin(Isolation::ReadCommitted);
            (from..from + 100).for_each(|n| txn.insert(&table, &key(n), &row(n, 0), &[]).unwrap());
            txn.commit().unwrap().wait().unwrap();
        }
        self.candidates = vec![(0..ROWS).map(|n| (n, 0)).collect()];
        table
    }

    fn read(&self, engine: &Engine, table: &Table, n: u64) -> Result<Option<u64>, Error> {
        let mut found = Vec::new();
        if !engine.begin(Isolation::ReadCommitted).get(table, &key(n), Lock::None, &mut found)? {
            return Ok(None);
        }
        let version = u64::from_be_bytes(*found.first_chunk().unwrap());
        assert!(found == row(n, version), "seed {}: row {n} is mixed", self.on.sim.seed);
        Ok(Some(version))
    }

    /// Rows anywhere are read and changed; all of them are what was committed last.
    fn work(&mut self, engine: &Engine, table: &Table, rounds: u64) -> Result<(), Error> {
        for _ in 0..rounds {
            let mut model = self.candidates[self.candidates.len() - 1].clone();
            for _ in 0..300 {
                let n = self.on.sim.random.below(ROWS);
                let found = self.read(engine, table, n)?;
                assert_eq!(found, model.get(&n).copied(), "seed {}: row {n}", self.on.sim.seed);
            }
            let txn = engine.begin(Isolation::ReadCommitted);
            for _ in 0..20 {
                let n = self.on.sim.random.below(ROWS);
                let version = model[&n] + 1;
                txn.update(table, &key(n), &row(n, version), &[], &[])?;
                model.insert(n, version);
            }
            self.candidates.push(model);
            txn.commit()?.wait()?;
            self.candidates.drain(..self.candidates.len() - 1);
            self.on.sim.clock.advance(20_000_000);
            self.on.sim.sched.run_some(200);
        }
        Ok(())
    }

    /// Loses power at some step of more work, and restarts; the recovered rows are a committed state.
    fn lose_power(
        &mut self,
        engine: Arc<Engine>,
        table: Arc<Table>,
        before_start: impl FnOnce(&Run),
    ) -> Arc<Engine> {
        self.on.sim.crash_at(self.on.sim.steps() + 1 + self.on.sim.random.below(600));
        let _ = self.work(&engine, &table, 1000);
        assert!(self.on.sim.crashed(), "seed {}", self.on.sim.seed);
        drop((table, engine));
        self.on.power_cycle();
        let report = self.on.check();
        assert!(report.verdict() == Verdict::Sound, "seed {}: {:?}", self.on.sim.seed, report.faults);
        before_start(self);
        let engine = self.open();
        let table = engine.open_table("db/t").unwrap();
        let found = |n| Some((n, self.read(&engine, &table, n).unwrap()?));
        let found: Model = (0..ROWS).filter_map(found).collect();
        assert!(
            self.candidates.contains(&found),
            "seed {}: these rows were never together",
            self.on.sim.seed
        );
        self.candidates = vec![found];
        engine
    }
}

#[test]
fn flash_that_fails_in_the_middle_of_a_run_is_turned_off_and_nothing_else_stops() {
    for seed in 1..=2 {
        let mut run = Run::new(seed);
        let engine = run.open();
        let table = run.fill(&engine);
        run.work(&engine, &table, 10).unwrap();
        let before = READS.map(|name| status(&engine, name));
        assert!(before.iter().all(|n| *n > 100), "seed {seed}: {before:?}: this proves little");
        assert_eq!(status(&engine, "flash_off"), 0);
        run.flash_fails(true);
        run.work(&engine, &table, 10).unwrap();
        let trouble = engine.core().storage.bpe.as_ref().unwrap().status().off.unwrap();
        assert!(trouble.contains("input/output error"), "seed {seed}: {trouble}");
        // It is not even asked.
        let (asked, before) = (run.asked_of_flash(), READS.map(|name| status(&engine, name)));
        run.work(&engine, &table, 10).unwrap();
        let after = READS.map(|name| status(&engine, name));
        assert_eq!((status(&engine, "flash_off"), status(&engine, "flash_pages")), (1, 0));
        assert_eq!((run.asked_of_flash(), after[0]), (asked, before[0]), "seed {seed}");
        assert!(after[1] > before[1] && after[2] > before[2], "seed {seed}: {before:?}, {after:?}");
        // It works again by the start, with what it had before it failed, or not.
        let heals = seed % 2 == 0;
        let engine = run.lose_power(engine, table, |run| run.flash_fails(!heals));
        let table = engine.open_table("db/t").unwrap();
        assert_eq!(status(&engine, "flash_off"), u64::from(!heals), "seed {seed}");
        run.work(&engine, &table, 10).unwrap();
        assert_eq!(status(&engine, "reads_flash") > 0, heals, "seed {seed}");
        let engine = run.lose_power(engine, table, |run| run.flash_fails(false));
        let table = engine.open_table("db/t").unwrap();
        run.work(&engine, &table, 10).unwrap();
        assert!(status(&engine, "flash_off") == 0 && status(&engine, "reads_flash") > 100, "seed {seed}");
        engine.shutdown().unwrap();
    }
}
