//! `memory`: one setting bounds the engine. Resident memory while ten times as much data is loaded and read.

use crate::report::{Report, Row, Run};
use crate::setting;
use crate::stores;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace_workload::{self as workload, B, Load, Plan, VALUE};

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

pub fn run(directory: &Path) -> Report {
    let memory = setting("MEMORY", 128 << 20);
    let records = 10 * memory / 1100;
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).expect("the directory is made");
    let before = resident();
    let store = stores::terrace(directory, memory);
    let (most, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let (load, run) = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let load = Load { key: workload::ordered_key, records, value: VALUE, batch: 100, durable: false };
        let load = workload::load(&store, load, |_| {}).expect("the load succeeds");
        let time = Duration::from_secs(10);
        let plan = Plan {
            records,
            value: VALUE,
            threads: 4,
            zipf: 0.99,
            durable: false,
            scattered: true,
            ordered: true,
            time,
        };
        let run = workload::run(&store, B, plan, 1).expect("the run succeeds");
        done.store(true, Ordering::Relaxed);
        (load, run)
    });
    // The process itself, with its clients, before the engine was opened.
    let used = most.load(Ordering::Relaxed) - before;
    let ratio = used as f64 / memory as f64;
    let mut extra = serde_json::Map::new();
    extra.insert("resident_of_setting".into(), json!(ratio));
    let of = |rate| vec![("Terrace".to_string(), vec![Run { rate, p50: 0.0, p99: 0.0 }])];
    Report {
        name: "memory".into(),
        of: "Terrace".into(),
        against: "Terrace".into(),
        profile: "none: the machine's own disk".into(),
        notes: vec![format!(
            "memory = {} MiB, {records} records of 1 KB: the engine's resident memory was at most {} MiB, {:.2} of the setting",
            memory >> 20,
            used >> 20,
            ratio
        )],
        rows: vec![
            Row { name: "load".into(), runs: of(load.rate) },
            Row { name: "reads and updates".into(), runs: of(run.rate) },
        ],
        extra,
    }
}
