//! Are two multisets of keys the same? In little memory: each key falls into one of [`BUCKETS`] by its hash, and of
//! and for each bucket the number and the sum of the hashes are kept. Where these differ, a second walk collects the
//! keys of as many differing buckets as memory allows, and names them.

use hashbrown::HashMap;
use std::hash::{DefaultHasher, Hasher};

const BUCKETS: usize = 4096;
/// Keys that a second walk collects, about.
const KEYS_MAX: u64 = 1_000_000;

/// The keys of one side.
pub(super) struct Tally {
    buckets: Vec<(u64, u64)>,
    pub count: u64,
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

fn bucket(hash: u64) -> usize {
    (hash % BUCKETS as u64) as usize
}

impl Tally {
    pub fn new() -> Tally {
        Tally { buckets: vec![(0, 0); BUCKETS], count: 0 }
    }

    pub fn add(&mut self, key: &[u8]) {
        let hash = hash(key);
        let (count, sum) = &mut self.buckets[bucket(hash)];
        *count += 1;
        *sum = sum.wrapping_add(hash);
        self.count += 1;
    }

    /// Where the two differ. None: they have the same keys.
    pub fn difference(&self, other: &Tally) -> Option<Difference> {
        let differing: Vec<usize> = (0..BUCKETS).filter(|i| self.buckets[*i] != other.buckets[*i]).collect();
        if differing.is_empty() {
            return None;
        }
        let mut looked_at = vec![false; BUCKETS];
        let mut keys = 0;
        for i in &differing {
            keys += self.buckets[*i].0 + other.buckets[*i].0;
            if keys > KEYS_MAX && looked_at.contains(&true) {
                break;
            }
            looked_at[*i] = true;
        }
        let all = differing.iter().all(|i| looked_at[*i]);
        Some(Difference { looked_at, all, keys: HashMap::new() })
    }
}

/// The keys of the buckets that differ.
pub(super) struct Difference {
    looked_at: Vec<bool>,
    /// Every differing bucket is looked at.
    pub all: bool,
    /// How often each key is on the one side and on the other.
    keys: HashMap<Vec<u8>, [u32; 2]>,
}

impl Difference {
    /// A key of side 0 or 1.
    pub fn add(&mut self, side: usize, key: &[u8]) {
        if self.looked_at[bucket(hash(key))] {
            self.keys.entry_ref(key).or_default()[side] += 1;
        }
    }

    /// The keys that are not as often on the one side as on the other, in order.
    pub fn unequal(&self) -> Vec<(&[u8], [u32; 2])> {
        let mut unequal: Vec<_> =
            self.keys.iter().filter(|(_, n)| n[0] != n[1]).map(|(key, n)| (&key[..], *n)).collect();
        unequal.sort_unstable();
        unequal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(keys: &[u64]) -> Tally {
        let mut tally = Tally::new();
        keys.iter().for_each(|key| tally.add(&key.to_be_bytes()));
        tally
    }

    #[test]
    fn equal_in_any_order_and_each_difference_is_named() {
        let all: Vec<u64> = (0..20_000).collect();
        let mut other: Vec<u64> = all.iter().rev().copied().collect();
        assert!(tally(&all).difference(&tally(&other)).is_none());
        // One is missing, one is there twice: the numbers are equal.
        other[7] = other[8];
        let mut difference = tally(&all).difference(&tally(&other)).unwrap();
        all.iter().for_each(|key| difference.add(0, &key.to_be_bytes()));
        other.iter().for_each(|key| difference.add(1, &key.to_be_bytes()));
        let unequal = difference.unequal();
        let expected: [(u64, [u32; 2]); 2] = [(19_991, [1, 2]), (19_992, [1, 0])];
        assert!(difference.all && unequal.len() == 2);
        for ((key, n), (want, m)) in unequal.iter().zip(expected) {
            assert_eq!((*key, *n), (&want.to_be_bytes()[..], m));
        }
    }

    #[test]
    fn if_everything_differs_a_part_is_examined() {
        let (rows, none) = (tally(&(0..1_500_000).collect::<Vec<_>>()), Tally::new());
        let difference = rows.difference(&none).unwrap();
        let looked_at = difference.looked_at.iter().filter(|l| **l).count();
        assert!(!difference.all && (2000..4000).contains(&looked_at), "{looked_at}");
    }
}
