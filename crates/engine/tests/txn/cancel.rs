//! Cancelling a transaction ends its current wait at once, whatever it waits for; its rollback, which may wait for the
//! same, is not interrupted, and the next statement works.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::Access;
use terrace_engine::Cancel;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step, Worker, WorkerHandle};
use terrace_log::Urgency;
use terrace_tier::memory::pages::Pin;
use terrace_tier::page::PageId;

const SECOND: Nanos = 1_000_000_000;
/// A wait that is not cancelled takes at least this long before it times out.
const LONG: Nanos = 20 * SECOND;

/// Cancels at a time on the world's clock.
struct Killer {
    world: World,
    cancel: Arc<Cancel>,
    at: Nanos,
    wake: Arc<Event>,
}

impl Worker for Killer {
    fn name(&self) -> &'static str {
        "killer"
    }
    fn step(&mut self) -> Step {
        let now = self.world.clock.now();
        if now < self.at {
            return Step::IdleFor(self.at - now);
        }
        self.cancel.cancel();
        Step::Idle
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}

fn open(on: &Machine, object_buffer: u64) -> Arc<Engine> {
    on.open(kit::config(10 << 20, 4 << 20, object_buffer)).unwrap()
}

struct Rig {
    on: Machine,
    engine: Arc<Engine>,
    table: Arc<Table>,
}

impl Rig {
    fn new(seed: u64, object_buffer: u64) -> Rig {
        let on = Machine::new(seed).and_store();
        let engine = open(&on, object_buffer);
        let table = engine.create_table("d/t", &kit::primary()).unwrap();
        Rig { on, engine, table }
    }

    fn now(&self) -> Nanos {
        self.on.sim.world().clock.now()
    }
    fn insert(&self, txn: &Arc<Txn>, key: u64) -> Result<(), Error> {
        txn.insert(&self.table, &key.to_be_bytes(), &[key as u8; 1500], &[])
    }
    fn fill(&self, keys: std::ops::Range<u64>) {
        let txn = self.engine.begin(Isolation::ReadCommitted);
        keys.for_each(|key| self.insert(&txn, key).unwrap());
        txn.commit().unwrap().wait().unwrap();
    }
    fn has(&self, key: u64) -> bool {
        self.has_in(&self.engine.begin(Isolation::ReadCommitted), key)
    }
    fn has_in(&self, txn: &Txn, key: u64) -> bool {
        let found = txn.get(&self.table, &key.to_be_bytes(), Lock::None, &mut Vec::new());
        found.unwrap()
    }
    /// Cancels the transaction's wait if it lasts longer than a second from now.
    fn kill_soon(&self, txn: &Arc<Txn>) -> (Nanos, Box<dyn WorkerHandle>) {
        self.cancel_soon(&txn.cancel_handle())
    }
    fn cancel_soon(&self, cancel: &Arc<Cancel>) -> (Nanos, Box<dyn WorkerHandle>) {
        let at = self.now() + SECOND;
        (at, self.cancel_at(cancel, at))
    }
    fn cancel_at(&self, cancel: &Arc<Cancel>, at: Nanos) -> Box<dyn WorkerHandle> {
        let world = self.on.sim.world();
        let killer = Killer { world: world.clone(), cancel: cancel.clone(), at, wake: Arc::default() };
        world.sched.spawn(Box::new(killer))
    }
    /// Pins every frame that a reader may have.
    fn pin_all(&self) -> Vec<Pin> {
        let pages = &self.engine.core().storage.pages;
        let space = self.table.tree(0).unwrap().space().id();
        let pins: Vec<_> =
            (0..).map_while(|page| pages.load(PageId::new(space, page), Access::Normal).ok()).collect();
        let frames = pages.pool().frames();
        assert!(pins.len() + 32 > frames && pins.len() < frames, "{} of {frames}", pins.len());
        pins
    }
    fn cancelled_at_once<R: Debug>(&self, done: Result<R, Error>, at: Nanos) {
        assert!(matches!(done, Err(Error::Cancelled)), "{done:?}");
        let late = self.now().saturating_sub(at);
        assert!(late <= SECOND / 5, "{late} ns after it was cancelled");
    }
    fn end(self) {
        self.engine.core().storage.stop();
    }
}

