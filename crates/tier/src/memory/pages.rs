//! Pages: the way to a page for everything above. Guards, pins and mini-transactions.
//!
//! Three ways in: [`Pages::read`] may do I/O and is called with no latch held; [`Pages::try_read`]
//! and [`Mtr::write`](crate::memory::mtr::Mtr::write) never do I/O, and on a miss the caller drops what it
//! holds, calls [`Pages::load`] and starts again with the pin in hand.

mod weak;

pub use weak::WeakPin;

use crate::address::Home;
use crate::epoch::Visits;
use crate::memory::evict::Evictor;
use crate::memory::frame::{Frame, FrameNo};
use crate::memory::lower_tiers::{Below, ReadError};
use crate::memory::mtr::{Mtr, MtrError};
use crate::memory::pool::frame_hint::LastSeen;
use crate::memory::pool::scans::Stretch;
use crate::memory::pool::{Access, Front, Lookup, Pool, ScanDirection};
use crate::page::{Glsn, PAGE_SIZE, PageId, PageRef, SpaceId};
use crate::sync::RawLatch as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::DiskError;
use terrace_io::sched::Event;
use terrace_log::{LogError, LsnRange, Redo, Urgency};

/// Pages that are kept for long stay where they are in frames below this: a pool is hardly ever smaller.
const FRONT: u32 = 256;
/// Tries to bring it there, and the time between two of them in nanoseconds.
const FRONT_TRIES: u32 = 8;
const FRONT_REST: Nanos = 1_000_000;

