//! A simulated world: disks that lose what was not synced, a store that lies about its answers, a
//! clock that moves when no worker can run, and one thread for everything. One seed replays a run.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod clock;
pub mod disk;
mod faults;
pub mod random;
pub mod sched;
mod steps;
pub mod store;
mod world;

pub use disk::{SimDisk, Snapshot};
pub use faults::Faults;
pub use sched::SimSched;
pub use store::SimStore;
pub use world::SimWorld;
