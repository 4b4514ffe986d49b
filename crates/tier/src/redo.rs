//! Redo: what a mini-transaction did to one page, as operations on its bytes.
//!
//! Operations are physical and know nothing of trees, so recovery works below every structure:
//! `init` (a formatted, empty page), `write` bytes, `shift` bytes within the page, `fill`. They are
//! applied in order to an image whose LSN is below the record's; the page then carries the record's
//! end LSN, so applying twice changes nothing.
//!
//! Encoding, little-endian: a kind byte, then
//! `INIT kind u8, level u8` · `WRITE at u16, len u16, bytes` · `SHIFT to u16, from u16, len u16` ·
//! `FILL at u16, len u16, byte u8`.
//!
//! [`Redo`] is the log as the tier sees it; the engine implements it.

use crate::page::{self, Glsn, PAGE_HEADER, PAGE_SIZE, PageId, PageKind, PageRef};
use std::ops::Deref;

const INIT: u8 = 1;
const WRITE: u8 = 2;
const SHIFT: u8 = 3;
const FILL: u8 = 4;

/// The ops of one page in one mini-transaction.
pub struct PageRedo<'a> {
    pub id: PageId,
    pub ops: &'a [u8],
}

/// The range of the global log that a mini-transaction took: `first..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LsnRange {
    pub first: Glsn,
    pub end: Glsn,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// A log write or sync failed earlier: nothing can be made durable until reopened.
    #[error("the log stopped: {0}")]
    Poisoned(String),
    #[error("no log space: the log of {capacity} bytes is full up to the checkpoint at {checkpoint}")]
    Full { capacity: u64, checkpoint: Glsn },
    /// See [`terrace_io::cancel`].
    #[error("cancelled")]
    Cancelled,
}

/// Room in the log, taken before any latch. Dropping it gives the rest back.
pub struct LogRoom {
    pub bytes: u64,
    pub(crate) giver: Option<std::sync::Arc<dyn Redo>>,
}

impl LogRoom {
    pub fn new(giver: std::sync::Arc<dyn Redo>, bytes: u64) -> LogRoom {
        LogRoom { bytes, giver: Some(giver) }
    }
}

impl Drop for LogRoom {
    fn drop(&mut self) {
        if let Some(giver) = self.giver.take() {
            giver.give_back(self.bytes);
        }
    }
}

/// Who asks for log space. A reserve remains for those who free space or finish what was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// New work: waits first, fails first.
    Normal,
    /// Rollback, commit, purge: finishes what was begun. May use a reserve.
    Reserve,
    /// Flush, sink, checkpoint: frees log space. May use the last of it.
    Checkpoint,
}

pub trait Redo: Send + Sync {
    /// Waits until `bytes` of log space and log buffer are free, and takes them. Never called under
    /// a latch. `bytes` is an upper bound of the mini-transaction's records with their headers
    /// ([`record_bound`]).
    fn reserve(self: std::sync::Arc<Self>, bytes: u64, urgency: Urgency) -> Result<LogRoom, LogError>;
    fn give_back(&self, bytes: u64);
    /// Appends one mini-transaction, all pages or none, called while all its exclusive latches are
    /// held; never waits for I/O. The records must fit `room`.
    ///
    /// `stamp` is called with the range before any record can become durable-and-checkpointed, so
    /// that pages carry their LSN and dirty state before the checkpoint can pass them.
    fn append(&self, room: &mut LogRoom, pages: &[PageRedo<'_>], stamp: &mut dyn FnMut(LsnRange))
    -> LsnRange;
    /// The global durable horizon: every record below it is on the device.
    fn durable(&self) -> Glsn;
    /// The end of the log as appended.
    fn appended(&self) -> Glsn;
    /// Waits until the horizon is at or past `upto`; writes itself when nobody else does. Never
    /// called under a latch.
    fn make_durable(&self, upto: Glsn) -> Result<(), LogError>;
    /// Planted bug only: looks at these pages' own partitions, not at the global horizon.
    fn make_durable_own(&self, pages: &[PageId], upto: Glsn) -> Result<(), LogError> {
        let _ = pages;
        self.make_durable(upto)
    }
}

/// Log bytes that a record of `ops_len` bytes of ops may take, headers included.
pub const fn record_bound(ops_len: usize) -> u64 {
    ops_len as u64 + 64
}

/// A page under exclusive latch whose changes are recorded as they are made.
pub struct PageMut<'a> {
    bytes: &'a mut [u8],
    ops: &'a mut Vec<u8>,
}

impl<'a> PageMut<'a> {
    pub fn new(bytes: &'a mut [u8], ops: &'a mut Vec<u8>) -> PageMut<'a> {
        assert_eq!(bytes.len(), PAGE_SIZE);
        PageMut { bytes, ops }
    }

