//! Objects: one immutable stored version of one block.

pub mod key;
