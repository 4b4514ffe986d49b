//! Transactions: begin, change, savepoints, prepare, commit, roll back.
//!
//! A transaction belongs to no thread. It takes an id, a stream of undo and a place in the table of
//! ids with its first change; until then it costs a view at most. Everything that it changes carries its
//! id and a pointer to the undo record that leads back (`change`).
//!
//! Commit is one mini-transaction: the state in the Begin record, with the commit sequence number. A
//! transaction that only inserted, within one page of undo, takes its records off instead: they
//! will not be needed. The commit is visible when that is in the log, or (`ids::unseen`) durable, and acknowledged when the log is
//! durable that far ([`Ticket::wait`]).
//!
//! Beside the usual path:
//!
//! * The batches of all open cursors share a bounded memory; where little of it is left a batch has one row or a few (`cursor_memory.rs`,
//!   `sql/src/cursor/fill.rs`: `CursorMemory::share`, `Limits::new`).
//! * Rows that are looked up one by one in key order merge into one range as well. A replica that applies row events releases each lock once the row
//!   is changed (`state.rs`, `rows/locking.rs`, `mariadb/handler/ha_write.cc`: `TxnState::take_latest`, `ha_terrace::unlock_applied`).
//! * The lock of a changed row is released, because the transaction id in the row locks it; it is taken again when only that change is undone
//!   (`change.rs`, `rollback.rs`, `lock/rows.rs`: `Locks::release_changed`, `Locks::take_again`).
//! * A statement that is logged by its text holds its table's AUTO_INCREMENT counter until it ends: a name among the row locks (`counter.rs`,
//!   `mariadb/handler/ha_write.cc`: `Txn::lock_counter`, `keeps_counter`).
//! * UPDATE and DELETE gather rows and change them in batches: those of one leaf under one latch (`mariadb/handler/gather.cc`, `rows/batch.rs`,
//!   `tree/run.rs`: `Txn::change_rows`, `Tree::modify_run`).
//! * A large value (64 KiB and more) bypasses the log. Its pages are latched, stamped and noted in undo as others are, but its bytes are not logged:
//!   before the commit record (or XA PREPARE) the transaction writes them to free slots itself, with one sync and one map record for all
//!   (`large.rs`, `tree/overflow.rs`, `tier/src/volume/flush/through.rs`: `Txn::write_large`, `ValueLogging::Past`, `Flusher::write_through`).
//! * A rollback that fails (the store may hold a page that it needs) continues in the background with the orphaned transactions, and nothing of it
//!   can be prepared or committed (`commit.rs`, `orphaned.rs`, `state.rs`: `OrphanedTxn::leave`, `RollbackWorker`, `TxnState::is_whole`).
//! * Temporary tables have a core of their own and skip all of that: unlogged, spilled to a file on flash (`temporary.rs`,
//!   `tier/src/volume/temporary.rs`: `Txn::side`, `Spill`).
//! * Purge reads ahead: missing pages that it will need are fetched in parallel and held until it needs them (`purge/ahead.rs`: `Ahead::look`,
//!   `Fetcher`).
//! * A delete mark or large value with a damaged or lost page stays, and purge continues. Purge waits for pages that may come back, without slowing
//!   writers (`purge/trouble.rs`: `Trouble::pass_by`, `failed`).
//! * Writers are slowed smoothly as free slots fall from the low watermark to zero; while they hold locks, only if they owe much. Bulk builds and
//!   their large values receive a share of the slots that sinking frees, and are throttled first (`write_throttle.rs`, `bulk_throttle.rs`:
//!   `Core::throttle_write`, `BulkThrottle::wait`).

pub mod cancel;
mod change;
mod commit;
mod counter;
pub(crate) mod cursor_memory;
pub(crate) mod fill;
mod hints;
pub mod history;
pub mod ids;
mod large;
mod number_reservation;
pub mod orphaned;
pub mod purge;
pub mod purge_throttle;
pub mod recover;
mod rollback;
pub mod rows;
pub mod shared;
pub(crate) mod state;
mod strict;
mod tell;
pub(crate) mod temporary;
mod ticket;
pub mod version;
pub mod write_throttle;

use crate::error::{Error, Result};
use crate::lock::Isolation;
use crate::lock::{Phase, Request, WantedLock};
use crate::row::RollPtr;
use crate::row::TxnId;
use crate::txn::shared::Core;
use crate::txn::version::Reader;
use crate::undo::record::{self, Body, Record};
use crate::undo::stream::append_log;
use cancel::Cancel;
pub(crate) use commit::{Decision, commit_state};
use hashbrown::HashSet;
pub(crate) use state::TxnState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tell::Told;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_log::Urgency;
use terrace_tier::page::SpaceId;
pub use ticket::Ticket;

