//! Memory is shrunk while the engine holds some pages for as long as it is open.

use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Parts;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::storage::resize::Size;
use terrace_sim::SimWorld;

/// Each undo stream holds its last page. An idle stream held it in its frame: if that frame was to be given up, the resize
/// waited until a transaction wrote to that stream again.
#[test]
fn memory_shrinks_past_the_last_pages_of_idle_undo_streams() {
    let sim = SimWorld::new(7);
    let config = Config {
        memory: Bytes(24 << 20),
        log: Bytes(16 << 20),
        object_buffer: Bytes(64 << 20),
        ..Config::default()
    };
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine: Arc<Engine> = Engine::open(config, parts).unwrap();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let table = engine.create_table("d/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    let insert =
        |txn: &terrace_engine::Txn, n: u64| txn.insert(&table, &n.to_be_bytes(), &[7; 1000], &[]).unwrap();
    for n in 0..20_000 {
        let txn = engine.begin(Isolation::ReadCommitted);
        insert(&txn, n);
        txn.commit().unwrap().wait().unwrap();
    }
    let many: Vec<_> = (0..60).map(|_| engine.begin(Isolation::ReadCommitted)).collect();
    many.iter().zip(100_000..).for_each(|(txn, n)| insert(txn, n));
    for txn in many {
        txn.commit().unwrap().wait().unwrap();
    }
    engine.resize(Size::Memory, Bytes(12 << 20), &|| false).unwrap();
    let txn = engine.begin(Isolation::ReadCommitted);
    assert!(
        (100_000..100_060u64)
            .all(|n| txn.get(&table, &n.to_be_bytes(), Lock::None, &mut Vec::new()).unwrap())
    );
    assert_eq!(engine.core().storage.memory(), Bytes(12 << 20));
}
