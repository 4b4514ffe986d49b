//! Trees that a transaction builds in bulk and makes a table's in one change, the table being empty.
//!
//! In undo stand, for each tree: a Load record; an Extent record for each run of page numbers that the build takes, in
//! the mini-transaction that takes it; and a Filled record, in the one that makes the tree the index's by writing its
//! root, which also notes in the Load record that it is published. So whatever ends the transaction before that finds the
//! pages to give back, and afterwards the values to remove: each carries the Load record's place as its own, marked
//! fresh, as an inserted one does.
//!
//! A rollback comes to the Filled record first: values are removed one by one, for others may have put theirs beside
//! them by now. Then to the Extents, whose pages are the tree's own if the Load record says so.
//!
//! Locks: the transaction's state, over each of these mini-transactions. Latches: the root, the header, undo pages.

use super::{Txn, TxnState};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::lock::WantedLock;
use crate::row::RollPtr;
use crate::row::{self, Head, TxnId};
use crate::table::Table;
use crate::tree::bulk::{Numbers, Whole};
use crate::tree::space::{Space, run};
use crate::tree::{Cursor, Flow, Hint, Plan, Seek, Tree};
use crate::txn::shared::Core;
use crate::undo::record::{self, Body, Record};
use crate::undo::stream::{Stream, append_log};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use terrace_io::cancel;
use terrace_log::Urgency;
use terrace_tier::memory::pool::Access;

/// More than one of these records takes.
const RECORD: usize = 64;
/// Values that one step of going back removes.
const STEP: usize = 1024;

/// A tree's build by a transaction.
pub(crate) struct Filling {
    txn: Arc<Txn>,
    id: TxnId,
    tree: Arc<Tree>,
    table: u32,
    number: u16,
    load: RollPtr,
    /// Extent records and what they name.
    extents: Arc<Mutex<Vec<(RollPtr, Range<u32>)>>>,
}

fn ended() -> Error {
    Error::Invalid("the transaction has gone back behind the load".into())
}

impl Txn {
    /// Appends a record in a mini-transaction of its own.
    fn note(&self, state: &mut TxnState, body: Body<'_>) -> Result<RollPtr> {
        let bytes = record::encode(&Record { txn: state.id, before: state.last, body });
        let Some(stream) = &mut state.stream else { return Err(ended()) };
        self.core.streams.make_room(stream, bytes.len(), Urgency::Normal)?;
        let mut mtr = self.core.streams.pages().begin(append_log(bytes.len()), 0, Urgency::Normal)?;
        stream.append(&mut mtr, &bytes);
        mtr.commit();
        state.appended(bytes.len());
        Ok(state.last)
    }

    /// Begins to build one of the table's trees, which is empty now.
    pub(crate) fn fill(self: &Arc<Txn>, table: &Table, index: usize) -> Result<Filling> {
        let tree = table.tree(index)?;
        let number = table.number(index);
        let mut state = self.state.lock();
        self.start(&mut state)?;
        let load = self.note(&mut state, Body::Load { table: table.id, index: number, published: false })?;
        state.loads.push(load);
        let (txn, id, table) = (self.clone(), state.id, table.id);
        Ok(Filling { txn, id, tree, table, number, load, extents: Arc::default() })
    }

