//! Locks of neighbouring rows are merged into one lock that means the same as single row locks: a scan has locked the rows
//! that it returned and no other, whatever is inserted between them, split under them, purged or unlocked.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::Txn;
use terrace_engine::config::Config;
use terrace_io::random::Random;

struct Rig {
    on: Machine,
    engine: Arc<Engine>,
    table: Arc<Table>,
}

fn rig(seed: u64) -> Rig {
    let on = Machine::new(seed);
    let config = Config { log_partitions: 1, ..kit::config(8 << 20, 8 << 20, 16 << 20) };
    let engine = on.open(config).unwrap();
    let table = engine.create_table("db/t", &kit::primary()).unwrap();
    Rig { on, engine, table }
}

impl Rig {
    fn begin(&self, isolation: Isolation) -> Arc<Txn> {
        let txn = self.engine.begin(isolation);
        txn.set_lock_wait_timeout_ms(0);
        txn
    }

    /// Inserts rows of a transaction of their own.
    fn insert(&self, keys: impl IntoIterator<Item = u32>, len: usize) -> Result<(), Error> {
        let txn = self.begin(Isolation::ReadCommitted);
        for key in keys {
            txn.insert(&self.table, &key.to_be_bytes(), &vec![7; len], &[])?;
        }
        txn.commit()?;
        Ok(())
    }

    fn delete(&self, key: u32) -> Result<(), Error> {
        let txn = self.begin(Isolation::ReadCommitted);
        txn.delete(&self.table, &key.to_be_bytes(), &[])?;
        txn.commit()?;
        Ok(())
    }

    /// Whether the row is locked, as a locking read and an update find it: both must find the same.
    fn is_locked(&self, key: u32) -> bool {
        let blocked = |outcome: Result<(), Error>| match outcome {
            Ok(()) => false,
            Err(Error::LockTimeout | Error::Deadlock) => true,
            Err(error) => panic!("key {key}: {error}"),
        };
        let reader = self.begin(Isolation::ReadCommitted);
        let mut row = Vec::new();
        let read = reader.get(&self.table, &key.to_be_bytes(), Lock::Shared, &mut row);
        let reads = blocked(read.map(|there| assert!(there, "key {key} is not there")));
        reader.rollback().unwrap();
        let writer = self.begin(Isolation::ReadCommitted);
        let writes = blocked(writer.update(&self.table, &key.to_be_bytes(), b"other", &[], &[]));
        writer.rollback().unwrap();
        assert_eq!(reads, writes, "key {key}");
        reads
    }

    fn held(&self) -> usize {
        self.engine.core().locks.held()
    }

    /// What is there, by key.
    fn keys(&self) -> Vec<u32> {
        let txn = self.begin(Isolation::ReadCommitted);
        let mut cursor = txn.cursor(&self.table, 0, Lock::None, Access::Scan).unwrap();
        let mut keys = Vec::new();
        let mut valid = cursor.seek(&[], Seek::First).unwrap();
        while valid {
            keys.push(u32::from_be_bytes(cursor.key().try_into().unwrap()));
            valid = cursor.next().unwrap();
        }
        keys
    }
}

