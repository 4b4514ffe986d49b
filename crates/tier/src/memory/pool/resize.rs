//! More frames, or fewer, while pages are read and written. CloudJump III §2.3.
//!
//! Growing commits memory for frames after the last one. Shrinking takes frames from the end: no page is loaded into them any
//! more (a frame that becomes free is *retired*), and the pages in them, dirty ones too, move to free frames; the coldest pages
//! are evicted for them as usual. When all of them are retired, their memory is released. Until then a shrink can be given up
//! without loss: the frames are put back in use.
//!
//! A page moves under its claim and its exclusive latch, so it moves between two uses. A pinned page stays in its frame, and the
//! shrink waits for it.
//!
//! Pages that are pinned for long (undo pages, and the free maps of large spaces) are moved to the first frames before they are
//! pinned.
//!
//! Lending memory (`lend`) moves pages in the same way.
//!
//! Locks: `moves`, then as in `pool`; one resize at a time (the caller's promise).

use super::Pool;
use crate::memory::frame::{FrameNo, FrameState};
use crate::sync::RawLatch as _;
use std::sync::atomic::Ordering;
use terrace_io::clock::Nanos;

/// Frames of one step: 64 MiB.
pub const CHUNK: usize = (64 << 20) / crate::page::PAGE_SIZE;
/// Maximum number of evictions to move one page.
const TRIES: usize = 256;
/// The pause when nothing moves, in nanoseconds.
const REST: Nanos = 5_000_000;

/// What remains to be done of a shrink.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolLeft {
    /// Frames that are still to be emptied.
    pub frames: usize,
    /// Those of them that held a pinned page when last checked.
    pub pinned: usize,
    /// Those of them whose page could not move because all other frames are dirty.
    pub dirty: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeError {
    /// More frames than addresses are reserved for.
    TooMany { max: usize },
    /// The operating system does not give the memory.
    NoMemory,
    /// The caller gave up with this much left; the old size is in force.
    GivenUp(PoolLeft),
}

/// Outcome of an attempt to empty a frame.
pub(super) enum Vacated {
    Empty,
    Pinned,
    /// There is no other frame for its page at present.
    NoRoom,
    /// Another thread loads, evicts or flushes its page at present.
    Busy,
}

/// Whether a page that stays pinned for long could be moved to the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    /// It is in this frame now.
    At(FrameNo),
    /// All frames before its own are pinned, or all others are dirty.
    Full,
    /// Another thread uses it at present: a retry may succeed.
    Busy,
}

impl Pool {
    /// Gives the pool `frames` frames (at least 16). Shrinking calls `go_on` repeatedly with what is left. If `go_on` returns
    /// false the shrink is given up: the old size is in force, and pages have only moved. The caller holds no latch; one call at
    /// a time.
    pub fn resize(&self, frames: usize, go_on: &mut dyn FnMut(PoolLeft) -> bool) -> Result<(), ResizeError> {
        assert!(frames >= 16, "a pool of {frames} frames cannot hold one mini-transaction");
        let now = self.frames();
        if frames > now { self.grow(now, frames) } else { self.shrink(now, frames, go_on) }
    }

    fn grow(&self, from: usize, to: usize) -> Result<(), ResizeError> {
        if to > self.arena.max() {
            return Err(ResizeError::TooMany { max: self.arena.max() });
        }
        if !self.arena.grow(to) {
            return Err(ResizeError::NoMemory);
        }
        if !self.table.resize(&self.arena, to) {
            // SAFETY: no list has these frames yet.
            unsafe { self.arena.release(from) };
            return Err(ResizeError::NoMemory);
        }
        self.admit_frames(to, (from..to).map(|no| FrameNo(no as u32)).collect());
        Ok(())
    }

    /// Allows frames up to `limit` to be used: the new ones in `more`, and those that were retired.
    fn admit_frames(&self, limit: usize, more: Vec<FrameNo>) {
        self.set_limit(limit, |free| {
            // Frames at the front are taken first, so that those at the end are easily given back.
            free.list.splice(0..0, more.into_iter().rev());
            let retired = std::mem::take(&mut free.retired);
            free.list.extend(retired);
        });
        self.frames_freed.notify();
        self.cleaned.notify();
        self.frames_wanted.notify(); // for loans
    }

