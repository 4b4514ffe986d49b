//! Building a tree from keys that ascend: every page is written once, left to right, all levels at
//! the same time.
//!
//! For each level there is a node under construction, kept as raw entries, because its prefix is known
//! only when the key after it is. When it is full it gets its page (one mini-transaction), and its low
//! fence and page number go to the level above. Its right neighbour's number is taken beforehand. What
//! is under construction at the highest level in the end becomes the root.
//!
//! Nobody else uses the tree meanwhile. Until [`Bulk::finish`] the root is an empty leaf: after a crash
//! or an error the pages written are lost in the space, and its owner drops it. (CREATE INDEX and
//! ALTER build in new spaces.)
//!
//! Not here: writing past the log (DESIGN §3, bypass); sorting.

use super::build::Image;
use super::edit::LOG_OF_PAGE;
use super::modify::check_sizes;
use super::node::{CAPACITY, ENTRY_HEAD, FENCE_HEAD, Node, SLOT, common_prefix, prefix_of};
use super::split::separator;
use super::{Result, Tree, TreeError};
use crate::space::ALLOCATION_LOG;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_tier::redo::{Urgency, record_bound};

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

/// A tree under construction.
pub struct Bulk<T: Deref<Target = Tree>> {
    tree: T,
    urgency: Urgency,
    /// Bytes of a node at which the next one is begun.
    full: usize,
    levels: Vec<Growing>,
    last_key: Vec<u8>,
    rows: i64,
}

impl Tree {
    /// Begins to build this tree, which is empty and used by nobody else. Nodes are filled to
    /// `fill_percent`.
    pub fn bulk(&self, fill_percent: usize, urgency: Urgency) -> Result<Bulk<&Tree>> {
        Bulk::new(self, fill_percent, urgency)
    }
    /// The same, to be kept.
    pub fn bulk_of(tree: Arc<Tree>, fill_percent: usize, urgency: Urgency) -> Result<Bulk<Arc<Tree>>> {
        Bulk::new(tree, fill_percent, urgency)
    }
}

impl<T: Deref<Target = Tree>> Bulk<T> {
    fn new(tree: T, fill_percent: usize, urgency: Urgency) -> Result<Bulk<T>> {
        {
            let root = tree.root.read();
            let node = Node::new(root.page());
            if !node.is_leaf() || node.count() > 0 {
                return Err(TreeError::Bulk("the tree is not empty"));
            }
        }
        let full = CAPACITY * fill_percent.clamp(50, 100) / 100;
        let levels = vec![Growing::default()];
        Ok(Bulk { tree, urgency, full, levels, last_key: Vec::new(), rows: 0 })
    }

    /// Appends an entry; its key is above all before it.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_sizes(key, value.len())?;
        if self.rows > 0 && key <= &self.last_key[..] {
            return Err(TreeError::Bulk("the keys do not ascend"));
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
        let space = &self.tree.space;
        self.tree.pages.ask_room(1, space.id(), self.urgency)?;
        let mut mtr = self.tree.pages.begin(NODE_LOG, 1, self.urgency)?;
        let header = space.latch_header(&mut mtr);
        space.can_allocate(&mtr, header, 2)?;
        let page = node.page.unwrap_or_else(|| space.take_number(&mut mtr, header));
        let right = space.take_number(&mut mtr, header);
        let image = node.image(level as u8, 0..keep, Some(&high), Some(right));
        let no = mtr.create(space.page_id(page), image.kind(), level as u8);
        image.write_to(&mut mtr.page_mut(no), space.page_id(page));
        mtr.commit();
        let node = &mut self.levels[level];
        node.forget(keep);
        node.page = Some(right);
        let low = std::mem::replace(&mut node.low, high);
        self.append(level + 1, &low, &page.to_le_bytes())
    }

    /// Writes what is left, and the root. Then the tree is there, whole.
    pub fn finish(mut self) -> Result<()> {
        let mut level = 0;
        loop {
            while !self.levels[level].fits(self.levels[level].ends.len(), None) {
                self.close(level, None)?;
            }
            let Some(page) = self.levels[level].page else { break };
            let node = &self.levels[level];
            self.tree.pages.ask_room(1, self.tree.space.id(), self.urgency)?;
            let mut mtr = self.tree.pages.begin(NODE_LOG, 1, self.urgency)?;
            let image = node.image(level as u8, 0..node.ends.len(), None, None);
            let id = self.tree.space.page_id(page);
            let no = mtr.create(id, image.kind(), level as u8);
            image.write_to(&mut mtr.page_mut(no), id);
            mtr.commit();
            let low = std::mem::take(&mut self.levels[level].low);
            level += 1;
            self.append(level, &low, &page.to_le_bytes())?;
        }
        let node = &self.levels[level];
        let image = node.image(level as u8, 0..node.ends.len(), None, None);
        let mut mtr = self.tree.pages.begin(NODE_LOG, 0, self.urgency)?;
        let root = mtr.write_pinned(&self.tree.root);
        let header = self.tree.space.latch_header(&mut mtr);
        image.write_to(&mut mtr.page_mut(root), self.tree.root.id());
        self.tree.rows_since.fetch_add(self.rows, Ordering::Relaxed);
        self.tree.write_rows(&mut mtr, header);
        mtr.commit();
        Ok(())
    }
}

/// The fence between two neighbours: leaves' is as short as it can be, inner nodes' is the child's.
fn fence(level: usize, left: &[u8], right: &[u8]) -> Vec<u8> {
    if level == 0 { separator(left, right) } else { right.to_vec() }
}

const _: () = assert!(CAPACITY / 2 > 2 * (FENCE_HEAD + super::node::MAX_KEY));
