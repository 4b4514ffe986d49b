//! Cursors whose leaf has left memory, or has changed, between two calls. A cursor keeps no page in memory: so each call may find its leaf gone, in
//! another frame, split, merged away, or empty.

use super::*;
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const FRAMES: usize = 200;

fn key(n: u64) -> Vec<u8> {
    format!("key/{n:06}").into_bytes()
}

fn evict_all(w: &World) {
    testing::flush_all(&w.pages, &w.below);
    testing::evict_all(&w.pages);
}

/// A tree of `count` entries with values of 100 bytes: a leaf has about 130.
fn filled(count: u64) -> World {
    let w = world(FRAMES);
    for n in 0..count {
        put(&w, n, 1);
        if w.pages.pool().dirty_frames() > FRAMES / 2 {
            testing::flush_all(&w.pages, &w.below);
        }
    }
    w
}

fn put(w: &World, n: u64, fill: u8) {
    w.tree
        .modify(&mut Hint::default(), &key(n), Plan::put(100), |spot| {
            spot.put(&[fill; 100]);
            Ok::<_, TreeError>(Flow::Done)
        })
        .unwrap();
}

/// The cursor's keys from where it is to the end; before each step `between` happens.
fn rest(cursor: &mut Cursor, backward: bool, mut between: impl FnMut()) -> Vec<Vec<u8>> {
    let mut found = vec![cursor.key().to_vec()];
    loop {
        between();
        if !(if backward { cursor.prev() } else { cursor.next() }).unwrap() {
            return found;
        }
        found.push(cursor.key().to_vec());
    }
}

#[test]
fn open_cursors_keep_no_page_in_memory() {
    let w = filled(3000);
    // More cursors than frames, each on an entry of its own.
    let mut cursors: Vec<_> =
        (0..3 * FRAMES as u64).map(|n| (n, Cursor::new(w.tree.clone(), Access::Normal))).collect();
    for (n, cursor) in &mut cursors {
        assert!(cursor.seek(Seek::AtLeast(&key(5 * *n))).unwrap());
    }
    evict_all(&w);
    assert_eq!(w.pages.pool().free_frames(), FRAMES);
    for (n, cursor) in &mut cursors {
        assert_eq!(cursor.key(), key(5 * *n), "what was copied stays");
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), key(5 * *n + 1));
    }
}

#[test]
fn a_cursor_whose_leaf_is_evicted_before_each_step_reads_all_both_ways() {
    let w = filled(1500);
    let mut all: Vec<_> = (0..1500).map(key).collect();
    for (backward, first) in [(false, Seek::First), (true, Seek::Last)] {
        for checked in [false, true] {
            let mut cursor = Cursor::new(w.tree.clone(), Access::Normal);
            if checked {
                cursor.set_checked();
            }
            assert!(cursor.seek(first).unwrap());
            let found = rest(&mut cursor, backward, || _ = testing::evict_all(&w.pages));
            assert!(found == all, "backward {backward}, checked {checked}");
        }
        all.reverse();
    }
}

/// Where a cursor is in the middle of a leaf, its leaf leaves memory, and this happens before it comes back.
fn changed_while_away(change: impl Fn(&World), left: impl Fn(u64) -> bool) {
    for (backward, to) in
        [(false, Seek::AtLeast(b"key/000500" as &[u8])), (true, Seek::AtMost(b"key/000500"))]
    {
        // Before and after the change: it meets the leaf in memory, or has to load it.
        for evicts in [[true, true], [true, false], [false, true], [false, false]] {
            let w = filled(1500);
            let mut cursor = Cursor::new(w.tree.clone(), Access::Normal);
            assert!(cursor.seek(to).unwrap());
            if evicts[0] {
                evict_all(&w);
            }
            change(&w);
            if evicts[1] {
                evict_all(&w);
            }
            let found = rest(&mut cursor, backward, || {});
            let mut expected: Vec<_> = if backward {
                (0..500).rev().filter(|n| left(*n)).map(key).collect()
            } else {
                (501..1500).filter(|n| left(*n)).map(key).collect()
            };
            expected.insert(0, key(500));
            assert!(
                found == expected,
                "backward {backward}, evicted {evicts:?}: {} not {}",
                found.len(),
                expected.len()
            );
            let report = w.tree.check(&mut |_, _| {}).unwrap();
            assert!(report.faults.is_empty());
        }
    }
}

#[test]
fn a_cursor_continues_at_its_position_in_a_split_leaf() {
    changed_while_away(
        |w| {
            // Larger values: there is room for a third of them.
            for n in 440..560 {
                w.tree
                    .modify(&mut Hint::default(), &key(n), Plan::put(400), |spot| {
                        spot.put(&[2; 400]);
                        Ok::<_, TreeError>(Flow::Done)
                    })
                    .unwrap();
            }
        },
        |_| true,
    );
}

#[test]
fn a_cursor_continues_behind_a_merged_leaf() {
    let left = |n: u64| !(300..700).contains(&n);
    changed_while_away(|w| (300..700).for_each(|n| assert!(w.tree.remove(&key(n)).unwrap())), left);
}

#[test]
fn a_cursor_continues_from_an_entry_removed_under_it() {
    changed_while_away(|w| assert!(w.tree.remove(&key(500)).unwrap()), |_| true);
}

