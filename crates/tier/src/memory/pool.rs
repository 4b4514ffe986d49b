//! The buffer pool: which page is in which frame, and who may touch it.
//!
//! A page table maps a page to its frame (`table`). A miss *claims*: it maps the page to a free frame in state `Claimed`, and
//! only then looks below. So a page has one loader, and no other thread loads, flushes or evicts it meanwhile; other readers of
//! the page wait for the claim to end and look again. Eviction claims the frame in the same way while it offers the image to the
//! BPE, so a page cannot be loaded again between its eviction and its fill.
//!
//! Two queues order the frames (`queues`): `old`, which every page from below enters, and `young`, for pages used again in
//! memory.
//!
//! Dirty frames are kept in the order of their first change: that is the flush order, and its head is the pool's bound for the
//! checkpoint.
//!
//! Lock order: a shard's lock, then the free list, the queues or the dirty set; each held for memory
//! work only. Page latches are taken with a pin and no lock. No wait and no I/O under any of them.
//!
//! Not here: finding a page (`lookup`); how a page comes in (`load`, `ahead`, `made`); free frames and eviction (`room`); dirty
//! pages (`dirty`); resizing (`resize`); frames whose memory is lent to another component (`lend`); counters (`counts`); where an
//! image comes from (`below`); which pages are written where (`flush`); which thread evicts when (`evict`).

mod access;
mod ahead;
mod counts;
mod dirty;
pub mod frame_hint;
mod headroom;
mod invariants;
mod lend;
mod load;
mod lookup;
mod made;
mod miss;
mod resize;
mod room;
mod sample;
pub(crate) mod scans;
mod table;

pub use access::{Access, ScanDirection};
pub use counts::{PoolCounters, Reads};
pub use dirty::DirtyCopy;
pub use dirty::dirty_limit;
pub(crate) use dirty::share;
pub(crate) use lend::Settled;
pub use lend::{Loan, Purpose};
pub(crate) use lookup::Lookup;
pub(crate) use resize::Front;
pub use resize::{PoolLeft, ResizeError};

use crate::limits::by_space::{BySpace, PageReads};
use crate::memory::frame::{Arena, Frame, FrameNo, FrameState};
use crate::memory::lower_tiers::{Below, ReadError};
use crate::memory::queues::Queues;
use crate::page::{Glsn, PAGE_SIZE, PageId, SpaceId};
use crate::sync::{Mutex, Mutexes, RawLatch as _};
use headroom::Headroom;
use lend::Lending;
use sample::Sample;
use scans::Scans;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use table::{SHARDS, Table};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::Event;

/// How long a reader waits for a free frame, while none becomes free, before it fails, in nanoseconds.
const FRAME_WAIT_MAX: Nanos = 30_000_000_000;
/// The interval after which a waiter checks again without being notified, in nanoseconds.
const PATIENCE: Nanos = 100_000_000;

/// Counters and events of one shard of the page table.
#[derive(Default)]
#[repr(align(64))]
struct Shard {
    /// Memory hits of its pages that have left memory.
    hits: AtomicU64,
    /// A claim of one of its pages ended: loaded, failed or evicted.
    claims_ended: Event,
}

