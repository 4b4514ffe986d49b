//! Patch objects: if few pages of a block changed, only those are put, in addition to the block's object. Random lives with
//! crashes, in which most sinks are patches, are in `sink_lives`.

mod rig;

use parking_lot::Mutex;
use rig::{LINEAGE, NOISE, Rig, block_of, page_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::random::Random;
use terrace_io::sched::Worker;
use terrace_io::store::{Bytes, Purpose};
use terrace_log::{Redo, Urgency};
use terrace_tier::address::InObject;
use terrace_tier::address::ObjectKey;
use terrace_tier::address::PATCH_MAX;
use terrace_tier::memory::lower_tiers::Below;
use terrace_tier::memory::pool::{Access, ScanDirection};
use terrace_tier::objects::object::PageObjects;
use terrace_tier::objects::object::codec::Codec;
use terrace_tier::objects::object::format::HEADER;
use terrace_tier::objects::object::{BodyError, Draft, Objects};
use terrace_tier::objects::sink::Sunk;
use terrace_tier::page::{PAGE_SIZE, PageId, Tag};
use terrace_tier::read::ReadPath;

fn put(rig: &Rig, block: u32) -> (u32, bool) {
    match rig.run.sinker.sink_block(block_of(block)).unwrap() {
        Sunk::Put { pages, patch } => (pages, patch),
        other => panic!("seed {}: {other:?}", rig.sim.seed),
    }
}

fn flush(rig: &Rig, block: u32, pages: impl IntoIterator<Item = u32>) {
    pages.into_iter().for_each(|i| assert!(rig.flush(page_of(block, i))));
}

fn put_bytes(rig: &Rig) -> u64 {
    rig.run.objects.counters.put_bytes.load(Ordering::Relaxed)
}

/// The block's objects are all that the store has, when what they superseded is collected.
fn only_these_are_stored(rig: &mut Rig, blocks: &[u32]) {
    rig.log.make_durable(0).unwrap();
    rig.work();
    let mut named: Vec<String> =
        blocks.iter().flat_map(|b| [rig.object(*b), rig.patch(*b)]).flatten().collect();
    named.sort_unstable();
    assert_eq!(rig.stored(), named);
}

#[test]
fn only_changed_pages_are_put_as_a_patch_beside_the_blocks_object() {
    let mut rig = Rig::new(1, 300);
    rig.run.objects.codecs.set_fallback(Codec::None);
    flush(&rig, 0, 0..100);
    assert_eq!(put(&rig, 0), (100, false));
    let (base, free) = (rig.object(0), rig.run.map.slots_free());
    let before = put_bytes(&rig);
    flush(&rig, 0, [7, 50, 99]);
    assert_eq!(put(&rig, 0), (3, true));
    assert_eq!(put_bytes(&rig) - before, (HEADER + 3 * PAGE_SIZE) as u64);
    assert_eq!((rig.object(0), rig.run.map.slots_free()), (base, free));
    assert_eq!(rig.store.requests(Purpose::Merge), 0, "nothing is needed of the object");
    assert_eq!(rig.run.sinker.counters.patches.load(Ordering::Relaxed), 1);
    only_these_are_stored(&mut rig, &[0]);
    let counts = rig.run.map.counts()[&block_of(0).space];
    let bytes = (2 * HEADER + 103 * PAGE_SIZE) as u64;
    assert_eq!((counts.pages, counts.object, counts.objects, counts.object_bytes), (100, 100, 2, bytes));
    assert_eq!((rig.run.map.object_bytes(), rig.run.map.patches()), (bytes, 1));
    rig.read_all();
    assert_eq!(rig.store.requests(Purpose::PageMiss), 100, "a miss is one request for one page");
    rig.check_entries();
    // A start finds the same.
    rig.crash();
    rig.check_entries();
    assert_eq!(rig.run.map.counts()[&block_of(0).space], counts);
    assert_eq!(put_of_one_more(&mut rig), (1, true));
}

fn put_of_one_more(rig: &mut Rig) -> (u32, bool) {
    flush(rig, 0, [8]);
    put(rig, 0)
}

#[test]
fn a_patch_takes_over_what_is_current_in_the_one_before() {
    let mut rig = Rig::new(2, 300);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    flush(&rig, 0, [3, 60, 61, 62, 127]);
    put(&rig, 0);
    let first = rig.patch(0).unwrap();
    flush(&rig, 0, [0, 61]);
    assert_eq!(put(&rig, 0), (2, true));
    assert_eq!(rig.store.requests(Purpose::Merge), 1, "what the old patch has comes with one request");
    let second = rig.patch(0).unwrap();
    assert_ne!(first, second);
    only_these_are_stored(&mut rig, &[0]);
    rig.check_entries();
    // Of one whose pages have all changed nothing is needed.
    flush(&rig, 0, [0, 3, 60, 61, 62, 127]);
    assert_eq!((put(&rig, 0), rig.store.requests(Purpose::Merge)), ((6, true), 1));
    only_these_are_stored(&mut rig, &[0]);
    rig.check_entries();
    rig.crash();
    rig.check_entries();
}

/// Pages at random, `k` each time: patches until they have come to as much as the block, then the block.
#[test]
fn a_patch_that_has_grown_too_large_becomes_part_of_the_block() {
    for (k, codec) in [(1, Codec::Zstd), (2, Codec::Lz4), (4, Codec::None), (16, Codec::None)] {
        let mut rig = Rig::new(3, 300);
        rig.run.objects.codecs.set_fallback(codec);
        flush(&rig, 0, 0..128);
        put(&rig, 0);
        let base = rig.object(0);
        let mut patches = 0;
        for round in 0.. {
            assert!(round < 64, "{k}: it is never put whole");
            flush(&rig, 0, (0..k).map(|i| (round * k + i) * 37 % 128));
            let (pages, patch) = put(&rig, 0);
            assert_eq!(pages, k);
            rig.check_entries();
            if !patch {
                break;
            }
            patches += 1;
        }
        assert_ne!(rig.object(0), base);
        assert_eq!(rig.patch(0), None);
        only_these_are_stored(&mut rig, &[0]);
        let best = (2.0 * 128.0 / f64::from(k)).sqrt().min(32.0 / f64::from(k));
        assert!((f64::from(patches) - best).abs() <= 1.0, "k = {k}: {patches} patches, best would be {best}");
    }
}

/// Where the same pages change each time, nothing grows.
#[test]
fn patches_of_the_same_pages_do_not_grow() {
    let mut rig = Rig::new(4, 300);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    for _ in 0..100 {
        flush(&rig, 0, (0..20).map(|i| i * 5));
        assert_eq!(put(&rig, 0), (20, true));
    }
    only_these_are_stored(&mut rig, &[0]);
    rig.check_entries();
}

#[test]
fn a_page_that_changes_while_the_patch_is_put_keeps_its_slot() {
    let mut rig = Rig::new(5, 300);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    flush(&rig, 0, [10, 11]);
    put(&rig, 0);
    flush(&rig, 0, [12, 13]);
    // One that is new in the patch, one that it takes over, and one that it does not have.
    let hand = rig.hand();
    let other = move || [10, 12, 90].into_iter().for_each(|i| assert!(hand.flush(page_of(0, i))));
    rig.sim.sched.hook("sink-gathered", Box::new(other));
    assert_eq!(put(&rig, 0), (2, true));
    rig.sim.sched.unhook("sink-gathered");
    let in_slots: Vec<u32> = (0..128).filter(|i| rig.in_slot(page_of(0, *i))).collect();
    assert_eq!(in_slots, [10, 12, 90]);
    rig.check_entries();
    rig.crash();
    rig.check_entries();
    assert_eq!(put(&rig, 0), (3, true));
    rig.check_entries();
    rig.run.collector.scrub_orphans().unwrap(); // the crash forgot what was to be deleted
    only_these_are_stored(&mut rig, &[0]);
}

/// How large a patch will be is guessed by what the block's pages were packed to.
#[test]
fn pages_that_a_patch_has_no_room_for_are_put_with_their_block() {
    let rig = Rig::new(6, 300);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    // More than a patch may have, of a block that would be put as one by its guess.
    (0..40).for_each(|i| assert!(rig.hand().flush_as(page_of(0, i), NOISE)));
    const { assert!(40 * PAGE_SIZE > PATCH_MAX) };
    assert_eq!(put(&rig, 0), (40, false));
    assert_eq!(rig.patch(0), None);
    rig.check_entries();
    // As many as there is room for, to the byte.
    (0..32).for_each(|i| assert!(rig.hand().flush_as(page_of(0, i * 3), NOISE | 1)));
    assert_eq!(put(&rig, 0), (32, true));
    rig.check_entries();
    assert_eq!(rig.run.map.faults(), Vec::<String>::new());
}

#[test]
fn both_objects_of_a_block_are_deleted_when_its_pages_are_freed_or_its_space_dropped() {
    for drop_space in [false, true] {
        let mut rig = Rig::new(7, 300);
        flush(&rig, 0, 0..20);
        put(&rig, 0);
        flush(&rig, 0, [4]);
        assert_eq!(put(&rig, 0), (1, true));
        flush(&rig, 0, [5]);
        assert_eq!(rig.stored().len(), 2);
        let map = rig.run.map.clone();
        if drop_space {
            map.drop_space(block_of(0).space).unwrap();
        } else {
            let pages: Vec<PageId> = (0..20).map(|i| page_of(0, i)).collect();
            let mut room = map.room_to_clear(pages.len(), Urgency::Checkpoint).unwrap();
            map.clear(&mut room, &pages.iter().map(|id| (*id, None)).collect::<Vec<_>>()).unwrap();
            assert_eq!(map.block(block_of(0)).patch, None);
        }
        rig.log.make_durable(0).unwrap();
        rig.sim.clock.advance(10_000_000_000);
        rig.work();
        assert_eq!(rig.stored(), Vec::<String>::new(), "dropped: {drop_space}");
        assert_eq!(map.faults(), Vec::<String>::new());
    }
}

/// The block is freed and reused while a patch of it is put: the patch is not needed.
#[test]
fn a_patch_whose_block_has_lost_its_object_is_not_published() {
    let mut rig = Rig::new(8, 300);
    flush(&rig, 0, 0..20);
    put(&rig, 0);
    flush(&rig, 0, [4]);
    let (map, hand) = (rig.run.map.clone(), rig.hand());
    let other = move || {
        let pages: Vec<PageId> = (0..20).map(|i| page_of(0, i)).collect();
        let mut room = map.room_to_clear(pages.len(), Urgency::Checkpoint).unwrap();
        map.clear(&mut room, &pages.iter().map(|id| (*id, None)).collect::<Vec<_>>()).unwrap();
        assert!(hand.flush(page_of(0, 4)));
    };
    rig.sim.sched.hook("sink-put", Box::new(other));
    assert_eq!(rig.run.sinker.sink_block(block_of(0)).unwrap(), Sunk::Gone);
    rig.sim.sched.unhook("sink-put");
    assert!(rig.in_slot(page_of(0, 4)));
    rig.read(page_of(0, 4)).unwrap();
    rig.log.make_durable(0).unwrap();
    rig.sim.clock.advance(1);
    rig.run.collector.step();
    assert_eq!(rig.stored(), Vec::<String>::new());
    assert_eq!(put(&rig, 0), (1, false));
    rig.read(page_of(0, 4)).unwrap();
    only_these_are_stored(&mut rig, &[0]);
}

/// A reader that found a page in the old patch keeps that from being collected.
#[test]
fn a_superseded_patch_waits_for_its_readers_and_for_the_log() {
    let mut rig = Rig::new(9, 300);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    flush(&rig, 0, [1]);
    put(&rig, 0);
    let old = rig.run.map.block(block_of(0)).patch.unwrap();
    let objects = rig.run.objects.clone();
    let reading = objects.reading(old);
    flush(&rig, 0, [2]);
    assert_eq!(put(&rig, 0), (1, true));
    rig.work();
    assert!(rig.stored().contains(&old.to_string()));
    drop(reading);
    rig.sim.clock.advance(10_000_000_000);
    only_these_are_stored(&mut rig, &[0]);
}

/// What the path reads objects through: something happens between the look into the map and the first request.
struct Late {
    objects: Arc<Objects>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    requests: AtomicU64,
}

impl Late {
    fn begin(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let meanwhile = self.meanwhile.lock().take();
        meanwhile.into_iter().for_each(|meanwhile| meanwhile());
    }
}

impl PageObjects for Late {
    fn read_page(&self, at: &InObject, image: &mut [u8]) -> Result<(), BodyError> {
        self.begin();
        self.objects.read_page(at, image)
    }
    fn read_pages(&self, at: &[InObject], images: Vec<&mut [u8]>) -> Vec<Result<(), BodyError>> {
        self.begin();
        self.objects.read_pages(at, images)
    }
}

/// The reader found the page in the patch; by the time of its request the patch has been superseded, by another or by a whole object, and deleted.
#[test]
fn a_reader_whose_patch_was_deleted_looks_up_its_page_again() {
    for (whole, together) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::new(13, 300);
        flush(&rig, 0, 0..128);
        put(&rig, 0);
        flush(&rig, 0, [1, 2]);
        assert_eq!(put(&rig, 0), (2, true));
        let (old, store, log) = (rig.patch(0).unwrap(), rig.store.clone(), rig.log.clone());
        let (hand, sinker, collector) = (rig.hand(), rig.run.sinker.clone(), rig.run.collector.clone());
        let meanwhile = move || {
            let changed: std::ops::Range<u32> = if whole { 3..103 } else { 3..4 };
            let pages = changed.len() as u32;
            changed.for_each(|i| assert!(hand.flush(page_of(0, i))));
            assert_eq!(sinker.sink_block(block_of(0)).unwrap(), Sunk::Put { pages, patch: !whole });
            log.make_durable(0).unwrap();
            collector.step();
            assert!(!store.keys().contains(&old));
        };
        let late = Arc::new(Late {
            objects: rig.run.objects.clone(),
            meanwhile: Mutex::new(Some(Box::new(meanwhile))),
            requests: AtomicU64::new(0),
        });
        let (map, buffer, misses) = (rig.run.map.clone(), rig.run.buffer.clone(), rig.run.misses.clone());
        let path = ReadPath::new(map, buffer, None, Some(late.clone()), misses);
        let ids = [page_of(0, 1), page_of(0, 2)];
        let mut images = ids.map(|_| AlignedBuf::zeroed(PAGE_SIZE));
        if together {
            let mut parts: Vec<&mut [u8]> = images.iter_mut().map(|image| &mut image[..]).collect();
            let found = path.fetch_run(&ids, &mut parts);
            assert!(found[0].is_ok() && found[1].is_err(), "who comes along is left");
        } else {
            path.fetch(ids[0], &mut images[0]).unwrap();
        }
        assert!(images[0][..] == rig::image(ids[0], rig.version(ids[0]).unwrap()).0[..]);
        assert_eq!(late.requests.load(Ordering::Relaxed), 2);
    }
}

