//! Rules of tables at the engine's surface: quotas of flash, limits of reads and writes, placement of tables and indexes. CloudJump III §2.3.
//!
//! The catalog keeps them (`catalog/rules`), the tier goes by them (`tier/quota`); here is the way from one to the other, and
//! what they have to agree with: what is guaranteed to all tables must fit on flash.

use crate::config::Bytes;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::storage::resize::Size;
use crate::table::catalog::rules::TableRules;
use crate::txn::shared::Core;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_tier::limits::quota::{Placement, Rules, Table, too_much_guaranteed};
use terrace_tier::objects::object::codec::Codec;

/// What holds for one index, and how it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    pub table: String,
    pub index: String,
    pub placement: Placement,
    /// The table's.
    pub rules: TableRules,
    /// How its pages are compressed in objects; None: as the instance's are.
    pub compression: Option<Codec>,
    /// Pages that its table has on flash, as far as they are known to be its.
    pub flash_pages: u64,
    /// Slots of the object buffer that its table has, without those from which a page has sunk.
    pub buffer_pages: u64,
    /// Reads of its table that waited for their turn, and how long, in nanoseconds.
    pub waits: u64,
    pub wait_nanos: u64,
    pub writes: WritesSeen,
}

/// How a table's limits of writes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WritesSeen {
    /// Changes, builds and large values that waited, and how long, in nanoseconds.
    pub waits: u64,
    pub wait_nanos: u64,
    /// Changed pages and blocks that wait for their turn now.
    pub pages_held: u64,
    pub blocks_held: u64,
    /// Pages and objects written beyond the limit, because room was needed or a session asked.
    pub over: u64,
    /// Pages that flash did not get.
    pub fills_refused: u64,
}

fn writes_of(table: &Table) -> WritesSeen {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    WritesSeen {
        waits: get(&table.write_waits),
        wait_nanos: get(&table.write_wait_nanos),
        pages_held: get(&table.pages_held),
        blocks_held: get(&table.blocks_held),
        over: get(&table.over),
        fills_refused: get(&table.fills_refused),
    }
}

impl Core {
    /// Tells the tier what the catalog says.
    pub(crate) fn push_rules(&self) {
        if self.is_temporary() {
            return;
        }
        let storage = &self.storage;
        let _turn = storage.rules.turn.lock();
        let (new, rules) = (self.catalog.rules_for_tier(), &storage.rules);
        let before = rules.all();
        if new.is_empty() && before.is_empty() {
            return;
        }
        rules.set(new);
        if let Some(bpe) = &storage.bpe {
            bpe.rules_changed();
            let mut spaces: Vec<_> = before.iter().chain(&rules.all()).map(|(space, _)| *space).collect();
            spaces.sort_unstable();
            spaces.dedup();
            spaces.into_iter().for_each(|space| bpe.classify(&storage.map.pages_of(space)));
            bpe.trim();
        }
    }

    /// What is guaranteed to tables, each of `names` having these rules and those of `replaced` none, against a tier of this size.
    pub(crate) fn check_guaranteed(
        &self,
        names: &[&str],
        replaced: &[&str],
        rules: &TableRules,
        what: Size,
        has: Bytes,
    ) -> Result<()> {
        let least = |rules: &TableRules| match what {
            Size::Flash => rules.rule.flash.min,
            Size::ObjectBuffer => rules.rule.buffer.min,
            Size::Memory => 0,
        };
        let is_other = |name: &str| !names.contains(&name) && !replaced.contains(&name);
        let others = self.catalog.all_rules().into_iter().filter(|(other, _)| is_other(other));
        let mut minimums: Vec<(String, u64)> = others.map(|(name, rules)| (name, least(&rules))).collect();
        minimums.extend(names.iter().map(|name| (name.to_string(), least(rules))));
        minimums.retain(|(_, min)| *min > 0);
        let option = if what == Size::Flash { "FLASH_MIN" } else { "BUFFER_MIN" };
        let fault = too_much_guaranteed(&minimums, (option, what.name(), has.0));
        fault.map_or(Ok(()), |fault| Err(Error::Invalid(fault)))
    }

