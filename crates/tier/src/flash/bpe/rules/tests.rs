use super::*;
use crate::flash::Leaving;
use crate::flash::admission::filter::Rule;
use crate::flash::bpe::{BpeSettings, BpeWorker, Evicted, Lookup};
use crate::limits::quota::{Limit, Share, TableRule};
use crate::page::{self, PageKind, SpaceId, Tag};
use std::sync::atomic::Ordering;
use terrace_io::sched::Worker as _;
use terrace_sim::SimWorld;

fn image(id: PageId) -> (Vec<u8>, Tag) {
    let mut bytes = vec![0; PAGE_SIZE];
    page::format(&mut bytes, id, PageKind::Leaf, 0);
    page::set_lsn(&mut bytes, 1);
    let tag = page::seal(&mut bytes);
    (bytes, tag)
}

fn id(space: u32, n: u32) -> PageId {
    PageId::new(SpaceId(space), n)
}

struct Flash {
    bpe: Arc<Bpe>,
    worker: BpeWorker,
    rules: Arc<Rules>,
    sim: SimWorld,
}

impl Flash {
    fn new(slots: u64) -> Flash {
        let sim = SimWorld::new(1);
        let flash_bytes = slots * PAGE_SIZE as u64;
        let settings =
            BpeSettings { owner: 1, flash_bytes, queue_pages: 16, admission: Rule::Ghost, warm: true };
        let bpe = Arc::new(Bpe::open(&*sim.disk("flash"), settings));
        let rules = Arc::new(Rules::default());
        bpe.set_rules(rules.clone(), sim.world().clock);
        Flash { worker: BpeWorker(bpe.clone()), bpe, rules, sim }
    }
    /// Table, space, minimum and cap in pages, placement.
    fn set(&self, tables: &[(u32, u32, u64, u64, Placement)]) {
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        let of = |(table, space, min, max, placement): &(u32, u32, u64, u64, Placement)| {
            let flash = Share { min: bytes(*min), max: bytes(*max) };
            (*table, TableRule { flash, ..TableRule::default() }, vec![(SpaceId(*space), *placement)])
        };
        self.rules.set(tables.iter().map(of).collect());
        self.bpe.rules_changed();
    }
    /// The page is evicted from memory after `accesses` uses there.
    fn evict(&mut self, id: PageId, accesses: u8) -> Evicted {
        let evicted = self.bpe.evicted(id, &image(id).0, Leaving::used(accesses));
        self.worker.step();
        self.bpe.check_invariants();
        evicted
    }
    fn has(&self, id: PageId) -> bool {
        let mut buf = vec![0; PAGE_SIZE];
        self.bpe.find(id, image(id).1, &mut buf) == Lookup::Hit
    }
    fn count(&self, space: u32, pages: u32) -> u32 {
        (0..pages).filter(|n| self.bpe.seems_to_have(id(space, *n))).count() as u32
    }
    /// A table is read over and over, each page used twice in memory: admission lets it all in.
    fn scan(&mut self, space: u32, pages: u32, rounds: u32) {
        for _ in 0..rounds {
            (0..pages).for_each(|n| _ = self.evict(id(space, n), 2));
        }
    }
}

#[test]
fn a_scanned_table_takes_all_without_rules_and_its_cap_with_one() {
    let mut flash = Flash::new(100);
    (0..60).for_each(|n| _ = flash.evict(id(20, n), 2));
    flash.scan(30, 300, 3);
    assert_eq!(flash.count(20, 60), 0, "the control: the scan has pushed the other out");

    let mut flash = Flash::new(100);
    flash.set(&[(2, 30, 0, 30, Placement::Default)]);
    (0..60).for_each(|n| _ = flash.evict(id(20, n), 2));
    flash.scan(30, 300, 3);
    assert_eq!((flash.count(20, 60), flash.count(30, 300)), (60, 30));
    // It still changes its own pages, with those that come.
    assert!(flash.has(id(30, 299)));
}

