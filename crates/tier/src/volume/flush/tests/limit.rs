//! Limits of writes: only a table without tokens waits; writes that cannot wait do not.

use super::*;
use crate::limits::quota::{Limit, Placement, Rules, Table, TableRule};
use crate::volume::bypass::Bypass;
use terrace_io::cancel::Cancel;
use terrace_io::clock::Nanos;

const SECOND: Nanos = 1_000_000_000;
const FREE: SpaceId = SpaceId(17);

/// Two tables, one of which may write a limited number of pages a second.
struct Limited {
    rig: Rig,
    open: Open,
    rules: Arc<Rules>,
}

fn limited(requests: u64) -> Limited {
    let rig = Rig::new(1024);
    let open = rig.open();
    let rules = Arc::new(Rules::default());
    let volume_writes = Limit { requests, bytes: 0 };
    let rule = TableRule { volume_writes, ..TableRule::default() };
    rules.set(vec![(1, rule, vec![(SPACE, Placement::Default)])]);
    open.flusher.writes().set_rules(rules.clone());
    rig.sim.clock.advance(100 * SECOND);
    Limited { rig, open, rules }
}

fn create_free(pages: &Pages, numbers: std::ops::Range<u32>) {
    for page in numbers {
        let mut mtr = pages.begin(1000, 1, Urgency::Normal).unwrap();
        mtr.create(PageId::new(FREE, page), PageKind::Leaf, 0);
        mtr.commit();
    }
}

impl Limited {
    fn table(&self) -> Arc<Table> {
        self.rules.of(SPACE).unwrap().table
    }
    /// Pages of the limited table, and of the other, that have slots.
    fn flushed(&self) -> (usize, usize) {
        let of = |space| self.open.map.pages_of(space).len();
        (of(SPACE), of(FREE))
    }
    fn over(&self) -> u64 {
        self.table().over.load(Ordering::Relaxed)
    }
    fn held(&self) -> u64 {
        self.table().pages_held.load(Ordering::Relaxed)
    }
    /// Steps until the flusher rests. Returns for how long.
    fn step(&self) -> Step {
        (0..100).map(|_| self.open.flusher.step()).find(|step| *step != Step::Worked).unwrap()
    }
    fn now(&self) -> Nanos {
        self.rig.sim.world().clock.now()
    }
}

#[test]
fn pages_of_a_table_without_tokens_stay_and_others_are_flushed_past_them() {
    let test = limited(100);
    create(&test.open.pages, 0..60);
    create_free(&test.open.pages, 0..60);
    test.open.flusher.wish(test.rig.log.appended());
    let rest = test.step();
    assert_eq!(test.flushed(), (11, 60), "what a tenth of a second brings, and one");
    assert_eq!((test.held(), test.over()), (49, 0));
    let Step::IdleFor(rest) = rest else { panic!("{rest:?}: it comes back") };
    assert!((1_000_000..SECOND / 10).contains(&rest), "{rest}");
    let since = test.now();
    while test.flushed().0 < 60 {
        test.rig.sim.clock.advance(rest);
        test.step();
        let may = (11 + (test.now() - since) * 100 / SECOND).min(60);
        assert!((test.flushed().0 as u64).abs_diff(may) <= 3, "{:?} of {may}", test.flushed());
    }
    assert_eq!((test.over(), test.open.dirty()), (0, 0));
    test.step();
    assert_eq!(test.held(), 0);
}

/// While a table's pages are held back there are many dirty pages, and old ones: others' were flushed at each change, and beyond what was asked for.
#[test]
fn pages_that_are_held_back_are_no_reason_to_flush_others_before_their_time() {
    let test = limited(10);
    let limit = dirty_limit(256);
    create(&test.open.pages, 0..limit as u32 + 10);
    test.open.flusher.wish(test.rig.log.appended());
    test.step();
    assert!(test.held() as usize >= limit, "{} held", test.held());
    create_free(&test.open.pages, 0..10);
    for _ in 0..20 {
        test.rig.sim.clock.advance(SECOND / 10);
        test.step();
        assert_eq!(test.flushed().1, 0, "{} held", test.held());
    }
    assert!(test.flushed().0 > 15 && test.over() == 0);
    test.open.flusher.wish(test.rig.log.appended());
    test.step();
    assert_eq!(test.flushed().1, 10, "what is asked for is");
}

#[test]
fn a_limit_yields_to_a_checkpoint_and_the_excess_is_counted() {
    let test = limited(100);
    create(&test.open.pages, 0..40);
    let asked = test.rig.log.appended();
    create(&test.open.pages, 40..60);
    test.open.flusher.wish(test.rig.log.appended());
    test.step();
    assert_eq!(test.flushed().0, 11);
    test.open.flusher.request(asked);
    test.step();
    assert_eq!((test.flushed().0, test.over(), test.held()), (40, 29, 20), "up to there and no further");
}

