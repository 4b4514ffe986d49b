//! Rows are loaded into a table that has rows: what other transactions see, what remains after a rollback, and after a crash at each I/O
//! step in turn.

use super::*;

/// As `fill`, beside the rows of `model`, which has the load's, too, if it succeeds.
fn load_beside(
    engine: &Arc<Engine>,
    table: &Arc<Table>,
    txn: &Arc<Txn>,
    keys: impl IntoIterator<Item = u64>,
    model: &mut Model,
) -> Result<(), Error> {
    txn.statement_begin();
    let mut load = engine.load_beside(table, txn, 1)?;
    let mut more = Model::new();
    let done = keys.into_iter().try_for_each(|key| {
        let row = row(key, 4);
        add(&mut load, key, &row)?;
        more.insert(key, row);
        Ok(())
    });
    let done = done.and_then(|()| load.finish());
    drop(load);
    if let Err(error) = done {
        txn.statement_rollback()?;
        return Err(error);
    }
    model.extend(more);
    Ok(())
}

/// A table with rows of keys that are divisible by 4, of which some are deleted again: `model` has the others.
fn table_with_rows(engine: &Arc<Engine>, name: &str, count: u64) -> (Arc<Table>, Model) {
    let table = make(engine, name).unwrap();
    let txn = begin(engine);
    let mut model = Model::new();
    for key in (0..count).map(|n| n * 4) {
        insert(&txn, &table, key, &row(key, 1)).unwrap();
        model.insert(key, row(key, 1));
    }
    txn.commit().unwrap().wait().unwrap();
    (table, model)
}

/// Orders in which rows come, of which none is divisible by 4 and all differ: up, down, up and then not, scattered, few, none.
fn orders() -> Vec<(&'static str, Vec<u64>)> {
    let number = |n: u64| n / 3 * 4 + n % 3 + 1;
    let scattered = |n: u64| number(n * 7919 % 12_000);
    vec![
        ("db/up", (0..12_000).map(number).collect()),
        ("db/down", (0..12_000).rev().map(number).collect()),
        ("db/late", (0..6000).map(|n| number(n * 2)).chain((0..6000).map(|n| number(n * 2 + 1))).collect()),
        ("db/scattered", (0..12_000).map(scattered).collect()),
        ("db/few", (0..300).rev().map(number).collect()),
        ("db/none", Vec::new()),
    ]
}

fn delete_some(engine: &Engine, table: &Table, model: &mut Model, keys: &[u64]) {
    let txn = begin(engine);
    for key in keys {
        delete(&txn, table, *key, &model.remove(key).unwrap()).unwrap();
    }
    txn.commit().unwrap().wait().unwrap();
}

#[test]
fn rows_loaded_in_any_order_beside_existing_ones_become_visible_at_the_commit() {
    let sim = SimWorld::new(11);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    for (name, keys) in orders() {
        let (table, mut model) = table_with_rows(&engine, name, 2000);
        let old = begin(&engine);
        old.open_view();
        let before = model.clone();
        let sorted = || engine.core().counters.sorted.load(Ordering::Relaxed);
        let (txn, sorted_before) = (begin(&engine), sorted());
        load_beside(&engine, &table, &txn, keys.clone(), &mut model).unwrap();
        // All entries are sorted, and the rows that do not come in order.
        let out_of_order = match name {
            "db/up" | "db/none" => 0,
            "db/late" => 5990,
            _ => keys.len() as u64 - 20,
        };
        let expected = (INDEXES.len() - 1) as u64 * keys.len() as u64 + out_of_order;
        assert!((expected..expected + 20).contains(&(sorted() - sorted_before)), "{name}");
        sees(&table, &txn, &model);
        sees(&table, &old, &before);
        sees(&table, &begin(&engine), &before);
        if let Some(key) = keys.last() {
            let locked = begin(&engine).get(&table, &key.to_be_bytes(), Lock::Exclusive, &mut Vec::new());
            assert!(matches!(locked, Err(Error::LockTimeout)), "{name}: {locked:?}");
        }
        txn.commit().unwrap().wait().unwrap();
        sees(&table, &old, &before);
        check_all(&engine, &table, &model);
    }
    assert!(engine.core().storage.pages.pool().lent_for(terrace_tier::memory::pool::Purpose::Sorts) == 0);
    close(engine, &sim, &disk);
}

