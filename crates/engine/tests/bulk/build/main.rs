//! Indexes are added and dropped while the rows stay in place: beside writers, with duplicates, with older views, with undo
//! that names dropped indexes; with a crash at each I/O step in turn.

mod rebuild;

use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Alteration;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::NewIndex;
use terrace_engine::Parts;
use terrace_engine::Row;
use terrace_engine::Seek;
use terrace_engine::Side;
use terrace_engine::Span;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::offline::check::{self, Verdict};
use terrace_engine::offline::instance::OfflineInstance;
use terrace_engine::table::catalog::rules::{Placement, TableRules};
use terrace_engine::table::catalog::{Codec, TableOptions};
use terrace_io::disk::Disk;
use terrace_sim::{SimDisk, SimWorld};

type Model = BTreeMap<u64, Vec<u8>>;

fn open(sim: &SimWorld, disk: &Arc<SimDisk>) -> Result<Arc<Engine>, Error> {
    let config = Config {
        memory: Bytes(4 << 20),
        log: Bytes(8 << 20),
        log_partitions: 2,
        object_buffer: Bytes(64 << 20),
        ..Config::default()
    };
    Engine::open(config, Parts { world: sim.world(), volume: disk.clone(), flash: None, store: None })
}

fn def(names: &[(&str, bool)]) -> Vec<IndexDef> {
    names.iter().map(|(name, unique)| IndexDef { name: name.to_string(), unique: *unique }).collect()
}

/// What an index has of a row: by its name.
fn entry_key(name: &str, key: u64, row: &[u8]) -> (Vec<u8>, usize) {
    let own = match name {
        "first" => vec![row[0]],
        "pair" => vec![row[0], row[1]],
        "unique" => [&row[2..4], &key.to_be_bytes()].concat(),
        // Not unique if two rows begin alike.
        "clash" => row[..4].to_vec(),
        _ => panic!("no index {name}"),
    };
    let at = own.len();
    ([&own[..], &key.to_be_bytes()].concat(), at)
}

struct Owned {
    index: usize,
    unique: bool,
    key: Vec<u8>,
    at: usize,
}

impl Owned {
    fn entry(&self) -> Entry<'_> {
        let unique_len = self.unique.then_some(self.at);
        Entry { index: self.index, key: &self.key, unique_len, primary_at: self.at, value: b"v" }
    }
}

/// The entries of a row in all secondary indexes of the table.
fn entries(table: &Table, key: u64, row: &[u8]) -> Vec<Owned> {
    let all = table.def().indexes.iter().enumerate().skip(1);
    all.map(|(index, def)| {
        let (key, at) = entry_key(&def.name, key, row);
        Owned { index, unique: def.unique, key, at }
    })
    .collect()
}

fn put(txn: &Txn, table: &Table, key: u64, old: Option<&Vec<u8>>, row: &[u8]) -> Result<(), Error> {
    let new = entries(table, key, row);
    let new: Vec<_> = new.iter().map(Owned::entry).collect();
    // Nearly all bytes of a large row are stored off-page.
    let spans = [Span { at: 10, len: 8900, name: 0 }];
    let row = Row { bytes: row, spans: &spans[..usize::from(row.len() == 9000)] };
    match old {
        None => txn.insert(table, &key.to_be_bytes(), row, &new),
        Some(old) => {
            let old = entries(table, key, old);
            let old: Vec<_> = old.iter().map(Owned::entry).collect();
            txn.update(table, &key.to_be_bytes(), row, &old, &new)
        }
    }
}

fn remove(txn: &Txn, table: &Table, key: u64, row: &[u8]) -> Result<(), Error> {
    let old = entries(table, key, row);
    let old: Vec<_> = old.iter().map(Owned::entry).collect();
    txn.delete(table, &key.to_be_bytes(), &old)
}

fn row(n: u64, fill: u8) -> Vec<u8> {
    let len = if n.is_multiple_of(97) { 9000 } else { 40 };
    let mut row = vec![fill; len];
    row[..4].copy_from_slice(&(n as u32).wrapping_mul(2_654_435_761).to_be_bytes());
    row
}

fn commit(engine: &Engine, work: impl FnOnce(&Txn) -> Result<(), Error>) -> Result<(), Error> {
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.statement_begin();
    work(&txn)?;
    txn.commit()?.wait()
}

fn fill(engine: &Engine, table: &Table, model: &mut Model, keys: std::ops::Range<u64>) -> Result<(), Error> {
    commit(engine, |txn| {
        keys.into_iter().try_for_each(|key| {
            let row = row(key, 1);
            put(txn, table, key, model.get(&key), &row)?;
            model.insert(key, row);
            Ok(())
        })
    })
}

/// The rows that a transaction sees by an index.
fn seen(table: &Arc<Table>, txn: &Arc<Txn>, index: usize) -> Result<Model, Error> {
    let mut found = Model::new();
    let mut cursor = txn.cursor(table, index, Lock::None, Access::Scan)?;
    let mut valid = cursor.seek(&[], Seek::First)?;
    let (mut row, mut last) = (Vec::new(), Vec::new());
    while valid {
        assert!(cursor.key() > &last[..], "index {index} is out of order");
        last = cursor.key().to_vec();
        cursor.row(&mut row)?;
        let key = u64::from_be_bytes(cursor.primary_key().try_into().unwrap());
        if index > 0 {
            let (expected, _) = entry_key(&table.def().indexes[index].name, key, &row);
            assert!(cursor.key() == expected, "index {index} has another entry than its row");
        }
        assert!(found.insert(key, row.clone()).is_none(), "index {index} has row {key} twice");
        valid = cursor.next()?;
    }
    Ok(found)
}