#[test]
fn a_limit_yields_before_frames_run_out() {
    let test = limited(1);
    let limit = crate::volume::flush::limit::yields_at(256);
    create(&test.open.pages, 0..limit as u32);
    test.step();
    assert_eq!((test.open.dirty(), test.over()), (limit - 1, 0));
    create(&test.open.pages, 200..232);
    test.step();
    assert!(test.open.dirty() <= limit && test.over() >= 30, "{} dirty, {}", test.open.dirty(), test.over());
}

#[test]
fn a_table_whose_limit_is_lifted_is_flushed_at_once() {
    let test = limited(1);
    create(&test.open.pages, 0..60);
    test.open.flusher.wish(test.rig.log.appended());
    test.step();
    assert_eq!(test.flushed().0, 1);
    test.rules.set(Vec::new());
    test.step();
    assert_eq!((test.flushed().0, test.open.dirty()), (60, 0));
}

/// He has copied nothing and keeps nothing: the flusher may take the pages first, and he is done.
#[test]
fn a_large_value_waits_for_its_tables_tokens_and_holds_nothing_meanwhile() {
    let test = limited(100);
    let open = &test.open;
    (0..111).for_each(|page| make_large(&open.pages, page, 7));
    let since = test.now();
    open.flusher.write_through(&large(0..111), 0).unwrap();
    let took = test.now() - since;
    assert!((SECOND * 9 / 10..SECOND * 3 / 2).contains(&took), "{took} ns");
    assert!(open.dirty() == 0 && test.over() == 0 && open.flusher.writing.lock().is_empty());
    assert!(test.table().write_waits.load(Ordering::Relaxed) > 0);

    (200..260).for_each(|page| make_large(&open.pages, page, 7));
    let cancel = Arc::new(Cancel::default());
    cancel.cancel();
    let scope = cancel.scope();
    let ended = open.flusher.write_through(&large(200..260), 3600 * SECOND);
    drop(scope);
    assert!(matches!(ended, Err(FlushError::Log(LogError::Cancelled))), "{ended:?}");
    assert!(open.flusher.writing.lock().is_empty() && open.dirty() > 40);
    open.flush_all();
    open.flusher.write_through(&large(200..260), 0).unwrap();
    assert_eq!(open.dirty(), 0);
}

/// As a transaction with rows of several tables, or partitions, has them.
#[test]
fn large_values_of_tables_without_limits_are_written_in_one_go_beside_one_with() {
    let test = limited(10);
    let open = &test.open;
    let pages: Vec<PageId> =
        (0..40).flat_map(|page| [FREE, SpaceId(18)].map(|space| PageId::new(space, page))).collect();
    pages.iter().for_each(|id| make_large_at(&open.pages, *id, 7));
    let since = test.now();
    open.flusher.write_through(&pages, 0).unwrap();
    assert_eq!((open.flusher.bypass.syncs.load(Ordering::Relaxed), open.dirty()), (1, 0), "one sync for all");
    assert!(test.now() - since < SECOND / 100);

    let mixed: Vec<PageId> =
        (100..120).flat_map(|page| [SPACE, FREE].map(|space| PageId::new(space, page))).collect();
    mixed.iter().for_each(|id| make_large_at(&open.pages, *id, 7));
    open.flusher.write_through(&mixed, 0).unwrap();
    let took = test.now() - since;
    assert!((SECOND * 3 / 2..SECOND * 3).contains(&took), "as long as its 20 pages take: {took} ns");
    assert_eq!((open.dirty(), test.over()), (0, 0));
}

/// A commit does not end before it is done, whoever wants its connection to end.
#[test]
fn work_that_always_completes_waits_for_a_limit_until_it_is_killed() {
    let test = limited(1);
    let open = &test.open;
    (0..60).for_each(|page| make_large(&open.pages, page, 7));
    let cancel = Arc::new(Cancel::default());
    let _scope = cancel.scope();
    let _shield = terrace_io::cancel::shield();
    let since = test.now();
    open.flusher.write_through_until(&large(0..3), 0, Some(&cancel)).unwrap();
    assert!(test.now() - since > SECOND && test.over() == 0, "{} ns", test.now() - since);
    cancel.cancel();
    let since = test.now();
    open.flusher.write_through_until(&large(0..60), 0, Some(&cancel)).unwrap();
    assert!(test.now() - since < SECOND / 10, "{} ns", test.now() - since);
    assert_eq!((open.dirty(), test.over()), (0, 57));
}

#[test]
fn a_build_in_bulk_waits_for_its_tables_tokens_and_anothers_does_not() {
    let test = limited(100);
    for (space, least, most) in [(FREE, 0, SECOND / 10), (SPACE, SECOND * 2, SECOND * 4)] {
        let since = test.now();
        let mut build = Bypass::new(test.open.flusher.clone());
        for page in 0..300 {
            build.put(PageId::new(space, page), (PageKind::Leaf, 0), |_| {}).unwrap();
        }
        build.publish().unwrap();
        let took = test.now() - since;
        assert!((least..most).contains(&took), "{space}: {took} ns");
    }
    assert_eq!((test.flushed(), test.over()), ((300, 300), 0));
}
