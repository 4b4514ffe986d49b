//! Whole policies: what all of them keep to, and hit ratios counted by hand.

use super::memory::{Left, Memory, Use};
use super::policy::{Fate, Named, Policy};
use crate::page::{PageId, SpaceId};
use std::collections::HashSet;
use std::sync::Arc;
use terrace_io::random::Random;
use terrace_sim::SimWorld;

fn page(n: u32) -> PageId {
    PageId::new(SpaceId(20), n)
}

fn of_seed(seed: u64) -> Arc<dyn Random> {
    SimWorld::new(seed).world().random
}

fn all() -> Vec<Named> {
    let mut all = Named::usual();
    all.extend(
        ["ghost/3@50", "ghost/2@0", "tiny-lfu/3", "ghost-tiny-lfu/sampled@400"]
            .map(|n| n.parse::<Named>().unwrap()),
    );
    all
}

/// Hits of flash alone.
fn hits(policy: &mut dyn Policy, trace: impl IntoIterator<Item = u32>) -> usize {
    let mut hits = 0;
    for n in trace {
        hits += usize::from(policy.read(page(n)));
        policy.left(page(n), 1, true);
    }
    hits
}

/// Pages by a Zipf distribution of exponent 1 over `pages`, by inversion of its continuous form.
fn zipf(random: &dyn Random, pages: u32) -> u32 {
    let share = random.below(1 << 40) as f64 / (1u64 << 40) as f64;
    (f64::from(pages).powf(share) as u32).min(pages - 1)
}

#[test]
fn hit_ratios_are_those_counted_by_hand() {
    let belady = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
    let textbook = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
    for (name, pages, trace, expected) in [
        ("fifo", 3, &belady[..], 3),
        ("fifo", 4, &belady[..], 2),
        ("lru", 3, &belady[..], 2),
        ("lru", 4, &belady[..], 4),
        ("admit-all/1", 3, &belady[..], 2),
        ("fifo", 3, &textbook[..], 5),
        ("lru", 3, &textbook[..], 8),
        // So small a flash has no leniency while it is not full.
        ("one-hit-discard/1", 3, &belady[..], 0),
    ] {
        let mut policy = name.parse::<Named>().unwrap().build(pages, 1);
        assert_eq!(hits(&mut *policy, trace.iter().copied()), expected, "{name} of {pages} pages");
    }
}

/// What all policies keep to, whatever is called.
fn keeps_to_the_rules(named: Named, capacity: usize, seed: u64) -> Vec<Fate> {
    const PAGES: u32 = 90;
    let random = of_seed(seed);
    let (mut policy, mut held, mut fates) = (named.build(capacity, seed), HashSet::new(), Vec::new());
    let what = |step| format!("{named} of {capacity}, seed {seed}, step {step}");
    for step in 0..1500 {
        let id = page(zipf(&*random, PAGES));
        let before = held.clone();
        match random.below(10) {
            0 => assert_eq!(policy.invalidate(id), held.remove(&id), "{}", what(step)),
            1..=4 => assert_eq!(policy.read(id), held.contains(&id), "{}", what(step)),
            _ => {
                let may_write = random.below(9) != 0;
                let fate = policy.left(id, random.below(4) as u8, may_write);
                fates.push(fate);
                assert_eq!(fate == Fate::Kept, before.contains(&id), "{}", what(step));
                assert!(may_write || fate != Fate::Written, "{}", what(step));
                if fate == Fate::Written {
                    held.insert(id);
                }
            }
        }
        let has: HashSet<PageId> = (0..PAGES).map(page).filter(|id| policy.has(*id)).collect();
        let lost: Vec<_> = held.difference(&has).collect();
        assert!(has.is_subset(&held), "{}: a page that was not written is there", what(step));
        assert!(
            lost.len() <= usize::from(fates.last() == Some(&Fate::Written)),
            "{}: lost {lost:?}",
            what(step)
        );
        assert!(!lost.contains(&&id), "{}: the page itself is lost", what(step));
        assert!(lost.is_empty() || before.len() == capacity, "{}: one left without need", what(step));
        assert_eq!(has.len(), policy.pages(), "{}", what(step));
        assert!(has.len() <= capacity, "{}: {} pages", what(step), has.len());
        held = has;
    }
    fates
}

#[test]
fn a_page_is_found_until_it_leaves_and_never_are_more_than_fit() {
    for named in all() {
        for (capacity, seed) in [(0, 1), (1, 2), (2, 3), (16, 4), (32, 5), (33, 6)] {
            let fates = keeps_to_the_rules(named, capacity, seed);
            assert_eq!(
                fates,
                keeps_to_the_rules(named, capacity, seed),
                "{named}: the same calls, other answers"
            );
            assert_eq!(fates.contains(&Fate::Written), capacity > 0, "{named} of {capacity}");
        }
    }
}

