//! An instance that owns a store finds an empty one in its place at a start (a directory that is not mounted yet): it
//! works on the near tiers, puts no object, reports why, and resumes when its store is back; also if it has no object yet.

use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::offline::instance::OfflineInstance;
use terrace_io::disk::Disk;
use terrace_sim::{SimDisk, SimStore, SimWorld};

fn open(sim: &SimWorld, disk: &Arc<SimDisk>, store: Option<&Arc<SimStore>>) -> Result<Arc<Engine>, Error> {
    let config = Config {
        memory: Bytes(10 << 20),
        log: Bytes(8 << 20),
        log_partitions: 1,
        object_buffer: Bytes(64 << 20),
        ..Config::default()
    };
    let store = store.map(|store| store.clone() as _);
    Engine::open(config, Parts { world: sim.world(), volume: disk.clone(), flash: None, store })
}

fn put(engine: &Engine, key: u8) -> Result<(), Error> {
    let table = match engine.open_table("db/t") {
        Err(Error::Absent(_)) => {
            let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
            engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() })?
        }
        other => other?,
    };
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.statement_begin();
    txn.insert(&table, &[key], &[key; 500], &[])?;
    txn.commit()?.wait()
}

/// The keys below `n` are there, and no other.
fn has(engine: &Engine, n: u8) {
    let (table, txn) = (engine.open_table("db/t").unwrap(), engine.begin(Isolation::RepeatableRead));
    for key in 0..=n {
        assert_eq!(txn.get(&table, &[key], Lock::None, &mut Vec::new()).unwrap(), key < n, "key {key}");
    }
}

fn sink(engine: &Engine) -> Result<(), String> {
    engine.core().storage.checkpoint().unwrap();
    let cold = engine.core().storage.cold.clone().unwrap();
    cold.sinker.sink_all().map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn an_instance_whose_store_holds_no_objects_does_not_take_another_empty_store() {
    let sim = SimWorld::new(1);
    let (disk, store, empty) = (sim.disk("volume"), sim.store("store"), sim.store("empty"));
    let engine = open(&sim, &disk, Some(&store)).unwrap();
    put(&engine, 0).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    assert_eq!(store.keys(), ["epoch", "holder"], "this shows nothing about an instance without objects");

    let engine = open(&sim, &disk, Some(&empty)).unwrap();
    has(&engine, 1);
    put(&engine, 1).unwrap();
    let refused = sink(&engine).unwrap_err();
    assert!(refused.contains("holds nothing of this instance"), "{refused}");
    sim.sched.run_some(5000);
    has(&engine, 2);
    engine.shutdown().unwrap();
    drop(engine);
    assert!(empty.keys().is_empty(), "{:?} is put where the store is not", empty.keys());
    let look = OfflineInstance::open(disk.clone(), Some(empty));
    assert!(look.is_err_and(|error| error.to_string().contains("holds nothing of this instance")));

    let engine = open(&sim, &disk, Some(&store)).unwrap();
    sink(&engine).unwrap();
    assert!(store.keys().len() > 2, "{:?}: nothing was sunk", store.keys());
    has(&engine, 2);
}

/// As an instance begins without a store, and gets one later.
#[test]
fn a_store_added_later_is_taken_and_is_then_the_only_one_accepted() {
    let sim = SimWorld::new(2);
    let (disk, store, empty) = (sim.disk("volume"), sim.store("store"), sim.store("empty"));
    let engine = open(&sim, &disk, None).unwrap();
    put(&engine, 0).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    drop(open(&sim, &disk, Some(&store)).unwrap());
    assert_eq!(store.keys(), ["epoch", "holder"]);
    let engine = open(&sim, &disk, Some(&empty)).unwrap();
    assert!(sink(&engine).is_err());
    has(&engine, 1);
    assert!(empty.keys().is_empty());
}

/// At each step of the first start: an instance whose open was not acknowledged may start over, with the same store or another.
#[test]
fn a_crash_at_any_step_of_the_first_start_leaves_an_instance_that_takes_its_store() {
    let steps = {
        let sim = SimWorld::new(3);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        put(&open(&sim, &disk, Some(&store)).unwrap(), 0).unwrap();
        sim.steps()
    };
    assert!(steps > 20, "only {steps} steps");
    let mut left = 0;
    for step in 1..=steps {
        let sim = SimWorld::new(3);
        let (disk, store) = (sim.disk("volume"), sim.store("store"));
        sim.crash_at(step);
        let done = open(&sim, &disk, Some(&store)).and_then(|engine| put(&engine, 0));
        sim.sched.drop_workers();
        disk.crash();
        sim.power_on();
        // A volume without a superblock has no instance yet: the next start creates another one.
        left += u64::from(disk.exists("superblock").unwrap());
        let engine = match open(&sim, &disk, Some(&store)) {
            Err(error) if error.to_string().contains("belongs to instance") => {
                panic!("step {step}: the store was taken for an instance that is not: {error}")
            }
            opened => opened.unwrap_or_else(|error| panic!("step {step}: {error}")),
        };
        let key = u8::from(engine.open_table("db/t").is_ok_and(|table| {
            let txn = engine.begin(Isolation::RepeatableRead);
            txn.get(&table, &[0], Lock::None, &mut Vec::new()).unwrap()
        }));
        assert!(key == 1 || done.is_err(), "step {step}: what was acknowledged is gone");
        put(&engine, key).unwrap();
        sink(&engine).unwrap_or_else(|error| panic!("step {step}: {error}"));
    }
    assert!(left > steps / 3, "an instance was left at {left} of {steps} steps: this proves little");
}
