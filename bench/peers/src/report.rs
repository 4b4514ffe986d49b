//! The figures of a benchmark: a table for people, JSON for machines.

use serde_json::{Map, Value, json};
use std::path::Path;
pub use terrace_workload::Run;

/// One workload's runs: operations a second for each store, in the order they were run.
pub struct Row {
    pub name: String,
    pub runs: Vec<(String, Vec<Run>)>,
}

pub struct Report {
    pub name: String,
    /// The store whose figures are the ratios' numerators, and the one they are divided by.
    pub of: String,
    pub against: String,
    /// What was emulated, or "none".
    pub profile: String,
    pub notes: Vec<String>,
    pub rows: Vec<Row>,
    /// Further figures by row.
    pub extra: Map<String, Value>,
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// The spread of the runs: (largest − smallest) / median.
fn spread(runs: &[Run]) -> f64 {
    let rates = || runs.iter().map(|run| run.rate);
    let (low, high) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
    (high - low) / median(rates())
}

impl Row {
    fn of(&self, store: &str) -> Option<&[Run]> {
        self.runs.iter().find(|(name, _)| name == store).map(|(_, runs)| runs.as_slice())
    }
    fn rate(&self, store: &str) -> f64 {
        median(self.of(store).unwrap_or_default().iter().map(|run| run.rate))
    }

    /// The median over the rounds of one store's rate through the other's in the same round: the machine's speed drifts between rounds
    /// by more than the stores differ.
    fn ratio(&self, of: &str, against: &str) -> f64 {
        let (these, those) = (self.of(of).unwrap_or_default(), self.of(against).unwrap_or_default());
        median(these.iter().zip(those).map(|(this, that)| this.rate / that.rate))
    }

    /// Its ratio, and a line for each store.
    pub fn print(&self, of: &str, against: &str) {
        println!("{:<34} {:>6.2} of {against}", self.name, self.ratio(of, against));
        for (store, runs) in &self.runs {
            let p50 = median(runs.iter().map(|run| run.p50));
            let p99 = median(runs.iter().map(|run| run.p99));
            let rate = self.rate(store);
            println!(
                "    {store:<22} {rate:>10.0}/s  {p50:>8.1} {p99:>9.1}   ±{:.0} %",
                100.0 * spread(runs)
            );
        }
    }
}

impl Report {
    pub fn print(&self) {
        println!(
            "\n{}: operations a second, median of the runs; latencies p50/p99 in µs; ± the runs' spread",
            self.name
        );
        println!("emulation: {}; machine: {}", self.profile, machine());
        self.notes.iter().for_each(|note| println!("{note}"));
        self.rows.iter().for_each(|row| row.print(&self.of, &self.against));
    }

    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let ratios: Map<String, Value> = self
            .rows
            .iter()
            .map(|row| (row.name.clone(), json!(row.ratio(&self.of, &self.against))))
            .collect();
        let figures: Map<String, Value> = self
            .rows
            .iter()
            .map(|row| {
                let stores: Map<String, Value> = row
                    .runs
                    .iter()
                    .map(|(store, runs)| {
                        let list = |of: fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
                        let rate = list(|r| r.rate);
                        let value = json!({
                            "rate": rate, "p50_us": list(|r| r.p50), "p99_us": list(|r| r.p99), "spread": spread(runs)
                        });
                        (store.clone(), value)
                    })
                    .collect();
                (row.name.clone(), Value::Object(stores))
            })
            .collect();
        let whole = json!({
            "name": self.name, "of": self.of, "against": self.against, "profile": self.profile, "machine": machine(),
            "notes": self.notes, "ratios": ratios, "figures": figures, "extra": self.extra,
        });
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(path, serde_json::to_string_pretty(&whole)?)
    }
}

fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field =
        |name: &str| cpuinfo.lines().find_map(|l| l.strip_prefix(name)?.split(": ").nth(1)).unwrap_or("?");
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    format!("{}, {cores} cores, {} GiB", field("model name"), kib >> 20)
}
