//! More frames, or fewer, while pages are read and written. CloudJump III §2.3.
//!
//! Growing gives memory to frames behind the last one. Shrinking takes the frames from the end: no page comes into them
//! any more (a frame that becomes free is *retired*), and the pages that are in them move to free frames, dirty
//! ones too, for which the coldest pages leave memory as always. When all of them are retired, their memory goes back. Until
//! then nothing is lost by giving up: the frames are in use again.
//!
//! A page moves under its claim and its exclusive latch, so it moves between two uses; a page that is pinned stays where it
//! is, and is waited for.
//!
//! Pages that are pinned for long (of undo, and the maps of what is free in large spaces) come into the first frames, before they are pinned.
//!
//! Memory that is lent (`lend`) moves pages in the same way.
//!
//! Locks: `moves`, then as in `pool`; one resize at a time (the caller's promise).

use super::Pool;
use crate::frame::{FrameNo, State};
use crate::sync::RawLatch as _;
use std::sync::atomic::Ordering;
use terrace_io::clock::Nanos;

/// Frames of one step: 64 MiB.
pub const CHUNK: usize = (64 << 20) / crate::page::PAGE_SIZE;
/// Evictions for one page to move, at the most.
const TRIES: usize = 256;
/// How long to wait when nothing moves, in nanoseconds.
const REST: Nanos = 5_000_000;

/// What is left of a shrinking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolLeft {
    /// Frames that are still to be emptied.
    pub frames: usize,
    /// Of them, those that held a pinned page when looked at last.
    pub pinned: usize,
    /// Those whose page could not move because all others are dirty.
    pub dirty: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeError {
    /// More than there are addresses for.
    TooMany { max: usize },
    /// The machine does not give the memory.
    NoMemory,
    /// The caller gave up, with so much left; the old size is in force.
    GivenUp(PoolLeft),
}

/// What became of a frame that is to be emptied.
pub(super) enum Vacated {
    Empty,
    Pinned,
    /// Its page finds no other frame now.
    NoRoom,
    /// Somebody loads, evicts or flushes its page just now.
    Busy,
}

/// Whether a page that is kept could be brought to the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    /// It is in this frame now.
    At(FrameNo),
    /// All frames before its own are pinned, or all others are dirty.
    Full,
    /// Somebody else has it just now: another try may help.
    Busy,
}

impl Pool {
    /// Gives the pool `frames` frames (at least 16). Shrinking calls `go_on` again and again with what is left, and is given up when that
    /// says no: then the old number is in force, and pages have only moved. No latch is held; one call at a time.
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
            // SAFETY: frames that no list has yet.
            unsafe { self.arena.release(from) };
            return Err(ResizeError::NoMemory);
        }
        self.admit_frames(to, (from..to).map(|no| FrameNo(no as u32)).collect());
        Ok(())
    }

    /// Frames up to `limit` may be used, `more` of them anew, and those that were retired again.
    fn admit_frames(&self, limit: usize, more: Vec<FrameNo>) {
        self.set_limit(limit, |free| {
            // At the end of the list's order: frames in front are taken first, so that those behind are easily given back.
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

    /// Until the frames of one chunk are all retired.
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
                // Free, but one may be in the hands of somebody who took it just before the limit came: it is retired when
                // he lets go of it, or becomes a page's.
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

    /// Brings the page that is in a frame somewhere else.
    pub(super) fn vacate(&self, no: FrameNo) -> Vacated {
        let _moves = self.moves.lock();
        let frame = self.frame(no);
        match frame.state() {
            State::Free => return Vacated::Empty,
            State::Claimed => return Vacated::Busy,
            State::Ready if frame.pins() > 0 => return Vacated::Pinned,
            State::Ready => {}
        }
        let room = self.room_to_move();
        if !frame.try_claim() {
            room.into_iter().for_each(|to| self.give_frame(to));
            return if frame.state() == State::Ready { Vacated::Pinned } else { Vacated::Busy };
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

    /// Brings a page that stays pinned for long, so far by the caller's one pin, into one of the first frames, so that those behind it
    /// can be given up. The pin goes along. Nothing is waited for.
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

    /// The first frame before `no` that can be had: its page goes elsewhere.
    fn frame_before(&self, no: FrameNo) -> Option<FrameNo> {
        for to in (0..no.0).map(FrameNo) {
            let frame = self.frame(to);
            match frame.state() {
                State::Ready if frame.pins() == 0 => {
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
                State::Free => {}
                _ => continue,
            }
            let mut free = self.free.lock();
            // Else somebody was faster.
            if let Some(at) = free.list.iter().rposition(|free| *free == to) {
                return Some(free.list.remove(at));
            }
        }
        None
    }

    /// Moves the page of a claimed frame, unless somebody reads it (the flusher): then the claim ends, and false.
    fn move_claimed(&self, from: FrameNo, to: FrameNo) -> bool {
        let latched = self.frame(from).latch.try_lock_exclusive();
        if latched {
            self.move_page(from, to)
        } else {
            self.end_claim(from)
        }
        latched
    }

    /// A frame to move a page to, beyond the reserve: a free one, or one whose page is colder by the queues' word.
    fn room_to_move(&self) -> Option<FrameNo> {
        // Those that leave may have been in frames that are to go themselves.
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

    /// Moves the page of the frame `from`, claimed and exclusively latched, to the free frame `to`; pins that this has already are the page's.
    fn move_page(&self, from: FrameNo, to: FrameNo) {
        let (old, new) = (self.frame(from), self.frame(to));
        let id = old.id();
        self.arena.prepare(to);
        new.set_id(id);
        new.set_state(State::Claimed);
        // SAFETY: both claims are this thread's, and the frames are two.
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
        new.set_state(State::Ready);
        // SAFETY: the caller locked it.
        unsafe { old.latch.unlock_exclusive() };
        self.give_frame(from);
        self.shard(id).claims_ended.notify();
    }
}

#[cfg(test)]
mod tests;
