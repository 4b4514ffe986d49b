//! Room: free frames, and the pages that leave for them.

use super::{FRAME_WAIT_MAX, PATIENCE, Pool};
use crate::memory::frame::{ACCESSES_MAX, FrameNo, FrameState};
use crate::memory::lower_tiers::{ReadError, may_wait, not_cancelled};
use crate::planted;
use std::sync::atomic::Ordering;
use terrace_io::observe;
use terrace_io::sched::Woken;

/// Threads that wait for a frame: a free one wakes all that may take the last ones, and one of the others.
const RESERVED: u64 = 0;
const OTHERS: u64 = 1;

impl Pool {
    /// A free frame; waits for one, evicting itself if the cleaners are late. `reserve` may take the
    /// last ones. No latch is held.
    pub(crate) fn take_frame(&self, reserve: bool) -> Result<FrameNo, ReadError> {
        let mut waited = 0;
        loop {
            let keep = if reserve { 0 } else { self.reserve() };
            let freed = self.frames_freed.ticket();
            {
                let mut free = self.free.lock();
                let left = free.list.len();
                if left > keep {
                    let no = free.list.pop();
                    drop(free);
                    if left <= self.headroom.wake() {
                        self.frames_wanted.notify();
                    }
                    if let Some(no) = no {
                        return Ok(no);
                    }
                }
            }
            if self.evict_one() {
                self.counters.foreground_evictions.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            may_wait(observe::Wait::Frame).inspect_err(|_| self.frames_wanted.notify())?;
            self.counters.frame_waits.fetch_add(1, Ordering::Relaxed);
            self.frames_wanted.notify();
            self.flush_wanted.notify();
            not_cancelled()?;
            let who = if reserve { RESERVED } else { OTHERS };
            let shown = observe::wait(observe::Wait::Frame);
            let woken = self.world.sched.wait_for(&self.frames_freed, freed, Some(PATIENCE), who);
            drop(shown);
            if woken == Woken::Notified {
                continue;
            }
            self.recall_frames();
            waited += PATIENCE;
            if waited > FRAME_WAIT_MAX {
                return Err(self.no_frame());
            }
        }
    }

    pub(super) fn no_frame(&self) -> ReadError {
        let pinned = self
            .arena
            .frames()
            .filter(|frame| frame.state() == FrameState::Ready && frame.pins() > 0)
            .count();
        ReadError::NoFrame { frames: self.frames(), dirty: self.dirty_frames(), pinned }
    }

    pub(crate) fn give_frame(&self, no: FrameNo) {
        let frame = self.frame(no);
        frame.first_change.store(0, Ordering::Release);
        frame.reused.store(false, Ordering::Relaxed);
        frame.sampled.store(false, Ordering::Relaxed);
        frame.version.fetch_add(1, Ordering::AcqRel);
        frame.turn.fetch_add(1, Ordering::AcqRel);
        frame.set_state(FrameState::Free);
        self.free.lock().put(no, self.reserve());
        self.frames_freed.notify_all_but(OTHERS);
    }

    /// The page in the frame counts as used more than once.
    pub(crate) fn note_reused(&self, no: FrameNo) {
        self.frame(no).reused.store(true, Ordering::Relaxed);
    }

    /// Evicts the clean page that the queues name next. False if there is none now.
    pub(crate) fn evict_one(&self) -> bool {
        // A bounded walk: what it skips is requeued.
        for _ in 0..64 {
            let Some(no) = self.next_victim() else { return false };
            if self.try_evict(no) {
                return true;
            }
        }
        false
    }

    fn next_victim(&self) -> Option<FrameNo> {
        let mut queues = self.queues.lock();
        let promoted = queues.promoted;
        let victim = queues.next_victim(|no, turn| {
            let frame = self.frame(no);
            crate::memory::queues::FrameReport {
                // One that is claimed is on its way in, or may stay: its entry stays.
                stale: frame.turn.load(Ordering::Acquire) != turn
                    || planted::CLAIMED_ENTRY_DROPPED.on() && frame.state() != FrameState::Ready,
                accesses: frame.accesses(),
                evictable: frame.state() == FrameState::Ready && frame.pins() == 0 && !frame.is_dirty(),
            }
        });
        for no in queues.cooled.drain(..) {
            self.frame(no).cool();
            self.frame(no).reused.store(true, Ordering::Relaxed);
        }
        self.counters.promoted.fetch_add(queues.promoted - promoted, Ordering::Relaxed);
        victim
    }

    /// Claims the frame away from its page, offers the image below, frees the frame.
    fn try_evict(&self, no: FrameNo) -> bool {
        let frame = self.frame(no);
        let turn = frame.turn.load(Ordering::Acquire);
        let claimed = if planted::PINS_SEEN_EARLY.on() {
            let unpinned = frame.state() == FrameState::Ready && frame.pins() == 0;
            if unpinned {
                frame.set_state(FrameState::Claimed);
            }
            unpinned
        } else {
            frame.try_claim()
        };
        // The thread that made it dirty had it pinned, so that is known by now.
        if claimed && frame.is_dirty() {
            self.end_claim(no);
        } else if claimed {
            return self.evict_claimed(no);
        }
        self.queues.lock().push_old(no, turn);
        false
    }

    /// The claim of a page that stays in memory is over.
    pub(super) fn end_claim(&self, no: FrameNo) {
        let frame = self.frame(no);
        let id = frame.id();
        frame.set_state(FrameState::Ready);
        self.shard(id).claims_ended.notify();
    }

    pub(super) fn evict_claimed(&self, no: FrameNo) -> bool {
        let frame = self.frame(no);
        let id = frame.id();
        // SAFETY: claimed, unpinned and out of state Ready: no other thread reaches the bytes.
        let image = unsafe { self.arena.bytes_mut(no) };
        let accesses = frame.accesses();
        // A page that was young has had its count taken away, but it was used again; one that an estimate has read will be.
        let is_reused = frame.reused.load(Ordering::Relaxed) || frame.is_expected();
        let accesses = if is_reused { ACCESSES_MAX } else { accesses };
        // A prefetched page that was never read is no evidence of anything.
        if accesses > 0 || !frame.seems_unused() {
            self.below.evicted(id, image, accesses);
        }
        self.unclaim(id, no);
        self.counters.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }
}
