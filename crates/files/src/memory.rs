//! The memory that clients map: which bytes of it are free, the index of what is in it, and the mapping itself.
//!
//! Not here: whose bytes they are, and which are evicted (see `catalogue`).

pub mod arena;
pub mod extents;
pub mod index;
