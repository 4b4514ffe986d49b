//! Many row locks: their memory, how many remain when their rows are changed, and the cost of undoing the changes.

use std::sync::Arc;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_sim::SimWorld;

struct Rig {
    engine: Arc<Engine>,
    table: Arc<Table>,
}

fn rig() -> Rig {
    let sim = SimWorld::new(1);
    let config = Config {
        memory: Bytes(8 << 20),
        log: Bytes(8 << 20),
        log_partitions: 1,
        object_buffer: Bytes(64 << 20),
        ..Config::default()
    };
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine = Engine::open(config, parts).unwrap();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let table = engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    Rig { engine, table }
}

impl Rig {
    fn begin(&self, isolation: Isolation) -> Arc<Txn> {
        let txn = self.engine.begin(isolation);
        txn.set_lock_wait_timeout_ms(0);
        txn
    }

    fn insert(&self, keys: impl IntoIterator<Item = u32>) {
        let txn = self.begin(Isolation::ReadCommitted);
        for key in keys {
            txn.insert(&self.table, &key.to_be_bytes(), &[7; 30], &[]).unwrap();
        }
        txn.commit().unwrap();
    }

    fn pages_looked_at(&self) -> u64 {
        self.engine.core().storage.pages.pool().hits()
    }

    /// Rows that a scan with locks is given, in either direction, and how many pages it looked at for that.
    fn scan(&self, txn: &Arc<Txn>, skips_locked: bool, down: bool) -> (usize, u64) {
        let before = self.pages_looked_at();
        let mut cursor = txn.cursor(&self.table, 0, Lock::Exclusive, Access::Scan).unwrap();
        if skips_locked {
            cursor.skip_locked();
        }
        let mut rows = 0;
        let mut valid = cursor.seek(&[], if down { Seek::Last } else { Seek::First }).unwrap();
        while valid {
            rows += 1;
            valid = if down { cursor.prev().unwrap() } else { cursor.next().unwrap() };
        }
        drop(cursor);
        (rows, self.pages_looked_at() - before)
    }
}

/// Rows in an order in which no two neighbours follow each other.
fn scattered(rows: u32) -> impl Iterator<Item = u32> {
    (0..rows).map(move |number| (number * 7 + 3) % rows)
}

impl Rig {
    fn read_locked(&self, txn: &Txn, key: u32, lock: Lock) -> bool {
        txn.get(&self.table, &key.to_be_bytes(), lock, &mut Vec::new()).unwrap()
    }
    fn update(&self, txn: &Txn, key: u32) {
        txn.update(&self.table, &key.to_be_bytes(), b"changed", &[], &[]).unwrap();
    }
    /// Whether others can neither lock the row nor change it.
    fn is_locked(&self, key: u32) -> bool {
        let txn = self.begin(Isolation::ReadCommitted);
        let reads = txn.get(&self.table, &key.to_be_bytes(), Lock::Exclusive, &mut Vec::new()).is_err();
        txn.rollback().unwrap();
        let txn = self.begin(Isolation::ReadCommitted);
        let writes = txn.delete(&self.table, &key.to_be_bytes(), &[]).is_err();
        txn.rollback().unwrap();
        assert_eq!(reads, writes, "key {key}");
        reads
    }
    fn held(&self) -> usize {
        self.engine.core().locks.held()
    }
}

/// Rows are locked by a read, changed, and the change is undone: by a savepoint, or with its statement. They stay locked throughout.
fn rows_stay_locked_when_their_change_is_undone() {
    const ROWS: u32 = 3001;
    for (isolation, by_statement) in [
        (Isolation::RepeatableRead, false),
        (Isolation::ReadCommitted, false),
        (Isolation::RepeatableRead, true),
    ] {
        let rig = rig();
        rig.insert(0..ROWS);
        let txn = rig.begin(isolation);
        let lock = |key: u32| if key.is_multiple_of(2) { Lock::Shared } else { Lock::Exclusive };
        scattered(ROWS).for_each(|key| assert!(rig.read_locked(&txn, key, lock(key))));
        assert_eq!(rig.held(), ROWS as usize);
        let savepoint = txn.savepoint();
        txn.statement_begin();
        for key in scattered(ROWS) {
            match key % 5 {
                0 => txn.delete(&rig.table, &key.to_be_bytes(), &[]).unwrap(),
                1..=3 => rig.update(&txn, key),
                _ => continue,
            }
            // Twice.
            if key % 5 == 1 {
                rig.update(&txn, key);
            }
        }
        // The locks of unchanged rows, and the few that are never released.
        let unchanged = (0..ROWS).filter(|key| key % 5 == 4).count();
        assert!((unchanged..unchanged + 64).contains(&rig.held()), "{} of {ROWS} locks", rig.held());
        (0..ROWS).step_by(7).for_each(|key| assert!(rig.is_locked(key), "changed: {key}"));
        match by_statement {
            true => txn.statement_rollback().unwrap(),
            false => txn.rollback_to(savepoint).unwrap(),
        }
        (0..ROWS).for_each(|key| assert!(rig.is_locked(key), "undone: {key}"));
        // Changed again, and committed.
        rig.update(&txn, 8);
        txn.commit().unwrap();
        assert_eq!(rig.held(), 0);
        (0..ROWS).step_by(7).for_each(|key| assert!(!rig.is_locked(key), "committed: {key}"));
    }
}

