//! Metrics as Prometheus reads them: the text format, version 0.0.4. `docs/observability.md` names each with its unit.
//!
//! Names follow Prometheus' conventions: base units (seconds, bytes) last, `_total` for what only grows. Of indexes
//! the largest [`INDEXES_MAX`] have series of their own; what the rest is together has the table `(others)`.

mod known;

use crate::engine::inspect::info_tables::{self, SpaceReport, Value};
use crate::engine::{Engine, SpaceInfo};
use std::fmt::Write;
use terrace_cost::{Prices, advice};

/// The most indexes with series of their own.
pub const INDEXES_MAX: usize = 1000;
/// Ends of a histogram's buckets, in microseconds: powers of four.
const ENDS: [u64; 10] = [16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
    Untyped,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Untyped => "untyped",
        }
    }
}

/// What the number of this name is, if it is known.
pub fn kind_of(name: &str) -> Option<Kind> {
    known::of(name).map(|known| known.kind)
}

/// A text in the making. All samples of a family follow its head.
#[derive(Default)]
pub struct Text(String);

impl Text {
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = kind.name();
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    pub fn one(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    pub fn end(self) -> String {
        self.0
    }
}

/// What the families of `terrace_io_…` tell with labels: names that begin so,
const ELSEWHERE: &[&str] = &["volume_", "flash_request", "object_request"];
/// except those that no family reports.
const NOT_THERE: &[&str] = &["object_requests_throttled"];

fn status(text: &mut Text, list: &[(String, u64)]) {
    for (name, value) in list {
        if ELSEWHERE.iter().any(|start| name.starts_with(start)) && !NOT_THERE.contains(&name.as_str()) {
            continue;
        }
        let known = known::of(name);
        let meaning = known.as_ref().map_or("", |known| known.meaning);
        let help = format!("{meaning} (terrace_{name} of SHOW GLOBAL STATUS)");
        let number = *value as f64;
        let (name, number) = match name.contains("_microseconds") {
            true => (name.replace("_microseconds", "_seconds"), number / 1e6),
            false => (name.clone(), number),
        };
        match known.map(|known| known.kind) {
            Some(Kind::Counter) => text.one(&format!("terrace_{name}_total"), Kind::Counter, &help, number),
            kind => text.one(&format!("terrace_{name}"), kind.unwrap_or(Kind::Untyped), &help, number),
        }
    }
}

/// The numbers of the status as rows: name, subsystem, value, type, meaning.
pub fn rows(engine: &Engine) -> Vec<Vec<Value>> {
    let row = |(name, value): (String, u64)| {
        let text = |text: &str| Value::Text(text.into());
        let known = known::of(&name);
        let (subsystem, kind, meaning) =
            known.map_or(("", Kind::Untyped, ""), |known| (known.subsystem, known.kind, known.meaning));
        vec![text(&name), text(subsystem), Value::Number(value), text(kind.name()), text(meaning)]
    };
    engine.status().into_iter().map(row).collect()
}

fn requests(text: &mut Text, engine: &Engine) {
    let all = engine.requests();
    let mut family = |name: &str, help: &str, of: fn(&terrace_io::stats::Count) -> u64| {
        text.family(name, Kind::Counter, help);
        for one in &all {
            text.sample(name, &[("tier", one.tier), ("purpose", &one.purpose)], of(&one.count) as f64);
        }
    };
    family("terrace_io_requests_total", "Requests to a tier, by purpose", |c| c.requests);
    family("terrace_io_bytes_total", "Bytes of the requests that succeeded", |c| c.bytes);
    family("terrace_io_errors_total", "Requests that failed", |c| c.errors);
    family("terrace_io_retries_total", "Attempts beyond a request's first", |c| c.retries);
    let name = "terrace_io_duration_seconds";
    text.family(name, Kind::Histogram, "How long requests took, queueing included");
    for one in &all {
        let labels = [("tier", one.tier), ("purpose", one.purpose.as_str())];
        for end in ENDS {
            let le = format!("{}", end as f64 / 1e6);
            let with = [labels[0], labels[1], ("le", &le)];
            text.sample(&format!("{name}_bucket"), &with, one.count.latency.below(end) as f64);
        }
        // The buckets may be a little ahead of the count, which is read first.
        let all = one.count.requests.max(one.count.latency.below(1 << 40)) as f64;
        text.sample(&format!("{name}_bucket"), &[labels[0], labels[1], ("le", "+Inf")], all);
        text.sample(&format!("{name}_sum"), &labels, one.count.nanos as f64 / 1e9);
        text.sample(&format!("{name}_count"), &labels, all);
    }
}

/// A table's series have its name with a point, in the encoding of file names: `db.table`.
fn label_of(table: &str) -> String {
    table.replacen('/', ".", 1)
}

/// The largest indexes first, and the rest together.
fn largest(spaces: &[SpaceInfo], all: Vec<SpaceReport>) -> Vec<(String, String, SpaceReport)> {
    let mut lines: Vec<(String, String, SpaceReport)> = spaces
        .iter()
        .zip(all)
        .map(|(info, seen)| (label_of(&info.table), info.index.clone(), seen))
        .collect();
    lines.sort_by_key(|(table, index, seen)| {
        (std::cmp::Reverse(seen.pages_volume + seen.pages_object), table.clone(), index.clone())
    });
    if lines.len() > INDEXES_MAX {
        let mut others = SpaceReport::default();
        lines.drain(INDEXES_MAX..).for_each(|(_, _, seen)| others.add(&seen));
        lines.push(("(others)".into(), String::new(), others));
    }
    lines
}

type Parts<'a> = &'a [(&'a str, fn(&SpaceReport) -> u64)];

fn by_index(text: &mut Text, lines: &[(String, String, SpaceReport)], prices: &Prices, seconds: f64) {
    let mut family = |name: &str, kind: Kind, help: &str, label: &str, parts: Parts<'_>| {
        text.family(name, kind, help);
        for (table, index, seen) in lines {
            for (part, of) in parts {
                let labels = [("table", table.as_str()), ("index", index), (label, part)];
                let labels = if label.is_empty() { &labels[..2] } else { &labels[..] };
                text.sample(name, labels, of(seen) as f64);
            }
        }
    };
    let pages: Parts<'_> = &[
        ("memory", |s| s.pages_memory),
        ("flash", |s| s.pages_flash),
        ("volume", |s| s.pages_volume),
        ("object", |s| s.pages_object),
    ];
    family("terrace_index_pages", Kind::Gauge, "Pages of an index that a tier has", "tier", pages);
    let help = "Bytes of an index's objects in the store";
    family("terrace_index_object_bytes", Kind::Gauge, help, "", &[("", |s| s.bytes_object)]);
    let reads: Parts<'_> = &[
        ("memory", |s| s.reads.memory),
        ("flash", |s| s.reads.flash),
        ("volume", |s| s.reads.volume),
        ("object", |s| s.reads.object),
        ("log", |s| s.reads.log),
    ];
    let help = "Reads of an index's pages, by where the page was";
    family("terrace_index_reads_total", Kind::Counter, help, "tier", reads);
    let counters: [(&str, &str, fn(&SpaceReport) -> u64); 8] = [
        ("pages_ahead", "Pages that came with another, before anybody asked for them", |s| s.reads.ahead),
        ("flash_admissions", "Pages that left memory and were written to flash", |s| s.flash_admitted),
        ("flash_remembered", "Pages that left memory and of which only the name was kept", |s| {
            s.flash_remembered
        }),
        ("ghost_hits", "Pages that left memory while the ghost list had their name", |s| s.ghost_hits),
        ("sinks", "Blocks sunk to the store", |s| s.sinks),
        ("writes_clean", "Pages flushed, and not on flash afterwards", |s| s.writes[0]),
        ("writes_dual", "Pages flushed, and rewritten on flash", |s| s.writes[1]),
        ("writes_single", "Pages of temporary tables written to their spill space", |s| s.writes[2]),
    ];
    for (name, help, of) in counters {
        family(&format!("terrace_index_{name}_total"), Kind::Counter, help, "", &[("", of)]);
    }
    let requests: Parts<'_> = &[("get", |s| s.gets), ("put", |s| s.puts)];
    let help = "Requests to the store for an index";
    family("terrace_index_store_requests_total", Kind::Counter, help, "method", requests);
    let bytes: Parts<'_> = &[("get", |s| s.get_bytes), ("put", |s| s.put_bytes)];
    let help = "Bytes asked of the store, or put there, for an index";
    family("terrace_index_store_bytes_total", Kind::Counter, help, "method", bytes);
    let name = "terrace_index_cost_dollars_per_month";
    text.family(name, Kind::Gauge, "What an index costs a month, by the configured prices");
    for (table, index, seen) in lines {
        let cost = seen.cost(prices, seconds);
        for (part, dollars) in [
            ("memory", cost.memory),
            ("flash", cost.flash),
            ("volume", cost.volume),
            ("object", cost.object),
            ("requests", cost.requests),
        ] {
            text.sample(name, &[("table", table), ("index", index), ("part", part)], dollars);
        }
    }
}

