//! Randomness from a seed.

use parking_lot::Mutex;
use terrace_io::random::Random;

/// Small deterministic generator (SplitMix64): simulation only.
pub struct SimRandom(Mutex<u64>);

impl SimRandom {
    pub fn new(seed: u64) -> SimRandom {
        SimRandom(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03))
    }
    /// True once in `n`.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Random for SimRandom {
    fn next_u64(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = *state;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}
