//! Planted bugs of the split; see [`crate::planted`].

pub use crate::planted::Switch;

/// A reader serves what it read without a look at its tag.
pub static TAG_NOT_CHECKED: Switch = Switch::new();
/// A device that gets no requests is not probed.
pub static IDLE_NOT_PROBED: Switch = Switch::new();
/// A limit falls also in a period in which the device was not filled to it.
pub static DIP_TAKEN_FOR_CONGESTION: Switch = Switch::new();
/// A device that hangs keeps its share of the requests.
pub static HANG_NOT_SUSPECTED: Switch = Switch::new();
/// A device keeps its requests although the others deliver more without it.
pub static BACKEND_NEVER_CLOSED: Switch = Switch::new();
