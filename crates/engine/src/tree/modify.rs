//! One change at one key, decided under the leaf's exclusive latch.
//!
//! The caller says how long a value it may put; room for that is made first, by a repack or a split
//! in mini-transactions of their own. Then the leaf is latched and the caller's `decide` is called
//! with a [`LeafPosition`]: it sees the present value, may latch and change pages of its own in the same
//! mini-transaction (undo), and puts or removes. If it needs a page that is not in memory, or has to
//! wait for a row lock, it changes nothing, says so, and everything is dropped before the wait.

use super::descend::{DescentStep, Fit, Notes, Restarts, Target};
use super::edit;
use super::node::{CAPACITY, ENTRY_HEAD, FENCE_HEAD, MAX_ENTRY, MAX_KEY, Node, SLOT};
use super::search::SlotPosition;
use super::{Result, Tree, TreeError};
use crate::tree::space::ROOT_PAGE;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use terrace_log::{LsnRange, Urgency, record_bound};
use terrace_tier::memory::mtr::{Mtr, MtrError, PageNo};
use terrace_tier::memory::pages::{Pin, ReadGuard};
use terrace_tier::memory::pool::Access;
use terrace_tier::memory::pool::frame_hint::LastSeen;
use terrace_tier::page::PageId;

/// A node that uses less than this looks for a neighbour to merge with.
pub(super) const SPARSE: usize = CAPACITY / 4;

/// Bytes that a leaf leaves to rows that may come to be longer.
const ROOM_TO_GROW: usize = CAPACITY / 16;
// A leaf of one entry, both as long as they may be, has that beside another.
const _: () =
    assert!(CAPACITY - 2 * (FENCE_HEAD + MAX_KEY) >= 2 * (SLOT + ENTRY_HEAD + MAX_ENTRY) + ROOM_TO_GROW);

/// What a change may take.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The longest value it may put; None if it removes, looks, or puts one that is no longer than the one there.
    pub value_max: Option<usize>,
    /// Log bytes for the caller's own page changes.
    pub log_bytes: u64,
    /// Pages that the caller may create.
    pub new_pages: usize,
    pub urgency: Urgency,
}

impl Plan {
    /// A change of the tree alone.
    pub fn put(value_max: usize) -> Plan {
        Plan { value_max: Some(value_max), log_bytes: 0, new_pages: 0, urgency: Urgency::Normal }
    }
    pub fn remove() -> Plan {
        Plan { value_max: None, ..Plan::put(0) }
    }
}

/// What comes of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Commit what was changed, if anything was.
    Done,
    /// Nothing was changed: load the page and decide again.
    Load(PageId),
}

/// The next key above a spot, in the order of the whole tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextKey {
    Found,
    /// No key is above.
    End,
    /// Its page is not in memory: return [`Flow::Load`] with this.
    Missing(PageId),
}

/// The leaf of a writer's last change. If the last three were in one leaf, it is tried first at the next: where changes
/// are scattered, or in pairs, another leaf is not looked at in vain. It holds nothing: a transaction keeps some of them until it ends, and
/// may be idle.
#[derive(Default)]
pub struct Hint {
    last: Option<PageId>,
    /// Changes before the last one, in the same leaf as it.
    same: usize,
    pairs: bool,
    leaf: Option<LastSeen>,
}

/// Changes in one leaf after which the next is looked for there first, beside the last one.
const SAME: usize = 2;

