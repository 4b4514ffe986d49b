//! The hash table of a database.
//!
//! A bucket is one cache line: seven pointers to entries, a byte of each one's hash, and a mask of the slots in use. Entries that find no
//! slot lie in an overflow list of their bucket, kept apart as few buckets have one. Buckets are allocated in segments on first use, so
//! that neither growing nor shrinking ever touches a large piece of memory at once.
//!
//! Resizing. Two tables exist while the dictionary is resized; each operation that changes it moves one bucket, and the server moves some
//! when it is idle. `moved` buckets of the old table are in the new one: the bucket of a hash in the old table tells which of both to look in,
//! so a look-up always visits one bucket.
//!
//! Scanning. The cursor counts with its bits reversed, as Redis's does: a scan that runs while the dictionary is resized returns each key that exists
//! all the time at least once.
//!
//! Not here: expiry, values.

use super::entry::Entry;
use std::collections::HashMap;

const SLOTS: usize = 7;
const SEGMENT_BUCKETS: usize = 1024;
const BUCKETS_MIN: usize = 1;
/// Entries a bucket at which the table grows and shrinks.
const GROW_AT: usize = 5;
const SHRINK_BELOW_PERCENT: usize = 8;

#[derive(Default)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u8; SLOTS],
    /// Bit of each slot in use; bit 7: the bucket has an overflow list.
    used: u8,
    entries: [Option<Box<Entry>>; SLOTS],
}

const OVERFLOW: u8 = 1 << 7;
const _: () = assert!(size_of::<Bucket>() == 64);

struct Table {
    segments: Vec<Option<Box<[Bucket]>>>,
    /// A power of two; 0 if there is no table.
    buckets: usize,
    overflow: HashMap<usize, Vec<(u8, Box<Entry>)>>,
    len: usize,
}

/// Where an entry lies. Valid until the dictionary is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryPosition {
    table: u8,
    slot: u32,
    bucket: usize,
}

pub struct Dictionary {
    /// The table, and the one that it is moved to.
    tables: [Table; 2],
    /// Buckets of `tables[0]` that were moved.
    moved: usize,
}

fn tag_of(hash: u64) -> u8 {
    (hash >> 56) as u8
}

