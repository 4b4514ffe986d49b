//! A space: one structure's run of pages, and its header page.
//!
//! Page 0 is the header, page 1 the root of the space's tree (if it has one) and stays it. Pages are
//! numbered upward; which of them are free is in a map of [`bits`], and free ones are used again before new
//! numbers are taken, once they have left [`limbo`] (`free`).
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 64 | 4 | root page, 0 if the space has no tree |
//! | 68 | 4 | next page number never used |
//! | 76 | 4 | free pages |
//! | 80 | 8 | next auto-increment value |
//! | 88 | 8 | first hidden row id that is not handed out |
//! | 96 | 8 | rows, about: as of the last structure change |
//! | 104 | 8 | next serial number of a large value |
//! | 112 | 8 | 1: rows are built into the tree, and no crash leaves a table of them; else 0 |
//! | 128 | 4096 | bits of the first pages |
//!
//! Allocation and free are part of the caller's mini-transaction, so a crash leaves a page either in
//! use or free. Overflow values take several; see `tree::overflow` for what a crash leaves there.
//!
//! An open space keeps nothing in the buffer pool: there may be more open spaces than frames. A thread that is to change the header brings it into
//! memory before the first latch, and keeps it there so long ([`Ready`], [`Homes`]). What is often asked of it is noted in the open space with each
//! change, so that it need not be read for that.
//!
//! Latch order: the header after all tree pages, and what `free` says.

pub mod bits;
pub mod check;
mod free;
pub mod limbo;
pub mod run;
pub mod structure_freeze;

use crate::error::tree::{Result, TreeError};
use crate::tree::edit;
use free::Places;
pub use free::{ALLOCATION_FRAMES, Homes};
use limbo::Limbo;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use structure_freeze::{Inside, StructureFreeze};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_log::{LsnRange, Urgency};
use terrace_tier::epoch::Visit;
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::mtr::{Mtr, PageNo};
use terrace_tier::memory::pages::{Pages, Pin};
use terrace_tier::memory::pool::Access;
use terrace_tier::memory::pool::frame_hint::LastSeen;
use terrace_tier::page::{PageId, PageKind, SpaceId};

pub const HEADER_PAGE: u32 = 0;
pub const ROOT_PAGE: u32 = 1;

pub mod at {
    //! Byte offsets in the header page.
    pub const ROOT: usize = 64;
    pub const NEXT: usize = 68;
    pub const FREE_COUNT: usize = 76;
    pub const AUTO_INCREMENT: usize = 80;
    pub const ROW_ID: usize = 88;
    pub const ROWS: usize = 96;
    pub const SERIAL: usize = 104;
    pub const FILLING: usize = 112;
}

/// Log bytes that allocating or freeing one page takes, the page's own content aside.
pub const ALLOCATION_LOG: u64 = 480;

/// What a space is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// An empty tree.
    Tree,
    /// The header alone.
    Nothing,
}

/// Makes a new space, as one mini-transaction.
pub fn create(pages: &Pages, space: SpaceId, content: Content, urgency: Urgency) -> Result<LsnRange> {
    // As little as the catalog, for it may be to make room: TRUNCATE makes a new space.
    pages.ask_room(2, SpaceId::CATALOG, urgency)?;
    let mut mtr = pages.begin(1024, 2, urgency)?;
    create_in(&mut mtr, space, content);
    Ok(mtr.commit())
}

/// Makes a new space in the caller's mini-transaction, which has two frames and 1 KiB of log for it.
/// Returns the header page.
pub fn create_in(mtr: &mut Mtr<'_>, space: SpaceId, content: Content) -> PageNo {
    let root = match content {
        Content::Tree => {
            let root = mtr.create(PageId::new(space, ROOT_PAGE), PageKind::Leaf, 0);
            edit::init_empty(&mut mtr.page_mut(root));
            ROOT_PAGE
        }
        Content::Nothing => 0,
    };
    let header = mtr.create(PageId::new(space, HEADER_PAGE), PageKind::SpaceHeader, 0);
    let mut page = mtr.page_mut(header);
    page.write_u32(at::ROOT, root);
    page.write_u32(at::NEXT, ROOT_PAGE + u32::from(root == ROOT_PAGE));
    page.write_u64(at::AUTO_INCREMENT, 1);
    page.write_u64(at::ROW_ID, 1);
    page.write_u64(at::SERIAL, 1);
    header
}

/// The next allocations were prepared, and the header is in memory.
pub struct Ready<'s> {
    header: Pin,
    _inside: Inside<'s>,
    /// They are to lie together, with what was allocated so before and will be after.
    together: bool,
}

