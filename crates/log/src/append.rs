//! The log as its users see it ([`Redo`]): room is reserved, a mini-transaction is appended, durability is waited for. [`Log`](crate::Log) implements
//! it; tests have others.

use crate::page_id::{Glsn, PageId};

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

/// Log space, reserved before any latch. Dropping it returns the unused rest.
pub struct LogRoom {
    pub bytes: u64,
    giver: Option<std::sync::Arc<dyn Redo>>,
}

impl LogRoom {
    pub fn new(giver: std::sync::Arc<dyn Redo>, bytes: u64) -> LogRoom {
        LogRoom { bytes, giver: Some(giver) }
    }

    /// Room in a log that is never full: nothing is returned.
    pub fn unlimited(bytes: u64) -> LogRoom {
        LogRoom { bytes, giver: None }
    }
}

impl Drop for LogRoom {
    fn drop(&mut self) {
        if let Some(giver) = self.giver.take() {
            giver.give_back(self.bytes);
        }
    }
}

/// The urgency of a request for log space. A reserve is kept for work that frees space or finishes what was begun.
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
    /// The end of the appended log.
    fn appended(&self) -> Glsn;
    /// Waits until the horizon is at or past `upto`; writes the log itself if no other thread does. Never called under a latch.
    fn make_durable(&self, upto: Glsn) -> Result<(), LogError>;
    /// Waits until everything below `upto` is written to the operating system, if the log distinguishes that from durable: it
    /// survives the end of the process at once, and power loss once the horizon has passed it. Otherwise as `make_durable`.
    fn make_written(&self, upto: Glsn) -> Result<(), LogError> {
        self.make_durable(upto)
    }
    /// Planted bug only: waits for these pages' own partitions instead of the global horizon.
    fn make_durable_own(&self, pages: &[PageId], upto: Glsn) -> Result<(), LogError> {
        let _ = pages;
        self.make_durable(upto)
    }
}

/// Upper bound of the log bytes of a record with `ops_len` bytes of ops, headers included.
pub const fn record_bound(ops_len: usize) -> u64 {
    ops_len as u64 + 64
}
