//! The way down: from the root to the node of a level that holds a key.

use super::found::FoundEntry;
use super::node::{MAX_LEVEL, Node, compare};
use super::{Result, Tree, TreeError};
use crate::tree::space::ROOT_PAGE;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::pages::{Pin, ReadGuard, WeakPin};
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{PageId, PageRef};

/// Traversals that always meet a free page have a parent that leads to it: the tree is corrupt.
const RESTARTS_MAX: usize = 10_000;
/// The same of one that comes to pages that are gone again and again: nothing else frees pages so fast.
const GONE_MAX: usize = 1_000;

/// How often a traversal began again, and how often of that because a page was gone.
#[derive(Clone, Copy, Default)]
pub(super) struct Restarts {
    all: usize,
    gone: usize,
}

/// Which node of a level.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'k> {
    /// The one that holds the key.
    At(&'k [u8]),
    /// The one that holds what is just below the key: its low fence is below it.
    Before(&'k [u8]),
    Last,
}

/// How a node relates to the target.
pub(super) enum Fit {
    Here,
    Right(u32),
    /// The page was given back: begin again.
    Free,
    Bad(&'static str),
}

impl Target<'_> {
    /// Judges the node that a traversal came to at `level`.
    #[inline]
    pub(super) fn judge(&self, page: PageRef<'_>, level: u8) -> Fit {
        let node = Node::new(page);
        if !node.is_live() || node.level() != level {
            return if node.is_free() {
                Fit::Free
            } else {
                Fit::Bad("not a node of the level it is led to from")
            };
        }
        let right = match self {
            Target::At(key) => {
                if compare(key, node.low()).is_lt() {
                    return Fit::Bad("its low fence is above a key that it is led to for");
                }
                !node.below_high(key)
            }
            Target::Before(key) => {
                if *key <= node.low() {
                    return Fit::Bad("its low fence is above a key that it is led to for");
                }
                node.high().is_some_and(|high| *key > high)
            }
            Target::Last => node.high().is_some(),
        };
        match node.right() {
            _ if !right => Fit::Here,
            Some(_) if node.high().is_some_and(|high| high <= node.low()) => {
                Fit::Bad("its high fence is not above its low fence")
            }
            Some(page) => Fit::Right(page),
            None => Fit::Bad("it has a high fence but no right sibling"),
        }
    }

    #[inline]
    pub(super) fn child(&self, node: Node<'_>) -> u32 {
        node.child(match self {
            Target::At(key) => node.child_slot(key),
            Target::Before(key) => node.child_slot_before(key),
            Target::Last => node.count().saturating_sub(1),
        })
    }
}

pub(super) enum DescentStep<'t> {
    Arrived(ReadGuard<'t>),
    /// The root is below the level.
    NoLevel,
    Missing(u32),
    Again,
}

/// What a traversal noticed on its way.
#[derive(Default)]
pub(super) struct Notes {
    /// A page that its parent did not lead to, only its left neighbour: a split or merge is under
    /// way there, or was cut short.
    pub unposted: Option<u32>,
}

impl Tree {
    /// The leaf for the target, under its shared latch. May do I/O; no latch is held.
    #[inline]
    pub(super) fn leaf(&self, target: Target<'_>, access: Access) -> Result<ReadGuard<'_>> {
        match self.descend(target, 0, access, &mut Notes::default())? {
            Some(leaf) => Ok(leaf),
            None => Err(self.corrupt(ROOT_PAGE, "the root is below the leaves")),
        }
    }

    /// The node of `level` for the target, under its shared latch; None if the root is below that level.
    /// May do I/O; no latch is held.
    #[inline]
    pub(super) fn descend(
        &self,
        target: Target<'_>,
        level: u8,
        access: Access,
        notes: &mut Notes,
    ) -> Result<Option<ReadGuard<'_>>> {
        // What missed stays in memory until the traversal is through.
        let mut kept: SmallVec<[Pin; 4]> = SmallVec::new();
        let mut restarts = Restarts::default();
        loop {
            match self.try_descend(target, level, access, notes)? {
                DescentStep::Arrived(guard) => return Ok(Some(guard)),
                DescentStep::NoLevel => return Ok(None),
                DescentStep::Missing(page) => match self.load_as(page, access) {
                    Ok(pin) => kept.push(pin),
                    Err(error) => self.begin_again_without(&mut restarts, error)?,
                },
                DescentStep::Again => {
                    self.begin_again(&mut restarts)?;
                }
            }
        }
    }

    /// A traversal met a free page, and begins again.
    pub(super) fn begin_again(&self, restarts: &mut Restarts) -> Result<()> {
        restarts.all += 1;
        self.counters.restarts.fetch_add(1, Ordering::Relaxed);
        self.pages.world().sched.point("tree: begin again");
        if restarts.all < RESTARTS_MAX {
            return Ok(());
        }
        Err(self.corrupt(ROOT_PAGE, "its traversals lead to free pages"))
    }

    /// A page that a traversal was led to cannot be had. If it is gone, it was freed meanwhile, and the traversal begins again.
    pub(super) fn begin_again_without(&self, restarts: &mut Restarts, error: TreeError) -> Result<()> {
        restarts.gone += 1;
        let is_root = matches!(error, TreeError::Read(ReadError::Absent(id)) if id.page == ROOT_PAGE);
        if !error.is_absent() || is_root || restarts.gone >= GONE_MAX {
            return Err(error);
        }
        self.begin_again(restarts)
    }

    #[inline]
    pub(super) fn try_descend(
        &self,
        target: Target<'_>,
        level: u8,
        access: Access,
        notes: &mut Notes,
    ) -> Result<DescentStep<'_>> {
        let _visit = self.space.visit();
        let Some(mut guard) = self.pages.try_read_seen(&self.root, access) else {
            return Ok(DescentStep::Missing(ROOT_PAGE));
        };
        let mut page = ROOT_PAGE;
        let mut at_level = guard.page().level();
        // Where the node to the right must begin: so a way right has an end.
        let mut ended: SmallVec<[u8; 64]> = SmallVec::new();
        let mut moved = false;
        if at_level > MAX_LEVEL {
            return Err(self.corrupt(ROOT_PAGE, "its level is out of range"));
        }
        if at_level < level {
            return Ok(DescentStep::NoLevel);
        }
        loop {
            let node = Node::new(guard.page());
            if std::mem::take(&mut moved) && node.is_live() && node.low() != &ended[..] {
                return Err(self.corrupt(page, "its low fence is not where its left neighbour ends"));
            }
            let next = match target.judge(guard.page(), at_level) {
                Fit::Here if at_level == level => return Ok(DescentStep::Arrived(guard)),
                Fit::Here => {
                    at_level -= 1;
                    target.child(Node::new(guard.page()))
                }
                Fit::Right(right) => {
                    notes.unposted = Some(right);
                    ended.clear();
                    ended.extend_from_slice(node.high().unwrap_or(&[]));
                    moved = true;
                    right
                }
                Fit::Free if page == ROOT_PAGE => return Err(self.corrupt(page, "the root is a free page")),
                Fit::Free => return Ok(DescentStep::Again),
                Fit::Bad(what) => return Err(self.corrupt(page, what)),
            };
            drop(guard);
            page = next;
            #[cfg(test)]
            self.pages.world().sched.point("descend: between two latches");
            match self.pages.try_read(self.space.page_id(page), access) {
                Some(found) => guard = found,
                None => return Ok(DescentStep::Missing(page)),
            }
        }
    }

    /// The first page on the way to the key's leaf that is not in memory. Does no I/O, and heats nothing.
    pub fn missing(&self, key: &[u8]) -> Option<PageId> {
        match self.try_descend(Target::At(key), 0, Access::Internal, &mut Notes::default()) {
            Ok(DescentStep::Missing(page)) => Some(self.space.page_id(page)),
            // Whatever is wrong, who goes there is told.
            _ => None,
        }
    }

    /// Reads the value of `key` under the leaf's shared latch.
    pub fn get<R>(&self, key: &[u8], access: Access, with: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let leaf = self.leaf(Target::At(key), access)?;
        let node = Node::new(leaf.page());
        let place = node.find(key);
        Ok(with(place.found.then(|| node.value(place.slot))))
    }

    /// As [`Tree::get`], without I/O: None if a page on the way is not in memory.
    pub fn try_get<R>(
        &self,
        key: &[u8],
        access: Access,
        with: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<Option<R>> {
        for _ in 0..RESTARTS_MAX {
            match self.try_descend(Target::At(key), 0, access, &mut Notes::default())? {
                DescentStep::Arrived(leaf) => {
                    let node = Node::new(leaf.page());
                    let place = node.find(key);
                    return Ok(Some(with(place.found.then(|| node.value(place.slot)))));
                }
                DescentStep::NoLevel => return Err(self.corrupt(ROOT_PAGE, "the root is below the leaves")),
                DescentStep::Missing(_) => return Ok(None),
                DescentStep::Again => _ = self.counters.restarts.fetch_add(1, Ordering::Relaxed),
            }
        }
        Err(self.corrupt(ROOT_PAGE, "its traversals lead to free pages"))
    }

    /// Finds the entry under its leaf's shared latch, without the way down if `near`, a page of this tree, is where it was and the key's leaf.
    pub fn find_near<R>(
        &self,
        near: Option<&WeakPin>,
        key: &[u8],
        access: Access,
        with: impl FnOnce(Option<FoundEntry<'_>>) -> R,
    ) -> Result<R> {
        let find = |node: Node<'_>| {
            let place = node.find(key);
            with(place.found.then(|| FoundEntry::new(node, place.slot)))
        };
        if let Some(leaf) = near.and_then(|near| self.pages.read_weak(near)) {
            let node = Node::new(leaf.page());
            if node.is_live() && node.is_leaf() && node.contains(key) {
                return Ok(find(node));
            }
        }
        Ok(find(Node::new(self.leaf(Target::At(key), access)?.page())))
    }
}
