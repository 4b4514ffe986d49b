use super::*;
use crate::storage::{Key, Stored};
use terrace_io::random::Random;
use terrace_sim::SimWorld;

fn record(number: u64, len: usize) -> Record {
    let value = Stored { expires_ms: None, rdb: vec![number as u8; len] };
    Record {
        number,
        emptied: Vec::new(),
        rows: vec![(Key::new(0, format!("key:{}", number % 7).as_bytes()), Some(value))],
    }
}

/// Appends records of many sizes, syncing and releasing now and then, until power is lost at a step or all is done. Returns the last record that was
/// appended, the last that was synced, and up to which it was released.
fn write(sim: &SimWorld, disk: Arc<dyn Disk>, from: u64, count: u64) -> (u64, u64, u64) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = told.clone();
    let done = Box::new(move |synced| teller.lock().push(synced));
    let Ok(mut journal) = Journal::begin(&sim.world(), disk, from, done) else {
        return (from, from, from);
    };
    let (mut appended, mut synced, mut released) = (from, from, from);
    for number in from + 1..=from + count {
        let len = match sim.random.below(20) {
            0 => 70_000,
            1..5 => 5000,
            _ => sim.random.below(300) as usize,
        };
        if journal.append(&record(number, len)).is_err() {
            break;
        }
        appended = number;
        if sim.random.one_in(4) {
            match sim.random.one_in(2).then(|| journal.sync_here()).flatten() {
                Some(here) => synced = here.unwrap_or(synced),
                None => journal.sync_soon(),
            }
        }
        sim.sched.run_some(sim.random.below(3) as usize);
        for upto in told.lock().drain(..).flatten() {
            synced = synced.max(upto);
        }
        if sim.random.one_in(10) && synced > released {
            released += 1 + sim.random.below(synced - released);
            journal.release(released);
        }
    }
    sim.sched.drop_workers();
    (appended, synced, released)
}

#[test]
fn a_log_is_read_back_up_to_its_last_record_after_the_end_of_the_process() {
    for seed in 0..50 {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("log");
        let (appended, _, released) = write(&sim, disk.clone(), 0, 400);
        assert_eq!(appended, 400);
        let replayed = read::read(&*disk, released).unwrap();
        assert_eq!(replayed.last, 400, "seed {seed}");
        assert!(replayed.rows.values().all(Option::is_some));
    }
}

#[test]
fn what_was_synced_is_read_back_after_a_loss_of_power_and_old_records_are_not() {
    let mut lost = 0;
    for seed in 0..300 {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("log");
        let mut position = 0;
        // Each life goes on with the numbers that the one before has proved.
        for _ in 0..4 {
            sim.crash_at(sim.steps() + 20 + sim.random.below(400));
            let (appended, synced, released) = write(&sim, disk.clone(), position, 300);
            sim.power_on();
            disk.crash();
            let replayed = read::read(&*disk, released).unwrap();
            assert!(
                (synced..=appended).contains(&replayed.last),
                "seed {seed}: {synced}, {}, {appended}",
                replayed.last
            );
            lost += appended - replayed.last;
            let newest = |key: &Key| {
                (released + 1..=replayed.last).rev().find(|number| record(*number, 0).rows[0].0 == *key)
            };
            for (key, value) in &replayed.rows {
                let number = newest(key).unwrap();
                assert!(value.as_ref().unwrap().rdb.iter().all(|byte| *byte == number as u8), "seed {seed}");
            }
            position = replayed.last;
        }
    }
    assert!(lost > 100, "{lost}");
}
