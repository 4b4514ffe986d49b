//! Frames: the buffer pool's memory and the metadata of each page-sized frame in it.
//!
//! A frame's bytes may be read under its shared latch and changed under its exclusive latch. The thread that holds its claim
//! ([`FrameState::Claimed`]) or took it from the free list owns them outright. This file and `pool` hold the tier's unsafe code:
//! everything above sees slices behind guards.
//!
//! States: `Free` → (claim) `Claimed` → `Ready` → (eviction claims it) `Claimed` → `Free`.
//! Only `Ready` frames are latched by users. A pin keeps a `Ready` frame `Ready`: state and pins are one word, so that a pin and
//! a claim cannot both succeed. A thread that looks up a page without a lock (`table`) may briefly pin a frame that meanwhile
//! holds another page or none: pins of frames that are not `Ready` mean nothing.

use crate::address::Tier;
use crate::memory::huge::Parts;
use crate::page::{Glsn, PAGE_SIZE, PageId, SpaceId};
use crate::planted;
use crate::stable_array::Growing;
use crate::sync::{AtomicU32, AtomicU64, PageLatch, RawLatch as _};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use terrace_io::memory::reserve::Reserved;

/// A frame's index in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FrameNo(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameState {
    Free = 0,
    /// One owner loads or evicts it; all other threads wait or look it up again.
    Claimed = 1,
    Ready = 2,
}

/// Bit position of the state in a frame's word; the pins are in the bits below.
const STATE_AT: u32 = 30;
const PINS: u32 = (1 << STATE_AT) - 1;

fn state_of(hold: u32) -> FrameState {
    match hold >> STATE_AT {
        0 => FrameState::Free,
        1 => FrameState::Claimed,
        _ => FrameState::Ready,
    }
}

/// Accesses are counted up to this number.
pub const ACCESSES_MAX: u8 = 3;
/// Layout of a frame's word of uses: the count in the low bits, the period above.
const USES_BITS: u32 = 2;
const USES: u32 = (1 << USES_BITS) - 1;
const PERIODS: u32 = u32::MAX >> USES_BITS;

const TIERS: [Tier; 4] = [Tier::Flash, Tier::Volume, Tier::Object, Tier::Log];
/// In place of a tier: the operation that read the page is about to use it.
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
    /// It was used again in memory at some time since it was read: evidence of reuse when it is evicted.
    pub reused: AtomicBool,
    id: AtomicU64,
    /// Incremented when the content changes and when the frame is reused for another page.
    pub version: AtomicU64,
    /// First log position not on disk yet for this page; 0 when clean.
    pub first_change: AtomicU64,
    /// No tier below has an image of the page yet: its first flush takes a slot and frees none.
    pub homeless: AtomicBool,
    /// Incremented at each reuse, so that a stale queue entry is recognised.
    pub turn: AtomicU32,
    /// Reads of the page that found it in this frame. Only a thread that has pinned the page adds to it.
    hits: std::sync::atomic::AtomicU64,
    /// The page was prefetched from this tier and not used yet: its index in [`TIERS`] plus 1; or [`EXPECTED`]; else 0.
    unused_from: AtomicU8,
    /// Its reads are recorded for the miss-ratio curve (`pool/sample`); the last one was in period `noted_at`.
    pub sampled: AtomicBool,
    pub noted_at: std::sync::atomic::AtomicU32,
}

