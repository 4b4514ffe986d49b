//! Reading the log back, from the superblock's checkpoint to the end.
//!
//! 1. `scan` reads each partition from its start, block after block, until one is not the next of its
//!    sequence, and gives the records whose writer epoch owned their GLSN.
//! 2. `cut` merges them by GLSN, mini-transaction by mini-transaction, up to the first gap. If that end
//!    lies below a horizon that some intact block or the superblock attests, acknowledged records are
//!    missing: `Corrupt`. (CloudJump §4.2: the maximum recoverable GLSN.)
//!
//! `part` reads a part of the log while it is written, for an archive.
//!
//! The reader does not know the superblock: it gets what the superblock says of the log ([`LogBounds`]). What records mean is
//! the caller's.
//!
//! A block that is not part of the prefix is written over or, if it lies further ahead, is told from
//! the new writer's by its older epoch.

mod bounds;
mod cut;
mod legacy_format;
mod part;
mod scan;

pub use bounds::{LogBounds, begin_epoch, cut_of, prune};
pub use cut::{LogCut, replay};
pub use legacy_format::VERSION_OF_LOG;
pub use part::{EachRange, read_part};
pub use scan::{LogPosition, Reader};

use terrace_io::disk::DiskError;

/// Why the log cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// A log that this build does not read.
    #[error("{0}")]
    Legacy(String),
}

#[cfg(test)]
mod tests;
