//! Row locks, by name: (tree, key).
//!
//! A row that a transaction changed is locked by its id in the row, as long as the transaction is
//! active; that takes no memory. Locks in this table are those of locking reads, and short ones that
//! keep two inserts of one unique key apart.
//!
//! Who finds a lock in the way waits for its owner: an edge in the wait-for graph, which is searched
//! for a circle before each wait; who would close one is the victim. All waiters wait on one event,
//! notified whenever a transaction ends or gives a lock back, and look again.
//!
//! Not here yet: gap locks (a gap will be named by the key that follows it).

use crate::error::{Error, Result};
use crate::row::TxnId;
use crate::txn::cancel::Cancel;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use terrace_io::World;
use terrace_io::sched::{Event, Woken};
use terrace_tier::page::SpaceId;

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Mode {
    Shared,
    Exclusive,
}

type Name = (SpaceId, Box<[u8]>);

#[derive(Default)]
struct Inner {
    /// Owners of each lock; several only if all are shared. Owners are session numbers.
    locks: HashMap<Name, Vec<(u64, Mode)>>,
    /// Who waits for whom.
    edges: HashMap<u64, Vec<u64>>,
}

#[derive(Default, Debug)]
pub struct LockCounters {
    pub waits: AtomicU64,
    pub deadlocks: AtomicU64,
    pub timeouts: AtomicU64,
}

pub struct Locks {
    world: World,
    inner: Mutex<Inner>,
    held: AtomicUsize,
    max: usize,
    /// Something was given back.
    pub changed: Arc<Event>,
    /// Transaction id → the session that runs it.
    sessions: Mutex<HashMap<TxnId, u64>>,
    pub counters: LockCounters,
}

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InTheWay {
    /// The row was changed by this transaction, which is active.
    Txn(TxnId),
    /// These sessions hold locks.
    Sessions(Vec<u64>),
}

impl Locks {
    pub fn new(world: World, max: usize) -> Locks {
        Locks {
            world,
            inner: Mutex::default(),
            held: AtomicUsize::new(0),
            max,
            changed: Arc::new(Event::new()),
            sessions: Mutex::default(),
            counters: LockCounters::default(),
        }
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
    pub fn bind(&self, txn: TxnId, session: u64) {
        self.sessions.lock().insert(txn, session);
    }
    pub fn unbind(&self, txn: TxnId) {
        self.sessions.lock().remove(&txn);
        self.changed.notify();
    }

    /// Others' locks that conflict with `mode`.
    pub fn conflict(&self, session: u64, space: SpaceId, key: &[u8], mode: Mode) -> Option<InTheWay> {
        if self.held.load(Ordering::Acquire) == 0 {
            return None;
        }
        let inner = self.inner.lock();
        let owners = inner.locks.get(&(space, key.into()))?;
        let others: Vec<u64> = owners
            .iter()
            .filter(|(owner, held)| *owner != session && (mode == Mode::Exclusive || *held == Mode::Exclusive))
            .map(|(owner, _)| *owner)
            .collect();
        (!others.is_empty()).then_some(InTheWay::Sessions(others))
    }

    /// Takes the lock if nothing is in the way. `Ok(Ok(true))`: it is new for this session.
    pub fn take(&self, session: u64, space: SpaceId, key: &[u8], mode: Mode) -> Result<std::result::Result<bool, InTheWay>> {
        let mut inner = self.inner.lock();
        let name: Name = (space, key.into());
        let owners = inner.locks.entry(name.clone()).or_default();
        let others: Vec<u64> = owners
            .iter()
            .filter(|(owner, held)| *owner != session && (mode == Mode::Exclusive || *held == Mode::Exclusive))
            .map(|(owner, _)| *owner)
            .collect();
        if !others.is_empty() {
            return Ok(Err(InTheWay::Sessions(others)));
        }
        if let Some(mine) = owners.iter_mut().find(|(owner, _)| *owner == session) {
            mine.1 = mine.1.max(mode);
            return Ok(Ok(false));
        }
        let held = self.held.load(Ordering::Acquire);
        if held >= self.max {
            if owners.is_empty() {
                inner.locks.remove(&name);
            }
            return Err(Error::TooManyLocks { held, max: self.max });
        }
        owners.push((session, mode));
        self.held.fetch_add(1, Ordering::AcqRel);
        Ok(Ok(true))
    }

    pub fn release(&self, session: u64, space: SpaceId, key: &[u8]) {
        {
            let mut inner = self.inner.lock();
            self.release_in(&mut inner, session, &(space, key.into()));
        }
        self.changed.notify();
    }

    fn release_in(&self, inner: &mut Inner, session: u64, name: &Name) {
        if let Some(owners) = inner.locks.get_mut(name) {
            let before = owners.len();
            owners.retain(|(owner, _)| *owner != session);
            self.held.fetch_sub(before - owners.len(), Ordering::AcqRel);
            if owners.is_empty() {
                inner.locks.remove(name);
            }
        }
    }

    /// Gives back all locks of a session that ends.
    pub fn release_all(&self, session: u64, names: impl Iterator<Item = (SpaceId, Box<[u8]>)>) {
        let mut any = false;
        {
            let mut inner = self.inner.lock();
            for name in names {
                any = true;
                self.release_in(&mut inner, session, &name);
            }
        }
        if any {
            self.changed.notify();
        }
    }

    /// Waits until what was in the way may be gone. No latch is held. `deadline` on the world's clock.
    pub fn wait(&self, session: u64, obstacle: &InTheWay, deadline: u64, cancel: &Cancel, still: impl Fn() -> bool) -> Result<()> {
        let ticket = self.changed.ticket();
        if !still() {
            return Ok(());
        }
        let targets = match obstacle {
            InTheWay::Sessions(s) => s.clone(),
            InTheWay::Txn(txn) => self.sessions.lock().get(txn).copied().into_iter().collect(),
        };
        {
            let mut inner = self.inner.lock();
            if closes_circle(&inner.edges, session, &targets) {
                self.counters.deadlocks.fetch_add(1, Ordering::Relaxed);
                return Err(Error::Deadlock);
            }
            inner.edges.insert(session, targets);
        }
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let now = self.world.clock.now();
        let woken = if cancel.is_asked() {
            Woken::Notified
        } else if now >= deadline {
            Woken::TimedOut
        } else {
            self.world.sched.wait(&self.changed, ticket, Some(deadline - now))
        };
        self.inner.lock().edges.remove(&session);
        if cancel.is_asked() {
            return Err(Error::Cancelled);
        }
        if woken == Woken::TimedOut {
            self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
            return Err(Error::LockTimeout);
        }
        Ok(())
    }
}

/// Whether somebody that `targets` wait for, directly or not, waits for `session`.
fn closes_circle(edges: &HashMap<u64, Vec<u64>>, session: u64, targets: &[u64]) -> bool {
    let mut seen = hashbrown::HashSet::new();
    let mut todo = targets.to_vec();
    while let Some(next) = todo.pop() {
        if next == session {
            return true;
        }
        if seen.insert(next) {
            todo.extend(edges.get(&next).into_iter().flatten());
        }
    }
    false
}
