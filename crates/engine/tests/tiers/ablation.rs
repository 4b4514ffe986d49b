//! Each ablation switch: without its mechanism nothing of it is done, all others work, and rows are the same. Mechanisms that show only
//! under high concurrency have tests of their own.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::Access;
use terrace_engine::Engine;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::config::{Bytes, Config};
use terrace_io::random::Random;
use terrace_tier::ablation::{Mechanism, Without};

const ROWS: u64 = 12_000;

/// Mechanisms, and the status counter that shows their work.
const SHOWN: [(Mechanism, &str); 6] = [
    (Mechanism::CleanCopies, "reads_volume_clean"),
    (Mechanism::Prefetch, "pool_read_ahead"),
    (Mechanism::FlashForTheStore, "flash_left_on_volume"),
    (Mechanism::WarmFlash, "flash_pages_restored"),
    (Mechanism::Pacing, "slot_writer_waits"),
    (Mechanism::Patches, "sink_patches"),
];

/// `shared_misses.rs`, the last test here (and `tier/src/objects/sink/policy/tests.rs`), `src/lock/tests/lines.rs`, `write_throttle.rs`, and `tier/tests/flash_path.rs` and
/// `tier/tests/prefetch.rs`.
const ELSEWHERE: [Mechanism; 7] = [
    Mechanism::SharedMisses,
    Mechanism::Deferral,
    Mechanism::LockOrder,
    Mechanism::BulkThrottle,
    Mechanism::SingleFlight,
    Mechanism::VectoredReads,
    Mechanism::KeptCopies,
];

struct Run {
    on: Machine,
    without: Without,
    /// Versions of the rows.
    rows: BTreeMap<[u8; 8], u8>,
    seen: BTreeMap<String, u64>,
}

/// Anywhere among the others.
fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn table(engine: &Engine, name: &str) -> Arc<Table> {
    engine.create_table(name, &kit::primary()).unwrap()
}

impl Run {
    fn new(without: Without) -> Run {
        let on = Machine::new(1).and_flash().and_store();
        on.store().faults.delay.store(50_000_000, Ordering::SeqCst);
        // One that waits for flash has the memory that the next would wait for.
        on.sim.sched.one_at_a_time("sinker");
        Run { on, without, rows: BTreeMap::new(), seen: BTreeMap::new() }
    }

    fn config(&self) -> Config {
        Config {
            sink_after_ms: 10_000,
            flash: Bytes(4 << 20),
            without: self.without,
            ..kit::config(10 << 20, 16 << 20, 8 << 20)
        }
    }

    fn open(&self) -> (Arc<Engine>, Arc<Table>) {
        let engine = self.engine(self.config());
        let table = engine.open_table("db/t").unwrap_or_else(|_| table(&engine, "db/t"));
        (engine, table)
    }

    fn engine(&self, config: Config) -> Arc<Engine> {
        self.on.open(config).unwrap()
    }

    /// Puts or changes these rows, a few in each transaction.
    fn put(&mut self, engine: &Engine, table: &Table, rows: impl Iterator<Item = u64>, version: u8) {
        for few in rows.collect::<Vec<_>>().chunks(4) {
            let txn = engine.begin(Isolation::ReadCommitted);
            for key in few.iter().map(|n| key(*n)) {
                match self.rows.insert(key, version) {
                    None => txn.insert(table, &key, &[version; 1000], &[]).unwrap(),
                    Some(_) => txn.update(table, &key, &[version; 1000], &[], &[]).unwrap(),
                }
            }
            txn.commit().unwrap().wait().unwrap();
        }
    }

    fn read(&self, engine: &Engine, table: &Table, count: u64) {
        let (txn, mut row) = (engine.begin(Isolation::ReadCommitted), Vec::new());
        for _ in 0..count {
            let key = key(self.on.sim.random.below(ROWS));
            assert!(txn.get(table, &key, Lock::None, &mut row).unwrap() && row == [self.rows[&key]; 1000]);
            self.on.sim.sched.run_some(2);
        }
    }