/// As a clone's block will have one: it is not this block's to be patched.
#[test]
fn a_block_whose_object_belongs_to_another_block_is_put_whole() {
    let own = ObjectKey {
        lineage: LINEAGE,
        space: block_of(0).space,
        block: 0,
        epoch: 1,
        sequence: 1 << 50, // more than a patch's may be
    };
    for key in [ObjectKey { lineage: LINEAGE + 1, ..own }, ObjectKey { block: 7, ..own }, own] {
        let mut rig = Rig::new(14, 300);
        flush(&rig, 1, [0]);
        put(&rig, 1); // the store is the instance's
        flush(&rig, 0, 0..20);
        let image = |i: u32| rig::image(page_of(0, i), rig.version(page_of(0, i)).unwrap());
        let body =
            |i: u32, (bytes, tag): (AlignedBuf, Tag)| (i as usize, tag, Bytes::copy_from_slice(&bytes));
        let pages: Vec<(usize, Tag, Bytes)> = (0..20).map(|i| body(i, image(i))).collect();
        let draft = Draft::new(key, 1, &pages);
        rig.run.objects.put(&draft).unwrap();
        let taken: Vec<(usize, Tag)> = pages.iter().map(|(i, tag, _)| (*i, *tag)).collect();
        rig.run.map.publish_object(block_of(0), &taken, &draft.header().shape()).unwrap().unwrap();
        rig.log.make_durable(0).unwrap();
        rig.crash();
        rig.run.objects.codecs.set_fallback(Codec::Zstd);
        flush(&rig, 0, [4]);
        assert_eq!(put(&rig, 0), (1, key == own));
        rig.check_entries();
        rig.read_all();
        rig.crash();
        rig.check_entries();
        rig.run.objects.codecs.set_fallback(Codec::Zstd);
        flush(&rig, 0, [5]);
        assert_eq!(put(&rig, 0), (1, true));
        rig.check_entries();
    }
}

