//! How a transaction ends: prepared, committed, rolled back, or dropped.

use super::history::Past;
use super::orphaned::OrphanedTxn;
use super::state::TxnState;
use super::{Ticket, Txn, XID_MAX, rollback};
use crate::error::{Error, Result};
use crate::lock::Phase;
use crate::txn::shared::Core;
use crate::undo::record::{self, Body, Record};
use crate::undo::stream::{Stream, append_log};
use std::sync::atomic::Ordering;
use terrace_log::Urgency;
use terrace_tier::page::Glsn;

impl Txn {
    /// Makes the transaction survive a crash undecided, under this name. Durable when it returns.
    pub fn prepare(&self, xid: &[u8]) -> Result<()> {
        let end = self.prepare_unwaited(xid)?;
        if end > 0 { Ok(self.core.storage.pages.redo().make_durable(end)?) } else { Ok(()) }
    }

    /// As `prepare`, but when it returns it survives the end of the process, and the loss of power only about a second later.
    pub fn prepare_written(&self, xid: &[u8]) -> Result<()> {
        let end = self.prepare_unwaited(xid)?;
        if end > 0 { Ok(self.core.storage.pages.redo().make_written(end)?) } else { Ok(()) }
    }

    /// Where the log must reach for it to be prepared; 0: it has changed nothing.
    fn prepare_unwaited(&self, xid: &[u8]) -> Result<Glsn> {
        if xid.len() > XID_MAX {
            return Err(Error::TooLarge { what: "an XID", len: xid.len(), max: XID_MAX });
        }
        let mut state = self.state.lock();
        if state.id == 0 {
            return Ok(0);
        }
        state.is_whole()?;
        // It ends with it.
        self.side.get().map_or(Ok(()), |side| side.state.lock().is_whole())?;
        self.core.write_through_until(&mut state.unwritten, Some(&self.cancel))?;
        let bytes =
            record::encode(&Record { txn: state.id, before: state.last, body: Body::Prepare { xid } });
        let Some(stream) = &mut state.stream else {
            return Err(Error::Invalid("the transaction has ended".into()));
        };
        self.core.streams.make_room(stream, bytes.len(), Urgency::Reserve)?;
        let mut mtr = self.core.streams.pages().begin(2 * append_log(bytes.len()), 0, Urgency::Reserve)?;
        stream.append(&mut mtr, &bytes);
        if let Some(page) = &state.begin_page {
            Stream::write_state(&mut mtr, page, state.begin, record::TxnStatus::Prepared, 0);
        }
        let range = mtr.commit();
        state.appended(bytes.len());
        state.prepared = true;
        state.prepared_end = range.end;
        state.show_phase(Phase::Prepared);
        Ok(range.end)
    }

    /// Gives back what a prepared transaction, which reads no more, has locked to read again: gaps, and rows that it shares. Rows
    /// that it has locked to change or has changed stay its own.
    pub fn release_reads(&self) {
        let mut state = self.state.lock();
        if state.prepared {
            let mut spaces = std::mem::take(&mut state.gaps);
            spaces.extend_from_slice(&state.ranges);
            self.core.locks.release_reads(self.session, &spaces);
        }
    }

    /// Commits. Visible to others when it returns, durable when the ticket says so; with durable reads (`Engine::set_durable_reads`) visible
    /// when the ticket says so, too. For a transaction with large values that is not prepared it waits for the volume.
    pub fn commit(&self) -> Result<Ticket> {
        self.commit_by(Decision::Own)
    }

    /// As `commit`, for a prepared transaction that has been decided durably elsewhere (in the server's binary log): a crash finds it
    /// prepared and commits it. So with durable reads it is visible as soon as its preparation, and what was committed before it, is durable.
    pub fn commit_decided(&self) -> Result<Ticket> {
        self.commit_by(Decision::Outside)
    }

    fn commit_by(&self, decision: Decision) -> Result<Ticket> {
        let mut state = self.state.lock();
        if state.ended {
            return Err(Error::Invalid("the transaction has ended".into()));
        }
        state.is_whole()?;
        if !state.unwritten.is_empty() {
            let _shield = terrace_io::cancel::shield();
            self.core.write_through_until(&mut state.unwritten, Some(&self.cancel))?;
        }
        let (mut end, mut number) = (0, self.told.owed());
        if let Some(side) = self.side.get().filter(|side| !side.has_ended()) {
            side.commit()?;
        }
        if state.id != 0 {
            (end, number) = commit_state(&self.core, &mut state, decision)?;
        }
        self.finish(&mut state);
        self.core.counters.committed.fetch_add(1, Ordering::Relaxed);
        Ok(Ticket { core: self.core.clone(), end, number, owed: state.owed_for_slots })
    }

