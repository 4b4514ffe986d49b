//! Tables that are truncated together: all of them or none, with a crash at each I/O step in turn.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::TableDef;
use terrace_engine::offline::check::Verdict;
use terrace_engine::row::HEAD;

const TABLES: [&str; 4] = ["db/t#P#p0", "db/t#P#p1", "db/t#P#p2", "db/other"];
const PARTITIONS: &[&str] = TABLES.split_at(3).0;

fn open(on: &Machine) -> Result<Arc<Engine>, Error> {
    on.open(kit::config(4 << 20, 8 << 20, 64 << 20))
}

fn fill(engine: &Engine, name: &str, keys: std::ops::Range<u32>) -> Result<(), Error> {
    let table = engine.open_table(name)?;
    let txn = engine.begin(Isolation::RepeatableRead);
    for key in keys {
        txn.insert(&table, &key.to_be_bytes(), &[key as u8; 300], &[])?;
    }
    txn.commit()?.wait()
}

/// Rows that a transaction finds.
fn rows(engine: &Engine, name: &str) -> usize {
    let table = engine.open_table(name).unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut row = Vec::new();
    (0..200u32).filter(|key| txn.get(&table, &key.to_be_bytes(), Lock::None, &mut row).unwrap()).count()
}

/// `at` tells how far it got: 0 before the truncation, 1 within it, 2 it was acknowledged, 3 rows were written again.
fn work(on: &Machine, at: &mut u32) -> Result<(), Error> {
    let engine = open(on)?;
    for name in TABLES {
        engine.create_table(name, &kit::primary())?;
        fill(&engine, name, 0..100)?;
    }
    engine.core().storage.checkpoint()?;
    fill(&engine, TABLES[1], 100..150)?;
    *at = 1;
    engine.truncate_tables(PARTITIONS)?;
    *at = 2;
    on.sim.sched.run_some(500);
    fill(&engine, TABLES[2], 0..10)?;
    *at = 3;
    engine.shutdown()
}

#[test]
fn tables_are_emptied_together_or_not_at_all() {
    let on = Machine::new(31);
    work(&on, &mut 0).unwrap();
    let steps = on.sim.steps();
    let stride = if std::env::var_os("TERRACE_EVERY_STEP").is_some() { 1 } else { steps.div_ceil(150) };
    let mut outcomes = [0; 2];
    for step in (1..=steps).step_by(stride as usize) {
        let on = Machine::new(31);
        on.sim.crash_at(step);
        let mut at = 0;
        let _ = work(&on, &mut at);
        assert!(on.sim.crashed(), "step {step}");
        on.power_cycle();
        if at == 0 {
            continue;
        }
        let report = on.check();
        assert!(
            report.verdict() == Verdict::Sound,
            "step {step}: {:?} {:?}",
            report.faults,
            report.unchecked
        );
        let engine = open(&on).unwrap_or_else(|error| panic!("step {step}: {error}"));
        on.sim.sched.run_some(2000);
        let found = TABLES.map(|name| rows(&engine, name));
        let may: &[[usize; 4]] = match at {
            1 => &[[100, 150, 100, 100], [0, 0, 0, 100]],
            2 => &[[0, 0, 0, 100], [0, 0, 10, 100]],
            _ => &[[0, 0, 10, 100]],
        };
        assert!(may.contains(&found), "step {step}, {at}: {found:?}");
        outcomes[usize::from(found[0] == 0)] += 1;
        // No space of the old or the new tree is left over, and the table works.
        let spaces = engine.core().catalog.spaces().len();
        assert_eq!(spaces, TABLES.len(), "step {step}");
        engine.truncate_tables(PARTITIONS).unwrap();
        fill(&engine, TABLES[0], 0..30).unwrap();
        assert_eq!(TABLES.map(|name| rows(&engine, name)), [30, 0, 0, 100], "step {step}");
    }
    println!("{steps} I/O steps, every {stride}: before and after {outcomes:?}");
    assert!(outcomes.iter().all(|seen| *seen > 0), "{outcomes:?}");
}

#[test]
fn a_missing_table_leaves_the_others_unchanged() {
    let on = Machine::new(32);
    let engine = open(&on).unwrap();
    for name in PARTITIONS {
        engine.create_table(name, &kit::primary()).unwrap();
        fill(&engine, name, 0..20).unwrap();
    }
    let refused = engine.truncate_tables(&[PARTITIONS[0], "db/none", PARTITIONS[1]]);
    assert!(matches!(refused, Err(Error::Absent(_))));
    assert_eq!(PARTITIONS.iter().map(|name| rows(&engine, name)).collect::<Vec<_>>(), [20, 20, 20]);
    engine.truncate_tables(&[]).unwrap();
    engine.truncate_tables(&PARTITIONS[..2]).unwrap();
    assert_eq!(PARTITIONS.iter().map(|name| rows(&engine, name)).collect::<Vec<_>>(), [0, 0, 20]);
}

/// An index costs no more in a table that was emptied than in a new one: rows have room to grow, and entries lose their heads.
#[test]
fn a_truncated_table_is_packed_like_a_new_one() {
    let mut bytes = Vec::new();
    for empties in [false, true] {
        let on = Machine::new(33);
        let engine = open(&on).unwrap();
        let indexes = ["PRIMARY", "k"].map(|name| IndexDef { name: name.into(), unique: name == "PRIMARY" });
        let def = TableDef { indexes: indexes.to_vec(), properties: Vec::new() };
        let table = engine.create_table("db/t", &def).unwrap();
        if empties {
            engine.truncate_tables(&["db/t"]).unwrap();
        }
        for part in 0..200u32 {
            let txn = engine.begin(Isolation::RepeatableRead);
            for n in part * 50..part * 50 + 50 {
                let primary = n.to_be_bytes();
                let key = [n.wrapping_mul(0x9E37_79B1).to_be_bytes(), primary].concat();
                let entry = Entry { index: 1, key: &key, unique_len: None, primary_at: 4, value: &[] };
                txn.insert(&table, &primary, &[n as u8; 20], &[entry]).unwrap();
            }
            txn.commit().unwrap().wait().unwrap();
            engine.core().ids.settle();
        }
        let mut short = 0;
        table.tree(1).unwrap().check(&mut |_, value| short += u32::from(value.len() < HEAD)).unwrap();
        let size = table.estimate();
        bytes.push((short, (size.data_pages, size.index_pages)));
    }
    assert!(bytes[0].0 > 0, "no entry has lost its head: this proves nothing");
    assert_eq!(bytes[0], bytes[1]);
}
