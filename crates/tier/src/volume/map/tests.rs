use super::home::{self, Loading};
use super::*;
use crate::address::{ObjectShape, PATCH_MAX, Slot, Stored};
use crate::page::{PAGE_SIZE, PageRef};
use crate::testing::HeldLog;
use std::collections::BTreeMap;
use terrace_io::random::Random;
use terrace_sim::{SimDisk, SimWorld};

const A: SpaceId = SpaceId(16);
const B: SpaceId = SpaceId(17);

struct Rig {
    sim: SimWorld,
    disk: Arc<SimDisk>,
    log: Arc<HeldLog>,
    slots: u32,
}

impl Rig {
    fn new(seed: u64, slots: u32) -> Rig {
        let sim = SimWorld::new(seed);
        let disk = sim.disk("volume");
        home::create(&*disk).unwrap();
        terrace_io::disk::Disk::sync_dir(&*disk).unwrap();
        Rig { sim, disk, log: Arc::default(), slots }
    }

    fn try_load(&self) -> Result<Map, MapError> {
        let mut loading = Loading::open(&*self.disk)?;
        for record in self.log.records() {
            loading.apply(record.id.page, &record.ops, record.range.first, record.range.end)?;
        }
        loading.finish(self.slots, self.log.clone())
    }

    fn load(&self) -> Map {
        self.try_load().unwrap_or_else(|e| panic!("seed {}: {e}", self.sim.seed))
    }

    /// Power is lost: at least the durable part of the appended log survives.
    fn crash(&self) {
        self.log.crash(self.sim.random.next_u64());
        self.disk.crash();
    }
}

fn page(space: SpaceId, page: u32) -> PageId {
    PageId::new(space, page)
}

fn one(map: &Map) -> Slot {
    map.take_up_to(1, 0)[0]
}

fn slot_of(map: &Map, id: PageId) -> Option<(Slot, Tag)> {
    match map.locate(id) {
        Located::Never => None,
        Located::At(home) => Some((home.slot?, home.tag)),
    }
}

fn key(sequence: u64) -> ObjectKey {
    ObjectKey { lineage: 7, space: A, block: 0, epoch: 1, sequence }
}

fn shape(sequence: u64, pages: &[(usize, u16)]) -> ObjectShape {
    let mut lengths = [0; BLOCK_PAGES as usize];
    pages.iter().for_each(|(i, len)| lengths[*i] = *len);
    ObjectShape { key: key(sequence), snapshot_version: 3, lengths }
}

#[test]
fn a_page_is_where_it_was_published_last() {
    let rig = Rig::new(1, 64);
    let map = rig.load();
    assert_eq!(map.locate(page(A, 5)), Located::Never);
    let slots = map.take_up_to(2, 0);
    map.publish_slots(&[(page(A, 5), slots[0], 11), (page(B, 4000), slots[1], 12)]).unwrap();
    assert_eq!(slot_of(&map, page(A, 5)), Some((slots[0], 11)));
    assert_eq!(slot_of(&map, page(B, 4000)), Some((slots[1], 12)));
    assert_eq!(map.locate(page(A, 6)), Located::Never);
    let counts = map.counts();
    assert_eq!(counts[&A], SpaceCounts { pages: 1, volume: 1, object: 0, objects: 0, object_bytes: 0 });
    assert_eq!(map.faults(), Vec::<String>::new());
}

/// A sinker took such a block, found nothing in it, and took it again.
#[test]
fn a_space_that_is_dropped_in_steps_has_no_blocks_for_the_sinker_from_the_first_on() {
    let rig = Rig::new(8, 4096);
    let map = rig.load();
    // A map page each: one step's, and some more.
    let pages: Vec<PageId> =
        (0..70).map(|n| page(A, n * entry::ENTRIES * BLOCK_PAGES)).chain([page(B, 0)]).collect();
    let slots = map.take_up_to(pages.len(), 0);
    for (tag, (page, slot)) in pages.iter().zip(slots).enumerate() {
        map.publish_slots(&[(*page, slot, tag as Tag + 1)]).unwrap();
    }
    let of_a = || map.buffered_blocks().iter().filter(|one| one.block.space == A).count();
    assert_eq!(of_a(), 70);
    rig.log.set_room(Some(0));
    assert!(map.drop_space(A).is_err());
    assert_eq!(of_a(), 70, "nothing of it is gone");
    rig.log.set_asks(Some(1));
    assert!(map.drop_space(A).is_err(), "the second step finds no room");
    assert_eq!((of_a(), map.buffered_blocks().len()), (0, 1));
    assert!(map.spaces().contains(&A), "it is to be dropped again");
    rig.log.set_asks(None);
    map.drop_space(A).unwrap();
    assert_eq!(map.spaces(), vec![B]);
}

