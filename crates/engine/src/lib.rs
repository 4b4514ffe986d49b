//! What a key is, what a commit is: trees, transactions, log, recovery.

pub mod btree;
pub mod checkpoint;
pub mod config;
mod create;
pub mod error;
pub mod log;
pub mod planted;
pub mod recovery;
pub mod space;
pub mod storage;
pub mod superblock;

pub use config::Config;
pub use error::{Error, Kind, Result};
pub use storage::Parts;