#[test]
fn rows_whose_change_is_undone_to_a_savepoint_stay_locked() {
    rows_stay_locked_when_their_change_is_undone();
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_a_lock_that_is_lost_with_an_undone_change_is_found_by_one_run() {
    terrace_engine::planted::LOCK_LOST_WITH_CHANGE.set(true);
    let found = std::panic::catch_unwind(rows_stay_locked_when_their_change_is_undone).is_err();
    terrace_engine::planted::LOCK_LOST_WITH_CHANGE.set(false);
    assert!(found, "the planted bug was not found");
}

/// A whole rollback takes no lock again, so it needs no memory for locks; a rollback to a savepoint that lacks memory allows only a whole one.
#[test]
fn a_rollback_to_a_savepoint_without_memory_for_its_locks_allows_only_a_whole_rollback() {
    const ROWS: u32 = 20_000;
    let rig = rig();
    // Keys that share no long beginning, and are not dense: a lock takes 20 bytes, and all may take a MiB.
    let key = |number: u32| {
        [u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15), 7, 7, 7, 7].map(u64::to_be_bytes).concat()
    };
    let insert = rig.begin(Isolation::ReadCommitted);
    (0..4 * ROWS).for_each(|number| insert.insert(&rig.table, &key(number), b"row", &[]).unwrap());
    insert.commit().unwrap();
    let lock = |txn: &Txn, number: u32| txn.get(&rig.table, &key(number), Lock::Exclusive, &mut Vec::new());
    let txn = rig.begin(Isolation::ReadCommitted);
    let savepoint = txn.savepoint();
    // As many as are changed have no memory at a time; changed, they take none.
    for number in 0..4 * ROWS {
        assert!(lock(&txn, number).unwrap());
        txn.update(&rig.table, &key(number), b"new", &[], &[]).unwrap();
    }
    assert!(rig.held() <= 64);
    let error = txn.rollback_to(savepoint).unwrap_err();
    assert!(matches!(error, Error::TooManyLocks { .. }), "{error}");
    assert!(txn.commit().is_err(), "what is undone in part is not committed");
    txn.rollback().unwrap();
    assert_eq!(rig.held(), 0);
    let reader = rig.begin(Isolation::ReadCommitted);
    let mut row = Vec::new();
    for number in (0..4 * ROWS).step_by(997) {
        assert!(reader.get(&rig.table, &key(number), Lock::Shared, &mut row).unwrap());
        assert_eq!(row, b"row");
    }
}

/// Rows locked in an order that is none of theirs take a fraction of the memory that as many single locks would; what is beyond the memory
/// still fails, and leaves nothing.
#[test]
fn scattered_rows_are_locked_in_little_memory() {
    const ROWS: u32 = 100_003;
    let rig = rig();
    rig.insert(0..ROWS);
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        let txn = rig.begin(isolation);
        // 14,000 single locks would take the MiB that all may have.
        scattered(ROWS).for_each(|key| assert!(rig.read_locked(&txn, key, Lock::Exclusive)));
        assert_eq!(rig.held(), ROWS as usize);
        for key in (0..ROWS).step_by(211) {
            assert!(rig.is_locked(key));
        }
        txn.rollback().unwrap();
        assert_eq!(rig.held(), 0);
    }
}

/// A scan passes rows that others have locked, have changed, and rows that are dead: for four times as many of them it looks at about four
/// times as many pages, whatever keeps the gaps between them. (`planted_...` below shows what it was: sixteen times as many.)
fn what_is_passed_is_passed_once() {
    for down in [false, true] {
        for what in ["locked", "changed", "dead"] {
            let looks = [600, 2400].map(|rows| {
                let rig = rig();
                rig.insert(0..rows);
                let other = rig.begin(Isolation::RepeatableRead);
                match what {
                    "locked" => assert_eq!(rig.scan(&other, false, false).0, rows as usize),
                    "changed" => (0..rows).for_each(|key| {
                        other.update(&rig.table, &key.to_be_bytes(), b"changed", &[], &[]).unwrap();
                    }),
                    _ => {
                        // Seen by a view, so that purge leaves them.
                        other.open_view();
                        let txn = rig.begin(Isolation::ReadCommitted);
                        (0..rows).for_each(|key| txn.delete(&rig.table, &key.to_be_bytes(), &[]).unwrap());
                        txn.commit().unwrap();
                    }
                }
                let txn = rig.begin(Isolation::RepeatableRead);
                let (found, looks) = rig.scan(&txn, true, down);
                assert_eq!(found, 0);
                // No more than a gap: what was passed is one range, and kept free of inserts.
                assert!(rig.engine.core().locks.gaps_held() <= 3, "{what}");
                let inserter = rig.begin(Isolation::ReadCommitted);
                let between = [&(rows / 2).to_be_bytes()[..], &[1]].concat();
                assert!(inserter.insert(&rig.table, &between, b"new", &[]).is_err(), "{what}");
                inserter.rollback().unwrap();
                txn.rollback().unwrap();
                other.rollback().unwrap();
                looks
            });
            assert!(looks[1] < 7 * looks[0], "{what}, down: {down}: {looks:?} pages for 600 and 2400 rows");
        }
    }
}

#[test]
fn a_scan_examines_each_passed_row_once() {
    what_is_passed_is_passed_once();
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_a_scan_that_passes_rows_again_is_found_by_one_run() {
    terrace_engine::planted::PASSED_AGAIN.set(true);
    let found = std::panic::catch_unwind(what_is_passed_is_passed_once).is_err();
    terrace_engine::planted::PASSED_AGAIN.set(false);
    assert!(found, "the planted bug was not found");
}
