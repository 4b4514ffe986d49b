use super::*;
use terrace_tier::testing;

const SPACE: SpaceId = SpaceId::FIRST_USER;

fn space(content: Content) -> (Arc<Pages>, Space) {
    let (pages, _, _) = testing::pages(100);
    create(&pages, SPACE, content, Urgency::Normal).unwrap();
    let space = Space::open(&pages, SPACE).unwrap();
    (pages, space)
}

fn take(space: &Space) -> u32 {
    let mut ready = space.ready(1, Urgency::Normal).unwrap();
    let mut mtr = space.pages().begin(2000, 1, Urgency::Normal).unwrap();
    let header = space.latch_header(&mut mtr);
    let page = space.allocate(&mut mtr, header, &mut ready, PageKind::Overflow, 0).unwrap();
    let id = mtr.id(page);
    mtr.commit();
    id.page
}

fn give(space: &Space, page: u32) {
    let mut mtr = space.pages().begin(2000, 0, Urgency::Normal).unwrap();
    let no = mtr.write(space.page_id(page)).unwrap();
    let header = space.latch_header(&mut mtr);
    space.free(&mut mtr, header, no);
    mtr.commit();
}

#[test]
fn pages_are_numbered_upward_and_freed_ones_used_first() {
    let (_, space) = space(Content::Nothing);
    assert_eq!([take(&space), take(&space), take(&space), take(&space)], [1, 2, 3, 4]);
    give(&space, 2);
    give(&space, 4);
    assert_eq!(space.free_chain().unwrap(), [4, 2]);
    assert_eq!([take(&space), take(&space), take(&space)], [4, 2, 5]);
    assert_eq!(space.counts(), SpaceCounts { pages: 6, free: 0, rows: 0 });
}

/// An allocation does not wait for the store while new numbers cost little.
#[test]
fn free_pages_that_only_the_store_has_are_left_until_a_quarter_is_free() {
    let (pages, below, log) = testing::pages(200);
    create(&pages, SPACE, Content::Nothing, Urgency::Normal).unwrap();
    let reopened = || {
        let pages = Arc::new(Pages::new(testing::world(), 200, below.clone(), log.clone()));
        let space = Space::open(&pages, SPACE).unwrap();
        (pages, space)
    };
    let space = Space::open(&pages, SPACE).unwrap();
    (1..=100).for_each(|page| assert_eq!(take(&space), page));
    (31..=50).for_each(|page| give(&space, page));
    testing::flush_all(&pages, &below);
    below.far.store(true, Ordering::Relaxed);
    let (pages, space) = reopened();
    let fetches = below.fetches.load(Ordering::Relaxed);
    assert_eq!([take(&space), take(&space)], [101, 102], "of 101 pages 20 are free");
    assert_eq!(below.fetches.load(Ordering::Relaxed), fetches);
    for page in 51..=70 {
        drop(space.pages().load(space.page_id(page), Access::Internal).unwrap());
        give(&space, page);
    }
    testing::flush_all(&pages, &below);
    let (_, space) = reopened();
    assert_eq!([take(&space), take(&space)], [70, 69], "of 103 pages 40 are free");
    // Those that are near are used at once.
    below.far.store(false, Ordering::Relaxed);
    assert_eq!(take(&space), 68);
}

#[test]
fn a_freed_page_is_not_used_while_a_traversal_may_come_to_it() {
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
    drop(space.ready(1, Urgency::Normal).unwrap());
    let visit = space.visit();
    (3..60).for_each(|page| give(&space, page));
    assert_eq!([take(&space), take(&space)], [2, 61]);
    assert_eq!(space.free_chain().unwrap(), (3..60).rev().collect::<Vec<u32>>());
    drop(visit);
    (3..60).rev().for_each(|page| assert_eq!(take(&space), page));
    assert_eq!(take(&space), 62);
    assert_eq!(space.counts(), SpaceCounts { pages: 63, free: 0, rows: 0 });
}

#[test]
fn an_allocation_does_without_the_free_page_that_was_ready_for_it() {
    let (_, space) = space(Content::Nothing);
    assert_eq!([take(&space), take(&space), take(&space)], [1, 2, 3]);
    give(&space, 2);
    let mut ready = space.ready(1, Urgency::Normal).unwrap();
    give(&space, 3);
    let mut mtr = space.pages().begin(2000, 1, Urgency::Normal).unwrap();
    let header = space.latch_header(&mut mtr);
    let page = space.allocate(&mut mtr, header, &mut ready, PageKind::Overflow, 0).unwrap();
    assert_eq!(mtr.id(page).page, 3);
    mtr.commit();
}

#[test]
fn several_pages_are_taken_past_those_in_limbo() {
    let (_, space) = space(Content::Nothing);
    (1..=20).for_each(|page| assert_eq!(take(&space), page));
    (2..8).for_each(|page| give(&space, page));
    drop(space.ready(1, Urgency::Normal).unwrap());
    let visit = space.visit();
    (8..12).for_each(|page| give(&space, page));
    let mut ready = space.ready(4, Urgency::Normal).unwrap();
    let mut mtr = space.pages().begin(4000, 4, Urgency::Normal).unwrap();
    let header = space.latch_header(&mut mtr);
    for page in [7, 6, 5, 4] {
        let no = space.allocate(&mut mtr, header, &mut ready, PageKind::Overflow, 0).unwrap();
        assert_eq!(mtr.id(no).page, page);
    }
    mtr.commit();
    drop(visit);
    assert_eq!(space.free_chain().unwrap(), [11, 10, 9, 8, 3, 2]);
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
fn a_space_whose_numbers_are_used_up_says_so_and_changes_nothing() {
    let (_, space) = space(Content::Nothing);
    let mut mtr = space.pages().begin(2000, 1, Urgency::Normal).unwrap();
    let header = space.latch_header(&mut mtr);
    mtr.page_mut(header).write_u32(at::NEXT, u32::MAX);
    mtr.commit();
    let mut mtr = space.pages().begin(2000, 1, Urgency::Normal).unwrap();
    let header = space.latch_header(&mut mtr);
    let full = space.allocate(&mut mtr, header, &mut Ready::default(), PageKind::Leaf, 0);
    assert!(matches!(full, Err(TreeError::SpaceFull(_))) && !mtr.changed());
}
