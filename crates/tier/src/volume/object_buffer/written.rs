//! Slots written since the last query: a bit a slot.

use crate::address::Slot;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Written(Vec<AtomicU64>);

impl Written {
    pub(super) fn new(slots: u32) -> Written {
        Written((0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn note(&self, slots: &[Slot]) {
        for slot in slots {
            self.0[slot.0 as usize / 64].fetch_or(1 << (slot.0 % 64), Ordering::AcqRel);
        }
    }

    /// Slots written since the last call, a bit each. Later writes are reported by the next call.
    pub fn take(&self) -> Vec<u64> {
        self.0.iter().map(|word| word.swap(0, Ordering::AcqRel)).collect()
    }

    /// The number of slots to be reported.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.load(Ordering::Acquire).count_ones()).sum()
    }
}
