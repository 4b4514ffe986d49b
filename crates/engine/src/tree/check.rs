//! The checker: walks a whole tree at rest and collects everything that is wrong with it.
//!
//! Each inner node's children are followed from the first along the right links until the node's high
//! fence is reached; so pages are found that a split or merge left without a parent's word, and these
//! are whole: they are counted, not faults. Where the way is lost (a page is damaged, or its fences are
//! another's) it is taken up again at the parent's next child, so one bad page hides nothing but what hangs
//! below it. Large values are followed from their entries. Afterwards every page of the space must have
//! been met; see `space::check`.

use super::node::{MAX_LEVEL, Node};
use super::overflow::{self, Large};
use super::{Result, Tree};
pub use crate::tree::space::check::{Fault, Faults, Source};
use crate::tree::space::check::{Running, SpaceCheck};
use crate::tree::space::{HEADER_PAGE, ROOT_PAGE};
use std::ops::Range;
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::page::{PageKind, PageRef, SpaceId};

/// Walks that block no writer, of a tree that is being changed.
const OPEN_WALKS: usize = 2;
/// The most walks. The third sees everything, except in the simulation, where background work is done within it.
const WALKS: usize = 10;

#[derive(Debug, Default, Clone)]
pub struct Report {
    pub levels: u8,
    pub leaves: u64,
    pub inner: u64,
    pub overflow: u64,
    pub free: u64,
    pub rows: u64,
    /// Bytes of slots, entries and fences in leaves.
    pub leaf_bytes: u64,
    /// Pages reached over their left neighbour only.
    pub unposted: Vec<u32>,
    /// The first faults; see `fault_count`.
    pub faults: Vec<Fault>,
    pub fault_count: u64,
    /// Pages that nothing leads to.
    pub leaked: Faults,
    /// Pages ever used, as the space's header says.
    pub pages: Option<u32>,
    /// See `Space::is_filling`.
    pub is_filling: bool,
    /// Part of the tree could not be followed: entries are missing in what was shown, and nothing is said to
    /// be leaked.
    pub incomplete: bool,
    /// Pages in a tier that could not be read.
    pub out_of_reach: u64,
}

/// A large value that an entry names.
pub struct Named {
    pub large: Large,
    /// Its pages, if the entry says them.
    pub pages: Vec<u32>,
    /// It is of a transaction that has not ended: a crash may have left its pages without their bytes (`overflow::HOLLOW`).
    pub unfinished: bool,
}

/// Gets every entry's key and value; returns the large values that it names.
pub type OnEntry<'a> = dyn FnMut(&[u8], &[u8]) -> Vec<Named> + 'a;

/// What the walk shows, and to whom.
pub struct Wanted<'a> {
    pub entry: &'a mut OnEntry<'a>,
    /// Large values that undo names. What is left of them is no leak.
    pub named: &'a [Large],
    /// Every large value is shown by `entry` or in `named`, so an overflow page beside them is leaked.
    pub all_named: bool,
    /// Page numbers with which a build is under way: nothing leads to them yet, and some have no page.
    pub building: Vec<Range<u32>>,
}

/// Checks the tree in `space`, which is not changed meanwhile.
pub fn walk(source: &dyn Source, space: SpaceId, wanted: Wanted<'_>) -> Report {
    let pages = SpaceCheck::begin(source, space);
    let links = vec![Link::Unknown; usize::from(MAX_LEVEL) + 1];
    let mut walk = Walk { pages, report: Report::default(), links, wanted };
    if walk.pages.pages.is_some() && walk.pages.root != ROOT_PAGE {
        walk.pages.fault(HEADER_PAGE, "the space has no tree");
    }
    walk.root();
    for large in walk.wanted.named {
        walk.leftovers(*large);
    }
    for page in std::mem::take(&mut walk.wanted.building).into_iter().flatten() {
        walk.pages.meet_again(page);
    }
    walk.the_rest();
    walk.end()
}

