//! Large values of rows: written before their row, in several mini-transactions, each of which notes in the
//! transaction's undo how far the value has come. So a rollback frees a value whose row was not written, and
//! recovery what a crash cut short.
//!
//! The first mini-transaction appends the record, the others write it anew in its place. It counts for the
//! transaction when the value is written or has failed: nothing else is appended meanwhile.

use super::{State, Txn};
use crate::btree::overflow::{self, Large};
use crate::error::{Error, Result};
use crate::space::Space;
use crate::table::Table;
use crate::undo::record::{self, Body, Record};
use terrace_tier::redo::Urgency;

/// More than a record of a large value takes.
const RECORD: usize = 64;

impl Txn {
    /// Writes the row into pages of its own, in the table's primary space. If it fails, what is written is
    /// undone with the row operation.
    pub(super) fn write_large(
        &self,
        state: &mut State,
        table: &Table,
        space: &Space,
        row: &[u8],
    ) -> Result<Large> {
        let (txn, before) = (state.id, state.last);
        let Some(stream) = &mut state.stream else {
            return Err(Error::Invalid("the transaction has ended".into()));
        };
        self.core.streams.make_room(stream, RECORD, Urgency::Normal)?;
        let mut noted = 0;
        let written = overflow::write_noted(space, row, Urgency::Normal, &mut |mtr, large| {
            if crate::planted::LARGE_NOT_NOTED.on() {
                return;
            }
            let bytes = record::encode(&Record { txn, before, body: Body::Large { table: table.id, large } });
            stream.append(mtr, &bytes);
            noted = bytes.len();
        });
        if noted > 0 {
            state.appended(noted);
        }
        Ok(written?)
    }
}
