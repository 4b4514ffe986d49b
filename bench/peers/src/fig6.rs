//! `fig6-ycsb`: the YCSB half of CloudJump III's figure 6: throughput, and throughput for what storage costs, by mix, skew and size of
//! flash, against the same engine with everything on the volume; all tiers emulated (profile `cloud`). Popular records are neighbours.
//!
//! Environment: RECORDS, MIX, ZIPF, FLASH (lists by comma), THREADS, MEMORY and BUFFER (percent of the data), MILLIS, WARM_UP_MILLIS, RUNS.

use crate::kv_tiered::{TIERED, VOLUME};
use crate::report::{Report, Row};
use crate::tiers::{Objects, Sizes, open, settle, status, stored};
use crate::{setting, settings};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_io::emulate::CLOUD;
use terrace_workload::{self as workload, A, C, Load, Mix, Plan, Terrace, VALUE};

const W: Mix = Mix { name: "W: updates", reads: 0, updates: 100, inserts: 0 };
const MIXES: [(&str, Mix); 3] = [("read-only", C), ("read-write", A), ("write-only", W)];

/// The least memory: with less, 256 clients hold all frames at once and are refused.
const MEMORY_MIN: u64 = 16 << 20;
/// A dollar a month for each GB of 2³⁰ bytes: CloudJump III, Table 1.
const FLASH: f64 = 0.05;
const ON_VOLUME: f64 = 0.152;
const OBJECT: f64 = 0.016;

/// Dollars a month: flash and object buffer as bought, objects by their bytes, the volume without tiers by the pages in use. Memory
/// and log are the same on both sides and are not counted.
fn dollars(store: &Terrace, place: &Path, sizes: Sizes, percent: Option<u64>) -> f64 {
    let s = status(store);
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match percent {
        Some(percent) => {
            let flash = gib(sizes.data * percent / 100) * FLASH;
            flash + gib(sizes.object_buffer) * ON_VOLUME + gib(stored(place, percent)) * OBJECT
        }
        None => gib((s["object_buffer_slots"] - s["object_buffer_slots_free"]) * 16384) * ON_VOLUME,
    }
}

pub fn run(directory: &Path) -> Report {
    let records = setting("RECORDS", 800_000);
    let (runs, threads) = (setting("RUNS", 1), setting("THREADS", 256));
    let time = Duration::from_millis(setting("MILLIS", 5000));
    let warm_up = Duration::from_millis(setting("WARM_UP_MILLIS", 12_000));
    let percents: Vec<u64> = settings("FLASH", "5,10,20,30,50");
    let exponents: Vec<f64> = settings("ZIPF", "0.8,1.0,1.2,1.4,1.6,1.8,2.0");
    let wanted: Vec<String> = settings("MIX", "read-only,read-write,write-only");
    let mixes = || MIXES.iter().filter(|(name, _)| wanted.iter().any(|one| one == name));
    // A leaf holds fifteen records of a thousand bytes.
    let data = records / 15 * 16384;
    let (memory, buffer) = (setting("MEMORY", 2), setting("BUFFER", 10));
    let sizes = Sizes {
        data,
        memory: MEMORY_MIN.max(data * memory / 100),
        object_buffer: (32 << 20).max(data * buffer / 100),
    };
    let _ = std::fs::remove_dir_all(directory);
    let _objects = Objects;
    let mut rows: Vec<Row> = Vec::new();
    let mut extra = serde_json::Map::new();
    let load = |name: &str, percent| {
        let store = open(&directory.join(name), sizes, percent);
        let started = Instant::now();
        let load = Load { key: workload::ordered_key, records, value: VALUE, batch: 100, durable: false };
        workload::load(&store, load, |_| {}).expect("the load succeeds");
        settle(&store);
        eprintln!("fig6-ycsb: {name} loaded in {:.0} s", started.elapsed().as_secs_f64());
        store
    };
    let volume = load("volume", None);
    for percent in percents {
        let name = format!("flash-{percent}");
        let tiered = load(&name, Some(percent));
        for zipf in &exponents {
            let plan = Plan {
                records,
                value: VALUE,
                threads,
                zipf: *zipf,
                durable: true,
                scattered: false,
                ordered: true,
                time,
            };
            workload::run(&tiered, C, Plan { time: warm_up, ..plan }, 99).expect("the warm-up succeeds");
            workload::run(&volume, C, Plan { time: warm_up / 4, ..plan }, 99).expect("the warm-up succeeds");
            for (mix, how) in mixes() {
                let mut row = Row {
                    name: format!("YCSB {mix}, Zipf {zipf}, flash {percent} %"),
                    runs: vec![(TIERED.into(), Vec::new()), (VOLUME.into(), Vec::new())],
                };
                for round in 0..runs {
                    for (at, store) in [&tiered, &volume].into_iter().enumerate() {
                        row.runs[at]
                            .1
                            .push(workload::run(store, *how, plan, round + 1).expect("the run succeeds"));
                    }
                }
                row.print(TIERED, VOLUME);
                rows.push(row);
            }
        }
        let cost = json!({ TIERED: dollars(&tiered, &directory.join(&name), sizes, Some(percent)), VOLUME: dollars(&volume, directory, sizes, None) });
        extra.insert(format!("flash {percent} %"), json!({ "dollars": cost, "counters": status(&tiered) }));
        drop(tiered);
        let _ = std::fs::remove_dir_all(directory.join(&name));
    }
    let notes = vec![format!(
        "{records} records of {VALUE} bytes ({} MiB in pages), memory {} MiB, object buffer {} MiB, durable commits, {threads} clients, {} s of \
         warm-up before each Zipf; costs by Table 1: flash and object buffer as bought, the store by bytes in objects, the volume by pages in use",
        data >> 20,
        sizes.memory >> 20,
        sizes.object_buffer >> 20,
        warm_up.as_secs()
    )];
    Report {
        name: "fig6-ycsb".into(),
        of: TIERED.into(),
        against: VOLUME.into(),
        profile: CLOUD.describe(),
        notes,
        rows,
        extra,
    }
}