/// Invariant 3.
#[test]
fn a_superseded_slot_is_free_only_when_the_record_is_durable() {
    let rig = Rig::new(2, 2);
    let map = rig.load();
    let old = one(&map);
    map.publish_slots(&[(page(A, 0), old, 1)]).unwrap();
    let new = one(&map);
    let range = map.publish_slots(&[(page(A, 0), new, 2)]).unwrap();
    assert_eq!(map.take_up_to(1, 0), vec![], "the record that released it is not durable");
    rig.log.set_durable(range.end - 1);
    assert_eq!(map.take_up_to(1, 0), vec![]);
    rig.log.set_durable(range.end);
    assert_eq!(map.take_up_to(1, 0), vec![old]);
}

#[test]
fn slots_taken_together_leave_what_is_to_be_kept() {
    let rig = Rig::new(3, 10);
    let map = rig.load();
    assert_eq!(map.take_up_to(8, 4).len(), 6);
    assert_eq!(map.take_up_to(8, 4).len(), 0);
    let rest = map.take_up_to(8, 0);
    assert_eq!(rest.len(), 4);
    map.give_back_slots(&rest);
    assert_eq!(map.slots_free(), 4);
}

/// Invariant 4: a page that changed during the PUT keeps its slot.
#[test]
fn an_object_cleans_only_the_pages_that_did_not_change_since() {
    let rig = Rig::new(4, 64);
    let map = rig.load();
    let slots = map.take_up_to(3, 0);
    map.publish_slots(&[(page(A, 0), slots[0], 10), (page(A, 1), slots[1], 20)]).unwrap();
    map.publish_slots(&[(page(A, 1), slots[2], 21)]).unwrap(); // while the object is put
    let object = shape(1, &[(0, 128), (1, 16384)]);
    map.publish_object(BlockId { space: A, block: 0 }, &[(0, 10), (1, 20)], &object).unwrap().unwrap();
    let Located::At(home) = map.locate(page(A, 0)) else { panic!() };
    assert_eq!((home.slot, home.tag), (None, 10));
    assert_eq!(home.object, Some(InObject { key: key(1), offset: 0, length: 128 }));
    assert_eq!(slot_of(&map, page(A, 1)), Some((slots[2], 21)));
    let block = map.block(BlockId { space: A, block: 0 });
    assert_eq!((block.object, block.snapshot_version), (Some(key(1)), 3));
    assert_eq!(map.buffered_blocks().len(), 1);
    assert_eq!(map.faults(), Vec::<String>::new());
}

#[test]
fn a_superseded_object_is_collected_only_when_the_record_is_durable() {
    let rig = Rig::new(5, 64);
    let map = rig.load();
    let slot = one(&map);
    map.publish_slots(&[(page(A, 0), slot, 10)]).unwrap();
    let block = BlockId { space: A, block: 0 };
    map.publish_object(block, &[(0, 10)], &shape(1, &[(0, 64)])).unwrap();
    let range = map.publish_object(block, &[(0, 10)], &shape(2, &[(0, 64)])).unwrap().unwrap();
    assert_eq!(map.collectable(), vec![]);
    rig.log.set_durable(range.end);
    assert_eq!(map.collectable(), vec![key(1)]);
    assert_eq!(map.objects(), vec![key(2)]);
    // A publication that is repeated does not collect what it names.
    map.publish_object(block, &[(0, 10)], &shape(2, &[(0, 64)])).unwrap();
    rig.log.set_durable(Glsn::MAX);
    assert_eq!(map.collectable(), vec![]);
}

