//! Where a page was seen last: the way to one that is used again and again, past the page table.
//!
//! It keeps nothing: a page that nobody uses leaves memory, or moves to another frame, and the frame may be another page's by then. So whoever
//! comes pins the frame and asks whose it is, as one does whom the page table has led there.

use crate::frame::FrameNo;
use crate::page::PageId;
use crate::sync::AtomicU32;
use std::sync::atomic::Ordering;

/// A page, and the frame that it was in when it was used last.
pub struct LastSeen {
    id: PageId,
    no: AtomicU32,
}

impl LastSeen {
    /// It was seen nowhere yet: the first frame is as good as any.
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
