//! Planted bugs of the engine; see `terrace_tier::planted`.

use terrace_tier::planted::Switch;

/// Commits are acknowledged before the log is synced.
pub static ACK_BEFORE_SYNC: Switch = Switch::new();
/// Recovery does not cut at the end of a mini-transaction.
pub static HALF_RANGE_KEPT: Switch = Switch::new();
/// The checkpoint ignores redo that is not applied yet.
pub static PENDING_REDO_PASSED: Switch = Switch::new();
/// A sync does not pad: the next write goes on in a block that holds acknowledged records.
pub static BLOCK_REWRITTEN: Switch = Switch::new();
