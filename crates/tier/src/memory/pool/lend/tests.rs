use super::*;
use crate::memory::frame::FrameState;
use crate::memory::pages::Pages;
use crate::memory::pool::tests::{id, resident, that_grow as pages};
use crate::memory::pool::{Access, PoolLeft};
use crate::page::PageKind;
use crate::testing::{MemoryBelow, flush_all};
use std::sync::atomic::AtomicBool;
use terrace_io::sched::Worker as _;
use terrace_log::Urgency;

const AT: usize = 100;

fn create(pages: &Pages, page: u32) {
    let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
    let no = mtr.create(id(page), PageKind::Leaf, 0);
    mtr.page_mut(no).write_u64(AT, u64::from(page));
    mtr.commit();
}

fn fill(pages: &Pages, below: &Arc<MemoryBelow>, count: u32) {
    for page in 0..count {
        create(pages, page);
        flush_all(pages, below);
    }
}

fn check(pages: &Pages, count: u32) {
    for page in 0..count {
        assert_eq!(pages.read(id(page), Access::Normal).unwrap().page().u64(AT), u64::from(page));
    }
    pages.pool().check_invariants();
}

fn settle(pages: &Pages) -> Settled {
    loop {
        match pages.pool().settle() {
            Settled::Behind => {}
            settled => return settled,
        }
    }
}

fn always(_: PoolLeft) -> bool {
    true
}

#[test]
fn frames_go_with_a_loan_and_come_back_with_its_end() {
    let (pages, below) = pages(400, 400);
    fill(&pages, &below, 500);
    let mut loan = Loan::new(pages.pool(), Purpose::Sorts);
    assert!(loan.ask(70 * PAGE_SIZE) && loan.ask(10 * PAGE_SIZE - 5));
    assert_eq!((pages.pool().frames_lent(), pages.pool().frames_in_circulation()), (80, 320));
    assert_eq!(pages.pool().lent_for(Purpose::Sorts), 80 * PAGE_SIZE - 5);
    assert!(
        pages.pool().arena.frames().skip(320).all(|frame| frame.state() == FrameState::Free),
        "the last ones"
    );
    check(&pages, 500);
    loan.keep(30 * PAGE_SIZE);
    settle(&pages);
    assert_eq!(pages.pool().frames_lent(), 30);
    check(&pages, 500);
    drop(loan);
    settle(&pages);
    assert_eq!((pages.pool().frames_lent(), pages.pool().frames_in_circulation()), (0, 400));
    assert_eq!(pages.pool().lent_for(Purpose::Sorts), 0);
    check(&pages, 500);
}

#[test]
fn the_memory_of_lent_frames_goes_to_the_machine() {
    let (pages, below) = pages(400, 400);
    fill(&pages, &below, 500);
    let resident = || resident(&pages, 400) / PAGE_SIZE;
    assert!(resident() > 380, "all frames but the reserve were used");
    let mut loan = Loan::new(pages.pool(), Purpose::Sorts);
    assert!(loan.ask(100 * PAGE_SIZE));
    assert!(resident() <= 300, "{} frames have memory", resident());
    drop(loan);
    settle(&pages);
    assert!(resident() <= 300, "memory comes with pages");
    check(&pages, 500);
    assert!(resident() > 380);
}

#[test]
fn loans_are_bounded() {
    let (pages, _) = pages(400, 400);
    let (mut some, mut all) =
        (Loan::new(pages.pool(), Purpose::Sorts), Loan::new(pages.pool(), Purpose::Locks));
    assert!(some.ask(100 * PAGE_SIZE) && !some.ask(1) && some.bytes() == 100 * PAGE_SIZE);
    assert!(all.take(100 * PAGE_SIZE) && !all.take(1) && !all.take(usize::MAX));
    assert_eq!(pages.pool().lent_for(Purpose::Locks), 100 * PAGE_SIZE);
    settle(&pages);
    assert_eq!(pages.pool().frames_lent(), 200);
    // What is given back is to be had again: a quarter is for all together.
    some.keep(0);
    assert!(!some.ask(1) && all.take(1));
    all.keep(0);
    assert!(some.ask(1));
    drop((some, all));
    settle(&pages);
    pages.pool().check_invariants();
}

/// Dirty pages stay, pinned ones too, and so does the reserve: the loan is behind until they can go.
#[test]
fn a_loan_takes_no_pinned_or_reserved_frame() {
    let (pages, below) = pages(64, 64);
    (0..40).for_each(|page| create(&pages, page));
    assert_eq!(pages.pool().dirty_frames(), 40);
    let mut loan = Loan::new(pages.pool(), Purpose::Locks);
    assert!(loan.take(32 * PAGE_SIZE));
    let wanted = pages.pool().flush_wanted.ticket();
    assert_eq!(settle(&pages), Settled::Even);
    assert_eq!((pages.pool().frames_lent(), pages.pool().free_frames()), (12, 12), "what dirty pages leave");
    assert!(pages.pool().flush_wanted.moved_on(wanted), "the flusher is told");
    let reserve = pages.pool().reserve();
    let pins: Vec<_> = (0..36).map(|page| pages.load(id(page), Access::Normal).unwrap()).collect();
    flush_all(&pages, &below);
    assert_eq!(settle(&pages), Settled::Stuck);
    let free = pages.pool().free_frames();
    assert!(free >= reserve && pages.pool().frames_lent() + free + 36 <= 64, "{free} are free");
    // All that is not lent is pinned: a reader that needs a frame gets one back.
    drop(pages.read(id(39), Access::Normal).unwrap());
    drop(pins);
    assert_eq!(settle(&pages), Settled::Even);
    assert_eq!(pages.pool().frames_lent(), 32);
    check(&pages, 40);
}

