//! What unit tests of several rooms need.

use std::sync::Arc;
use terrace_tier::memory::pool::Pool;
use terrace_tier::testing::MemoryBelow;

/// A pool of 64 MiB, to borrow memory from.
pub fn pool() -> Arc<Pool> {
    pool_of(4096)
}

pub fn pool_of(frames: usize) -> Arc<Pool> {
    Arc::new(Pool::new(terrace_io::real::world(), frames, Arc::new(MemoryBelow::default())))
}
