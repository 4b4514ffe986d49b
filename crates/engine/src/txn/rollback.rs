//! Rolling back: records are undone from the last one, each together with its removal from the stream
//! in one mini-transaction. So a crash during a rollback leaves a shorter transaction to roll back.

use super::{TxnState, cancel, fill};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::row::RollPtr;
use crate::row::off_page;
use crate::row::{self, Head, TxnId};
use crate::tree::overflow::{self, Large};
use crate::tree::{Flow, Hint, MAX_ENTRY, Plan, Tree};
use crate::txn::shared::Core;
use crate::undo::record::{self, Body, Change};
use crate::undo::shared::Shared;
use crate::undo::stream::{Stream, append_log};
use std::ops::Range;
use std::sync::Arc;
use terrace_log::{Urgency, record_bound};
use terrace_tier::page::SpaceId;

/// A record, copied.
struct Copy {
    before: RollPtr,
    what: What,
}

/// The rest of a [`Change`].
struct Of {
    marked: bool,
    sum: Option<u32>,
    shared: Option<Shared>,
}

enum What {
    Change { table: u32, index: u16, key: Vec<u8>, old: Option<Vec<u8>>, of: Of },
    Large { table: u32, large: Large },
    Extent { table: u32, index: u16, load: RollPtr, space: SpaceId, pages: Range<u32> },
    Filled { table: u32, index: u16, load: RollPtr },
    Load,
    Nothing,
}

/// Undoes all records behind `to`. `to` may be none if the transaction had not begun: then its Begin
/// record stays.
pub(super) fn back_to(core: &Core, state: &mut TxnState, to: RollPtr) -> Result<()> {
    if state.id == 0 {
        return Ok(());
    }
    let _shield = cancel::shield();
    let to = if to.is_none() { state.begin } else { to };
    while state.last != to {
        if state.last == state.begin {
            return Err(Error::Invalid("the savepoint is not one of this transaction".into()));
        }
        let undone = state.last;
        let (last, of_row) = undo_one(core, state)?;
        state.went_back(last);
        state.changes = state.changes.saturating_sub(1);
        state.rows = state.rows.saturating_sub(u64::from(of_row));
        state.show_changes();
        if state.statement == undone {
            state.statement = state.last;
        }
    }
    if state.last == state.begin {
        state.has_past = false;
    }
    Ok(())
}

/// The transaction is to be rolled back, whatever happens: a prepared one is unfinished again, for its name goes with the
/// first record that is undone. It can't be committed any more.
pub(super) fn undecide(core: &Core, state: &mut TxnState) -> Result<()> {
    if state.prepared
        && !state.rolling_back
        && !crate::planted::PREPARED_IN_ROLLBACK.on()
        && let Some(page) = &state.begin_page
    {
        let mut mtr = core.streams.pages().begin(append_log(0), 0, Urgency::Reserve)?;
        Stream::write_state(&mut mtr, page, state.begin, record::TxnStatus::Active, 0);
        mtr.commit();
    }
    state.rolling_back = true;
    Ok(())
}

/// Undoes the last record. Returns the one before it, and whether it was a row's.
pub(super) fn undo_one(core: &Core, state: &mut TxnState) -> Result<(RollPtr, bool)> {
    crate::planted::rollback_may_fail(12)?;
    let at = state.last;
    let Some(stream) = &mut state.stream else {
        return Err(Error::Invalid("the transaction has ended".into()));
    };
    core.streams.back_to(stream, at)?;
    let copy = core.streams.read(at, |record| Copy {
        before: record.before,
        what: match record.body {
            Body::Change(Change { table, index, key, old, marked, sum, shared, .. }) => {
                let of = Of { marked, sum, shared };
                What::Change { table, index, key: key.to_vec(), old: old.map(<[u8]>::to_vec), of }
            }
            Body::Large { table, large } => What::Large { table, large },
            Body::Extent { table, index, load, first, count, space } => {
                What::Extent { table, index, load, space, pages: first..first.saturating_add(count) }
            }
            Body::Filled { table, index, load } => What::Filled { table, index, load },
            Body::Load { .. } => What::Load,
            _ => What::Nothing,
        },
    })?;
    let Some(copy) = copy else { return Err(Error::Corrupt(format!("undo record {at:?} is not there"))) };
    let table = match &copy.what {
        What::Change { table, .. }
        | What::Large { table, .. }
        | What::Extent { table, .. }
        | What::Filled { table, .. } => core.catalog.by_id(*table)?,
        What::Load | What::Nothing => None,
    };
    let of_row = matches!(copy.what, What::Change { index: 0, .. });
    match (copy.what, table) {
        (What::Change { table: id, index, key, old, of }, Some(table)) => match table.numbered(index) {
            Some(tree) => {
                let Of { marked, sum, shared } = of;
                let (key, old) = (&key[..], old.as_deref());
                let change = Change { table: id, index, key, old, marked, sum, shared, kept: 0, chains: &[] };
                let takes_again = state.given_back.takes_again(tree.space().id(), state.rolling_back);
                let undoing = Undoing { me: state.id, at, change, takes_again };
                // Neighbours are undone one after the other, as they were changed.
                let mut hint = state.hints.take(tree.space().id());
                undoing.run(core, stream, &tree, &mut hint)?;
                state.hints.put(tree.space().id(), hint);
            }
            None => take_off(core, stream, at)?,
        },
        (What::Large { large, .. }, Some(table)) => {
            // The row that named it is undone already.
            overflow::free_written(table.tree(0)?.space(), large, Urgency::Reserve)?;
            take_off(core, stream, at)?;
        }
        (What::Extent { index, load, space, pages, .. }, Some(table)) => {
            // A table that was truncated since has other pages.
            if let Some(tree) = table.numbered(index).filter(|tree| tree.space().id() == space) {
                fill::undo_extent(core, &tree, at, load, pages)?;
            }
            take_off(core, stream, at)?;
        }
        (What::Filled { index, load, .. }, Some(table)) => {
            if let Some(tree) = table.numbered(index)
                && !fill::undo_filled(&tree, state.id, load)?
            {
                return Ok((at, false)); // more of it at the next step
            }
            take_off(core, stream, at)?;
        }
        (What::Load, _) => {
            take_off(core, stream, at)?;
            state.loads.retain(|load| *load != at);
        }
        _ => take_off(core, stream, at)?,
    }
    Ok((copy.before, of_row))
}

