//! What the checkers of all spaces share: getting at pages, the header, the free pages, and what is left over.
//!
//! Each page of a space must be met once: as part of its structure or as a free one. Pages that are not
//! met are leaked: nothing is wrong with what can be read, but their room is lost. When part of the
//! structure could not be followed, what hangs below it was not met either; then no leak is reported.

use super::{HEADER_PAGE, at, bits};
use hashbrown::HashMap;
use std::cell::RefCell;
use std::fmt;
use terrace_io::AlignedBuf;
use terrace_io::store::StoreError;
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::pages::Pages;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{BLOCK_PAGES, PAGE_SIZE, PageId, PageKind, PageRef, SpaceId};

/// Why a checker does not get a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPage {
    /// It is damaged or lost, and that has been said.
    Reported,
    /// It is in a tier that cannot be read now: that says nothing about it.
    OutOfReach,
    /// Neither the map nor the log knows it.
    Unwritten,
    Wrong(String),
}

/// Where a checker has its pages from.
pub trait Source {
    /// Fills `image` with the page as it is now. May do I/O.
    fn copy(&self, id: PageId, image: &mut [u8]) -> Result<(), NoPage>;
    /// These will be asked for next: a source that is far away may get them side by side.
    fn soon(&self, _ids: &[PageId]) {}
}

/// A running engine's pages. Called without a latch. Once a page could not be had for a reason that says nothing about it (the store does not
/// answer, no frame is free, the statement is cancelled), no more are asked for.
pub struct Running<'p> {
    pages: &'p Pages,
    stopped: RefCell<Option<ReadError>>,
}

impl<'p> Running<'p> {
    pub fn new(pages: &'p Pages) -> Running<'p> {
        Running { pages, stopped: RefCell::default() }
    }
    /// Why no more pages were asked for, if so.
    pub fn stopped(self) -> Option<ReadError> {
        self.stopped.into_inner()
    }
}

/// Whether the error says that the page is not as it should be, or is lost.
fn is_of_page(error: &ReadError) -> bool {
    match error {
        ReadError::Absent(_)
        | ReadError::Corrupt { .. }
        | ReadError::BadRedo { .. }
        | ReadError::Disk { .. } => true,
        ReadError::Store { error, .. } => matches!(error, StoreError::Absent { .. }),
        ReadError::NoFrame { .. } | ReadError::Cancelled => false,
    }
}

impl Source for Running<'_> {
    fn copy(&self, id: PageId, image: &mut [u8]) -> Result<(), NoPage> {
        if self.stopped.borrow().is_some() {
            return Err(NoPage::OutOfReach);
        }
        match self.pages.read(id, Access::Internal) {
            Ok(guard) => image.copy_from_slice(guard.page().all()),
            Err(error) if is_of_page(&error) => return Err(NoPage::Wrong(error.to_string())),
            Err(error) => {
                *self.stopped.borrow_mut() = Some(error);
                return Err(NoPage::OutOfReach);
            }
        }
        Ok(())
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub page: PageId,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: {}", self.page, self.what)
    }
}

/// The first of them, and how many there are.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Faults {
    pub first: Vec<Fault>,
    pub count: u64,
}

const FAULTS_KEPT: usize = 100;
/// Pages in a row that cannot be read, after which the rest is not tried: the header names more than there are.
const WRONG_MAX: u64 = 10_000;

impl Faults {
    pub fn add(&mut self, page: PageId, what: impl Into<String>) {
        self.count += 1;
        if self.first.len() < FAULTS_KEPT {
            self.first.push(Fault { page, what: what.into() });
        }
    }
}

/// Page numbers, sparse.
#[derive(Default)]
pub struct Met(HashMap<u32, Box<[u64; 64]>>);

impl Met {
    /// False if it was in already.
    pub fn insert(&mut self, page: u32) -> bool {
        let part = self.0.entry(page >> 12).or_insert_with(|| Box::new([0; 64]));
        let (word, bit) = ((page >> 6 & 63) as usize, 1u64 << (page & 63));
        let new = part[word] & bit == 0;
        part[word] |= bit;
        new
    }
    pub fn contains(&self, page: u32) -> bool {
        self.0.get(&(page >> 12)).is_some_and(|part| part[(page >> 6 & 63) as usize] >> (page & 63) & 1 == 1)
    }
}

/// The check of one space, in progress.
pub struct SpaceCheck<'s> {
    source: &'s dyn Source,
    pub space: SpaceId,
    /// Pages ever used, as the header says; None if it cannot be read.
    pub pages: Option<u32>,
    pub root: u32,
    /// See `Space::is_filling`.
    pub is_filling: bool,
    met: Met,
    are_free: Met,
    /// Not all of the structure could be followed.
    pub incomplete: bool,
    pub out_of_reach: u64,
    pub free: u64,
    pub faults: Faults,
    pub leaked: Faults,
}

