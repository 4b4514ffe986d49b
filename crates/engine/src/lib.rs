//! What a key is, what a commit is: trees, transactions, log, recovery.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod adopt;
pub mod apart;
pub mod btree;
pub mod build;
pub mod catalog;
pub mod check;
pub mod checkpoint;
pub mod cold;
pub mod config;
pub mod copy;
pub mod core;
pub mod counted;
mod create;
pub mod engine;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod give_way;
mod going;
mod growth;
pub mod kept_curve;
pub mod lock;
pub mod log;
pub mod look;
pub mod metrics;
mod number;
pub mod pace;
pub mod planted;
pub mod recovery;
pub mod requests;
pub mod resize;
pub mod row;
pub mod row_cursor;
pub mod rules;
pub mod seen;
pub mod space;
pub mod storage;
pub mod superblock;
pub mod table;
mod temporary;
#[cfg(test)]
mod testing;
pub mod trouble;
pub mod txn;
pub mod undo;
pub mod version;

pub use apart::{Hole, Row, Span};
pub use build::load::Load;
pub use build::{Alteration, NewIndex, Side};
pub use config::Config;
pub use engine::{Engine, SpaceInfo};
pub use error::{Error, Kind, Result};
pub use resize::Size;
pub use row_cursor::{Account, Buffers, Cursor, PLENTY, RowLock, Seek};
pub use rules::{Instead, RuleInfo, WritesSeen};
pub use storage::Parts;
pub use table::{Estimate, IndexDef, Table, TableDef};
pub use terrace_tier::memory::pool::Access;
pub use trouble::{Severity, Trouble};
pub use txn::cancel::{Cancel, Scope as CancelScope};
pub use txn::rows::apart::PartFilter;
pub use txn::rows::{Entry, KeyChange, TryGet};
pub use txn::{Isolation, Lock, Savepoint, Ticket, Txn};
