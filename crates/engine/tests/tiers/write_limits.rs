//! Write limits of a table: its own writers are throttled to them, others are not, and the limits yield when the log needs room.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Parts;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_engine::WritesSeen;
use terrace_engine::config::{Bytes, Config};
use terrace_engine::table::catalog::rules::TableRules;
use terrace_sim::{SimStore, SimWorld};
use terrace_tier::limits::quota::{Limit, TableRule};
use terrace_tier::objects::object::codec::Codec;

const SECOND: u64 = 1_000_000_000;

struct Rig {
    sim: SimWorld,
    engine: Arc<Engine>,
    /// One with a limit, one without.
    limited: Arc<Table>,
    free: Arc<Table>,
}

impl Rig {
    fn new(
        log: Bytes,
        object_buffer: Bytes,
        store: Option<Arc<SimStore>>,
        sim: SimWorld,
        rule: TableRule,
    ) -> Rig {
        let memory = Bytes(12 << 20);
        let config = Config { memory, log, object_buffer, compression: Codec::None, ..Config::default() };
        let store = store.map(|store| store as Arc<dyn terrace_io::store::ObjectStore>);
        let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store };
        let engine = Engine::open(config, parts).unwrap();
        let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
        let def = TableDef { indexes, properties: Vec::new() };
        let [limited, free] = ["d/limited", "d/free"].map(|name| engine.create_table(name, &def).unwrap());
        engine.set_table_rules("d/limited", TableRules { rule, ..TableRules::default() }, None).unwrap();
        Rig { sim, engine, limited, free }
    }

    fn now(&self) -> u64 {
        self.sim.world().clock.now()
    }

    /// Inserts rows of a kilobyte, in scattered order, ten a transaction. Returns how long all took, and the longest transaction.
    fn load(&self, table: &Arc<Table>, rows: std::ops::Range<u64>) -> (u64, u64) {
        self.load_by(table, rows, |n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn load_by(
        &self,
        table: &Arc<Table>,
        rows: std::ops::Range<u64>,
        key: impl Fn(u64) -> u64,
    ) -> (u64, u64) {
        let (since, mut longest) = (self.now(), 0);
        let rows: Vec<u64> = rows.collect();
        for some in rows.chunks(10) {
            let began = self.now();
            let txn = self.engine.begin(Isolation::ReadCommitted);
            for n in some {
                let key = key(*n).to_be_bytes();
                txn.insert(table, &key, &[7; 1000], &[]).unwrap();
            }
            txn.commit().unwrap().wait().unwrap();
            longest = longest.max(self.now() - began);
            // Gives the other workers time: in the simulation they otherwise run only while a thread waits.
            self.sim.clock.advance(1_000_000);
            self.sim.sched.run_some(8);
        }
        (self.now() - since, longest)
    }

    fn writes(&self) -> WritesSeen {
        self.engine.rules().into_iter().find(|rule| rule.table == "d/limited").unwrap().writes
    }

    fn flushed(&self) -> u64 {
        self.engine.core().storage.flusher.counters.pages.load(Ordering::Relaxed)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.engine.core().storage.stop();
    }
}

fn volume(requests: u64) -> TableRule {
    TableRule { volume_writes: Limit { requests, bytes: 0 }, ..TableRule::default() }
}

#[test]
fn writers_of_a_limited_table_are_throttled_to_its_limit_and_no_others() {
    let rig = Rig::new(Bytes(256 << 20), Bytes(256 << 20), None, SimWorld::new(1), volume(200));
    let (took, longest) = rig.load(&rig.limited, 0..6_000);
    let (flushed, seen) = (rig.flushed(), rig.writes());
    println!("{flushed} pages in {took} ns, the longest transaction {longest}: {seen:?}");
    assert!(flushed > 1000 && seen.waits > 0 && seen.pages_held > 0, "{flushed} {seen:?}");
    assert!(seen.over < flushed / 20, "its limit yields to its own writers: {seen:?}");
    assert!(took > flushed * 9 / 10 * SECOND / 200, "{flushed} pages in {took} ns");
    assert!(longest < 2 * SECOND, "no writer stands still: {longest}");
    // The other's pages pass by those that are held.
    let (took, longest) = rig.load(&rig.free, 0..6_000);
    println!("the other: {took} ns, the longest {longest}: {:?}", rig.writes());
    assert!(took < 5 * SECOND && longest < SECOND / 10, "{took} {longest}");
    assert!(rig.flushed() > flushed + 500);
}

#[test]
fn a_write_limit_blocks_neither_log_space_nor_a_requested_checkpoint() {
    let rig = Rig::new(Bytes(8 << 20), Bytes(256 << 20), None, SimWorld::new(2), volume(1));
    rig.load(&rig.limited, 0..1000);
    let before = rig.writes();
    let (took, longest) = rig.load(&rig.free, 0..30_000);
    println!("{took} ns, the longest {longest}: {:?}", rig.writes());
    assert!(rig.writes().over > before.over, "the log was filled several times: {:?}", rig.writes());
    assert!(longest < SECOND, "{longest}");
    rig.load(&rig.limited, 1000..1200);
    let since = rig.now();
    rig.engine.core().storage.checkpoint().unwrap();
    assert!(rig.now() - since < SECOND, "{} ns", rig.now() - since);
    assert_eq!(rig.engine.core().storage.pages.pool().dirty_frames(), 0);
    rig.load(&rig.limited, 1200..1400);
    let since = rig.now();
    rig.engine.shutdown().unwrap();
    assert!(rig.now() - since < 2 * SECOND, "an orderly end does not wait: {} ns", rig.now() - since);
}

#[test]
fn a_commit_that_is_killed_waits_for_no_limit() {
    let rig = Rig::new(Bytes(64 << 20), Bytes(256 << 20), None, SimWorld::new(4), volume(1));
    for prepares in [false, true] {
        let txn = rig.engine.begin(Isolation::ReadCommitted);
        txn.insert(&rig.limited, &[u8::from(prepares)], &[7; 500_000], &[]).unwrap();
        txn.cancel_handle().cancel();
        let since = rig.now();
        if prepares {
            txn.prepare(b"x").unwrap();
        }
        txn.commit().unwrap().wait().unwrap();
        assert!(rig.now() - since < SECOND, "{} ns", rig.now() - since);
    }
    assert!(rig.writes().over > 50, "{:?}", rig.writes());
}

#[test]
fn a_store_limit_throttles_writers_that_fill_the_object_buffer_before_it_yields() {
    let sim = SimWorld::new(3);
    let store = sim.store("store");
    let rule = TableRule { object_writes: Limit { requests: 2, bytes: 0 }, ..TableRule::default() };
    let rig = Rig::new(Bytes(64 << 20), Bytes(24 << 20), Some(store), sim, rule);
    let (took, longest) = rig.load_by(&rig.limited, 0..60_000, |n| n);
    let sunk =
        rig.engine.core().storage.cold.as_ref().unwrap().sinker.counters.blocks.load(Ordering::Relaxed);
    let seen = rig.writes();
    println!("{sunk} blocks in {took} ns, the longest {longest}: {seen:?}");
    assert!(sunk > 15 && seen.waits > 0, "{sunk} {seen:?}");
    assert!(seen.over <= sunk / 5, "{sunk} blocks: {seen:?}");
    assert!(took > sunk * 8 / 10 * SECOND / 2, "{sunk} blocks in {took} ns");
    assert!(longest < 5 * SECOND, "{longest}");
}
