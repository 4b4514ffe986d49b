//! A whole table is rebuilt: beside writers, under another primary key, with undo for the old form of the rows.

use super::*;
use terrace_engine::planted;

/// Rebuilds the table with these indexes after its first, each row under the key that `to` makes of its own.
pub fn rebuild(
    engine: &Arc<Engine>,
    name: &str,
    indexes: &[(&str, bool)],
    to: fn(u64) -> u64,
    mut beside: impl FnMut(usize),
) -> Result<(), Error> {
    let all = [("PRIMARY", true)].iter().chain(indexes);
    let all: Vec<IndexDef> = def(&all.copied().collect::<Vec<_>>());
    let new = all.iter().map(|def| NewIndex { def: def.clone(), from: None }).collect();
    let owner = engine.begin(Isolation::ReadCommitted);
    let mut alteration = engine.alter(name, new, &owner)?;
    let (mut key, mut row, mut rows) = (Vec::new(), Vec::new(), 0);
    while alteration.next_row(&mut key, &mut row)? {
        anew(&all, to(number(&key)), &row, |key, row, entries| alteration.add_row(key, row, entries))?;
        rows += 1;
        beside(rows);
    }
    alteration.build(&mut |_, _| true)?;
    beside(rows + 1);
    for last in [false, true] {
        let count = alteration.begin_round(last)?;
        for side in [Side::Before, Side::After] {
            for at in 0..count {
                if alteration.round_row(at, side, &mut key, &mut row)? {
                    anew(&all, to(number(&key)), &row, |key, row, entries| match side {
                        Side::Before => alteration.remove_row(key, entries),
                        Side::After => alteration.put_row(key, row, entries),
                    })?;
                }
            }
        }
        alteration.end_round()?;
        if !last {
            beside(rows + 2);
        }
    }
    engine.commit_alterations(&mut [(&mut alteration, b"new".to_vec())], None)
}

/// Hands over a row as the new trees are to have it.
fn anew(
    all: &[IndexDef],
    key: u64,
    row: &[u8],
    take: impl FnOnce(&[u8], Row<'_>, &[Entry<'_>]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut owned = new_entries(&all[1..], key, row);
    owned.iter_mut().for_each(|one| one.index += 1);
    let entries: Vec<_> = owned.iter().map(Owned::entry).collect();
    let spans = [Span { at: 10, len: 8900, name: 0 }];
    take(&key.to_be_bytes(), Row { bytes: row, spans: &spans[..usize::from(row.len() == 9000)] }, &entries)
}

fn started(seed: u64) -> (SimWorld, Arc<SimDisk>, Arc<Engine>) {
    let sim = SimWorld::new(seed);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    (sim, disk, engine)
}

fn purge(sim: &SimWorld, engine: &Engine) {
    for _ in 0..40 {
        sim.clock.advance(10_000_000);
        sim.sched.run_some(500);
    }
    assert!(engine.core().purge.history.lock().is_empty(), "purge does not come to its end");
}

fn table_of(engine: &Engine, indexes: &[(&str, bool)]) -> Arc<Table> {
    engine.create_table("db/t", &TableDef { indexes: def(indexes), properties: Vec::new() }).unwrap()
}

#[test]
fn a_rebuild_beside_writers_has_the_rows_final_values() {
    for seed in 0..6 {
        let (sim, disk, engine) = started(seed);
        let table = table_of(&engine, &[("PRIMARY", true), ("first", false)]);
        let mut model = Model::new();
        fill(&engine, &table, &mut model, 0..3000).unwrap();
        let random = sim.world().random;
        let mut changes = 0;
        let write = |_: usize| {
            if random.below(8) > 0 {
                return;
            }
            let txn = engine.begin(Isolation::ReadCommitted);
            txn.statement_begin();
            let mut after = model.clone();
            for _ in 0..random.below(5) + 1 {
                // Rows that the rebuild has already read, rows that it has yet to read, and absent keys; many rows are large.
                let key = if random.below(2) == 0 { random.below(40) * 97 } else { random.below(6000) };
                changes += 1;
                match after.get(&key).cloned() {
                    Some(old) if random.below(3) == 0 => {
                        remove(&txn, &table, key, &old).unwrap();
                        after.remove(&key);
                    }
                    old => {
                        let fresh = row(random.below(50) * 97 + random.below(3), 7 + seed as u8);
                        put(&txn, &table, key, old.as_ref(), &fresh).unwrap();
                        after.insert(key, fresh);
                    }
                }
            }
            if random.below(4) == 0 {
                txn.rollback().unwrap();
            } else {
                drop(txn.commit().unwrap());
                model = after;
            }
        };
        let flip: fn(u64) -> u64 = if seed % 2 == 0 { |key| key } else { |key| !key };
        rebuild(&engine, "db/t", &[("unique", true), ("first", false), ("pair", false)], flip, write)
            .unwrap();
        assert!(changes > 500, "{changes} changes prove little");
        drop(table);
        let table = engine.open_table("db/t").unwrap();
        let model: Model = model.into_iter().map(|(key, row)| (flip(key), row)).collect();
        check_all(&engine, &table, &model);
        assert_eq!(table.estimate().rows, model.len() as u64);
        purge(&sim, &engine);
        check_all(&engine, &table, &model);
        drop(table);
        engine.shutdown().unwrap();
        drop(engine);
        check_volume(&disk);
        let engine = open(&sim, &disk).unwrap();
        check_all(&engine, &engine.open_table("db/t").unwrap(), &model);
        assert_eq!(spaces(&engine), 4, "spaces of the old trees are left");
    }
}

