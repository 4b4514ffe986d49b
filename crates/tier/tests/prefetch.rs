//! Scans of cold blocks: their pages are prefetched in few requests, and pages on flash are read from flash.

mod rig;

use rig::{Rig, fill, page_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::disk::Class;
use terrace_io::sched::{Step, Worker};
use terrace_io::store::Purpose;
use terrace_tier::ablation::Mechanism;
use terrace_tier::flash::Leaving;
use terrace_tier::limits::meter;
use terrace_tier::memory::lower_tiers::Below;
use terrace_tier::memory::pages::Pages;
use terrace_tier::memory::pool::{Access, Reads};
use terrace_tier::memory::prefetch::Prefetcher;
use terrace_tier::page::PageId;

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
    // The first page, and the second with its prefetched neighbours; the others were in memory.
    assert_eq!(counters.misses.load(Ordering::Relaxed), 2);
    assert_eq!(counters.prefetched.load(Ordering::Relaxed), u64::from(PAGES) - 33);
}

/// The same from the last page down to the second: the first is a space's header.
fn scan_down(rig: &Rig) -> (u64, u64) {
    let mut prefetcher = Prefetcher(rig.run.pages.pool().clone());
    for n in (1..PAGES).rev() {
        drop(rig.run.pages.read(page(n), Access::ScanDown).unwrap());
        while prefetcher.step() == Step::Worked {}
    }
    rig.run.pages.pool().check_invariants();
    (rig.store.requests(Purpose::PageMiss), rig.store.requests(Purpose::BlockRead))
}

#[test]
fn a_scan_down_finds_what_it_reads_in_memory_too() {
    let rig = cold();
    assert_eq!(scan_down(&rig), (1, 2));
    let counters = &rig.run.pages.pool().counters;
    assert_eq!(counters.misses.load(Ordering::Relaxed), 2);
    assert_eq!(counters.prefetched.load(Ordering::Relaxed), u64::from(PAGES) - 34);
    // From flash, and over a patch, likewise.
    let mut rig = cold();
    for n in [3, 4, 5, 20, 33] {
        let (image, _) = rig::image(page(n), rig.version(page(n)).unwrap());
        rig.run.bpe.evicted(page(n), &image, Leaving::used(3));
        fill(&mut rig.run);
    }
    assert_eq!(scan_down(&rig), (1, 2));
    assert_eq!(rig.run.path.counters.flash.load(Ordering::Relaxed), 5);
    let rig = cold();
    (3..PAGES).step_by(9).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.sinker.sink_all().unwrap();
    let (one, many) = scan_down(&rig);
    assert!(one + many <= 6, "{one} requests for a page, {many} for more");
}

/// Nor does a page that is read together with its neighbours cause further reads.
#[test]
fn without_read_ahead_each_page_is_a_request_of_its_own() {
    let rig = cold();
    let path = rig.path_without(Mechanism::Prefetch);
    let memory = Pages::new(rig.sim.world(), 48, path, rig.log.clone());
    let mut prefetcher = Prefetcher(memory.pool().clone());
    for n in 0..PAGES {
        if n % 10 == 9 {
            memory.bring_with(page(n), 4, 4);
        }
        let guard = memory.read(page(n), Access::Scan).unwrap();
        assert_eq!(Some(guard.page().lsn()), rig.version(page(n)), "page {n}");
        drop(guard);
        while prefetcher.step() == Step::Worked {}
    }
    memory.pool().check_invariants();
    assert_eq!([Purpose::PageMiss, Purpose::BlockRead].map(|p| rig.store.requests(p)), [u64::from(PAGES), 0]);
    let counters = &memory.pool().counters;
    assert_eq!([&counters.read_ahead, &counters.prefetched].map(|n| n.load(Ordering::Relaxed)), [0; 2]);
}

