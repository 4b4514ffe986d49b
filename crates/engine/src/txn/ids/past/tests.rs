use super::*;
use std::collections::BTreeMap;

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % below
}

#[test]
fn agrees_with_a_table_of_all_ended_transactions() {
    for seed in 1..=12 {
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed);
        let (mut past, mut all) = (Past::new(0), BTreeMap::new());
        let (mut active, mut waiting, mut views) = (Vec::new(), Vec::new(), Vec::<u64>::new());
        let mut number = 0;
        for _ in 0..2000 {
            number += 1;
            match random(&mut seed, 12) {
                0..=3 => active.push(number),
                4..=7 if !active.is_empty() => {
                    let id = active.swap_remove(random(&mut seed, active.len() as u64) as usize);
                    waiting.push(End { id, at: number });
                }
                8 => views.push(number),
                9 if !views.is_empty() => _ = views.remove(random(&mut seed, views.len() as u64) as usize),
                10 => {
                    waiting.sort_unstable_by_key(|end| end.id);
                    past.add(&waiting, &views);
                    all.extend(waiting.drain(..).map(|end| (end.id, end)));
                }
                11 => past.tidy(&views, random(&mut seed, 2) == 0),
                _ => {}
            }
            for view in views.iter().copied().chain([number]) {
                for end in all.values() {
                    assert_eq!(past.sees(view, end.id), end.at <= view, "{end:?} at {view} of {views:?}");
                }
            }
            assert!(past.entries.is_sorted_by(|a, b| a.0 < b.0 && a.1 != b.1));
            if number > 300 {
                all.retain(|_, end| end.at + 300 > number);
            }
        }
        past.tidy(&[], false);
        assert_eq!(past.entries(), 0);
    }
}

#[test]
fn a_million_commits_behind_two_readers_are_a_few_entries() {
    let mut past = Past::new(0);
    let mut id = 0;
    let mut commit = |past: &mut Past, views: &[u64]| {
        let ended: Vec<End> = (0..1000).map(|n| End { id: id + 2 * n + 1, at: id + 2 * n + 2 }).collect();
        id += 2000;
        past.add(&ended, views);
        id
    };
    let between = (0..500).map(|_| commit(&mut past, &[10])).last().unwrap();
    (0..500).for_each(|_| _ = commit(&mut past, &[10, between]));
    assert!(past.entries() <= 4, "{:?}", past.entries);
    assert!(
        past.sees(10, 9) && !past.sees(10, 11) && past.sees(between, 11) && past.sees(between, between - 1)
    );
    assert!(!past.sees(between, between + 1) && past.sees(2_000_000, between + 1));
    past.tidy(&[between], false);
    assert_eq!(past.entries(), 1);
}

#[test]
fn a_rolled_back_orphan_hides_no_transaction_from_before_the_crash() {
    let mut past = Past::new(100);
    past.add(&[End { id: 50, at: 102 }], &[101]);
    assert!(past.sees(101, 49) && !past.sees(101, 50) && past.sees(101, 51) && past.sees(101, 99));
}
