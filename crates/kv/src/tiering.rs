//! What moves between memory and storage, and when: policies and state machines without I/O and without a clock.
//!
//! The server asks before a command (is a key absent, does it wait for storage), says what the command changed, and carries out what it is told: read
//! these keys, write these rows, drop those entries. So everything here runs in a simulation (`tests/tiering_model.rs`).
//!
//! | file | holds |
//! | --- | --- |
//! | `queue` | changes on their way to storage: order per key, coalescing, transactions, failures |
//! | `fetch` | reads of storage: one a key, superseded by writes, deferred ones together |
//! | `filter` | which keys storage cannot have |
//! | `promises` | write-back: which replies wait for which record of the log |
//! | `write_policy` | write-through and write-back: when to write, whom to slow |
//! | `evict/` | which clean value to evict: LRU, LFU, S3-FIFO |
//!
//! Not here: values and their types, sockets, the storage adapters.

pub mod evict;
pub mod fetch;
pub mod filter;
pub mod promises;
pub mod queue;
pub mod write_policy;
