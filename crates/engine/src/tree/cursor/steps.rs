//! From entry to entry: within what was copied of a leaf, and on to its neighbours.

use super::super::descend::{Fit, Target};
use super::super::node::Node;
use super::super::{Result, Tree};
use super::{Cursor, RANGE_LEAVES, RunOrigin, SINGLE_STEPS};
use crate::planted;
use terrace_tier::memory::pages::ReadGuard;
use terrace_tier::memory::pool::Access;

impl RunOrigin {
    /// The leaf under its latch, if it is still in its frame, and whether it is unchanged.
    #[inline]
    fn leaf_now<'t>(&self, tree: &'t Tree, access: Access) -> Option<(ReadGuard<'t>, bool)> {
        if planted::LOST_PLACE_TRUSTED.on() {
            return Some((tree.pages.read(self.leaf.id(), access).ok()?, true));
        }
        let guard = tree.pages.read_weak(&self.leaf)?;
        let is_same = guard.matches(&self.leaf);
        Some((guard, is_same))
    }
}

impl Cursor {
    /// Goes to the next entry up. False, and on none, after the last.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<bool> {
        if self.step_in_run(false) {
            return Ok(true);
        }
        if !self.is_valid() {
            return Ok(false);
        }
        if self.last {
            self.remember_key();
            return Ok(false);
        }
        let next_slot = self.place.as_ref().map_or(0, |place| place.slot + self.run.len());
        self.remember_key();
        let tree = self.tree.clone();
        let anchor = std::mem::take(&mut self.anchor);
        let place = self.place.take();
        // A leaf that changed is the key's still, as a rule: the reader itself changes what it reads.
        let leaf = match place.and_then(|place| place.leaf_now(&tree, self.access)) {
            Some((guard, true)) => {
                self.anchor = anchor;
                self.learn(true);
                return self.forward(&tree, guard, next_slot);
            }
            Some((guard, _)) if has_key(&guard, &anchor) => guard,
            near => {
                drop(near);
                tree.leaf(Target::At(&anchor), self.access)?
            }
        };
        let found = Node::new(leaf.page()).find(&anchor);
        self.anchor = anchor;
        self.learn(false);
        self.forward(&tree, leaf, found.slot + usize::from(found.found))
    }

    /// Goes to the next entry down. False, and on none, before the first.
    pub fn prev(&mut self) -> Result<bool> {
        if !self.is_valid() {
            return Ok(false);
        }
        if self.step_in_run(true) {
            return Ok(true);
        }
        let end = self.place.as_ref().map_or(0, |place| place.slot);
        self.remember_key();
        let tree = self.tree.clone();
        let place = self.place.take();
        if let Some((guard, true)) = place.and_then(|place| place.leaf_now(&tree, self.access)) {
            self.learn(true);
            return self.backward(&tree, guard, end);
        }
        if self.anchor.is_empty() {
            return Ok(false);
        }
        self.learn(false);
        let anchor = std::mem::take(&mut self.anchor);
        let leaf = tree.leaf(Target::Before(&anchor), self.access)?;
        let end = Node::new(leaf.page()).find(&anchor).slot;
        self.anchor = anchor;
        self.backward(&tree, leaf, end)
    }

    /// Keeps the current key as the anchor, and empties the run.
    pub(super) fn remember_key(&mut self) {
        self.anchor.clear();
        self.anchor.extend_from_slice(self.run.key(self.at));
        self.clear();
    }

    pub(super) fn run_len(&mut self) -> usize {
        let runs = self.runs;
        self.runs = runs.saturating_add(1);
        let wanted = match self.expected {
            _ if self.checked => self.run_max,
            0 if runs < SINGLE_STEPS => 1,
            0 => self.run_max,
            expected => expected.min(self.run_max),
        };
        wanted.min(self.run_limit)
    }

    /// Whether what lies behind the leaf is likely to be read: the whole tree is, or leaves have been left behind.
    pub(super) fn goes_on(&self) -> bool {
        self.access == Access::Scan || self.leaves > 0
    }

    /// How the leaf to the right is read: a look-up that has come so far is a range, and may go on.
    pub(super) fn access_onward(&mut self) -> Access {
        self.leaves = self.leaves.saturating_add(1);
        match self.access {
            Access::Normal if self.leaves >= RANGE_LEAVES => Access::Range(self.leaves),
            other => other,
        }
    }

    /// The same of the leaf to the left.
    fn access_back(&mut self) -> Access {
        match self.access_onward() {
            Access::Range(leaves) => Access::RangeDown(leaves),
            Access::Scan => Access::ScanDown,
            other => other,
        }
    }

    /// Copies the run that starts at `slot` of the leaf, or at its right neighbours' first.
    pub(super) fn forward<'t>(
        &mut self,
        tree: &'t Tree,
        mut leaf: ReadGuard<'t>,
        mut slot: usize,
    ) -> Result<bool> {
        let max = self.run_len();
        loop {
            let node = Node::new(leaf.page());
            if !node.sound() {
                return Err(tree.corrupt(leaf.id().page, "the node's areas overlap"));
            }
            let ends_here = !self.end.is_empty() && node.high().is_none_or(|high| &self.end[..] < high);
            let end = if ends_here { node.find(&self.end).slot } else { node.count() };
            if slot < end {
                let mut to = end.min(slot.saturating_add(max));
                if to > slot + 1
                    && !self.until.is_empty()
                    && node.high().is_none_or(|high| &self.until[..] < high)
                {
                    to = to.min(node.find(&self.until).slot + 1).max(slot + 1);
                }
                if to == node.count()
                    && self.goes_on()
                    && let Some(right) = node.right()
                {
                    tree.pages.warm(tree.space.page_id(right));
                }
                self.copy(&leaf, slot, to);
                (self.cut, self.last) = (true, ends_here && to == end);
                return Ok(true);
            }
            if ends_here {
                return Ok(false);
            }
            let (Some(right), Some(high)) = (node.right(), node.high()) else { return Ok(false) };
            self.anchor.clear();
            self.anchor.extend_from_slice(high);
            let visit = tree.space.visit();
            drop(leaf);
            let access = self.access_onward();
            let next = tree.pages.try_read(tree.space.page_id(right), access);
            drop(visit);
            let at = Target::At(&self.anchor);
            leaf = match next.filter(|next| matches!(at.judge(next.page(), 0), Fit::Here)) {
                Some(next) => next,
                None => tree.leaf(at, access)?,
            };
            slot = Node::new(leaf.page()).find(&self.anchor).slot;
        }
    }

    /// Copies the run that ends before slot `end` of the leaf, or at the end of those left of it.
    pub(super) fn backward<'t>(
        &mut self,
        tree: &'t Tree,
        mut leaf: ReadGuard<'t>,
        mut end: usize,
    ) -> Result<bool> {
        let max = self.run_len();
        loop {
            let node = Node::new(leaf.page());
            if !node.sound() {
                return Err(tree.corrupt(leaf.id().page, "the node's areas overlap"));
            }
            if end > 0 {
                let end = end.min(node.count());
                self.copy(&leaf, end.saturating_sub(max), end);
                self.at = self.run.len().saturating_sub(1);
                return Ok(self.is_valid());
            }
            self.anchor.clear();
            self.anchor.extend_from_slice(node.low());
            if self.anchor.is_empty() {
                return Ok(false);
            }
            drop(leaf);
            let access = self.access_back();
            leaf = tree.leaf(Target::Before(&self.anchor), access)?;
            end = Node::new(leaf.page()).find(&self.anchor).slot;
        }
    }

    pub(super) fn copy(&mut self, leaf: &ReadGuard<'_>, from: usize, to: usize) {
        self.clear();
        self.run.copy(Node::new(leaf.page()), from..to);
        self.place = Some(RunOrigin { leaf: leaf.weak(), slot: from });
    }
}

/// Whether the page is a leaf, and the one in which the key is or would be.
pub(super) fn has_key(guard: &ReadGuard<'_>, key: &[u8]) -> bool {
    let node = Node::new(guard.page());
    node.is_live() && node.is_leaf() && node.contains(key)
}
