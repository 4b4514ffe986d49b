//! What a key is, what a commit is: trees, transactions, log, recovery.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod build;
mod bulk_throttle;
pub mod catalog;
pub mod checkpoint;
pub mod cold;
pub mod config;
pub mod copy;
pub mod core;
mod create;
pub mod cursor;
mod dropped_spaces;
pub mod engine;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod info_tables;
pub mod kept_curve;
pub mod lock;
pub mod log;
pub mod metrics;
pub mod off_page;
pub mod offline;
pub mod planted;
pub mod recovery;
pub mod requests;
pub mod resize;
pub mod row;
pub mod row_counters;
pub mod rules;
mod slot_reservation;
pub mod space;
pub mod storage;
pub mod superblock;
pub mod table;
mod temporary;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod trouble;
pub mod txn;
pub mod undo;
mod varint;
pub mod version;
pub mod write_throttle;

pub use build::load::Load;
pub use build::{Alteration, NewIndex, Side};
pub use config::Config;
pub use cursor::{Account, Buffers, Cursor, PLENTY, RowLock, Seek};
pub use engine::{Engine, SpaceInfo};
pub use error::{Error, Kind, Result};
pub use off_page::{Hole, Row, Span};
pub use resize::Size;
pub use rules::{Instead, RuleInfo, WritesSeen};
pub use storage::Parts;
pub use table::{Estimate, IndexDef, Table, TableDef};
pub use terrace_tier::memory::pool::Access;
pub use trouble::{Severity, Trouble};
pub use txn::cancel::{Cancel, Scope as CancelScope};
pub use txn::rows::off_page::PartFilter;
pub use txn::rows::{Entry, KeyChange, TryGet};
pub use txn::{Isolation, Lock, Savepoint, Ticket, Txn};
