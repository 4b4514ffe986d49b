//! Rollback, purge and crashes leak nothing. When every unfinished transaction is rolled back and the history
//! is purged, the checker finds no unreferenced page and no delete mark.

#[path = "../kit/mod.rs"]
mod kit;

use kit::Machine;
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_engine::Entry;
use terrace_engine::Error;
use terrace_engine::Isolation;
use terrace_engine::Lock;
use terrace_engine::Row;
use terrace_engine::Span;
use terrace_engine::Table;
use terrace_engine::Txn;
use terrace_engine::offline::check::Verdict;
use terrace_io::disk::Disk;
use terrace_io::sched::{Event, Step, Worker};
use terrace_log::Redo;

struct Run {
    on: Machine,
}

const KEY: [u8; 8] = [7; 8];
const ENTRY: [Entry<'_>; 1] =
    [Entry { index: 1, key: &[1, 7, 7, 7, 7, 7, 7, 7, 7], unique_len: None, primary_at: 1, value: b"" }];

impl Run {
    fn new(seed: u64) -> Run {
        Run { on: Machine::new(seed) }
    }

    fn open(&self) -> Result<(Arc<Engine>, Arc<Table>), Error> {
        let engine = self.on.open(kit::config(4 << 20, 3 << 20, 64 << 20))?;
        let table = kit::table(&engine, "db/t", &kit::indexes(&[("PRIMARY", true), ("plain", false)]))?;
        Ok((engine, table))
    }

    /// Lets purge run as far as the open views allow.
    fn purge(&self, engine: &Engine) {
        self.on.pass(40, 10_000_000, 500);
        assert!(engine.core().purge.history.lock().is_empty(), "purge does not come to its end");
    }

    /// At rest, nothing is left over. Returns the pages of large values.
    fn rest(&self, engine: Arc<Engine>) -> u64 {
        self.purge(&engine);
        engine.shutdown().unwrap();
        drop(engine);
        self.on.power_cycle();
        let report = self.on.check();
        assert_eq!((report.verdict(), report.unfinished), (Verdict::Sound, 0), "{:?}", report.faults);
        assert!(report.leaked.is_empty(), "{:?}", report.leaked);
        report.overflow
    }
}

/// Parts of rows of 60 KB that may be stored off-page: two pages each.
const SPANS: [Span; 2] = [Span { at: 100, len: 30_000, name: 0 }, Span { at: 30_200, len: 28_000, name: 1 }];

fn with_spans(row: &[u8]) -> Row<'_> {
    Row { bytes: row, spans: if row.len() == 60_000 { &SPANS } else { &[] } }
}

fn insert(engine: &Arc<Engine>, table: &Arc<Table>, row: &[u8]) -> Result<(), Error> {
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.insert(table, &KEY, with_spans(row), &ENTRY)?;
    txn.commit()?.wait()
}

/// A value larger than log and memory: much of it is on disk before it is whole. Whatever a crash cuts is freed.
fn a_large_value_is_cut() -> u64 {
    let work = |run: &Run| -> Result<(), Error> {
        let (engine, table) = run.open()?;
        let txn = engine.begin(Isolation::RepeatableRead);
        txn.insert(&table, &KEY, &vec![5; 5_000_000], &ENTRY)?;
        txn.rollback()?;
        engine.shutdown()
    };
    let whole = Run::new(3);
    work(&whole).unwrap();
    let steps = whole.on.sim.steps();
    let mut cut = 0;
    for step in (1..=steps).step_by(steps.div_ceil(60) as usize) {
        let run = Run::new(3);
        run.on.sim.crash_at(step);
        assert!(work(&run).is_err() || step + 10 > steps);
        run.on.power_cycle();
        if run.on.volume.exists("superblock").unwrap() {
            let report = run.on.check();
            assert!(report.verdict() == Verdict::Sound, "step {step}: {:?}", report.faults);
            assert!(report.leaked.is_empty(), "step {step}, before recovery: {:?}", report.leaked);
            cut += u64::from(report.overflow > 0);
        }
        let (engine, _) = run.open().unwrap();
        assert_eq!(run.rest(engine), 0, "step {step}");
    }
    cut
}

#[test]
fn a_crash_while_a_large_value_is_written_leaks_no_page() {
    let cut = a_large_value_is_cut();
    assert!(cut > 10, "only {cut} values were cut: this proves little");
}

