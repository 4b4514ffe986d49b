//! Tables that are emptied.

use super::made::Made;
use super::{Catalog, KnownTable};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::tree::Tree;
use std::sync::Arc;
use terrace_tier::page::SpaceId;

/// A table with empty trees.
struct Emptied {
    name: String,
    known: KnownTable,
    table: Arc<Table>,
    trees: Vec<Arc<Tree>>,
}

impl Catalog {
    /// Gives tables empty trees, all of them or none after a crash; durable when it returns. The tables are not in use. Returns the spaces that
    /// nothing names any more.
    pub fn truncate_tables(&self, names: &[&str]) -> Result<Vec<SpaceId>> {
        let tables: Vec<Arc<Table>> =
            names.iter().map(|name| self.open_table(name)).collect::<Result<_>>()?;
        let mut group = self.change()?;
        let mut made = self.made();
        let emptied = |(name, table): (&&str, _)| self.emptied(name, table, &mut made);
        let all: Vec<Emptied> = names.iter().zip(tables).map(emptied).collect::<Result<_>>()?;
        // From here on they may be named.
        made.keep();
        let written: Vec<(&str, &KnownTable)> =
            all.iter().map(|one| (one.name.as_str(), &one.known)).collect();
        self.write_together(&mut group, &written, &[], None)?;
        let mut old = Vec::new();
        {
            let mut known = self.known.lock();
            for one in all {
                drop(one.table.replace_trees(one.trees, &self.shortener));
                if let Some(entry) = known.by_name.get_mut(&one.name) {
                    old.extend(std::mem::replace(&mut entry.spaces, one.known.spaces));
                    entry.tell(&self.codecs);
                }
            }
        }
        // If it fails, the next change or start does it.
        let _ = self.finish_group(&mut group);
        Ok(old)
    }

    fn emptied(&self, name: &str, table: Arc<Table>, made: &mut Made<'_>) -> Result<Emptied> {
        let known = self.known.lock().by_name.get(name).cloned();
        let mut known = known.ok_or_else(|| Error::Absent(format!("table {name}")))?;
        let trees = self.make_trees_in(made, known.spaces.len())?;
        if !crate::planted::SERIALS_ANEW.on() {
            trees[0].space().follow_serials(table.tree(0)?.space())?;
        }
        known.spaces = made.spaces[made.spaces.len() - trees.len()..].to_vec();
        Ok(Emptied { name: name.to_string(), known, table, trees })
    }
}
