//! A table's indexes and properties change while its rows stay where they are.
//!
//! An index that is added is built from the rows that one view sees, while sessions read and write the table: entries are
//! sorted (`sort`) and a tree is built of them, in a space that the catalog does not name. Keys of rows that others change
//! meanwhile are told to a `watch`. In rounds the tree is brought from its view to a newer one, by the rows of those keys in
//! both views; what changed by transactions that the newer view does not see is left to the next round. The last
//! round comes when no other session uses the table any more. Then one change of the catalog names the new trees and no longer those
//! dropped: a crash before it leaves spaces that nothing names, which the next start forgets.
//!
//! Entries in a built tree have no past: a session whose view is older than the last round's cannot use the index
//! (`Table::is_usable`).
//!
//! Where the rows themselves are to be others (another primary key, a column that is no longer NULL, pages that are full again), all
//! trees are built: see `rebuild`.
//!
//! Not here: what the entries of a row are; the front makes them from the rows that it is handed.
//!
//! Beside the usual path:
//!
//! * An empty table is filled in bulk (LOAD DATA, ALTER, ADD INDEX, new partitions): rows are sorted and built into pages that go to free slots,
//!   past log and pool. The pages are synced and published by one map record, and only then does a root lead to them. A new table that no other
//!   session knows is marked as being filled until it is complete; after a crash such a table cannot be opened (`build`,
//!   `tier/src/volume/bypass.rs`: `Load::finish`, `Bypass`).
//! * Many rows of one statement into a table that has rows: rows in order are inserted at once; the others, and all entries, are sorted first and
//!   inserted leaf by leaf (`load.rs`, `load/beside.rs`: `Engine::load_beside`).
//! * A table is rebuilt while it is in use: a load of one view's rows, then rounds over the changes since, then one change of the catalog
//!   (`rebuild.rs`, `mariadb/ddl/alter_rows.cc`: `Alteration`).

pub mod load;
mod rebuild;
pub mod sort;
mod steps;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::Isolation;
use crate::lock::{InTheWay, WantedLock};
use crate::row::{self, Head, TxnId};
use crate::storage::sort_file::Spill;
use crate::table::catalog::{Alter, Redefined, Source, TableOptions};
use crate::table::watch::Watch;
use crate::table::{IndexDef, Table, TableDef};
use crate::tree::bulk::{Bulk, Unnamed};
use crate::tree::{self, Tree};
use crate::txn::Txn;
use crate::txn::rows::Entry;
use crate::txn::rows::off_page::WantedParts;
use crate::txn::shared::Core;
use hashbrown::HashMap;
use rebuild::Rebuilt;
use sort::Sort;
use std::sync::Arc;
pub use steps::OnStep;
use steps::Steps;
use terrace_io::cancel;
use terrace_log::Urgency;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::SpaceId;

/// An index of the table as it is to be.
pub struct NewIndex {
    pub def: IndexDef,
    /// The place of the table's index that it is; None: it is built.
    pub from: Option<usize>,
}

/// Entries between two looks at whether to go on.
const LOOK_EVERY: u64 = 1024;
/// The largest part of the engine's memory that the sorts of a build borrow, and the most that they borrow, in bytes.
const SORT_SHARE: usize = 16;
const SORT_MAX: usize = 64 << 20;
/// The same for the keys of rows that change meanwhile.
const WATCH_SHARE: usize = 8;
const WATCH_MAX: usize = 128 << 20;

struct Built {
    space: SpaceId,
    tree: Arc<Tree>,
    sort: Option<Sort>,
    /// The tree holds the entries.
    loaded: bool,
}

/// Which rows of the keys at hand are handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// As they are in the built trees: their entries go.
    Before,
    /// As they are in the round's view: their entries come.
    After,
}

/// A table's change under way. Dropped without [`Engine::commit_alterations`], it leaves the table as it was.
pub struct Alteration {
    core: Arc<Core>,
    table: Arc<Table>,
    /// For whose sake it waits, and who can cancel it.
    owner: Arc<Txn>,
    indexes: Vec<NewIndex>,
    built: Vec<Built>,
    /// The rows are built, too, and all indexes with them.
    rebuilt: Option<Rebuilt>,
    watch: Arc<Watch>,
    /// Whose rows the trees hold.
    view: Arc<Txn>,
    /// The view of the round at hand, and the keys that differ.
    round: Option<(Arc<Txn>, Vec<Box<[u8]>>)>,
    cursor: Option<tree::Cursor>,
    /// The last duplicate's row.
    duplicate: Vec<u8>,
    /// What the auto-increment counter is to be.
    counter: Option<u64>,
    done: bool,
}