#[test]
fn an_object_whose_pages_were_all_freed_during_the_put_is_not_published() {
    let rig = Rig::new(4, 64);
    let map = rig.load();
    let slots = map.take_up_to(2, 0);
    map.publish_slots(&[(page(A, 0), slots[0], 10), (page(A, 1), slots[1], 20)]).unwrap();
    let mut room = map.room_to_clear(2, terrace_log::Urgency::Normal).unwrap();
    map.clear(&mut room, &[(page(A, 0), None), (page(A, 1), None)]).unwrap(); // while the object is put
    let block = BlockId { space: A, block: 0 };
    let late = map.publish_object(block, &[(0, 10), (1, 20)], &shape(1, &[(0, 64), (1, 64)]));
    assert_eq!(late.unwrap(), None);
    assert_eq!((map.block(block).object, map.objects()), (None, vec![]));
    assert_eq!(map.faults(), Vec::<String>::new());
}

#[test]
#[should_panic(expected = "lacks a page")]
fn an_object_without_a_page_that_has_no_other_home_is_not_published() {
    let rig = Rig::new(6, 64);
    let map = rig.load();
    let slot = one(&map);
    map.publish_slots(&[(page(A, 0), slot, 10)]).unwrap();
    let block = BlockId { space: A, block: 0 };
    map.publish_object(block, &[(0, 10)], &shape(1, &[(0, 64)])).unwrap();
    let _ = map.publish_object(block, &[], &shape(2, &[(1, 64)]));
}

#[test]
fn a_dropped_space_is_gone_and_a_late_flush_of_it_does_nothing() {
    let rig = Rig::new(7, 64);
    let map = rig.load();
    let slots = map.take_up_to(3, 0);
    map.publish_slots(&[(page(A, 0), slots[0], 1), (page(B, 0), slots[1], 2)]).unwrap();
    let range = map.drop_space(A).unwrap().unwrap();
    assert_eq!(map.drop_space(A).unwrap(), None, "again: nothing to do");
    map.publish_slots(&[(page(A, 1), slots[2], 3)]).unwrap();
    assert_eq!(map.locate(page(A, 0)), Located::Never);
    assert_eq!(map.locate(page(A, 1)), Located::Never);
    assert_eq!(map.spaces(), vec![B]);
    let late = map.publish_object(BlockId { space: A, block: 0 }, &[], &shape(1, &[]));
    assert_eq!(late.unwrap(), None);
    rig.log.set_durable(range.end);
    map.settle();
    assert_eq!(map.slots_free(), 63);
    // Its map page serves the next space.
    let slot = one(&map);
    map.publish_slots(&[(page(SpaceId(20), 0), slot, 4)]).unwrap();
    rig.log.make_durable(rig.log.appended()).unwrap();
    rig.crash();
    let map = rig.load();
    assert_eq!(map.spaces(), vec![B, SpaceId(20)]);
    assert_eq!(map.faults(), Vec::<String>::new());
}

#[test]
fn the_homes_hold_what_the_log_is_freed_of() {
    let rig = Rig::new(8, 64);
    for round in 1..6 {
        let map = rig.load();
        let slot = one(&map);
        let range = map.publish_slots(&[(page(A, 0), slot, round)]).unwrap();
        assert!(map.oldest_unwritten().is_some_and(|oldest| oldest <= range.first));
        map.write_homes().unwrap();
        assert_eq!(map.oldest_unwritten(), None);
        assert!(rig.log.durable() >= range.end, "log first");
        rig.log.release(range.end);
        rig.crash();
        assert_eq!(slot_of(&rig.load(), page(A, 0)), Some((slot, round)));
    }
}