/// A scan at READ COMMITTED unlocks some rows and changes some, while others insert and delete around them: exactly the rows that it
/// kept are locked, until its transaction ends.
#[test]
fn exactly_the_rows_that_a_scan_kept_are_locked() {
    let mut most = 0;
    for seed in 1..=12 {
        let rig = rig(seed);
        let random = rig.on.sim.random.clone();
        rig.insert((0..300).map(|n| n * 10), 200).unwrap();
        for _ in 0..20 {
            let _ = rig.delete(random.below(300) as u32 * 10);
        }
        let txn = rig.begin(Isolation::ReadCommitted);
        let mut kept = BTreeSet::new();
        {
            let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Scan).unwrap();
            let down = random.below(2) == 0;
            let to = if down { Seek::Last } else { Seek::First };
            let mut valid = cursor.seek(&[], to).unwrap();
            while valid {
                let key = u32::from_be_bytes(cursor.key().try_into().unwrap());
                kept.insert(key);
                match random.below(20) {
                    0..=1 => {
                        cursor.unlock_unwanted();
                        kept.remove(&key);
                    }
                    2..=4 => txn.update(&rig.table, &key.to_be_bytes(), b"mine", &[], &[]).unwrap(),
                    // Between rows that are locked, and beside them.
                    5..=7 => match rig.insert([key + 1 + random.below(9) as u32], 200) {
                        Ok(()) | Err(Error::Duplicate { .. }) => {}
                        Err(error) => panic!("seed {seed}: {error}"),
                    },
                    _ => {}
                }
                valid = if down { cursor.prev().unwrap() } else { cursor.next().unwrap() };
            }
        }
        // Leaves split between rows of one range.
        let there = rig.keys();
        let new = (0..300).map(|n| n * 10 + 5).filter(|key| key % 7 == 0 && !there.contains(key));
        rig.insert(new, 900).unwrap();
        most = most.max(rig.held());
        for key in rig.keys() {
            assert_eq!(rig.is_locked(key), kept.contains(&key), "seed {seed}: key {key}");
        }
        txn.rollback().unwrap();
        assert_eq!(rig.held(), 0, "seed {seed}");
        assert!(rig.keys().into_iter().all(|key| !rig.is_locked(key)), "seed {seed}");
    }
    assert!(most < 200, "{most} locks for 300 rows");
}

/// From REPEATABLE READ on a scan takes one lock on its rows, however many leaves they are in, and its changed rows stay locked when
/// the change is undone to a savepoint.
#[test]
fn a_scan_is_one_lock_and_outlives_a_savepoint() {
    let rig = rig(5);
    rig.insert(0..3000, 100).unwrap();
    let txn = rig.begin(Isolation::RepeatableRead);
    txn.statement_begin();
    let savepoint = txn.savepoint();
    let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Scan).unwrap();
    let mut valid = cursor.seek(&100u32.to_be_bytes(), Seek::AtLeast).unwrap();
    let mut rows = 0;
    while valid && rows < 2000 {
        let key = cursor.key().to_vec();
        if rows % 2 == 0 {
            txn.update(&rig.table, &key, b"mine", &[], &[]).unwrap();
        }
        rows += 1;
        valid = cursor.next().unwrap();
    }
    assert!(rig.held() <= 3, "{} locks", rig.held());
    txn.rollback_to(savepoint).unwrap();
    for key in [0, 99, 2101, 2999] {
        assert!(!rig.is_locked(key), "key {key}");
    }
    for key in [100, 101, 102, 1000, 2098, 2099] {
        assert!(rig.is_locked(key), "key {key}");
    }
    // Its gaps are kept, too.
    rig.delete(2500).unwrap();
    txn.commit().unwrap();
    assert_eq!(rig.held() + rig.engine.core().locks.gaps_held(), 0);
}

/// A scan that may lock ahead locks in the end what any scan does, returns the same rows, and waits for a lock of another transaction
/// only when it has returned all rows before it.
#[test]
fn a_scan_that_locks_ahead_locks_exactly_the_rows_it_returns() {
    let rig = rig(7);
    rig.insert((0..2000).map(|n| n * 2), 100).unwrap();
    for key in [50, 52, 700] {
        rig.delete(key).unwrap();
    }
    let other = rig.begin(Isolation::RepeatableRead);
    other.update(&rig.table, &3000u32.to_be_bytes(), b"other", &[], &[]).unwrap();
    let txn = rig.begin(Isolation::RepeatableRead);
    txn.update(&rig.table, &800u32.to_be_bytes(), b"mine", &[], &[]).unwrap();
    let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Scan).unwrap();
    cursor.lock_ahead(true);
    let (mut given, mut ahead, mut row) = (Vec::new(), 0, Vec::new());
    let mut went_on = cursor.seek(&[], Seek::First);
    while let Ok(true) = went_on {
        given.push(u32::from_be_bytes(cursor.key().try_into().unwrap()));
        cursor.row(&mut row).unwrap();
        let mine = given.last() == Some(&800);
        assert_eq!(&row[..], if mine { &b"mine"[..] } else { &[7; 100] });
        if cursor.has_ahead() {
            ahead += 1;
            let next = (given.len() as u32).is_multiple_of(40);
            assert!(!next || rig.insert([given[given.len() - 1] + 1], 9).is_err());
        }
        went_on = cursor.next();
    }
    assert!(matches!(went_on, Err(Error::LockTimeout)), "{went_on:?}");
    assert!(ahead > 1000, "{ahead} of {} were locked ahead", given.len());
    assert!(given.iter().copied().eq(rig.keys().into_iter().filter(|key| *key < 3000)));
    assert!(given.iter().all(|key| rig.is_locked(*key)) && !rig.is_locked(3002));
    assert!(rig.held() <= 8, "{} locks", rig.held());
    // On through what was in the way, to the end.
    other.rollback().unwrap();
    let mut valid = cursor.seek(&3000u32.to_be_bytes(), Seek::AtLeast).unwrap();
    while valid {
        given.push(u32::from_be_bytes(cursor.key().try_into().unwrap()));
        valid = cursor.next().unwrap();
    }
    assert_eq!(given, rig.keys());
    assert!(given.iter().all(|key| rig.is_locked(*key)));
    assert!(rig.insert([1], 9).is_err() && rig.insert([9999], 9).is_err());
    txn.commit().unwrap();
    assert_eq!(rig.held() + rig.engine.core().locks.gaps_held(), 0);
}