/// A row is deleted, another transaction inserts it again, purge passes the deletion, and the second one goes
/// back: wholly, or to a savepoint.
fn an_insert_over_a_mark_goes_back(len: usize, to_savepoint: bool, crash_after: Option<u64>) -> bool {
    let run = Run::new(5);
    let row = vec![3; len];
    let (engine, table) = run.open().unwrap();
    insert(&engine, &table, &row).unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.delete(&table, &KEY, &ENTRY).unwrap();
    // A view holds purge back until the row is there again.
    let reader = engine.begin(Isolation::RepeatableRead);
    reader.open_view();
    txn.commit().unwrap().wait().unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.insert(&table, b"other", with_spans(&row), &[Entry { key: b"xother", ..ENTRY[0] }]).unwrap();
    let savepoint = txn.savepoint();
    txn.insert(&table, &KEY, with_spans(&row), &ENTRY).unwrap();
    run.on.sim.clock.advance(10_000_000);
    run.on.sim.sched.run_some(500);
    let mut found = Vec::new();
    assert!(
        reader.get(&table, &KEY, Lock::None, &mut found).unwrap() && found == row,
        "purge did not wait for the view"
    );
    drop(reader);
    run.purge(&engine);
    if let Some(steps) = crash_after {
        engine.make_durable().unwrap();
        run.on.sim.crash_at(run.on.sim.steps() + steps);
    }
    let back = match to_savepoint {
        true => txn.rollback_to(savepoint).and_then(|()| txn.commit()?.wait()),
        false => txn.rollback().and_then(|()| engine.make_durable()),
    };
    drop(txn);
    let crashed = run.on.sim.crashed();
    let engine = match crashed {
        false => {
            run.on.sim.power_on();
            back.unwrap();
            let txn = engine.begin(Isolation::RepeatableRead);
            assert!(!txn.get(&table, &KEY, Lock::None, &mut found).unwrap());
            assert_eq!(txn.get(&table, b"other", Lock::None, &mut found).unwrap(), to_savepoint);
            drop(txn);
            drop(table);
            engine
        }
        true => {
            drop((table, engine));
            run.on.power_cycle();
            run.open().unwrap().0
        }
    };
    run.rest(engine);
    crashed
}

#[test]
fn a_rolled_back_insert_over_a_purged_delete_mark_leaves_no_mark() {
    for len in [100, 100_000, 60_000] {
        for to_savepoint in [false, true] {
            an_insert_over_a_mark_goes_back(len, to_savepoint, None);
            let crashes =
                (1..30).filter(|n| an_insert_over_a_mark_goes_back(len, to_savepoint, Some(*n))).count();
            assert!(crashes > 0, "it never crashed");
        }
    }
}

/// Undo names a large value by page and serial number; TRUNCATE gives the table another space.
fn a_table_is_truncated_before_its_past_is_purged() {
    let run = Run::new(9);
    let (engine, table) = run.open().unwrap();
    let (old, new) = (vec![1; 3_000_000], vec![2; 3_000_000]);
    insert(&engine, &table, &old).unwrap();
    let reader = engine.begin(Isolation::RepeatableRead);
    reader.open_view();
    for row in [&new, &old] {
        let txn = engine.begin(Isolation::RepeatableRead);
        // It notes in undo what its pages are.
        assert!(txn.get(&table, &KEY, Lock::Exclusive, &mut Vec::new()).unwrap());
        txn.update(&table, &KEY, row, &[], &[]).unwrap();
        txn.commit().unwrap().wait().unwrap();
    }
    engine.truncate_tables(&["db/t"]).unwrap();
    insert(&engine, &table, &new).unwrap();
    drop(reader);
    run.purge(&engine);
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut found = Vec::new();
    assert!(
        txn.get(&table, &KEY, Lock::None, &mut found).unwrap() && found == new,
        "purge took the new row's value"
    );
    drop((txn, table));
    assert!(run.rest(engine) > 0);
}

#[test]
fn purge_of_rows_from_before_a_truncate_touches_no_later_row() {
    a_table_is_truncated_before_its_past_is_purged();
}

fn update(engine: &Arc<Engine>, table: &Arc<Table>, row: &[u8]) -> Result<(), Error> {
    let txn = engine.begin(Isolation::RepeatableRead);
    txn.update(table, &KEY, with_spans(row), &[], &[])?;
    txn.commit()?.wait()
}

/// A row of 60 KB whose parts are unlike, with `changed` bytes that are others.
fn parted(changed: &[usize]) -> Vec<u8> {
    let mut row: Vec<u8> = (0..60_000u32).map(|at| (at / 251 * 7 + at) as u8).collect();
    changed.iter().for_each(|at| row[*at] ^= 1);
    row
}