#[test]
fn a_cancelled_wait_for_a_slot_ends_and_the_rollback_ignores_the_cancel() {
    let rig = Rig::new(1, 5 << 20);
    rig.on.store().faults.dead.store(true, Ordering::SeqCst);
    let txn = rig.engine.begin(Isolation::ReadCommitted);
    let mut key = 0;
    let (done, at) = loop {
        txn.statement_begin();
        let (at, _killer) = rig.kill_soon(&txn);
        match rig.insert(&txn, key) {
            Ok(()) => key += 1,
            done => break (done, at),
        }
        assert!(key < 10_000, "the object buffer is never full");
    };
    rig.cancelled_at_once(done, at);
    assert!(key > 500, "full after {key} rows");
    // Still cancelled: rolling the statement back and the transaction do not mind.
    txn.statement_rollback().unwrap();
    txn.rollback().unwrap();
    assert!(!rig.has(key - 1));
    // Without a cancel it waits, and then fails with the reason.
    let txn = rig.engine.begin(Isolation::ReadCommitted);
    let (began, mut last) = (rig.now(), Ok(()));
    for key in 0..key + 50 {
        last = rig.insert(&txn, key);
        if last.is_err() {
            break;
        }
    }
    assert!(matches!(last, Err(Error::Full(_))) && rig.now() - began > LONG, "{last:?}");
    txn.rollback().unwrap();
    rig.on.store().faults.dead.store(false, Ordering::SeqCst);
    rig.fill(0..key + 50);
    assert!(rig.has(0) && rig.has(key + 49));
    rig.end();
}

/// A throttled writer waits before its change. It used to hear the cancel and make the change all the same: a KILL that came to a statement's
/// last row was lost, and the statement succeeded.
#[test]
fn a_throttled_change_that_is_cancelled_is_not_made() {
    let rig = Rig::new(5, 5 << 20);
    rig.on.store().faults.dead.store(true, Ordering::SeqCst);
    let waits = || rig.engine.core().write_throttle.waits.load(Ordering::Relaxed);
    let mut txn = rig.engine.begin(Isolation::ReadCommitted);
    for key in 0.. {
        txn.statement_begin();
        let (before, at) = (waits(), rig.now() + SECOND / 500);
        let _killer = rig.cancel_at(&txn.cancel_handle(), at);
        match rig.insert(&txn, key) {
            Ok(()) if waits() > before => assert!(rig.now() < at, "it was cancelled while it waited"),
            Ok(()) => assert!(key < 10_000, "no change is throttled"),
            Err(Error::Cancelled) if waits() > before => {
                // Nothing else was in its way.
                txn.statement_begin();
                assert!(!rig.has_in(&txn, key));
                rig.insert(&txn, key).unwrap();
                assert!(rig.has_in(&txn, key));
                break;
            }
            other => panic!("{other:?}"),
        }
        if key % 10 == 0 {
            txn.commit().unwrap().wait().unwrap();
            txn = rig.engine.begin(Isolation::ReadCommitted);
        }
    }
    txn.rollback().unwrap();
    rig.end();
}

#[test]
fn a_cancelled_wait_for_log_room_ends_and_the_rollback_ignores_the_cancel() {
    let rig = Rig::new(2, 64 << 20);
    rig.fill(0..10);
    let txn = rig.engine.begin(Isolation::ReadCommitted);
    txn.statement_begin();
    rig.insert(&txn, 100).unwrap();
    // All the room that new work may have is taken.
    let redo = rig.engine.core().storage.pages.redo().clone();
    let mut rooms = Vec::new();
    for bytes in [100_000, 10_000, 1000, 100] {
        while let Ok(room) = redo.clone().reserve(bytes, Urgency::Normal) {
            rooms.push(room);
        }
    }
    txn.statement_begin();
    let (at, _killer) = rig.kill_soon(&txn);
    rig.cancelled_at_once(rig.insert(&txn, 101), at);
    txn.statement_rollback().unwrap();
    txn.rollback().unwrap();
    drop(rooms);
    assert!(!rig.has(100) && !rig.has(101) && rig.has(9));
    rig.fill(100..110);
    rig.end();
}

