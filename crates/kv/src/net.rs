//! Sockets: the listener, connections, and the event loops that drive them.
//!
//! | file | holds |
//! | --- | --- |
//! | `connection` | a socket with its requests and unsent output |
//! | `sockets` | all sockets of a loop: waiting, accepting, reading, writing |
//! | `event_loop` | reads, takes the lock of the core once, executes, writes |
//! | `executing` | from what was parsed to what is sent, under the lock of the core |
//! | `tick` | what the first loop does from time to time |
//! | `elastic` | how many loops there are: a pure policy |
//! | `crew` | giving connections to loops that come and go |
//! | `tls` | settings and sockets of TLS |
//! | `busy` | answering clients while a script runs for long |

pub mod busy;
pub mod connection;
pub mod crew;
pub mod elastic;
pub mod event_loop;
mod executing;
pub mod sockets;
mod tick;
pub mod tls;
