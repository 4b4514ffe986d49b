//! Building a tree from keys that ascend: every page is written once, left to right, all levels at
//! the same time.
//!
//! For each level there is a node under construction, kept as raw entries, because its prefix is known
//! only when the key after it is. When it is full it gets its page (one mini-transaction), and its low
//! fence and page number go to the level above. Its right neighbour's number is taken beforehand. What
//! is under construction at the highest level in the end becomes the root.
//!
//! Until [`Whole::install`] the root is an empty leaf and nothing leads to the pages written: others may use the tree,
//! and if they put something into it, it is not installed. The numbers of these pages are taken in runs, known to
//! their giver ([`Numbers`]): ALTER builds in new spaces, which are dropped whole; a load in a transaction notes them in
//! its undo (`txn::fill`).
//!
//! Pages pass by the log and the pool if the build has a [`Bypass`], and are durable before the root names them.
//!
//! Not here: sorting.

use super::build::Image;
use super::edit::LOG_OF_PAGE;
use super::modify::check_sizes;
use super::node::{CAPACITY, ENTRY_HEAD, FENCE_HEAD, Node, SLOT, common_prefix, prefix_of};
use super::split::separator;
use super::{Tree, TreeError};
use crate::error::Result;
use crate::tree::space::{ALLOCATION_LOG, Space, run};
use std::ops::{Deref, Range};
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_log::{Urgency, record_bound};
use terrace_tier::memory::mtr::Mtr;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::{self, PAGE_SIZE, PageId, PageKind, PageRef};
use terrace_tier::redo::PageMut;
use terrace_tier::volume::bypass::Bypass;

const NODE_LOG: u64 = record_bound(LOG_OF_PAGE) + ALLOCATION_LOG;

/// A node under construction.
#[derive(Default)]
struct Growing {
    /// The page it will have; None if it is the first of its level.
    page: Option<u32>,
    low: Vec<u8>,
    /// Keys and values of the entries, one after the other.
    bytes: Vec<u8>,
    /// Where each entry's key and value end.
    ends: Vec<(usize, usize)>,
}

impl Growing {
    fn start(&self, entry: usize) -> usize {
        if entry == 0 { 0 } else { self.ends[entry - 1].1 }
    }
    fn key(&self, entry: usize) -> &[u8] {
        &self.bytes[self.start(entry)..self.ends[entry].0]
    }
    fn value(&self, entry: usize) -> &[u8] {
        &self.bytes[self.ends[entry].0..self.ends[entry].1]
    }
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }
    /// The node's size with its first `keep` entries and such a high fence. All keys between two fences
    /// have the prefix that these share.
    fn size(&self, keep: usize, high: Option<&[u8]>) -> usize {
        let entries = self.start(keep) + keep * (SLOT + ENTRY_HEAD);
        let fences = 2 * FENCE_HEAD + self.low.len() + high.map_or(0, <[u8]>::len);
        entries + fences - keep * prefix_of(&self.low, high)
    }
    fn fits(&self, keep: usize, high: Option<&[u8]>) -> bool {
        self.size(keep, high) <= CAPACITY
    }
    fn image(&self, level: u8, range: Range<usize>, high: Option<&[u8]>, right: Option<u32>) -> Image {
        let mut image = Image::new(level, &self.low, high, right);
        let fits = range.into_iter().all(|entry| image.push(self.key(entry), self.value(entry)));
        assert!(fits, "a node under construction is never larger than a page");
        image
    }
    /// Forgets the first `keep` entries.
    fn forget(&mut self, keep: usize) {
        let start = self.start(keep);
        self.bytes.drain(..start);
        self.ends.drain(..keep);
        for (key_end, end) in &mut self.ends {
            *key_end -= start;
            *end -= start;
        }
    }
}

