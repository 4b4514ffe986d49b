//! What trees look like after certain histories, and what is refused.

use super::*;
use crate::tree::descend::{Notes, Target};
use crate::tree::node::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

#[test]
fn ascending_inserts_leave_full_leaves() {
    let w = world(2000);
    for n in 0u64..20_000 {
        w.tree.put(&n.to_be_bytes(), &[7; 100]).unwrap();
    }
    let report = checked(&w.tree);
    let fill = report.leaf_bytes / report.leaves;
    assert!(fill > node::CAPACITY as u64 * 90 / 100, "leaves are filled to {fill} bytes");
}

/// A traversal that came by a page without a parent entry may be late to post it: others have posted it, and cut the parent there since.
#[test]
fn a_split_that_is_posted_late_is_posted_once() {
    let w = world(8000);
    for n in 0u64..16_000 {
        w.tree.put(&n.to_be_bytes(), &[7; 3000]).unwrap();
    }
    assert!(w.tree.root_level().unwrap() >= 2);
    let first = w.tree.descend(Target::At(&[]), 1, Access::Internal, &mut Notes::default()).unwrap();
    let (mut next, mut parents) = (first.map(|guard| guard.pin()), 0);
    while let Some(parent) = next.take() {
        let (children, right) = {
            let guard = parent.read();
            let node = Node::new(guard.page());
            ([0, node.count() / 2, node.count() - 1].map(|slot| node.child(slot)), node.right())
        };
        children.into_iter().for_each(|child| w.tree.finish(child).unwrap());
        parents += 1;
        next = right.and_then(|page| w.tree.load_if_there(page).unwrap());
    }
    assert!(parents > 1, "{parents} parents: none was cut");
    checked(&w.tree);
    replay_gives_the_same_pages(&w);
}

/// Writers that each append to a range of their own, one after the other, a few keys at a time.
#[test]
fn runs_in_many_places_leave_full_leaves() {
    for (name, ascend) in [("ascending", true), ("descending", false)] {
        let w = world(4000);
        let (mut dice, mut next) = (Dice(4), [0u32; 20]);
        for _ in 0..12_000 {
            let run = dice.below(20);
            for _ in 0..5 {
                let n = &mut next[run as usize];
                *n += 1;
                let key = [(run as u32).to_be_bytes(), if ascend { *n } else { u32::MAX - *n }.to_be_bytes()]
                    .concat();
                assert!(w.tree.put(&key, &[7; 100]).unwrap());
            }
        }
        let report = checked(&w.tree);
        assert_eq!(report.rows, 60_000);
        let fill = report.leaf_bytes / report.leaves;
        assert!(fill > node::CAPACITY as u64 * 85 / 100, "{name}: leaves are filled to {fill} bytes");
        replay_gives_the_same_pages(&w);
    }
}

