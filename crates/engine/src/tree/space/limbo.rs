//! Limbo: freed pages wait here until every traversal that may still be on its way to them has
//! ended.
//!
//! A traversal reads a page's number, lets go of the latch, and latches that page. A page that is
//! unlinked in between is found to be free, and the traversal starts again. But if it were used anew
//! at once, the traversal could take a stranger for its own. So traversals count themselves in, and a page waits until those
//! that had begun when it was freed have ended (`terrace_tier::epoch`).
//!
//! A crash empties limbo: after a restart nothing traverses. The map of free pages knows nothing of this.
//!
//! Locks: the mutex is for memory work only and innermost. Visits are short, so limbo is.

use smallvec::SmallVec;
use std::collections::VecDeque;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_tier::epoch::Visits;

#[derive(Default)]
pub struct Limbo {
    /// Page and the epoch it was freed in, oldest first.
    waiting: Mutex<VecDeque<(u32, u64)>, { Mutexes::SpacePages as u8 }>,
}

impl Limbo {
    /// A page was unlinked, and is still latched exclusively by the caller.
    pub fn add(&self, visits: &Visits, page: u32) {
        let mut waiting = self.waiting.lock();
        drain(visits, &mut waiting);
        waiting.push_back((page, visits.epoch()));
    }

    /// The pages that traversals may still be on their way to.
    pub fn waiting(&self, visits: &Visits) -> SmallVec<[u32; 8]> {
        let mut waiting = self.waiting.lock();
        drain(visits, &mut waiting);
        waiting.iter().map(|(page, _)| *page).collect()
    }
}

fn drain(visits: &Visits, waiting: &mut VecDeque<(u32, u64)>) {
    if waiting.is_empty() {
        return;
    }
    let epoch = visits.advance();
    while waiting.front().is_some_and(|(_, freed)| freed + 2 <= epoch) {
        waiting.pop_front();
    }
}

#[cfg(test)]
mod tests;
