//! Where a page lives: buffer pool → BPE → object buffer → objects.

pub mod page;
pub mod redo;
