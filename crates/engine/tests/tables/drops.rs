//! Tables that one statement drops, as the server's handler does it: each is renamed to a hidden name, durably before the server goes on, and
//! when the statement has ended all are dropped without a wait. With a crash at each I/O step in turn.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Size;
use terrace_engine::config::Bytes;
use terrace_engine::offline::check::Verdict;
use terrace_log::Redo;
use terrace_tier::page::SpaceId;

const TABLES: [&str; 3] = ["db/a", "db/b", "db/c"];
const OTHER: &str = "db/other";
const ROWS: u32 = 150;

fn open(on: &Machine) -> Result<Arc<Engine>, Error> {
    on.open(kit::config(4 << 20, 8 << 20, 64 << 20))
}

fn create(engine: &Engine, name: &str) -> Result<(), Error> {
    engine.create_table(name, &kit::indexes(&[("PRIMARY", true), ("k", false)])).map(drop)
}

fn fill(engine: &Engine, name: &str, keys: std::ops::Range<u32>) -> Result<(), Error> {
    let table = engine.open_table(name)?;
    let txn = engine.begin(Isolation::RepeatableRead);
    for key in keys {
        let (primary, k) = (key.to_be_bytes(), [&[key as u8][..], &key.to_be_bytes()].concat());
        let entry = Entry { index: 1, key: &k, unique_len: None, primary_at: 1, value: &[] };
        txn.insert(&table, &primary, &[key as u8; 300], &[entry])?;
    }
    txn.commit()?.wait()
}

fn hidden(name: &str) -> String {
    format!("#dropped/1/{name}")
}

fn hide(engine: &Engine, name: &str) -> Result<(), Error> {
    engine.redefine_table(name, &hidden(name), b"dropped")
}

/// Spaces of tables that the map has something of.
fn mapped(engine: &Engine) -> Vec<SpaceId> {
    let spaces = engine.core().storage.map.spaces().into_iter();
    spaces.filter(|space| *space >= SpaceId::FIRST_USER).collect()
}

fn log_writes(engine: &Engine) -> u64 {
    engine.core().storage.log.counters.writes.load(Ordering::Relaxed)
}

/// Lets workers do what they have to, and time pass.
fn pause(on: &Machine) {
    on.pass(20, 10_000_000, 200);
}

#[test]
fn tables_that_were_hidden_are_dropped_without_another_wait_for_the_log() {
    let on = Machine::new(51);
    let engine = open(&on).unwrap();
    let names: Vec<String> = (0..20).map(|n| format!("db/t{n}")).collect();
    let mut counts = Vec::new();
    for waits in [true, false] {
        names.iter().for_each(|name| create(&engine, name).unwrap());
        engine.make_durable().unwrap();
        let before = log_writes(&engine);
        names.iter().for_each(|name| hide(&engine, name).unwrap());
        for name in &names {
            let drop = if waits { Engine::drop_table } else { Engine::drop_table_unwaited };
            drop(&engine, &hidden(name)).unwrap();
        }
        counts.push(log_writes(&engine) - before);
        assert_eq!(engine.list_tables(), Vec::<String>::new());
    }
    assert_eq!(counts, [40, 20]);
    pause(&on);
    assert_eq!(mapped(&engine), [], "something is left of them");
}

#[test]
fn pages_of_a_dropped_table_stay_until_the_drop_is_durable() {
    let on = Machine::new(52);
    let engine = open(&on).unwrap();
    create(&engine, "db/a").unwrap();
    fill(&engine, "db/a", 0..ROWS).unwrap();
    engine.core().storage.checkpoint().unwrap();
    let there = mapped(&engine);
    assert_eq!(there.len(), 2);
    hide(&engine, "db/a").unwrap();
    engine.drop_table_unwaited(&hidden("db/a")).unwrap();
    let (redo, appended) = (engine.core().storage.pages.redo().clone(), || {
        engine.core().storage.log.counters.ranges.load(Ordering::Relaxed)
    });
    let before = appended();
    assert!(redo.durable() < redo.appended());
    // Purge looks, and finds that it is not durable.
    terrace_engine::txn::purge::step(engine.core()).unwrap();
    assert_eq!((mapped(&engine), appended()), (there, before));
    // Another transaction's commit makes it durable, too.
    engine.make_durable().unwrap();
    terrace_engine::txn::purge::step(engine.core()).unwrap();
    assert_eq!(mapped(&engine), []);
    // No transaction commits: it becomes durable all the same, a little later.
    create(&engine, "db/a").unwrap();
    fill(&engine, "db/a", 0..ROWS).unwrap();
    engine.core().storage.checkpoint().unwrap();
    engine.drop_table_unwaited("db/a").unwrap();
    assert_ne!(mapped(&engine), []);
    pause(&on);
    assert_eq!(mapped(&engine), []);
}

/// A writer that needs space gets that of a table dropped a moment ago.
#[test]
fn a_dropped_table_frees_its_space_at_once() {
    let on = Machine::new(53);
    let engine = on.open(kit::config(4 << 20, 8 << 20, 8 << 20)).unwrap();
    create(&engine, OTHER).unwrap();
    for round in 0..4u32 {
        create(&engine, "db/a").unwrap();
        // Most of the object buffer, of which two such tables would be more.
        (0..16).for_each(|part| fill(&engine, "db/a", part * 800..part * 800 + 800).unwrap());
        hide(&engine, "db/a").unwrap();
        engine.drop_table_unwaited(&hidden("db/a")).unwrap();
        fill(&engine, OTHER, round..round + 1).unwrap();
    }
}

