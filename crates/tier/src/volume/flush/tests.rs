use super::*;
use crate::address::{Home, Located};
use crate::flash::Leaving;
use crate::limits::write_policy::WritePolicy;
use crate::memory::misses::Misses;
use crate::memory::pages::Pages;
use crate::memory::pool::{Access, share};
use crate::page::{PAGE_HEADER, PageKind, PageRef, SpaceId, Tag};
use crate::read::ReadPath;
use crate::testing::HeldLog;
use crate::testing::odd_disk::OddDisk;
use crate::volume::map::home::{self, Loading};
use crate::volume::object_buffer;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use terrace_io::disk::Disk;
use terrace_log::Urgency;
use terrace_sim::{SimDisk, SimWorld};

mod forget;
mod limit;

const SPACE: SpaceId = SpaceId(16);

/// Changes a page between its map record and the moment its frame becomes clean.
#[derive(Default)]
struct Meddler {
    pages: OnceLock<Arc<Pages>>,
    armed: AtomicBool,
    invalidated: Mutex<Vec<PageId>>,
    map: OnceLock<Arc<Map>>,
    /// Pages of which flash was given an image that the map does not name.
    unnamed: Mutex<Vec<PageId>>,
}

impl FlashCache for Meddler {
    fn seems_to_have(&self, _: PageId) -> bool {
        false
    }
    fn find(&self, _: PageId, _: Tag, _: &mut [u8]) -> bool {
        false
    }
    fn evicted(&self, _: PageId, _: Tag, _: &[u8], _: Leaving) -> bool {
        false
    }
    fn invalidate(&self, id: PageId) {
        self.invalidated.lock().push(id);
        if self.armed.swap(false, Ordering::SeqCst) {
            change(self.pages.get().unwrap(), id.page, 99);
        }
    }
    fn rewrite(&self, id: PageId, tag: Tag, image: &[u8]) -> bool {
        let named = matches!(self.map.get().unwrap().locate(id), Located::At(home) if home.tag == tag);
        if !named || PageRef::new(image).id() != id {
            self.unnamed.lock().push(id);
        }
        self.invalidate(id);
        true
    }
}

struct Rig {
    sim: SimWorld,
    disk: Arc<SimDisk>,
    log: Arc<HeldLog>,
    slots: u32,
}

struct Open {
    map: Arc<Map>,
    pages: Arc<Pages>,
    flusher: Arc<Flusher>,
    meddler: Arc<Meddler>,
}

impl Rig {
    fn new(slots: u32) -> Rig {
        let sim = SimWorld::new(1);
        let disk = sim.disk("volume");
        home::create(&*disk).unwrap();
        object_buffer::create(&*disk).unwrap();
        disk.sync_dir().unwrap();
        Rig { sim, disk, log: Arc::default(), slots }
    }

    fn open(&self) -> Open {
        self.open_over(&*self.disk)
    }

    fn open_over(&self, volume: &dyn Disk) -> Open {
        let mut loading = Loading::open(&*self.disk).unwrap();
        for r in self.log.records().iter().filter(|r| r.id.space == SpaceId::MAP) {
            loading.apply(r.id.page, &r.ops, r.range.first, r.range.end).unwrap();
        }
        let map = Arc::new(loading.finish(self.slots, self.log.clone()).unwrap());
        let buffer = Arc::new(ObjectBuffer::open(volume).unwrap());
        let misses = Arc::new(Misses::new(self.sim.world().clock));
        let path = Arc::new(ReadPath::new(map.clone(), buffer.clone(), None, None, misses));
        let pages = Arc::new(Pages::new(self.sim.world(), 256, path, self.log.clone()));
        let meddler = Arc::new(Meddler::default());
        assert!(meddler.pages.set(pages.clone()).is_ok());
        assert!(meddler.map.set(map.clone()).is_ok());
        let flash: Arc<dyn FlashCache> = meddler.clone();
        let flusher = Flusher::new(pages.pool().clone(), map.clone(), buffer, self.log.clone(), Some(flash));
        Open { map, pages, flusher: Arc::new(flusher), meddler }
    }

