use crate::memory::frame::{ACCESSES_MAX, FrameNo};
use crate::memory::pages::Pages;
use crate::memory::pool::Access;
use crate::page::{PAGE_SIZE, PageId, PageKind, SpaceId};
use crate::testing::{MemoryBelow, MemoryLog, flush_all, pages, replay, world};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::sched::Worker;
use terrace_log::Urgency;

const SPACE: SpaceId = SpaceId(20);
const AT: usize = 100;

pub(super) fn id(page: u32) -> PageId {
    PageId::new(SPACE, page)
}

/// A pool that can grow to `max` frames, and what is below it.
pub(super) fn that_grow(frames: usize, max: usize) -> (Arc<Pages>, Arc<MemoryBelow>) {
    let below = Arc::new(MemoryBelow::default());
    let log = Arc::new(MemoryLog::default());
    (Arc::new(Pages::that_grow(world(), frames, max, below.clone(), log)), below)
}

fn create(pages: &Pages, page: u32) {
    let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
    mtr.create(id(page), PageKind::Leaf, 0);
    mtr.commit();
}

/// Adds one to the counter of each page, as one mini-transaction.
fn bump(pages: &Pages, which: &[u32]) {
    let mut pins = Vec::new();
    loop {
        let mut mtr = pages.begin(4000, 0, Urgency::Normal).unwrap();
        let latched: Result<Vec<_>, _> = which.iter().map(|p| mtr.write(id(*p)).ok_or(*p)).collect();
        match latched {
            Ok(latched) => {
                for no in latched {
                    let value = mtr.page(no).u64(AT);
                    mtr.page_mut(no).write_u64(AT, value + 1);
                }
                mtr.commit();
                return;
            }
            Err(missing) => {
                drop(mtr);
                pins.push(pages.load(id(missing), Access::Normal).unwrap());
            }
        }
    }
}

/// Resident bytes behind the addresses of `frames` frames, by the kernel's page map: other tests of this process allocate and
/// free memory meanwhile.
pub(super) fn resident(pages: &Pages, frames: usize) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let line = smaps.lines().find(|line| line.starts_with("KernelPageSize:")).unwrap();
    let unit = line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10;
    // SAFETY: no thread changes frames meanwhile; only the address is taken.
    let base = unsafe { pages.pool().arena.bytes(FrameNo(0)) }.as_ptr() as usize;
    let mut entries = vec![0; frames * PAGE_SIZE / unit * 8];
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entries, (base / unit * 8) as u64).unwrap();
    // In memory, or swapped out.
    entries.chunks(8).filter(|entry| entry[7] & 0xc0 != 0).count() * unit
}

#[test]
fn a_page_is_found_again_after_its_eviction() {
    let (pages, below, _) = pages(16);
    for page in 0..64 {
        create(&pages, page);
        bump(&pages, &[page]);
        flush_all(&pages, &below);
    }
    for page in 0..64 {
        assert_eq!(pages.read(id(page), Access::Normal).unwrap().page().u64(AT), 1);
    }
    assert!(pages.pool().counters.evictions.load(Ordering::Relaxed) >= 48);
    pages.pool().check_invariants();
}

#[test]
fn the_log_alone_makes_the_pages_again() {
    let (pages, _, log) = pages(32);
    for page in 0..8 {
        create(&pages, page);
    }
    for round in 0..100u32 {
        bump(&pages, &[round % 8, (round + 3) % 8]);
    }
    for (id, image) in replay(&log) {
        assert_eq!(pages.read(id, Access::Normal).unwrap().page().all(), &image[..], "page {id}");
    }
}

#[test]
fn a_page_changed_after_its_copy_stays_dirty() {
    let (pages, _, _) = pages(16);
    create(&pages, 1);
    let no = pages.pool().oldest_dirty_frames(1)[0];
    let mut buf = vec![0; crate::page::PAGE_SIZE];
    let copy = pages.pool().copy_dirty(no, &mut buf).unwrap();
    bump(&pages, &[1]);
    pages.pool().flushed(&copy);
    assert_eq!(pages.pool().dirty_frames(), 1);
    assert_eq!(pages.pool().oldest_dirty(), Some(copy.lsn));
    let copy = pages.pool().copy_dirty(no, &mut buf).unwrap();
    pages.pool().flushed(&copy);
    assert_eq!(pages.pool().oldest_dirty(), None);
    pages.pool().check_invariants();
}

