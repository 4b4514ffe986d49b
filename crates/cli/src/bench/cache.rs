//! `terrace bench cache`: plays a trace of page uses through policies for flash, and says what each would hit, write and
//! move. Nothing is stored: the policies are the engine's code, the pages have no content.

mod caffeine;
mod formats;
mod play;
mod synthetic;
mod trace;

use super::Result;
use clap::Args;
use formats::{Format, named_columns};
use play::{Outcome, Stream};
use serde_json::json;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_tier::flash::admission::policy::{NAMES, Named};
use trace::Trace;

#[derive(Args)]
pub struct Settings {
    /// [FORMAT:]FILE, also compressed (gz, zst, xz), or a made trace: zipf:EXPONENT:OBJECTS:REQUESTS[:per-page=N,scatter,writes=PERCENT,seed=N],
    /// loop:OBJECTS:REQUESTS
    #[arg(long, required = true, num_args = 1..)]
    trace: Vec<String>,
    /// The file's format, where its name does not say it
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The columns of a CSV file whose first line doesn't name them, as key,size,op; other names are passed over
    #[arg(long, value_parser = named_columns)]
    columns: Option<String>,
    /// Policies; `optimal` knows the future. Without: all usual ones
    #[arg(long, value_delimiter = ',', value_parser = one_policy, long_help = format!("Policies: {NAMES}; `optimal` knows the future. Without: all usual ones"))]
    policy: Vec<Player>,
    /// Sizes of the flash, in percent of the trace's objects or in pages
    #[arg(long, value_delimiter = ',', default_values_t = [Size::Percent(5.0), Size::Percent(20.0)])]
    size: Vec<Size>,
    /// Size of the memory before it, likewise; 0: flash alone
    #[arg(long, default_value_t = Size::Percent(2.0))]
    memory: Size,
    /// Share of the trace, in percent, that comes before anything counts
    #[arg(long, default_value_t = 0.0, value_parser = percent)]
    warm_up: f64,
    /// At most this many flash writes for each hundred misses of memory
    #[arg(long, value_parser = percent)]
    write_budget: Option<f64>,
    /// Bytes of a page, where the trace names no sizes or speaks of extents
    #[arg(long, default_value_t = 16384, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    page_bytes: u64,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Player {
    Policy(Named),
    Optimal,
}

fn one_policy(name: &str) -> Result<Player> {
    if name == "optimal" { Ok(Player::Optimal) } else { name.parse().map(Player::Policy) }
}