/// A range that may be locked ahead is locked to its end and to the row behind it, which is asked for too, and no further. From its first
/// row on rows are locked some at a time, also where the reader changes what it has read.
#[test]
fn a_range_that_locks_ahead_locks_up_to_its_end() {
    for (from, end, changes) in
        [(100, 900, false), (100, 900, true), (101, 903, true), (300, 302, false), (300, 301, false)]
    {
        let rig = rig(8);
        rig.insert((0..600).map(|n| n * 2), 100).unwrap();
        let txn = rig.begin(Isolation::RepeatableRead);
        let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Normal).unwrap();
        cursor.lock_ahead(true);
        cursor.set_ahead_end(&u32::to_be_bytes(end));
        let (mut given, mut ahead, mut unchanged) = (Vec::new(), 0, Vec::new());
        let mut valid = cursor.seek(&u32::to_be_bytes(from), Seek::AtLeast).unwrap();
        loop {
            assert!(valid);
            given.push(u32::from_be_bytes(cursor.key().try_into().unwrap()));
            if given[given.len() - 1] >= end {
                assert!(!cursor.has_ahead());
                break;
            }
            unchanged.push(given[given.len() - 1]);
            ahead += usize::from(cursor.has_ahead());
            if changes && unchanged.len() == 40 {
                for key in unchanged.drain(..) {
                    txn.update(&rig.table, &key.to_be_bytes(), b"mine", &[], &[]).unwrap();
                }
            }
            valid = cursor.next().unwrap();
        }
        let wanted: Vec<u32> =
            rig.keys().into_iter().filter(|key| (from..end.next_multiple_of(2) + 1).contains(key)).collect();
        assert_eq!(given, wanted, "{from} to {end}");
        assert!(ahead >= (given.len() - 1) * 9 / 10, "{ahead} of {} were locked ahead", given.len());
        for key in rig.keys() {
            assert_eq!(rig.is_locked(key), given.contains(&key), "{from} to {end}: key {key}");
        }
        assert!(rig.held() <= 8, "{} locks", rig.held());
        txn.commit().unwrap();
    }
}

