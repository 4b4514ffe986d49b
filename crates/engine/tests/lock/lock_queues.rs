//! Transactions in the wait queue of a row, which may already hold a lock on it or may be refused it.

#[path = "../kit/mod.rs"]
mod kit;

use kit::small::Rig;
use std::sync::Arc;
use std::time::Duration;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Table;
use terrace_engine::TableDef;

fn table(engine: &Engine) -> Arc<Table> {
    let index = |name: &str| IndexDef { name: name.into(), unique: true };
    let indexes = vec![index("PRIMARY"), index("u")];
    engine.create_table("d/t", &TableDef { indexes, properties: Vec::new() }).unwrap()
}

fn rest() {
    std::thread::sleep(Duration::from_millis(200));
}

/// Such a transaction can only fail, so it doesn't wait for the row's next holder, and no other transaction waits for its locks meanwhile.
#[test]
fn a_strict_transaction_waits_for_no_lock_of_a_row_newer_than_its_view() {
    let rig = Rig::new("strict_line");
    let engine = rig.open();
    let table = table(&engine);
    let begin = || engine.begin(Isolation::RepeatableRead);
    let fill = begin();
    fill.insert(&table, b"k", b"first", &[]).unwrap();
    fill.commit().unwrap().wait().unwrap();
    let (writer, reader, strict) = (begin(), begin(), begin());
    strict.set_strict(true);
    strict.open_view();
    writer.update(&table, b"k", b"second", &[], &[]).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| reader.get(&table, b"k", Lock::Exclusive, &mut Vec::new()).unwrap());
        rest();
        strict.set_lock_wait_timeout_ms(20_000);
        let second = scope.spawn(|| strict.get(&table, b"k", Lock::Exclusive, &mut Vec::new()));
        rest();
        writer.commit().unwrap();
        first.join().unwrap();
        let second = second.join().unwrap();
        assert!(matches!(second, Err(Error::RowChanged)), "{second:?}");
    });
    strict.rollback().unwrap();
    reader.rollback().unwrap();
    engine.shutdown().unwrap();
}

/// The waiting transaction has been woken in vain often enough that no other may overtake it. That is no deadlock.
#[test]
fn a_transaction_changes_its_own_row_again_while_another_waits_for_the_row() {
    let rig = Rig::new("changed_again");
    let engine = rig.open();
    let table = table(&engine);
    let (one, two) = (engine.begin(Isolation::RepeatableRead), engine.begin(Isolation::RepeatableRead));
    let insert = |n: u8| {
        let entry = Entry { index: 1, key: &[n, n], unique_len: Some(1), primary_at: 1, value: &[] };
        one.insert(&table, &[n], b"row", &[entry]).unwrap();
    };
    insert(1);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| two.get(&table, &[1], Lock::Exclusive, &mut Vec::new()));
        for n in 2..10 {
            rest();
            insert(n);
        }
        rest();
        let again = one.update(&table, &[1], b"again", &[], &[]);
        one.rollback().unwrap();
        let waited = waits.join().unwrap();
        assert!(again.is_ok() && waited.is_ok(), "{again:?}, {waited:?}");
    });
    two.rollback().unwrap();
    engine.shutdown().unwrap();
}