/// A key's place in its leaf, under the leaf's exclusive latch.
pub struct LeafPosition<'m, 'p> {
    pub(super) tree: &'m Tree,
    pub(super) mtr: &'m mut Mtr<'p>,
    pub(super) leaf: PageNo,
    pub(super) key: &'m [u8],
    pub(super) place: SlotPosition,
    pub(super) value_max: Option<usize>,
    /// More of them than there were: entries, and those marked deleted.
    pub(super) rows: i64,
    pub(super) marked: i64,
    /// The leaves in which the next key was looked for.
    pub(super) right_of_leaf: SmallVec<[ReadGuard<'m>; 1]>,
}

impl<'p> LeafPosition<'_, 'p> {
    /// The tree that the spot is in.
    pub fn tree(&self) -> &Tree {
        self.tree
    }
    pub fn key(&self) -> &[u8] {
        self.key
    }
    /// The present value.
    pub fn value(&self) -> Option<&[u8]> {
        self.place.found.then(|| self.node().value(self.place.slot))
    }
    /// The mini-transaction that the change is part of.
    pub fn mtr(&mut self) -> &mut Mtr<'p> {
        self.mtr
    }
    fn node(&self) -> Node<'_> {
        Node::new(self.mtr.page(self.leaf))
    }

    /// Finds the least key above this one, which may be in a page further right. As long as the spot
    /// is held, no other key comes in between: the pages looked at stay latched (shared). Before any
    /// page of the caller's own is latched: tree pages come first.
    pub fn next_key(&mut self, next: &mut Vec<u8>) -> Result<NextKey> {
        let (tree, held) = (self.tree, &mut self.right_of_leaf);
        let leaf = Node::new(self.mtr.page(self.leaf));
        let slot = self.place.slot + usize::from(self.place.found);
        if slot < leaf.count() {
            leaf.key_into(slot, next);
            return Ok(NextKey::Found);
        }
        held.clear();
        // Left before right, over empty leaves.
        loop {
            let here = held.last().map_or(leaf, |guard| Node::new(guard.page()));
            let Some(right) = here.right() else { return Ok(NextKey::End) };
            let id = tree.space.page_id(right);
            let Some(found) = tree.pages.try_read(id, Access::Normal) else {
                return Ok(NextKey::Missing(id));
            };
            let node = Node::new(found.page());
            if !node.is_live() || !node.is_leaf() || Some(node.low()) != here.high() {
                return Err(tree.corrupt(right, "not its left sibling's neighbour"));
            }
            let is_empty = node.count() == 0;
            if !is_empty {
                node.key_into(0, next);
            }
            held.push(found);
            if !is_empty {
                return Ok(NextKey::Found);
            }
        }
    }

    /// Puts a value, at most as long as planned or as the present one, in place of the present one. Once, and not after a
    /// removal: room was made for one value.
    pub fn put(&mut self, value: &[u8]) {
        let planned = self.value_max.max(self.value().map(<[u8]>::len));
        let is_planned = planned.is_some_and(|max| value.len() <= max) || self.fits(value.len());
        assert!(is_planned, "{} bytes, planned {planned:?}", value.len());
        self.marked += self.marks(value);
        let mut page = self.mtr.page_mut(self.leaf);
        if self.place.found {
            edit::set_value(&mut page, self.place.slot, value);
        } else {
            edit::insert(&mut page, self.place.slot, self.key, value);
            self.place.found = true;
            self.rows += 1;
        }
    }

    /// Whether a value of this length can be put, in place of the present one, though no room was made for it.
    pub fn fits(&self, len: usize) -> bool {
        self.place.found && edit::value_fits(self.node(), self.place.slot, len)
    }

    /// Overwrites the beginning of the present value, which is at least as long.
    pub fn put_start(&mut self, start: &[u8]) {
        assert!(self.place.found);
        self.marked += self.marks(start);
        edit::set_start(&mut self.mtr.page_mut(self.leaf), self.place.slot, start);
    }

    /// By how much the number of delete-marked entries changes if this value replaces the present one.
    fn marks(&self, value: &[u8]) -> i64 {
        let was = self.value().is_some_and(|value| self.tree.is_marked(value));
        i64::from(self.tree.is_marked(value)) - i64::from(was)
    }

    /// Removes the key, if it is there.
    pub fn remove(&mut self) {
        if self.place.found {
            self.marked += self.marks(&[]);
            edit::remove(&mut self.mtr.page_mut(self.leaf), self.place.slot);
            self.place.found = false;
            self.rows -= 1;
        }
    }
}

/// The ways down for one call.
#[derive(Default)]
pub(super) struct Trip {
    /// What was loaded for it, until it is done.
    pub kept: SmallVec<[Pin; 2]>,
    pub notes: Notes,
    pub restarts: Restarts,
}

