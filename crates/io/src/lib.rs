//! How bytes move: the seams through which everything else touches the world.
//!
//! Five seams: [`disk`] (files on one device), [`store`] (objects), [`clock`], [`random`] and
//! [`sched`] (waiting, waking and background workers); [`cancel`] ends waits, [`observe`] shows them, and [`lock`] those for a lock. The rest of the workspace takes them as
//! trait objects, so the same engine runs on real devices, on emulated tiers and inside a
//! deterministic simulation.
//!
//! Not here: what the bytes mean.

pub mod cancel;
pub mod clock;
pub mod disk;
pub mod emulate;
pub mod lock;
pub mod machine;
pub mod memory;
#[cfg(feature = "object-store")]
pub mod object;
pub mod observe;
pub mod planted;
pub mod random;
pub mod real;
pub mod sched;
pub mod split;
pub mod stats;
pub mod store;
pub mod traffic;
pub mod wait;

mod share;
pub use memory::AlignedBuf;

use std::sync::Arc;

/// The unit in which devices are addressed, in bytes: offsets, lengths and memory are aligned to it.
pub const SECTOR: usize = 4096;

/// The part of the world that one engine sees besides its disks and its store.
#[derive(Clone)]
pub struct World {
    pub clock: Arc<dyn clock::Clock>,
    pub random: Arc<dyn random::Random>,
    pub sched: Arc<dyn sched::Sched>,
}
