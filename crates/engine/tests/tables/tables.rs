//! Many tables in little memory, and definitions longer than a page's entry.

use std::path::PathBuf;
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Error;
use terrace_engine::IndexDef;
use terrace_engine::Isolation;
use terrace_engine::Parts;
use terrace_engine::TableDef;
use terrace_engine::config::{Bytes, Config};
use terrace_io::real::{disk::RealDisk, world};

struct Rig {
    directory: PathBuf,
    engine: Option<Arc<Engine>>,
}

impl Rig {
    fn new(name: &str) -> Rig {
        let directory = std::env::temp_dir().join(format!("terrace-tables-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let mut rig = Rig { directory, engine: None };
        rig.start();
        rig
    }

    fn start(&mut self) {
        self.stop();
        let volume = Arc::new(RealDisk::open(&self.directory).unwrap());
        let config = Config {
            memory: Bytes(16 << 20),
            log: Bytes(64 << 20),
            object_buffer: Bytes(1 << 30),
            ..Config::default()
        };
        self.engine =
            Some(Engine::open(config, Parts { world: world(), volume, flash: None, store: None }).unwrap());
    }

    fn stop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.core().storage.stop();
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        self.engine.as_ref().unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn def(indexes: usize, name_len: usize) -> TableDef {
    let index = |at: usize| IndexDef { name: format!("{at:0name_len$}"), unique: at == 0 };
    TableDef { indexes: (0..indexes).map(index).collect(), properties: b"properties".to_vec() }
}

/// The memory of open tables beside pages is bounded, too: unused tables are closed.
#[test]
fn thousands_of_tables_fit_in_little_memory() {
    let rig = Rig::new("thousands");
    let engine = rig.engine();
    let used = engine.create_table("d/used", &def(1, 1)).unwrap();
    let id = used.next_row_id().unwrap();
    for n in 0..1500 {
        let name = format!("d/t{n}");
        let table = engine.create_table(&name, &def(2, 1)).unwrap();
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.insert(&table, &[1], b"row", &[]).unwrap();
        txn.commit().unwrap();
    }
    assert_eq!(used.next_row_id().unwrap(), id + 1, "a table in use stays open");
    assert!(Arc::ptr_eq(&used, &engine.open_table("d/used").unwrap()));
    for n in [0, 700, 1499] {
        let table = engine.open_table(&format!("d/t{n}")).unwrap();
        assert_eq!(table.estimate().rows, 1, "the count of rows outlives the closing");
    }
    for n in 0..1500 {
        engine.drop_table(&format!("d/t{n}")).unwrap();
    }
    assert_eq!(engine.list_tables(), ["d/used"]);
}

#[test]
fn a_definition_longer_than_an_entry_is_kept_renamed_and_dropped() {
    let mut rig = Rig::new("long");
    let long = def(65, 190);
    rig.engine().create_table("d/long", &long).unwrap();
    rig.engine().create_table("d/short", &def(1, 1)).unwrap();
    rig.engine().rename_table("d/long", "d/longer").unwrap();
    rig.engine().truncate_tables(&["d/longer"]).unwrap();
    rig.start();
    assert_eq!(rig.engine().list_tables(), ["d/longer", "d/short"]);
    let table = rig.engine().open_table("d/longer").unwrap();
    assert_eq!(table.def(), &long);
    let taken = rig.engine().create_table("d/longer", &long);
    assert!(matches!(taken, Err(Error::Exists(_))));
    drop(table);
    rig.engine().drop_table("d/longer").unwrap();
    rig.start();
    assert_eq!(rig.engine().list_tables(), ["d/short"]);
}