/// Whether new pages will find a place below when they are flushed.
pub trait SlotAdmission: Send + Sync {
    /// Waits, for a bounded time, until `pages` more pages of the space have a place; no latch is held.
    fn admit(&self, pages: usize, space: SpaceId) -> Result<(), NoRoom>;
    /// Pages were freed, in a mini-transaction whose range ended at `end`: nothing of them is needed any more. May wait for log
    /// space; no latch is held.
    fn freed(&self, pages: &[Freed], end: Glsn) {
        let _ = (pages, end);
    }
    /// Whether pages go to an object store, a block at a time.
    fn blocks_sink(&self) -> bool {
        false
    }
    /// Before a page is built in bulk: waits, bounded, while small writers need what room comes free; no latch is held.
    fn give_way(&self) -> Result<(), NoRoom> {
        Ok(())
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum NoRoom {
    #[error("{0}")]
    Full(String),
    /// See [`terrace_io::cancel`].
    #[error("cancelled")]
    Cancelled,
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Disk(#[from] DiskError),
}

pub struct Pages {
    pool: Arc<Pool>,
    redo: Arc<dyn Redo>,
    room: OnceLock<Arc<dyn SlotAdmission>>,
    visits: Visits,
}

impl Pages {
    pub fn new(world: World, frames: usize, below: Arc<dyn Below>, redo: Arc<dyn Redo>) -> Pages {
        Pages::that_grow(world, frames, frames, below, redo)
    }

    /// Pages in a pool of `frames` that can grow to `max`.
    pub fn that_grow(
        world: World,
        frames: usize,
        max: usize,
        below: Arc<dyn Below>,
        redo: Arc<dyn Redo>,
    ) -> Pages {
        let pool = Arc::new(Pool::that_grows(world, frames, max, below));
        Pages { pool, redo, room: OnceLock::new(), visits: Visits::default() }
    }

    /// Pages in the same memory whose changes go to another log.
    pub fn beside(&self, redo: Arc<dyn Redo>) -> Pages {
        let (room, visits) = Default::default();
        Pages { pool: self.pool.clone(), redo, room, visits }
    }

    /// Readers that carry numbers of these pages without latches.
    #[inline]
    pub fn visits(&self) -> &Visits {
        &self.visits
    }

    /// Set once, before pages are made that have to be asked for.
    pub fn set_room(&self, room: Arc<dyn SlotAdmission>) {
        assert!(self.room.set(room).is_ok(), "the room is set twice");
    }

    /// Asks for a place for `pages` more pages of the space. What finishes or undoes something is not asked:
    /// a reserve remains for it. Waits; no latch is held.
    pub fn ask_room(&self, pages: usize, space: SpaceId, urgency: Urgency) -> Result<(), MtrError> {
        match self.room.get() {
            Some(room) if pages > 0 && urgency == Urgency::Normal => Ok(room.admit(pages, space)?),
            _ => Ok(()),
        }
    }

    /// Before a page is built in bulk, and before its room is asked for: small writers go first. Waits; no latch is held.
    pub fn give_way(&self, urgency: Urgency) -> Result<(), MtrError> {
        match self.room.get() {
            Some(room) if urgency == Urgency::Normal => Ok(room.give_way()?),
            _ => Ok(()),
        }
    }

    /// Whether blocks of pages go to an object store, so that it matters what lies in one with what.
    pub fn blocks_sink(&self) -> bool {
        self.room.get().is_some_and(|room| room.blocks_sink())
    }

    /// Pages were freed, in a mini-transaction with this range. May wait for log space; no latch is held.
    pub fn freed(&self, pages: &[Freed], range: LsnRange) {
        if let Some(room) = self.room.get().filter(|_| !pages.is_empty()) {
            room.freed(pages, range.end);
        }
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
    pub fn redo(&self) -> &Arc<dyn Redo> {
        &self.redo
    }
    pub fn world(&self) -> &World {
        &self.pool.world
    }
    /// The workers that keep frames free; the owner spawns them.
    pub fn evictors(&self) -> Vec<Evictor> {
        (0..Evictor::count(self.pool.frames())).map(|_| Evictor::new(self.pool.clone())).collect()
    }

    /// The page under a shared latch, from wherever it is. May do I/O and wait; no latch is held.
    pub fn read(&self, id: PageId, access: Access) -> Result<ReadGuard<'_>, ReadError> {
        Ok(ReadGuard::new(&self.pool, self.pool.pin(id, access)?, true))
    }

    /// The page under a shared latch if it is in memory.
    #[inline]
    pub fn try_read(&self, id: PageId, access: Access) -> Option<ReadGuard<'_>> {
        match self.pool.lookup(id, access) {
            Lookup::Pinned(no) => Some(ReadGuard::new(&self.pool, no, true)),
            Lookup::Claimed | Lookup::Absent => None,
        }
    }

    /// The same, past the page table if the page is where it was last.
    #[inline]
    pub fn try_read_seen(&self, seen: &LastSeen, access: Access) -> Option<ReadGuard<'_>> {
        match self.pool.lookup_seen(seen, access) {
            Lookup::Pinned(no) => Some(ReadGuard::new(&self.pool, no, true)),
            Lookup::Claimed | Lookup::Absent => None,
        }
    }

    /// Where the page's image is, if it is not in memory, nor on its way there or out, nor older than the log. Does no I/O.
    pub fn home_below(&self, id: PageId) -> Option<Home> {
        // In this order: the thread that claimed the page's frame takes the redo that recovery left for it; a page that was changed, and is in
        // memory no more, has its image.
        let is_here = self.pool.has_pending(id) || self.pool.has(id);
        if is_here { None } else { self.pool.home_below(id) }
    }

    /// Prefetches the page's bytes into the processor's cache if it is in memory: a hint, for a caller that will read all of it.
    pub fn warm(&self, id: PageId) {
        self.pool.warm(id);
    }

    /// Brings the page into memory, as far as frames are free beyond need, together with what the same request brings of the `before`
    /// pages before it and the `after` behind it, and nothing that takes another request. For a caller that needs the page, and soon neighbours of it;
    /// an error is left for the read that needs the page. May do I/O and wait; no latch is held.
    pub fn bring_with(&self, id: PageId, before: u32, after: u32) {
        self.pool.bring_with(id, before, after);
    }

    /// Has a prefetcher fetch the page, if it can. False: too much is asked for already. Does no I/O.
    pub fn fetch_soon(&self, id: PageId) -> bool {
        self.pool.scans.ask(Stretch { from: id, count: 1, way: ScanDirection::Up })
    }

    /// Whether the page is neither in memory nor in a slot, nor on flash as it seems, but in the object store. Does no I/O.
    pub fn is_far(&self, id: PageId) -> bool {
        self.pool.is_far(id)
    }

    /// Whether the page, created anew, needs no slot that has to be reserved. Does no I/O.
    pub fn has_place(&self, id: PageId) -> bool {
        self.pool.has_place(id)
    }

    /// Whether any tier, or the log, has the page. May do I/O; no latch is held.
    pub fn exists(&self, id: PageId) -> Result<bool, ReadError> {
        match self.read(id, Access::Internal) {
            Ok(_) => Ok(true),
            Err(ReadError::Absent(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Brings the page into memory and keeps it there. May do I/O and wait; no latch is held.
    pub fn load(&self, id: PageId, access: Access) -> Result<Pin, ReadError> {
        let no = self.pool.pin(id, access)?;
        Ok(Pin { pool: self.pool.clone(), no, id })
    }

    /// The same, past the page table if the page is where it was last.
    pub fn load_seen(&self, seen: &LastSeen, access: Access) -> Result<Pin, ReadError> {
        let id = seen.id();
        let no = match self.pool.lookup_seen(seen, access) {
            Lookup::Pinned(no) => no,
            Lookup::Claimed | Lookup::Absent => {
                let no = self.pool.pin(id, access)?;
                seen.is_in(no);
                no
            }
        };
        Ok(Pin { pool: self.pool.clone(), no, id })
    }

    /// As `load`, for a page that stays pinned for long: it is placed in a frame that no resize needs (`pool::resize`).
    pub fn load_to_keep(&self, id: PageId, access: Access) -> Result<Pin, ReadError> {
        let mut pin = self.load(id, access)?;
        for _ in 0..FRONT_TRIES {
            if pin.no.0 < FRONT || self.to_the_front(&mut pin) != Front::Busy {
                break;
            }
            let moment = Event::new();
            self.world().sched.wait(&moment, moment.ticket(), Some(FRONT_REST));
        }
        Ok(pin)
    }

    fn to_the_front(&self, pin: &mut Pin) -> Front {
        let front = self.pool.to_the_front(pin.no);
        if let Front::At(no) = front {
            pin.no = no; // the pin went along
        }
        front
    }

    /// Brings a pinned page to the front if the pool shrinks and waits for it. True if it stood in the way and no longer does.
    pub fn make_way(&self, pin: &mut Pin) -> bool {
        pin.no.0 as usize >= self.pool.frames() && matches!(self.to_the_front(pin), Front::At(_))
    }

    /// Starts a mini-transaction: takes `log_bytes` of log room (see [`terrace_log::record_bound`])
    /// and `new_pages` free frames. Waits for both, and while too many pages are dirty; no latch is held.
    pub fn begin(&self, log_bytes: u64, new_pages: usize, urgency: Urgency) -> Result<Mtr<'_>, MtrError> {
        if urgency == Urgency::Normal {
            self.pool.wait_to_change()?;
        }
        let mut frames = Vec::with_capacity(new_pages);
        for _ in 0..new_pages {
            match self.pool.take_frame(urgency != Urgency::Normal) {
                Ok(no) => frames.push(no),
                Err(error) => {
                    frames.into_iter().for_each(|no| self.pool.give_frame(no));
                    return Err(error.into());
                }
            }
        }
        match self.redo.clone().reserve(log_bytes, urgency) {
            Ok(room) => Ok(Mtr::new(&self.pool, &*self.redo, room, frames)),
            Err(error) => {
                frames.into_iter().for_each(|no| self.pool.give_frame(no));
                Err(error.into())
            }
        }
    }
}

/// A page under its shared latch.
pub struct ReadGuard<'a> {
    pool: &'a Arc<Pool>,
    frame: &'a Frame,
    no: FrameNo,
    /// Not written as long as the guard holds the latch.
    bytes: &'a [u8; PAGE_SIZE],
    /// By the guard itself; else by the [`Pin`] that it borrows.
    pinned: bool,
}

impl<'a> ReadGuard<'a> {
    /// Latches a pinned frame.
    #[inline]
    fn new(pool: &'a Arc<Pool>, no: FrameNo, pinned: bool) -> ReadGuard<'a> {
        let frame = pool.frame(no);
        frame.latch.lock_shared();
        // SAFETY: under the shared latch, which the guard holds.
        let bytes = unsafe { pool.bytes(no) };
        ReadGuard { pool, frame, no, bytes, pinned }
    }
    #[inline]
    pub fn page(&self) -> PageRef<'_> {
        PageRef::new(self.bytes)
    }
    pub fn id(&self) -> PageId {
        self.frame.id()
    }
    /// Moves on whenever the page changes or its frame is used for another.
    pub fn version(&self) -> u64 {
        self.frame.version.load(Ordering::Acquire)
    }
    /// Keeps the page in memory beyond the guard.
    pub fn pin(&self) -> Pin {
        self.frame.pin_again();
        Pin { pool: self.pool.clone(), no: self.no, id: self.id() }
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard holds the latch.
        unsafe { self.frame.latch.unlock_shared() };
        if self.pinned {
            self.frame.unpin();
        }
    }
}

/// Keeps a page in memory, without a latch.
pub struct Pin {
    pool: Arc<Pool>,
    no: FrameNo,
    id: PageId,
}

impl Pin {
    pub fn id(&self) -> PageId {
        self.id
    }
    pub(crate) fn frame(&self) -> FrameNo {
        self.no
    }
    /// Waits for the latch only.
    pub fn read(&self) -> ReadGuard<'_> {
        ReadGuard::new(&self.pool, self.no, false)
    }
}

impl Clone for Pin {
    fn clone(&self) -> Pin {
        self.pool.frame(self.no).pin_again();
        Pin { pool: self.pool.clone(), no: self.no, id: self.id }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pool.unpin(self.no);
    }
}

/// A page that was freed.
pub enum Freed {
    /// In memory, with its LSN at the time.
    Here { pin: Pin, lsn: Glsn },
    /// Not in memory, with the location of its image. The page had not changed since that was written.
    Below { id: PageId, home: Home },
}

impl Freed {
    pub fn id(&self) -> PageId {
        match self {
            Freed::Here { pin, .. } => pin.id(),
            Freed::Below { id, .. } => *id,
        }
    }
}
