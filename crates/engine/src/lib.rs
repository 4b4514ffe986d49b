//! What a key is, what a commit is: trees, transactions, log, recovery.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod build;
pub mod calendar;
pub mod config;
pub mod cursor;
pub mod engine;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod lock;
pub mod offline;
pub mod planted;
pub mod row;
pub mod storage;
pub mod superblock;
pub mod table;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod txn;
pub mod undo;

pub use build::load::Load;
pub use build::{Alteration, NewIndex, Side};
pub use config::Config;
pub use cursor::{Account, Buffers, Cursor, PLENTY, RowLock, Seek};
pub use engine::rules::{Instead, RuleInfo, WritesSeen};
pub use engine::{Engine, SpaceInfo};
pub use error::{Error, Kind, Result};
pub use lock::Isolation;
pub use row::off_page::{Hole, Row, Span};
pub use storage::Parts;
pub use storage::resize::Size;
pub use storage::trouble::{Severity, Trouble};
pub use table::{Estimate, IndexDef, Table, TableDef};
pub use terrace_tier::memory::pool::Access;
pub use txn::cancel::{Cancel, Scope as CancelScope};
pub use txn::rows::off_page::PartFilter;
pub use txn::rows::{Entry, KeyChange, TryGet};
pub use txn::{Lock, Savepoint, Ticket, Txn};
