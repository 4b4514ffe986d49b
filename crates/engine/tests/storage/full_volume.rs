//! A volume with no room left for new pages of tables: operations that only delete go on, and free space.

use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Parts;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::row::HEAD;
use terrace_sim::SimWorld;

fn entry_key(n: u32) -> [u8; 8] {
    (u64::from(n) << 32 | u64::from(n)).to_be_bytes()
}

fn entry(key: &[u8; 8]) -> Entry<'_> {
    Entry { index: 1, key, unique_len: None, primary_at: 4, value: &[] }
}

/// Inserts or deletes `rows` in one transaction.
fn change(engine: &Engine, table: &Arc<Table>, rows: &[u32], puts: bool) -> Result<(), Error> {
    let txn = engine.begin(Isolation::ReadCommitted);
    for n in rows {
        let (primary, key) = (n.to_be_bytes(), entry_key(*n));
        match puts {
            true => txn.insert(table, &primary, &[*n as u8; 20], &[entry(&key)])?,
            false => txn.delete(table, &primary, &[entry(&key)])?,
        }
    }
    txn.commit()?.wait()
}

/// A volume of 1536 pages, and no store.
fn small(seed: u64) -> (SimWorld, Arc<Engine>) {
    let sim = SimWorld::new(seed);
    let config = Config {
        memory: Bytes(8 << 20),
        log: Bytes(16 << 20),
        object_buffer: Bytes(24 << 20),
        ..Config::default()
    };
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine = Engine::open(config, parts).unwrap();
    (sim, engine)
}

/// A delete mark makes an entry with a short head longer. In leaves full of such entries that takes new pages, which come from the reserve for
/// operations that free space.
#[test]
fn rows_whose_entries_have_short_heads_are_deleted_in_a_full_volume() {
    let (sim, engine) = small(41);
    let index = |name: &str| IndexDef { name: name.into(), unique: name == "PRIMARY" };
    let def = |names: &[&str]| TableDef {
        indexes: names.iter().map(|name| index(name)).collect(),
        properties: Vec::new(),
    };
    let table = engine.create_table("d/t", &def(&["PRIMARY", "k"])).unwrap();
    let rows: Vec<u32> = (0..8000).collect();
    for some in rows.chunks(20) {
        change(&engine, &table, some, true).unwrap();
        engine.core().ids.settle();
    }
    let mut short = 0;
    table.tree(1).unwrap().check(&mut |_, value| short += u32::from(value.len() < HEAD)).unwrap();
    assert!(short > 6000, "{short}: this proves little");
    let other = engine.create_table("d/other", &def(&["PRIMARY"])).unwrap();
    let fills = |n: u32| {
        let txn = engine.begin(Isolation::ReadCommitted);
        txn.insert(&other, &n.to_be_bytes(), &[7; 1000], &[]).map(|()| txn.commit().unwrap().wait().unwrap())
    };
    let full = (0..40_000).find_map(|n| fills(n).err()).expect("the volume is never full");
    assert!(matches!(full, Error::Full(_)), "{full}");
    for some in rows[1000..5000].chunks(500) {
        change(&engine, &table, some, false).unwrap();
        sim.sched.run_some(2000);
    }
    table.check(1).unwrap();
}

/// The trees that TRUNCATE had already made stayed until the next start, and took the reserve for operations that free space.
#[test]
fn a_truncate_that_fails_half_way_in_a_full_volume_frees_the_trees_it_made() {
    let (sim, engine) = small(42);
    let index = |name: &str| IndexDef { name: name.into(), unique: name == "PRIMARY" };
    let names = ["PRIMARY", "a", "b", "c"];
    let def = TableDef { indexes: names.iter().map(|name| index(name)).collect(), properties: Vec::new() };
    let many: Vec<String> = (0..60).map(|n| format!("d/p{n}")).collect();
    many.iter().for_each(|name| drop(engine.create_table(name, &def).unwrap()));
    let plain = TableDef { indexes: vec![index("PRIMARY")], properties: Vec::new() };
    let table = engine.create_table("d/t", &plain).unwrap();
    let fills = |n: u32| {
        let txn = engine.begin(Isolation::ReadCommitted);
        txn.insert(&table, &n.to_be_bytes(), &[7; 1000], &[]).map(|()| txn.commit().unwrap().wait().unwrap())
    };
    let full = (0..40_000).find_map(|n| fills(n).err()).expect("the volume is never full");
    assert!(matches!(full, Error::Full(_)), "{full}");
    sim.sched.run_some(5000);
    let spaces = || engine.core().storage.map.spaces().len();
    let before = spaces();
    let all: Vec<&str> = many.iter().map(String::as_str).collect();
    for _ in 0..5 {
        let failed = engine.truncate_tables(&all);
        assert!(matches!(failed, Err(Error::Full(_))), "{failed:?}: this proves nothing");
        sim.sched.run_some(5000);
        assert!(spaces() <= before, "{} spaces, {before} before", spaces());
    }
    // So of the tables themselves as many as before can be emptied, one after the other, and rows go.
    many.iter().for_each(|name| engine.truncate_tables(&[name]).unwrap());
    let txn = engine.begin(Isolation::ReadCommitted);
    (0..500u32).for_each(|n| txn.delete(&table, &n.to_be_bytes(), &[]).unwrap());
    txn.commit().unwrap().wait().unwrap();
    drop(table);
    engine.truncate_tables(&["d/t"]).unwrap();
}