impl fmt::Display for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Player::Policy(named) => named.fmt(f),
            Player::Optimal => f.write_str("optimal"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Size {
    Percent(f64),
    Pages(usize),
}

impl Size {
    fn of(self, objects: usize) -> usize {
        match self {
            Size::Percent(percent) => (objects as f64 * percent / 100.0).round() as usize,
            Size::Pages(pages) => pages,
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size> {
        let size = match text.strip_suffix('%') {
            Some(number) => percent(number.trim()).ok().map(Size::Percent),
            None => text.parse().ok().filter(|pages| *pages <= trace::OBJECTS_MAX).map(Size::Pages),
        };
        size.ok_or_else(|| "pages, or percent of the trace's objects, are wanted".into())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Percent(percent) => write!(f, "{percent}%"),
            Size::Pages(pages) => write!(f, "{pages}"),
        }
    }
}

fn percent(text: &str) -> Result<f64> {
    let number = text.parse().ok().filter(|n| (0.0..=100.0).contains(n));
    number.ok_or_else(|| "a number from 0 to 100 is wanted".into())
}

/// One line of the result.
struct Row {
    policy: Player,
    size: Size,
    pages: usize,
    outcome: Outcome,
}

struct Played {
    name: String,
    trace: Trace,
    frames: usize,
    requests: u64,
    memory_hits: u64,
    rows: Vec<Row>,
}

pub fn run(settings: &Settings) -> Result<()> {
    let mut played = Vec::new();
    for name in &settings.trace {
        super::progress(&format!("reading {name}"));
        let one = play(settings, name);
        super::progress("");
        let one = one?;
        if !settings.json {
            print(&one, settings);
        }
        played.push(one);
    }
    if settings.json {
        let all: Vec<_> = played.iter().map(|one| as_json(one, settings)).collect();
        crate::output::text(&format!("{:#}", json!(all)));
    }
    Ok(())
}

fn play(settings: &Settings, name: &str) -> Result<Played> {
    let trace =
        trace::open(name, settings.format, settings.columns.as_deref(), settings.page_bytes, settings.seed)?;
    let frames = settings.memory.of(trace.objects());
    let warm_up = (trace.len() as f64 * settings.warm_up / 100.0) as usize;
    let stream = Stream::new(&trace, frames, warm_up);
    let policies = match settings.policy.as_slice() {
        [] => Named::usual().into_iter().map(Player::Policy).chain([Player::Optimal]).collect(),
        named => named.to_vec(),
    };
    let each = settings.size.iter().flat_map(|size| policies.iter().map(move |policy| (*policy, *size)));
    let tasks: Vec<(Player, Size)> = each.collect();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        while let Some((policy, size)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            let pages = size.of(trace.objects());
            super::progress(&format!("{name}: {policy}, {size}"));
            let outcome = match policy {
                Player::Policy(named) => {
                    let budget = settings.write_budget.map(|percent| percent / 100.0);
                    stream.play(&trace, settings.page_bytes, named, pages, settings.seed, budget)
                }
                Player::Optimal => stream.optimal(&trace, settings.page_bytes, pages),
            };
            let at = tasks.iter().position(|task| *task == (policy, size));
            rows.lock().map_err(|_| "a player panicked")?.push((at, Row { policy, size, pages, outcome }));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(tasks.len());
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        handles.into_iter().try_for_each(|h| h.join().map_err(|_| "a player panicked".to_string())?)
    })?;
    let mut rows = rows.into_inner().map_err(|_| "a player panicked")?;
    rows.sort_by_key(|(at, _)| *at);
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let Stream { requests, memory_hits, .. } = stream;
    Ok(Played { name: name.into(), trace, frames, requests, memory_hits, rows })
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// Bytes of memory that a policy has for each page that flash holds.
fn each_page(row: &Row) -> f64 {
    share(row.outcome.policy_bytes as u64, row.pages as u64)
}

fn as_json(played: &Played, settings: &Settings) -> serde_json::Value {
    let rows: Vec<_> = played
        .rows
        .iter()
        .map(|row| {
            let out = &row.outcome;
            json!({
                "policy": row.policy.to_string(), "flash_pages": row.pages,
                "hit_ratio": share(played.memory_hits + out.flash_hits, played.requests),
                "flash_hit_ratio": share(out.flash_hits, out.reads), "flash_hits": out.flash_hits,
                "flash_reads": out.reads, "flash_writes": out.writes, "writes_dropped": out.dropped,
                "bytes_written": out.bytes_written, "bytes_from_flash": out.bytes_from_flash,
                "bytes_from_below": out.bytes_from_below, "memory_bytes_per_page": each_page(row),
            })
        })
        .collect();
    json!({
        "trace": played.name, "accesses": played.trace.len(), "objects": played.trace.objects(),
        "changes": played.trace.writes, "counted": played.requests, "memory_pages": played.frames,
        "memory_hits": played.memory_hits, "page_bytes": settings.page_bytes, "seed": settings.seed,
        "write_budget_percent": settings.write_budget, "rows": rows,
    })
}

fn print(played: &Played, settings: &Settings) {
    let out = |line: String| crate::output::text(&line);
    let (trace, hits) = (&played.trace, 100.0 * share(played.memory_hits, played.requests));
    out(format!(
        "{}: {} accesses of {} objects, {} change them; memory of {} pages hits {hits:.2} %",
        played.name,
        trace.len(),
        trace.objects(),
        trace.writes,
        played.frames
    ));
    if played.requests < trace.len() as u64 {
        out(format!("the last {} accesses count", played.requests));
    }
    if let Some(budget) = settings.write_budget {
        out(format!("at most {budget} flash writes for 100 misses of memory"));
    }
    out(format!(
        "{:26}{:>10}{:>9}{:>9}{:>13}{:>13}{:>12}{:>12}",
        "policy", "flash", "hit %", "flash %", "writes/1000", "written MiB", "below MiB", "bytes/page"
    ));
    for row in &played.rows {
        let o = &row.outcome;
        out(format!(
            "{:26}{:>10}{:>9.2}{:>9.2}{:>13.1}{:>13.0}{:>12.0}{:>12.1}",
            row.policy.to_string(),
            row.size.to_string(),
            100.0 * share(played.memory_hits + o.flash_hits, played.requests),
            100.0 * share(o.flash_hits, o.reads),
            1000.0 * share(o.writes, played.requests),
            o.bytes_written as f64 / f64::from(1 << 20),
            o.bytes_from_below as f64 / f64::from(1 << 20),
            each_page(row),
        ));
    }
    out(String::new());
}
