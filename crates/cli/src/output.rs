//! What is printed: for people, or as JSON.

use crate::instance::Instance;
use crate::location::Location;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};
use terrace_cost::advice;
use terrace_engine::SpaceInfo;
use terrace_engine::engine::inspect::kept_curve::KeptCurve;
use terrace_engine::engine::inspect::metrics;
use terrace_engine::offline::check::{self, Findings, Report};
use terrace_engine::superblock;
use terrace_tier::page::PAGE_SIZE;

/// A line on standard output. Its reader may have gone (`| head`).
macro_rules! out {
    ($($what:tt)*) => {
        drop(writeln!(std::io::stdout(), $($what)*))
    };
}

/// A line that is written over, on a terminal only and a few times a second.
pub fn progress(what: &str, done: u64, all: u64) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut terminal = std::io::stderr();
    if !terminal.is_terminal() {
        return;
    }
    let Ok(mut last) = LAST.lock() else { return };
    if last.is_none_or(|last| last.elapsed() > Duration::from_millis(100)) {
        *last = Some(Instant::now());
        let _ = write!(terminal, "\r\x1b[K{what} {done} of {all}");
        let _ = terminal.flush();
    }
}

pub fn end_progress() {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K");
    }
}

/// A text as it is.
pub fn text(text: &str) {
    out!("{text}");
}

/// Why an instance cannot be looked at, as JSON.
pub fn error(message: &str, code: u8) {
    out!("{:#}", json!({"error": message, "exit": code}));
}

fn findings(what: &str, findings: &Findings) {
    findings.first.iter().for_each(|one| out!("{what}: {one}"));
    let more = findings.count.saturating_sub(findings.first.len() as u64);
    if more > 0 {
        out!("{what}: … and {more} more");
    }
}

