//! The S3 endpoint of `terrace files`: programs that speak S3 use the cache without a change.
//!
//! It serves one bucket, the daemon's store, under the bucket's own name. What can be answered from the cache is: whole objects and ranges,
//! HEAD, conditional requests, listings. Everything else that is allowed is sent to the store as it is, signed with the daemon's keys, and its
//! answer is passed on as it is; so what a client sees is what the store would tell it, errors and headers too.
//!
//! A read's way: `door` (signatures are checked by the `s3s` crate) → `asked` (what is it?) → `door::object` (the object's headers, from `known` or by a
//! HEAD; then the bytes, as a client of the daemon like all others) → the client. A write's way: `door` → `asked` → `door::pass` → the store; then the cache
//! is told what changed, before the client has the answer.
//!
//! What is kept here beside the daemon's cache: the headers of objects (`known`) and listings (`listings`), bounded, as fresh as the daemon's
//! `--freshness` says. Both are told of each write through the daemon, whichever front it came by.
//!
//! | module | holds |
//! | --- | --- |
//! | `door` | listening, connections, signatures, which part answers: `door::object` GET and HEAD, `door::listing` listings, `door::pass` what goes to the store |
//! | `keys` | the keys that clients sign with |
//! | `asked` | what a request asks for: pure |
//! | `conditions` | conditional requests and ranges: pure |
//! | `known` | headers of objects: pure |
//! | `listings` | listings that are kept: pure |
//! | `figures` | counters |
//!
//! Limits: requests at a time, each with a few buffers; connections; bytes of headers and of listings. All are a part of the daemon's memory
//! (`terrace_files::config::Shares::front`).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod asked;
mod conditions;
mod door;
mod figures;
mod keys;
mod known;
mod listings;

pub use door::{Door, Settings};
pub use keys::{Keys, read as read_keys};