    /// Keeps others' rows out of a table for a moment, if it is empty: then it stays so until `work` has ended. None: it is
    /// not empty, or another session is about to fill it.
    pub(crate) fn while_empty<R>(
        &self,
        table: &Table,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<Option<R>> {
        let Some(_turn) = table.take_turn_to_fill() else { return Ok(None) };
        let space = table.tree(0)?.space().id();
        let kept_before = self.state.lock().gaps.contains(&space);
        if self.core.locks.keep(self.session, space, &[], None).is_err() {
            return Ok(None); // there are too many locks for one more
        }
        // Rows are put before their entries, and purged before them: none can come into a secondary tree from here on.
        let is_empty = table.trees().iter().try_fold(true, |all, tree| Ok(all && tree.is_empty()?));
        let done = match is_empty {
            Ok(true) => work().map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        if !kept_before {
            self.core.locks.release_gaps(self.session, space);
        }
        done
    }
}

impl Filling {
    /// Makes a value the transaction's: as if it had inserted it.
    pub fn stamp(&self, value: &[u8], out: &mut Vec<u8>) {
        let (flags, rest) = Head::decode(value).map_or((0, value), |(head, rest)| (head.flags, rest));
        row::value_into(Head { flags, txn: self.id, roll: self.load.fresh() }, rest, out);
    }

    /// Takes page numbers for the build.
    pub fn numbers(&self) -> Box<dyn Numbers> {
        Box::new(Filling {
            txn: self.txn.clone(),
            tree: self.tree.clone(),
            extents: self.extents.clone(),
            ..*self
        })
    }

    /// Makes the tree the index's. Waits for those who keep any of its keys free of inserts, as an insert does. False: it is
    /// not empty.
    pub fn publish(&self, whole: &Whole<Arc<Tree>>) -> Result<bool> {
        let core = &self.txn.core;
        let space = self.tree.space().id();
        let mut state = self.txn.state.lock();
        let mut request = self.txn.request(&state, (space, &[]), WantedLock::FILL);
        loop {
            let page = core.streams.pin(self.load)?;
            let state = &mut *state;
            if !state.loads.contains(&self.load) {
                return Err(ended());
            }
            let body = Body::Filled { table: self.table, index: self.number, load: self.load };
            let bytes = record::encode(&Record { txn: state.id, before: state.last, body });
            let Some(stream) = &mut state.stream else { return Err(ended()) };
            core.streams.make_room(stream, bytes.len(), Urgency::Normal)?;
            let mut way = None;
            let done = whole.install(
                2 * append_log(RECORD),
                |_| {
                    way = core.locks.admit(self.txn.session, space, &[], WantedLock::FILL)?;
                    Ok(way.is_none())
                },
                |mtr| {
                    stream.append(mtr, &bytes);
                    Stream::write_published(mtr, &page, self.load);
                },
            )?;
            if done {
                state.appended(bytes.len());
                // They are the tree's.
                let mut extents = self.extents.lock();
                extents.drain(..).for_each(|(_, run)| forget(self.tree.space(), run.start));
                return Ok(true);
            }
            let Some(way) = way else { return Ok(false) };
            request.wait(&way, |txn| core.ids.is_active(txn))?;
        }
    }

    /// Gives back what the build has taken, unless it is published. It will not be.
    pub fn abandon(&self) -> Result<()> {
        let _shield = cancel::shield();
        let state = self.txn.state.lock();
        if !state.loads.contains(&self.load) {
            return Ok(()); // it was rolled back
        }
        let mut extents = self.extents.lock();
        while let Some((at, run)) = extents.last() {
            free_extent(&self.txn.core, self.tree.space(), *at, run.clone())?;
            forget(self.tree.space(), run.start);
            extents.pop();
        }
        Ok(())
    }
}

/// Frees the pages that an Extent record names, and writes it in the record.
fn free_extent(core: &Core, space: &Space, at: RollPtr, extent: Range<u32>) -> Result<()> {
    let page = core.streams.pin(at)?;
    let first = extent.start;
    run::free(space, extent, append_log(RECORD), |mtr, end| Stream::write_count(mtr, &page, at, end - first))
}

impl Numbers for Filling {
    fn take(&mut self, space: &Space, count: u32) -> Result<u32> {
        let mut state = self.txn.state.lock();
        let state = &mut *state;
        if !state.loads.contains(&self.load) {
            return Err(ended());
        }
        let (txn, before) = (state.id, state.last);
        let Some(stream) = &mut state.stream else { return Err(ended()) };
        self.txn.core.streams.make_room(stream, RECORD, Urgency::Normal)?;
        let mut len = 0;
        let first = run::take(space, count, append_log(RECORD), Urgency::Normal, |mtr, first| {
            if crate::planted::EXTENT_NOT_NOTED.on() {
                return;
            }
            let (table, index, load) = (self.table, self.number, self.load);
            let body = Body::Extent { table, index, load, first, count, space: space.id() };
            let bytes = record::encode(&Record { txn, before, body });
            stream.append(mtr, &bytes);
            len = bytes.len();
            space.building.lock().push(first..first + count);
        })?;
        if len > 0 {
            state.appended(len);
            self.extents.lock().push((state.last, first..first + count));
        }
        Ok(first)
    }

    fn give_back(&mut self, space: &Space, unused: Range<u32>) -> Result<()> {
        let state = self.txn.state.lock();
        if !state.loads.contains(&self.load) {
            return Err(ended());
        }
        let mut extents = self.extents.lock();
        let Some((at, run)) = extents.last_mut().filter(|(_, run)| run.end == unused.end) else {
            if crate::planted::EXTENT_NOT_NOTED.on() {
                return run::give_back(space, unused, append_log(RECORD), |_, _| ());
            }
            return Err(Error::Invalid(
                "page numbers are given back that were not the last ones taken".into(),
            ));
        };
        let page = self.txn.core.streams.pin(*at)?;
        run::give_back(space, unused, append_log(RECORD), |mtr, end| {
            Stream::write_count(mtr, &page, *at, end - run.start);
            run.end = end;
        })?;
        let (start, end) = (run.start, run.end);
        let mut building = space.building.lock();
        building.iter_mut().filter(|run| run.start == start).for_each(|run| run.end = end);
        Ok(())
    }
}

/// The run that begins here is under construction no longer.
fn forget(space: &Space, first: u32) {
    space.building.lock().retain(|run| run.start != first);
}

// --- rollback --------------------------------------------------------------------------------

/// Whether a Load record, which is older than those that ask, says that its tree is published.
pub(super) fn is_published(core: &Core, load: RollPtr) -> Result<bool> {
    let found = core.streams.read(load, |record| match record.body {
        Body::Load { published, .. } => Some(published),
        _ => None,
    })?;
    found.flatten().ok_or_else(|| Error::Corrupt(format!("undo record {load:?} of a load is not there")))
}

/// Undoes an Extent record: its pages are free, unless they are the tree's.
pub(super) fn undo_extent(
    core: &Core,
    tree: &Tree,
    at: RollPtr,
    load: RollPtr,
    extent: Range<u32>,
) -> Result<()> {
    if extent.is_empty() || is_published(core, load)? {
        return Ok(());
    }
    let first = extent.start;
    free_extent(core, tree.space(), at, extent)?;
    forget(tree.space(), first);
    Ok(())
}

/// Removes some of the values that came with a load. True: there are none any more.
pub(super) fn undo_filled(tree: &Arc<Tree>, me: TxnId, load: RollPtr) -> Result<bool> {
    let is_mine = |value: &[u8]| {
        Head::decode(value).is_some_and(|(head, _)| head.txn == me && head.roll == load.fresh())
    };
    let mut keys: Vec<Vec<u8>> = Vec::with_capacity(STEP);
    let mut cursor = Cursor::new(tree.clone(), Access::Scan);
    let mut valid = cursor.seek(Seek::First)?;
    while valid && keys.len() < STEP {
        if is_mine(cursor.value()) {
            keys.push(cursor.key().to_vec());
        }
        valid = cursor.next()?;
    }
    drop(cursor);
    let mut hint = Hint::default();
    for key in &keys {
        let plan = Plan { urgency: Urgency::Reserve, ..Plan::remove() };
        tree.modify(&mut hint, key, plan, |spot| {
            if spot.value().is_some_and(is_mine) {
                spot.remove();
            }
            Ok::<_, TreeError>(Flow::Done)
        })?;
    }
    if keys.len() < STEP {
        tree.tidy()?;
        return Ok(true);
    }
    Ok(false)
}
