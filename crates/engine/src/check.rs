//! The checker of a whole instance: every map entry, every image on the volume and in the store, every
//! tree. For an instance that nobody else uses; `terrace check` opens it over an overlay
//! (`terrace_io::overlay`), so that it is recovered for looking and not a byte of it changes.
//!
//! Every fault is named and the walk goes on. Flash holds copies only and is not looked at: an image
//! there is checked whenever it is read.
//!
//! Not here: whether an index's entries fit their rows' columns. Only the server can tell: CHECK TABLE.

use crate::engine::Engine;
use std::collections::HashMap;
use std::time::Duration;
use terrace_io::AlignedBuf;
use terrace_io::store::Purpose;
use terrace_tier::below::Below;
use terrace_tier::map::Located;
use terrace_tier::object::format;
use terrace_tier::object::key::ObjectKey;
use terrace_tier::page::{self, PAGE_SIZE, PageId, SpaceId};
use terrace_tier::redo::Redo;

/// What was checked, and what is wrong.
#[derive(Default, Debug, Clone)]
pub struct Report {
    pub pages_volume: u64,
    pub pages_object: u64,
    pub objects: u64,
    pub trees: u64,
    /// Live entries of all trees.
    pub entries: u64,
    pub faults: Vec<String>,
    /// What could not be looked at, and why.
    pub unchecked: Vec<String>,
}

/// Called with what is done now, and how much of it.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// How long recovery's background work is waited for.
const RECOVERY: Duration = Duration::from_secs(600);
/// Without a change of the log for so long, nobody works in the background any more.
const QUIET: Duration = Duration::from_millis(500);

/// Checks the instance. `engine` is open and used by nobody else.
pub fn check(engine: &Engine, progress: Progress<'_>) -> Report {
    let mut report = Report::default();
    wait_for_recovery(engine, progress, &mut report);
    wait_for_rest(engine);
    let storage = &engine.core().storage;
    report.faults.extend(storage.map.faults().into_iter().map(|fault| format!("map: {fault}")));
    let names: HashMap<SpaceId, String> =
        engine.core().catalog.list().into_iter().map(|(space, table, index)| (space, format!("{table} {index}"))).collect();
    check_images(engine, &names, progress, &mut report);
    check_trees(engine, progress, &mut report);
    report
}

/// Redo is applied and what a crash left unfinished is rolled back, as far as it can be.
fn wait_for_recovery(engine: &Engine, progress: Progress<'_>, report: &mut Report) {
    let storage = &engine.core().storage;
    let started = std::time::Instant::now();
    let all = storage.pending.pages() as u64;
    let mut last = (all, started);
    loop {
        let left = storage.pending.pages() as u64;
        if left == 0 {
            return;
        }
        progress("applying the log", all - left, all);
        if left < last.0 {
            last = (left, std::time::Instant::now());
        }
        if last.1.elapsed() > Duration::from_secs(30) || started.elapsed() > RECOVERY {
            report.unchecked.push(format!("the log's changes to {left} pages could not be applied"));
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Rollback and purge change trees while they are walked, which looks like damage: they come to rest first (the
/// log grows no more), and are then stopped.
fn wait_for_rest(engine: &Engine) {
    let storage = &engine.core().storage;
    let started = std::time::Instant::now();
    let mut last = (storage.log.appended(), started);
    while last.1.elapsed() < QUIET && started.elapsed() < RECOVERY {
        std::thread::sleep(Duration::from_millis(20));
        let end = storage.log.appended();
        if end != last.0 {
            last = (end, std::time::Instant::now());
        }
    }
    storage.stop_workers_but_flush();
}

/// Reads every image that the map names, each object whole.
fn check_images(engine: &Engine, names: &HashMap<SpaceId, String>, progress: Progress<'_>, report: &mut Report) {
    let storage = &engine.core().storage;
    let of = |id: PageId| names.get(&id.space).map_or_else(String::new, |name| format!(" of {name}"));
    let mut by_object: HashMap<ObjectKey, Vec<(PageId, page::Tag, usize)>> = HashMap::new();
    let mut image = AlignedBuf::zeroed(PAGE_SIZE);
    let pages: Vec<PageId> = storage.map.spaces().into_iter().flat_map(|space| storage.map.pages_of(space)).collect();
    for (n, id) in pages.iter().enumerate() {
        if n % 1024 == 0 {
            progress("reading pages on the volume", n as u64, pages.len() as u64);
        }
        let Located::At(home) = storage.map.locate(*id) else { continue };
        match (home.slot, home.object) {
            (Some(_), _) => {
                report.pages_volume += 1;
                if let Err(error) = storage.path.fetch(*id, &mut image) {
                    report.faults.push(format!("{error}{}", of(*id)));
                }
            }
            (None, Some(at)) => by_object.entry(at.key).or_default().push((*id, home.tag, at.offset)),
            (None, None) => report.faults.push(format!("page {id}{} is nowhere", of(*id))),
        }
    }
    let Some(cold) = &storage.cold else {
        let pages: usize = by_object.values().map(Vec::len).sum();
        if pages > 0 {
            let what = format!("{pages} pages in {} objects: no object store was given", by_object.len());
            report.unchecked.push(what);
        }
        return;
    };
    let all = by_object.len() as u64;
    for (n, (key, pages)) in by_object.into_iter().enumerate() {
        progress("reading objects", n as u64, all);
        report.objects += 1;
        let (_, bytes) = match cold.objects.read_block(Purpose::Scrub, &key) {
            Ok(read) => read,
            Err(error) => {
                let first = pages[0].0;
                report.faults.push(format!("{error} ({} pages from page {first}{} on)", pages.len(), of(first)));
                continue;
            }
        };
        for (id, tag, offset) in pages {
            report.pages_object += 1;
            let at = format::HEADER + offset;
            match bytes.get(at..at + PAGE_SIZE) {
                None => report.faults.push(format!("object {key} lacks page {id}{}", of(id))),
                Some(stored) => {
                    image.copy_from_slice(stored);
                    if let Err(bad) = page::check(&image, id, Some(tag)) {
                        report.faults.push(format!("object {key}: page {id}{}: {bad}", of(id)));
                    }
                }
            }
        }
    }
}

/// Walks each tree; a table's secondary indexes have as many live entries as there are rows.
fn check_trees(engine: &Engine, progress: Progress<'_>, report: &mut Report) {
    let tables = engine.list_tables();
    for (n, name) in tables.iter().enumerate() {
        progress("walking trees", n as u64, tables.len() as u64);
        let table = match engine.open_table(name) {
            Ok(table) => table,
            Err(error) => {
                report.faults.push(format!("table {name}: {error}"));
                continue;
            }
        };
        let mut rows = None;
        for (index, def) in table.def().indexes.iter().enumerate() {
            report.trees += 1;
            match table.check(index) {
                Ok(live) => {
                    report.entries += live;
                    let rows = *rows.get_or_insert(live);
                    if live != rows {
                        report.faults.push(format!("table {name}: index {} has {live} entries, the table {rows} rows", def.name));
                    }
                }
                Err(error) => report.faults.push(error.to_string()),
            }
        }
    }
}
