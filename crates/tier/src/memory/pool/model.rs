//! The pool under a model checker (shuttle): few threads, few pages, and many schedules, in which another
//! thread may go on at each lock and each atomic of the page table, the frames and the latches.
//!
//! Each scenario runs under three schedulers: random choices; PCT (priorities that change at few chosen
//! places: a bug that needs three of them is found with a known probability); and `bounded`, all schedules with
//! one preemption (`TERRACE_PREEMPTIONS`). `TERRACE_SCHEDULES` sets how many of the first two; a failure prints
//! its schedule, which `shuttle::replay` runs again.
//!
//! Runs with the feature `model` only.

mod bounded;

use crate::memory::lower_tiers::{Below, Fetched, ReadError};
use crate::memory::pages::Pages;
use crate::memory::pool::frame_hint::LastSeen;
use crate::memory::pool::{Access, Loan, Purpose, ScanDirection};
use crate::page::{PAGE_SIZE, PageId, PageKind, SpaceId};
use crate::planted;
use crate::testing::{self, MemoryBelow, MemoryLog, flush_all};
use bounded::Bounded;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Sched, Ticket, Woken, Worker, WorkerHandle};
use terrace_log::Urgency;

const SPACE: SpaceId = SpaceId(20);
const AT: usize = 100;
const FRAMES: usize = 16;
/// The number of pages in memory at which one more frame can be taken; the rest are the reserve.
const FILLED: u32 = 13;
/// Changes of priority in a PCT schedule.
const DEPTH: usize = 3;

/// Waiting is yielding to others; a wait with an end may end at any time.
struct ModelSched;
struct NoHandle;
impl WorkerHandle for NoHandle {}
impl Sched for ModelSched {
    fn wait(&self, event: &Event, seen: Ticket, timeout: Option<Nanos>) -> Woken {
        let mut turns = 0;
        while !event.moved_on(seen) {
            turns += 1;
            if timeout.is_some() && turns > 20 {
                return Woken::TimedOut;
            }
            thread::yield_now();
        }
        Woken::Notified
    }
    fn spawn(&self, _worker: Box<dyn Worker>) -> Box<dyn WorkerHandle> {
        Box::new(NoHandle)
    }
}

fn id(page: u32) -> PageId {
    PageId::new(SPACE, page)
}

/// Below memory, where the two pages behind one come with it.
struct Runs(Arc<MemoryBelow>);
impl Below for Runs {
    fn fetch(&self, id: PageId, image: &mut [u8]) -> Result<Fetched, ReadError> {
        self.0.fetch(id, image)
    }
    fn ahead(&self, id: PageId, max: usize, _: ScanDirection) -> Vec<PageId> {
        (1..3).take(max).map(|n| PageId::new(id.space, id.page + n)).collect()
    }
    fn evicted(&self, id: PageId, image: &mut [u8], accesses: u8) {
        self.0.evicted(id, image, accesses);
    }
}

#[derive(Clone)]
struct Rig {
    pages: Arc<Pages>,
    below: Arc<MemoryBelow>,
}