fn curve(text: &mut Text, engine: &Engine) {
    let core = engine.core();
    let curve = core.storage.pages.pool().curve();
    let points = advice::points(&curve, &info_tables::observed(core), &core.config.prices);
    let name = "terrace_expected_miss_ratio";
    text.family(
        name,
        Kind::Gauge,
        "Share of the reads that neither memory nor flash of this size would have",
    );
    let size = |bytes: u64| bytes.to_string();
    for p in &points {
        let (memory, flash) = (size(p.memory), size(p.flash));
        text.sample(name, &[("memory_bytes", &memory), ("flash_bytes", &flash)], p.miss);
    }
    let name = "terrace_expected_cost_dollars_per_month";
    text.family(name, Kind::Gauge, "What the instance would cost a month with memory and flash of this size");
    for p in &points {
        let (memory, flash) = (size(p.memory), size(p.flash));
        text.sample(name, &[("memory_bytes", &memory), ("flash_bytes", &flash)], p.dollars());
    }
}

/// All metrics of an instance that runs.
pub fn running(engine: &Engine) -> String {
    let core = engine.core();
    let mut text = Text::default();
    let seconds = info_tables::seconds(core);
    text.one("terrace_uptime_seconds", Kind::Gauge, "Since the engine's start", seconds);
    status(&mut text, &engine.status());
    requests(&mut text, engine);
    let spaces = engine.spaces();
    let lines = largest(&spaces, info_tables::by_index(core, &spaces));
    by_index(&mut text, &lines, &core.config.prices, info_tables::lately(core));
    curve(&mut text, engine);
    text.end()
}

