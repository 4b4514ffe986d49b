//! An embedded tiered store: ordered trees of bytes with transactions.
//!
//! [`Db::open`] opens a directory. A [`Tree`] maps byte keys to byte values in key order. A [`Txn`] reads a consistent snapshot and changes
//! several trees atomically; a [`Batch`] is a set of blind writes; a [`Snapshot`] only reads. Commits are durable when they return, unless the
//! caller chooses a weaker [`Durability`] or takes a [`Commit`] ticket. With an object store in its [`Config`], pages that have cooled move there, and
//! memory, flash and the volume hold what is in use.
//!
//! An event loop calls [`Tree::try_get`] and [`Db::try_write`], which never wait for I/O, locks or room: what would wait is done in the background and
//! calls back.
//!
//! ```
//! let dir = tempfile::tempdir()?;
//! let db = terrace::Db::open(dir.path())?;
//! let users = db.tree("users")?;
//! users.put("ada", "1815")?;
//! assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
//! for pair in users.prefix("a")? {
//!     let (key, value) = pair?;
//!     println!("{} {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
//! }
//! # drop(users);
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `config`, `open/` | settings; opening devices and the object store, shared by all fronts |
//! | `db`, `tree`, `txn`, `snapshot`, `batch`, `range` | one public type each |
//! | `commit` | durability |
//! | `event_loop`, `background` | calls that do not wait, and the bounded pool that waits for them |
//! | `bindings` | transactions and ranges for languages without lifetimes |
//! | `error` | errors by kind |
//! | `flash` | for fronts: a cache on flash for values of their own |
//!
//! Not here: what keys and values mean, and storage logic, which is the engine's.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod background;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod bindings;
mod config;
mod db;
mod error;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod flash;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod open;
mod read;

pub use config::Config;
pub use db::Db;
pub use db::batch::Batch;
pub use db::commit::{Commit, Durability};
pub use db::event_loop::{TryGet, TryWrite, Wait};
pub use db::range::Range;
pub use db::snapshot::Snapshot;
pub use db::tree::Tree;
pub use db::txn::{Isolation, Savepoint, Txn};
pub use error::{Error, ErrorKind, Result};
#[doc(hidden)]
pub use terrace_engine::planted;
