//! Leaves that the entries of one row need. If one of them had to come from the object store, those that are still to be changed
//! probably have to, too: they are fetched together, not one after the other.

use super::{Entry, Txn};
use crate::table::Table;
use smallvec::SmallVec;
use terrace_tier::limits::meter;
use terrace_tier::page::PageId;

/// Leaves asked for at a time.
const AT_ONCE: usize = 32;

/// Whether a row's change has met the store, and whether that was acted on.
pub(super) struct Far {
    before: u64,
    asked: bool,
}

impl Far {
    pub fn begin(txn: &Txn) -> Far {
        Far { before: meter::far(), asked: txn.core.storage.cold.is_none() }
    }

    /// `left`: the entries that are still to be changed, in order.
    #[inline]
    pub fn ask<'a>(&mut self, table: &Table, left: impl Iterator<Item = &'a Entry<'a>>) {
        if !self.asked && meter::far() != self.before {
            self.asked = true;
            ask(table, left.map(|entry| (entry.index, entry.key)));
        }
    }
}

/// Whether only the store has a page on the way to the key.
pub(super) fn is_far(table: &Table, index: usize, key: &[u8]) -> bool {
    table.tree(index).is_ok_and(|tree| tree.missing(key).is_some_and(|id| tree.pages().is_far(id)))
}

/// Has prefetchers fetch the leaves that only the store has, without the first entry's, which the caller is about to fetch. Whether there was any.
#[cold]
pub(super) fn ask<'a>(table: &Table, entries: impl Iterator<Item = (usize, &'a [u8])>) -> bool {
    let mut seen: SmallVec<[PageId; AT_ONCE]> = SmallVec::new();
    for (number, (index, key)) in entries.enumerate() {
        // An error is left for the change of the entry.
        let Ok(tree) = table.tree(index) else { break };
        let Some(id) = tree.missing(key).filter(|id| !seen.contains(id)) else { continue };
        if !tree.pages().is_far(id) {
            continue;
        }
        seen.push(id);
        if number > 0 && !tree.pages().fetch_soon(id) || seen.len() > AT_ONCE {
            break;
        }
    }
    !seen.is_empty()
}