#[test]
fn a_cancelled_wait_for_a_frame_ends() {
    let rig = Rig::new(3, 64 << 20);
    rig.fill(0..4000);
    let pins = rig.pin_all();
    let txn = rig.engine.begin(Isolation::ReadCommitted);
    txn.statement_begin();
    let (at, _killer) = rig.kill_soon(&txn);
    let mut row = Vec::new();
    let found = (0..4000u64)
        .try_for_each(|key| txn.get(&rig.table, &key.to_be_bytes(), Lock::None, &mut row).map(|_| ()));
    rig.cancelled_at_once(found, at);
    // A cursor, too, from leaf to leaf.
    txn.statement_begin();
    let (at, _killer) = rig.kill_soon(&txn);
    let scan = || {
        let mut cursor = txn.cursor(&rig.table, 0, Lock::None, Access::Scan)?;
        let mut valid = cursor.seek(&[], terrace_engine::Seek::First)?;
        while valid {
            valid = cursor.next()?;
        }
        Ok(())
    };
    rig.cancelled_at_once(scan(), at);
    drop(pins);
    txn.statement_begin();
    scan().unwrap();
    txn.rollback().unwrap();
    rig.end();
}

/// Opening a table, and calls on a table outside of transactions, wait for pages, too. A table whose opening was cancelled is not
/// open in part: the next one finds all of it.
#[test]
fn a_cancelled_opening_of_a_table_leaves_nothing_half_open() {
    let rig = Rig::new(4, 64 << 20);
    rig.fill(0..4000);
    let index = |name: &str| IndexDef { name: name.into(), unique: false };
    let def = TableDef { indexes: ["PRIMARY", "one", "two"].map(index).to_vec(), properties: Vec::new() };
    let other = rig.engine.create_table("d/other", &def).unwrap();
    let txn = rig.engine.begin(Isolation::ReadCommitted);
    let entries = |key: &'static [u8]| {
        [1, 2].map(|index| Entry { index, key, unique_len: None, primary_at: 0, value: b"" })
    };
    txn.insert(&other, b"key", b"row", &entries(b"key")).unwrap();
    txn.commit().unwrap().wait().unwrap();
    drop((other, txn));
    let Rig { on, engine, table } = rig;
    drop(table);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open(&on, 64 << 20);
    let table = engine.open_table("d/t").unwrap();
    // What is left to do in the background is done: here it would be done in the waits below, and wait itself.
    on.sim.sched.run_some(50_000);
    let rig = Rig { on, engine, table };

    let cancel = Arc::new(Cancel::default());
    let mut pins = rig.pin_all();
    let scope = cancel.scope();
    let (at, _killer) = rig.cancel_soon(&cancel);
    rig.cancelled_at_once(rig.engine.open_table("d/other").map(|table| table.name()), at);
    cancel.clear();
    drop(scope);
    // An open table keeps none.
    pins.truncate(pins.len() - 1);
    rig.engine.open_table("d/other").unwrap();
    drop(pins);
    let pins = rig.pin_all();
    let scope = cancel.scope();
    let everywhere = || (0..100).try_for_each(|part| rig.table.sample(0, f64::from(part) / 100.0).map(drop));
    let key = |n: u64| n.to_be_bytes();
    let ranges = || {
        (0..3900).try_for_each(|n| {
            let (low, high) = (key(n), key(n + 100));
            rig.table.records_in_range(0, Bound::Included(&low), Bound::Excluded(&high)).map(drop)
        })
    };
    let whole = || rig.table.check(0).map(drop);
    let asks: [&dyn Fn() -> Result<(), Error>; 3] = [&everywhere, &ranges, &whole];
    for ask in asks {
        // Workers wait for frames as well, here within this wait: it may last longer, but it is not given up for want of one.
        let _killer = rig.cancel_soon(&cancel);
        let done = ask();
        assert!(matches!(done, Err(Error::Cancelled)), "{done:?}");
        cancel.clear();
    }
    drop(pins);
    for ask in asks {
        ask().unwrap();
    }
    drop(scope);
    let other = rig.engine.open_table("d/other").unwrap();
    assert_eq!((0..3).map(|index| other.check(index).unwrap()).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(rig.table.check(0).unwrap(), 4000);
    drop(other);
    rig.end();
}