    fn shrink(
        &self,
        from: usize,
        to: usize,
        go_on: &mut dyn FnMut(PoolLeft) -> bool,
    ) -> Result<(), ResizeError> {
        self.set_limit(to, |free| {
            let (stay, go): (Vec<FrameNo>, Vec<FrameNo>) =
                std::mem::take(&mut free.list).into_iter().partition(|no| (no.0 as usize) < to);
            free.list = stay;
            free.retired.extend(go);
        });
        self.frames_wanted.notify();
        let mut top = from;
        while top > to {
            let bottom = top.saturating_sub(CHUNK).max(to);
            if let Err(left) = self.empty(to, bottom..top, go_on) {
                self.admit_frames(from, Vec::new());
                return Err(ResizeError::GivenUp(left));
            }
            top = bottom;
        }
        let retired = std::mem::take(&mut self.free.lock().retired);
        assert_eq!(retired.len(), from - to, "a frame was given back that was in use");
        let mut end = from;
        while end > to {
            end = end.saturating_sub(CHUNK).max(to);
            // SAFETY: all frames from `to` on were retired, and the list of them is gone.
            unsafe { self.arena.release(end) };
            go_on(PoolLeft { frames: end - to, ..PoolLeft::default() });
        }
        self.table.resize(&self.arena, to);
        Ok(())
    }

    /// Waits until the frames of one chunk are all retired.
    fn empty(
        &self,
        to: usize,
        chunk: std::ops::Range<usize>,
        go_on: &mut dyn FnMut(PoolLeft) -> bool,
    ) -> Result<(), PoolLeft> {
        let mut unfinished: Vec<FrameNo> = chunk.clone().map(|no| FrameNo(no as u32)).collect();
        loop {
            let freed = self.frames_freed.ticket();
            let before = unfinished.len();
            let mut left = PoolLeft::default();
            unfinished.retain(|no| match self.vacate(*no) {
                Vacated::Empty => false,
                Vacated::Pinned => {
                    left.pinned += 1;
                    true
                }
                Vacated::NoRoom => {
                    left.dirty += 1;
                    true
                }
                Vacated::Busy => true,
            });
            if unfinished.is_empty() {
                // They are free, but a thread may hold one that it took just before the limit was set: it is retired when that
                // thread frees it, or it gets a page.
                let retired: hashbrown::HashSet<FrameNo> = self
                    .free
                    .lock()
                    .retired
                    .iter()
                    .copied()
                    .filter(|no| chunk.contains(&(no.0 as usize)))
                    .collect();
                unfinished
                    .extend(chunk.clone().map(|no| FrameNo(no as u32)).filter(|no| !retired.contains(no)));
            }
            left.frames = chunk.start - to + unfinished.len();
            if !go_on(left) && !unfinished.is_empty() {
                return Err(left);
            }
            if unfinished.is_empty() {
                return Ok(());
            }
            if unfinished.len() == before || left.dirty > 0 {
                self.frames_wanted.notify();
                self.flush_wanted.notify();
                self.world.sched.wait(&self.frames_freed, freed, Some(REST));
            }
        }
    }

    /// Moves the page of a frame to another frame.
    pub(super) fn vacate(&self, no: FrameNo) -> Vacated {
        let _moves = self.moves.lock();
        let frame = self.frame(no);
        match frame.state() {
            FrameState::Free => return Vacated::Empty,
            FrameState::Claimed => return Vacated::Busy,
            FrameState::Ready if frame.pins() > 0 => return Vacated::Pinned,
            FrameState::Ready => {}
        }
        let room = self.room_to_move();
        if !frame.try_claim() {
            room.into_iter().for_each(|to| self.give_frame(to));
            return if frame.state() == FrameState::Ready { Vacated::Pinned } else { Vacated::Busy };
        }
        match room {
            Some(to) if self.move_claimed(no, to) => Vacated::Empty,
            Some(to) => {
                self.give_frame(to);
                Vacated::Busy
            }
            None if !frame.is_dirty() => {
                self.evict_claimed(no);
                Vacated::Empty
            }
            None => {
                self.end_claim(no);
                Vacated::NoRoom
            }
        }
    }

