//! Row locks and gap locks, by name: (tree, key) and (tree, range of keys).
//!
//! A row that a transaction changed is locked by its id in the row, as long as the transaction is
//! active; that takes no memory. Locks in this table are those of locking reads, and short ones that
//! keep two inserts of one unique key apart. Neighbours that a scan locks are one lock on a range of keys (`rows`). Gap
//! locks (`gaps`) are those of locking reads from REPEATABLE READ on: no other transaction inserts where such a read has looked.
//!
//! The memory of locks beyond a part of `common` is lent by the pool, in steps, and returned when enough of them are gone.
//!
//! A request that finds something in the way waits for its owner (`wait`).
//!
//! Beside the usual path:
//!
//! * Single locks of a session beyond its first 1,024 are keys in compact sets, one for each tree and mode (`names.rs`, `crowds.rs`, `compact.rs`:
//!   `Names::set`, `Crowds::change`, `Set::insert`).
//! * Waiting transactions queue for a row; when it is free, the one for which most others wait gets it (`wait.rs`, `order.rs`: `Request::wait`,
//!   `Waiters::next`).

mod compact;
mod crowds;
mod deadlock;
mod gaps;
mod names;
mod order;
mod owners;
mod report;
mod rows;
mod running;
#[cfg(test)]
mod tests;
mod wait;

pub use crowds::CROWD;
pub use deadlock::{Deadlock, Deadlocks, Member, OnDeadlock, StatementOf};
pub use owners::{OnWait, Owners};
pub use report::{Kind, ShownKey, ShownLock, ShownWait};
pub use running::{Face, Phase, Running, Runs};
pub use wait::Request;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::row::TxnId;
use gaps::Gaps;
use hashbrown::HashMap;
use names::Names;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use terrace_io::World;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_tier::ablation::Mechanism;
use terrace_tier::memory::pool::{Loan, Pool, Purpose};
use terrace_tier::page::SpaceId;
use wait::Waiters;

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Mode {
    Shared,
    Exclusive,
}

/// An isolation level of SQL: it decides which locks reads take, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// What a request wants of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedLock {
    pub mode: Mode,
    /// The key comes into being: gap locks of others are in the way.
    pub inserts: bool,
    /// And so may any other of the tree: gap locks anywhere in it are.
    pub fills: bool,
    /// The name is no row's: locks on ranges of rows are not in the way.
    pub rowless: bool,
}

impl WantedLock {
    pub const SHARED: WantedLock =
        WantedLock { mode: Mode::Shared, inserts: false, fills: false, rowless: false };
    pub const EXCLUSIVE: WantedLock = WantedLock { mode: Mode::Exclusive, ..WantedLock::SHARED };
    /// The beginning of a key, which must be unique.
    pub const UNIQUE: WantedLock = WantedLock { rowless: true, ..WantedLock::EXCLUSIVE };
    /// The least key of an empty tree, into which rows of many keys come at once.
    pub const FILL: WantedLock = WantedLock { inserts: true, fills: true, ..WantedLock::EXCLUSIVE };
}

/// What a range takes in memory, in bytes, with its ends unless they are long.
const RANGE_BYTES: usize = 200;

/// A locked key: short ones lie beside their locks, where who looks for them meets them first.
pub type Key = SmallVec<[u8; 24]>;

#[derive(Clone, Debug)]
pub struct Name {
    pub space: SpaceId,
    pub key: Key,
}

/// A [`Name`] to look up with.
#[derive(Hash, Clone, Copy)]
struct NameRef<'k> {
    space: SpaceId,
    key: &'k [u8],
}

impl From<&NameRef<'_>> for Name {
    fn from(name: &NameRef<'_>) -> Name {
        Name { space: name.space, key: name.key.into() }
    }
}