fn check_all(engine: &Engine, table: &Arc<Table>, model: &Model) {
    let txn = engine.begin(Isolation::RepeatableRead);
    for index in 0..table.def().indexes.len() {
        assert!(seen(table, &txn, index).unwrap() == *model, "index {index} has other rows");
        table.check(index).unwrap();
    }
}

/// What lies on the volume of an engine that has ended is sound, and nothing is left over.
fn check_volume(disk: &Arc<SimDisk>) {
    let look = OfflineInstance::open(disk.clone(), None).unwrap();
    let report = check::check(&look, &check::Options::default(), &mut |_, _, _| ());
    let (faults, leaked, unchecked) = (&report.faults, &report.leaked, &report.unchecked);
    assert!(report.verdict() == Verdict::Sound, "{faults:?} {leaked:?} {unchecked:?}");
}

/// The built indexes' entries of a row.
fn new_entries(new: &[IndexDef], key: u64, row: &[u8]) -> Vec<Owned> {
    let all = new.iter().enumerate();
    all.map(|(index, def)| {
        let (key, at) = entry_key(&def.name, key, row);
        Owned { index, unique: def.unique, key, at }
    })
    .collect()
}

fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().unwrap())
}

fn scan(alteration: &mut Alteration, new: &[IndexDef], mut beside: impl FnMut(usize)) -> Result<(), Error> {
    let (mut key, mut row) = (Vec::new(), Vec::new());
    let mut rows = 0;
    while alteration.next_row(&mut key, &mut row)? {
        for entry in new_entries(new, number(&key), &row) {
            alteration.add(&entry.entry())?;
        }
        rows += 1;
        beside(rows);
    }
    (0..new.len()).try_for_each(|which| alteration.load(which, &mut |_, _| true))
}

fn round(alteration: &mut Alteration, new: &[IndexDef], last: bool) -> Result<usize, Error> {
    let count = alteration.begin_round(last)?;
    let (mut key, mut row) = (Vec::new(), Vec::new());
    for side in [Side::Before, Side::After] {
        for at in 0..count {
            if alteration.round_row(at, side, &mut key, &mut row)? {
                for entry in new_entries(new, number(&key), &row) {
                    match side {
                        Side::Before => alteration.remove(&entry.entry())?,
                        Side::After => alteration.put(&entry.entry())?,
                    }
                }
            }
        }
    }
    alteration.end_round()?;
    Ok(count)
}

/// Makes the table have these indexes behind its first; those that it has by name are kept.
fn alter(
    engine: &Arc<Engine>,
    name: &str,
    indexes: &[(&str, bool)],
    beside: impl FnMut(usize),
) -> Result<(), Error> {
    let table = engine.open_table(name)?;
    let mut all = vec![NewIndex { def: table.def().indexes[0].clone(), from: Some(0) }];
    let mut new = Vec::new();
    for index in def(indexes) {
        let from = table.def().indexes.iter().position(|old| *old == index);
        if from.is_none() {
            new.push(index.clone());
        }
        all.push(NewIndex { def: index, from });
    }
    drop(table);
    let owner = engine.begin(Isolation::ReadCommitted);
    let mut alteration = engine.alter(name, all, &owner)?;
    if !new.is_empty() {
        scan(&mut alteration, &new, beside)?;
        round(&mut alteration, &new, false)?;
        round(&mut alteration, &new, true)?;
    }
    engine.commit_alterations(&mut [(&mut alteration, b"new".to_vec())], None)
}

fn spaces(engine: &Engine) -> usize {
    engine.core().storage.map.spaces().into_iter().filter(|space| space.sinks()).count()
}

#[test]
fn undo_is_applied_to_the_right_index_after_others_are_added_and_dropped() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let indexes = def(&[("PRIMARY", true), ("first", false), ("unique", true)]);
    let table = engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    let mut model = Model::new();
    fill(&engine, &table, &mut model, 0..2000).unwrap();
    // Unpurged undo of an index that is dropped, and of one whose position changes.
    let reader = engine.begin(Isolation::RepeatableRead);
    reader.open_view();
    commit(&engine, |txn| {
        (0..2000).step_by(3).try_for_each(|key| remove(txn, &table, key, &model.remove(&key).unwrap()))
    })
    .unwrap();
    drop(table);
    alter(&engine, "db/t", &[("unique", true), ("pair", false)], |_| ()).unwrap();
    let table = engine.open_table("db/t").unwrap();
    assert_eq!(table.properties(), b"new");
    check_all(&engine, &table, &model);
    // The old view sees what it saw, by the indexes that it knows; the new one is too young for it.
    assert_eq!(seen(&table, &reader, 0).unwrap().len(), 2000);
    assert_eq!(seen(&table, &reader, 1).unwrap().len(), 2000);
    assert!(matches!(seen(&table, &reader, 2), Err(Error::Changed(_))));
    drop(reader);
    fill(&engine, &table, &mut model, 500..1500).unwrap();
    sim.sched.run_some(20_000);
    check_all(&engine, &table, &model);
    // A rolled back change of an added index.
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.statement_begin();
    put(&txn, &table, 700, model.get(&700), &row(70_000, 9)).unwrap();
    txn.rollback().unwrap();
    check_all(&engine, &table, &model);
    drop((txn, table));
    alter(&engine, "db/t", &[("pair", false)], |_| ()).unwrap();
    alter(&engine, "db/t", &[("first", false), ("pair", false)], |_| ()).unwrap();
    let table = engine.open_table("db/t").unwrap();
    fill(&engine, &table, &mut model, 1000..2500).unwrap();
    check_all(&engine, &table, &model);
    drop(table);
    sim.sched.run_some(20_000);
    engine.shutdown().unwrap();
    drop(engine);
    check_volume(&disk);
    let engine = open(&sim, &disk).unwrap();
    let table = engine.open_table("db/t").unwrap();
    check_all(&engine, &table, &model);
    assert_eq!(spaces(&engine), 3, "spaces of dropped indexes are left");
}

