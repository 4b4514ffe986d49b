//! The checker: walks a whole tree at rest and collects everything that is wrong with it.
//!
//! Each inner node's children are followed from the first along the right links until the node's high
//! fence is reached; so pages are found that a split or merge left without a parent's word, and these
//! are whole: they are counted, not faults. Afterwards every page of the space must have been met,
//! be on the free chain, or be an overflow page.
//!
//! Not here: what overflow pages belong to; the visitor of the entries can tell.

use super::node::{MAX_LEVEL, Node};
use super::{Result, Tree};
use crate::space::{HEADER_PAGE, ROOT_PAGE};
use std::fmt;
use terrace_tier::page::{PageId, PageKind, PageRef};
use terrace_tier::pool::Access;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub page: PageId,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: {}", self.page, self.what)
    }
}

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
}

const FAULTS_KEPT: usize = 100;

struct Walk<'t, 'v> {
    tree: &'t Tree,
    report: Report,
    /// A bit for each page of the space: met.
    met: Vec<u64>,
    /// For each level, where the node met last says its right sibling is.
    links: Vec<Option<Option<u32>>>,
    visit: &'v mut dyn FnMut(&[u8], &[u8]),
}

impl Tree {
    /// Checks the tree, which nobody changes meanwhile, and shows every entry to `visit`.
    /// Faults are in the report; an error means that the check itself could not go on.
    pub fn check(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Report> {
        let pages = self.space.counts().pages;
        let mut walk = Walk {
            tree: self,
            report: Report::default(),
            met: vec![0; pages as usize / 64 + 1],
            links: vec![None; usize::from(MAX_LEVEL) + 1],
            visit,
        };
        walk.meet(HEADER_PAGE);
        walk.root();
        walk.the_rest(pages)?;
        Ok(walk.report)
    }
}

impl Walk<'_, '_> {
    fn fault(&mut self, page: u32, what: impl Into<String>) {
        self.report.fault_count += 1;
        if self.report.faults.len() < FAULTS_KEPT {
            self.report.faults.push(Fault { page: self.tree.space.page_id(page), what: what.into() });
        }
    }

    /// Marks a page as met. False if it was met before or is no page of the space.
    fn meet(&mut self, page: u32) -> bool {
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        let new = self.met.get(word).is_some_and(|met| met & bit == 0);
        if new {
            self.met[word] |= bit;
        } else {
            self.fault(page, "the tree leads to it twice, or from outside the space");
        }
        new
    }

    fn copy(&mut self, page: u32) -> Option<Vec<u8>> {
        match self.tree.pages.read(self.tree.space.page_id(page), Access::Internal) {
            Ok(guard) => Some(guard.page().all().to_vec()),
            Err(error) => {
                self.fault(page, error.to_string());
                None
            }
        }
    }

    fn root(&mut self) {
        let Some(copy) = self.copy(ROOT_PAGE) else { return };
        let node = Node::new(PageRef::new(&copy));
        if !node.low().is_empty() || node.high().is_some() || node.right().is_some() {
            self.fault(ROOT_PAGE, "the root does not hold all keys");
        }
        self.report.levels = node.level();
        if self.meet(ROOT_PAGE) {
            self.node(ROOT_PAGE, &copy, node.level());
        }
    }

    /// Checks a node and everything below it.
    fn node(&mut self, page: u32, copy: &[u8], level: u8) {
        let node = Node::new(PageRef::new(copy));
        if !node.is_live() || node.level() != level || level > MAX_LEVEL {
            return self.fault(page, format!("not a node of level {level}"));
        }
        if let Err(what) = node.verify() {
            return self.fault(page, what);
        }
        let link = self.links[usize::from(level)].replace(node.right());
        if link.is_some_and(|link| link != Some(page)) {
            self.fault(page, "its left neighbour's link leads elsewhere");
        }
        if node.is_leaf() { self.leaf(node) } else { self.children(page, node) }
    }

    fn leaf(&mut self, node: Node<'_>) {
        self.report.leaves += 1;
        self.report.rows += node.count() as u64;
        self.report.leaf_bytes += node.used() as u64;
        let mut key = Vec::new();
        for slot in 0..node.count() {
            node.key_into(slot, &mut key);
            (self.visit)(&key, node.value(slot));
        }
    }

    /// Follows the children of an inner node, from fence to fence.
    fn children(&mut self, page: u32, parent: Node<'_>) {
        self.report.inner += 1;
        let mut low = parent.low().to_vec();
        let mut slot = 0;
        let mut next = parent.child(0);
        loop {
            if slot < parent.count() && parent.child(slot) == next {
                if parent.key(slot) != low {
                    self.fault(next, "its parent's separator is not its low fence");
                }
                slot += 1;
            } else {
                self.report.unposted.push(next);
            }
            if !self.meet(next) {
                return;
            }
            let Some(copy) = self.copy(next) else { return };
            let child = Node::new(PageRef::new(&copy));
            if child.low() != low {
                return self.fault(next, "its low fence is not where its left neighbour ends");
            }
            self.node(next, &copy, parent.level() - 1);
            match (child.high(), child.right()) {
                (high, _) if high == parent.high() => break,
                (Some(high), Some(right)) if parent.high().is_none_or(|end| high < end) => {
                    low = high.to_vec();
                    next = right;
                }
                _ => return self.fault(next, "its high fence is beyond its parent's"),
            }
        }
        if slot < parent.count() {
            self.fault(page, format!("no way to its child {}", parent.child(slot)));
        }
    }

    /// The pages that the tree does not lead to.
    fn the_rest(&mut self, pages: u32) -> Result<()> {
        match self.tree.space.free_chain() {
            Ok(chain) => {
                self.report.free = chain.len() as u64;
                for page in chain {
                    self.meet(page);
                }
            }
            Err(error) => self.fault(HEADER_PAGE, error.to_string()),
        }
        for page in 0..pages {
            if self.met[page as usize / 64] & 1 << (page % 64) != 0 {
                continue;
            }
            let Some(copy) = self.copy(page) else { continue };
            match PageRef::new(&copy).kind() {
                kind if kind == PageKind::Overflow as u8 => self.report.overflow += 1,
                _ => self.fault(page, "nothing leads to it"),
            }
        }
        Ok(())
    }
}
