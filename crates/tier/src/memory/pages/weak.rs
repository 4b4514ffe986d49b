//! Weak pins: references to pages that do not keep the pages in memory.
//!
//! An open cursor remembers its leaf by a weak pin between calls. While the page stays in its frame, the way back is a pin of that frame and a check
//! of its page id. Once the page was evicted, or moved to another frame, the weak pin leads nowhere and the page is looked up as any other. So open
//! cursors hold no frames, however many they are.
//!
//! A frame's version increases when its page changes and when the frame is given to another page; it never decreases. So an equal version proves that
//! the frame has held the same bytes ever since. A frame keeps its version while its page is being evicted, and the page can already be loaded and
//! changed in another frame then. So a comparison without a pin first checks that the frame is `Ready`.

use super::{Pages, ReadGuard};
use crate::memory::frame::{FrameNo, FrameState};
use crate::page::PageId;
use crate::planted;
use std::sync::atomic::Ordering;

/// The frame and the version in which a page was read. It does not keep the page in memory.
#[derive(Clone, Copy, Debug)]
pub struct WeakPin {
    id: PageId,
    no: FrameNo,
    version: u64,
}

impl WeakPin {
    pub fn id(&self) -> PageId {
        self.id
    }
}

impl ReadGuard<'_> {
    /// A weak pin of the page in its current version.
    #[inline]
    pub fn weak(&self) -> WeakPin {
        WeakPin { id: self.id(), no: self.no, version: self.version() }
    }
    /// Whether the page is in the same frame and version as the weak pin names.
    #[inline]
    pub fn matches(&self, weak: &WeakPin) -> bool {
        self.no == weak.no && self.version() == weak.version
    }
}

impl Pages {
    /// The page under a shared latch if it is still in its frame, changed or not. Waits for the latch only.
    #[inline]
    pub fn read_weak(&self, weak: &WeakPin) -> Option<ReadGuard<'_>> {
        let pinned = self.pool.frame(weak.no).try_pin_as(weak.id);
        pinned.then(|| ReadGuard::new(&self.pool, weak.no, true))
    }
    /// Whether the page is still in its frame and unchanged, without a pin or a latch. The answer was true at some moment during the call.
    #[inline]
    pub fn is_unchanged(&self, weak: &WeakPin) -> bool {
        let frame = self.pool.frame(weak.no);
        // The order matters: a frame that became `Ready` again since the weak pin was taken has a higher version by then.
        let is_ready = frame.state() == FrameState::Ready || planted::LEAVING_FRAME_TRUSTED.on();
        is_ready && frame.version.load(Ordering::Acquire) == weak.version
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use crate::memory::pages::{Pages, WeakPin};
    use crate::memory::pool::Access;
    use crate::page::{PageId, PageKind, SpaceId};
    use crate::testing::{flush_all, pages};
    use terrace_log::Urgency;

    const AT: usize = 100;

    fn id(page: u32) -> PageId {
        PageId::new(SpaceId(20), page)
    }
    fn create(pages: &Pages, page: u32) {
        let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
        mtr.create(id(page), PageKind::Leaf, 0);
        mtr.commit();
    }
    fn bump(pages: &Pages, page: u32) {
        let pin = pages.load(id(page), Access::Normal).unwrap();
        let mut mtr = pages.begin(1000, 0, Urgency::Normal).unwrap();
        let no = mtr.write_pinned(&pin);
        let value = mtr.page(no).u64(AT);
        mtr.page_mut(no).write_u64(AT, value + 1);
        mtr.commit();
    }
    fn weak(pages: &Pages, page: u32) -> WeakPin {
        pages.read(id(page), Access::Normal).unwrap().weak()
    }

    #[test]
    fn a_page_that_stays_as_it_was_is_found_by_a_weak_pin() {
        let (pages, ..) = pages(16);
        (0..2).for_each(|page| create(&pages, page));
        let weak = weak(&pages, 0);
        bump(&pages, 1);
        assert!(pages.is_unchanged(&weak));
        let guard = pages.read_weak(&weak).unwrap();
        assert!(guard.id() == id(0) && guard.matches(&weak));
    }

    #[test]
    fn a_page_that_changed_is_found_and_is_not_as_it_was() {
        let (pages, ..) = pages(16);
        create(&pages, 0);
        let weak = weak(&pages, 0);
        bump(&pages, 0);
        assert!(!pages.is_unchanged(&weak));
        let guard = pages.read_weak(&weak).unwrap();
        assert!(guard.page().u64(AT) == 1 && !guard.matches(&weak));
    }

    #[test]
    fn a_weak_pin_keeps_no_frame_and_forgets_a_page_that_left() {
        let (pages, below, _) = pages(16);
        (0..8).for_each(|page| create(&pages, page));
        let weaks: Vec<_> = (0..8).map(|page| weak(&pages, page)).collect();
        flush_all(&pages, &below);
        while pages.pool().evict_one() {}
        assert_eq!(pages.pool().free_frames(), 16, "nothing is kept in memory");
        assert!(weaks.iter().all(|weak| !pages.is_unchanged(weak) && pages.read_weak(weak).is_none()));
        // Loaded again, unchanged, in some frame: the weak pins do not match, because their frames have other versions.
        for weak in &weaks {
            drop(pages.read(weak.id(), Access::Normal).unwrap());
            assert!(!pages.is_unchanged(weak));
            assert!(
                pages.read_weak(weak).is_none_or(|guard| guard.id() == weak.id() && !guard.matches(weak))
            );
        }
    }
}
