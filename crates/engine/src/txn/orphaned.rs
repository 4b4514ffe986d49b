//! Orphaned transactions, which no session runs: those that a crash left, and those whose rollback failed, for a page that it needed was on a store, or a
//! volume, that did not answer.
//!
//! Their changes stay locked until they end. Prepared ones wait for a decision by their XID; the others are rolled back in the
//! background, again and again until it succeeds.

use super::{Decision, TxnState, commit_state, rollback};
use crate::error::{Error, Result};
use crate::lock::Phase;
use crate::row::TxnId;
use crate::storage::trouble::Trouble;
use crate::txn::shared::Core;
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use terrace_tier::page::Glsn;

/// A transaction that has not ended.
pub struct OrphanedTxn {
    pub(crate) state: TxnState,
    /// Where its commit record ends, if it has one: it need only become durable.
    committed: Option<Glsn>,
    /// The tables that it changed, as far as a crash left it.
    pub(crate) tables: HashSet<u32>,
}

impl OrphanedTxn {
    pub(super) fn new(state: TxnState, tables: HashSet<u32>) -> OrphanedTxn {
        OrphanedTxn { state, committed: None, tables }
    }

    /// What is left of a transaction that could not be rolled back; its locks, except those on what it changed, are its owner's to give back. None: it
    /// changed nothing.
    pub(super) fn of(state: &mut TxnState) -> Option<OrphanedTxn> {
        let stream = state.stream.take()?;
        let state = TxnState {
            // Sessions that wait for it keep waiting.
            id: std::mem::take(&mut state.id),
            stream: Some(stream),
            begin: state.begin,
            begin_page: state.begin_page.take(),
            begin_mark: state.begin_mark.take(),
            last: state.last,
            has_past: state.has_past,
            loads: std::mem::take(&mut state.loads),
            changes: state.changes,
            rolling_back: true,
            ..TxnState::default()
        };
        Some(OrphanedTxn::new(state, HashSet::new()))
    }

    /// It is rolled back in the background. Its stream is not reused until then: another transaction behind it would be taken for its end, and purge of
    /// that one would forget it.
    pub(crate) fn leave(mut self, core: &Core) {
        if crate::planted::UNFINISHED_STREAM_REUSED.on() {
            self.state.stream.take().into_iter().for_each(|stream| core.streams.give_back(stream));
            return;
        }
        self.show(core);
        core.rollbacks.add(self);
    }

    pub fn id(&self) -> u64 {
        self.state.id
    }
    /// It is seen from now on, until it ends.
    pub fn show(&self, core: &Core) {
        let is_prepared = self.state.prepared && !self.state.rolling_back;
        let phase = if is_prepared { Phase::Prepared } else { Phase::RollingBack };
        core.locks.bind_left(self.state.id, core.new_session(), phase, self.state.changes);
    }

    /// Undoes up to `max` records. True when nothing is left.
    fn step(&mut self, core: &Core, max: usize) -> Result<bool> {
        if crate::planted::UNFINISHED_KEPT.on() {
            self.state.last = self.state.begin;
        }
        for _ in 0..max {
            if self.state.last == self.state.begin {
                rollback::erase(core, &mut self.state)?;
                self.end(core);
                core.counters.rolled_back.fetch_add(1, Ordering::Relaxed);
                return Ok(true);
            }
            (self.state.last, _) = rollback::undo_one(core, &mut self.state)?;
        }
        self.state.hints.clear();
        Ok(false)
    }

    fn end(&mut self, core: &Core) {
        self.state.begin_page = None;
        self.state.hints.clear();
        if let Some(stream) = self.state.stream.take() {
            core.streams.give_back(stream);
        }
        core.locks.unbind_left(self.state.id);
    }

    /// Durable when it returns. After an error it can be called again.
    pub fn commit(&mut self, core: &Core) -> Result<()> {
        let end = match self.committed {
            Some(end) => end,
            None => {
                let (end, _) = commit_state(core, &mut self.state, Decision::Own)?;
                self.end(core);
                *self.committed.insert(end)
            }
        };
        core.storage.pages.redo().make_durable(end)?;
        Ok(())
    }

    /// Nothing else can become of it.
    pub fn is_rolling_back(&self) -> bool {
        self.state.rolling_back
    }

    /// After an error it can be called again, or left to the background if [`OrphanedTxn::is_rolling_back`].
    pub fn roll_back(&mut self, core: &Core) -> Result<()> {
        if self.committed.is_some() {
            return Err(Error::Invalid("the transaction was committed".into()));
        }
        rollback::undecide(core, &mut self.state)?;
        while !self.step(core, 64)? {}
        Ok(())
    }
}

/// Those that are to be rolled back in the background.
#[derive(Default)]
pub struct Rollbacks {
    left: Mutex<VecDeque<OrphanedTxn>, { Mutexes::UndoStreams as u8 }>,
    /// With the one in hand.
    count: AtomicU64,
    /// All that there were since the start.
    added: AtomicU64,
    /// Why the last one that failed did, and whose it was.
    trouble: Mutex<Option<(TxnId, Error)>, { Mutexes::UndoStreams as u8 }>,
    wanted: Arc<Event>,
}

impl Rollbacks {
    pub fn add(&self, left: OrphanedTxn) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.added.fetch_add(1, Ordering::Relaxed);
        self.left.lock().push_back(left);
        self.wanted.notify();
    }
    /// How many have not ended.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
    /// How many there were since the start, also those that have ended.
    pub fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }
    /// Why they don't end, if that is known.
    pub fn trouble(&self) -> Option<Trouble> {
        let (id, error) = self.trouble.lock().clone().filter(|_| self.count() > 0)?;
        Trouble::of_work("rollback_trouble", &error, format!("transaction {id}: {error}"))
    }
}

/// Rolls back in the background what a crash or a failed rollback left.
pub struct RollbackWorker {
    core: Arc<Core>,
    failed: u64,
}

impl RollbackWorker {
    pub fn new(core: Arc<Core>) -> RollbackWorker {
        RollbackWorker { core, failed: 0 }
    }
}

impl Worker for RollbackWorker {
    fn name(&self) -> &'static str {
        "rollback"
    }
    fn step(&mut self) -> Step {
        let rollbacks = &self.core.rollbacks;
        let Some(mut first) = rollbacks.left.lock().pop_front() else { return Step::Idle };
        let at = first.state.last;
        match first.step(&self.core, 64) {
            Ok(true) => {
                rollbacks.count.fetch_sub(1, Ordering::Relaxed);
                self.failed = 0;
                Step::Worked
            }
            Ok(false) => {
                rollbacks.left.lock().push_front(first);
                Step::Worked
            }
            Err(error) => {
                *rollbacks.trouble.lock() = Some((first.id(), error));
                self.failed = if first.state.last == at { (self.failed + 1).min(50) } else { 1 };
                // Another one may need other pages.
                rollbacks.left.lock().push_back(first);
                Step::IdleFor(self.failed * 100_000_000)
            }
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.core.rollbacks.wanted.clone()
    }
}