#[test]
fn a_minimum_stands_against_a_scan_and_what_is_idle_is_lent() {
    let mut flash = Flash::new(100);
    flash.set(&[(1, 20, 40, 0, Placement::Default)]);
    flash.scan(30, 300, 2);
    assert_eq!(flash.count(30, 300), 100, "nobody uses the guaranteed room: others do");
    (0..70).for_each(|n| _ = flash.evict(id(20, n), 2));
    let mine = flash.count(20, 70);
    assert!(mine >= 40, "{mine}: it has come back");
    flash.scan(30, 300, 3);
    assert_eq!((flash.count(20, 70), flash.count(30, 300)), (40, 60), "down to the minimum and no further");
}

#[test]
fn what_is_kept_comes_without_evidence_and_stays_and_none_never_comes() {
    let mut flash = Flash::new(100);
    flash.set(&[(1, 20, 0, 0, Placement::Keep), (2, 30, 0, 0, Placement::None)]);
    flash.scan(40, 300, 1);
    (0..50).for_each(|n| assert_eq!(flash.evict(id(20, n), 1), Evicted::Queued, "used once, flash is full"));
    flash.scan(40, 300, 3);
    assert_eq!(flash.count(20, 50), 50);
    assert_eq!(flash.evict(id(30, 1), 3), Evicted::Refused);
    assert_eq!(flash.count(30, 300), 0);
    assert_eq!(flash.bpe.counters.refused.load(Ordering::Relaxed), 1);
    // More that is to be kept than there is room for: they take turns, and the others are out.
    flash.scan(20, 300, 1);
    assert_eq!(flash.count(20, 300), 100);
    assert_eq!(flash.evict(id(40, 1), 3), Evicted::Dropped, "all that is there is kept");
}

/// A table with a guaranteed minimum gets its pages back from one whose `KEEP` pages fill flash, and no more than that.
#[test]
fn a_minimum_comes_before_what_is_kept() {
    let mut flash = Flash::new(100);
    flash.set(&[(1, 20, 20, 0, Placement::Keep), (2, 30, 40, 0, Placement::Default)]);
    flash.scan(20, 300, 1);
    assert_eq!(flash.count(20, 300), 100, "the control: all of flash is kept");
    (0..60).for_each(|n| _ = flash.evict(id(30, n), 2));
    assert_eq!((flash.count(20, 300), flash.count(30, 60)), (60, 40));
    assert_eq!(flash.evict(id(40, 1), 3), Evicted::Dropped, "who is guaranteed nothing waits");
    // What is kept has a minimum, too.
    flash.set(&[(1, 20, 80, 0, Placement::Keep), (2, 30, 20, 0, Placement::Default)]);
    flash.scan(20, 300, 1);
    flash.scan(30, 60, 2);
    assert_eq!((flash.count(20, 300), flash.count(30, 60)), (80, 20));
}

/// What a table has beyond a cap that came down leaves, what is being written excepted; the latest stay.
#[test]
fn a_cap_that_comes_down_is_met_at_once() {
    let mut flash = Flash::new(100);
    flash.set(&[(1, 20, 0, 0, Placement::Keep)]);
    (0..90).for_each(|n| _ = flash.evict(id(20, n), 2));
    let pages: Vec<PageId> = (0..90).map(|n| id(20, n)).collect();
    for (cap, placement) in [(60, Placement::Keep), (30, Placement::Default)] {
        flash.set(&[(1, 20, 0, cap, placement)]);
        flash.bpe.classify(&pages);
        flash.bpe.trim();
        flash.bpe.check_invariants();
        assert_eq!(u64::from(flash.count(20, 90)), cap);
    }
    assert!(flash.has(id(20, 89)) && !flash.has(id(20, 0)));
    // One that is on its way stays, and the table is at its cap all the same.
    assert_eq!(flash.bpe.evicted(id(20, 0), &image(id(20, 0)).0, Leaving::used(2)), Evicted::Queued);
    flash.set(&[(1, 20, 0, 1, Placement::Default)]);
    flash.bpe.classify(&pages);
    flash.bpe.trim();
    flash.worker.step();
    flash.bpe.check_invariants();
    assert!(flash.count(20, 90) <= 2, "{}", flash.count(20, 90));
    assert!(flash.has(id(20, 0)));
}

