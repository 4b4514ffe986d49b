//! Where a page lives: buffer pool → BPE → object buffer → objects.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod admission;
pub mod below;
pub mod bpe;
pub mod by_space;
pub mod bypass;
pub mod collect;
pub mod evict;
pub mod fence;
pub mod flush;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod ghost;
mod growing;
mod huge;
pub mod map;
pub mod meter;
pub mod misses;
pub mod mtr;
pub mod object;
pub mod object_buffer;
pub mod page;
pub mod pages;
pub mod path;
pub mod planted;
pub mod pool;
pub mod prefetch;
mod queues;
pub mod quota;
pub mod redo;
pub mod sink;
pub(crate) mod sync;
pub mod temporary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod visits;
pub mod without;
pub mod write_policy;
