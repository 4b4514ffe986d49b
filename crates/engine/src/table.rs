//! An open table: its trees, its counters. Below it: the catalog that holds all definitions, the counters of rows read and changed,
//! and the record of keys that change while an index is built.

pub mod catalog;
pub mod row_counters;
pub mod watch;
use crate::error::{Error, Result};
use crate::row::Shortener;
use crate::table::watch::Watch;
use crate::tree::Tree;
use crate::tree::estimate::RangeEstimate;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::lock::{Mutex, Mutexes, RwLock, RwLocks, lock_unless_cancelled};
use terrace_log::Urgency;
use terrace_tier::page::SpaceId;

/// What a table is made of. The first index is the primary tree, which holds the rows.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TableDef {
    pub indexes: Vec<IndexDef>,
    /// The server's own: kept, not read.
    pub properties: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    pub name: String,
    pub unique: bool,
}

/// Row ids are taken from the header this many at a time.
const ROW_IDS: u64 = 1024;

pub struct Table {
    pub(crate) id: u32,
    name: RwLock<String, { RwLocks::Table as u8 }>,
    def: TableDef,
    /// What the definition's properties are now.
    properties: RwLock<Vec<u8>, { RwLocks::Table as u8 }>,
    /// What undo calls each index: its place when the table was made, then whatever was free when it was added.
    numbers: Vec<u16>,
    /// The newest number of a view that is too old for each index: it was built from rows committed later.
    built: Vec<AtomicU64>,
    trees: RwLock<Arc<[Arc<Tree>]>, { RwLocks::Table as u8 }>,
    counter: Mutex<(), { Mutexes::AutoIncrement as u8 }>,
    /// Transactions that have the counter for themselves or want to (`Txn::lock_counter`).
    pub(crate) counter_wanted: AtomicU64,
    row_ids: Mutex<(u64, u64), { Mutexes::RowIds as u8 }>,
    watch: RwLock<Option<Arc<Watch>>, { RwLocks::Table as u8 }>,
    is_watched: AtomicBool,
    /// A session is about to fill it in one change.
    is_filled: AtomicBool,
}

/// The right to fill a table in one change; given back when dropped.
pub(crate) struct TurnToFill<'t>(&'t AtomicBool);

impl Drop for TurnToFill<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// About how large a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    pub rows: u64,
    /// Pages of the primary tree, and of all others.
    pub data_pages: u64,
    pub index_pages: u64,
}

/// Has a table's trees do with rows and entries what is right for each.
fn prepare(trees: &[Arc<Tree>], shortener: &Arc<Shortener>) {
    trees.iter().for_each(|tree| tree.mark_by(crate::row::is_marked));
    trees[0].leave_room_to_grow();
    trees[1..].iter().for_each(|tree| tree.shorten_by(shortener.clone()));
}

impl Table {
    pub(crate) fn new(
        id: u32,
        name: String,
        def: TableDef,
        numbers: Vec<u16>,
        built: Vec<u64>,
        trees: Vec<Arc<Tree>>,
        shortener: &Arc<Shortener>,
    ) -> Table {
        assert!(
            def.indexes.len() == trees.len() && numbers.len() == trees.len() && built.len() == trees.len()
        );
        prepare(&trees, shortener);
        Table {
            id,
            name: RwLock::new(name),
            properties: RwLock::new(def.properties.clone()),
            def,
            numbers,
            built: built.into_iter().map(AtomicU64::new).collect(),
            trees: RwLock::new(trees.into()),
            counter: Mutex::new(()),
            counter_wanted: AtomicU64::new(0),
            row_ids: Mutex::new((0, 0)),
            watch: RwLock::default(),
            is_watched: AtomicBool::new(false),
            is_filled: AtomicBool::new(false),
        }
    }

    /// Whether it lives in the core of temporary tables.
    pub fn is_temporary(&self) -> bool {
        SpaceId(self.id).is_temporary()
    }
    pub fn name(&self) -> String {
        self.name.read().clone()
    }
    pub(crate) fn set_name(&self, name: &str) {
        *self.name.write() = name.to_string();
    }
    /// As it was made; for the properties see `Table::properties`.
    pub fn def(&self) -> &TableDef {
        &self.def
    }
    pub fn properties(&self) -> Vec<u8> {
        self.properties.read().clone()
    }
    pub(crate) fn set_properties(&self, properties: &[u8]) {
        *self.properties.write() = properties.to_vec();
    }
    pub fn tree(&self, index: usize) -> Result<Arc<Tree>> {
        let trees = self.trees.read();
        trees
            .get(index)
            .cloned()
            .ok_or_else(|| Error::Invalid(format!("table {} has no index {index}", self.name())))
    }
    /// What undo calls the index.
    pub(crate) fn number(&self, index: usize) -> u16 {
        self.numbers.get(index).copied().unwrap_or(u16::MAX)
    }
    /// The tree that undo means; None: the index was dropped since.
    pub(crate) fn numbered(&self, number: u16) -> Option<Arc<Tree>> {
        let index = self.numbers.iter().position(|n| *n == number)?;
        self.trees.read().get(index).cloned()
    }
    /// Views below the number are too old for the whole table.
    pub(crate) fn set_built(&self, view: u64) {
        self.built.iter().for_each(|built| built.store(view, Ordering::Release));
    }
    /// Whether the index holds all that a view sees.
    pub(crate) fn is_usable(&self, index: usize, view: u64) -> bool {
        self.built.get(index).is_none_or(|built| built.load(Ordering::Acquire) <= view)
    }

