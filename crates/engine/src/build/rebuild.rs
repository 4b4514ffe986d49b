//! All trees of a table are rebuilt, the rows' own with them, while other sessions read and write it.
//!
//! The new trees are those of a table that no session knows; a load fills it with the rows of the first view. What changed
//! meanwhile goes the way of an index's entries: in rounds, a changed row as it was goes out of the new trees, then it comes in as it is.
//! Rows of the new trees have no past, and their large values are copies, in the new space.
//!
//! At the end the new trees take the place of the old ones, as those of an emptied table do: undo of the old rows names their
//! tree and their large values by numbers that nothing in the new space has, though rows were changed until a moment before
//! (`Space::follow_serials_to_come`). Counters go on.

use super::load::Load;
use super::steps::OnStep;
use super::{Alteration, Built};
use crate::error::{Error, Result};
use crate::row::RollPtr;
use crate::row::off_page::{self, Row};
use crate::row::{self, Head};
use crate::table::{Table, TableDef};
use crate::tree::overflow::{self, ValueLogging};
use crate::tree::{MAX_KEY, modify};
use crate::txn::rows::Entry;
use crate::txn::rows::off_page::lay_out;
use std::sync::Arc;
use terrace_log::Urgency;
use terrace_tier::memory::pool::Access;

pub(super) struct Rebuilt {
    /// No other session knows of it.
    table: Arc<Table>,
    /// Until the trees are built.
    load: Option<Load>,
    /// The row that was the last duplicate, as it was to be: its key, and the row.
    duplicate: (Vec<u8>, Vec<u8>),
}

impl Rebuilt {
    pub(super) fn duplicate(&self, key: &mut Vec<u8>, row: &mut Vec<u8>) {
        let (of, found) = &self.duplicate;
        key.extend_from_slice(of);
        row.clear();
        row.extend_from_slice(found);
    }
}

impl Alteration {
    /// Makes the trees, and begins to fill them.
    pub(super) fn begin_rebuild(&mut self) -> Result<()> {
        if self.indexes.iter().any(|index| index.from.is_some()) {
            return Err(Error::Invalid("the rows are built anew, but not each index".into()));
        }
        let indexes = self.indexes.iter().map(|index| index.def.clone()).collect();
        let def = TableDef { indexes, properties: Vec::new() };
        let made = self.core.catalog.make_unnamed(def).inspect_err(|_| self.core.drop_abandoned());
        let (spaces, table) = made?;
        for (space, tree) in spaces.into_iter().zip(table.trees().iter()) {
            self.built.push(Built { space, tree: tree.clone(), sort: None, loaded: false });
        }
        if !crate::planted::SERIALS_ANEW.on() {
            table.tree(0)?.space().follow_serials_to_come(self.table.tree(0)?.space())?;
        }
        let load = Load::alone(&self.core, &table, &self.owner)?;
        self.rebuilt = Some(Rebuilt { table, load: Some(load), duplicate: Default::default() });
        Ok(())
    }

    /// Whether rows are built, not only entries.
    pub fn rebuilds(&self) -> bool {
        self.rebuilt.is_some()
    }

    fn rebuilt(&mut self) -> Result<&mut Rebuilt> {
        self.rebuilt.as_mut().ok_or_else(|| Error::Invalid("the rows stay as they are".into()))
    }

    /// Takes a row of the view, as it is to be, with its entries. Whether a key comes twice may be found when all is built.
    pub fn add_row<'r>(&mut self, key: &[u8], row: impl Into<Row<'r>>, entries: &[Entry<'_>]) -> Result<()> {
        let rebuilt = self.rebuilt()?;
        let Some(load) = &mut rebuilt.load else {
            return Err(Error::Invalid("the rows are built already".into()));
        };
        let added = load.add(key, row, entries);
        if let Err(Error::Duplicate { .. }) = added {
            let (key, row) = load.duplicate();
            rebuilt.duplicate = (key.to_vec(), row.to_vec());
        }
        added
    }

    /// Builds the trees of the rows that were added. `tell` gets how many of how many entries are in them, from time to time; false ends
    /// it. [`Error::Duplicate`] names the index; then [`Alteration::duplicate`] is a row of it.
    pub fn build(&mut self, tell: OnStep<'_>) -> Result<()> {
        let rebuilt = self.rebuilt()?;
        let Some(mut load) = rebuilt.load.take() else {
            return Err(Error::Invalid("the rows are built already".into()));
        };
        let built = load.finish_telling(tell);
        if let Err(Error::Duplicate { .. }) = built {
            let (key, row) = load.duplicate();
            rebuilt.duplicate = (key.to_vec(), row.to_vec());
        }
        built?;
        self.built.iter_mut().for_each(|built| built.loaded = true);
        Ok(())
    }

    /// Takes a row that is no longer so, with its entries, out of the trees.
    pub fn remove_row(&mut self, key: &[u8], entries: &[Entry<'_>]) -> Result<()> {
        let owner = self.owner.clone();
        let _scope = owner.cancellable();
        let tree = self.rebuilt()?.table.tree(0)?;
        let larges = tree.get(key, Access::Normal, |value| {
            let (head, rest) = value.and_then(Head::decode)?;
            if head.in_leaf() { Some(Default::default()) } else { off_page::larges(head, rest) }
        })?;
        let (Some(larges), true) = (larges, tree.remove(key)?) else {
            let name = self.table.name();
            return Err(Error::Corrupt(format!("table {name}, built anew, lacks a row")));
        };
        larges.iter().try_for_each(|large| overflow::free(tree.space(), *large, Urgency::Normal))?;
        entries.iter().try_for_each(|entry| self.remove(entry))
    }

    /// Puts a row as the round's view sees it, with its entries. All that goes has gone before.
    pub fn put_row<'r>(&mut self, key: &[u8], row: impl Into<Row<'r>>, entries: &[Entry<'_>]) -> Result<()> {
        let row = row.into();
        let put = self.put_noted(key, row, entries);
        if let Err(Error::Duplicate { .. }) = put {
            self.rebuilt()?.duplicate = (key.to_vec(), row.bytes.to_vec());
        }
        put
    }

    fn put_noted(&mut self, key: &[u8], row: Row<'_>, entries: &[Entry<'_>]) -> Result<()> {
        let owner = self.owner.clone();
        let _scope = owner.cancellable();
        let tree = self.rebuilt()?.table.tree(0)?;
        if key.len() > MAX_KEY {
            return Err(Error::TooLarge { what: "a key", len: key.len(), max: MAX_KEY });
        }
        if tree.get(key, Access::Normal, |value| value.is_some())? {
            return Err(Error::Duplicate { index: 0 });
        }
        let (flags, rest) = lay_out(row, key.len(), &mut |bytes| {
            Ok(overflow::write(tree.space(), bytes, ValueLogging::Logged, Urgency::Normal)?)
        })?;
        let value = row::value(Head { flags, txn: 0, roll: RollPtr::NONE }, &rest);
        modify::check_sizes(key, row::HEAD - row::head_len(&value) + value.len())?;
        tree.put(key, &value)?;
        entries.iter().try_for_each(|entry| self.put(entry))
    }

    /// No session uses the table any more, and the trees have all its rows.
    pub(super) fn finish_rebuild(&mut self) -> Result<()> {
        let Some(rebuilt) = &self.rebuilt else { return Ok(()) };
        let tree = rebuilt.table.tree(0)?;
        tree.space().follow_counters(self.table.tree(0)?.space())?;
        if let Some(next) = self.counter {
            tree.space().set_auto_increment(next)?;
        }
        Ok(())
    }
}