impl Engine {
    /// Begins to change a table. No open transaction has changed rows of it, unless a crash has left
    /// the transaction; from here on every session may. If the first index is built, the rows are, and each index is to be.
    pub fn alter(&self, name: &str, indexes: Vec<NewIndex>, owner: &Arc<Txn>) -> Result<Alteration> {
        let core = self.core_of(name);
        let table = core.catalog.open_table(name)?;
        let owner = owner.side(&table).unwrap_or(owner);
        let new = indexes.iter().filter(|index| index.from.is_none()).count();
        let mut alteration = Alteration {
            core: core.clone(),
            watch: Arc::new(Watch::new(watch_max(core), core.storage.pages.pool())),
            view: Txn::begin(core, Isolation::RepeatableRead),
            table,
            owner: owner.clone(),
            indexes,
            built: Vec::new(),
            rebuilt: None,
            round: None,
            cursor: None,
            duplicate: Vec::new(),
            counter: None,
            done: false,
        };
        if new == 0 {
            return Ok(alteration);
        }
        let _scope = owner.cancellable();
        if alteration.indexes[0].from.is_none() {
            alteration.begin_rebuild()?;
            alteration.place();
            alteration.table.set_watch(Some(alteration.watch.clone()));
            alteration.view.open_view();
            return Ok(alteration);
        }
        let spill = Spill::new(core.storage.volume.clone());
        let budget = sort_budget(core, new);
        for _ in 0..new {
            let (spaces, trees) = core.catalog.make_trees(1).inspect_err(|_| core.drop_abandoned())?;
            for (space, tree) in spaces.into_iter().zip(trees) {
                alteration.built.push(Built {
                    space,
                    tree,
                    sort: Some(Sort::new(spill.clone(), budget, core.storage.pages.pool())),
                    loaded: false,
                });
            }
        }
        alteration.place();
        alteration.table.set_watch(Some(alteration.watch.clone()));
        alteration.view.open_view();
        Ok(alteration)
    }

    /// Makes tables what their alterations have prepared, all or none after a crash; each comes with its new properties, and has the
    /// options from then on, if there are any. No session uses the tables. Durable when it returns; on an error the tables are as they were.
    pub fn commit_alterations(
        &self,
        all: &mut [(&mut Alteration, Vec<u8>)],
        options: Option<&TableOptions>,
    ) -> Result<()> {
        self.commit_alterations_beside(all, options, &[])
    }

