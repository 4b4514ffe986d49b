//! The extension on a simulated disk, and on one where something happens while a request is under way.
//! Random sequences against a model are in `tests/flash_model.rs`.

use super::*;
use crate::page::{PageKind, SpaceId, format, seal, set_lsn};
use crate::testing::odd_disk::OddDisk;
use terrace_io::disk::Class;
use terrace_io::sched::Step;
use terrace_sim::SimWorld;

pub(super) const SLOTS: u64 = 64;

pub(super) fn settings(slots: u64) -> BpeSettings {
    BpeSettings {
        owner: 1,
        flash_bytes: slots * PAGE_SIZE as u64,
        queue_pages: 16,
        admission: Rule::Ghost,
        warm: true,
    }
}

pub(super) fn page(n: u32) -> PageId {
    PageId::new(SpaceId(20), n)
}

/// The `version`th image of a page.
pub(super) fn image(id: PageId, version: u64) -> (Vec<u8>, Tag) {
    let mut bytes = vec![0; PAGE_SIZE];
    format(&mut bytes, id, PageKind::Leaf, 0);
    set_lsn(&mut bytes, version + 1);
    bytes[5000] = version as u8;
    let tag = seal(&mut bytes);
    (bytes, tag)
}

pub(super) fn run(bpe: &Bpe) {
    while bpe.step() == Step::Worked {}
}

fn found(bpe: &Bpe, id: PageId, version: u64) -> bool {
    let (bytes, tag) = image(id, version);
    let mut buf = vec![0; PAGE_SIZE];
    let found = bpe.find(id, tag, &mut buf) == Lookup::Hit;
    assert!(!found || buf == bytes, "page {id} is not the image asked for");
    found
}

pub(super) fn evict(bpe: &Bpe, id: PageId, version: u64) -> Evicted {
    bpe.evicted(id, &image(id, version).0, Leaving::used(2))
}

#[test]
fn an_evicted_page_is_found_while_queued_and_on_flash() {
    let sim = SimWorld::new(1);
    let bpe = Bpe::open(&*sim.disk("flash"), settings(SLOTS));
    assert_eq!(evict(&bpe, page(1), 0), Evicted::Queued);
    assert!(found(&bpe, page(1), 0), "from the queue");
    run(&bpe);
    assert!(found(&bpe, page(1), 0), "from flash");
    assert_eq!(evict(&bpe, page(1), 0), Evicted::Kept, "it is not written again");
    assert_eq!(bpe.counters.fills.load(Ordering::Relaxed), 1);
    assert!(!found(&bpe, page(2), 0));
}

#[test]
fn a_page_used_once_leaves_its_identifier_and_comes_in_the_second_time() {
    let sim = SimWorld::new(1);
    let bpe = Bpe::open(&*sim.disk("flash"), settings(SLOTS));
    let once = |n| bpe.evicted(page(n), &image(page(n), 0).0, Leaving::used(1));
    // While there is room, everything comes in.
    for n in 100..100 + SLOTS as u32 {
        if bpe.status().pages < SLOTS / 16 * 15 {
            assert_eq!(once(n), Evicted::Queued);
            run(&bpe);
        }
    }
    assert_eq!(once(1), Evicted::Remembered);
    assert!(!found(&bpe, page(1), 0));
    assert_eq!(once(1), Evicted::Queued);
    assert_eq!(once(2), Evicted::Remembered);
}

#[test]
fn an_invalidation_calls_back_a_queued_fill() {
    let sim = SimWorld::new(1);
    let bpe = Bpe::open(&*sim.disk("flash"), settings(SLOTS));
    evict(&bpe, page(1), 0);
    bpe.invalidate(page(1));
    assert!(!found(&bpe, page(1), 0));
    run(&bpe);
    assert!(!found(&bpe, page(1), 0));
    assert_eq!(bpe.counters.fills.load(Ordering::Relaxed), 0, "it was not even written");
    assert_eq!(bpe.status().pages, 0);
    bpe.check_invariants();
}

