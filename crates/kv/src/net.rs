//! Sockets: the listener, connections, and the event loop that drives them.
//!
//! | file | holds |
//! | --- | --- |
//! | `connection` | a socket with its requests and unsent output |
//! | `event_loop` | reads, takes the lock of the core once, executes, writes |

pub mod connection;
pub mod event_loop;
