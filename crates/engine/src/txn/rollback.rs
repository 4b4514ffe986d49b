//! Going back: records are undone from the last one, each together with its removal from the stream
//! in one mini-transaction. So a crash in mid-rollback leaves a shorter transaction to roll back.

use super::State;
use crate::btree::{Flow, Hint, MAX_ENTRY, Plan, TreeError};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::row::Head;
use crate::undo::RollPtr;
use crate::undo::record::Body;
use crate::undo::stream::append_log;
use terrace_tier::redo::{Urgency, record_bound};

/// A change record, copied.
struct Copy {
    before: RollPtr,
    change: Option<(u32, u16, Vec<u8>, Option<Vec<u8>>, bool)>,
}

/// Undoes all records behind `to`. `to` may be none if the transaction had not begun: then its Begin
/// record stays.
pub(super) fn back_to(core: &Core, state: &mut State, to: RollPtr) -> Result<()> {
    if state.id == 0 {
        return Ok(());
    }
    let to = if to.is_none() { state.begin } else { to };
    while state.last != to {
        if state.last == state.begin {
            return Err(Error::Invalid("the savepoint is not one of this transaction".into()));
        }
        let undone = state.last;
        state.last = undo_one(core, state)?;
        if state.statement == undone {
            state.statement = state.last;
        }
    }
    if state.last == state.begin {
        state.has_past = false;
    }
    Ok(())
}

/// Undoes the last record. Returns the one before it.
pub(super) fn undo_one(core: &Core, state: &mut State) -> Result<RollPtr> {
    let at = state.last;
    let Some(stream) = &mut state.stream else { return Err(Error::Invalid("the transaction has ended".into())) };
    core.streams.back_to(stream, at)?;
    let copy = core.streams.read(at, |record| Copy {
        before: record.before,
        change: match record.body {
            Body::Change(c) => Some((c.table, c.index, c.key.to_vec(), c.old.map(<[u8]>::to_vec), c.marked)),
            _ => None,
        },
    })?;
    let Some(copy) = copy else { return Err(Error::Corrupt(format!("undo record {at:?} is not there"))) };
    let table = match &copy.change {
        Some((table, ..)) => core.catalog.by_id(*table)?,
        None => None,
    };
    let mut large = None;
    match (&copy.change, table) {
        (Some((_, index, key, old, marked)), Some(table)) => {
            let tree = table.tree(usize::from(*index))?;
            let plan = Plan {
                value_max: old.as_ref().map(Vec::len),
                log_bytes: append_log(64) + record_bound(MAX_ENTRY),
                new_pages: 0,
                urgency: Urgency::Reserve,
            };
            tree.modify(&mut Hint::default(), key, plan, |spot| {
                let head = spot.value().and_then(Head::decode).map(|(head, rest)| (head, rest.to_vec()));
                if let Some((head, rest)) = head.filter(|(head, _)| head.roll.record() == at) {
                    if head.large() && !*marked && *index == 0 {
                        large = crate::btree::overflow::Large::decode(&rest);
                    }
                    match old {
                        Some(_) if crate::planted::ROLLBACK_SKIPS.on() && !*marked => {}
                        Some(old) => spot.put(old),
                        None => spot.remove(),
                    }
                }
                stream.take_off(spot.mtr(), at);
                Ok::<_, TreeError>(Flow::Done)
            })?;
            stream.taken_off(at);
            if let Some(large) = large {
                crate::btree::overflow::free(tree.space(), large, Urgency::Reserve)?;
            }
        }
        _ => {
            let mut mtr = core.streams.pages().begin(append_log(64), 0, Urgency::Reserve)?;
            stream.take_off(&mut mtr, at);
            mtr.commit();
            stream.taken_off(at);
        }
    }
    Ok(copy.before)
}

/// Takes the Begin record off: nothing is left of the transaction.
pub(super) fn erase(core: &Core, state: &mut State) -> Result<()> {
    assert_eq!(state.last, state.begin);
    if let Some(stream) = &mut state.stream {
        core.streams.back_to(stream, state.begin)?;
        let mut mtr = core.streams.pages().begin(append_log(64), 0, Urgency::Reserve)?;
        stream.take_off(&mut mtr, state.begin);
        mtr.commit();
        stream.taken_off(state.begin);
    }
    core.ids.rolled_back(state.id);
    Ok(())
}