#[test]
fn an_index_built_beside_writers_has_the_rows_final_values() {
    for seed in 0..8 {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        let engine = open(&sim, &disk).unwrap();
        let indexes = def(&[("PRIMARY", true), ("first", false)]);
        let table = engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
        let mut model = Model::new();
        fill(&engine, &table, &mut model, 0..3000).unwrap();
        let random = sim.world().random;
        // Several sessions beside; each in a transaction of some changes that ends either way.
        let mut open: Vec<(Arc<Txn>, Model)> = Vec::new();
        let mut changes = 0;
        let mut write = |_: usize| {
            if random.below(3) > 0 {
                return;
            }
            changes += 1;
            if open.len() < 4 || random.below(4) > 0 {
                let txn = engine.begin(Isolation::ReadCommitted);
                txn.statement_begin();
                let mut after = model.clone();
                for _ in 0..random.below(5) + 1 {
                    // Each session has a key range of its own, so no session waits for another.
                    let key = random.below(1200) * 5 + open.len() as u64;
                    let Some(place) = (open.len() < 5).then_some(key) else { break };
                    match (model.get(&place), after.get(&place).cloned()) {
                        (_, Some(old)) if random.below(3) == 0 => {
                            remove(&txn, &table, place, &old).unwrap();
                            after.remove(&place);
                        }
                        (_, old) => {
                            let new = row(random.next_u64() >> 40, 7);
                            put(&txn, &table, place, old.as_ref(), &new).unwrap();
                            after.insert(place, new);
                        }
                    }
                }
                if random.below(3) == 0 && open.len() < 4 {
                    // It stays open; no other session may change its rows.
                    open.push((txn, after));
                    let (txn, _) = open.pop().unwrap();
                    txn.rollback().unwrap();
                } else {
                    drop(txn.commit().unwrap());
                    model = after;
                }
            }
        };
        alter_with(&engine, &mut write);
        assert!(changes > 300, "{changes} changes prove little");
        drop(table);
        let table = engine.open_table("db/t").unwrap();
        assert_eq!(table.def().indexes.len(), 4);
        check_all(&engine, &table, &model);
        sim.sched.run_some(50_000);
        check_all(&engine, &table, &model);
    }
}

fn alter_with(engine: &Arc<Engine>, write: &mut dyn FnMut(usize)) {
    alter(engine, "db/t", &[("pair", false), ("first", false), ("unique", true)], write).unwrap();
}

/// A transaction open over a round is in none of them until it ends.
#[test]
fn a_transaction_that_spans_rounds_is_applied_in_the_round_after_its_end() {
    let sim = SimWorld::new(3);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let table = engine
        .create_table("db/t", &TableDef { indexes: def(&[("PRIMARY", true)]), properties: Vec::new() })
        .unwrap();
    let mut model = Model::new();
    fill(&engine, &table, &mut model, 0..100).unwrap();
    let new = def(&[("pair", false), ("unique", true)]);
    let mut all = vec![NewIndex { def: table.def().indexes[0].clone(), from: Some(0) }];
    all.extend(new.iter().map(|def| NewIndex { def: def.clone(), from: None }));
    let owner = engine.begin(Isolation::ReadCommitted);
    let mut alteration = engine.alter("db/t", all, &owner).unwrap();
    let begin = || {
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.statement_begin();
        txn
    };
    let (commits, rolls_back) = (begin(), begin());
    put(&commits, &table, 5, model.get(&5), &row(1005, 2)).unwrap();
    put(&rolls_back, &table, 6, model.get(&6), &row(1006, 2)).unwrap();
    scan(&mut alteration, &new, |_| ()).unwrap();
    remove(&commits, &table, 7, &model[&7]).unwrap();
    put(&commits, &table, 200, None, &row(200, 2)).unwrap();
    assert_eq!(round(&mut alteration, &new, false).unwrap(), 4);
    assert_eq!(round(&mut alteration, &new, false).unwrap(), 4, "they are still open");
    drop(commits.commit().unwrap());
    rolls_back.rollback().unwrap();
    model.insert(5, row(1005, 2));
    model.remove(&7);
    model.insert(200, row(200, 2));
    // Not caught up: it is refused, and still can be caught up.
    let refused = engine.commit_alterations(&mut [(&mut alteration, Vec::new())], None);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(round(&mut alteration, &new, true).unwrap(), 4);
    engine.commit_alterations(&mut [(&mut alteration, Vec::new())], None).unwrap();
    drop((alteration, table));
    check_all(&engine, &engine.open_table("db/t").unwrap(), &model);
}

