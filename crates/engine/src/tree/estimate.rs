//! How many rows a range has, without reading it.
//!
//! A bound's place is found level by level as a fraction of the whole tree: in the root, slot by count; in
//! the child, slot by count of that one share; and so on. The difference of two fractions times the
//! number of rows is the estimate. A range of a few leaves is counted; of one that is not much longer the leaves are counted in
//! the nodes above them.
//!
//! Entries marked deleted are no rows, though they stand in the leaves until purge removes them. As long as the tree has some, those of the counted
//! leaves are left out, and an estimate takes the range to have as many as its first leaves and its last one have, within what the number of rows of
//! the whole tree allows: a range that is three quarters of the tree cannot have fewer rows than the tree has beyond a quarter of its entries.
//!
//! A sample of a tree's entries is some of its leaves, each found as a fraction of the tree in the same way.

use super::descend::{Fit, Notes, Target};
use super::node::Node;
use super::search::SlotPosition;
use super::{Result, Tree};
use std::ops::{Bound, Range};
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::pages::ReadGuard;
use terrace_tier::memory::pool::Access;

/// Leaves that are counted rather than estimated.
const COUNTED_LEAVES: usize = 4;

/// Entries at the end of a range that say as much of it as the first leaves do.
const ENTRIES_ENOUGH: f64 = 32.0;

/// Up to this many leaves a range is counted rather than only estimated: InnoDB walks along as many.
const NEAR_LEAVES: u64 = 9;

/// About how many rows a range has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeEstimate {
    pub rows: u64,
    /// The range is short: counted, or nearly so.
    pub near: bool,
}

struct EstimatePoint {
    leaf: u32,
    slot: usize,
    /// The node above the leaf and the leaf's place in it; none if the leaf is the root.
    parent: Option<(u32, usize)>,
    fraction: f64,
}

/// What a walk along the leaves found.
enum Counted {
    Exactly(u64),
    /// The end lies further: entries of the first leaves.
    Further(Entries),
    Unknown,
}

/// Entries of some leaves.
#[derive(Clone, Copy, Default)]
struct Entries {
    all: u64,
    /// The number of those that are marked deleted.
    marked: u64,
}

impl Entries {
    fn live_share(self) -> f64 {
        if self.all == 0 { 1.0 } else { (self.all - self.marked.min(self.all)) as f64 / self.all as f64 }
    }
}

/// Rows of a range that has about `inside` entries, of which about `live_share` are rows. `entries` and `rows` are the whole tree's.
fn rows_of(inside: f64, live_share: f64, entries: u64, rows: u64) -> f64 {
    let (entries, rows) = (entries as f64, rows as f64);
    let inside = inside.min(entries);
    let least = (rows - (entries - inside)).max(0.0);
    (inside * live_share).clamp(least, inside.min(rows).max(least))
}