/// "1 fault", "2 faults".
fn number(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

pub fn check(report: &Report, code: u8, as_json: bool) {
    end_progress();
    let r = report;
    if as_json {
        let list = |findings: &Findings| json!({"count": findings.count, "first": findings.first});
        let flash = r.flash.as_ref().map(
            |f| json!({"copies": f.copies, "current": f.current, "stale": f.stale, "damaged": f.damaged}),
        );
        let value = json!({
            "exit": code,
            "pages_volume": r.pages_volume,
            "pages_object": r.pages_object,
            "pages_not_checked": r.pages_out_of_reach,
            "objects": r.objects,
            "trees": r.trees,
            "entries": r.entries,
            "overflow_pages": r.overflow,
            "undo_records": r.undo_records,
            "unfinished_transactions": r.unfinished,
            "leaked_object_bytes": r.leaked_object_bytes,
            "flash": flash,
            "faults": list(&r.faults),
            "leaked": list(&r.leaked),
            "notes": list(&r.notes),
            "not_checked": list(&r.unchecked),
        });
        out!("{value:#}");
        return;
    }
    findings("fault", &r.faults);
    findings("leaked", &r.leaked);
    findings("note", &r.notes);
    findings("not checked", &r.unchecked);
    if let Some(f) = &r.flash {
        out!(
            "{} on flash: {} current, {} of another time, {} damaged",
            number(f.copies, "copy").replace("copys", "copies"),
            f.current,
            f.stale,
            f.damaged
        );
    }
    let parts = [(&r.leaked, "leaked"), (&r.notes, "notes"), (&r.unchecked, "not checked")];
    let rest: String =
        parts.iter().filter(|(f, _)| f.count > 0).map(|(f, what)| format!(", {} {what}", f.count)).collect();
    out!(
        "{} on the volume, {} in {}, {} with {} entries: {}{rest}",
        number(r.pages_volume, "page"),
        r.pages_object,
        number(r.objects, "object"),
        number(r.trees, "tree"),
        r.entries,
        if r.faults.count == 0 { "no fault".to_string() } else { number(r.faults.count, "fault") },
    );
}

/// What the instance is, by name.
fn facts(
    instance: &Instance,
    location: &Location,
    tables: &check::Tables,
    spaces: &[SpaceInfo],
) -> Vec<(&'static str, Value)> {
    let look = &instance.look;
    let s = &look.superblock;
    let undo = check::read_undo(look);
    let written = Path::new(&look.volume.describe())
        .join(superblock::FILE)
        .metadata()
        .and_then(|meta| meta.modified())
        .ok();
    let age = written.and_then(|at| SystemTime::now().duration_since(at).ok()).map(|age| age.as_secs());
    let pages = |of: fn(&SpaceInfo) -> u64| spaces.iter().map(of).sum::<u64>();
    let store = look.objects.as_ref().map(|objects| objects.store().describe());
    let flash = instance.flash.as_ref().map(|flash| {
        let file = flash.open(terrace_tier::flash::bpe::chunk::FILE);
        json!(file.map_or(0, |file| file.len()))
    });
    let mut facts = vec![
        ("format_version", json!(s.version)),
        ("page_bytes", json!(PAGE_SIZE)),
        ("instance", json!(format!("{:032x}", s.instance))),
        ("lineage", json!(format!("{:032x}", s.lineage))),
        ("volume", json!(look.volume.describe())),
    ];
    facts.extend(store.map(|store| ("object_store", json!(store))));
    facts.extend(look.store_trouble.as_ref().map(|what| ("object_store_trouble", json!(what))));
    facts.extend(look.store_fault.as_ref().map(|what| ("object_store_fault", json!(what))));
    facts.extend(location.flash.as_ref().map(|flash| ("flash", json!(flash))));
    facts.extend([
        ("closed_cleanly", json!(s.clean)),
        ("writer_epoch", json!(s.epoch)),
        ("superblock_age_seconds", json!(age)),
        ("checkpoint_lsn", json!(s.checkpoint)),
        ("log_end_lsn", json!(look.end)),
        ("redo_bytes", json!(look.end - s.checkpoint)),
        ("redo_records", json!(look.redo_records)),
        ("redo_pages", json!(look.redo_pages())),
        ("log_partitions", json!(s.starts.len())),
        ("log_bytes", json!(s.log_blocks * 4096 * s.starts.len() as u64)),
        ("slots", json!(look.map.slots_total())),
        ("slots_free", json!(look.map.slots_free())),
        ("objects", json!(look.map.objects().len())),
        ("patch_objects", json!(look.map.patches())),
        ("volume_bytes", json!(pages(|s| s.volume) * PAGE_SIZE as u64)),
        ("object_bytes", json!(look.map.object_bytes())),
    ]);
    facts.extend(flash.map(|bytes| ("flash_bytes", bytes)));
    facts.extend([
        ("tables", json!(tables.listed.len())),
        ("unfinished_transactions", json!(undo.unfinished.len())),
        ("prepared_transactions", json!(undo.prepared)),
    ]);
    if !tables.whole {
        facts.push(("catalog_trouble", json!("the catalog is damaged: run `terrace check`")));
    }
    facts
}

/// The numbers of the status, and where pages are, as Prometheus reads them.
pub fn prometheus(instance: &Instance, location: &Location) {
    let tables = check::read_tables(&instance.look);
    let spaces = check::spaces(&instance.look, &tables);
    let facts = facts(instance, location, &tables, &spaces);
    let number =
        |value: &Value| value.as_f64().or_else(|| value.as_bool().map(|yes| f64::from(u8::from(yes))));
    let facts: Vec<(&str, f64)> =
        facts.iter().filter_map(|(name, value)| Some((*name, number(value)?))).collect();
    let _ = std::io::stdout().write_all(metrics::stopped(&facts, &spaces).as_bytes());
}

/// What the last run's curve advises.
pub fn advice(kept: &KeptCurve, as_json: bool) {
    let lines = kept.advise();
    if !as_json {
        lines.iter().for_each(|line| out!("{line}"));
        return;
    }
    let points = advice::points(&kept.curve, &kept.observed, &kept.prices);
    let point = |p: &advice::Point| {
        json!({"memory_bytes": p.memory, "flash_bytes": p.flash, "is_current": p.is_current,
               "miss_ratio_memory": p.memory_miss, "miss_ratio": p.miss, "dollars_month": p.dollars()})
    };
    let points: Vec<Value> = points.iter().map(point).collect();
    out!("{:#}", json!({"advice": lines, "reads": kept.curve.reads(), "curve": points}));
}

pub fn status(instance: &Instance, location: &Location) {
    let tables = check::read_tables(&instance.look);
    let spaces = check::spaces(&instance.look, &tables);
    let facts = facts(instance, location, &tables, &spaces);
    if location.json {
        let mut whole: Map<String, Value> =
            facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        let spaces: Vec<Value> = spaces
            .iter()
            .map(|s| json!({"space": s.space, "table": s.table, "index": s.index, "pages": s.pages, "volume": s.volume, "object": s.object}))
            .collect();
        whole.insert("spaces".into(), json!(spaces));
        out!("{:#}", Value::Object(whole));
        return;
    }
    for (name, value) in facts {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        out!("{name:24}{text}");
    }
    out!("\n{:40}{:24}{:>10}{:>10}{:>10}{:>10}", "table", "index", "space", "pages", "volume", "object");
    for s in spaces {
        out!("{:40}{:24}{:>10}{:>10}{:>10}{:>10}", s.table, s.index, s.space, s.pages, s.volume, s.object);
    }
}