#[test]
fn a_duplicate_names_its_row_and_leaves_the_table_as_it_was() {
    let sim = SimWorld::new(4);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let indexes = def(&[("PRIMARY", true), ("first", false)]);
    let table = engine.create_table("db/t", &TableDef { indexes, properties: b"old".to_vec() }).unwrap();
    let mut model = Model::new();
    fill(&engine, &table, &mut model, 0..5000).unwrap();
    commit(&engine, |txn| put(txn, &table, 9000, None, &row(77, 3))).unwrap();
    model.insert(9000, row(77, 3));
    let clash = [("first", false), ("clash", true)];
    let failed = alter(&engine, "db/t", &clash, |_| ());
    assert!(matches!(failed, Err(Error::Duplicate { index: 0 })), "{failed:?}");
    // One that comes while it is built.
    commit(&engine, |txn| remove(txn, &table, 9000, &model[&9000])).unwrap();
    model.remove(&9000);
    let mut once = true;
    let failed = alter(&engine, "db/t", &clash, |_| {
        if std::mem::take(&mut once) {
            commit(&engine, |txn| put(txn, &table, 9001, None, &row(78, 3))).unwrap();
        }
    });
    assert!(matches!(failed, Err(Error::Duplicate { index: 0 })), "{failed:?}");
    model.insert(9001, row(78, 3));
    check_all(&engine, &table, &model);
    assert_eq!(table.properties(), b"old");
    // A value that goes from one row to another while it is built is no duplicate.
    commit(&engine, |txn| remove(txn, &table, 9001, &model[&9001])).unwrap();
    model.remove(&9001);
    let mut once = true;
    alter(&engine, "db/t", &clash, |_| {
        if std::mem::take(&mut once) {
            commit(&engine, |txn| {
                put(txn, &table, 10, Some(&row(10, 1)), &row(20_010, 1))?;
                put(txn, &table, 4, Some(&row(4, 1)), &row(10, 1))
            })
            .unwrap();
        }
    })
    .unwrap();
    model.insert(10, row(20_010, 1));
    model.insert(4, row(10, 1));
    drop(table);
    check_all(&engine, &engine.open_table("db/t").unwrap(), &model);
    sim.sched.run_some(20_000);
    engine.core().storage.checkpoint().unwrap();
    assert_eq!(spaces(&engine), 3, "what failed left its trees");
    assert!(disk.list().unwrap().iter().all(|name| !name.starts_with("sort.")));
}

#[test]
fn a_full_volume_a_cancel_and_a_failing_disk_leave_the_table_as_it_was() {
    let sim = SimWorld::new(5);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let table = engine
        .create_table("db/t", &TableDef { indexes: def(&[("PRIMARY", true)]), properties: Vec::new() })
        .unwrap();
    let mut model = Model::new();
    // More than the sort keeps in memory.
    for n in 0..30 {
        fill(&engine, &table, &mut model, n * 500..(n + 1) * 500).unwrap();
    }
    let with = |from: usize, fault: &dyn Fn()| {
        alter(&engine, "db/t", &[("pair", false)], |n| {
            if n == from {
                fault();
            }
        })
    };
    let spill = terrace_io::disk::Class::Spill;
    let failed = with(10, &|| disk.faults().fail_class(spill, true));
    disk.faults().fail_class(spill, false);
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    let owner = engine.begin(Isolation::ReadCommitted);
    let new = def(&[("pair", false)]);
    let all = vec![
        NewIndex { def: table.def().indexes[0].clone(), from: Some(0) },
        NewIndex { def: new[0].clone(), from: None },
    ];
    let mut alteration = engine.alter("db/t", all, &owner).unwrap();
    let cancel = owner.cancel_handle();
    scan_only(&mut alteration, &new);
    cancel.cancel();
    let failed = alteration.load(0, &mut |_, _| true);
    assert!(matches!(failed, Err(Error::Cancelled)), "{failed:?}");
    cancel.clear();
    let refused = round(&mut alteration, &new, true);
    assert!(matches!(refused, Err(Error::Invalid(_))), "a round on half an index: {refused:?}");
    let refused = engine.commit_alterations(&mut [(&mut alteration, Vec::new())], None);
    assert!(matches!(refused, Err(Error::Invalid(_))), "half an index: {refused:?}");
    drop(alteration);
    assert!(disk.list().unwrap().iter().all(|name| !name.starts_with("sort.")));
    with(usize::MAX, &|| ()).unwrap();
    drop(table);
    check_all(&engine, &engine.open_table("db/t").unwrap(), &model);
    sim.sched.run_some(20_000);
    engine.core().storage.checkpoint().unwrap();
    assert_eq!(spaces(&engine), 2);
}

fn scan_only(alteration: &mut Alteration, new: &[IndexDef]) {
    let (mut key, mut row) = (Vec::new(), Vec::new());
    while alteration.next_row(&mut key, &mut row).unwrap() {
        for entry in new_entries(new, number(&key), &row) {
            alteration.add(&entry.entry()).unwrap();
        }
    }
}

// --- crashes -------------------------------------------------------------------------------------

struct Run {
    sim: SimWorld,
    disk: Arc<SimDisk>,
    /// What may be there: rows acknowledged, or with the transaction in doubt.
    rows: Vec<Model>,
    /// The index names that may be there, for each of the two tables.
    indexes: [Vec<Vec<String>>; 2],
    /// The auto-increment counters that the first may have.
    counters: Vec<u64>,
}

const TABLES: [&str; 2] = ["db/t", "db/u"];