    /// Moves a page that stays pinned for long, so far by the caller's pin only, into one of the first frames, so that those
    /// after it can be given up. The pin moves along. Does not wait.
    pub(crate) fn to_the_front(&self, no: FrameNo) -> Front {
        let _moves = self.moves.lock();
        let Some(to) = self.frame_before(no) else { return Front::Full };
        let old = self.frame(no);
        if old.try_claim_pinned() {
            if old.latch.try_lock_exclusive() {
                self.frame(to).pin_again();
                self.move_page(no, to);
                return Front::At(to);
            }
            old.pin_again();
            self.end_claim(no);
        }
        self.give_frame(to);
        Front::Busy
    }

    /// The first obtainable frame before `no`: its page moves elsewhere.
    fn frame_before(&self, no: FrameNo) -> Option<FrameNo> {
        for to in (0..no.0).map(FrameNo) {
            let frame = self.frame(to);
            match frame.state() {
                FrameState::Ready if frame.pins() == 0 => {
                    if frame.is_dirty() {
                        let spare = self.room_to_move()?;
                        if !(frame.try_claim() && self.move_claimed(to, spare)) {
                            self.give_frame(spare);
                        }
                    } else if frame.try_claim() {
                        if frame.is_dirty() {
                            self.end_claim(to);
                        } else {
                            self.evict_claimed(to);
                        }
                    }
                }
                FrameState::Free => {}
                _ => continue,
            }
            let mut free = self.free.lock();
            // Otherwise another thread took it first.
            if let Some(at) = free.list.iter().rposition(|free| *free == to) {
                return Some(free.list.remove(at));
            }
        }
        None
    }

    /// Moves the page of a claimed frame, unless the flusher reads it: then the claim ends, and false is returned.
    fn move_claimed(&self, from: FrameNo, to: FrameNo) -> bool {
        let latched = self.frame(from).latch.try_lock_exclusive();
        if latched {
            self.move_page(from, to)
        } else {
            self.end_claim(from)
        }
        latched
    }

    /// A frame to move a page to, beyond the reserve: a free one, or one whose page the queues give as victim.
    fn room_to_move(&self) -> Option<FrameNo> {
        // Evicted pages may have been in frames that are to be given up themselves.
        for _ in 0..TRIES {
            {
                let mut free = self.free.lock();
                if free.list.len() > self.reserve() {
                    return free.list.pop();
                }
            }
            if !self.evict_one() {
                return None;
            }
        }
        None
    }

    /// Moves the page of the frame `from`, claimed and exclusively latched, to the free frame `to`. Pins that `to` has already
    /// become the page's.
    fn move_page(&self, from: FrameNo, to: FrameNo) {
        let (old, new) = (self.frame(from), self.frame(to));
        let id = old.id();
        self.arena.prepare(to);
        new.set_id(id);
        new.set_state(FrameState::Claimed);
        // SAFETY: both claims are this thread's, and the frames are different.
        unsafe { self.arena.bytes_mut(to).copy_from_slice(self.arena.bytes(from)) };
        new.moved_from(old);
        if let Some(first) = old.first_change() {
            let mut dirty = self.dirty.lock();
            new.first_change.store(first, Ordering::Release);
            dirty.remove(&(first, from));
            dirty.insert((first, to));
            old.first_change.store(0, Ordering::Release);
        }
        if old.homeless.swap(false, Ordering::AcqRel) {
            new.homeless.store(true, Ordering::Release);
        }
        self.table.replace(&self.arena, id, from, to);
        new.version.fetch_add(1, Ordering::AcqRel);
        self.queues.lock().push_old(to, new.turn.load(Ordering::Relaxed));
        new.set_state(FrameState::Ready);
        // SAFETY: the caller locked it.
        unsafe { old.latch.unlock_exclusive() };
        self.give_frame(from);
        self.shard(id).claims_ended.notify();
    }
}

#[cfg(test)]
mod tests;
