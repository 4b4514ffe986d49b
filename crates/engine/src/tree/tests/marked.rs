//! Entries marked deleted: what the counts, estimates and samples make of them.

use super::beside::built;
use super::*;
use std::ops::Bound;

/// A tree of numbers below 60,000 whose values begin with 1 where they are marked deleted, as those that `marks` says yes to are.
fn marked_tree(marks: impl Fn(u64) -> bool) -> World {
    let entries: Vec<_> = (0u64..60_000).map(|n| (n.to_be_bytes().to_vec(), vec![0; 100])).collect();
    let w = built(&entries, 90);
    w.tree.mark_by(|value| value.first() == Some(&1));
    for n in (0..60_000).filter(|n| marks(*n)) {
        w.tree
            .modify(&mut Hint::default(), &n.to_be_bytes(), Plan::remove(), |spot| {
                spot.put_start(&[1]);
                Ok::<_, TreeError>(Flow::Done)
            })
            .unwrap();
    }
    w
}

fn estimated(tree: &Tree, low: u64, high: Option<u64>) -> u64 {
    let (low, high) = (low.to_be_bytes(), high.map(u64::to_be_bytes));
    let high = high.as_ref().map_or(Bound::Unbounded, |high| Bound::Excluded(&high[..]));
    tree.estimate_range(Bound::Included(&low), high).unwrap().rows
}

#[test]
fn entries_marked_deleted_are_no_rows_of_the_count_a_range_or_a_sample() {
    let w = marked_tree(|n| n % 10 != 0);
    assert_eq!(w.tree.rows(), 6_000);
    for (low, high) in [(0, None), (0, Some(60_000)), (100, Some(300)), (5_000, Some(35_000)), (59_000, None)]
    {
        let (rows, exact) = (estimated(&w.tree, low, high), (high.unwrap_or(60_000) - low) / 10);
        assert!(rows.abs_diff(exact) <= exact / 5, "{rows} for {exact}");
    }
    let sampled = w.tree.sample_leaf(0.5).unwrap();
    assert!(
        !sampled.is_empty()
            && sampled.iter().all(|key| u64::from_be_bytes(key[..8].try_into().unwrap()) % 10 == 0)
    );
    // Removing them, as purge does, changes nothing of it.
    (0u64..60_000).filter(|n| n % 10 != 0).for_each(|n| _ = w.tree.remove(&n.to_be_bytes()).unwrap());
    assert_eq!((w.tree.rows(), estimated(&w.tree, 0, None)), (6_000, 6_000));
    checked(&w.tree);
}

#[test]
fn an_empty_range_and_a_full_one_are_distinguished_though_most_entries_are_marked() {
    let w = marked_tree(|n| n < 54_000);
    assert_eq!(w.tree.rows(), 6_000);
    for (low, high, least, most) in [
        (0, Some(50_000), 0, 1),
        (54_000, None, 4_800, 7_200),
        (0, None, 6_000, 6_000),
        (27_000, None, 4_800, 7_200),
        (0, Some(200), 0, 0),
    ] {
        let rows = estimated(&w.tree, low, high);
        assert!((least..=most).contains(&rows), "{rows} rows from {low} to {high:?}");
    }
}

#[test]
fn marks_that_were_there_before_the_tree_was_opened_are_not_set_off_against_new_ones() {
    let w = marked_tree(|n| n < 1_000);
    w.tree.marked.store(0, Ordering::Relaxed); // as one that is opened anew
    assert_eq!(w.tree.rows(), 60_000);
    (0u64..1_000).for_each(|n| _ = w.tree.remove(&n.to_be_bytes()).unwrap());
    assert_eq!(w.tree.rows(), 59_000);
    w.tree.recount().unwrap();
    assert_eq!(w.tree.rows(), 59_000);
    let w = marked_tree(|n| n % 2 == 0);
    w.tree.marked.store(0, Ordering::Relaxed);
    w.tree.recount().unwrap();
    assert!(w.tree.rows().abs_diff(30_000) <= 3_000, "a recount knows marks: {}", w.tree.rows());
    // A row that takes the place of a marked one counts again, by itself or with others.
    let rows = w.tree.rows();
    (0u64..100).step_by(2).for_each(|n| assert!(!w.tree.put(&n.to_be_bytes(), &[0; 100]).unwrap()));
    assert_eq!(w.tree.rows(), rows + 50);
}