impl Rig {
    /// Pages `0..FILLED` in memory and clean; page 0 is the next to leave.
    fn new() -> Rig {
        Rig::over(|below| below)
    }
    fn over(wrap: fn(Arc<MemoryBelow>) -> Arc<dyn Below>) -> Rig {
        Rig::made(wrap, FRAMES, FRAMES)
    }
    fn that_grows(frames: usize, max: usize) -> Rig {
        Rig::made(|below| below, frames, max)
    }
    fn made(wrap: fn(Arc<MemoryBelow>) -> Arc<dyn Below>, frames: usize, max: usize) -> Rig {
        let below = Arc::new(MemoryBelow::default());
        let world = World { sched: Arc::new(ModelSched), ..testing::world() };
        let log = Arc::new(MemoryLog::default());
        let pages = Arc::new(Pages::that_grow(world, frames, max, wrap(below.clone()), log));
        let rig = Rig { pages, below };
        (0..FILLED).for_each(|page| rig.create(page));
        rig.flush();
        rig
    }
    fn create(&self, page: u32) {
        let mut mtr = self.pages.begin(1000, 1, Urgency::Normal).unwrap();
        let no = mtr.create(id(page), PageKind::Leaf, 0);
        mtr.page_mut(no).write_u64(AT + 8, u64::from(page));
        mtr.commit();
    }
    /// Adds one to the page's counter. The page stays cold, so that it is the next to leave again.
    fn bump(&self, page: u32) {
        let pin = self.pages.load(id(page), Access::Scan).unwrap();
        let mut mtr = self.pages.begin(1000, 0, Urgency::Normal).unwrap();
        let no = mtr.write_pinned(&pin);
        assert_eq!(mtr.page(no).id(), id(page));
        let value = mtr.page(no).u64(AT);
        mtr.page_mut(no).write_u64(AT, value + 1);
        mtr.commit();
    }
    /// The page's counter, and that the page is the one that was asked for.
    fn read(&self, page: u32) -> u64 {
        let guard = self.pages.read(id(page), Access::Scan).unwrap();
        assert_eq!((guard.page().id(), guard.page().u64(AT + 8)), (id(page), u64::from(page)));
        guard.page().u64(AT)
    }
    fn flush(&self) {
        flush_all(&self.pages, &self.below);
    }
    fn evict(&self) -> bool {
        self.pages.pool().evict_one()
    }
    fn rest(&self) {
        self.flush();
        self.pages.pool().check_invariants();
    }
    /// Runs the threads to their ends.
    fn run(&self, threads: Vec<Box<dyn FnOnce(&Rig) + Send>>) {
        let start = |work: Box<dyn FnOnce(&Rig) + Send>| {
            let rig = self.clone();
            thread::spawn(move || work(&rig))
        };
        let started: Vec<_> = threads.into_iter().map(start).collect();
        started.into_iter().for_each(|thread| thread.join().unwrap());
        self.rest();
    }
}

/// Schedules run since the test began.
static RUN: AtomicUsize = AtomicUsize::new(0);
/// One test at a time: the switches and the count are global.
static ONE: Mutex<()> = Mutex::new(());

fn env(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

fn run(scheduler: impl Scheduler + 'static, scenario: fn()) -> usize {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    Runner::new(scheduler, config).run(move || {
        RUN.fetch_add(1, Ordering::Relaxed);
        scenario();
    })
}

/// Runs the scenario under `schedules` schedules of each kind.
fn explore(scenario: fn(), schedules: usize) {
    run(RandomScheduler::new_from_seed(1, schedules), scenario);
    run(PctScheduler::new_from_seed(1, DEPTH, schedules), scenario);
}

fn holds(scenario: fn()) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    explore(scenario, env("TERRACE_SCHEDULES", 1000));
    let preemptions = env("TERRACE_PREEMPTIONS", 1);
    println!("{} schedules with {preemptions} preemptions", run(Bounded::new(preemptions), scenario));
}

/// The planted bug is found by the scenario within this many schedules.
fn is_found(switch: &'static planted::Switch, scenario: fn(), within: usize) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    RUN.store(0, Ordering::Relaxed);
    switch.set(true);
    let found = std::panic::catch_unwind(|| explore(scenario, within / 2)).is_err();
    switch.set(false);
    assert!(found, "not found in {within} schedules");
    println!("found in schedule {}", RUN.load(Ordering::Relaxed));
}

// --- scenarios -------------------------------------------------------------------------------

/// Two change the same page while a third writes and evicts it.
fn get_flush_and_evict() {
    let rig = Rig::new();
    rig.run(vec![
        Box::new(|rig| rig.bump(0)),
        Box::new(|rig| rig.bump(0)),
        Box::new(|rig| {
            for _ in 0..2 {
                rig.flush();
                rig.evict();
            }
        }),
    ]);
    assert_eq!(rig.read(0), 2);
}

/// One reads and one changes a page that a third evicts to make a new one in its frame.
fn pinned_while_it_leaves() {
    let rig = Rig::new();
    rig.run(vec![
        Box::new(|rig| assert!(rig.read(0) <= 1)),
        Box::new(|rig| rig.bump(0)),
        Box::new(|rig| {
            rig.evict();
            rig.create(50);
        }),
    ]);
    assert_eq!((rig.read(0), rig.read(50)), (1, 0));
}

