//! The C ABI of the engine, for the MariaDB handler and for other programs in C.
//!
//! What crosses the border
//! * Handles are opaque pointers. A handle is freed by its own `_close` (or `_end`) function, once.
//!   A table or transaction handle keeps the engine alive; handles may be freed in any order.
//! * Structs that may grow start with `size`, set by the caller to the struct's size in the header it was
//!   compiled against. A size this library doesn't know is [`TERRACE_INVALID`](error::Code::Invalid).
//! * Buffers passed in are borrowed for the call. Buffers handed out say whose they are and until when they
//!   live; nothing handed out is freed by the caller, except handles.
//! * Every function that can fail returns a [`Code`](error::Code) as `int32_t`: 0 is done, 1 is "no such row", the
//!   rest are errors, whose text the thread that got it reads with `terrace_error_message`.
//! * Nothing unwinds across: a panic becomes `TERRACE_PANIC`, and the engine goes on or is poisoned by its own rules.
//!
//! Threads: engine and table handles may be shared by threads. A transaction and its cursors belong to one thread at
//! a time, any thread; only `terrace_txn_cancel` may be called beside.
//!
//! `include/terrace.h` is generated from this crate (`tests/header.rs` writes and checks it).
//!
//! Not here: SQL. Keys and rows are bytes; the handler in `mariadb/` makes them.

mod alter;
mod bytes;
mod cancel;
mod catalog;
mod copy;
mod cursor;
mod engine;
mod error;
mod load;
mod observe;
mod row;
mod seen;
mod transaction;

pub use alter::*;
pub use bytes::{Bytes, TerraceBytes};
pub use cancel::*;
pub use catalog::*;
pub use copy::*;
pub use cursor::*;
pub use engine::rules::*;
pub use engine::*;
pub use error::*;
pub use load::*;
pub use observe::*;
pub use row::*;
pub use seen::*;
pub use transaction::*;
