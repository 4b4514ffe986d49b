//! Filling a table that is empty and that nobody else knows of, as ALTER by copy does: rows and entries are sorted and
//! built into trees, without undo. If it is not brought to its end, the table is to be dropped.
//!
//! Each tree begins with a sort. If that is full and all came in order, the tree is built of what there is and of what
//! goes on in order; what comes out of order after that is sorted apart, and put one by one in the end.

use super::sort::{Sort, Sorted};
use super::spill::Spill;
use super::{FILL_PERCENT, LOOK_EVERY, go_on, has_prefix, sort_budget, value_of};
use crate::btree::bulk::Bulk;
use crate::btree::modify::check_sizes;
use crate::btree::overflow;
use crate::btree::{MAX_KEY, Tree, max_inline_value};
use crate::core::Core;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::row::{self, Head, LARGE};
use crate::table::Table;
use crate::txn::Txn;
use crate::txn::rows::{Entry, payload};
use crate::undo::RollPtr;
use std::sync::Arc;
use terrace_tier::pool::Access;
use terrace_tier::redo::Urgency;

/// One tree.
struct Stage {
    tree: Arc<Tree>,
    spill: Arc<Spill>,
    budget: usize,
    sort: Sort,
    /// The tree under construction, once the sort was full.
    bulk: Option<Bulk<Arc<Tree>>>,
    in_order: bool,
    last: Vec<u8>,
    /// What of `last` is not to come twice.
    unique: Option<usize>,
}

impl Stage {
    fn push(&mut self, index: usize, key: &[u8], unique: Option<usize>, value: &[u8]) -> Result<()> {
        check_sizes(key, value.len())?;
        let above = key > &self.last[..];
        if self.bulk.is_none() {
            self.in_order &= above || self.sort.entries() == 0;
            if self.in_order && self.sort.runs() == 0 && self.sort.is_full(key.len() + value.len()) {
                self.begin_tree(index)?;
            }
        }
        if above
            && (self.in_order || self.bulk.is_some())
            && let (Some(old), Some(new)) = (self.unique, unique)
            && self.last[..old] == key[..new]
        {
            return Err(Error::Duplicate { index });
        }
        match &mut self.bulk {
            Some(bulk) if above => bulk.push(key, value)?,
            Some(_) => return self.sort.push(key, unique, value),
            None => self.sort.push(key, unique, value)?,
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.unique = unique;
        Ok(())
    }

    fn take_sort(&mut self) -> Sort {
        std::mem::replace(&mut self.sort, Sort::new(self.spill.clone(), self.budget))
    }

    fn begin_tree(&mut self, index: usize) -> Result<()> {
        let mut sorted = self.take_sort().finish(&mut go_on)?;
        let mut bulk = Tree::bulk_of(self.tree.clone(), FILL_PERCENT, Urgency::Normal)?;
        let built = each(index, &mut sorted, &mut |key, _, value| Ok(bulk.push(key, value)?));
        self.bulk = Some(bulk);
        built.map_err(|(error, _)| error)
    }
}

/// What is known of a duplicate: its key and its value.
type Twice = Option<(Vec<u8>, Vec<u8>)>;

/// Calls `work` for each entry, of those that are not to come twice only if they do not.
fn each(
    index: usize,
    sorted: &mut Sorted,
    work: &mut dyn FnMut(&[u8], Option<&[u8]>, &[u8]) -> Result<()>,
) -> std::result::Result<(), (Error, Twice)> {
    let fail = |error| (error, None);
    let twice = |sorted: &Sorted| {
        (Error::Duplicate { index }, Some((sorted.key().to_vec(), sorted.value().to_vec())))
    };
    let (mut done, mut last) = (0u64, None::<Vec<u8>>);
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
        done += 1;
        if done.is_multiple_of(LOOK_EVERY) {
            go_on().map_err(fail)?;
        }
    }
    Ok(())
}

pub struct Load {
    core: Arc<Core>,
    table: Arc<Table>,
    owner: Arc<Txn>,
    stages: Vec<Stage>,
    /// The last duplicate: its row's key, and the row.
    duplicate: (Vec<u8>, Vec<u8>),
}

