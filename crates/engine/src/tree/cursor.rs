//! Cursors: reading in key order, both ways, with no latch held between calls.
//!
//! A cursor copies a *run* of neighbouring entries under one shared latch and hands them out from its own
//! memory: one entry at a time at first, so that a look-up copies one row, and all the rest of the leaf
//! from the third step on, unless it is told how many are expected. It remembers the leaf by frame, version and slot: if the leaf is
//! there and its version the same at the end of the run, it goes on at the next slot; if not, it looks its last key up again.
//! The leaf is not pinned between calls: any number of cursors may be open in any memory.
//! Forward it follows the right link, and from the third leaf on has as many pages fetched ahead as it has read; backward,
//! there being no left links, it descends again just below the leaf's low fence.
//!
//! Copies show the leaf at the time of the copy. A reader that must see each entry as it is now (locking reads) has its leaf checked
//! before each step ([`Cursor::set_checked`]): a run ends where its leaf has changed. Such runs begin with one entry and
//! grow as long as the leaf stays as it is, for a reader that changes what it reads has them end at once.
//!
//! Not here: steps (`steps`).

mod steps;

use super::copied::Copied;
use super::descend::Target;
use super::found::FoundEntry;
use super::node::Node;
use super::{Result, Tree};
use std::sync::Arc;
use steps::has_key;
use terrace_tier::memory::pages::{ReadGuard, WeakPin};
use terrace_tier::memory::pool::Access;

/// Steps before a cursor copies more than one entry at a time.
const SINGLE_STEPS: u32 = 3;

/// The most entries that a checked cursor copies at a time.
const CHECKED_MAX: usize = 64;

/// Leaves of a range from which on what lies behind them is fetched ahead.
const RANGE_LEAVES: u8 = 2;