    fn scan(&self, engine: &Engine, table: &Arc<Table>) {
        let txn = engine.begin(Isolation::ReadCommitted);
        let mut cursor = txn.cursor(table, 0, Lock::None, Access::Scan).unwrap();
        let (mut valid, mut row) = (cursor.seek(&[], Seek::First).unwrap(), Vec::new());
        for (key, version) in &self.rows {
            assert!(valid && cursor.primary_key() == key);
            cursor.row(&mut row).unwrap();
            assert!(row == [*version; 1000]);
            valid = cursor.next().unwrap();
        }
        assert!(!valid);
    }

    fn sink(&self, engine: &Engine) {
        engine.core().storage.checkpoint().unwrap();
        let waiting = || engine.status().into_iter().find(|(n, _)| n == "sink_blocks_waiting").unwrap().1;
        while waiting() > 1 {
            self.on.sim.clock.advance(1_000_000_000);
            self.on.sim.sched.run_some(50);
        }
    }

    fn close(&mut self, engine: Arc<Engine>, table: Arc<Table>) {
        for (name, value) in engine.status() {
            *self.seen.entry(name).or_default() += value;
        }
        drop(table);
        engine.shutdown().unwrap();
    }
}

/// What the status said in the end of two lives in which each mechanism has work.
fn seen(without: Without) -> BTreeMap<String, u64> {
    let mut run = Run::new(without);
    let (engine, table) = run.open();
    run.put(&engine, &table, 0..ROWS, 1);
    run.sink(&engine);
    // What sank has left copies in its slots. Flash becomes full.
    run.read(&engine, &table, 4000);
    // A few pages of each block.
    run.put(&engine, &table, (0..ROWS).step_by(1000), 2);
    run.sink(&engine);
    // Pages of the volume leave memory.
    run.put(&engine, &table, (0..ROWS).step_by(60), 3);
    engine.core().storage.checkpoint().unwrap();
    run.read(&engine, &table, 4000);
    run.scan(&engine, &table);
    run.close(engine, table);
    let (engine, table) = run.open();
    run.on.sim.sched.run_some(1000);
    run.scan(&engine, &table);
    run.close(engine, table);
    run.seen
}

#[test]
fn an_ablated_mechanism_does_nothing_and_the_others_still_work() {
    let all = Mechanism::NAMES.map(|(_, one)| one).into_iter().fold(Without::default(), Without::and);
    let tested =
        SHOWN.map(|(one, _)| one).into_iter().chain(ELSEWHERE).fold(Without::default(), Without::and);
    assert_eq!(tested, all, "one has no test");
    for out in [None].into_iter().chain(SHOWN.map(|(one, _)| Some(one))) {
        let seen = seen(out.into_iter().fold(Without::default(), Without::and));
        let counts = SHOWN.map(|(one, name)| (one, name, seen[name]));
        println!("without {out:?}: {counts:?}");
        for (one, name, count) in counts {
            assert_eq!(count > 0, out != Some(one), "without {out:?}: {name} is {count}");
        }
    }
}

/// Blocks that sank while others filled the object buffer and the pages of one were written again and again.
fn sunk(without: Without) -> u64 {
    let mut run = Run::new(without);
    let engine = run.engine(Config { sink_after_ms: 3_600_000, ..run.config() });
    let (cold, hot) = (table(&engine, "db/cold"), table(&engine, "db/hot"));
    for round in 0..24 {
        run.put(&engine, &hot, ROWS..ROWS + 1400, round as u8);
        engine.core().storage.checkpoint().unwrap();
        run.put(&engine, &cold, 400 * round..400 * (round + 1), 1);
        engine.core().storage.checkpoint().unwrap();
        run.on.sim.sched.run_some(200);
    }
    let sunk = engine.status().into_iter().find(|(name, _)| name == "sink_blocks_by_watermark").unwrap().1;
    drop((cold, hot));
    engine.shutdown().unwrap();
    sunk
}

#[test]
fn blocks_written_again_and_again_sink_later() {
    let [deferred, not] = [Without::default(), Without::default().and(Mechanism::Deferral)].map(sunk);
    println!("blocks sunk: {deferred}, without deferral {not}");
    assert!(deferred > 0 && 10 * deferred < 9 * not, "{deferred} and {not}");
}