/// What is known of an instance that does not run: where its pages are.
pub fn stopped(facts: &[(&str, f64)], spaces: &[SpaceInfo]) -> String {
    let mut text = Text::default();
    for (name, value) in facts {
        text.one(&format!("terrace_{name}"), Kind::Gauge, &format!("{name} of `terrace status`"), *value);
    }
    let name = "terrace_index_pages";
    text.family(name, Kind::Gauge, "Pages of an index that a tier has");
    let seen = |info: &SpaceInfo| SpaceReport {
        pages_volume: info.volume,
        pages_object: info.object,
        ..SpaceReport::default()
    };
    for (table, index, seen) in largest(spaces, spaces.iter().map(seen).collect()) {
        for (tier, pages) in [("volume", seen.pages_volume), ("object", seen.pages_object)] {
            text.sample(name, &[("table", &table), ("index", &index), ("tier", tier)], pages as f64);
        }
    }
    text.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.family("x", Kind::Gauge, "a\nb");
        text.sample("x", &[("table", "a\"b\\c\nd")], 0.5);
        assert_eq!(text.end(), "# HELP x a\\nb\n# TYPE x gauge\nx{table=\"a\\\"b\\\\c\\nd\"} 0.5\n");
    }

    #[test]
    fn indexes_beyond_the_limit_of_series_are_reported_together() {
        let info = |n: u64| SpaceInfo {
            space: n as u32,
            table: format!("d/t{n}"),
            index: "PRIMARY".into(),
            pages: n,
            memory: 0,
            flash: 0,
            volume: n,
            object: 1,
        };
        let spaces: Vec<SpaceInfo> = (0..1500).map(info).collect();
        let text = stopped(&[("slots", 7.0)], &spaces);
        assert_eq!(
            text.lines().filter(|line| line.starts_with("terrace_index_pages{")).count(),
            2 * (INDEXES_MAX + 1)
        );
        let others: u64 = (0..500).sum();
        let line = format!("terrace_index_pages{{table=\"(others)\",index=\"\",tier=\"volume\"}} {others}");
        assert!(text.contains(&line) && text.contains("\nterrace_slots 7\n"));
    }
}