/// Each I/O step of a write of homes, in turn.
#[test]
fn a_torn_write_of_a_home_leaves_the_other() {
    let mut crashes = 0;
    for seed in 0..40 {
        let rig = Rig::new(seed, 64);
        let map = rig.load();
        let slots = map.take_up_to(2, 0);
        let range = map.publish_slots(&[(page(A, 0), slots[0], 1)]).unwrap();
        map.write_homes().unwrap();
        rig.log.release(range.end);
        map.publish_slots(&[(page(A, 0), slots[1], 2)]).unwrap();
        rig.sim.crash_at(rig.sim.steps() + 1 + seed % 3);
        let written = map.write_homes();
        crashes += u32::from(written.is_err());
        rig.sim.power_on();
        rig.crash();
        let now = slot_of(&rig.load(), page(A, 0));
        assert!(
            now == Some((slots[1], 2)) || (written.is_err() && now == Some((slots[0], 1))),
            "seed {seed}"
        );
    }
    assert!(crashes >= 20, "only {crashes} crashes");
}

/// Invariant 9: never from an older copy alone.
#[test]
fn a_rotten_home_is_corruption_unless_the_log_leads_past_it() {
    for bit in [8 * 20, 8 * 3000] {
        let rig = Rig::new(9, 64);
        let map = rig.load();
        let mut ends = Vec::new();
        for tag in 1..=3 {
            let slot = one(&map);
            ends.push(map.publish_slots(&[(page(A, 0), slot, tag)]).unwrap().end);
            map.write_homes().unwrap();
        }
        // Homes 1, 0, 1: the newest is home 1, the other has the second version.
        let flip = |home: u64| assert!(rig.disk.flip("map", home * PAGE_SIZE as u64 + bit / 8, 3));
        flip(1);
        rig.log.release(ends[1]);
        assert_eq!(slot_of(&rig.load(), page(A, 0)).unwrap().1, 3, "home 0 and the log since are enough");
        rig.log.release(ends[2]);
        assert!(matches!(rig.try_load(), Err(MapError::Corrupt { page: 0, .. })), "home 0 alone is too old");
        let slot = one(&map);
        map.publish_slots(&[(page(A, 0), slot, 4)]).unwrap();
        rig.log.make_durable(rig.log.appended()).unwrap();
        assert!(matches!(rig.try_load(), Err(MapError::Corrupt { page: 0, .. })), "the log has a gap");
        flip(1);
        assert_eq!(slot_of(&rig.load(), page(A, 0)).unwrap().1, 4);
        flip(0);
        assert_eq!(slot_of(&rig.load(), page(A, 0)).unwrap().1, 4, "the older home is not needed");
        flip(1);
        assert!(rig.try_load().is_err(), "both homes are rotten");
    }
}

#[test]
fn a_slot_that_is_named_twice_or_lies_outside_is_corruption() {
    for slots in [[Slot(1), Slot(1)], [Slot(1), Slot(64)]] {
        let rig = Rig::new(10, 64);
        let map = rig.load();
        map.publish_slots(&[(page(A, 0), slots[0], 1), (page(A, 1), slots[1], 2)]).unwrap();
        assert!(!map.faults().is_empty());
        rig.log.make_durable(rig.log.appended()).unwrap();
        assert!(matches!(rig.try_load(), Err(MapError::Corrupt { .. })));
    }
}

type Model = BTreeMap<PageId, (Option<Slot>, Tag)>;

fn content(map: &Map, ids: impl Iterator<Item = PageId>) -> Model {
    ids.filter_map(|id| match map.locate(id) {
        Located::Never => None,
        Located::At(home) => Some((id, (home.slot, home.tag))),
    })
    .collect()
}