/// The neighbour of a row may be unlocked after a scan has locked the row: two cursors of one transaction share the neighbour and one
/// unlocks it, or a change to it was undone. The lock on the next row must not cover it.
#[test]
fn a_range_lock_does_not_cover_an_unlocked_neighbour() {
    let seek = 10u32.to_be_bytes();
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        for (changes, down) in [(false, false), (false, true), (true, false), (true, true)] {
            // Upward, a scan locks a row that its own transaction has changed like any other.
            if changes && !(down && isolation == Isolation::RepeatableRead) {
                continue;
            }
            let rig = rig(6);
            rig.insert(0..20, 50).unwrap();
            let txn = rig.begin(isolation);
            let savepoint = txn.savepoint();
            let mut other = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Scan).unwrap();
            if changes {
                txn.update(&rig.table, &seek, b"mine", &[], &[]).unwrap();
            } else {
                assert!(other.seek(&seek, Seek::AtLeast).unwrap());
            }
            let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Scan).unwrap();
            let to = if down { Seek::AtMost } else { Seek::AtLeast };
            assert!(cursor.seek(&seek, to).unwrap());
            if changes {
                txn.rollback_to(savepoint).unwrap();
            } else {
                other.unlock_last();
            }
            let somebody = rig.begin(Isolation::ReadCommitted);
            let mut row = Vec::new();
            assert!(somebody.get(&rig.table, &seek, Lock::Exclusive, &mut row).unwrap());
            assert!(if down { cursor.prev().unwrap() } else { cursor.next().unwrap() });
            let what = format!("{isolation:?} changes {changes} down {down}");
            let mine = txn.get(&rig.table, &seek, Lock::Exclusive, &mut row);
            assert!(matches!(mine, Err(Error::LockTimeout)), "{what}: two have one row: {mine:?}");
            somebody.rollback().unwrap();
            let next = if down { 9 } else { 11 };
            assert!(!rig.is_locked(10) && rig.is_locked(next), "{what}");
            txn.rollback().unwrap();
            assert_eq!(rig.held() + rig.engine.core().locks.gaps_held(), 0, "{what}");
        }
    }
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_a_row_past_the_end_that_is_locked_ahead_is_found_by_one_run() {
    let _one = kit::alone();
    terrace_engine::planted::LOCKED_PAST_END.set(true);
    let found = std::panic::catch_unwind(a_range_that_locks_ahead_locks_up_to_its_end).is_err();
    terrace_engine::planted::LOCKED_PAST_END.set(false);
    assert!(found);
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_a_row_that_is_locked_with_its_neighbours_is_found_by_one_run() {
    let _one = kit::alone();
    terrace_engine::planted::RANGE_NOT_SPLIT.set(true);
    let found = std::panic::catch_unwind(exactly_the_rows_that_a_scan_kept_are_locked).is_err();
    terrace_engine::planted::RANGE_NOT_SPLIT.set(false);
    assert!(found);
}

/// Two cursors of one transaction meet in a row, one to read and one to write, and one of the two does not want it.
#[test]
fn a_cursor_that_unlocks_a_row_leaves_another_cursors_lock_on_it() {
    for (first, second) in [(Lock::Shared, Lock::Exclusive), (Lock::Exclusive, Lock::Shared)] {
        let rig = rig(1);
        rig.insert(1..=3, 10).unwrap();
        let txn = rig.begin(Isolation::ReadCommitted);
        let at = |lock| {
            let mut cursor = txn.cursor(&rig.table, 0, lock, Access::Normal).unwrap();
            assert!(cursor.seek(&2u32.to_be_bytes(), Seek::AtLeast).unwrap());
            cursor
        };
        let reads = |rig: &Rig| {
            let reader = rig.begin(Isolation::ReadCommitted);
            reader.get(&rig.table, &2u32.to_be_bytes(), Lock::Shared, &mut Vec::new())
        };
        let changes = |rig: &Rig| {
            let writer = rig.begin(Isolation::ReadCommitted);
            writer.update(&rig.table, &2u32.to_be_bytes(), b"other", &[], &[])
        };
        let refused = |done: Result<(), Error>| matches!(done, Err(Error::LockTimeout));
        let (mut one, mut other) = (at(first), at(second));
        other.unlock_last();
        // What was taken first stays, in its mode.
        assert_eq!(refused(reads(&rig).map(drop)), first == Lock::Exclusive, "{first:?} then {second:?}");
        assert!(refused(changes(&rig)), "{first:?} then {second:?}");
        drop(other);
        other = at(second);
        one.unlock_last();
        // If the first lock was the stronger one, the second added nothing to it (as in InnoDB).
        assert_eq!(refused(reads(&rig).map(drop)), second == Lock::Exclusive, "{first:?} then {second:?}");
        assert_eq!(refused(changes(&rig)), second == Lock::Exclusive, "{first:?} then {second:?}");
        drop((one, other));
        txn.rollback().unwrap();
        assert_eq!(rig.held(), 0);
    }
}

/// A scan in READ COMMITTED unlocks most rows that it reads: no lock of theirs is left, however many rows are locked.
#[test]
fn unlocked_neighbours_leave_no_locks() {
    const KEPT: u32 = 100;
    const GIVEN_BACK: u32 = 5000;
    let rig = rig(3);
    rig.insert(0..KEPT + GIVEN_BACK, 40).unwrap();
    let txn = rig.begin(Isolation::ReadCommitted);
    let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Scan).unwrap();
    let mut valid = cursor.seek(&[], Seek::First).unwrap();
    for n in 0..KEPT + GIVEN_BACK {
        assert!(valid);
        if n >= KEPT {
            cursor.unlock_last();
        }
        valid = cursor.next().unwrap();
    }
    assert!(!valid);
    assert!(rig.held() <= KEPT as usize, "{} locks", rig.held());
    // Nor of what is looked up.
    let mut row = Vec::new();
    for n in KEPT..KEPT + GIVEN_BACK {
        let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Normal).unwrap();
        assert!(cursor.seek(&n.to_be_bytes(), Seek::AtLeast).unwrap());
        cursor.row(&mut row).unwrap();
        cursor.unlock_last();
    }
    assert!(rig.held() <= KEPT as usize, "{} locks", rig.held());
    for n in (0..KEPT + GIVEN_BACK).step_by(50) {
        assert_eq!(rig.is_locked(n), n < KEPT);
    }
    drop(cursor);
    txn.rollback().unwrap();
    assert_eq!(rig.held(), 0);
}