/// Gives a build its page numbers, and remembers them for a crash or an error.
pub trait Numbers: Send {
    /// Takes `count` consecutive numbers that no page ever had. Returns the first. May wait; no latch is held.
    fn take(&mut self, space: &Space, count: u32) -> Result<u32>;
    /// Gives back the end of what was taken last, which is not used.
    fn give_back(&mut self, space: &Space, unused: Range<u32>) -> Result<()>;
}

/// The numbers of a space that nothing names yet: a crash or an error drops it whole.
pub struct Unnamed(pub Urgency);

impl Numbers for Unnamed {
    fn take(&mut self, space: &Space, count: u32) -> Result<u32> {
        run::take(space, count, 0, self.0, |_, _| ())
    }
    fn give_back(&mut self, space: &Space, unused: Range<u32>) -> Result<()> {
        run::give_back(space, unused, 0, |_, _| ())
    }
}

/// How a tree is built.
pub struct Build {
    /// How full nodes are, in percent.
    pub fill: usize,
    pub urgency: Urgency,
    pub numbers: Box<dyn Numbers>,
    /// Pages pass by the log; else each is a redo record.
    pub bypass: Option<Bypass>,
}

/// Numbers that are taken at a time: at first, and at most.
const RUN_MIN: u32 = 8;
const RUN_MAX: u32 = 256;
/// A build of no more pages goes through the log: that costs less than a sync.
const SMALL: usize = 16;

/// A tree under construction.
pub struct Bulk<T: Deref<Target = Tree>> {
    tree: T,
    build: Build,
    /// Bytes of a node at which the next one is begun.
    full: usize,
    levels: Vec<Growing>,
    last_key: Vec<u8>,
    rows: i64,
    /// Numbers that are taken and not used.
    run: Range<u32>,
    run_len: u32,
    first_leaf: Option<u32>,
}

/// A tree that is built except for its root: nothing leads to it yet.
pub struct Whole<T: Deref<Target = Tree>> {
    tree: T,
    urgency: Urgency,
    level: usize,
    top: Growing,
    rows: i64,
    first_leaf: Option<u32>,
}

impl Tree {
    /// Begins to build this tree, which is empty and used by no other thread, through the log. Nodes are filled to
    /// `fill_percent`.
    pub fn bulk(&self, fill_percent: usize, urgency: Urgency) -> Result<Bulk<&Tree>> {
        if !self.is_empty()? {
            return Err(TreeError::Bulk("the tree is not empty").into());
        }
        let numbers = Box::new(Unnamed(urgency));
        Ok(Bulk::new(self, Build { fill: fill_percent, urgency, numbers, bypass: None }))
    }

    pub fn is_empty(&self) -> super::Result<bool> {
        Ok(is_empty(self.root()?.read().page()))
    }
}

fn is_empty(root: PageRef<'_>) -> bool {
    let node = Node::new(root);
    node.is_leaf() && node.count() == 0
}

impl<T: Deref<Target = Tree>> Bulk<T> {
    /// Begins to build a tree. That it is empty counts when it is installed.
    pub fn new(tree: T, build: Build) -> Bulk<T> {
        let full = CAPACITY * build.fill.clamp(50, 100) / 100;
        Bulk {
            tree,
            build,
            full,
            levels: vec![Growing::default()],
            last_key: Vec::new(),
            rows: 0,
            run: 0..0,
            run_len: RUN_MIN,
            first_leaf: None,
        }
    }

    /// The key that was appended last.
    pub fn last_key(&self) -> Option<&[u8]> {
        (self.rows > 0).then_some(&self.last_key[..])
    }

    /// Appends an entry; its key is above all before it.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_sizes(key, value.len())?;
        if self.rows > 0 && key <= &self.last_key[..] {
            return Err(TreeError::Bulk("the keys do not ascend").into());
        }
        self.append(0, key, value)?;
        self.rows += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    fn append(&mut self, level: usize, key: &[u8], value: &[u8]) -> Result<()> {
        if level == self.levels.len() {
            self.levels.push(Growing::default());
        }
        let node = &self.levels[level];
        let shared = common_prefix(&node.low, key);
        let raw = node.bytes.len() + key.len() + value.len() + (node.ends.len() + 1) * (SLOT + ENTRY_HEAD);
        let fences = 2 * FENCE_HEAD + node.low.len() + key.len();
        if !node.ends.is_empty() && raw + fences > self.full + shared * node.ends.len() {
            self.close(level, Some(key))?;
        }
        self.levels[level].push(key, value);
        Ok(())
    }

