//! Strict snapshots: a transaction with a view neither locks nor changes a row newer than the view, on whichever way it reaches the row.

#[path = "../kit/mod.rs"]
mod kit;

use kit::small::Rig;
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Cursor;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;

const ROWS: u64 = 100;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn scan(cursor: &mut Cursor) -> Result<(), Error> {
    let mut found = cursor.seek(&[], Seek::First)?;
    while found {
        found = cursor.next()?;
    }
    Ok(())
}

type Way = fn(&Arc<Txn>, &Arc<Table>, u64) -> Result<(), Error>;

/// By name, the ways to reach an existing row, and (`TO_NONE`) an absent one.
const TO_A_ROW: [(&str, Way); 6] = [
    ("shared", |txn, table, n| txn.get(table, &key(n), Lock::Shared, &mut Vec::new()).map(drop)),
    ("exclusive", |txn, table, n| txn.get(table, &key(n), Lock::Exclusive, &mut Vec::new()).map(drop)),
    ("update", |txn, table, n| txn.update(table, &key(n), b"mine", &[], &[])),
    ("delete", |txn, table, n| txn.delete(table, &key(n), &[])),
    ("scan", |txn, table, _| scan(&mut txn.cursor(table, 0, Lock::Exclusive, Access::Scan)?)),
    ("scan ahead", |txn, table, _| {
        let mut cursor = txn.cursor(table, 0, Lock::Shared, Access::Scan)?;
        cursor.lock_ahead(true);
        scan(&mut cursor)
    }),
];
const TO_NONE: [(&str, Way); 2] = [
    ("get", |txn, table, n| txn.get(table, &key(n), Lock::Exclusive, &mut Vec::new()).map(drop)),
    ("insert", |txn, table, n| txn.insert(table, &key(n), b"mine", &[])),
];

#[test]
fn a_strict_transaction_locks_and_changes_no_row_newer_than_its_view() {
    let rig = Rig::new("strict");
    let engine = rig.open();
    let primary = IndexDef { name: "PRIMARY".into(), unique: true };
    let table =
        engine.create_table("d/t", &TableDef { indexes: vec![primary], properties: Vec::new() }).unwrap();
    let fill = engine.begin(Isolation::RepeatableRead);
    (0..ROWS).for_each(|n| fill.insert(&table, &key(n), b"first", &[]).unwrap());
    fill.commit().unwrap().wait().unwrap();

    let mut at = 10;
    for gone in [false, true] {
        for (name, way) in if gone { &TO_NONE[..] } else { &TO_A_ROW[..] } {
            for (strict, views) in [(true, true), (true, false), (false, true)] {
                at += 1;
                let (txn, other) =
                    (engine.begin(Isolation::RepeatableRead), engine.begin(Isolation::RepeatableRead));
                txn.set_strict(strict);
                if views {
                    txn.open_view();
                }
                match gone {
                    true => other.delete(&table, &key(at), &[]).unwrap(),
                    false => other.update(&table, &key(at), b"other", &[], &[]).unwrap(),
                }
                other.commit().unwrap();
                let done = way(&txn, &table, at);
                match strict && views {
                    true => assert!(matches!(done, Err(Error::RowChanged)), "{name}, {gone}: {done:?}"),
                    false => assert!(done.is_ok(), "{name}, {gone}, {strict}, {views}: {done:?}"),
                }
                // Another row, and a change of one's own.
                if strict && views {
                    txn.update(&table, &key(1), b"mine", &[], &[]).unwrap();
                    txn.update(&table, &key(1), b"again", &[], &[]).unwrap();
                }
                txn.rollback().unwrap();
            }
        }
    }
    engine.shutdown().unwrap();
}