#[test]
fn a_tree_that_becomes_empty_under_the_cursor_ends_it() {
    changed_while_away(|w| (0..1500).for_each(|n| assert!(w.tree.remove(&key(n)).unwrap())), |_| false);
}

/// Some cursors go up and down in a tree that others change, while its pages leave memory at random moments. Every third key stays for ever.
fn with_random_evictions(seed: u64, steps: usize) {
    const KEYS: u64 = 1200;
    let stays = |n: u64| n.is_multiple_of(3);
    let w = world(60);
    let mut dice = Dice(seed);
    let mut model = Model::new();
    let number = |key: &[u8]| std::str::from_utf8(&key[4..]).unwrap().parse::<u64>().unwrap();
    let set = |model: &mut Model, n: u64, len: usize, fill: u8| {
        w.tree
            .modify(&mut Hint::default(), &key(n), Plan::put(len), |spot| {
                spot.put(&vec![fill; len]);
                Ok::<_, TreeError>(Flow::Done)
            })
            .unwrap();
        model.insert(key(n), vec![fill; len]);
        if w.pages.pool().dirty_frames() > 20 {
            testing::flush_all(&w.pages, &w.below);
        }
    };
    (0..KEYS).filter(|n| stays(*n)).for_each(|n| set(&mut model, n, 50, 0));
    let mut cursors: Vec<Cursor> = (0..6).map(|_| Cursor::new(w.tree.clone(), Access::Normal)).collect();
    // Half of them see each entry as it is now.
    cursors.iter_mut().skip(3).for_each(Cursor::set_checked);
    for step in 0..steps {
        let at = format!("seed {seed} step {step}");
        match dice.below(12) {
            0 => evict_all(&w),
            1..5 => {
                // Values of all sizes split leaves; a range of removed ones merges them.
                let (n, len) = (dice.below(KEYS), [20, 100, 900, 2500][dice.below(4) as usize]);
                set(&mut model, n, len, dice.next() as u8);
            }
            5 => {
                let from = dice.below(KEYS);
                for n in (from..KEYS.min(from + dice.below(150))).filter(|n| !stays(*n)) {
                    assert_eq!(w.tree.remove(&key(n)).unwrap(), model.remove(&key(n)).is_some(), "{at}");
                    if w.pages.pool().dirty_frames() > 20 {
                        testing::flush_all(&w.pages, &w.below);
                    }
                }
            }
            _ => {
                let which = dice.below(cursors.len() as u64) as usize;
                let (cursor, checked) = (&mut cursors[which], which >= 3);
                if !cursor.is_valid() || dice.below(60) == 0 {
                    let to = key(dice.below(KEYS));
                    let found = cursor.seek(Seek::AtLeast(&to)).unwrap();
                    let next = model.range::<Vec<u8>, _>(&to..).next();
                    assert_eq!(found.then(|| cursor.key()), next.map(|(key, _)| &key[..]), "{at}");
                    continue;
                }
                for _ in 0..1 + dice.below(6) {
                    if dice.below(4) == 0 {
                        evict_all(&w);
                    }
                    let backward = dice.below(4) == 0;
                    let before = cursor.key().to_vec();
                    let moved = if backward { cursor.prev() } else { cursor.next() }.unwrap();
                    // The keys that it came past.
                    let bounds = match (backward, moved) {
                        (false, true) => (number(&before) + 1, number(cursor.key())),
                        (true, true) => (number(cursor.key()) + 1, number(&before)),
                        (false, false) => (number(&before) + 1, KEYS),
                        (true, false) => (0, number(&before)),
                    };
                    assert!(bounds.0 <= bounds.1, "{at}: from {before:?} to {:?}", cursor.key());
                    let skipped = (bounds.0..bounds.1).find(|n| stays(*n));
                    assert_eq!(skipped, None, "{at}: skipped");
                    if checked {
                        let next = match backward {
                            false => {
                                model.range::<Vec<u8>, _>((Bound::Excluded(&before), Bound::Unbounded)).next()
                            }
                            true => model.range::<Vec<u8>, _>(..&before).next_back(),
                        };
                        let here = moved.then(|| (cursor.key(), cursor.value()));
                        assert!(here == next.map(|(key, value)| (&key[..], &value[..])), "{at}");
                    }
                    if !moved {
                        break;
                    }
                }
            }
        }
    }
    let report = checked(&w.tree);
    assert_eq!(report.rows, model.len() as u64);
}

#[test]
fn cursors_agree_with_a_map_while_their_leaves_are_evicted_and_changed() {
    (0..10).for_each(|seed| with_random_evictions(seed, 3000));
}

#[test]
#[ignore = "plants a bug in the whole process: make planted"]
fn planted_trust_in_a_stale_position_is_found() {
    crate::planted::LOST_PLACE_TRUSTED.set(true);
    let splits = std::panic::catch_unwind(a_cursor_continues_at_its_position_in_a_split_leaf).is_err();
    let seed = (0..10).find(|seed| std::panic::catch_unwind(|| with_random_evictions(*seed, 3000)).is_err());
    crate::planted::LOST_PLACE_TRUSTED.set(false);
    println!("found with seed {seed:?}");
    assert!(splits && seed.is_some());
}