impl Tree {
    /// Checks the tree, which is not changed meanwhile, and shows every entry to `visit`.
    /// Faults are in the report, pages that nothing leads to among them. Cancelled, it finds none.
    pub fn check(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Report> {
        let mut entry = |key: &[u8], value: &[u8]| {
            visit(key, value);
            Vec::new()
        };
        let building = self.space.building.lock().clone();
        let wanted = Wanted { entry: &mut entry, named: &[], all_named: false, building };
        let pages = Running::new(&self.pages);
        let mut report = walk(&pages, self.space.id(), wanted);
        // Pages that were not read are no faults of the tree.
        if terrace_io::cancel::asked() {
            return Err(ReadError::Cancelled.into());
        }
        if let Some(error) = pages.stopped() {
            return Err(error.into());
        }
        report.fault_count += report.leaked.count;
        report.faults.append(&mut report.leaked.first);
        Ok(report)
    }

    /// The same while others change the tree: what `visit` has made of the entries, and faults that are none of a change half seen. If the
    /// structure doesn't stop changing, it is kept still for a walk: splits and merges wait, changes within leaves don't. Of entries that
    /// come and go meanwhile some are shown.
    pub fn check_beside<T: Default>(
        &self,
        mut visit: impl FnMut(&mut T, &[u8], &[u8]),
    ) -> Result<(T, Report)> {
        let still = self.space.still();
        for walk in 1.. {
            let _closed = match walk > OPEN_WALKS {
                true => Some(still.close(&*self.pages.world().sched)?),
                false => None,
            };
            let (before, mut made) = (still.stamp(), T::default());
            let report = self.check(&mut |key, value| visit(&mut made, key, value))?;
            if report.fault_count == 0 || still.was_still(before) || walk == WALKS {
                return Ok((made, report));
            }
        }
        unreachable!("the last walk returns")
    }
}

/// What a level's node that was met last says of its right sibling.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    /// None was met, or the way was lost.
    Unknown,
    To(Option<u32>),
}

/// Why a node cannot be followed.
struct Lost;

struct Walk<'s, 'v> {
    pages: SpaceCheck<'s>,
    report: Report,
    links: Vec<Link>,
    wanted: Wanted<'v>,
}

impl Walk<'_, '_> {
    fn fault(&mut self, page: u32, what: impl Into<String>) {
        self.pages.fault(page, what);
    }

    /// The way is lost at this level and below: nothing is known of the next node's left neighbour.
    fn lose(&mut self, level: u8) {
        self.pages.incomplete = true;
        self.links.iter_mut().take(usize::from(level) + 1).for_each(|link| *link = Link::Unknown);
    }

    fn root(&mut self) {
        self.pages.meet(ROOT_PAGE);
        let Some(copy) = self.pages.copy(ROOT_PAGE) else { return };
        let node = Node::new(PageRef::new(&copy));
        if !node.low().is_empty() || node.high().is_some() || node.right().is_some() {
            self.fault(ROOT_PAGE, "the root does not hold all keys");
        }
        self.report.levels = node.level();
        if self.node(ROOT_PAGE, &copy, node.level()).is_err() {
            return self.lose(MAX_LEVEL);
        }
        for level in 0..self.links.len() {
            if let Link::To(Some(page)) = self.links[level] {
                self.fault(page, format!("the last node of level {level} links to it"));
            }
        }
    }

    /// Checks a node and everything below it. Err: its own links mean nothing.
    fn node(&mut self, page: u32, copy: &[u8], level: u8) -> std::result::Result<(), Lost> {
        let node = Node::new(PageRef::new(copy));
        if !node.is_live() || node.level() != level || level > MAX_LEVEL {
            self.fault(page, format!("not a node of level {level}"));
            return Err(Lost);
        }
        if let Err(what) = node.verify() {
            self.fault(page, what);
            return Err(Lost);
        }
        let link = std::mem::replace(&mut self.links[usize::from(level)], Link::To(node.right()));
        if link != Link::Unknown && link != Link::To(Some(page)) {
            self.fault(page, "its left neighbour's link leads elsewhere");
        }
        if node.is_leaf() {
            self.leaf(page, node);
        } else {
            self.children(page, node);
        }
        Ok(())
    }

    fn leaf(&mut self, page: u32, node: Node<'_>) {
        self.report.leaves += 1;
        self.report.rows += node.count() as u64;
        self.report.leaf_bytes += node.used() as u64;
        let mut key = Vec::new();
        for slot in 0..node.count() {
            node.key_into(slot, &mut key);
            for named in (self.wanted.entry)(&key, node.value(slot)) {
                self.large(page, named);
            }
        }
    }

    /// Follows the children of an inner node, from fence to fence.
    fn children(&mut self, page: u32, parent: Node<'_>) {
        self.report.inner += 1;
        self.pages.soon((0..parent.count()).map(|slot| parent.child(slot)));
        let mut slot = 0;
        let mut at = Some((parent.child(0), parent.low().to_vec()));
        while let Some((next, low)) = at {
            if slot < parent.count() && parent.child(slot) == next {
                if parent.key(slot) != low {
                    self.fault(next, "its parent's separator is not its low fence");
                }
                slot += 1;
            } else {
                self.report.unposted.push(next);
            }
            at = match self.child(next, &low, parent) {
                Ok(following) => following,
                Err(Lost) => {
                    self.lose(parent.level() - 1);
                    (slot < parent.count()).then(|| (parent.child(slot), parent.key(slot)))
                }
            };
        }
        for slot in slot..parent.count() {
            self.pages.incomplete = true;
            self.fault(page, format!("no way to its child {}", parent.child(slot)));
        }
    }

