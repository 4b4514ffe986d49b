use super::*;
use crate::memory::pages::Pages;
use crate::memory::pool::Access;
use crate::memory::pool::tests::{id, resident, that_grow as pages};
use crate::page::{PAGE_SIZE, PageKind, SpaceId};
use crate::testing::flush_all;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use terrace_io::sched::Worker as _;
use terrace_log::Urgency;

const AT: usize = 100;

fn create(pages: &Pages, page: u32) {
    let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
    mtr.create(id(page), PageKind::Leaf, 0);
    mtr.commit();
}

fn bump(pages: &Pages, page: u32) {
    let pin = pages.load(id(page), Access::Normal).unwrap();
    let mut mtr = pages.begin(1000, 0, Urgency::Normal).unwrap();
    let no = mtr.write_pinned(&pin);
    let value = mtr.page(no).u64(AT);
    mtr.page_mut(no).write_u64(AT, value + 1);
    mtr.commit();
}

fn total(pages: &Pages, count: u32) -> u64 {
    (0..count).map(|page| pages.read(id(page), Access::Normal).unwrap().page().u64(AT)).sum()
}

fn always(_: PoolLeft) -> bool {
    true
}

/// Gives up after this number of calls.
fn patient(mut looks: u32) -> impl FnMut(PoolLeft) -> bool {
    move |_| {
        looks = looks.saturating_sub(1);
        looks > 0
    }
}

/// Reads stayed in the frame that the page had left, to become those of the next page there.
#[test]
fn a_page_takes_its_reads_along() {
    let (pages, below) = pages(64, 64);
    (0..20).for_each(|page| create(&pages, page));
    flush_all(&pages, &below);
    let other = SpaceId(21);
    pages.pool().resize(60, &mut always).unwrap();
    // Into the last frames: the first are taken.
    (20..60).for_each(|page| create(&pages, page));
    flush_all(&pages, &below);
    (0..60).for_each(|page| _ = total(&pages, page + 1));
    let read = || pages.pool().reads_by_space(&[SpaceId(20), other]);
    let before = (read()[&SpaceId(20)].memory, pages.pool().hits());
    pages.pool().resize(20, &mut always).unwrap();
    let here: u64 =
        pages.pool().arena.frames().filter(|f| f.state() != FrameState::Free).map(|f| f.hits()).sum();
    let all: u64 = pages.pool().arena.frames().map(|f| f.hits()).sum();
    assert_eq!(here, all, "a frame without a page has reads");
    assert_eq!((read()[&SpaceId(20)].memory, pages.pool().hits()), before);
}

#[test]
fn pages_keep_their_content_when_their_frames_go_dirty_ones_too() {
    let (pages, below) = pages(400, 400);
    for page in 0..60 {
        create(&pages, page);
        bump(&pages, page);
    }
    // All stay in memory, wherever their frames are, and dirty.
    assert_eq!(pages.pool().dirty_frames(), 60);
    pages.pool().resize(200, &mut always).unwrap();
    pages.pool().resize(120, &mut always).unwrap();
    assert_eq!((pages.pool().frames(), pages.pool().frames_with_memory()), (120, 120));
    assert_eq!(pages.pool().dirty_frames(), 60, "a move flushes nothing and forgets nothing");
    assert_eq!(total(&pages, 60), 60);
    assert_eq!(below.fetches.load(Ordering::Relaxed), 0, "nothing had to leave");
    flush_all(&pages, &below);
    pages.pool().check_invariants();
    pages.pool().resize(16, &mut always).unwrap();
    assert_eq!(total(&pages, 60), 60);
    pages.pool().resize(400, &mut always).unwrap();
    assert_eq!(total(&pages, 60), 60);
    assert_eq!(pages.pool().free_frames(), 400 - 60);
    pages.pool().check_invariants();
}

