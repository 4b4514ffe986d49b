//! Planted bugs of the log; see [`terrace_io::planted`].

pub use terrace_io::planted::Switch;

/// A page is written when its own log partition is durable, not the global horizon.
pub static OWN_HORIZON_ONLY: Switch = Switch::new();
/// Commits are acknowledged before the log is synced.
pub static ACK_BEFORE_SYNC: Switch = Switch::new();
/// Recovery does not cut at the end of a mini-transaction.
pub static HALF_RANGE_KEPT: Switch = Switch::new();
/// A sync does not pad: the next write goes on in a block that holds acknowledged records.
pub static BLOCK_REWRITTEN: Switch = Switch::new();
/// A log that ends below what was acknowledged is taken for whole.
pub static ATTESTED_IGNORED: Switch = Switch::new();
/// A record of an epoch that did not own its place counts.
pub static EPOCH_IGNORED: Switch = Switch::new();
/// Blocks that stay for a reader of the log are freed with the checkpoint.
pub static HOLD_IGNORED: Switch = Switch::new();
