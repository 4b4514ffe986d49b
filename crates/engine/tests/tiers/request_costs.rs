//! The monthly cost of requests to the store, extrapolated from the recent rate.

use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Parts;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::engine::inspect::info_tables::Value;
use terrace_sim::SimWorld;

const SECOND: u64 = 1_000_000_000;

/// Dollars a month for requests, of the table's statistics.
fn cost(engine: &Engine) -> f64 {
    let rows = engine.seen("table_statistics").unwrap();
    let row = rows.iter().find(|row| row[0] == Value::Table("d/t".into())).unwrap();
    let (requests, all) = (&row[row.len() - 2], &row[row.len() - 1]);
    let (Value::Real(requests), Value::Real(all)) = (requests, all) else { panic!("{row:?}") };
    assert!(all >= requests);
    *requests
}

#[test]
fn the_monthly_cost_of_requests_is_extrapolated_from_the_last_hour() {
    let sim = SimWorld::new(1);
    let config = Config {
        memory: Bytes(10 << 20),
        log: Bytes(8 << 20),
        object_buffer: Bytes(8 << 20),
        ..Config::default()
    };
    let store = Some(sim.store("store") as _);
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store };
    let engine = Engine::open(config, parts).unwrap();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let table = engine.create_table("d/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    let put = |n: u64| {
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.insert(&table, &n.to_be_bytes(), &[7; 100], &[]).unwrap();
        txn.commit().unwrap().wait().unwrap();
        engine.core().storage.checkpoint().unwrap();
        engine.core().storage.cold.as_ref().unwrap().sinker.sink_all().unwrap();
    };
    assert_eq!(cost(&engine), 0.0);
    // A put a minute: 43 800 a month, at half a cent the thousand.
    for n in 0..300 {
        put(n);
        sim.clock.advance(60 * SECOND);
        let minutes = n + 1;
        if [10, 60, 300].contains(&minutes) {
            let cost = cost(&engine);
            assert!((0.2..0.3).contains(&cost), "{cost} after {minutes} minutes");
        }
    }
    // A load counts for an hour, and not for ever; nor does what was before the idle time count any more.
    sim.clock.advance(7200 * SECOND);
    assert_eq!(cost(&engine), 0.0);
    (300..400).for_each(put);
    assert!(cost(&engine) > 0.3);
    sim.clock.advance(4000 * SECOND);
    assert_eq!(cost(&engine), 0.0);
    put(400);
    assert!((0.002..0.02).contains(&cost(&engine)), "{}", cost(&engine));
    engine.shutdown().unwrap();
}
