//! Writers that are faster than purge are throttled until purge keeps up, but not for history that a reader holds back.
//! In the simulation workers run only while a thread waits, so here purge runs only during the writers' waits.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_engine::Engine;
use terrace_engine::Isolation;
use terrace_engine::Table;
use terrace_engine::config::Config;

const ROWS: u64 = 50;
const LAG_MAX: u64 = 2000;

struct Rig {
    engine: Arc<Engine>,
    table: Arc<Table>,
}

impl Rig {
    fn new(seed: u64, purge_lag_max: usize) -> Rig {
        let config = Config { purge_lag_max, ..kit::config(16 << 20, 64 << 20, 256 << 20) };
        let engine = Machine::new(seed).open(config).unwrap();
        let table = engine.create_table("d/t", &kit::primary()).unwrap();
        let txn = engine.begin(Isolation::ReadCommitted);
        (0..ROWS).for_each(|key| txn.insert(&table, &key.to_be_bytes(), b"first", &[]).unwrap());
        txn.commit().unwrap().wait().unwrap();
        Rig { engine, table }
    }

    /// Makes `count` changes, ten in a transaction. Returns the highest lag after a commit.
    fn changes(&self, count: u64) -> u64 {
        let mut most = 0;
        for n in 0..count / 10 {
            let txn = self.engine.begin(Isolation::ReadCommitted);
            for key in 0..10 {
                txn.update(&self.table, &((n * 10 + key) % ROWS).to_be_bytes(), &n.to_be_bytes(), &[], &[])
                    .unwrap();
            }
            txn.commit().unwrap();
            most = most.max(self.engine.core().purge_lag());
        }
        most
    }
    fn waits(&self) -> u64 {
        self.engine.core().purge.throttle.waits.load(Ordering::Relaxed)
    }
}

#[test]
fn writers_are_throttled_while_purge_lags() {
    for seed in 1..=3 {
        let rig = Rig::new(seed, LAG_MAX as usize);
        let most = rig.changes(20_000);
        println!("seed {seed}: a lag of {most} at most, {} waits", rig.waits());
        let status = rig.engine.status();
        let shown = |name: &str| status.iter().find(|(n, _)| n == name).unwrap().1;
        assert_eq!(
            (shown("purge_writer_waits"), shown("purge_lag")),
            (rig.waits(), rig.engine.core().purge_lag())
        );
        assert!(shown("purge_writer_wait_microseconds") > 0 && shown("history_length") > 0);
        assert!(
            rig.waits() > 0 && most > LAG_MAX && most < 2 * LAG_MAX,
            "seed {seed}: {most}, {} waits",
            rig.waits()
        );
        rig.engine.core().storage.stop();
        // Without it nothing keeps the history from growing.
        let rig = Rig::new(seed, 0);
        let most = rig.changes(20_000);
        assert!(rig.waits() == 0 && most > 5 * LAG_MAX, "seed {seed}: {most}");
        rig.engine.core().storage.stop();
    }
}

#[test]
fn history_that_a_reader_holds_back_throttles_no_writer() {
    let rig = Rig::new(4, LAG_MAX as usize);
    let reader = rig.engine.begin(Isolation::RepeatableRead);
    reader.open_view();
    let most = rig.changes(20_000);
    let history = rig.engine.core().purge.history.lock().len();
    assert!(
        history >= 2000 && most == 0 && rig.waits() == 0,
        "{history} in history, lag {most}, {} waits",
        rig.waits()
    );
    reader.commit().unwrap();
    assert!(rig.changes(5_000) > LAG_MAX && rig.waits() > 0);
    rig.engine.core().storage.stop();
}