// A hit writes one cache line: the counters that it changes are in the same line as the pin.
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
    pub fn state(&self) -> FrameState {
        state_of(self.hold.load(Ordering::Acquire))
    }
    /// Only for the frame's owner: no other thread changes the state meanwhile.
    pub fn set_state(&self, state: FrameState) {
        let from = self.hold.load(Ordering::Relaxed) >> STATE_AT;
        self.hold.fetch_add((state as u32).wrapping_sub(from) << STATE_AT, Ordering::AcqRel);
    }
    /// Takes the frame away from its page, unless it is pinned or another thread owns it.
    pub fn try_claim(&self) -> bool {
        let (ready, claimed) =
            ((FrameState::Ready as u32) << STATE_AT, (FrameState::Claimed as u32) << STATE_AT);
        self.hold.compare_exchange(ready, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    /// Turns the only pin, the caller's, into a claim.
    pub fn try_claim_pinned(&self) -> bool {
        let (pinned, claimed) =
            ((FrameState::Ready as u32) << STATE_AT | 1, (FrameState::Claimed as u32) << STATE_AT);
        self.hold.compare_exchange(pinned, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    pub fn pins(&self) -> u32 {
        self.hold.load(Ordering::Acquire) & PINS
    }
    /// Pins the frame if it is `Ready`.
    #[inline]
    pub fn try_pin(&self) -> bool {
        let ready = state_of(self.hold.fetch_add(1, Ordering::AcqRel)) == FrameState::Ready;
        if !ready {
            self.unpin();
        }
        ready
    }
    /// Pins the frame if it holds this page now, whatever it held before.
    #[inline]
    pub fn try_pin_as(&self, id: PageId) -> bool {
        let pinned = self.try_pin();
        let mine = pinned && (self.is_of(id) || planted::STALE_FRAME_TRUSTED.on());
        if pinned && !mine {
            self.unpin();
        }
        mine
    }
    /// Adds a pin; only for a caller that has one already or owns the frame.
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
    /// Counts a read that found the page in this frame.
    #[inline]
    pub fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
    /// For the frame's owner, when the page leaves the frame.
    pub fn take_hits(&self) -> u64 {
        self.hits.swap(0, Ordering::Relaxed)
    }
    /// Uses in different periods since the page was read or `cool` was called; at most [`ACCESSES_MAX`].
    pub fn accesses(&self) -> u8 {
        (self.uses.load(Ordering::Relaxed) & USES) as u8
    }
    /// Counts a use in `period`; several uses in one period count as one. So one operation that looks up a page three times, as
    /// one that waited for it does, is no evidence of reuse. The counter of a hot page is saturated and is not written again.
    #[inline]
    pub fn touch(&self, period: u32) {
        let seen = self.uses.load(Ordering::Relaxed);
        if seen & USES < u32::from(ACCESSES_MAX) && seen >> USES_BITS != period & PERIODS {
            self.uses.store(((period & PERIODS) << USES_BITS) | ((seen & USES) + 1), Ordering::Relaxed);
        }
    }
    /// The page entered memory in `period`; `used` says whether it was read for a use.
    pub fn came(&self, period: u32, used: bool) {
        let counted = if used { period } else { period.wrapping_sub(1) };
        self.uses.store((counted & PERIODS) << USES_BITS | u32::from(used), Ordering::Relaxed);
        self.unused_from.store(0, Ordering::Relaxed);
    }
    /// The page was prefetched from this tier in `period`.
    pub fn came_ahead(&self, period: u32, from: Tier) {
        self.came(period, false);
        let at = TIERS.iter().position(|tier| *tier == from).map_or(0, |at| at as u8 + 1);
        self.unused_from.store(at, Ordering::Relaxed);
    }
    /// The page was read for an operation that is about to use it.
    pub fn expect_use(&self) {
        self.unused_from.store(EXPECTED, Ordering::Relaxed);
    }
    /// The expected use has not happened yet.
    pub fn is_expected(&self) -> bool {
        self.unused_from.load(Ordering::Relaxed) == EXPECTED
    }
    /// The page was prefetched, or is expected to be used, and apparently was not used yet.
    #[inline]
    pub fn seems_unused(&self) -> bool {
        self.unused_from.load(Ordering::Relaxed) != 0
    }
    /// The page is used. Returns the tier that it was prefetched from, to the first caller only.
    pub fn take_unused(&self) -> Option<Tier> {
        let at = self.unused_from.swap(0, Ordering::Relaxed);
        TIERS.get(usize::from(at).checked_sub(1)?).copied()
    }
    /// The page of `other` is in this frame now: takes over its hits and uses. A page that was `young` there gets a count that
    /// makes it `young` again.
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
    /// Resets the count of uses to 0.
    pub fn cool(&self) {
        self.uses.fetch_and(!USES, Ordering::Relaxed);
    }
}

/// The pool's memory and the frames' metadata. Both reserve addresses for the maximum number of frames, and have memory for the
/// current number. Metadata stays when a frame's memory is released, because threads may walk it without a lock.
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
    /// An arena of `frames` that can grow to `max`. If that many addresses cannot be reserved, it cannot grow.
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
    /// The maximum number of frames.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Commits memory for frames up to `to`. Returns false if the operating system refuses. One caller at a time.
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

    /// Releases the memory of the frames from `to` on. One caller at a time.
    ///
    /// # Safety No thread uses these frames: they are free, and in no list that frames are taken from.
    pub unsafe fn release(&self, to: usize) {
        let len = self.len();
        if to < len {
            self.len.store(to, Ordering::Release);
            // SAFETY: by the caller's promise. Memory that the operating system refuses to take back stays ours, unused.
            _ = unsafe { self.memory.release(to * PAGE_SIZE, len * PAGE_SIZE) };
            self.parts.released(to);
        }
    }

    /// A frame is about to be used: the part that contains it gets its huge page, if no thread has touched the part before.
    #[inline]
    pub fn prepare(&self, no: FrameNo) {
        self.parts.prepare(no, &self.memory, self.len.load(Ordering::Relaxed));
    }

    /// Frames whose memory was given up may be used again.
    pub fn returned(&self, frames: &[FrameNo]) {
        frames.iter().for_each(|no| self.parts.returned(*no));
    }

    /// Returns the memory of the frames `first..=last` to the operating system until they are used again: they are zero then. The
    /// caller calls [`Arena::returned`] before it lets others use them.
    ///
    /// # Safety No thread uses these frames: they are free, and in no list that frames are taken from.
    pub unsafe fn give_up(&self, first: FrameNo, last: FrameNo) {
        let (from, to) = (first.0 as usize, last.0 as usize + 1);
        assert!(from < to && to <= self.len());
        // SAFETY: by the caller's promise. Memory that the operating system refuses to take back stays ours, unused.
        _ = unsafe { self.memory.give_up(from * PAGE_SIZE, to * PAGE_SIZE) };
        (first.0..=last.0).for_each(|no| self.parts.given_up(FrameNo(no)));
    }

    #[inline]
    pub fn frame(&self, no: FrameNo) -> &Frame {
        self.frames.get(no.0 as usize)
    }

    /// All frames that ever had memory: those that have none now are free.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter()
    }
    /// The number of frames that `frames` returns.
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

    /// Prefetches the frame's bytes into the processor's cache, whatever page they belong to: nothing is read.
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
    fn a_prefetched_page_has_one_first_use_wherever_it_moves() {
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