/// Runs of entries of every size, up to the longest, with others between them: nothing is lost at a cut.
#[test]
fn runs_of_wild_entries_are_whole() {
    let w = world(4000);
    let (mut dice, mut model) = (Dice(5), BTreeMap::new());
    for run in 0..600u64 {
        let (start, ascend) = (dice.below(1 << 20), dice.below(2) == 0);
        let shared = vec![b'k'; [0, 1, 200, 3400][dice.below(4) as usize]];
        for n in 0..1 + dice.below(20) {
            let at = if ascend { start + n } else { start - n.min(start) };
            let key = [&shared[..], &at.to_be_bytes()].concat();
            let long = dice.below(8) == 0;
            let value = vec![
                run as u8;
                dice.below(if long { max_inline_value(key.len()) as u64 } else { 80 }) as usize
            ];
            w.tree.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    let mut all = model.iter();
    w.tree.check(&mut |key, value| assert!(all.next().is_some_and(|(k, v)| k == key && v == value))).unwrap();
    assert!(all.next().is_none());
    checked(&w.tree);
    replay_gives_the_same_pages(&w);
}

/// Keys that come in small groups of neighbours at random places are no runs.
#[test]
fn groups_at_random_places_leave_leaves_two_thirds_full() {
    let w = world(2000);
    let mut dice = Dice(6);
    for _ in 0..4_000 {
        let group = dice.next().to_be_bytes();
        for n in 0u8..5 {
            w.tree.put(&[&group[..], &[n]].concat(), &[7; 100]).unwrap();
        }
    }
    let report = checked(&w.tree);
    let fill = report.leaf_bytes / report.leaves;
    assert!(fill > node::CAPACITY as u64 * 60 / 100, "leaves are filled to {fill} bytes");
}

/// Rows of many lengths leave a sixteenth, which is enough for some of them to grow; those of one length leave nothing.
#[test]
fn rows_that_differ_in_length_leave_room_to_grow() {
    for (spread, keeps) in [(20, true), (1, false)] {
        let w = world(2000);
        w.tree.leave_room_to_grow();
        let mut dice = Dice(7);
        for n in 0u64..10_000 {
            w.tree.put(&n.to_be_bytes(), &vec![7; 90 + dice.below(spread) as usize]).unwrap();
        }
        let before = checked(&w.tree);
        let fill = before.leaf_bytes / before.leaves;
        assert!(fill > node::CAPACITY as u64 * 86 / 100, "leaves are filled to {fill} bytes");
        for n in (0u64..10_000).step_by(8) {
            w.tree.put(&n.to_be_bytes(), &[8; 170]).unwrap();
        }
        let after = checked(&w.tree);
        let more = (after.leaves - before.leaves) * 100 / before.leaves;
        assert_eq!(more < 10, keeps, "{} leaves, then {}", before.leaves, after.leaves);
        replay_gives_the_same_pages(&w);
    }
}

#[test]
fn random_inserts_leave_leaves_two_thirds_full() {
    let w = world(2000);
    let mut dice = Dice(3);
    for _ in 0..20_000 {
        w.tree.put(&dice.next().to_be_bytes(), &[7; 100]).unwrap();
    }
    let report = checked(&w.tree);
    let fill = report.leaf_bytes / report.leaves;
    assert!(fill > node::CAPACITY as u64 * 60 / 100, "leaves are filled to {fill} bytes");
}

#[test]
fn an_emptied_tree_is_a_single_leaf_again_and_its_pages_are_reused() {
    let w = world(2000);
    let mut pages = 0;
    for round in 0..3 {
        for n in 0u64..5_000 {
            w.tree.put(&n.to_be_bytes(), &[round; 200]).unwrap();
        }
        let report = checked(&w.tree);
        assert!(report.levels > 0);
        let keys: Vec<_> = (0u64..5_000).map(u64::to_be_bytes).collect();
        match round {
            0 => assert!(keys.iter().all(|key| w.tree.remove(key).unwrap())),
            _ => {
                let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
                let ranges = w.log.records.lock().len();
                w.tree.sweep(&mut &keys[..], Urgency::Normal, |_| false).unwrap();
                assert_eq!(w.tree.rows(), 5_000);
                w.tree.sweep(&mut &keys[..], Urgency::Normal, |_| true).unwrap();
                let ranges = w.log.records.lock().len() - ranges;
                assert!(ranges < 1500, "{ranges} records for 5000 neighbours");
            }
        }
        let report = checked(&w.tree);
        assert!(report.levels == 0 && report.rows == 0, "{report:?}");
        let counts = w.tree.space().counts();
        assert_eq!(counts.pages - counts.free, 2, "header and root");
        if round > 0 {
            assert!(counts.pages <= pages + 4, "{} pages, {pages} a round before", counts.pages);
        }
        pages = counts.pages;
    }
}

#[test]
fn an_update_in_place_logs_only_what_changed() {
    let w = world(100);
    w.tree.put(b"key", &[1; 1000]).unwrap();
    w.log.records.lock().clear();
    let mut value = [1; 1000];
    value[10] = 2;
    value[900..904].fill(3);
    w.tree.put(b"key", &value).unwrap();
    let bytes: usize = w.log.records.lock().iter().map(|(_, ops, _)| ops.len()).sum();
    assert!(bytes < 24, "{bytes} bytes of redo");
}

#[test]
fn an_insert_logs_little_more_than_the_entry() {
    let w = world(100);
    for n in 0u64..50 {
        w.tree.put(&(2 * n).to_be_bytes(), &[1; 100]).unwrap();
    }
    w.log.records.lock().clear();
    w.tree.put(&51u64.to_be_bytes(), &[1; 100]).unwrap();
    let bytes: usize = w.log.records.lock().iter().map(|(_, ops, _)| ops.len()).sum();
    assert!(bytes < 108 + 45, "{bytes} bytes of redo");
}

#[test]
fn ascending_inserts_log_little_more_than_their_entries() {
    let w = world(2000);
    for n in 0u64..20_000 {
        w.tree.put(&n.to_be_bytes(), &[1; 100]).unwrap();
    }
    let bytes: usize = w.log.records.lock().iter().map(|(_, ops, _)| ops.len()).sum();
    assert!(bytes / 20_000 < 108 + 75, "{} bytes of redo an insert", bytes / 20_000);
}

#[test]
fn keys_and_entries_that_are_too_long_are_refused() {
    let w = world(100);
    assert!(matches!(w.tree.put(&[0; MAX_KEY + 1], &[]), Err(TreeError::KeyTooLong { .. })));
    let value = vec![0; max_inline_value(3) + 1];
    assert!(matches!(w.tree.put(b"key", &value), Err(TreeError::EntryTooLarge { .. })));
    w.tree.put(b"key", &value[1..]).unwrap();
    w.tree.put(&[0; MAX_KEY], &[9; MAX_INLINE_VALUE]).unwrap();
}

#[test]
fn the_next_key_is_found_across_empty_leaves() {
    let w = world(500);
    for n in 0u64..300 {
        w.tree.put(&n.to_be_bytes(), &[1; 1000]).unwrap();
    }
    for n in 100u64..200 {
        w.tree.remove(&n.to_be_bytes()).unwrap();
    }
    let mut next = Vec::new();
    w.tree
        .modify(&mut Hint::default(), &99u64.to_be_bytes(), Plan::remove(), |spot| {
            assert_eq!(spot.next_key(&mut next)?, NextKey::Found);
            Ok::<_, TreeError>(Flow::Done)
        })
        .unwrap();
    assert_eq!(next, 200u64.to_be_bytes());
}

#[test]
fn a_decision_that_fails_changes_nothing() {
    let w = world(100);
    w.tree.put(b"a", b"1").unwrap();
    let log_end = w.pages.redo().appended();
    let result =
        w.tree.modify(&mut Hint::default(), b"a", Plan::put(9), |_| Err::<Flow, _>(TreeError::Bulk("no")));
    assert!(result.is_err());
    assert_eq!(w.pages.redo().appended(), log_end);
}

#[test]
fn a_checked_cursor_sees_each_entry_as_it_is_when_reached() {
    let w = world(500);
    for n in (0u64..400).step_by(2) {
        w.tree.put(&n.to_be_bytes(), &[1; 100]).unwrap();
    }
    for changes in [1, 7, 40] {
        let mut cursor = Cursor::new(w.tree.clone(), Access::Normal);
        cursor.set_checked();
        let mut expected = BTreeSet::from_iter((0u64..400).step_by(2));
        let (mut step, mut seen) = (0, 0);
        let mut valid = cursor.seek(Seek::First).unwrap();
        // Up, then down again.
        for up in [true, false] {
            while valid {
                let at = u64::from_be_bytes(cursor.key().try_into().unwrap());
                assert!(expected.contains(&at), "{at}, {up}");
                seen += 1;
                step += 1;
                if step % changes == 0 {
                    // The one that comes next goes, or one comes before it.
                    let next =
                        if up { expected.range(at + 1..).next() } else { expected.range(..at).next_back() };
                    let Some(next) = next.copied() else { break };
                    let between = if up { at + 1 } else { at.saturating_sub(1) };
                    if step % 2 == 0 || between == next {
                        assert!(w.tree.remove(&next.to_be_bytes()).unwrap());
                        expected.remove(&next);
                    } else {
                        assert!(w.tree.put(&between.to_be_bytes(), b"new").unwrap());
                        expected.insert(between);
                    }
                }
                let next =
                    if up { expected.range(at + 1..).next() } else { expected.range(..at).next_back() };
                valid = if up { cursor.next().unwrap() } else { cursor.prev().unwrap() };
                assert_eq!(next.is_some(), valid);
                if let Some(next) = next {
                    assert_eq!(cursor.key(), next.to_be_bytes(), "after {at}, {up}");
                }
            }
            valid = cursor.seek(Seek::Last).unwrap();
        }
        assert!(seen > 200, "{seen} seen");
        for n in (0u64..400).step_by(2) {
            w.tree.put(&n.to_be_bytes(), &[1; 100]).unwrap();
        }
        for n in (1u64..400).step_by(2) {
            w.tree.remove(&n.to_be_bytes()).unwrap();
        }
    }
    checked(&w.tree);
}

#[test]
fn a_count_that_lost_rows_is_corrected() {
    for rows in [0u64, 50, 3_000, 60_000] {
        let w = world(4000);
        (0..rows).for_each(|n| _ = w.tree.put(&n.to_be_bytes(), &[1; 100]).unwrap());
        w.tree.recount().unwrap();
        assert_eq!(w.tree.rows(), rows, "what is right stays");
        for wrong in [-(rows as i64 / 2) - 7, 40 + rows as i64] {
            w.tree.rows_since.fetch_add(wrong, Ordering::Relaxed);
            w.tree.recount().unwrap();
            let off = w.tree.rows().abs_diff(rows);
            assert!(off <= if rows > 10_000 { rows / 10 } else { 0 }, "{} of {rows}", w.tree.rows());
        }
    }
}

#[test]
fn rows_that_the_count_did_not_know_of_are_not_set_off_against_new_ones() {
    let w = world(100);
    (0u64..20).for_each(|n| _ = w.tree.put(&n.to_be_bytes(), &[1; 10]).unwrap());
    w.tree.rows_since.store(0, Ordering::Relaxed); // as a crash leaves it
    (0u64..20).for_each(|n| _ = w.tree.remove(&n.to_be_bytes()).unwrap());
    assert_eq!(w.tree.rows(), 0);
    (0u64..10).for_each(|n| _ = w.tree.put(&n.to_be_bytes(), &[1; 10]).unwrap());
    assert_eq!(w.tree.rows(), 10);
}

/// Values lose the letters that they begin with.
struct Letters;

impl Shorten for Letters {
    fn shorter<'v>(&self, value: &'v [u8], _: &'v mut Vec<u8>) -> &'v [u8] {
        let letters = value.iter().take_while(|byte| **byte == b'x').count();
        &value[letters..]
    }
}

/// More than half of each value goes when its leaf is full: the tree needs far fewer leaves, and nothing else changes. Values that
/// grow again, in leaves that are full of short ones, find room.
#[test]
fn values_of_full_leaves_are_shortened() {
    let value = |n: u64| [&[b'x'; 14][..], &n.to_be_bytes()].concat();
    let mut leaves = Vec::new();
    for shortens in [false, true] {
        let w = world(2000);
        if shortens {
            w.tree.shorten_by(Arc::new(Letters));
        }
        let long = |n: u64| [&[b'x'; 20][..], &n.to_be_bytes()].concat();
        let mut dice = Dice(11);
        let mut keys = Vec::new();
        for n in 0u64..30_000 {
            keys.push(dice.next());
            w.tree.put(&keys[n as usize].to_be_bytes(), &value(n)).unwrap();
        }
        leaves.push(checked(&w.tree).leaves);
        for n in (0..30_000).step_by(3) {
            w.tree.put(&keys[n].to_be_bytes(), &long(n as u64)).unwrap();
        }
        checked(&w.tree);
        for n in 0..30_000 {
            let wanted = if n % 3 == 0 { long(n as u64) } else { value(n as u64) };
            w.tree
                .get(&keys[n].to_be_bytes(), Access::Normal, |found| {
                    let found = found.expect("it is there");
                    let short = &wanted[wanted.len() - 8..];
                    assert!(found == wanted || shortens && found == short, "key {n}: {found:?}");
                })
                .unwrap();
        }
        replay_gives_the_same_pages(&w);
    }
    assert!(leaves[1] * 5 < leaves[0] * 4, "{leaves:?}");
}