/// How a read locks what it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Not at all: a consistent read.
    None,
    Shared,
    Exclusive,
}

/// A place in a transaction to go back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Savepoint {
    last: RollPtr,
    /// Likewise in the transaction's side.
    side: RollPtr,
}

/// The longest XID, in bytes.
pub const XID_MAX: usize = 256;

/// About this many rows that are locked one behind the other are one lock of InnoDB's, which has one for a page.
const ROWS_OF_A_PAGE: u64 = 100;

pub struct Txn {
    core: Arc<Core>,
    session: u64,
    isolation: Isolation,
    cancel: Arc<Cancel>,
    /// Has an owner that is told of waits. Set and unset by the session that runs the transaction.
    owned: AtomicBool,
    told: Told,
    state: Mutex<TxnState, { Mutexes::Transaction as u8 }>,
    /// Its part in temporary tables, once it has one (`temporary`).
    side: OnceLock<Arc<Txn>>,
}

impl Txn {
    pub(crate) fn begin(core: &Arc<Core>, isolation: Isolation) -> Arc<Txn> {
        core.counters.begun.fetch_add(1, Ordering::Relaxed);
        let state = TxnState { lock_wait_ms: core.config.lock_wait_timeout_ms, ..TxnState::default() };
        Arc::new(Txn {
            core: core.clone(),
            session: core.new_session(),
            isolation,
            cancel: Arc::default(),
            owned: AtomicBool::default(),
            told: Told::default(),
            state: Mutex::new(state),
            side: OnceLock::new(),
        })
    }

    /// The part of `txn` in the core of temporary tables: it ends with it, and is cancelled with it.
    pub(crate) fn beside(txn: &Txn, core: &Arc<Core>) -> Arc<Txn> {
        let (lock_wait_ms, ended) = {
            let state = txn.state.lock();
            (state.lock_wait_ms, state.ended || state.prepared)
        };
        Arc::new(Txn {
            core: core.clone(),
            session: core.new_session(),
            isolation: txn.isolation,
            cancel: txn.cancel.clone(),
            owned: AtomicBool::default(),
            told: Told::default(),
            state: Mutex::new(TxnState { lock_wait_ms, ended, ..TxnState::default() }),
            side: OnceLock::new(),
        })
    }
    pub(crate) fn side_or(&self, make: impl FnOnce() -> Arc<Txn>) -> &Arc<Txn> {
        self.side.get_or_init(make)
    }

