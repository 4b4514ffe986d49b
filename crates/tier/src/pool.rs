//! The buffer pool: which page is in which frame, and who may touch it.
//!
//! A page table maps a page to its frame (`table`). A miss *claims*: it maps the page to a free frame in
//! state `Claimed`, and only then looks below. So a page has one loader,
//! and nobody else loads, flushes or evicts it meanwhile; whoever else wants it waits for the claim
//! to end and looks again. Eviction claims the frame in the same way while it offers the image to
//! the BPE, so a page cannot be loaded anew between its eviction and its fill.
//!
//! Two queues order the frames (`queues`): `old`, where every page from below lands, and `young`,
//! for pages used again in memory.
//!
//! Dirty frames are kept in the order of their first change: that order is the flush order, and its
//! head is the pool's bound for the checkpoint.
//!
//! Lock order: a shard's lock, then the free list, the queues or the dirty set; each held for memory
//! work only. Page latches are taken with a pin and no lock. No wait and no I/O under any of them.
//!
//! Not here: more frames or fewer (`resize`), frames whose memory somebody else has for a while (`lend`), free frames and eviction (`room`), dirty pages (`dirty`), where an image comes from
//! (`below`), what is written where (`flush`), who evicts when (`evict`).

mod ahead;
mod dirty;
mod headroom;
mod invariants;
mod lend;
mod made;
mod resize;
mod room;
mod sample;
pub(crate) mod scans;
pub mod seen;
mod table;
mod turn;

pub use dirty::DirtyCopy;
pub(crate) use lend::Settled;
pub use lend::{Loan, Purpose};
pub(crate) use resize::Front;
pub use resize::{PoolLeft, ResizeError};

use crate::below::{Below, Fetched, Held, ReadError, Tier};
use crate::by_space::{BySpace, PageReads, add};
use crate::frame::{ACCESSES_MAX, Arena, Frame, FrameNo, State};
use crate::meter;
use crate::page::{Glsn, PAGE_SIZE, PageId, SpaceId};
use crate::planted;
use crate::queues::{Place, Queues};
use crate::sync::{Mutex, Mutexes, RawLatch as _};
use hashbrown::HashMap;
use headroom::Headroom;
use lend::Lending;
use sample::Sample;
use scans::Scans;
use seen::LastSeen;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use table::{SHARDS, Table};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::Event;

/// How long a reader waits for a free frame while none becomes free, before it gives up, in nanoseconds.
const FRAME_WAIT_MAX: Nanos = 30_000_000_000;
/// After how long a waiter looks again by itself, in nanoseconds.
const PATIENCE: Nanos = 100_000_000;

/// How a use of a page counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Normal,
    /// As normal, in a range of keys of which so many pages were read, one after the other: no more than that are fetched ahead.
    Range(u8),
    /// Part of a scan: does not heat the page.
    Scan,
    /// An estimate of a range, which comes again with each such statement: heats the page, but is counted only where it has to be read from below.
    Estimate,
    /// Check, merge, statistics: does not heat the page.
    Internal,
    /// As internal, to open a table or to sample it: the page may be of no use after that, and if it had to be read from below it leaves before all
    /// others, unless it is used meanwhile.
    Once,
}

impl Access {
    fn heats(self) -> bool {
        matches!(self, Access::Normal | Access::Range(_) | Access::Estimate)
    }

    /// Whether it is counted where the page is in memory.
    fn counts(self) -> bool {
        !matches!(self, Access::Estimate | Access::Internal | Access::Once)
    }

    /// Whether it is counted where the page is read from below.
    fn counts_below(self) -> bool {
        !matches!(self, Access::Internal | Access::Once)
    }

    /// Pages that may come along with one that is missed.
    fn ahead_max(self) -> usize {
        match self {
            Access::Scan => usize::MAX,
            Access::Range(read) => usize::from(read),
            Access::Normal | Access::Estimate | Access::Internal | Access::Once => 0,
        }
    }
}

/// What is known of the pages of a shard of the page table.
#[derive(Default)]
#[repr(align(64))]
struct Shard {
    /// Reads that found one of its pages in memory, of those that have left it.
    hits: AtomicU64,
    /// A claim of one of its pages ended: loaded, failed or evicted.
    claims_ended: Event,
}

