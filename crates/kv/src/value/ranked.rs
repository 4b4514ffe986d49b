//! The order of a large sorted set: its entries by (score, member), with ranks.
//!
//! Three levels of fixed depth: groups of leaves of slots. Every group knows how many slots it holds,
//! so a rank is found by adding a few counts. A leaf holds at most `LEAF_SLOTS_MAX` slots and a group at most
//! `GROUP_LEAVES_MAX` leaves; whichever grows over is cut in half, whichever becomes empty is
//! removed, and a small leaf joins its neighbour.
//!
//! A slot names its member by the member's place in the set's table: comparing two members asks the
//! table, through the function that the caller passes.
//!
//! Invariants: no empty leaf or group exists; slots ascend across all leaves; a group's count is
//! the number of its slots.

use std::cmp::Ordering;

const LEAF_SLOTS_MAX: usize = 128;
const GROUP_LEAVES_MAX: usize = 128;

/// A score and the place of its member in the table. Packed: 12 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub struct Slot {
    pub score: f64,
    pub place: u32,
}

#[derive(Debug, Clone, Default)]
struct Group {
    slots: usize,
    leaves: Vec<Vec<Slot>>,
}

#[derive(Debug, Clone, Default)]
pub struct Ranked {
    groups: Vec<Group>,
    len: usize,
    /// Heap bytes of the leaves.
    leaf_bytes: usize,
}

/// Where a slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    group: usize,
    leaf: usize,
    slot: usize,
}

impl Ranked {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn heap_bytes(&self) -> usize {
        self.leaf_bytes
            + self.groups.iter().map(|group| group.leaves.capacity() * size_of::<Vec<Slot>>()).sum::<usize>()
            + self.groups.capacity() * size_of::<Group>()
    }

    /// The first slot that isn't before the sought one. `order` compares a slot with what is sought.
    fn lower(&self, order: &mut impl FnMut(Slot) -> Ordering) -> Spot {
        let last_of = |leaf: &Vec<Slot>| leaf[leaf.len() - 1];
        let group = self
            .groups
            .partition_point(|group| order(last_of(&group.leaves[group.leaves.len() - 1])) == Ordering::Less);
        let Some(leaves) = self.groups.get(group).map(|group| &group.leaves) else {
            return Spot { group, leaf: 0, slot: 0 };
        };
        let leaf = leaves.partition_point(|leaf| order(last_of(leaf)) == Ordering::Less);
        let slot = leaves[leaf].partition_point(|&slot| order(slot) == Ordering::Less);
        Spot { group, leaf, slot }
    }

    fn rank_of_spot(&self, spot: Spot) -> usize {
        let before: usize = self.groups[..spot.group].iter().map(|group| group.slots).sum();
        match self.groups.get(spot.group) {
            Some(group) => before + group.leaves[..spot.leaf].iter().map(Vec::len).sum::<usize>() + spot.slot,
            None => before,
        }
    }

    fn spot_of_rank(&self, rank: usize) -> Option<Spot> {
        let mut rest = rank;
        for (group_at, group) in self.groups.iter().enumerate() {
            if rest >= group.slots {
                rest -= group.slots;
                continue;
            }
            for (leaf_at, leaf) in group.leaves.iter().enumerate() {
                if rest < leaf.len() {
                    return Some(Spot { group: group_at, leaf: leaf_at, slot: rest });
                }
                rest -= leaf.len();
            }
        }
        None
    }

    /// How many slots stand before the sought one.
    pub fn rank(&self, mut order: impl FnMut(Slot) -> Ordering) -> usize {
        let spot = self.lower(&mut order);
        self.rank_of_spot(spot)
    }

    pub fn get(&self, rank: usize) -> Option<Slot> {
        self.spot_of_rank(rank).map(|spot| self.groups[spot.group].leaves[spot.leaf][spot.slot])
    }