#[test]
fn the_coldest_leave_and_the_hot_stay_when_the_pool_shrinks() {
    let (pages, below) = pages(256, 256);
    for page in 0..200 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    for round in 0..4 {
        for page in 180..200 {
            drop(pages.read(id(page), Access::Normal).unwrap());
        }
        // Time goes by as pages arrive.
        for page in 0..10 {
            create(&pages, 1000 + 10 * round + page);
            flush_all(&pages, &below);
        }
    }
    pages.pool().resize(64, &mut always).unwrap();
    let before = below.fetches.load(Ordering::Relaxed);
    (180..200).for_each(|page| drop(pages.read(id(page), Access::Normal).unwrap()));
    let missed = below.fetches.load(Ordering::Relaxed) - before;
    assert!(missed <= 4, "{missed} of the 20 that are used again had left");
    pages.pool().check_invariants();
}

#[test]
fn what_is_pinned_is_waited_for_and_the_old_size_stays_in_force() {
    let (pages, below) = pages(60, 60);
    (0..50).for_each(|page| create(&pages, page));
    flush_all(&pages, &below);
    let pins: Vec<_> = (0..40).map(|page| pages.load(id(page), Access::Normal).unwrap()).collect();
    let refused = pages.pool().resize(24, &mut patient(5));
    let Err(ResizeError::GivenUp(left)) = refused else { panic!("{refused:?}") };
    assert!(left.pinned >= 16 && left.frames >= left.pinned, "{left:?}");
    assert_eq!((pages.pool().frames(), pages.pool().frames_with_memory()), (60, 60));
    for page in 100..110 {
        create(&pages, page);
    }
    drop(pins);
    flush_all(&pages, &below);
    pages.pool().check_invariants();
    pages.pool().resize(24, &mut patient(1000)).unwrap();
    flush_all(&pages, &below);
    pages.pool().check_invariants();
}

#[test]
fn dirty_pages_that_find_no_room_are_waited_for() {
    let (pages, below) = pages(60, 60);
    (0..50).for_each(|page| create(&pages, page));
    let refused = pages.pool().resize(20, &mut patient(4));
    assert!(matches!(refused, Err(ResizeError::GivenUp(left)) if left.dirty > 0), "{refused:?}");
    assert_eq!(pages.pool().frames(), 60);
    let mut looks = 0;
    pages
        .pool()
        .resize(20, &mut |_| {
            looks += 1;
            flush_all(&pages, &below);
            true
        })
        .unwrap();
    assert!(looks > 0 && total(&pages, 50) == 0);
    pages.pool().check_invariants();
}

