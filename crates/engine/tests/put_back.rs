//! A volume put back from an older copy, with the object store of today: it stays fenced at each of its starts, and today's
//! loses nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_engine::config::{Bytes, Config};
use terrace_engine::look::Look;
use terrace_engine::{Engine, Error, IndexDef, Isolation, Lock, Parts, TableDef};
use terrace_sim::{SimDisk, SimStore, SimWorld};

const ROWS: u8 = 200;

fn open(sim: &SimWorld, disk: &Arc<SimDisk>, store: &Arc<SimStore>) -> Arc<Engine> {
    let config = Config {
        memory: Bytes(10 << 20),
        log: Bytes(8 << 20),
        log_partitions: 1,
        object_buffer: Bytes(8 << 20),
        ..Config::default()
    };
    let store = Some(store.clone() as _);
    Engine::open(config, Parts { world: sim.world(), volume: disk.clone(), flash: None, store }).unwrap()
}

/// Writes so many rows, each `with`.
fn write(engine: &Engine, rows: u8, with: u8) -> Result<(), Error> {
    let table = match engine.open_table("db/t") {
        Err(Error::Absent(_)) => {
            let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
            engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() })?
        }
        other => other?,
    };
    for key in 0..rows {
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.statement_begin();
        if txn.get(&table, &[key], Lock::Exclusive, &mut Vec::new())? {
            txn.update(&table, &[key], &[with; 500], &[], &[])?;
        } else {
            txn.insert(&table, &[key], &[with; 500], &[])?;
        }
        txn.commit()?.wait()?;
    }
    engine.core().storage.checkpoint()
}

fn sink(engine: &Engine) -> Result<u64, String> {
    engine.core().storage.cold.clone().unwrap().sinker.sink_all().map_err(|error| error.to_string())
}

fn has(engine: &Engine, rows: u8, with: u8) {
    let (table, txn) = (engine.open_table("db/t").unwrap(), engine.begin(Isolation::RepeatableRead));
    for key in 0..rows {
        let mut row = Vec::new();
        assert!(txn.get(&table, &[key], Lock::None, &mut row).unwrap());
        assert!(row == [with; 500], "row {key} has {}, not {with}", row[0]);
    }
}

/// A life that ends in order, or by a crash.
fn end(sim: &SimWorld, disk: &SimDisk, engine: Arc<Engine>, crash: bool) {
    if crash {
        sim.sched.drop_workers();
        drop(engine);
        disk.crash();
        sim.power_on();
    } else {
        engine.shutdown().unwrap();
    }
}

#[test]
fn a_volume_of_yesterday_never_takes_the_store_of_today() {
    for seed in 0..4 {
        let sim = SimWorld::new(seed);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        let engine = open(&sim, &disk, &store);
        write(&engine, ROWS, 1).unwrap();
        sink(&engine).unwrap();
        end(&sim, &disk, engine, false);
        let yesterday = disk.snapshot();
        for life in 2..4 {
            let engine = open(&sim, &disk, &store);
            write(&engine, ROWS, life).unwrap();
            sink(&engine).unwrap();
            sim.sched.run_some(20_000); // collects
            end(&sim, &disk, engine, life == 3 && seed % 2 == 1);
        }
        let (today, kept) = (disk.snapshot(), store.keys());
        assert!(kept.len() > 1);

        disk.restore(&yesterday);
        for start in 0..12 {
            store.faults.dead.store(start == 4, Ordering::SeqCst);
            let engine = open(&sim, &disk, &store);
            sim.sched.run_some(20_000);
            let trouble = engine.core().storage.cold.as_ref().unwrap().trouble().unwrap_or_default();
            if start != 4 {
                assert!(trouble.contains("another copy of this volume"), "start {start}: {trouble:?}");
                assert!(sink(&engine).is_err());
            }
            store.faults.dead.store(false, Ordering::SeqCst);
            if write(&engine, ROWS, 100).is_err() {
                // What it needs was collected: then that is said.
                let table = engine.open_table("db/t");
                let txn = engine.begin(Isolation::RepeatableRead);
                let read = table.and_then(|t| txn.get(&t, &[0], Lock::None, &mut Vec::new()));
                let Err(Error::Missing(what)) = read else { panic!("start {start}: {read:?}") };
                assert!(what.contains("is no longer in the object store"), "{what}");
            }
            end(&sim, &disk, engine, start % 3 == 0);
            assert_eq!(store.keys(), kept, "seed {seed}, start {start}");
        }
        let look = Look::open(disk.clone(), Some(store.clone() as _)).unwrap();
        assert!(look.store_fault.as_ref().is_some_and(|fault| fault.contains("another copy")));
        drop(look);

        disk.restore(&today);
        let engine = open(&sim, &disk, &store);
        has(&engine, ROWS, 3);
        write(&engine, ROWS, 4).unwrap();
        sink(&engine).unwrap();
        has(&engine, ROWS, 4);
        end(&sim, &disk, engine, false);
    }
}

