//! The checker of a whole instance that does not run ([`OfflineInstance`]): the map, every image on the volume and in the
//! store, undo, the catalog, every tree, each secondary entry against its row, and what nothing names.
//!
//! Every fault is named and the walk goes on. What follows from a fault is not said again: a page
//! that hangs below a damaged one is neither a fault nor leaked. Four kinds of findings:
//!
//! * **faults**: something is wrong, and may be lost.
//! * **unchecked**: what could not be looked at, and why; it says nothing about the instance.
//! * **leaked**: room that nothing uses and, as far as it says so, the next start gives back. Nothing is lost.
//! * **notes**: a spare copy is damaged, the other one holds. A torn write at a crash leaves that.
//!
//! Nothing is changed, not even in memory: what a crash left unfinished is judged as it will be when it is
//! rolled back, by its undo records.
//!
//! Not here: whether an index's entries fit their rows' columns. Only the server can tell: CHECK TABLE.

mod flash;
mod images;
mod leaks;
mod tables;
mod tally;
mod undo;

use crate::engine::SpaceInfo;
use crate::offline::instance::OfflineInstance;
use crate::superblock::Superblock;
use crate::table::catalog::{self, Listed};
use crate::tree::check as tree;
use hashbrown::HashMap;
use std::sync::Arc;
use terrace_io::disk::Disk;
use terrace_tier::page::{PageId, SpaceId};

pub use flash::FlashReport;
pub(crate) use images::in_object_only;
pub(in crate::offline) use undo::Settled;
pub use undo::{Undo, read as read_undo};

/// What to look at.
#[derive(Default)]
pub struct Options {
    /// Checksums and the map only: no trees, no undo.
    pub quick: bool,
    /// The flash directory, whose copies are to be verified too.
    pub flash: Option<Arc<dyn Disk>>,
}

/// What was checked, and what was found.
#[derive(Default, Debug, Clone)]
pub struct Report {
    pub pages_volume: u64,
    pub pages_object: u64,
    /// Pages in objects that could not be read.
    pub pages_out_of_reach: u64,
    pub objects: u64,
    pub trees: u64,
    /// Live entries of all trees.
    pub entries: u64,
    /// Pages of large values.
    pub overflow: u64,
    /// Undo records, and unfinished transactions that the next start rolls back.
    pub undo_records: u64,
    pub unfinished: u64,
    /// Bytes of the objects that nothing names.
    pub leaked_object_bytes: u64,
    pub flash: Option<FlashReport>,
    pub faults: Findings,
    pub leaked: Findings,
    pub notes: Findings,
    pub unchecked: Findings,
}

/// The first of them, and how many there are.
#[derive(Default, Debug, Clone)]
pub struct Findings {
    pub first: Vec<String>,
    pub count: u64,
    in_part: u64,
}

/// Findings kept of one structure, and of all.
const KEPT_PART: u64 = 100;
const KEPT: usize = 1000;

impl Findings {
    fn add(&mut self, what: String) {
        self.add_of(1, Some(what));
    }

    /// Their number, and the first few.
    fn add_of(&mut self, count: u64, first: impl IntoIterator<Item = String>) {
        let room = KEPT_PART.saturating_sub(self.in_part).min((KEPT - self.first.len().min(KEPT)) as u64);
        self.first.extend(first.into_iter().take(room as usize));
        self.count += count;
        self.in_part += count;
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// How an instance is found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Sound,
    /// No fault in what was looked at, but not all was.
    Incomplete,
    Faulty,
}

impl Report {
    pub fn verdict(&self) -> Verdict {
        match (self.faults.is_empty(), self.unchecked.is_empty()) {
            (false, _) => Verdict::Faulty,
            (true, false) => Verdict::Incomplete,
            (true, true) => Verdict::Sound,
        }
    }