impl Tree {
    /// Rows in the range, about.
    pub fn estimate_range(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Result<RangeEstimate> {
        let from = match low {
            Bound::Unbounded => self.spot(&[], false)?,
            Bound::Included(key) => self.spot(key, false)?,
            Bound::Excluded(key) => self.spot(key, true)?,
        };
        let end = match high {
            Bound::Unbounded => None,
            Bound::Included(key) => Some((key, true)),
            Bound::Excluded(key) => Some((key, false)),
        };
        let counted = self.count(&from, end)?;
        if let Counted::Exactly(rows) = counted {
            return Ok(RangeEstimate { rows, near: true });
        }
        let to = end.map(|(key, after)| self.spot(key, after)).transpose()?;
        let mut live_share = None;
        if let Counted::Further(first) = counted {
            if let Some(to) = &to
                && let Some(leaves) = self.leaves_between(&from, to)?
                && leaves > 0
            {
                let whole = leaves as f64 * first.all as f64 / COUNTED_LEAVES as f64;
                let all = (whole + to.slot as f64 - from.slot as f64).max(1.0);
                let rows = match self.marked() {
                    0 => all,
                    _ => rows_of(all, self.live_share(first, Some(to))?, self.entries(), self.rows()),
                };
                let rows = rows.max(1.0).round() as u64;
                return Ok(RangeEstimate { rows, near: leaves <= NEAR_LEAVES });
            }
            if self.marked() > 0 {
                live_share = Some(self.live_share(first, to.as_ref())?);
            }
        }
        let end = to.map_or(1.0, |to| to.fraction);
        let fraction = (end - from.fraction).max(0.0);
        let rows = match live_share {
            Some(share) => rows_of(fraction * self.entries() as f64, share, self.entries(), self.rows()),
            None => fraction * self.rows() as f64,
        };
        Ok(RangeEstimate { rows: rows.round() as u64, near: false })
    }

    /// The share of entries that are not marked deleted, in the first leaves of a range and in what it has of its last leaf, together.
    fn live_share(&self, first: Entries, to: Option<&EstimatePoint>) -> Result<f64> {
        let mut last = Entries::default();
        let leaf = match to {
            Some(to) => self.read_if_there(to.leaf)?,
            None => Some(self.leaf_at(1.0)?),
        };
        if let Some(guard) = leaf {
            let node = Node::new(guard.page());
            if node.is_live() && node.is_leaf() {
                let end = to.map_or(node.count(), |to| to.slot.min(node.count()));
                last = Entries { all: end as u64, marked: self.marked_in(node, 0..end) };
            }
        }
        // Each end counts alike, however many leaves were looked at there; chance decides what very few entries say.
        let weight = (last.all as f64 / ENTRIES_ENOUGH).min(1.0);
        Ok((first.live_share() + weight * last.live_share()) / (1.0 + weight))
    }

    /// How many of a leaf's entries are marked deleted.
    pub(super) fn marked_in(&self, leaf: Node<'_>, slots: Range<usize>) -> u64 {
        slots.filter(|slot| leaf.entry_is_sound(*slot) && self.is_marked(leaf.value(*slot))).count() as u64
    }

    /// The keys of the leaf that lies at this fraction (0 to 1) of the tree, without those of entries marked deleted.
    pub fn sample_leaf(&self, fraction: f64) -> Result<Vec<Vec<u8>>> {
        let leaf = self.leaf_at(fraction)?;
        let node = Node::new(leaf.page());
        let rows = (0..node.count()).filter(|slot| !self.is_marked(node.value(*slot)));
        Ok(rows.map(|slot| node.key(slot)).collect())
    }

    /// The leaf that lies at this fraction (0 to 1) of the tree.
    pub(super) fn leaf_at(&self, fraction: f64) -> Result<ReadGuard<'_>> {
        let (mut key, mut rest, mut level) = (Vec::new(), fraction, self.root_level_as(Access::Once)?);
        loop {
            let guard = self.descend(Target::At(&key), level, Access::Once, &mut Notes::default())?;
            let Some(guard) = guard else {
                (rest, level) = (fraction, self.root_level_as(Access::Once)?); // the tree has lost a level meanwhile
                key.clear();
                continue;
            };
            if level == 0 {
                return Ok(guard);
            }
            let node = Node::new(guard.page());
            let count = node.count().max(1);
            let place = rest.clamp(0.0, 1.0) * count as f64;
            let slot = (place as usize).min(count - 1);
            node.key_into(slot, &mut key);
            rest = place - slot as f64;
            level -= 1;
        }
    }

    /// Where the first entry is that is not below the key, or, with `after`, above it.
    fn spot(&self, key: &[u8], after: bool) -> Result<EstimatePoint> {
        let (mut fraction, mut share) = (0.0, 1.0);
        let (mut parent, mut child) = (None, None);
        let mut level = self.root_level()?;
        loop {
            let guard = match child.take() {
                Some(page) => self.child(page, key, level)?,
                None => self.descend(Target::At(key), level, Access::Estimate, &mut Notes::default())?,
            };
            let Some(guard) = guard else {
                level = self.root_level()?; // the tree has lost a level meanwhile
                (fraction, share, parent) = (0.0, 1.0, None);
                continue;
            };
            let node = Node::new(guard.page());
            let count = node.count().max(1) as f64;
            let slot = if node.is_leaf() {
                let place = node.find(key);
                place.slot + usize::from(after && place.found)
            } else {
                node.child_slot(key)
            };
            fraction += share * slot as f64 / count;
            share /= count;
            if level == 0 {
                return Ok(EstimatePoint { leaf: guard.id().page, slot, parent, fraction });
            }
            if level == 1 {
                parent = Some((guard.id().page, slot));
            }
            child = Some(node.child(slot));
            level -= 1;
        }
    }