/// A large value that an old row has left to purge had the pages and the number that the first one of the new space would have.
fn undo_of_an_old_row_meets_the_first_new_one() {
    let (sim, _disk, engine) = started(9);
    let table = table_of(&engine, &[("PRIMARY", true)]);
    let mut model: Model = (0..4).map(|key| (key, row(97 * (key + 1), 1))).collect();
    commit(&engine, |txn| model.iter().try_for_each(|(key, row)| put(txn, &table, *key, None, row))).unwrap();
    let reader = engine.begin(Isolation::RepeatableRead);
    reader.open_view();
    let old = model.insert(0, row(97 * 9, 3));
    commit(&engine, |txn| put(txn, &table, 0, old.as_ref(), &model[&0])).unwrap();
    commit(&engine, |txn| remove(txn, &table, 1, &model.remove(&1).unwrap())).unwrap();
    drop(table);
    rebuild(&engine, "db/t", &[], |key| key, |_| ()).unwrap();
    drop(reader);
    purge(&sim, &engine);
    let table = engine.open_table("db/t").unwrap();
    // What is free is used again.
    let more: Model = (10..14).map(|key| (key, row(97 * key, 2))).collect();
    commit(&engine, |txn| more.iter().try_for_each(|(key, row)| put(txn, &table, *key, None, row))).unwrap();
    model.extend(more);
    check_all(&engine, &table, &model);
}

#[test]
fn undo_of_an_old_row_leaves_the_first_new_row() {
    undo_of_an_old_row_meets_the_first_new_one();
}

/// Large values of old rows that purge has still to free have the page numbers of new ones, and both spaces have allocated numbers meanwhile.
#[test]
fn purge_of_old_rows_frees_no_page_of_rebuilt_ones() {
    let (sim, disk, engine) = started(7);
    let table = table_of(&engine, &[("PRIMARY", true), ("first", false)]);
    let mut model = Model::new();
    fill(&engine, &table, &mut model, 0..300).unwrap();
    // Only large ones, in the order of their keys.
    for round in 0..4 {
        let reader = engine.begin(Isolation::RepeatableRead);
        reader.open_view();
        let table = engine.open_table("db/t").unwrap();
        let change = |model: &mut Model, keys: std::ops::Range<u64>, fill: u8| {
            commit(&engine, |txn| {
                keys.into_iter().try_for_each(|key| {
                    let new = row(97 * (key + u64::from(fill)), fill);
                    put(txn, &table, key, model.get(&key), &new)?;
                    model.insert(key, new);
                    Ok(())
                })
            })
            .unwrap();
        };
        change(&mut model, 0..40, 10 + round);
        commit(&engine, |txn| {
            (10..20).try_for_each(|key| remove(txn, &table, key, &model.remove(&key).unwrap()))
        })
        .unwrap();
        let mut once = true;
        rebuild(
            &engine,
            "db/t",
            &[("first", false)],
            |key| key,
            |n| {
                if n > 60 && std::mem::take(&mut once) {
                    change(&mut model, 0..30, 20 + round);
                }
            },
        )
        .unwrap();
        drop(table);
        let table = engine.open_table("db/t").unwrap();
        assert!(matches!(seen(&table, &reader, 0), Err(Error::Changed(_))));
        for key in 10..30 {
            commit(&engine, |txn| {
                let new = row(97 * key, 30 + round);
                put(txn, &table, key, model.get(&key), &new)?;
                model.insert(key, new);
                Ok(())
            })
            .unwrap();
        }
        drop(reader);
        purge(&sim, &engine);
        check_all(&engine, &table, &model);
    }
    drop(table);
    engine.shutdown().unwrap();
    drop(engine);
    check_volume(&disk);
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_reused_numbers_of_large_values_are_found() {
    planted::SERIALS_ANEW.set(true);
    let found = std::panic::catch_unwind(undo_of_an_old_row_meets_the_first_new_one).is_err();
    planted::SERIALS_ANEW.set(false);
    assert!(found);
}

#[test]
fn a_duplicate_key_is_named_and_leaves_the_table_unchanged() {
    let (_sim, _disk, engine) = started(8);
    let table = table_of(&engine, &[("PRIMARY", true), ("first", false)]);
    let mut model = Model::new();
    fill(&engine, &table, &mut model, 0..500).unwrap();
    let before = spaces(&engine);
    // Two rows come under one key: as they are read, and in a round.
    let read = rebuild(&engine, "db/t", &[], |key| key.min(400), |_| ());
    assert!(matches!(read, Err(Error::Duplicate { index: 0 })), "{read:?}");
    let in_round = rebuild(
        &engine,
        "db/t",
        &[("pair", false)],
        |key| if key == 900 { 3 } else { key },
        |n| {
            if n == 501 {
                commit(&engine, |txn| put(txn, &table, 900, None, &row(900, 3))).unwrap();
                model.insert(900, row(900, 3));
            }
        },
    );
    assert!(matches!(in_round, Err(Error::Duplicate { index: 0 })), "{in_round:?}");
    check_all(&engine, &table, &model);
    assert_eq!(spaces(&engine), before);
}