    fn crash(&self) {
        self.log.crash(0);
        self.disk.crash();
    }
}

impl Open {
    /// Asks for everything and steps until nothing more is done. Returns the steps that worked.
    fn flush_all(&self) -> usize {
        self.flusher.request(self.flusher.redo.appended());
        (0..1000).take_while(|_| self.flusher.step() == Step::Worked).count()
    }
    fn dirty(&self) -> usize {
        self.pages.pool().dirty_frames()
    }
    fn slot(&self, page: u32) -> Option<Slot> {
        match self.map.locate(PageId::new(SPACE, page)) {
            Located::At(Home { slot, .. }) => slot,
            Located::Never => None,
        }
    }
    fn value(&self, page: u32) -> u8 {
        let id = PageId::new(SPACE, page);
        self.pages.read(id, Access::Normal).unwrap().page().u8(PAGE_HEADER)
    }
}

fn create(pages: &Pages, numbers: std::ops::Range<u32>) {
    for page in numbers {
        let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
        let handle = mtr.create(PageId::new(SPACE, page), PageKind::Leaf, 0);
        mtr.page_mut(handle).write_u8(PAGE_HEADER, page as u8);
        mtr.commit();
    }
}

fn change(pages: &Pages, page: u32, value: u8) {
    let mut mtr = pages.begin(1000, 0, Urgency::Normal).unwrap();
    let handle = mtr.write(PageId::new(SPACE, page)).unwrap();
    mtr.page_mut(handle).write_u8(PAGE_HEADER, value);
    mtr.commit();
}

#[test]
fn what_was_flushed_is_read_back_after_a_crash() {
    let rig = Rig::new(256);
    let open = rig.open();
    create(&open.pages, 0..150);
    open.flush_all();
    assert_eq!(open.dirty(), 0);
    assert_eq!(open.meddler.invalidated.lock().len(), 150, "no copy on flash is current any more");
    rig.log.make_durable(rig.log.appended()).unwrap();
    rig.crash();
    let open = rig.open();
    for page in 0..150 {
        assert_eq!(open.value(page), page as u8);
    }
    assert_eq!(open.map.faults(), Vec::<String>::new());
}

