use super::*;
use crate::error::Error;
use crate::testing::{pool, pool_of};
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

type Entries = [(Vec<u8>, Option<usize>, Vec<u8>)];

fn sorted(disk: &Arc<SimDisk>, budget: usize, all: &Entries) -> Result<usize> {
    sorted_with(disk, budget, &pool(), all)
}

fn sorted_with(disk: &Arc<SimDisk>, budget: usize, pool: &Arc<Pool>, all: &Entries) -> Result<usize> {
    let mut sort = Sort::new(Spill::new(disk.clone()), budget, pool);
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
    assert!(
        runs == 0 && all.is_empty() || pool.lent_for(Purpose::Sorts) >= LEAST,
        "entries are in memory that is lent"
    );
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

/// Two runs are merged at a time, in many rounds, and two sorts have one file.
#[test]
fn the_space_of_merged_runs_is_reused() {
    let sim = SimWorld::new(11);
    let disk = sim.disk("volume");
    let pool = pool();
    let spill = Spill::new(disk.clone());
    let count = 700_000usize;
    let key = |n: usize| (n as u32).wrapping_mul(2_654_435_761).to_be_bytes();
    let mut sorts = [0, 1].map(|_| Sort::new(spill.clone(), 1, &pool));
    for n in 0..count {
        sorts.iter_mut().for_each(|sort| sort.push(&key(n), None, &[n as u8; 40]).unwrap());
    }
    let input = (2 * count * (HEAD + 44)) as u64;
    assert!(sorts.iter().all(|sort| sort.runs() > 150), "{} runs prove little", sorts[0].runs());
    let mut most = 0;
    for sort in sorts {
        let mut sorted = sort.finish(&mut || Ok(())).unwrap();
        most = most.max(disk.open(&disk.list().unwrap()[0]).unwrap().len());
        let (mut last, mut found) = (None, 0);
        while sorted.advance().unwrap() {
            assert!(last < Some(sorted.key().to_vec()));
            last = Some(sorted.key().to_vec());
            found += 1;
        }
        assert_eq!(found, count);
    }
    println!("{input} bytes are sorted in {most}");
    assert!(most <= input * 5 / 2, "{input} bytes are sorted in {most}");
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_file() {
    let sim = SimWorld::new(8);
    let disk = sim.disk("volume");
    disk.faults().capacity.store(1 << 20, std::sync::atomic::Ordering::SeqCst);
    let failed = sorted(&disk, 1, &entries(&sim, 60_000));
    assert!(matches!(failed, Err(Error::Full(_))), "{failed:?}");
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
}

#[test]
fn sort_files_orphaned_by_a_crash_are_removed_and_nothing_else() {
    let sim = SimWorld::new(9);
    let disk = sim.disk("volume");
    disk.create("sort.3").unwrap();
    disk.create("sorted").unwrap();
    sort_file::remove_left(&*disk).unwrap();
    assert_eq!(disk.list().unwrap(), ["sorted"]);
}

#[test]
fn a_sort_that_is_lent_less_writes_more_runs() {
    let sim = SimWorld::new(9);
    let disk = sim.disk("volume");
    let all = entries(&sim, 60_000);
    let lent = |pool: &Arc<Pool>| pool.lent_for(Purpose::Sorts);
    let plenty = pool();
    assert_eq!(sorted_with(&disk, 8 << 20, &plenty, &all).unwrap(), 0);
    assert_eq!(lent(&plenty), 0, "a loan ends with the sort");
    // Of 4 MiB it is lent a quarter.
    let little = pool_of(256);
    let few = sorted_with(&disk, 8 << 20, &little, &all).unwrap();
    let mut others = Loan::new(&little, Purpose::Sorts);
    while others.ask(64 << 10) {}
    assert_eq!(others.bytes(), 1 << 20);
    let many = sorted_with(&disk, 8 << 20, &little, &all).unwrap();
    assert!(few >= 3 && many > 2 * few, "{few} and {many} runs");
    drop(others);
    assert_eq!(lent(&little), 0);
    little.check_invariants();
}

#[test]
fn a_sort_borrows_what_its_entries_need() {
    let sim = SimWorld::new(10);
    let pool = pool();
    let mut sort = Sort::new(Spill::new(sim.disk("volume")), 8 << 20, &pool);
    assert_eq!(pool.lent_for(Purpose::Sorts), 0);
    for (count, bytes) in [(1usize, LEAST..=LEAST), (20_000, 2 << 20..=3 << 20), (60_000, 6 << 20..=8 << 20)]
    {
        for n in sort.entries() as usize..count {
            sort.push(&n.to_be_bytes(), None, &[7; 72]).unwrap();
        }
        let lent = pool.lent_for(Purpose::Sorts);
        assert!(bytes.contains(&lent), "{lent} bytes for {count} entries");
        // The least is only counted: an evictor takes the frames.
        let frames = pool.frames_lent() * terrace_tier::page::PAGE_SIZE;
        assert!(
            count == 1 || (lent..lent + terrace_tier::page::PAGE_SIZE).contains(&frames),
            "frames went at once"
        );
    }
    assert_eq!(sort.runs(), 0);
    drop(sort);
    assert_eq!(pool.lent_for(Purpose::Sorts), 0);
}
