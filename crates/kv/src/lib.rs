//! `terrace kv`: a Redis-compatible server whose data is larger and cheaper than memory.
//!
//! | module | holds |
//! | --- | --- |
//! | `resp` | the protocol |
//! | `net` | sockets and the event loop |
//! | `dispatch` | from a request to its reply |
//! | `command` | the table of commands, a file a family |
//! | `value` | a file a type |
//! | `rdb` | the serialised form of values: files, `DUMP`, storage |
//! | `config` | settings by Redis's names |
//! | `keyspace` | databases, dictionary, expiry |
//! | `pubsub` | channels and their subscribers |
//! | `storage` | where values live that are not in memory: the trait and its adapters |
//! | `attached` | the storage tier attached to the databases |
//! | `tiering` | what moves between memory and storage, and when |
//! | `client`, `server` | what commands know of clients and of the server; snapshot files, signals |

#![deny(clippy::disallowed_methods)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod attached;
pub mod client;
pub mod command;
pub mod config;
pub mod dispatch;
pub mod keyspace;
pub mod memory;
pub mod net;
#[doc(hidden)]
pub mod planted;
pub mod pubsub;
pub mod rdb;
pub mod resp;
pub mod run;
pub mod script;
pub mod server;
pub mod slowlog;
pub mod storage;
pub mod tiering;
pub mod value;
