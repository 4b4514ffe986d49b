use super::*;
use terrace_tier::memory::lower_tiers::{Below, Fetched, ImageBelow};
use terrace_tier::testing;

const SPACE: SpaceId = SpaceId::FIRST_USER;

fn space(content: Content) -> (Arc<Pages>, Space) {
    let (pages, _, _) = testing::pages(400);
    create(&pages, SPACE, content, Urgency::Normal).unwrap();
    let space = Space::open(&pages, SPACE).unwrap();
    (pages, space)
}

fn take(space: &Space) -> u32 {
    let ready = space.ready(1, Urgency::Normal).unwrap();
    let mut mtr = space.pages().begin(2000, 1 + ALLOCATION_FRAMES, Urgency::Normal).unwrap();
    let header = ready.latch_header(&mut mtr);
    let page = space.allocate(&mut mtr, header, &ready, PageKind::Overflow, 0).unwrap();
    let id = mtr.id(page);
    mtr.commit();
    id.page
}

fn give(space: &Space, page: u32) {
    let homes = space.ready_to_free([page]).unwrap();
    let pin = space.pages().load(space.page_id(page), Access::Internal).unwrap();
    let mut mtr = space.pages().begin(2000, 0, Urgency::Normal).unwrap();
    let no = mtr.write_pinned(&pin);
    let header = homes.latch_header(&mut mtr);
    space.free(&mut mtr, header, no, &homes);
    mtr.commit();
}

/// The free pages, as the bits say.
fn free(space: &Space) -> Vec<u32> {
    let bits_of = |home: u32, pages: u32| {
        let guard = space.pages().read(space.page_id(home), Access::Internal).unwrap();
        let span = bits::span(home);
        (span.start..span.end.min(pages)).filter(|page| bits::is_free(guard.page(), *page)).collect()
    };
    let SpaceCounts { pages, free, .. } = space.counts();
    let homes = std::iter::once(HEADER_PAGE).chain(bits::homes(pages));
    let found: Vec<u32> = homes.flat_map(|home| -> Vec<u32> { bits_of(home, pages) }).collect();
    assert_eq!(found.len(), free as usize);
    found
}

#[test]
fn pages_are_numbered_upward_and_freed_ones_used_first() {
    let (_, space) = space(Content::Nothing);
    assert_eq!([take(&space), take(&space), take(&space), take(&space)], [1, 2, 3, 4]);
    give(&space, 4);
    give(&space, 2);
    assert_eq!(free(&space), [2, 4]);
    assert_eq!([take(&space), take(&space), take(&space)], [2, 4, 5]);
    assert_eq!(space.counts(), SpaceCounts { pages: 6, free: 0, rows: 0 });
}

/// What a page was is not needed any more.
#[test]
fn a_free_page_is_used_without_being_read() {
    let (pages, below, log) = testing::pages(200);
    create(&pages, SPACE, Content::Nothing, Urgency::Normal).unwrap();
    let space = Space::open(&pages, SPACE).unwrap();
    (1..=100).for_each(|page| assert_eq!(take(&space), page));
    (31..=50).for_each(|page| give(&space, page));
    testing::flush_all(&pages, &below);
    let pages = Arc::new(Pages::new(testing::world(), 200, below.clone(), log));
    let space = Space::open(&pages, SPACE).unwrap();
    let fetches = below.fetches.load(Ordering::Relaxed);
    (31..=50).for_each(|page| assert_eq!(take(&space), page));
    assert_eq!(take(&space), 101);
    assert_eq!(below.fetches.load(Ordering::Relaxed), fetches);
}

fn next_is(space: &Space, page: u32) {
    let mut mtr = space.pages().begin(2000, 1, Urgency::Normal).unwrap();
    let header = mtr.write_pinned(&space.header().unwrap());
    space.set_pages(&mut mtr, header, page);
    mtr.commit();
}

fn take_run(space: &Space, count: u32) -> u32 {
    run::take(space, count, 0, Urgency::Normal, |_, _| ()).unwrap()
}