/// The record that names the patch cannot be written: the block stays as it was, and the patch is unreferenced.
#[test]
fn a_patch_that_the_log_refuses_is_put_again() {
    let mut rig = Rig::new(15, 300);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    flush(&rig, 0, [1]);
    put(&rig, 0);
    let old = rig.patch(0);
    flush(&rig, 0, [2]);
    let log = rig.log.clone();
    rig.sim.sched.hook("sink-put", Box::new(move || log.stopped.store(true, Ordering::SeqCst)));
    rig.run.sinker.sink_block(block_of(0)).unwrap_err();
    rig.sim.sched.unhook("sink-put");
    assert_eq!((rig.patch(0), rig.in_slot(page_of(0, 2))), (old, true));
    rig.check_entries();
    rig.log.stopped.store(false, Ordering::SeqCst);
    assert_eq!(put(&rig, 0), (1, true));
    only_these_are_stored(&mut rig, &[0]);
    rig.check_entries();
    rig.crash();
    rig.check_entries();
}

/// A sinker chooses what to sink when another has counted the first page that it packed, and not yet its bytes.
#[test]
fn a_sinker_chooses_blocks_while_another_counts_its_first_page() {
    let mut rig = Rig::new(16, 64);
    flush(&rig, 0, 0..60);
    rig.run.objects.packer.counters.pages.store(1, Ordering::Relaxed);
    rig.work();
    assert!(rig.object(0).is_some());
    rig.read_all();
}

