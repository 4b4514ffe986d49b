//! The mini-transaction: a group of page changes that is atomic in recovery.
//!
//! Log room and frames for new pages are taken before the first latch ([`crate::memory::pages::Pages::begin`]). Pages are latched
//! exclusively one by one and stay latched until commit. Commit appends the changes to the log as one range, stamps the pages,
//! marks them dirty and unlatches them: it never waits.
//!
//! A changed page cannot be changed back: memory has no undo. So everything that can fail or miss comes first. Dropping a
//! mini-transaction that changed a page is a bug and panics.
//!
//! Latch order, for operations that latch several pages: tree pages, child before parent and left before right; the space's
//! header page; undo pages; the undo space's header.

use crate::memory::frame::FrameNo;
use crate::memory::lower_tiers::ReadError;
use crate::memory::pages::{NoRoom, Pin};
use crate::memory::pool::frame_hint::LastSeen;
use crate::memory::pool::{Access, Lookup, Pool};
use crate::page::{self, PageId, PageKind, PageRef};
use crate::redo::PageMut;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_log::{LogError, LogRoom, LsnRange, PageRedo, Redo};

#[derive(Debug, Clone, thiserror::Error)]
pub enum MtrError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Frame(#[from] ReadError),
    #[error(transparent)]
    Room(#[from] NoRoom),
}

/// A page of a mini-transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageNo(usize);

struct Latched {
    id: PageId,
    no: FrameNo,
    ops: Vec<u8>,
    released: bool,
}

pub struct Mtr<'p> {
    pool: &'p Arc<Pool>,
    redo: &'p dyn Redo,
    room: LogRoom,
    frames: Vec<FrameNo>,
    pages: SmallVec<[Latched; 4]>,
}

