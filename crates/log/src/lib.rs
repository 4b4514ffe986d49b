//! The redo log: what makes a commit durable, and what a start reads back. It knows pages by their ids only.
//!
//! Rooms, as a mini-transaction goes through them: `append` is the log as its users see it; `record` and `block` are its bytes; `order` gives out
//! ranges and distributes records to the rings (`partition`) within the room reserved in them (`space`); `log` puts them together and writes.
//! `recovery` reads the rings back: it scans them and finds where the log was cut. `hold` keeps blocks for a reader beside the writer (an archive).
//!
//! Not here: what the bytes of a record change (`terrace_tier::redo`), the superblock, which names the checkpoint, and applying redo to pages
//! (both `terrace_engine`).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod append;
pub mod block;
mod hold;
pub mod log;
mod order;
mod page_id;
mod partition;
pub mod planted;
pub mod record;
pub mod recovery;
mod space;
pub mod varint;

pub use append::{LogError, LogRoom, LsnRange, PageRedo, Redo, Urgency, record_bound};
pub use hold::{HoldState, MARKS_MAX, Mark};
pub use log::{Log, LogCounters, LogSetup, Promise};
pub use order::partition_of;
pub use page_id::{BLOCK_PAGES, BlockId, Glsn, PageId, SpaceId, TEMPORARY_GLSN};
pub use partition::{Batch, PartitionStart, file_name};
