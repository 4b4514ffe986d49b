//! Puts in one descent, and deletes of several rows, against a model: present and absent rows, small and large, in one
//! transaction and in several, rolled back, undone to a savepoint, and reopened.

#[path = "../kit/mod.rs"]
mod kit;

use kit::small::Rig;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_io::random::Random;
use terrace_sim::SimWorld;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn table(engine: &Engine, indexes: usize) -> Arc<Table> {
    let indexes = (0..indexes).map(|n| IndexDef { name: format!("i{n}"), unique: n == 0 }).collect();
    let name = "d/t";
    engine
        .open_table(name)
        .unwrap_or_else(|_| engine.create_table(name, &TableDef { indexes, properties: Vec::new() }).unwrap())
}

fn all(txn: &Arc<Txn>, table: &Arc<Table>) -> Model {
    let mut cursor = txn.cursor(table, 0, Lock::None, Access::Normal).unwrap();
    let mut valid = cursor.seek(b"", Seek::First).unwrap();
    let mut found = Model::new();
    while valid {
        found.insert(cursor.key().to_vec(), cursor.value().to_vec());
        valid = cursor.next().unwrap();
    }
    found
}

fn change(random: &dyn Random, txn: &Txn, table: &Table, sees: &mut Model) {
    let key = |random: &dyn Random| random.below(60).to_be_bytes().to_vec();
    match random.below(4) {
        0 => {
            let keys: Vec<Vec<u8>> = (0..random.below(12)).map(|_| key(random)).collect();
            let mut distinct: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            distinct.sort_unstable();
            distinct.dedup();
            let were = distinct.iter().filter(|key| sees.remove(**key).is_some()).count() as u64;
            assert_eq!(txn.delete_rows(table, &mut distinct).unwrap(), were);
        }
        _ => {
            let key = key(random);
            let len = [0, 10, 900, 5000, 30_000, 90_000][random.below(6) as usize];
            let row = vec![random.below(256) as u8; len];
            assert_eq!(txn.put(table, &key, &row).unwrap(), sees.insert(key, row).is_some());
        }
    }
}

#[test]
fn puts_and_deletes_agree_with_a_map() {
    for seed in 0..12 {
        let random = SimWorld::new(seed).random;
        let rig = Rig::new(&format!("upsert-{seed}"));
        let mut committed = Model::new();
        for _ in 0..3 {
            let engine = rig.open();
            let table = table(&engine, 1);
            for _ in 0..12 {
                let txn = engine.begin(Isolation::RepeatableRead);
                let mut sees = committed.clone();
                let mut savepoint = None;
                for _ in 0..random.below(12) {
                    change(&*random, &txn, &table, &mut sees);
                    if random.below(4) == 0 {
                        savepoint = Some((txn.savepoint(), sees.clone()));
                    }
                }
                if let Some((savepoint, then)) = savepoint.filter(|_| random.below(2) == 0) {
                    txn.rollback_to(savepoint).unwrap();
                    sees = then;
                }
                assert!(all(&txn, &table) == sees, "seed {seed}");
                if random.below(3) == 0 {
                    txn.rollback().unwrap();
                } else {
                    txn.commit().unwrap().wait().unwrap();
                    committed = sees;
                }
            }
            table.check(0).unwrap();
            assert!(all(&engine.begin(Isolation::RepeatableRead), &table) == committed, "seed {seed}");
            engine.shutdown().unwrap();
        }
    }
}

#[test]
fn puts_of_one_new_key_by_several_threads_leave_one_row() {
    let rig = Rig::new("upsert-threads");
    let engine = rig.open();
    let table = table(&engine, 1);
    for round in 0..20u64 {
        let new: u64 = std::thread::scope(|threads| {
            let put = |n: u8| {
                let (engine, table) = (&engine, &table);
                move || {
                    let txn = engine.begin(Isolation::RepeatableRead);
                    let was = txn.put(table, &round.to_be_bytes(), &[n; 10]).unwrap();
                    txn.commit().unwrap();
                    u64::from(!was)
                }
            };
            let started: Vec<_> = (0..4).map(|n| threads.spawn(put(n))).collect();
            started.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(new, 1, "one of the threads inserts, the others update");
    }
    assert_eq!(table.check(0).unwrap(), 20);
    engine.shutdown().unwrap();
}

#[test]
fn a_table_with_secondary_indexes_takes_no_row_without_its_entries() {
    let rig = Rig::new("upsert-indexes");
    let engine = rig.open();
    let table = table(&engine, 2);
    let txn = engine.begin(Isolation::RepeatableRead);
    assert!(matches!(txn.put(&table, b"k", b"row"), Err(Error::Invalid(_))));
    assert!(matches!(txn.delete_rows(&table, &mut [b"k"]), Err(Error::Invalid(_))));
    txn.rollback().unwrap();
    engine.shutdown().unwrap();
}