impl Engine {
    /// Begins to fill the table. [`Error::Invalid`] if it is not empty.
    pub fn load(&self, table: &Arc<Table>, owner: &Arc<Txn>) -> Result<Load> {
        let core = self.core();
        let spill = Spill::new(core.storage.volume.clone());
        let trees = table.trees();
        let budget = sort_budget(core, trees.len());
        let stage = |tree: &Arc<Tree>| {
            drop(tree.bulk(FILL_PERCENT, Urgency::Normal)?);
            Ok(Stage {
                tree: tree.clone(),
                spill: spill.clone(),
                budget,
                sort: Sort::new(spill.clone(), budget),
                bulk: None,
                in_order: true,
                last: Vec::new(),
                unique: None,
            })
        };
        let stages = trees.iter().map(stage).collect::<Result<_>>()?;
        let (table, owner) = (table.clone(), owner.clone());
        Ok(Load { core: core.clone(), table, owner, stages, duplicate: Default::default() })
    }
}

impl Load {
    /// Takes a row with its entries. Whether a key comes twice may be found later.
    pub fn add(&mut self, key: &[u8], row: &[u8], entries: &[Entry<'_>]) -> Result<()> {
        let owner = self.owner.clone();
        let _scope = owner.cancellable();
        if key.len() > MAX_KEY {
            return Err(Error::TooLarge { what: "a key", len: key.len(), max: MAX_KEY });
        }
        let Some((rows, indexes)) = self.stages.split_first_mut() else {
            return Err(Error::Invalid("the table is filled already".into()));
        };
        let mut head = Head { flags: 0, txn: 0, roll: RollPtr::NONE };
        let value = if row.len() + row::HEAD <= max_inline_value(key.len()) {
            row::value(head, row)
        } else {
            head.flags = LARGE;
            row::value(head, &overflow::write(rows.tree.space(), row, Urgency::Normal)?.encode())
        };
        let mut added = rows.push(0, key, Some(key.len()), &value);
        for entry in entries {
            added = added.and_then(|()| {
                let stage = entry.index.checked_sub(1).and_then(|at| indexes.get_mut(at));
                let stage =
                    stage.ok_or_else(|| Error::Invalid(format!("there is no index {}", entry.index)))?;
                stage.push(entry.index, entry.key, entry.unique_len, &value_of(entry))
            });
        }
        if let Err(Error::Duplicate { .. }) = added {
            self.duplicate = (key.to_vec(), row.to_vec());
        }
        added
    }

    /// Builds the trees. Then the table is whole and durable, for views that are opened from here on.
    pub fn finish(&mut self) -> Result<()> {
        let owner = self.owner.clone();
        let _scope = owner.cancellable();
        for (index, mut stage) in std::mem::take(&mut self.stages).into_iter().enumerate() {
            let mut sorted = stage.take_sort().finish(&mut go_on)?;
            let tree = stage.tree.clone();
            let built = match stage.bulk {
                None => {
                    let mut bulk = tree.bulk(FILL_PERCENT, Urgency::Normal)?;
                    let built = each(index, &mut sorted, &mut |key, _, value| Ok(bulk.push(key, value)?));
                    built.and_then(|()| bulk.finish().map_err(|error| (error.into(), None)))
                }
                Some(bulk) => {
                    bulk.finish()?;
                    each(index, &mut sorted, &mut |key, unique, value| {
                        if unique.map_or(Ok(false), |unique| has_prefix(&tree, unique))? {
                            return Err(Error::Duplicate { index });
                        }
                        Ok(tree.put(key, value).map(drop)?)
                    })
                }
            };
            if let Err((error, twice)) = built {
                if let Some((key, value)) = twice {
                    self.note_duplicate(index, &key, &value)?;
                }
                return Err(error);
            }
        }
        self.core.catalog.set_built(&self.table, self.core.ids.published());
        // No transaction's commit waits for it, and who copies a table takes the copy for safe: it drops the original.
        let redo = self.core.storage.pages.redo();
        Ok(redo.make_durable(redo.appended())?)
    }

    /// Remembers the row of an entry that comes twice. The rows are built before the entries.
    fn note_duplicate(&mut self, index: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let mut found = Vec::new();
        let key = if index == 0 {
            payload(&self.table, value, &mut found)?;
            key
        } else {
            let at = value.get(row::HEAD..).and_then(row::entry_parts).map_or(0, |(at, _)| at);
            let key = key.get(at..).unwrap_or(&[]);
            let row = self.table.tree(0)?.get(key, Access::Normal, |value| value.map(<[u8]>::to_vec))?;
            if let Some(row) = row {
                payload(&self.table, &row, &mut found)?;
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
