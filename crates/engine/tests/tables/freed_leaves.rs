//! Freed pages of trees and of undo keep no slot: other tables can use the space that a rollback or purge freed.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Row;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::config::Config;
use terrace_engine::offline::check::Verdict;
use terrace_sim::SimWorld;

const NO_ENTRY: [Entry<'static>; 0] = [];

fn config(object_buffer: u64) -> Config {
    kit::config(4 << 20, 8 << 20, object_buffer)
}

fn open(on: &Machine, object_buffer: u64) -> Result<Arc<Engine>, Error> {
    on.open(config(object_buffer))
}

fn table(engine: &Engine, name: &str) -> Result<Arc<Table>, Error> {
    kit::table(engine, name, &kit::primary())
}

fn row(key: u32) -> [u8; 1000] {
    [key as u8; 1000]
}

fn insert(engine: &Engine, table: &Arc<Table>, keys: std::ops::Range<u32>) -> Result<(), Error> {
    let txn = engine.begin(Isolation::ReadCommitted);
    for key in keys {
        txn.insert(table, &key.to_be_bytes(), &row(key), &NO_ENTRY)?;
    }
    txn.commit()?.wait()
}

fn delete(engine: &Engine, table: &Arc<Table>, keys: std::ops::Range<u32>) -> Result<(), Error> {
    let txn = engine.begin(Isolation::ReadCommitted);
    for key in keys {
        txn.delete(table, &key.to_be_bytes(), &NO_ENTRY)?;
    }
    txn.commit()?.wait()
}

fn pause(on: &Machine) {
    on.pass(20, 10_000_000, 200);
}

/// Slots that are in use when all that waits for something has been done.
fn used(on: &Machine, engine: &Engine) -> u32 {
    pause(on);
    let storage = &engine.core().storage;
    storage.checkpoint().unwrap();
    engine.make_durable().unwrap();
    storage.map.settle();
    storage.map.slots_total() - storage.map.slots_free()
}

#[test]
fn a_large_insert_that_fails_in_a_full_volume_leaves_room_for_a_copy_of_the_table() {
    const ROWS: u32 = 4000;
    let on = Machine::new(61);
    let engine = open(&on, 16 << 20).unwrap();
    let t = table(&engine, "db/t").unwrap();
    for first in (0..ROWS).step_by(100) {
        insert(&engine, &t, first..first + 100).unwrap();
    }
    let before = used(&on, &engine);
    // One statement, in the order of the keys and in none, until nothing more fits.
    for scattered in [false, true] {
        let txn = engine.begin(Isolation::ReadCommitted);
        let key = |n: u32| if scattered { n.wrapping_mul(0x9E37_79B1) | 1 << 31 } else { ROWS + n };
        let insert = |n: u32| txn.insert(&t, &key(n).to_be_bytes(), &row(n), &NO_ENTRY).err();
        let full = (0..40_000).find_map(insert).expect("the volume is never full");
        assert!(matches!(full, Error::Full(_)), "{full}");
        txn.rollback().unwrap();
        let free = t.tree(0).unwrap().space().counts().free;
        assert!(free > 250, "{free} pages are free: this proves little");
        let now = used(&on, &engine);
        println!("{before} slots before, {now} after, {free} pages are free");
        assert!(
            now < before + free / 4 + 32,
            "{now} slots are used, {before} were, and {free} pages are free"
        );
    }
    let copy = table(&engine, "db/copy").unwrap();
    for first in (0..ROWS).step_by(100) {
        insert(&engine, &copy, first..first + 100).unwrap();
    }
    t.check(0).unwrap();
    copy.check(0).unwrap();
}

/// Loads that build their tree and do not come to their end: rows in order, the tree written past the log or through it, and rows in no
/// order, of which the last key comes twice; and those that a crash cuts.
#[test]
fn a_rolled_back_load_leaves_no_page_with_a_slot() {
    const ROWS: u32 = 6000;
    for (case, (bypass, down)) in [(true, false), (true, true), (false, false)].into_iter().enumerate() {
        let on = Machine::new(64 + case as u64);
        let mut engine = open(&on, 64 << 20).unwrap();
        let t = table(&engine, "db/t").unwrap();
        drop(t);
        let before = used(&on, &engine);
        for crashes in [false, true].into_iter().filter(|crashes| !(down && *crashes)) {
            let t = table(&engine, "db/t").unwrap();
            engine.core().bypass.on.store(bypass, Ordering::Relaxed);
            let txn = engine.begin(Isolation::ReadCommitted);
            txn.statement_begin();
            let mut load = engine.load_within(&t, &txn, 1).unwrap();
            for n in 0..ROWS {
                let key = if down { ROWS - n } else { n };
                load.add(&key.to_be_bytes(), Row::from(&row(key)[..]), &NO_ENTRY).unwrap();
            }
            if down {
                load.add(&ROWS.to_be_bytes(), Row::from(&row(ROWS)[..]), &NO_ENTRY).unwrap();
            }
            assert!(!down || matches!(load.finish(), Err(Error::Duplicate { .. })));
            // What a crash cuts is in the log and in memory, in part.
            let there = if crashes { 0 } else { used(&on, &engine) };
            let pages = t.tree(0).unwrap().space().counts().pages;
            if crashes {
                engine.make_durable().unwrap();
                on.power_cycle();
                std::mem::forget((load, txn));
                drop(t);
                engine = open(&on, 64 << 20).unwrap();
            } else {
                drop(load);
                txn.statement_rollback().unwrap();
                txn.rollback().unwrap();
            }
            let now = used(&on, &engine);
            println!("{bypass} {down} {crashes}: {before} slots, {there} with {pages} pages, then {now}");
            assert!(pages > 300, "{pages} pages: this proves little");
            assert!(now <= before + 8, "{now} slots are used, {before} were before the load");
        }
    }
}

/// A transaction has more undo than memory has room for: its pages are written.
#[test]
fn undo_keeps_no_slot_once_it_is_purged_or_rolled_back() {
    const ROWS: u32 = 6000;
    let on = Machine::new(64);
    let engine = open(&on, 64 << 20).unwrap();
    let t = table(&engine, "db/t").unwrap();
    for first in (0..ROWS).step_by(100) {
        insert(&engine, &t, first..first + 100).unwrap();
    }
    let before = used(&on, &engine);
    for (round, commits) in [(1u8, true), (2, false), (3, true)] {
        let txn = engine.begin(Isolation::ReadCommitted);
        for key in 0..ROWS {
            let new = [round.wrapping_mul(77).wrapping_add(key as u8); 1000];
            txn.update(&t, &key.to_be_bytes(), &new, &NO_ENTRY, &NO_ENTRY).unwrap();
        }
        let most = used(&on, &engine);
        assert!(most > before + 300, "{most} slots with the undo, {before} without: this proves little");
        match commits {
            true => txn.commit().unwrap().wait().unwrap(),
            false => txn.rollback().unwrap(),
        }
        pause(&on);
        let now = used(&on, &engine);
        println!("{before} slots before, {most} with the undo, {now} after");
        assert!(now < before + 32, "{now} slots are used, {before} were, {most} with the undo");
    }
    t.check(0).unwrap();
}

/// The table's keys. `work` leaves the possible states: the last one acknowledged, and that of an unacknowledged step.
type Model = BTreeMap<u32, bool>;

fn work(on: &Machine, states: &mut Vec<Model>) -> Result<(), Error> {
    let engine = open(on, 64 << 20)?;
    let t = table(&engine, "db/t")?;
    let mut state = Model::new();
    let mut step = |puts: bool, keys: std::ops::Range<u32>| {
        keys.clone().for_each(|key| match puts {
            true => _ = state.insert(key, true),
            false => _ = state.remove(&key),
        });
        states.push(state.clone());
        if puts {
            insert(&engine, &t, keys)?
        } else {
            delete(&engine, &t, keys)?
        }
        states.clear();
        states.push(state.clone());
        Ok::<(), Error>(())
    };
    step(true, 0..400)?;
    engine.core().storage.checkpoint()?;
    for round in 0..3 {
        // Leaves become empty, are merged when purge has been there, and their numbers are used again.
        step(false, 100..350)?;
        on.sim.clock.advance(20_000_000);
        on.sim.sched.run_some(300);
        let back = engine.begin(Isolation::ReadCommitted);
        for key in 1000..1150u32 {
            back.insert(&t, &key.to_be_bytes(), &row(key), &NO_ENTRY)?;
        }
        if round == 1 {
            engine.core().storage.checkpoint()?;
        }
        back.rollback()?;
        step(true, 100..200)?;
        on.sim.sched.run_some(300);
        engine.core().storage.checkpoint()?;
        step(true, 200..350)?;
    }
    engine.shutdown()
}

fn found(engine: &Engine, t: &Arc<Table>) -> Model {
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut cursor = txn.cursor(t, 0, Lock::None, Access::Scan).unwrap();
    let (mut model, mut bytes) = (Model::new(), Vec::new());
    let mut valid = cursor.seek(&[], Seek::First).unwrap();
    while valid {
        cursor.row(&mut bytes).unwrap();
        let key = u32::from_be_bytes(cursor.primary_key().try_into().unwrap());
        assert_eq!(bytes, row(key));
        model.insert(key, true);
        valid = cursor.next().unwrap();
    }
    model
}

#[test]
fn freed_leaves_are_released_and_reused_with_a_crash_at_each_step() {
    let on = Machine::new(62);
    work(&on, &mut Vec::new()).unwrap();
    let steps = on.sim.steps();
    let stride = if std::env::var_os("TERRACE_EVERY_STEP").is_some() { 1 } else { steps.div_ceil(150) };
    for step in (1..=steps).step_by(stride as usize) {
        let on = Machine::new(62);
        on.sim.crash_at(step);
        let mut states = Vec::new();
        let _ = work(&on, &mut states);
        assert!(on.sim.crashed(), "step {step}");
        on.power_cycle();
        if states.is_empty() {
            continue;
        }
        let report = on.check();
        assert!(
            report.verdict() == Verdict::Sound,
            "step {step}: {:?} {:?}",
            report.faults,
            report.unchecked
        );
        let engine = open(&on, 64 << 20).unwrap_or_else(|error| panic!("step {step}: {error}"));
        pause(&on);
        let t = table(&engine, "db/t").unwrap();
        let there = found(&engine, &t);
        let first = states.len() == 1 && states[0].len() == 400 && there.is_empty();
        assert!(first || states.contains(&there), "step {step}: {} rows are none of the states", there.len());
        t.check(0).unwrap_or_else(|error| panic!("step {step}: {error}"));
        // It goes on, on pages that were freed before the crash.
        delete(&engine, &t, 0..there.range(..100).count() as u32).unwrap();
        pause(&on);
        insert(&engine, &t, 5000..5400).unwrap();
        engine.core().storage.checkpoint().unwrap();
        t.check(0).unwrap_or_else(|error| panic!("step {step}: {error}"));
        engine.shutdown().unwrap();
    }
    println!("{steps} I/O steps, every {stride}");
}

/// Readers are on their way to leaves that purge and roll backs free, and that leave memory at once, for there is little of it.
#[test]
fn traversals_that_meet_a_freed_leaf_restart() {
    const ROWS: u32 = 9000;
    let sim = SimWorld::new(63);
    let parts =
        Parts { world: terrace_io::real::world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine = Engine::open(config(256 << 20), parts).unwrap();
    let t = table(&engine, "db/t").unwrap();
    // Every tenth row stays.
    let stays = |key: u32| key.is_multiple_of(10);
    for first in (0..ROWS).step_by(300) {
        insert(&engine, &t, first..first + 300).unwrap();
    }
    let done = AtomicBool::new(false);
    let rounds = std::env::var("TERRACE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let change = |keys: std::ops::Range<u32>, puts: bool, rolls_back: bool| {
        let txn = engine.begin(Isolation::ReadCommitted);
        for key in keys.filter(|key| !stays(*key)) {
            match puts {
                true => txn.insert(&t, &key.to_be_bytes(), &row(key), &NO_ENTRY).unwrap(),
                false => txn.delete(&t, &key.to_be_bytes(), &NO_ENTRY).unwrap(),
            }
        }
        if rolls_back { txn.rollback().unwrap() } else { txn.commit().unwrap().wait().unwrap() }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u32)
            .map(|part| {
                let change = &change;
                scope.spawn(move || {
                    let mine = part * ROWS / 2..(part + 1) * ROWS / 2;
                    for _ in 0..rounds {
                        for first in mine.clone().step_by(300) {
                            change(first..first + 300, false, false);
                        }
                        for first in mine.clone().step_by(300) {
                            change(first..first + 300, true, true);
                            change(first..first + 300, true, false);
                        }
                    }
                })
            })
            .collect();
        for reader in 0..2u32 {
            let (engine, t, done) = (&engine, &t, &done);
            scope.spawn(move || {
                let (mut n, mut bytes) = (reader, Vec::new());
                while !done.load(Ordering::Relaxed) {
                    n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let key = (n >> 8) % (ROWS / 10) * 10;
                    let txn = engine.begin(Isolation::ReadCommitted);
                    assert!(txn.get(t, &key.to_be_bytes(), Lock::None, &mut bytes).unwrap());
                    assert_eq!(bytes, row(key));
                    let mut cursor = txn.cursor(t, 0, Lock::None, Access::Normal).unwrap();
                    let mut valid = cursor.seek(&key.to_be_bytes(), Seek::AtLeast).unwrap();
                    for _ in 0..40 {
                        if !valid {
                            break;
                        }
                        cursor.row(&mut bytes).unwrap();
                        valid = cursor.next().unwrap();
                    }
                    let from = Bound::Included(&key.to_be_bytes()[..]);
                    t.records_in_range(0, from, Bound::Unbounded).unwrap();
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let merges = t.tree(0).unwrap().counters.merges.load(Ordering::Relaxed);
    assert!(merges > 200, "{merges} merges: this proves little");
    t.check(0).unwrap();
    engine.core().storage.stop();
}
