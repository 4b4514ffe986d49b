//! Trees: ordered byte keys to byte values, in B-link pages.
//!
//! Every node knows its level, the fences between which its keys lie, and its right sibling. A
//! traversal holds one shared latch at a time: it reads which child has the key, lets go, and latches
//! the child. If the child was split meanwhile, the key is at or above its high fence, and the traversal
//! moves right. If the child was merged away, its page is free (and stays so until the traversal
//! ended, see `space::limbo`), or gone if it has left memory (`flush::forget`), and the traversal begins again. Anything else that
//! does not fit is corruption, named with its page.
//!
//! A writer latches its leaf exclusively, and nothing else that readers come by but the space's header.
//! Structure changes are two steps, each a mini-transaction that leaves a whole tree:
//!
//! * *Split*: (1) a new right page takes the upper entries and the left page links to it; (2) the parent
//!   learns the separator ("posting"). In between, the right page is reached over its neighbour.
//! * *Merge*: (1) the parent forgets the right page, which is marked as merging; (2) its left
//!   neighbour takes over its entries, fence and link, and the page is freed. In between, the tree looks
//!   as it does during a split. The mark keeps other threads from posting the page again.
//!
//! A crash or an error between two steps leaves one of these states, and a later writer that has to
//! move right finishes it. The root keeps its number: a full root moves its entries to two new pages
//! below itself, and a root with one child takes over the child's entries, in one step each.
//!
//! Latch order: child before parent, left before right, the header last. No thread waits under a latch
//! for anything but a latch: a page that is not in memory is loaded with all latches dropped, and
//! pinned while the traversal begins again. That goes for the root, too: a tree that is open keeps no page in memory.
//!
//! The code, from a request down: `modify`, `run` and `cursor` use `descend`; `split` and `delete` change the
//! structure; `shorten` says which values are shortened before that; `edit` and `build` change a page; `node`, `search` and `found` read one. `bulk`, `overflow`,
//! `estimate` and `check` stand beside.
//!
//! Not here: what values mean and who may see them. A value is bytes.
//!
//! Beside the usual path:
//!
//! * A page of a large value is read with its neighbours, as far as these are in the same tier (`overflow.rs`, `tier/src/memory/pool/ahead.rs`,
//!   `read/ahead.rs`: `chained`, `Pool::bring_with`, `ReadPath::pages_beside`).
//! * A row lists the pages of its large values. The transaction that drops a value notes them in undo, and purge frees the pages that are not in
//!   memory without reading them, once. If a failed purge or a crash may have freed them already, purge checks first (`overflow/runs.rs`,
//!   `off_page.rs`, `undo/chains.rs`, `txn/purge.rs`: `Placed`, `free_known`, `Core::is_purged_once`).
//! * Pages of a large value that an UPDATE writes count as used before, so that they are admitted to flash when they are evicted or their block
//!   sinks (`overflow.rs`, `tier/src/memory/mtr.rs`: `WrittenFor::Update`, `Mtr::note_reused`).

pub mod build;
pub mod bulk;
pub mod check;
mod copied;
pub mod cursor;
pub mod delete;
pub mod descend;
pub mod edit;
pub mod estimate;
pub mod found;
pub mod modify;
pub mod node;
pub mod overflow;
mod recount;
pub mod run;
pub mod search;
mod shorten;
pub mod space;
pub mod split;
mod sweep;

pub use crate::error::tree::{Result, TreeError};
pub use cursor::{Buffers, Cursor, Seek};
pub use found::FoundEntry;
pub use modify::{Flow, Hint, LeafPosition, NextKey, Plan};
pub use node::{MAX_ENTRY, MAX_INLINE_VALUE, MAX_KEY, max_inline_value};
pub use shorten::Shorten;

use node::Node;
use space::{Content, ROOT_PAGE, Space};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_log::Urgency;
use terrace_tier::memory::mtr::{Mtr, PageNo};
use terrace_tier::memory::pages::{Pages, Pin};
use terrace_tier::memory::pool::Access;
use terrace_tier::memory::pool::frame_hint::LastSeen;
use terrace_tier::page::SpaceId;

/// What happened to the tree's structure since it was opened.
#[derive(Default, Debug)]
pub struct TreeCounters {
    pub splits: AtomicU64,
    pub merges: AtomicU64,
    /// Times a writer found the second step of another thread's split or merge undone.
    pub finished_for_others: AtomicU64,
    pub restarts: AtomicU64,
    /// Follow-up work that failed after the change itself was done; it is tried again later.
    pub put_off: AtomicU64,
}

/// An open tree, shared by all who use it: there is one `Tree` a space.
pub struct Tree {
    pages: Arc<Pages>,
    space: Space,
    root: LastSeen,
    /// Entries put less entries removed since the header's count was last written.
    rows_since: AtomicI64,
    /// Entries marked deleted, of those that were marked since the tree was opened. Never written to disk: see [`Tree::rows`].
    marked: AtomicI64,
    /// Says of a value that its entry is marked deleted.
    is_marked: OnceLock<fn(&[u8]) -> bool>,
    rows_may_grow: AtomicBool,
    shortener: OnceLock<Arc<dyn Shorten>>,
    pub counters: TreeCounters,
}

