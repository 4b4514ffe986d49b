//! Very many sessions miss pages of few objects at the same time: misses that arrive while a request for the object is in flight share the next one.

#[path = "../kit/mod.rs"]
mod kit;

use kit::slow::Slow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_io::store::Purpose;
use terrace_sim::SimWorld;
use terrace_tier::ablation::{Mechanism, Without};

const SESSIONS: u32 = 250;
/// That each reads.
const ROWS: u32 = 4;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Requests for missed pages, and pages that shared another miss's request, while each session reads rows that only the store has.
fn asked(without: Without) -> (u64, u64) {
    let sim = SimWorld::new(1);
    let (store, volume) = (Slow::new(&sim, Duration::from_millis(80)), sim.disk("volume"));
    let open = || {
        let config = Config {
            memory: Bytes(64 << 20),
            log: Bytes(32 << 20),
            object_buffer: Bytes(64 << 20),
            without,
            ..Config::default()
        };
        let (world, volume, store) = (terrace_io::real::world(), volume.clone(), Some(store.clone() as _));
        Engine::open(config, Parts { world, volume, flash: None, store }).unwrap()
    };
    let engine = open();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let table = engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    for leaf in 0..SESSIONS * ROWS {
        let txn = engine.begin(Isolation::ReadCommitted);
        for n in 4 * leaf..4 * leaf + 4 {
            txn.insert(&table, &key(n), &[n as u8; 3500], &[]).unwrap();
        }
        txn.commit().unwrap().wait().unwrap();
    }
    engine.core().storage.checkpoint().unwrap();
    engine.core().storage.cold.as_ref().unwrap().sinker.sink_all().unwrap();
    drop(table);
    engine.shutdown().unwrap();
    drop(engine);
    // Memory is empty, and nothing has a copy.
    let engine = open();
    let table = engine.open_table("db/t").unwrap();
    let count = |name: &str| engine.status().into_iter().find(|(n, _)| n == name).unwrap().1;
    let before = store.store.requests(Purpose::PageMiss);
    store.slow.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let (engine, table) = (&engine, &table);
            scope.spawn(move || {
                let (txn, mut row) = (engine.begin(Isolation::ReadCommitted), Vec::new());
                for leaf in (session..SESSIONS * ROWS).step_by(SESSIONS as usize) {
                    let n = 4 * leaf;
                    assert!(txn.get(table, &key(n), Lock::None, &mut row).unwrap() && row == [n as u8; 3500]);
                }
            });
        }
    });
    store.slow.store(false, Ordering::SeqCst);
    let asked = (store.store.requests(Purpose::PageMiss) - before, count("objects_get_coalesced"));
    drop(table);
    engine.shutdown().unwrap();
    asked
}

#[test]
fn many_concurrent_misses_share_requests_unless_ablated() {
    let shared = asked(Without::default());
    let alone = asked(Without::default().and(Mechanism::SharedMisses));
    println!("{shared:?} requests and pages that came along; without it {alone:?}");
    assert!(shared.1 > 20 && alone.1 == 0, "{shared:?}, {alone:?}");
    assert!(alone.0 > shared.0, "{shared:?}, {alone:?}");
}