/// As before, and who reads and who changes go where they saw the page last.
fn seen_before_it_leaves() {
    let rig = Rig::new();
    let seen = Arc::new(LastSeen::new(id(0)));
    drop(rig.pages.load_seen(&seen, Access::Scan).unwrap());
    let also = seen.clone();
    rig.run(vec![
        Box::new(move |rig| {
            let guard = rig.pages.try_read_seen(&also, Access::Scan);
            assert!(guard.is_none_or(|guard| guard.page().id() == id(0)));
        }),
        Box::new(move |rig| {
            loop {
                let mut mtr = rig.pages.begin(1000, 0, Urgency::Normal).unwrap();
                if let Some(no) = mtr.write_seen(&seen) {
                    assert_eq!(mtr.page(no).id(), id(0));
                    mtr.page_mut(no).write_u64(AT, 1);
                    mtr.commit();
                    return;
                }
                drop(mtr);
                assert_eq!(rig.pages.load_seen(&seen, Access::Scan).unwrap().read().page().id(), id(0));
            }
        }),
        Box::new(|rig| {
            rig.evict();
            rig.create(50);
        }),
    ]);
    assert_eq!((rig.read(0), rig.read(50)), (1, 0));
}

/// A weak pin is checked while its page is evicted, loaded into another frame and changed there.
fn remembered_while_it_leaves() {
    let rig = Rig::new();
    let weak = rig.pages.read(id(0), Access::Scan).unwrap().weak();
    rig.run(vec![
        Box::new(move |rig| {
            let value = rig.read(0);
            assert!(!rig.pages.is_unchanged(&weak) || value == 0, "a changed page is as it was");
            if let Some(guard) = rig.pages.read_weak(&weak) {
                assert_eq!(guard.page().id(), id(0));
                assert!(!guard.matches(&weak) || guard.page().u64(AT) == 0);
            }
        }),
        Box::new(|rig| rig.bump(0)),
        Box::new(|rig| _ = rig.evict()),
    ]);
    assert_eq!(rig.read(0), 1);
}

/// Three ask for a page that is below.
fn three_load_one_page() {
    let rig = Rig::new();
    assert!(rig.evict());
    let before = rig.below.fetches.load(Ordering::Relaxed);
    let read = |rig: &Rig| assert_eq!(rig.read(0), 0);
    rig.run(vec![Box::new(read), Box::new(read), Box::new(read)]);
    assert_eq!(rig.below.fetches.load(Ordering::Relaxed), before + 1, "one loader a page");
}

static READ_AHEAD: AtomicU64 = AtomicU64::new(0);

/// A scan reads pages ahead that another changes and a third evicts.
fn read_ahead() {
    let rig = Rig::over(|below| Arc::new(Runs(below)));
    (0..4).for_each(|_| assert!(rig.evict()));
    assert_eq!(rig.read(0), 0);
    rig.run(vec![
        Box::new(|rig| {
            assert_eq!(rig.read(1), 0);
            assert!(rig.read(2) <= 1);
        }),
        Box::new(|rig| rig.bump(2)),
        Box::new(|rig| {
            rig.flush();
            rig.evict();
        }),
    ]);
    READ_AHEAD.fetch_add(rig.pages.pool().counters.read_ahead.load(Ordering::Relaxed), Ordering::Relaxed);
    assert_eq!((rig.read(1), rig.read(2), rig.read(3)), (0, 1, 0));
}

/// The flusher cleans a page, whose frame is evicted and taken for a new page before it lets go.
fn a_frame_is_taken_anew() {
    let rig = Rig::new();
    rig.bump(0);
    rig.run(vec![
        Box::new(|rig| rig.flush()),
        Box::new(|rig| {
            rig.create(50);
            rig.create(51);
        }),
        Box::new(|rig| assert_eq!(rig.read(0), 1)),
    ]);
    assert_eq!((rig.read(0), rig.read(50), rig.read(51)), (1, 0, 0));
}

/// Copied by the flusher, changed, evicted and loaded again before the flusher says that it is written.
fn changed_after_its_copy() {
    let rig = Rig::new();
    rig.bump(0);
    rig.run(vec![
        Box::new(|rig| rig.flush()),
        Box::new(|rig| {
            rig.bump(0);
            rig.bump(1);
        }),
        Box::new(|rig| {
            rig.evict();
            rig.bump(1);
        }),
    ]);
    assert_eq!((rig.read(0), rig.read(1)), (2, 2));
    // And below memory, too.
    while rig.evict() {}
    assert_eq!((rig.read(0), rig.read(1)), (2, 2));
}

