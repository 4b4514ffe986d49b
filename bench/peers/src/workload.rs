//! YCSB's workloads over any store, from several threads.

use crate::report::Run;
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const VALUE: usize = 1000;

/// A key-value store as the workloads need it. Each write is a transaction of its own.
pub trait Store: Send + Sync {
    /// Sets keys, new or not. `durable`: they survive a loss of power when this returns.
    fn put(&self, pairs: &[([u8; 16], &[u8])], durable: bool);
    /// Sets keys that are new.
    fn insert(&self, pairs: &[([u8; 16], &[u8])], durable: bool) {
        self.put(pairs, durable);
    }
    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> bool;
    /// Reads up to `n` pairs from `key` on; returns the bytes read.
    fn scan(&self, key: &[u8; 16], n: usize) -> usize;
}

#[derive(Clone, Copy)]
pub struct Mix {
    pub name: &'static str,
    /// In percent; what is left is scans.
    pub reads: u32,
    pub updates: u32,
    pub inserts: u32,
}

pub const A: Mix = Mix { name: "A: 50 % reads, 50 % updates", reads: 50, updates: 50, inserts: 0 };
pub const B: Mix = Mix { name: "B: 95 % reads, 5 % updates", reads: 95, updates: 5, inserts: 0 };
pub const C: Mix = Mix { name: "C: reads", reads: 100, updates: 0, inserts: 0 };
pub const E: Mix = Mix { name: "E: 95 % scans of 1–100, 5 % inserts", reads: 0, updates: 0, inserts: 5 };

/// Spreads records over the key space, as YCSB does.
pub fn key(record: u64) -> [u8; 16] {
    let mut hash = record.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^= hash >> 32;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&hash.to_be_bytes());
    key[8..].copy_from_slice(&record.to_be_bytes());
    key
}

/// Keys in the order of the records.
pub fn ordered_key(record: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&record.to_be_bytes());
    key
}

/// Half of it repeats, half does not.
pub fn fill(value: &mut [u8], random: &mut SmallRng) {
    let half = value.len() / 2;
    random.fill(&mut value[..half]);
}

/// The record of a rank of popularity, 0 the first.
fn record_of(rank: u64, plan: &Plan) -> u64 {
    if plan.scattered { rank.wrapping_mul(0x5851_F42D_4C95_7F2D) % plan.records } else { rank }
}

/// Loads `records` in batches of `batch`; returns the rate in records a second.
pub fn load(store: &dyn Store, key: fn(u64) -> [u8; 16], records: u64, batch: u64, durable: bool) -> Run {
    let mut random = SmallRng::seed_from_u64(1);
    let mut value = vec![b'x'; VALUE];
    let mut latencies = histogram();
    let started = Instant::now();
    let mut record = 0;
    while record < records {
        fill(&mut value, &mut random);
        let keys: Vec<[u8; 16]> = (record..records.min(record + batch)).map(key).collect();
        let pairs: Vec<_> = keys.iter().map(|key| (*key, value.as_slice())).collect();
        let before = Instant::now();
        store.insert(&pairs, durable);
        latencies.record(before.elapsed().as_nanos() as u64).expect("it grows as needed");
        record += batch;
    }
    run_of(records, started.elapsed(), &latencies)
}

fn run_of(operations: u64, took: Duration, latencies: &Histogram<u64>) -> Run {
    let micros = |q| latencies.value_at_quantile(q) as f64 / 1000.0;
    Run { rate: operations as f64 / took.as_secs_f64(), p50: micros(0.5), p99: micros(0.99) }
}

/// How a workload is run.
#[derive(Clone, Copy)]
pub struct Plan {
    pub records: u64,
    pub threads: u64,
    pub zipf: f64,
    pub durable: bool,
    /// Popular records are no neighbours.
    pub scattered: bool,
    /// Keys follow the records' numbers.
    pub ordered: bool,
    /// Operations are counted for so long.
    pub time: Duration,
}

pub fn run(store: &dyn Store, mix: Mix, plan: Plan, seed: u64) -> Run {
    let next_record = AtomicU64::new(plan.records + (seed << 32));
    let results: Vec<(u64, Histogram<u64>)> = std::thread::scope(|threads| {
        let handles: Vec<_> = (0..plan.threads)
            .map(|thread| {
                let next_record = &next_record;
                threads.spawn(move || one_thread(store, mix, plan, next_record, seed * 100 + thread))
            })
            .collect();
        handles.into_iter().map(|h| h.join().expect("a client thread ended well")).collect()
    });
    let mut latencies = histogram();
    results.iter().for_each(|(_, one)| latencies.add(one).expect("same bounds"));
    run_of(results.iter().map(|(n, _)| n).sum(), plan.time, &latencies)
}

fn one_thread(store: &dyn Store, mix: Mix, plan: Plan, next_record: &AtomicU64, seed: u64) -> (u64, Histogram<u64>) {
    let mut random = SmallRng::seed_from_u64(seed);
    let zipf = Zipf::new(plan.records as f64, plan.zipf).expect("a valid exponent");
    let mut latencies = histogram();
    let (mut value, mut into) = (vec![b'y'; VALUE], Vec::new());
    let until = Instant::now() + plan.time;
    let mut count = 0;
    loop {
        let before = Instant::now();
        if before >= until {
            return (count, latencies);
        }
        let record = record_of(zipf.sample(&mut random) as u64 - 1, &plan);
        let key = |record| if plan.ordered { ordered_key(record) } else { key(record) };
        let dice = random.random_range(0..100);
        if dice < mix.reads {
            assert!(store.get(&key(record), &mut into) && into.len() == VALUE, "record {record} is there");
        } else if dice < mix.reads + mix.updates {
            fill(&mut value, &mut random);
            store.put(&[(key(record), &value)], plan.durable);
        } else if dice < mix.reads + mix.updates + mix.inserts {
            fill(&mut value, &mut random);
            let new = next_record.fetch_add(1, Ordering::Relaxed);
            store.insert(&[(key(new), &value)], plan.durable);
        } else {
            let n = random.random_range(1..=100);
            assert!(store.scan(&key(record), n) > 0, "a scan from record {record} finds it");
        }
        latencies.record(before.elapsed().as_nanos() as u64).expect("it grows as needed");
        count += 1;
    }
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three digits");
    histogram.auto(true);
    histogram
}