/// A few pages of the block are in its patch object: far from each other by their numbers, and side by side there.
#[test]
fn a_scan_of_a_patched_block_takes_few_requests_more() {
    let rig = cold();
    (3..PAGES).step_by(9).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.sinker.sink_all().unwrap();
    assert!(rig.patch(0).is_some());
    let (one, many) = scan(&rig, true);
    println!("{one} requests for a page, {many} for more");
    assert!(one + many <= 6, "{one} requests for a page, {many} for more");
}

/// Reads the first `count` pages as a range of keys does, the prefetcher at work. Returns the pages that it waited for, and those that came
/// before they were asked for.
fn range(count: u32) -> (u64, u64) {
    let rig = cold();
    let mut prefetcher = Prefetcher(rig.run.pages.pool().clone());
    for n in 0..count {
        let access = if n < 2 { Access::Normal } else { Access::Range(n as u8) };
        drop(rig.run.pages.read(page(n), access).unwrap());
        while prefetcher.step() == Step::Worked {}
    }
    rig.run.pages.pool().check_invariants();
    let counters = &rig.run.pages.pool().counters;
    (counters.misses.load(Ordering::Relaxed), counters.read_ahead.load(Ordering::Relaxed))
}

#[test]
fn a_range_has_few_pages_fetched_ahead_before_it_has_read_many() {
    assert_eq!(range(2), (2, 0));
    assert_eq!(range(3), (3, 2));
    // From the mark on in stretches, each twice as long as the one before: 5 to 10, 11 to 22, the rest.
    assert_eq!(range(4), (3, 8));
    assert_eq!(range(8), (3, 8));
    assert_eq!(range(9), (3, 20));
    assert_eq!(range(PAGES), (3, u64::from(PAGES) - 3));
}

#[test]
fn a_range_down_has_few_pages_fetched_ahead_at_first() {
    let rig = cold();
    let mut prefetcher = Prefetcher(rig.run.pages.pool().clone());
    let counters = &rig.run.pages.pool().counters;
    for (read, n) in (1..PAGES).rev().enumerate() {
        let access = if read < 2 { Access::Normal } else { Access::RangeDown(read as u8) };
        drop(rig.run.pages.read(page(n), access).unwrap());
        while prefetcher.step() == Step::Worked {}
        if read == 2 {
            assert_eq!(
                (counters.misses.load(Ordering::Relaxed), counters.read_ahead.load(Ordering::Relaxed)),
                (3, 2)
            );
        }
    }
    assert_eq!(
        (counters.misses.load(Ordering::Relaxed), counters.read_ahead.load(Ordering::Relaxed)),
        (3, u64::from(PAGES) - 4)
    );
}

#[test]
fn without_a_prefetcher_a_scan_reads_its_pages_itself() {
    let rig = cold();
    scan(&rig, false);
    let counters = &rig.run.pages.pool().counters;
    assert!(counters.misses.load(Ordering::Relaxed) > 2 && counters.prefetched.load(Ordering::Relaxed) == 0);
}

