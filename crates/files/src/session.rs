//! Clients: their sockets, their requests and what they hold.
//!
//! One thread serves all of them. A turn: wait for sockets and workers; read and decode; lock the catalogue once, for the leases that ended
//! and the reads that were asked for; write the answers. What needs flash or the store is a worker's, and its answer comes in a later turn.
//!
//! A client holds leases, objects, files that it writes, groups of them, and requests without an answer. All end with its connection: leases are
//! released, writes and groups aborted, answers that come too late are dropped and their leases released.
//!
//! Limits. Clients: the next is told so and closed. Requests of a client without an answer: [`REQUESTS_MAX`]; the client is then not read.
//! Answers that a client does not take: [`UNSENT_MAX`] bytes; it is then not read either. Bytes leased by one client: half of the arena.
//!
//! Not here: what is cached (`catalogue`), the format of frames (`wire`).

mod batch;
mod client;
mod commit;
mod event_loop;
mod objects;
mod pin;
mod serve;
mod status;

pub use event_loop::EventLoop;

/// Requests of a client that wait for an answer.
const REQUESTS_MAX: usize = 1024;
/// Bytes of answers that a client has not taken.
const UNSENT_MAX: usize = 4 << 20;
/// Files that a client writes at a time.
const WRITERS_MAX: usize = 256;
/// Entries of one listing.
const LISTED_MAX: usize = 1_000_000;
