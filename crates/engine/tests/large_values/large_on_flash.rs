//! Large values that are replaced again and again get new pages each time, and no session has read those when their block sinks. Flash admits them
//! all the same, because their row was used; it does not admit the pages of rows that were only inserted.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Row;
use terrace_engine::Table;
use terrace_engine::config::{Bytes, Config};

const KEYS: u32 = 40;
const PAGES: u64 = 5;
const NO_ENTRY: [Entry<'static>; 0] = [];

fn value(key: u32, serial: u32) -> Vec<u8> {
    (0..65_536u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(key * 7919 + serial) >> 11) as u8)
        .collect()
}

struct Run {
    on: Machine,
    engine: Arc<Engine>,
    table: Arc<Table>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let on = Machine::new(seed).and_flash().and_store();
        let config = Config { flash: Bytes(8 << 20), ..kit::config(10 << 20, 8 << 20, 64 << 20) };
        let engine = on.open(config).unwrap();
        let table = engine.create_table("db/t", &kit::primary()).unwrap();
        Run { on, engine, table }
    }

    fn pause(&self) {
        self.on.pass(4, 10_000_000, 200);
    }

    fn put(&self, key: u32, serial: u32) {
        let (txn, new) = (self.engine.begin(Isolation::RepeatableRead), value(key, serial));
        match serial {
            0 => txn.insert(&self.table, &key.to_be_bytes(), Row::from(&new), &NO_ENTRY).unwrap(),
            _ => txn.update(&self.table, &key.to_be_bytes(), Row::from(&new), &NO_ENTRY, &NO_ENTRY).unwrap(),
        }
        txn.commit().unwrap().wait().unwrap();
        self.pause();
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        self.engine.status().into_iter().collect()
    }

    /// Everything sinks, and leaves memory.
    fn sink(&self) {
        let storage = &self.engine.core().storage;
        (0..20).for_each(|_| self.pause());
        storage.checkpoint().unwrap();
        storage.cold.clone().unwrap().sinker.sink_all().unwrap();
        storage.map.keep_clean_copies(0);
        (0..20).for_each(|_| self.pause());
    }

    /// Pages that come from the store and from flash when these rows are read.
    fn read(&self, keys: std::ops::Range<u32>, serial: u32) -> (u64, u64) {
        let before = self.counts();
        let (txn, mut row) = (self.engine.begin(Isolation::RepeatableRead), Vec::new());
        for key in keys {
            assert!(txn.get(&self.table, &key.to_be_bytes(), Lock::None, &mut row).unwrap());
            assert!(row == value(key, serial));
        }
        let after = self.counts();
        let more = |name: &str| after[name] - before[name];
        (more("reads_object"), more("reads_flash"))
    }
}

#[test]
fn a_value_that_replaces_another_is_on_flash_when_its_block_sinks() {
    let run = Run::new(9);
    // While flash has room it admits every page.
    for key in 10 * KEYS..14 * KEYS {
        run.put(key, 0);
    }
    run.sink();
    for key in 0..KEYS {
        run.put(key, 0);
    }
    for key in 0..KEYS / 2 {
        run.put(key, 1);
    }
    for key in KEYS..3 * KEYS {
        run.put(key, 0); // the others leave memory
    }
    run.sink();
    let (far, near) = run.read(0..KEYS / 2, 1);
    assert!(
        far < 5 && near >= u64::from(KEYS / 2) * PAGES - 10,
        "{far} pages from the store, {near} from flash"
    );
    let (far, near) = run.read(KEYS / 2..KEYS, 0);
    assert!(far > u64::from(KEYS / 2) * (PAGES - 1), "{far} pages from the store, {near} from flash");
}
