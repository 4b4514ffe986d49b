//! Handles, durability and errors: what closes an instance and what keeps it open, when a commit calls back, and which kind an error has.

mod world;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use terrace::{Batch, Config, Db, Durability, Error, ErrorKind, Isolation};
use terrace_engine::config::Bytes;
use terrace_io::disk::Class;
use world::World;

fn kind<T>(done: Result<T, Error>) -> ErrorKind {
    done.err().expect("an error").kind()
}

#[test]
fn all_invalid_settings_are_named_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = Config::new(dir.path()).set("memery", "1G").set("flash", "1G").memory(5);
    let error = Db::open_with(wrong).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for word in ["memery", "flash_path", "memory = 5"] {
        assert!(error.to_string().contains(word), "{word} in {error}");
    }
    assert_eq!(kind(Config::from_toml("= 3")), ErrorKind::Invalid);
    let strange = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff");
    assert_eq!(kind(Db::open(dir.path().join(strange))), ErrorKind::Invalid);
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing was made");
}

#[test]
fn an_instance_is_one_process_and_its_handles_keep_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::open_with(Config::new(dir.path()).log(8 << 20));
    let db = open().unwrap();
    let tree = db.tree("t").unwrap();
    assert_eq!(kind(open()), ErrorKind::Busy);
    assert_eq!(kind(db.close()), ErrorKind::Busy);
    // The tree is a handle, too.
    tree.put("key", "value").unwrap();
    drop(tree);
    let db = open().unwrap();
    let txn = db.begin();
    drop(db);
    assert_eq!(kind(open()), ErrorKind::Busy);
    drop(txn);
    assert_eq!(open().unwrap().tree("t").unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_tree_in_use_is_not_dropped() {
    let world = World::new(1, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    assert_eq!(kind(db.drop_tree("t")), ErrorKind::Busy);
    let txn = db.begin();
    txn.put(&tree, "key", "value").unwrap();
    drop(tree);
    assert_eq!(kind(db.drop_tree("t")), ErrorKind::Busy, "a transaction has changed it");
    drop(txn);
    let range = db.tree("t").unwrap().iter().unwrap();
    assert_eq!(kind(db.drop_tree("t")), ErrorKind::Busy, "somebody reads it");
    drop(range);
    db.drop_tree("t").unwrap();
    assert_eq!(kind(db.drop_tree("t")), ErrorKind::NotFound);
    assert!(db.trees().is_empty() && db.find_tree("t").unwrap().is_none());
    // A new tree of the same name is empty.
    let tree = db.tree("t").unwrap();
    assert!(tree.get("key").unwrap().is_none() && tree.approximate_len() == 0);
    drop(tree);
    db.close().unwrap();
}

#[test]
fn tables_of_other_fronts_and_trees_of_other_instances_are_not_taken() {
    let (world, elsewhere) = (World::new(2, false), World::new(3, false));
    let (db, other) = (world.open().unwrap(), elsewhere.open().unwrap());
    let primary = terrace_engine::IndexDef { name: "PRIMARY".into(), unique: true };
    let def = terrace_engine::TableDef { indexes: vec![primary], properties: b"rows of SQL".to_vec() };
    db.engine().create_table("d/t", &def).unwrap();
    assert_eq!(kind(db.tree("d/t")), ErrorKind::Invalid);
    assert_eq!(kind(db.find_tree("d/t")), ErrorKind::Invalid);
    assert_eq!(kind(db.drop_tree("d/t")), ErrorKind::Invalid);
    assert!(db.trees().is_empty());
    let tree = other.tree("t").unwrap();
    assert_eq!(kind(db.begin().put(&tree, "key", "value")), ErrorKind::Invalid);
    assert_eq!(kind(db.snapshot().get(&tree, "key")), ErrorKind::Invalid);
    let mut batch = Batch::new();
    batch.put(&tree, "key", "value");
    assert_eq!(kind(db.write(&batch)), ErrorKind::Invalid);
    drop((tree, batch));
    other.close().unwrap();
    db.close().unwrap();
}

#[test]
fn keys_and_names_that_are_too_long_are_invalid() {
    let world = World::new(4, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    assert_eq!(kind(tree.put(vec![1; 20_000], "x")), ErrorKind::Invalid);
    assert_eq!(kind(db.tree("")), ErrorKind::Invalid);
    assert_eq!(kind(db.tree(&"n".repeat(2000))), ErrorKind::Invalid);
    drop(tree);
    db.close().unwrap();
}

#[test]
fn commits_call_back_in_their_order_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open_with(Config::new(dir.path()).log(8 << 20)).unwrap();
    let tree = db.tree("t").unwrap();
    let order: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (told, heard) = mpsc::channel();
    for n in 0..300u64 {
        let txn = db.begin();
        txn.put(&tree, n.to_be_bytes(), "value").unwrap();
        let (order, told) = (order.clone(), told.clone());
        txn.submit().unwrap().then(move |durable| {
            durable.unwrap();
            order.lock().unwrap().push(n);
            told.send(()).unwrap();
        });
    }
    (0..300).for_each(|_| heard.recv_timeout(Duration::from_secs(300)).expect("each calls back"));
    assert!(order.lock().unwrap().iter().copied().eq(0..300));
    // The instance is closed before the commit is durable: the callback still runs.
    let txn = db.begin();
    txn.put(&tree, "last", "value").unwrap();
    txn.submit().unwrap().then(move |durable| {
        durable.unwrap();
        told.send(()).unwrap();
    });
    drop(tree);
    db.close().unwrap();
    heard.recv_timeout(Duration::from_secs(300)).expect("the last one calls back");
}

#[test]
fn a_waited_commit_survives_a_kill_and_another_one_is_whole_or_absent() {
    let world = World::new(5, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("waited", "value").unwrap();
    let mut batch = Batch::new();
    (0..50u64).for_each(|n| batch.put(&tree, n.to_be_bytes(), "value"));
    db.write_with(&batch, Durability::None).unwrap();
    drop((batch, tree));
    world.lose_power(db);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    assert!(tree.get("waited").unwrap().is_some());
    let others = tree.iter().unwrap().count() - 1;
    assert!(others == 0 || others == 50, "{others}");
    drop(tree);
    db.close().unwrap();
}

#[test]
fn a_transaction_that_met_a_conflict_is_only_rolled_back_and_transact_runs_it_again() {
    let world = World::new(6, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    let txn = db.begin();
    assert!(txn.get(&tree, "key").unwrap().is_none());
    tree.put("key", "other's").unwrap();
    assert_eq!(kind(txn.put(&tree, "key", "mine")), ErrorKind::Conflict);
    assert_eq!(kind(txn.put(&tree, "another", "mine")), ErrorKind::Conflict);
    assert_eq!(kind(txn.commit()), ErrorKind::Conflict);
    let mut tries = 0;
    let done = db.transact(|txn| {
        tries += 1;
        let seen = txn.get(&tree, "key")?;
        if tries == 1 {
            tree.put("key", "again")?;
        }
        txn.put(&tree, "key", "mine")?;
        Ok(seen)
    });
    assert_eq!((tries, done.unwrap().as_deref()), (2, Some(&b"again"[..])));
    assert_eq!(tree.get("key").unwrap().as_deref(), Some(&b"mine"[..]));
    // An error of the caller's own is not tried again.
    let mut tries = 0;
    let failed = db.transact(|txn| {
        tries += 1;
        txn.put(&tree, "key", "gone")?;
        db.drop_tree("none")
    });
    assert_eq!((kind(failed), tries), (ErrorKind::NotFound, 1));
    assert_eq!(tree.get("key").unwrap().as_deref(), Some(&b"mine"[..]));
    drop(tree);
    db.close().unwrap();
}

#[test]
fn transactions_that_read_what_the_other_writes_are_serializable_if_asked_to_be() {
    let world = World::new(7, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    for (isolation, both) in [(Isolation::Snapshot, true), (Isolation::Serializable, false)] {
        tree.put("a", "1").unwrap();
        tree.put("b", "1").unwrap();
        let (one, other) = (db.begin_with(isolation), db.begin_with(isolation));
        one.get(&tree, "a").unwrap();
        other.get(&tree, "b").unwrap();
        // Each writes what the other has read.
        let first = one.put(&tree, "b", "0").and_then(|()| one.commit());
        let second = other.put(&tree, "a", "0").and_then(|()| other.commit());
        assert_eq!(first.is_ok() && second.is_ok(), both, "{isolation:?}: {first:?}, {second:?}");
        assert!(first.is_ok() || second.is_ok() || !both);
    }
    drop(tree);
    db.close().unwrap();
}

#[test]
fn a_volume_without_room_is_full() {
    let world = World::new(8, false);
    let config =
        terrace_engine::Config { object_buffer: Bytes(4 << 20), log_wait_timeout_ms: 200, ..world.config() };
    let db = world.open_with(config).unwrap();
    let tree = db.tree("t").unwrap();
    let full =
        (0..20_000u64).find_map(|n| tree.put(n.to_be_bytes(), vec![1; 1000]).err()).expect("room ends");
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    // What is there can be read, and deleted.
    assert!(tree.get(0u64.to_be_bytes()).unwrap().is_some() && tree.delete(0u64.to_be_bytes()).unwrap());
    drop(tree);
    db.close().unwrap();
}

#[test]
fn a_log_that_cannot_be_written_poisons_the_instance_until_it_is_opened_again() {
    let world = World::new(9, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("before", "value").unwrap();
    world.disk.faults().fail_class(Class::LogWrite, true);
    assert_eq!(kind(tree.put("after", "value")), ErrorKind::Poisoned);
    world.disk.faults().fail_class(Class::LogWrite, false);
    assert_eq!(kind(tree.put("after", "value")), ErrorKind::Poisoned);
    drop(tree);
    world.lose_power(db);
    let db = world.open().unwrap();
    assert!(db.tree("t").unwrap().get("before").unwrap().is_some());
    db.close().unwrap();
}

#[test]
fn a_transaction_whose_range_was_the_victim_of_a_deadlock_does_not_commit() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open_with(Config::new(dir.path()).log(4 << 20).memory(8 << 20)).unwrap();
    let tree = db.tree("t").unwrap();
    let both_wrote = std::sync::Barrier::new(2);
    // Each reads what the other has written, and passes over the error.
    let run = |mine: &str, others: &str| {
        let txn = db.begin_with(Isolation::Serializable);
        txn.put(&tree, mine, "1").unwrap();
        both_wrote.wait();
        let met = txn.range(&tree, others..=others).unwrap().find_map(|pair| pair.err());
        (met, txn.commit())
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run("b", "a"));
        (run("a", "b"), other.join().unwrap())
    });
    let (victim, survivor) = if one.0.is_some() { (one, other) } else { (other, one) };
    assert_eq!(victim.0.unwrap().kind(), ErrorKind::Conflict);
    assert_eq!(kind(victim.1), ErrorKind::Conflict);
    assert!(survivor.0.is_none() && survivor.1.is_ok());
    drop(tree);
    db.close().unwrap();
}
