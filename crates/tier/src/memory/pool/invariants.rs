//! Invariants of the pool at rest: for tests.

use super::Pool;
use crate::memory::frame::{FrameNo, FrameState};
use std::sync::atomic::Ordering;

impl Pool {
    /// Panics if the table, the queues and the frames disagree. For tests, at rest.
    pub fn check_invariants(&self) {
        let mut seen = std::collections::HashSet::new();
        for no in (0..self.arena.made() as u32).map(FrameNo) {
            let frame = self.frame(no);
            if frame.state() == FrameState::Free {
                continue;
            }
            assert!((no.0 as usize) < self.frames(), "page {} is in a frame that is not in use", frame.id());
            let id = frame.id();
            seen.insert(no);
            assert!(
                self.table.with(&self.arena, id, |found| found == Some(no)),
                "page {id} is not found in its frame"
            );
            assert_eq!(frame.state(), FrameState::Ready, "page {id} is claimed at rest");
            let turn = frame.turn.load(Ordering::Acquire);
            assert!(self.queues.lock().has(no, turn), "page {id} is in no queue: it would never leave");
            assert_eq!(frame.pins(), 0, "page {id} is pinned at rest");
            let listed = frame.first_change().is_some_and(|f| self.dirty.lock().contains(&(f, no)));
            assert_eq!(frame.is_dirty(), listed, "page {id}: dirty set and frame disagree");
        }
        assert_eq!(self.table.count(&self.arena), seen.len(), "the table maps pages that no frame has");
        let free = self.free.lock();
        assert!(free.list.iter().all(|no| !seen.contains(no)), "a free frame holds a page");
        assert!(free.lent.iter().all(|no| !seen.contains(no)), "a frame whose memory is lent holds a page");
        assert_eq!(free.list.len() + seen.len() + free.lent.len(), self.frames());
        assert_eq!((free.lent.len(), free.to_lend.len()), (self.frames_lent(), 0));
        assert_eq!((free.limit, free.retired.len()), (self.frames(), 0));
        assert_eq!(self.arena.len(), self.frames());
    }
}
