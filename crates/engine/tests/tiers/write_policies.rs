//! Write policies: what a flush does to flash under each of them, set by the instance, by the table, or chosen by load; that readers get
//! the same rows under each; and a crash at each I/O step in turn, with flash as the crash left it.

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
use terrace_engine::engine::inspect::info_tables::Value;
use terrace_engine::offline::check::Verdict;
use terrace_engine::table::catalog::rules::{TableRule, TableRules, WritePolicy};

type Model = BTreeMap<u64, u64>;

const ROWS: u64 = 2500;

struct Rig {
    on: Machine,
}

impl Rig {
    fn new(seed: u64) -> Rig {
        Rig { on: Machine::new(seed).and_flash() }
    }
    fn open(&self) -> Result<Arc<Engine>, Error> {
        let config = Config { flash: Bytes(16 << 20), ..kit::config(17 << 18, 8 << 20, 64 << 20) };
        self.on.open(config)
    }
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}
/// Short enough for a leaf: a large value is written elsewhere each time, so flash has no copy of it to be rewritten.
fn row(n: u64, version: u64) -> Vec<u8> {
    let mut row = vec![n as u8; 3500];
    row[..8].copy_from_slice(&version.to_be_bytes());
    row
}

fn make(engine: &Engine) -> Result<(Arc<Table>, Model), Error> {
    let table = engine.create_table("db/t", &kit::primary())?;
    for from in (0..ROWS).step_by(100) {
        let txn = engine.begin(Isolation::ReadCommitted);
        (from..from + 100).try_for_each(|n| txn.insert(&table, &key(n), &row(n, 0), &[]))?;
        txn.commit()?.wait()?;
    }
    Ok((table, (0..ROWS).map(|n| (n, 0)).collect()))
}

fn read(engine: &Engine, table: &Table, n: u64) -> Result<Option<u64>, Error> {
    let mut found = Vec::new();
    let there = engine.begin(Isolation::ReadCommitted).get(table, &key(n), Lock::None, &mut found)?;
    let Some(version) = there.then(|| found.first_chunk::<8>()).flatten().map(|b| u64::from_be_bytes(*b))
    else {
        return Ok(None);
    };
    assert!(found == row(n, version), "row {n} is mixed");
    Ok(Some(version))
}

/// Reads that bring pages to flash, and changes of pages that flash has, with checkpoints among them. Flash has time to write its queue:
/// while the queue is full no copy is rewritten.
fn work(rig: &Rig, engine: &Engine, table: &Table, rounds: u64, may: &mut Vec<Model>) -> Result<(), Error> {
    for round in 1..=rounds {
        for n in (0..ROWS).step_by(3) {
            if n % 60 == 0 {
                rig.on.sim.sched.run_some(20);
            }
            let model = may.last().unwrap();
            assert_eq!(read(engine, table, n)?, model.get(&n).copied(), "row {n} in round {round}");
        }
        rig.on.sim.sched.run_some(500);
        let mut model = may.last().unwrap().clone();
        let txn = engine.begin(Isolation::ReadCommitted);
        for _ in 0..60 {
            let n = rig.on.sim.world().random.next_u64() % ROWS;
            txn.update(table, &key(n), &row(n, round), &[], &[])?;
            model.insert(n, round);
        }
        may.push(model.clone());
        txn.commit()?.wait()?;
        *may = vec![model];
        rig.on.sim.sched.run_some(50);
        if round % 2 == 0 {
            engine.core().storage.checkpoint()?;
        }
    }
    Ok(())
}