    /// The node of a level that has the key: this page, if it is in memory and still is that node.
    fn child(&self, page: u32, key: &[u8], level: u8) -> Result<Option<ReadGuard<'_>>> {
        let target = Target::At(key);
        match self.pages.try_read(self.space.page_id(page), Access::Estimate) {
            Some(guard) if matches!(target.judge(guard.page(), level), Fit::Here) => Ok(Some(guard)),
            _ => self.descend(target, level, Access::Estimate, &mut Notes::default()),
        }
    }

    /// None: it was freed, and let go of.
    fn read_if_there(&self, page: u32) -> Result<Option<ReadGuard<'_>>> {
        match self.pages.read(self.space.page_id(page), Access::Estimate) {
            Ok(guard) => Ok(Some(guard)),
            Err(ReadError::Absent(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The exact count up to the key (with it, if so told) or to the tree's end, if that is few leaves away.
    fn count(&self, from: &EstimatePoint, end: Option<(&[u8], bool)>) -> Result<Counted> {
        let (mut leaf, mut slot, mut rows, mut first) = (from.leaf, from.slot, 0, Entries::default());
        let looks = self.marked() > 0;
        for _ in 0..COUNTED_LEAVES {
            let Some(guard) = self.read_if_there(leaf)? else { return Ok(Counted::Unknown) };
            let node = Node::new(guard.page());
            if !node.is_live() || !node.is_leaf() {
                return Ok(Counted::Unknown);
            }
            let marked = |slots: Range<usize>| if looks { self.marked_in(node, slots) } else { 0 };
            if let Some((key, after)) = end.filter(|(key, _)| node.below_high(key)) {
                // A range that ends before it begins has nothing: nor has this leaf of it, if it is the first.
                let to =
                    if node.low() <= key { node.find(key) } else { SlotPosition { slot: 0, found: false } };
                let to = to.slot + usize::from(after && to.found);
                return Ok(Counted::Exactly(rows + to.saturating_sub(slot) as u64 - marked(slot..to)));
            }
            let (all, in_range) = (node.count() as u64, node.count().saturating_sub(slot) as u64);
            let gone = marked(slot..node.count());
            rows += in_range - gone;
            // What lies before the range's begin counts as the rest of its leaf does.
            first.all += all;
            first.marked += (gone * all).checked_div(in_range).unwrap_or(0);
            match node.right() {
                Some(right) => (leaf, slot) = (right, 0),
                None => return Ok(if end.is_none() { Counted::Exactly(rows) } else { Counted::Unknown }),
            }
        }
        Ok(Counted::Further(first))
    }

    /// How many leaves apart the two places are, if that takes a look at few of the nodes above them.
    fn leaves_between(&self, from: &EstimatePoint, to: &EstimatePoint) -> Result<Option<u64>> {
        let (Some((mut page, mut slot)), Some(end)) = (from.parent, to.parent) else { return Ok(None) };
        let mut leaves = 0;
        for _ in 0..COUNTED_LEAVES {
            let Some(guard) = self.read_if_there(page)? else { return Ok(None) };
            let node = Node::new(guard.page());
            if !node.is_live() || node.is_leaf() {
                return Ok(None);
            }
            if end.0 == page {
                return Ok(Some(leaves + end.1.saturating_sub(slot) as u64));
            }
            leaves += node.count().saturating_sub(slot) as u64;
            let Some(right) = node.right() else { return Ok(None) };
            (page, slot) = (right, 0);
        }
        Ok(None)
    }
}