    fn number(&mut self) -> Result<u32> {
        if self.run.is_empty() {
            let first = self.build.numbers.take(self.tree.space(), self.run_len)?;
            self.run = first..first + self.run_len;
            self.run_len = (2 * self.run_len).min(RUN_MAX);
        }
        self.run.start += 1;
        Ok(self.run.start - 1)
    }

    fn write(&mut self, page: u32, image: Image) -> Result<()> {
        let (tree, urgency) = (&self.tree, self.build.urgency);
        let id = tree.space.page_id(page);
        tree.pages.give_way(urgency).map_err(TreeError::from)?;
        match &mut self.build.bypass {
            Some(bypass) => {
                tree.pages.ask_room(bypass.unwritten() + 1, id.space, urgency).map_err(TreeError::from)?;
                let head = (image.kind(), image.level());
                Ok(bypass.put(id, head, |bytes| image.fill(bytes))?)
            }
            None => Ok(write_logged(tree, id, (image.kind(), image.level()), urgency, |page| {
                image.write_to(page, id)
            })?),
        }
    }

    /// Writes the node under construction, or what of it fits a page; the rest begins the next one.
    /// Without a next key, a part stays in any case.
    fn close(&mut self, level: usize, next_key: Option<&[u8]>) -> Result<()> {
        let node = &self.levels[level];
        let count = node.ends.len();
        let fence_at = |keep: usize| fence(level, node.key(keep - 1), node.key(keep));
        let (mut keep, mut high) = match next_key {
            Some(key) => (count, fence(level, node.key(count - 1), key)),
            None => (count - 1, fence_at(count - 1)),
        };
        while !node.fits(keep, Some(&high)) && keep > 1 {
            keep -= 1;
            high = fence_at(keep);
        }
        let page = match node.page {
            Some(page) => page,
            None => self.number()?,
        };
        if level == 0 {
            self.first_leaf.get_or_insert(page);
        }
        let right = self.number()?;
        let image = self.levels[level].image(level as u8, 0..keep, Some(&high), Some(right));
        self.write(page, image)?;
        let node = &mut self.levels[level];
        node.forget(keep);
        node.page = Some(right);
        let low = std::mem::replace(&mut node.low, high);
        self.append(level + 1, &low, &page.to_le_bytes())
    }

    /// Writes all pages but the root, durably if they pass by the log.
    pub fn complete(mut self) -> Result<Whole<T>> {
        let mut level = 0;
        loop {
            while !self.levels[level].fits(self.levels[level].ends.len(), None) {
                self.close(level, None)?;
            }
            let Some(page) = self.levels[level].page else { break };
            let node = &self.levels[level];
            let image = node.image(level as u8, 0..node.ends.len(), None, None);
            self.write(page, image)?;
            let low = std::mem::take(&mut self.levels[level].low);
            level += 1;
            self.append(level, &low, &page.to_le_bytes())?;
        }
        let urgency = self.build.urgency;
        if let Some(bypass) = &mut self.build.bypass {
            if bypass.is_small(SMALL) {
                let tree = &self.tree;
                bypass.take_each(|id, head, bytes| {
                    write_logged(tree, id, head, urgency, |page| {
                        page.write(page::at::FLAGS, &bytes[page::at::FLAGS..])
                    })
                })?;
            } else {
                bypass.publish()?;
            }
        }
        if !self.run.is_empty() {
            let unused = std::mem::take(&mut self.run);
            self.build.numbers.give_back(self.tree.space(), unused)?;
        }
        let top = self.levels.swap_remove(level);
        Ok(Whole { tree: self.tree, urgency, level, top, rows: self.rows, first_leaf: self.first_leaf })
    }