    /// Inserts a slot before the first one that `order` doesn't find to be less than it.
    pub fn insert(&mut self, new: Slot, mut order: impl FnMut(Slot) -> Ordering) {
        self.len += 1;
        if self.groups.is_empty() {
            let mut leaf = Vec::with_capacity(4);
            leaf.push(new);
            self.leaf_bytes += leaf.capacity() * size_of::<Slot>();
            self.groups.push(Group { slots: 1, leaves: vec![leaf] });
            return;
        }
        let mut spot = self.lower(&mut order);
        if spot.group == self.groups.len() {
            // After everything: at the end of the last leaf.
            spot.group -= 1;
            spot.leaf = self.groups[spot.group].leaves.len() - 1;
            spot.slot = self.groups[spot.group].leaves[spot.leaf].len();
        }
        let group = &mut self.groups[spot.group];
        group.slots += 1;
        let leaf = &mut group.leaves[spot.leaf];
        let old_capacity = leaf.capacity();
        if leaf.len() == old_capacity {
            leaf.reserve_exact((leaf.len() / 2).clamp(4, 32));
        }
        leaf.insert(spot.slot, new);
        let mut grown = leaf.capacity();
        if leaf.len() > LEAF_SLOTS_MAX {
            // Members that arrive in order leave full leaves behind them.
            let cut = if spot.slot == LEAF_SLOTS_MAX { LEAF_SLOTS_MAX * 7 / 8 } else { LEAF_SLOTS_MAX / 2 };
            let upper = leaf[cut..].to_vec();
            leaf.truncate(cut);
            leaf.shrink_to_fit();
            grown = leaf.capacity() + upper.capacity();
            group.leaves.insert(spot.leaf + 1, upper);
        }
        self.leaf_bytes = self.leaf_bytes + grown * size_of::<Slot>() - old_capacity * size_of::<Slot>();
        if group.leaves.len() > GROUP_LEAVES_MAX {
            let leaves = group.leaves.split_off(GROUP_LEAVES_MAX / 2);
            let slots = leaves.iter().map(Vec::len).sum();
            group.slots -= slots;
            self.groups.insert(spot.group + 1, Group { slots, leaves });
        }
    }

    /// Removes the slot that `order` finds equal. Returns whether it was there.
    pub fn remove(&mut self, mut order: impl FnMut(Slot) -> Ordering) -> bool {
        let spot = self.lower(&mut order);
        let Some(found) = self.groups.get(spot.group).map(|group| group.leaves[spot.leaf][spot.slot]) else {
            return false;
        };
        if order(found) != Ordering::Equal {
            return false;
        }
        self.len -= 1;
        let group = &mut self.groups[spot.group];
        group.slots -= 1;
        group.leaves[spot.leaf].remove(spot.slot);
        if group.leaves[spot.leaf].is_empty() {
            let empty = group.leaves.remove(spot.leaf);
            self.leaf_bytes -= empty.capacity() * size_of::<Slot>();
        } else if group.leaves[spot.leaf].len() < LEAF_SLOTS_MAX / 4 {
            self.join(spot);
        }
        if self.groups[spot.group].leaves.is_empty() {
            self.groups.remove(spot.group);
        }
        true
    }

    /// Joins a small leaf with the neighbour in its group, if both fit into half a leaf's limit.
    fn join(&mut self, spot: Spot) {
        let leaves = &mut self.groups[spot.group].leaves;
        let left = if spot.leaf > 0 { spot.leaf - 1 } else { spot.leaf };
        let right = left + 1;
        if right >= leaves.len() || leaves[left].len() + leaves[right].len() > LEAF_SLOTS_MAX / 2 {
            return;
        }
        let upper = leaves.remove(right);
        let before = leaves[left].capacity() + upper.capacity();
        leaves[left].extend_from_slice(&upper);
        self.leaf_bytes =
            self.leaf_bytes + leaves[left].capacity() * size_of::<Slot>() - before * size_of::<Slot>();
    }

    /// Changes the place of the member of the slot that `order` finds equal.
    pub fn set_place(&mut self, place: u32, mut order: impl FnMut(Slot) -> Ordering) {
        let spot = self.lower(&mut order);
        let slot = &mut self.groups[spot.group].leaves[spot.leaf][spot.slot];
        slot.place = place;
    }