/// A leaf under exclusive latch, or what to do first.
enum Latched {
    Yes(PageNo),
    Again,
    Load(u32),
}

impl Tree {
    /// Positions at `key` with its leaf latched exclusively and calls `decide`, which may be called
    /// several times but has changed nothing unless it says [`Flow::Done`]. An error from it ends the
    /// call and changes nothing.
    ///
    /// Returns the log range of what was changed, if anything was.
    pub fn modify<E: From<TreeError>>(
        &self,
        hint: &mut Hint,
        key: &[u8],
        plan: Plan,
        mut decide: impl FnMut(&mut LeafPosition<'_, '_>) -> std::result::Result<Flow, E>,
    ) -> std::result::Result<Option<LsnRange>, E> {
        let value_max = plan.value_max;
        check_sizes(key, value_max.unwrap_or(0))?;
        let log = record_bound(edit::log_of_entry(key.len() + value_max.unwrap_or(0))) + plan.log_bytes;
        let mut trip = Trip::default();
        loop {
            let begin = || self.pages.begin(log, plan.new_pages, plan.urgency);
            let (mut mtr, leaf) = self.latched_leaf(begin, hint, key, &mut trip)?;
            let node = Node::new(mtr.page(leaf));
            let place = node.find(key);
            let (id, was) = (mtr.id(leaf), Leaf::of(node));
            if let Some(len) = value_max.and_then(|len| self.lacks_room(node, place, key, len)) {
                drop(mtr);
                // One that was merged away meanwhile has no room to be made.
                if let Some(leaf) = self.load_if_there(id.page)? {
                    self.make_room(&leaf, 0, key, len, plan.urgency)?;
                }
                continue;
            }
            if place.found && !node.entry_is_sound(place.slot) {
                return Err(self.corrupt(id.page, "an entry leaves the heap").into());
            }
            let right_of_leaf = SmallVec::new();
            let mut spot = LeafPosition {
                tree: self,
                mtr: &mut mtr,
                leaf,
                key,
                place,
                value_max,
                rows: 0,
                marked: 0,
                right_of_leaf,
            };
            let flow = decide(&mut spot)?;
            let (rows, marked) = (spot.rows, spot.marked);
            drop(spot);
            match flow {
                Flow::Done => {}
                Flow::Load(page) => {
                    assert!(!mtr.changed(), "page {page} was asked for after a change");
                    drop(mtr);
                    match self.pages.load(page, Access::Normal).map_err(TreeError::from) {
                        Ok(pin) => trip.kept.push(pin),
                        Err(error) if page.space == self.space.id() => {
                            self.begin_again_without(&mut trip.restarts, error)?;
                        }
                        Err(error) => return Err(error.into()),
                    }
                    continue;
                }
            }
            let node = Node::new(mtr.page(leaf));
            let sparse = rows < 0 && was.is_worth_merging(id, node);
            hint.note(&mtr, leaf);
            let range = mtr.changed().then(|| mtr.commit());
            self.count_changed(rows, marked);
            self.finish_noted(&mut trip.notes);
            if sparse {
                *hint = Hint::default();
                self.follow_up(|| self.shrink(0, key));
            }
            return Ok(range);
        }
    }

    /// Finishes what others left that the way down has met.
    pub(super) fn finish_noted(&self, notes: &mut Notes) {
        if let Some(page) = notes.unposted.take() {
            self.counters.finished_for_others.fetch_add(1, Ordering::Relaxed);
            self.follow_up(|| self.finish(page));
        }
    }

