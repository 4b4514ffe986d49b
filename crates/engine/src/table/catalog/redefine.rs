//! Tables that get other names or properties, together: a table's name also stands in the properties of tables that refer to it.

use super::{Catalog, KnownTable, NAME_MAX};
use crate::error::{Error, Result};
use std::collections::HashSet;

/// What becomes of a table. The names may be the same.
pub struct Redefined<'a> {
    pub from: &'a str,
    pub to: &'a str,
    /// None: those that it has.
    pub properties: Option<&'a [u8]>,
}

impl Catalog {
    /// Gives tables names and properties, all of them or none after a crash. Durable when it returns.
    pub fn redefine_tables(&self, all: &[Redefined<'_>]) -> Result<()> {
        if let Some(one) = all.iter().find(|one| one.to.len() > NAME_MAX) {
            return Err(Error::Invalid(format!("table {}: the name is too long", one.to)));
        }
        let mut group = self.change()?;
        let after = self.redefined(all)?;
        let written: Vec<(&str, &KnownTable)> = all.iter().map(|one| one.to).zip(&after).collect();
        if crate::planted::REDEFINED_APART.on() {
            written.iter().try_for_each(|(name, known)| self.write(name, known))?;
        } else {
            self.write_together(&mut group, &written, &[], None)?;
        }
        self.become_redefined(all, after);
        // If it fails, the next change or start does it.
        let _ = self.finish_group(&mut group);
        Ok(())
    }

    /// The change holds; `after` is of `redefined`.
    pub(super) fn become_redefined(&self, all: &[Redefined<'_>], after: Vec<KnownTable>) {
        let mut known = self.known.lock();
        let mut moved: Vec<(&str, KnownTable)> = Vec::new();
        for (one, new) in all.iter().zip(after) {
            // A table may have been opened or closed since its definition was taken.
            if let Some(mut entry) = known.remove(one.from) {
                entry.def.properties = new.def.properties;
                moved.push((one.to, entry));
            }
        }
        for (to, entry) in moved {
            if let Some(table) = &entry.open {
                table.set_name(to);
                table.set_properties(&entry.def.properties);
            }
            known.insert(to, entry);
        }
    }

    /// What the tables' definitions will be.
    pub(super) fn redefined(&self, all: &[Redefined<'_>]) -> Result<Vec<KnownTable>> {
        let known = self.known.lock();
        let mut names = HashSet::new();
        let mut after = Vec::new();
        for one in all {
            if (one.from != one.to && known.by_name.contains_key(one.to)) || !names.insert(one.to) {
                return Err(Error::Exists(format!("table {}", one.to)));
            }
            let mut new = known
                .by_name
                .get(one.from)
                .cloned()
                .ok_or_else(|| Error::Absent(format!("table {}", one.from)))?;
            if let Some(properties) = one.properties {
                new.def.properties = properties.to_vec();
            }
            after.push(new);
        }
        Ok(after)
    }
}
