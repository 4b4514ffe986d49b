use super::*;
use crate::page::PageKind;
use crate::testing::odd_disk::OddDisk;
use std::collections::HashSet;
use terrace_sim::SimWorld;

const A: SpaceId = SpaceId(SpaceId::TEMPORARY_CATALOG.0 + 8);
const B: SpaceId = SpaceId(SpaceId::TEMPORARY_CATALOG.0 + 9);

fn ids(space: SpaceId, pages: std::ops::Range<u32>) -> Vec<PageId> {
    pages.map(|page| PageId::new(space, page)).collect()
}

fn images(ids: &[PageId]) -> Vec<u8> {
    let mut images = vec![0; ids.len() * PAGE_SIZE];
    for (id, image) in ids.iter().zip(images.chunks_exact_mut(PAGE_SIZE)) {
        page::format(image, *id, PageKind::Leaf, 0);
    }
    images
}

/// No two pages have one slot, and each is read back.
fn is_whole(spill: &Spill, ids: &[PageId]) {
    let slots: Vec<Slot> = ids.iter().map(|id| spill.slots.lock().home(*id).unwrap().slot).collect();
    let different: HashSet<u32> = slots.iter().map(|slot| slot.no).collect();
    assert_eq!(different.len(), ids.len(), "slots of two pages: {slots:?}");
    let mut image = vec![0; PAGE_SIZE];
    for id in ids {
        spill.read(*id, &mut image).unwrap_or_else(|error| panic!("{id}: {error}"));
    }
}

/// The flusher writes pages that have slots; meanwhile their space is dropped, which gives the slots and the file's end back.
fn dropped_while_it_is_written(fails: bool) {
    let disk = SimWorld::new(1).disk("volume");
    let odd = Arc::new(OddDisk::new(disk.clone()));
    let spill = Arc::new(Spill::new(None, odd.clone(), 1000));
    let first = ids(A, 0..10);
    spill.write(&first, &mut images(&first)).unwrap();
    let (spilled, failing) = (spill.clone(), disk.clone());
    odd.once(move || {
        spilled.drop_space(A);
        failing.faults().fail_class(Class::Spill, fails);
    });
    assert_eq!(spill.write(&first[8..], &mut images(&first[8..])).is_err(), fails);
    disk.faults().fail_class(Class::Spill, false);
    first[8..].iter().for_each(|id| spill.forget(*id)); // as the flusher does
    assert_eq!(spill.used(), 0);
    for pages in [0..1, 1..30] {
        let some = ids(B, pages);
        spill.write(&some, &mut images(&some)).unwrap();
    }
    is_whole(&spill, &ids(B, 0..30));
    assert_eq!(spill.slots.lock().next, 30, "slots are lost");
}

