//! One file of the volume is restored from an older copy, or one page of the map: a lost write, or a mistaken repair. The pages that the old map
//! points to may still be intact; old rows among new ones would be the worst outcome.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::config::Config;
use terrace_io::disk::{Class, Disk};
use terrace_sim::SimDisk;

const PAGE: usize = 16384;
const FILES: [&str; 3] = ["map", "superblock", "log.0"];

type Files = BTreeMap<&'static str, Vec<u8>>;

fn open(on: &Machine) -> Result<Arc<Engine>, Error> {
    on.open(Config { log_partitions: 1, ..kit::config(10 << 20, 8 << 20, 32 << 20) })
}

/// Forty spaces with a row each, so that the map has forty pages.
fn write(engine: &Engine, with: u8) {
    for number in 0..40 {
        let name = format!("db/t{number}");
        let table = kit::table(engine, &name, &kit::primary()).unwrap();
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

fn end(on: &Machine, engine: Arc<Engine>, crash: bool) {
    if crash {
        // What a checkpoint logs of the map itself comes home with the next; in the end the log has nothing that leads to it.
        (0..4).for_each(|_| engine.core().storage.checkpoint().unwrap());
        on.sim.sched.drop_workers();
        drop(engine);
        on.power_cycle();
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
fn lives(seed: u64, crash: bool) -> (Machine, Files) {
    let on = Machine::new(seed);
    let engine = open(&on).unwrap();
    write(&engine, 1);
    end(&on, engine, false);
    let yesterday = files(&on.volume);
    let engine = open(&on).unwrap();
    write(&engine, 2);
    end(&on, engine, crash);
    (on, yesterday)
}

/// A start and a read-only open both refuse the volume, twice; with the newer file back it is right.
fn is_refused(on: &Machine, word: &str) {
    for _ in 0..2 {
        let Err(Error::Corrupt(what)) = open(on) else { panic!("a part of yesterday was taken") };
        assert!(what.contains(word), "{what}");
    }
    let Err(Error::Corrupt(what)) = on.look() else { panic!("a look was given") };
    assert!(what.contains(word), "{what}");
}

fn is_right(on: &Machine) {
    let engine = open(on).unwrap();
    assert_eq!(read(&engine).unwrap(), [2; 40]);
    end(on, engine, false);
}

#[test]
fn an_older_copy_of_one_file_is_refused_after_a_close_and_after_a_crash() {
    for (seed, crash) in [(1, false), (2, true)] {
        for (name, word) in [("map", "the map is not the one"), ("superblock", ""), ("log.0", "")] {
            let (on, yesterday) = lives(seed, crash);
            let today = files(&on.volume);
            let bytes = &yesterday[name];
            assert!(*bytes != today[name], "{name} has not changed: this proves nothing");
            put(&on.volume, name, 0, bytes);
            if name == "log.0" && open(&on).is_ok_and(|engine| engine.shutdown().is_ok()) {
                // Nothing of it is needed after a checkpoint of everything, and nothing of it is taken.
                is_right(&on);
                continue;
            }
            is_refused(&on, word);
            put(&on.volume, name, 0, &today[name]);
            is_right(&on);
        }
    }
}

#[test]
fn after_a_close_an_older_copy_of_any_map_page_is_found() {
    let (on, yesterday) = lives(3, false);
    let (old, new) = (&yesterday["map"], files(&on.volume)["map"].clone());
    let changed: Vec<usize> = (0..old.len().min(new.len()) / (2 * PAGE))
        .filter(|page| old[page * 2 * PAGE..][..2 * PAGE] != new[page * 2 * PAGE..][..2 * PAGE])
        .collect();
    assert!(changed.len() > 30, "{changed:?}");
    for page in changed {
        let at = page * 2 * PAGE;
        put(&on.volume, "map", at, &old[at..at + 2 * PAGE]);
        is_refused(&on, "the map is not the one");
        put(&on.volume, "map", at, &new[at..at + 2 * PAGE]);
    }
    is_right(&on);
}
