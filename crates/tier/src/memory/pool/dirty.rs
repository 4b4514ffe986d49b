//! Dirty pages: which there are and in what order they became so, copied for the flusher, clean again.

use super::{Access, FRAME_WAIT_MAX, Lookup, PATIENCE, Pool};
use crate::memory::frame::{FrameNo, FrameState};
use crate::memory::lower_tiers::{ImageBelow, ReadError, may_wait, not_cancelled};
use crate::page::{Glsn, PAGE_SIZE, PageId, PageRef, TEMPORARY_GLSN};
use crate::planted;
use crate::sync::RawLatch as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_io::observe;
use terrace_io::sched::Woken;

/// Dirty pages may take five eighths of the frames, of a large pool more; then writers wait. In a pool too small for an engine they may
/// take all.
fn dirty_max(frames: usize) -> usize {
    if frames < 64 { frames } else { share(frames, 5, 30) }
}

/// A dirty page as it was when copied.
#[derive(Clone, Copy, Debug)]
pub struct DirtyCopy {
    pub frame: FrameNo,
    pub id: PageId,
    /// The page's LSN: the log must be durable up to here before the copy is written.
    pub lsn: Glsn,
    pub version: u64,
    /// Until the copy's map record is durable, the checkpoint may not pass this.
    pub first_change: Glsn,
}

impl DirtyCopy {
    pub fn is_temporary(&self) -> bool {
        self.id.space.is_temporary()
    }
}

impl Pool {
    /// Holds a writer back while so much of the pool is dirty that readers would run out of frames: as long as pages cannot
    /// be flushed as fast as they are changed, the writers wait. No latch is held.
    pub(crate) fn wait_to_change(&self) -> Result<(), ReadError> {
        let mut waited = 0;
        loop {
            let cleaned = self.cleaned.ticket();
            if self.dirty_frames() <= dirty_max(self.frames_in_circulation()) {
                return Ok(());
            }
            may_wait(observe::Wait::Flush).inspect_err(|_| self.flush_wanted.notify())?;
            self.counters.writer_waits.fetch_add(1, Ordering::Relaxed);
            self.flush_wanted.notify();
            not_cancelled()?;
            // A thread that sees others continue is late, not stuck.
            let shown = observe::wait(observe::Wait::Flush);
            let woken = self.world.sched.wait(&self.cleaned, cleaned, Some(PATIENCE));
            drop(shown);
            if woken == Woken::Notified {
                continue;
            }
            waited += PATIENCE;
            if waited > FRAME_WAIT_MAX {
                return Err(self.no_frame());
            }
        }
    }

    /// The caller has the exclusive latch or the claim.
    pub(crate) fn set_dirty(&self, no: FrameNo, first: Glsn) {
        assert!(first > 0);
        let frame = self.frame(no);
        if !frame.is_dirty() {
            frame.first_change.store(first, Ordering::Release);
            let mut dirty = self.dirty.lock();
            dirty.insert((first, no));
            self.dirty_count.store(dirty.len(), Ordering::Relaxed);
            let many =
                dirty.len().is_multiple_of(64) && dirty.len() > dirty_limit(self.frames_in_circulation());
            drop(dirty);
            if many {
                self.flush_wanted.notify();
            }
        }
    }