/// The copy was made while the writer ran, which went on for some time and sank more.
fn put_back_a_copy_of_the_same_life() {
    for seed in 20..24 {
        let sim = SimWorld::new(seed);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        let engine = open(&sim, &disk, &store);
        write(&engine, ROWS, 1).unwrap();
        sink(&engine).unwrap();
        write(&engine, ROWS, 2).unwrap();
        let before = disk.snapshot();
        for life in 3..6 {
            sim.clock.advance(11_000_000_000);
            write(&engine, ROWS, life).unwrap();
            sink(&engine).unwrap();
        }
        end(&sim, &disk, engine, seed % 2 == 1);
        let (after, kept) = (disk.snapshot(), store.keys());

        disk.restore(&before);
        disk.crash(); // as it was found, without what was not synced
        for start in 0..4 {
            let engine = open(&sim, &disk, &store);
            sim.sched.run_some(20_000);
            let trouble = engine.core().storage.cold.as_ref().unwrap().trouble().unwrap_or_default();
            assert!(
                trouble.contains("another copy of this volume"),
                "seed {seed}, start {start}: {trouble:?}"
            );
            assert!(sink(&engine).is_err());
            end(&sim, &disk, engine, start % 2 == 0);
            assert_eq!(store.keys(), kept, "seed {seed}, start {start}: the store has changed");
        }
        disk.restore(&after);
        let engine = open(&sim, &disk, &store);
        has(&engine, ROWS, 5);
        write(&engine, ROWS, 6).unwrap();
        sink(&engine).unwrap();
        has(&engine, ROWS, 6);
        end(&sim, &disk, engine, false);
    }
}

#[test]
fn a_copy_of_the_same_life_never_takes_the_store_that_the_volume_has_written_to_since() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    put_back_a_copy_of_the_same_life();
}

/// Planted bugs are switched on for all.
static ONE: Mutex<()> = Mutex::new(());

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_a_mark_that_stands_still_is_found() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    terrace_tier::planted::MARK_STANDS.set(true);
    let found = std::panic::catch_unwind(put_back_a_copy_of_the_same_life).is_err();
    terrace_tier::planted::MARK_STANDS.set(false);
    assert!(found);
}

/// Each step of a start, among them those around the taking of the store, may be the last; the next start takes it.
#[test]
fn a_crash_at_any_step_of_a_start_leaves_a_volume_that_takes_its_store() {
    let prepared = || {
        let sim = SimWorld::new(5);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        let engine = open(&sim, &disk, &store);
        write(&engine, 3, 1).unwrap();
        sink(&engine).unwrap();
        end(&sim, &disk, engine, false);
        (sim, disk, store)
    };
    let attempt = |sim: &SimWorld, disk: &Arc<SimDisk>, store: &Arc<SimStore>| {
        let config = Config {
            memory: Bytes(10 << 20),
            log: Bytes(8 << 20),
            log_partitions: 1,
            object_buffer: Bytes(8 << 20),
            ..Config::default()
        };
        let parts =
            Parts { world: sim.world(), volume: disk.clone(), flash: None, store: Some(store.clone() as _) };
        if let Ok(engine) = Engine::open(config, parts) {
            _ = sink(&engine);
            _ = engine.core().storage.cold.as_ref().unwrap().fence.take();
        }
    };
    let (sim, disk, store) = prepared();
    let before = sim.steps();
    attempt(&sim, &disk, &store);
    let steps = sim.steps() - before;
    assert!(steps > 10, "only {steps} steps");
    sim.sched.drop_workers();
    let mut crashed = 0;
    for step in 1..=steps {
        let (sim, disk, store) = prepared();
        for again in 0..2 {
            sim.crash_at(sim.steps() + step);
            attempt(&sim, &disk, &store);
            crashed += u32::from(again == 0);
            sim.sched.drop_workers();
            disk.crash();
            sim.power_on();
        }
        store.land_late_puts();
        let engine = open(&sim, &disk, &store);
        let fence = engine.core().storage.cold.as_ref().unwrap().fence.clone();
        fence.take().unwrap_or_else(|error| panic!("step {step}: {error}"));
        has(&engine, 3, 1);
        end(&sim, &disk, engine, false);
    }
    println!("{steps} steps");
    assert_eq!(u64::from(crashed), steps);
}
