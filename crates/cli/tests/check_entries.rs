//! `terrace check` on instances whose pages are all intact, but whose contents are wrong or leak space: entries without
//! rows, rows without entries, and unreferenced pages. And on sound states that it must not take for those.

mod instance;

use instance::{Instance, commit, create, insert, plain, plain_key, row};
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Row;
use terrace_engine::Span;
use terrace_engine::Table;
use terrace_engine::row::RollPtr;
use terrace_engine::row::off_page;
use terrace_engine::tree::{Tree, overflow};
use terrace_engine::txn::purge;
use terrace_engine::undo::{record::Record, stream::Mark};
use terrace_log::Urgency;
use terrace_tier::page::{PageKind, SpaceId};

#[test]
fn entries_are_matched_with_rows_not_only_counted() {
    let instance = Instance::new("entries", true);
    let engine = instance.open();
    let table = engine.open_table("d/t").unwrap();
    // As many entries as rows: one entry without its row, one row without its entry.
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.delete(&table, &17u64.to_be_bytes(), &[]).unwrap();
    txn.insert(&table, &5000u64.to_be_bytes(), &row(5000), &[]).unwrap();
    commit(txn);
    close(engine, table);
    let (code, said) = instance.check();
    let plain_index = "table d/t index plain";
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("8000 entries: 2 faults"), "{said}");
    assert!(
        said.contains(&format!("{plain_index}: 1 entries of row {:016x}, which is not there", 17)),
        "{said}"
    );
    assert!(said.contains(&format!("{plain_index}: row {:016x} has no entry", 5000)), "{said}");
    // Quick looks at no entry.
    assert_eq!(instance.check_with(&["--quick"]).0, 0);

    // A row with two entries.
    let engine = instance.open();
    let table = engine.open_table("d/t").unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    let other = [&[9; 8][..], &40u64.to_be_bytes()].concat();
    txn.update(&table, &40u64.to_be_bytes(), &row(40), &[], &[plain(&other)]).unwrap();
    commit(txn);
    close(engine, table);
    let (_, said) = instance.check();
    assert!(
        said.contains(&format!("{plain_index}: row {:016x} has 2 entries", 40)) && said.contains("3 faults"),
        "{said}"
    );
}

fn close(engine: Arc<Engine>, table: Arc<Table>) {
    engine.shutdown().unwrap();
    drop((table, engine));
}

/// Leaves the instance as a crash would: the workers stop, nothing is closed.
fn crash(engine: &Engine) {
    engine.core().storage.checkpoint().unwrap();
    engine.core().storage.stop();
}

#[test]
fn unfinished_and_prepared_transactions_and_delete_marks_are_no_faults() {
    let instance = Instance::new("unfinished", true);
    let engine = instance.open();
    let table = engine.open_table("d/t").unwrap();
    // Purge cannot pass this view: deletes stay as marks.
    let view = engine.begin(Isolation::RepeatableRead);
    view.open_view();
    let mut seen = Vec::new();
    view.get(&table, &1u64.to_be_bytes(), Lock::None, &mut seen).unwrap();
    let deletes = engine.begin(Isolation::RepeatableRead);
    for n in (0..900u64).step_by(3) {
        deletes.delete(&table, &n.to_be_bytes(), &[plain(&plain_key(n))]).unwrap();
    }
    commit(deletes);
    // Changed, deleted, new, and a row in the middle of a statement: its entry is not there yet.
    let open = engine.begin(Isolation::RepeatableRead);
    for n in (1..900u64).step_by(3) {
        open.delete(&table, &n.to_be_bytes(), &[plain(&plain_key(n))]).unwrap();
    }
    for n in (2..900u64).step_by(3) {
        open.update(&table, &n.to_be_bytes(), &vec![1; 25_000], &[], &[]).unwrap();
        open.update(&table, &n.to_be_bytes(), &[2; 5], &[], &[]).unwrap();
    }
    (10_000..10_200).for_each(|n| insert(&open, &table, n));
    open.insert(&table, &11_000u64.to_be_bytes(), &vec![3; 30_000], &[]).unwrap();
    open.delete(&table, &1000u64.to_be_bytes(), &[]).unwrap();
    // An entry again after its delete, and one moved.
    insert(&open, &table, 1);
    let prepared = engine.begin(Isolation::RepeatableRead);
    insert(&prepared, &table, 12_000);
    prepared.prepare(b"xid").unwrap();
    engine.make_durable().unwrap();
    crash(&engine);
    let running = instance;
    let instance = running.copied();
    let report = instance.json("check", &[]);
    assert!(report["exit"] == 0 && report["leaked"]["count"] == 0, "{report:#}");
    assert_eq!(report["unfinished_transactions"], 1, "{report:#}");
    assert!(report["undo_records"].as_u64().unwrap() > 2000, "{report:#}");
    // 4000 rows, 300 of them deleted, one prepared; each with its entry.
    assert_eq!(report["entries"], 2 * (4000 - 300 + 1), "{report:#}");
    let status = instance.json("status", &[]);
    assert!(status["unfinished_transactions"] == 1 && status["prepared_transactions"] == 1, "{status:#}");
    // Without its undo the checker cannot tell what the transactions left: it says so, and reports no false mismatch.
    instance.damage(|space, page| space == 2 && page > 1);
    let (code, said) = instance.check();
    assert!(
        code == 1 && said.contains("undo is damaged") && said.contains("against the table's rows"),
        "{said}"
    );
    assert!(!said.contains("has no entry") && !said.contains("which is not there"), "{said}");
    std::mem::forget((view, open, prepared)); // dropped, they would roll back, and wait for workers
}

