use super::*;
use crate::error::Error;
use terrace_io::disk::Disk;
use terrace_sim::{SimDisk, SimWorld};

fn entries(sim: &SimWorld, count: usize) -> Vec<(Vec<u8>, Option<usize>, Vec<u8>)> {
    let random = sim.world().random;
    let bytes = |max: u64| -> Vec<u8> {
        let len = random.next_u64() % max;
        (0..len).map(|_| random.next_u64() as u8 % 3).collect()
    };
    let mut all = Vec::new();
    for n in 0..count {
        let mut key = bytes(40);
        let unique = if n % 3 == 0 { Some(key.len()) } else { None };
        key.extend_from_slice(&(n as u32).to_be_bytes());
        all.push((key, unique, bytes(if n % 100 == 0 { 3000 } else { 60 })));
    }
    all
}

fn sorted(disk: &Arc<SimDisk>, budget: usize, all: &[(Vec<u8>, Option<usize>, Vec<u8>)]) -> Result<usize> {
    let mut sort = Sort::new(Spill::new(disk.clone()), budget);
    for (key, unique, value) in all {
        sort.push(key, *unique, value)?;
    }
    let runs = sort.runs();
    assert_eq!(sort.entries(), all.len() as u64);
    let mut expected = all.to_vec();
    expected.sort();
    let mut sorted = sort.finish(&mut || Ok(()))?;
    for (key, unique, value) in &expected {
        assert!(sorted.advance()?);
        assert_eq!((sorted.key(), sorted.value()), (&key[..], &value[..]));
        assert_eq!(sorted.unique(), unique.map(|len| &key[..len]));
    }
    assert!(!sorted.advance()? && !sorted.advance()?);
    Ok(runs)
}

#[test]
fn entries_come_in_order_from_memory_and_from_runs() {
    let sim = SimWorld::new(7);
    let disk = sim.disk("volume");
    for count in [0, 1, 2, 1000] {
        assert_eq!(sorted(&disk, 1 << 20, &entries(&sim, count)).unwrap(), 0);
    }
    // Two runs at a time, in several rounds.
    let runs = sorted(&disk, 1, &entries(&sim, 60_000)).unwrap();
    assert!(runs > 10, "{runs} runs prove little");
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
}

#[test]
fn a_full_disk_is_said_and_leaves_no_file() {
    let sim = SimWorld::new(8);
    let disk = sim.disk("volume");
    disk.faults().capacity.store(1 << 20, std::sync::atomic::Ordering::SeqCst);
    let failed = sorted(&disk, 1, &entries(&sim, 60_000));
    assert!(matches!(failed, Err(Error::Full(_))), "{failed:?}");
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
}

#[test]
fn what_a_crash_left_is_removed_and_nothing_else() {
    let sim = SimWorld::new(9);
    let disk = sim.disk("volume");
    disk.create("sort.3").unwrap();
    disk.create("sorted").unwrap();
    spill::remove_left(&*disk).unwrap();
    assert_eq!(disk.list().unwrap(), ["sorted"]);
}