/// What a statement's estimate looks at is looked at again by the next such statement: it stays as what is read does.
#[test]
fn a_page_used_again_outlives_a_scan() {
    for access in [Access::Normal, Access::Estimate] {
        outlives_a_scan(access);
    }
}

fn outlives_a_scan(access: Access) {
    let (pages, below, _) = pages(64);
    for page in 0..300 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    // Used again, with other pages coming in between.
    for page in 20..23 {
        drop(pages.read(id(7), access).unwrap());
        (0..2).for_each(|i| drop(pages.read(id(page + 10 * i), Access::Scan).unwrap()));
    }
    let before = below.fetches.load(Ordering::Relaxed);
    for page in 100..300 {
        drop(pages.read(id(page), Access::Scan).unwrap());
    }
    assert!(below.fetches.load(Ordering::Relaxed) > before + 100, "the scan came from below");
    let before = below.fetches.load(Ordering::Relaxed);
    drop(pages.read(id(7), Access::Normal).unwrap());
    assert_eq!(below.fetches.load(Ordering::Relaxed), before, "page 7 had stayed");
}

/// In a small pool a page that an estimate got from the store was gone when the statement came to read it, and was got twice: flash took a
/// page when it left memory for the second time.
#[test]
fn what_an_estimate_got_from_the_store_leaves_as_a_page_that_is_used_again() {
    let (pages, below, _) = pages(256);
    for page in 0..1000 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    let accesses_of = |far: bool, uses: &[Access]| {
        let scan = || (100..1000).for_each(|page| drop(pages.read(id(page), Access::Scan).unwrap()));
        scan();
        below.left.lock().clear();
        below.is_far.store(far, Ordering::Relaxed);
        uses.iter().for_each(|access| drop(pages.read(id(7), *access).unwrap()));
        scan();
        below.left.lock()[&id(7)]
    };
    assert_eq!(accesses_of(true, &[Access::Estimate]), ACCESSES_MAX);
    assert_eq!(accesses_of(true, &[Access::Estimate, Access::Estimate]), ACCESSES_MAX);
    // It came: what counts is whether it is used again.
    assert_eq!(accesses_of(true, &[Access::Estimate, Access::Normal]), 1);
    assert_eq!(accesses_of(true, &[Access::Normal]), 1);
    assert_eq!(accesses_of(false, &[Access::Estimate]), 1);
}

#[test]
fn a_page_that_one_operation_looks_at_thrice_leaves_with_the_scan() {
    let (pages, below, _) = pages(64);
    for page in 0..300 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    for _ in 0..3 {
        drop(pages.read(id(7), Access::Normal).unwrap());
    }
    for page in 100..300 {
        drop(pages.read(id(page), Access::Scan).unwrap());
    }
    let before = below.fetches.load(Ordering::Relaxed);
    drop(pages.read(id(7), Access::Normal).unwrap());
    assert_eq!(below.fetches.load(Ordering::Relaxed), before + 1, "page 7 had left");
}

/// Opening any number of tables costs what is in memory nothing.
#[test]
fn pages_that_are_needed_once_leave_each_other_and_no_others() {
    let (pages, below, _) = pages(64);
    for page in 0..300 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    (0..40).for_each(|page| drop(pages.read(id(page), Access::Normal).unwrap()));
    (100..300).for_each(|page| drop(pages.read(id(page), Access::Once).unwrap()));
    // Used after all.
    drop(pages.read(id(50), Access::Once).unwrap());
    drop(pages.read(id(50), Access::Normal).unwrap());
    (100..300).for_each(|page| drop(pages.read(id(page), Access::Once).unwrap()));
    let before = below.fetches.load(Ordering::Relaxed);
    (0..40).chain([50]).for_each(|page| drop(pages.read(id(page), Access::Normal).unwrap()));
    assert_eq!(below.fetches.load(Ordering::Relaxed), before, "they had stayed");
    pages.pool().check_invariants();
}