/// One life of a map: changes at random until it is cut off. The states since the durable one.
fn live(rig: &Rig, map: &Map, mut state: Model, tag: &mut Tag) -> Vec<(Glsn, Model)> {
    let random = &rig.sim.random;
    let mut states = vec![(0, state.clone())];
    for _ in 0..random.below(60) {
        let space = SpaceId(16 + random.below(3) as u32);
        match random.below(20) {
            0 => {
                if map.write_homes().is_err() {
                    break;
                }
                // The checkpoint passes, now or never.
                let bound = map.oldest_unwritten().unwrap_or(rig.log.durable());
                if random.one_in(2) {
                    rig.log.release(bound.min(rig.log.durable()));
                }
            }
            1 => rig.log.set_durable(rig.log.appended()),
            2 => {
                let block = BlockId { space, block: random.below(40) as u32 };
                let homes = map.block(block).homes;
                let taken: Vec<(usize, Tag)> =
                    homes.iter().enumerate().filter_map(|(i, h)| Some((i, (*h)?.tag))).collect();
                let lengths: Vec<(usize, u16)> = taken.iter().map(|(i, _)| (*i, 640)).collect();
                *tag += 1;
                let object = shape(u64::from(*tag), &lengths);
                let Some(range) = map.publish_object(block, &taken, &object).unwrap() else { continue };
                for (i, _) in taken {
                    state.get_mut(&block.page(i)).unwrap().0 = None;
                }
                states.push((range.end, state.clone()));
            }
            _ => {
                let n = 1 + random.below(5) as usize;
                let mut changes: Vec<(PageId, Slot, Tag)> = Vec::new();
                for slot in map.take_up_to(n, 0) {
                    let acknowledged =
                        states.iter().rposition(|(end, _)| *end <= rig.log.durable()).unwrap_or(0);
                    let names = |(_, s): &(Glsn, Model)| s.values().any(|(named, _)| *named == Some(slot));
                    assert!(
                        !states[acknowledged..].iter().any(names),
                        "seed {}: slot {slot:?} is reused early",
                        rig.sim.seed
                    );
                    *tag += 1;
                    let id = page(space, random.below(40 * 128) as u32);
                    if changes.iter().any(|(other, ..)| *other == id) {
                        map.give_back_slots(&[slot]);
                        continue;
                    }
                    changes.push((id, slot, *tag));
                }
                if changes.is_empty() {
                    continue;
                }
                let range = map.publish_slots(&changes).unwrap();
                state.extend(changes.iter().map(|(id, slot, tag)| (*id, (Some(*slot), *tag))));
                states.push((range.end, state.clone()));
            }
        }
    }
    states
}

#[test]
fn a_map_after_any_crash_is_a_state_that_it_had_no_older_than_the_durable_one() {
    let mut crashes = 0;
    for seed in 0..60 {
        let rig = Rig::new(seed, 400);
        let mut state = Model::new();
        let mut tag = 0;
        for _ in 0..8 {
            let map = rig.load();
            rig.sim.crash_at(rig.sim.steps() + 1 + rig.sim.random.below(40));
            let states = live(&rig, &map, state, &mut tag);
            crashes += u32::from(rig.sim.crashed());
            rig.sim.power_on();
            let durable = rig.log.durable();
            rig.crash();
            let map = rig.load();
            assert_eq!(map.faults(), Vec::<String>::new(), "seed {seed}");
            let ids = (16..19).flat_map(|s| (0..40 * 128).map(move |p| page(SpaceId(s), p)));
            state = content(&map, ids);
            let acknowledged = states.iter().rposition(|(end, _)| *end <= durable).unwrap_or(0);
            let found = states[acknowledged..].iter().any(|(_, s)| *s == state);
            assert!(found, "seed {seed}: not one of the {} states", states.len() - acknowledged);
            let named = state.values().filter(|(slot, _)| slot.is_some()).count() as u32;
            assert_eq!(map.slots_free(), 400 - named, "seed {seed}: free slots are the rest");
        }
    }
    assert!(crashes > 60, "only {crashes} crashes");
}

#[test]
fn slots_that_the_file_has_no_room_for_are_not_given_out() {
    let mut slots = slots::Slots::new(300);
    assert!(slots.claim(Slot(250)) && slots.claim(Slot(3)));
    slots.set_limit(70, true);
    assert_eq!((slots.usable(), slots.free(), slots.pressure()), (69, 298, (70, 69)));
    let taken = slots.take(100, 4);
    assert_eq!(taken.len(), 65);
    assert!(taken.iter().all(|slot| slot.0 < 70 && slot.0 != 3));
    assert_eq!(slots.take(100, 0).len(), 4);
    assert!(slots.take(1, 0).is_empty());
    slots.give_back(Slot(250));
    assert_eq!((slots.usable(), slots.free()), (0, 230));
    slots.give_back(Slot(69));
    assert_eq!(slots.take(2, 0), [Slot(69)]);
    slots.set_limit(300, false);
    assert_eq!((slots.usable(), slots.pressure()), (230, (300, 230)));
    assert_eq!(slots.take(1000, 0).len(), 230);
    slots.set_limit(0, true);
    assert!(slots.take(1, 0).is_empty());
}

