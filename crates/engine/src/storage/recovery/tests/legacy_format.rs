//! Volumes whose log is of a former format: those closed cleanly are opened, all others refused.

use crate::Engine;
use crate::IndexDef;
use crate::Isolation;
use crate::Lock;
use crate::Parts;
use crate::Table;
use crate::TableDef;
use crate::config::{Bytes, Config};
use crate::error::Error;
use crate::offline::instance::OfflineInstance;
use crate::superblock::{FILE, Superblock, VERSION};
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk};
use terrace_log::block::BLOCK;
use terrace_log::recovery::VERSION_OF_LOG;
use terrace_sim::{SimDisk, SimWorld};

fn open(sim: &SimWorld, disk: &Arc<SimDisk>) -> Result<Arc<Engine>, Error> {
    let config =
        Config { memory: Bytes(10 << 20), log: Bytes(8 << 20), log_partitions: 2, ..Config::default() };
    let parts = Parts { world: sim.world(), volume: disk.clone(), flash: None, store: None };
    Engine::open(config, parts)
}

fn put(engine: &Engine, table: &Table, keys: std::ops::Range<u64>) {
    for key in keys {
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.insert(table, &key.to_be_bytes(), &[key as u8; 100], &[]).unwrap();
        txn.commit().unwrap().wait().unwrap();
    }
}

/// The existing keys, with their rows.
fn keys(engine: &Engine) -> Vec<u64> {
    let table = engine.open_table("d/t").unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut row = Vec::new();
    let mut there = |key: &u64| {
        let found = txn.get(&table, &key.to_be_bytes(), Lock::None, &mut row).unwrap();
        assert!(!found || row == [*key as u8; 100]);
        found
    };
    (0..200).filter(|key| there(key)).collect()
}

fn rewrite(disk: &SimDisk, name: &str, change: impl Fn(&mut [u8])) {
    let now = disk.contents(name).unwrap();
    let mut bytes = AlignedBuf::zeroed(now.len());
    bytes.copy_from_slice(&now);
    // Copies of the superblock and blocks of the log: a sum before everything else.
    for part in bytes.chunks_exact_mut(BLOCK).filter(|part| part.iter().any(|byte| *byte != 0)) {
        change(part);
        let sum = crc32c::crc32c(&part[4..]);
        part[..4].copy_from_slice(&sum.to_le_bytes());
    }
    let file = disk.open(name).unwrap();
    file.write(Class::LogWrite, 0, &bytes).unwrap();
    file.sync(Class::LogWrite).unwrap();
}

/// What the build before would have left: its records had another form, which a build that refuses them does not read.
fn make_former(disk: &SimDisk) {
    rewrite(disk, FILE, |copy| copy[16] = VERSION_OF_LOG as u8 - 1);
    for partition in 0..2 {
        rewrite(disk, &terrace_log::file_name(partition), |block| block[4..8].copy_from_slice(b"TLG1"));
    }
}

/// A volume of 100 rows.
fn made(sim: &SimWorld, clean: bool) -> Arc<SimDisk> {
    let disk = sim.disk("volume");
    let engine = open(sim, &disk).unwrap();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let table = engine.create_table("d/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    put(&engine, &table, 0..100);
    if clean {
        engine.shutdown().unwrap();
    }
    drop((table, engine));
    if !clean {
        disk.crash();
        sim.power_on();
    }
    disk
}

fn refused(sim: &SimWorld, disk: &Arc<SimDisk>) {
    let files = || ["superblock", "log.0", "log.1", "map", "pages"].map(|name| disk.contents(name).unwrap());
    let before = files();
    for _ in 0..2 {
        let Err(Error::Invalid(message)) = open(sim, disk) else { panic!("it was opened") };
        assert!(message.contains("version 8") && message.contains("shut that down"), "{message}");
        let Err(Error::Invalid(again)) = OfflineInstance::open(disk.clone(), None) else {
            panic!("it was looked at")
        };
        assert_eq!(message, again);
    }
    assert!(files() == before);
}

#[test]
fn a_cleanly_closed_volume_continues_with_the_new_log() {
    let sim = SimWorld::new(1);
    let disk = made(&sim, true);
    make_former(&disk);
    let old = Superblock::read(&*disk).unwrap();
    assert_eq!((old.version, old.clean), (8, true));
    drop(OfflineInstance::open(disk.clone(), None).unwrap());

    // Lives that end by loss of power, over blocks of the former log.
    for life in 0..5 {
        let engine = open(&sim, &disk).unwrap();
        assert_eq!(Superblock::read(&*disk).unwrap().version, VERSION);
        assert_eq!(keys(&engine), (0..100 + 10 * life).collect::<Vec<_>>());
        let table = engine.open_table("d/t").unwrap();
        put(&engine, &table, 100 + 10 * life..110 + 10 * life);
        drop((table, engine));
        disk.crash();
        sim.power_on();
    }
    let engine = open(&sim, &disk).unwrap();
    assert_eq!(keys(&engine), (0..150).collect::<Vec<_>>());
    engine.shutdown().unwrap();
}

#[test]
fn a_volume_not_closed_cleanly_is_refused_and_unchanged() {
    let sim = SimWorld::new(2);
    let disk = made(&sim, false);
    make_former(&disk);
    refused(&sim, &disk);
    // As it came, it has all rows.
    rewrite(&disk, FILE, |copy| copy[16] = VERSION as u8);
    for partition in 0..2 {
        rewrite(&disk, &terrace_log::file_name(partition), |block| block[4..8].copy_from_slice(b"TLG2"));
    }
    assert_eq!(keys(&open(&sim, &disk).unwrap()), (0..100).collect::<Vec<_>>());
}

/// The superblock is an old copy: it was closed cleanly once, and opened again.
#[test]
fn a_log_that_continues_behind_a_clean_end_is_refused() {
    let sim = SimWorld::new(3);
    let disk = made(&sim, true);
    let clean = disk.contents(FILE).unwrap();
    let engine = open(&sim, &disk).unwrap();
    let table = engine.open_table("d/t").unwrap();
    put(&engine, &table, 100..110);
    drop((table, engine));
    disk.crash();
    sim.power_on();
    let mut back = AlignedBuf::zeroed(clean.len());
    back.copy_from_slice(&clean);
    disk.open(FILE).unwrap().write(Class::Superblock, 0, &back).unwrap();
    make_former(&disk);
    assert!(Superblock::read(&*disk).unwrap().clean);
    refused(&sim, &disk);
}