/// What happened since the start.
#[derive(Default, Debug)]
pub struct PoolCounters {
    pub misses: AtomicU64,
    /// Reads that found their page below, of those that count (not the engine's own), and first ones of pages that had come ahead.
    pub reads_below: AtomicU64,
    /// Pages that came with another one, before anybody asked for them.
    pub read_ahead: AtomicU64,
    /// Those of them that a prefetcher fetched.
    pub prefetched: AtomicU64,
    pub evictions: AtomicU64,
    /// Evictions by a reader that found no free frame: the cleaners were late.
    pub foreground_evictions: AtomicU64,
    pub frame_waits: AtomicU64,
    /// Writers held back because too many pages are dirty.
    pub writer_waits: AtomicU64,
    pub claim_waits: AtomicU64,
    pub promoted: AtomicU64,
}

pub struct Pool {
    pub(crate) world: World,
    arena: Arena,
    table: Table,
    shards: Box<[Shard]>,
    free: Mutex<Free, { Mutexes::PoolFree as u8 }>,
    /// As many frames as pages may use: `free.limit`, to be read without its lock.
    limit: AtomicUsize,
    /// Held while a page moves from frame to frame, and while all frames are looked through for pages that may move.
    moves: Mutex<(), { Mutexes::PoolMoves as u8 }>,
    pub(crate) queues: Mutex<Queues, { Mutexes::PoolQueues as u8 }>,
    /// Moves on as pages arrive (`Queues::arrived`). A use counts once a period.
    period: AtomicU32,
    dirty: Mutex<BTreeSet<(Glsn, FrameNo)>, { Mutexes::PoolDirty as u8 }>,
    /// As many as `dirty` has.
    dirty_count: AtomicUsize,
    homeless: AtomicUsize,
    /// Of them, those whose space sinks.
    homeless_sinking: AtomicUsize,
    /// Likewise of temporary pages, which are not among those.
    unspilled: AtomicUsize,
    below: Arc<dyn Below>,
    pub(crate) scans: Scans,
    /// Pages that a request of a prefetcher spans at the most.
    prefetch_max: AtomicUsize,
    /// A frame became free.
    pub(crate) frames_freed: Event,
    /// A dirty page became clean.
    cleaned: Event,
    /// Free frames are few: for the evictor.
    pub(crate) frames_wanted: Arc<Event>,
    /// Clean frames are few, or the checkpoint waits: for the flusher.
    pub flush_wanted: Arc<Event>,
    pub counters: PoolCounters,
    pub(crate) headroom: Headroom,
    pub(crate) lending: Lending,
    reads: BySpace<PageReads>,
    /// What `hits` told at the most.
    hits_told: AtomicU64,
    sample: Sample,
}

/// Frames that hold no page.
struct Free {
    list: Vec<FrameNo>,
    /// Frames from here on are not to be used (any more): they end in `retired`.
    limit: usize,
    retired: Vec<FrameNo>,
    /// Frames whose memory is lent: see `lend`. The first are the last to come back.
    lent: Vec<FrameNo>,
    /// Frames that are being taken out of circulation: one of them that becomes free is lent.
    to_lend: std::ops::Range<usize>,
}

/// What was read of a space, by where the page was: see [`PageReads`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reads {
    pub memory: u64,
    pub flash: u64,
    pub volume: u64,
    pub object: u64,
    pub log: u64,
    pub ahead: u64,
}

/// Result of looking for a page in memory.
pub(crate) enum Lookup {
    Pinned(FrameNo),
    Claimed,
    Absent,
}

impl Pool {
    /// A pool of `frames` pages; at least 16.
    pub fn new(world: World, frames: usize, below: Arc<dyn Below>) -> Pool {
        Pool::that_grows(world, frames, frames, below)
    }