#[test]
fn pages_on_flash_are_read_from_flash_and_do_not_split_requests_for_others() {
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

fn counted(rig: &Rig) -> Reads {
    let space = page(0).space;
    rig.run.pages.pool().reads_by_space(&[space])[&space]
}

#[test]
fn prefetched_pages_count_for_the_tier_they_came_from() {
    let all = u64::from(PAGES);
    let mut mixed = cold();
    put_on_flash(&mut mixed, 5);
    let near = Rig::with_flash(1, 400, 400);
    (0..PAGES).for_each(|n| assert!(near.flush(page(n))));
    for (rig, prefetches, expected) in
        [(mixed, true, [0, 5, 0, all - 5]), (cold(), false, [0, 0, 0, all]), (near, true, [0, 0, all, 0])]
    {
        meter::take();
        scan(&rig, prefetches);
        let (mine, table) = (meter::take(), counted(&rig));
        assert_eq!([0, 1, 2, 3].map(|tier| mine.pages[tier] + mine.ahead[tier]), expected);
        assert_eq!([table.memory, table.flash, table.volume, table.object], expected);
        let counters = &rig.run.pages.pool().counters;
        assert_eq!(mine.pages.iter().sum::<u64>(), counters.misses.load(Ordering::Relaxed));
        assert_eq!(mine.ahead.iter().sum::<u64>(), table.ahead);
        assert!(table.ahead >= all / 2, "{table:?}");
        // All of them are used by now.
        (0..PAGES).for_each(|n| scanned(&rig, n, Access::Scan));
        let again = meter::take();
        assert_eq!((again.pages, again.ahead), ([all, 0, 0, 0, 0], [0; 5]));
        assert_eq!(counted(&rig).memory, all);
    }
}

#[test]
fn a_prefetched_page_that_is_not_used_does_not_count_as_read() {
    let rig = cold();
    for (n, access) in [Access::Normal, Access::Normal, Access::Range(2)].into_iter().enumerate() {
        drop(rig.run.pages.read(page(n as u32), access).unwrap());
    }
    let seen = counted(&rig);
    assert_eq!((seen.memory, seen.object, seen.ahead), (0, 3, 2));
    // An estimate doesn't count in memory, and leaves the first use to another.
    drop(rig.run.pages.read(page(3), Access::Estimate).unwrap());
    assert_eq!(counted(&rig), seen);
    (0..2).for_each(|_| drop(rig.run.pages.read(page(3), Access::Normal).unwrap()));
    assert_eq!(counted(&rig), Reads { object: 4, memory: 1, ..seen });
}

#[test]
fn a_failed_prefetch_fails_no_reader() {
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

/// The first `count` pages are on flash as they are now.
fn put_on_flash(rig: &mut Rig, count: u32) {
    for n in 0..count {
        let (image, _) = rig::image(page(n), rig.version(page(n)).unwrap());
        rig.run.bpe.evicted(page(n), &image, Leaving::used(3));
        fill(&mut rig.run);
    }
}

/// A page as a scan gets it: it must be the newest version.
fn scanned(rig: &Rig, n: u32, access: Access) {
    let guard = rig.run.pages.read(page(n), access).unwrap();
    assert_eq!(Some(guard.page().lsn()), rig.version(page(n)), "page {n}");
}

fn from_flash(rig: &Rig) -> (u64, u64) {
    (rig.flash.requests(Class::BpeRead), rig.run.path.counters.flash.load(Ordering::Relaxed))
}

#[test]
fn a_scan_of_what_flash_has_reads_many_pages_with_one_request() {
    const MANY: u32 = 300;
    let mut rig = Rig::with_flash(1, 400, 400);
    (0..MANY).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.sinker.sink_all().unwrap();
    put_on_flash(&mut rig, MANY);
    // Memory with room for a stretch.
    let memory = Arc::new(Pages::new(rig.sim.world(), 600, rig.run.path.clone(), rig.log.clone()));
    let mut prefetcher = Prefetcher(memory.pool().clone());
    for n in 0..MANY {
        let guard = memory.read(page(n), Access::Scan).unwrap();
        assert_eq!(Some(guard.page().lsn()), rig.version(page(n)), "page {n}");
        while prefetcher.step() == Step::Worked {}
    }
    memory.pool().check_invariants();
    rig.run.bpe.check_invariants();
    let (requests, pages) = from_flash(&rig);
    assert_eq!(pages, u64::from(MANY), "each page is read once");
    assert!((19..=28).contains(&requests), "{requests} requests for {MANY} pages");
    assert_eq!(rig.run.path.counters.object.load(Ordering::Relaxed), 0);
    let counters = &rig.run.bpe.counters;
    assert_eq!(counters.hits.load(Ordering::Relaxed), u64::from(MANY));
    assert_eq!(counters.misses.load(Ordering::Relaxed), 0);
}

#[test]
fn without_vectored_reads_each_page_of_a_run_is_a_request() {
    let half = PAGES / 2;
    let mut rig = Rig::with_flash(1, 400, 400);
    (0..PAGES).for_each(|n| assert!(rig.flush(page(n))));
    put_on_flash(&mut rig, half);
    let path = rig.path_without(Mechanism::VectoredReads);
    let memory = Pages::new(rig.sim.world(), 400, path.clone(), rig.log.clone());
    let mut prefetcher = Prefetcher(memory.pool().clone());
    for n in 0..PAGES {
        let guard = memory.read(page(n), Access::Scan).unwrap();
        assert_eq!(Some(guard.page().lsn()), rig.version(page(n)), "page {n}");
        while prefetcher.step() == Step::Worked {}
    }
    memory.pool().check_invariants();
    assert_eq!(rig.flash.requests(Class::BpeRead), u64::from(half));
    assert_eq!(
        [&path.counters.flash, &path.counters.volume].map(|count| count.load(Ordering::Relaxed)),
        [u64::from(half); 2]
    );
    assert!(
        memory.pool().counters.prefetched.load(Ordering::Relaxed) > 0,
        "they were read ahead all the same"
    );
}

#[test]
fn without_single_flight_a_page_being_read_is_requested_again() {
    let rig = cold();
    let asked = |path: &dyn Below, n: u32| {
        let before = rig.store.requests(Purpose::PageMiss);
        path.fetch_again(page(n));
        rig.store.requests(Purpose::PageMiss) - before
    };
    assert_eq!(asked(&*rig.run.path, 3), 0);
    let path = rig.path_without(Mechanism::SingleFlight);
    assert_eq!(
        [asked(&*path, 3), asked(&*path, PAGES)],
        [1, 0],
        "a page that there is not has nobody to be asked for"
    );
    // Errors of a prefetch are ignored.
    rig.store.faults.dead.store(true, Ordering::SeqCst);
    path.fetch_again(page(3));
}

#[test]
fn torn_or_stale_copies_on_flash_are_read_from_lower_tiers() {
    for seed in 0..2 {
        let mut rig = Rig::with_flash(seed, 400, 400);
        (0..PAGES).for_each(|n| assert!(rig.flush(page(n))));
        put_on_flash(&mut rig, PAGES);
        let stale = [4, 30].map(|n| (n, rig::image(page(n), 1).0));
        let torn = [5, 31].map(|n| {
            let mut image = rig::image(page(n), 1).0;
            image[9000..9512].fill(7);
            (n, image)
        });
        for (n, image) in stale.iter().chain(&torn) {
            assert!(rig.flush(page(*n)));
            rig.run.bpe.evicted(page(*n), image, Leaving::used(3));
            fill(&mut rig.run);
        }
        if seed == 1 {
            rig.run.sinker.sink_all().unwrap();
        }
        let before = from_flash(&rig).1;
        let mut prefetcher = Prefetcher(rig.run.pages.pool().clone());
        for n in 0..PAGES {
            scanned(&rig, n, Access::Scan);
            while prefetcher.step() == Step::Worked {}
        }
        rig.run.bpe.check_invariants();
        let (counters, path) = (&rig.run.bpe.counters, &rig.run.path.counters);
        assert_eq!(counters.stale.load(Ordering::Relaxed), 2);
        assert_eq!(counters.corrupt.load(Ordering::Relaxed), 2);
        assert_eq!(from_flash(&rig).1 - before, u64::from(PAGES) - 4);
        let below = if seed == 1 { &path.object } else { &path.volume };
        assert_eq!(below.load(Ordering::Relaxed), 4);
        for n in [4, 30, 5, 31] {
            assert!(!rig.run.bpe.seems_to_have(page(n)), "page {n} is not found there again");
        }
    }
}

#[test]
fn single_misses_prefetch_nothing_from_flash_and_a_starting_scan_few_pages() {
    let mut rig = Rig::with_flash(1, 400, 400);
    (0..200).for_each(|n| assert!(rig.flush(page(n))));
    put_on_flash(&mut rig, 200);
    let ahead = |rig: &Rig| rig.run.pages.pool().counters.read_ahead.load(Ordering::Relaxed);
    for n in 0..8 {
        scanned(&rig, 3 + 20 * n, Access::Scan);
        scanned(&rig, 4 + 20 * n, Access::Normal);
    }
    assert_eq!((from_flash(&rig), ahead(&rig)), ((16, 16), 0));
    scanned(&rig, 180, Access::Scan);
    scanned(&rig, 181, Access::Scan);
    assert_eq!((from_flash(&rig), ahead(&rig)), ((18, 21), 3));
}

/// Some of the first pages are on flash, some were flushed again since all sank, and some have copies in the slots that they
/// left.
fn everywhere() -> Rig {
    let mut rig = Rig::with_flash(1, 400, 400);
    rig.run.map.keep_clean_copies(3);
    (24..27).chain((0..24).chain(27..PAGES)).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.sinker.sink_all().unwrap();
    (16..19).for_each(|n| assert!(rig.flush(page(n))));
    for n in [10, 12, 13, 17] {
        let (image, _) = rig::image(page(n), rig.version(page(n)).unwrap());
        rig.run.bpe.evicted(page(n), &image, Leaving::used(3));
        fill(&mut rig.run);
    }
    rig
}

fn in_memory(rig: &Rig) -> Vec<u32> {
    (0..PAGES).filter(|n| rig.run.pages.try_read(page(*n), Access::Internal).is_some()).collect()
}

#[test]
fn a_page_is_read_together_with_neighbours_of_its_own_tier_only() {
    for (wanted, brought, [flash, volume, clean, object]) in [
        (12, vec![10, 12, 13], [3, 0, 0, 0]),
        (16, vec![16, 18], [0, 2, 0, 0]),
        (25, vec![24, 25, 26], [0, 3, 3, 0]),
        (20, vec![19, 20, 21, 22, 23], [0, 0, 0, 5]),
        (11, vec![7, 8, 9, 11, 14, 15], [0, 0, 0, 6]),
    ] {
        let rig = everywhere();
        rig.run.pages.bring_with(page(wanted), 4, 4);
        assert_eq!(in_memory(&rig), brought);
        let path = &rig.run.path.counters;
        let counted = [&path.flash, &path.volume, &path.clean, &path.object];
        assert_eq!(counted.map(|count| count.load(Ordering::Relaxed)), [flash, volume, clean, object]);
        let requests = [Purpose::PageMiss, Purpose::BlockRead].map(|purpose| rig.store.requests(purpose));
        assert_eq!(requests, [0, u64::from(object > 0)], "page {wanted}");
        brought.iter().for_each(|n| scanned(&rig, *n, Access::Normal));
    }
}

#[test]
fn no_more_neighbours_are_read_than_buffers_have_room_for() {
    for (wanted, brought) in [(33, vec![33, 34, 35]), (38, vec![37, 38, 39]), (0, vec![0, 1, 2])] {
        let rig = cold();
        rig.run.pages.pool().set_prefetch(3);
        rig.run.pages.bring_with(page(wanted), 4, 4);
        assert_eq!(in_memory(&rig), brought);
    }
}

#[test]
fn prefetched_pages_that_are_not_used_are_no_evidence_of_reuse() {
    const FLASH: u32 = 160;
    const WANTED: u32 = 276;
    let mut rig = Rig::with_flash(1, 400, u64::from(FLASH));
    (0..FLASH).chain(200..224).chain(256..296).for_each(|n| assert!(rig.flush(page(n))));
    rig.run.sinker.sink_all().unwrap();
    // Flash is full: admission needs evidence of reuse.
    put_on_flash(&mut rig, FLASH);
    let memory = Pages::new(rig.sim.world(), 16, rig.run.path.clone(), rig.log.clone());
    for _ in 0..3 {
        memory.bring_with(page(WANTED), 4, 4);
        drop(memory.read(page(WANTED), Access::Normal).unwrap());
        for n in 200..224 {
            drop(memory.read(page(n), Access::Normal).unwrap());
            fill(&mut rig.run);
        }
    }
    assert!(memory.pool().counters.read_ahead.load(Ordering::Relaxed) > 3, "neighbours came along");
    for n in WANTED - 4..=WANTED + 4 {
        assert_eq!(rig.run.bpe.seems_to_have(page(n)), n == WANTED, "page {n}");
    }
}