#[test]
fn names_are_read_as_they_are_printed() {
    for named in all() {
        assert_eq!(named.to_string().parse(), Ok(named));
    }
    for wrong in
        ["", "ghost/", "ghost/4", "ghost/0", "lru/1", "ghost@", "ghost@-1", "ghost@1001", "admit-all/sampled"]
    {
        assert!(wrong.parse::<Named>().is_err(), "`{wrong}`");
    }
    assert_eq!("ghost".parse::<Named>(), "ghost/1@100".parse());
}

/// Hits and writes of flash for popular pages with a pass over cold ones in between.
fn with_scans(name: &str) -> (usize, usize) {
    let random = of_seed(7);
    let mut policy = name.parse::<Named>().unwrap().build(1000, 7);
    let (mut hits, mut writes) = (0, 0);
    for n in 0..120_000_u32 {
        let popular = n % 4 != 0;
        let id = page(if popular { zipf(&*random, 20_000) } else { 100_000 + n });
        hits += usize::from(policy.read(id));
        writes += usize::from(policy.left(id, 1, true) == Fate::Written);
    }
    (hits, writes)
}

#[test]
fn evidence_of_reuse_saves_writes_and_the_sketch_more_of_them() {
    let (all, ghost) = (with_scans("admit-all/1"), with_scans("ghost/1"));
    let (tiny, sampled) = (with_scans("ghost-tiny-lfu/2"), with_scans("ghost-tiny-lfu/sampled"));
    assert!(ghost.1 * 4 < all.1 && ghost.0 > all.0, "ghost {ghost:?}, admit-all {all:?}");
    assert!(tiny.0 > ghost.0 && tiny.1 < ghost.1, "with sketch {tiny:?}, ghost {ghost:?}");
    assert!(sampled.0 > all.0 && sampled.1 * 4 < all.1, "sampled {sampled:?}, admit-all {all:?}");
    let (s3, lru) = (with_scans("s3-fifo"), with_scans("lru"));
    assert!(s3.0 > lru.0, "S3-FIFO {s3:?}, LRU {lru:?}");
}

#[test]
fn a_flushed_page_keeps_its_evidence_of_reuse() {
    let mut policy = "ghost/1".parse::<Named>().unwrap().build(64, 1);
    (0..64).for_each(|n| {
        policy.left(page(n), 2, true);
    });
    assert!(policy.invalidate(page(5)));
    // Full again: no leniency.
    (100..105).for_each(|n| {
        policy.left(page(n), 2, true);
    });
    assert_eq!(policy.left(page(5), 1, true), Fate::Written);
    assert_eq!(policy.left(page(200), 1, true), Fate::Declined);
}

#[test]
fn memory_of_a_policy_is_a_few_bytes_a_page() {
    // (name, maximum bytes a page): the table of pages alone is 8 + 4 for the page and its slot.
    for (name, most) in
        [("fifo", 24), ("ghost/2", 28), ("ghost-tiny-lfu/2", 32), ("lru", 32), ("w-tiny-lfu", 36)]
    {
        let policy = name.parse::<Named>().unwrap().build::<PageId>(100_000, 1);
        let each = policy.bytes() / 100_000;
        assert!((13..=most).contains(&each), "{name}: {each} bytes a page");
    }
}

#[test]
fn memory_keeps_what_is_used_again_through_a_scan() {
    let mut memory = Memory::new(64);
    for _ in 0..20 {
        (0..20).for_each(|n| {
            memory.access(page(n), false);
        });
    }
    let mut left = Vec::new();
    for n in 1000..1400 {
        if let Use::Missed(Some(one)) = memory.access(page(n), false) {
            left.push(one);
        }
        (0..20).for_each(|n| {
            memory.access(page(n), false);
        });
    }
    let scanned = |one: &&Left| one.id.page >= 1000;
    assert_eq!(left.iter().filter(scanned).count(), left.len(), "a page in use left: {left:?}");
    assert!(left.iter().all(|one| one.accesses == 1), "a page used once leaves as such");
    assert_eq!(left.len(), 400 - (64 - 20));
    // A changed page says so, and pages of a memory of nothing leave at once.
    let mut none = Memory::new(0);
    let once = |dirty| Use::Missed(Some(Left { id: page(1), accesses: 1, dirty }));
    assert_eq!((none.access(page(1), true), none.access(page(1), false)), (once(true), once(false)));
}