/// What the block's object has comes with one request past the pages of its patch.
#[test]
fn a_scan_prefetches_pages_of_a_blocks_object_past_those_of_its_patch() {
    let rig = Rig::new(10, 300);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    flush(&rig, 0, (0..128).step_by(10));
    assert_eq!(put(&rig, 0), (13, true));
    let requests = || rig.store.requests(Purpose::BlockRead) + rig.store.requests(Purpose::PageMiss);
    let stretch = rig.run.path.stretch(page_of(0, 0), 128);
    assert_eq!(stretch.iter().map(Vec::len).collect::<Vec<_>>(), [13, 115]);
    for i in [0, 1] {
        let ahead = rig.run.path.ahead(page_of(0, i), 40, ScanDirection::Up);
        assert_eq!(ahead.len(), [4, 36][i as usize], "those of the other object do not end the run");
    }
    rig.run.pages.bring_with(page_of(0, 1), 0, 39);
    for id in (1..41).map(|i| page_of(0, i)) {
        drop(rig.run.pages.load(id, Access::Normal).unwrap());
        let page = rig.run.pages.try_read(id, Access::Normal).unwrap();
        assert_eq!(page.page().all(), &rig::image(id, rig.version(id).unwrap()).0[..], "page {id}");
    }
    assert!(requests() <= 2 + 4, "{} requests", requests());
}

