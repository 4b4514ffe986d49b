use super::*;
use crate::config::{Bytes, Config};
use crate::{Engine, IndexDef, Parts};
use terrace_sim::SimWorld;

/// Between finding an id's name and opening the table of that name, the name may have become another's: undo of one is
/// not undone in the other, nor given up for a table that is still there.
#[test]
fn a_table_that_was_renamed_since_is_found_by_its_id() {
    let sim = SimWorld::new(1);
    let config = Config {
        memory: Bytes(4 << 20),
        log: Bytes(8 << 20),
        log_partitions: 2,
        object_buffer: Bytes(64 << 20),
        ..Config::default()
    };
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine = Engine::open(config, parts).unwrap();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    let make =
        |name| engine.create_table(name, &TableDef { indexes: indexes.clone(), properties: Vec::new() });
    let (one, other) = (make("db/one").unwrap().id, make("db/other").unwrap().id);
    let catalog = &engine.core().catalog;
    let id_of = |name, id| catalog.open_as(name, id).unwrap().map(|table| table.id);
    assert_eq!(id_of("db/one", one), Some(one));
    engine.rename_table("db/one", "db/moved").unwrap();
    assert_eq!(id_of("db/one", one), None);
    engine.rename_table("db/other", "db/one").unwrap();
    assert_eq!(id_of("db/one", one), None);
    let found = |id| catalog.by_id(id).unwrap().map(|table| table.name());
    assert_eq!((found(one).as_deref(), found(other).as_deref()), (Some("db/moved"), Some("db/one")));
    engine.drop_table("db/moved").unwrap();
    assert_eq!(found(one), None);
}

/// Who read a table's headers before it was opened, changed and closed by others knows it by the number of the opening: that of the
/// first one since the start, too.
#[test]
fn the_first_opening_is_told_from_none() {
    let sim = SimWorld::new(2);
    let disk = sim.disk("volume");
    let open = || {
        let config = Config { memory: Bytes(4 << 20), log: Bytes(8 << 20), ..Config::default() };
        let parts = Parts { world: sim.world(), volume: disk.clone(), flash: None, store: None };
        Engine::open(config, parts).unwrap()
    };
    let engine = open();
    let indexes = vec![IndexDef { name: "PRIMARY".into(), unique: true }];
    engine.create_table("db/t", &TableDef { indexes, properties: Vec::new() }).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open();
    let used = || engine.core().catalog.known.lock().by_name["db/t"].used;
    let before = used();
    engine.open_table("db/t").unwrap();
    assert_ne!(used(), before);
}