pub struct Pool {
    pub(crate) world: World,
    arena: Arena,
    table: Table,
    shards: Box<[Shard]>,
    free: Mutex<Free, { Mutexes::PoolFree as u8 }>,
    /// The number of frames that pages may use: `free.limit`, readable without its lock.
    limit: AtomicUsize,
    /// Held while a page moves from frame to frame, and while all frames are searched for pages that may move.
    moves: Mutex<(), { Mutexes::PoolMoves as u8 }>,
    pub(crate) queues: Mutex<Queues, { Mutexes::PoolQueues as u8 }>,
    /// Advances as pages arrive (`Queues::arrived`). A page's uses count once a period.
    period: AtomicU32,
    dirty: Mutex<BTreeSet<(Glsn, FrameNo)>, { Mutexes::PoolDirty as u8 }>,
    /// The number of entries in `dirty`.
    dirty_count: AtomicUsize,
    homeless: AtomicUsize,
    /// Those of `homeless` whose space sinks.
    homeless_sinking: AtomicUsize,
    /// The same for temporary pages, which `homeless` does not count.
    unspilled: AtomicUsize,
    below: Arc<dyn Below>,
    pub(crate) scans: Scans,
    /// Maximum number of pages that one request of a prefetcher spans.
    prefetch_max: AtomicUsize,
    /// A frame became free.
    pub(crate) frames_freed: Event,
    /// A dirty page became clean.
    cleaned: Event,
    /// Free frames are low: wakes the evictor.
    pub(crate) frames_wanted: Arc<Event>,
    /// Clean frames are low, or the checkpoint waits: wakes the flusher.
    pub flush_wanted: Arc<Event>,
    pub counters: PoolCounters,
    pub(crate) headroom: Headroom,
    pub(crate) lending: Lending,
    reads: BySpace<PageReads>,
    /// The highest value that `hits` has returned.
    hits_told: AtomicU64,
    sample: Sample,
}

/// Frames that hold no page.
struct Free {
    list: Vec<FrameNo>,
    /// Frames from here on are not to be used (any more): when freed they go to `retired`.
    limit: usize,
    retired: Vec<FrameNo>,
    /// Frames whose memory is lent: see `lend`. The first ones are returned last.
    lent: Vec<FrameNo>,
    /// Frames that are being taken out of circulation: one of them that becomes free is lent.
    to_lend: std::ops::Range<usize>,
}

impl Pool {
    /// A pool of `frames` pages; at least 16.
    pub fn new(world: World, frames: usize, below: Arc<dyn Below>) -> Pool {
        Pool::that_grows(world, frames, frames, below)
    }

    /// A pool of `frames` pages that can grow to `max` (`resize`), as far as addresses can be reserved.
    pub fn that_grows(world: World, frames: usize, max: usize, below: Arc<dyn Below>) -> Pool {
        assert!(frames >= 16, "a pool of {frames} frames cannot hold one mini-transaction");
        let headroom = Headroom::new(frames);
        let pool = Pool {
            world,
            arena: Arena::new(frames, max),
            table: Table::new(frames, max),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            free: Mutex::new(Free {
                list: (0..frames as u32).rev().map(FrameNo).collect(),
                limit: frames,
                retired: Vec::new(),
                lent: Vec::new(),
                to_lend: 0..0,
            }),
            limit: AtomicUsize::new(frames),
            moves: Mutex::new(()),
            queues: Mutex::new(Queues::new(frames)),
            period: AtomicU32::new(0),
            dirty: Mutex::new(BTreeSet::new()),
            dirty_count: AtomicUsize::new(0),
            homeless: AtomicUsize::new(0),
            homeless_sinking: AtomicUsize::new(0),
            unspilled: AtomicUsize::new(0),
            below,
            scans: Scans::new(4 * headroom.low()),
            prefetch_max: AtomicUsize::new(crate::memory::prefetch::PREFETCH_MAX),
            frames_freed: Event::new(),
            cleaned: Event::new(),
            frames_wanted: Arc::new(Event::new()),
            flush_wanted: Arc::new(Event::new()),
            counters: PoolCounters::default(),
            headroom,
            lending: Lending::new(),
            reads: BySpace::default(),
            hits_told: AtomicU64::new(0),
            sample: Sample::new(frames),
        };
        pool.lending.show(frames);
        pool
    }

    /// Frames that pages may use, including those whose memory is lent (`frames_lent`). While the pool is shrinking, the target
    /// size.
    pub fn frames(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }
    /// Frames that have memory.
    pub fn frames_with_memory(&self) -> usize {
        self.arena.len()
    }
    /// The maximum number of frames.
    pub fn frames_max(&self) -> usize {
        self.arena.max()
    }
    pub fn free_frames(&self) -> usize {
        self.free.lock().list.len()
    }
    /// Below this number of free frames, frames are freed ahead of need.
    pub fn free_low(&self) -> usize {
        self.headroom.low()
    }
    /// The last free frames, reserved for operations that must not wait.
    fn reserve(&self) -> usize {
        (self.frames_in_circulation() / 32).clamp(2, 64)
    }
    pub fn dirty_frames(&self) -> usize {
        self.dirty_count.load(Ordering::Relaxed)
    }

