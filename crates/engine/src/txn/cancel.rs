//! Cancelling: ends every wait of a transaction from another thread. What its operations wait for below, they wait for
//! in the scope of its handle; rolling back is shielded.

pub use terrace_io::cancel::{Cancel, Scope, shield};