/// Found by killing: purge frees a transaction's undo page by page, and a crash may happen in between.
#[test]
fn a_purge_interrupted_within_a_transactions_undo_is_no_fault() {
    let instance = Instance::new("purged", true);
    let engine = instance.open();
    let core = engine.core();
    let table = engine.open_table("d/t").unwrap();
    core.storage.stop_workers_but_flush(); // purge is ours
    let txn = engine.begin(Isolation::RepeatableRead);
    for n in 0..2000u64 {
        txn.delete(&table, &n.to_be_bytes(), &[plain(&plain_key(n))]).unwrap();
    }
    commit(txn);
    let past = core.purge.history.lock().first().unwrap();
    let mut pages = Vec::new();
    let each = |at: RollPtr, _: Record<'_>| {
        pages.push(at.page());
        Ok(true)
    };
    core.streams.walk(past.begin, Some(past.end), each).unwrap();
    pages.dedup();
    assert!(pages.len() > 5, "{pages:?}");
    core.streams.forget_before(past.stream, Mark { page: pages[3], end: 80 }).unwrap();
    engine.make_durable().unwrap();
    crash(&engine);
    drop((table, engine));
    let report = instance.json("check", &[]);
    assert!(report["exit"] == 0 && report["undo_records"].as_u64().unwrap() > 500, "{report:#}");
}

/// Found by killing: a crash between the removal of a row and the freeing of its large value leaked the value.
#[test]
fn a_purge_interrupted_between_a_row_and_its_large_value_frees_the_value_when_it_resumes() {
    a_purge_is_cut("cut", false);
}

#[test]
fn a_resumed_purge_frees_a_large_value_though_its_row_was_inserted_again() {
    a_purge_is_cut("cut-and-back", true);
}

/// `comes_back`: the key has a row again when the purge resumes.
fn a_purge_is_cut(name: &str, comes_back: bool) {
    let instance = Instance::new(name, true);
    let engine = instance.open();
    let core = engine.core();
    let table = engine.open_table("d/t").unwrap();
    core.storage.stop_workers_but_flush(); // purge is ours
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.delete(&table, &100u64.to_be_bytes(), &[plain(&plain_key(100))]).unwrap();
    commit(txn);
    // What the purge had done before the crash.
    assert!(table.tree(0).unwrap().remove(&100u64.to_be_bytes()).is_ok());
    if comes_back {
        let txn = engine.begin(Isolation::RepeatableRead);
        insert(&txn, &table, 100);
        txn.update(&table, &100u64.to_be_bytes(), b"short", &[], &[]).unwrap();
        commit(txn);
    }
    while purge::step(core).unwrap() {}
    assert_eq!(core.purge.history.lock().len(), 0);
    crash(&engine);
    drop((table, engine));
    let report = instance.json("check", &[]);
    assert!(report["exit"] == 0 && report["leaked"]["count"] == 0, "{report:#}");
    assert_eq!(report["entries"], 2 * (3999 + u64::from(comes_back)), "{report:#}");
}

#[test]
fn unreferenced_pages_are_leaked_and_no_fault() {
    let instance = Instance::new("leaked", true);
    let engine = instance.open();
    let storage = &engine.core().storage;
    let table = engine.open_table("d/t").unwrap();
    let tree = table.tree(0).unwrap();
    // A large value whose row was never written.
    overflow::write(tree.space(), &[5; 40_000], overflow::ValueLogging::Logged, Urgency::Normal).unwrap();
    // A page that was taken and put nowhere.
    let ready = tree.space().ready(1, Urgency::Normal).unwrap();
    let mut mtr = storage.pages.begin(4096, 1, Urgency::Normal).unwrap();
    let header = ready.latch_header(&mut mtr);
    tree.space().allocate(&mut mtr, header, &ready, PageKind::Leaf, 0).unwrap();
    mtr.commit();
    drop(ready);
    // A tree that no table has, as a crash amid CREATE leaves it.
    drop(Tree::create(&storage.pages, SpaceId(60), Urgency::Normal).unwrap());
    crash(&engine);
    drop((tree, table, engine));
    // An object that was put and never published.
    let object = instance.an_object();
    std::fs::copy(&object, object.with_file_name("00000001-00000000000000ff")).unwrap();
    let (code, said) = instance.check();
    assert!(code == 0 && said.contains("no fault"), "{said}");
    assert_eq!(said.matches("no row names the large value").count(), 3, "{said}");
    assert_eq!(said.matches("nothing leads to it").count(), 1, "{said}");
    assert!(said.contains("space 60 is no table's: 2 pages on the volume"), "{said}");
    assert!(said.contains("00000001-00000000000000ff is named by nothing"), "{said}");
    let report = instance.json("check", &[]);
    assert!(
        report["leaked"]["count"] == 6 && report["leaked_object_bytes"].as_u64().unwrap() > PAGES,
        "{report:#}"
    );
}

