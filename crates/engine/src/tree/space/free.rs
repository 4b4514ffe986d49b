//! Taking pages and giving them back.
//!
//! Free pages are those with their bit set (`bits`): a page that is taken is created anew, whatever it was, and need not be read for that;
//! one that is given back is left as it is, unless a traversal may still be on its way to it ([`Space::free`]). So a traversal that comes
//! to a free page by an old name finds what it was, or that no tier has it any more.
//!
//! Which: single pages fill the first hole. Pages of large values come from the emptiest block ([`Space::ready_together`]), one block after
//! another: what is written together lies together, sinks together, and a block that sinks has little old in it. As long as no block is empty
//! enough they are new ones, which lie together by themselves.
//!
//! Latches: the header, then homes in the order of their numbers, then the page that is taken, which may have been a tree's: a traversal that
//! still comes to it finds it free and waits for nothing while holding it.

use super::structure_freeze::Inside;
use super::{HEADER_PAGE, ROOT_PAGE, Ready, Space, SpaceCounts, at, bits};
use crate::error::tree::{Result, TreeError};
use smallvec::SmallVec;
use std::ops::Range;
use terrace_io::clock::Nanos;
use terrace_log::Urgency;
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::mtr::{Mtr, PageNo};
use terrace_tier::memory::pages::Pin;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{BLOCK_PAGES, PageKind, PageRef, SpaceId};

/// Frames that an allocation may take beside the page's own: for the home of a new group.
pub const ALLOCATION_FRAMES: usize = 1;
/// Free pages of a block that large values are put into: half of it; where a quarter of the space, its intended maximum, is free, this number.
const EMPTY: u32 = BLOCK_PAGES / 2;
const EMPTY_MIN: u32 = BLOCK_PAGES / 8;
/// Blocks are searched again when this many more pages are free.
const LOOK_AGAIN: u32 = 32;
/// Free pages that are on their way into memory or out when one is taken: after this many a new number is taken.
const BUSY_MAX: usize = 16;
/// A home that could not be had at once is asked for again after so long.
const HOME_AGAIN: Nanos = 50_000_000;

/// The homes of a space as far as they were needed, and where to look for free pages. A home stays in memory once it was needed: a page for 2 GiB.
#[derive(Default)]
pub(super) struct Places {
    /// By group.
    homes: Vec<Option<Pin>>,
    loaded: usize,
    /// Free pages, as the header and these say, about.
    known: u32,
    /// No page of a block before this one is free and fit to be taken, as far as homes are loaded.
    lowest: u32,
    /// A home could not be had: allocation does without those that are missing until then.
    not_before: Nanos,
    /// The block that pages of large values come from now.
    filling: Option<u32>,
    /// No block was empty enough when this many pages were free.
    none_with: Option<u32>,
}

/// Where single pages are searched for: from a block on, in these homes beside the header, and how many homes were in memory.
struct FreePageSearch {
    lowest: u32,
    loaded: usize,
    homes: SmallVec<[Pin; 2]>,
}

impl Places {
    /// For the space that has this header.
    pub(super) fn of(header: PageRef<'_>) -> Places {
        Places { known: bits::count(header, HEADER_PAGE), ..Places::default() }
    }
}

/// The header and the homes of pages that will be freed, in memory.
pub struct Homes<'s> {
    header: Pin,
    _inside: Inside<'s>,
    homes: SmallVec<[Pin; 2]>,
}

impl Homes<'_> {
    /// Latches the header; after all tree pages of the mini-transaction.
    pub fn latch_header(&self, mtr: &mut Mtr<'_>) -> PageNo {
        mtr.write_pinned(&self.header)
    }
}