impl Ready<'_> {
    /// Latches the header; after all tree pages of the mini-transaction.
    pub fn latch_header(&self, mtr: &mut Mtr<'_>) -> PageNo {
        mtr.write_pinned(&self.header)
    }
}

/// Whether the page is free, and a crash now would find it so. Where the store would have to be asked, which may be dead, it is not
/// known to be. May do I/O and wait; no latch is held.
pub fn is_free_for_good(pages: &Pages, id: PageId) -> std::result::Result<bool, ReadError> {
    let home = PageId::new(id.space, bits::home_of(id.page));
    let kind = if home.page == HEADER_PAGE { PageKind::SpaceHeader } else { PageKind::Bits };
    if id.page <= ROOT_PAGE || id == home || id.space < SpaceId::FIRST_USER || pages.is_far(home) {
        return Ok(false);
    }
    let guard = pages.read(home, Access::Internal)?;
    let page = guard.page();
    Ok(page.kind() == kind as u8 && bits::is_free(page, id.page) && page.lsn() <= pages.redo().durable())
}

/// Numbers from the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceCounts {
    /// Pages ever used, the header included.
    pub pages: u32,
    /// Those of them that are free.
    pub free: u32,
    pub rows: u64,
}

/// An open space. There is one `Space` for each at a time: limbo knows only the pages that it freed itself, and what is noted of the header is what this
/// one has made of it.
pub struct Space {
    pages: Arc<Pages>,
    id: SpaceId,
    header: LastSeen,
    root: u32,
    limbo: Limbo,
    places: Mutex<Places, { Mutexes::SpacePages as u8 }>,
    /// Page numbers that are taken for trees under construction, for the checker.
    pub(crate) building: Mutex<Vec<Range<u32>>, { Mutexes::SpacePages as u8 }>,
    /// Closed by a walk over the structure.
    still: StructureFreeze,
    noted: Noted,
}

/// What the header says: written under its exclusive latch, and read without it.
struct Noted {
    pages: AtomicU32,
    free: AtomicU32,
    rows: AtomicU64,
    auto_increment: AtomicU64,
    filling: AtomicBool,
}

impl Space {
    pub fn open(pages: &Arc<Pages>, id: SpaceId) -> Result<Space> {
        let seen = LastSeen::new(PageId::new(id, HEADER_PAGE));
        let header = pages.load_seen(&seen, Access::Once)?;
        let guard = header.read();
        let page = guard.page();
        if page.kind() != PageKind::SpaceHeader as u8 {
            return Err(TreeError::Corrupt { page: header.id(), what: "not a space's header" });
        }
        Ok(Space {
            pages: pages.clone(),
            id,
            header: seen,
            root: page.u32(at::ROOT),
            limbo: Limbo::default(),
            places: Mutex::new(Places::of(page)),
            building: Mutex::default(),
            still: StructureFreeze::default(),
            noted: Noted {
                pages: AtomicU32::new(page.u32(at::NEXT)),
                free: AtomicU32::new(page.u32(at::FREE_COUNT)),
                rows: AtomicU64::new(page.u64(at::ROWS)),
                auto_increment: AtomicU64::new(page.u64(at::AUTO_INCREMENT)),
                filling: AtomicBool::new(page.u64(at::FILLING) != 0),
            },
        })
    }

