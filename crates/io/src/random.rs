//! The randomness seam.

pub trait Random: Send + Sync {
    fn next_u64(&self) -> u64;
    /// A number in `0..bound`. Panics if `bound` is 0.
    fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0);
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }
}
