//! `kv-memory`: YCSB in memory, 1 KB values, against RocksDB and LMDB.

use crate::report::{Report, Row, Run};
use crate::setting;
use crate::stores::{self, Lmdb, Rocks};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_workload::{self as workload, A, B, C, E, Load, Mix, Plan, Store, VALUE};

const NAMES: [&str; 3] = ["Terrace", "RocksDB", "LMDB"];

fn open(store: &str, directory: &Path, memory: u64, durable: bool) -> Box<dyn Store> {
    let _ = std::fs::remove_dir_all(directory);
    // A place of its own: heed remembers how a path was opened.
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let directory = directory.join(format!("{store}-{}", OPENED.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir_all(&directory).expect("the directory is made");
    // What the stores before left to the page cache is written now, not on this one's time.
    // SAFETY: sync(2) takes nothing and cannot fail.
    unsafe { libc::sync() };
    match store {
        "Terrace" => Box::new(stores::terrace(&directory, memory)),
        "RocksDB" => Box::new(Rocks::open(&directory, memory)),
        _ => Box::new(Lmdb::open(&directory, durable)),
    }
}

pub fn run(directory: &Path) -> Report {
    let records = setting("RECORDS", 200_000);
    let runs = setting("RUNS", 3);
    let threads = setting("THREADS", 2);
    let time = Duration::from_millis(setting("MILLIS", 3000));
    let memory = 3 * records * VALUE as u64;
    // One store and one workload alone, for a profiler.
    let only = std::env::var("STORE").ok();
    let mix_of = |mix: &Mix| std::env::var("MIX").is_ok_and(|only| !mix.name.starts_with(&only));
    let mut rows: Vec<Row> = Vec::new();
    let mut note = |name: String, store: &str, run: Run| {
        let at = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let runs = NAMES.iter().map(|store| (store.to_string(), Vec::new())).collect();
            rows.push(Row { name, runs });
            rows.len() - 1
        });
        let of_store = rows[at].runs.iter_mut().find(|(name, _)| name == store);
        of_store.expect("one of the stores").1.push(run);
    };
    for durable in [false, true] {
        let mixes: &[Mix] = if durable { &[A, B, E] } else { &[A, B, C, E] };
        let kind = if durable { "durable" } else { "relaxed" };
        for round in 0..runs {
            for store in NAMES.into_iter().filter(|store| only.as_deref().is_none_or(|only| only == *store)) {
                let open = open(store, directory, memory, durable);
                // A durable load would measure the disk's syncs alone: batches of 100 share one.
                let batch = if durable { 100 } else { 1 };
                let load = Load { key: workload::key, records, value: VALUE, batch, durable };
                note(
                    format!("load, {kind}"),
                    store,
                    workload::load(&*open, load, |_| {}).expect("the load succeeds"),
                );
                for mix in mixes.iter().filter(|mix| !mix_of(mix)) {
                    let plan = Plan {
                        records,
                        value: VALUE,
                        threads,
                        zipf: 0.99,
                        durable,
                        scattered: true,
                        ordered: false,
                        time,
                    };
                    let run = workload::run(&*open, *mix, plan, round + 1).expect("the run succeeds");
                    note(format!("{}, {kind}", mix.name), store, run);
                }
                eprintln!("kv-memory: {kind}, round {} of {runs}, {store} done", round + 1);
            }
        }
    }
    Report {
        name: "kv-memory".into(),
        of: "Terrace".into(),
        against: "RocksDB".into(),
        profile: "none: the machine's own disk".into(),
        notes: vec![format!(
            "{records} records of {} bytes, {} MiB of memory for each store, {threads} threads, Zipf 0.99; every write is \
             a transaction; relaxed: commits don't wait for the disk",
            VALUE,
            memory >> 20
        )],
        rows,
        extra: serde_json::Map::new(),
    }
}