/// A space makes the page of bits when it grows to a group, and finds it again.
#[test]
fn a_group_begins_with_its_bits() {
    let (pages, space) = space(Content::Nothing);
    next_is(&space, bits::INLINE - 1);
    let first = bits::INLINE + 1;
    assert_eq!([take(&space), take(&space), take(&space)], [bits::INLINE - 1, first, first + 1]);
    [bits::INLINE - 1, first].into_iter().for_each(|page| give(&space, page));
    assert_eq!(free(&space), [bits::INLINE - 1, first]);
    drop(space);
    let space = Space::open(&pages, SPACE).unwrap();
    assert_eq!([take(&space), take(&space), take(&space)], [bits::INLINE - 1, first, first + 2]);
    let next = bits::INLINE + bits::GROUP;
    next_is(&space, next);
    assert_eq!(take(&space), next + 1);
    give(&space, next + 1);
    give(&space, first);
    assert_eq!([take(&space), take(&space), take(&space)], [first, next + 1, next + 2]);
}

/// A space of `groups` groups with a free page after each home, and page 2; all of it below memory.
fn with_groups(groups: u32) -> (Arc<testing::MemoryBelow>, Arc<testing::MemoryLog>) {
    let (pages, below, log) = testing::pages(200);
    create(&pages, SPACE, Content::Nothing, Urgency::Normal).unwrap();
    let space = Space::open(&pages, SPACE).unwrap();
    assert_eq!([take(&space), take(&space)], [1, 2]);
    let home = |group| bits::INLINE + group * bits::GROUP;
    for group in 0..groups {
        next_is(&space, home(group));
        assert_eq!(take(&space), home(group) + 1);
    }
    give(&space, 2);
    (0..groups).for_each(|group| give(&space, home(group) + 1));
    testing::flush_all(&pages, &below);
    (below, log)
}

#[test]
fn bitmap_pages_are_read_one_by_one_and_only_when_known_free_pages_are_used_up() {
    let (below, log) = with_groups(5);
    let pages = Arc::new(Pages::new(testing::world(), 200, below.clone(), log));
    let space = Space::open(&pages, SPACE).unwrap();
    let fetches = || below.fetches.load(Ordering::Relaxed);
    let before = fetches();
    assert_eq!((take(&space), fetches()), (2, before));
    for group in 0..5 {
        let home = bits::INLINE + group * bits::GROUP;
        assert_eq!((take(&space), fetches()), (home + 1, before + u64::from(group) + 1));
    }
    let next = space.counts().pages;
    assert_eq!((take(&space), fetches()), (next, before + 5));
}

/// Only the store has what is not in memory.
struct Far(Arc<testing::MemoryBelow>);
impl Below for Far {
    fn fetch(&self, id: PageId, image: &mut [u8]) -> std::result::Result<Fetched, ReadError> {
        self.0.fetch(id, image)
    }
    fn held(&self, _: PageId) -> ImageBelow {
        ImageBelow::InObject
    }
    fn evicted(&self, _: PageId, _: &mut [u8], _: u8) {}
}

#[test]
fn no_thread_waits_for_a_cold_bitmap_page_and_it_is_used_once_loaded() {
    let (below, log) = with_groups(2);
    let sim = terrace_sim::SimWorld::new(1);
    let pages = Arc::new(Pages::new(sim.world(), 200, Arc::new(Far(below.clone())), log));
    let space = Space::open(&pages, SPACE).unwrap();
    let fetches = || below.fetches.load(Ordering::Relaxed);
    let (before, next) = (fetches(), space.counts().pages);
    assert_eq!([take(&space), take(&space), take(&space)], [2, next, next + 1]);
    assert_eq!(fetches(), before);
    // As the prefetcher does.
    let _home = pages.load(space.page_id(bits::INLINE), Access::Internal).unwrap();
    sim.clock.advance(1_000_000_000);
    assert_eq!([take(&space), take(&space)], [bits::INLINE + 1, next + 2]);
}

