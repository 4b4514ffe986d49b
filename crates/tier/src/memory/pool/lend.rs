//! Memory that the pool lends: to sorts, to lists of changed rows, to row locks and to the batches of open cursors, as long as the work lasts. So one setting bounds
//! what the pages and the work take together.
//!
//! The borrower counts bytes ([`Loan`]). As many frames go out of circulation: the pages in them move to other frames, for
//! which the coldest pages leave, and the kernel gets the memory. Frames go from the last one down, so that what is lent lies together and
//! the rest keeps its huge pages. When a loan ends the frames are free again, and get memory as pages come.
//!
//! The count comes first and the frames follow: an evictor brings both together (`settle`), and so does a borrower that holds no latch.
//! What is borrowed under a latch is memory too much until an evictor comes.
//!
//! Bounds, of all frames: a quarter for what can do with less; a half for what cannot. Frames for loans are never taken from
//! the reserve, nor from a page that is pinned, and a loan never waits for frames: where so much is dirty that readers would have
//! hardly any frames left, a loan is behind until the flusher has been there, however long that takes (the object buffer may be full). A
//! reader who finds no frame for a while because all others are pinned or dirty gets lent ones back.
//!
//! A frame that is lent is free and in no list that pages take frames from. While the pool is made smaller those
//! behind its new end are as good as empty ones; when it grows they are free, and lent again.
//!
//! Locks: `turn`, then as in `resize`.

use super::{Free, Pool};
use crate::memory::frame::FrameNo;
use crate::memory::pool::dirty_limit;
use crate::page::PAGE_SIZE;
use crate::planted;
use crate::sync::{Mutex, Mutexes};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_io::observe::{self, Memory, TrackedBytes};

/// The most frames that one step takes out of circulation.
const STEP: usize = 64;
/// Places that it tries for one frame that can go.
const PLACES: usize = 8;
/// The largest share of all frames that is lent to borrowers that can do with less, and to all.
const OPTIONAL: usize = 4;
const MOST: usize = 2;
/// Frames that are neither lent nor dirty: this many sixteenths stay. With half of the frames lent, that is just what writers leave, which wait
/// at five eighths of those in circulation.
const CLEAN: usize = 3;

/// What borrowed memory is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Sorts,
    /// What changes while something is made: keys of rows while an index is built, slots while the volume is copied.
    Watches,
    Locks,
    /// Batches of rows that open cursors hand out.
    Cursors,
}

impl Purpose {
    fn shown(self) -> Memory {
        match self {
            Purpose::Sorts => Memory::Sorts,
            Purpose::Watches => Memory::Watches,
            Purpose::Locks => Memory::Locks,
            Purpose::Cursors => Memory::Cursors,
        }
    }
}

pub(crate) struct Lending {
    /// Bytes of all loans, and of those for each purpose.
    bytes: AtomicUsize,
    by_purpose: [AtomicUsize; 4],
    /// Frames that are out of circulation: as many as `Free::lent` has.
    frames: AtomicUsize,
    /// Held while frames go out of circulation or come back: where the next ones are taken, below this one. 0: from the end.
    turn: Mutex<usize, { Mutexes::PoolLoans as u8 }>,
    /// What the frames in circulation take.
    shown: TrackedBytes,
}

impl Lending {
    pub fn new() -> Lending {
        Lending {
            bytes: AtomicUsize::new(0),
            by_purpose: Default::default(),
            frames: AtomicUsize::new(0),
            turn: Mutex::new(0),
            shown: TrackedBytes::new(Memory::Frames),
        }
    }

    /// `frames` frames are in circulation.
    pub fn show(&self, frames: usize) {
        self.shown.set((frames * PAGE_SIZE) as u64);
    }
}

/// How loans and frames stand after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    Even,
    /// Frames went out of circulation, and more are to go.
    Behind,
    /// None could go now.
    Stuck,
}

/// Bytes borrowed from the pool. They are given back with the value.
pub struct Loan {
    pool: Arc<Pool>,
    purpose: Purpose,
    bytes: usize,
}

