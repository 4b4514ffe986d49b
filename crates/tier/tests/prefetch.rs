//! Scans of cold blocks: what they will read is fetched before they come to it, in few requests, and pages on flash come
//! from flash.

mod rig;

use rig::{Rig, fill, page_of};
use std::sync::atomic::Ordering;
use terrace_io::sched::{Step, Worker};
use terrace_io::store::Purpose;
use terrace_tier::page::PageId;
use terrace_tier::path::Leaving;
use terrace_tier::pool::Access;
use terrace_tier::prefetch::Prefetcher;

const PAGES: u32 = 40;

fn page(n: u32) -> PageId {
    page_of(n / 128, n % 128)
}

/// Pages that are in one object alone.
fn cold() -> Rig {
    let rig = Rig::with_flash(1, 400, 400);
    (0..PAGES).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.sinker.sink_all().unwrap();
    rig
}

/// Scans all pages; `ahead` lets the prefetcher work whenever it can. Returns the requests for one page and for many.
fn scan(rig: &Rig, ahead: bool) -> (u64, u64) {
    let mut prefetcher = Prefetcher(rig.run.pages.pool().clone());
    for n in 0..PAGES {
        drop(rig.run.pages.read(page(n), Access::Scan).unwrap());
        while ahead && prefetcher.step() == Step::Worked {}
    }
    rig.run.pages.pool().check_invariants();
    (rig.store.requests(Purpose::PageMiss), rig.store.requests(Purpose::BlockRead))
}

#[test]
fn a_scan_finds_what_it_reads_in_memory() {
    let rig = cold();
    assert_eq!(scan(&rig, true), (1, 2));
    let counters = &rig.run.pages.pool().counters;
    // The first page, and the second with those that came along; the others were there.
    assert_eq!(counters.misses.load(Ordering::Relaxed), 2);
    assert_eq!(counters.prefetched.load(Ordering::Relaxed), u64::from(PAGES) - 33);
}

#[test]
fn without_its_prefetcher_it_waits_itself() {
    let rig = cold();
    scan(&rig, false);
    let counters = &rig.run.pages.pool().counters;
    assert!(counters.misses.load(Ordering::Relaxed) > 2 && counters.prefetched.load(Ordering::Relaxed) == 0);
}

#[test]
fn pages_on_flash_come_from_there_and_do_not_divide_the_others() {
    let mut rig = cold();
    for n in [5, 6, 11, 35, 36] {
        let (image, _) = rig::image(page(n), rig.version(page(n)).unwrap());
        rig.run.bpe.evicted(page(n), &image, Leaving::used(3));
        fill(&mut rig.run);
    }
    assert_eq!(scan(&rig, true), (1, 2));
    assert_eq!(rig.run.path.counters.flash.load(Ordering::Relaxed), 5);
    assert_eq!(rig.run.path.counters.object.load(Ordering::Relaxed), u64::from(PAGES) - 5);
}

#[test]
fn a_prefetch_that_fails_is_nobodys_error() {
    let rig = cold();
    let mut prefetcher = Prefetcher(rig.run.pages.pool().clone());
    for n in 0..PAGES {
        drop(rig.run.pages.read(page(n), Access::Scan).unwrap());
        rig.store.faults.dead.store(true, Ordering::SeqCst);
        while prefetcher.step() == Step::Worked {}
        rig.store.faults.dead.store(false, Ordering::SeqCst);
    }
    assert_eq!(rig.run.pages.pool().counters.prefetched.load(Ordering::Relaxed), 0);
}