/// A freed page is forgotten while one thread uses it anew and others search for room.
fn forgotten_and_used_anew() {
    let rig = Rig::new();
    rig.bump(0);
    let pin = rig.pages.load(id(0), Access::Scan).unwrap();
    let lsn = pin.read().page().lsn();
    rig.run(vec![
        Box::new(move |rig| {
            let pool = rig.pages.pool();
            if pool.latch_as_it_was(pin.frame(), lsn) {
                rig.below.images.lock().remove(&id(0));
                pool.forget_change(pin.frame());
            }
        }),
        Box::new(|rig| {
            loop {
                let mut mtr = rig.pages.begin(1000, 1, Urgency::Normal).unwrap();
                if let Some(no) = mtr.renew(id(0), PageKind::Leaf, 0) {
                    mtr.page_mut(no).write_u64(AT, 40);
                    mtr.commit();
                    break;
                }
                drop(mtr);
                thread::yield_now();
            }
        }),
        Box::new(|rig| {
            rig.evict();
            rig.evict();
        }),
    ]);
    assert_eq!(rig.read(0), 40);
    rig.flush();
    // And below memory, too.
    while rig.evict() {}
    assert_eq!(rig.read(0), 40);
}

/// A space is dropped while one of its pages is read and another written.
fn a_space_is_dropped() {
    let rig = Rig::new();
    rig.bump(1);
    rig.run(vec![
        Box::new(|rig| {
            while rig.pages.pool().discard_space(SPACE) > 0 {
                thread::yield_now();
            }
        }),
        Box::new(|rig| assert_eq!(rig.read(0), 0)),
        Box::new(|rig| rig.flush()),
    ]);
    while rig.pages.pool().discard_space(SPACE) > 0 {}
    assert_eq!(rig.pages.pool().free_frames(), FRAMES);
}

/// Pages move to other frames while one is changed, one read, and all are flushed.
fn frames_go(moves: fn(&Rig)) {
    let rig = Rig::that_grows(FRAMES + 4, FRAMES + 4);
    (0..4).for_each(|page| rig.create(100 + page));
    rig.bump(1);
    rig.run(vec![
        Box::new(|rig| {
            rig.bump(0);
            assert!(rig.read(1) >= 1);
        }),
        Box::new(|rig| {
            rig.flush();
            rig.evict();
        }),
        Box::new(moves),
    ]);
    assert_eq!((rig.read(0), rig.read(1), rig.read(103)), (1, 1, 0));
}

/// The pool gives up frames.
fn the_pool_shrinks() {
    frames_go(|rig| {
        let mut looks = 0;
        let shrunk = rig.pages.pool().resize(FRAMES, &mut |_| {
            looks += 1;
            thread::yield_now();
            looks < 50
        });
        assert!(shrunk.is_ok() || rig.pages.pool().frames() == FRAMES + 4);
    });
}

static WENT_AWAY: AtomicU64 = AtomicU64::new(0);

/// The pool gives up frames, and a page that is pinned goes out of its way.
fn a_pinned_page_makes_way() {
    frames_go(|rig| {
        let mut pin = rig.pages.load(id(103), Access::Normal).unwrap();
        let mut looks = 0;
        let shrunk = rig.pages.pool().resize(FRAMES, &mut |_| {
            looks += 1;
            let went = rig.pages.make_way(&mut pin);
            WENT_AWAY.fetch_add(u64::from(went), Ordering::Relaxed);
            assert_eq!(pin.read().page().id(), id(103));
            thread::yield_now();
            looks < 50
        });
        assert!(shrunk.is_ok() || rig.pages.pool().frames() == FRAMES + 4);
    });
}

/// Memory is lent and comes back.
fn the_pool_lends() {
    frames_go(|rig| {
        let mut loan = Loan::new(rig.pages.pool(), Purpose::Sorts);
        assert!(loan.ask(4 * PAGE_SIZE));
        thread::yield_now();
        rig.pages.pool().settle();
        drop(loan);
        rig.pages.pool().settle();
        assert_eq!(rig.pages.pool().frames_lent(), 0);
    });
}

/// The smallest: one reads, one evicts.
fn read_and_evict() {
    let rig = Rig::new();
    rig.run(vec![Box::new(|rig| assert_eq!(rig.read(0), 0)), Box::new(|rig| _ = rig.evict())]);
}