impl<'s> SpaceCheck<'s> {
    /// Reads the header.
    pub fn begin(source: &'s dyn Source, space: SpaceId) -> SpaceCheck<'s> {
        let mut check = SpaceCheck {
            source,
            space,
            pages: None,
            root: 0,
            is_filling: false,
            met: Met::default(),
            are_free: Met::default(),
            incomplete: false,
            out_of_reach: 0,
            free: 0,
            faults: Faults::default(),
            leaked: Faults::default(),
        };
        check.meet(HEADER_PAGE);
        let Some(copy) = check.copy(HEADER_PAGE) else { return check };
        let page = PageRef::new(&copy);
        if page.kind() != PageKind::SpaceHeader as u8 {
            check.incomplete = true;
            check.fault(HEADER_PAGE, "not a space's header");
            return check;
        }
        check.pages = Some(page.u32(at::NEXT));
        check.root = page.u32(at::ROOT);
        check.is_filling = page.u64(at::FILLING) != 0;
        check.free_pages(page, page.u32(at::NEXT));
        check
    }

    pub fn id(&self, page: u32) -> PageId {
        PageId::new(self.space, page)
    }

    pub fn fault(&mut self, page: u32, what: impl Into<String>) {
        self.faults.add(PageId::new(self.space, page), what);
    }

    /// Marks a page as met. False if it was met before or is no page of the space.
    pub fn meet(&mut self, page: u32) -> bool {
        if self.pages.is_some_and(|pages| page >= pages) {
            self.fault(page, "the space leads to it, but has not so many pages");
            return false;
        }
        let new = self.met.insert(page);
        if !new {
            self.fault(page, "two ways lead to it");
        }
        new
    }

    /// Marks a page as met, whether it was before or not. True: it was not.
    pub fn meet_again(&mut self, page: u32) -> bool {
        self.met.insert(page)
    }

    /// Whether the page is a free one, which may have any content or none.
    pub fn is_free(&self, page: u32) -> bool {
        self.are_free.contains(page)
    }

    /// These pages will be asked for next.
    pub fn soon(&self, pages: impl Iterator<Item = u32>) {
        self.source.soon(&pages.map(|page| self.id(page)).collect::<Vec<_>>());
    }

    /// The page's content. None: it cannot be had, which is noted.
    pub fn copy(&mut self, page: u32) -> Option<AlignedBuf> {
        let mut image = AlignedBuf::zeroed(PAGE_SIZE);
        match self.source.copy(self.id(page), &mut image) {
            Ok(()) => Some(image),
            Err(no) => {
                self.note(page, no);
                None
            }
        }
    }

    fn note(&mut self, page: u32, no: NoPage) {
        self.incomplete = true;
        match no {
            NoPage::Reported => {}
            NoPage::OutOfReach => self.out_of_reach += 1,
            NoPage::Unwritten => self.fault(page, "it does not exist: neither the map nor the log knows it"),
            NoPage::Wrong(what) => self.fault(page, what),
        }
    }

    /// Meets the pages that are free, and the homes of their bits.
    fn free_pages(&mut self, header: PageRef<'_>, pages: u32) {
        self.free_pages_of(header, HEADER_PAGE, pages);
        for home in bits::homes(pages) {
            if !self.meet(home) {
                self.incomplete = true;
                return;
            }
            let Some(copy) = self.copy(home) else { return };
            if PageRef::new(&copy).kind() != PageKind::Bits as u8 {
                self.incomplete = true;
                return self.fault(home, "not a page of bits");
            }
            self.free_pages_of(PageRef::new(&copy), home, pages);
        }
        let counted = header.u32(at::FREE_COUNT);
        if self.free != u64::from(counted) {
            let what = format!("{} pages are free, the header says {counted}", self.free);
            self.fault(HEADER_PAGE, what);
        }
    }

    fn free_pages_of(&mut self, page: PageRef<'_>, home: u32, pages: u32) {
        let span = bits::span(home);
        for block in span.start / BLOCK_PAGES..span.end / BLOCK_PAGES {
            for number in bits::numbers(block, bits::of_block(page, block)) {
                self.free += 1;
                self.are_free.insert(number);
                match number < pages {
                    true => _ = self.meet(number),
                    false => self.fault(number, "it is free, but the space has not so many pages"),
                }
            }
        }
    }

    /// The pages that nothing led to are shown to `each`, which says what is wrong with one. Call it last.
    ///
    /// A bulk build that a crash has cut leaves numbers that were taken for pages which were never written. No page is lost
    /// with them, as long as all that leads anywhere could be followed.
    pub fn the_rest(&mut self, mut each: impl FnMut(PageRef<'_>) -> Option<&'static str>) {
        let was_incomplete = self.incomplete;
        let (mut wrong, mut unwritten) = (0, 0);
        for page in 0..self.pages.unwrap_or(0) {
            if self.met.contains(page) {
                continue;
            }
            let (id, faults) = (self.id(page), self.faults.count);
            let mut image = AlignedBuf::zeroed(PAGE_SIZE);
            match self.source.copy(id, &mut image) {
                Ok(()) => {
                    (wrong, unwritten) = (0, 0);
                    if let Some(what) = each(PageRef::new(&image)).filter(|_| !was_incomplete) {
                        self.leaked.add(id, what);
                    }
                }
                Err(NoPage::Unwritten) if !was_incomplete => {
                    unwritten += 1;
                    self.leaked.add(id, "its number was taken, and it was never written");
                }
                // That it is damaged or out of reach says nothing of what leads to the others.
                Err(no) => {
                    self.note(page, no);
                    self.incomplete = was_incomplete;
                    wrong += self.faults.count - faults;
                }
            }
            if wrong + unwritten > WRONG_MAX {
                let what = "so many pages before it are not there that the rest is not tried";
                return if wrong > 0 { self.fault(page, what) } else { self.leaked.add(id, what) };
            }
        }
    }
}