/// What the last change gives both tables.
fn compressed_and_kept() -> TableOptions {
    TableOptions {
        codec: Some(Codec::Lz4),
        rules: TableRules { placement: Placement::Keep, ..TableRules::default() },
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        // Few leaves are full: entries are shortened before.
        terrace_engine::planted::SHORTENED_AT_ONCE.set(true);
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        let (rows, indexes) = (vec![Model::new()], [vec![vec![]], vec![vec![]]]);
        Run { sim, disk, rows, indexes, counters: vec![1] }
    }

    fn is_to_be(&mut self, table: usize, names: &[&str]) {
        self.indexes[table].push(names.iter().map(|name| name.to_string()).collect());
    }
    fn is_now(&mut self) {
        for all in &mut self.indexes {
            all.drain(..all.len() - 1);
        }
    }

    fn commit(
        &mut self,
        engine: &Engine,
        table: &Table,
        keys: std::ops::Range<u64>,
        fill: u8,
    ) -> Result<(), Error> {
        let mut after = self.rows[0].clone();
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.statement_begin();
        for key in keys {
            let new = row(key + u64::from(fill), fill);
            put(&txn, table, key, after.get(&key), &new)?;
            after.insert(key, new);
        }
        self.rows.push(after.clone());
        txn.commit()?.wait()?;
        self.rows = vec![after];
        Ok(())
    }

    fn alter(&mut self, engine: &Arc<Engine>, indexes: &[(&str, bool)]) -> Result<(), Error> {
        let names: Vec<&str> = ["PRIMARY"].into_iter().chain(indexes.iter().map(|(name, _)| *name)).collect();
        self.is_to_be(0, &names);
        let table = engine.open_table("db/t")?;
        let mut once = true;
        let mut wrote = Ok(());
        let mut this = std::mem::replace(self, Run::new(0));
        let done = alter(engine, "db/t", indexes, |n| {
            if n > 30 && std::mem::take(&mut once) {
                wrote = this.commit(engine, &table, 20..40, 5);
            }
        });
        *self = this;
        wrote?;
        done?;
        self.is_now();
        Ok(())
    }

    /// Rebuilds the whole table beside a writer; its indexes are the same.
    fn rebuild(&mut self, engine: &Arc<Engine>, indexes: &[(&str, bool)]) -> Result<(), Error> {
        let table = engine.open_table("db/t")?;
        let mut once = true;
        let mut wrote = Ok(());
        let mut this = std::mem::replace(self, Run::new(0));
        let done = rebuild::rebuild(
            engine,
            "db/t",
            indexes,
            |key| key,
            |n| {
                if n > 30 && std::mem::take(&mut once) {
                    wrote = this.commit(engine, &table, 25..45, 6);
                }
            },
        );
        *self = this;
        wrote.and(done)
    }

    fn work(&mut self) -> Result<(), Error> {
        let engine = open(&self.sim, &self.disk)?;
        self.is_to_be(0, &["PRIMARY", "first"]);
        let make =
            |name: &str, indexes| engine.create_table(name, &TableDef { indexes, properties: Vec::new() });
        let table = make("db/t", def(&[("PRIMARY", true), ("first", false)]))?;
        self.is_to_be(1, &["PRIMARY", "first"]);
        make("db/u", def(&[("PRIMARY", true), ("first", false)]))?;
        self.is_now();
        self.commit(&engine, &table, 0..120, 1)?;
        engine.core().storage.checkpoint()?;
        self.counters.push(1000);
        table.raise_auto_increment(1000)?;
        self.commit(&engine, &table, 50..80, 2)?;
        self.counters = vec![1000];
        drop(table);
        self.alter(&engine, &[("first", false), ("pair", false), ("unique", true)])?;
        let table = engine.open_table("db/t")?;
        self.commit(&engine, &table, 60..90, 3)?;
        drop(table);
        self.sim.sched.run_some(200);
        self.rebuild(&engine, &[("first", false), ("pair", false), ("unique", true)])?;
        self.sim.sched.run_some(200);
        self.alter(&engine, &[("unique", true)])?;
        engine.core().storage.checkpoint()?;
        // Both at once.
        let owner = engine.begin(Isolation::ReadCommitted);
        let kept = |name: &str, unique, from| NewIndex {
            def: IndexDef { name: name.into(), unique },
            from: Some(from),
        };
        let mut one =
            engine.alter("db/t", vec![kept("PRIMARY", true, 0), kept("unique", true, 1)], &owner)?;
        let mut other = engine.alter("db/u", vec![kept("PRIMARY", true, 0)], &owner)?;
        self.is_to_be(0, &["PRIMARY", "unique"]);
        self.is_to_be(1, &["PRIMARY"]);
        self.counters.push(300);
        one.set_counter(300);
        let mut both = [(&mut one, vec![7; 2000]), (&mut other, vec![7; 2000])];
        engine.commit_alterations(&mut both, Some(&compressed_and_kept()))?;
        self.is_now();
        self.counters = vec![300];
        drop((one, other));
        let table = engine.open_table("db/t")?;
        self.commit(&engine, &table, 10..30, 4)?;
        drop((table, owner));
        engine.shutdown()
    }

    fn check(&self, step: u64) {
        self.sim.sched.drop_workers();
        self.disk.crash();
        self.sim.power_on();
        if self.disk.exists("superblock").unwrap() {
            let look = OfflineInstance::open(self.disk.clone(), None)
                .unwrap_or_else(|e| panic!("step {step}: look: {e}"));
            let report = check::check(&look, &check::Options::default(), &mut |_, _, _| ());
            assert!(
                report.verdict() == Verdict::Sound,
                "step {step}: {:?} {:?}",
                report.faults,
                report.unchecked
            );
        }
        let engine = open(&self.sim, &self.disk).unwrap_or_else(|e| panic!("step {step}: open: {e}"));
        self.sim.sched.run_some(5000);
        let (mut changed, mut named) = (0, 0);
        for (name, allowed) in TABLES.iter().zip(&self.indexes) {
            let table = match engine.open_table(name) {
                Ok(table) => table,
                Err(Error::Absent(_)) => {
                    assert!(allowed.contains(&Vec::new()), "step {step}: {name} is gone");
                    continue;
                }
                Err(error) => panic!("step {step}: {error}"),
            };
            let has: Vec<String> = table.def().indexes.iter().map(|index| index.name.clone()).collect();
            assert!(allowed.contains(&has), "step {step}: {name} has {has:?}, not one of {allowed:?}");
            let is_changed = table.properties() == [7; 2000];
            let TableOptions { codec, rules } =
                if is_changed { compressed_and_kept() } else { TableOptions::default() };
            assert_eq!(engine.core().catalog.compression(name), codec, "step {step}: {name}");
            assert_eq!(engine.table_rules(name).unwrap_or_default(), rules, "step {step}: {name}");
            changed += usize::from(is_changed);
            named += has.len();
            if *name == "db/t" {
                let counter = table.auto_increment().unwrap();
                assert!(self.counters.contains(&counter), "step {step}: the counter is {counter}");
                assert!(!is_changed || counter == 300, "step {step}: the counter is {counter}");
                let txn = engine.begin(Isolation::RepeatableRead);
                let found = seen(&table, &txn, 0).unwrap();
                assert!(
                    self.rows.contains(&found),
                    "step {step}: {} rows are none that there were",
                    found.len()
                );
                drop(txn);
                check_all(&engine, &table, &found);
                commit(&engine, |txn| put(txn, &table, 5000, None, &row(5000, 9))).unwrap();
            }
        }
        assert!(changed == 0 || changed == 2, "step {step}: one table of two was changed");
        self.sim.sched.run_some(5000);
        // An empty space may have no page on the volume yet.
        assert!(spaces(&engine) <= named, "step {step}: {} spaces, {named} indexes", spaces(&engine));
        assert!(self.disk.list().unwrap().iter().all(|name| !name.starts_with("sort.")), "step {step}");
        assert_eq!(engine.core().storage.map.faults(), Vec::<String>::new(), "step {step}");
    }
}

