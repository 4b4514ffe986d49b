//! Merging sparse nodes, and finishing what others left between two steps.
//!
//! A sparse node and a neighbour of the same parent become one if they fit well. Step 1 latches the
//! right page and then the parent: the page is marked as merging, and the parent forgets it. Its keys
//! are still reached, over the left neighbour. Step 2 latches both, moves everything left, and frees
//! the page. If they no longer fit by then, the mark is taken off and the page is posted again.

use super::build::Image;
use super::descend::{Notes, Target};
use super::edit;
use super::modify::SPARSE;
use super::node::{CAPACITY, FLAG_MERGING, Node, prefix_of};
use super::{Result, Tree};
use crate::tree::space::{ALLOCATION_LOG, Homes, ROOT_PAGE};
use std::sync::atomic::Ordering;
use terrace_log::{LsnRange, Urgency, record_bound};
use terrace_tier::memory::mtr::Mtr;
use terrace_tier::memory::pages::Freed;
use terrace_tier::memory::pages::Pin;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{PAGE_SIZE, SpaceId};

/// Two nodes become one only if that one is not nearly full.
const MERGED_MAX: usize = CAPACITY / 4 * 3;
const MERGE_LOG: u64 = record_bound(edit::LOG_OF_PAGE) + record_bound(64) + ALLOCATION_LOG;
const UNPOST_LOG: u64 = 2 * record_bound(128);
const TRIES: usize = 100;

/// Whether `left` and its neighbour `right` fit one node with room to spare.
fn fit_together(left: Node<'_>, right: Node<'_>) -> bool {
    let prefix = prefix_of(left.low(), right.high());
    // The right node's first key was its low fence and becomes an entry's.
    left.used_with_prefix(prefix) + right.used_with_prefix(prefix) + right.low().len() <= MERGED_MAX
}

/// Two children of one parent, side by side.
struct Pair {
    parent: Pin,
    left: u32,
    right: u32,
    separator: Vec<u8>,
}

impl Tree {
    /// The node of `level` that has `key` is sparse: merges it with a neighbour if that fits.
    pub(super) fn shrink(&self, level: u8, key: &[u8]) -> Result<()> {
        for right_first in [true, false] {
            let Some(pair) = self.pair(level, key, right_first)? else { continue };
            if self.worth(&pair, level)? && self.unpost(&pair, level)? {
                self.pages.world().sched.point("merge: unposted");
                self.finish(pair.right)?;
                return self.shrink_parent(&pair.parent, level + 1, key);
            }
        }
        Ok(())
    }

    /// Merges the first leaves, those that have no entries any more: a crash may have come between a removal and the merge that
    /// it called for, and nothing is removed there again.
    pub(crate) fn tidy(&self) -> Result<()> {
        loop {
            let level = self.root_level()?;
            let before = self.counters.merges.load(Ordering::Relaxed);
            (0..level).try_for_each(|level| self.shrink(level, &[]))?;
            self.lower_root()?;
            if self.counters.merges.load(Ordering::Relaxed) == before {
                return Ok(());
            }
        }
    }

    /// The parent lost a child: it may be sparse itself, or a root with one child.
    fn shrink_parent(&self, parent: &Pin, level: u8, key: &[u8]) -> Result<()> {
        let (count, used) = {
            let guard = parent.read();
            let node = Node::new(guard.page());
            if !node.is_live() || node.level() != level {
                return Ok(());
            }
            (node.count(), node.used())
        };
        if parent.id().page != ROOT_PAGE {
            return if used < SPARSE { self.shrink(level, key) } else { Ok(()) };
        }
        if count == 1 { self.lower_root() } else { Ok(()) }
    }

