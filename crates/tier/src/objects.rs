//! The object store: objects of blocks, sinking into them, collection of superseded ones, and the fence against a second writer.

pub mod collect;
pub mod fence;
pub mod object;
pub mod sink;
