//! What the simulated disk keeps, and that it does lose what was not synced.

use terrace_io::disk::{Class, Disk, DiskError};
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