#[test]
fn pages_that_are_kept_for_long_stand_in_no_shrinkings_way() {
    let (pages, below) = pages(1000, 1000);
    for page in 0..900 {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    let kept: Vec<_> = (800..860).map(|page| pages.load_to_keep(id(page), Access::Normal).unwrap()).collect();
    pages.pool().resize(100, &mut patient(1000)).unwrap();
    for (pin, page) in kept.iter().zip(800..) {
        assert_eq!(pin.read().page().id(), id(page));
    }
    // One that is pinned already stays where it is.
    let again = pages.load_to_keep(id(800), Access::Normal).unwrap();
    drop((kept, again));
    assert_eq!(total(&pages, 900), 0);
    pages.pool().check_invariants();
}

/// Trees that were opened among changed pages, or while a page was looked at, stood in the way of less memory for as long as they
/// were open.
#[test]
fn pages_that_are_kept_for_long_push_changed_ones_aside() {
    let (pages, below) = pages(1000, 1000);
    (0..370).for_each(|page| create(&pages, page));
    let (reader, mut late) =
        (pages.load(id(329), Access::Normal).unwrap(), pages.load(id(329), Access::Normal).unwrap());
    assert_eq!(pages.pool().to_the_front(late.frame()), Front::Busy);
    drop(reader);
    let kept: Vec<_> = (330..350).map(|page| pages.load_to_keep(id(page), Access::Normal).unwrap()).collect();
    assert!(!pages.make_way(&mut late), "nothing shrinks");
    flush_all(&pages, &below);
    let mut looks = 0;
    let mut makes_way = |_| {
        pages.make_way(&mut late);
        looks += 1;
        looks < 1000
    };
    pages.pool().resize(300, &mut makes_way).unwrap();
    assert!(late.read().page().id() == id(329) && (late.frame().0 as usize) < 300);
    drop(late);
    for (pin, page) in kept.iter().zip(330..) {
        assert_eq!(pin.read().page().id(), id(page));
    }
    drop(kept);
    assert_eq!(total(&pages, 370), 0);
    pages.pool().check_invariants();
}

#[test]
fn a_pool_grows_no_further_than_its_addresses() {
    let (pages, _) = pages(16, 64);
    assert_eq!(pages.pool().resize(65, &mut always), Err(ResizeError::TooMany { max: 64 }));
    pages.pool().resize(64, &mut always).unwrap();
    assert_eq!(pages.pool().free_frames(), 64);
    pages.pool().check_invariants();
}

#[test]
fn the_memory_of_frames_that_are_gone_goes_back_to_the_machine() {
    const CHUNKS: usize = 4;
    let (pages, below) = pages(64, CHUNKS * CHUNK);
    let resident = || resident(&pages, CHUNKS * CHUNK);
    assert!(resident() <= CHUNK * PAGE_SIZE, "{} bytes for 64 frames", resident());
    pages.pool().resize(CHUNKS * CHUNK, &mut always).unwrap();
    for page in 0..(CHUNKS * CHUNK - 1000) as u32 {
        create(&pages, page);
        if page % 1000 == 0 {
            flush_all(&pages, &below);
            below.images.lock().clear(); // nothing is read again here
        }
    }
    flush_all(&pages, &below);
    below.images.lock().clear();
    let full = resident();
    assert!(full > CHUNKS * CHUNK * PAGE_SIZE * 7 / 8, "{full} bytes are there");
    pages.pool().resize(CHUNK, &mut always).unwrap();
    let small = resident();
    assert!(small <= CHUNK * PAGE_SIZE, "{small} bytes are left");
    pages.pool().check_invariants();
}

/// Threads add to counters while the pool goes from size to size, with evictor and flusher beside them.
#[test]
fn no_update_is_lost_while_the_pool_changes_its_size() {
    const PAGES: u32 = 300;
    const ROUNDS: u64 = 4000;
    let (pages, below) = pages(200, 400);
    for page in 0..PAGES {
        create(&pages, page);
        flush_all(&pages, &below);
    }
    // Threads go on beyond their rounds until the pool has had each size: a resize may take long.
    const SIZES: [usize; 6] = [100, 400, 64, 200, 380, 30];
    let (done, resized) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut made = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut evictor = pages.evictors().remove(0);
            while !done.load(Ordering::Relaxed) {
                flush_all(&pages, &below);
                evictor.step();
                std::thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..3u64)
            .map(|thread| {
                let (pages, done, resized) = (pages.clone(), &done, &resized);
                scope.spawn(move || {
                    let (mut x, mut rounds) = (thread * 7919 + 1, 0);
                    let goes_on = || {
                        resized.load(Ordering::Relaxed) < SIZES.len() as u64 && !done.load(Ordering::Relaxed)
                    };
                    while rounds < ROUNDS || goes_on() {
                        rounds += 1;
                        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        bump(&pages, (x >> 33) as u32 % PAGES);
                    }
                    rounds
                })
            })
            .collect();
        while workers.iter().any(|w| !w.is_finished()) {
            let until = Instant::now() + Duration::from_secs(120);
            let size = SIZES[resized.load(Ordering::Relaxed) as usize % SIZES.len()];
            let result = pages.pool().resize(size, &mut |_| Instant::now() < until);
            if result.is_err() {
                done.store(true, Ordering::Relaxed);
            }
            result.unwrap();
            resized.fetch_add(1, Ordering::Relaxed);
        }
        let ends: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        made = ends.into_iter().map(|end| end.unwrap()).sum();
    });
    flush_all(&pages, &below);
    assert!(made >= 3 * ROUNDS && resized.into_inner() >= SIZES.len() as u64);
    assert_eq!(total(&pages, PAGES), made);
    pages.pool().check_invariants();
}