/// No page waits for flash: what a table may not fill it does not get, and another's page takes no notice.
#[test]
fn fills_beyond_a_tables_limit_are_refused_and_counted() {
    let mut flash = Flash::new(100);
    let flash_writes = Limit { requests: 10, bytes: 0 };
    let rule = TableRule { flash_writes, ..TableRule::default() };
    flash.rules.set(vec![(1, rule, vec![(SpaceId(20), Placement::Keep)])]);
    flash.bpe.rules_changed();
    flash.sim.clock.advance(1_000_000_000);
    let queued = |flash: &mut Flash, space, from: u32| {
        (from..from + 20).filter(|n| flash.evict(id(space, *n), 2) == Evicted::Queued).count()
    };
    assert_eq!((queued(&mut flash, 20, 0), queued(&mut flash, 30, 0)), (2, 20));
    flash.sim.clock.advance(500_000_000);
    assert_eq!(queued(&mut flash, 20, 20), 2, "a bucket holds a tenth of a second");
    let table = flash.rules.of(SpaceId(20)).unwrap().table;
    assert_eq!(table.fills_refused.load(Ordering::Relaxed), 36);
    // A copy that may not be rewritten is not there any more.
    assert!(
        flash.has(id(20, 0)) && !flash.bpe.rewrite(id(20, 0), &image(id(20, 0)).0) && !flash.has(id(20, 0))
    );
}

#[test]
fn rules_change_for_pages_that_are_there() {
    let mut flash = Flash::new(100);
    (0..50).for_each(|n| _ = flash.evict(id(20, n), 2));
    let ids: Vec<PageId> = (0..50).map(|n| id(20, n)).collect();
    flash.set(&[(1, 20, 0, 0, Placement::Keep)]);
    flash.bpe.classify(&ids);
    assert_eq!(flash.bpe.pages_of_tables(), [(1, 50)]);
    flash.scan(40, 300, 3);
    assert_eq!(flash.count(20, 50), 50);
    // The kept ones are a second table's neighbours now, with other numbers for the classes.
    flash.set(&[(7, 10, 5, 0, Placement::Default), (1, 20, 0, 0, Placement::Default)]);
    flash.bpe.classify(&ids);
    flash.bpe.check_invariants();
    flash.scan(40, 300, 3);
    assert_eq!(flash.count(20, 50), 0, "kept no more");
    flash.scan(20, 50, 1);
    assert!(flash.count(20, 50) > 40);
    flash.set(&[(1, 20, 0, 0, Placement::None)]);
    flash.bpe.classify(&ids);
    assert_eq!(flash.count(20, 50), 0);
    flash.set(&[]);
    flash.scan(20, 50, 1);
    assert!(flash.count(20, 50) > 40);
    flash.bpe.check_invariants();
}

#[test]
fn rules_hold_when_flash_changes_its_size() {
    let mut flash = Flash::new(100);
    flash.set(&[(1, 20, 20, 0, Placement::Default), (2, 30, 0, 30, Placement::Default)]);
    (0..40).for_each(|n| _ = flash.evict(id(20, n), 2));
    flash.scan(30, 100, 2);
    for slots in [60, 200, 50] {
        let bpe = flash.bpe.clone();
        bpe.resize(slots * PAGE_SIZE as u64, &mut |_| {
            flash.worker.step();
            true
        })
        .unwrap();
        bpe.check_invariants();
        (0..40).for_each(|n| _ = flash.evict(id(20, n), 2));
        flash.scan(30, 100, 2);
        flash.scan(40, 300, 2);
        assert!(flash.count(20, 40) >= 20, "{slots}: {}", flash.count(20, 40));
        assert!(flash.count(30, 100) <= 30, "{slots}: {}", flash.count(30, 100));
    }
}

