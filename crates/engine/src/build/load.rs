//! Filling a table that is empty: rows and entries are sorted and built into trees, without undo for each.
//!
//! Alone, as ALTER by copy does: no other session knows the table. If it is not completed, the table is to be
//! dropped; what a crash leaves of it cannot be opened. Or in a transaction, as LOAD DATA does: others may use the table
//! meanwhile, and see nothing of it before the commit; see `within`. Or in a transaction into a table that has rows: nothing is built, but what does not come in order is
//! sorted before it is inserted; see `beside`.
//!
//! Each tree begins with a sort. If that is full and all came in order, the tree is built of the sorted entries and of what
//! goes on in order; what comes out of order after that is sorted apart, and put one by one in the end.

mod beside;
mod early;
mod within;

use super::sort::{Sort, Sorted};
use super::steps::{OnStep, Steps};
use super::{LOOK_EVERY, go_on, has_prefix, sort_budget, value_of};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::row::RollPtr;
use crate::row::off_page::Row;
use crate::row::{self, Head};
use crate::storage::sort_file::Spill;
use crate::table::Table;
use crate::tree::bulk::{Bulk, Numbers, Unnamed};
use crate::tree::modify::check_sizes;
use crate::tree::overflow::{self, ValueLogging};
use crate::tree::{MAX_KEY, Tree};
use crate::txn::Txn;
use crate::txn::fill::Filling;
use crate::txn::rows::Entry;
use crate::txn::rows::off_page::{WantedParts, lay_out, payload};
use crate::txn::shared::Core;
use early::Early;
use std::sync::Arc;
use terrace_log::Urgency;
use terrace_tier::memory::pool::{Access, Purpose};
use terrace_tier::page::PageId;

/// Bytes of memory for each table of a statement whose trees are begun before all its rows are there: a sixteenth goes to a tree.
const UNDER_CONSTRUCTION: usize = 16 << 20;

/// What the trees of a load are made for.
struct Maker {
    core: Arc<Core>,
    table: Arc<Table>,
    owner: Arc<Txn>,
    kind: Kind,
    /// Rows come in several orders, one after the other: none is taken for the order of all.
    scattered: bool,
}

/// What is filled, and whose the rows are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A table that no other session knows: its rows are visible to all.
    Alone,
    /// An empty table; the rows are the owner's.
    Within,
    /// A table that has rows; the owner's come beside them.
    Beside,
}

impl Maker {
    /// Whether the rows are the owner's.
    fn within(&self) -> bool {
        self.kind != Kind::Alone
    }

    fn bulk(&self, tree: &Arc<Tree>, numbers: Box<dyn Numbers>) -> Bulk<Arc<Tree>> {
        Bulk::new(tree.clone(), self.core.build(numbers, Urgency::Normal))
    }
}

/// One tree.
struct Stage {
    maker: Arc<Maker>,
    index: usize,
    tree: Arc<Tree>,
    spill: Arc<Spill>,
    budget: usize,
    sort: Sort,
    /// The tree under construction, once the sort was full.
    bulk: Option<Bulk<Arc<Tree>>>,
    /// In a transaction, from when the tree is under construction.
    filling: Option<Filling>,
    in_order: bool,
    last: Vec<u8>,
    /// What of `last` is not to come twice.
    unique: Option<usize>,
    /// The value at hand, with its head.
    value: Vec<u8>,
}

