//! Large values of rows, or of parts of rows (`crate::row::off_page`): written before their row, in several mini-transactions, each of which notes in the
//! transaction's undo how far the value has come. So a rollback frees a value whose row was not written, and
//! recovery what a crash cut short.
//!
//! Values from a size on bypass the log (`LogBypass::least`): their pages are written through when many have come together, and
//! the rest before the transaction is committed or prepared. What a crash leaves before that is rolled back, hollow or not.
//!
//! The first mini-transaction appends the record, the others write it anew in its place. It counts for the
//! transaction when the value is written or has failed: nothing else is appended meanwhile.

use super::{Txn, TxnState};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::tree::overflow::{self, Placed, ValueLogging, WrittenFor};
use crate::tree::space::Space;
use crate::txn::shared::Core;
use crate::undo::record::{self, Body, Record};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::cancel::Cancel;
use terrace_log::Urgency;
use terrace_tier::page::PageId;

/// More than a record of a large value takes.
const RECORD: usize = 64;
/// The most pages of large values that are written through together; with little memory a sixteenth.
const TOGETHER: usize = 256;
/// Large values bypass the log from this size on, in bytes, by default: below, a sync of the volume costs more than it saves.
const BYPASS_LEAST: u64 = 64 << 10;

/// What bypasses the log (`terrace_tier::volume::bypass`): pages of trees built in bulk, and large values.
pub struct LogBypass {
    pub on: AtomicBool,
    /// Values of at least this many bytes do.
    pub least: AtomicU64,
}

impl Default for LogBypass {
    fn default() -> LogBypass {
        LogBypass { on: AtomicBool::new(true), least: AtomicU64::new(BYPASS_LEAST) }
    }
}

impl Core {
    /// Whether a value of `bytes` bytes bypasses the log.
    pub(crate) fn passes_by_log(&self, len: usize) -> bool {
        self.bypass.on.load(Ordering::Relaxed) && len as u64 >= self.bypass.least.load(Ordering::Relaxed)
    }

    /// Makes pages of large values durable whose bytes are in no log. Waits; no latch is held.
    pub(crate) fn write_through(&self, pages: &mut Vec<PageId>) -> Result<()> {
        self.write_through_until(pages, None)
    }

    /// The same for work that completes whatever happens: limits of tables yield when `killed` is asked.
    pub(super) fn write_through_until(&self, pages: &mut Vec<PageId>, killed: Option<&Cancel>) -> Result<()> {
        if !pages.is_empty() && !crate::planted::COMMITTED_HOLLOW.on() {
            let patience = self.config.log_wait_timeout_ms.saturating_mul(1_000_000);
            self.storage.flusher.write_through_until(pages, patience, killed)?;
        }
        pages.clear();
        Ok(())
    }

    /// The same, if there are many.
    pub(crate) fn write_many_through(&self, pages: &mut Vec<PageId>) -> Result<()> {
        let many = TOGETHER.min(self.storage.pages.pool().frames() / 16);
        if pages.len() < many { Ok(()) } else { self.write_through(pages) }
    }
}

impl Txn {
    /// Writes a row, or a part of one, into pages of its own, in the table's primary space. If it fails, what is written
    /// is undone with the row operation.
    pub(super) fn write_large(
        &self,
        state: &mut TxnState,
        table: &Table,
        space: &Space,
        bytes: &[u8],
        by: WrittenFor,
    ) -> Result<Placed> {
        let (txn, before) = (state.id, state.last);
        let mut way = match self.core.passes_by_log(bytes.len()) {
            true => ValueLogging::Past(&mut state.unwritten),
            false => ValueLogging::Logged,
        };
        let Some(stream) = &mut state.stream else {
            return Err(Error::Invalid("the transaction has ended".into()));
        };
        self.core.streams.make_room(stream, RECORD, Urgency::Normal)?;
        let mut noted = 0;
        let written =
            overflow::write_noted(space, bytes, &mut way, (by, Urgency::Normal), &mut |mtr, large| {
                if crate::planted::LARGE_NOT_NOTED.on() {
                    return;
                }
                let bytes =
                    record::encode(&Record { txn, before, body: Body::Large { table: table.id, large } });
                stream.append(mtr, &bytes);
                noted = bytes.len();
            });
        if noted > 0 {
            state.appended(noted);
        }
        let written = written?;
        self.core.write_many_through(&mut state.unwritten)?;
        Ok(written)
    }
}