const PAGES: u64 = 16384;

#[test]
fn a_large_value_that_lost_a_page_is_a_fault_of_its_leaf() {
    let instance = Instance::empty("large");
    let engine = instance.open();
    let table = create(&engine);
    let txn = engine.begin(Isolation::RepeatableRead);
    (0..200).for_each(|n| insert(&txn, &table, n));
    commit(txn);
    // Row 100's value is freed although the row still names it.
    let tree = table.tree(0).unwrap();
    let value = tree
        .get(&100u64.to_be_bytes(), terrace_engine::Access::Normal, |value| value.map(<[u8]>::to_vec))
        .unwrap()
        .unwrap();
    let large = overflow::Large::decode(&value[15..]).unwrap();
    overflow::free(tree.space(), large, Urgency::Normal).unwrap();
    drop(tree);
    close(engine, table);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("table d/t index PRIMARY") && said.contains("large value"), "{said}");
    assert!(said.contains(&format!(":{}", large.page)), "{said}");
}

#[test]
fn a_row_that_names_other_pages_than_its_large_value_has_is_a_fault() {
    let instance = Instance::empty("runs");
    let engine = instance.open();
    let table = create(&engine);
    let txn = engine.begin(Isolation::RepeatableRead);
    let entry = [&b"one"[..], &[9; 8], b"one"].concat();
    txn.insert(&table, b"one", Row::from(&vec![5; 40_000]), &[plain(&entry)]).unwrap();
    commit(txn);
    let tree = table.tree(0).unwrap();
    let value = tree.get(b"one", terrace_engine::Access::Normal, |value| value.map(<[u8]>::to_vec));
    let mut value = value.unwrap().unwrap();
    // One run of three pages. Now two: of one, and of two behind the next.
    assert_eq!(value[31..], [1, 0, 2]);
    value.truncate(31);
    value.extend([2, 0, 0, 2, 1]);
    tree.put(b"one", &value).unwrap();
    drop(tree);
    close(engine, table);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("table d/t index PRIMARY"), "{said}");
    assert_eq!(said.matches("of a large value is said to be").count(), 2, "{said}");
}

#[test]
fn an_off_page_part_that_lost_a_page_is_a_fault_of_its_leaf_and_so_are_undecodable_parts() {
    let instance = Instance::empty("part");
    let engine = instance.open();
    let table = create(&engine);
    let txn = engine.begin(Isolation::RepeatableRead);
    (0..200).for_each(|n| insert(&txn, &table, n));
    let bytes = vec![5; 50_000];
    let spans = [Span { at: 10, len: 20_000, name: 1 }, Span { at: 20_020, len: 29_000, name: 2 }];
    for key in [b"one", b"two"] {
        let entry = [key, &[9; 8][..], key].concat();
        txn.insert(&table, key, Row { bytes: &bytes, spans: &spans }, &[plain(&entry)]).unwrap();
    }
    commit(txn);
    let tree = table.tree(0).unwrap();
    let value = |key: &[u8]| {
        tree.get(key, terrace_engine::Access::Normal, |value| value.map(<[u8]>::to_vec)).unwrap().unwrap()
    };
    // One row's part is freed although the row still names it; the other row claims more parts than are possible.
    let first = value(b"one");
    let (parts, _) = off_page::decode(&first[15..]).unwrap();
    assert_eq!(parts.len(), 2);
    let large = parts[1].large;
    overflow::free(tree.space(), large, Urgency::Normal).unwrap();
    let mut second = value(b"two");
    second[15] = 200;
    tree.put(b"two", &second).unwrap();
    drop(tree);
    close(engine, table);
    let (code, said) = instance.check();
    assert!(code == 1 && said.contains("table d/t index PRIMARY"), "{said}");
    assert!(said.contains(&format!(":{}", large.page)) && said.contains("large value"), "{said}");
    assert!(said.contains("1 values that make no sense"), "{said}");
}
