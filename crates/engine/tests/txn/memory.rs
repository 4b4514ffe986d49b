//! One long reader, and endless commits behind it: the memory that the engine keeps for them does not grow with their
//! number, the reader's view does not change, and afterwards purge removes the whole history.
//!
//! `TERRACE_COMMITS` sets how many commits there are (default 100,000; the promise is about millions).

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_io::real::{disk::RealDisk, world};

/// Counts what is allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROWS: u64 = 1000;
const WRITERS: u64 = 4;
/// What commits behind a reader may take in all, in bytes, beside what the engine takes anyway: pages of the pool that
/// are written for the first time, log buffers, the map of the undo pages.
const GROWTH_MAX: usize = 2 << 20;

fn commits() -> u64 {
    std::env::var("TERRACE_COMMITS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000)
}

fn row(key: u64, version: u64) -> [u8; 16] {
    let mut row = [0; 16];
    row[..8].copy_from_slice(&key.to_be_bytes());
    row[8..].copy_from_slice(&version.to_be_bytes());
    row
}

/// The rows that a transaction sees, added up.
fn sum(txn: &Arc<Txn>, table: &Arc<Table>) -> (u64, u64) {
    let mut cursor = txn.cursor(table, 0, Lock::None, Access::Scan).unwrap();
    let (mut count, mut sum) = (0, 0);
    let mut valid = cursor.seek(&[], Seek::First).unwrap();
    while valid {
        count += 1;
        sum += u64::from_be_bytes(cursor.value()[8..16].try_into().unwrap());
        valid = cursor.next().unwrap();
    }
    (count, sum)
}

/// Commits that change a row each, some of them two in a transaction that is rolled back in between.
fn write(engine: &Arc<Engine>, table: &Arc<Table>, writer: u64, count: u64) {
    for n in 0..count {
        let key = (n * WRITERS + writer) % ROWS;
        let txn = engine.begin(Isolation::ReadCommitted);
        txn.update(table, &key.to_be_bytes(), &row(key, n + 2), &[], &[]).unwrap();
        if n % 100 == 99 {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
        }
    }
}

#[test]
fn commits_behind_a_long_reader_take_no_memory() {
    let directory = std::env::temp_dir().join(format!("terrace-memory-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let volume = Arc::new(RealDisk::open(&directory).unwrap());
    // Undo stays in memory, so that the pages' own table grows at once.
    let config = Config {
        memory: Bytes(64 << 20),
        log: Bytes(64 << 20),
        object_buffer: Bytes(64 << 30),
        ..Config::default()
    };
    let engine = Engine::open(config, Parts { world: world(), volume, flash: None, store: None }).unwrap();
    let def =
        TableDef { indexes: vec![IndexDef { name: "PRIMARY".into(), unique: true }], properties: Vec::new() };
    let table = engine.create_table("d/t", &def).unwrap();
    let txn = engine.begin(Isolation::ReadCommitted);
    (0..ROWS).for_each(|key| txn.insert(&table, &key.to_be_bytes(), &row(key, 1), &[]).unwrap());
    txn.commit().unwrap().wait().unwrap();
    let writers = |count: u64| {
        std::thread::scope(|scope| {
            let (engine, table) = (&engine, &table);
            (0..WRITERS)
                .for_each(|writer| _ = scope.spawn(move || write(engine, table, writer, count / WRITERS)));
        });
    };
    let reader = engine.begin(Isolation::RepeatableRead);
    let seen = sum(&reader, &table);
    assert_eq!(seen, (ROWS, ROWS));
    // What grows once only.
    writers(commits() / 10);
    let before = LIVE.load(Ordering::Relaxed);
    let began = Instant::now();
    let mut most = 0;
    for part in 1..=9 {
        writers(commits() / 10);
        let grown = LIVE.load(Ordering::Relaxed).saturating_sub(before);
        most = most.max(grown);
        let core = engine.core();
        let history = core.purge.history.lock().len();
        println!(
            "{} commits, {:.1} s: {grown} bytes more, history {history}, {} transactions known, {} undo pages",
            part * commits() / 10,
            began.elapsed().as_secs_f64(),
            core.ids.known(),
            core.storage.map.counts().get(&terrace_tier::page::SpaceId::UNDO).map_or(0, |c| c.pages),
        );
        assert!(history >= part * commits() / 10 * 98 / 100, "purge took what the reader may see");
    }
    assert!(most <= GROWTH_MAX, "{most} bytes for {} commits", commits());
    let began = Instant::now();
    let late = engine.begin(Isolation::RepeatableRead);
    assert_eq!(sum(&late, &table).0, ROWS);
    late.commit().unwrap();
    if commits() <= 200_000 {
        // It traverses hundreds of versions of each row.
        assert_eq!(sum(&reader, &table), seen, "the reader sees what came after it");
    } else {
        let mut found = Vec::new();
        assert!(reader.get(&table, &7u64.to_be_bytes(), Lock::None, &mut found).unwrap());
        assert_eq!(found, row(7, 1), "the reader sees what came after it");
    }
    println!("the reader's rows: {:.1} s", began.elapsed().as_secs_f64());
    reader.commit().unwrap();
    let until = Instant::now() + Duration::from_secs(600 + commits() / 1000);
    while !engine.core().purge.history.lock().is_empty() {
        assert!(Instant::now() < until, "purge does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("purged: {:.1} s", began.elapsed().as_secs_f64());
    engine.core().storage.stop();
    drop(engine);
    let _ = std::fs::remove_dir_all(&directory);
}