#[test]
fn a_rewritten_page_is_served_as_it_is_now_and_one_that_is_not_there_does_not_come() {
    let sim = SimWorld::new(1);
    let bpe = Bpe::open(&*sim.disk("flash"), settings(SLOTS));
    assert!(!bpe.rewrite(page(1), &image(page(1), 0).0), "flash did not have it");
    assert_eq!(bpe.status().pages, 0);
    // One whose fill is queued, and one that is written.
    for written in [false, true] {
        let id = page(2 + u32::from(written));
        evict(&bpe, id, 0);
        if written {
            run(&bpe);
        }
        assert!(bpe.rewrite(id, &image(id, 1).0));
        assert!(found(&bpe, id, 1));
        run(&bpe);
        assert!(found(&bpe, id, 1) && !found(&bpe, id, 0));
    }
    assert_eq!(bpe.counters.rewritten.load(Ordering::Relaxed), 2);
    bpe.check_invariants();
    // With a full queue it is as if invalidated.
    evict(&bpe, page(9), 0);
    run(&bpe);
    (100..200).for_each(|n| _ = evict(&bpe, page(n), 0));
    assert!(bpe.is_behind() && !bpe.rewrite(page(9), &image(page(9), 1).0));
    assert!(!found(&bpe, page(9), 0) && !found(&bpe, page(9), 1));
    bpe.check_invariants();
}

#[test]
fn an_invalidation_during_the_write_wins_and_the_slot_waits_for_the_write() {
    let sim = SimWorld::new(1);
    let disk = OddDisk::new(sim.disk("flash"));
    let bpe = Arc::new(Bpe::open(&disk, settings(1)));
    evict(&bpe, page(1), 0);
    let inside = bpe.clone();
    disk.once(move || {
        inside.invalidate(page(1));
        assert_eq!(evict(&inside, page(2), 0), Evicted::Dropped, "the only slot is still being written");
    });
    run(&bpe);
    assert!(!found(&bpe, page(1), 0));
    assert_eq!(evict(&bpe, page(2), 0), Evicted::Queued);
    run(&bpe);
    assert!(found(&bpe, page(2), 0));
    bpe.check_invariants();
}

#[test]
fn a_slot_given_away_while_it_is_read_is_a_miss() {
    let sim = SimWorld::new(1);
    let disk = OddDisk::new(sim.disk("flash"));
    let bpe = Arc::new(Bpe::open(&disk, settings(1)));
    evict(&bpe, page(1), 0);
    run(&bpe);
    let inside = bpe.clone();
    disk.once(move || {
        evict(&inside, page(2), 0);
        run(&inside);
    });
    // The read saw the old content: that is still this page's image.
    assert!(found(&bpe, page(1), 0));
    assert!(!found(&bpe, page(1), 0));
    assert!(found(&bpe, page(2), 0));
}

#[test]
fn a_full_queue_drops_the_fill_and_remembers_the_page() {
    let sim = SimWorld::new(1);
    let bpe = Bpe::open(&*sim.disk("flash"), settings(SLOTS));
    let outcomes: Vec<_> = (0..20).map(|n| evict(&bpe, page(n), 0)).collect();
    assert!(outcomes[..16].iter().all(|o| *o == Evicted::Queued));
    assert!(outcomes[16..].iter().all(|o| *o == Evicted::Dropped));
    assert_eq!(bpe.counters.fill_dropped.load(Ordering::Relaxed), 4);
    run(&bpe);
    assert_eq!(
        bpe.evicted(page(17), &image(page(17), 0).0, Leaving::used(1)),
        Evicted::Queued,
        "it was in the ghost list"
    );
}

#[test]
fn a_flipped_bit_is_a_miss_and_the_page_is_forgotten() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Bpe::open(&*disk, settings(SLOTS));
    evict(&bpe, page(1), 0);
    run(&bpe);
    // The simulated disk flips bits at rest only.
    disk.open(chunk::FILE).unwrap().sync(Class::BpeFill).unwrap();
    assert!(disk.flip(chunk::FILE, 9000, 3));
    assert!(!found(&bpe, page(1), 0));
    assert_eq!(bpe.counters.corrupt.load(Ordering::Relaxed), 1);
    assert_eq!(bpe.status().pages, 0);
}