impl Loan {
    /// A loan of nothing.
    pub fn new(pool: &Arc<Pool>, purpose: Purpose) -> Loan {
        Loan { pool: pool.clone(), purpose, bytes: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Borrows more, for a borrower that can do with less, and makes the pool give up as many frames, as far as that goes at once. False: there is
    /// no more to be had, and nothing has changed. No latch is held.
    #[must_use]
    pub fn ask(&mut self, more: usize) -> bool {
        if !self.borrow(more, self.pool.frames() / OPTIONAL) {
            return false;
        }
        while self.pool.settle() == Settled::Behind {}
        true
    }

    /// Borrows more, for a borrower that cannot do with less. Waits for nothing: the frames follow. False: the pool has no more
    /// to lend, and nothing has changed.
    #[must_use]
    pub fn take(&mut self, more: usize) -> bool {
        let taken = self.borrow(more, self.pool.frames() / MOST);
        if taken {
            self.pool.frames_wanted.notify();
        }
        taken
    }

    /// Gives back all but `bytes`. Waits for nothing.
    pub fn keep(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        if less > 0 {
            self.bytes -= less;
            let lending = &self.pool.lending;
            lending.by_purpose[self.purpose as usize].fetch_sub(less, Ordering::AcqRel);
            lending.bytes.fetch_sub(less, Ordering::AcqRel);
            observe::memory(self.purpose.shown(), -(less as i64));
            self.pool.frames_wanted.notify();
        }
    }

    fn borrow(&mut self, more: usize, frames: usize) -> bool {
        let lending = &self.pool.lending;
        let within = |now: usize| now.checked_add(more).filter(|then| *then <= frames * PAGE_SIZE);
        if lending.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, within).is_err() {
            return false;
        }
        lending.by_purpose[self.purpose as usize].fetch_add(more, Ordering::AcqRel);
        observe::memory(self.purpose.shown(), more as i64);
        self.bytes += more;
        true
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.keep(0);
    }
}

impl Free {
    /// What becomes of a frame that no page has any more. `keep`: the number of free frames to keep before any is lent.
    pub(super) fn put(&mut self, no: FrameNo, keep: usize) {
        let at = no.0 as usize;
        if at >= self.limit {
            self.retired.push(no);
        } else if self.to_lend.contains(&at) && self.list.len() >= keep {
            self.lent.push(no);
        } else {
            self.list.push(no);
        }
    }
}

impl Pool {
    /// Frames that pages may use now: all but those whose memory is lent.
    pub fn frames_in_circulation(&self) -> usize {
        self.frames() - self.frames_lent().min(self.frames())
    }
    /// Frames whose memory is lent.
    pub fn frames_lent(&self) -> usize {
        self.lending.frames.load(Ordering::Relaxed)
    }
    /// Bytes that are borrowed for a purpose.
    pub fn lent_for(&self, purpose: Purpose) -> usize {
        self.lending.by_purpose[purpose as usize].load(Ordering::Relaxed)
    }
    /// Bytes of one step of a borrower: so large that steps are seldom, and so small that they matter little in this pool.
    pub fn loan_step(&self) -> usize {
        (self.frames() / 64).clamp(4, STEP) * PAGE_SIZE
    }

    /// As many as are borrowed, as far as dirty pages leave some to those who read.
    fn frames_to_lend(&self) -> usize {
        let frames = self.frames();
        let borrowed = self.lending.bytes.load(Ordering::Acquire).div_ceil(PAGE_SIZE).min(frames / MOST);
        borrowed.min((frames - frames * CLEAN / 16).saturating_sub(self.dirty_frames()))
    }

    /// One step that brings the frames out of circulation to as many as are lent. No latch is held.
    pub(crate) fn settle(&self) -> Settled {
        if self.frames_lent() == self.frames_to_lend() {
            return Settled::Even;
        }
        let mut turn = self.lending.turn.lock();
        let (now, then) = (self.frames_lent(), self.frames_to_lend());
        if now >= then {
            self.return_frames(&mut turn, now - then);
            return Settled::Even;
        }
        let count = (then - now).min(STEP);
        // `count` pages leave, the coldest.
        for _ in 0..count {
            if self.free_frames() >= self.reserve() + count || !self.evict_one() {
                break;
            }
        }
        let limit = self.frames();
        let mut gone = 0;
        for _ in 0..PLACES {
            if *turn > limit || *turn < count + limit / 4 {
                *turn = limit;
            }
            *turn -= count;
            gone = self.lend_frames(*turn..*turn + count);
            if gone > 0 {
                break;
            }
        }
        match gone {
            0 => {
                self.flush_wanted.notify();
                Settled::Stuck
            }
            _ if gone == then - now => Settled::Even,
            _ => Settled::Behind,
        }
    }