/// A change that is undone.
struct Undoing<'a> {
    me: TxnId,
    at: RollPtr,
    change: Change<'a>,
    /// The session that goes on, and has given the lock back that it may have had on what was changed.
    takes_again: Option<u64>,
}

impl Undoing<'_> {
    /// Puts the previous value back. A delete mark that every reader sees is removed, as purge does,
    /// which may have passed it by meanwhile; if it has large values, these are freed before the record is taken off.
    fn run(&self, core: &Core, stream: &mut Stream, tree: &Arc<Tree>, hint: &mut Hint) -> Result<()> {
        let Change { key, old, marked, shared, .. } = self.change;
        let mark = old.and_then(Head::decode).filter(|(head, _)| head.deleted() && head.txn != self.me);
        let larges = mark
            .filter(|_| self.change.index == 0)
            .and_then(|(head, rest)| off_page::larges(head, rest))
            .unwrap_or_default();
        // What not every reader sees, purge has still to come to.
        let goes = || mark.is_some_and(|(head, _)| core.ids.sees(core.ids.oldest_view(), head.txn));
        let plan = Plan {
            value_max: old.map(|old| old.len() + shared.map_or(0, |shared| shared.front + shared.back)),
            log_bytes: append_log(64) + record_bound(MAX_ENTRY),
            new_pages: 0,
            urgency: Urgency::Reserve,
        };
        let mut freeing = false;
        tree.modify(hint, key, plan, |spot| {
            let head = spot.value().and_then(Head::decode).map(|(head, _)| head);
            // If it isn't ours any more, an attempt before this one took a mark away and went no further.
            let mut gone = true;
            if head.is_some_and(|head| head.roll.record() == self.at) {
                gone = false;
                // Before any other session sees that it is not ours any more.
                if let (Some(session), Some((before, _))) = (self.takes_again, old.and_then(Head::decode))
                    && !before.deleted()
                    && before.txn != self.me
                {
                    core.locks.take_again(session, tree.space().id(), key)?;
                }
                match old {
                    Some(_) if crate::planted::ROLLBACK_SKIPS.on() && !marked => {}
                    Some(old) if marked && old.len() == row::head_len(old) => {
                        let value = spot.value().unwrap_or(&[]);
                        match row::head_len(value) == old.len() {
                            true => spot.put_start(old),
                            false => spot.put(&[old, &value[row::head_len(value)..]].concat()),
                        }
                    }
                    Some(old) if crate::planted::PURGED_MARK_KEPT.on() || !goes() => match shared {
                        None => spot.put(old),
                        Some(_) => match self.change.before(spot.value().unwrap_or(&[])) {
                            Some(whole) => spot.put(&whole),
                            None => {
                                let what =
                                    format!("undo record {:?} is about another value than is there", self.at);
                                return Err(Error::Corrupt(what));
                            }
                        },
                    },
                    _ => {
                        spot.remove();
                        gone = true;
                    }
                }
            }
            freeing = gone && !larges.is_empty();
            if !freeing {
                stream.take_off(spot.mtr(), self.at);
            }
            Ok::<_, Error>(Flow::Done)
        })?;
        if !freeing {
            stream.taken_off(self.at);
            return Ok(());
        }
        crate::planted::rollback_may_fail(3)?;
        for large in larges {
            match overflow::free(tree.space(), large, Urgency::Reserve) {
                Ok(()) | Err(TreeError::Gone { .. }) => {} // purge was faster
                Err(error) => return Err(error.into()),
            }
        }
        crate::planted::rollback_may_fail(3)?;
        take_off(core, stream, self.at)
    }
}

/// Takes a record off that is undone, or undoes nothing.
fn take_off(core: &Core, stream: &mut Stream, at: RollPtr) -> Result<()> {
    let mut mtr = core.streams.pages().begin(append_log(64), 0, Urgency::Reserve)?;
    stream.take_off(&mut mtr, at);
    mtr.commit();
    stream.taken_off(at);
    Ok(())
}

/// Takes the Begin record off: nothing is left of the transaction.
pub(super) fn erase(core: &Core, state: &mut TxnState) -> Result<()> {
    assert_eq!(state.last, state.begin);
    let _shield = cancel::shield();
    if let Some(stream) = &mut state.stream {
        core.streams.back_to(stream, state.begin)?;
        take_off(core, stream, state.begin)?;
    }
    core.ids.rolled_back(state.id);
    Ok(())
}
