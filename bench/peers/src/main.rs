//! `terrace-bench NAME DIRECTORY OUTPUT.json`: one benchmark of those that `make bench` knows.
//!
//! A row is one workload. Each row is run several times, the stores in turn, so that other load on
//! the machine affects all alike; its ratio is the median store's over the median reference's.

mod fig6;
mod kv_memory;
mod kv_tiered;
mod memory;
mod report;
mod stores;
mod tiers;

use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, name, directory, output] = args.as_slice() else {
        eprintln!("usage: terrace-bench NAME DIRECTORY OUTPUT.json");
        std::process::exit(2);
    };
    let directory = Path::new(directory);
    let report = match name.as_str() {
        "fig6-ycsb" => fig6::run(directory),
        "kv-memory" => kv_memory::run(directory),
        "kv-tiered" => kv_tiered::run(directory),
        "memory" => memory::run(directory),
        other => {
            eprintln!("`{other}` is not among fig6-ycsb, kv-memory, kv-tiered, memory");
            std::process::exit(2);
        }
    };
    let _ = std::fs::remove_dir_all(directory);
    report.print();
    report.write(Path::new(output)).expect("the report can be written");
}

/// A size from the environment, for longer or shorter runs.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Several numbers from the environment, by comma.
fn settings<T: std::str::FromStr>(name: &str, default: &str) -> Vec<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty()).unwrap_or(default.into());
    text.split(',').filter_map(|one| one.parse().ok()).collect()
}