#[test]
fn a_space_dropped_while_its_pages_are_written_gives_each_slot_back_once() {
    dropped_while_it_is_written(false);
    dropped_while_it_is_written(true);
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_a_slot_given_back_twice_is_found_by_one_run() {
    planted::SLOT_RELEASED_TWICE.set(true);
    let found =
        [false, true].map(|fails| std::panic::catch_unwind(|| dropped_while_it_is_written(fails)).is_err());
    planted::SLOT_RELEASED_TWICE.set(false);
    assert_eq!(found, [true, true]);
}

/// The flusher's batch fails on dead flash, whether another thread has noticed it already or not: the batch goes to the volume,
/// and the flusher continues.
#[test]
fn a_spill_that_left_flash_meanwhile_fails_no_write() {
    for met in [true, false] {
        let sim = SimWorld::new(1);
        let (flash, volume) = (sim.disk("flash"), sim.disk("volume"));
        let odd = Arc::new(OddDisk::new(flash.clone()));
        let spill = Arc::new(Spill::new(Some(odd.clone()), volume, 1000));
        let (first, second) = (ids(A, 0..10), ids(B, 0..10));
        spill.write(&first, &mut images(&first)).unwrap();
        let (spilled, failing) = (spill.clone(), flash.clone());
        odd.once(move || {
            failing.faults().fail_class(Class::Spill, true);
            if met {
                assert!(spilled.leave_flash(Tier::Flash, &DiskError::Absent { name: FILE.into() }));
                let some = ids(B, 10..14);
                spilled.write(&some, &mut images(&some)).unwrap();
            }
        });
        spill.write(&second, &mut images(&second)).unwrap();
        assert_eq!(spill.counters.errors.load(Ordering::Relaxed), 1);
        // Of two who met it together the second is not refused.
        assert!(spill.leave_flash(Tier::Flash, &DiskError::Absent { name: FILE.into() }));
        assert!(!spill.leave_flash(Tier::Volume, &DiskError::Absent { name: FILE.into() }));
        spill.drop_space(A);
        let more = ids(A, 0..20);
        spill.write(&more, &mut images(&more)).unwrap();
        let there = ids(B, 0..if met { 14 } else { 10 });
        is_whole(&spill, &[&there[..], &more].concat());
    }
}

/// Two who may make pages, of which neither has made one yet.
#[test]
fn room_that_was_promised_is_not_promised_again_before_the_pages_are_made() {
    let disk = SimWorld::new(1).disk("volume");
    let spill = Arc::new(Spill::new(None, disk.clone(), 100_000));
    let room = SpillRoom { pool: crate::testing::pages(256).0.pool().clone(), spill: spill.clone() };
    pages::SlotAdmission::admit(&room, 1000, A).unwrap();
    pages::SlotAdmission::admit(&room, 500, B).unwrap();
    // From here on the device gives nothing more.
    disk.faults().full.store(true, Ordering::SeqCst);
    let all = [ids(A, 0..1000), ids(B, 0..500)].concat();
    for some in all.chunks(100) {
        spill.write(some, &mut images(some)).unwrap();
    }
    is_whole(&spill, &all);
    let full = pages::SlotAdmission::admit(&room, 1000, A);
    assert!(matches!(full, Err(NoRoom::Full(_))), "{full:?}");
    spill.drop_space(B);
    pages::SlotAdmission::admit(&room, 10, A).unwrap();
}

/// Pages at the file's end kept all that others had left before them.
#[test]
fn the_end_of_the_file_is_given_back_though_a_long_lived_page_is_there() {
    let disk = SimWorld::new(1).disk("volume");
    let odd = Arc::new(OddDisk::new(disk.clone()));
    let spill = Arc::new(Spill::new(None, odd.clone(), 100_000));
    for (space, pages) in [(A, 0..5000), (B, 0..300), (A, 5000..6000), (B, 300..310)] {
        for some in ids(space, pages).chunks(100) {
            spill.write(some, &mut images(some)).unwrap();
        }
    }
    let left = ids(B, 0..310);
    let before = spill.file_bytes();
    spill.drop_space(A);
    assert!(!spill.give_back_room(90_000) && spill.file_bytes() == before, "room was promised for others");
    // A reader prevents the move, and no image is lost.
    let other = spill.clone();
    odd.once(move || assert!(!other.give_back_room(0)));
    spill.read(left[0], &mut vec![0; PAGE_SIZE]).unwrap();
    assert_eq!(spill.file_bytes(), before);
    // A page that is given up meanwhile is not moved.
    let other = spill.clone();
    odd.once(move || other.forget(PageId::new(B, 5)));
    assert!(spill.give_back_room(0));
    let rounds = (0..100).take_while(|_| spill.give_back_room(0)).count();
    assert!(rounds < 99 && spill.file_bytes() == 1024 * PAGE_SIZE as u64, "{rounds}, {}", spill.file_bytes());
    let left: Vec<PageId> = left.into_iter().filter(|id| id.page != 5).collect();
    is_whole(&spill, &left);
    assert_eq!((spill.used(), spill.slots.lock().next), (309, 309), "slots are lost");
    // What cannot be read stays.
    let more = ids(A, 0..4000);
    more.chunks(100).for_each(|some| spill.write(some, &mut images(some)).unwrap());
    let last = ids(B, 400..410);
    spill.write(&last, &mut images(&last)).unwrap();
    spill.drop_space(A);
    disk.faults().fail_class(Class::Spill, true);
    assert!(!spill.give_back_room(0));
    disk.faults().fail_class(Class::Spill, false);
    (0..100).for_each(|_| _ = spill.give_back_room(0));
    is_whole(&spill, &[left, last].concat());
    assert_eq!(spill.slots.lock().next, 319);
}