    /// From now on `watch` is told the keys of rows that change; None: no watch any more.
    pub(crate) fn set_watch(&self, watch: Option<Arc<Watch>>) {
        let mut place = self.watch.write();
        self.is_watched.store(watch.is_some(), Ordering::Release);
        *place = watch;
    }
    /// The watch that is told the keys of rows that change.
    #[inline]
    pub(crate) fn watch(&self) -> Option<Arc<Watch>> {
        if self.is_watched.load(Ordering::Acquire) { self.watch.read().clone() } else { None }
    }

    /// None: another session has it. It is never waited for.
    pub(crate) fn take_turn_to_fill(&self) -> Option<TurnToFill<'_>> {
        (!self.is_filled.swap(true, Ordering::AcqRel)).then(|| TurnToFill(&self.is_filled))
    }

    pub(crate) fn trees(&self) -> Arc<[Arc<Tree>]> {
        self.trees.read().clone()
    }
    /// No tree of the table is held. Stays true as long as the caller is the table's only holder.
    pub(crate) fn is_idle(&self) -> bool {
        let trees = self.trees.read();
        Arc::strong_count(&trees) == 1 && trees.iter().all(|tree| Arc::strong_count(tree) == 1)
    }
    /// Writes the row counts that are in memory only.
    pub(crate) fn save_rows(&self) -> Result<()> {
        self.trees().iter().try_for_each(|tree| Ok(tree.save_rows(Urgency::Normal)?))
    }
    /// The headers have the counts of rows, as far as they are known.
    pub(crate) fn rows_are_saved(&self) -> bool {
        self.trees().iter().all(|tree| tree.rows_are_saved())
    }
    /// Other trees, empty ones: the table was truncated.
    pub(crate) fn replace_trees(
        &self,
        trees: Vec<Arc<Tree>>,
        shortener: &Arc<Shortener>,
    ) -> Arc<[Arc<Tree>]> {
        prepare(&trees, shortener);
        *self.row_ids.lock() = (0, 0);
        std::mem::replace(&mut *self.trees.write(), trees.into())
    }

    /// A hidden row id that was never given out before.
    pub fn next_row_id(&self) -> Result<u64> {
        let mut ids = lock_unless_cancelled(&self.row_ids).ok_or(Error::Cancelled)?;
        if ids.0 == ids.1 {
            let first = self.tree(0)?.space().take_row_ids(ROW_IDS)?;
            *ids = (first, first + ROW_IDS);
        }
        ids.0 += 1;
        Ok(ids.0 - 1)
    }

    /// The next auto-increment value.
    pub fn auto_increment(&self) -> Result<u64> {
        Ok(self.tree(0)?.space().auto_increment())
    }
    pub fn raise_auto_increment(&self, next: u64) -> Result<()> {
        let _one = lock_unless_cancelled(&self.counter).ok_or(Error::Cancelled)?;
        Ok(self.tree(0)?.space().raise_auto_increment(next)?)
    }
    /// Sets the counter, down as well; no other session uses the table. Returns what it was.
    pub fn set_auto_increment(&self, next: u64) -> Result<u64> {
        let _one = lock_unless_cancelled(&self.counter).ok_or(Error::Cancelled)?;
        let space = self.tree(0)?;
        let was = space.space().auto_increment();
        space.space().set_auto_increment(next)?;
        Ok(was)
    }
    /// Sets the counter to `next` if it is `expected`. False: another session took from it.
    pub fn take_auto_increment(&self, expected: u64, next: u64) -> Result<bool> {
        let _one = lock_unless_cancelled(&self.counter).ok_or(Error::Cancelled)?;
        let space = self.tree(0)?;
        if space.space().auto_increment().max(1) != expected {
            return Ok(false);
        }
        space.space().raise_auto_increment(next)?;
        Ok(true)
    }

    pub fn estimate(&self) -> Estimate {
        let trees = self.trees.read();
        let pages = |tree: &Arc<Tree>| {
            let counts = tree.space().counts();
            u64::from(counts.pages.saturating_sub(counts.free))
        };
        let Some((primary, others)) = trees.split_first() else { return Estimate::default() };
        let index_pages = others.iter().map(pages).sum();
        Estimate { rows: primary.rows(), data_pages: pages(primary), index_pages }
    }

    /// Entries of the index between two keys, about.
    pub fn records_in_range(
        &self,
        index: usize,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
    ) -> Result<RangeEstimate> {
        Ok(self.tree(index)?.estimate_range(low, high)?)
    }

    /// The keys in one leaf of the index, without those of deleted entries: the leaf at this fraction of the tree.
    pub fn sample(&self, index: usize, fraction: f64) -> Result<Vec<Vec<u8>>> {
        Ok(self.tree(index)?.sample_leaf(fraction)?)
    }

    /// Counts the rows anew, or some of them: what crashes took of the count is put right.
    pub fn recount(&self) -> Result<()> {
        Ok(self.tree(0)?.recount()?)
    }

    /// Walks the index's tree, which others may change meanwhile, and returns how many live entries it has, or what is wrong with it.
    pub fn check(&self, index: usize) -> Result<u64> {
        let count =
            |(live, unreadable): &mut (u64, u64), _: &[u8], value: &[u8]| match crate::row::Head::decode(
                value,
            ) {
                Some((head, _)) => *live += u64::from(!head.deleted()),
                None => *unreadable += 1,
            };
        let ((live, unreadable), report) = self.tree(index)?.check_beside(count)?;
        if let Some(fault) = report.faults.first() {
            let more = if report.fault_count > 1 {
                format!(" (and {} more)", report.fault_count - 1)
            } else {
                String::new()
            };
            return Err(Error::Corrupt(format!("table {} index {index}: {fault}{more}", self.name())));
        }
        if unreadable > 0 {
            return Err(Error::Corrupt(format!(
                "table {} index {index}: {unreadable} values without a head",
                self.name()
            )));
        }
        Ok(live)
    }
}
