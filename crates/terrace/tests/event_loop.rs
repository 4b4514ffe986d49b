//! Calls that do not wait: reads that miss are read in the background and call back, writes say what they would wait for.

mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use terrace::{Batch, Config, Db, ErrorKind, Tree, TryGet, TryWrite, Wait};
use world::World;

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 1000]
}

fn fill(db: &Db, tree: &Tree, keys: std::ops::Range<u64>) {
    let mut batch = Batch::new();
    for n in keys {
        batch.put(tree, n.to_be_bytes(), value(n));
        if batch.len() == 100 {
            db.write_with(&batch, terrace::Durability::None).unwrap();
            batch.clear();
        }
    }
    db.write(&batch).unwrap();
}

fn batch_of(tree: &Tree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Batch {
    let mut batch = Batch::new();
    batch.put(tree, key, value);
    batch
}

#[test]
fn a_read_that_misses_is_read_in_the_background_and_calls_back() {
    let dir = tempfile::tempdir().unwrap();
    let config = || Config::new(dir.path()).memory(8 << 20).log(16 << 20);
    let db = Db::open_with(config()).unwrap();
    let tree = db.tree("t").unwrap();
    // Twice the memory.
    fill(&db, &tree, 0..16_000);
    let (told, heard) = mpsc::channel();
    let (mut hits, mut pending) = (0, 0);
    for n in 0..16_000u64 {
        let told = told.clone();
        match tree.try_get(n.to_be_bytes(), move |read| told.send((n, read)).unwrap()).unwrap() {
            TryGet::Hit(found) => {
                assert!(found == value(n));
                hits += 1;
            }
            TryGet::Absent => panic!("key {n} is there"),
            TryGet::Pending => pending += 1,
            // The loop is faster than the device: a refused call is retried later.
            TryGet::Busy => {
                let (n, read) = heard.recv_timeout(Duration::from_secs(300)).expect("one is under way");
                assert!(read.unwrap().unwrap() == value(n));
                pending -= 1;
            }
        }
    }
    assert!(hits > 100 && pending > 1000, "{hits} hits, {pending} pending");
    for _ in 0..pending {
        let (n, read) = heard.recv_timeout(Duration::from_secs(300)).expect("each calls back");
        assert!(read.unwrap().unwrap() == value(n));
    }
    assert!(heard.try_recv().is_err(), "and once");
    assert_eq!(
        tree.try_get("none", |_| {}).map(|answer| matches!(answer, TryGet::Absent | TryGet::Pending)),
        Ok(true)
    );
    drop(tree);
    db.close().unwrap();
}

/// Reads it, and then tries to: pages may go between the two, but not again and again.
fn tries_what_was_read(tree: &Tree, key: &str) -> TryGet {
    for _ in 0..20 {
        tree.get(key).unwrap();
        match tree.try_get(key, |_| {}).unwrap() {
            TryGet::Pending | TryGet::Busy => {}
            answer => return answer,
        }
    }
    TryGet::Pending
}

#[test]
fn a_large_value_in_memory_is_a_hit() {
    let world = World::new(1, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    for len in [5000, 20_000, 200_000] {
        tree.put("large", vec![7; len]).unwrap();
        assert_eq!(tries_what_was_read(&tree, "large"), TryGet::Hit(vec![7; len]));
    }
    drop(tree);
    db.close().unwrap();
}

#[test]
fn calls_under_way_are_bounded_and_each_is_told_when_the_instance_closes() {
    let world = World::new(2, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    fill(&db, &tree, 0..3000);
    drop(tree);
    db.close().unwrap();
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    let answers: Arc<Mutex<BTreeMap<bool, usize>>> = Arc::default();
    // Nothing waits: so no worker of the simulation runs, and all queue up.
    let (mut pending, mut busy) = (0, 0);
    for n in 0..6000u64 {
        let answers = answers.clone();
        let done = move |read: terrace::Result<_>| {
            let closed = read.is_err_and(|error| error.kind() == ErrorKind::Unavailable);
            *answers.lock().unwrap().entry(closed).or_default() += 1;
        };
        match tree.try_get((n % 3000).to_be_bytes(), done).unwrap() {
            TryGet::Pending => pending += 1,
            TryGet::Busy => busy += 1,
            other => panic!("a cold page is in memory: {other:?}"),
        }
    }
    assert_eq!((pending, busy), (4096, 6000 - 4096));
    let told = || answers.lock().unwrap().values().sum::<usize>();
    world.run_until(|| told() >= 100);
    drop(tree);
    db.close().unwrap();
    assert_eq!(told(), pending, "each is called once");
    assert!(answers.lock().unwrap()[&true] > 0 && answers.lock().unwrap()[&false] >= 100);
}

#[test]
fn a_write_says_whose_row_it_would_wait_for_and_changes_nothing() {
    let world = World::new(3, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    let other = db.begin();
    other.put(&tree, "b", "other's").unwrap();
    let mut batch = batch_of(&tree, "a", "first");
    batch.put(&tree, "b", "second");
    match db.try_write(&batch).unwrap() {
        TryWrite::WouldWait(Wait::Row { holder }) => assert_eq!(holder, other.id()),
        TryWrite::WouldWait(wait) => panic!("{wait:?}"),
        TryWrite::Done(_) => panic!("the row is another's"),
    }
    assert_eq!((tree.get("a").unwrap(), tree.get("b").unwrap()), (None, None));
    other.commit().unwrap();
    let TryWrite::Done(commit) = db.try_write(&batch).unwrap() else { panic!("nothing is in the way") };
    commit.wait().unwrap();
    assert_eq!(tree.get("b").unwrap().as_deref(), Some(&b"second"[..]));
    // A transaction that only reads with a lock, and one that locks a range of keys.
    let other = db.begin();
    assert!(other.get_for_update(&tree, "a").unwrap().is_some());
    assert!(
        matches!(db.try_write(&batch).unwrap(), TryWrite::WouldWait(Wait::Row { holder }) if holder == other.id())
    );
    other.rollback().unwrap();
    let other = db.begin();
    assert_eq!(other.delete_range(&tree, "x".."z").unwrap(), 0);
    let between = batch_of(&tree, "y", "new");
    assert!(
        matches!(db.try_write(&between).unwrap(), TryWrite::WouldWait(Wait::Row { holder }) if holder == other.id())
    );
    drop((other, batch, between, tree));
    db.close().unwrap();
}

#[test]
fn a_write_says_that_it_would_wait_for_a_page_or_the_volume() {
    let world = World::new(4, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    fill(&db, &tree, 0..1000);
    drop(tree);
    db.close().unwrap();
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    // The first transaction notes in the superblock which numbers are taken.
    tree.put("first", "value").unwrap();
    let batch = batch_of(&tree, 500u64.to_be_bytes(), "new");
    let steps = world.sim.steps();
    assert!(matches!(db.try_write(&batch).unwrap(), TryWrite::WouldWait(Wait::Page)));
    assert_eq!(world.sim.steps(), steps, "it does no I/O");
    let large = batch_of(&tree, "large", vec![1; 100_000]);
    assert!(matches!(db.try_write(&large).unwrap(), TryWrite::WouldWait(Wait::Volume)));
    // In the background both are made.
    let done = Arc::new(AtomicUsize::new(0));
    for batch in [batch, large] {
        let done = done.clone();
        let told = move |durable: terrace::Result<()>| {
            durable.unwrap();
            done.fetch_add(1, Ordering::SeqCst);
        };
        assert!(db.write_soon(batch, told).is_ok());
    }
    world.run_until(|| done.load(Ordering::SeqCst) == 2);
    assert_eq!(tree.get(500u64.to_be_bytes()).unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(tree.get("large").unwrap(), Some(vec![1; 100_000]));
    drop(tree);
    db.close().unwrap();
}

#[test]
fn writes_that_go_on_and_on_are_refused_before_they_would_wait_for_room() {
    let world = World::new(5, false);
    let db = world.open().unwrap();
    let tree = db.tree("t").unwrap();
    tree.put("first", "value").unwrap();
    // No worker runs meanwhile: nothing is flushed, and no checkpoint frees the log.
    let (mut made, mut refused) = (0u64, None);
    while refused.is_none() {
        let steps = world.sim.steps();
        match db.try_write(&batch_of(&tree, made.to_be_bytes(), value(made))).unwrap() {
            TryWrite::Done(_) => made += 1,
            TryWrite::WouldWait(wait) => {
                assert_eq!(world.sim.steps(), steps, "it does no I/O");
                refused = Some(wait);
            }
        }
        assert!(made < 100_000, "room never ends");
    }
    assert!(matches!(refused, Some(Wait::Log | Wait::Frames)), "{refused:?} after {made}");
    let last = batch_of(&tree, "last", "value");
    world.run_until(|| matches!(db.try_write(&last), Ok(TryWrite::Done(_))));
    assert_eq!(tree.iter().unwrap().count() as u64, made + 2);
    drop((last, tree));
    db.close().unwrap();
}

#[test]
fn the_last_handle_may_be_dropped_in_a_callback() {
    let dir = tempfile::tempdir().unwrap();
    let config = || Config::new(dir.path()).memory(8 << 20).log(8 << 20);
    let db = Db::open_with(config()).unwrap();
    let tree = db.tree("t").unwrap();
    let commit = db.submit(&batch_of(&tree, "key", "value")).unwrap();
    let (told, heard) = mpsc::channel();
    let last = (db.clone(), tree.clone());
    commit.then(move |durable| {
        drop(last);
        told.send(durable).unwrap();
    });
    drop((db, tree));
    heard.recv_timeout(Duration::from_secs(300)).unwrap().unwrap();
    // It closes, on a thread of its own.
    let again = (0..3000).find_map(|_| match Db::open_with(config()) {
        Ok(db) => Some(db),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            std::thread::sleep(Duration::from_millis(100));
            None
        }
    });
    let db = again.expect("it was closed");
    assert_eq!(db.tree("t").unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
    db.close().unwrap();
}
