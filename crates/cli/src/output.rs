//! What is printed: for people, or as JSON.

use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Write};
use terrace_engine::Engine;
use terrace_engine::check::Report;

/// A line on standard output. Whoever reads it may have gone (`| head`).
macro_rules! out {
    ($($what:tt)*) => {
        drop(writeln!(std::io::stdout(), $($what)*))
    };
}

/// A line that is written over, on a terminal only.
pub fn progress(what: &str, done: u64, all: u64) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{what}: {done} of {all}");
        let _ = terminal.flush();
    }
}

fn end_progress() {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K");
    }
}

/// A text as it is.
pub fn text(text: &str) {
    out!("{text}");
}

pub fn check(report: &Report, as_json: bool) {
    end_progress();
    let Report { pages_volume, pages_object, objects, trees, entries, faults, unchecked } = report;
    if as_json {
        let value = json!({
            "pages_volume": pages_volume, "pages_object": pages_object, "objects": objects, "trees": trees,
            "entries": entries, "faults": faults, "unchecked": unchecked,
        });
        out!("{value:#}");
        return;
    }
    faults.iter().for_each(|fault| out!("fault: {fault}"));
    unchecked.iter().for_each(|what| out!("not checked: {what}"));
    out!(
        "{pages_volume} pages on the volume, {pages_object} in {objects} objects, {trees} trees with {entries} entries: {}",
        match faults.len() {
            0 => "no fault".to_string(),
            1 => "1 fault".to_string(),
            n => format!("{n} faults"),
        }
    );
}

pub fn status(engine: &Engine, as_json: bool) {
    let storage = &engine.core().storage;
    let superblock = storage.checkpointer.superblock();
    let spaces = engine.spaces();
    let mut facts: Vec<(&str, Value)> = engine.notes().into_iter().map(|(name, text)| (name, json!(text))).collect();
    facts.extend([
        ("closed_cleanly", json!(storage.was_clean)),
        // The look itself is an epoch, in memory only.
        ("writer_epoch", json!(superblock.epoch.saturating_sub(1))),
        ("log_partitions", json!(superblock.starts.len())),
        ("log_bytes", json!(superblock.log_blocks * 4096 * superblock.starts.len() as u64)),
        ("slots", json!(storage.map.slots_total())),
        ("slots_free", json!(storage.map.slots_free())),
        ("objects", json!(storage.map.objects().len())),
        ("tables", json!(engine.list_tables().len())),
        ("prepared_transactions", json!(engine.prepared().len())),
    ]);
    if as_json {
        let mut whole: Map<String, Value> = facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
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
    out!("\n{:40}{:24}{:>10}{:>10}{:>10}", "table", "index", "pages", "volume", "object");
    for s in spaces {
        out!("{:40}{:24}{:>10}{:>10}{:>10}", s.table, s.index, s.pages, s.volume, s.object);
    }
}