    /// Takes those of these frames out of circulation that can be emptied now. Returns how many.
    fn lend_frames(&self, range: Range<usize>) -> usize {
        let keep = self.reserve();
        let before = {
            let mut free = self.free.lock();
            let before = free.lent.len();
            free.to_lend = range.clone();
            let mut spare = free.list.len().saturating_sub(keep);
            let mut lent = Vec::new();
            free.list.retain(|no| {
                let stays = spare == 0 || !range.contains(&(no.0 as usize));
                if !stays {
                    spare -= 1;
                    lent.push(*no);
                }
                stays
            });
            free.lent.extend(lent);
            before
        };
        range.clone().for_each(|no| _ = self.vacate(FrameNo(no as u32)));
        let gone: Vec<FrameNo> = {
            let mut free = self.free.lock();
            free.to_lend = 0..0;
            // The first to come back are the last here.
            free.lent[before..].sort_unstable_by(|a, b| b.cmp(a));
            self.lending.frames.store(free.lent.len(), Ordering::Relaxed);
            match planted::LENT_IN_USE.on() {
                true => range.rev().map(|no| FrameNo(no as u32)).collect(),
                false => free.lent[before..].to_vec(),
            }
        };
        for run in gone.chunk_by(|a, b| a.0 == b.0 + 1) {
            if let (Some(first), Some(last)) = (run.last(), run.first()) {
                // SAFETY: they are free and in `lent`; a thread that takes one out has `turn`.
                unsafe { self.arena.give_up(*first, *last) };
            }
        }
        if !gone.is_empty() {
            self.circulation_changed();
        }
        gone.len()
    }

    /// A reader waits for a frame in vain, for all that are not lent are pinned or dirty: some come back, whatever is borrowed.
    pub(super) fn recall_frames(&self) {
        let mut turn = self.lending.turn.lock();
        let count = (self.reserve() + 1).min(self.frames_lent());
        self.return_frames(&mut turn, count);
    }

    /// `count` frames are free again.
    fn return_frames(&self, turn: &mut usize, count: usize) {
        if count == 0 {
            return;
        }
        let mut free = self.free.lock();
        let from = free.lent.len() - count;
        let back = free.lent.split_off(from);
        *turn = back.first().map_or(0, |no| no.0 as usize + 1);
        self.arena.returned(&back);
        // Frames in front are taken first.
        free.list.splice(0..0, back);
        self.lending.frames.store(free.lent.len(), Ordering::Relaxed);
        drop(free);
        self.circulation_changed();
        self.frames_freed.notify();
        self.cleaned.notify();
    }

    /// The pool ends at `limit` from now on. Those of the lent frames that are behind it are retired ones.
    pub(super) fn set_limit(&self, limit: usize, change: impl FnOnce(&mut Free)) {
        let mut turn = self.lending.turn.lock();
        *turn = 0;
        let mut free = self.free.lock();
        free.limit = limit;
        let (lent, retired): (Vec<FrameNo>, Vec<FrameNo>) =
            std::mem::take(&mut free.lent).into_iter().partition(|no| (no.0 as usize) < limit);
        free.lent = lent;
        self.arena.returned(&retired);
        free.retired.extend(retired);
        change(&mut free);
        self.limit.store(limit, Ordering::Relaxed);
        self.lending.frames.store(free.lent.len(), Ordering::Relaxed);
        drop(free);
        self.circulation_changed();
    }

    fn circulation_changed(&self) {
        let frames = self.frames_in_circulation();
        self.lending.show(frames);
        self.headroom.resize(frames);
        self.scans.resize(4 * self.headroom.low());
        self.queues.lock().resize(frames);
        if self.dirty_frames() > dirty_limit(frames) {
            self.flush_wanted.notify();
        }
    }
}

#[cfg(test)]
mod tests;