#[test]
fn a_flash_with_few_errors_goes_on_and_with_many_turns_itself_off() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Bpe::open(&*disk, settings(SLOTS));
    evict(&bpe, page(0), 0);
    run(&bpe);
    disk.faults().write_errors.store(true, Ordering::SeqCst);
    (1..4).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    assert!(bpe.status().off.is_none());
    disk.faults().write_errors.store(false, Ordering::SeqCst);
    assert!(found(&bpe, page(0), 0) && !found(&bpe, page(1), 0));
    disk.faults().read_errors.store(true, Ordering::SeqCst);
    (10..18).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    for n in 10..18 {
        assert!(!found(&bpe, page(n), 0));
    }
    let off = bpe.status().off.unwrap();
    assert!(off.contains("8 errors in a row") && off.contains("input/output error"), "{off}");
    assert_eq!(evict(&bpe, page(30), 0), Evicted::Off);
    bpe.invalidate(page(10));
    run(&bpe);
    bpe.check_invariants();
}

#[test]
fn a_full_device_caches_what_fits() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let slots = 2 * chunk::CHUNK / PAGE_SIZE as u64;
    let bpe = Bpe::open(&*disk, settings(slots));
    for n in 0..10 {
        evict(&bpe, page(n), 0);
    }
    run(&bpe);
    disk.faults().full.store(true, Ordering::SeqCst);
    for n in 10..slots as u32 {
        evict(&bpe, page(n), 0);
        run(&bpe);
    }
    let status = bpe.status();
    assert!(status.off.is_none());
    assert_eq!(status.pages_max, slots / 2, "the chunk that was there when the device became full");
    assert!(bpe.counters.full.load(Ordering::Relaxed) > 0);
    assert!(found(&bpe, page(slots as u32 - 1), 0), "it goes on with what it has");
    bpe.check_invariants();
}

/// A slot among the others may be a hole of the file, or of a file system that writes nothing in place.
#[test]
fn a_device_that_is_full_at_a_low_slot_keeps_what_lies_behind() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Bpe::open(&*disk, settings(SLOTS));
    (0..10).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    bpe.invalidate(page(3));
    evict(&bpe, page(100), 0);
    let [fill] = &bpe.state.lock().core.fills.start(32)[..] else { panic!("one fill waits") };
    let slot = fill.slot;
    assert!(slot < 9);
    bpe.settle(slot, &Err(DiskError::Full { name: "flash".into(), what: "write" }));
    bpe.state.lock().core.fills.written();
    assert!((0..10).all(|n| found(&bpe, page(n), 0) == (n != 3)) && !found(&bpe, page(100), 0));
    assert_eq!(bpe.status().pages_max, 10, "nothing more fits");
    bpe.check_invariants();
}

#[test]
fn a_flash_that_cannot_be_opened_is_no_reason_to_stop() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let _first = Bpe::open(&*disk, settings(SLOTS));
    let second = Bpe::open(&*disk, settings(SLOTS));
    assert!(second.status().off.unwrap().contains("locked by another instance"));
    assert_eq!(evict(&second, page(1), 0), Evicted::Off);
    assert!(!found(&second, page(1), 0));
    assert_eq!(second.step(), Step::Idle);
}

#[test]
fn a_restart_finds_what_flash_had() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let slots = 3000;
    let bpe = Bpe::open(&*disk, settings(slots));
    for n in 0..2500 {
        evict(&bpe, page(n), 0);
        bpe.step();
    }
    run(&bpe);
    bpe.save();
    drop(bpe);
    let bpe = Bpe::open(&*disk, settings(slots));
    assert!(!found(&bpe, page(3), 0), "nothing is put back before the worker has begun");
    run(&bpe);
    assert_eq!(bpe.status().restored, 2500);
    for n in 0..2500 {
        assert!(found(&bpe, page(n), 0), "page {n}");
    }
    bpe.check_invariants();
    // It continues where it was: the rest of the slots, then those that were never used.
    for n in 3000..6000 {
        evict(&bpe, page(n), 0);
        run(&bpe);
    }
    assert_eq!(bpe.status().pages, slots);
    bpe.check_invariants();
}