/// `make test` takes some steps; `TERRACE_EVERY_STEP=1` all of them, `TERRACE_SEEDS` more orders of waits.
#[test]
fn a_crash_at_any_step_leaves_the_old_or_the_new() {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    for seed in 20..20 + number("TERRACE_SEEDS").unwrap_or(1) {
        let mut whole = Run::new(seed);
        whole.work().unwrap();
        let steps = whole.sim.steps();
        assert!(steps > 100, "only {steps} steps");
        let stride = if number("TERRACE_EVERY_STEP").is_some() { 1 } else { steps.div_ceil(150) };
        println!("{steps} I/O steps, every {stride}");
        for step in (1..=steps).step_by(stride as usize) {
            let mut run = Run::new(seed);
            run.sim.crash_at(step);
            let result = run.work();
            assert!(run.sim.crashed(), "step {step}: the run is not the one that was counted");
            if step < steps / 2 {
                assert!(result.is_err(), "step {step}: work went on after the crash");
            }
            run.check(step);
        }
    }
}

#[test]
fn a_counter_is_lowered_with_its_definition_change_or_not_at_all() {
    for built_anew in [false, true] {
        let sim = SimWorld::new(31);
        let disk = sim.disk("volume");
        let engine = open(&sim, &disk).unwrap();
        let indexes = def(&[("PRIMARY", true)]);
        let table = engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
        fill(&engine, &table, &mut Model::new(), 0..50).unwrap();
        table.raise_auto_increment(1000).unwrap();
        drop(table);
        let owner = engine.begin(Isolation::ReadCommitted);
        let change = |next: u64, options: Option<&TableOptions>| {
            let def = IndexDef { name: "PRIMARY".into(), unique: true };
            let from = (!built_anew).then_some(0);
            let mut alteration = engine.alter("db/t", vec![NewIndex { def, from }], &owner).unwrap();
            if built_anew {
                alteration.build(&mut |_, _| true).unwrap();
                alteration.begin_round(true).unwrap();
                alteration.end_round().unwrap();
            }
            alteration.set_counter(next);
            engine.commit_alterations(&mut [(&mut alteration, Vec::new())], options)
        };
        let next = |engine: &Arc<Engine>| engine.open_table("db/t").unwrap().auto_increment().unwrap();
        let mut no_room = TableOptions::default();
        no_room.rules.rule.buffer.min = u64::MAX / 2;
        assert!(change(60, Some(&no_room)).is_err());
        assert_eq!(next(&engine), 1000);
        change(60, None).unwrap();
        assert_eq!(next(&engine), 60);
        drop(owner);
        drop(engine);
        sim.sched.drop_workers();
        disk.crash();
        sim.power_on();
        assert_eq!(next(&open(&sim, &disk).unwrap()), 60);
    }
}

// --- the first filling of a table ------------------------------------------------------------------

/// Fills a new table with the keys in this order. Returns what it should hold.
fn load(engine: &Arc<Engine>, name: &str, keys: impl Iterator<Item = u64>) -> Result<Model, Error> {
    let indexes = def(&[("PRIMARY", true), ("first", false), ("unique", true)]);
    let table = engine.create_table(name, &TableDef { indexes, properties: Vec::new() })?;
    let owner = engine.begin(Isolation::ReadCommitted);
    let mut load = engine.load(&table, &owner)?;
    let mut model = Model::new();
    for key in keys {
        let row = row(key, 1);
        let new = entries(&table, key, &row);
        let new: Vec<_> = new.iter().map(Owned::entry).collect();
        load.add(&key.to_be_bytes(), &row, &new)?;
        model.insert(key, row);
    }
    load.finish()?;
    Ok(model)
}

#[test]
fn a_table_is_filled_from_rows_in_any_order() {
    let sim = SimWorld::new(6);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let old = engine.begin(Isolation::RepeatableRead);
    old.open_view();
    commit(&engine, |_| Ok(())).unwrap();
    // In order; backward; in order and then not; nothing; one.
    let orders: [(&str, Vec<u64>); 5] = [
        ("db/up", (0..12_000).collect()),
        ("db/down", (0..12_000).rev().collect()),
        ("db/late", (0..9000).map(|n| n * 2).chain((0..3000).map(|n| n * 2 + 1)).collect()),
        ("db/none", Vec::new()),
        ("db/one", vec![7]),
    ];
    for (name, keys) in &orders {
        let model = load(&engine, name, keys.iter().copied()).unwrap();
        let table = engine.open_table(name).unwrap();
        check_all(&engine, &table, &model);
        let txn = engine.begin(Isolation::RepeatableRead);
        put(&txn, &table, 4001, model.get(&4001), &row(99_999, 3)).unwrap();
        drop(txn.commit().unwrap());
    }
    sim.sched.run_some(20_000);
    engine.shutdown().unwrap();
    drop((engine, old));
    check_volume(&disk);
}