    /// Rolls back.
    ///
    /// # Errors
    /// Those of the store, the volume and the log, which may not give what is needed to undo a change. The transaction has ended all the same: it is
    /// rolled back in the background as soon as they answer (`orphaned`), and its changes, which no other session sees, stay locked until then. One that
    /// is prepared and of which nothing is undone stays as it is.
    pub fn rollback(&self) -> Result<()> {
        let side = self.side.get().map_or(Ok(()), |side| side.rollback());
        let mut state = self.state.lock();
        if state.ended {
            return side;
        }
        if state.id != 0 {
            rollback::undecide(&self.core, &mut state)?;
            let begin = state.begin;
            let undone = self.rollback_state(&mut state, begin);
            if let Err(error) = undone.and_then(|()| rollback::erase(&self.core, &mut state)) {
                let left = OrphanedTxn::of(&mut state);
                self.finish(&mut state);
                left.into_iter().for_each(|left| left.leave(&self.core));
                return Err(error);
            }
        }
        self.finish(&mut state);
        self.core.counters.rolled_back.fetch_add(1, Ordering::Relaxed);
        side
    }

    /// Gives back what a transaction holds at its end.
    pub(super) fn finish(&self, state: &mut TxnState) {
        state.ended = true;
        if let Some(face) = &state.face {
            face.ends();
        }
        state.unwritten = Vec::new();
        state.hints.clear();
        state.begin_page = None;
        self.close_view(state);
        if let Some(stream) = state.stream.take() {
            self.core.streams.give_back(stream);
        }
        let mut spaces = std::mem::take(&mut state.gaps);
        spaces.append(&mut state.ranges);
        if state.locked > 0 || !spaces.is_empty() {
            self.core.locks.release_all(self.session, &spaces);
        }
        if state.id != 0 {
            self.core.locks.unbind(state.id);
        }
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        let open = {
            let state = self.state.lock();
            !state.ended && (!state.prepared || state.rolling_back)
        };
        if open {
            // What fails of it goes on without it.
            let _ = self.rollback();
        } else {
            let mut state = self.state.lock();
            if !state.ended {
                // Prepared and left alone: it stays as it is, to be decided after a restart.
                self.close_view(&mut state);
            }
        }
        if let Some(face) = self.state.get_mut().face.take() {
            self.core.locks.running.forget(&face);
        }
    }
}

/// What decided that a transaction commits, and so what makes that durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Its commit record does.
    Own,
    /// If it is prepared, whoever decided has made it durable.
    Outside,
}

/// The commit record of a transaction that changed something. Returns the end of its range, and the commit sequence number.
pub(crate) fn commit_state(core: &Core, state: &mut TxnState, decision: Decision) -> Result<(Glsn, u64)> {
    state.is_whole()?;
    let (Some(stream), Some(page), Some(begin)) = (&mut state.stream, &state.begin_page, state.begin_mark)
    else {
        return Err(Error::Invalid("the transaction has ended".into()));
    };
    let mut mtr = core.streams.pages().begin(append_log(64), 0, Urgency::Reserve)?;
    let forgettable = !state.has_past && stream.tail().id() == page.id();
    let (range, csn) = {
        let _order = core.ids.order.lock();
        let csn = core.ids.number();
        if forgettable {
            stream.take_off(&mut mtr, state.begin);
        } else {
            Stream::write_state(&mut mtr, page, state.begin, record::TxnStatus::Committed, csn);
            let end = core.streams.mark(stream);
            core.purge.history.lock().push(Past { csn, stream: stream.number, begin, end }, state.changes);
        }
        let range = mtr.commit();
        let durable_at = match decision {
            Decision::Outside if state.prepared_end > 0 => state.prepared_end,
            _ => range.end,
        };
        core.ids.committed(state.id, csn, durable_at);
        (range, csn)
    };
    if forgettable {
        stream.taken_off(state.begin);
    }
    core.wake_purge(csn);
    Ok((range.end, csn))
}
