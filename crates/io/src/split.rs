//! Split: a read that several devices can serve goes to the one that serves it best now.
//!
//! A [`Router`] knows up to [`DEVICES_MAX`] devices that may hold the same bytes (a copy on flash, the slot on the volume, a peer,
//! the object store), the nearest first. For each request it is told which of them have the bytes, and it names one. The caller
//! reads there, and says how it went. The router never touches a device, a clock or a thread: time is passed in.
//!
//! Two halves. The *fast half* ([`Router::route`], [`Router::finished`]) is a few atomic operations: it applies the current
//! [`plan::Plan`] to the requests in flight. It takes no lock and allocates nothing. What changes with each request is kept for
//! each lane (a thread or a core); only the number of requests in flight is shared by all. The *slow half* is the policy
//! ([`policy::Governor`]), a pure state machine: once a period it turns what the devices did ([`meter::Sample`]) into the next
//! plan. The first request after the period's end runs it, so that no thread is needed.
//!
//! Health stands before every policy ([`health`]): a device that fails several requests in a row, or lets one exceed its bound, is
//! suspect. Suspect devices get no requests, only probes, whose answers no reader waits for, until they answer again.
//!
//! Invariants
//! * A route changes where bytes are read, never which bytes: the caller checks what it got, and on a failed or stale copy asks
//!   [`Router::fall_back`] for the next device.
//! * A request that any device can serve always gets a device, also if all are suspect.
//! * A device that bills by request gets no hits unless it has a weight. If it alone has the bytes, it is used.
//! * Every device that could serve is measured again within [`health::REMEMBERED`] as long as requests come.
//!
//! Beside it: [`experiments`] are the measurements of `terrace bench split`, [`profile`] is what NetCAS measures beforehand, [`model`] simulates devices, [`reader`] is a plain block cache over
//! a router, [`remote`] a block server over TCP with shaped bandwidth.
//!
//! Not here: what bytes mean, and which pages have several copies (`terrace_tier::read::split`). Files are not connected yet: see docs/split.md.

pub mod diffuse;
pub mod experiments;
pub mod health;
pub mod meter;
pub mod model;
pub mod plan;
pub mod planted;
pub mod policy;
pub mod profile;
pub mod reader;
pub mod remote;
pub mod router;

pub use policy::Policy;
pub use router::{Device, Outcome, Request, Route, Router, Settings};

/// Devices that one router may have.
pub const DEVICES_MAX: usize = 4;

/// One value for each device.
pub type PerDevice<T> = [T; DEVICES_MAX];

/// A set of devices, a bit each.
pub type Mask = u8;

/// The devices of a set, in order.
pub fn members(mask: Mask) -> impl Iterator<Item = usize> {
    (0..DEVICES_MAX).filter(move |device| mask & 1 << device != 0)
}