    pub fn get(&self) -> PageRef<'_> {
        PageRef::new(self.bytes)
    }

    /// Makes the page an empty one of this kind.
    pub fn init(&mut self, id: PageId, kind: PageKind, level: u8) {
        let lsn = PageRef::new(self.bytes).lsn();
        page::format(self.bytes, id, kind, level);
        page::set_lsn(self.bytes, lsn);
        self.ops.clear();
        self.ops.extend_from_slice(&[INIT, kind as u8, level]);
    }

    /// Panics if the range leaves the page or touches checksum, name or LSN.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        assert!(at >= page::at::FLAGS && at + data.len() <= PAGE_SIZE, "write of {} at {at}", data.len());
        if data.is_empty() {
            return;
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
        let ([a, b], [c, d]) = ((at as u16).to_le_bytes(), (data.len() as u16).to_le_bytes());
        self.ops.extend_from_slice(&[WRITE, a, b, c, d]);
        self.ops.extend_from_slice(data);
    }

    /// As `write`, past the log: who redoes the page's changes does not get this. For what nothing durable counts on before the
    /// page's image is durable. The mini-transaction changes the page in other ways, too, so it is dirty.
    pub fn write_past_log(&mut self, at: usize, data: &[u8]) {
        assert!(at >= page::at::FLAGS && at + data.len() <= PAGE_SIZE, "write of {} at {at}", data.len());
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    pub fn write_u8(&mut self, at: usize, value: u8) {
        self.write(at, &[value]);
    }
    pub fn write_u16(&mut self, at: usize, value: u16) {
        self.write(at, &value.to_le_bytes());
    }
    pub fn write_u32(&mut self, at: usize, value: u32) {
        self.write(at, &value.to_le_bytes());
    }
    pub fn write_u64(&mut self, at: usize, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    /// Copies `len` bytes within the page, as `memmove` does.
    pub fn shift(&mut self, to: usize, from: usize, len: usize) {
        assert!(to >= PAGE_HEADER && from >= PAGE_HEADER && to + len <= PAGE_SIZE && from + len <= PAGE_SIZE);
        if len == 0 || to == from {
            return;
        }
        self.bytes.copy_within(from..from + len, to);
        self.ops.push(SHIFT);
        for v in [to, from, len] {
            self.ops.extend_from_slice(&(v as u16).to_le_bytes());
        }
    }

    pub fn fill(&mut self, at: usize, len: usize, byte: u8) {
        assert!(at >= PAGE_HEADER && at + len <= PAGE_SIZE);
        if len == 0 {
            return;
        }
        self.bytes[at..at + len].fill(byte);
        self.ops.push(FILL);
        self.ops.extend_from_slice(&(at as u16).to_le_bytes());
        self.ops.extend_from_slice(&(len as u16).to_le_bytes());
        self.ops.push(byte);
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// Ops that do not decode, or that leave the page: the log is corrupt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("redo of page {id}: bad operation at byte {at}")]
pub struct BadRedo {
    pub id: PageId,
    pub at: usize,
}

/// Whether the ops start by making the page anew, so that no older image is needed.
pub fn starts_with_init(ops: &[u8]) -> bool {
    ops.first() == Some(&INIT)
}

/// Applies the ops of a record that ends at `end` to an image. Does nothing if the image has them.
pub fn apply(bytes: &mut [u8], id: PageId, ops: &[u8], end: Glsn) -> Result<(), BadRedo> {
    if PageRef::new(bytes).lsn() >= end && !crate::planted::REDO_APPLIED_TWICE.on() {
        return Ok(());
    }
    let mut at = 0;
    while at < ops.len() {
        at += apply_one(bytes, id, &ops[at..]).ok_or(BadRedo { id, at })?;
    }
    page::set_lsn(bytes, end);
    Ok(())
}

/// Applies the first of `ops`; its encoded length, or None if it is not valid.
fn apply_one(bytes: &mut [u8], id: PageId, ops: &[u8]) -> Option<usize> {
    let u16_at = |i: usize| ops.get(i..i + 2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    match *ops.first()? {
        INIT => {
            let kind = kind_of(*ops.get(1)?)?;
            page::format(bytes, id, kind, *ops.get(2)?);
            Some(3)
        }
        WRITE => {
            let (to, len) = (u16_at(1)?, u16_at(3)?);
            let data = ops.get(5..5 + len)?;
            if to < page::at::FLAGS {
                return None;
            }
            bytes.get_mut(to..to + len)?.copy_from_slice(data);
            Some(5 + len)
        }
        SHIFT => {
            let (to, from, len) = (u16_at(1)?, u16_at(3)?, u16_at(5)?);
            if to < PAGE_HEADER || to + len > PAGE_SIZE || from + len > PAGE_SIZE {
                return None;
            }
            bytes.copy_within(from..from + len, to);
            Some(7)
        }
        FILL => {
            let (to, len) = (u16_at(1)?, u16_at(3)?);
            let byte = *ops.get(5)?;
            if to < PAGE_HEADER {
                return None;
            }
            bytes.get_mut(to..to + len)?.fill(byte);
            Some(6)
        }
        _ => None,
    }
}

fn kind_of(byte: u8) -> Option<PageKind> {
    use PageKind::*;
    [Free, Leaf, Inner, Overflow, SpaceHeader, Undo, System, Map, Bits].into_iter().find(|k| *k as u8 == byte)
}