/// Where to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek<'k> {
    First,
    Last,
    /// The least key that is not below this one.
    AtLeast(&'k [u8]),
    After(&'k [u8]),
    /// The greatest key that is not above this one.
    AtMost(&'k [u8]),
    Before(&'k [u8]),
}

/// Where the run was copied from. The leaf may be evicted between calls.
struct RunOrigin {
    leaf: WeakPin,
    /// The slot of the run's first entry.
    slot: usize,
}

/// Copies of leaves that a cursor keeps room for when they are not used any more.
const SPARE_MAX: usize = 2;

/// The memory of a cursor that is gone, for the next one.
#[derive(Default)]
pub struct Buffers {
    run: Copied,
    spare: Vec<Vec<u8>>,
    anchor: Vec<u8>,
    end: Vec<u8>,
}

pub struct Cursor {
    tree: Arc<Tree>,
    access: Access,
    run_max: usize,
    /// The most entries of a run.
    run_limit: usize,
    /// So long are a checked cursor's first runs.
    run_first: usize,
    /// Up to here the reader reads; empty: it doesn't know. Runs end just behind it.
    until: Vec<u8>,
    /// A run ends where its leaf has changed since it was copied.
    checked: bool,
    /// Entries that the reader is going to ask for; 0: it doesn't know.
    expected: usize,
    /// The way up ends before this key; empty: it doesn't.
    end: Vec<u8>,
    /// The run was cut at `end`: all of it lies below.
    cut: bool,
    /// The run is the last below `end`.
    last: bool,
    /// Runs copied since the last seek.
    runs: u32,
    /// Leaves that the way up has left behind since then.
    leaves: u8,
    run: Copied,
    /// Earlier runs' bytes, and whether the run's are to be kept too.
    held: Vec<Vec<u8>>,
    /// Room for copies that are not used any more.
    spare: Vec<Vec<u8>>,
    holds: bool,
    at: usize,
    place: Option<RunOrigin>,
    /// The key from which the next run is looked for, if its slot is not known.
    anchor: Vec<u8>,
    /// The last two seeks ended in the same leaf: the next one tries it first.
    local: bool,
}

impl Buffers {
    /// Bytes that are reserved.
    pub fn memory(&self) -> usize {
        self.run.memory() + self.spare.iter().map(Vec::capacity).sum::<usize>() + self.anchor.capacity()
    }
}

impl Cursor {
    pub fn new(tree: Arc<Tree>, access: Access) -> Cursor {
        Cursor::with(tree, access, &mut Buffers::default())
    }

    /// As [`Cursor::new`], in the memory of an earlier one.
    pub fn with(tree: Arc<Tree>, access: Access, memory: &mut Buffers) -> Cursor {
        Cursor {
            tree,
            access,
            run_max: usize::MAX,
            run_limit: usize::MAX,
            run_first: 1,
            until: Vec::new(),
            checked: false,
            expected: 0,
            end: std::mem::take(&mut memory.end),
            cut: false,
            last: false,
            runs: 0,
            leaves: 0,
            run: std::mem::take(&mut memory.run),
            held: Vec::new(),
            spare: std::mem::take(&mut memory.spare),
            holds: false,
            at: 0,
            place: None,
            anchor: std::mem::take(&mut memory.anchor),
            local: false,
        }
    }

    /// Puts the cursor's memory there; nothing is in it. The cursor is good for nothing any more: it stays where it is, because it is large.
    pub fn end_into(&mut self, memory: &mut Buffers) {
        self.release();
        self.clear();
        self.end.clear();
        memory.run = std::mem::take(&mut self.run);
        memory.spare = std::mem::take(&mut self.spare);
        memory.anchor = std::mem::take(&mut self.anchor);
        memory.end = std::mem::take(&mut self.end);
    }

    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }
    /// From now on no step is taken within a run whose leaf has changed: what it leads to is looked for anew.
    pub fn set_checked(&mut self) {
        (self.checked, self.run_max) = (true, 1);
    }
    /// From now on, or no longer, the reader of a checked cursor asks for all entries up to [`Cursor::set_until`]: runs are long from the
    /// first on, also where their leaf changes in between.
    pub fn set_reads_all(&mut self, on: bool) {
        self.run_first = if on { CHECKED_MAX } else { 1 };
        self.run_max = self.run_first;
    }
    /// From now on the reader of a checked cursor expects that it goes no further up than to the first entry that is not below this key;
    /// empty: it may.
    pub fn set_until(&mut self, until: &[u8]) {
        self.until.clear();
        self.until.extend_from_slice(until);
    }
    /// From now on runs are so long; 0: as long as they grow by themselves.
    pub fn expect(&mut self, entries: usize) {
        self.expected = entries;
    }
    /// Limits runs to this number of entries; `usize::MAX`: no limit.
    pub fn limit_runs(&mut self, entries: usize) {
        self.run_limit = entries;
    }
    /// Bytes that are reserved for what is copied.
    pub fn memory(&self) -> usize {
        let copies = self.held.iter().chain(&self.spare).map(Vec::capacity).sum::<usize>();
        self.run.memory() + copies + self.anchor.capacity()
    }
    /// From now on the way up ends before this key, and runs are copied no further; empty: it doesn't.
    pub fn set_end(&mut self, end: &[u8]) {
        let none = self.end.is_empty() && end.is_empty();
        if !none && self.end != end {
            (self.cut, self.last) = (false, false);
            self.end.clear();
            self.end.extend_from_slice(end);
        }
    }
    /// Whether entries of the run may lie above the end.
    pub fn may_pass_end(&self) -> bool {
        !self.cut && !self.end.is_empty()
    }
    /// Whether the cursor is on an entry that is not below the end: it came there in another way than up.
    #[inline]
    pub fn is_past_end(&self) -> bool {
        self.may_pass_end() && self.key() >= &self.end[..]
    }
    /// Whether the cursor is on an entry.
    pub fn is_valid(&self) -> bool {
        self.at < self.run.len()
    }
    /// The entry's key; empty if the cursor is on none.
    pub fn key(&self) -> &[u8] {
        self.run.key(self.at)
    }
    pub fn value(&self) -> &[u8] {
        self.run.value(self.at)
    }
    /// Whether the run may be gone on in: where that matters, its leaf is as it was when the run was copied.
    #[inline]
    fn is_good(&self) -> bool {
        !self.checked || self.place.as_ref().is_some_and(|place| self.tree.pages.is_unchanged(&place.leaf))
    }
    /// The run is over, and its leaf is as it was or not: how long the next one is to be.
    fn learn(&mut self, fresh: bool) {
        if self.checked {
            self.run_max = if fresh { CHECKED_MAX.min(4 * self.run_max) } else { self.run_first };
        }
    }
    /// Whether the leaf is as it was when the entry was copied, and is also the one that `key` belongs to. It is
    /// latched for that: a writer that was at work in it has finished.
    pub fn is_fresh_with(&self, key: &[u8]) -> bool {
        let leaf = self.place.as_ref().and_then(|place| {
            self.tree.pages.read_weak(&place.leaf).filter(|leaf| leaf.matches(&place.leaf))
        });
        leaf.is_some_and(|leaf| has_key(&leaf, key))
    }
    /// Looks at the entry in its leaf, under the leaf's latch, if that is as it was when the entry was copied.
    pub fn if_fresh<R>(&self, with: impl FnOnce(FoundEntry<'_>) -> R) -> Option<R> {
        let place = self.place.as_ref().filter(|_| self.is_valid())?;
        let leaf = self.tree.pages.read_weak(&place.leaf).filter(|leaf| leaf.matches(&place.leaf))?;
        Some(with(FoundEntry::new(Node::new(leaf.page()), place.slot + self.at)))
    }
    /// Goes one entry on within what was copied: never waits. False: that is to be done by [`Cursor::next`] or [`Cursor::prev`].
    #[inline]
    pub fn step_in_run(&mut self, backward: bool) -> bool {
        let ends = if backward { self.at == 0 } else { self.at + 1 >= self.run.len() };
        if ends || !self.is_good() {
            return false;
        }
        self.at = if backward { self.at - 1 } else { self.at + 1 };
        true
    }
    /// The entries that were copied behind this one.
    pub fn following(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.run.from(self.at + 1)
    }
    /// The entries that were copied before this one, the nearest first.
    pub fn preceding(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.run.before(self.at)
    }
    /// Goes up to the entry that was copied next, which cannot have changed: the caller keeps others from it.
    pub fn step_kept(&mut self) {
        assert!(self.at + 1 < self.run.len());
        self.at += 1;
    }
    /// Goes up by `entries` within what was copied; the reader doesn't mind whether its leaf has changed.
    pub fn skip(&mut self, entries: usize) {
        assert!(!self.checked && entries < self.run.len() - self.at);
        self.at += entries;
    }
    /// The leaf that the run was copied from.
    pub fn leaf(&self) -> Option<&WeakPin> {
        self.place.as_ref().map(|place| &place.leaf)
    }
    /// Forgets the leaf and what was copied.
    pub fn reset(&mut self) {
        self.clear();
        self.place = None;
    }

    /// The run's bytes stay where they are, up to [`Cursor::release`], also when the cursor leaves it. How many runs do so.
    pub fn hold(&mut self) -> usize {
        self.holds = true;
        self.held.len() + 1
    }
    pub fn release(&mut self) {
        self.holds = false;
        for mut bytes in self.held.drain(..) {
            if self.spare.len() < SPARE_MAX {
                bytes.clear();
                self.spare.push(bytes);
            }
        }
    }

    fn clear(&mut self) {
        self.at = 0;
        (self.cut, self.last) = (false, false);
        if std::mem::take(&mut self.holds) {
            let room = self.spare.pop().unwrap_or_default();
            self.held.push(self.run.clear_into(room));
        }
        self.run.clear();
        if self.run_limit < usize::MAX {
            self.run.shrink();
            self.spare = Vec::new();
        }
    }

    /// Goes to an entry. False if there is none there; then the cursor is on none.
    pub fn seek(&mut self, to: Seek<'_>) -> Result<bool> {
        (self.runs, self.leaves) = (0, 0);
        self.learn(false);
        self.clear();
        let tree = self.tree.clone();
        match to {
            Seek::First => {
                let leaf = tree.leaf(Target::At(&[]), self.access)?;
                self.forward(&tree, leaf, 0)
            }
            Seek::AtLeast(key) | Seek::After(key) => {
                let leaf = self.leaf_of(&tree, key)?;
                let found = Node::new(leaf.page()).find(key);
                let skip = found.found && matches!(to, Seek::After(_));
                self.forward(&tree, leaf, found.slot + usize::from(skip))
            }
            Seek::Last => {
                let leaf = tree.leaf(Target::Last, self.access)?;
                let end = Node::new(leaf.page()).count();
                self.backward(&tree, leaf, end)
            }
            Seek::AtMost(key) => {
                let leaf = self.leaf_of(&tree, key)?;
                let found = Node::new(leaf.page()).find(key);
                self.backward(&tree, leaf, found.slot + usize::from(found.found))
            }
            Seek::Before([]) => Ok(false),
            Seek::Before(key) => {
                let leaf = tree.leaf(Target::Before(key), self.access)?;
                let end = Node::new(leaf.page()).find(key).slot;
                self.backward(&tree, leaf, end)
            }
        }
    }

    /// The leaf that has `key`: the last one if that is likely, else from the root.
    fn leaf_of<'t>(&mut self, tree: &'t Tree, key: &[u8]) -> Result<ReadGuard<'t>> {
        let last = self.place.take();
        if self.local
            && let Some(place) = &last
            && let Some(guard) = tree.pages.try_read(place.leaf.id(), self.access)
            && has_key(&guard, key)
        {
            return Ok(guard);
        }
        let leaf = tree.leaf(Target::At(key), self.access)?;
        self.local = last.is_some_and(|place| place.leaf.id() == leaf.id());
        Ok(leaf)
    }
}