    /// Checks a child whose low fence is to be `low`. Returns the next one of the same parent and its low fence.
    fn child(
        &mut self,
        page: u32,
        low: &[u8],
        parent: Node<'_>,
    ) -> std::result::Result<Option<(u32, Vec<u8>)>, Lost> {
        if !self.pages.meet(page) {
            return Err(Lost);
        }
        let copy = self.pages.copy(page).ok_or(Lost)?;
        let child = Node::new(PageRef::new(&copy));
        if child.is_live() && child.low() != low {
            self.fault(page, "its low fence is not where its left neighbour ends");
            return Err(Lost);
        }
        self.node(page, &copy, parent.level() - 1)?;
        match (child.high(), child.right()) {
            (high, _) if high == parent.high() => Ok(None),
            (Some(high), Some(right)) if parent.high().is_none_or(|end| high < end) => {
                Ok(Some((right, high.to_vec())))
            }
            _ => {
                self.fault(page, "its high fence is beyond its parent's");
                Err(Lost)
            }
        }
    }

    /// Follows a large value that an entry in the leaf `named_in` names.
    fn large(&mut self, named_in: u32, Named { large, pages, unfinished }: Named) {
        let mut page = large.page;
        for index in 0..large.pages() {
            if let Some(said) = pages.get(index as usize).filter(|said| **said != page) {
                let of = format!("page {index} of a large value");
                self.fault(
                    named_in,
                    format!("{of} is said to be {said} beside its reference, and is {page}"),
                );
            }
            if !self.pages.meet(page) {
                self.pages.incomplete = true;
                return self.fault(named_in, format!("page {index} of a large value is said to be {page}"));
            }
            let Some(copy) = self.pages.copy(page) else { return };
            if !large.owns(PageRef::new(&copy), index) {
                self.pages.incomplete = true;
                return self.fault(
                    page,
                    format!("it is not page {index} of the large value that leaf {named_in} names"),
                );
            }
            if overflow::is_hollow(PageRef::new(&copy)) && !unfinished {
                self.fault(
                    page,
                    format!("its part of a large value that leaf {named_in} names was lost in a crash"),
                );
            }
            self.report.overflow += 1;
            page = overflow::next(PageRef::new(&copy));
        }
        if page != 0 {
            self.fault(
                page,
                format!("a large value that leaf {named_in} names is longer than the entry says"),
            );
        }
    }

    /// Marks the remaining pages of a large value that may have been freed, wholly or in part, or whose first pages
    /// are not written yet.
    fn leftovers(&mut self, large: Large) {
        let mut page = large.page;
        let mut first = None;
        while first.is_none_or(|index| index < large.pages()) {
            // Freed from its end on.
            if page == 0 || self.pages.is_free(page) || self.pages.pages.is_some_and(|pages| page >= pages) {
                return;
            }
            let Some(copy) = self.pages.copy(page) else { return };
            let index = first.unwrap_or_else(|| Large::index(PageRef::new(&copy)));
            if !large.owns(PageRef::new(&copy), index) {
                return;
            }
            self.report.overflow += u64::from(self.pages.meet_again(page));
            page = overflow::next(PageRef::new(&copy));
            first = Some(index.saturating_add(1));
        }
    }

    /// The pages that the tree does not lead to.
    fn the_rest(&mut self) {
        let (mut overflow, all_named) = (0, self.wanted.all_named);
        self.pages.the_rest(|page| match page.kind() {
            kind if kind == PageKind::Overflow as u8 => {
                overflow += 1;
                all_named.then_some("no row names the large value that it belongs to")
            }
            kind if kind == PageKind::Free as u8 => Some("it was freed, but does not count as free"),
            _ => Some("nothing leads to it"),
        });
        self.report.overflow += overflow;
    }

    fn end(self) -> Report {
        let Walk { pages, mut report, .. } = self;
        report.free = pages.free;
        report.pages = pages.pages;
        report.is_filling = pages.is_filling;
        report.faults = pages.faults.first;
        report.fault_count = pages.faults.count;
        report.leaked = pages.leaked;
        report.incomplete = pages.incomplete;
        report.out_of_reach = pages.out_of_reach;
        report
    }
}
