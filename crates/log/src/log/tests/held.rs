//! One partition's write is held back: the others complete, no commit is released.

use super::rig::{self, Rig};
use super::*;
use crate::SpaceId;
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;
use terrace_io::disk::{Class, FileWrite, Result};
use terrace_sim::SimDisk;

/// A disk on which the write of one file does not come to its end: when it is that file's turn, the test
/// looks at the world, and then the power goes.
struct HeldDisk {
    disk: Arc<SimDisk>,
    held: AtomicBool,
    at_hold: Mutex<Box<dyn FnMut() + Send>>,
}

const HELD: &str = "log.1";

impl Disk for HeldDisk {
    rig::as_below!(disk);
    fn write_synced(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        let held = self.held.load(Ordering::SeqCst);
        let mut results: Vec<Result<()>> = Vec::new();
        for write in writes.iter_mut().filter(|w| !held || w.file.name() != HELD) {
            results.extend(write.file.batch(class, &mut write.ops));
            results.push(write.file.sync(class));
        }
        if held {
            (self.at_hold.lock())();
            results.push(Err(DiskError::Absent { name: "the power went".into() }));
        }
        vec![results.into_iter().collect::<Result<Vec<()>>>().map(drop)]
    }
}

/// A page of the partition.
fn page_of(partition: usize, partitions: usize) -> PageId {
    (0..).map(|n| PageId::new(SpaceId(16), n)).find(|id| partition_of(*id, partitions) == partition).unwrap()
}

#[test]
fn a_partition_held_back_releases_no_commit_behind_it_and_nothing_of_those_survives() {
    for seed in 0..20 {
        let mut rig = Rig::new(seed, 3, 256);
        let held = Arc::new(HeldDisk {
            disk: rig.disk.clone(),
            held: AtomicBool::new(false),
            at_hold: Mutex::new(Box::new(|| {})),
        });
        let log = rig.open_on(held.clone()).unwrap().log;
        let pages: Vec<PageId> = (0..3).map(|p| page_of(p, 3)).collect();
        let acked = rig::append(&log, &[(pages[0], 40), (pages[1], 40)], Urgency::Normal).unwrap();
        log.make_durable(acked.end).unwrap();

        // One over the held partition, then others that lie behind it in the order.
        held.held.store(true, Ordering::SeqCst);
        let first = rig::append(&log, &[(pages[1], 40), (pages[2], 40)], Urgency::Normal).unwrap();
        let last = rig::append(&log, &[(pages[0], 40), (pages[2], 40)], Urgency::Normal).unwrap();
        let looked = Arc::new(AtomicBool::new(false));
        let (seen, weak) = (looked.clone(), Arc::downgrade(&log));
        *held.at_hold.lock() = Box::new(move || {
            // The others' writes are done.
            assert_eq!(weak.upgrade().unwrap().durable(), acked.end);
            seen.store(true, Ordering::SeqCst);
        });
        assert!(log.make_durable(last.end).is_err());
        assert!(looked.load(Ordering::SeqCst) && log.durable() == acked.end && first.first == acked.end);
        drop(log);
        rig.crash();

        let opened = rig.open();
        let survivors: Vec<_> = opened.records.iter().map(|(.., range)| range.end).collect();
        assert_eq!(survivors, [acked.end, acked.end], "seed {seed}");
        assert_eq!(opened.log.appended(), acked.end);
    }
}