    /// Rules that contradict one another, in tables with these indexes, or guarantee more than there is, are refused; what the
    /// tables `replaced`, whose place these take (they may be the same), had already is not: a tier may have become smaller since.
    /// What those `going` guarantee does not count.
    pub(crate) fn check_rules(
        &self,
        names: &[&str],
        replaced: &[&str],
        going: &[&str],
        indexes: &[String],
        rules: &TableRules,
    ) -> Result<()> {
        let Some(name) = names.first() else { return Ok(()) };
        let before: Vec<TableRules> =
            replaced.iter().map(|name| self.catalog.rules(name).unwrap_or_default()).collect();
        let had = |what: &dyn Fn(&TableRules) -> bool| !before.is_empty() && before.iter().all(what);
        let faults = rules.faults(indexes);
        if !faults.is_empty() && !had(&|one| one == rules) {
            return Err(Error::Invalid(format!("table {name}: {}", faults.join("; "))));
        }
        if self.is_temporary() {
            return Ok(()); // they are kept, and there is nothing for them to rule
        }
        let is_more = |least: fn(&TableRules) -> u64| {
            let sum = |each: &mut dyn Iterator<Item = u64>| each.fold(0u64, u64::saturating_add);
            sum(&mut names.iter().map(|_| least(rules))) > sum(&mut before.iter().map(least))
        };
        let gone = [replaced, going].concat();
        if is_more(|rules| rules.rule.flash.min) {
            self.check_guaranteed(names, &gone, rules, Size::Flash, self.storage.flash_size())?;
        }
        if is_more(|rules| rules.rule.buffer.min) {
            let size = self.storage.object_buffer_size();
            self.check_guaranteed(names, &gone, rules, Size::ObjectBuffer, size)?;
        }
        if rules.rule.buffer.max > 0 && self.storage.cold.is_none() && !had(&|one| one.rule.buffer.max > 0) {
            return Err(Error::Invalid(format!(
                "table {name}: BUFFER_MAX = {} sends pages to an object store, and object is not set",
                rules.rule.buffer.max
            )));
        }
        Ok(())
    }
}

/// What a table that is made takes the place of.
#[derive(Clone, Copy, Default, Debug)]
pub struct Instead<'a> {
    /// This table, if it is there: what it has already is not refused.
    pub of: Option<&'a str>,
    /// All these are to go when all that is made is there, as the partitions of a table that is copied: what they guarantee does not count.
    pub going: &'a [&'a str],
}

impl Engine {
    /// The table's rules from now on; default rules mean that it has no rules. Instantly in force, durable when it returns. Rules that contradict one
    /// another, or guarantee more than there is, are refused, and nothing has changed; rules of the table that it is to replace
    /// are not counted.
    pub fn set_table_rules(&self, name: &str, rules: TableRules, instead: Option<Instead<'_>>) -> Result<()> {
        let core = self.core_of(name);
        let Instead { of, going } = instead.unwrap_or_default();
        let replaced: Vec<&str> = of.into_iter().filter(|name| core.catalog.rules(name).is_some()).collect();
        core.check_rules(&[name], &replaced, going, &core.catalog.index_names(name), &rules)?;
        core.catalog.set_rules(name, rules)?;
        core.push_rules();
        Ok(())
    }

    /// The tables that have rules.
    pub fn tables_with_rules(&self) -> Vec<String> {
        self.core().catalog.all_rules().into_iter().map(|(name, _)| name).collect()
    }

    pub fn table_rules(&self, name: &str) -> Option<TableRules> {
        self.core_of(name).catalog.rules(name)
    }

    /// Every index of every table that has rules, or a compression of its own.
    pub fn rules(&self) -> Vec<RuleInfo> {
        let core = self.core();
        let rules: &Rules = &core.storage.rules;
        let flash = core.storage.bpe.as_ref().map_or(Vec::new(), |bpe| bpe.pages_of_tables());
        let mut slots: HashMap<u32, u64> = HashMap::new();
        let blocks = if rules.all().is_empty() { Vec::new() } else { core.storage.map.buffered_blocks() };
        for block in blocks {
            if let Some(rule) = rules.of(block.block.space) {
                *slots.entry(rule.table.id).or_default() += u64::from(block.slots);
            }
        }
        let all = core.catalog.list().into_iter().filter_map(|(space, table, index)| {
            let (said, rule) = (core.catalog.rules(&table), rules.of(space));
            let compression = core.catalog.compression(&table);
            // Rules that the tier has not been told yet, or has and they go, are not in force.
            if said.is_some() != rule.is_some() || said.is_none() && compression.is_none() {
                return None;
            }
            let seen = rule.as_ref().map(|rule| &rule.table);
            let on_flash = flash.iter().find(|(id, _)| seen.is_some_and(|table| *id == table.id));
            let get = |counter: fn(&Table) -> &AtomicU64| {
                seen.map_or(0, |table| counter(table).load(Ordering::Relaxed))
            };
            Some(RuleInfo {
                placement: rule.as_ref().map_or(Placement::Default, |rule| rule.placement),
                rules: said.unwrap_or_default(),
                compression,
                flash_pages: on_flash.map_or(0, |(_, pages)| u64::from(*pages)),
                buffer_pages: seen.and_then(|table| slots.get(&table.id)).copied().unwrap_or(0),
                waits: get(|table| &table.waits),
                wait_nanos: get(|table| &table.wait_nanos),
                writes: seen.map_or(WritesSeen::default(), |table| writes_of(table)),
                table,
                index,
            })
        });
        all.collect()
    }
}
