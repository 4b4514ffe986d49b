//! What storage costs, and what more or less of it would bring: prices, miss-ratio curves, advice. Pure arithmetic: no
//! I/O, no clock, no locks.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod advice;
pub mod curve;
pub mod prices;
pub mod shards;

pub use advice::{Observed, Point};
pub use curve::Curve;
pub use prices::{Price, Prices};
pub use shards::Shards;
