use super::*;
use crate::page::spread;
use crate::page::{PageId, SpaceId};
use std::collections::BTreeMap;

/// Few enough marks that many slots share one.
fn mark(n: u64) -> u32 {
    (spread(PageId::new(SpaceId(9), n as u32)) >> 32) as u32
}

struct Dice(u64);
impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        spread(PageId::new(SpaceId((self.0 >> 32) as u32), self.0 as u32)) % n
    }
}

fn filled(index: &mut Index, mark: u32) -> FlashSlot {
    let slot = index.fill(mark, 0).unwrap();
    index.settle(slot);
    slot
}

#[test]
fn it_agrees_with_a_plain_map_under_any_sequence() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let slots = 1 + dice.below(50) as u32;
        let mut index = Index::new(slots);
        let mut model: BTreeMap<FlashSlot, u32> = BTreeMap::new();
        let mut busy: Vec<FlashSlot> = Vec::new();
        for _ in 0..2000 {
            let m = mark(dice.below(30));
            match dice.below(10) {
                0..4 => {
                    if let Some(slot) = index.fill(m, 0) {
                        assert!(!busy.contains(&slot), "seed {seed}: a busy slot was given away");
                        model.insert(slot, m);
                        busy.push(slot);
                    } else {
                        let below = busy.iter().filter(|slot| **slot < index.limit()).count();
                        assert_eq!(below, index.limit() as usize, "seed {seed}");
                    }
                }
                4..7 if !busy.is_empty() => {
                    let slot = busy.swap_remove(dice.below(busy.len() as u64) as usize);
                    index.settle(slot);
                }
                7 => {
                    for slot in index.matches(m) {
                        index.remove(slot);
                        model.remove(&slot);
                    }
                }
                8 => {
                    let slot = dice.below(u64::from(slots)) as u32;
                    let was = model.get(&slot) == Some(&m) && !busy.contains(&slot);
                    assert_eq!(index.remove_if(slot, m), was, "seed {seed}");
                    if was {
                        model.remove(&slot);
                    }
                }
                9 if dice.below(100) == 0 => {
                    let limit = dice.below(u64::from(slots) + 1) as u32;
                    index.shrink(limit);
                    model.retain(|slot, _| *slot < index.limit());
                }
                _ => index.touch(dice.below(u64::from(slots)) as u32, m),
            }
            let mut found: Vec<_> = index.matches(m).to_vec();
            found.sort_unstable();
            let expected: Vec<_> = model.iter().filter(|(_, x)| **x == m).map(|(s, _)| *s).collect();
            assert_eq!(found, expected, "seed {seed}");
        }
        index.check_invariants();
        assert_eq!(index.in_use() as usize, model.len());
    }
}

#[test]
fn slots_are_first_used_in_the_order_of_the_device() {
    let mut index = Index::new(8);
    let slots: Vec<_> = (0..8).map(|n| filled(&mut index, mark(n))).collect();
    assert_eq!(slots, (0..8).collect::<Vec<_>>());
    let next: Vec<_> = (8..12).map(|n| filled(&mut index, mark(n))).collect();
    assert_eq!(next, [0, 1, 2, 3], "and then reused in that order");
}

#[test]
fn a_page_that_was_used_is_spared_once() {
    let mut index = Index::new(4);
    (0..4).for_each(|n| _ = filled(&mut index, mark(n)));
    index.touch(1, mark(1));
    assert_eq!(filled(&mut index, mark(4)), 0);
    assert_eq!(filled(&mut index, mark(5)), 2, "slot 1 was spared");
    assert_eq!(filled(&mut index, mark(6)), 3);
    assert_eq!(filled(&mut index, mark(7)), 0);
    assert_eq!(filled(&mut index, mark(8)), 1, "but only once");
}

#[test]
fn a_free_slot_is_used_before_a_page_is_thrown_out() {
    let mut index = Index::new(4);
    (0..4).for_each(|n| _ = filled(&mut index, mark(n)));
    index.remove(2);
    assert_eq!(filled(&mut index, mark(9)), 2);
    index.check_invariants();
}

#[test]
fn the_clock_hand_ends_when_every_page_is_in_use() {
    let slots = 3 * WALK_MAX;
    let mut index = Index::new(slots);
    (0..slots).for_each(|n| _ = filled(&mut index, mark(u64::from(n))));
    (0..slots).for_each(|n| index.touch(n, mark(u64::from(n))));
    assert_eq!(filled(&mut index, 1), WALK_MAX);
}

#[test]
fn an_index_without_slots_holds_nothing() {
    let mut index = Index::new(0);
    assert_eq!(index.fill(7, 0), None);
    assert!(index.matches(7).is_empty());
}

#[test]
fn the_candidate_is_the_one_that_leaves_unless_it_is_passed() {
    let mut index = Index::new(4);
    let slots: Vec<FlashSlot> = (0..3).map(|n| filled(&mut index, mark(n))).collect();
    assert_eq!(index.candidate(0), None, "a slot is free");
    filled(&mut index, mark(3));
    index.touch(slots[0], mark(0));
    assert_eq!(index.candidate(0), Some((slots[1], mark(1))), "the first one was used");
    assert_eq!(index.candidate(0), Some((slots[1], mark(1))), "asking again moves nothing");
    assert_eq!(filled(&mut index, mark(9)), slots[1]);
    assert_eq!(index.candidate(0), Some((slots[2], mark(2))));
    index.pass(slots[2]);
    index.pass(slots[0]);
    assert_eq!(
        index.candidate(0).map(|(_, mark)| mark),
        Some(mark(3)),
        "only where the hand is can be passed"
    );
    index.check_invariants();
    let mut none = Index::new(0);
    assert_eq!(none.candidate(0), None);
}

/// Its slot came free in the list and once more as a fresh one, and two pages were given it.
#[test]
fn a_slot_that_was_cut_off_while_it_was_written_to_is_given_away_once() {
    for size in [8, 16] {
        let mut index = Index::new(8);
        (0..7).for_each(|n| _ = filled(&mut index, mark(n)));
        let busy = index.fill(mark(7), 0).unwrap();
        // It is made smaller, and that is given up: or the device is full, and then there is more of it.
        index.shrink(4);
        index.resize(size);
        index.settle(busy);
        index.check_invariants();
        let slots: std::collections::BTreeSet<FlashSlot> =
            (0..size - 4).map(|n| filled(&mut index, mark(100 + u64::from(n)))).collect();
        assert_eq!(slots.len() as u32, size - 4, "{slots:?}");
        index.check_invariants();
    }
}
