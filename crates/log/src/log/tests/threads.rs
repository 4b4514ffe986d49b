//! Many threads append, commit and make room at once.

use super::rig::{self, Rig};
use super::*;
use crate::SpaceId;
use parking_lot::Mutex;
use std::collections::BTreeSet;

const THREADS: u64 = 8;
const COMMITS: u64 = 400;

#[test]
fn commits_of_many_threads_are_durable_when_they_return() {
    for partitions in [1, 4] {
        let mut rig = Rig::new(partitions as u64, partitions, 256);
        rig.world = terrace_io::real::world();
        // Longer than a busy machine stops.
        rig.room_wait_max = 600_000_000_000;
        let log = rig.open().log;
        let acked: Mutex<BTreeSet<Glsn>> = Mutex::default();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let checkpoints = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    if log.wants_checkpoint() {
                        let end = log.appended();
                        log.make_durable(end).unwrap();
                        rig.checkpoint(&log, end, log.starts_for(end));
                        acked.lock().retain(|first| *first >= end);
                    }
                    std::thread::yield_now();
                }
            });
            let committers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (log, acked) = (&log, &acked);
                    scope.spawn(move || {
                        for n in 0..COMMITS {
                            let pages: Vec<_> = (0..1 + (n + thread) % 3)
                                .map(|i| (PageId::new(SpaceId(16), (n * 7 + i * 13 + thread) as u32), 50))
                                .collect();
                            let range = append_counted(log, &pages);
                            if n % 4 == 0 {
                                log.make_written(range.end).unwrap();
                            } else {
                                log.make_durable(range.end).unwrap();
                                assert!(log.durable() >= range.end);
                                acked.lock().insert(range.first);
                            }
                        }
                    })
                })
                .collect();
            committers.into_iter().for_each(|c| c.join().unwrap());
            done.store(true, Ordering::SeqCst);
            checkpoints.join().unwrap();
        });
        let commits = THREADS * COMMITS;
        assert_eq!(log.counters.ranges.load(Ordering::Relaxed), commits);
        let checkpoint = rig.bounds().checkpoint;
        drop(log);
        rig.crash();
        let opened = rig.open();
        let found: BTreeSet<Glsn> = opened.records.iter().map(|(.., range)| range.first).collect();
        for first in acked.lock().iter().filter(|first| **first >= checkpoint) {
            assert!(found.contains(first), "the range at {first} was acknowledged");
        }
    }
}

/// No thread asks for durability: all is with the operating system when it returns, few syncs are made, and one makes all durable.
#[test]
fn writes_of_many_threads_are_in_the_page_cache_when_they_return() {
    for partitions in [1, 4] {
        let mut rig = Rig::new(10 + partitions as u64, partitions, 4096);
        rig.world = terrace_io::real::world();
        // Longer than a busy machine stops.
        rig.room_wait_max = 600_000_000_000;
        let log = rig.open().log;
        let before = rig.disk.syncs();
        let acked: Mutex<BTreeSet<Glsn>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (log, acked) = (&log, &acked);
                scope.spawn(move || {
                    for n in 0..COMMITS / 4 {
                        let range =
                            append_counted(log, &[(PageId::new(SpaceId(16), (n * 7 + thread) as u32), 50)]);
                        log.make_written(range.end).unwrap();
                        acked.lock().insert(range.first);
                    }
                });
            }
        });
        assert_eq!((rig.disk.syncs(), log.durable()), (before, rig::FIRST));
        let opened = rig.open();
        let found: BTreeSet<Glsn> = opened.records.iter().map(|(.., range)| range.first).collect();
        assert!(acked.lock().is_subset(&found), "{partitions} partitions");
        let before = rig.disk.syncs();
        log.make_durable(log.appended()).unwrap();
        assert_eq!((rig.disk.syncs() - before, log.durable()), (partitions as u64, log.appended()));
    }
}

/// As `rig::append`, without knowing beforehand which range it will be.
fn append_counted(log: &Arc<Log>, pages: &[(PageId, usize)]) -> LsnRange {
    let mut room = log.clone().reserve(rig::bytes(pages), Urgency::Normal).unwrap();
    let ops = vec![3; 50];
    let records: Vec<_> = pages.iter().map(|(id, _)| PageRedo { id: *id, ops: &ops }).collect();
    log.append(&mut room, &records, &mut |_| {})
}
