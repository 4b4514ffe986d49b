//! Hints of the frame in which a page was last seen: a shortcut past the page table for pages that are used again and again.
//!
//! A hint keeps nothing in memory: an unused page is evicted or moves to another frame, and the frame may hold another page by
//! then. So a thread that follows a hint pins the frame and compares its page, as after a look-up in the page table.

use crate::memory::frame::FrameNo;
use crate::page::PageId;
use crate::sync::AtomicU32;
use std::sync::atomic::Ordering;

/// A page, and the frame that it was in when it was last used.
pub struct LastSeen {
    id: PageId,
    no: AtomicU32,
}

impl LastSeen {
    /// The page was not seen yet: the hint is the first frame, which is as good as any.
    pub fn new(id: PageId) -> LastSeen {
        LastSeen { id, no: AtomicU32::new(0) }
    }
    pub(crate) fn new_in(id: PageId, no: FrameNo) -> LastSeen {
        LastSeen { id, no: AtomicU32::new(no.0) }
    }
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }
    #[inline]
    pub(crate) fn frame(&self) -> FrameNo {
        FrameNo(self.no.load(Ordering::Relaxed))
    }
    pub(crate) fn is_in(&self, no: FrameNo) {
        self.no.store(no.0, Ordering::Relaxed);
    }
}
