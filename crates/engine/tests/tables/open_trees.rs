//! Far more open trees than memory has frames: an open tree keeps no page in memory. All tables are held open, and used in turn, by several
//! threads at a time, while memory is shrunk, and across power loss.

use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::storage::resize::Size;
use terrace_io::real::{disk::RealDisk, world};
use terrace_sim::SimWorld;

const INDEXES: usize = 3;

type Model = BTreeMap<u64, Vec<u8>>;

fn def() -> TableDef {
    let index = |at: usize| IndexDef { name: format!("i{at}"), unique: at == 0 };
    TableDef { indexes: (0..INDEXES).map(index).collect(), properties: Vec::new() }
}

fn config(memory: u64) -> Config {
    Config {
        memory: Bytes(memory),
        log: Bytes(32 << 20),
        object_buffer: Bytes(512 << 20),
        temporary_max: Bytes(256 << 20),
        ..Config::default()
    }
}

/// The row's key in each secondary index.
fn keys(key: u64, row: &[u8]) -> [Vec<u8>; INDEXES - 1] {
    [0, 1].map(|at| [&row[at..at + 1], &key.to_be_bytes()[..]].concat())
}

fn entries(keys: &[Vec<u8>; INDEXES - 1]) -> [Entry<'_>; INDEXES - 1] {
    [1, 2].map(|index| Entry { index, key: &keys[index - 1], unique_len: None, primary_at: 1, value: b"" })
}

fn change(txn: &Txn, table: &Table, model: &mut Model, key: u64, row: Vec<u8>) {
    let new = keys(key, &row);
    match model.get(&key) {
        None => txn.insert(table, &key.to_be_bytes(), &row[..], &entries(&new)).unwrap(),
        Some(old) => {
            let old = keys(key, old);
            txn.update(table, &key.to_be_bytes(), &row[..], &entries(&old), &entries(&new)).unwrap()
        }
    }
    model.insert(key, row);
}

fn sees(engine: &Engine, table: &Arc<Table>, model: &Model) {
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut row = Vec::new();
    for index in 0..INDEXES {
        let mut found = Model::new();
        let mut cursor = txn.cursor(table, index, Lock::None, Access::Normal).unwrap();
        let mut valid = cursor.seek(&[], Seek::First).unwrap();
        while valid {
            cursor.row(&mut row).unwrap();
            let key = u64::from_be_bytes(cursor.primary_key().try_into().unwrap());
            assert!(found.insert(key, row.clone()).is_none(), "index {index} has row {key} twice");
            valid = cursor.next().unwrap();
        }
        assert!(found == *model, "{} index {index}: {} rows, not {}", table.name(), found.len(), model.len());
        table.check(index).unwrap();
    }
    txn.commit().unwrap();
}

/// Tables that stay open, more trees than there are frames.
fn open_all(engine: &Engine, count: usize) -> Vec<Arc<Table>> {
    let frames = engine.core().storage.pages.pool().frames();
    assert!(count * INDEXES > 2 * frames, "{count} tables in {frames} frames prove nothing");
    let have = engine.list_tables().len();
    (have..count).for_each(|n| _ = engine.create_table(&format!("d/t{n}"), &def()).unwrap());
    (0..count).map(|n| engine.open_table(&format!("d/t{n}")).unwrap()).collect()
}

/// Rows in each table, one of them committed at a time; some tables grow to several pages.
fn use_in_turn(engine: &Engine, tables: &[Arc<Table>], models: &mut [Model], dice: &mut impl FnMut() -> u64) {
    for (table, model) in tables.iter().zip(models) {
        let rows = if dice().is_multiple_of(8) { 60 } else { 2 };
        let txn = engine.begin(Isolation::ReadCommitted);
        for _ in 0..rows {
            let key = dice() % 100;
            change(&txn, table, model, key, vec![dice() as u8; 100 + (dice() % 400) as usize]);
        }
        txn.commit().unwrap().wait().unwrap();
    }
}