    /// The child of `level` that has `key` with its right (or left) neighbour, as their parent has them.
    fn pair(&self, level: u8, key: &[u8], right_first: bool) -> Result<Option<Pair>> {
        let guard = self.descend(Target::At(key), level + 1, Access::Internal, &mut Notes::default())?;
        let Some(guard) = guard else { return Ok(None) };
        let node = Node::new(guard.page());
        let slot = node.child_slot(key) + usize::from(right_first);
        if slot == 0 || slot >= node.count() {
            return Ok(None);
        }
        let (left, right) = (node.child(slot - 1), node.child(slot));
        Ok(Some(Pair { parent: guard.pin(), left, right, separator: node.key(slot) }))
    }

    /// Looks at both pages without latching them together: step 2 looks again.
    fn worth(&self, pair: &Pair, level: u8) -> Result<bool> {
        let (Some(left), Some(right)) = (self.load_if_there(pair.left)?, self.load_if_there(pair.right)?)
        else {
            return Ok(false);
        };
        // Copies, so that no two shared latches are held at once.
        let mut copy = vec![0; PAGE_SIZE];
        copy.copy_from_slice(left.read().page().all());
        let left = Node::new(terrace_tier::page::PageRef::new(&copy));
        let guard = right.read();
        let right = Node::new(guard.page());
        let are_nodes = [left, right].iter().all(|node| node.is_live() && node.level() == level);
        Ok(are_nodes && left.right() == Some(pair.right) && fit_together(left, right))
    }

    /// Step 1. False if the pages are not what they were.
    fn unpost(&self, pair: &Pair, level: u8) -> Result<bool> {
        let Some(right) = self.load_if_there(pair.right)? else { return Ok(false) };
        let mut mtr = self.pages.begin(UNPOST_LOG, 0, Urgency::Reserve)?;
        let child = mtr.write_pinned(&right);
        let node = Node::new(mtr.page(child));
        let same = node.is_live() && node.level() == level && node.low() == pair.separator;
        if !same || node.is_merging() {
            return Ok(false);
        }
        let parent = mtr.write_pinned(&pair.parent);
        let node = Node::new(mtr.page(parent));
        if !node.is_live() || node.level() != level + 1 || !node.contains(&pair.separator) || !node.sound() {
            return Ok(false);
        }
        let place = node.find(&pair.separator);
        if !place.found || place.slot == 0 || node.child(place.slot) != pair.right {
            return Ok(false);
        }
        edit::set_flags(&mut mtr.page_mut(child), FLAG_MERGING);
        edit::remove(&mut mtr.page_mut(parent), place.slot);
        mtr.commit();
        Ok(true)
    }

