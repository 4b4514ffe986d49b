//! Fills a table that no other session can open yet, as ALTER by copy and CREATE … SELECT do, with a crash at each I/O step in turn. Afterwards
//! the table is whole, or opening it fails and DROP removes it, which is what the server then does.

use super::*;

const ROWS: u64 = 6000;

fn work_alone(run: &mut Run) -> Result<(), Error> {
    let engine = open(&run.sim, &run.disk)?;
    engine.core().bypass.on.store(run.bypass, Ordering::Relaxed);
    let table = make(&engine, "db/t")?;
    engine.core().storage.checkpoint()?;
    let owner = begin(&engine);
    let model: Model = (0..ROWS).map(|key| (key, row(key, 4))).collect();
    run.may = vec![model.clone()];
    let mut load = engine.load(&table, &owner)?;
    // Two in three in order, the others behind them.
    let late = |key: u64| key % 3 == 1;
    for key in (0..ROWS).filter(|key| !late(*key)).chain((0..ROWS).filter(|key| late(*key))) {
        add(&mut load, key, &model[&key])?;
    }
    // What a checkpoint keeps of a half.
    engine.core().storage.checkpoint()?;
    load.finish_telling(&mut |done, all| {
        if done * 2 < all {
            run.sim.sched.run_some(50);
        }
        true
    })?;
    engine.core().storage.checkpoint()?;
    engine.shutdown()
}

/// What was found when the run was cut at this step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AfterCrash {
    Nothing,
    Empty,
    Half,
    Whole,
}

fn found_after(run: &Run, step: u64) -> AfterCrash {
    run.sim.sched.drop_workers();
    run.disk.crash();
    run.sim.power_on();
    if run.disk.exists("superblock").unwrap() {
        is_sound(&run.disk, step, "after the crash", false);
    }
    let engine = open(&run.sim, &run.disk).unwrap_or_else(|e| panic!("step {step}: open: {e}"));
    run.sim.sched.run_some(20_000);
    let found = match engine.open_table("db/t") {
        Ok(table) => {
            let rows = seen(&table, &begin(&engine), 0).unwrap();
            assert!(rows.is_empty() || run.may.contains(&rows), "step {step}: {} rows", rows.len());
            check_all(&engine, &table, &rows);
            if rows.is_empty() { AfterCrash::Empty } else { AfterCrash::Whole }
        }
        Err(Error::Absent(_)) => AfterCrash::Nothing,
        Err(Error::Corrupt(what)) => {
            assert!(what.contains("table db/t was not filled to its end"), "step {step}: {what}");
            assert!(engine.truncate_tables(&["db/t"]).is_err(), "step {step}");
            AfterCrash::Half
        }
        Err(error) => panic!("step {step}: {error}"),
    };
    if found != AfterCrash::Nothing {
        engine.drop_table("db/t").unwrap();
    }
    run.sim.sched.run_some(5000);
    assert_eq!(engine.core().storage.map.faults(), Vec::<String>::new(), "step {step}");
    engine.shutdown().unwrap();
    drop(engine);
    is_sound(&run.disk, step, "in the end", true);
    found
}

#[test]
fn a_crash_at_any_step_leaves_the_table_whole_or_refused_at_opening() {
    const PLAY: Play = Play { work: work_alone, after: |_, _, _, _| () };
    for bypass in [true, false] {
        let mut found = Vec::new();
        crash_at_each(PLAY, 80, bypass, &mut |run, step| found.push(found_after(run, step)));
        for kind in [AfterCrash::Empty, AfterCrash::Half, AfterCrash::Whole] {
            assert!(found.contains(&kind), "{kind:?} was never found: {found:?}");
        }
    }
}
