//! Redo of a start: from the superblock's checkpoint to the end of the log, which `terrace_log::recovery` finds.
//!
//! Records of the map are applied to it at once, to the end. All others are kept by page
//! (`pending`) and applied when the page is first read, or by the background pass. So a start reads no
//! data page, and needs no object store.
//!
//! The log files are synced before they are read: what a killed process wrote but never synced may
//! be read now, and must then be as durable as what will be built upon it. Before the first append of
//! the new epoch, the superblock says durably where the old one was cut; until then recovery has
//! changed nothing and may be repeated.

mod packed;
pub mod pending;
pub mod worker;

#[cfg(test)]
mod tests;
