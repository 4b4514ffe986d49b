//! Recovery: from the superblock's checkpoint to the end of the log.
//!
//! 1. `scan` reads each partition from its start, block after block, until one is not the next of its
//!    sequence, and gives the records whose writer epoch owned their GLSN.
//! 2. `cut` merges them by GLSN, mini-transaction by mini-transaction, up to the first gap. If that end
//!    lies below a horizon that some intact block or the superblock attests, acknowledged records are
//!    missing: `Corrupt`. (CloudJump §4.2: the maximum recoverable GLSN.)
//! 3. Records of the map are applied to it at once, to the end. All others are kept by page
//!    (`pending`) and applied when the page is first read, or by the background pass. So a start reads no
//!    data page, and needs no object store.
//!
//! The log files are synced before they are read: what a killed process wrote but never synced may
//! be read now, and must then be as durable as what will be built upon it. Before the first append of
//! the new epoch, the superblock says durably where the old one was cut; until then recovery has
//! changed nothing and may be repeated.
//!
//! A block that is not part of the prefix is written over or, if it lies further ahead, is told from
//! the new writer's by its older epoch.

pub mod cut;
mod packed;
pub mod pending;
pub mod scan;
pub mod worker;

#[cfg(test)]
mod tests;
