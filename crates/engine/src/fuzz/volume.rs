//! A whole instance started on a damaged volume, and worked with.
//!
//! The input is a list of edits of ten bytes: which file, which of its pages or blocks in use, where, what.
//! Every page and block that was changed is sealed again, and the map learns the new tags. So a start
//! meets bytes that are intact everywhere and make sense nowhere.

use super::{Sample, sample};
use crate::Access;
use crate::Engine;
use crate::IndexDef;
use crate::Isolation;
use crate::Lock;
use crate::Seek;
use crate::TableDef;
use crate::config::{Bytes, Config};
use crate::error::{Error, Kind};
use crate::storage::Parts;
use crate::superblock::{self, COPY};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk};
use terrace_log::block::BLOCK;
use terrace_log::file_name;
use terrace_sim::disk::Snapshot;
use terrace_sim::{SimDisk, SimWorld};
use terrace_tier::page::{self, BLOCK_PAGES, PAGE_HEADER, PAGE_SIZE, PageRef};
use terrace_tier::volume::map::entry::{ENTRIES, ENTRY, Entry};
use terrace_tier::volume::map::home;
use terrace_tier::volume::object_buffer;

const EDIT: usize = 10;
const LOGS: usize = 2;
/// Turns of the workers after which a wait is said to be endless.
const TURNS_MAX: u64 = 300_000;

/// A volume to damage.
struct Base {
    snapshot: Snapshot,
    /// Each file with the size of its pages or blocks, and which of them are in use.
    files: Vec<(String, usize, Vec<usize>)>,
}

fn config() -> Config {
    Config {
        memory: Bytes(4 << 20),
        log: Bytes(4 << 20),
        log_partitions: LOGS,
        object_buffer: Bytes(16 << 20),
        lock_wait_timeout_ms: 100,
        log_wait_timeout_ms: 1000,
        ..Config::default()
    }
}

fn open(sim: &SimWorld, disk: &Arc<SimDisk>) -> Result<Arc<Engine>, Error> {
    let parts = Parts { world: sim.world(), volume: disk.clone(), flash: None, store: None };
    Engine::open(config(), parts)
}

/// Commits, an unfinished transaction, large rows, a checkpoint in between; then the power goes.
fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let sim = SimWorld::new(3);
        let disk = sim.disk("volume");
        let engine = open(&sim, &disk).unwrap();
        let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
        let table = engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
        let view = engine.begin(Isolation::RepeatableRead);
        for round in 0..4u64 {
            let txn = engine.begin(Isolation::RepeatableRead);
            for key in 0..30u64 {
                let row = vec![round as u8; if key == 7 { 30_000 } else { 300 }];
                match round {
                    0 => txn.insert(&table, &key.to_be_bytes(), &row, &[]).unwrap(),
                    3 if key % 3 == 0 => txn.delete(&table, &key.to_be_bytes(), &[]).unwrap(),
                    _ => txn.update(&table, &key.to_be_bytes(), &row, &[], &[]).unwrap(),
                }
            }
            txn.commit().unwrap().wait().unwrap();
            view.open_view(); // keeps the past
            if round == 1 || round == 2 {
                engine.core().storage.checkpoint().unwrap();
            }
        }
        let unfinished = engine.begin(Isolation::RepeatableRead);
        for key in 40..50u64 {
            unfinished.insert(&table, &key.to_be_bytes(), &[9; 500], &[]).unwrap();
        }
        engine.make_durable().unwrap();
        let sizes = [(superblock::FILE.to_string(), COPY), (home::FILE.to_string(), PAGE_SIZE)];
        let rest =
            (0..LOGS).map(|i| (file_name(i), BLOCK)).chain([(object_buffer::FILE.to_string(), PAGE_SIZE)]);
        let used = |(name, size): (String, usize)| {
            let bytes = disk.contents(&name).unwrap();
            let units = bytes.chunks(size).enumerate().filter(|(_, unit)| unit.iter().any(|b| *b != 0));
            let units: Vec<usize> = units.map(|(i, _)| i).collect();
            assert!(!units.is_empty(), "{name} is not in use");
            (name, size, units)
        };
        let files = sizes.into_iter().chain(rest).map(used).collect();
        let snapshot = disk.snapshot();
        drop((view, unfinished, table, engine));
        sim.sched.drop_workers();
        Base { snapshot, files }
    })
}

pub fn samples() -> Vec<Sample> {
    // Edits spread over all files; what they write is drawn by the mutations.
    let edits = |n: u8| (0..n).flat_map(|i| [i, i * 7, 0, 40 + i, 0, i % 3, i, 0, 0, 0]).collect::<Vec<u8>>();
    (1..6).map(|n| sample(edits(n), (EDIT, EDIT))).collect()
}

fn read(disk: &SimDisk, file: &str, at: usize, len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    disk.open(file).unwrap().read(Class::Spill, at as u64, &mut buf).unwrap();
    buf
}

fn write(disk: &SimDisk, file: &str, at: usize, buf: &AlignedBuf) {
    let file = disk.open(file).unwrap();
    file.write(Class::Spill, at as u64, buf).unwrap();
    file.sync(Class::Spill).unwrap();
}

