//! A space: one structure's run of pages, and its header page.
//!
//! Page 0 is the header, page 1 the root of the space's tree (if it has one) and stays it. Pages are
//! numbered upward; freed ones form a chain through the pages themselves and are used again before new
//! numbers are taken: the first of the chain that has left [`limbo`], if it is among the first few. Those that only the object store has
//! are left until a quarter of the space is free: a number that was never used costs nothing, and waits for nobody.
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 64 | 4 | root page, 0 if the space has no tree |
//! | 68 | 4 | next page number never used |
//! | 72 | 4 | first page of the free chain, 0 = none; each page has the next at byte 48 |
//! | 76 | 4 | length of the chain |
//! | 80 | 8 | next auto-increment value |
//! | 88 | 8 | first hidden row id that is not handed out |
//! | 96 | 8 | rows, about: as of the last structure change |
//! | 104 | 8 | next serial number of a large value |
//!
//! Allocation and free are part of the caller's mini-transaction, so a crash leaves a page either in
//! use or free. Overflow values take several; see `btree::overflow` for what a crash leaves there.
//!
//! Latch order: the header after all tree pages. The free pages that an allocation looks at are latched
//! after the header, in the chain's order, though they may once have been tree pages: whoever still comes to
//! one finds it free and waits for nothing while holding it.

pub mod check;
pub mod limbo;
pub mod run;

use crate::btree::edit;
use crate::btree::error::{Result, TreeError};
use limbo::{Limbo, Visit};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use terrace_tier::mtr::{Mtr, PageNo};
use terrace_tier::page::{PageId, PageKind, SpaceId};
use terrace_tier::pages::{Pages, Pin};
use terrace_tier::pool::Access;
use terrace_tier::redo::{LsnRange, Urgency};

pub const HEADER_PAGE: u32 = 0;
pub const ROOT_PAGE: u32 = 1;

pub mod at {
    //! Byte offsets in the header page.
    pub const ROOT: usize = 64;
    pub const NEXT: usize = 68;
    pub const FREE_HEAD: usize = 72;
    pub const FREE_COUNT: usize = 76;
    pub const AUTO_INCREMENT: usize = 80;
    pub const ROW_ID: usize = 88;
    pub const ROWS: usize = 96;
    pub const SERIAL: usize = 104;
}

/// Where a free page has the number of the next one.
pub(crate) const CHAIN_AT: usize = 48;

/// How far from the chain's first page an allocation looks for one that has left limbo and is in memory. Those
/// freed last come first, and wait in limbo as long as a traversal that stands still: looking at the first alone,
/// a space would grow for ever, a page now and then.
const CHAIN_LOOKS: usize = 256;
/// Free pages that are made ready beyond those needed: others may be faster.
const READY_MORE: usize = 2;
/// While less than one in so many pages is free, free pages that only the object store has are left there.
const FREE_SHARE: u32 = 4;
/// Pages on each side of one of the chain that are fetched with it.
const AROUND: u32 = 16;

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

/// Keeps the free pages in memory that the next allocations may take.
#[derive(Default)]
pub struct Ready {
    _pins: Vec<Pin>,
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

/// An open space. There is one `Space` for each at a time: limbo knows only its own traversals. The header
/// stays in memory.
pub struct Space {
    pages: Arc<Pages>,
    id: SpaceId,
    header: Pin,
    limbo: Limbo,
    /// Page numbers that are taken for trees under construction, for the checker.
    pub(crate) building: Mutex<Vec<Range<u32>>>,
    about: About,
}

/// The header's counts as they were when it had this version: for those to whom about is enough, and who ask with every statement.
#[derive(Default)]
struct About {
    version: AtomicU64,
    pages: AtomicU32,
    free: AtomicU32,
    rows: AtomicU64,
}

impl Space {
    pub fn open(pages: &Arc<Pages>, id: SpaceId) -> Result<Space> {
        let header = pages.load_to_keep(PageId::new(id, HEADER_PAGE), Access::Normal)?;
        let space = Space {
            pages: pages.clone(),
            id,
            header,
            limbo: Limbo::default(),
            building: Mutex::default(),
            about: About::default(),
        };
        if space.header.read().page().kind() != PageKind::SpaceHeader as u8 {
            return Err(space.corrupt(HEADER_PAGE, "not a space's header"));
        }
        Ok(space)
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
        self.header.read().page().u32(at::ROOT)
    }
    pub fn counts(&self) -> SpaceCounts {
        let guard = self.header.read();
        let page = guard.page();
        SpaceCounts { pages: page.u32(at::NEXT), free: page.u32(at::FREE_COUNT), rows: page.u64(at::ROWS) }
    }

