//! Where a page lives: buffer pool → BPE → object buffer → objects. Rooms, from a request down: `memory`, `read`, `flash`, `volume`,
//! `objects`; `limits` applies to all of them.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod ablation;
pub mod address;
pub mod epoch;
pub mod flash;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod limits;
pub mod memory;
pub mod objects;
pub mod page;
pub mod planted;
pub mod read;
pub mod redo;
mod stable_array;
pub(crate) mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod volume;
