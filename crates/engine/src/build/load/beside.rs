//! A load into a table that has rows.
//!
//! Rows whose keys come in order are inserted as they come: each goes where the last one went. All others, and all entries of
//! secondary indexes, are sorted first, in memory that is lent and in runs on the volume, and inserted in the end, rows before entries: so
//! an index that memory does not hold is traversed once, leaf by leaf, where each entry by itself would read a leaf and write it again.
//!
//! Each value has its undo record, written with it: rollback, recovery and purge find what inserts leave. For a while rows
//! exist without their entries, which no session can see: the rows are not committed, and the statement reads none of them.

use super::{Maker, Stage};
use crate::build::sort::Sorted;
use crate::build::steps::Steps;
use crate::error::Result;

/// Entries that are inserted together, and about how many bytes of them.
const TOGETHER: usize = 256;
const TOGETHER_BYTES: usize = 32 << 10;

impl Stage {
    /// Inserts a row that comes in order; anything else is sorted.
    pub(super) fn push_beside(&mut self, key: &[u8], unique: Option<usize>, value: &[u8]) -> Result<()> {
        if self.index > 0 || key <= &self.last[..] {
            return self.sort.push(key, unique, value);
        }
        self.maker.owner.insert_value(&self.maker.table, 0, key, None, value)?;
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }
}

impl Maker {
    /// Whether nothing has to be known of an entry of this index before it is inserted.
    pub(super) fn inserts_together(&self, index: usize) -> bool {
        index > 0 && self.table.def().indexes.get(index).is_some_and(|def| !def.unique)
    }

    /// Inserts sorted entries, some at a time.
    pub(super) fn insert_together(
        &self,
        index: usize,
        sorted: &mut Sorted,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        let (mut bytes, mut lens) = (Vec::with_capacity(TOGETHER_BYTES), Vec::with_capacity(TOGETHER));
        sorted.rewind()?;
        loop {
            let goes_on = sorted.advance()?;
            if !goes_on || lens.len() == TOGETHER || bytes.len() > TOGETHER_BYTES {
                self.owner.insert_sorted_entries(&self.table, index, &bytes, &lens)?;
                bytes.clear();
                lens.clear();
            }
            if !goes_on {
                return Ok(());
            }
            steps.one()?;
            bytes.extend_from_slice(sorted.key());
            bytes.extend_from_slice(sorted.value());
            lens.push((sorted.key().len(), sorted.value().len()));
        }
    }
}