    pub fn id(&self) -> SpaceId {
        self.id
    }
    pub fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }
    pub fn page_id(&self, page: u32) -> PageId {
        PageId::new(self.id, page)
    }
    pub fn corrupt(&self, page: u32, what: &'static str) -> TreeError {
        TreeError::Corrupt { page: self.page_id(page), what }
    }
    pub fn root(&self) -> u32 {
        self.root
    }
    /// Without a latch: counts of two changes at the same time may be mixed, for a moment.
    pub fn counts(&self) -> SpaceCounts {
        SpaceCounts {
            pages: self.noted.pages.load(Ordering::Acquire),
            free: self.noted.free.load(Ordering::Acquire),
            rows: self.noted.rows.load(Ordering::Acquire),
        }
    }

    /// Counts a traversal in that carries page numbers without latches.
    #[inline]
    pub fn visit(&self) -> Visit<'_> {
        self.pages.visits().begin()
    }

    pub fn still(&self) -> &StructureFreeze {
        &self.still
    }

    /// For changes of the space's structure; [`Ready`] and [`Homes`] have it. Waits while a walk is under way; no latch is held.
    pub fn enter(&self) -> Result<Inside<'_>> {
        self.still.enter(&*self.pages.world().sched)
    }

    /// The header, in memory for as long as it is held; it is latched after all tree pages. May do I/O and wait; no latch is held.
    pub fn header(&self) -> Result<Pin> {
        Ok(self.pages.load_seen(&self.header, Access::Normal)?)
    }

    fn set_pages(&self, mtr: &mut Mtr<'_>, header: PageNo, pages: u32) {
        mtr.page_mut(header).write_u32(at::NEXT, pages);
        self.noted.pages.store(pages, Ordering::Release);
    }
    fn set_free_count(&self, mtr: &mut Mtr<'_>, header: PageNo, free: u32) {
        mtr.page_mut(header).write_u32(at::FREE_COUNT, free);
        self.noted.free.store(free, Ordering::Release);
    }
    /// Adds to the count of rows; the header is latched.
    pub fn add_rows(&self, mtr: &mut Mtr<'_>, header: PageNo, more: i64) {
        let rows = mtr.page(header).u64(at::ROWS).saturating_add_signed(more);
        mtr.page_mut(header).write_u64(at::ROWS, rows);
        self.noted.rows.store(rows, Ordering::Release);
    }

    /// Sets a counter of the header to what `next` makes of it, in its own mini-transaction.
    fn set_counter(&self, field: usize, urgency: Urgency, next: impl FnOnce(u64) -> u64) -> Result<u64> {
        let pin = self.header()?;
        let mut mtr = self.pages.begin(ALLOCATION_LOG, 0, urgency)?;
        let header = mtr.write_pinned(&pin);
        let old = mtr.page(header).u64(field);
        let new = next(old);
        if new != old {
            mtr.page_mut(header).write_u64(field, new);
            if field == at::AUTO_INCREMENT {
                self.noted.auto_increment.store(new, Ordering::Release);
            }
        }
        mtr.commit();
        Ok(old)
    }

    pub fn auto_increment(&self) -> u64 {
        self.noted.auto_increment.load(Ordering::Acquire)
    }
    /// Makes the next auto-increment value at least `value`.
    pub fn raise_auto_increment(&self, value: u64) -> Result<()> {
        if self.auto_increment() >= value {
            return Ok(());
        }
        self.set_counter(at::AUTO_INCREMENT, Urgency::Normal, |old| old.max(value)).map(drop)
    }
    /// Sets the next auto-increment value, down as well.
    pub fn set_auto_increment(&self, value: u64) -> Result<()> {
        self.set_counter(at::AUTO_INCREMENT, Urgency::Normal, |_| value).map(drop)
    }
    /// Rows are built into the tree, which are a table's only when all of them are there, with all their entries.
    pub fn is_filling(&self) -> bool {
        self.noted.filling.load(Ordering::Acquire)
    }
    pub fn set_filling(&self, is: bool) -> Result<()> {
        self.set_counter(at::FILLING, Urgency::Normal, |_| u64::from(is))?;
        self.noted.filling.store(is, Ordering::Release);
        Ok(())
    }
    /// A serial number for a large value.
    pub fn take_serial(&self, urgency: Urgency) -> Result<u64> {
        self.set_counter(at::SERIAL, urgency, |old| old.saturating_add(1))
    }
    /// The space follows `other` as its table's: no serial number of that one is used again, for undo may still
    /// name large values by page and serial number alone.
    pub fn follow_serials(&self, other: &Space) -> Result<()> {
        let next = other.header()?.read().page().u64(at::SERIAL);
        self.set_counter(at::SERIAL, Urgency::Normal, |old| old.max(next)).map(drop)
    }
    /// The same while `other` goes on: nor any of those that it is still to give out.
    pub fn follow_serials_to_come(&self, other: &Space) -> Result<()> {
        // More large values than are written while a table is rebuilt; and a table is rebuilt fewer times than there are such steps.
        const TO_COME: u64 = 1 << 40;
        let next = other.header()?.read().page().u64(at::SERIAL).saturating_add(TO_COME);
        self.set_counter(at::SERIAL, Urgency::Normal, |old| old.max(next)).map(drop)
    }
    /// The space takes the place of `other`, which is not used any more: its counters go on from there.
    pub fn follow_counters(&self, other: &Space) -> Result<()> {
        let of = |field| -> Result<u64> { Ok(other.header()?.read().page().u64(field)) };
        let (auto_increment, row_id) = (of(at::AUTO_INCREMENT)?, of(at::ROW_ID)?);
        self.set_counter(at::AUTO_INCREMENT, Urgency::Normal, |old| old.max(auto_increment))?;
        self.set_counter(at::ROW_ID, Urgency::Normal, |old| old.max(row_id)).map(drop)
    }
    /// Takes `count` hidden row ids and returns the first; never handed out again once this is durable.
    pub fn take_row_ids(&self, count: u64) -> Result<u64> {
        self.set_counter(at::ROW_ID, Urgency::Normal, |old| old.saturating_add(count))
    }
}

#[cfg(test)]
mod tests;