    /// Another structure begins: its findings are kept again up to the limit.
    fn begin_part(&mut self) {
        for findings in [&mut self.faults, &mut self.leaked, &mut self.notes, &mut self.unchecked] {
            findings.in_part = 0;
        }
    }
}

/// Called with what is done now, and how much of it.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// What the catalog says there is.
pub struct Tables {
    pub listed: Vec<Listed>,
    /// All of the catalog could be read.
    pub whole: bool,
    names: HashMap<SpaceId, String>,
}

impl Tables {
    /// " of table d/t index x", for a sentence about the page; empty if it is not known.
    pub(crate) fn of(&self, id: PageId) -> String {
        match self.names.get(&id.space) {
            Some(name) => format!(" of {name}"),
            None if id.space == SpaceId::UNDO => " of the undo".into(),
            None if id.space == SpaceId::CATALOG => " of the catalog".into(),
            None => String::new(),
        }
    }
}

/// Checks the instance.
pub fn check(look: &OfflineInstance, options: &Options, progress: Progress<'_>) -> Report {
    let mut report = Report::default();
    let mut tables = check_frame(look, &mut report);
    images::check(look, &tables, progress, &mut report);
    if options.quick {
        report.begin_part();
        leaks::spaces(look, &tables, &mut report);
        leaks::objects(look, progress, &mut report);
    } else {
        let undo = undo::check(look, &tables, &mut report);
        tables.listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        tables::check(look, &tables, &undo, progress, &mut report);
        report.begin_part();
        leaks::spaces(look, &tables, &mut report);
        leaks::objects(look, progress, &mut report);
    }
    if let Some(disk) = &options.flash {
        report.begin_part();
        flash::check(look, &**disk, progress, &mut report);
    }
    report
}

/// What everything else hangs from: superblock, map, catalog, the store's epoch object.
fn check_frame(look: &OfflineInstance, report: &mut Report) -> Tables {
    match Superblock::intact(&*look.volume) {
        Ok(intact) => {
            let damaged = (0..2).filter(|copy| !intact[*copy]);
            let what = |copy| {
                format!("copy {copy} of the superblock is damaged or was torn by a crash; the other holds")
            };
            // A new instance has written one copy only.
            report.notes.add_of(intact.iter().filter(|i| !**i).count() as u64, damaged.map(what));
        }
        Err(error) => report.faults.add(error.to_string()),
    }
    let torn = look.map.homes_unreadable();
    let what = |page: &u32| {
        format!("one of the two homes of map page {page} is damaged or was torn by a crash; the other holds")
    };
    report.notes.add_of(torn.len() as u64, torn.iter().map(what));
    let map = look.map.faults();
    report.faults.add_of(map.len() as u64, map.iter().map(|fault| format!("map: {fault}")));
    let (patches, version) = (look.map.patches(), look.superblock.version);
    if patches > 0 && !look.superblock.has_patches() {
        report.faults.add(format!("map: it names {patches} patch objects, of which a volume of format version {version} knows nothing"));
    }
    report.faults.add_of(look.store_fault.iter().len() as u64, look.store_fault.clone());
    read_catalog(look, report)
}

/// Every tree, and the spaces of undo and catalog, with their flushed pages by tier.
pub fn spaces(look: &OfflineInstance, tables: &Tables) -> Vec<SpaceInfo> {
    let counts = look.map.counts();
    let mut named = vec![(SpaceId::UNDO, "(undo)", ""), (SpaceId::CATALOG, "(catalog)", "")];
    named.extend(
        tables
            .listed
            .iter()
            .flat_map(|t| t.indexes.iter().map(|(space, def)| (*space, &*t.name, &*def.name))),
    );
    let info = |(space, table, index): (SpaceId, &str, &str)| {
        let count = counts.get(&space).copied().unwrap_or_default();
        let (table, index) = (table.to_string(), index.to_string());
        SpaceInfo {
            space: space.0,
            table,
            index,
            pages: count.pages,
            memory: 0,
            flash: 0,
            volume: count.volume,
            object: count.object,
        }
    };
    named.into_iter().map(info).collect()
}

/// Reads the catalog as far as it can be read.
pub fn read_tables(look: &OfflineInstance) -> Tables {
    read_catalog(look, &mut Report::default())
}

fn read_catalog(look: &OfflineInstance, report: &mut Report) -> Tables {
    report.begin_part();
    let mut tables = Tables { listed: Vec::new(), whole: true, names: HashMap::new() };
    if !look.knows(PageId::new(SpaceId::CATALOG, 0)) {
        // A crash came before the very first start was done.
        if look.map.spaces().iter().any(|space| space.sinks()) {
            tables.whole = false;
            report.faults.add("there is no catalog, but there are tables' pages".into());
        }
        return tables;
    }
    let mut entries = catalog::definition::Entries::default();
    let mut entry = |key: &[u8], value: &[u8]| {
        entries.add(key, value);
        Vec::new()
    };
    let wanted = tree::Wanted { entry: &mut entry, named: &[], all_named: false, building: Vec::new() };
    let found = tree::walk(look, SpaceId::CATALOG, wanted);
    // Parts that no table names are what a crash left: the next start removes them.
    let catalog::definition::Whole { definitions, rules, .. } = entries.put_together();
    let mut bad = rules.iter().filter(|(_, value)| catalog::rules::decode(value).is_none()).count();
    for (id, value) in definitions {
        match value.and_then(|value| catalog::listed(id, &value)) {
            Some(one) => tables.listed.push(one),
            None => bad += 1,
        }
    }
    add_tree(report, "the catalog", &found);
    if bad > 0 {
        report.faults.add(format!("the catalog: {bad} entries cannot be read"));
    }
    tables.whole = bad == 0 && !found.incomplete;
    let bound = look.superblock.spaces;
    for table in &tables.listed {
        for (space, def) in &table.indexes {
            let name = format!("table {} index {}", table.name, def.name);
            if space.0 >= bound || !space.sinks() {
                report
                    .faults
                    .add(format!("{name}: its space {space} is none that was given out (below {bound})"));
            }
            if let Some(other) = tables.names.insert(*space, name.clone()) {
                report.faults.add(format!("{name} and {other} have the same space {space}"));
            }
        }
    }
    tables
}

/// Takes over what a tree's walk found.
fn add_tree(report: &mut Report, name: &str, found: &tree::Report) {
    report.trees += 1;
    report.overflow += found.overflow;
    let say = |fault: &tree::Fault| format!("{name}: {fault}");
    report.faults.add_of(found.fault_count, found.faults.iter().map(say));
    report.leaked.add_of(found.leaked.count, found.leaked.first.iter().map(say));
}
