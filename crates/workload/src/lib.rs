//! YCSB's workloads over any key-value store, from several threads: what `terrace bench` and the benchmarks against
//! peers run.
#![forbid(unsafe_code)]

mod terrace;

pub use terrace::Terrace;

use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The usual length of a value, in bytes.
pub const VALUE: usize = 1000;

/// What a store says of an operation that failed.
pub type Failure = String;
pub type Result<T> = std::result::Result<T, Failure>;

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Operations a second.
    pub rate: f64,
    /// Latencies in microseconds.
    pub p50: f64,
    pub p99: f64,
}

/// A key-value store as the workloads need it. Each write is a transaction of its own.
pub trait Store: Send + Sync {
    /// Sets keys, new or not. `durable`: they survive a loss of power when this returns.
    fn put(&self, pairs: &[([u8; 16], &[u8])], durable: bool) -> Result<()>;
    /// Sets keys that are new.
    fn insert(&self, pairs: &[([u8; 16], &[u8])], durable: bool) -> Result<()> {
        self.put(pairs, durable)
    }
    /// False: there is no such key.
    fn get(&self, key: &[u8; 16], into: &mut Vec<u8>) -> Result<bool>;
    /// Reads up to `n` pairs from `key` on; returns the bytes read.
    fn scan(&self, key: &[u8; 16], n: usize) -> Result<usize>;
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

/// What a load puts in.
#[derive(Clone, Copy)]
pub struct Load {
    pub key: fn(u64) -> [u8; 16],
    pub records: u64,
    /// Length of a value, in bytes.
    pub value: usize,
    /// Records of one transaction.
    pub batch: u64,
    pub durable: bool,
}

/// Puts all records in, one thread, telling `each` now and then how many are in.
pub fn load(store: &dyn Store, load: Load, mut each: impl FnMut(u64)) -> Result<Run> {
    let Load { key, records, value, batch, durable } = load;
    let mut random = SmallRng::seed_from_u64(1);
    let mut value = vec![b'x'; value];
    let mut latencies = histogram();
    let started = Instant::now();
    let mut record = 0;
    while record < records {
        fill(&mut value, &mut random);
        let keys: Vec<[u8; 16]> = (record..records.min(record + batch)).map(key).collect();
        let pairs: Vec<_> = keys.iter().map(|key| (*key, value.as_slice())).collect();
        let before = Instant::now();
        store.insert(&pairs, durable)?;
        note(&mut latencies, before);
        record += batch;
        each(record.min(records));
    }
    Ok(run_of(records, started.elapsed(), &latencies))
}

fn run_of(operations: u64, took: Duration, latencies: &Histogram<u64>) -> Run {
    let micros = |q| latencies.value_at_quantile(q) as f64 / 1000.0;
    Run { rate: operations as f64 / took.as_secs_f64(), p50: micros(0.5), p99: micros(0.99) }
}

/// How a workload is run.
#[derive(Clone, Copy)]
pub struct Plan {
    pub records: u64,
    /// Length of a value, in bytes.
    pub value: usize,
    pub threads: u64,
    /// How unevenly popular records are: the exponent of a Zipf distribution.
    pub zipf: f64,
    pub durable: bool,
    /// Popular records are no neighbours.
    pub scattered: bool,
    /// Keys follow the records' numbers.
    pub ordered: bool,
    /// Operations are counted for so long.
    pub time: Duration,
}

/// Runs the mix for the plan's time.
///
/// # Errors
/// The first operation that failed; all threads end then.
pub fn run(store: &dyn Store, mix: Mix, plan: Plan, seed: u64) -> Result<Run> {
    let next_record = AtomicU64::new(plan.records + (seed << 32));
    let failed = AtomicBool::new(false);
    let one = |thread| {
        Client { store, mix, plan, next_record: &next_record, failed: &failed }.run((seed << 32) + thread)
    };
    let results: Vec<Result<(u64, Histogram<u64>)>> = std::thread::scope(|threads| {
        let one = &one;
        let handles: Vec<_> = (0..plan.threads).map(|thread| threads.spawn(move || one(thread))).collect();
        let ended = |h: std::thread::ScopedJoinHandle<'_, _>| {
            h.join().unwrap_or(Err("a client's thread panicked".into()))
        };
        handles.into_iter().map(ended).collect()
    });
    let results = results.into_iter().collect::<Result<Vec<_>>>()?;
    let mut latencies = histogram();
    results.iter().for_each(|(_, one)| latencies.add(one).expect("it grows as needed"));
    Ok(run_of(results.iter().map(|(n, _)| n).sum(), plan.time, &latencies))
}

/// One thread of a run.
struct Client<'a> {
    store: &'a dyn Store,
    mix: Mix,
    plan: Plan,
    next_record: &'a AtomicU64,
    failed: &'a AtomicBool,
}

impl Client<'_> {
    fn run(&self, seed: u64) -> Result<(u64, Histogram<u64>)> {
        let mut random = SmallRng::seed_from_u64(seed);
        let zipf = Zipf::new(self.plan.records as f64, self.plan.zipf)
            .map_err(|e| format!("Zipf {}: {e}", self.plan.zipf))?;
        let mut latencies = histogram();
        let (mut value, mut into) = (vec![b'y'; self.plan.value], Vec::new());
        let until = Instant::now() + self.plan.time;
        let mut count = 0;
        loop {
            let before = Instant::now();
            if before >= until || self.failed.load(Ordering::Relaxed) {
                return Ok((count, latencies));
            }
            let record = record_of(zipf.sample(&mut random) as u64 - 1, &self.plan);
            let done = self.one(record, &mut random, &mut value, &mut into);
            if done.is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
            done?;
            note(&mut latencies, before);
            count += 1;
        }
    }

    fn one(&self, record: u64, random: &mut SmallRng, value: &mut [u8], into: &mut Vec<u8>) -> Result<()> {
        let (mix, plan, store) = (self.mix, self.plan, self.store);
        let key = |record| if plan.ordered { ordered_key(record) } else { key(record) };
        let dice = random.random_range(0..100);
        if dice < mix.reads {
            if !store.get(&key(record), into)? || into.len() != plan.value {
                return Err(format!("record {record} is not what was put"));
            }
        } else if dice < mix.reads + mix.updates {
            fill(value, random);
            store.put(&[(key(record), value)], plan.durable)?;
        } else if dice < mix.reads + mix.updates + mix.inserts {
            fill(value, random);
            let new = self.next_record.fetch_add(1, Ordering::Relaxed);
            store.insert(&[(key(new), value)], plan.durable)?;
        } else if store.scan(&key(record), random.random_range(1..=100))? == 0 {
            return Err(format!("a scan from record {record} found nothing"));
        }
        Ok(())
    }
}

fn note(latencies: &mut Histogram<u64>, since: Instant) {
    latencies.record(since.elapsed().as_nanos() as u64).expect("it grows as needed");
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three digits");
    histogram.auto(true);
    histogram
}
