//! `kv-tiered`: data ten times the memory, on flash, a small object buffer and an object store, against
//! the same engine with everything on the volume; all tiers emulated (profile `cloud`).
//!
//! Popular records are neighbours, as in sysbench's tables and where keys follow time: SCATTER=1 spreads
//! them over all pages, which no cache of pages likes. Many clients, because a store's latency is
//! hidden by concurrency or not at all. Many short rounds, each ratio within one: shared machines change their speed within seconds.

use crate::report::{Report, Row};
use crate::setting;
use crate::tiers::{Objects, Sizes, objects_in_memory, open, settle, status};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_io::emulate::CLOUD;
use terrace_workload::{self as workload, B, Load, Plan, Terrace, VALUE};

/// All counters that differ, and by how much.
fn show_moved(before: &HashMap<String, u64>, after: &HashMap<String, u64>) {
    let by = |name: &String, at: &u64| at.wrapping_sub(before.get(name).copied().unwrap_or(0)) as i64;
    let mut moved: Vec<_> = after.iter().map(|(name, at)| (name, by(name, at))).collect();
    moved.retain(|(_, by)| *by != 0);
    moved.sort();
    eprintln!("  {}", moved.iter().map(|(name, by)| format!("{name} {by}")).collect::<Vec<_>>().join(", "));
}

pub const TIERED: &str = "tiered";
pub const VOLUME: &str = "all on the volume";

pub fn run(directory: &Path) -> Report {
    let records = setting("RECORDS", 800_000);
    let runs = setting("RUNS", 9);
    let threads = setting("THREADS", 256);
    let time = Duration::from_millis(setting("MILLIS", 1500));
    let warm_up = Duration::from_millis(setting("WARM_UP_MILLIS", 15_000));
    let scattered = setting("SCATTER", 0) == 1;
    let mut percents = vec![5, 10, 20, 50];
    let mut exponents = vec![0.99, 1.2];
    // One row alone, to look at it more closely: FLASH in percent, ZIPF in hundredths.
    if let Some(one) = Some(setting("FLASH", 0)).filter(|one| *one > 0) {
        percents = vec![one];
    }
    if let Some(one) = Some(setting("ZIPF", 0)).filter(|one| *one > 0) {
        exponents = vec![one as f64 / 100.0];
    }
    // A leaf holds fifteen records of a thousand bytes.
    let data = records / 15 * 16384;
    let _ = std::fs::remove_dir_all(directory);
    let _objects = Objects;
    let stores: Vec<(Option<u64>, Terrace)> = std::iter::once(None)
        .chain(percents.iter().copied().map(Some))
        .map(|percent| {
            let name = percent.map_or("volume".into(), |p: u64| format!("flash-{p}"));
            let sizes = Sizes { data, memory: data / 10, object_buffer: data / 10 };
            let store = open(&directory.join(&name), sizes, percent);
            let started = Instant::now();
            let load = Load { key: workload::ordered_key, records, value: VALUE, batch: 100, durable: false };
            workload::load(&store, load, |_| {}).expect("the load succeeds");
            settle(&store);
            if setting("VERBOSE", 0) == 1 {
                show_moved(&HashMap::new(), &status(&store));
            }
            eprintln!("kv-tiered: {name} loaded in {:.0} s", started.elapsed().as_secs_f64());
            (percent, store)
        })
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    for zipf in exponents {
        let plan =
            Plan { records, value: VALUE, threads, zipf, durable: true, scattered, ordered: true, time };
        let name = |percent| format!("Zipf {zipf}, flash {percent} %");
        rows.extend(percents.iter().map(|percent| Row {
            name: name(*percent),
            runs: vec![(TIERED.into(), Vec::new()), (VOLUME.into(), Vec::new())],
        }));
        for (percent, store) in &stores {
            workload::run(store, B, Plan { time: warm_up, ..plan }, 99).expect("the warm-up succeeds");
            eprintln!("kv-tiered: Zipf {zipf}, {percent:?} % warmed up");
        }
        for round in 0..runs {
            for (percent, store) in &stores {
                let before = status(store);
                let run = workload::run(store, B, plan, round + 1).expect("the run succeeds");
                let after = status(store);
                let delta = |name: &str| after[name] - before[name];
                eprintln!(
                    "kv-tiered: Zipf {zipf}, {percent:?} %: {:.0}/s, p99 {:.0} µs; misses {}, from flash {}, volume {}, store {}; \
                     flushed {}, put {} objects, waits for frames {}, evicted in the foreground {}; \
                     writers waited {} times for slots, {} ms in all",
                    run.rate,
                    run.p99,
                    delta("pool_misses"),
                    delta("reads_flash"),
                    delta("reads_volume"),
                    delta("reads_object"),
                    delta("flush_pages"),
                    if percent.is_some() { delta("objects_put") } else { 0 },
                    delta("pool_frame_waits"),
                    delta("pool_foreground_evictions"),
                    delta("slot_writer_waits"),
                    delta("slot_writer_wait_microseconds") / 1000,
                );
                if setting("VERBOSE", 0) == 1 {
                    show_moved(&before, &after);
                }
                for row in rows.iter_mut().filter(|row| match percent {
                    Some(percent) => row.name == name(*percent),
                    None => row.name.starts_with(&format!("Zipf {zipf},")),
                }) {
                    row.runs[usize::from(percent.is_none())].1.push(run);
                }
            }
        }
    }
    let mut extra = serde_json::Map::new();
    let mut notes = vec![format!(
        "{records} records of {VALUE} bytes ({} MiB in pages), memory a tenth, object buffer a tenth, YCSB B with durable \
         commits, {threads} clients, {} s of warm-up before each Zipf",
        data >> 20,
        warm_up.as_secs()
    )];
    if objects_in_memory().is_some() {
        notes.push("the objects lie in memory, behind the emulated store's latency and limits".into());
    }
    for (percent, store) in &stores {
        let Some(percent) = percent else { continue };
        let s = status(store);
        let dirty = (s["flush_pages"] * 16384) as f64;
        let (written, puts) = (s["objects_put_bytes"] as f64, s["objects_put"] as f64);
        extra.insert(format!("flash {percent} %"), json!({
            "store_bytes_a_dirty_byte": written / dirty,
            "store_puts_a_dirty_mib": puts / (dirty / f64::from(1 << 20)),
            "store_gets": s["objects_got"], "store_puts": s["objects_put"], "reads_flash": s["reads_flash"],
            "reads_volume": s["reads_volume"], "reads_object": s["reads_object"],
            "foreground_evictions": s["pool_foreground_evictions"], "misses": s["pool_misses"],
        }));
        notes.push(format!(
            "flash {percent} %: {:.2} bytes put for each dirty byte, {:.2} PUTs a dirty MiB; reads from flash {}, volume {}, \
             store {}; foreground evictions {} of {} misses",
            written / dirty,
            puts / (dirty / f64::from(1 << 20)),
            s["reads_flash"],
            s["reads_volume"],
            s["reads_object"],
            s["pool_foreground_evictions"],
            s["pool_misses"]
        ));
    }
    Report {
        name: "kv-tiered".into(),
        of: TIERED.into(),
        against: VOLUME.into(),
        profile: CLOUD.describe(),
        notes,
        rows,
        extra,
    }
}