    /// Puts `value` at `key`. Returns whether the key was new.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut new = false;
        self.modify(&mut Hint::default(), key, Plan::put(value.len()), |spot| {
            new = spot.value().is_none();
            spot.put(value);
            Ok::<_, TreeError>(Flow::Done)
        })?;
        Ok(new)
    }

    /// Removes `key`. Returns whether it was there.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let mut found = false;
        self.modify(&mut Hint::default(), key, Plan::remove(), |spot| {
            found = spot.value().is_some();
            spot.remove();
            Ok::<_, TreeError>(Flow::Done)
        })?;
        Ok(found)
    }

    pub(super) fn load_as(&self, page: u32, access: Access) -> Result<Pin> {
        Ok(self.pages.load(self.space.page_id(page), access)?)
    }

    /// None: it was freed, and let go of.
    pub(super) fn load_if_there(&self, page: u32) -> Result<Option<Pin>> {
        match self.load_as(page, Access::Normal) {
            Ok(pin) => Ok(Some(pin)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The key's leaf, latched in a mini-transaction of `begin`'s. If something has to be waited for on the way, that ends and a new one begins.
    #[inline]
    pub(super) fn latched_leaf<'a>(
        &self,
        begin: impl Fn() -> std::result::Result<Mtr<'a>, MtrError>,
        hint: &mut Hint,
        key: &[u8],
        trip: &mut Trip,
    ) -> Result<(Mtr<'a>, PageNo)> {
        loop {
            let mut mtr = begin()?;
            match self.leaf_to_write(&mut mtr, hint, key, &mut trip.notes)? {
                Latched::Yes(leaf) => return Ok((mtr, leaf)),
                Latched::Again => {
                    drop(mtr);
                    self.begin_again(&mut trip.restarts)?;
                }
                Latched::Load(page) => {
                    drop(mtr);
                    match self.load_as(page, Access::Normal) {
                        Ok(pin) => trip.kept.push(pin),
                        Err(error) => self.begin_again_without(&mut trip.restarts, error)?,
                    }
                }
            }
        }
    }

    /// If the leaf has no room for such a value: the length to make room for.
    ///
    /// Of rows that come one after the other and differ in length, each may come to be longer: they leave some room, or
    /// a leaf full of them would be cut in halves by the first that grows.
    #[inline]
    pub(super) fn lacks_room(
        &self,
        node: Node<'_>,
        place: SlotPosition,
        key: &[u8],
        value_max: usize,
    ) -> Option<usize> {
        if self.shortens_at_once(node, node.need(key.len(), value_max)) {
            return Some(value_max);
        }
        if place.found {
            return (!edit::value_fits(node, place.slot, value_max)).then_some(value_max);
        }
        let room = node.gap().checked_sub(node.need(key.len(), value_max));
        let len = match room {
            None => value_max,
            Some(room) if room < ROOM_TO_GROW && self.may_grow(node, place.slot, value_max) => {
                value_max + ROOM_TO_GROW
            }
            Some(_) => return None,
        };
        Some(len)
    }

    /// Whether an entry at `slot` comes beside the one that was put last, and they are rows that differ in length.
    #[cold]
    fn may_grow(&self, node: Node<'_>, slot: usize, value_max: usize) -> bool {
        let beside = |slot: usize| slot < node.count() && node.offset(slot) == node.heap();
        let differs = |slot: usize| node.value(slot).len() != value_max;
        self.rows_may_grow.load(Ordering::Relaxed)
            && (slot > 0 && beside(slot - 1) || beside(slot))
            && (differs(slot.saturating_sub(1)) || differs(0))
    }

    /// Latches the key's leaf: the hint's if it looks right, else the one that is led to from the root. Waits for latches only.
    fn leaf_to_write(
        &self,
        mtr: &mut Mtr<'_>,
        hint: &mut Hint,
        key: &[u8],
        notes: &mut Notes,
    ) -> Result<Latched> {
        if let Some(seen) = hint.leaf.take()
            && let Some(leaf) = mtr.write_seen(&seen)
        {
            let node = Node::new(mtr.page(leaf));
            if node.is_live() && node.is_leaf() && node.contains(key) {
                hint.leaf = Some(seen);
                return self.sound(mtr, leaf, key);
            }
            mtr.unlatch_unchanged(leaf);
        }
        let _visit = self.space.visit();
        let at = Target::At(key);
        let leaf = match self.try_descend(at, 1, Access::Normal, notes)? {
            DescentStep::Arrived(parent) => {
                let page = at.child(Node::new(parent.page()));
                drop(parent);
                #[cfg(test)]
                self.pages.world().sched.point("descend: between two latches");
                match mtr.write(self.space.page_id(page)) {
                    Some(leaf) => leaf,
                    None => return Ok(Latched::Load(page)),
                }
            }
            DescentStep::NoLevel => match mtr.write_seen(&self.root) {
                Some(root) => root,
                None => return Ok(Latched::Load(ROOT_PAGE)),
            },
            DescentStep::Missing(page) => return Ok(Latched::Load(page)),
            DescentStep::Again => return Ok(Latched::Again),
        };
        self.right_to(mtr, leaf, key, notes)
    }

    /// Latches the key's leaf, being at it or left of it.
    fn right_to(
        &self,
        mtr: &mut Mtr<'_>,
        mut leaf: PageNo,
        key: &[u8],
        notes: &mut Notes,
    ) -> Result<Latched> {
        loop {
            let page = mtr.id(leaf).page;
            match Target::At(key).judge(mtr.page(leaf), 0) {
                Fit::Here => return self.sound(mtr, leaf, key),
                Fit::Right(right) => {
                    notes.unposted = Some(right);
                    let high: SmallVec<[u8; 64]> = Node::new(mtr.page(leaf)).high().unwrap_or(&[]).into();
                    mtr.unlatch_unchanged(leaf);
                    let Some(next) = mtr.write(self.space.page_id(right)) else {
                        return Ok(Latched::Load(right));
                    };
                    let node = Node::new(mtr.page(next));
                    if node.is_live() && node.low() != &high[..] {
                        return Err(self.corrupt(right, "its low fence is not where its left neighbour ends"));
                    }
                    leaf = next;
                }
                Fit::Free => return Ok(Latched::Again),
                // The root was a leaf, and no longer is.
                Fit::Bad(_) if page == ROOT_PAGE && mtr.page(leaf).level() > 0 => return Ok(Latched::Again),
                Fit::Bad(what) => return Err(self.corrupt(page, what)),
            }
        }
    }

    fn sound(&self, mtr: &Mtr<'_>, leaf: PageNo, key: &[u8]) -> Result<Latched> {
        if !Node::new(mtr.page(leaf)).is_sound_for(key) {
            return Err(self.corrupt(mtr.id(leaf).page, "the node's areas overlap"));
        }
        Ok(Latched::Yes(leaf))
    }
}

impl Hint {
    /// The change after the next one is likely to be beside it: its leaf is tried first then, wherever the last ones were.
    pub fn expect_pair(&mut self) {
        self.pairs = true;
    }

    /// A change is made in this leaf.
    pub(super) fn note(&mut self, mtr: &Mtr<'_>, leaf: PageNo) {
        let id = mtr.id(leaf);
        let same = self.last.replace(id) == Some(id);
        self.same = if same { self.same + 1 } else { 0 };
        if !std::mem::take(&mut self.pairs) && self.same < SAME {
            self.leaf = None;
        } else if self.leaf.is_none() {
            self.leaf = Some(mtr.seen(leaf));
        }
    }
}

/// What a leaf was before removals.
pub(super) struct Leaf {
    used: usize,
    count: usize,
}

impl Leaf {
    pub fn of(node: Node<'_>) -> Leaf {
        Leaf { used: node.used(), count: node.count() }
    }

    /// Merging is tried when a node becomes sparse, and then with each eighth entry that goes, not at each removal.
    pub fn is_worth_merging(&self, id: PageId, now: Node<'_>) -> bool {
        let is_due = self.used >= SPARSE || now.count().div_ceil(8) < self.count.div_ceil(8);
        id.page != ROOT_PAGE && now.used() < SPARSE && is_due
    }
}

pub(crate) fn check_sizes(key: &[u8], value_max: usize) -> Result<()> {
    if key.len() > MAX_KEY {
        return Err(TreeError::KeyTooLong { len: key.len(), max: MAX_KEY });
    }
    if key.len() + value_max > MAX_ENTRY {
        return Err(TreeError::EntryTooLarge { len: key.len() + value_max, max: MAX_ENTRY });
    }
    Ok(())
}
