//! The front door: opens an instance on its devices and stores, for every front.

#![forbid(unsafe_code)]

pub mod open;