/// A cap's ring named slots that were no more, and tidying it looked whose they are.
#[test]
fn a_cap_holds_after_flash_has_lost_the_slots_that_its_table_had() {
    let mut flash = Flash::new(400);
    (0..300).for_each(|n| _ = flash.evict(id(40, n), 2));
    flash.set(&[(2, 30, 0, 40, Placement::Default)]);
    (0..40).for_each(|n| _ = flash.evict(id(30, n), 2));
    let bpe = flash.bpe.clone();
    bpe.resize(100 * PAGE_SIZE as u64, &mut |_| {
        flash.worker.step();
        true
    })
    .unwrap();
    for round in 0..20 {
        // They come and go without the cap being reached: nothing is taken from the ring's front.
        (0..30).for_each(|n| _ = flash.evict(id(30, n + 30 * round), 2));
        (0..30).for_each(|n| bpe.invalidate(id(30, n + 30 * round)));
    }
    flash.scan(30, 100, 2);
    assert!(flash.count(30, 100) <= 40);
}

/// They were everybody's until they were read: a table's kept pages left for others', and its cap did not hold.
#[test]
fn pages_that_the_last_run_left_belong_to_their_tables_when_they_are_known() {
    let sim = SimWorld::new(1);
    let disk = sim.disk("flash");
    let flash_bytes = 100 * PAGE_SIZE as u64;
    let open = || {
        let settings =
            BpeSettings { owner: 1, flash_bytes, queue_pages: 16, admission: Rule::Ghost, warm: true };
        let bpe = Arc::new(Bpe::open(&*disk, settings));
        let rules = Arc::new(Rules::default());
        bpe.set_rules(rules.clone(), sim.world().clock);
        let rule = TableRule { flash: Share { min: 0, max: 60 * PAGE_SIZE as u64 }, ..TableRule::default() };
        let table = |id, rule, space, placement| (id, rule, vec![(SpaceId(space), placement)]);
        rules.set(vec![
            table(7, rule, 20, Placement::Keep),
            table(8, TableRule::default(), 40, Placement::None),
        ]);
        bpe.rules_changed();
        Flash { worker: BpeWorker(bpe.clone()), bpe, rules, sim: SimWorld::new(2) }
    };
    let mut flash = open();
    flash.rules.set(vec![]);
    flash.bpe.rules_changed();
    (0..50).for_each(|n| _ = flash.evict(id(20, n), 2));
    (0..30).for_each(|n| _ = flash.evict(id(30, n), 2));
    (0..10).for_each(|n| _ = flash.evict(id(40, n), 2));
    flash.bpe.save();
    drop(flash);
    for told in [false, true] {
        let mut flash = open();
        if told {
            flash.bpe.when_restored(|bpe| {
                for space in [20, 40] {
                    bpe.classify(&(0..50).map(|n| id(space, n)).collect::<Vec<_>>());
                }
            });
        }
        (0..20).for_each(|_| _ = flash.worker.step());
        assert_eq!(flash.bpe.status().restored, 90);
        flash.bpe.check_invariants();
        let has = (flash.bpe.pages_of_tables(), flash.count(40, 10));
        assert_eq!(has, if told { (vec![(7, 50)], 0) } else { (vec![(7, 0)], 10) });
    }
}

#[test]
fn a_page_that_the_volume_has_is_taken_while_its_table_lacks_what_it_is_guaranteed() {
    let mut flash = Flash::new(100);
    flash.set(&[(2, 30, 20, 0, Placement::Default), (3, 40, 0, 0, Placement::Keep)]);
    flash.scan(20, 100, 2);
    let near = |flash: &mut Flash, id| {
        let evicted = flash.bpe.evicted(id, &image(id).0, Leaving { accesses: 3, near: true });
        flash.worker.step();
        evicted
    };
    assert_eq!(near(&mut flash, id(20, 200)), Evicted::Near { wanted: true });
    assert_eq!(near(&mut flash, id(40, 1)), Evicted::Queued, "it is to be kept there");
    let taken = (0..40).filter(|n| near(&mut flash, id(30, *n)) == Evicted::Queued).count();
    assert_eq!(taken, 20);
}
