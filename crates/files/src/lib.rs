//! `terrace files`: a file cache over an object store, for the processes of one machine.
//!
//! | module | holds |
//! | --- | --- |
//! | `run` | starting and stopping the daemon |
//! | `session` | clients: sockets, requests, leases |
//! | `read` | the workers that carry out what the catalogue decides |
//! | `write` | a file that is written |
//! | `groups` | files that are written together: what is kept of them until the commit |
//! | `pins` | files that are not evicted |
//! | `catalogue` | the cached files, their versions, and the reads that wait for them: pure |
//! | `memory` | the arena that clients map, and which bytes of it are free |
//! | `flash` | the cache of blocks on local flash |
//! | `objects` | memory objects: results that programs hand to each other |
//! | `packing` | small files, packed by directory into blocks of that cache |
//! | `peers` | other daemons that cache the same store: the owner of each file, and the protocol between them |
//! | `stores` | the object store, with its limits |
//! | `wire` | the protocol, for both ends |
//! | `unix` | sockets, and descriptors passed through them |
//! | `client` | the client for Rust |
//! | `config` | settings, and how memory is divided |
//!
//! A read: `session::serve` decodes it; `catalogue::Catalogue::begin` leases what is in memory, or asks for a flight; `read::fetch` makes it,
//! from flash or the store, into the arena; `catalogue` answers all that waited; `session` sends the leases.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod catalogue;
pub mod client;
pub mod config;
pub mod flash;
pub mod groups;
pub mod memory;
pub mod objects;
pub mod packing;
pub mod peers;
pub mod pins;
pub mod planted;
pub mod read;
pub mod run;
pub mod session;
pub mod stores;
mod unix;
pub mod wire;
pub mod write;