    /// The same, and other tables get other properties in the same change.
    pub fn commit_alterations_beside(
        &self,
        all: &mut [(&mut Alteration, Vec<u8>)],
        options: Option<&TableOptions>,
        beside: &[Redefined<'_>],
    ) -> Result<()> {
        let Some(core) = all.first().map(|(one, _)| one.core.clone()) else { return Ok(()) };
        all.iter_mut().try_for_each(|(one, _)| one.finish_rebuild())?;
        let mut alters = Vec::new();
        // A session with a view older than any of these has one that is too old for each.
        let mut built = 0;
        for (one, properties) in all.iter() {
            one.check_caught_up()?;
            built = built.max(one.view.reader().view.unwrap_or(0));
            let mut made = one.built.iter();
            let mut sources = Vec::new();
            for index in &one.indexes {
                sources.push(match (index.from, index.from.is_none().then(|| made.next()).flatten()) {
                    (Some(at), _) => Source::Kept(at),
                    (None, Some(built)) => Source::Built(built.space, built.tree.clone()),
                    (None, None) => return Err(Error::Invalid("an index was not built".into())),
                });
            }
            let indexes = one.indexes.iter().map(|index| index.def.clone()).collect();
            let def = TableDef { indexes, properties: properties.clone() };
            alters.push(Alter { name: one.table.name(), def, sources });
        }
        if let (Some(options), Some(first)) = (options, alters.first()) {
            let names: Vec<&str> = alters.iter().map(|alter| alter.name.as_str()).collect();
            let indexes: Vec<String> = first.def.indexes.iter().map(|index| index.name.clone()).collect();
            core.check_rules(&names, &names, &[], &indexes, &options.rules)?;
        }
        let counters = set_counters(all)?;
        let dropped =
            core.catalog.alter_tables(alters, options, built, beside).inspect_err(|_| put_back(&counters))?;
        for (one, _) in all.iter_mut() {
            one.table.set_watch(None);
            one.done = true;
        }
        // The tables are changed: what fails here is tried again by purge, or done by the next start.
        let _ = core.drop_spaces(dropped);
        core.push_rules();
        core.purge.wanted.notify();
        Ok(())
    }
}

/// Sets the counters of tables whose rows stay; new trees have theirs. The log has them before what the catalog is told, so a crash leaves a counter with
/// the old table or with the new one, and it is past all rows of both. Returns what they were.
fn set_counters(all: &[(&mut Alteration, Vec<u8>)]) -> Result<Vec<(Arc<Table>, u64)>> {
    let mut were = Vec::new();
    for (one, _) in all.iter().filter(|(one, _)| !one.rebuilds()) {
        let Some(next) = one.counter else { continue };
        let was = one.table.set_auto_increment(next).inspect_err(|_| put_back(&were))?;
        were.push((one.table.clone(), was));
    }
    Ok(were)
}

/// What fails leaves the counters, if it can.
fn put_back(counters: &[(Arc<Table>, u64)]) {
    for (table, was) in counters {
        let _ = table.set_auto_increment(*was);
    }
}

/// Bytes that the keys of rows that change meanwhile may take.
fn watch_max(core: &Core) -> usize {
    (core.storage.memory().0 as usize / WATCH_SHARE).min(WATCH_MAX)
}

/// Bytes that each of `sorts` sorts may borrow.
fn sort_budget(core: &Core, sorts: usize) -> usize {
    (core.storage.memory().0 as usize / SORT_SHARE).min(SORT_MAX) / sorts.max(1)
}

fn value_of(entry: &Entry<'_>) -> Vec<u8> {
    row::old_value(&row::entry_rest(entry.primary_at, entry.value))
}

/// Whether a key starts so.
fn has_prefix(tree: &Arc<Tree>, prefix: &[u8]) -> Result<bool> {
    let mut cursor = tree::Cursor::new(tree.clone(), Access::Normal);
    Ok(cursor.seek(tree::Seek::AtLeast(prefix))? && cursor.key().starts_with(prefix))
}

fn go_on() -> Result<()> {
    if cancel::asked() { Err(Error::Cancelled) } else { Ok(()) }
}

impl Alteration {
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
    /// The auto-increment counter is `next` from the commit on, down as well. It is past all values that rows have.
    pub fn set_counter(&mut self, next: u64) {
        self.counter = Some(next);
    }
    /// How many indexes are built.
    pub fn new_indexes(&self) -> usize {
        self.built.len()
    }

    fn built(&mut self, which: usize) -> Result<&mut Built> {
        self.built.get_mut(which).ok_or_else(|| Error::Invalid(format!("no index {which} is being built")))
    }

    /// The next row that the view sees, at first the first. False: there is none.
    pub fn next_row(&mut self, key: &mut Vec<u8>, row: &mut Vec<u8>) -> Result<bool> {
        let _scope = self.owner.cancellable();
        let reader = self.view.reader();
        loop {
            let valid = match &mut self.cursor {
                Some(cursor) => cursor.next()?,
                None => {
                    let cursor = tree::Cursor::new(self.table.tree(0)?, Access::Scan);
                    self.cursor.insert(cursor).seek(tree::Seek::First)?
                }
            };
            let Some(cursor) = self.cursor.as_ref().filter(|_| valid) else { return Ok(false) };
            let Some((head, rest)) = Head::decode(cursor.value()) else {
                return Err(Error::Corrupt(format!("table {}: a row without a head", self.table.name())));
            };
            key.clear();
            key.extend_from_slice(cursor.key());
            let sees = reader.sees(&self.core, head.txn);
            if sees && head.in_leaf() {
                if head.deleted() {
                    continue;
                }
                row.clear();
                row.extend_from_slice(rest);
                return Ok(true);
            }
            if !sees {
                // It may be a transaction that a crash has left, which reports nothing.
                self.watch.add_found(key, head.txn);
            }
            if self.view.read(&self.table, reader, key, WantedParts::ALL, row, &mut Vec::new())? {
                return Ok(true);
            }
        }
    }