/// These pages are in slots, and read-ahead ends before them if there are many.
#[test]
fn the_dead_pages_of_a_patch_are_not_read_ahead() {
    let rig = Rig::with_flash(17, 300, 0);
    rig.run.objects.codecs.set_fallback(Codec::None);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    flush(&rig, 0, 10..42);
    assert_eq!(put(&rig, 0), (32, true));
    // Of its pages the first, the eighth behind it and the last are current.
    flush(&rig, 0, (11..18).chain(19..41));
    let got = || rig.run.objects.counters.get_bytes.load(Ordering::Relaxed);
    for i in [10, 18, 41] {
        assert!(rig.run.path.ahead(page_of(0, i), 100, ScanDirection::Up).is_empty(), "page {i}");
    }
    let stretch: Vec<u32> =
        rig.run.path.stretch(page_of(0, 0), 128).into_iter().map(|group| group.len() as u32).collect();
    assert_eq!(stretch, [10, 1, 7, 1, 22, 1, 86]);
    rig.run.pages.bring_with(page_of(0, 10), 10, 100);
    assert_eq!(got(), 9 * PAGE_SIZE as u64, "two, and seven between them for one request less");
    assert!(rig.run.pages.try_read(page_of(0, 18), Access::Normal).is_some());
    rig.run.pages.bring_with(page_of(0, 41), 100, 10);
    assert_eq!(got(), 10 * PAGE_SIZE as u64, "one");
}

/// The pages to merge are read from the block's patch and from its object with one request each.
#[test]
fn a_patch_whose_pages_are_in_memory_is_not_read() {
    let rig = Rig::with_flash(18, 300, 0);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    flush(&rig, 0, [3, 60]);
    put(&rig, 0);
    [3, 60].into_iter().for_each(|i| rig.cache(page_of(0, i)));
    flush(&rig, 0, 64..128);
    assert_eq!(put(&rig, 0), (64, false));
    assert_eq!(rig.store.requests(Purpose::Merge), 1);
    rig.check_entries();
}

