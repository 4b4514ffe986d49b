//! Redo by page: kept within a budget, applied once, and a bound of the checkpoint until the page is dirty. What survives in the log itself is
//! in `terrace_log`.

mod legacy_format;

use super::pending::Pending;
use crate::superblock;
use crate::tree::space::{self, Content, Space, run};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_io::disk::Disk;
use terrace_io::random::Random;
use terrace_log::record::RecordHeader;
use terrace_log::recovery::{self, LogBounds, LogPosition, ReplayError};
use terrace_log::{Log, LogSetup, PageRedo, PartitionStart, Redo, Urgency, file_name, record_bound};
use terrace_sim::SimWorld;
use terrace_tier::memory::lower_tiers::{Below, Fetched, ImageBelow, ReadError};
use terrace_tier::memory::pages::Pages;
use terrace_tier::page::{Glsn, PAGE_SIZE, PageId, PageKind, PageRef, SpaceId, format, set_lsn};
use terrace_tier::read::PendingRedo;
use terrace_tier::redo::PageMut;
use terrace_tier::testing::{self, HeldLog};

const FIRST: Glsn = 100;

fn id(n: u64) -> PageId {
    PageId::new(SpaceId(16), n as u32)
}

/// The bounds of a log that nothing was written to.
fn bounds(partitions: usize, blocks: u64) -> LogBounds {
    LogBounds {
        version: superblock::VERSION,
        clean: true,
        instance: 77,
        epoch: 1,
        checkpoint: FIRST,
        attested: FIRST,
        blocks,
        starts: vec![0; partitions],
        history: vec![(1, FIRST)],
    }
}

const NOWHERE: LogPosition = LogPosition { partition: 0, sequence: 0, offset: 0 };

fn header(id: PageId, first: Glsn, ops: &[u8]) -> RecordHeader {
    RecordHeader { own: first, first, length: 100, ops_len: ops.len() as u32, id }
}