    /// Writes what is left, and the root. Then the tree is there, whole.
    pub fn finish(self) -> Result<()> {
        match self.complete()?.install(0, |_| Ok(true), |_| ())? {
            true => Ok(()),
            false => Err(TreeError::Bulk("the tree is not empty").into()),
        }
    }
}

/// Writes a page that exists nowhere yet, in one mini-transaction.
fn write_logged(
    tree: &Tree,
    id: PageId,
    (kind, level): (PageKind, u8),
    urgency: Urgency,
    fill: impl FnOnce(&mut PageMut<'_>),
) -> super::Result<()> {
    tree.pages.ask_room(1, id.space, urgency)?;
    let mut mtr = tree.pages.begin(NODE_LOG, 1, urgency)?;
    let no = mtr.create(id, kind, level);
    fill(&mut mtr.page_mut(no));
    mtr.commit();
    Ok(())
}

impl<T: Deref<Target = Tree>> Whole<T> {
    /// Makes the tree what was built, in one mini-transaction, if it is still empty and `may` says yes under the root's
    /// latch. `note` adds at most `log` bytes to it. False: nothing was done.
    pub fn install(
        &self,
        log: u64,
        may: impl FnOnce(&Mtr<'_>) -> Result<bool>,
        note: impl FnOnce(&mut Mtr<'_>),
    ) -> Result<bool> {
        let tree = &self.tree;
        let image = self.top.image(self.level as u8, 0..self.top.ends.len(), None, None);
        let (root_pin, header_pin) = (tree.root()?, tree.space.header()?);
        let _inside = tree.space.enter()?;
        let mut mtr = tree.pages.begin(NODE_LOG + log, 0, self.urgency).map_err(TreeError::from)?;
        let root = mtr.write_pinned(&root_pin);
        if !is_empty(mtr.page(root)) || !may(&mtr)? {
            return Ok(false);
        }
        let header = mtr.write_pinned(&header_pin);
        image.write_to(&mut mtr.page_mut(root), tree.root.id());
        tree.rows_since.fetch_add(self.rows, Ordering::Relaxed);
        tree.write_rows(&mut mtr, header);
        note(&mut mtr);
        mtr.commit();
        Ok(true)
    }

    /// Shows every entry in order, while nothing leads to the tree yet. `each` says whether to go on.
    pub fn each(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<()> {
        let Some(first) = self.first_leaf else {
            for entry in 0..self.top.ends.len() {
                if !each(self.top.key(entry), self.top.value(entry))? {
                    return Ok(());
                }
            }
            return Ok(());
        };
        let (mut next, mut key) = (Some(first), Vec::new());
        while let Some(page) = next {
            // Copied, so that `each` may do what it likes.
            let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
            let id = self.tree.space.page_id(page);
            bytes.copy_from_slice(
                self.tree.pages.read(id, Access::Scan).map_err(TreeError::from)?.page().all(),
            );
            let node = Node::new(PageRef::new(&bytes));
            if !node.is_live() || !node.is_leaf() {
                return Err(self.tree.corrupt(page, "not a leaf of the tree that is built").into());
            }
            for slot in 0..node.count() {
                node.key_into(slot, &mut key);
                if !each(&key, node.value(slot))? {
                    return Ok(());
                }
            }
            next = node.right();
        }
        Ok(())
    }
}

/// The fence between two neighbours: leaves' is as short as it can be, inner nodes' is the child's.
fn fence(level: usize, left: &[u8], right: &[u8]) -> Vec<u8> {
    if level == 0 { separator(left, right) } else { right.to_vec() }
}

const _: () = assert!(CAPACITY / 2 > 2 * (FENCE_HEAD + super::node::MAX_KEY));