    fn shard(&self, id: PageId) -> &Shard {
        &self.shards[table::shard(id)]
    }

    pub(crate) fn frame(&self, no: FrameNo) -> &Frame {
        self.arena.frame(no)
    }

    pub(crate) fn unpin(&self, no: FrameNo) {
        self.frame(no).unpin();
    }

    /// The read, top half (R1): memory, or one loader's trip below. Pins the frame.
    /// Called with no latch held.
    pub(crate) fn pin(&self, id: PageId, access: Access) -> Result<FrameNo, ReadError> {
        match self.lookup(id, access) {
            Lookup::Pinned(no) => Ok(no),
            _ => self.bring(id, access),
        }
    }

    /// Copies a page's image if it is in memory and clean, for a merge. Does not count as a use.
    pub fn copy_clean(&self, id: PageId, buf: &mut [u8]) -> bool {
        let Lookup::Pinned(no) = self.lookup(id, Access::Internal) else { return false };
        let frame = self.frame(no);
        let mut copied = false;
        if frame.latch.try_lock_shared() {
            if !frame.is_dirty() {
                // SAFETY: under the shared latch.
                buf.copy_from_slice(unsafe { self.arena.bytes(no) });
                copied = true;
            }
            // SAFETY: locked above.
            unsafe { frame.latch.unlock_shared() };
        }
        self.unpin(no);
        copied
    }

    /// Discards all pages of a dropped space, dirty ones too. Returns how many are still pinned: the caller unpins and calls
    /// again.
    pub fn discard_space(&self, space: SpaceId) -> usize {
        self.sample_forget(space);
        let mut pinned = 0;
        let _moves = self.moves.lock();
        for no in (0..self.arena.made() as u32).map(FrameNo) {
            let frame = self.frame(no);
            if frame.state() == FrameState::Free || frame.id().space != space {
                continue;
            }
            if !frame.try_claim() {
                pinned += usize::from(frame.state() != FrameState::Free);
                continue;
            }
            let id = frame.id();
            if id.space != space || !frame.latch.try_lock_exclusive() {
                self.end_claim(no); // it holds another page by now, or the flusher copies it
                pinned += usize::from(id.space == space);
                continue;
            }
            if let Some(first) = frame.first_change() {
                let mut dirty = self.dirty.lock();
                dirty.remove(&(first, no));
                self.dirty_count.store(dirty.len(), Ordering::Relaxed);
            }
            self.clear_homeless(no);
            // SAFETY: locked above.
            unsafe { frame.latch.unlock_exclusive() };
            self.unclaim(id, no);
        }
        pinned
    }

    // --- latches -----------------------------------------------------------------------------

    /// Takes the exclusive latch of a pinned frame.
    #[inline]
    pub(crate) fn latch_exclusive(&self, no: FrameNo) {
        self.frame(no).latch.lock_exclusive();
    }
    /// # Safety
    /// The caller holds it.
    pub(crate) unsafe fn unlatch_exclusive(&self, no: FrameNo) {
        // SAFETY: by the caller's promise.
        unsafe { self.frame(no).latch.unlock_exclusive() }
    }
    /// # Safety
    /// The caller holds the latch, shared or exclusive, for `'a`.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(&self, no: FrameNo) -> &'a [u8; PAGE_SIZE] {
        // SAFETY: by the caller's promise.
        unsafe { self.arena.bytes(no) }
    }
    /// # Safety
    /// The caller holds the exclusive latch for `'a`, and no other slice of the frame is alive.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn bytes_mut<'a>(&self, no: FrameNo) -> &'a mut [u8] {
        // SAFETY: by the caller's promise.
        unsafe { self.arena.bytes_mut(no) }
    }
}

#[cfg(all(test, feature = "model"))]
mod model;
#[cfg(test)]
mod tests;
