//! Leaves that the entries of one row need. Where one of them had to come from the object store, those that are still to be changed
//! are likely to be there, too: they are asked for together, not one after the other.

use super::{Entry, Txn};
use crate::table::Table;
use smallvec::SmallVec;
use terrace_tier::meter;
use terrace_tier::page::PageId;

/// Leaves asked for at a time: more than one waits for is no use to a row.
const AT_ONCE: usize = 16;

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

/// Has prefetchers fetch what only the store has of the leaves, but for the first, which the caller is about to fetch. How many there are.
#[cold]
pub(super) fn ask<'a>(table: &Table, entries: impl Iterator<Item = (usize, &'a [u8])>) -> usize {
    let mut asked: SmallVec<[PageId; AT_ONCE]> = SmallVec::new();
    for (index, key) in entries {
        // An error is for who changes the entry to find.
        let Ok(tree) = table.tree(index) else { break };
        let Some(id) = tree.missing(key).filter(|id| !asked.contains(id)) else { continue };
        if !tree.pages().is_far(id) {
            continue;
        }
        if !asked.is_empty() {
            tree.pages().fetch_soon(id);
        }
        asked.push(id);
        if asked.len() > AT_ONCE {
            break;
        }
    }
    asked.len()
}