    /// The slots from `rank` on, ascending.
    pub fn iter_from(&self, rank: usize) -> impl Iterator<Item = Slot> + '_ {
        let spot = self.spot_of_rank(rank);
        let mut at = spot.unwrap_or(Spot { group: self.groups.len(), leaf: 0, slot: 0 });
        std::iter::from_fn(move || {
            let group = self.groups.get(at.group)?;
            let leaf = &group.leaves[at.leaf];
            let slot = leaf[at.slot];
            at.slot += 1;
            if at.slot == leaf.len() {
                at = if at.leaf + 1 == group.leaves.len() {
                    Spot { group: at.group + 1, leaf: 0, slot: 0 }
                } else {
                    Spot { leaf: at.leaf + 1, slot: 0, ..at }
                };
            }
            Some(slot)
        })
    }

    /// The slots from `rank` on, descending.
    pub fn iter_back_from(&self, rank: usize) -> impl Iterator<Item = Slot> + '_ {
        let mut at = self.spot_of_rank(rank);
        std::iter::from_fn(move || {
            let spot = at?;
            let slot = self.groups[spot.group].leaves[spot.leaf][spot.slot];
            at = if spot.slot > 0 {
                Some(Spot { slot: spot.slot - 1, ..spot })
            } else if spot.leaf > 0 {
                Some(Spot {
                    leaf: spot.leaf - 1,
                    slot: self.groups[spot.group].leaves[spot.leaf - 1].len() - 1,
                    ..spot
                })
            } else if spot.group > 0 {
                let group = &self.groups[spot.group - 1];
                let leaf = group.leaves.len() - 1;
                Some(Spot { group: spot.group - 1, leaf, slot: group.leaves[leaf].len() - 1 })
            } else {
                None
            };
            Some(slot)
        })
    }

    #[cfg(test)]
    pub fn check_invariants(&self) {
        let mut len = 0;
        let mut bytes = 0;
        for group in &self.groups {
            assert!(!group.leaves.is_empty() && group.leaves.len() <= GROUP_LEAVES_MAX);
            for leaf in &group.leaves {
                assert!(!leaf.is_empty() && leaf.len() <= LEAF_SLOTS_MAX);
                bytes += leaf.capacity() * size_of::<Slot>();
            }
            assert_eq!(group.slots, group.leaves.iter().map(Vec::len).sum::<usize>());
            len += group.slots;
        }
        assert_eq!((len, bytes), (self.len, self.leaf_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(score: u32) -> impl FnMut(Slot) -> Ordering {
        move |slot| {
            let own = slot.score;
            own.partial_cmp(&f64::from(score)).unwrap()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn ranks_equal_those_of_a_sorted_vector(
            start in 0u32..40_000,
            steps in prop::collection::vec((0u8..4, 0u32..40_000), 0..3000),
        ) {
            let mut ranked = Ranked::new();
            let mut model: Vec<u32> = Vec::new();
            for score in 0..start {
                ranked.insert(Slot { score: f64::from(score), place: score }, order(score));
                model.push(score);
            }
            ranked.check_invariants();
            for (kind, value) in steps {
                match model.binary_search(&value) {
                    Ok(at) if kind > 0 => { prop_assert!(ranked.remove(order(value))); model.remove(at); }
                    Ok(at) => prop_assert_eq!(ranked.rank(order(value)), at),
                    Err(at) if kind == 1 => { ranked.insert(Slot { score: f64::from(value), place: value }, order(value)); model.insert(at, value); }
                    Err(at) => {
                        prop_assert!(!ranked.remove(order(value)));
                        prop_assert_eq!(ranked.rank(order(value)), at);
                    }
                }
            }
            ranked.check_invariants();
            prop_assert_eq!(ranked.len(), model.len());
            let from = model.len() / 3;
            prop_assert!(ranked.iter_from(from).map(|slot| slot.place).eq(model[from..].iter().copied()));
            if !model.is_empty() {
                prop_assert!(ranked.iter_back_from(from).map(|slot| slot.place).eq(model[..=from].iter().rev().copied()));
                prop_assert_eq!(ranked.get(from).map(|slot| slot.place), Some(model[from]));
            }
            while let Some(value) = model.pop() {
                prop_assert!(ranked.remove(order(value)));
            }
            ranked.check_invariants();
            prop_assert_eq!(ranked.len(), 0);
        }
    }
}