    /// Finishes what is under way at a page that its parent does not lead to: a merge if it is marked,
    /// a split otherwise.
    pub(super) fn finish(&self, page: u32) -> Result<()> {
        let Some(right) = self.load_if_there(page)? else { return Ok(()) };
        for _ in 0..TRIES {
            let (level, low, merging) = {
                let guard = right.read();
                let node = Node::new(guard.page());
                if !node.is_live() || page == ROOT_PAGE || node.low().is_empty() {
                    return Ok(());
                }
                (node.level(), node.low().to_vec(), node.is_merging())
            };
            if !merging {
                return self.post(page, level, &low, Urgency::Reserve);
            }
            let target = Target::Before(&low);
            let left = self.descend(target, level, Access::Internal, &mut Notes::default())?;
            let Some(left) = left.map(|guard| guard.pin()) else { return Ok(()) };
            if self.absorb(&left, &right, level)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Step 2. False: look again, the neighbourhood has changed.
    fn absorb(&self, left: &Pin, right: &Pin, level: u8) -> Result<bool> {
        let homes = self.space.ready_to_free([right.id().page])?;
        let mut mtr = self.pages.begin(MERGE_LOG, 0, Urgency::Reserve)?;
        let left_no = mtr.write_pinned(left);
        let node = Node::new(mtr.page(left_no));
        if !node.is_live() || node.level() != level || node.right() != Some(right.id().page) {
            return Ok(false);
        }
        let right_no = mtr.write_pinned(right);
        let (l, r) = (Node::new(mtr.page(left_no)), Node::new(mtr.page(right_no)));
        if !r.is_live() || r.level() != level || !r.is_merging() {
            return Ok(true); // another thread was faster
        }
        for (pin, node) in [(left, l), (right, r)] {
            node.verify().map_err(|what| self.corrupt(pin.id().page, what))?;
        }
        if l.high() != Some(r.low()) {
            return Err(self.corrupt(right.id().page, "it does not begin where its left neighbour ends"));
        }
        let Some(image) = joined(l, r) else {
            // They no longer fit: the right page stays, and is posted on the next round.
            edit::set_flags(&mut mtr.page_mut(right_no), 0);
            mtr.commit();
            return Ok(false);
        };
        let header = homes.latch_header(&mut mtr);
        image.write_to(&mut mtr.page_mut(left_no), left.id());
        self.space.free(&mut mtr, header, right_no, &homes);
        self.write_rows(&mut mtr, header);
        let range = mtr.commit();
        self.let_go(right, range);
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// A root with one child takes over what the child has, as long as that is so.
    fn lower_root(&self) -> Result<()> {
        loop {
            let root = self.root()?;
            let child = {
                let guard = root.read();
                let node = Node::new(guard.page());
                if node.is_leaf() || node.count() != 1 {
                    return Ok(());
                }
                node.child(0)
            };
            let Some(pin) = self.load_if_there(child)? else { return Ok(()) };
            let homes = self.space.ready_to_free([child])?;
            let mut mtr = self.pages.begin(MERGE_LOG, 0, Urgency::Reserve)?;
            let child_no = mtr.write_pinned(&pin);
            if !Node::new(mtr.page(child_no)).is_live() {
                // Freed meanwhile: never wait for the root with a free page latched, for a thread that splits the
                // root may be about to take it.
                return Ok(());
            }
            let root_no = mtr.write_pinned(&root);
            if !self.lower_root_in(&mut mtr, root_no, child_no, &homes)? {
                return Ok(());
            }
            let range = mtr.commit();
            self.let_go(&pin, range);
        }
    }

    /// A page was freed by a mini-transaction with this range: it keeps no slot. A traversal that is on its way to it finds it free in memory, or
    /// nowhere, and begins again.
    fn let_go(&self, page: &Pin, range: LsnRange) {
        if self.space.id() >= SpaceId::FIRST_USER {
            self.pages.freed(&[Freed::Here { pin: page.clone(), lsn: range.end }], range);
        }
    }

    fn lower_root_in(
        &self,
        mtr: &mut Mtr<'_>,
        root_no: terrace_tier::memory::mtr::PageNo,
        child_no: terrace_tier::memory::mtr::PageNo,
        homes: &Homes<'_>,
    ) -> Result<bool> {
        let child_id = mtr.id(child_no);
        let (root, child) = (Node::new(mtr.page(root_no)), Node::new(mtr.page(child_no)));
        let only = !root.is_leaf() && root.count() == 1 && root.child(0) == child_id.page;
        // A right sibling is about to be posted to the root: it keeps its level.
        if !only || !child.is_live() || child.level() + 1 != root.level() || child.right().is_some() {
            return Ok(false);
        }
        child.verify().map_err(|what| self.corrupt(child_id.page, what))?;
        let mut image = Image::new(child.level(), &[], None, None);
        if !image.push_from(child, 0..child.count()) {
            return Ok(false); // without a prefix it does not fit
        }
        let header = homes.latch_header(mtr);
        image.write_to(&mut mtr.page_mut(root_no), self.space.page_id(ROOT_PAGE));
        self.space.free(mtr, header, child_no, homes);
        Ok(true)
    }
}

/// The two nodes as one, if they fit well.
fn joined(left: Node<'_>, right: Node<'_>) -> Option<Image> {
    let flags = left.page().flags();
    let mut image = Image::new(left.level(), left.low(), right.high(), right.right()).with_flags(flags);
    let fits = fit_together(left, right)
        && image.push_from(left, 0..left.count())
        && image.push_from(right, 0..right.count());
    fits.then_some(image)
}