/// A replica looks up the rows of its source's change one by one: one lock each was more than a large change may have.
#[test]
fn rows_looked_up_in_key_order_take_few_locks_on_exactly_those_rows() {
    const ROWS: u32 = 4000;
    for (isolation, seed) in [(Isolation::ReadCommitted, 1), (Isolation::RepeatableRead, 2)] {
        let rig = rig(seed);
        rig.insert((0..ROWS).map(|key| 2 * key), 40).unwrap();
        let txn = rig.begin(isolation);
        let mut wanted = BTreeSet::new();
        let look = |key: u32, txn: &Arc<Txn>| {
            let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Normal).unwrap();
            cursor.set_prefix(&key.to_be_bytes());
            cursor.seek(&key.to_be_bytes(), Seek::AtLeast).unwrap()
        };
        // Upward, every tenth row is read and unlocked, or changed, or deleted; then downward over others.
        for key in (0..2 * ROWS / 2).step_by(2) {
            assert!(look(key, &txn));
            wanted.insert(key);
            match key % 20 {
                4 => txn.delete(&rig.table, &key.to_be_bytes(), &[]).unwrap(),
                8 => txn.update(&rig.table, &key.to_be_bytes(), b"changed", &[], &[]).unwrap(),
                _ => {}
            }
        }
        let mut row = Vec::new();
        for key in (ROWS..2 * ROWS).rev().filter(|key| key % 2 == 0 && key % 202 != 0) {
            assert!(txn.get(&rig.table, &key.to_be_bytes(), Lock::Exclusive, &mut row).unwrap());
            wanted.insert(key);
        }
        assert!(rig.held() < ROWS as usize / 10, "{} locks", rig.held());
        // An unlocked row has no lock, also if it was the last row of a range; a later locking read locks it again.
        let mut cursor = txn.cursor(&rig.table, 0, Lock::Exclusive, Access::Normal).unwrap();
        let free = 202 * 25;
        assert!(cursor.seek(&u32::to_be_bytes(free), Seek::AtLeast).unwrap());
        cursor.unlock_last();
        assert!(!rig.is_locked(free));
        assert!(txn.get(&rig.table, &u32::to_be_bytes(free), Lock::Exclusive, &mut row).unwrap());
        wanted.insert(free);
        // Others insert between those that are locked.
        let inserted: Vec<u32> = (1..2 * ROWS).step_by(2).filter(|key| key % 3 == 0).collect();
        rig.insert(inserted.iter().copied(), 40).unwrap();
        for key in (0..2 * ROWS).filter(|key| key % 2 == 0 || inserted.contains(key)).step_by(7) {
            assert_eq!(rig.is_locked(key), wanted.contains(&key), "{isolation:?}, key {key}");
        }
        txn.rollback().unwrap();
        assert_eq!(rig.held(), 0);
    }
}
