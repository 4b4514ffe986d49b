//! Each table: its trees, what every entry's bytes say, the large values, and each secondary entry against
//! its row.
//!
//! An entry names its row's key. So the entries of each index, as a multiset of row keys, are the rows: each row
//! has its entry and each entry its row. The sums decide (`tally`); only where they differ the trees
//! are walked again, to name rows and entries.

use super::tally::{Difference, Tally};
use super::undo::{Settled, Undo};
use super::{Progress, Report, Tables, add_tree};
use crate::offline::instance::OfflineInstance;
use crate::row::off_page;
use crate::row::{self, Head};
use crate::table::catalog::Listed;
use crate::tree::check::{self as tree, Named, OnEntry, Wanted};
use crate::tree::overflow::{Large, Placed};
use hashbrown::HashMap;
use terrace_tier::page::{PageId, SpaceId};

pub(super) fn check(
    look: &OfflineInstance,
    tables: &Tables,
    undo: &Undo,
    progress: Progress<'_>,
    report: &mut Report,
) {
    let last = look.map.last_pages();
    let all = tables.listed.len() as u64;
    for (n, table) in tables.listed.iter().enumerate() {
        report.begin_part();
        one(look, table, undo, &last, &mut |what| progress(what, n as u64, all), report);
    }
    if tables.whole {
        return;
    }
    // Their content is not known, but they are trees.
    for space in look.map.spaces() {
        if space.sinks() && !tables.names.contains_key(&space) {
            report.begin_part();
            let wanted =
                Wanted { entry: &mut |_, _| Vec::new(), named: &[], all_named: false, building: Vec::new() };
            let found = tree::walk(look, space, wanted);
            add_tree(report, &format!("space {space}, which the catalog has lost"), &found);
        }
    }
}

/// What the entries of one index say beside their keys.
struct Entries<'a> {
    look: &'a OfflineInstance,
    undo: &'a Undo,
    table: u32,
    /// The index's number.
    index: u16,
    live: u64,
    headless: u64,
    /// Written by transactions that there never were.
    unborn: u64,
    /// Without a row's key, or a large value in a secondary index.
    senseless: u64,
    /// Unfinished transactions' changes whose undo record is not there.
    unknown: u64,
    /// Delete marks that no undo record leads to: purge never comes to them.
    stale_marks: u64,
}

impl<'a> Entries<'a> {
    fn new(look: &'a OfflineInstance, undo: &'a Undo, table: u32, index: u16) -> Entries<'a> {
        Entries {
            look,
            undo,
            table,
            index,
            live: 0,
            headless: 0,
            unborn: 0,
            senseless: 0,
            unknown: 0,
            stale_marks: 0,
        }
    }

    /// Judges an entry. `row` gets the key of its row if it is live. Returns the large values that it names.
    fn entry(&mut self, key: &[u8], value: &[u8], row: &mut dyn FnMut(&[u8])) -> Vec<Named> {
        let Some((head, rest)) = Head::decode(value) else {
            self.headless += 1;
            return Vec::new();
        };
        self.unborn += u64::from(head.txn > self.look.superblock.transactions);
        if head.deleted() && self.undo.whole && !self.undo.known.contains(&head.txn) {
            self.stale_marks += 1;
        }
        let placed = if head.in_leaf() { None } else { off_page::placed(head, rest) };
        if !head.in_leaf() && (self.index != 0 || placed.is_none()) {
            self.senseless += 1;
        }
        self.live(key, value, row);
        let unfinished = self.undo.unfinished.contains(&head.txn);
        let placed = placed.filter(|_| self.index == 0).unwrap_or_default();
        placed.into_iter().map(|Placed { large, pages }| Named { large, pages, unfinished }).collect()
    }

    fn live(&mut self, key: &[u8], value: &[u8], row: &mut dyn FnMut(&[u8])) {
        let older;
        let value = match self.undo.settle(self.look, self.table, self.index, key, value) {
            Settled::AsIs => value,
            Settled::Older(old) => {
                older = old;
                &older
            }
            Settled::Nothing => return,
            Settled::Unknown => {
                self.unknown += 1;
                return;
            }
        };
        let Some((_, rest)) = Head::decode(value).filter(|(head, _)| !head.deleted()) else { return };
        self.live += 1;
        if self.index == 0 {
            return row(key);
        }
        match row::entry_parts(rest).and_then(|(at, _)| key.get(at..)) {
            Some(primary) => row(primary),
            None => self.senseless += 1,
        }
    }

    fn say(&self, name: &str, report: &mut Report) {
        let faults = [
            (self.headless, "values without a head"),
            (self.unborn, "values of transactions that were never given out"),
            (
                self.senseless,
                "values that make no sense (a large value without a place, an entry without its row's key)",
            ),
        ];
        for (count, what) in faults.into_iter().filter(|(count, _)| *count > 0) {
            report.faults.add(format!("{name}: {count} {what}"));
        }
        if self.unknown > 0 && self.undo.whole {
            let what = "changes of unfinished transactions have no undo record";
            report.faults.add(format!("{name}: {} {what}", self.unknown));
        }
        if self.stale_marks > 0 {
            report
                .leaked
                .add(format!("{name}: {} delete marks that no undo record leads to", self.stale_marks));
        }
    }
}

