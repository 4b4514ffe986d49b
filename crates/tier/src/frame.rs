//! Frames: the buffer pool's memory and what is known of each page-sized place in it.
//!
//! A frame's bytes may be read under its shared latch, changed under its exclusive latch, and are
//! owned outright by whoever holds its claim ([`State::Claimed`]) or took it from the free list.
//! This file and `pool` are the tier's unsafe room: everything above sees slices behind guards.
//!
//! States: `Free` → (claim) `Claimed` → `Ready` → (eviction claims it) `Claimed` → `Free`.
//! Only `Ready` frames are latched by users. A pin keeps a `Ready` frame `Ready`: state and pins are one word, so
//! that a pin and a claim cannot both succeed. Whoever looks for a page without a lock (`table`) may pin, for a moment,
//! a frame that has become another page's or nobody's: pins of frames that are not `Ready` mean nothing.

use crate::below::Tier;
use crate::growing::Growing;
use crate::huge::Parts;
use crate::page::{Glsn, PAGE_SIZE, PageId, SpaceId};
use crate::planted;
use crate::sync::{AtomicU32, AtomicU64, PageLatch, RawLatch as _};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use terrace_io::reserve::Reserved;

/// A frame's place in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FrameNo(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    Free = 0,
    /// One owner loads it or evicts it; everyone else waits or looks again.
    Claimed = 1,
    Ready = 2,
}

/// Where the state stands in a frame's word; the pins are below.
const STATE_AT: u32 = 30;
const PINS: u32 = (1 << STATE_AT) - 1;

fn state_of(hold: u32) -> State {
    match hold >> STATE_AT {
        0 => State::Free,
        1 => State::Claimed,
        _ => State::Ready,
    }
}

/// Accesses are counted up to this.
pub const ACCESSES_MAX: u8 = 3;
/// Of a frame's word of uses: their count below, the period above.
const USES_BITS: u32 = 2;
const USES: u32 = (1 << USES_BITS) - 1;
const PERIODS: u32 = u32::MAX >> USES_BITS;

const TIERS: [Tier; 4] = [Tier::Flash, Tier::Volume, Tier::Object, Tier::Log];
/// In place of a tier: who has read the page is about to use it.
const EXPECTED: u8 = TIERS.len() as u8 + 1;

#[repr(align(64))]
pub(crate) struct Frame {
    pub latch: PageLatch,
    /// State and pins.
    hold: AtomicU32,
    /// The next frame of the page table's bucket (`table`).
    pub next: AtomicU32,
    /// Uses since the page came into memory, and the period of the last one that counted.
    uses: AtomicU32,
    /// It was used again in memory, some time since it came: evidence of reuse when it leaves.
    pub reused: AtomicBool,
    id: AtomicU64,
    /// Moves on when the content changes and when the frame is used anew.
    pub version: AtomicU64,
    /// First log position not on disk yet for this page; 0 when clean.
    pub first_change: AtomicU64,
    /// No image of the page has a place below yet: its first flush takes a slot and gives none back.
    pub homeless: AtomicBool,
    /// Moves on at each reuse, so that a stale entry in a queue is known.
    pub turn: AtomicU32,
    /// Reads of the page that found it here. Only who has pinned the page adds to it.
    hits: std::sync::atomic::AtomicU64,
    /// The page came ahead from this tier and nobody has used it yet: its place in [`TIERS`], and 1; or [`EXPECTED`]; else 0.
    unused_from: AtomicU8,
    /// Its reads are noted for the miss-ratio curve (`pool/sample`), the last one in this period.
    pub sampled: AtomicBool,
    pub noted_at: std::sync::atomic::AtomicU32,
}