#[test]
fn several_threads_use_more_open_trees_than_there_are_frames() {
    let directory = std::env::temp_dir().join(format!("terrace-open-trees-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let mut models = vec![Model::new(); 800];
    let count = models.len();
    for round in 0u64..2 {
        let volume = Arc::new(RealDisk::open(&directory).unwrap());
        let parts = Parts { world: world(), volume, flash: None, store: None };
        let engine = Engine::open(config(16 << 20), parts).unwrap();
        let tables = open_all(&engine, count);
        std::thread::scope(|scope| {
            for (me, (tables, models)) in
                tables.chunks(count / 4).zip(models.chunks_mut(count / 4)).enumerate()
            {
                let engine = &engine;
                scope.spawn(move || {
                    let mut state = 0x9E37_79B9 + round * 16 + me as u64;
                    let mut dice = || {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        state >> 8
                    };
                    use_in_turn(engine, tables, models, &mut dice);
                    tables.iter().zip(&*models).for_each(|(table, model)| sees(engine, table, model));
                    use_in_turn(engine, tables, models, &mut dice);
                });
            }
            // No open tree blocks the resize.
            engine.resize(Size::Memory, Bytes(12 << 20), &|| false).unwrap();
        });
        for (table, model) in tables.iter().zip(&models) {
            // A crash loses counts since the last structure change.
            assert!(round > 0 || table.estimate().rows == model.len() as u64);
            sees(&engine, table, model);
        }
        engine.core().storage.stop();
    }
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn more_open_trees_than_frames_survive_power_loss() {
    for seed in 0..4 {
        let sim = SimWorld::new(seed);
        let volume = sim.disk("volume");
        let mut models = vec![Model::new(); 400];
        let count = models.len();
        for cut in 0..3 {
            let parts = Parts { world: sim.world(), volume: volume.clone(), flash: None, store: None };
            let engine: Arc<Engine> = Engine::open(config(4 << 20), parts).unwrap();
            let tables = open_all(&engine, count);
            tables.iter().zip(&models).for_each(|(table, model)| sees(&engine, table, model));
            let mut dice = {
                let random = sim.world().random.clone();
                move || random.next_u64()
            };
            let first = (dice() % (count as u64 / 2)) as usize;
            use_in_turn(&engine, &tables[first..], &mut models[first..], &mut dice);
            let mut of_temporary = vec![Model::new(); count / 4];
            let temporary: Vec<_> = (0..of_temporary.len())
                .map(|n| engine.create_temporary_table(&format!("tmp/{cut}-{n}"), &def()).unwrap())
                .collect();
            for _ in 0..2 {
                use_in_turn(&engine, &temporary, &mut of_temporary, &mut dice);
            }
            temporary.iter().zip(&of_temporary).for_each(|(table, model)| sees(&engine, table, model));
            // A transaction in many of the tables that is never committed.
            let txn = engine.begin(Isolation::ReadCommitted);
            for (table, model) in tables.iter().zip(&models).step_by(7) {
                change(&txn, table, &mut model.clone(), 50, vec![cut; 300]);
            }
            sim.sched.drop_workers();
            volume.crash();
            sim.power_on();
        }
    }
}

/// Pages in use are bounded by memory, and the error names their holder.
#[test]
fn holding_more_pages_at_once_than_memory_has_is_an_error() {
    let sim = SimWorld::new(1);
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine: Arc<Engine> = Engine::open(config(4 << 20), parts).unwrap();
    let tables = open_all(&engine, 400);
    let pages = &engine.core().storage.pages;
    let mut held = Vec::new();
    let refused = tables.iter().find_map(|table| {
        let root = pages.load(table.tree(0).unwrap().space().page_id(1), Access::Normal);
        root.map(|pin| held.push(pin)).err()
    });
    let said = match refused.map(Error::from) {
        Some(Error::Full(said)) => said,
        other => panic!("{} pages were held, then: {other:?}", held.len()),
    };
    let kept = format!("no free frame: all {} are in use", pages.pool().frames());
    assert!(said.contains(&kept) && said.contains("held by what goes on"), "{said}");
    drop(held);
    let mut models = vec![Model::new(); tables.len()];
    let mut n = 0;
    use_in_turn(&engine, &tables, &mut models, &mut || {
        n += 1;
        n
    });
    tables.iter().zip(&models).for_each(|(table, model)| sees(&engine, table, model));
}

/// Each transaction remembers where it changed its trees last, but holds none of these pages, so idle transactions leave the pool to others.
#[test]
fn idle_transactions_hold_hardly_any_page() {
    let sim = SimWorld::new(2);
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine: Arc<Engine> = Engine::open(config(4 << 20), parts).unwrap();
    let tables = open_all(&engine, 400);
    let mut models = vec![Model::new(); tables.len()];
    let mut idle = Vec::new();
    for (tables, models) in tables.chunks(5).zip(models.chunks_mut(5)) {
        let txn = engine.begin(Isolation::ReadCommitted);
        for (table, model) in tables.iter().zip(models) {
            // Enough rows in one leaf that the next insert looks there first.
            (0..4).for_each(|key| change(&txn, table, model, key, vec![7; 100]));
        }
        idle.push(txn);
    }
    for (txn, (tables, models)) in idle.iter().zip(tables.chunks(5).zip(models.chunks_mut(5))) {
        for (table, model) in tables.iter().zip(models) {
            change(txn, table, model, 4, vec![7; 100]);
        }
    }
    idle.iter().for_each(|txn| _ = txn.commit().unwrap());
    tables.iter().zip(&models).for_each(|(table, model)| sees(&engine, table, model));
}
