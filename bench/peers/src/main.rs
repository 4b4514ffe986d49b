//! `terrace-bench NAME DIRECTORY OUTPUT.json`: one benchmark of those that `make bench` knows.
//!
//! A row is one workload. Each row is run several times, the stores by turns, so that what else the
//! machine does hits all alike; its ratio is the median store's over the median reference's.

mod kv_memory;
mod kv_tiered;
mod memory;
mod report;
mod stores;

use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, name, directory, output] = args.as_slice() else {
        eprintln!("usage: terrace-bench NAME DIRECTORY OUTPUT.json");
        std::process::exit(2);
    };
    let directory = Path::new(directory);
    let report = match name.as_str() {
        "kv-memory" => kv_memory::run(directory),
        "kv-tiered" => kv_tiered::run(directory),
        "memory" => memory::run(directory),
        other => {
            eprintln!("`{other}` is not among kv-memory, kv-tiered, memory");
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