#[test]
fn a_flash_that_need_not_be_warm_begins_empty_and_is_warm_when_it_is_again() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let begin = |warm| {
        let bpe = Bpe::open(&*disk, BpeSettings { warm, ..settings(SLOTS) });
        run(&bpe);
        bpe
    };
    let bpe = begin(true);
    (0..16).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    bpe.save();
    drop(bpe);
    let bpe = begin(false);
    assert_eq!((bpe.status().restored, bpe.status().pages), (0, 0));
    assert!((0..16).all(|n| !found(&bpe, page(n), 0)));
    (16..26).for_each(|n| _ = evict(&bpe, page(n), 0));
    run(&bpe);
    bpe.save();
    drop(bpe);
    // What was there before has no entry any more.
    let bpe = begin(true);
    assert_eq!(bpe.status().restored, 10);
    assert!((0..16).all(|n| !found(&bpe, page(n), 0)) && (16..26).all(|n| found(&bpe, page(n), 0)));
    bpe.check_invariants();
}

#[test]
fn fills_while_the_index_is_put_back_use_known_slots_only() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let slots = 10_000;
    let bpe = Bpe::open(&*disk, settings(slots));
    for n in 0..9_500 {
        evict(&bpe, page(n), 0);
        bpe.step();
    }
    run(&bpe);
    bpe.save();
    drop(bpe);
    let bpe = Bpe::open(&*disk, settings(slots));
    assert_eq!(evict(&bpe, page(200_000), 0), Evicted::Dropped, "no slot is known yet");
    assert_eq!(bpe.step(), Step::Worked);
    let part = bpe.status().restored;
    assert!(part > 0 && part < 9_500, "{part} of 9500 after one step");
    assert_eq!(evict(&bpe, page(200_000), 0), Evicted::Queued);
    bpe.check_invariants();
    run(&bpe);
    assert!(found(&bpe, page(200_000), 0));
    assert_eq!((bpe.status().restored, bpe.status().pages), (9_500, 9_500), "one of them made room");
    bpe.check_invariants();
}

#[test]
fn an_old_image_is_not_served_after_a_restart() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Bpe::open(&*disk, settings(SLOTS));
    evict(&bpe, page(1), 0);
    evict(&bpe, page(2), 0);
    run(&bpe);
    bpe.save();
    drop(bpe);
    // Meanwhile the map has gone on: it names another image of page 1.
    let bpe = Bpe::open(&*disk, settings(SLOTS));
    run(&bpe);
    assert!(!found(&bpe, page(1), 1));
    assert_eq!(bpe.counters.stale.load(Ordering::Relaxed), 1);
    assert!(found(&bpe, page(2), 0));
    assert_eq!(evict(&bpe, page(1), 1), Evicted::Queued, "the stale one keeps nobody out");
}

#[test]
fn an_index_older_than_the_images_loses_its_entry() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let bpe = Bpe::open(&*disk, settings(1));
    evict(&bpe, page(1), 0);
    run(&bpe);
    bpe.save();
    evict(&bpe, page(2), 0);
    run(&bpe);
    assert!(found(&bpe, page(2), 0));
    drop(bpe); // in disorder: the slot's new page is not saved
    let bpe = Bpe::open(&*disk, settings(1));
    run(&bpe);
    assert_eq!(bpe.status().pages, 1);
    assert!(!found(&bpe, page(1), 0));
    assert_eq!(bpe.status().pages, 0);
}

#[test]
fn anothers_flash_or_half_a_flash_is_a_cold_start() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let begin = |owner| {
        let bpe = Bpe::open(&*disk, BpeSettings { owner, ..settings(SLOTS) });
        run(&bpe);
        bpe
    };
    let fill = |owner| {
        let bpe = begin(owner);
        evict(&bpe, page(1), 0);
        run(&bpe);
        bpe.save();
        assert_eq!(bpe.status().pages, 1);
    };
    fill(1);
    assert_eq!(begin(2).status().pages, 0, "another instance's");
    fill(1);
    assert_eq!(begin(1).status().pages, 1);
    disk.remove(chunk::FILE).unwrap();
    assert_eq!(begin(1).status().pages, 0, "without its images");
    fill(1);
    disk.remove(saved::FILE).unwrap();
    assert_eq!(begin(1).status().pages, 0, "without its index");
    fill(1);
    disk.open(saved::FILE).unwrap().sync(Class::BpeFill).unwrap();
    assert!(disk.flip(saved::FILE, 5000, 1));
    assert_eq!(begin(1).status().pages, 0, "with a broken piece of index");
    let small = Bpe::open(&*disk, settings(0));
    assert_eq!(small.status().file_bytes, 0, "with less room than it takes");
}

