//! One file of the volume put back from an older copy, or a page of the map as it was: a lost write, or a hand that meant well. What the old
//! map leads to may be there still, intact; rows of yesterday among those of today are the worst answer there is.

use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::look::Look;
use terrace_engine::{Engine, Error, IndexDef, Isolation, Lock, Parts, TableDef};
use terrace_io::disk::{Class, Disk};
use terrace_sim::{SimDisk, SimWorld};

const PAGE: usize = 16384;
const FILES: [&str; 3] = ["map", "superblock", "log.0"];

type Files = BTreeMap<&'static str, Vec<u8>>;

fn open(sim: &SimWorld, disk: &Arc<SimDisk>) -> Result<Arc<Engine>, Error> {
    let config = Config {
        memory: Bytes(10 << 20),
        log: Bytes(8 << 20),
        log_partitions: 1,
        object_buffer: Bytes(32 << 20),
        ..Config::default()
    };
    Engine::open(config, Parts { world: sim.world(), volume: disk.clone(), flash: None, store: None })
}

/// Forty spaces with a row each, so that the map has forty pages.
fn write(engine: &Engine, with: u8) {
    for number in 0..40 {
        let name = format!("db/t{number}");
        let table = match engine.open_table(&name) {
            Err(Error::Absent(_)) => {
                let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
                engine.create_table(&name, &TableDef { indexes, properties: Vec::new() }).unwrap()
            }
            other => other.unwrap(),
        };
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.statement_begin();
        if txn.get(&table, &[0], Lock::Exclusive, &mut Vec::new()).unwrap() {
            txn.update(&table, &[0], &[with; 500], &[], &[]).unwrap();
        } else {
            txn.insert(&table, &[0], &[with; 500], &[]).unwrap();
        }
        txn.commit().unwrap().wait().unwrap();
    }
}

fn read(engine: &Engine) -> Result<Vec<u8>, Error> {
    (0..40)
        .map(|number| {
            let (table, txn) =
                (engine.open_table(&format!("db/t{number}"))?, engine.begin(Isolation::RepeatableRead));
            let mut row = Vec::new();
            assert!(txn.get(&table, &[0], Lock::None, &mut row)?);
            Ok(row[0])
        })
        .collect()
}

fn end(sim: &SimWorld, disk: &SimDisk, engine: Arc<Engine>, crash: bool) {
    if crash {
        // What a checkpoint logs of the map itself comes home with the next; in the end the log has nothing that leads to it.
        (0..4).for_each(|_| engine.core().storage.checkpoint().unwrap());
        sim.sched.drop_workers();
        drop(engine);
        disk.crash();
        sim.power_on();
    } else {
        engine.shutdown().unwrap();
    }
}

fn files(disk: &SimDisk) -> Files {
    FILES.map(|name| (name, disk.contents(name).unwrap())).into()
}

fn put(disk: &SimDisk, name: &str, at: usize, bytes: &[u8]) {
    let file = disk.open(name).unwrap();
    file.write(Class::Superblock, at as u64, bytes).unwrap();
    file.sync(Class::Superblock).unwrap();
}

/// Two lives, the second of which ended in order or by a crash; the volume's files after the first.
fn lives(seed: u64, crash: bool) -> (SimWorld, Arc<SimDisk>, Files) {
    let sim = SimWorld::new(seed);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    write(&engine, 1);
    end(&sim, &disk, engine, false);
    let yesterday = files(&disk);
    let engine = open(&sim, &disk).unwrap();
    write(&engine, 2);
    end(&sim, &disk, engine, crash);
    (sim, disk, yesterday)
}

/// Refused by a start and by a look, and the same when asked again; right when today's is there again.
fn is_refused(sim: &SimWorld, disk: &Arc<SimDisk>, word: &str) {
    for _ in 0..2 {
        let Err(Error::Corrupt(what)) = open(sim, disk) else { panic!("a part of yesterday was taken") };
        assert!(what.contains(word), "{what}");
    }
    let Err(Error::Corrupt(what)) = Look::open(disk.clone(), None) else { panic!("a look was given") };
    assert!(what.contains(word), "{what}");
}

fn is_right(sim: &SimWorld, disk: &Arc<SimDisk>) {
    let engine = open(sim, disk).unwrap();
    assert_eq!(read(&engine).unwrap(), [2; 40]);
    end(sim, disk, engine, false);
}

#[test]
fn a_file_of_yesterday_is_refused_after_a_close_and_after_a_crash() {
    for (seed, crash) in [(1, false), (2, true)] {
        for (name, word) in [("map", "the map is not the one"), ("superblock", ""), ("log.0", "")] {
            let (sim, disk, yesterday) = lives(seed, crash);
            let today = files(&disk);
            let bytes = &yesterday[name];
            assert!(*bytes != today[name], "{name} has not changed: this proves nothing");
            put(&disk, name, 0, bytes);
            if name == "log.0" && open(&sim, &disk).is_ok_and(|engine| engine.shutdown().is_ok()) {
                // Nothing of it is needed after a checkpoint of everything, and nothing of it is taken.
                is_right(&sim, &disk);
                continue;
            }
            is_refused(&sim, &disk, word);
            put(&disk, name, 0, &today[name]);
            is_right(&sim, &disk);
        }
    }
}

#[test]
fn after_a_close_any_page_of_the_map_that_is_of_yesterday_is_found() {
    let (sim, disk, yesterday) = lives(3, false);
    let (old, new) = (&yesterday["map"], files(&disk)["map"].clone());
    let changed: Vec<usize> = (0..old.len().min(new.len()) / (2 * PAGE))
        .filter(|page| old[page * 2 * PAGE..][..2 * PAGE] != new[page * 2 * PAGE..][..2 * PAGE])
        .collect();
    assert!(changed.len() > 30, "{changed:?}");
    for page in changed {
        let at = page * 2 * PAGE;
        put(&disk, "map", at, &old[at..at + 2 * PAGE]);
        is_refused(&sim, &disk, "the map is not the one");
        put(&disk, "map", at, &new[at..at + 2 * PAGE]);
    }
    is_right(&sim, &disk);
}