#[test]
fn a_rolled_back_load_leaves_the_existing_rows() {
    let sim = SimWorld::new(12);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    for (name, keys) in orders() {
        let (table, model) = table_with_rows(&engine, name, 1000);
        // The transaction; a savepoint and once more; a load that is left half way, and one that is cancelled.
        let txn = begin(&engine);
        load_beside(&engine, &table, &txn, keys.clone(), &mut model.clone()).unwrap();
        txn.rollback().unwrap();
        check_all(&engine, &table, &model);
        let txn = begin(&engine);
        let savepoint = txn.savepoint();
        load_beside(&engine, &table, &txn, keys.clone(), &mut model.clone()).unwrap();
        txn.rollback_to(savepoint).unwrap();
        sees(&table, &txn, &model);
        let mut more = model.clone();
        load_beside(&engine, &table, &txn, keys.clone(), &mut more).unwrap();
        sees(&table, &txn, &more);
        txn.rollback().unwrap();
        for cancelled in [false, true] {
            let txn = begin(&engine);
            let mut load = engine.load_beside(&table, &txn, 1).unwrap();
            keys.iter().for_each(|key| add(&mut load, *key, &row(*key, 4)).unwrap());
            if cancelled {
                txn.cancel_handle().cancel();
                assert!(
                    load.finish().is_err() || keys.len() < 1024,
                    "{name}: all is there though it was cancelled"
                );
            }
            drop(load);
            txn.statement_rollback().unwrap();
            txn.commit().unwrap().wait().unwrap();
            check_all(&engine, &table, &model);
        }
    }
    close(engine, &sim, &disk);
}

#[test]
fn a_duplicate_of_an_existing_or_loaded_key_is_found_with_its_row() {
    let sim = SimWorld::new(13);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let odd = |n: u64| (0..n).map(|n| n * 2 + 1);
    // The second row with the key: equals a row of the table, in key order and out of it; equals a loaded row, in key order and out of it.
    let orders: [(&str, Vec<u64>, u64); 4] = [
        ("db/there", odd(4000).chain([8004]).collect(), 8004),
        ("db/there_late", odd(4000).chain([404]).collect(), 404),
        ("db/in_order", odd(4000).chain([1001]).collect(), 1001),
        ("db/late", odd(4000).chain([1002, 1006, 1002]).collect(), 1002),
    ];
    for (name, keys, twice) in orders {
        let (table, model) = table_with_rows(&engine, name, 2500);
        let txn = begin(&engine);
        let load = engine.load_beside(&table, &txn, 1).unwrap();
        let found = refused(load, &txn, keys.iter().map(|key| (*key, row(*key, 4))), 0);
        assert!(found == (twice, row(twice, 4)), "{name}: another row");
        txn.commit().unwrap().wait().unwrap();
        check_all(&engine, &table, &model);
    }
    // In the unique index: the entry of row 3, which was loaded before, and that of row 400, which the table has.
    for (name, other) in [("db/unique", 3), ("db/unique_there", 400)] {
        let (table, model) = table_with_rows(&engine, name, 2500);
        let txn = begin(&engine);
        let load = engine.load_beside(&table, &txn, 1).unwrap();
        let of = |key: u64| {
            let mut row = row(key, 4);
            if key == 6001 {
                row[..4].copy_from_slice(&row_start(other));
            }
            (key, row)
        };
        let (key, found) = refused(load, &txn, odd(4000).map(of), 3);
        assert!(key == 6001 && found[..4] == row_start(other), "{name}: another row: {key}");
        txn.commit().unwrap().wait().unwrap();
        check_all(&engine, &table, &model);
    }
    close(engine, &sim, &disk);
}

#[test]
fn an_older_view_still_sees_deleted_rows_that_a_load_inserts_again() {
    let sim = SimWorld::new(14);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let (table, mut model) = table_with_rows(&engine, "db/t", 2000);
    let old = begin(&engine);
    old.open_view();
    let before = model.clone();
    let again: Vec<u64> = (200..1600).map(|n| n * 4).collect();
    delete_some(&engine, &table, &mut model, &again);
    let txn = begin(&engine);
    load_beside(&engine, &table, &txn, again.into_iter().rev(), &mut model).unwrap();
    txn.commit().unwrap().wait().unwrap();
    let more = begin(&engine);
    // Undo pages that were freed have been reused by now.
    load_beside(&engine, &table, &more, (0..4000).map(|n| 20_001 + 2 * n), &mut model).unwrap();
    more.commit().unwrap().wait().unwrap();
    for _ in 0..20 {
        sim.clock.advance(10_000_000);
        sim.sched.run_some(500);
    }
    sees(&table, &old, &before);
    check_all(&engine, &table, &model);
    drop((table, old, txn, more));
    close(engine, &sim, &disk);
}