#[test]
fn a_run_does_not_cover_a_groups_bits_and_leaves_the_rest_free() {
    let (_, space) = space(Content::Nothing);
    next_is(&space, bits::INLINE - 3);
    assert_eq!(take_run(&space, 3), bits::INLINE - 3);
    run::free(&space, bits::INLINE - 3..bits::INLINE, 0, |_, _| ()).unwrap();
    next_is(&space, bits::INLINE - 2);
    assert_eq!(take_run(&space, 4), bits::INLINE + 1);
    assert_eq!(free(&space), [3, 2, 1].map(|n| bits::INLINE - n), "two of them were free already");
    run::give_back(&space, bits::INLINE + 3..bits::INLINE + 5, 0, |_, _| ()).unwrap();
    assert_eq!(take_run(&space, 1), bits::INLINE + 3);
    run::give_back(&space, bits::INLINE + 1..bits::INLINE + 3, 0, |_, _| ()).unwrap();
    assert_eq!(free(&space).len(), 5);
    assert_eq!([take(&space), take(&space)], [bits::INLINE - 3, bits::INLINE - 2]);
    let end = bits::INLINE + bits::GROUP;
    next_is(&space, end - 10);
    assert_eq!(take_run(&space, 11), end + 1);
    assert_eq!(free(&space).len(), 3 + 10);
}

/// Blocks go to an object store.
struct Sinks;
impl terrace_tier::memory::pages::SlotAdmission for Sinks {
    fn admit(&self, _: usize, _: SpaceId) -> std::result::Result<(), terrace_tier::memory::pages::NoRoom> {
        Ok(())
    }
    fn blocks_sink(&self) -> bool {
        true
    }
}

fn take_together(space: &Space, count: usize) -> Vec<u32> {
    let ready = space.ready_together(count, Urgency::Normal).unwrap();
    let mut mtr = space.pages().begin(10_000, count + ALLOCATION_FRAMES, Urgency::Normal).unwrap();
    let header = ready.latch_header(&mut mtr);
    let take = |_| {
        let page = space.allocate(&mut mtr, header, &ready, PageKind::Overflow, 0).unwrap();
        mtr.id(page).page
    };
    let pages = (0..count).map(take).collect();
    mtr.commit();
    pages
}

/// Pages that were never in memory nor written.
fn take_and_free(space: &Space, free: &[Range<u32>]) {
    let next = space.counts().pages;
    let end = free.iter().map(|run| run.end).max().unwrap().max(next);
    if end > next {
        take_run(space, end - next);
    }
    free.iter().for_each(|run| run::free(space, run.clone(), 0, |_, _| ()).unwrap());
}

#[test]
fn pages_of_large_values_fill_the_emptiest_block_and_others_the_first_hole() {
    let (pages, space) = space(Content::Nothing);
    pages.set_room(Arc::new(Sinks));
    take_and_free(&space, &[10..40, 130..200, 300..380, 700..720]);
    assert_eq!(space.counts().pages, 720);
    assert_eq!(take_together(&space, 5), [300, 301, 302, 303, 304]);
    assert_eq!(take(&space), 10);
    // Fuller than the other by now, but begun.
    (305..379).for_each(|page| assert_eq!(take_together(&space, 1), [page]));
    assert_eq!(take_together(&space, 3), [379, 130, 131]);
    (132..200).for_each(|page| assert_eq!(take_together(&space, 1), [page]));
    // Nothing is empty enough now: new numbers lie together.
    assert_eq!(take_together(&space, 4), [720, 721, 722, 723]);
    assert_eq!(take(&space), 11);
    // Until a quarter of the space is free.
    let quarter: Vec<Range<u32>> = (1..6).map(|block| block * 128 + 60..block * 128 + 95).collect();
    take_and_free(&space, &quarter);
    assert_eq!(take_together(&space, 2), [188, 189]);
    assert_eq!(take(&space), 12);
}