/// The server drops the original of what it has copied.
#[test]
fn a_table_that_is_filled_is_durable() {
    for keys in [40, 3000] {
        let sim = SimWorld::new(10);
        let disk = sim.disk("volume");
        let engine = open(&sim, &disk).unwrap();
        let model = load(&engine, "db/t", 0..keys).unwrap();
        sim.sched.drop_workers();
        drop(engine);
        disk.crash();
        sim.power_on();
        let engine = open(&sim, &disk).unwrap();
        check_all(&engine, &engine.open_table("db/t").unwrap(), &model);
    }
}

#[test]
fn a_duplicate_key_is_found_wherever_it_is_in_the_input() {
    let sim = SimWorld::new(7);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let all = |n: u64| (0..n).map(|n| n * 2);
    let orders: [(&str, Vec<u64>); 4] = [
        ("db/next", all(5000).chain([9998]).collect()),
        ("db/early", all(10).chain([4]).chain((20..5000).map(|n| n * 2)).collect()),
        ("db/late", all(9000).chain([4]).collect()),
        ("db/lates", all(9000).chain([5, 3, 5]).collect()),
    ];
    for (name, keys) in orders {
        let failed = load(&engine, name, keys.into_iter()).map(|model| model.len());
        assert!(matches!(failed, Err(Error::Duplicate { index: 0 })), "{name}: {failed:?}");
        engine.drop_table(name).unwrap();
    }
    sim.sched.run_some(20_000);
    engine.core().storage.checkpoint().unwrap();
    assert_eq!(spaces(&engine), 0);
    assert!(disk.list().unwrap().iter().all(|name| !name.starts_with("sort.")));
}

// --- what is late, and what fails half way -------------------------------------------------------

/// The scan meets a copy of a row as the first of two transactions left it, when the second has told of its change.
#[test]
fn a_row_changed_twice_behind_the_scan_has_its_final_entry() {
    let sim = SimWorld::new(6);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let table = engine
        .create_table("db/t", &TableDef { indexes: def(&[("PRIMARY", true)]), properties: Vec::new() })
        .unwrap();
    let mut model = Model::new();
    fill(&engine, &table, &mut model, 1..60).unwrap();
    let new = def(&[("pair", false)]);
    let all = vec![
        NewIndex { def: table.def().indexes[0].clone(), from: Some(0) },
        NewIndex { def: new[0].clone(), from: None },
    ];
    let owner = engine.begin(Isolation::ReadCommitted);
    let mut alteration = engine.alter("db/t", all, &owner).unwrap();
    let begin = || {
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.statement_begin();
        txn
    };
    let (first, second) = (begin(), begin());
    put(&first, &table, 50, model.get(&50), &row(1050, 2)).unwrap();
    // The cursor copies some rows of a leaf at a time.
    scan(&mut alteration, &new, |n| {
        if n == 45 {
            drop(first.commit().unwrap());
            put(&second, &table, 50, Some(&row(1050, 2)), &row(2050, 3)).unwrap();
        }
    })
    .unwrap();
    round(&mut alteration, &new, false).unwrap();
    drop(second.commit().unwrap());
    model.insert(50, row(2050, 3));
    round(&mut alteration, &new, true).unwrap();
    engine.commit_alterations(&mut [(&mut alteration, Vec::new())], None).unwrap();
    drop((alteration, table));
    check_all(&engine, &engine.open_table("db/t").unwrap(), &model);
}

/// An unused table is closed and opened again: its new index is still too young for an old view.
#[test]
fn a_built_index_stays_too_young_for_an_old_view_when_its_table_was_closed() {
    let sim = SimWorld::new(7);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let make = |name: &str| {
        engine.create_table(name, &TableDef { indexes: def(&[("PRIMARY", true)]), properties: Vec::new() })
    };
    let table = make("db/t").unwrap();
    let mut model = Model::new();
    fill(&engine, &table, &mut model, 1..60).unwrap();
    let reader = engine.begin(Isolation::RepeatableRead);
    reader.open_view();
    commit(&engine, |txn| remove(txn, &table, 50, &row(50, 1))).unwrap();
    drop(table);
    alter(&engine, "db/t", &[("pair", false)], |_| ()).unwrap();
    let open = Arc::downgrade(&engine.open_table("db/t").unwrap());
    sim.sched.run_some(1000);
    // Other tables take the room that open ones have.
    for n in 0.. {
        assert!(n < 500, "the table is never closed");
        drop(make(&format!("db/other{n}")).unwrap());
        if open.upgrade().is_none() {
            break;
        }
    }
    let table = engine.open_table("db/t").unwrap();
    assert_eq!(seen(&table, &reader, 0).unwrap().len(), 59);
    let by_index = seen(&table, &reader, 1);
    assert!(matches!(by_index, Err(Error::Changed(_))), "{:?} rows", by_index.map(|rows| rows.len()));
    drop((reader, table));
    model.remove(&50);
    check_all(&engine, &engine.open_table("db/t").unwrap(), &model);
}

