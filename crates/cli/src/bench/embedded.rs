//! `terrace bench embedded`: YCSB in memory through crate `terrace` beside the engine's own interface, in alternating rounds. The door is to cost
//! nothing worth a word.

use super::{Scratch, progress};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use terrace::{Config, Db, Durability, Tree};
use terrace_workload::{A, B, C, E, Load, Mix, Plan, Store, Terrace, VALUE};

#[derive(Args)]
pub struct Settings {
    /// A directory for the run; empty, or made
    #[arg(long)]
    directory: PathBuf,
    /// Records to load
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    records: u64,
    /// Clients that work at once
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: u64,
    /// Milliseconds of each workload
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    millis: u64,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

type Result<T, E = String> = std::result::Result<T, E>;

/// The crate as a key-value store.
struct Door {
    db: Db,
    tree: Tree,
}

fn text(error: terrace::Error) -> String {
    error.to_string()
}

impl Door {
    fn write(
        &self,
        pairs: &[([u8; 16], &[u8])],
        durable: bool,
        each: impl Fn(&terrace::Txn, &[u8; 16], &[u8]) -> terrace::Result<()>,
    ) -> terrace::Result<()> {
        let txn = self.db.begin();
        pairs.iter().try_for_each(|(key, value)| each(&txn, key, value))?;
        txn.commit_with(if durable { Durability::Wait } else { Durability::None })
    }
}

impl Store for Door {
    fn put(&self, pairs: &[([u8; 16], &[u8])], durable: bool) -> Result<()> {
        self.write(pairs, durable, |txn, key, value| txn.put(&self.tree, key, value)).map_err(text)
    }
    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        self.tree.get_into(key, into).map_err(text)
    }
    fn scan(&self, key: &[u8; 16], n: usize) -> Result<usize> {
        let scan = || {
            let mut range = self.tree.range(&key[..]..)?;
            let mut bytes = 0;
            for _ in 0..n {
                let Some((key, value)) = range.advance()? else { break };
                bytes += key.len() + value.len();
            }
            Ok(bytes)
        };
        scan().map_err(text)
    }
}

const NAMES: [&str; 2] = ["door", "engine"];

fn open(name: &str, directory: PathBuf, memory: u64) -> Result<Box<dyn Store>> {
    let config = |directory: &PathBuf| Config::new(directory).memory(memory).log(1 << 30).pages(4 << 30);
    if name == "door" {
        let db = Db::open_with(config(&directory)).map_err(text)?;
        let tree = db.tree("kv").map_err(text)?;
        return Ok(Box::new(Door { db, tree }));
    }
    let settings = format!(
        "volume_path = {}\nmemory = {memory}\nlog = {}\nobject_buffer = {}\n",
        serde_json::Value::from(directory.to_string_lossy()),
        1u64 << 30,
        4u64 << 30
    );
    let (config, parts) = terrace::open::assemble(&settings, "").map_err(|error| error.to_string())?;
    Ok(Box::new(Terrace::on(config, parts).map_err(|error| error.to_string())?))
}

/// Operations a second, by workload, of one store in one round.
fn round(name: &str, settings: &Settings, number: u64, durable: bool) -> Result<Vec<(String, f64)>> {
    let path = settings.directory.join(format!("{name}-{number}-{durable}"));
    let _scratch = Scratch::new(&path, false)?;
    let store = open(name, path.clone(), 3 * settings.records * VALUE as u64)?;
    // A durable load would measure the disk's syncs alone: batches of 100 share one.
    let batch = if durable { 100 } else { 1 };
    let load = Load { key: terrace_workload::key, records: settings.records, value: VALUE, batch, durable };
    let kind = if durable { "durable" } else { "relaxed" };
    let mut rates = vec![(format!("load, {kind}"), terrace_workload::load(&*store, load, |_| {})?.rate)];
    let mixes: &[Mix] = if durable { &[A, B] } else { &[A, B, C, E] };
    for mix in mixes {
        let plan = Plan {
            records: settings.records,
            value: VALUE,
            threads: settings.threads,
            zipf: 0.99,
            durable,
            scattered: true,
            ordered: false,
            time: Duration::from_millis(settings.millis),
        };
        let run = terrace_workload::run(&*store, *mix, plan, number + 1)?;
        rates.push((format!("{}, {kind}", mix.name), run.rate));
    }
    Ok(rates)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

pub fn run(settings: &Settings) -> Result<()> {
    let _all = Scratch::new(&settings.directory, false)?;
    let mut rows: Vec<(String, [Vec<f64>; 2])> = Vec::new();
    for durable in [false, true] {
        for number in 0..settings.rounds {
            // Each is first in every other round.
            let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
            for which in order {
                progress(&format!("round {} of {}: {}", number + 1, settings.rounds, NAMES[which]));
                for (name, rate) in round(NAMES[which], settings, number, durable)? {
                    let at = rows.iter().position(|(row, _)| *row == name).unwrap_or_else(|| {
                        rows.push((name, Default::default()));
                        rows.len() - 1
                    });
                    rows[at].1[which].push(rate);
                }
            }
        }
    }
    progress("");
    let figures = rows.into_iter().map(|(name, [door, engine])| {
        // Round by round, side by side: what the machine does beside falls on both.
        let ratios = door.iter().zip(&engine).map(|(door, engine)| door / engine).collect();
        (name, median(door), median(engine), median(ratios))
    });
    let figures: Vec<_> = figures.collect();
    if settings.json {
        let row = |(name, door, engine, ratio): &(String, f64, f64, f64)| json!({"workload": name, "door_per_s": door, "engine_per_s": engine, "ratio": ratio});
        let whole = json!({
            "records": settings.records, "value_bytes": VALUE, "threads": settings.threads, "millis": settings.millis,
            "rounds": settings.rounds, "rows": figures.iter().map(row).collect::<Vec<_>>(),
        });
        crate::output::text(&format!("{whole:#}"));
        return Ok(());
    }
    let mut table =
        format!("{:42} {:>12} {:>12} {:>7}\n", "workload, operations a second", "terrace", "engine", "ratio");
    for (name, door, engine, ratio) in &figures {
        table.push_str(&format!("{name:42} {door:>12.0} {engine:>12.0} {ratio:>7.3}\n"));
    }
    crate::output::text(&table);
    Ok(())
}