    pub(super) fn set_homeless(&self, no: FrameNo) {
        let frame = self.frame(no);
        if !frame.homeless.swap(true, Ordering::AcqRel) {
            let id = frame.id();
            // A thread that reads both counters never finds fewer pages that sink than there are.
            self.homeless_sinking.fetch_add(usize::from(id.space.sinks()), Ordering::AcqRel);
            self.homeless_like(id).fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) fn clear_homeless(&self, no: FrameNo) {
        let frame = self.frame(no);
        if frame.homeless.swap(false, Ordering::AcqRel) {
            let id = frame.id();
            self.homeless_like(id).fetch_sub(1, Ordering::AcqRel);
            self.homeless_sinking.fetch_sub(usize::from(id.space.sinks()), Ordering::AcqRel);
        }
    }

    fn homeless_like(&self, id: PageId) -> &AtomicUsize {
        if id.space.is_temporary() { &self.unspilled } else { &self.homeless }
    }

    /// Pages in memory that no tier has an image of: each will take a slot. Not the temporary ones.
    pub fn homeless(&self) -> usize {
        self.homeless.load(Ordering::Acquire)
    }

    /// The homeless pages that can sink once they have been flushed.
    pub fn homeless_sinking(&self) -> usize {
        self.homeless_sinking.load(Ordering::Acquire)
    }

    /// Temporary pages that are in memory alone.
    pub fn unspilled(&self) -> usize {
        self.unspilled.load(Ordering::Acquire)
    }

    /// The smallest first change of a dirty page: no checkpoint may pass it. Temporary pages are no concern of a checkpoint.
    pub fn oldest_dirty(&self) -> Option<Glsn> {
        self.dirty.lock().first().map(|(first, _)| *first).filter(|first| *first < TEMPORARY_GLSN)
    }

    /// Up to `max` dirty frames, the oldest first change first: temporary ones come last.
    pub fn oldest_dirty_frames(&self, max: usize) -> Vec<FrameNo> {
        self.oldest_dirty_frames_that(max, |_, _| true)
    }

    /// The same, without the pages that are not to be flushed: each page's name and first change.
    pub fn oldest_dirty_frames_that(
        &self,
        max: usize,
        mut are: impl FnMut(PageId, Glsn) -> bool,
    ) -> Vec<FrameNo> {
        let dirty = self.dirty.lock();
        let frames = dirty.iter().filter(|(first, no)| are(self.frame(*no).id(), *first));
        frames.take(max).map(|(_, no)| *no).collect()
    }

    /// Up to `max` dirty frames near the end of `old`: their eviction is near.
    pub fn cold_dirty_frames(&self, max: usize) -> Vec<FrameNo> {
        let mut frames = Vec::new();
        // A frame may stand in the queue twice: its place of before, when its space was dropped, stays until it is looked at. Two copies
        // in a batch would take a temporary page that is evicted in between for one that was dropped.
        for no in self.queues.lock().old_tail(4 * max).filter(|no| self.frame(*no).is_dirty()) {
            if frames.len() < max && !frames.contains(&no) {
                frames.push(no);
            }
        }
        frames
    }

    /// Copies a dirty page's image into `buf`. None if it is not dirty (any more), or another thread holds
    /// its exclusive latch: the flusher never waits for a latch.
    pub fn copy_dirty(&self, no: FrameNo, buf: &mut [u8]) -> Option<DirtyCopy> {
        assert_eq!(buf.len(), PAGE_SIZE);
        let frame = self.frame(no);
        if frame.state() != FrameState::Ready || !frame.is_dirty() || !frame.latch.try_lock_shared() {
            return None;
        }
        let first_change = frame.first_change();
        let copy = first_change.filter(|_| frame.state() == FrameState::Ready).map(|first_change| {
            // SAFETY: under the shared latch.
            buf.copy_from_slice(unsafe { self.arena.bytes(no) });
            let page = PageRef::new(buf);
            DirtyCopy {
                frame: no,
                id: frame.id(),
                lsn: page.lsn(),
                version: frame.version.load(Ordering::Acquire),
                first_change,
            }
        });
        // SAFETY: locked above.
        unsafe { frame.latch.unlock_shared() };
        copy
    }

    /// The copy is on disk and mapped. The page becomes clean, or, if it was changed meanwhile, its
    /// first change becomes what came after the copy. False: it is not in that frame any more: its space was dropped,
    /// or it moved to another frame, dirty as it was.
    pub fn flushed(&self, copy: &DirtyCopy) -> bool {
        let frame = self.frame(copy.frame);
        frame.latch.lock_shared();
        let current = frame.id() == copy.id
            && frame.state() == FrameState::Ready
            && frame.first_change() == Some(copy.first_change);
        if current {
            self.clear_homeless(copy.frame);
            let changed = frame.version.load(Ordering::Acquire) != copy.version;
            let changed = changed && !planted::CHANGE_AFTER_COPY_FORGOTTEN.on();
            let mut dirty = self.dirty.lock();
            dirty.remove(&(copy.first_change, copy.frame));
            if changed {
                frame.first_change.store(copy.lsn, Ordering::Release);
                dirty.insert((copy.lsn, copy.frame));
            } else {
                frame.first_change.store(0, Ordering::Release);
            }
            self.dirty_count.store(dirty.len(), Ordering::Relaxed);
        }
        // SAFETY: locked above.
        unsafe { frame.latch.unlock_shared() };
        current
    }

    /// Takes the shared latch of a pinned page if no other thread has it and the page still has this LSN.
    pub(crate) fn latch_as_it_was(&self, no: FrameNo, lsn: Glsn) -> bool {
        let frame = self.frame(no);
        if !frame.latch.try_lock_shared() {
            return false;
        }
        // SAFETY: under the shared latch.
        let same = PageRef::new(unsafe { self.arena.bytes(no) }).lsn() == lsn;
        if !same && !planted::USED_PAGE_FORGOTTEN.on() {
            // SAFETY: locked above.
            unsafe { frame.latch.unlock_shared() };
            return false;
        }
        true
    }

    /// The page, latched by [`Pool::latch_as_it_was`], needs no flush any more, whatever it is. Lets the latch go.
    pub(crate) fn forget_change(&self, no: FrameNo) {
        let frame = self.frame(no);
        self.clear_homeless(no);
        if let Some(first) = frame.first_change() {
            let mut dirty = self.dirty.lock();
            dirty.remove(&(first, no));
            frame.first_change.store(0, Ordering::Release);
            self.dirty_count.store(dirty.len(), Ordering::Relaxed);
        }
        // SAFETY: by the caller's promise.
        unsafe { frame.latch.unlock_shared() };
    }

    /// There is no image of the page below any more: if it has been created anew meanwhile, it needs a place. No thread is writing it. Waits for its latch; no
    /// other is held.
    pub(crate) fn lost_its_place(&self, id: PageId) {
        let Lookup::Pinned(no) = self.lookup(id, Access::Internal) else { return };
        let frame = self.frame(no);
        frame.latch.lock_shared();
        if frame.is_dirty() && self.below.held(id) == ImageBelow::Nowhere {
            self.set_homeless(no);
        }
        // SAFETY: locked above.
        unsafe { frame.latch.unlock_shared() };
        self.unpin(no);
    }

    /// After a batch of [`Pool::flushed`].
    pub fn batch_flushed(&self) {
        self.cleaned.notify();
        self.frames_wanted.notify();
    }
}

/// Pool size in frames (64 MiB) up to which readers need more clean frames the larger the pool is.
const SMALL: usize = 4096;

/// Shares of the frames: this many eighths, and this many 32nds of those beyond [`SMALL`].
pub(crate) fn share(frames: usize, eighths: usize, of_more: usize) -> usize {
    frames.min(SMALL) * eighths / 8 + frames.saturating_sub(SMALL) * of_more / 32
}

/// Dirty pages may take three eighths of the frames before they are flushed without need. In a large pool the share is far
/// larger, because pages that change constantly, as those of a random index under load, are better written rarely.
pub fn dirty_limit(frames: usize) -> usize {
    share(frames, 3, 28)
}
