//! The hash table of one large set, hash or sorted set: unique byte strings, each with a value.
//!
//! Entries lie dense in a vector; a hash index maps a key to its place there. So a random entry is
//! one look-up, an entry costs no pointer chain, and a scan's cursor is a place in the vector.
//!
//! A removal moves the last entry into the gap. A scan goes from the end to the start: an entry that
//! it hasn't reached can only move toward the start, thus every entry that exists throughout a
//! scan is returned at least once, whatever is inserted or removed meanwhile.
//!
//! Places are u32: a table holds at most `u32::MAX` entries.

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::sync::OnceLock;

/// Secret of this process, so that clients can't choose colliding keys.
fn hash_secret() -> (u64, u64) {
    static SECRET: OnceLock<(u64, u64)> = OnceLock::new();
    *SECRET.get_or_init(|| {
        use std::hash::BuildHasher;
        let state = std::collections::hash_map::RandomState::new();
        (state.hash_one(0u8), state.hash_one(1u8))
    })
}

fn hash_of(key: &[u8]) -> u64 {
    let (first, second) = hash_secret();
    let mut hasher = SipHasher13::new_with_keys(first, second);
    hasher.write(key);
    hasher.finish()
}

#[derive(Debug, Clone)]
struct Entry<V> {
    key: Box<[u8]>,
    value: V,
}

#[derive(Debug, Clone)]
pub struct Table<V> {
    entries: Vec<Entry<V>>,
    index: HashTable<u32>,
    /// Heap bytes of all keys.
    key_bytes: usize,
}

/// What a removal took out.
pub struct Removed<V> {
    pub key: Box<[u8]>,
    pub value: V,
    /// The entry that stood at this place now stands at `place`.
    pub moved_from: Option<u32>,
    pub place: u32,
}

impl<V> Table<V> {
    pub fn new() -> Self {
        Self { entries: Vec::new(), index: HashTable::new(), key_bytes: 0 }
    }

    pub fn with_capacity(entries: usize) -> Self {
        Self { entries: Vec::with_capacity(entries), index: HashTable::with_capacity(entries), key_bytes: 0 }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Heap bytes of the table and its keys, not of what the values point to.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<V>>() + self.index.allocation_size() + self.key_bytes
    }

    /// Bytes of all keys.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    pub fn find(&self, key: &[u8]) -> Option<u32> {
        self.index.find(hash_of(key), |&place| *self.entries[place as usize].key == *key).copied()
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    pub fn get(&self, key: &[u8]) -> Option<&V> {
        self.find(key).map(|place| &self.entries[place as usize].value)
    }

    pub fn key_at(&self, place: u32) -> &[u8] {
        &self.entries[place as usize].key
    }

    pub fn value_at(&self, place: u32) -> &V {
        &self.entries[place as usize].value
    }

    pub fn value_at_mut(&mut self, place: u32) -> &mut V {
        &mut self.entries[place as usize].value
    }

    /// Inserts a key that the caller knows to be absent, and returns its place.
    pub fn insert_new(&mut self, key: Box<[u8]>, value: V) -> u32 {
        debug_assert!(!self.contains(&key), "the caller checked that the key is absent");
        let place =
            u32::try_from(self.entries.len()).expect("a collection's size is bounded before it is changed");
        let hash = hash_of(&key);
        if self.entries.len() == self.entries.capacity() {
            // By half rather than doubling: the vector is most of the table's memory.
            self.entries.reserve_exact(self.entries.len() / 2 + 4);
        }
        self.key_bytes += key.len();
        self.entries.push(Entry { key, value });
        let entries = &self.entries;
        self.index.insert_unique(hash, place, |&place| hash_of(&entries[place as usize].key));
        place
    }

    /// Sets the value of a key. Returns the old value, or `None` if the key is new.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<V> {
        match self.find(key) {
            Some(place) => Some(std::mem::replace(self.value_at_mut(place), value)),
            None => {
                self.insert_new(key.into(), value);
                None
            }
        }
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<Removed<V>> {
        let slot =
            self.index.find_entry(hash_of(key), |&place| *self.entries[place as usize].key == *key).ok()?;
        let (place, _) = slot.remove();
        let last = self.entries.len() as u32 - 1;
        let moved_from = (place != last).then_some(last);
        if moved_from.is_some() {
            let hash = hash_of(&self.entries[last as usize].key);
            if let Some(slot) = self.index.find_mut(hash, |&candidate| candidate == last) {
                *slot = place;
            }
        }
        let entry = self.entries.swap_remove(place as usize);
        self.key_bytes -= entry.key.len();
        self.shrink();
        Some(Removed { key: entry.key, value: entry.value, moved_from, place })
    }

    /// Gives memory back if most of the table is unused.
    fn shrink(&mut self) {
        let len = self.entries.len();
        if self.entries.capacity() > 64 && len < self.entries.capacity() / 4 {
            self.entries.shrink_to(len + len / 2);
            let entries = &self.entries;
            self.index.shrink_to(len + len / 2, |&place| hash_of(&entries[place as usize].key));
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &V)> + ExactSizeIterator + Clone {
        self.entries.iter().map(|entry| (&*entry.key, &entry.value))
    }

    /// Visits about `count` entries from `cursor` on, and returns the cursor of the next call. Cursor
    /// 0 is both the start and the end.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], &V)) -> u64 {
        let end = if cursor == 0 {
            self.len()
        } else {
            usize::try_from(cursor).unwrap_or(usize::MAX).min(self.len())
        };
        let start = end.saturating_sub(count);
        for entry in self.entries[start..end].iter().rev() {
            visit(&entry.key, &entry.value);
        }
        start as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn a_table_equals_a_map(steps in prop::collection::vec((any::<bool>(), 0u16..300, any::<u32>()), 0..600)) {
            let (mut table, mut model) = (Table::new(), BTreeMap::new());
            for (insert, key, value) in steps {
                let key = key.to_string().into_bytes();
                if insert {
                    prop_assert_eq!(table.insert(&key, value), model.insert(key.clone(), value));
                } else {
                    prop_assert_eq!(table.remove(&key).map(|removed| removed.value), model.remove(&key));
                }
                prop_assert_eq!(table.get(&key), model.get(&key));
            }
            let all: BTreeMap<Vec<u8>, u32> = table.iter().map(|(key, value)| (key.to_vec(), *value)).collect();
            prop_assert_eq!(all, model);
        }

        #[test]
        fn a_scan_returns_every_entry_that_stays(
            others in prop::collection::vec((any::<bool>(), 0u16..200), 0..400),
            count in 1usize..7,
        ) {
            let mut table = Table::new();
            for key in 0..100u16 {
                table.insert(&key.to_be_bytes(), ());
            }
            // Keys below 50 stay; the others come and go between the steps of the scan.
            let mut seen = BTreeSet::new();
            let mut others = others.into_iter();
            let mut cursor = 0;
            loop {
                cursor = table.scan(cursor, count, |key, ()| { seen.insert(key.to_vec()); });
                if cursor == 0 {
                    break;
                }
                for (insert, key) in others.by_ref().take(5) {
                    if insert {
                        table.insert(&(key + 50).to_be_bytes(), ());
                    } else {
                        table.remove(&(key + 50).to_be_bytes());
                    }
                }
            }
            for key in 0..50u16 {
                prop_assert!(seen.contains(key.to_be_bytes().as_slice()), "{}", key);
            }
        }
    }
}