    /// As [`Space::counts`], without a latch unless the header has changed. Counts of two changes at the same time may be mixed, for a moment.
    pub fn counts_about(&self) -> SpaceCounts {
        let about = &self.about;
        if about.version.load(Ordering::Acquire) == self.header.version() {
            return SpaceCounts {
                pages: about.pages.load(Ordering::Relaxed),
                free: about.free.load(Ordering::Relaxed),
                rows: about.rows.load(Ordering::Relaxed),
            };
        }
        let version = self.header.version();
        let counts = self.counts();
        about.pages.store(counts.pages, Ordering::Relaxed);
        about.free.store(counts.free, Ordering::Relaxed);
        about.rows.store(counts.rows, Ordering::Relaxed);
        about.version.store(version, Ordering::Release);
        counts
    }

    /// Counts a traversal in that carries page numbers without latches.
    #[inline]
    pub fn visit(&self) -> Visit<'_> {
        self.limbo.visit()
    }

    /// Latches the header; after all tree pages of the mini-transaction.
    pub fn latch_header(&self, mtr: &mut Mtr<'_>) -> PageNo {
        mtr.write_pinned(&self.header)
    }

    /// Prepares `count` allocations in one mini-transaction, and asks for room for those that free pages
    /// don't serve. May do I/O and wait; no latch is held.
    pub fn ready(&self, count: usize, urgency: Urgency) -> Result<Ready> {
        let mut pins = Vec::new();
        let (mut passed, mut usable) = (None, 0);
        let (mut next, fetches) = {
            let guard = self.header.read();
            let page = guard.page();
            (page.u32(at::FREE_HEAD), page.u32(at::FREE_COUNT) > page.u32(at::NEXT) / FREE_SHARE)
        };
        for _ in 0..CHAIN_LOOKS {
            if next == 0 || usable == count + READY_MORE {
                break;
            }
            if self.pages.is_far(self.page_id(next)) {
                if !fetches {
                    break;
                }
                // What was freed together lies together, and is one behind the other in the chain.
                let first = next.saturating_sub(AROUND);
                self.pages.prefetch(self.page_id(first), next - first + 1 + AROUND);
            }
            let pin = self.pages.load(self.page_id(next), Access::Internal)?;
            let has_left = self.limbo.has_left(next);
            let is_free = {
                let guard = pin.read();
                next = guard.page().u32(CHAIN_AT);
                guard.page().kind() == PageKind::Free as u8
            };
            if !is_free {
                break; // somebody was faster
            }
            if has_left {
                // With the one before, which is to lead past it.
                pins.extend(passed.take());
                pins.push(pin);
                usable += 1;
            } else {
                passed = Some(pin);
            }
        }
        self.pages.ask_room(count.saturating_sub(usable), self.id, urgency)?;
        Ok(Ready { _pins: pins })
    }

    /// Whether so many pages can be allocated in a row. For whoever cannot stop between them.
    pub fn can_allocate(&self, mtr: &Mtr<'_>, header: PageNo, count: u32) -> Result<()> {
        match mtr.page(header).u32(at::NEXT) {
            0 => Err(self.corrupt(HEADER_PAGE, "the next page number is 0")),
            next if next > u32::MAX - count => Err(TreeError::SpaceFull(self.id)),
            next if (next..next + count).any(|page| mtr.in_memory(self.page_id(page))) => {
                Err(self.corrupt(HEADER_PAGE, "the next page number is in use"))
            }
            _ => Ok(()),
        }
    }

    /// A page number that was never used. [`Space::can_allocate`] said yes.
    pub fn take_number(&self, mtr: &mut Mtr<'_>, header: PageNo) -> u32 {
        let number = mtr.page(header).u32(at::NEXT);
        mtr.page_mut(header).write_u32(at::NEXT, number + 1);
        number
    }

    /// A page, latched and formatted. The mini-transaction has a frame reserved for it and the header
    /// latched. Nothing is changed when this fails.
    ///
    /// A new number is taken if none of the first free pages can be used at once: this fails only where
    /// [`Space::can_allocate`] does.
    pub fn allocate(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageNo,
        _ready: &mut Ready,
        kind: PageKind,
        level: u8,
    ) -> Result<PageNo> {
        if let Some(page) = self.take_free(mtr, header) {
            let id = mtr.id(page);
            mtr.page_mut(page).init(id, kind, level);
            return Ok(page);
        }
        self.can_allocate(mtr, header, 1)?;
        let number = self.take_number(mtr, header);
        Ok(mtr.create(self.page_id(number), kind, level))
    }