/// The ops of one change to a page, made on `image`.
fn change(image: &mut [u8], make: impl FnOnce(&mut PageMut<'_>)) -> Vec<u8> {
    let mut ops = Vec::new();
    make(&mut PageMut::new(image, &mut ops));
    ops
}

#[test]
fn redo_is_applied_once_and_bounds_the_checkpoint_until_the_page_is_dirty() {
    let pending = Pending::new(bounds(1, 64), vec![], 1 << 20);
    let page = id(5);
    let mut made = vec![0; PAGE_SIZE];
    let init = change(&mut made, |p| p.init(page, PageKind::Leaf, 0));
    let write = change(&mut made, |p| p.write(100, b"hello"));
    pending.add(&header(page, 200, &init), &init, NOWHERE);
    pending.add(&header(page, 300, &write), &write, NOWHERE);
    set_lsn(&mut made, 400);
    assert_eq!((pending.oldest(), pending.pages()), (Some(200), 1));

    let mut image = vec![0; PAGE_SIZE];
    assert_eq!(pending.apply(page, &mut image).unwrap(), Some(200));
    assert_eq!(image, made);
    assert_eq!(pending.oldest(), Some(200), "on its way, not dirty yet");
    pending.admitted(page);
    assert_eq!((pending.oldest(), pending.pages(), pending.kept_bytes()), (None, 0, 0));
    assert_eq!(pending.apply(page, &mut image).unwrap(), None);
    assert_eq!(image, made);
}

#[test]
fn redo_that_the_image_has_is_skipped() {
    let pending = Pending::new(bounds(1, 64), vec![], 1 << 20);
    let page = id(5);
    let mut image = vec![0; PAGE_SIZE];
    format(&mut image, page, PageKind::Leaf, 0);
    let write = change(&mut image, |p| p.write(100, b"a"));
    set_lsn(&mut image, 300);
    pending.add(&header(page, 200, &write), &write, NOWHERE); // ends at 300
    assert_eq!(pending.apply(page, &mut image).unwrap(), None);
    assert_eq!((pending.oldest(), pending.pages()), (None, 0));
}

#[test]
fn a_reinitialized_page_needs_no_older_image_and_other_pages_without_one_are_errors() {
    let pending = Pending::new(bounds(1, 64), vec![], 1 << 20);
    let mut made = vec![0; PAGE_SIZE];
    format(&mut made, id(1), PageKind::Leaf, 0);
    let write = change(&mut made, |p| p.write(100, b"old"));
    let init = change(&mut made, |p| p.init(id(1), PageKind::Inner, 1));
    pending.add(&header(id(1), 200, &write), &write, NOWHERE);
    pending.add(&header(id(1), 300, &init), &init, NOWHERE);
    pending.add(&header(id(2), 400, &write), &write, NOWHERE);
    let mut image = vec![0; PAGE_SIZE];
    assert_eq!(pending.apply(id(1), &mut image).unwrap(), Some(300));
    assert_eq!(PageRef::new(&image).level(), 1);
    assert!(pending.apply(id(2), &mut vec![0; PAGE_SIZE]).is_err());
    assert_eq!(pending.oldest(), Some(200));
    pending.retain_spaces(|space| space != SpaceId(16));
    assert_eq!((pending.oldest(), pending.pages()), (None, 0));
}

#[test]
fn redo_of_a_reinitialized_page_holds_back_no_checkpoint() {
    let pages = terrace_tier::testing::pages(64).0;
    let pending = Arc::new(Pending::new(bounds(1, 64), vec![], 1 << 20));
    let mut image = vec![0; PAGE_SIZE];
    let init = change(&mut image, |p| p.init(id(7), PageKind::Leaf, 0));
    pending.add(&header(id(7), 200, &init), &init, NOWHERE);
    let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
    mtr.create(id(7), PageKind::Inner, 1);
    mtr.commit();
    let mut worker = super::worker::RedoWorker::new(pending.clone(), pages);
    terrace_io::sched::Worker::step(&mut worker);
    assert_eq!((pending.pages(), pending.oldest()), (0, None));
}

/// What is free stays forgotten; but as long as a crash may take that back, the redo is needed.
#[test]
fn redo_of_a_page_that_no_tier_has_is_done_with_when_it_is_free_for_good() {
    struct Nothing;
    impl Below for Nothing {
        fn fetch(&self, id: PageId, _: &mut [u8]) -> Result<Fetched, ReadError> {
            Err(ReadError::Absent(id))
        }
        fn held(&self, _: PageId) -> ImageBelow {
            ImageBelow::Nowhere
        }
        fn evicted(&self, _: PageId, _: &mut [u8], _: u8) {}
    }
    let log = Arc::new(HeldLog::default());
    let pages = Arc::new(Pages::new(testing::world(), 64, Arc::new(Nothing), log.clone()));
    space::create(&pages, SpaceId(16), Content::Nothing, Urgency::Normal).unwrap();
    let space = Space::open(&pages, SpaceId(16)).unwrap();
    run::take(&space, 10, 0, Urgency::Normal, |_, _| ()).unwrap();
    let pending = Arc::new(Pending::new(bounds(1, 64), vec![], 1 << 20));
    for page in [7, 8] {
        let init = change(&mut vec![0; PAGE_SIZE], |p| p.init(id(page), PageKind::Overflow, 0));
        pending.add(&header(id(page), 200, &init), &init, NOWHERE);
    }
    let mut worker = super::worker::RedoWorker::new(pending.clone(), pages.clone());
    let mut left = || {
        (0..4).for_each(|_| _ = terrace_io::sched::Worker::step(&mut worker));
        pending.pages()
    };
    log.set_durable(log.appended());
    assert_eq!(left(), 2);
    run::free(&space, 7..8, 0, |_, _| ()).unwrap();
    assert_eq!(left(), 2);
    log.set_durable(log.appended());
    assert_eq!(left(), 1);
    assert!(pending.apply(id(8), &mut vec![0; PAGE_SIZE]).unwrap() == Some(200), "and not that one's");
}

/// With no memory for ops at all, every record is read from the log again; the result is the same.
#[test]
fn redo_beyond_the_budget_is_read_from_the_log_again() {
    for partitions in [1, 3] {
        let sim = SimWorld::new(9);
        let disk = sim.disk("volume");
        terrace_log::log::create(&*disk, partitions, 256).unwrap();
        let files: Vec<_> = (0..partitions).map(|i| disk.open(&file_name(i)).unwrap()).collect();
        let bounds = bounds(partitions, 256);
        let log = Arc::new(Log::new(LogSetup {
            world: sim.world(),
            volume: disk,
            files: files.clone(),
            starts: (0..partitions).map(|_| PartitionStart { batches: vec![], next: 0 }).collect(),
            blocks: bounds.blocks,
            instance: bounds.instance,
            epoch: bounds.epoch,
            checkpoint: bounds.checkpoint,
            next: FIRST,
            room_wait_max: 1_000_000_000,
            waiting_max: 4 << 20,
            holds: false,
        }));
        let mut images: BTreeMap<PageId, Vec<u8>> = BTreeMap::new();
        let random = sim.random.clone();
        for n in 0..300u64 {
            let page = id(random.below(12));
            let image = images.entry(page).or_insert_with(|| vec![0; PAGE_SIZE]);
            let mut ops = Vec::new();
            let mut edit = PageMut::new(image, &mut ops);
            if edit.get().lsn() == 0 {
                edit.init(page, PageKind::Leaf, 0);
            }
            edit.write(64 + random.below(4000) as usize, &vec![n as u8; random.below(9000) as usize]);
            let mut room = log.clone().reserve(record_bound(ops.len()), Urgency::Normal).unwrap();
            let records = [PageRedo { id: page, ops: &ops }];
            let range = log.append(&mut room, &records, &mut |_| {});
            set_lsn(image, range.end);
            if n % 7 == 0 {
                log.make_durable(range.end).unwrap();
            }
            if log.usage().0 > 200 {
                break;
            }
        }
        log.make_durable(log.appended()).unwrap();

        for budget in [0, 20_000, usize::MAX] {
            let pending = Pending::new(bounds.clone(), files.clone(), budget);
            recovery::replay::<ReplayError>(&bounds, &files, &mut |header, ops, place| {
                pending.add(header, ops, place);
                Ok(())
            })
            .unwrap();
            assert!(pending.kept_bytes() <= budget);
            for (page, expected) in &images {
                let mut image = vec![0; PAGE_SIZE];
                pending.apply(*page, &mut image).unwrap();
                assert!(image == *expected, "budget {budget}: page {page}");
                pending.admitted(*page);
            }
            assert_eq!((pending.pages(), pending.oldest()), (0, None));
        }
    }
}

/// Pages that are created anew again and again, and little of others between: what is needed of it is little, and stays in memory.
#[test]
fn redo_in_memory_takes_up_no_more_than_its_budget() {
    const BUDGET: usize = 4 << 20;
    const OTHERS: u64 = 12_000;
    let pending = Pending::new(bounds(1, 64), vec![], BUDGET);
    let image = |n: u64| {
        let mut image = vec![0; PAGE_SIZE];
        format(&mut image, id(n), PageKind::Leaf, 0);
        image
    };
    let write = |n: u64| {
        let mut bytes = [0; 100];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        change(&mut image(n), |page| page.write(200, &bytes))
    };
    let mut most = 0;
    for n in 0..OTHERS {
        let made = id(n % 10);
        let first = 1000 * (n + 1);
        let init = change(&mut vec![0; PAGE_SIZE], |page| {
            page.init(made, PageKind::Overflow, 0);
            page.write(64, &vec![n as u8; PAGE_SIZE - 64]);
        });
        pending.add(&header(made, first, &init), &init, NOWHERE);
        let other = id(100 + n);
        pending.add(&header(other, first + 200, &write(n)), &write(n), NOWHERE);
        // And small ones of a page that is created anew in the end.
        let small = write(n);
        pending.add(&header(id(50), first + 400, &small), &small, NOWHERE);
        most = most.max(pending.kept_bytes());
        assert!(pending.kept_bytes() <= BUDGET, "{} bytes after {n}", pending.kept_bytes());
        if n % 2000 == 1999 {
            let init = change(&mut vec![0; PAGE_SIZE], |page| page.init(id(50), PageKind::Leaf, 0));
            pending.add(&header(id(50), first + 600, &init), &init, NOWHERE);
        }
    }
    println!("at most {most} bytes, in the end {}", pending.kept_bytes());
    // All of them are there.
    for n in 0..OTHERS {
        let mut image = image(100 + n);
        set_lsn(&mut image, 1);
        assert_eq!(pending.apply(id(100 + n), &mut image).unwrap(), Some(1000 * (n + 1) + 200));
        assert_eq!(PageRef::new(&image).u64(200), n);
        pending.admitted(id(100 + n));
    }
    assert_eq!(pending.counters.reread.load(std::sync::atomic::Ordering::Relaxed), 0);
    for n in (0..10).chain([50]) {
        pending.apply(id(n), &mut vec![0; PAGE_SIZE]).unwrap();
        pending.admitted(id(n));
    }
    assert_eq!((pending.pages(), pending.kept_bytes()), (0, 0));
}
