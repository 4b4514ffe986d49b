//! Where a page lives: buffer pool → BPE → object buffer → objects.

pub mod below;
pub mod evict;
pub mod frame;
pub mod mtr;
pub mod page;
pub mod pages;
pub mod pool;
mod queues;
pub mod redo;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
