//! After a crash: the streams say who was committed, prepared or unfinished.
//!
//! Committed transactions go to the history, for purge. Unfinished ones are active again, so that
//! what they changed stays locked, and are rolled back in the background. Prepared ones wait for the
//! decision of whoever knows their XID.

use super::history::{History, Past};
use super::{State, commit_state, rollback};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::lock::Phase;
use crate::undo::RollPtr;
use crate::undo::record::{self, Body};
use crate::undo::stream::{Found, Mark, Streams};
use hashbrown::HashSet;
use parking_lot::Mutex;
use std::sync::Arc;
use terrace_io::sched::{Event, Step, Worker};
use terrace_tier::page::Glsn;

/// What the streams hold.
#[derive(Default)]
pub struct Recovered {
    pub history: History,
    pub unfinished: Vec<Left>,
    pub prepared: Vec<(Vec<u8>, Left)>,
    /// The highest number seen.
    pub highest: u64,
}

/// A transaction that has not ended.
pub struct Left {
    pub(crate) state: State,
    /// Where its commit record ends, if it has one: it need only become durable.
    committed: Option<Glsn>,
    /// The tables that it changed.
    pub(crate) tables: HashSet<u32>,
}

struct Open {
    txn: u64,
    state: record::State,
    csn: u64,
    begin: RollPtr,
    mark: Mark,
    last: RollPtr,
    has_past: bool,
    records: u64,
    xid: Vec<u8>,
    tables: HashSet<u32>,
}

/// Walks all streams and gives those back that are at rest.
pub fn read_streams(streams: &Streams, found: Vec<Found>) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    for one in found {
        let stream = streams.at_end(&one)?;
        let mut open: Option<Open> = None;
        let end = streams.walk(one.head, None, |at, record| {
            recovered.highest = recovered.highest.max(record.txn);
            match record.body {
                Body::Begin { state, csn } => {
                    let mark = Mark { page: at.page(), end: at.at() };
                    if let Some(before) = open.take() {
                        close(&mut recovered, one.number, before, mark)?;
                    }
                    recovered.highest = recovered.highest.max(csn);
                    let xid = Vec::new();
                    open = Some(Open {
                        txn: record.txn,
                        state,
                        csn,
                        begin: at,
                        mark,
                        last: at,
                        has_past: false,
                        records: 0,
                        xid,
                        tables: HashSet::new(),
                    });
                }
                Body::Prepare { xid } => {
                    if let Some(open) = &mut open {
                        open.last = at;
                        open.records += 1;
                        open.xid = xid.to_vec();
                    }
                }
                Body::Change(change) => {
                    if let Some(open) = &mut open {
                        open.last = at;
                        open.records += 1;
                        open.has_past |= change.old.is_some();
                        open.tables.insert(change.table);
                    }
                }
                Body::Large { .. } | Body::Load { .. } | Body::Extent { .. } | Body::Filled { .. } => {
                    if let Some(open) = &mut open {
                        open.last = at;
                        open.records += 1;
                        open.tables.extend(record.body.table());
                    }
                }
            }
            Ok(true)
        })?;
        match open {
            None => streams.give_back(stream),
            Some(open) if open.state == record::State::Committed => {
                close(&mut recovered, one.number, open, end)?;
                streams.give_back(stream);
            }
            Some(open) => {
                let begin_page = streams.pages().load(
                    terrace_tier::page::PageId::new(terrace_tier::page::SpaceId::UNDO, open.begin.page()),
                    terrace_tier::pool::Access::Normal,
                )?;
                let state = State {
                    id: open.txn,
                    stream: Some(stream),
                    begin: open.begin,
                    begin_page: Some(begin_page),
                    begin_mark: Some(open.mark),
                    last: open.last,
                    has_past: open.has_past,
                    changes: open.records,
                    prepared: open.state == record::State::Prepared,
                    ..State::default()
                };
                let is_prepared = state.prepared && !crate::planted::PREPARED_FORGOTTEN.on();
                let left = Left { state, committed: None, tables: open.tables };
                if is_prepared {
                    recovered.prepared.push((open.xid, left));
                } else {
                    recovered.unfinished.push(left);
                }
            }
        }
    }
    Ok(recovered)
}

fn close(recovered: &mut Recovered, stream: usize, open: Open, end: Mark) -> Result<()> {
    if open.state != record::State::Committed {
        return Err(Error::Corrupt(format!(
            "transaction {} did not end, but its stream {stream} goes on",
            open.txn
        )));
    }
    recovered.history.push(Past { csn: open.csn, stream, begin: open.mark, end }, open.records);
    Ok(())
}

impl Left {
    pub fn id(&self) -> u64 {
        self.state.id
    }
    /// It is seen from now on, until it ends.
    pub fn show(&self, core: &Core) {
        let phase = if self.state.prepared { Phase::Prepared } else { Phase::RollingBack };
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
                return Ok(true);
            }
            self.state.last = rollback::undo_one(core, &mut self.state)?;
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
                let end = commit_state(core, &mut self.state)?;
                self.end(core);
                *self.committed.insert(end)
            }
        };
        core.storage.pages.redo().make_durable(end)?;
        Ok(())
    }

    /// After an error it can be called again.
    pub fn roll_back(&mut self, core: &Core) -> Result<()> {
        if self.committed.is_some() {
            return Err(Error::Invalid("the transaction was committed".into()));
        }
        rollback::undecide(core, &mut self.state)?;
        while !self.step(core, 64)? {}
        Ok(())
    }
}

/// Rolls back in the background what a crash left unfinished.
pub struct RollbackWorker {
    core: Arc<Core>,
    left: Mutex<Vec<Left>>,
    wake: Arc<Event>,
    failed: u64,
}

impl RollbackWorker {
    pub fn new(core: Arc<Core>, left: Vec<Left>) -> RollbackWorker {
        RollbackWorker { core, left: Mutex::new(left), wake: Arc::new(Event::new()), failed: 0 }
    }
}

impl Worker for RollbackWorker {
    fn name(&self) -> &'static str {
        "rollback"
    }
    fn step(&mut self) -> Step {
        let left = self.left.get_mut();
        let Some(last) = left.last_mut() else { return Step::Idle };
        match last.step(&self.core, 64) {
            Ok(true) => {
                left.pop();
                self.failed = 0;
                Step::Worked
            }
            Ok(false) => Step::Worked,
            Err(_) => {
                self.failed = (self.failed + 1).min(50);
                Step::IdleFor(self.failed * 100_000_000)
            }
        }
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
