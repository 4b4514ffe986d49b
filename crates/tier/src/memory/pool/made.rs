//! Pages whose images bulk builds (`bypass`) put into memory, past the log: clean, and in no other tier yet. They stay pinned
//! until the map names their images.

use super::Pool;
use crate::memory::frame::FrameNo;
use crate::memory::queues::EntryQueue;
use crate::page::{PAGE_SIZE, PageId};
use std::sync::atomic::Ordering;

impl Pool {
    /// Puts a page's image into a frame, pinned, if free frames are plentiful.
    pub(crate) fn keep_made(&self, id: PageId, image: &[u8]) -> Option<FrameNo> {
        assert_eq!(image.len(), PAGE_SIZE);
        let no = {
            let mut free = self.free.lock();
            let few = self.frames_in_circulation() / 4;
            if free.list.len() <= few {
                return None;
            }
            free.list.pop()?
        };
        if !self.claim(id, no) {
            self.give_frame(no);
            return None;
        }
        let frame = self.frame(no);
        frame.came(self.period.load(Ordering::Relaxed), false);
        // SAFETY: the claim makes this thread the frame's only owner.
        unsafe { self.arena.bytes_mut(no) }.copy_from_slice(image);
        frame.pin_again();
        self.publish(no, EntryQueue::Old);
        Some(no)
    }

    /// Drops such a page, whose image no map record will name. No other thread knows of it.
    pub(crate) fn forget_made(&self, id: PageId, no: FrameNo) {
        let _moves = self.moves.lock();
        self.unpin(no);
        let frame = self.frame(no);
        // If it is being evicted, the eviction drops it.
        if frame.try_claim() {
            if frame.id() == id {
                self.unclaim(id, no);
            } else {
                self.end_claim(no);
            }
        }
    }
}