/// Spaces whose first pages, and of some one of the last that a map page knows, are in slots; a map page of each is in memory as far as it is used.
fn many_spaces(rig: &Rig, spaces: u32) -> Map {
    let map = rig.load();
    for space in 0..spaces {
        let far = if space % 50 < 40 { 0 } else { 14 * BLOCK_PAGES };
        let slots = map.take_up_to(2, 0);
        let id = SpaceId(A.0 + space);
        map.publish_slots(&[
            (page(id, 0), slots[0], 100 + space),
            (page(id, far + 1), slots[1], 200 + space),
        ])
        .unwrap();
    }
    map
}

fn a_copy_is_the_map() {
    let rig = Rig::new(9, 1024);
    let map = many_spaces(&rig, 300);
    let other = rig.sim.disk("copy");
    home::create(&*other).unwrap();
    let file = terrace_io::disk::Disk::open(&*other, home::FILE).unwrap();
    map.write_copy(&*file).unwrap();
    let copy = Loading::open(&*other).unwrap().finish(rig.slots, rig.log.clone()).unwrap();
    assert_eq!(copy.spaces(), map.spaces());
    assert_eq!(copy.slots_in_use(), map.slots_in_use());
}

#[test]
fn a_copy_of_the_map_is_the_map() {
    a_copy_is_the_map();
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_an_end_of_a_map_page_that_stays_in_a_copy_is_found_by_one_run() {
    crate::planted::END_OF_IMAGE_LEFT.set(true);
    let found = std::panic::catch_unwind(a_copy_is_the_map).is_err();
    crate::planted::END_OF_IMAGE_LEFT.set(false);
    assert!(found);
}

#[test]
fn a_space_of_few_pages_takes_little_memory() {
    let rig = Rig::new(10, 4096);
    let map = many_spaces(&rig, 1000);
    let few = map.bytes();
    assert!(few < 800 * 1300 + 200 * 16500, "{few} bytes for 1000 spaces");
    (0..1000)
        .filter(|space| space % 50 >= 40)
        .for_each(|space| _ = map.drop_space(SpaceId(A.0 + space)).unwrap());
    assert!(map.bytes() < 1000 * 1300, "{} bytes for 800 spaces", map.bytes());
    map.write_homes().unwrap();
    rig.log.set_durable(u64::MAX);
    let again = rig.load();
    assert_eq!(again.slots_in_use(), map.slots_in_use());
    assert!(again.bytes() < 1100 * 1300, "{} bytes after a start", again.bytes());
}

/// An entry with all that it can have of a page: a slot, a place in the patch, the object's.
#[test]
fn an_entry_says_of_each_page_where_its_newest_image_is() {
    let (mut image, mut ops) = (vec![0; PAGE_SIZE], Vec::new());
    let mut map_page = crate::redo::PageMut::new(&mut image, &mut ops);
    map_page.init(PageId::new(SpaceId::MAP, 0), crate::page::PageKind::Map, 0);
    entry::set_owner(&mut map_page, A, 0);
    let base = shape(7, &[(0, 64), (1, 128), (2, 64), (127, PAGE_SIZE as u16)]);
    entry::set_object(&mut map_page, 0, &base);
    (0..3).chain([127]).for_each(|i| {
        entry::set_slot(&mut map_page, 0, i, Slot(Slot::COUNT_MAX - 1 - i as u32), 100 + i as u32);
        entry::clear_slot(&mut map_page, 0, i);
    });
    let mut patch = shape((1 << 48) - 1, &[(2, 64), (126, (PAGE_SIZE - 64) as u16), (127, PAGE_SIZE as u16)]);
    patch.key.epoch = u32::MAX;
    entry::set_patch(&mut map_page, 0, &patch);
    entry::set_place(&mut map_page, 0, 127, entry::BodyRange { offset: PAGE_SIZE, length: PAGE_SIZE });
    entry::set_slot(&mut map_page, 0, 2, Slot(Slot::COUNT_MAX - 1), 102);
    let sound = map_page.get().all().to_vec();
    let seen = Entry::new(PageRef::new(&sound), 0);
    assert_eq!((seen.object(), seen.patch(), seen.fault()), (Some(base.key), Some(patch.key), None));
    assert_eq!((seen.patch_body(), patch.body()), (2 * PAGE_SIZE, 2 * PAGE_SIZE));
    let places = [0, 1, 2, 127].map(|i| (seen.slot(i), in_object(seen, i)));
    let at = |key, offset, length| Some(InObject { key, offset, length });
    assert_eq!(places[0], (None, at(base.key, 0, 64)));
    assert_eq!(places[1], (None, at(base.key, 64, 128)));
    assert_eq!(places[2], (Some(Slot(Slot::COUNT_MAX - 1)), at(base.key, 192, 64)));
    assert_eq!(places[3], (None, at(patch.key, PAGE_SIZE, PAGE_SIZE)));
    let stored = Stored { pages: 4, patched: 1, has_object: true };
    assert_eq!((seen.stored(), seen.snapshot_version()), (stored, 3));
    assert_eq!(bytes_of_objects(seen), (2 * HEADER + 256 + 3 * PAGE_SIZE) as u64);
    // The largest patch, and its last page.
    let mut largest = shape(9, &[]);
    largest.lengths[..32].fill(PAGE_SIZE as u16);
    assert!(largest.can_patch(&base.key));
    entry::set_patch(&mut map_page, 0, &largest);
    let last = entry::BodyRange { offset: 31 * PAGE_SIZE, length: PAGE_SIZE };
    entry::set_place(&mut map_page, 0, 127, last);
    let seen = Entry::new(map_page.get(), 0);
    assert_eq!((seen.in_patch(127), seen.patch_body(), seen.fault()), (Some(last), PATCH_MAX, None));
    let end = entry::BodyRange { offset: PATCH_MAX - 64, length: 64 };
    entry::set_place(&mut map_page, 0, 127, end);
    assert_eq!(Entry::new(map_page.get(), 0).in_patch(127), Some(end));
    largest.lengths[32] = 64;
    assert!(!largest.can_patch(&base.key), "too large");
    assert!(!patch.can_patch(&ObjectKey { lineage: 8, ..base.key }), "of another lineage");
    assert!(!patch.can_patch(&ObjectKey { block: 1, ..base.key }), "of another block");
    assert!(!shape(1 << 48, &[(0, 64)]).can_patch(&base.key) && !shape(8, &[]).can_patch(&base.key));
    // A whole object takes the place of both.
    entry::set_object(&mut map_page, 0, &base);
    entry::clear_slot(&mut map_page, 0, 127);
    let seen = Entry::new(map_page.get(), 0);
    assert_eq!(
        (seen.object(), seen.patch(), seen.patch_body(), seen.fault()),
        (Some(base.key), None, 0, None)
    );
    // Damage that no writer produces is found.
    let fault = |change: &dyn Fn(&mut [u8])| {
        let mut image = sound.clone();
        change(&mut image[crate::page::PAGE_HEADER..]);
        Entry::new(PageRef::new(&image), 0).fault()
    };
    assert!(fault(&|entry| entry[28] &= !2).is_some(), "a place, and no patch");
    assert!(fault(&|entry| entry[32..40].fill(0)).is_some(), "a patch, and no object");
    assert!(fault(&|entry| entry[64 + 4 * 127..][..4].fill(0)).is_some(), "a place, and no tag");
    assert!(fault(&|entry| entry[29] = 0).is_some(), "a place beyond the patch's end");
    assert_eq!(fault(&|_| ()), None);
}
