//! Recovery: from the superblock's checkpoint to the end of the log.
//!
//! 1. `scan` reads each partition from its start, block after block, until one is not the next of its
//!    sequence, and keeps the records whose writer epoch owned their GLSN.
//! 2. `cut` sorts them by GLSN and finds the end of the gapless prefix, at the end of a
//!    mini-transaction. If that end lies below a horizon that some intact block or the superblock
//!    attests, acknowledged records are missing: `Corrupt`.
//! 3. Records of the map are applied to it at once, to the end. All others are kept by page
//!    (`pending`) and applied when the page is first read, or by the background pass. So a start reads no
//!    data page, and needs no object store.
//!
//! Before the first append of the new epoch, the superblock says durably where the old one was cut.

pub mod cut;
pub mod pending;
pub mod scan;

#[cfg(test)]
mod tests;
