//! What is written and not synced yet, beside what is durable: errors of write-back, waits, power loss and the end of the process.

use super::rig::{self, Rig};
use super::*;
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use terrace_io::disk::{Class, FileWrite, Result};
use terrace_io::sched::Worker as _;
use terrace_sim::SimDisk;

/// A disk whose syncs take as long as the test likes. A write-back error is told once, as Linux tells it once to each open file.
struct SlowDisk {
    disk: Arc<SimDisk>,
    lost: AtomicBool,
    /// Syncs by themselves stop here until it is false.
    held: AtomicBool,
    /// And those of writes that have one.
    held_writes: AtomicBool,
    inside: AtomicBool,
}

impl SlowDisk {
    fn over(disk: Arc<SimDisk>) -> Arc<SlowDisk> {
        Arc::new(SlowDisk {
            disk,
            lost: AtomicBool::new(false),
            held: AtomicBool::new(false),
            held_writes: AtomicBool::new(false),
            inside: AtomicBool::new(false),
        })
    }
    fn stay(&self, held: &AtomicBool) {
        self.inside.store(true, Ordering::SeqCst);
        while held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    fn wait_for_somebody_inside(&self) {
        while !self.inside.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
    fn told_once(&self) -> Result<()> {
        match self.lost.swap(false, Ordering::SeqCst) {
            true => Err(DiskError::Failed {
                name: "log.0".into(),
                what: "sync",
                offset: 0,
                len: 0,
                cause: "write-back failed".into(),
            }),
            false => Ok(()),
        }
    }
}

impl Disk for SlowDisk {
    rig::as_below!(disk);
    fn sync_all(&self, class: Class, files: &[&(dyn File + 'static)]) -> Vec<Result<()>> {
        self.stay(&self.held);
        files.iter().map(|f| self.told_once().and_then(|()| f.sync(class))).collect()
    }
    fn write_synced(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        let results = self.disk.write_all(class, writes);
        self.stay(&self.held_writes);
        let sync = |(w, r): (&FileWrite<'_>, Result<()>)| {
            r.and_then(|()| self.told_once()).and_then(|()| w.file.sync(class))
        };
        writes.iter().zip(results).map(sync).collect()
    }
}

fn append(log: &Arc<Log>, n: u64) -> LsnRange {
    let mut room = log.clone().reserve(rig::bytes(&[(id(n), 50)]), Urgency::Normal).unwrap();
    log.append(&mut room, &[PageRedo { id: id(n), ops: &[7; 50] }], &mut |_| {})
}

#[test]
fn an_error_of_write_back_is_not_told_to_the_sync_beside() {
    let mut rig = Rig::new(1, 1, 4096);
    rig.world = terrace_io::real::world();
    let slow = SlowDisk::over(rig.disk.clone());
    let log = rig.open_on(slow.clone()).unwrap().log;
    let handed = append(&log, 1);
    log.make_written(handed.end).unwrap();
    slow.held.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| log.make_durable(handed.end));
        slow.wait_for_somebody_inside();
        // The kernel fails to write the page back while both syncs wait for it.
        slow.lost.store(true, Ordering::SeqCst);
        let own = append(&log, 2);
        assert!(log.make_durable(own.end).is_err());
        slow.held.store(false, Ordering::SeqCst);
        let answer = waits.join().unwrap();
        assert!(
            answer.is_err() && log.durable() == handed.first,
            "what the device never got is durable: {answer:?}, horizon {} past {}",
            log.durable(),
            handed.first
        );
    });
}

#[test]
fn commits_that_are_written_do_not_stop_for_a_sync() {
    let mut rig = Rig::new(2, 1, 4096);
    rig.world = terrace_io::real::world();
    let slow = SlowDisk::over(rig.disk.clone());
    let log = rig.open_on(slow.clone()).unwrap().log;
    log.make_written(append(&log, 1).end).unwrap();
    // A change of an open transaction, which is not waited for.
    let open = append(&log, 2);
    slow.held.store(true, Ordering::SeqCst);
    slow.held_writes.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| log.make_durable(open.end).unwrap());
        slow.wait_for_somebody_inside();
        let (told, hears) = std::sync::mpsc::channel();
        let log = &log;
        scope.spawn(move || told.send(log.make_written(append(log, 3).end).is_ok()));
        let heard = hears.recv_timeout(Duration::from_secs(60));
        assert!(log.durable() <= open.first);
        slow.held.store(false, Ordering::SeqCst);
        slow.held_writes.store(false, Ordering::SeqCst);
        assert_eq!(heard, Ok(true), "a commit waits for somebody else's sync");
    });
    assert!(log.durable() >= open.end);
}

#[test]
fn the_background_writer_is_not_late_after_a_wake_up() {
    let mut rig = Rig::new(3, 1, 4096);
    rig.world = terrace_io::real::world();
    let log = rig.open().log;
    let mut writer = background::BackgroundWriter::new(log.clone());
    let range = append(&log, 1);
    log.make_written(range.end).unwrap();
    std::thread::sleep(Duration::from_millis(950));
    // Another thread's wake-up: much waited, and was written before the writer looked.
    let step = writer.step();
    match step {
        terrace_io::sched::Step::IdleFor(nanos) => {
            assert!(nanos <= 100_000_000, "sleeps {nanos} ns more, 1.95 s after the commit")
        }
        // The test was late itself.
        terrace_io::sched::Step::Worked => assert!(log.durable() >= range.end),
        other => panic!("{other:?}"),
    }
}