/// `named`: large values that undo names, if all are known.
fn walk<'a>(
    look: &OfflineInstance,
    space: SpaceId,
    undo: &Undo,
    entry: &'a mut OnEntry<'a>,
    named: Option<&'a [Large]>,
) -> tree::Report {
    let building = undo.building(space).collect();
    let wanted = Wanted { entry, named: named.unwrap_or(&[]), all_named: named.is_some(), building };
    tree::walk(look, space, wanted)
}

fn one(
    look: &OfflineInstance,
    table: &Listed,
    undo: &Undo,
    last: &HashMap<SpaceId, u32>,
    progress: &mut dyn FnMut(&str),
    report: &mut Report,
) {
    // The rows, and whether all of them were seen.
    let mut rows: Option<(Tally, bool)> = None;
    let mut is_half = false;
    for (index, (space, def)) in table.indexes.iter().enumerate() {
        let name = format!("table {} index {}", table.name, def.name);
        progress(&format!("walking {name}: table"));
        let mut entries = Entries::new(look, undo, table.id, table.numbers[index]);
        let mut tally = Tally::new();
        let named: &[Large] = undo.named.get(&table.id).filter(|_| index == 0).map_or(&[], Vec::as_slice);
        let mut entry = |key: &[u8], value: &[u8]| entries.entry(key, value, &mut |row| tally.add(row));
        let mut found = walk(look, *space, undo, &mut entry, undo.whole.then_some(named));
        if index == 0 && found.is_filling {
            is_half = true;
            let what =
                "was being filled and cannot be used; a server drops it when it starts, or DROP TABLE does";
            report.leaked.add(format!("table {} {what}", table.name));
        }
        if is_half {
            found.leaked = Default::default(); // with the table
        }
        report.entries += entries.live;
        add_tree(report, &name, &found);
        entries.say(&name, report);
        if let (Some(pages), Some(last)) = (found.pages, last.get(space))
            && *last >= pages
        {
            let id = PageId::new(*space, *last);
            report.faults.add(format!("{name}: the map names page {id}, but the space has {pages} pages"));
        }
        if found.out_of_reach > 0 {
            report
                .unchecked
                .add(format!("{name}: what hangs from {} pages that are out of reach", found.out_of_reach));
        }
        let whole =
            undo.whole && !found.incomplete && entries.unknown + entries.headless + entries.senseless == 0;
        let Some((rows, all_rows)) = &rows else {
            rows = Some((tally, whole));
            continue;
        };
        if is_half {
            continue;
        }
        let Some(difference) = rows.difference(&tally) else { continue };
        if !whole || !all_rows {
            let what = format!(
                "{name} against the table's rows: {} entries, {} rows, and not all could be seen",
                tally.count, rows.count
            );
            report.unchecked.add(what);
            continue;
        }
        progress(&format!("naming what differs in {name}: table"));
        name_differences(look, table, undo, index, (rows.count, tally.count), difference, report);
    }
}

/// Walks the rows and the index again, for those of its entries that do not fit.
fn name_differences(
    look: &OfflineInstance,
    table: &Listed,
    undo: &Undo,
    index: usize,
    counts: (u64, u64),
    mut difference: Difference,
    report: &mut Report,
) {
    for (side, which) in [(0, 0), (1, index)] {
        let mut entries = Entries::new(look, undo, table.id, table.numbers[which]);
        let mut entry =
            |key: &[u8], value: &[u8]| entries.entry(key, value, &mut |row| difference.add(side, row));
        walk(look, table.indexes[which].0, undo, &mut entry, None);
    }
    let name = format!("table {} index {}", table.name, table.indexes[index].1.name);
    let unequal = difference.unequal();
    let say = |(key, n): &(&[u8], [u32; 2])| match n {
        [0, n] => format!("{name}: {n} entries of row {}, which is not there", hex(key)),
        [_, 0] => format!("{name}: row {} has no entry", hex(key)),
        [_, n] => format!("{name}: row {} has {n} entries", hex(key)),
    };
    report.faults.add_of(unequal.len() as u64, unequal.iter().map(say));
    if !difference.all || unequal.is_empty() {
        let (rows, entries) = counts;
        report.faults.add(format!(
            "{name}: its {entries} entries do not belong to the table's {rows} rows (not all are named)"
        ));
    }
}

/// The first bytes of a key.
fn hex(key: &[u8]) -> String {
    const SHOWN: usize = 32;
    let digits: String = key.iter().take(SHOWN).map(|b| format!("{b:02x}")).collect();
    if key.len() > SHOWN { format!("{digits}… ({} bytes)", key.len()) } else { digits }
}