struct Inner {
    /// Row locks one by one, and names that must be unique. Owners are session numbers.
    locks: Names,
    gaps: Gaps,
    /// Row locks on ranges, in all trees.
    ranges: usize,
    /// Bytes of the long ends of all ranges, gap locks too.
    long: usize,
    waiters: Waiters,
    loan: Loan,
    /// Bytes that all locks together may take.
    bytes_max: usize,
    /// Bytes for which no loan is needed, and bytes of a step.
    own: usize,
    step: usize,
}

#[derive(Default, Debug)]
pub struct LockCounters {
    pub waits: AtomicU64,
    /// How long all of them took, those that still go on not among them, in nanoseconds.
    pub nanos: AtomicU64,
    /// The longest that a request has waited, all its waits together.
    pub nanos_max: AtomicU64,
    pub deadlocks: AtomicU64,
    pub timeouts: AtomicU64,
}

pub struct Locks {
    world: World,
    inner: Mutex<Inner, { Mutexes::RowLocks as u8 }>,
    /// Row locks held: one by one, or on ranges.
    held: AtomicUsize,
    /// Gap locks held: ranges that don't touch each other.
    gaps: AtomicUsize,
    /// Requests that wait, or have waited and look again.
    waiting: AtomicUsize,
    /// Waiting requests that may not be passed any more.
    starving: AtomicUsize,
    max: usize,
    /// Transaction id → the session that runs it.
    sessions: Mutex<HashMap<TxnId, u64>, { Mutexes::Sessions as u8 }>,
    pub owners: Owners,
    pub running: Running,
    pub deadlocks: Deadlocks,
    pub counters: LockCounters,
}

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InTheWay {
    /// The row was changed by this transaction, which is active.
    Txn(TxnId),
    /// These sessions hold locks, or wait and came first.
    Sessions(Vec<u64>),
}

impl Locks {
    /// As the configuration bounds them.
    pub fn of(world: World, config: &Config, pool: &Arc<Pool>) -> Locks {
        let locks = Locks::new(world, config.locks_max, config.locks_memory(), config.locks_own(), pool);
        locks.inner.lock().waiters.in_turn = config.without.has(Mechanism::LockOrder);
        locks
    }

    /// The memory is another now. Locks that are held stay.
    pub fn bound(&self, config: &Config) {
        let mut inner = self.inner.lock();
        (inner.bytes_max, inner.own) = (config.locks_memory(), config.locks_own());
    }

    /// At most `max` locks, that take `bytes_max`; what they take beyond `own` is `pool`'s memory.
    pub fn new(world: World, max: usize, bytes_max: usize, own: usize, pool: &Arc<Pool>) -> Locks {
        let inner = Inner {
            locks: Names::default(),
            gaps: Gaps::default(),
            ranges: 0,
            long: 0,
            waiters: Waiters::default(),
            loan: Loan::new(pool, Purpose::Locks),
            bytes_max,
            own,
            step: pool.loan_step(),
        };
        Locks {
            world,
            inner: Mutex::new(inner),
            held: AtomicUsize::new(0),
            gaps: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            starving: AtomicUsize::new(0),
            max,
            sessions: Mutex::default(),
            owners: Owners::default(),
            running: Running::default(),
            deadlocks: Deadlocks::default(),
            counters: LockCounters::default(),
        }
    }

    /// Row locks held: one by one, or on ranges.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
    /// Requests that wait now, or have just been woken.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
    /// The mean duration of a wait, in nanoseconds; 0 if there was none.
    pub fn mean_wait(&self) -> u64 {
        let LockCounters { waits, nanos, .. } = &self.counters;
        nanos.load(Ordering::Relaxed).checked_div(waits.load(Ordering::Relaxed)).unwrap_or(0)
    }
    /// Times that one who came later was served first.
    pub fn preferred(&self) -> u64 {
        self.inner.lock().waiters.preferred
    }
    /// Gap locks held.
    pub fn gaps_held(&self) -> usize {
        self.gaps.load(Ordering::Relaxed)
    }
    pub fn bind(&self, txn: TxnId, session: u64) {
        self.sessions.lock().insert(txn, session);
    }
    /// The transaction has ended: those that wait for it look again.
    pub fn unbind(&self, txn: TxnId) {
        let session = self.sessions.lock().remove(&txn);
        self.wake(session, Some(txn));
    }

