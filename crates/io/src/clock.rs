//! The clock seam.

/// Nanoseconds of a monotonic clock whose zero means nothing.
pub type Nanos = u64;

pub trait Clock: Send + Sync {
    fn now(&self) -> Nanos;
    /// Milliseconds since 1970, for stamps that people read.
    fn unix_ms(&self) -> u64;
}