impl Space {
    /// For `count` pages to be allocated: if the free pages in the homes in memory do not suffice, one more home is read, if it is near. One that
    /// is far is requested, but not waited for; new numbers are taken meanwhile. So a space of any size costs an allocation one read at
    /// most. May do I/O and wait; no latch is held.
    fn load_next_home(&self, count: usize, together: bool) -> Result<()> {
        let SpaceCounts { pages, free, .. } = self.counts();
        let missing = {
            let places = self.places.lock();
            let too_full = together && places.filling.is_none() && places.none_with.is_some();
            if free <= places.known || !(too_full || (places.known as usize) < count) {
                return Ok(());
            }
            let is_missing = |group: usize| places.homes.get(group).is_none_or(|pin| pin.is_none());
            bits::homes(pages).enumerate().find(|(group, _)| is_missing(*group))
        };
        let Some((_, home)) = missing else { return Ok(()) };
        let now = self.pages.world().clock.now();
        if now < self.places.lock().not_before {
            return Ok(());
        }
        if self.pages.is_far(self.page_id(home)) {
            self.pages.fetch_soon(self.page_id(home));
        } else {
            match self.load_home(home) {
                Ok(_) => return Ok(()),
                Err(TreeError::Read(ReadError::Cancelled)) => return Err(ReadError::Cancelled.into()),
                Err(_) => {}
            }
        }
        self.places.lock().not_before = now + HOME_AGAIN;
        Ok(())
    }

    fn load_home(&self, home: u32) -> Result<Pin> {
        let group = ((home - bits::INLINE) / bits::GROUP) as usize;
        if let Some(Some(pin)) = self.places.lock().homes.get(group) {
            return Ok(pin.clone());
        }
        let pin = self.pages.load_to_keep(self.page_id(home), Access::Internal)?;
        let guard = pin.read();
        if guard.page().kind() != PageKind::Bits as u8 {
            return Err(self.corrupt(home, "not a page of bits"));
        }
        let known = bits::count(guard.page(), home);
        let mut places = self.places.lock();
        if places.homes.len() <= group {
            places.homes.resize(group + 1, None);
        }
        if places.homes[group].is_none() {
            places.homes[group] = Some(pin.clone());
            places.loaded += 1;
            places.known = places.known.saturating_add(known);
            places.lowest = places.lowest.min(home / BLOCK_PAGES);
            places.none_with = None;
        }
        drop((places, guard));
        Ok(pin)
    }