impl Table {
    fn new(buckets: usize) -> Table {
        let segments = buckets.div_ceil(SEGMENT_BUCKETS);
        Table { segments: (0..segments).map(|_| None).collect(), buckets, overflow: HashMap::new(), len: 0 }
    }

    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.buckets - 1)
    }

    fn bucket(&self, index: usize) -> Option<&Bucket> {
        self.segments[index / SEGMENT_BUCKETS].as_ref().map(|segment| &segment[index % SEGMENT_BUCKETS])
    }

    fn bucket_mut(&mut self, index: usize) -> &mut Bucket {
        let size = self.buckets.min(SEGMENT_BUCKETS);
        let segment = self.segments[index / SEGMENT_BUCKETS]
            .get_or_insert_with(|| (0..size).map(|_| Bucket::default()).collect());
        &mut segment[index % SEGMENT_BUCKETS]
    }

    fn find(&self, index: usize, hash: u64, key: &[u8]) -> Option<u32> {
        let bucket = self.bucket(index)?;
        let tag = tag_of(hash);
        for slot in 0..SLOTS {
            if bucket.tags[slot] == tag
                && let Some(entry) = &bucket.entries[slot]
                && entry.key.as_bytes() == key
            {
                return Some(slot as u32);
            }
        }
        if bucket.used & OVERFLOW == 0 {
            return None;
        }
        let list = self.overflow.get(&index)?;
        let at = list.iter().position(|(other, entry)| *other == tag && entry.key.as_bytes() == key)?;
        Some((SLOTS + at) as u32)
    }

    fn insert(&mut self, index: usize, hash: u64, entry: Box<Entry>) -> u32 {
        self.len += 1;
        let bucket = self.bucket_mut(index);
        let slot = (!bucket.used).trailing_zeros() as usize;
        if slot < SLOTS {
            bucket.used |= 1 << slot;
            bucket.tags[slot] = tag_of(hash);
            bucket.entries[slot] = Some(entry);
            return slot as u32;
        }
        bucket.used |= OVERFLOW;
        let list = self.overflow.entry(index).or_default();
        list.push((tag_of(hash), entry));
        (SLOTS + list.len() - 1) as u32
    }

    fn entry(&self, index: usize, slot: u32) -> Option<&Entry> {
        match (slot as usize).checked_sub(SLOTS) {
            None => self.bucket(index)?.entries[slot as usize].as_deref(),
            Some(at) => self.overflow.get(&index)?.get(at).map(|(_, entry)| &**entry),
        }
    }

    fn entry_mut(&mut self, index: usize, slot: u32) -> Option<&mut Entry> {
        match (slot as usize).checked_sub(SLOTS) {
            None => self.bucket_mut(index).entries[slot as usize].as_deref_mut(),
            Some(at) => self.overflow.get_mut(&index)?.get_mut(at).map(|(_, entry)| &mut **entry),
        }
    }

    fn remove(&mut self, index: usize, slot: u32) -> Option<Box<Entry>> {
        let taken = match (slot as usize).checked_sub(SLOTS) {
            None => {
                let bucket = self.bucket_mut(index);
                bucket.used &= !(1 << slot);
                bucket.entries[slot as usize].take()
            }
            Some(at) => {
                let list = self.overflow.get_mut(&index)?;
                let (_, entry) = list.swap_remove(at);
                if list.is_empty() {
                    self.overflow.remove(&index);
                    self.bucket_mut(index).used &= !OVERFLOW;
                }
                Some(entry)
            }
        };
        self.len -= usize::from(taken.is_some());
        taken
    }

    fn for_each(&self, index: usize, visit: &mut impl FnMut(&Entry)) {
        let Some(bucket) = self.bucket(index) else { return };
        for entry in bucket.entries.iter().flatten() {
            visit(entry);
        }
        if bucket.used & OVERFLOW != 0
            && let Some(list) = self.overflow.get(&index)
        {
            for (_, entry) in list {
                visit(entry);
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let segments =
            self.segments.iter().flatten().map(|segment| segment.len() * size_of::<Bucket>()).sum::<usize>();
        segments + self.segments.len() * 8 + self.overflow.len() * 96
    }
}

impl Dictionary {
    pub fn new() -> Dictionary {
        Dictionary { tables: [Table::new(BUCKETS_MIN), Table::new(0)], moved: 0 }
    }

    pub fn len(&self) -> usize {
        self.tables[0].len + self.tables[1].len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_resizing(&self) -> bool {
        self.tables[1].buckets > 0
    }

    /// Memory of the tables, without the entries.
    pub fn heap_bytes(&self) -> usize {
        self.tables.iter().map(Table::heap_bytes).sum()
    }

    fn locate(&self, hash: u64) -> (usize, usize) {
        let index = self.tables[0].index(hash);
        if self.is_resizing() && index < self.moved { (1, self.tables[1].index(hash)) } else { (0, index) }
    }

    pub fn find(&self, hash: u64, key: &[u8]) -> Option<EntryPosition> {
        let (table, bucket) = self.locate(hash);
        let slot = self.tables[table].find(bucket, hash, key)?;
        Some(EntryPosition { table: table as u8, slot, bucket })
    }

    /// The entry at `place`.
    ///
    /// # Panics
    /// If the dictionary was changed since `place` was found.
    pub fn at(&self, place: EntryPosition) -> &Entry {
        self.tables[usize::from(place.table)].entry(place.bucket, place.slot).expect("a place that was found")
    }

    /// As [`Dictionary::at`].
    pub fn at_mut(&mut self, place: EntryPosition) -> &mut Entry {
        self.tables[usize::from(place.table)]
            .entry_mut(place.bucket, place.slot)
            .expect("a place that was found")
    }

    /// Finds an entry by its hash and a condition: for the list of expiry times, which knows no keys.
    pub fn find_by(&self, hash: u64, is_it: impl Fn(&Entry) -> bool) -> Option<EntryPosition> {
        let (table, bucket) = self.locate(hash);
        let overflow = self.tables[table].overflow.get(&bucket).map_or(0, Vec::len);
        (0..(SLOTS + overflow) as u32)
            .find(|&slot| self.tables[table].entry(bucket, slot).is_some_and(&is_it))
            .map(|slot| EntryPosition { table: table as u8, slot, bucket })
    }

    /// Adds an entry whose key is not there. `hash_of` is needed to move other entries.
    pub fn insert(&mut self, hash: u64, entry: Box<Entry>, hash_of: impl Fn(&[u8]) -> u64) -> EntryPosition {
        self.step(&hash_of);
        if !self.is_resizing() && self.len() >= self.tables[0].buckets * GROW_AT {
            self.resize_to(self.tables[0].buckets * 2);
        }
        let (table, bucket) = self.locate(hash);
        let slot = self.tables[table].insert(bucket, hash, entry);
        EntryPosition { table: table as u8, slot, bucket }
    }

    pub fn remove(&mut self, place: EntryPosition, hash_of: impl Fn(&[u8]) -> u64) -> Option<Box<Entry>> {
        let taken = self.tables[usize::from(place.table)].remove(place.bucket, place.slot);
        self.step(&hash_of);
        let buckets = self.tables[0].buckets;
        if !self.is_resizing() && buckets > 16 && self.len() * 100 < buckets * SLOTS * SHRINK_BELOW_PERCENT {
            self.resize_to((self.len() / 3).next_power_of_two().max(BUCKETS_MIN));
        }
        taken
    }

    fn resize_to(&mut self, buckets: usize) {
        self.tables[1] = Table::new(buckets);
        self.moved = 0;
    }

    /// Moves one bucket that is not empty, looking at 64 at most; false if there is nothing to move.
    pub fn step(&mut self, hash_of: &impl Fn(&[u8]) -> u64) -> bool {
        if !self.is_resizing() {
            return false;
        }
        for _ in 0..64 {
            let index = self.moved;
            self.moved += 1;
            let moved_some = self.move_bucket(index, hash_of);
            if self.moved.is_multiple_of(SEGMENT_BUCKETS) {
                self.tables[0].segments[index / SEGMENT_BUCKETS] = None;
            }
            if self.moved == self.tables[0].buckets {
                let [old, new] = &mut self.tables;
                assert!(old.len == 0 && old.overflow.is_empty(), "all entries were moved");
                *old = std::mem::replace(new, Table::new(0));
                self.moved = 0;
                return true;
            }
            if moved_some {
                return true;
            }
        }
        true
    }

    fn move_bucket(&mut self, index: usize, hash_of: &impl Fn(&[u8]) -> u64) -> bool {
        let [old, new] = &mut self.tables;
        let Some(segment) = old.segments[index / SEGMENT_BUCKETS].as_mut() else { return false };
        let bucket = std::mem::take(&mut segment[index % SEGMENT_BUCKETS]);
        let mut spilled = Vec::new();
        if bucket.used & OVERFLOW != 0 {
            spilled = old.overflow.remove(&index).unwrap_or_default();
        }
        let entries = bucket.entries.into_iter().flatten().chain(spilled.into_iter().map(|(_, entry)| entry));
        let mut count = 0;
        for entry in entries {
            let hash = hash_of(&entry.key);
            new.insert(new.index(hash), hash, entry);
            count += 1;
        }
        old.len -= count;
        count > 0
    }

    /// Visits the entries of the buckets at `cursor` and returns the next one, 0 at the end.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&Entry)) -> u64 {
        let [old, new] = &self.tables;
        let mut cursor = cursor as usize;
        if !self.is_resizing() {
            let mask = old.buckets - 1;
            old.for_each(cursor & mask, &mut visit);
            return next_cursor(cursor, mask) as u64;
        }
        let (small, large) = if old.buckets <= new.buckets { (old, new) } else { (new, old) };
        small.for_each(cursor & (small.buckets - 1), &mut visit);
        loop {
            large.for_each(cursor & (large.buckets - 1), &mut visit);
            cursor = next_cursor(cursor, large.buckets - 1);
            // All buckets of the larger table whose low bits are those of the smaller one's bucket.
            if cursor & ((small.buckets - 1) ^ (large.buckets - 1)) == 0 {
                return cursor as u64;
            }
        }
    }

    /// An entry chosen by `random`, which returns random numbers. Not exactly uniform, as entries in full buckets are rarer.
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<&Entry> {
        if self.is_empty() {
            return None;
        }
        loop {
            let total = self.tables[0].buckets + self.tables[1].buckets;
            let mut at = (random() as usize) % total;
            let mut table = &self.tables[0];
            if at >= table.buckets {
                at -= table.buckets;
                table = &self.tables[1];
            }
            let mut count = 0;
            table.for_each(at, &mut |_| count += 1);
            if count == 0 {
                continue;
            }
            let wanted = (random() % count as u64) as usize;
            let overflow = table.overflow.get(&at).map_or(0, Vec::len);
            return (0..(SLOTS + overflow) as u32).filter_map(|slot| table.entry(at, slot)).nth(wanted);
        }
    }

    /// Changes every entry.
    pub fn for_each_mut(&mut self, mut visit: impl FnMut(&mut Entry)) {
        for table in &mut self.tables {
            let in_buckets = table.segments.iter_mut().flatten().flat_map(|segment| segment.iter_mut());
            in_buckets.flat_map(|bucket| bucket.entries.iter_mut().flatten()).for_each(|entry| visit(entry));
            table.overflow.values_mut().flatten().for_each(|(_, entry)| visit(entry));
        }
    }

    pub fn for_each(&self, mut visit: impl FnMut(&Entry)) {
        for table in &self.tables {
            for index in 0..table.buckets {
                table.for_each(index, &mut visit);
            }
        }
    }
}

/// Counts up with the bits under `mask` reversed.
fn next_cursor(cursor: usize, mask: usize) -> usize {
    (cursor | !mask).reverse_bits().wrapping_add(1).reverse_bits()
}

#[cfg(test)]
mod tests;