impl Stage {
    fn push(&mut self, key: &[u8], unique: Option<usize>, value: &[u8]) -> Result<()> {
        check_sizes(key, row::HEAD - row::head_len(value) + value.len())?;
        if self.maker.kind == Kind::Beside {
            return self.push_beside(key, unique, value);
        }
        let index = self.index;
        let above = key > &self.last[..];
        if self.bulk.is_none() {
            self.in_order &= above || self.sort.entries() == 0;
            let may = self.in_order && self.sort.runs() == 0 && self.builds_early();
            if may && self.sort.is_full(key.len() + value.len()) {
                self.begin_tree()?;
            }
        }
        if above
            && (self.in_order || self.bulk.is_some())
            && let (Some(old), Some(new)) = (self.unique, unique)
            && self.last[..old] == key[..new]
        {
            return Err(Error::Duplicate { index });
        }
        match self.bulk {
            Some(_) if above => self.build(key, value)?,
            Some(_) => return self.sort.push(key, unique, value),
            None => self.sort.push(key, unique, value)?,
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.unique = unique;
        Ok(())
    }

    /// Whether the tree may be begun before all entries are there. What of an entry is unique stands in sorts only, and a
    /// transaction may have to come back to it.
    fn builds_early(&self) -> bool {
        if self.maker.scattered {
            return false;
        }
        let def = self.maker.table.def();
        !self.maker.within() || self.index == 0 || def.indexes.get(self.index).is_some_and(|def| !def.unique)
    }

    /// Appends to the tree under construction. In a transaction, the value becomes the transaction's.
    fn build(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(bulk) = &mut self.bulk else {
            return Err(Error::Invalid("the tree is not begun".into()));
        };
        let Some(filling) = &self.filling else { return bulk.push(key, value) };
        filling.stamp(value, &mut self.value);
        bulk.push(key, &self.value)
    }

    fn take_sort(&mut self) -> Sort {
        let pool = self.maker.core.storage.pages.pool();
        std::mem::replace(&mut self.sort, Sort::new(self.spill.clone(), self.budget, pool))
    }

    fn begin(&mut self) -> Result<()> {
        let maker = self.maker.clone();
        let numbers: Box<dyn Numbers> = if maker.within() {
            let filling = self.filling.insert(maker.owner.fill(&maker.table, self.index)?);
            filling.numbers()
        } else {
            Box::new(Unnamed(Urgency::Normal))
        };
        self.bulk = Some(maker.bulk(&self.tree, numbers));
        Ok(())
    }

    fn begin_tree(&mut self) -> Result<()> {
        let mut sorted = self.take_sort().finish(&mut go_on)?;
        self.begin()?;
        let index = self.index;
        let mut silent = |_, _| true;
        let mut steps = Steps::new(0, &mut silent);
        let build = &mut |key: &[u8], _: Option<&[u8]>, value: &[u8]| self.build(key, value);
        each(index, &mut sorted, &mut steps, build).map_err(|(error, _)| error)
    }
}

/// What is known of a duplicate: its key and its value.
type Twice = Option<(Vec<u8>, Vec<u8>)>;

/// Calls `work` for each entry, of those that are not to come twice only if they do not.
fn each(
    index: usize,
    sorted: &mut Sorted,
    steps: &mut Steps<'_>,
    work: &mut dyn FnMut(&[u8], Option<&[u8]>, &[u8]) -> Result<()>,
) -> std::result::Result<(), (Error, Twice)> {
    let fail = |error| (error, None);
    let twice = |sorted: &Sorted| {
        (Error::Duplicate { index }, Some((sorted.key().to_vec(), sorted.value().to_vec())))
    };
    let mut last = None::<Vec<u8>>;
    while sorted.advance().map_err(fail)? {
        if let Some(unique) = sorted.unique() {
            if last.as_deref() == Some(unique) {
                return Err(twice(sorted));
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(unique);
        }
        match work(sorted.key(), sorted.unique(), sorted.value()) {
            Err(Error::Duplicate { .. }) => return Err(twice(sorted)),
            other => other.map_err(fail)?,
        }
        steps.one().map_err(fail)?;
    }
    Ok(())
}

/// No transaction's commit waits for it, and who copies a table takes the copy for safe: it drops the original.
fn make_durable(core: &Core) -> Result<()> {
    let redo = core.streams.pages().redo();
    Ok(redo.make_durable(redo.appended())?)
}

/// A crash before all trees are built leaves rows without their entries: until then it is noted that the table may not be used. The note goes
/// with what is made durable last.
fn table_is_whole(table: &Table, is: bool) -> Result<()> {
    Ok(table.tree(0)?.space().set_filling(!is)?)
}

pub struct Load {
    maker: Arc<Maker>,
    stages: Vec<Stage>,
    /// In a transaction, until there are too many.
    early: Option<Early>,
    /// Outside a transaction: pages of large values that are to be written through.
    unwritten: Vec<PageId>,
    rows: u64,
    /// The last duplicate: its row's key, and the row.
    duplicate: (Vec<u8>, Vec<u8>),
}

impl Engine {
    /// Begins to fill the table. [`Error::Invalid`] if it is not empty.
    pub fn load(&self, table: &Arc<Table>, owner: &Arc<Txn>) -> Result<Load> {
        self.begin_load(table, owner, Kind::Alone, 1, false)
    }

    /// Begins to fill one of `share` tables that one statement fills at a time, as [`Engine::load`] does. `scattered`: rows in the order of
    /// their keys may be followed by ones before them. It ends with [`Load::finish_part`] and [`Engine::filled`].
    /// [`Error::Invalid`] if it is not to be begun: the table is not empty, or the pool has no memory to lend.
    pub fn load_part(
        &self,
        table: &Arc<Table>,
        owner: &Arc<Txn>,
        share: usize,
        scattered: bool,
    ) -> Result<Load> {
        self.begin_load(table, owner, Kind::Alone, share.max(1), scattered)
    }

    /// A table that no other session knew has all its rows, however they came: older views cannot read it. `durable`: so is what
    /// such tables were filled with until now.
    pub fn filled(&self, table: &Arc<Table>, durable: bool) -> Result<()> {
        let core = self.core_of_table(table);
        core.catalog.set_built(table, core.ids.published());
        if durable { make_durable(core) } else { Ok(()) }
    }

    /// Begins to fill the table with rows that are `txn`'s. Others may use it meanwhile; if they put rows into it, or it is
    /// is rebuilt, the rows are inserted one by one in the end. Until then no session sees them, not even `txn`. If a call
    /// fails, the statement is to be rolled back. `share`: how many such loads the statement may have at a time.
    /// [`Error::Invalid`] if it is not to be begun: the table is not empty.
    pub fn load_within(&self, table: &Arc<Table>, txn: &Arc<Txn>, share: usize) -> Result<Load> {
        self.begin_load(table, txn, Kind::Within, share.max(1), false)
    }

    /// Begins to put many rows, `txn`'s, into a table that has rows, as [`Engine::load_within`] does into an empty one: those
    /// whose keys do not come in order, and all entries of secondary indexes, are there when [`Load::finish`] has returned.
    /// [`Error::Invalid`] if it is not to be begun: an index of the table is being built, or the pool has lent all the memory it can.
    pub fn load_beside(&self, table: &Arc<Table>, txn: &Arc<Txn>, share: usize) -> Result<Load> {
        self.begin_load(table, txn, Kind::Beside, share.max(1), false)
    }

    fn begin_load(
        &self,
        table: &Arc<Table>,
        owner: &Arc<Txn>,
        kind: Kind,
        share: usize,
        scattered: bool,
    ) -> Result<Load> {
        if kind != Kind::Alone && table.watch().is_some() {
            return Err(Error::Invalid("an index of the table is being built".into()));
        }
        let owner = owner.side(table).unwrap_or(owner);
        Load::begin(self.core_of_table(table), table, owner, kind, share, scattered)
    }
}

impl Load {
    /// For a table that no other session knows.
    pub(super) fn alone(core: &Arc<Core>, table: &Arc<Table>, owner: &Arc<Txn>) -> Result<Load> {
        Load::begin(core, table, owner, Kind::Alone, 1, false)
    }

    fn begin(
        core: &Arc<Core>,
        table: &Arc<Table>,
        owner: &Arc<Txn>,
        kind: Kind,
        share: usize,
        scattered: bool,
    ) -> Result<Load> {
        let spill = Spill::new(core.storage.volume.clone());
        let trees = table.trees();
        // A load that no other session waits for takes twice as much where it is large: it has no more than the pool lends to all sorts.
        let sharing = if kind == Kind::Alone { share.div_ceil(2) } else { share };
        let budget = sort_budget(core, trees.len() * sharing);
        let (table, owner) = (table.clone(), owner.clone());
        // A tree under construction has memory that is not lent: where there are many, each begins at its end.
        let many =
            kind == Kind::Alone && share > (core.storage.memory().0 as usize / UNDER_CONSTRUCTION).max(1);
        let scattered = scattered || many;
        let maker = Arc::new(Maker { core: core.clone(), table, owner, kind, scattered });
        let stage = |(index, tree): (usize, &Arc<Tree>)| {
            if kind != Kind::Beside && !tree.is_empty()? {
                return Err(Error::Invalid("the table is not empty".into()));
            }
            Ok(Stage {
                maker: maker.clone(),
                index,
                tree: tree.clone(),
                spill: spill.clone(),
                budget,
                sort: Sort::new(spill.clone(), budget, core.storage.pages.pool()),
                bulk: None,
                filling: None,
                in_order: true,
                last: Vec::new(),
                unique: None,
                value: Vec::new(),
            })
        };
        let alone = core.storage.pages.pool().lent_for(Purpose::Sorts) == 0;
        let mut stages = trees.iter().enumerate().map(stage).collect::<Result<Vec<Stage>>>()?;
        // Here nothing has to be sorted: where a statement fills very many partitions, or very many do, rows go one by one.
        if kind == Kind::Beside && !stages.iter_mut().all(|stage| stage.sort.borrow_least()) && !alone {
            return Err(Error::Invalid("the pool has no memory to lend to sorts".into()));
        }
        // Nor here, but where it is one of many it leaves the others' work what the pool lends to that alone.
        let of_many = kind == Kind::Alone && share > 1;
        if of_many && !stages.iter_mut().all(|stage| stage.sort.ask_least()) && !alone {
            return Err(Error::Invalid("the pool has no memory to lend to sorts".into()));
        }
        if kind == Kind::Alone {
            table_is_whole(&maker.table, false)?;
        }
        let early = (kind == Kind::Within).then(Early::default);
        Ok(Load { maker, stages, early, unwritten: Vec::new(), rows: 0, duplicate: Default::default() })
    }

    /// Takes a row with its entries. Whether a key comes twice may be found later.
    pub fn add<'r>(&mut self, key: &[u8], row: impl Into<Row<'r>>, entries: &[Entry<'_>]) -> Result<()> {
        let row = row.into();
        let owner = self.maker.owner.clone();
        let _scope = owner.cancellable();
        let added = match self.early {
            Some(_) => self.add_early(key, row, entries),
            None => self.add_noted(key, row, entries),
        };
        if added.is_err() && self.maker.within() {
            self.give_up();
        }
        added
    }

    /// As `add_row`. A duplicate is remembered.
    fn add_noted(&mut self, key: &[u8], row: Row<'_>, entries: &[Entry<'_>]) -> Result<()> {
        let added = self.add_row(key, row, entries);
        if let Err(Error::Duplicate { .. }) = added {
            self.duplicate = (key.to_vec(), row.bytes.to_vec());
        }
        added
    }

    fn add_row(&mut self, key: &[u8], row: Row<'_>, entries: &[Entry<'_>]) -> Result<()> {
        if key.len() > MAX_KEY {
            return Err(Error::TooLarge { what: "a key", len: key.len(), max: MAX_KEY });
        }
        self.rows += 1;
        if self.rows.is_multiple_of(LOOK_EVERY) {
            go_on()?;
        }
        let Some((rows, indexes)) = self.stages.split_first_mut() else {
            return Err(Error::Invalid("the table is filled already".into()));
        };
        let (maker, unwritten) = (&self.maker, &mut self.unwritten);
        let (flags, rest) = lay_out(row, key.len(), &mut |bytes| match maker.within() {
            true => maker.owner.write_large_of_load(&maker.table, bytes),
            false => {
                let past = maker.core.passes_by_log(bytes.len());
                let way = if past { ValueLogging::Past(unwritten) } else { ValueLogging::Logged };
                let large = overflow::write(rows.tree.space(), bytes, way, Urgency::Normal)?;
                maker.core.write_many_through(unwritten)?;
                Ok(large)
            }
        })?;
        let value = row::value(Head { flags, txn: 0, roll: RollPtr::NONE }, &rest);
        rows.push(key, Some(key.len()), &value)?;
        for entry in entries {
            let stage = entry.index.checked_sub(1).and_then(|at| indexes.get_mut(at));
            let stage = stage.ok_or_else(|| Error::Invalid(format!("there is no index {}", entry.index)))?;
            stage.push(entry.key, entry.unique_len, &value_of(entry))?;
        }
        Ok(())
    }

