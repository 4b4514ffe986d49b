//! The rows of a secondary index's entries lie scattered. Where only the object store has their leaves, a scan would wait for one after the other:
//! so the leaves that the entries next to the one at hand lead to, as far as these were copied with it, are asked for before it waits for its own.
//!
//! It is advice: a leaf that does not come in time, or is gone from memory again, is waited for as any other. While rows come from elsewhere
//! nothing is looked at twice; an instance without a store has none of it.

use super::Cursor;
use crate::row::{self, Head};
use crate::tree::Tree;
use terrace_tier::limits::meter;
use terrace_tier::page::PageId;

/// Entries that are looked at beyond the one at hand.
const AHEAD: usize = 16;
/// It continues for this many rows after one that only the store had.
const GOES_ON: u32 = 32;

#[derive(Default)]
pub(super) struct Fetching {
    /// The scan goes down.
    pub backward: bool,
    /// Rows before which it is still looked ahead.
    goes_on: u32,
    /// The scan's first row was seen.
    began: bool,
    /// Entries that the scan has reached, and how many of their rows were read: a reader that filters by the entry may want few.
    entries: u32,
    rows: u32,
    /// The key of the last entry that was looked at; empty: none was.
    upto: Vec<u8>,
    last: Option<PageId>,
}

impl Fetching {
    /// A scan begins, in this direction.
    pub fn begin(&mut self, backward: bool) {
        (self.backward, self.began) = (backward, false);
        (self.entries, self.rows) = (0, 0);
        self.upto.clear();
    }

    /// The scan goes on to another entry.
    #[inline]
    pub fn steps(&mut self, backward: bool) {
        if self.backward != backward {
            self.begin(backward);
        }
        self.entries = self.entries.wrapping_add(1);
    }

    /// How many entries are to be copied at a time for a reader that is going to ask for `entries`; 0: it doesn't know.
    pub fn expected(&self, entries: usize) -> usize {
        // A reader of one or two looks them up.
        if self.goes_on > 0 && entries > 2 { entries.max(4 * AHEAD) } else { entries }
    }
}

/// The primary key that an entry leads to.
fn primary_of<'a>(key: &'a [u8], value: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = Head::decode(value)?;
    let (at, _) = row::entry_parts(rest).filter(|_| !head.deleted())?;
    key.get(at..)
}

impl Cursor {
    /// The row of the entry at hand is going to be read: asks for what those next to it need, if that is far. For [`Cursor::row_was_read`]; None
    /// where there is no store.
    pub(super) fn reads_row(&mut self) -> Option<u64> {
        self.txn.core().storage.cold.as_ref()?;
        let began = std::mem::replace(&mut self.fetching.began, true);
        self.fetching.rows = self.fetching.rows.wrapping_add(1);
        let wants_most = self.fetching.entries / 2 <= self.fetching.rows;
        if wants_most && (self.fetching.goes_on > 0 || (!began && self.begins_far())) {
            self.ask_for_rows();
        }
        Some(meter::far())
    }

    pub(super) fn row_was_read(&mut self, far_before: Option<u64>) {
        if let Some(before) = far_before {
            let goes_on = &mut self.fetching.goes_on;
            *goes_on = if meter::far() != before { GOES_ON } else { goes_on.saturating_sub(1) };
        }
    }

    /// Whether the first row is far, and others are known to follow.
    fn begins_far(&mut self) -> bool {
        let next = match self.fetching.backward {
            false => self.cursor.following().next(),
            true => self.cursor.preceding().next(),
        };
        // Look-ups copy one more than there is, to see that the range ends.
        if !next.is_some_and(|(key, _)| key.starts_with(&self.prefix)) {
            return false;
        }
        let Ok(rows) = self.table.tree(0) else { return false };
        let far = rows.missing(self.primary_key()).is_some_and(|id| rows.pages().is_far(id));
        if far {
            self.fetching.goes_on = GOES_ON;
        }
        far
    }

    fn ask_for_rows(&mut self) {
        // An error is left for the read of the row.
        let Ok(rows) = self.table.tree(0) else { return };
        let Cursor { cursor, fetching, prefix, ahead_end, .. } = self;
        match fetching.backward {
            false => {
                // For a locking scan; others copy nothing that lies behind their end.
                let inside = |(key, _): &(&[u8], &[u8])| ahead_end.is_empty() || *key < &ahead_end[..];
                ask(&rows, fetching, prefix, cursor.following().take_while(inside));
            }
            true => ask(&rows, fetching, prefix, cursor.preceding()),
        }
    }
}

fn ask<'a>(
    rows: &Tree,
    fetching: &mut Fetching,
    prefix: &[u8],
    entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    let mut upto = None;
    for (key, value) in entries.take(AHEAD).take_while(|(key, _)| key.starts_with(prefix)) {
        let seen = !fetching.upto.is_empty()
            && if fetching.backward { key >= &fetching.upto[..] } else { key <= &fetching.upto[..] };
        if seen {
            continue;
        }
        let far = primary_of(key, value)
            .and_then(|primary| rows.missing(primary))
            .filter(|id| fetching.last != Some(*id) && rows.pages().is_far(*id));
        if let Some(id) = far {
            if !rows.pages().fetch_soon(id) {
                break;
            }
            fetching.last = Some(id);
        }
        upto = Some(key);
    }
    if let Some(key) = upto {
        fetching.upto.clear();
        fetching.upto.extend_from_slice(key);
    }
}