/// A page comes in where nothing else may leave: a thread that searches for a victim meets its entry before it is in memory.
fn comes_in_where_all_else_stays() {
    let rig = Rig::new();
    assert!(rig.evict());
    (1..FILLED).for_each(|page| rig.bump(page));
    rig.run(vec![Box::new(|rig| assert_eq!(rig.read(0), 0)), Box::new(|rig| _ = rig.evict())]);
}

#[test]
fn no_update_is_lost_between_change_flush_and_eviction() {
    holds(get_flush_and_evict);
}
#[test]
fn a_pinned_page_stays() {
    holds(pinned_while_it_leaves);
}
#[test]
fn a_frame_hint_is_checked_before_it_is_trusted() {
    holds(seen_before_it_leaves);
}
#[test]
fn a_page_that_is_remembered_is_never_taken_for_what_it_was() {
    holds(remembered_while_it_leaves);
}
#[test]
fn a_page_that_comes_in_is_queued_to_leave() {
    holds(comes_in_where_all_else_stays);
}
#[test]
fn a_page_has_one_loader() {
    holds(three_load_one_page);
}
#[test]
fn pages_read_ahead_are_claimed_like_all() {
    holds(read_ahead);
    assert!(READ_AHEAD.load(Ordering::Relaxed) > 1000, "this proves nothing");
}
#[test]
fn a_frame_may_be_reused_while_the_flusher_releases_it() {
    holds(a_frame_is_taken_anew);
}
#[test]
fn a_page_changed_after_its_copy_is_written_again() {
    holds(changed_after_its_copy);
}
#[test]
fn a_page_in_use_again_is_not_forgotten() {
    holds(forgotten_and_used_anew);
}
#[test]
fn a_dropped_space_leaves_no_frame_behind() {
    holds(a_space_is_dropped);
}
#[test]
fn a_page_moves_between_two_uses_when_the_pool_shrinks() {
    holds(the_pool_shrinks);
}
#[test]
fn a_pinned_page_makes_way_for_a_smaller_pool() {
    holds(a_pinned_page_makes_way);
    assert!(WENT_AWAY.load(Ordering::Relaxed) > 1000, "this proves nothing");
}
#[test]
fn a_page_moves_between_two_uses_when_memory_is_lent() {
    holds(the_pool_lends);
}
#[test]
fn one_read_and_one_eviction_with_two_preemptions() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    println!("{} schedules", run(Bounded::new(2), read_and_evict));
}

#[test]
fn planted_an_entry_of_a_page_that_comes_in_dropped_is_found() {
    is_found(&planted::CLAIMED_ENTRY_DROPPED, comes_in_where_all_else_stays, 3000);
}
#[test]
fn planted_a_leaving_frame_that_is_taken_for_unchanged_is_found() {
    is_found(&planted::LEAVING_FRAME_TRUSTED, remembered_while_it_leaves, 20_000);
}
#[test]
fn planted_pins_looked_at_too_early_are_found() {
    is_found(&planted::PINS_SEEN_EARLY, pinned_while_it_leaves, 3000);
}
#[test]
fn planted_a_frame_taken_while_it_is_latched_is_found() {
    is_found(&planted::LATCHED_FRAME_TAKEN, a_frame_is_taken_anew, 3000);
}
#[test]
fn planted_memory_that_is_lent_while_a_page_is_in_it_is_found() {
    is_found(&planted::LENT_IN_USE, the_pool_lends, 3000);
}
#[test]
fn planted_a_change_after_the_copy_that_is_forgotten_is_found() {
    is_found(&planted::CHANGE_AFTER_COPY_FORGOTTEN, changed_after_its_copy, 3000);
}
#[test]
fn planted_a_page_in_use_that_is_forgotten_is_found() {
    is_found(&planted::USED_PAGE_FORGOTTEN, forgotten_and_used_anew, 3000);
}
#[test]
fn planted_a_second_loader_is_found() {
    is_found(&planted::CLAIM_NOT_WAITED, three_load_one_page, 3000);
}
#[test]
fn planted_a_stale_frame_that_is_trusted_is_found() {
    is_found(&planted::STALE_FRAME_TRUSTED, pinned_while_it_leaves, 3000);
}
#[test]
fn planted_a_frame_that_is_trusted_to_have_what_it_had_is_found() {
    is_found(&planted::STALE_FRAME_TRUSTED, seen_before_it_leaves, 3000);
}
