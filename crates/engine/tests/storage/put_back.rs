//! A volume is restored from an older copy, under the newer object store: it stays fenced at each of its starts, and the
//! newer volume loses nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::offline::adopt::{Adoption, Lost};
use terrace_engine::offline::instance::OfflineInstance;
use terrace_sim::{SimDisk, SimStore, SimWorld, Snapshot};

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

/// Writes `rows` rows, each filled with the byte `with`.
fn write(engine: &Engine, rows: u8, with: u8) -> Result<(), Error> {
    write_to(engine, "db/t", rows, with)
}

fn write_to(engine: &Engine, name: &str, rows: u8, with: u8) -> Result<(), Error> {
    let table = match engine.open_table(name) {
        Err(Error::Absent(_)) => {
            let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
            engine.create_table(name, &TableDef { indexes, properties: Vec::new() })?
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
fn an_older_copy_of_the_volume_never_takes_the_newer_store() {
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
            let trouble = engine
                .core()
                .storage
                .cold
                .as_ref()
                .unwrap()
                .trouble()
                .map(|one| one.text)
                .unwrap_or_default();
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
        let look = OfflineInstance::open(disk.clone(), Some(store.clone() as _)).unwrap();
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
            let trouble = engine
                .core()
                .storage
                .cold
                .as_ref()
                .unwrap()
                .trouble()
                .map(|one| one.text)
                .unwrap_or_default();
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
fn a_copy_from_the_same_run_never_takes_the_store_that_the_volume_has_written_to_since() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    put_back_a_copy_of_the_same_life();
}

/// Planted bugs are switched on for all.
static ONE: Mutex<()> = Mutex::new(());

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_an_epoch_mark_that_is_not_advanced_is_found() {
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

/// Has the volume adopt the store, as a person says.
fn adopt(
    sim: &SimWorld,
    disk: &Arc<SimDisk>,
    store: &Arc<SimStore>,
    despite_loss: bool,
) -> Result<Vec<Lost>, Error> {
    let look = OfflineInstance::open(disk.clone(), Some(store.clone() as _))?;
    let Some(mut adoption) = Adoption::examine(&look, &mut |_, _, _| {})? else { return Ok(Vec::new()) };
    let nonce = sim.world().random.next_u64().max(1);
    adoption.carry_out((disk.clone(), store.clone()), nonce, despite_loss, &mut |_, _, _| {})?;
    Ok(adoption.lost)
}

/// Time passes, in which superseded objects are collected.
fn rest(sim: &SimWorld) {
    for _ in 0..5 {
        sim.sched.run_some(20_000);
        sim.clock.advance(1_000_000_000);
    }
    sim.sched.run_some(20_000);
}

fn is_passed(disk: &Arc<SimDisk>, store: &Arc<SimStore>) -> bool {
    OfflineInstance::open(disk.clone(), Some(store.clone() as _)).unwrap().passed_by.is_some()
}

fn trouble(engine: &Engine) -> String {
    engine.core().storage.cold.as_ref().unwrap().trouble().map(|one| one.text).unwrap_or_default()
}

/// The store has all that the map names, and nothing else.
fn matches_its_store(engine: &Engine, store: &SimStore) {
    let named = engine.core().storage.map.objects();
    let mut named: Vec<String> = named.iter().map(|key| key.to_string()).collect();
    named.extend(["epoch".into(), "holder".into()]);
    named.sort();
    assert_eq!(store.keys(), named);
}

/// Yesterday's copy and today's, which went on with another table; today's is on the disk.
fn yesterday_and_today(sim: &SimWorld, disk: &Arc<SimDisk>, store: &Arc<SimStore>) -> [Snapshot; 2] {
    let engine = open(sim, disk, store);
    write(&engine, ROWS, 1).unwrap();
    sink(&engine).unwrap();
    end(sim, disk, engine, false);
    // What the shutdown wrote is sunk as well: from here on no session touches the table.
    let engine = open(sim, disk, store);
    sink(&engine).unwrap();
    rest(sim);
    end(sim, disk, engine, false);
    let yesterday = disk.snapshot();
    let engine = open(sim, disk, store);
    write_to(&engine, "db/since", ROWS, 2).unwrap();
    sink(&engine).unwrap();
    rest(sim);
    end(sim, disk, engine, false);
    [yesterday, disk.snapshot()]
}

#[test]
fn a_restored_volume_adopts_the_store_without_loss_and_the_other_copy_is_fenced() {
    for seed in 30..34 {
        let sim = SimWorld::new(seed);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        let [yesterday, today] = yesterday_and_today(&sim, &disk, &store);
        disk.restore(&yesterday);
        for start in 0..seed % 3 {
            let engine = open(&sim, &disk, &store);
            rest(&sim);
            assert!(trouble(&engine).contains("terrace adopt"), "{}", trouble(&engine));
            end(&sim, &disk, engine, start == 0);
        }
        assert!(is_passed(&disk, &store));
        let look = OfflineInstance::open(disk.clone(), Some(store.clone() as _)).unwrap();
        let adoption = Adoption::examine(&look, &mut |_, _, _| {}).unwrap().unwrap();
        let (lost, named, unnamed) = (&adoption.lost, adoption.named, adoption.unnamed.0);
        assert!(lost.is_empty() && named > 0 && unnamed > 0, "{lost:?}, {named} named, {unnamed} not");
        drop(look);
        assert_eq!(adopt(&sim, &disk, &store, false).unwrap(), Vec::new());
        assert!(!is_passed(&disk, &store), "it is its own now");

        // The other copy is started before this one.
        let (adopted, kept) = (disk.snapshot(), store.keys());
        disk.restore(&today);
        for start in 0..3 {
            let engine = open(&sim, &disk, &store);
            rest(&sim);
            assert!(trouble(&engine).contains("another copy of this volume"), "start {start}");
            assert!(sink(&engine).is_err());
            end(&sim, &disk, engine, start == 1);
            assert_eq!(
                store.keys(),
                kept,
                "seed {seed}, start {start}: the fenced copy has changed the store"
            );
        }

        disk.restore(&adopted);
        for life in 3..5 {
            let engine = open(&sim, &disk, &store);
            rest(&sim);
            assert_eq!(trouble(&engine), "");
            assert!(matches!(engine.open_table("db/since"), Err(Error::Absent(_))));
            matches_its_store(&engine, &store);
            has(&engine, ROWS, if life == 3 { 1 } else { 3 });
            write(&engine, ROWS, life).unwrap();
            sink(&engine).unwrap();
            end(&sim, &disk, engine, seed % 2 == 1);
        }
    }
}

/// It was not lost at all: it runs, and is fenced when it looks at the store next. If it has written since it was looked at, nothing happens to it.
#[test]
fn a_running_copy_is_fenced_by_anothers_adoption_or_makes_it_fail() {
    for writes in [false, true] {
        let sim = SimWorld::new(40);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        let [yesterday, _] = yesterday_and_today(&sim, &disk, &store);
        let other = sim.disk("put back");
        other.restore(&yesterday);
        let running = open(&sim, &disk, &store);
        write(&running, ROWS, 3).unwrap();
        sink(&running).unwrap();

        let look = OfflineInstance::open(other.clone(), Some(store.clone() as _)).unwrap();
        let mut adoption = Adoption::examine(&look, &mut |_, _, _| {}).unwrap().unwrap();
        if writes {
            sim.clock.advance(20_000_000_000);
            write(&running, ROWS, 4).unwrap();
            sink(&running).unwrap();
        }
        let done = adoption.carry_out((other.clone(), store.clone()), 5, true, &mut |_, _, _| {});
        drop(look);
        assert_eq!(done.is_ok(), !writes, "{done:?}");
        assert_eq!(is_passed(&other, &store), writes);
        // It looks whether the store is its own every ten seconds, and before it deletes anything.
        sim.clock.advance(20_000_000_000);
        write(&running, ROWS, 5).unwrap();
        let sunk = sink(&running);
        assert_eq!(sunk.is_err(), !writes, "{sunk:?}");
        let kept = store.keys();
        rest(&sim);
        if !writes {
            assert_eq!(store.keys(), kept);
            assert!(trouble(&running).contains("fenced"), "{}", trouble(&running));
        }
        has(&running, ROWS, 5);
        end(&sim, &disk, running, false);
    }
}

#[test]
fn adoption_names_objects_collected_since_and_is_refused_unless_forced() {
    let sim = SimWorld::new(41);
    let (disk, store) = (sim.disk("volume"), sim.store("store"));
    let engine = open(&sim, &disk, &store);
    write(&engine, ROWS, 1).unwrap();
    write_to(&engine, "db/whole", 20, 1).unwrap();
    sink(&engine).unwrap();
    end(&sim, &disk, engine, false);
    let engine = open(&sim, &disk, &store);
    sink(&engine).unwrap();
    rest(&sim);
    end(&sim, &disk, engine, false);
    let yesterday = disk.snapshot();
    for life in 2..4 {
        let engine = open(&sim, &disk, &store);
        write(&engine, ROWS, life).unwrap();
        sink(&engine).unwrap();
        rest(&sim);
        end(&sim, &disk, engine, false);
    }

    disk.restore(&yesterday);
    let (volume, kept) = (disk.contents("superblock"), store.keys());
    let refused = adopt(&sim, &disk, &store, false).unwrap_err();
    assert!(matches!(&refused, Error::Missing(_)), "{refused}");
    assert!(store.keys() == kept && disk.contents("superblock") == volume && is_passed(&disk, &store));

    let lost = adopt(&sim, &disk, &store, true).unwrap();
    assert!(lost.len() == 1 && lost[0].of == "table db/t index PRIMARY", "{lost:?}");
    // The block's object, and its patch object.
    assert!(lost[0].pages >= 5 && lost[0].objects == 2, "{lost:?}");
    let engine = open(&sim, &disk, &store);
    rest(&sim);
    assert_eq!(trouble(&engine), "");
    let txn = engine.begin(Isolation::RepeatableRead);
    let read = |name: &str| {
        let table = engine.open_table(name)?;
        txn.get(&table, &[0], Lock::None, &mut Vec::new())
    };
    assert!(read("db/whole").unwrap());
    assert!(matches!(read("db/t"), Err(Error::Missing(_))));
    txn.rollback().unwrap();
    write_to(&engine, "db/whole", 20, 3).unwrap();
    sink(&engine).unwrap();
    end(&sim, &disk, engine, false);
}

#[test]
fn a_crash_at_any_step_of_an_adoption_leaves_a_volume_that_adopts_or_takes_its_store() {
    let prepared = |seed: u64| {
        let sim = SimWorld::new(seed);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        let [yesterday, today] = yesterday_and_today(&sim, &disk, &store);
        disk.restore(&yesterday);
        (sim, disk, store, today)
    };
    let (sim, disk, store, _) = prepared(42);
    let before = sim.steps();
    adopt(&sim, &disk, &store, false).unwrap();
    let steps = sim.steps() - before;
    let (mut again, mut through) = (0, 0);
    for step in 1..=steps {
        for lands in [false, true] {
            let (sim, disk, store, today) = prepared(42);
            sim.crash_at(sim.steps() + step);
            assert!(adopt(&sim, &disk, &store, false).is_err(), "step {step} of {steps}");
            disk.crash();
            sim.power_on();
            if lands {
                store.land_late_puts();
            }
            if is_passed(&disk, &store) {
                again += 1;
                adopt(&sim, &disk, &store, false).unwrap();
            } else {
                through += 1;
            }
            let engine = open(&sim, &disk, &store);
            rest(&sim);
            assert_eq!(trouble(&engine), "", "step {step}");
            has(&engine, ROWS, 1);
            matches_its_store(&engine, &store);
            end(&sim, &disk, engine, false);
            let kept = store.keys();
            disk.restore(&today);
            let engine = open(&sim, &disk, &store);
            rest(&sim);
            assert!(trouble(&engine).contains("another copy of this volume"), "step {step}");
            end(&sim, &disk, engine, false);
            assert_eq!(store.keys(), kept, "step {step}");
        }
    }
    println!("{steps} steps: {again} times adopted again, {through} times it was noted");
    assert!(again > 0 && through > 0);
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_an_adoption_that_the_volume_does_not_note_is_found() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let sim = SimWorld::new(43);
    let (disk, store) = (sim.disk("volume"), sim.store("store"));
    let [yesterday, _] = yesterday_and_today(&sim, &disk, &store);
    disk.restore(&yesterday);
    terrace_tier::planted::TAKER_NOT_NOTED.set(true);
    let adopted = adopt(&sim, &disk, &store, false);
    terrace_tier::planted::TAKER_NOT_NOTED.set(false);
    assert!(adopted.is_ok() && is_passed(&disk, &store));
}
