//! Undo: how to get back, for rollback, for readers of the past, and for purge.
//!
//! Undo records stand in **streams**. A stream is a chain of undo pages in the space `UNDO`, used by one
//! transaction at a time; the next transaction that takes the stream goes on behind the last one. A
//! transaction's records follow its `Begin` record, which also holds its state. The directory (page 1
//! of the space) names each stream's oldest page and where in it the oldest record is that may still
//! be needed.
//!
//! A record is written in the mini-transaction of the change that it undoes. Undoing it takes it off
//! the stream's end, again in one mini-transaction with the change. So what stands in a stream
//! happened, and happened once.
//!
//! Rollback reads backward (each record names the one before it), purge and recovery forward.
//!
//! An undo page, after the header: `next page u32 · page before u32 · end of records u16 · 0 u16`, then from
//! byte 80 the records (`record`).
//!
//! Beside the usual path:
//!
//! * Undo of an update stores the bytes of the old row that differ from the new one; readers rebuild the old row from the new one (`shared.rs`,
//!   `record.rs`, `txn/change.rs`: `Shared`, `Change::before`).
//! * A transaction that writes has an undo stream of its own until it ends. The last pages of a few unused streams stay in memory (`stream.rs`:
//!   `Streams::take`, `give_back`).

pub mod chains;
pub mod record;
pub mod shared;
pub mod stream;
