//! The first rows of a load in a transaction, as they came. If no more come than are worth trees, they are inserted one
//! by one, in their order: so a statement of few rows fails at the row, and at the index, where it would have failed without a load.

use super::Load;
use crate::error::{Error, Result};
use crate::row::off_page::{Row, Span};
use crate::txn::rows::Entry;
use std::collections::HashSet;

/// Fewer rows are inserted one by one.
pub(super) const ROWS_MIN: usize = 1000;
/// At most this many bytes of rows and entries are kept.
const BYTES_MAX: usize = 1 << 20;

struct OwnedEntry {
    index: usize,
    key: Vec<u8>,
    unique_len: Option<usize>,
    primary_at: usize,
    value: Vec<u8>,
}

struct EarlyRows {
    key: Vec<u8>,
    row: Vec<u8>,
    spans: Vec<Span>,
    entries: Vec<OwnedEntry>,
}

impl EarlyRows {
    fn row(&self) -> Row<'_> {
        Row { bytes: &self.row, spans: &self.spans }
    }
    fn entries(&self) -> Vec<Entry<'_>> {
        let entries = self.entries.iter();
        entries
            .map(|OwnedEntry { index, key, unique_len, primary_at, value }| Entry {
                index: *index,
                key,
                unique_len: *unique_len,
                primary_at: *primary_at,
                value,
            })
            .collect()
    }
}

#[derive(Default)]
pub(super) struct Early {
    rows: Vec<EarlyRows>,
    bytes: usize,
    /// What must not come twice: the index, and what of a key is unique.
    taken: HashSet<(usize, Vec<u8>)>,
}

impl Early {
    /// False: there are too many to keep. A duplicate is known at once, as it would be without a load.
    fn keep(&mut self, key: &[u8], row: Row<'_>, entries: &[Entry<'_>]) -> Result<bool> {
        let more =
            key.len() + row.bytes.len() + entries.iter().map(|e| e.key.len() + e.value.len()).sum::<usize>();
        if self.rows.len() + 1 >= ROWS_MIN || self.bytes + more > BYTES_MAX {
            return Ok(false);
        }
        let uniques = entries.iter().filter_map(|e| Some((e.index, e.key.get(..e.unique_len?)?)));
        for (index, unique) in std::iter::once((0, key)).chain(uniques) {
            if !self.taken.insert((index, unique.to_vec())) {
                return Err(Error::Duplicate { index });
            }
        }
        self.bytes += more;
        let owned = |e: &Entry<'_>| OwnedEntry {
            index: e.index,
            key: e.key.to_vec(),
            unique_len: e.unique_len,
            primary_at: e.primary_at,
            value: e.value.to_vec(),
        };
        let entries = entries.iter().map(owned).collect();
        let (key, row, spans) = (key.to_vec(), row.bytes.to_vec(), row.spans.to_vec());
        self.rows.push(EarlyRows { key, row, spans, entries });
        Ok(true)
    }
}

impl Load {
    /// Keeps a row, or gives those that are kept, and this one, to the sorts.
    pub(super) fn add_early(&mut self, key: &[u8], row: Row<'_>, entries: &[Entry<'_>]) -> Result<()> {
        let Some(early) = &mut self.early else { return self.add_noted(key, row, entries) };
        match early.keep(key, row, entries) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => {
                self.duplicate = (key.to_vec(), row.bytes.to_vec());
                return Err(error);
            }
        }
        for kept in self.early.take().unwrap_or_default().rows {
            self.add_noted(&kept.key, kept.row(), &kept.entries())?;
        }
        self.add_noted(key, row, entries)
    }

    /// Inserts the rows, if there are no others. False: there are.
    pub(super) fn insert_early(&mut self) -> Result<bool> {
        let Some(early) = self.early.take() else { return Ok(false) };
        let (table, owner) = (self.maker.table.clone(), self.maker.owner.clone());
        for kept in early.rows {
            let inserted = owner.insert(&table, &kept.key, kept.row(), &kept.entries());
            if let Err(Error::Duplicate { .. }) = inserted {
                self.duplicate = (kept.key, kept.row);
            }
            inserted?;
        }
        Ok(true)
    }
}