#[test]
fn the_object_buffer_shrinks_right_after_a_table_was_dropped() {
    let on = Machine::new(55);
    let engine = open(&on).unwrap();
    create(&engine, "db/a").unwrap();
    (0..40).for_each(|part| fill(&engine, "db/a", part * 800..part * 800 + 800).unwrap());
    engine.core().storage.checkpoint().unwrap();
    let small = || engine.resize(Size::ObjectBuffer, Bytes(8 << 20), &|| false);
    assert!(matches!(small(), Err(Error::Full(_))), "the table fits: this proves nothing");
    hide(&engine, "db/a").unwrap();
    engine.drop_table_unwaited(&hidden("db/a")).unwrap();
    small().unwrap();
}

/// What a statement has come to.
#[derive(Default)]
struct Came {
    began: bool,
    hidden: usize,
    dropping: bool,
    dropped: bool,
    /// Something that came after the drops was acknowledged.
    after: bool,
}

fn work(on: &Machine, came: &mut Came) -> Result<(), Error> {
    let engine = open(on)?;
    for name in TABLES.iter().chain([&OTHER]) {
        create(&engine, name)?;
        fill(&engine, name, 0..ROWS / 2)?;
    }
    engine.core().storage.checkpoint()?;
    for name in TABLES.iter().chain([&OTHER]) {
        fill(&engine, name, ROWS / 2..ROWS)?;
    }
    let storage = &engine.core().storage;
    let before = storage.log.appended();
    came.began = true;
    for name in TABLES {
        hide(&engine, name)?;
        came.hidden += 1;
    }
    came.dropping = true;
    for name in TABLES {
        engine.drop_table_unwaited(&hidden(name))?;
    }
    came.dropped = true;
    // To what was durable before: that needs no write of the log.
    storage.checkpointer.request(before);
    on.sim.sched.run_some(300);
    storage.checkpoint()?;
    on.sim.clock.advance(50_000_000);
    on.sim.sched.run_some(200);
    // A name that is free is another table's.
    create(&engine, TABLES[0])?;
    came.after = true;
    fill(&engine, TABLES[0], 0..ROWS)?;
    on.sim.sched.run_some(500);
    engine.shutdown()
}

/// The number of rows that reads by primary key find; both indexes are checked.
fn rows(engine: &Engine, name: &str, step: u64) -> u32 {
    let table = engine.open_table(name).unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut row = Vec::new();
    for index in 0..2 {
        table.check(index).unwrap_or_else(|error| panic!("step {step}: {name}: {error}"));
    }
    (0..ROWS).filter(|key| txn.get(&table, &key.to_be_bytes(), Lock::None, &mut row).unwrap()).count() as u32
}

/// Returns of how many tables the old, the hidden and the new state were found.
fn crash_at(step: u64) -> [u32; 3] {
    let on = Machine::new(54);
    on.sim.crash_at(step);
    let mut came = Came::default();
    let _ = work(&on, &mut came);
    assert!(on.sim.crashed(), "step {step}");
    on.power_cycle();
    if !came.began {
        return [0; 3];
    }
    let report = on.check();
    assert!(report.verdict() == Verdict::Sound, "step {step}: {:?}", report.faults.first.first());
    let engine = open(&on).unwrap_or_else(|error| panic!("step {step}: {error}"));
    on.sim.sched.run_some(2000);
    let names = engine.list_tables();
    let mut found = [0; 3];
    for (at, name) in TABLES.iter().enumerate() {
        let (shown, is_hidden) = (names.contains(&name.to_string()), names.contains(&hidden(name)));
        assert!(!(shown && is_hidden), "step {step}: {name} is there twice");
        if shown && at == 0 && came.dropped {
            continue; // the new one
        }
        assert!(!shown || at >= came.hidden, "step {step}: {name} was hidden, and is back");
        assert!(shown || is_hidden || came.dropping, "step {step}: {name} is gone");
        assert!(!is_hidden || !came.after, "step {step}: {name} is there, and what came after its drop");
        let there = if shown { name.to_string() } else { hidden(name) };
        if shown || is_hidden {
            assert_eq!(rows(&engine, &there, step), ROWS, "step {step}: {name}");
        }
        found[if shown { 0 } else { 2 - usize::from(is_hidden) }] += 1;
    }
    assert_eq!(rows(&engine, OTHER, step), ROWS, "step {step}");
    // What the server's recovery does: those that are hidden go, and nothing is left of them.
    for name in names.iter().filter(|name| name.starts_with('#')) {
        engine.drop_table_unwaited(name).unwrap();
    }
    fill(&engine, OTHER, ROWS..ROWS + 1).unwrap();
    pause(&on);
    let live = engine.core().catalog.spaces();
    let left: Vec<SpaceId> = mapped(&engine).into_iter().filter(|space| !live.contains(space)).collect();
    assert_eq!(left, [], "step {step}");
    assert!(engine.list_tables().iter().all(|name| !name.starts_with('#')), "step {step}");
    engine.shutdown().unwrap();
    found
}

fn every_step(budget: u64) -> [u32; 3] {
    let on = Machine::new(54);
    work(&on, &mut Came::default()).unwrap();
    let steps = on.sim.steps();
    let stride = if std::env::var_os("TERRACE_EVERY_STEP").is_some() { 1 } else { steps.div_ceil(budget) };
    let mut all = [0; 3];
    for step in (1..=steps).step_by(stride as usize) {
        let found = crash_at(step);
        all.iter_mut().zip(found).for_each(|(all, found)| *all += found);
    }
    println!("{steps} I/O steps, every {stride}: there, hidden, gone {all:?}");
    all
}

#[test]
fn a_crash_leaves_each_table_of_a_drop_whole_hidden_or_gone() {
    let found = every_step(200);
    assert!(found.iter().all(|seen| *seen > 0), "{found:?}");
}