    /// Another transaction in the memory of one that has ended, if nothing else holds that: a session's next one.
    pub fn begin_again(self: &mut Arc<Txn>, isolation: Isolation) {
        let core = self.core.clone();
        match Arc::get_mut(self) {
            Some(txn) if txn.has_ended() => {
                core.counters.begun.fetch_add(1, Ordering::Relaxed);
                txn.disown();
                txn.session = core.new_session();
                txn.isolation = isolation;
                txn.cancel.clear();
                txn.told = Told::default();
                txn.side.take();
                let state = txn.state.get_mut();
                let face = state.face.take();
                if let Some(face) = &face {
                    face.begins(txn.session, Some(isolation), core.storage.world.clock.now());
                }
                *state =
                    TxnState { lock_wait_ms: core.config.lock_wait_timeout_ms, face, ..TxnState::default() };
            }
            _ => *self = Txn::begin(&core, isolation),
        }
    }
    /// Whether it was committed or rolled back.
    pub fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation
    }
    /// The transaction can be cancelled while this thread works for it.
    pub(crate) fn cancellable(&self) -> cancel::Scope {
        self.cancel.scope()
    }
    pub fn cancel_handle(&self) -> Arc<Cancel> {
        self.cancel.clone()
    }
    /// How long this transaction waits for a lock; 0: not at all.
    pub fn set_lock_wait_timeout_ms(&self, ms: u64) {
        self.state.lock().lock_wait_ms = ms;
    }
    /// It changed what its rollback doesn't undo (a table of an engine without transactions): in a deadlock it is the victim only
    /// if all others did, too.
    pub fn set_one_way(&self, on: bool) {
        self.state.lock().one_way = on;
    }
    /// Whom lock waits of this transaction, and for it, are told of (see `Engine::tell_lock_waits`). Until `disown`.
    pub fn set_owner(&self, owner: u64) {
        self.core.locks.owners.set(self.session, owner);
        self.owned.store(true, Ordering::Relaxed);
    }
    /// The owner may go: no call names it any more.
    pub fn disown(&self) {
        if self.owned.swap(false, Ordering::Relaxed) {
            self.core.locks.owners.forget(self.session);
        }
    }
    /// The transaction, and those that follow in the same memory, are run by this connection: they are seen from now on. 0: by none any
    /// more.
    pub fn set_connection(&self, connection: u64) {
        let mut state = self.state.lock();
        let face = state.face.get_or_insert_with(|| {
            let face = self.core.locks.running.add();
            face.begins(self.session, Some(self.isolation), self.core.storage.world.clock.now());
            face
        });
        face.set_connection(connection);
    }
    /// Whether it changed anything that outlives the process.
    pub fn has_changes(&self) -> bool {
        self.state.lock().id != 0
    }

    /// Whether it may hold locks of rows or of gaps: it has changes, or read with locks. A rollback to a savepoint gives none back.
    pub fn has_locks(&self) -> bool {
        let state = self.state.lock();
        state.id != 0 || state.locked != 0 || !state.gaps.is_empty() || !state.ranges.is_empty()
    }

    /// The id by which its changes are known: the transaction is a writer from here on. Below those of all that begin later, and never
    /// given again, not after a crash either.
    pub fn number(&self) -> Result<TxnId> {
        let mut state = self.state.lock();
        self.start(&mut state)?;
        Ok(state.id)
    }
    /// A number above the ids of all transactions that are writers by now, and below those of all that become one later.
    pub fn number_after(&self) -> Result<u64> {
        self.core.reserve_numbers()?;
        let _order = self.core.ids.order.lock();
        Ok(self.core.ids.number())
    }

    /// Whether reads that lock rows also keep others from inserting where they looked.
    pub(crate) fn locks_gaps(&self) -> bool {
        matches!(self.isolation, Isolation::RepeatableRead | Isolation::Serializable)
    }

    /// A request for a lock on a key, with all its waits. What would be lost by giving up counts about as InnoDB counts it: changed rows,
    /// and of locks the trees and the pages that they are in; most of all what can't be taken back.
    pub(crate) fn request<'a>(
        &'a self,
        state: &TxnState,
        name: (SpaceId, &'a [u8]),
        want: WantedLock,
    ) -> Request<'a> {
        // Mostly the same ones.
        let trees = state.gaps.len().max(state.ranges.len()) as u64;
        let weight =
            state.rows + trees + state.locked / ROWS_OF_A_PAGE + if state.one_way { 1 << 63 } else { 0 };
        let patience = state.lock_wait_ms.saturating_mul(1_000_000);
        let request =
            Request::new(&self.core.locks, self.session, weight, name, want, patience, &self.cancel);
        request.may_give_up(state.strict_view().is_some())
    }

    /// A statement begins: READ COMMITTED sees what was committed by now; a former cancel is over.
    pub fn statement_begin(&self) {
        self.side.get().iter().for_each(|side| side.statement_begin());
        let mut state = self.state.lock();
        self.cancel.clear();
        state.statement = state.last;
        if crate::planted::LOCK_RELEASED_EARLY.on() {
            let ranges = std::mem::take(&mut state.ranges);
            self.core.locks.release_all(self.session, &ranges);
        }
        if matches!(self.isolation, Isolation::ReadCommitted) {
            self.close_view(&mut state);
        }
    }
    /// A statement has ended: at READ COMMITTED its view is not needed any more, and purge may proceed however long the transaction rests.
    pub fn statement_end(&self) {
        if matches!(self.isolation, Isolation::ReadCommitted) {
            self.let_go_of_view();
        }
    }
    /// No statement will read by the view that the transaction has, if any.
    pub fn let_go_of_view(&self) {
        self.side.get().iter().for_each(|side| side.let_go_of_view());
        self.close_view(&mut self.state.lock());
    }
    pub fn statement_rollback(&self) -> Result<()> {
        let side = self.side_that_goes_back().map_or(Ok(()), |side| side.statement_rollback());
        let mut state = self.state.lock();
        let to = state.statement;
        self.rollback_state(&mut state, to).and(side)
    }
    fn side_that_goes_back(&self) -> Option<&Arc<Txn>> {
        self.side.get().filter(|_| !crate::planted::SIDE_KEPT.on())
    }
    pub fn savepoint(&self) -> Savepoint {
        let side = self.side.get().map_or(RollPtr::NONE, |side| side.state.lock().last);
        Savepoint { last: self.state.lock().last, side }
    }
    /// The statement's start stays where it is, unless the savepoint lies before it.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<()> {
        let back = |side: &Arc<Txn>| side.rollback_state(&mut side.state.lock(), savepoint.side);
        let side = self.side_that_goes_back().map_or(Ok(()), back);
        let mut state = self.state.lock();
        self.rollback_state(&mut state, savepoint.last).and(side)
    }

    /// From here on, consistent reads see what is committed now.
    pub fn open_view(&self) {
        self.before_view();
        let mut state = self.state.lock();
        if state.view.is_none() {
            state.view = Some(self.core.ids.open_view());
        }
    }
    fn close_view(&self, state: &mut TxnState) {
        if let Some(view) = state.view.take() {
            self.forget_view(view);
        }
    }
    /// The view, if there is one.
    pub(crate) fn view(&self) -> Option<u64> {
        self.state.lock().view
    }
    fn forget_view(&self, view: u64) {
        let oldest = self.core.ids.close_view(view);
        // Only who kept purge from its next transaction wakes it.
        if oldest.is_some_and(|oldest| self.core.next_past().is_some_and(|csn| view < csn && csn <= oldest)) {
            self.core.purge.wanted.notify();
        }
    }
    /// Reads what is committed now, whatever the transaction's own view is. What is read is to be fetched in `work`.
    pub(crate) fn with_view_of_now<R>(&self, work: impl FnOnce(Reader) -> R) -> R {
        if self.waits_before_view() {
            self.before_view();
        }
        let me = self.state.lock().id;
        let view = self.core.ids.open_view();
        let result = work(Reader { view: Some(view), me });
        self.forget_view(view);
        result
    }
    /// The reader, for consistent reads.
    pub(crate) fn reader(&self) -> Reader {
        let mut state = self.state.lock();
        let me = state.id;
        if self.isolation == Isolation::ReadUncommitted {
            return Reader { view: None, me };
        }
        if state.view.is_none() && self.waits_before_view() {
            drop(state);
            self.before_view();
            state = self.state.lock();
        }
        let view = *state.view.get_or_insert_with(|| self.core.ids.open_view());
        Reader { view: Some(view), me }
    }

    /// Makes the transaction a writer: an id, a stream, its Begin record.
    fn start(&self, state: &mut TxnState) -> Result<()> {
        if state.ended || state.prepared {
            return Err(Error::Invalid("the transaction has ended".into()));
        }
        if state.id != 0 {
            return Ok(());
        }
        self.core.reserve_numbers()?;
        let streams = &self.core.streams;
        let mut stream = streams.take()?;
        let id = self.core.ids.begin();
        let bytes = record::encode(&Record {
            txn: id,
            before: RollPtr::NONE,
            body: Body::Begin { state: record::TxnStatus::Active, csn: 0 },
        });
        let begun = (|| {
            streams.make_room(&mut stream, bytes.len(), Urgency::Normal)?;
            let mut mtr = streams.pages().begin(append_log(bytes.len()), 0, Urgency::Normal)?;
            stream.append(&mut mtr, &bytes);
            mtr.commit();
            Ok::<_, Error>(())
        })();
        if let Err(error) = begun {
            self.core.ids.rolled_back(id);
            streams.give_back(stream);
            return Err(error);
        }
        state.begin_mark = Some(streams.mark(&stream));
        state.begin = stream.next();
        state.begin_page = Some(stream.tail().clone());
        stream.appended(bytes.len());
        state.id = id;
        state.last = state.begin;
        if state.statement.is_none() {
            state.statement = state.begin;
        }
        state.stream = Some(stream);
        self.core.locks.bind(id, self.session);
        Ok(())
    }

    /// The tables that the transaction has changed, by id, and the trees in which it holds locks. Reads its undo.
    pub fn touched(&self) -> Result<(HashSet<u32>, HashSet<SpaceId>)> {
        let state = self.state.lock();
        let mut tables = HashSet::new();
        let mut at = state.last;
        while state.id != 0 && !state.ended && at != state.begin {
            let read = self.core.streams.read(at, |record| (record.before, record.body.table()))?;
            let Some((before, table)) = read else {
                return Err(Error::Corrupt(format!("undo record {at:?} is not there")));
            };
            tables.extend(table);
            at = before;
        }
        let named = self.core.locks.spaces_of(self.session).into_iter();
        let locked = named.chain(state.gaps.iter().copied()).chain(state.ranges.iter().copied());
        Ok((tables, locked.collect()))
    }

    fn rollback_state(&self, state: &mut TxnState, to: RollPtr) -> Result<()> {
        state.show_phase(Phase::RollingBack);
        let done = rollback::back_to(&self.core, state, to);
        // What is undone in part is not to be committed.
        if done.is_err() && state.id != 0 && !crate::planted::HALF_A_STATEMENT_COMMITTED.on() {
            state.owes_undo(if to.is_none() { state.begin } else { to });
        }
        state.show_phase(if state.is_going_back() { Phase::RollingBack } else { Phase::Active });
        state.hints.clear();
        done
    }
}
