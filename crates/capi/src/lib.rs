//! The C interface of the embedded store.
//!
//! `include/terrace.h` is written by hand and holds every function's contract; `tests/header.rs` compares its declarations with those here. Names start with
//! `terrace_db_`, so that nothing collides with the interface of the MariaDB handler (`crates/sql`).
//!
//! * A handle is a `Box` whose pointer the caller owns; each kind has one function that frees it. A null handle is an error, or nothing to free.
//! * Bytes that are passed in are borrowed for the call. Values go into a buffer that the caller owns; keys and values of a range are borrowed until its next step.
//! * Every function that can fail returns a code (`error`); the text is the thread's until its next error.
//! * Nothing unwinds across: a panic becomes `TERRACE_DB_PANIC`.
//!
//! | file | holds |
//! | --- | --- |
//! | `error` | codes, the last error of a thread, the guard around each function |
//! | `handle` | pointers, bytes and buffers: what is checked before they are used |
//! | `db`, `tree`, `txn`, `snapshot`, `batch`, `range` | the functions, by handle |
//!
//! Not here: anything that crate `terrace` can do.

#![warn(missing_docs)]

mod batch;
mod db;
mod error;
mod handle;
mod range;
mod snapshot;
mod tree;
mod txn;

pub use batch::*;
pub use db::*;
pub use error::*;
pub use handle::*;
pub use range::*;
pub use snapshot::*;
pub use tree::*;
pub use txn::*;