#[test]
fn the_evictor_brings_frames_and_loans_together() {
    let (pages, below) = pages(400, 400);
    fill(&pages, &below, 400);
    let mut loan = Loan::new(pages.pool(), Purpose::Locks);
    let wanted = pages.pool().frames_wanted.ticket();
    assert!(loan.take(150 * PAGE_SIZE));
    assert!(pages.pool().frames_wanted.moved_on(wanted), "an evictor is told");
    let mut evictor = pages.evictors().remove(0);
    while evictor.step() == terrace_io::sched::Step::Worked {}
    assert_eq!(pages.pool().frames_lent(), 150);
    let wanted = pages.pool().frames_wanted.ticket();
    drop(loan);
    assert!(pages.pool().frames_wanted.moved_on(wanted));
    while evictor.step() == terrace_io::sched::Step::Worked {}
    assert_eq!(pages.pool().frames_lent(), 0);
    check(&pages, 400);
}

#[test]
fn the_pool_is_made_smaller_and_larger_while_it_lends() {
    let (pages, below) = pages(400, 600);
    fill(&pages, &below, 500);
    let mut loan = Loan::new(pages.pool(), Purpose::Locks);
    assert!(loan.take(100 * PAGE_SIZE));
    settle(&pages);
    pages.pool().resize(300, &mut always).unwrap();
    assert_eq!((pages.pool().frames(), pages.pool().frames_lent()), (300, 0), "those at the end are gone");
    settle(&pages);
    assert_eq!(pages.pool().frames_lent(), 100);
    check(&pages, 500);
    // Not more than half of it, whatever was borrowed before.
    pages.pool().resize(120, &mut always).unwrap();
    settle(&pages);
    assert_eq!(pages.pool().frames_lent(), 60);
    check(&pages, 500);
    pages.pool().resize(600, &mut always).unwrap();
    settle(&pages);
    assert_eq!(pages.pool().frames_lent(), 100);
    check(&pages, 500);
    // Given up: what was lent at the end is lent anew.
    let pin = pages.load(id(7), Access::Normal).unwrap();
    assert!(pages.pool().resize(16, &mut |_| false).is_err());
    settle(&pages);
    assert_eq!((pages.pool().frames(), pages.pool().frames_lent()), (600, 100));
    drop((pin, loan));
    settle(&pages);
    assert_eq!(pages.pool().frames_in_circulation(), 600);
    check(&pages, 500);
}

/// Threads read and change pages while others borrow and give back, and the pool is resized.
#[test]
fn pages_keep_their_content_while_frames_come_and_go() {
    let (pages, below) = pages(300, 400);
    fill(&pages, &below, 300);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pages, below, done) = (&pages, &below, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                flush_all(pages, below);
                std::thread::yield_now();
            }
        });
        let mut all = vec![scope.spawn(move || {
            for round in 0..40 {
                pages.pool().resize(if round % 2 == 0 { 200 } else { 350 }, &mut always).unwrap();
            }
        })];
        for seed in 0..2usize {
            all.push(scope.spawn(move || {
                let mut loan = Loan::new(pages.pool(), Purpose::Sorts);
                for round in 0..300 {
                    if (round + seed) % 7 == 6 || !loan.ask((1 + round % 20) * PAGE_SIZE) {
                        loan.keep(0);
                        pages.pool().settle();
                    }
                }
            }));
        }
        for user in 0..2u32 {
            all.push(scope.spawn(move || {
                for round in 0..20_000u32 {
                    let page = (round.wrapping_mul(2_654_435_761) >> 8) % 150 * 2 + user;
                    let pin = pages.load(id(page), Access::Normal).unwrap();
                    let mut mtr = pages.begin(1000, 0, Urgency::Normal).unwrap();
                    let no = mtr.write_pinned(&pin);
                    assert_eq!(mtr.page(no).u64(AT), u64::from(page));
                    let count = mtr.page(no).u64(AT + 8);
                    mtr.page_mut(no).write_u64(AT + 8, count + 1);
                    mtr.commit();
                }
            }));
        }
        all.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    settle(&pages);
    assert_eq!(pages.pool().frames_lent(), 0);
    check(&pages, 300);
    let changes = |page| pages.read(id(page), Access::Normal).unwrap().page().u64(AT + 8);
    assert_eq!((0..300).map(changes).sum::<u64>(), 40_000, "a change was lost");
}

/// Each of their reads waited for a tenth of a second, for a frame that was lent again as soon as it was clean.
#[test]
fn a_loan_leaves_frames_to_readers_while_dirty_pages_cannot_be_flushed() {
    let (pages, below) = pages(256, 256);
    fill(&pages, &below, 12);
    (12..172).for_each(|page| create(&pages, page));
    assert_eq!(pages.pool().dirty_frames(), 160);
    let mut loan = Loan::new(pages.pool(), Purpose::Locks);
    assert!(loan.take(128 * PAGE_SIZE));
    let mut evictor = pages.evictors().remove(0);
    let mut evict = || while evictor.step() == terrace_io::sched::Step::Worked {};
    evict();
    assert!(pages.pool().frames_lent() > 0);
    for _ in 0..4 {
        for page in 0..12 {
            drop(pages.read(id(page), Access::Normal).unwrap());
            evict();
        }
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &pages.pool().counters;
    assert_eq!(count(&counters.frame_waits), 0);
    assert!(count(&counters.misses) <= 12, "{} misses of 12 pages", count(&counters.misses));
    // As soon as they are clean it has all.
    flush_all(&pages, &below);
    evict();
    assert_eq!(pages.pool().frames_lent(), 128);
    check(&pages, 172);
}