    /// Builds the trees. Then the table is whole: durable, for views that are opened from here on; or, in a
    /// transaction, for the transaction at once, durable and for others when it commits.
    pub fn finish(&mut self) -> Result<()> {
        self.finish_telling(&mut |_, _| true)
    }

    /// As [`Load::finish`], telling how far it is.
    pub fn finish_telling(&mut self, tell: OnStep<'_>) -> Result<()> {
        self.finish_part(tell)?;
        if self.maker.within() {
            return Ok(());
        }
        let Maker { core, table, .. } = &*self.maker;
        core.catalog.set_built(table, core.ids.published());
        make_durable(core)
    }

    /// As [`Load::finish_telling`], of [`Engine::load_part`]: durable by [`Engine::filled`].
    pub fn finish_part(&mut self, tell: OnStep<'_>) -> Result<()> {
        let owner = self.maker.owner.clone();
        let _scope = owner.cancellable();
        let mut steps = Steps::new(self.stages.iter().map(|stage| stage.sort.entries()).sum(), tell);
        if self.maker.within() { self.finish_within(&mut steps) } else { self.finish_alone(&mut steps) }
    }

    fn finish_alone(&mut self, steps: &mut Steps<'_>) -> Result<()> {
        for mut stage in std::mem::take(&mut self.stages) {
            let index = stage.index;
            let mut sorted = stage.take_sort().finish(&mut || steps.look())?;
            let tree = stage.tree.clone();
            let built = match stage.bulk.take() {
                None => {
                    stage.begin()?;
                    let built = each(index, &mut sorted, steps, &mut |key, _, value| stage.build(key, value));
                    let finish = |bulk: Bulk<_>| bulk.finish().map_err(|error| (error, None));
                    built.and_then(|()| stage.bulk.take().map_or(Ok(()), finish))
                }
                Some(bulk) => {
                    bulk.finish()?;
                    each(index, &mut sorted, steps, &mut |key, unique, value| {
                        if unique.map_or(Ok(false), |unique| has_prefix(&tree, unique))? {
                            return Err(Error::Duplicate { index });
                        }
                        Ok(tree.put(key, value).map(drop)?)
                    })
                }
            };
            if let Err((error, twice)) = built {
                if let Some((key, value)) = twice {
                    self.note_duplicate(index, &key, &value, &mut |_| Ok(None))?;
                }
                return Err(error);
            }
        }
        self.maker.core.write_through(&mut self.unwritten)?;
        table_is_whole(&self.maker.table, true)
    }

