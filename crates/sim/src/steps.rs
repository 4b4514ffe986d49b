//! The count of I/O steps, which all disks and stores of a world share, and the step at which it loses power.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts I/O steps over all disks and stores, and ends the world at a chosen one.
#[derive(Default)]
pub struct Steps {
    taken: AtomicU64,
    /// 0: never.
    crash_at: AtomicU64,
}

impl Steps {
    /// Takes a step. False: the machine is dead from here on.
    pub(crate) fn take(&self) -> bool {
        let step = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        let at = self.crash_at.load(Ordering::SeqCst);
        at == 0 || step < at
    }
    pub(crate) fn crashed(&self) -> bool {
        let at = self.crash_at.load(Ordering::SeqCst);
        at != 0 && self.taken.load(Ordering::SeqCst) >= at
    }
    /// Steps taken since the start.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }
    /// Every step from `step` on fails; 0: none does.
    pub(crate) fn crash_at(&self, step: u64) {
        self.crash_at.store(step, Ordering::SeqCst);
    }
}
