//! Changed definitions: the indexes and properties of tables whose rows stay where they are.

use super::definition::{GROUP, Member, encode_group};
use super::rules::{self, TableRules};
use super::{Catalog, Codec, KnownTable, Redefined, encode};
use crate::error::{Error, Result};
use crate::table::{Table, TableDef};
use crate::tree::Tree;
use std::sync::Arc;
use terrace_tier::page::SpaceId;

/// Where an index of a changed table comes from.
#[derive(Clone)]
pub(crate) enum Source {
    /// It is the table's index with this place.
    Kept(usize),
    /// It was built.
    Built(SpaceId, Arc<Tree>),
}

/// What becomes of a table.
pub(crate) struct Alter {
    pub name: String,
    pub def: TableDef,
    /// For each index of `def`.
    pub sources: Vec<Source>,
}

/// How the pages of tables are compressed in objects (None: as the instance's are), and their rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    pub codec: Option<Codec>,
    pub rules: TableRules,
}

/// A table that is to be changed: what it will be, and the trees it loses.
struct Changed {
    name: String,
    known: KnownTable,
    dropped: Vec<SpaceId>,
}

impl Catalog {
    /// Changes definitions, all of them or none after a crash; durable when it returns. The tables are not in use. Views below
    /// `built` do not see what the built indexes hold. Each of them has the options from then on, if there are any. Other tables
    /// become what `beside` says in the same change, and keep their names. Returns the spaces that nothing names any more.
    pub(crate) fn alter_tables(
        &self,
        all: Vec<Alter>,
        options: Option<&TableOptions>,
        built: u64,
        beside: &[Redefined<'_>],
    ) -> Result<Vec<SpaceId>> {
        if let Some(one) = beside.iter().find(|one| all.iter().any(|alter| alter.name == one.from)) {
            return Err(Error::Invalid(format!("table {}: it is changed twice", one.from)));
        }
        let tables: Vec<Arc<Table>> =
            all.iter().map(|one| self.open_table(&one.name)).collect::<Result<_>>()?;
        let mut group = self.change()?;
        let changed: Vec<Changed> = all
            .into_iter()
            .zip(&tables)
            .map(|(one, table)| self.changed(one, table, options, built))
            .collect::<Result<_>>()?;
        let others = self.redefined(beside)?;
        let written: Vec<(&str, &KnownTable)> =
            changed.iter().map(|one| (one.name.as_str(), &one.known)).collect();
        let redefined: Vec<(&str, &KnownTable)> = beside.iter().map(|one| one.from).zip(&others).collect();
        self.write_together(&mut group, &written, &redefined, options.map(|options| &options.rules))?;
        self.become_redefined(beside, others);
        let mut dropped = Vec::new();
        {
            let mut known = self.known.lock();
            for one in changed {
                one.known.tell(&self.codecs);
                one.dropped.iter().for_each(|space| self.codecs.set(*space, None));
                known.coming.retain(|(_, space, _)| !one.known.spaces.contains(space));
                known.insert(&one.name, one.known);
                dropped.extend(one.dropped);
            }
        }
        // If it fails, the next change or start does it.
        let _ = self.finish_group(&mut group);
        Ok(dropped)
    }

    /// Trees are built that will be indexes of the table: they are compressed as it is now, and go by its rules (`Core::push_rules`).
    pub(crate) fn expect(&self, table: u32, indexes: Vec<(SpaceId, String)>) {
        let mut known = self.known.lock();
        let codec = known.names.get(&table).and_then(|name| known.by_name.get(name)?.codec);
        for (space, index) in indexes {
            self.codecs.set(space, codec);
            known.coming.push((table, space, index));
        }
    }

    /// Those that are built now.
    pub fn coming(&self) -> Vec<SpaceId> {
        self.known.lock().coming.iter().map(|(_, space, _)| *space).collect()
    }

    /// They will not be: nothing names them.
    pub(crate) fn expect_no_more(&self, spaces: &[SpaceId]) {
        self.known.lock().coming.retain(|(_, space, _)| !spaces.contains(space));
        spaces.iter().for_each(|space| self.codecs.set(*space, None));
    }

    fn changed(
        &self,
        one: Alter,
        table: &Arc<Table>,
        options: Option<&TableOptions>,
        built: u64,
    ) -> Result<Changed> {
        let Alter { name, def, sources } = one;
        let invalid = |what: &str| Error::Invalid(format!("table {name}: {what}"));
        let old = self
            .known
            .lock()
            .by_name
            .get(&name)
            .cloned()
            .ok_or_else(|| Error::Absent(format!("table {name}")))?;
        let first = matches!(sources.first(), Some(Source::Kept(0) | Source::Built(..)));
        if sources.len() != def.indexes.len() || !first {
            return Err(invalid("the rows must be its first index"));
        }
        let trees = table.trees();
        let mut new = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // Numbers of indexes that are dropped are free: undo that names them finds nothing of its own in another tree.
        let mut free = (1..=u16::MAX).filter(|n| !old.numbers.contains(n));
        for source in sources {
            let (space, tree, number, since) = match source {
                Source::Kept(at) if at < old.spaces.len() && !new.0.contains(&old.spaces[at]) => {
                    (old.spaces[at], trees[at].clone(), old.numbers[at], old.built[at])
                }
                Source::Kept(_) => {
                    return Err(invalid("an index that is not there, or is there twice, is kept"));
                }
                // As of a table that was emptied: undo of the old rows finds nothing of its own in the new tree.
                Source::Built(space, tree) if new.0.is_empty() => (space, tree, old.numbers[0], built),
                Source::Built(space, tree) => {
                    let number = free.next().ok_or_else(|| invalid("it has had too many indexes"))?;
                    (space, tree, number, built)
                }
            };
            new.0.push(space);
            new.1.push(tree);
            new.2.push(number);
            new.3.push(since);
        }
        let (spaces, trees, numbers, built) = new;
        let dropped = old.spaces.iter().copied().filter(|space| !spaces.contains(space)).collect();
        let open = Arc::new(Table::new(
            old.id,
            name.clone(),
            def.clone(),
            numbers.clone(),
            built.clone(),
            trees,
            &self.shortener,
        ));
        let codec = options.map_or(old.codec, |options| options.codec);
        let known =
            KnownTable { id: old.id, spaces, numbers, built, def, codec, open: Some(open), used: old.used };
        Ok(Changed { name, known, dropped })
    }

    /// Writes definitions, all of them or none after a crash, and with them the rules of the tables in `all`. When it returns they hold, and
    /// `group` has those that are to get entries of their own. The caller has the right to change definitions, with no group.
    pub(super) fn write_together(
        &self,
        group: &mut Vec<u32>,
        all: &[(&str, &KnownTable)],
        beside: &[(&str, &KnownTable)],
        new: Option<&TableRules>,
    ) -> Result<()> {
        let new = new.filter(|new| {
            let rules = self.rules.lock();
            let none = TableRules::default();
            all.iter().any(|(_, known)| rules.get(&known.id).unwrap_or(&none) != *new)
        });
        match (all, beside) {
            ([], []) => return Ok(()),
            ([(name, known)], []) if new.is_none() => return self.write(name, known),
            _ => {}
        }
        let stored = new.map(rules::stored).transpose()?;
        let member = |(name, known): &(&str, &KnownTable), rules: Option<Vec<u8>>| Member {
            id: known.id,
            definition: encode(name, known),
            rules,
        };
        let mut members: Vec<Member> = all.iter().map(|one| member(one, stored.clone())).collect();
        // All members of a group have rules, or none has: these keep theirs.
        let kept = |known: &KnownTable| -> Result<Option<Vec<u8>>> {
            let rules = self.rules.lock().get(&known.id).cloned().unwrap_or_default();
            new.map(|_| rules::stored(&rules)).transpose()
        };
        for one in beside {
            members.push(member(one, kept(one.1)?));
        }
        self.write_value(GROUP, &encode_group(&members))?;
        // That is the change. Whatever fails from here on, the group says what holds.
        *group = members.iter().map(|member| member.id).collect();
        if let Some(new) = new {
            let mut rules = self.rules.lock();
            for (_, known) in all {
                if *new == TableRules::default() {
                    rules.remove(&known.id);
                } else {
                    rules.insert(known.id, new.clone());
                }
            }
        }
        Ok(())
    }

    /// Goes on with a change of several tables, where it was or where a crash or an error left it: `group` are those that
    /// it names, none when it is done.
    pub(super) fn finish_group(&self, group: &mut Vec<u32>) -> Result<()> {
        if group.is_empty() {
            return Ok(());
        }
        let values: Vec<(u32, Vec<u8>)> = {
            let known = self.known.lock();
            let in_group = known.by_name.iter().filter(|(_, one)| group.contains(&one.id));
            in_group.map(|(name, one)| (one.id, encode(name, one))).collect()
        };
        for (id, value) in &values {
            self.write_value(*id, value)?;
            let rules = self.rules.lock().get(id).map(rules::encode);
            if let Some(rules) = rules {
                self.tree.put(&rules::key(*id), &rules)?;
            } else {
                self.tree.remove(&rules::key(*id))?;
            }
        }
        self.remove_value(GROUP)?;
        self.durable()?;
        group.clear();
        Ok(())
    }
}