/// Nothing is evicted meanwhile, so no thread scans the queues.
#[test]
fn spaces_that_come_and_go_leave_nothing_in_the_queues() {
    let (pages, below, _) = pages(64);
    (0..10).for_each(|page| create(&pages, page));
    flush_all(&pages, &below);
    for turn in 0..2000 {
        let space = SpaceId(SPACE.0 + 1 + turn);
        let mut mtr = pages.begin(1000, 2, Urgency::Normal).unwrap();
        (0..2).for_each(|page| _ = mtr.create(PageId::new(space, page), PageKind::Leaf, 0));
        mtr.commit();
        assert_eq!(pages.pool().discard_space(space), 0);
    }
    assert_eq!(pages.pool().counters.evictions.load(Ordering::Relaxed), 0);
    let entries = pages.pool().queues.lock().entries();
    assert!(entries <= 2 * 64 + 64, "{entries} entries for 64 frames");
    // What is there is found to be evicted.
    for page in 10..200 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    pages.pool().check_invariants();
}

#[test]
fn a_page_that_is_nowhere_is_an_error_and_leaves_no_claim() {
    let (pages, _, _) = pages(16);
    assert!(pages.read(id(9), Access::Normal).is_err());
    assert!(pages.read(id(9), Access::Normal).is_err());
    assert_eq!(pages.pool().free_frames(), 16);
    pages.pool().check_invariants();
}

#[test]
#[should_panic(expected = "dropped with changes")]
fn changes_are_never_dropped_silently() {
    let (pages, _, _) = pages(16);
    let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
    mtr.create(id(1), PageKind::Leaf, 0);
    drop(mtr);
}

#[test]
fn a_dropped_space_leaves_no_frame() {
    let (pages, _, _) = pages(16);
    (0..5).for_each(|page| create(&pages, page));
    let pin = pages.load(id(2), Access::Normal).unwrap();
    assert_eq!(pages.pool().discard_space(SPACE), 1);
    drop(pin);
    assert_eq!(pages.pool().discard_space(SPACE), 0);
    assert_eq!(pages.pool().free_frames(), 16);
    pages.pool().check_invariants();
}

/// The places that pages of a dropped space had in the queue stay until they are looked at.
#[test]
fn a_frame_that_stands_in_the_queue_twice_is_flushed_once() {
    let (pages, _, _) = pages(16);
    (0..5).for_each(|page| create(&pages, page));
    assert_eq!(pages.pool().discard_space(SPACE), 0);
    (0..5).for_each(|page| create(&pages, page));
    let frames = pages.pool().cold_dirty_frames(64);
    let different: std::collections::HashSet<u32> = frames.iter().map(|no| no.0).collect();
    assert_eq!((frames.len(), different.len()), (5, 5));
}