// A hit writes one cache line: what it counts stands beside the pin.
#[cfg(not(feature = "model"))]
const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    fn new() -> Frame {
        Frame {
            latch: PageLatch::INIT,
            hold: AtomicU32::new(0),
            next: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            reused: AtomicBool::new(false),
            id: AtomicU64::new(0),
            version: AtomicU64::new(1),
            first_change: AtomicU64::new(0),
            homeless: AtomicBool::new(false),
            turn: AtomicU32::new(0),
            hits: std::sync::atomic::AtomicU64::new(0),
            unused_from: AtomicU8::new(0),
            sampled: AtomicBool::new(false),
            noted_at: std::sync::atomic::AtomicU32::new(0),
        }
    }

    pub fn id(&self) -> PageId {
        let id = self.id.load(Ordering::Acquire);
        PageId::new(SpaceId((id >> 32) as u32), id as u32)
    }
    #[inline]
    pub fn is_of(&self, id: PageId) -> bool {
        self.id.load(Ordering::Acquire) == id.as_u64()
    }
    pub fn set_id(&self, id: PageId) {
        self.id.store(id.as_u64(), Ordering::Release);
    }
    pub fn state(&self) -> State {
        state_of(self.hold.load(Ordering::Acquire))
    }
    /// For whoever owns the frame: nobody else changes the state meanwhile.
    pub fn set_state(&self, state: State) {
        let from = self.hold.load(Ordering::Relaxed) >> STATE_AT;
        self.hold.fetch_add((state as u32).wrapping_sub(from) << STATE_AT, Ordering::AcqRel);
    }
    /// Takes the frame away from its page, unless it is pinned or somebody else's.
    pub fn try_claim(&self) -> bool {
        let (ready, claimed) = ((State::Ready as u32) << STATE_AT, (State::Claimed as u32) << STATE_AT);
        self.hold.compare_exchange(ready, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    /// Turns the only pin, the caller's, into a claim.
    pub fn try_claim_pinned(&self) -> bool {
        let (pinned, claimed) = ((State::Ready as u32) << STATE_AT | 1, (State::Claimed as u32) << STATE_AT);
        self.hold.compare_exchange(pinned, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    pub fn pins(&self) -> u32 {
        self.hold.load(Ordering::Acquire) & PINS
    }
    /// Pins the frame if it is `Ready`.
    #[inline]
    pub fn try_pin(&self) -> bool {
        let ready = state_of(self.hold.fetch_add(1, Ordering::AcqRel)) == State::Ready;
        if !ready {
            self.unpin();
        }
        ready
    }
    /// Pins the frame if it has this page, whatever it was a moment ago.
    #[inline]
    pub fn try_pin_as(&self, id: PageId) -> bool {
        let pinned = self.try_pin();
        let mine = pinned && (self.is_of(id) || planted::STALE_FRAME_TRUSTED.on());
        if pinned && !mine {
            self.unpin();
        }
        mine
    }
    /// One pin more, for who has one or owns the frame.
    #[inline]
    pub fn pin_again(&self) {
        self.hold.fetch_add(1, Ordering::AcqRel);
    }
    #[inline]
    pub fn unpin(&self) {
        let before = self.hold.fetch_sub(1, Ordering::AcqRel);
        assert!(before & PINS > 0, "unpinned more often than pinned");
    }
    pub fn first_change(&self) -> Option<Glsn> {
        Some(self.first_change.load(Ordering::Acquire)).filter(|g| *g != 0)
    }
    pub fn is_dirty(&self) -> bool {
        self.first_change.load(Ordering::Acquire) != 0
    }
    /// Counts a read that found the page here.
    #[inline]
    pub fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
    /// For the frame's owner: the page leaves it.
    pub fn take_hits(&self) -> u64 {
        self.hits.swap(0, Ordering::Relaxed)
    }
    /// Uses in different periods since the page came, or since `cool`; at most [`ACCESSES_MAX`].
    pub fn accesses(&self) -> u8 {
        (self.uses.load(Ordering::Relaxed) & USES) as u8
    }
    /// Counts a use in `period`; several uses in one period are one. So one operation that looks at a
    /// page thrice, as one does that waited for it, is no evidence of reuse. A hot page's counter is full and
    /// is not written again.
    #[inline]
    pub fn touch(&self, period: u32) {
        let seen = self.uses.load(Ordering::Relaxed);
        if seen & USES < u32::from(ACCESSES_MAX) && seen >> USES_BITS != period & PERIODS {
            self.uses.store(((period & PERIODS) << USES_BITS) | ((seen & USES) + 1), Ordering::Relaxed);
        }
    }
    /// The page came into memory in `period`: for a use, or for none yet.
    pub fn came(&self, period: u32, used: bool) {
        let counted = if used { period } else { period.wrapping_sub(1) };
        self.uses.store((counted & PERIODS) << USES_BITS | u32::from(used), Ordering::Relaxed);
        self.unused_from.store(0, Ordering::Relaxed);
    }
    /// The page came in `period`, from this tier, before anybody asked for it.
    pub fn came_ahead(&self, period: u32, from: Tier) {
        self.came(period, false);
        let at = TIERS.iter().position(|tier| *tier == from).map_or(0, |at| at as u8 + 1);
        self.unused_from.store(at, Ordering::Relaxed);
    }
    /// It was read for what is about to use it.
    pub fn expect_use(&self) {
        self.unused_from.store(EXPECTED, Ordering::Relaxed);
    }
    /// The use that was expected has not come.
    pub fn is_expected(&self) -> bool {
        self.unused_from.load(Ordering::Relaxed) == EXPECTED
    }
    /// It came ahead, or is expected to be used, and was not used yet, as it seems.
    #[inline]
    pub fn seems_unused(&self) -> bool {
        self.unused_from.load(Ordering::Relaxed) != 0
    }
    /// The page is used. The tier that it came ahead from, for the first of those who call.
    pub fn take_unused(&self) -> Option<Tier> {
        let at = self.unused_from.swap(0, Ordering::Relaxed);
        TIERS.get(usize::from(at).checked_sub(1)?).copied()
    }
    /// The page of `other` is here now, with its hits and the uses that it had; one that was young there is used enough to be so again.
    pub fn moved_from(&self, other: &Frame) {
        let (uses, reused) = (other.uses.load(Ordering::Relaxed), other.reused.load(Ordering::Relaxed));
        let count = (uses & USES).max(if reused { 2 } else { 0 });
        self.uses.store(uses & !USES | count, Ordering::Relaxed);
        self.reused.store(reused, Ordering::Relaxed);
        self.hits.store(other.take_hits(), Ordering::Relaxed);
        self.unused_from.store(other.unused_from.load(Ordering::Relaxed), Ordering::Relaxed);
        self.sampled.store(other.sampled.load(Ordering::Relaxed), Ordering::Relaxed);
        self.noted_at.store(other.noted_at.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    /// Uses are counted from 0 again.
    pub fn cool(&self) {
        self.uses.fetch_and(!USES, Ordering::Relaxed);
    }
}

/// The pool's memory and the frames' metadata. Both have addresses for the most frames that the pool may ever have, and
/// memory for those that it has; metadata stays when a frame's memory goes, for whoever walks without a lock.
pub(crate) struct Arena {
    memory: Reserved,
    parts: Parts,
    frames: Growing<Frame>,
    /// Frames that have memory.
    len: AtomicUsize,
    max: usize,
}

// SAFETY: the bytes behind `memory` are reached only as the file's header says: under latches or by
// a single owner; the metadata is atomic.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of `frames` that can grow to `max`; if there are not so many addresses, to none more than it has.
    ///
    /// Panics if the machine does not give the memory for `frames`.
    pub fn new(frames: usize, max: usize) -> Arena {
        let reserve =
            |max: usize| Some((Reserved::new(max * PAGE_SIZE)?, Parts::new(max)?, Growing::new(max)?, max));
        let (memory, parts, metadata, max) = reserve(max.max(frames))
            .or_else(|| reserve(frames))
            .unwrap_or_else(|| panic!("there are no addresses for {frames} frames"));
        let arena = Arena { memory, parts, frames: metadata, len: AtomicUsize::new(0), max };
        assert!(arena.grow(frames), "the machine does not give memory for {frames} frames");
        arena
    }

    /// Frames that have memory.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }
    /// The most frames that it can have.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Gives memory to frames up to `to`. False: the machine does not. One caller at a time.
    pub fn grow(&self, to: usize) -> bool {
        let len = self.len();
        if to <= len {
            return true;
        }
        if to > self.max
            || !self.memory.commit(len * PAGE_SIZE, to * PAGE_SIZE)
            || !self.frames.make(to, Frame::new)
            || !self.parts.make(to)
        {
            return false;
        }
        self.memory.refuse_huge(len * PAGE_SIZE, to * PAGE_SIZE);
        self.len.store(to, Ordering::Release);
        true
    }

    /// Takes the memory of the frames from `to` on. One caller at a time.
    ///
    /// # Safety
    /// These frames are nobody's: free, and in no list that anybody takes frames from.
    pub unsafe fn release(&self, to: usize) {
        let len = self.len();
        if to < len {
            self.len.store(to, Ordering::Release);
            // SAFETY: by the caller's promise. What the machine refuses to take stays ours, unused.
            _ = unsafe { self.memory.release(to * PAGE_SIZE, len * PAGE_SIZE) };
            self.parts.released(to);
        }
    }

    /// A frame is about to be used: the part that it is in gets its huge page, if nobody has touched it.
    #[inline]
    pub fn prepare(&self, no: FrameNo) {
        self.parts.prepare(no, &self.memory, self.len.load(Ordering::Relaxed));
    }

    /// Frames that were given up may be used again.
    pub fn returned(&self, frames: &[FrameNo]) {
        frames.iter().for_each(|no| self.parts.returned(*no));
    }

    /// Gives the memory of the frames `first..=last` to the machine until they are used again: they are zero then. Who lets others use
    /// them says so first ([`Arena::returned`]).
    ///
    /// # Safety
    /// These frames are nobody's: free, and in no list that anybody takes frames from.
    pub unsafe fn give_up(&self, first: FrameNo, last: FrameNo) {
        let (from, to) = (first.0 as usize, last.0 as usize + 1);
        assert!(from < to && to <= self.len());
        // SAFETY: by the caller's promise. What the machine refuses to take stays ours, unused.
        _ = unsafe { self.memory.give_up(from * PAGE_SIZE, to * PAGE_SIZE) };
        (first.0..=last.0).for_each(|no| self.parts.given_up(FrameNo(no)));
    }

    #[inline]
    pub fn frame(&self, no: FrameNo) -> &Frame {
        self.frames.get(no.0 as usize)
    }

    /// All that ever had memory: those that have none now are free.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter()
    }
    /// How many `frames` has.
    pub fn made(&self) -> usize {
        self.frames.len()
    }

    /// The frame's bytes.
    ///
    /// # Safety
    /// The caller holds the shared or exclusive latch, or owns the frame by claim, for `'a`.
    #[inline]
    pub unsafe fn bytes<'a>(&self, no: FrameNo) -> &'a [u8; PAGE_SIZE] {
        assert!((no.0 as usize) < self.len.load(Ordering::Relaxed));
        // SAFETY: it has memory by the assertion; not written meanwhile by the caller's promise.
        unsafe { &*self.memory.base().add(no.0 as usize * PAGE_SIZE).cast() }
    }

    /// Has the processor fetch the frame's bytes; whoever's they are: nothing is read.
    pub fn warm(&self, no: FrameNo) {
        #[cfg(target_arch = "x86_64")]
        if (no.0 as usize) < self.len.load(Ordering::Relaxed) {
            let start = self.memory.base().wrapping_add(no.0 as usize * PAGE_SIZE);
            for line in (0..PAGE_SIZE).step_by(64) {
                use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
                // SAFETY: a prefetch reads nothing and faults nowhere.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(line).cast()) };
            }
        }
    }

    /// The frame's bytes, to change.
    ///
    /// # Safety
    /// The caller holds the exclusive latch, or owns the frame by claim, for `'a`, and no other
    /// slice of it is alive.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut<'a>(&self, no: FrameNo) -> &'a mut [u8] {
        assert!((no.0 as usize) < self.len.load(Ordering::Relaxed));
        // SAFETY: it has memory by the assertion; exclusive by the caller's promise.
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.base().add(no.0 as usize * PAGE_SIZE), PAGE_SIZE)
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_came_ahead_has_one_first_use_wherever_it_moves() {
        let (one, other) = (Frame::new(), Frame::new());
        for tier in TIERS {
            one.came_ahead(3, tier);
            other.came(3, true);
            assert!(one.seems_unused() && !other.seems_unused());
            other.moved_from(&one);
            assert_eq!((other.take_unused(), other.take_unused()), (Some(tier), None));
        }
        one.came_ahead(3, Tier::Flash);
        one.came(4, false);
        assert_eq!(one.take_unused(), None, "another page's");
    }
}