/// Damage in the patch is found, named, and healed by a copy that is intact.
#[test]
fn a_damaged_page_of_a_patch_is_an_error_and_no_older_image_is_served() {
    let rig = Rig::new(11, 300);
    flush(&rig, 0, 0..128);
    put(&rig, 0);
    flush(&rig, 0, [1, 2]);
    put(&rig, 0);
    let patch = rig.patch(0).unwrap();
    assert!(rig.store.flip(&patch, HEADER + 20, 3));
    let names = |error: String, key: &str| {
        assert!(error.contains("corrupt") && error.contains(&format!("in object {key},")), "{error}");
    };
    names(rig.read(page_of(0, 1)).unwrap_err().to_string(), &patch);
    let mut images = [1, 2].map(|_| AlignedBuf::zeroed(PAGE_SIZE));
    let mut parts: Vec<&mut [u8]> = images.iter_mut().map(|image| &mut image[..]).collect();
    let found = rig.run.path.fetch_run(&[page_of(0, 2), page_of(0, 1)], &mut parts);
    assert!(found[0].is_ok());
    names(found[1].as_ref().unwrap_err().to_string(), &patch);
    rig.read(page_of(0, 2)).unwrap();
    flush(&rig, 0, [3]);
    names(rig.run.sinker.sink_block(block_of(0)).unwrap_err().to_string(), &patch);
    // The object beside it, too.
    let object = rig.object(0).unwrap();
    assert!(rig.store.flip(&object, HEADER + 20, 3));
    names(rig.read(page_of(0, 0)).unwrap_err().to_string(), &object);
    assert!(rig.store.flip(&object, HEADER + 20, 3));
    // Its next image heals it.
    flush(&rig, 0, [1]);
    assert_eq!(put(&rig, 0), (2, true));
    rig.check_entries();
}

/// Writes of pages by popularity, with an object buffer of a tenth of them: bytes put, puts and gets for each page that is written.
fn costs(exponent: f64, patches: bool) -> [f64; 3] {
    const BLOCKS: u32 = 24;
    const PAGES: u32 = BLOCKS * 128;
    const WRITES: u32 = 3000;
    let slots = PAGES / 10;
    let mut rig = if patches { Rig::new(12, slots) } else { Rig::without_patches(12, slots, 40) };
    rig.run.objects.codecs.set_fallback(Codec::None);
    let write = |rig: &mut Rig, page: u32| {
        while !rig.flush(page_of(page / 128, page % 128)) {
            rig.work();
        }
        if rig.run.map.slots_free() < slots / 4 {
            rig.run.worker.step();
        }
    };
    (0..PAGES).for_each(|page| write(&mut rig, page));
    let weights = (1..=PAGES).map(|rank| f64::from(rank).powf(-exponent));
    let sums: Vec<f64> = weights.scan(0.0, |sum, w| (*sum += w, Some(*sum)).1).collect();
    let numbers = |rig: &Rig| {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let counters = &rig.run.objects.counters;
        [of(&counters.put_bytes), of(&counters.puts), of(&counters.gets)]
    };
    let mut before = [0.0; 3];
    for n in 0..2 * WRITES {
        if n == WRITES {
            before = numbers(&rig);
        }
        let x = rig.sim.random.below(1 << 40) as f64 / (1u64 << 40) as f64 * sums[PAGES as usize - 1];
        let rank = sums.partition_point(|sum| *sum < x) as u32;
        // Popular pages are not neighbours.
        write(&mut rig, (u64::from(rank) * 2_654_435_761 % u64::from(PAGES)) as u32);
    }
    let after = numbers(&rig);
    rig.check_entries();
    std::array::from_fn(|i| (after[i] - before[i]) / f64::from(WRITES))
}

/// In steady state, with nothing but the policy to decide.
#[test]
fn patches_save_most_of_the_uploaded_bytes() {
    for exponent in [1.0, 1.2] {
        let ([bytes, puts, gets], [all, all_puts, all_gets]) =
            (costs(exponent, true), costs(exponent, false));
        println!(
            "Zipf {exponent}, for each page written: {:.1} KiB put instead of {:.1}, {puts:.3} puts instead of {all_puts:.3}, \
             {gets:.3} gets instead of {all_gets:.3}",
            bytes / 1024.0,
            all / 1024.0
        );
        assert!(bytes * 2.0 < all && puts < all_puts * 1.3, "Zipf {exponent}");
    }
}