#[test]
fn a_block_is_empty_enough_as_soon_as_more_pages_are_free() {
    let (pages, space) = space(Content::Nothing);
    pages.set_room(Arc::new(Sinks));
    take_and_free(&space, &[128..190, 1000..1001, 2000..2010]);
    assert_eq!(take_together(&space, 1), [2010]);
    take_and_free(&space, std::slice::from_ref(&(190..200)));
    assert_eq!(take_together(&space, 1), [2011], "it is not looked for each time");
    take_and_free(&space, std::slice::from_ref(&(400..430)));
    assert_eq!(take_together(&space, 2), [128, 129]);
}

#[test]
fn where_no_block_sinks_large_values_fill_holes_too() {
    let (_, space) = space(Content::Nothing);
    take_and_free(&space, &[10..20, 130..200]);
    assert_eq!(take_together(&space, 2), [10, 11]);
}

#[test]
fn a_freed_page_is_not_reused_while_a_traversal_may_reach_it() {
    let (_, space) = space(Content::Nothing);
    assert_eq!([take(&space), take(&space)], [1, 2]);
    let visit = space.visit();
    give(&space, 2);
    assert_eq!(take(&space), 3);
    drop(visit);
    assert_eq!(take(&space), 2);
}

#[test]
fn pages_freed_just_now_do_not_keep_older_ones_from_use() {
    let (_, space) = space(Content::Nothing);
    (1..=60).for_each(|page| assert_eq!(take(&space), page));
    give(&space, 2);
    space.ready(1, Urgency::Normal).unwrap();
    let visit = space.visit();
    (3..60).for_each(|page| give(&space, page));
    assert_eq!([take(&space), take(&space)], [2, 61]);
    assert_eq!(free(&space), (3..60).collect::<Vec<u32>>());
    drop(visit);
    (3..60).for_each(|page| assert_eq!(take(&space), page));
    assert_eq!(take(&space), 62);
    assert_eq!(space.counts(), SpaceCounts { pages: 63, free: 0, rows: 0 });
}

#[test]
fn several_pages_are_taken_past_those_in_limbo() {
    let (_, space) = space(Content::Nothing);
    (1..=20).for_each(|page| assert_eq!(take(&space), page));
    (2..8).for_each(|page| give(&space, page));
    space.ready(1, Urgency::Normal).unwrap();
    let visit = space.visit();
    (8..12).for_each(|page| give(&space, page));
    let ready = space.ready(4, Urgency::Normal).unwrap();
    let mut mtr = space.pages().begin(4000, 4, Urgency::Normal).unwrap();
    let header = ready.latch_header(&mut mtr);
    for page in [2, 3, 4, 5] {
        let no = space.allocate(&mut mtr, header, &ready, PageKind::Overflow, 0).unwrap();
        assert_eq!(mtr.id(no).page, page);
    }
    mtr.commit();
    drop(visit);
    assert_eq!(free(&space), [6, 7, 8, 9, 10, 11]);
}

#[test]
fn counters_are_never_handed_out_twice() {
    let (pages, space) = space(Content::Tree);
    assert_eq!(space.take_row_ids(100).unwrap(), 1);
    assert_eq!(space.take_row_ids(1).unwrap(), 101);
    space.raise_auto_increment(50).unwrap();
    space.raise_auto_increment(20).unwrap();
    assert_eq!(space.auto_increment(), 50);
    space.set_auto_increment(7).unwrap();
    assert_eq!(space.auto_increment(), 7);
    drop(space);
    let space = Space::open(&pages, SPACE).unwrap();
    assert_eq!((space.take_row_ids(1).unwrap(), space.auto_increment()), (102, 7));
}

#[test]
fn a_space_without_free_numbers_fails_and_changes_nothing() {
    let (_, space) = space(Content::Nothing);
    next_is(&space, u32::MAX);
    let ready = Ready { header: space.header().unwrap(), _inside: space.enter().unwrap(), together: false };
    let mut mtr = space.pages().begin(2000, 1, Urgency::Normal).unwrap();
    let header = ready.latch_header(&mut mtr);
    let full = space.allocate(&mut mtr, header, &ready, PageKind::Leaf, 0);
    assert!(matches!(full, Err(TreeError::SpaceFull(_))) && !mtr.changed());
}