    /// Remembers the row of an entry that comes twice. The rows are built before the entries: they are in the table, or
    /// where `elsewhere` looks for a key.
    fn note_duplicate(
        &mut self,
        index: usize,
        key: &[u8],
        value: &[u8],
        elsewhere: &mut dyn FnMut(&[u8]) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        let table = self.maker.table.clone();
        let mut found = Vec::new();
        let key = if index == 0 {
            payload(&table, value, WantedParts::ALL, &mut found, &mut Vec::new())?;
            key
        } else {
            let rest = Head::decode(value).map(|(_, rest)| rest);
            let at = rest.and_then(row::entry_parts).map_or(0, |(at, _)| at);
            let key = key.get(at..).unwrap_or(&[]);
            let row = match elsewhere(key)? {
                Some(row) => Some(row),
                None => table.tree(0)?.get(key, Access::Normal, |value| value.map(<[u8]>::to_vec))?,
            };
            if let Some(row) = row {
                payload(&table, &row, WantedParts::ALL, &mut found, &mut Vec::new())?;
            }
            key
        };
        self.duplicate = (key.to_vec(), found);
        Ok(())
    }

    /// The row that the last duplicate was of: its key, and the row.
    pub fn duplicate(&self) -> (&[u8], &[u8]) {
        (&self.duplicate.0, &self.duplicate.1)
    }
}