/// Threads add to pairs of counters in a pool far smaller than the pages, with the evictor and a
/// flusher beside them. No addition is lost, and each page was loaded by one loader at a time.
#[test]
fn no_update_is_lost_under_eviction_and_flush() {
    const PAGES: u32 = 96;
    let (pages, below, _) = pages(32);
    for page in 0..PAGES {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut evictor = pages.evictors().remove(0);
            while !done.load(Ordering::Relaxed) {
                flush_all(&pages, &below);
                evictor.step();
                std::thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..4u64)
            .map(|thread| {
                let pages: Arc<Pages> = pages.clone();
                scope.spawn(move || {
                    let mut x = thread * 7919 + 1;
                    for _ in 0..3000 {
                        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let (a, b) = ((x >> 33) as u32 % PAGES, (x >> 45) as u32 % PAGES);
                        let (a, b) = (a.min(b), a.max(b));
                        bump(&pages, if a == b { &[0, 1] } else { &[] as &[u32] });
                        if a != b {
                            bump(&pages, &[a, b]);
                        }
                    }
                })
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    flush_all(&pages, &below);
    assert_eq!(total(&pages, PAGES), 4 * 3000 * 2);
    pages.pool().check_invariants();
    let _: &MemoryBelow = &below;
}

/// The flusher makes a page clean under its latch; the frame may be evicted and taken for a new page
/// before the flusher has let go of it.
#[test]
fn a_frame_is_reused_while_the_flusher_releases_it() {
    let (pages, below, _) = pages(24);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                flush_all(&pages, &below);
            }
        });
        let workers: Vec<_> = (0..4u32)
            .map(|thread| {
                let pages = &pages;
                scope.spawn(move || (0..1000).for_each(|n| create(pages, 4 * n + thread)))
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    flush_all(&pages, &below);
    pages.pool().check_invariants();
}

fn total(pages: &Pages, count: u32) -> u64 {
    (0..count).map(|page| pages.read(id(page), Access::Normal).unwrap().page().u64(AT)).sum()
}

#[test]
fn reads_are_counted_by_space_and_by_where_the_page_was() {
    let (pages, below, _) = pages(64);
    let other = SpaceId(21);
    for page in 0..200 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
    mtr.create(PageId::new(other, 0), PageKind::Leaf, 0);
    mtr.commit();
    let pool = pages.pool();
    let total = |reads: &crate::memory::pool::Reads| {
        reads.memory + reads.flash + reads.volume + reads.object + reads.log
    };
    let seen = || pool.reads_by_space(&[SPACE, other]);
    let before = seen();
    crate::limits::meter::take();
    for page in (0..200).chain(150..200).chain(150..200) {
        drop(pages.read(id(page), Access::Normal).unwrap());
    }
    // The engine's own looks don't count.
    drop(pages.read(id(0), Access::Internal).unwrap());
    drop(pages.read(id(0), Access::Internal).unwrap());
    (0..5).for_each(|_| drop(pages.read(PageId::new(other, 0), Access::Scan).unwrap()));
    let after = seen();
    let mine = crate::limits::meter::take();
    assert_eq!(total(&after[&SPACE]) - total(&before[&SPACE]), 300);
    assert_eq!(after[&other].memory - before[&other].memory, 5, "it may have been made by no read");
    let volume = after[&SPACE].volume - before[&SPACE].volume;
    assert!((100..=250).contains(&volume), "{volume} of 300 reads came from below");
    // What the thread counted for itself, and what the pool counts for all, is the same.
    assert_eq!((mine.pages[0] + mine.pages[2], mine.pages[2]), (305, volume));
    assert_eq!(pool.hits(), after.values().map(|reads| reads.memory).sum::<u64>());
    assert_eq!(pool.counters.reads_below.load(Ordering::Relaxed), after[&SPACE].volume);

    assert_eq!(pool.discard_space(SPACE), 0);
    pool.retain_reads(|space| space == other);
    assert_eq!(total(&pool.reads_by_space(&[SPACE])[&SPACE]), 0, "the space's counters go with it");
    assert!(pool.hits() >= after[&SPACE].memory + after[&other].memory, "the pool's total stays");
}

#[test]
fn the_curve_of_a_pool_says_what_a_larger_one_would_miss() {
    let (pages, below, _) = pages(64);
    for page in 0..200 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    // Nothing has been read: nothing is known.
    let loops = 50;
    for _ in 0..loops {
        (0..150).for_each(|page| drop(pages.read(id(page), Access::Normal).unwrap()));
    }
    let curve = pages.pool().curve();
    assert!(curve.reads() >= f64::from(loops * 150));
    let (small, large) = (curve.miss_ratio(64.0).unwrap(), curve.miss_ratio(210.0).unwrap());
    assert!(small > 0.9, "a loop over 150 pages leaves an LRU of 64 nothing: {small}");
    assert!(large < 0.05, "in 210 frames all of them stay: {large}");
}