    /// Prepares freeing these pages in one mini-transaction. May do I/O and wait; no latch is held.
    pub fn ready_to_free(&self, pages: impl IntoIterator<Item = u32>) -> Result<Homes<'_>> {
        let mut homes: SmallVec<[Pin; 2]> = SmallVec::new();
        for page in pages {
            let home = self.page_id(bits::home_of(page));
            if home.page != HEADER_PAGE && homes.iter().all(|pin| pin.id() != home) {
                homes.push(self.load_home(home.page)?);
            }
        }
        homes.sort_unstable_by_key(|pin| pin.id());
        Ok(Homes { header: self.header()?, _inside: self.enter()?, homes })
    }

    /// Prepares `count` allocations in one mini-transaction, and asks for room for those that free pages
    /// don't serve. May do I/O and wait; no latch is held.
    pub fn ready(&self, count: usize, urgency: Urgency) -> Result<Ready<'_>> {
        self.ready_as(self.id, count, urgency)
    }

    /// The same, with no more left to others than pages of the space `like` leave.
    pub fn ready_as(&self, like: SpaceId, count: usize, urgency: Urgency) -> Result<Ready<'_>> {
        self.load_next_home(count, false)?;
        let header = self.header()?;
        let usable = if urgency == Urgency::Normal { self.usable(&header, count) } else { count };
        self.pages.ask_room(count.saturating_sub(usable), like, urgency)?;
        Ok(Ready { header, _inside: self.enter()?, together: false })
    }

    /// The same for pages of large values, which are to lie together if the space's blocks sink.
    pub fn ready_together(&self, count: usize, urgency: Urgency) -> Result<Ready<'_>> {
        if !self.id.sinks() || !self.pages.blocks_sink() {
            return self.ready(count, urgency);
        }
        self.load_next_home(count, true)?;
        // An empty block's pages have no slots.
        self.pages.ask_room(count, self.id, urgency)?;
        Ok(Ready { header: self.header()?, _inside: self.enter()?, together: true })
    }

    /// How many of the next allocations take pages that need no room below, as things are: at most `count`.
    fn usable(&self, header: &Pin, count: usize) -> usize {
        let SpaceCounts { pages, free, .. } = self.counts();
        if free == 0 {
            return 0;
        }
        let FreePageSearch { lowest, homes, .. } = self.where_to_look();
        let waiting = self.limbo.waiting(self.pages.visits());
        let mut next = Vec::with_capacity(count);
        for pin in std::iter::once(header).chain(&homes) {
            let guard = pin.read();
            for block in blocks(pin.id().page, lowest, pages) {
                let found = bits::numbers(block, bits::of_block(guard.page(), block));
                next.extend(found.filter(|page| !waiting.contains(page)).take(count - next.len()));
                if next.len() == count {
                    break;
                }
            }
        }
        next.into_iter().filter(|page| self.pages.has_place(self.page_id(*page))).count()
    }

    /// Where single pages are looked for.
    fn where_to_look(&self) -> FreePageSearch {
        let places = self.places.lock();
        let Places { lowest, loaded, .. } = *places;
        let has_any = |pin: &&Pin| bits::span(pin.id().page).end / BLOCK_PAGES > lowest;
        FreePageSearch {
            lowest,
            loaded,
            homes: places.homes.iter().flatten().filter(has_any).cloned().collect(),
        }
    }

    /// Whether `count` pages can be allocated in a row. For callers that cannot stop between them.
    pub fn can_allocate(&self, mtr: &Mtr<'_>, header: PageNo, count: u32) -> Result<()> {
        let next = mtr.page(header).u32(at::NEXT);
        let end = next.saturating_add(count);
        // And a home, if one lies among them.
        let end = u64::from(end) + u64::from((next..end).any(bits::is_home));
        match u32::try_from(end) {
            _ if next == 0 => Err(self.corrupt(HEADER_PAGE, "the next page number is 0")),
            Ok(end) if end < u32::MAX => match (next..end).any(|page| mtr.in_memory(self.page_id(page))) {
                true => Err(self.corrupt(HEADER_PAGE, "the next page number is in use")),
                false => Ok(()),
            },
            _ => Err(TreeError::SpaceFull(self.id)),
        }
    }

    /// A page number that was never used. [`Space::can_allocate`] said yes.
    fn take_number(&self, mtr: &mut Mtr<'_>, header: PageNo) -> u32 {
        let mut number = mtr.page(header).u32(at::NEXT);
        if bits::is_home(number) {
            mtr.create(self.page_id(number), PageKind::Bits, 0);
            number += 1;
        }
        self.set_pages(mtr, header, number + 1);
        number
    }

    /// A run of page numbers that were never used, fewer than a group has. [`Space::can_allocate`] said yes. What is passed over, because a
    /// home lies there, counts as free. None: `homes` lacks that of the next number.
    pub(super) fn take_numbers(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageNo,
        count: u32,
        homes: &Homes<'_>,
    ) -> Option<u32> {
        assert!(count < bits::GROUP);
        let mut first = mtr.page(header).u32(at::NEXT);
        if let Some(home) = (first..first + count).find(|number| bits::is_home(*number)) {
            if first < home {
                let bits = self.home(mtr, header, first, homes)?;
                self.set_free(mtr, header, bits, first..home);
            }
            mtr.create(self.page_id(home), PageKind::Bits, 0);
            first = home + 1;
        }
        self.set_pages(mtr, header, first + count);
        Some(first)
    }

    /// A page, latched and formatted. The mini-transaction has frames reserved for it, [`ALLOCATION_FRAMES`] more than for its pages, and the
    /// header latched. Nothing is changed when this fails.
    ///
    /// A new number is taken if no free page can be used at once: this fails only where
    /// [`Space::can_allocate`] does.
    pub fn allocate(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageNo,
        ready: &Ready<'_>,
        kind: PageKind,
        level: u8,
    ) -> Result<PageNo> {
        let taken = match ready.together {
            true => self.take_together(mtr, header, ready, kind, level),
            false => self.take_first(mtr, header, ready, kind, level),
        };
        if let Some(page) = taken {
            return Ok(page);
        }
        self.can_allocate(mtr, header, 1)?;
        let number = self.take_number(mtr, header);
        Ok(mtr.create(self.page_id(number), kind, level))
    }

    /// The first free page that no traversal can be on its way to, latched and created anew; if there is one.
    fn take_first(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageNo,
        ready: &Ready<'_>,
        kind: PageKind,
        level: u8,
    ) -> Option<PageNo> {
        let (pages, free) = (mtr.page(header).u32(at::NEXT), mtr.page(header).u32(at::FREE_COUNT));
        if free == 0 {
            return None;
        }
        let mut search = Search { waiting: self.limbo.waiting(self.pages.visits()), busy: 0, kind, level };
        let FreePageSearch { lowest, loaded, homes } = self.where_to_look();
        // The first block of which a page is left.
        let mut left = None;
        for pin in std::iter::once(&ready.header).chain(&homes) {
            let home = mtr.write_pinned(pin);
            for block in blocks(pin.id().page, lowest, pages) {
                let found = bits::of_block(mtr.page(home), block);
                let taken = self.take_of(mtr, (header, home), block, &mut search);
                left = left.or((found != 0).then_some(block));
                if let Some(page) = taken {
                    self.look_from(left.unwrap_or(block), loaded);
                    return Some(page);
                }
                if search.busy >= BUSY_MAX {
                    return None;
                }
            }
            let_go(mtr, header, home);
        }
        self.look_from(left.unwrap_or(pages / BLOCK_PAGES), loaded);
        None
    }

    /// The first page of a block that can be taken now. `home` has its bits.
    fn take_of(
        &self,
        mtr: &mut Mtr<'_>,
        (header, home): (PageNo, PageNo),
        block: u32,
        search: &mut Search,
    ) -> Option<PageNo> {
        let pages = mtr.page(header).u32(at::NEXT);
        for number in bits::numbers(block, bits::of_block(mtr.page(home), block)) {
            // The others are not free, whatever a damaged page says.
            let may_be_free = number > ROOT_PAGE && number < pages && !bits::is_home(number);
            if !may_be_free || search.waiting.contains(&number) {
                continue;
            }
            if let Some(page) = mtr.renew(self.page_id(number), search.kind, search.level) {
                bits::set(&mut mtr.page_mut(home), number, false);
                let free = mtr.page(header).u32(at::FREE_COUNT);
                self.set_free_count(mtr, header, free.saturating_sub(1));
                let mut places = self.places.lock();
                places.known = places.known.saturating_sub(1);
                return Some(page);
            }
            search.busy += 1;
            if search.busy >= BUSY_MAX {
                return None;
            }
        }
        None
    }

    /// A page of the block that is being filled; if none is left, of the emptiest one.
    fn take_together(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageNo,
        ready: &Ready<'_>,
        kind: PageKind,
        level: u8,
    ) -> Option<PageNo> {
        let mut search = Search { waiting: self.limbo.waiting(self.pages.visits()), busy: 0, kind, level };
        loop {
            let filling = self.places.lock().filling;
            let block = filling.or_else(|| self.emptiest(mtr, header, ready))?;
            if let Some(home) = self.known_home(mtr, header, block)
                && let Some(page) = self.take_of(mtr, (header, home), block, &mut search)
            {
                return Some(page);
            }
            self.places.lock().filling = None;
            // One that was just chosen had pages; if they can't be had, a new number is as good.
            filling?;
        }
    }

    /// Chooses the block to be filled: the emptiest, as far as homes are in memory, if it is empty enough.
    fn emptiest(&self, mtr: &mut Mtr<'_>, header: PageNo, ready: &Ready) -> Option<u32> {
        let (pages, free) = (mtr.page(header).u32(at::NEXT), mtr.page(header).u32(at::FREE_COUNT));
        {
            let mut places = self.places.lock();
            places.none_with = places.none_with.map(|with| with.min(free));
            if free < EMPTY || places.none_with.is_some_and(|with| free < with.saturating_add(LOOK_AGAIN)) {
                return None;
            }
        }
        let homes: Vec<Pin> = self.places.lock().homes.iter().flatten().cloned().collect();
        let (mut best, mut most) = (0, 0);
        for pin in std::iter::once(&ready.header).chain(&homes) {
            let home = mtr.write_pinned(pin);
            for block in blocks(pin.id().page, 0, pages) {
                let empty = bits::of_block(mtr.page(home), block).count_ones();
                if empty > most {
                    (best, most) = (block, empty);
                }
            }
            let_go(mtr, header, home);
        }
        let enough = if free >= pages / 4 { EMPTY_MIN } else { EMPTY };
        let mut places = self.places.lock();
        places.filling = (most >= enough).then_some(best);
        places.none_with = (most < enough).then_some(free);
        places.filling
    }

    /// The home of the block's bits, if it is in memory.
    fn known_home(&self, mtr: &mut Mtr<'_>, header: PageNo, block: u32) -> Option<PageNo> {
        let home = bits::home_of(block * BLOCK_PAGES);
        if home == HEADER_PAGE {
            return Some(header);
        }
        let group = ((home - bits::INLINE) / bits::GROUP) as usize;
        let pin = self.places.lock().homes.get(group).cloned().flatten();
        pin.map(|pin| mtr.write_pinned(&pin))
    }

    /// No free page is before this block, as far as `loaded` homes in memory show. The header is latched.
    fn look_from(&self, block: u32, loaded: usize) {
        let mut places = self.places.lock();
        if places.loaded == loaded {
            places.lowest = block;
        }
    }

    /// Gives a page back that nothing leads to any more, but that a traversal may be on its way to. It is marked, and not used before all
    /// traversals that are under way have ended. Both are latched by the mini-transaction.
    pub fn free(&self, mtr: &mut Mtr<'_>, header: PageNo, page: PageNo, homes: &Homes<'_>) {
        let id = mtr.id(page);
        assert!(id.space == self.id && id.page > ROOT_PAGE, "page {id} is not one to free");
        mtr.page_mut(page).init(id, PageKind::Free, 0);
        self.free_numbers(mtr, header, id.page..id.page + 1, homes);
        self.limbo.add(self.pages.visits(), id.page);
    }

    /// Gives pages back that nothing leads to any more, and no traversal of a tree. They have one home, and stay as they are.
    pub fn free_numbers(&self, mtr: &mut Mtr<'_>, header: PageNo, pages: Range<u32>, homes: &Homes<'_>) {
        let home = self.home(mtr, header, pages.start, homes);
        let Some(home) = home else {
            panic!("page {} of space {} was not ready to be freed", pages.start, self.id)
        };
        self.set_free(mtr, header, home, pages);
    }

    fn home(&self, mtr: &mut Mtr<'_>, header: PageNo, page: u32, homes: &Homes<'_>) -> Option<PageNo> {
        match self.page_id(bits::home_of(page)) {
            id if id.page == HEADER_PAGE => Some(header),
            id => homes.homes.iter().find(|pin| pin.id() == id).map(|pin| mtr.write_pinned(pin)),
        }
    }

    fn set_free(&self, mtr: &mut Mtr<'_>, header: PageNo, home: PageNo, run: Range<u32>) {
        let block = run.start / BLOCK_PAGES;
        let fresh = bits::set_free(&mut mtr.page_mut(home), run);
        let free = mtr.page(header).u32(at::FREE_COUNT);
        self.set_free_count(mtr, header, free.saturating_add(fresh));
        let mut places = self.places.lock();
        places.known = places.known.saturating_add(fresh);
        places.lowest = places.lowest.min(block);
    }
}

/// One search for a page.
struct Search {
    /// Those that traversals may be on their way to.
    waiting: SmallVec<[u32; 8]>,
    /// Pages that could not be had.
    busy: usize,
    kind: PageKind,
    level: u8,
}

/// Lets go of a home that was only looked at.
fn let_go(mtr: &mut Mtr<'_>, header: PageNo, home: PageNo) {
    if home != header && !mtr.is_changed(home) {
        mtr.unlatch_unchanged(home);
    }
}

/// The blocks from `lowest` on that have pages with bits in this home, in a space of `pages` pages.
fn blocks(home: u32, lowest: u32, pages: u32) -> Range<u32> {
    let span = bits::span(home);
    let end = span.end.min(pages).div_ceil(BLOCK_PAGES);
    (span.start / BLOCK_PAGES).max(lowest)..end
}