#[test]
fn a_load_waits_at_its_end_for_transactions_that_lock_gaps_of_an_index() {
    let sim = SimWorld::new(15);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let (table, mut model) = table_with_rows(&engine, "db/t", 1000);
    let reader = begin(&engine);
    // All of the index `near`, gaps and entries.
    let mut cursor = reader.cursor(&table, 2, Lock::Shared, Access::Normal).unwrap();
    let mut valid = cursor.seek(&[], Seek::First).unwrap();
    while valid {
        valid = cursor.next().unwrap();
    }
    drop(cursor);
    let txn = begin(&engine);
    let keys = || (0..3000).map(|n| 10_001 + n);
    let failed = load_beside(&engine, &table, &txn, keys(), &mut model);
    assert!(matches!(failed, Err(Error::LockTimeout)), "{failed:?}");
    sees(&table, &txn, &model);
    reader.rollback().unwrap();
    load_beside(&engine, &table, &txn, keys(), &mut model).unwrap();
    txn.commit().unwrap().wait().unwrap();
    check_all(&engine, &table, &model);
    drop((table, txn, reader));
    close(engine, &sim, &disk);
}

/// A statement that fills very many partitions begins as many loads. A load that can borrow no memory inserts row by row; none sorts in memory
/// that it did not borrow.
#[test]
fn loads_that_find_no_memory_to_borrow_are_not_begun() {
    let sim = SimWorld::new(16);
    let disk = sim.disk("volume");
    let engine = open(&sim, &disk).unwrap();
    let (table, mut model) = table_with_rows(&engine, "db/t", 1000);
    let pool = engine.core().storage.pages.pool().clone();
    let lent = || pool.lent_for(terrace_tier::memory::pool::Purpose::Sorts);
    let txn = begin(&engine);
    let (mut loads, mut each) = (Vec::new(), 0);
    let refused = loop {
        match engine.load_beside(&table, &txn, 1000) {
            Ok(load) => loads.push(load),
            Err(error) => break error,
        }
        each = if each == 0 { lent() } else { each };
        assert!(each > 0 && lent() == loads.len() * each && lent() <= pool.frames() * 16384 / 2);
    };
    assert!(matches!(refused, Error::Invalid(_)) && !loads.is_empty(), "{refused:?}");
    assert_eq!(lent(), loads.len() * each, "what was refused has given back");
    drop(loads);
    assert_eq!(lent(), 0);
    load_beside(&engine, &table, &txn, (0..3000).map(|n| n * 4 + 1), &mut model).unwrap();
    txn.commit().unwrap().wait().unwrap();
    check_all(&engine, &table, &model);
    drop((table, txn, pool));
    close(engine, &sim, &disk);
}

// --- crashes -------------------------------------------------------------------------------------

fn work(run: &mut Run) -> Result<(), Error> {
    let engine = open(&run.sim, &run.disk)?;
    let table = make(&engine, "db/t")?;
    let txn = begin(&engine);
    let mut model = fill(&engine, &table, &txn, (0..1500).map(|n| n * 4))?;
    run.may.push(model.clone());
    txn.commit()?.wait()?;
    run.may.remove(0);
    engine.core().storage.checkpoint()?;
    // One load that is rolled back when it is complete, one that is abandoned half-way, one that is committed, beside inserts and deletes.
    let txn = begin(&engine);
    load_beside(&engine, &table, &txn, (0..1500).map(|n| n * 4 + 1), &mut model.clone())?;
    run.sim.sched.run_some(500);
    txn.rollback()?;
    let txn = begin(&engine);
    let mut load = engine.load_beside(&table, &txn, 1)?;
    (0..4000).rev().try_for_each(|key| add(&mut load, key * 4 + 2, &row(key, 3)))?;
    run.sim.sched.run_some(500);
    drop(load);
    txn.statement_rollback()?;
    txn.commit()?.wait()?;
    let txn = begin(&engine);
    for key in (100..200).map(|n| n * 4) {
        delete(&txn, &table, key, &model.remove(&key).unwrap_or_default())?;
    }
    let scattered = (0..4001).map(|n| n * 37 % 4001 * 4 + 3);
    load_beside(&engine, &table, &txn, scattered.chain((100..200).map(|n| n * 4)), &mut model)?;
    run.sim.sched.run_some(500);
    run.may.push(model.clone());
    txn.commit()?.wait()?;
    run.may = vec![model];
    engine.core().storage.checkpoint()?;
    engine.shutdown()
}

fn load_more(engine: &Arc<Engine>, table: &Arc<Table>, mut model: Model, _: u64) {
    let txn = begin(engine);
    load_beside(engine, table, &txn, (0..1200).map(|n| 100_000 - n), &mut model).unwrap();
    txn.commit().unwrap().wait().unwrap();
    check_all(engine, table, &model);
}

#[test]
fn a_crash_at_any_step_leaves_the_existing_rows_with_all_or_none_of_the_loaded_ones() {
    crash_at_steps(Play { work, after: load_more }, 60, true);
}