fn status(engine: &Engine, name: &str) -> u64 {
    engine.status().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// The policy in force, and pages flushed by each, as the statistics of tables say.
fn of_table(engine: &Engine) -> (String, Vec<u64>) {
    let rows = engine.seen("table_statistics").unwrap();
    let row = rows.iter().find(|row| row[0] == Value::Table("db/t".into())).unwrap();
    let at = row.iter().position(|v| matches!(v, Value::Text(_))).unwrap();
    let Value::Text(policy) = &row[at] else { panic!("{row:?}") };
    let number = |v: &Value| if let Value::Number(n) = v { *n } else { panic!("{v:?}") };
    (policy.clone(), row[at + 1..at + 4].iter().map(number).collect())
}

fn rule(write: WritePolicy) -> TableRules {
    TableRules { rule: TableRule { write, ..TableRule::default() }, ..TableRules::default() }
}

#[test]
fn each_policy_does_what_it_says_and_readers_see_the_same() {
    each_policy(true);
}

fn each_policy(restarts: bool) {
    use WritePolicy::*;
    for (all, table_says, name, rewrites) in [
        (Clean, Default, "clean", false),
        (Dual, Default, "dual", true),
        (Auto, Default, "auto", true),
        (Default, Default, "auto", true),
        (Dual, Clean, "clean", false),
        (Clean, Dual, "dual", true),
    ] {
        let rig = Rig::new(1);
        let engine = rig.open().unwrap();
        let (table, model) = make(&engine).unwrap();
        engine.set_write_policy(all);
        engine.set_table_rules("db/t", rule(table_says), None).unwrap();
        let mut may = vec![model];
        work(&rig, &engine, &table, 12, &mut may).unwrap();
        // By chance of the schedule none of the table's pages that a checkpoint waited for was on flash.
        for _ in 0..8 {
            if !rewrites || of_table(&engine).1[1] > 0 {
                break;
            }
            work(&rig, &engine, &table, 4, &mut may).unwrap();
        }
        let (policy, writes) = of_table(&engine);
        assert_eq!(policy, name);
        assert!(writes[0] > 0 && (writes[1] > 0) == rewrites && writes[2] == 0, "{name}: {writes:?}");
        assert!(name != "dual" || writes[1] > 20, "{name}: {writes:?}");
        // Other spaces' pages, undo's for one, follow the instance.
        assert!(table_says != Default || (status(&engine, "flash_rewritten") > 0) == rewrites, "{name}");
        assert!(rewrites || status(&engine, "flash_invalidated") > 10, "{name}");
        println!("{name}: {writes:?}, flash reads {}", status(&engine, "reads_flash"));
        engine.shutdown().unwrap();
        drop((engine, table));
        if !restarts {
            continue;
        }
        // Flash as it is, after a restart.
        let engine = rig.open().unwrap();
        let table = engine.open_table("db/t").unwrap();
        work(&rig, &engine, &table, 2, &mut may).unwrap();
        assert_eq!(engine.table_rules("db/t").unwrap_or_default(), rule(table_says), "kept by the catalog");
        engine.shutdown().unwrap();
    }
}

/// `make test` takes some steps; `TERRACE_EVERY_STEP=1` all of them.
#[test]
fn a_crash_at_any_step_of_any_policy_loses_no_commit_and_serves_no_stale_page() {
    for policy in [WritePolicy::Clean, WritePolicy::Dual, WritePolicy::Auto] {
        let run = |rig: &Rig, may: &mut Vec<Model>| -> Result<(), Error> {
            let engine = rig.open()?;
            engine.set_write_policy(policy);
            let (table, model) = make(&engine)?;
            *may = vec![model];
            work(rig, &engine, &table, 6, may)?;
            engine.shutdown()
        };
        let whole = Rig::new(2);
        run(&whole, &mut Vec::new()).unwrap();
        let steps = whole.on.sim.steps();
        let stride = if std::env::var("TERRACE_EVERY_STEP").is_ok() { 1 } else { steps.div_ceil(25) };
        println!("{policy:?}: {steps} I/O steps, every {stride}");
        for step in (1..=steps).step_by(stride as usize) {
            let (rig, mut may) = (Rig::new(2), Vec::new());
            rig.on.sim.crash_at(step);
            let _ = run(&rig, &mut may);
            assert!(rig.on.sim.crashed(), "step {step}: the run is not the one that was counted");
            rig.on.power_cycle();
            let engine = rig.open().unwrap_or_else(|e| panic!("step {step}: open: {e}"));
            engine.set_write_policy(policy);
            if !may.is_empty() {
                let table = engine.open_table("db/t").unwrap();
                let found: Model =
                    (0..ROWS).filter_map(|n| Some((n, read(&engine, &table, n).unwrap()?))).collect();
                assert!(may.contains(&found), "{policy:?}, step {step}: these rows were never together");
                work(&rig, &engine, &table, 2, &mut vec![found]).unwrap();
            }
            engine.shutdown().unwrap();
            drop(engine);
            let report = rig.on.check();
            assert!(report.verdict() == Verdict::Sound, "step {step}: {:?}", report.faults);
        }
    }
}

/// One run that ignores tags finds a copy that a rewrite left on flash. Without that bug tags may be ignored until a restart: only tags
/// tell which copies on a warm flash are current.
#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_a_copy_that_stays_on_flash_is_found_by_one_run() {
    use terrace_tier::planted;
    planted::FLASH_TAG_IGNORED.set(true);
    each_policy(false);
    planted::COPY_NOT_INVALIDATED.set(true);
    let found = std::panic::catch_unwind(|| each_policy(false)).is_err();
    planted::FLASH_TAG_IGNORED.set(false);
    planted::COPY_NOT_INVALIDATED.set(false);
    assert!(found, "COPY_NOT_INVALIDATED is not found");
}