/// Versions share parts; each part goes with the last version that has it, and not before.
fn versions_share_parts(crash_after: Option<u64>) -> bool {
    let run = Run::new(11);
    let (engine, table) = run.open().unwrap();
    insert(&engine, &table, &parted(&[])).unwrap();
    let reader = engine.begin(Isolation::RepeatableRead);
    reader.open_view();
    // Changes beside the parts; in the second one; beside them twice in a transaction, one of which is rolled back.
    let mut now = vec![3];
    update(&engine, &table, &parted(&now)).unwrap();
    now.push(40_000);
    let logged = engine.core().storage.log.appended();
    update(&engine, &table, &parted(&now)).unwrap();
    assert!(engine.core().storage.log.appended() - logged < 32_000, "the part that it keeps was written");
    let second = engine.begin(Isolation::RepeatableRead);
    second.open_view();
    let txn = engine.begin(Isolation::RepeatableRead);
    now.push(5);
    txn.update(&table, &KEY, with_spans(&parted(&now)), &[], &[]).unwrap();
    let savepoint = txn.savepoint();
    txn.update(&table, &KEY, with_spans(&parted(&[200, 7])), &[], &[]).unwrap();
    txn.update(&table, &KEY, with_spans(&parted(&[200, 8])), &[], &[]).unwrap();
    txn.rollback_to(savepoint).unwrap();
    txn.commit().unwrap().wait().unwrap();
    if let Some(steps) = crash_after {
        run.on.sim.crash_at(run.on.sim.steps() + steps);
    }
    let mut found = Vec::new();
    for (reader, sees) in [(reader, vec![]), (second, vec![3, 40_000])] {
        for _ in 0..20 {
            run.on.sim.clock.advance(10_000_000);
            run.on.sim.sched.run_some(200);
            let _ = engine.make_durable();
        }
        let _ = engine.core().storage.checkpoint();
        let got = reader.get(&table, &KEY, Lock::None, &mut found);
        assert!(run.on.sim.crashed() || (got.unwrap() && found == parted(&sees)), "a view lost its row");
    }
    let crashed = run.on.sim.crashed();
    let engine = match crashed {
        false => {
            run.on.sim.power_on();
            drop(table);
            engine
        }
        true => {
            drop((table, engine));
            run.on.power_cycle();
            run.open().unwrap().0
        }
    };
    run.purge(&engine);
    let table = engine.open_table("db/t").unwrap();
    let txn = engine.begin(Isolation::RepeatableRead);
    assert!(txn.get(&table, &KEY, Lock::None, &mut found).unwrap() && found == parted(&now));
    drop((txn, table));
    assert_eq!(run.rest(engine), 4, "pages of the row's two parts");
    crashed
}

#[test]
fn an_off_page_part_is_freed_with_the_last_version_that_has_it() {
    versions_share_parts(None);
    let crashes = (1..40).filter(|n| versions_share_parts(Some(*n))).count();
    assert!(crashes > 5, "only {crashes} crashes");
}

/// Rolls a transaction back as soon as another waits for it.
struct GoesBack {
    engine: Arc<Engine>,
    txn: Option<Arc<Txn>>,
    wake: Arc<Event>,
}

impl Worker for GoesBack {
    fn name(&self) -> &'static str {
        "goes back"
    }
    fn step(&mut self) -> Step {
        if self.txn.is_some() && !self.engine.core().locks.waits_seen().is_empty() {
            self.txn.take().unwrap().rollback().unwrap();
        }
        Step::IdleFor(1_000_000)
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}

/// An update finds its own bytes in what another transaction has written and not committed. That one is rolled back, and its parts
/// with it, while the update waits.
fn an_update_meets_a_change_that_goes_back() {
    let run = Run::new(12);
    let (engine, table) = run.open().unwrap();
    insert(&engine, &table, &parted(&[])).unwrap();
    let first = engine.begin(Isolation::RepeatableRead);
    first.update(&table, &KEY, with_spans(&parted(&[200, 40_000])), &[], &[]).unwrap();
    let goes_back = GoesBack { engine: engine.clone(), txn: Some(first), wake: Arc::default() };
    let worker = run.on.sim.world().sched.spawn(Box::new(goes_back));
    let second = engine.begin(Isolation::RepeatableRead);
    let (wanted, logged) = (parted(&[200, 40_000, 5]), engine.core().storage.log.appended());
    second.update(&table, &KEY, with_spans(&wanted), &[], &[]).unwrap();
    let logged = engine.core().storage.log.appended() - logged;
    second.commit().unwrap().wait().unwrap();
    drop(worker);
    run.purge(&engine);
    let txn = engine.begin(Isolation::RepeatableRead);
    let mut found = Vec::new();
    assert!(txn.get(&table, &KEY, Lock::None, &mut found).unwrap() && found == wanted);
    assert!(logged > 58_000, "both parts are written again");
    drop((txn, second, table));
    assert_eq!(run.rest(engine), 4);
}

#[test]
fn an_update_keeps_no_off_page_part_of_a_rolled_back_change() {
    an_update_meets_a_change_that_goes_back();
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_each_leak_is_found_by_one_run() {
    use terrace_engine::planted;
    let runs: [(&str, &planted::Switch, fn()); 5] = [
        ("LARGE_NOT_NOTED", &planted::LARGE_NOT_NOTED, || _ = a_large_value_is_cut()),
        ("PURGED_MARK_KEPT", &planted::PURGED_MARK_KEPT, || {
            _ = an_insert_over_a_mark_goes_back(100_000, false, None)
        }),
        ("SERIALS_ANEW", &planted::SERIALS_ANEW, a_table_is_truncated_before_its_past_is_purged),
        ("KEPT_PART_TRUSTED", &planted::KEPT_PART_TRUSTED, an_update_meets_a_change_that_goes_back),
        ("KEPT_PART_FREED", &planted::KEPT_PART_FREED, || _ = versions_share_parts(None)),
    ];
    for (name, switch, run) in runs {
        switch.set(true);
        let found = std::panic::catch_unwind(run).is_err();
        switch.set(false);
        assert!(found, "{name} was not found");
    }
}
