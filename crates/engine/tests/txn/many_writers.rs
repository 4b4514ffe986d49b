//! Each transaction that has written holds a stream of undo records until it ends: how many streams there are, how transactions wait for one,
//! and what idle streams hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::Txn;
use terrace_engine::config::{Bytes, Config};
use terrace_sim::{SimDisk, SimWorld};

/// As docs/from-innodb.md has it.
const WRITERS: u32 = 1000;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn opened(volume: &Arc<SimDisk>, memory: u64) -> Arc<Engine> {
    let config = Config {
        memory: Bytes(memory),
        log: Bytes(32 << 20),
        object_buffer: Bytes(64 << 20),
        ..Config::default()
    };
    let (world, volume) = (terrace_io::real::world(), volume.clone());
    Engine::open(config, Parts { world, volume, flash: None, store: None }).unwrap()
}

fn made(engine: &Engine) -> Arc<Table> {
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap()
}

fn written(engine: &Engine, table: &Table, n: u32) -> Arc<Txn> {
    let txn = engine.begin(Isolation::ReadCommitted);
    txn.insert(table, &key(n), &[7], &[]).unwrap();
    txn
}

fn ended(txn: Arc<Txn>) {
    txn.commit().unwrap().wait().unwrap();
}

/// A waiting transaction gave up after 600 wake-ups, and each stream that was released woke all of them.
#[test]
fn a_wait_for_an_undo_stream_ends_after_a_time_not_after_a_number_of_released_streams() {
    let volume = SimWorld::new(1).disk("volume");
    let engine = opened(&volume, 128 << 20);
    let table = made(&engine);
    let mut open: Vec<Arc<Txn>> = (0..WRITERS).map(|n| written(&engine, &table, n)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ended(written(&engine, &table, u32::MAX));
            done.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!done.load(Ordering::SeqCst), "it had no stream to write to");
        // Other transactions end and begin, and are mostly faster than the waiting one, which has to wake up first.
        for n in 0..2000 {
            ended(open.pop().unwrap());
            if done.load(Ordering::SeqCst) {
                break;
            }
            open.push(written(&engine, &table, WRITERS + n));
        }
    });
    assert!(done.load(Ordering::SeqCst));
}

/// Each idle stream kept its last page in memory: what once had many writers could not start with little memory again.
#[test]
fn idle_streams_do_not_hold_the_memory() {
    let volume = SimWorld::new(2).disk("volume");
    let engine = opened(&volume, 128 << 20);
    let table = made(&engine);
    let open: Vec<Arc<Txn>> = (0..WRITERS).map(|n| written(&engine, &table, n)).collect();
    open.into_iter().for_each(ended);
    drop(table);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = opened(&volume, 10 << 20);
    let table = engine.open_table("db/t").unwrap();
    let (txn, mut row) = (engine.begin(Isolation::ReadCommitted), Vec::new());
    for n in 0..WRITERS {
        assert!(txn.get(&table, &key(n), Lock::None, &mut row).unwrap(), "row {n}");
    }
    drop(txn);
    for n in 0..100 {
        ended(written(&engine, &table, WRITERS + n));
    }
}