impl<'p> Mtr<'p> {
    pub(crate) fn new(
        pool: &'p Arc<Pool>,
        redo: &'p dyn Redo,
        room: LogRoom,
        frames: Vec<FrameNo>,
    ) -> Mtr<'p> {
        Mtr { pool, redo, room, frames, pages: SmallVec::new() }
    }

    /// Latches the page exclusively until commit. Returns None if it is not in memory: the caller, having changed nothing, then
    /// drops this mini-transaction, loads the page and begins again. A page that is latched already is found again.
    pub fn write(&mut self, id: PageId) -> Option<PageNo> {
        if let Some(held) = self.held(id) {
            return Some(held);
        }
        match self.pool.lookup(id, Access::Normal) {
            Lookup::Pinned(no) => Some(self.latch(id, no)),
            Lookup::Claimed | Lookup::Absent => None,
        }
    }

    /// As `write`, but skips the page table if the page is still in the frame where it was seen last.
    pub fn write_seen(&mut self, seen: &LastSeen) -> Option<PageNo> {
        if let Some(held) = self.held(seen.id()) {
            return Some(held);
        }
        match self.pool.lookup_seen(seen, Access::Normal) {
            Lookup::Pinned(no) => Some(self.latch(seen.id(), no)),
            Lookup::Claimed | Lookup::Absent => None,
        }
    }

    /// The frame of a latched page, for a caller that comes back later and holds nothing meanwhile.
    pub fn seen(&self, page: PageNo) -> LastSeen {
        let latched = &self.pages[page.0];
        LastSeen::new_in(latched.id, latched.no)
    }

    /// Whether the page is in memory, or being loaded or evicted. [`Mtr::create`] panics if it is.
    pub fn in_memory(&self, id: PageId) -> bool {
        self.pool.has(id)
    }

    /// Latches a pinned page: it cannot miss.
    pub fn write_pinned(&mut self, pin: &Pin) -> PageNo {
        if let Some(held) = self.held(pin.id()) {
            return held;
        }
        let no = pin.frame();
        self.pool.frame(no).pin_again();
        self.latch(pin.id(), no)
    }

    fn held(&self, id: PageId) -> Option<PageNo> {
        self.pages.iter().position(|p| p.id == id && !p.released).map(PageNo)
    }

    fn latch(&mut self, id: PageId, no: FrameNo) -> PageNo {
        self.pool.latch_exclusive(no);
        self.push(id, no)
    }

    fn push(&mut self, id: PageId, no: FrameNo) -> PageNo {
        self.pages.push(Latched { id, no, ops: Vec::new(), released: false });
        PageNo(self.pages.len() - 1)
    }

    /// Creates a page that was never used before, in one of the frames taken at the start. Panics if more pages are created than
    /// frames were reserved.
    pub fn create(&mut self, id: PageId, kind: PageKind, level: u8) -> PageNo {
        let Some(no) = self.frames.pop() else { panic!("page {id}: no frame was reserved for it") };
        self.pool.create(id, no);
        let handle = self.push(id, no);
        self.page_mut(handle).init(id, kind, level);
        handle
    }

    /// Formats a page whose old content is not needed, whatever tier has it: in its frame, or in one of those taken at the start.
    /// Returns None if the page is being loaded or evicted, or if this mini-transaction has it latched already. Panics if it is
    /// not in memory and no frame is left.
    pub fn renew(&mut self, id: PageId, kind: PageKind, level: u8) -> Option<PageNo> {
        if self.held(id).is_some() {
            return None;
        }
        let handle = match self.pool.lookup(id, Access::Normal) {
            Lookup::Pinned(no) => self.latch(id, no),
            Lookup::Claimed => return None,
            Lookup::Absent => {
                let Some(no) = self.frames.pop() else { panic!("page {id}: no frame was reserved for it") };
                if !self.pool.try_create(id, no) {
                    self.frames.push(no);
                    return None;
                }
                self.push(id, no)
            }
        };
        self.pool.renewed(self.pages[handle.0].no);
        self.page_mut(handle).init(id, kind, level);
        Some(handle)
    }

    /// The content of the page was used before, in another page: it is evicted as a page that was used more than once.
    pub fn note_reused(&self, page: PageNo) {
        self.pool.note_reused(self.pages[page.0].no);
    }

    pub fn id(&self, page: PageNo) -> PageId {
        self.pages[page.0].id
    }

    pub fn page(&self, page: PageNo) -> PageRef<'_> {
        let latched = &self.pages[page.0];
        assert!(!latched.released);
        // SAFETY: latched exclusively by this mini-transaction; `&self` keeps writers out.
        PageRef::new(unsafe { self.pool.bytes(latched.no) })
    }

    pub fn page_mut(&mut self, page: PageNo) -> PageMut<'_> {
        let latched = &mut self.pages[page.0];
        assert!(!latched.released);
        if latched.ops.capacity() == 0 {
            latched.ops = spare::take();
        }
        // SAFETY: latched exclusively by this mini-transaction; `&mut self` makes the slice unique.
        PageMut::new(unsafe { self.pool.bytes_mut(latched.no) }, &mut latched.ops)
    }

    /// Repeats logged changes, as `ops`, whose result is `image`; they are logged as they stand. The page had no other change in this
    /// mini-transaction. Panics if `image` is no page's bytes.
    pub fn replay(&mut self, page: PageNo, image: &[u8], ops: &[u8]) {
        let latched = &mut self.pages[page.0];
        assert!(!latched.released && image.len() == page::PAGE_SIZE);
        latched.ops.clear();
        latched.ops.extend_from_slice(ops);
        // SAFETY: latched exclusively by this mini-transaction; `&mut self` makes the slice unique.
        unsafe { self.pool.bytes_mut(latched.no) }.copy_from_slice(image);
    }

    /// Unlatches early a page that was latched but not changed.
    pub fn unlatch_unchanged(&mut self, page: PageNo) {
        let latched = &mut self.pages[page.0];
        assert!(latched.ops.is_empty() && !latched.released);
        latched.released = true;
        // SAFETY: latched by this mini-transaction, and unlatched once.
        unsafe { self.pool.unlatch_exclusive(latched.no) };
        self.pool.unpin(latched.no);
    }

    pub fn is_changed(&self, page: PageNo) -> bool {
        !self.pages[page.0].ops.is_empty()
    }

    pub fn changed(&self) -> bool {
        self.pages.iter().any(|p| !p.ops.is_empty())
    }

    /// Log bytes that the changes so far need; never more than was reserved.
    pub fn log_bytes(&self) -> u64 {
        self.pages.iter().filter(|p| !p.ops.is_empty()).map(|p| terrace_log::record_bound(p.ops.len())).sum()
    }

    /// Appends the changes to the log and releases all pages. Durable when the log's horizon has
    /// reached the range's end. Without changes it takes an empty range.
    pub fn commit(mut self) -> LsnRange {
        let needed = self.log_bytes();
        assert!(needed <= self.room.bytes, "changes of {needed} bytes, reserved {}", self.room.bytes);
        let range = if needed == 0 {
            let end = self.redo.appended();
            LsnRange { first: end, end }
        } else {
            self.append()
        };
        self.release();
        range
    }

    fn append(&mut self) -> LsnRange {
        let Mtr { pool, redo, room, pages, .. } = self;
        let records: SmallVec<[PageRedo<'_>; 4]> =
            pages.iter().filter(|p| !p.ops.is_empty()).map(|p| PageRedo { id: p.id, ops: &p.ops }).collect();
        redo.append(room, &records, &mut |range| {
            for latched in pages.iter().filter(|p| !p.ops.is_empty()) {
                // SAFETY: latched exclusively by this mini-transaction; no slice of it is alive.
                page::set_lsn(unsafe { pool.bytes_mut(latched.no) }, range.end);
                // No other thread increments it while the page is latched.
                let version = &pool.frame(latched.no).version;
                version.store(version.load(Ordering::Relaxed) + 1, Ordering::Release);
                pool.set_dirty(latched.no, range.first.max(1));
            }
        })
    }

    /// The page latched first is unlatched last. A waiting thread wakes when its latch is released, and may take this thread's
    /// core at once: pages still latched then stay latched until all runnable threads have had a turn. After the last unlatching
    /// nothing is held, and the page latched first is the one most threads wait for: the leaf, where undo comes second.
    fn release(&mut self) {
        for latched in self.pages.iter().rev().filter(|p| !p.released) {
            // SAFETY: latched by this mini-transaction, and unlatched once.
            unsafe { self.pool.unlatch_exclusive(latched.no) };
            self.pool.unpin(latched.no);
        }
        self.pages.drain(..).for_each(|latched| spare::put(latched.ops));
        for no in self.frames.drain(..) {
            self.pool.give_frame(no);
        }
    }
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        let changed = self.changed();
        self.release();
        assert!(!changed || std::thread::panicking(), "a mini-transaction was dropped with changes");
    }
}

/// Buffers for changes that a thread's mini-transactions reuse one after the other.
mod spare {
    use std::cell::RefCell;

    /// Initial capacity for a page's changes: a row of usual length and the bytes that it moves.
    const AT_FIRST: usize = 512;
    /// Larger buffers are not kept, nor more buffers than `KEPT`.
    const KEPT_BYTES: usize = 16 << 10;
    const KEPT: usize = 4;

    thread_local! {
        static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    }

    pub fn take() -> Vec<u8> {
        let kept = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        kept.unwrap_or_else(|| Vec::with_capacity(AT_FIRST))
    }

    pub fn put(mut ops: Vec<u8>) {
        if ops.capacity() == 0 || ops.capacity() > KEPT_BYTES {
            return;
        }
        ops.clear();
        // A thread that is ending keeps none.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT {
                spare.push(ops);
            }
        });
    }
}