    /// A pool of `frames` pages that can grow to `max` (`resize`), as far as there are addresses.
    pub fn that_grows(world: World, frames: usize, max: usize, below: Arc<dyn Below>) -> Pool {
        assert!(frames >= 16, "a pool of {frames} frames cannot hold one mini-transaction");
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
            scans: Scans::default(),
            prefetch_max: AtomicUsize::new(crate::prefetch::PREFETCH_MAX),
            frames_freed: Event::new(),
            cleaned: Event::new(),
            frames_wanted: Arc::new(Event::new()),
            flush_wanted: Arc::new(Event::new()),
            counters: PoolCounters::default(),
            headroom: Headroom::new(frames),
            lending: Lending::new(),
            reads: BySpace::default(),
            hits_told: AtomicU64::new(0),
            sample: Sample::new(frames),
        };
        pool.lending.show(frames);
        pool
    }

    /// Frames that pages may use, with those whose memory is lent (`frames_lent`). While the pool is made smaller, the number that it
    /// is to have.
    pub fn frames(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }
    /// Frames that have memory.
    pub fn frames_with_memory(&self) -> usize {
        self.arena.len()
    }
    /// The most frames that it can have.
    pub fn frames_max(&self) -> usize {
        self.arena.max()
    }
    pub fn free_frames(&self) -> usize {
        self.free.lock().list.len()
    }
    /// Below this many free frames, room is made ahead of need.
    pub fn free_low(&self) -> usize {
        self.headroom.low()
    }
    /// The last free frames, for what must not wait.
    fn reserve(&self) -> usize {
        (self.frames_in_circulation() / 32).clamp(2, 64)
    }
    pub fn dirty_frames(&self) -> usize {
        self.dirty_count.load(Ordering::Relaxed)
    }
    /// Reads that found their page in memory, where it had not come ahead for them. Looks at every frame.
    pub fn hits(&self) -> u64 {
        let left: u64 = self.shards.iter().map(|s| s.hits.load(Ordering::Relaxed)).sum();
        let here: u64 = self.arena.frames().map(Frame::hits).sum();
        // A page that leaves meanwhile is counted nowhere for a moment: a counter never goes back.
        let told = self.hits_told.fetch_max(left + here, Ordering::Relaxed);
        told.max(left + here)
    }

    /// Pages in memory of each space.
    pub fn pages_by_space(&self) -> HashMap<SpaceId, u64> {
        let mut counts = HashMap::new();
        for frame in self.arena.frames().filter(|frame| frame.state() != State::Free) {
            *counts.entry(frame.id().space).or_insert(0) += 1;
        }
        counts
    }

    /// What was read of each space. Looks at every frame.
    pub fn reads_by_space(&self, spaces: &[SpaceId]) -> HashMap<SpaceId, Reads> {
        let mut here: HashMap<SpaceId, u64> = HashMap::new();
        for frame in self.arena.frames().filter(|frame| frame.state() != State::Free) {
            *here.entry(frame.id().space).or_insert(0) += frame.hits();
        }
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of = |space: &SpaceId| {
            let here = here.get(space).copied().unwrap_or(0);
            let Some(counts) = self.reads.get(*space) else {
                return Reads { memory: here, ..Reads::default() };
            };
            let memory = here + get(&counts.memory);
            Reads {
                memory: counts.memory_told.fetch_max(memory, Ordering::Relaxed).max(memory),
                flash: get(&counts.flash),
                volume: get(&counts.volume),
                object: get(&counts.object),
                log: get(&counts.log),
                ahead: get(&counts.ahead),
            }
        };
        spaces.iter().map(|space| (*space, of(space))).collect()
    }

    /// Spaces that something was read of, and that are not `live`, are forgotten.
    pub fn retain_reads(&self, live: impl Fn(SpaceId) -> bool) {
        self.reads.retain(live);
    }

    fn shard(&self, id: PageId) -> &Shard {
        &self.shards[table::shard(id)]
    }

    pub(crate) fn frame(&self, no: FrameNo) -> &Frame {
        self.arena.frame(no)
    }

    /// Finds a page in memory and pins it, first where it was last. A use there heats it as others do, and is not counted.
    #[inline]
    pub(crate) fn lookup_seen(&self, seen: &LastSeen, access: Access) -> Lookup {
        let no = seen.frame();
        let frame = self.frame(no);
        if !frame.try_pin_as(seen.id()) {
            return self.look_for(seen, access);
        }
        if access.heats() {
            self.heat(frame);
        }
        Lookup::Pinned(no)
    }

    #[inline]
    fn heat(&self, frame: &Frame) {
        if frame.accesses() < ACCESSES_MAX {
            frame.touch(self.period.load(Ordering::Relaxed));
        }
    }

    #[cold]
    fn look_for(&self, seen: &LastSeen, access: Access) -> Lookup {
        let found = self.lookup(seen.id(), access);
        if let Lookup::Pinned(no) = found {
            seen.is_in(no);
        }
        found
    }

    /// Finds a page in memory and pins it.
    #[inline]
    pub(crate) fn lookup(&self, id: PageId, access: Access) -> Lookup {
        let (no, frame) = match self.table.find(&self.arena, id).filter(|(_, frame)| frame.try_pin_as(id)) {
            Some(found) => found,
            None => match self.lookup_locked(id) {
                Lookup::Pinned(no) => (no, self.frame(no)),
                other => return other,
            },
        };
        if access.heats() {
            self.heat(frame);
        }
        if access.counts() {
            if !(frame.seems_unused() && self.first_use(no, id)) {
                frame.hit();
                meter::hit();
            }
            if frame.sampled.load(Ordering::Relaxed)
                && frame.noted_at.load(Ordering::Relaxed) != self.period.load(Ordering::Relaxed)
            {
                self.sample_hit(no, id);
            }
            if access.ahead_max() > 0 {
                self.scans.read(id);
            }
        }
        Lookup::Pinned(no)
    }

    #[cold]
    fn lookup_locked(&self, id: PageId) -> Lookup {
        self.table.with(&self.arena, id, |no| {
            let Some(no) = no else { return Lookup::Absent };
            if planted::CLAIM_NOT_WAITED.on() {
                self.frame(no).pin_again();
                return Lookup::Pinned(no);
            }
            if self.frame(no).try_pin() { Lookup::Pinned(no) } else { Lookup::Claimed }
        })
    }

    pub(crate) fn is_far(&self, id: PageId) -> bool {
        !self.has(id) && self.below.held(id) == Held::InObject
    }

    pub(crate) fn has(&self, id: PageId) -> bool {
        self.table.with(&self.arena, id, |no| no.is_some())
    }

    /// See [`crate::pages::Pages::warm`].
    pub(crate) fn warm(&self, id: PageId) {
        if let Some((no, _)) = self.table.find(&self.arena, id) {
            self.arena.warm(no);
        }
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

    /// Forgets a claim: nothing was loaded.
    fn unclaim(&self, id: PageId, no: FrameNo) {
        let hits = self.frame(no).take_hits();
        if hits > 0 {
            add(&self.reads.of(id.space).memory, hits);
            self.shard(id).hits.fetch_add(hits, Ordering::Relaxed);
        }
        self.table.remove(&self.arena, id, no);
        self.give_frame(no);
        self.shard(id).claims_ended.notify();
    }

    /// What was fetched into a claimed frame is in memory.
    fn admit(&self, id: PageId, no: FrameNo, fetched: Fetched, place: Place) {
        if let Some(first) = fetched.first_change {
            if fetched.from == Tier::Log {
                self.set_homeless(no);
            }
            self.set_dirty(no, first);
            self.below.admitted(id);
        }
        self.publish(no, place);
    }

    /// Maps `id` to the free frame `no`, unless somebody was faster.
    fn claim(&self, id: PageId, no: FrameNo) -> bool {
        self.table.insert(&self.arena, id, no, || {
            let frame = self.frame(no);
            assert_eq!(frame.state(), State::Free);
            frame.set_id(id);
            frame.set_state(State::Claimed);
        })
    }

    fn load_claimed(&self, id: PageId, no: FrameNo, access: Access) -> Result<FrameNo, ReadError> {
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        let since = self.world.clock.now();
        let ahead = self.claim_ahead(id, access.ahead_max());
        if let Some((last, _)) = ahead.last() {
            self.scans.missed(id, last.page - id.page + 1);
        }
        let fetched = if ahead.is_empty() {
            // SAFETY: the claim makes this thread the frame's only owner.
            self.below.fetch(id, unsafe { self.arena.bytes_mut(no) })
        } else {
            self.fetch_with(id, no, &ahead)
        };
        match fetched {
            Ok(fetched) => {
                if access.counts_below() {
                    add(self.reads.of(id.space).from(fetched.from), 1);
                    add(&self.counters.reads_below, 1);
                    meter::read(fetched.from, self.world.clock.now() - since);
                }
                self.sample_arrival(no, id, access.counts_below());
                let frame = self.frame(no);
                frame.came(self.period.load(Ordering::Relaxed), access.heats());
                frame.pin_again();
                let place = if access == Access::Once { Place::First } else { Place::Old };
                self.admit(id, no, fetched, place);
                Ok(no)
            }
            Err(error) => {
                self.unclaim(id, no);
                Err(error)
            }
        }
    }

    /// Ends a claim: the page is in memory.
    fn publish(&self, no: FrameNo, place: Place) {
        let frame = self.frame(no);
        frame.version.fetch_add(1, Ordering::AcqRel);
        let (id, turn) = (frame.id(), frame.turn.load(Ordering::Relaxed));
        let period = {
            let mut queues = self.queues.lock();
            queues.sweep(|no, turn| self.frame(no).turn.load(Ordering::Acquire) != turn);
            queues.push(no, turn, place);
            queues.arrived()
        };
        self.period.store(period, Ordering::Relaxed);
        frame.set_state(State::Ready);
        self.shard(id).claims_ended.notify();
    }

    /// Puts a page that exists nowhere else into the frame `no`, latched exclusively and pinned.
    pub(crate) fn create(&self, id: PageId, no: FrameNo) {
        assert!(self.try_create(id, no), "page {id} is created but is in memory already");
    }

    /// The same, unless the page is in memory, or on its way there or out: then false.
    pub(crate) fn try_create(&self, id: PageId, no: FrameNo) -> bool {
        if !self.claim(id, no) {
            return false;
        }
        let frame = self.frame(no);
        frame.came(self.period.load(Ordering::Relaxed), true);
        self.sample_made(no, id);
        frame.pin_again();
        // Free a moment ago: the flusher may still be letting go of the page that it made clean here.
        if planted::LATCHED_FRAME_TAKEN.on() {
            frame.latch.try_lock_exclusive();
        } else {
            frame.latch.lock_exclusive();
        }
        self.set_homeless(no);
        // SAFETY: the claim makes this thread the frame's only owner.
        unsafe { self.arena.bytes_mut(no) }.fill(0);
        self.publish(no, Place::Old);
        true
    }

    /// A page is made anew, whatever tier has of it. The caller has the exclusive latch.
    pub(crate) fn renewed(&self, no: FrameNo) {
        match self.below.held(self.frame(no).id()) {
            Held::Nowhere => self.set_homeless(no),
            Held::InSlot | Held::InObject => self.clear_homeless(no),
        }
    }

    /// Whether the page, made anew, takes no slot that is not taken or promised already.
    pub(crate) fn has_place(&self, id: PageId) -> bool {
        let promised = self
            .table
            .with(&self.arena, id, |no| no.is_some_and(|no| self.frame(no).homeless.load(Ordering::Acquire)));
        promised || self.below.held(id) == Held::InSlot
    }

    /// Copies a page's image if it is in memory and clean, for a merge; does not heat it.
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

    /// Forgets all pages of a dropped space, dirty ones too. Returns how many are still pinned: the
    /// caller lets go and calls again.
    pub fn discard_space(&self, space: SpaceId) -> usize {
        self.sample_forget(space);
        let mut pinned = 0;
        let _moves = self.moves.lock();
        for no in (0..self.arena.made() as u32).map(FrameNo) {
            let frame = self.frame(no);
            if frame.state() == State::Free || frame.id().space != space {
                continue;
            }
            if !frame.try_claim() {
                pinned += usize::from(frame.state() != State::Free);
                continue;
            }
            let id = frame.id();
            if id.space != space || !frame.latch.try_lock_exclusive() {
                self.end_claim(no); // another page's by now, or the flusher copies it
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