    /// As [`Locks::bind`], for an orphaned transaction (`txn::orphaned`), with its number of undo records.
    pub fn bind_left(&self, txn: TxnId, session: u64, phase: Phase, changes: u64) {
        // It may be seen already, in another phase.
        let before = self.sessions.lock().get(&txn).copied();
        before.iter().for_each(|session| self.running.forget_session(*session));
        let face = self.running.add();
        face.begins(session, None, self.world.clock.now());
        face.set_phase(phase);
        face.set_changes(changes, None);
        self.bind(txn, session);
    }
    /// As [`Locks::unbind`], for an orphaned one.
    pub fn unbind_left(&self, txn: TxnId) {
        let session = self.sessions.lock().get(&txn).copied();
        session.iter().for_each(|session| self.running.forget_session(*session));
        self.unbind(txn);
    }

    /// Wakes those who wait for this session or this transaction. After what they wait for was changed.
    fn wake(&self, session: Option<u64>, txn: Option<TxnId>) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.inner.lock().waiters.wake(session, txn);
        }
    }

    /// Whether no session holds anything that could be in the way.
    fn is_free(&self, want: WantedLock) -> bool {
        self.held.load(Ordering::Acquire) == 0
            && self.starving.load(Ordering::Acquire) == 0
            && !(want.inserts && self.gaps.load(Ordering::Acquire) > 0)
    }

    /// Takes a name that is no row's if nothing is in the way.
    ///
    /// # Errors
    /// [`Error::TooManyLocks`] if as many are held as may be.
    pub fn take_unique(
        &self,
        session: u64,
        space: SpaceId,
        key: &[u8],
    ) -> Result<std::result::Result<(), InTheWay>> {
        let mut inner = self.inner.lock();
        let name = NameRef { space, key };
        if inner.locks.held_by(session, name).is_some() {
            return Ok(Ok(()));
        }
        if let Some(way) = inner.in_the_way(session, name, WantedLock::UNIQUE, false) {
            return Ok(Err(way));
        }
        self.check_room(&mut inner)?;
        self.add(&mut inner, session, name, Mode::Exclusive);
        Ok(Ok(()))
    }

    /// The session has the name in this mode.
    fn add(&self, inner: &mut Inner, session: u64, name: NameRef<'_>, mode: Mode) {
        if !inner.locks.set(session, name, mode) {
            self.held.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn check_room(&self, inner: &mut Inner) -> Result<()> {
        let gaps = self.gaps.load(Ordering::Acquire);
        let (held, bytes) = (
            inner.locks.weight() + inner.ranges + gaps,
            inner.locks.bytes() + (inner.ranges + gaps) * RANGE_BYTES + inner.long,
        );
        let kept = inner.bytes_kept(gaps);
        match held < self.max && bytes < inner.bytes_max && inner.borrow(kept) {
            true => Ok(()),
            false => Err(Error::TooManyLocks { held, bytes, max: self.max, bytes_max: inner.bytes_max }),
        }
    }

    /// Locks were given back: so is memory, if it is much.
    fn return_loan(&self, inner: &mut Inner) {
        inner.locks.shrink();
        if inner.loan.bytes() > 0 {
            let kept = inner.bytes_kept(self.gaps.load(Ordering::Acquire));
            let needed = kept.saturating_sub(inner.own).next_multiple_of(inner.step);
            if needed == 0 || needed + inner.step < inner.loan.bytes() {
                inner.loan.keep(needed);
            }
        }
    }

    /// The trees in which the session has locked rows one by one.
    pub fn spaces_of(&self, session: u64) -> Vec<SpaceId> {
        let mut spaces: Vec<SpaceId> = self.inner.lock().locks.spaces_of(session).collect();
        spaces.sort_unstable();
        spaces.dedup();
        spaces
    }

    /// Keeps the keys from `from` (inclusive) to `to` (exclusive; None: to the end) free of others' inserts, which
    /// nothing can be in the way of. True if a part of them was not kept before: a reader that read there looks again, for
    /// what was inserted meanwhile.
    ///
    /// # Errors
    /// [`Error::TooManyLocks`] if as many are held as may be.
    pub fn keep(&self, session: u64, space: SpaceId, from: &[u8], to: Option<&[u8]>) -> Result<bool> {
        self.keep_in(&mut self.inner.lock(), session, space, from, to)
    }

    fn keep_in(
        &self,
        inner: &mut Inner,
        session: u64,
        space: SpaceId,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<bool> {
        if to.is_some_and(|to| to <= from) {
            return Ok(false); // No key is in it: nothing is to be remembered of it, either.
        }
        let full = self.check_room(inner);
        let ranges = &mut inner.gaps.of(space, session).gaps;
        let before = ranges.size();
        if let Some(longer) = to.and_then(|to| ranges.go_on(from, to)) {
            let now = ranges.size();
            inner.long = inner.long + now.long - before.long;
            return Ok(longer);
        }
        if ranges.covers(from, to) {
            return Ok(false);
        }
        if !ranges.touches(from, to)
            && let Err(error) = full
        {
            inner.gaps.forget_if_empty(session, space);
            return Err(error);
        }
        ranges.add(from, to);
        let now = ranges.size();
        inner.long = inner.long + now.long - before.long;
        self.gaps.fetch_add(now.ranges, Ordering::AcqRel);
        self.gaps.fetch_sub(before.ranges, Ordering::AcqRel);
        Ok(true)
    }
}

impl Inner {
    /// The memory that is kept for locks, at this number of gap locks.
    fn bytes_kept(&self, gaps: usize) -> usize {
        self.locks.bytes_kept() + (self.ranges + gaps) * RANGE_BYTES + self.long
    }
    /// Bytes that are lent, or its own.
    fn borrow(&mut self, bytes: usize) -> bool {
        let has = self.own + self.loan.bytes();
        bytes <= has || self.loan.take((bytes - has).max(self.step))
    }

    /// `owns`: the row is the session's own, by a change. What others can have there then is a gap around a row that they have skipped
    /// (SKIP LOCKED), and the row is put back where it was.
    fn in_the_way(&self, session: u64, name: NameRef<'_>, want: WantedLock, owns: bool) -> Option<InTheWay> {
        let conflicts = |other: u64, held: Mode| other != session && (want.mode.max(held) == Mode::Exclusive);
        let owners = self.locks.owners(name).filter(|(owner, held)| conflicts(*owner, *held));
        let mut others: Vec<u64> = owners.map(|(owner, _)| owner).collect();
        if want.inserts && !owns && !crate::planted::GAP_IGNORED.on() {
            match want.fills {
                true => self.gaps.others_in(session, name.space, &mut others),
                false => self.gaps.others_at(session, name.space, name.key, &mut others),
            }
        }
        let in_ranges = self.ranges > 0 && !want.rowless;
        // A row that is being inserted is in no range: an owner of a range around it never saw it.
        if in_ranges && !want.inserts {
            self.gaps.others_lock(session, (name.space, name.key), want.mode, &mut others);
        }
        // A session that holds the lock in any mode, and only wants a stronger one, passes those that wait.
        if others.is_empty() && !self.waiters.is_empty() && !owns && !self.has(session, name) {
            self.waiters.first_in_line(session, &name, want, &mut others);
        }
        (!others.is_empty()).then_some(InTheWay::Sessions(others))
    }

    /// Whether the session holds the name in any mode, by itself or in a range.
    fn has(&self, session: u64, name: NameRef<'_>) -> bool {
        self.locks.held_by(session, name).is_some()
            || (self.ranges > 0 && self.gaps.mode_at(session, name.space, name.key).is_some())
    }
}
