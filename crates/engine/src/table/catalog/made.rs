//! Trees that are made for tables, until something names them.
//!
//! A failure before that leaves them abandoned: the caller drops their spaces (`Core::drop_abandoned`). After a crash the next start does.

use super::Catalog;
use crate::error::Result;
use crate::table::{Table, TableDef};
use crate::tree::Tree;
use std::sync::Arc;
use terrace_log::Urgency;
use terrace_tier::page::SpaceId;

/// Spaces that are made and not yet named: abandoned unless they are kept.
pub(crate) struct Made<'c> {
    catalog: &'c Catalog,
    pub(super) spaces: Vec<SpaceId>,
}

impl Made<'_> {
    pub fn keep(mut self) {
        self.spaces.clear();
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        self.catalog.abandoned.lock().append(&mut self.spaces);
    }
}

impl Catalog {
    /// The spaces of what failed half-way, to be dropped.
    pub fn take_abandoned(&self) -> Vec<SpaceId> {
        std::mem::take(&mut *self.abandoned.lock())
    }

    pub(super) fn made(&self) -> Made<'_> {
        Made { catalog: self, spaces: Vec::new() }
    }

    pub(crate) fn make_trees(&self, count: usize) -> Result<(Vec<SpaceId>, Vec<Arc<Tree>>)> {
        let mut made = self.made();
        let trees = self.make_trees_in(&mut made, count)?;
        let spaces = made.spaces.clone();
        made.keep();
        Ok((spaces, trees))
    }

    /// The trees' spaces are the last of those that `made` has then.
    pub(super) fn make_trees_in(&self, made: &mut Made<'_>, count: usize) -> Result<Vec<Arc<Tree>>> {
        let make = |_| {
            let space = SpaceId(self.take_id()?);
            let tree = Arc::new(Tree::create(&self.pages, space, Urgency::Normal)?);
            made.spaces.push(space);
            Ok(tree)
        };
        (0..count).map(make).collect()
    }

    /// A table with empty trees that no entry names: a crash leaves nothing of it.
    pub(crate) fn make_unnamed(&self, def: TableDef) -> Result<(Vec<SpaceId>, Arc<Table>)> {
        let id = self.take_id()?;
        let (spaces, trees) = self.make_trees(def.indexes.len())?;
        let numbers = (0..).take(spaces.len()).collect();
        let built = vec![0; spaces.len()];
        let table = Table::new(id, String::new(), def, numbers, built, trees, &self.shortener);
        Ok((spaces, Arc::new(table)))
    }
}