impl Tree {
    /// Makes a new space with an empty tree, and opens it.
    pub fn create(pages: &Arc<Pages>, space: SpaceId, urgency: Urgency) -> Result<Tree> {
        space::create(pages, space, Content::Tree, urgency)?;
        Tree::open(pages, space)
    }

    pub fn open(pages: &Arc<Pages>, space: SpaceId) -> Result<Tree> {
        let space = Space::open(pages, space)?;
        if space.root() != ROOT_PAGE {
            return Err(space.corrupt(space::HEADER_PAGE, "the space has no tree"));
        }
        Ok(Tree {
            pages: pages.clone(),
            root: LastSeen::new(space.page_id(ROOT_PAGE)),
            space,
            rows_since: AtomicI64::new(0),
            marked: AtomicI64::new(0),
            is_marked: OnceLock::new(),
            rows_may_grow: AtomicBool::new(false),
            shortener: OnceLock::new(),
            counters: TreeCounters::default(),
        })
    }

    /// From now on leaves leave room to values that may come to be longer, as a table's rows do.
    pub fn leave_room_to_grow(&self) {
        self.rows_may_grow.store(true, Ordering::Relaxed);
    }

    pub fn space(&self) -> &Space {
        &self.space
    }
    pub fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// From now on entries whose value `is_marked` says yes to are marked deleted, and are no rows.
    pub fn mark_by(&self, is_marked: fn(&[u8]) -> bool) {
        let _ = self.is_marked.set(is_marked);
    }

    fn is_marked(&self, value: &[u8]) -> bool {
        self.is_marked.get().is_some_and(|is_marked| is_marked(value))
    }

    /// Rows, about: the entries less those marked deleted. Of entries that were marked before the tree was opened the number is unknown: they count
    /// until purge removes them, and then the count is right.
    pub fn rows(&self) -> u64 {
        self.entries().saturating_sub(self.marked())
    }

    fn marked(&self) -> u64 {
        self.marked.load(Ordering::Relaxed).max(0) as u64
    }

    /// Counts entries that were put or removed, and those that were marked deleted, or whose marks have gone.
    fn count_changed(&self, entries: i64, marked: i64) {
        if entries != 0 {
            self.rows_since.fetch_add(entries, Ordering::Relaxed);
        }
        // A mark that was never counted has gone: it is not to be set off against those that come.
        if marked != 0 && self.marked.fetch_add(marked, Ordering::Relaxed) + marked < 0 {
            self.marked.fetch_max(0, Ordering::Relaxed);
        }
    }

    /// Entries, about: exact except for what a crash took of the count since the last structure change.
    fn entries(&self) -> u64 {
        let (written, since) = (self.space.counts().rows, self.rows_since.load(Ordering::Relaxed));
        let rows = written as i64 + since;
        if rows < 0 {
            // Rows were removed that the count did not know of: those that come are not to be set off against them.
            let none = -(written as i64);
            let _ = self.rows_since.compare_exchange(since, none, Ordering::Relaxed, Ordering::Relaxed);
        }
        rows.max(0) as u64
    }

    /// Writes the row count to the header, so that it is exact after a restart. For a clean shutdown.
    pub fn save_rows(&self, urgency: Urgency) -> Result<()> {
        if self.rows_since.load(Ordering::Relaxed) != 0 {
            let pin = self.space.header()?;
            let mut mtr = self.pages.begin(space::ALLOCATION_LOG, 0, urgency)?;
            let header = mtr.write_pinned(&pin);
            self.write_rows(&mut mtr, header);
            mtr.commit();
        }
        Ok(())
    }

    /// The header has the row count that is known.
    pub fn rows_are_saved(&self) -> bool {
        self.rows_since.load(Ordering::Relaxed) == 0
    }

    /// Writes the row count to the header, which is latched for another reason.
    fn write_rows(&self, mtr: &mut Mtr<'_>, header: PageNo) {
        let since = self.rows_since.swap(0, Ordering::Relaxed);
        if since != 0 {
            self.space.add_rows(mtr, header, since);
        }
    }

    /// Levels above the leaves.
    pub fn root_level(&self) -> Result<u8> {
        self.root_level_as(Access::Normal)
    }

    fn root_level_as(&self, access: Access) -> Result<u8> {
        Ok(Node::new(self.pages.load_seen(&self.root, access)?.read().page()).level())
    }

    /// The root, in memory for as long as it is held. May do I/O and wait; no latch is held.
    fn root(&self) -> Result<Pin> {
        Ok(self.pages.load_seen(&self.root, Access::Normal)?)
    }

    fn corrupt(&self, page: u32, what: &'static str) -> TreeError {
        self.space.corrupt(page, what)
    }

    /// Carries out work that follows a change which is done: whether it succeeds is not the caller's
    /// concern, and it is tried again when a thread next comes by. A walk over the tree is not waited for with it.
    fn follow_up(&self, work: impl FnOnce() -> Result<()>) {
        if self.space.still().is_closed() || work().is_err() {
            self.counters.put_off.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