#[test]
fn a_page_asked_for_more_often_takes_the_place_of_one_asked_for_less() {
    let sim = SimWorld::new(1);
    let settings = BpeSettings { admission: Rule::GhostTinyLfu, ..settings(SLOTS) };
    let bpe = Bpe::open(&*sim.disk("flash"), settings);
    let ask = |n: u32, times: usize| {
        let (mut buffer, (_, tag)) = (vec![0; PAGE_SIZE], image(page(n), 0));
        (0..times).for_each(|_| _ = bpe.find(page(n), tag, &mut buffer));
    };
    for n in 0..SLOTS as u32 {
        ask(n, 2);
        assert_eq!(bpe.evicted(page(n), &image(page(n), 0).0, Leaving::used(2)), Evicted::Queued);
        run(&bpe);
    }
    // Used again in memory, which the ghost rule alone would take for enough.
    ask(1000, 1);
    assert_eq!(bpe.evicted(page(1000), &image(page(1000), 0).0, Leaving::used(2)), Evicted::Remembered);
    ask(1001, 6);
    assert_eq!(bpe.evicted(page(1001), &image(page(1001), 0).0, Leaving::used(2)), Evicted::Queued);
    // And often asked for, but neither used again nor remembered.
    ask(1002, 6);
    assert_eq!(bpe.evicted(page(1002), &image(page(1002), 0).0, Leaving::used(1)), Evicted::Remembered);
    assert_eq!(bpe.evicted(page(1002), &image(page(1002), 0).0, Leaving::used(1)), Evicted::Queued);
    run(&bpe);
    assert!(found(&bpe, page(1001), 0) && found(&bpe, page(1002), 0) && !found(&bpe, page(1000), 0));
    assert_eq!(bpe.status().pages, SLOTS);
    bpe.check_invariants();
}

#[test]
fn a_flash_that_is_turned_off_while_its_index_is_put_back_stays_off() {
    let sim = SimWorld::new(1);
    let disk = OddDisk::new(sim.disk("flash"));
    let bpe = Bpe::open(&disk, settings(SLOTS));
    evict(&bpe, page(1), 0);
    run(&bpe);
    bpe.save();
    drop(bpe);
    let bpe = Arc::new(Bpe::open(&disk, settings(SLOTS)));
    let inside = bpe.clone();
    disk.once(move || {
        let error = DiskError::Absent { name: "flash".into() };
        (0..ERRORS_MAX).for_each(|_| inside.failed(&error));
    });
    run(&bpe);
    assert!(bpe.status().off.is_some());
    assert_eq!(bpe.status().pages, 0);
    bpe.check_invariants();
}

/// What a start asks flash for before it answers, and the most that one step behind it does, counted in requests.
#[test]
fn a_start_asks_a_flash_of_64_gib_for_no_more_than_one_of_a_mebibyte() {
    let start = |bytes: u64| {
        let sim = SimWorld::new(1);
        let disk = sim.disk("flash");
        let bpe = Bpe::open(&*disk, settings(SLOTS));
        evict(&bpe, page(1), 0);
        run(&bpe);
        bpe.save();
        drop(bpe);
        // Holes, and pieces of index that are worth nothing.
        disk.open(chunk::FILE).unwrap().grow(bytes, false).unwrap();
        let pieces = bytes / PAGE_SIZE as u64 / saved::MARKS as u64 + 2;
        disk.open(saved::FILE).unwrap().grow(pieces * saved::PIECE as u64, false).unwrap();
        let before = sim.steps();
        let bpe = Bpe::open(&*disk, settings(bytes / PAGE_SIZE as u64));
        let opening = sim.steps() - before;
        assert!(!found(&bpe, page(1), 0), "it is not put back yet");
        assert_eq!(sim.steps() - before, opening, "a page that is not known of costs no request");
        let mut most = 0;
        loop {
            let before = sim.steps();
            if bpe.step() != Step::Worked {
                break;
            }
            most = most.max(sim.steps() - before);
        }
        assert!(found(&bpe, page(1), 0));
        println!("{bytes} bytes of flash: {opening} requests at the start, {most} a step behind it");
        (opening, most)
    };
    let (small, large) = (start(1 << 20), start(64 << 30));
    assert!(small.0 == large.0 && large.0 < 20 && large.1 <= small.1.max(4), "{small:?}, {large:?}");
}