/// Threads, and counts who woke by himself.
struct Counting(terrace_io::real::threads::Threads, Arc<AtomicU64>);
impl terrace_io::sched::Sched for Counting {
    fn wait(&self, e: &Event, seen: terrace_io::sched::Ticket, t: Option<Nanos>) -> terrace_io::sched::Woken {
        self.0.wait(e, seen, t)
    }
    fn wait_for(
        &self,
        e: &Event,
        seen: terrace_io::sched::Ticket,
        t: Option<Nanos>,
        group: u64,
    ) -> terrace_io::sched::Woken {
        let woken = self.0.wait_for(e, seen, t, group);
        self.1.fetch_add(u64::from(woken == terrace_io::sched::Woken::TimedOut), Ordering::SeqCst);
        woken
    }
    fn spawn(&self, w: Box<dyn terrace_io::sched::Worker>) -> Box<dyn terrace_io::sched::WorkerHandle> {
        self.0.spawn(w)
    }
}

/// Syncs cover what was written when they began, and take a while to say so.
struct EarlyDisk(Arc<SimDisk>, Duration);
impl Disk for EarlyDisk {
    rig::as_below!(0);
    fn sync_all(&self, class: Class, files: &[&(dyn File + 'static)]) -> Vec<Result<()>> {
        let results = files.iter().map(|f| f.sync(class)).collect();
        std::thread::sleep(self.1);
        results
    }
}

#[test]
fn written_and_synced_commits_side_by_side_lose_nothing_acknowledged() {
    let (mut late, mut mixed, mut worst) = (0, 0, Duration::ZERO);
    for seed in 0..40 {
        let partitions = [1, 2, 4][seed as usize % 3];
        let mut rig = Rig::new(100 + seed, partitions, 1024);
        rig.world = terrace_io::real::world();
        let timeouts = Arc::new(AtomicU64::new(0));
        rig.world.sched = Arc::new(Counting(terrace_io::real::threads::Threads, timeouts.clone()));
        let killed = seed % 4 == 3;
        let log = rig.open_on(Arc::new(EarlyDisk(rig.disk.clone(), Duration::from_millis(2)))).unwrap().log;
        rig.sim.crash_at(rig.sim.steps() + 100 + 37 * seed);
        let acked: Mutex<Vec<(Glsn, bool)>> = Mutex::default();
        let slowest = Mutex::new(Duration::ZERO);
        let open = AtomicU64::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (log, acked, slowest, open) = (&log, &acked, &slowest, &open);
                scope.spawn(move || {
                    let mut x = seed * 8 + thread + 1;
                    let mut roll = |n: u64| {
                        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        (x >> 33) % n
                    };
                    for n in 0..4000 {
                        if log.usage().0 > 900 {
                            break;
                        }
                        let ids: Vec<PageId> =
                            (0..1 + roll(3)).map(|i| id(n * 7 + i * 13 + thread)).collect();
                        let sizes: Vec<_> = ids.iter().map(|id| (*id, 50)).collect();
                        let Ok(mut room) = log.clone().reserve(rig::bytes(&sizes), Urgency::Normal) else {
                            break;
                        };
                        let ops: Vec<_> = ids.iter().map(|id| PageRedo { id: *id, ops: &[7; 50] }).collect();
                        let range = log.append(&mut room, &ops, &mut |_| {});
                        let kind = roll(8);
                        let since = Instant::now();
                        let result = match kind {
                            0 => Ok(()),
                            1..5 => {
                                log.make_written(range.end).map(|()| acked.lock().push((range.first, false)))
                            }
                            _ => log.make_durable(range.end).map(|()| acked.lock().push((range.first, true))),
                        };
                        if result.is_err() {
                            break;
                        }
                        let mut slowest = slowest.lock();
                        *slowest = since.elapsed().max(*slowest);
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let (mut durable, mut written) = (0, 0);
            while open.load(Ordering::SeqCst) > 0 {
                let (d, w) = (log.durable(), log.reached(writer::Until::Written));
                assert!(d >= durable && w >= written, "a mark went back");
                (durable, written) = (d, w);
                std::thread::yield_now();
            }
        });
        late += timeouts.load(Ordering::SeqCst);
        worst = worst.max(*slowest.lock());
        let horizon = log.durable();
        drop(log);
        if killed {
            rig.sim.power_on()
        } else {
            rig.crash()
        }
        let opened = rig.try_open().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let found: std::collections::BTreeSet<Glsn> = opened.records.iter().map(|(.., r)| r.first).collect();
        assert!(opened.log.appended() >= horizon, "seed {seed}");
        for (first, durable) in acked.lock().iter() {
            mixed += 1;
            assert!(
                !(*durable || killed) || found.contains(first),
                "seed {seed}: {first} {durable} was lost"
            );
        }
    }
    println!("{mixed} acknowledged, {late} waits ended by themselves, slowest {worst:?}");
    assert!(mixed > 1000, "{mixed}: this proves little");
}
