//! The simulated disk keeps synced bytes, and does lose unsynced ones.

use std::sync::Arc;
use terrace_io::disk::{Class, Disk, DiskError, File, FileWrite, Op};
use terrace_sim::SimWorld;

const PAGE: usize = 4096;

#[test]
fn synced_bytes_survive_every_crash() {
    for seed in 0..50 {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        let file = disk.create("a").unwrap();
        disk.sync_dir().unwrap();
        file.write(Class::LogWrite, 0, &[7; PAGE]).unwrap();
        file.sync(Class::LogWrite).unwrap();
        file.write(Class::LogWrite, PAGE as u64, &[9; PAGE]).unwrap();
        disk.crash();
        let mut buf = [0; PAGE];
        disk.open("a").unwrap().read(Class::LogRead, 0, &mut buf).unwrap();
        assert_eq!(buf, [7; PAGE], "seed {seed}");
    }
}

/// The canary: if nothing were ever lost, torn or turned to garbage, the harness would prove nothing.
#[test]
fn unsynced_bytes_are_lost_torn_and_garbled_in_some_seeds() {
    let (mut lost, mut torn, mut garbled) = (0, 0, 0);
    for seed in 0..50 {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        let file = disk.create("a").unwrap();
        file.grow(PAGE as u64, true).unwrap();
        file.sync(Class::LogWrite).unwrap();
        disk.sync_dir().unwrap();
        file.write(Class::LogWrite, 0, &[7; PAGE]).unwrap();
        disk.crash();
        let mut buf = [0; PAGE];
        disk.open("a").unwrap().read(Class::LogRead, 0, &mut buf).unwrap();
        let kept = buf.chunks(512).filter(|s| **s == [7; 512]).count();
        lost += usize::from(kept == 0);
        torn += usize::from(kept > 0 && kept < 8);
        garbled += usize::from(buf.iter().any(|b| *b != 0 && *b != 7));
    }
    assert!(torn > 20 && garbled > 10, "lost {lost}, torn {torn}, garbled {garbled}");
}

/// Whatever step the power goes at, a file that answered Ok has its bytes; and no file waits for another.
#[test]
fn files_written_and_synced_together_are_durable_one_by_one_in_any_order() {
    let mut alone = [0; 2];
    for seed in 0..100 {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        let files: Vec<Arc<dyn File>> = ["a", "b"].iter().map(|name| disk.create(name).unwrap()).collect();
        disk.sync_dir().unwrap();
        let before = disk.syncs();
        sim.crash_at(sim.steps() + 1 + seed % 7);
        let mut writes: Vec<FileWrite<'_>> = files
            .iter()
            .map(|file| FileWrite {
                file: &**file,
                ops: [0, PAGE as u64].map(|offset| Op::Write { offset, buf: &[7; PAGE] }).into(),
            })
            .collect();
        let results = disk.write_synced(Class::LogWrite, &mut writes);
        let done = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(done as u64, disk.syncs() - before, "seed {seed}: {results:?}");
        assert!(done == 2 || seed % 7 < 6, "six steps were enough");
        if done == 1 {
            alone[usize::from(results[1].is_ok())] += 1;
        }
        sim.power_on();
        disk.crash();
        for (name, result) in ["a", "b"].iter().zip(&results) {
            let mut buf = [0; 2 * PAGE];
            let read = disk.open(name).unwrap().read(Class::LogRead, 0, &mut buf);
            assert!(result.is_err() || read.is_ok() && buf == [7; 2 * PAGE], "seed {seed}: {name}");
        }
    }
    assert!(alone[0] > 3 && alone[1] > 3, "which was first alone: {alone:?}");
}

#[test]
fn a_name_is_durable_only_after_its_directory_was_synced() {
    let survived = (0..50)
        .filter(|seed| {
            let sim = SimWorld::new(*seed);
            let disk = sim.disk("volume");
            disk.create("a").unwrap();
            disk.crash();
            disk.exists("a").unwrap()
        })
        .count();
    assert!((5..45).contains(&survived), "{survived} of 50");
}

#[test]
fn a_handle_from_before_the_crash_is_dead_and_the_lock_is_free() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("volume");
    let lock = disk.lock().unwrap();
    assert!(matches!(disk.lock(), Err(DiskError::Locked { .. })));
    let file = disk.create("a").unwrap();
    disk.crash();
    assert!(file.write(Class::LogWrite, 0, &[0; PAGE]).is_err());
    let again = disk.lock().unwrap();
    drop(lock);
    assert!(disk.lock().is_err(), "an old lock's end must not free the new one");
    drop(again);
}

#[test]
fn from_the_chosen_step_on_nothing_works() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("volume");
    disk.create("a").unwrap();
    sim.crash_at(sim.steps() + 2);
    assert!(disk.exists("a").is_ok());
    assert!(disk.exists("a").is_err() && disk.create("b").is_err() && sim.crashed());
    sim.power_on();
    assert!(disk.exists("a").is_ok());
}