    /// Unlinks the first page of the free chain that no traversal can be on its way to, latched; if there is
    /// one in memory near the chain's start.
    fn take_free(&self, mtr: &mut Mtr<'_>, header: PageNo) -> Option<PageNo> {
        let mut before = None;
        let mut number = mtr.page(header).u32(at::FREE_HEAD);
        for _ in 0..CHAIN_LOOKS {
            if number == 0 {
                return None;
            }
            let page = mtr.write(self.page_id(number))?;
            if mtr.page(page).kind() != PageKind::Free as u8 {
                return None; // the chain is corrupt: the checker will say so
            }
            let next = mtr.page(page).u32(CHAIN_AT);
            if self.limbo.has_left(number) {
                match before {
                    None => mtr.page_mut(header).write_u32(at::FREE_HEAD, next),
                    Some(before) => mtr.page_mut(before).write_u32(CHAIN_AT, next),
                }
                let length = mtr.page(header).u32(at::FREE_COUNT);
                mtr.page_mut(header).write_u32(at::FREE_COUNT, length.saturating_sub(1));
                return Some(page);
            }
            if let Some(passed) = before.replace(page).filter(|passed| !mtr.is_changed(*passed)) {
                mtr.unlatch_unchanged(passed);
            }
            number = next;
        }
        None
    }

    /// Gives a page back that nothing leads to any more. Both are latched by the mini-transaction.
    pub fn free(&self, mtr: &mut Mtr<'_>, header: PageNo, page: PageNo) {
        let id = mtr.id(page);
        assert!(id.space == self.id && id.page > ROOT_PAGE, "page {id} is not one to free");
        let (head, length) = (mtr.page(header).u32(at::FREE_HEAD), mtr.page(header).u32(at::FREE_COUNT));
        let mut freed = mtr.page_mut(page);
        freed.init(id, PageKind::Free, 0);
        freed.write_u32(CHAIN_AT, head);
        let mut h = mtr.page_mut(header);
        h.write_u32(at::FREE_HEAD, id.page);
        h.write_u32(at::FREE_COUNT, length.saturating_add(1));
        self.limbo.add(id.page);
    }

    /// The pages of the free chain, first to last. For the checker; the space is at rest.
    pub fn free_chain(&self) -> Result<Vec<u32>> {
        let (mut next, length) = {
            let guard = self.header.read();
            (guard.page().u32(at::FREE_HEAD), guard.page().u32(at::FREE_COUNT))
        };
        let mut chain = Vec::new();
        while next != 0 {
            if chain.len() as u32 >= length {
                return Err(self.corrupt(next, "the free chain is longer than the header says"));
            }
            let guard = self.pages.read(self.page_id(next), Access::Internal)?;
            if guard.page().kind() != PageKind::Free as u8 {
                return Err(self.corrupt(next, "a page of the free chain is in use"));
            }
            chain.push(next);
            next = guard.page().u32(CHAIN_AT);
        }
        if chain.len() as u32 != length {
            return Err(self.corrupt(HEADER_PAGE, "the free chain is shorter than the header says"));
        }
        Ok(chain)
    }

    fn counter(&self, field: usize) -> u64 {
        self.header.read().page().u64(field)
    }

    /// Sets a counter of the header to what `next` makes of it, in its own mini-transaction.
    fn set_counter(&self, field: usize, urgency: Urgency, next: impl FnOnce(u64) -> u64) -> Result<u64> {
        let mut mtr = self.pages.begin(ALLOCATION_LOG, 0, urgency)?;
        let header = self.latch_header(&mut mtr);
        let old = mtr.page(header).u64(field);
        let new = next(old);
        if new != old {
            mtr.page_mut(header).write_u64(field, new);
        }
        mtr.commit();
        Ok(old)
    }

    pub fn auto_increment(&self) -> u64 {
        self.counter(at::AUTO_INCREMENT)
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
    /// A serial number for a large value.
    pub fn take_serial(&self, urgency: Urgency) -> Result<u64> {
        self.set_counter(at::SERIAL, urgency, |old| old.saturating_add(1))
    }
    /// The space follows `other` as its table's: no serial number of that one is used again, for undo may still
    /// name large values by page and serial number alone.
    pub fn follow_serials(&self, other: &Space) -> Result<()> {
        let next = other.counter(at::SERIAL);
        self.set_counter(at::SERIAL, Urgency::Normal, |old| old.max(next)).map(drop)
    }
    /// Takes `count` hidden row ids and returns the first; never handed out again once this is durable.
    pub fn take_row_ids(&self, count: u64) -> Result<u64> {
        self.set_counter(at::ROW_ID, Urgency::Normal, |old| old.saturating_add(count))
    }
}

#[cfg(test)]
mod tests;