    /// Takes the entry of a row of the view. `entry.index`: which of the indexes that are built.
    pub fn add(&mut self, entry: &Entry<'_>) -> Result<()> {
        let _scope = self.owner.clone();
        let _scope = _scope.cancellable();
        tree::modify::check_sizes(entry.key, row::HEAD + row::PRIMARY_AT + entry.value.len())?;
        let built = self.built(entry.index)?;
        let Some(sort) = &mut built.sort else {
            return Err(Error::Invalid("the index is built already".into()));
        };
        sort.push(entry.key, entry.unique_len, &value_of(entry))
    }

    /// Builds the tree of the entries that were added. `tell` gets how many of how many are in it, from time to time; false
    /// ends it. [`Error::Duplicate`] names which of the new indexes; then [`Alteration::duplicate`] is a row of it.
    pub fn load(&mut self, which: usize, tell: OnStep<'_>) -> Result<()> {
        let owner = self.owner.clone();
        let _scope = owner.cancellable();
        let core = self.core.clone();
        let built = self.built(which)?;
        let tree = built.tree.clone();
        let Some(sort) = built.sort.take() else {
            return Err(Error::Invalid("the index is built already".into()));
        };
        let mut steps = Steps::new(sort.entries(), tell);
        let mut sorted = sort.finish(&mut || steps.look())?;
        let mut bulk = Bulk::new(&*tree, core.build(Box::new(Unnamed(Urgency::Normal)), Urgency::Normal));
        let mut last = None::<Vec<u8>>;
        while sorted.advance()? {
            if let Some(unique) = sorted.unique() {
                if last.as_deref() == Some(unique) {
                    let primary_at = Head::decode(sorted.value())
                        .and_then(|(_, rest)| row::entry_parts(rest))
                        .map_or(0, |(at, _)| at);
                    self.duplicate = sorted.key()[primary_at..].to_vec();
                    return Err(Error::Duplicate { index: which });
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(unique);
            }
            bulk.push(sorted.key(), sorted.value())?;
            steps.one()?;
        }
        steps.look()?;
        bulk.finish()?;
        self.built(which)?.loaded = true;
        Ok(())
    }

    /// The row that the last duplicate is of; where rows are built, as it was to be.
    pub fn duplicate(&self, key: &mut Vec<u8>, row: &mut Vec<u8>) -> Result<bool> {
        key.clear();
        if let Some(rebuilt) = &self.rebuilt {
            rebuilt.duplicate(key, row);
            return Ok(true);
        }
        key.extend_from_slice(&self.duplicate);
        let view = self.round.as_ref().map_or(&self.view, |(view, _)| view);
        view.read(&self.table, view.reader(), key, WantedParts::ALL, row, &mut Vec::new())
    }

    /// Keys of rows that changed and are in no round yet.
    pub fn behind(&self) -> usize {
        self.watch.len()
    }

    /// Begins a round. Returns how many keys it has. `last`: rows are not changed any more; it waits for transactions that a
    /// crash has left, as long as the owner waits for locks.
    pub fn begin_round(&mut self, last: bool) -> Result<usize> {
        let owner = self.owner.clone();
        let _scope = owner.cancellable();
        if self.round.is_some() || !self.built.iter().all(|built| built.loaded) {
            return Err(Error::Invalid("a round amid another, or before the trees are built".into()));
        }
        if last {
            let told = self.told()?;
            let waited = told.iter().try_for_each(|(key, txn)| self.wait(key, *txn));
            // Also if one did not end: then there is no round yet, and the keys are behind.
            told.iter().for_each(|(key, txn)| self.watch.add_found(key, *txn));
            waited?;
        }
        if last {
            self.core.ids.see_all()?;
        }
        // The view first: a change that it does not see is told by now, or by a transaction that goes on.
        let view = Txn::begin(&self.core, Isolation::RepeatableRead);
        view.open_view();
        let reader = view.reader();
        let mut keys = Vec::new();
        for (key, txn) in self.told()? {
            // One that rolled back is visible to no view: it stays for the last round, which comes after all of them.
            if !last && !reader.sees(&self.core, txn) {
                self.watch.add_found(&key, txn);
            }
            keys.push(key);
        }
        keys.sort_unstable();
        let count = keys.len();
        self.round = Some((view, keys));
        Ok(count)
    }

    fn told(&self) -> Result<HashMap<Box<[u8]>, TxnId>> {
        let too_many = || Error::TooLarge {
            what: "the rows that changed while indexes, or the table, were built: a list",
            len: self.core.storage.memory().0 as usize,
            max: watch_max(&self.core),
        };
        self.watch.take().ok_or_else(too_many)
    }

    /// Waits until the transaction is over.
    fn wait(&self, key: &[u8], txn: TxnId) -> Result<()> {
        let space = self.table.tree(0)?.space().id();
        let is_active = |txn| self.core.ids.is_active(txn);
        self.owner.with_state(|state| {
            let mut request =
                self.owner.request(state, (space, key), WantedLock::EXCLUSIVE).may_give_up(true);
            while is_active(txn) {
                request.wait(&InTheWay::Txn(txn), is_active)?;
            }
            Ok(())
        })
    }

    /// One of the round's rows, before or after. False: there is no row on that side.
    pub fn round_row(&self, at: usize, side: Side, key: &mut Vec<u8>, row: &mut Vec<u8>) -> Result<bool> {
        let _scope = self.owner.cancellable();
        let Some((view, keys)) = &self.round else { return Err(Error::Invalid("there is no round".into())) };
        let Some(found) = keys.get(at) else {
            return Err(Error::Invalid(format!("the round has no key {at}")));
        };
        key.clear();
        key.extend_from_slice(found);
        let view = if side == Side::Before { &self.view } else { view };
        view.read(&self.table, view.reader(), key, WantedParts::ALL, row, &mut Vec::new())
    }

    /// Takes the entry of a row that is no longer so out of the built tree.
    pub fn remove(&mut self, entry: &Entry<'_>) -> Result<()> {
        let owner = self.owner.clone();
        let _scope = owner.cancellable();
        if !self.built(entry.index)?.tree.remove(entry.key)? {
            let name = self.table.name();
            return Err(Error::Corrupt(format!(
                "table {name}: an index that is built lacks the entry of a row"
            )));
        }
        Ok(())
    }

    /// Puts the entry of a row as the round's view sees it. All that goes has gone before.
    pub fn put(&mut self, entry: &Entry<'_>) -> Result<()> {
        let owner = self.owner.clone();
        let _scope = owner.cancellable();
        let tree = self.built(entry.index)?.tree.clone();
        if let Some(unique) = entry.unique_len.and_then(|len| entry.key.get(..len))
            && has_prefix(&tree, unique)?
        {
            self.duplicate = entry.key.get(entry.primary_at..).unwrap_or(&[]).to_vec();
            return Err(Error::Duplicate { index: entry.index });
        }
        tree.put(entry.key, &value_of(entry))?;
        Ok(())
    }

    /// The round's rows are in the trees.
    pub fn end_round(&mut self) -> Result<()> {
        let Some((view, _)) = self.round.take() else {
            return Err(Error::Invalid("there is no round".into()));
        };
        self.view = view;
        Ok(())
    }

    /// What is built goes by the table's rules from its first page on, as it will once it is the table's.
    fn place(&self) {
        let new = self.indexes.iter().filter(|index| index.from.is_none());
        let spaces = self.built.iter().map(|built| built.space).zip(new.map(|index| index.def.name.clone()));
        self.core.catalog.expect(self.table.id, spaces.collect());
        self.core.push_rules();
    }

    fn check_caught_up(&self) -> Result<()> {
        let behind = self.round.is_some() || !self.watch.is_empty();
        if behind || !self.built.iter().all(|built| built.loaded) {
            return Err(Error::Invalid("an index lacks rows that changed while it was built".into()));
        }
        Ok(())
    }
}

impl Drop for Alteration {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if !self.built.is_empty() {
            self.table.set_watch(None);
        }
        let _shield = cancel::shield();
        self.cursor = None;
        self.rebuilt = None;
        // Pages in memory are kept as long as a tree is open.
        let spaces: Vec<SpaceId> = self.built.drain(..).map(|built| built.space).collect();
        self.core.catalog.expect_no_more(&spaces);
        // If it fails, purge tries again; if the engine has stopped, the next start forgets them.
        let _ = self.core.drop_spaces(spaces);
        self.core.push_rules();
        self.core.purge.wanted.notify();
    }
}
