//! Which member owns which file. Pure.
//!
//! A path's hash puts it into one of [`PARTITIONS`] logical partitions, whose number never changes. A partition belongs to the member with the highest
//! score of the pair (rendezvous hashing): a member that comes takes partitions and moves none between others, and one that goes leaves its own to all.
//! All members compute the same from the same list, whatever its order.

use std::sync::Arc;
use twox_hash::XxHash3_64;

pub const PARTITIONS: usize = 4096;
/// The partition is these bits of the hash of a path.
const SHIFT: u32 = 64 - PARTITIONS.trailing_zeros();

pub type Partition = u16;

/// By the hash of a path, as `packing` knows paths.
pub fn partition_of_mark(mark: u64) -> Partition {
    (mark >> SHIFT) as Partition
}

pub fn partition_of(path: &str) -> Partition {
    partition_of_mark(XxHash3_64::oneshot(path.as_bytes()))
}

fn score(partition: Partition, member: &str) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(partition), member.as_bytes())
}

/// For each partition the place of its owner among the members. Empty if there are none.
pub fn owners(members: &[Arc<str>]) -> Vec<u16> {
    let best = |partition: Partition| {
        let scored = members.iter().enumerate().map(|(at, member)| ((score(partition, member), member), at));
        scored.max().map(|(_, at)| at as u16)
    };
    (0..PARTITIONS as u32).filter_map(|partition| best(partition as Partition)).collect()
}

/// The members in the order in which they would own the partition, one without the others before it.
pub fn ranked(members: &[Arc<str>], partition: Partition) -> Vec<Arc<str>> {
    let mut scored: Vec<_> =
        members.iter().map(|member| (score(partition, member), member.clone())).collect();
    scored.sort_unstable_by(|one, other| other.cmp(one));
    scored.into_iter().map(|(_, member)| member).collect()
}

/// Partitions, a bit each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set(Box<[u64; PARTITIONS / 64]>);

impl Default for Set {
    fn default() -> Set {
        Set(Box::new([0; PARTITIONS / 64]))
    }
}

impl Set {
    /// Bytes of a set in a frame.
    pub const BYTES: usize = PARTITIONS / 8;

    pub fn insert(&mut self, partition: Partition) {
        if let Some(bits) = self.0.get_mut(usize::from(partition) / 64) {
            *bits |= 1 << (partition % 64);
        }
    }
    pub fn contains(&self, partition: Partition) -> bool {
        self.0.get(usize::from(partition) / 64).is_some_and(|bits| bits >> (partition % 64) & 1 == 1)
    }
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }
    pub fn len(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }
    /// None: they are not a set's.
    pub fn of_bytes(bytes: &[u8]) -> Option<Set> {
        let mut set = Set::default();
        if bytes.len() != Set::BYTES {
            return None;
        }
        for (bits, bytes) in set.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *bits = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(count: usize, salt: u64) -> Vec<Arc<str>> {
        (0..count).map(|at| format!("10.{}.{}.{at}:9500", salt % 251, salt / 251 % 251).into()).collect()
    }

    fn owners_by_name(members: &[Arc<str>]) -> Vec<Arc<str>> {
        owners(members).into_iter().map(|at| members[usize::from(at)].clone()).collect()
    }

    proptest! {
        #[test]
        fn a_member_that_comes_takes_its_share_and_moves_nothing_between_others(count in 1usize..24, salt in any::<u64>()) {
            let all = members(count + 1, salt);
            let (before, after) = (owners_by_name(&all[..count]), owners_by_name(&all));
            let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
            prop_assert!(moved.clone().all(|(_, after)| *after == all[count]), "only to the new member");
            let (moved, share) = (moved.count(), PARTITIONS / (count + 1));
            prop_assert!(moved > share / 2 && moved < 2 * share, "{} of {} partitions moved", moved, PARTITIONS);
        }

        #[test]
        fn no_member_has_much_more_than_its_share(count in 1usize..24, salt in any::<u64>()) {
            let mut sizes = vec![0usize; count];
            owners(&members(count, salt)).into_iter().for_each(|at| sizes[usize::from(at)] += 1);
            let share = PARTITIONS / count;
            // Six standard deviations of a share that is drawn.
            let room = 6 * (share as f64).sqrt() as usize + 1;
            prop_assert!(sizes.iter().all(|size| size.abs_diff(share) <= room), "{:?}", sizes);
        }

        #[test]
        fn the_order_of_the_list_decides_nothing(count in 1usize..12, salt in any::<u64>()) {
            let mut all = members(count, salt);
            let before = owners_by_name(&all);
            all.reverse();
            prop_assert_eq!(before, owners_by_name(&all));
        }

        #[test]
        fn a_set_is_read_back_from_its_bytes(list in prop::collection::vec(0u16..PARTITIONS as u16, 0..50)) {
            let mut set = Set::default();
            list.iter().for_each(|partition| set.insert(*partition));
            let read = Set::of_bytes(&set.to_bytes()).unwrap();
            prop_assert!((0..PARTITIONS as u16).all(|partition| read.contains(partition) == list.contains(&partition)));
            prop_assert_eq!(read.is_empty(), list.is_empty());
        }
    }

    #[test]
    fn paths_are_spread_evenly_over_the_partitions() {
        let mut sizes = vec![0u32; PARTITIONS];
        (0..40 * PARTITIONS).for_each(|i| {
            sizes[usize::from(partition_of(&format!("table/day={}/part-{i}.parquet", i % 31)))] += 1;
        });
        assert!(sizes.iter().all(|size| (8..100).contains(size)), "{:?}", sizes.iter().max());
    }

    #[test]
    fn without_members_nobody_owns_anything() {
        assert!(owners(&[]).is_empty() && Set::of_bytes(&[0; 3]).is_none());
    }
}
