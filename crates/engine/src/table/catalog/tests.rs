use super::*;
use crate::Engine;
use crate::IndexDef;
use crate::Parts;
use crate::config::{Bytes, Config};
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

/// A reader that read a table's headers before it was opened, changed and closed by others knows it by the number of the opening: that of the
/// first one since the start, too.
#[test]
fn a_first_opening_is_distinguished_from_none() {
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

/// What is built for a table is compressed as the table is and goes by its rules while it is built, and no longer than that.
#[test]
fn a_new_index_follows_the_tables_rules_at_once() {
    let sim = SimWorld::new(3);
    let config = Config { memory: Bytes(4 << 20), log: Bytes(8 << 20), ..Config::default() };
    let parts = Parts { world: sim.world(), volume: sim.disk("volume"), flash: None, store: None };
    let engine = Engine::open(config, parts).unwrap();
    let index = |name: &str, unique| IndexDef { name: name.into(), unique };
    let def = TableDef { indexes: vec![index("PRIMARY", true)], properties: Vec::new() };
    engine.create_table("db/t", &def).unwrap();
    engine.set_compression("db/t", Some(Codec::Lz4)).unwrap();
    let placement = |placement| rules::TableRules { placement, ..Default::default() };
    engine.set_table_rules("db/t", placement(rules::Placement::None), None).unwrap();
    let core = engine.core();
    let ruled = || {
        let all = core.storage.rules.all().into_iter();
        let mut of: Vec<_> =
            all.map(|(space, rule)| (space, rule.placement, core.catalog.codecs.of(space))).collect();
        of.sort_by_key(|(space, ..)| *space);
        of
    };
    let is_by_rule = |count| {
        let found = ruled();
        assert!(
            found
                .iter()
                .all(|(_, placement, codec)| (*placement, *codec) == (rules::Placement::None, Codec::Lz4))
        );
        assert_eq!(found.len(), count);
    };
    is_by_rule(1);
    let owner = std::sync::Arc::new(engine.begin(crate::Isolation::RepeatableRead));
    let indexes = |from: Option<usize>| {
        let new = |name, from| crate::NewIndex { def: index(name, name == "PRIMARY"), from };
        vec![new("PRIMARY", from), new("k", None)]
    };
    // An index beside the rows, and the rows with it; given up.
    for (from, count) in [(Some(0), 2), (None, 3)] {
        let alteration = engine.alter("db/t", indexes(from), &owner).unwrap();
        is_by_rule(count);
        let built: Vec<SpaceId> = ruled().into_iter().skip(1).map(|(space, ..)| space).collect();
        drop(alteration);
        is_by_rule(1);
        assert!(
            built.into_iter().all(|space| core.catalog.codecs.of(space) == core.catalog.codecs.fallback())
        );
    }
    // And done.
    let mut alteration = engine.alter("db/t", indexes(None), &owner).unwrap();
    alteration.build(&mut |_, _| true).unwrap();
    engine.commit_alterations(&mut [(&mut alteration, Vec::new())], None).unwrap();
    drop(alteration);
    is_by_rule(2);
    assert!(core.catalog.known.lock().coming.is_empty());
}