/// Invariant 1: nothing of a page that is in the slab may be missing from the durable log.
#[test]
fn flash_is_given_images_that_the_map_names() {
    let open = Rig::new(256).open();
    open.flusher.writes().set(WritePolicy::Dual);
    create(&open.pages, 0..100);
    open.flush_all();
    (0..100).step_by(3).for_each(|page| change(&open.pages, page, 200));
    open.flush_all();
    assert_eq!(open.meddler.invalidated.lock().len(), 134);
    assert_eq!(*open.meddler.unnamed.lock(), []);
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_images_that_flash_gets_before_the_map_names_them_are_found_by_one_run() {
    crate::planted::FLASH_TOLD_EARLY.set(true);
    assert!(std::panic::catch_unwind(flash_is_given_images_that_the_map_names).is_err());
    crate::planted::FLASH_TOLD_EARLY.set(false);
}

#[test]
fn the_log_is_durable_up_to_every_image_in_the_slab() {
    let rig = Rig::new(64);
    let open = rig.open();
    create(&open.pages, 0..10);
    assert_eq!(rig.log.durable(), 0);
    open.flush_all();
    let slab = rig.disk.contents(object_buffer::FILE).unwrap();
    let images = slab.chunks_exact(PAGE_SIZE).map(PageRef::new).filter(|p| p.id().space == SPACE);
    assert_eq!(images.inspect(|p| assert!(p.lsn() > 0 && p.lsn() <= rig.log.durable())).count(), 10);
}

#[test]
fn the_checkpoint_does_not_pass_an_image_before_its_map_record_is_durable() {
    let rig = Rig::new(64);
    let open = rig.open();
    create(&open.pages, 0..1);
    let first = open.pages.pool().oldest_dirty().unwrap();
    open.flush_all();
    assert_eq!(open.pages.pool().oldest_dirty(), None);
    assert_eq!(open.flusher.oldest_bound(), Some(first));
    rig.log.set_durable(rig.log.appended());
    assert_eq!(open.flusher.oldest_bound(), None);
    assert!(open.map.oldest_unwritten().is_some(), "from here on the map page is the bound");
}

#[test]
fn a_page_changed_during_its_flush_stays_dirty_from_there_on() {
    let rig = Rig::new(64);
    let open = rig.open();
    create(&open.pages, 0..1);
    let copied = rig.log.appended();
    open.meddler.armed.store(true, Ordering::SeqCst);
    open.flusher.request(copied);
    assert_eq!(open.flusher.step(), Step::Worked);
    assert_eq!(open.pages.pool().oldest_dirty(), Some(copied));
    open.flush_all();
    assert_eq!(open.dirty(), 0);
    rig.log.make_durable(rig.log.appended()).unwrap();
    rig.crash();
    assert_eq!(rig.open().value(0), 99);
}

/// A rewrite gives a slot back, so even one free slot is enough for the checkpoint to move on.
#[test]
fn pages_that_have_slots_are_rewritten_in_a_full_object_buffer() {
    let rig = Rig::new(41);
    let open = rig.open();
    create(&open.pages, 0..40);
    while open.dirty() > 0 {
        open.flusher.request(rig.log.appended());
        open.flusher.step();
    }
    rig.log.make_durable(rig.log.appended()).unwrap();
    open.map.settle();
    assert_eq!(open.map.slots_free(), 1);
    for page in 0..40 {
        change(&open.pages, page, 200);
    }
    open.flusher.request(rig.log.appended());
    let steps = (0..1000).find(|_| {
        open.flusher.step();
        open.dirty() == 0
    });
    assert!(steps.is_some(), "{} pages are dirty still", open.dirty());
    assert_eq!(open.map.faults(), Vec::<String>::new());
}

#[test]
fn new_pages_leave_the_reserve_and_a_full_buffer_is_no_failure() {
    let rig = Rig::new(8);
    let open = rig.open();
    create(&open.pages, 0..20);
    open.flush_all();
    assert_eq!((open.dirty(), open.map.slots_free()), (13, 1));
    assert!(open.flusher.failure().is_none());
    assert!(open.flusher.counters.full.load(Ordering::Relaxed) > 0);
    let kept = (0..20).find(|page| open.slot(*page).is_some()).unwrap();
    change(&open.pages, kept, 77);
    let copies = |page: u32| {
        let mut image = AlignedBuf::zeroed(PAGE_SIZE);
        let frames = open.pages.pool().oldest_dirty_frames(64);
        let copy = frames.iter().find_map(|no| {
            open.pages.pool().copy_dirty(*no, &mut image).filter(|c| c.id == PageId::new(SPACE, page))
        });
        (copy.unwrap(), image)
    };
    let (copy, mut image) = copies(kept);
    open.flusher.flush(vec![copy], &mut image, false).unwrap();
    let new = (0..20).find(|page| open.slot(*page).is_none()).unwrap();
    let (copy, mut image) = copies(new);
    assert!(matches!(open.flusher.flush(vec![copy], &mut image, false), Err(FlushError::Full { total: 8 })));
}

/// Copies that find no room leave the batch; the others keep their own images.
#[test]
fn a_batch_that_finds_room_for_some_writes_those() {
    let rig = Rig::new(12);
    let open = rig.open();
    create(&open.pages, 0..6);
    open.flush_all();
    create(&open.pages, 6..40);
    for page in 0..6 {
        change(&open.pages, page, 100 + page as u8);
    }
    for _ in 0..20 {
        open.flusher.request(rig.log.appended());
        open.flusher.step();
    }
    rig.log.make_durable(rig.log.appended()).unwrap();
    let placed: Vec<u32> = (0..40).filter(|page| open.slot(*page).is_some()).collect();
    assert_eq!(placed.len(), 11);
    rig.crash();
    let open = rig.open();
    for page in placed {
        let value = open.value(page);
        assert!(value == page as u8 || (page < 6 && value == 100 + page as u8), "page {page} has {value}");
    }
}

#[test]
fn a_full_volume_is_waited_out() {
    let rig = Rig::new(64);
    let open = rig.open();
    create(&open.pages, 0..5);
    rig.disk.faults().full.store(true, Ordering::SeqCst);
    open.flusher.request(rig.log.appended());
    assert_eq!(open.flusher.step(), Step::IdleFor(REST));
    assert!(open.flusher.failure().is_none());
    assert_eq!((open.dirty(), open.map.slots_free()), (5, 64));
    rig.disk.faults().full.store(false, Ordering::SeqCst);
    open.flush_all();
    assert_eq!(open.dirty(), 0);
}

#[test]
fn a_log_that_is_full_is_waited_out_and_fewer_pages_may_find_room() {
    let rig = Rig::new(100);
    let open = rig.open();
    create(&open.pages, 0..60);
    rig.log.set_room(Some(0));
    open.flusher.request(rig.log.appended());
    for _ in 0..10 {
        assert_eq!(open.flusher.step(), Step::IdleFor(REST));
        assert!(open.flusher.failure().is_none());
        assert_eq!((open.dirty(), open.map.slots_free()), (60, 100), "what was not named has no slot");
    }
    // As much as some pages' records take.
    rig.log.set_room(Some(1000));
    assert_eq!(open.flusher.step(), Step::Worked);
    assert_eq!((open.dirty(), open.map.slots_free()), (59, 99));
    let rests = (0..100).filter(|_| open.flusher.step() == Step::IdleFor(REST)).count();
    assert!(rests > 0 && open.dirty() < 59, "{rests} rests, {} pages left", open.dirty());
    rig.log.set_room(None);
    open.flush_all();
    assert_eq!(open.dirty(), 0);
}

#[test]
fn a_failed_write_is_final() {
    let rig = Rig::new(64);
    let open = rig.open();
    create(&open.pages, 0..5);
    rig.disk.faults().write_errors.store(true, Ordering::SeqCst);
    open.flush_all();
    assert!(matches!(open.flusher.failure(), Some(FlushError::Disk(_))));
    rig.disk.faults().write_errors.store(false, Ordering::SeqCst);
    open.flush_all();
    assert_eq!(open.dirty(), 5, "nothing is tried again");
}

#[test]
fn the_choice_follows_need() {
    let calm = Pressure { frames: 1000, dirty: 100, free: 500, free_low: 50, oldest: Some(10), target: 0 };
    assert_eq!(choose(calm), Choice::Nothing);
    assert_eq!(choose(Pressure { target: 11, ..calm }), Choice::Oldest);
    assert_eq!(choose(Pressure { target: 10, ..calm }), Choice::Nothing);
    assert_eq!(choose(Pressure { dirty: 376, ..calm }), Choice::Oldest);
    assert_eq!(choose(Pressure { dirty: 300, free: 60, ..calm }), Choice::Coldest);
    assert_eq!(choose(Pressure { dirty: 0, oldest: None, target: 99, ..calm }), Choice::Nothing);
}

/// Flushing begins before limits yield, and that before writers wait, in any pool; a large one keeps few more clean frames than a small one.
#[test]
fn a_large_pool_is_dirty_for_the_most_part_before_anything_is_written() {
    for frames in (64..20_000).chain([1 << 20, 1 << 24]) {
        let bounds =
            [dirty_limit(frames), crate::volume::flush::limit::yields_at(frames), share(frames, 5, 30)];
        assert!(bounds.is_sorted_by(|a, b| a < b) && bounds[2] < frames, "{frames}: {bounds:?}");
    }
    assert_eq!((dirty_limit(1000), share(1000, 5, 30)), (375, 625));
    assert_eq!(dirty_limit(16_384) * 100 / 16_384, 75);
}

/// What every tier lacks is counted, because it will take a slot; a full device is met where the file grows.
#[test]
fn a_full_device_gives_out_no_slot_and_new_pages_wait_for_one() {
    let rig = Rig::new(4096);
    let open = rig.open();
    let pool = open.pages.pool();
    create(&open.pages, 0..20);
    assert_eq!(pool.homeless(), 20);
    open.flush_all();
    assert_eq!((open.dirty(), pool.homeless()), (0, 0));
    rig.disk.faults().full.store(true, Ordering::SeqCst);
    let held = open.map.take_slots(open.map.slots_usable() as usize, 0).unwrap();
    create(&open.pages, 20..30);
    change(&open.pages, 3, 77);
    assert_eq!(pool.homeless(), 10, "a page that was flushed before has its slot");
    assert_eq!(open.flush_all(), 0);
    assert!(open.flusher.failure().is_none() && open.dirty() == 11);
    assert_eq!(open.map.slots_pressure(), (1024, 0), "sinking sees what the device allows");
    // Room on the device: the file grows again.
    rig.disk.faults().full.store(false, Ordering::SeqCst);
    open.flush_all();
    assert_eq!((open.dirty(), pool.homeless()), (0, 0));
    assert_eq!(open.map.slots_pressure().0, 4096);
    open.map.give_back_slots(&held);
    create(&open.pages, 30..35);
    pool.discard_space(SPACE);
    assert_eq!(pool.homeless(), 0);
}

/// Makes a page one of a large value, with this content, which no log has.
fn make_large(pages: &Pages, page: u32, value: u8) {
    make_large_at(pages, PageId::new(SPACE, page), value);
}

fn make_large_at(pages: &Pages, id: PageId, value: u8) {
    let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
    let handle = mtr.write(id).unwrap_or_else(|| mtr.create(id, PageKind::Overflow, 0));
    mtr.page_mut(handle).init(id, PageKind::Overflow, 0);
    mtr.page_mut(handle).write_past_log(PAGE_HEADER, &[value; 100]);
    mtr.commit();
}

fn large(pages: std::ops::Range<u32>) -> Vec<PageId> {
    pages.map(|page| PageId::new(SPACE, page)).collect()
}

#[test]
fn what_was_written_through_is_named_whole_and_the_flusher_had_no_part_in_it() {
    let rig = Rig::new(512);
    let open = rig.open();
    create(&open.pages, 0..3);
    (10..160).for_each(|page| make_large(&open.pages, page, page as u8));
    open.flusher.write_through(&large(10..160), 0).unwrap();
    assert_eq!((open.dirty(), open.flusher.counters.pages.load(Ordering::Relaxed)), (3, 0));
    assert_eq!(open.flusher.bypass.syncs.load(Ordering::Relaxed), 1, "one sync for all");
    assert!(open.flusher.oldest_bound().is_some(), "the checkpoint waits for the record that names them");
    rig.log.make_durable(rig.log.appended()).unwrap();
    assert_eq!(open.flusher.oldest_bound(), None);
    rig.crash();
    let open = rig.open();
    (10..160).for_each(|page| assert_eq!(open.value(page), page as u8));
    assert_eq!(open.map.faults(), Vec::<String>::new());
}

/// Pages that were flushed, that became others', or are clean are left alone; a full object buffer is an error, and nothing is lost.
#[test]
fn clean_pages_are_not_written_and_a_full_object_buffer_is_reported() {
    let rig = Rig::new(64);
    let open = rig.open();
    (0..10).for_each(|page| make_large(&open.pages, page, 7));
    open.flush_all();
    open.flusher.write_through(&large(0..10), 0).unwrap();
    assert_eq!(open.flusher.bypass.syncs.load(Ordering::Relaxed), 0);
    create(&open.pages, 20..22);
    open.flusher.write_through(&large(15..25), 0).unwrap();
    assert_eq!((open.dirty(), open.flusher.bypass.pages.load(Ordering::Relaxed)), (2, 0));
    open.flush_all();
    let held = open.map.take_slots(open.map.slots_usable() as usize, 0).unwrap();
    (30..40).for_each(|page| make_large(&open.pages, page, 9));
    let full = open.flusher.write_through(&large(30..40), 1_000_000);
    assert!(matches!(full, Err(FlushError::Full { total: 64 })), "{full:?}");
    assert!(open.flusher.failure().is_none());
    open.map.give_back_slots(&held);
    open.flusher.write_through(&large(30..40), 0).unwrap();
    assert_eq!((open.dirty(), open.value(39)), (0, 9));
    // A failed write is final, as the flusher's is.
    make_large(&open.pages, 50, 1);
    rig.disk.faults().write_errors.store(true, Ordering::SeqCst);
    assert!(matches!(open.flusher.write_through(&large(50..51), 0), Err(FlushError::Disk(_))));
    assert!(open.flusher.failure().is_some());
}

/// A killed operation does not wait for slots until patience ends.
#[test]
fn a_wait_for_slots_of_a_large_value_can_be_cancelled() {
    let rig = Rig::new(64);
    let open = rig.open();
    create(&open.pages, 20..22);
    open.flush_all(); // the file has its size
    let held = open.map.take_slots(open.map.slots_usable() as usize, 0).unwrap();
    (0..10).for_each(|page| make_large(&open.pages, page, 9));
    let cancel = std::sync::Arc::new(terrace_io::cancel::Cancel::default());
    cancel.cancel();
    {
        let _scope = cancel.scope();
        let ended = open.flusher.write_through(&large(0..10), 3_600_000_000_000);
        assert!(matches!(ended, Err(FlushError::Log(LogError::Cancelled))), "{ended:?}");
    }
    assert!(open.flusher.failure().is_none() && open.dirty() == 10);
    open.map.give_back_slots(&held);
    open.flusher.write_through(&large(0..10), 0).unwrap();
    assert_eq!((open.dirty(), open.value(9)), (0, 9));
}

/// The planted bug is global.
static BY_TWO: Mutex<()> = Mutex::new(());

/// While the flusher writes an older image of it, a page is made a large value's and written through.
fn an_older_image_is_never_named_last() {
    let rig = Rig::new(64);
    let disk = OddDisk::new(rig.disk.clone());
    let open = rig.open_over(&disk);
    create(&open.pages, 0..4);
    let (pages, flusher) = (open.pages.clone(), open.flusher.clone());
    disk.once(move || {
        make_large(&pages, 2, 99);
        // The page is busy: a caller with patience waits.
        _ = flusher.write_through(&large(2..3), 0);
    });
    open.flusher.request(rig.log.appended());
    assert_eq!(open.flusher.step(), Step::Worked);
    open.flusher.write_through(&large(2..3), 1_000_000_000).unwrap();
    rig.log.make_durable(rig.log.appended()).unwrap();
    rig.crash();
    assert_eq!(rig.open().value(2), 99);
}

#[test]
fn of_two_images_on_their_way_the_newer_one_is_named() {
    let _one = BY_TWO.lock();
    an_older_image_is_never_named_last();
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_a_page_that_two_write_at_a_time_is_found_by_one_run() {
    let _one = BY_TWO.lock();
    crate::planted::WRITTEN_BY_TWO.set(true);
    assert!(std::panic::catch_unwind(an_older_image_is_never_named_last).is_err());
    crate::planted::WRITTEN_BY_TWO.set(false);
}