/// A last round that gave up waiting for a transaction that a crash has left is made again, and knows of its rows.
#[test]
fn a_last_round_that_timed_out_on_an_orphaned_transaction_is_repeated_with_its_rows() {
    let sim = SimWorld::new(8);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let table = engine
        .create_table("db/t", &TableDef { indexes: def(&[("PRIMARY", true)]), properties: Vec::new() })
        .unwrap();
    let mut model = Model::new();
    fill(&engine, &table, &mut model, 1..60).unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.statement_begin();
    put(&txn, &table, 50, model.get(&50), &row(1050, 2)).unwrap();
    remove(&txn, &table, 51, &model[&51]).unwrap();
    txn.prepare(b"xid").unwrap();
    drop((txn, table));
    sim.sched.drop_workers();
    drop(engine);
    disk.crash();
    sim.power_on();
    let engine = open(&sim, &disk).unwrap();
    let table = engine.open_table("db/t").unwrap();
    let new = def(&[("pair", false)]);
    let all = vec![
        NewIndex { def: table.def().indexes[0].clone(), from: Some(0) },
        NewIndex { def: new[0].clone(), from: None },
    ];
    let owner = engine.begin(Isolation::ReadCommitted);
    owner.set_lock_wait_timeout_ms(10);
    let mut alteration = engine.alter("db/t", all, &owner).unwrap();
    scan(&mut alteration, &new, |_| ()).unwrap();
    let failed = round(&mut alteration, &new, true);
    assert!(matches!(failed, Err(Error::LockTimeout)), "{failed:?}");
    let refused = engine.commit_alterations(&mut [(&mut alteration, Vec::new())], None);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    engine.commit_prepared(b"xid").unwrap();
    model.insert(50, row(1050, 2));
    model.remove(&51);
    assert_eq!(round(&mut alteration, &new, true).unwrap(), 2);
    engine.commit_alterations(&mut [(&mut alteration, Vec::new())], None).unwrap();
    drop((alteration, table));
    check_all(&engine, &engine.open_table("db/t").unwrap(), &model);
}

/// A change of two tables that fails when it is in the catalog's tree for one of them: it has happened to both, now and
/// after a restart, and other changes wait until it is done.
#[test]
fn a_definition_change_of_two_tables_that_fails_half_way_is_completed_for_both() {
    for crashes in [false, true] {
        let sim = SimWorld::new(9);
        let disk = sim.disk("volume");
        let engine = open(&sim, &disk).unwrap();
        let make = |name: &str| {
            let indexes = def(&[("PRIMARY", true), ("first", false)]);
            engine.create_table(name, &TableDef { indexes, properties: vec![1; 600] })
        };
        let mut model = Model::new();
        let table = make("db/t").unwrap();
        drop(make("db/near").unwrap());
        // Their entries are far apart in the catalog's tree.
        (0..200).for_each(|n| drop(make(&format!("db/other{n}")).unwrap()));
        drop(make("db/u").unwrap());
        // Its pages leave memory.
        for n in 0..30 {
            fill(&engine, &table, &mut model, n * 500..(n + 1) * 500).unwrap();
        }
        drop(table);
        sim.sched.run_some(20_000);
        engine.core().storage.checkpoint().unwrap();
        alter(&engine, "db/near", &[("first", false)], |_| ()).unwrap();
        let owner = engine.begin(Isolation::ReadCommitted);
        let begin = |name: &str| {
            let all = ["PRIMARY", "first"].iter().enumerate();
            let kept = all.map(|(at, index)| NewIndex {
                def: IndexDef { name: index.to_string(), unique: at == 0 },
                from: Some(at),
            });
            let built = NewIndex { def: IndexDef { name: "pair".into(), unique: false }, from: None };
            engine.alter(name, kept.chain([built]).collect(), &owner)
        };
        let new = def(&[("pair", false)]);
        let (mut one, mut other) = (begin("db/t").unwrap(), begin("db/u").unwrap());
        for alteration in [&mut one, &mut other] {
            scan(alteration, &new, |_| ()).unwrap();
            round(alteration, &new, true).unwrap();
        }
        let page_read = terrace_io::disk::Class::PageRead;
        disk.faults().fail_class(page_read, true);
        let changed =
            engine.commit_alterations(&mut [(&mut one, vec![7; 2000]), (&mut other, vec![7; 2000])], None);
        let next = engine.rename_table("db/near", "db/nearer");
        disk.faults().fail_class(page_read, false);
        assert!(next.is_err(), "the fault met nothing of the change");
        changed.unwrap();
        drop((one, other, owner));
        sim.sched.run_some(2000);
        let is_whole = |engine: &Arc<Engine>, names: [&str; 2]| {
            for name in names {
                let table = engine.open_table(name).unwrap();
                assert_eq!((table.properties(), table.def().indexes.len()), (vec![7; 2000], 3), "{name}");
            }
            check_all(engine, &engine.open_table(names[0]).unwrap(), &model);
        };
        is_whole(&engine, ["db/t", "db/u"]);
        let again = |engine: Arc<Engine>| {
            if crashes {
                sim.sched.drop_workers();
                drop(engine);
                disk.crash();
                sim.power_on();
            } else {
                engine.shutdown().unwrap();
                drop(engine);
            }
            open(&sim, &disk).unwrap()
        };
        let engine = if crashes { again(engine) } else { engine };
        is_whole(&engine, ["db/t", "db/u"]);
        engine.rename_table("db/t", "db/v").unwrap();
        engine.drop_table("db/near").unwrap();
        let engine = again(engine);
        is_whole(&engine, ["db/v", "db/u"]);
        engine.drop_table("db/u").unwrap();
        let engine = again(engine);
        check_all(&engine, &engine.open_table("db/v").unwrap(), &model);
        assert!(matches!(engine.open_table("db/u"), Err(Error::Absent(_))));
    }
}