/// Makes the edits and seals what they touched.
fn damage(disk: &SimDisk, base: &Base, edits: &[u8]) {
    let mut touched = BTreeSet::new();
    for edit in edits.chunks_exact(EDIT).take(64) {
        let (number, unit) = (usize::from(edit[0]) % base.files.len(), usize::from(edit[1]));
        let (name, size, used) = &base.files[number];
        let unit = used[(unit | usize::from(edit[2]) << 8) % used.len()];
        let at = usize::from(u16::from_le_bytes([edit[3], edit[4]])) % size;
        let mut bytes = read(disk, name, unit * size, *size);
        let width = (1 << (edit[5] % 3)).min(size - at);
        bytes[at..at + width].copy_from_slice(&edit[6..6 + width]);
        write(disk, name, unit * size, &bytes);
        touched.insert((number, unit));
    }
    for (number, unit) in touched {
        let (name, size, _) = &base.files[number];
        let mut bytes = read(disk, name, unit * size, *size);
        if *size == PAGE_SIZE {
            let tag = page::seal(&mut bytes);
            if *name == object_buffer::FILE {
                learn_tag(disk, base, unit as u32, tag);
            }
        } else {
            super::parts::reseal(&mut bytes);
        }
        write(disk, name, unit * size, &bytes);
    }
}

/// The map names the slot's new image.
fn learn_tag(disk: &SimDisk, base: &Base, slot: u32, tag: u32) {
    let pages = base.files.iter().find(|(name, ..)| *name == home::FILE).map(|(.., used)| used);
    for unit in pages.into_iter().flatten() {
        let mut bytes = read(disk, home::FILE, unit * PAGE_SIZE, PAGE_SIZE);
        let mut named = Vec::new();
        for index in 0..ENTRIES {
            let entry = Entry::new(PageRef::new(&bytes), index);
            let of_slot = (0..BLOCK_PAGES as usize).filter(|i| entry.slot(*i).is_some_and(|s| s.0 == slot));
            named.extend(of_slot.map(|i| PAGE_HEADER + index as usize * ENTRY + 64 + 4 * i));
        }
        for at in named {
            bytes[at..at + 4].copy_from_slice(&tag.to_le_bytes());
        }
        page::seal(&mut bytes);
        write(disk, home::FILE, unit * PAGE_SIZE, &bytes);
    }
}

/// What a damaged instance may say. A poisoned engine stops by itself: so does this.
fn allowed<T>(result: Result<T, Error>) -> Option<T> {
    result.ok()
}

pub fn volume(edits: &[u8]) {
    let base = base();
    let sim = SimWorld::new(4);
    sim.sched.set_turns_max(TURNS_MAX);
    let disk = sim.disk("volume");
    disk.restore(&base.snapshot);
    damage(&disk, base, edits);
    for life in 0..2 {
        let engine = match open(&sim, &disk) {
            Ok(engine) => engine,
            Err(error) => {
                let kind = error.kind();
                let damaged =
                    matches!(kind, Kind::Corrupt | Kind::Invalid | Kind::Unavailable | Kind::Poisoned);
                assert!(damaged, "{kind:?}: {error}");
                return;
            }
        };
        sim.sched.run_some(300);
        work(&engine);
        sim.sched.run_some(300);
        if life == 0 {
            allowed(engine.shutdown());
        }
        drop(engine);
        sim.sched.drop_workers();
        disk.crash();
    }
}

fn work(engine: &Arc<Engine>) {
    let _ = (engine.status(), engine.spaces(), engine.notes(), engine.core().storage.map.faults());
    for name in engine.list_tables() {
        let Some(table) = allowed(engine.open_table(&name)) else { continue };
        let txn = engine.begin(Isolation::RepeatableRead);
        let Some(mut cursor) = allowed(txn.cursor(&table, 0, Lock::None, Access::Scan)) else { continue };
        let mut row = Vec::new();
        for to in [Seek::First, Seek::Last] {
            let mut valid = allowed(cursor.seek(&[], to));
            let mut steps = 0;
            while valid == Some(true) {
                allowed(cursor.row(&mut row));
                valid = allowed(if to == Seek::First { cursor.next() } else { cursor.prev() });
                steps += 1;
                assert!(steps < 100_000, "a cursor runs on");
            }
        }
        drop(cursor);
        drop(txn);
        for key in 0..60u64 {
            let txn = engine.begin(Isolation::ReadCommitted);
            txn.statement_begin();
            let key = key.to_be_bytes();
            let done = match allowed(txn.get(&table, &key, Lock::Exclusive, &mut row)) {
                Some(true) => txn.update(&table, &key, &[1; 700], &[], &[]),
                Some(false) => txn.insert(&table, &key, &[2; 9000], &[]),
                None => continue,
            };
            if done.is_ok() && key[7] % 2 == 0 {
                allowed(txn.commit().and_then(|ticket| ticket.wait()));
            } else {
                allowed(txn.rollback());
            }
        }
        allowed(table.check(0));
    }
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    allowed(engine.create_table("db/new", &TableDef { indexes, properties: Vec::new() }));
    allowed(engine.drop_table("db/t"));
}
