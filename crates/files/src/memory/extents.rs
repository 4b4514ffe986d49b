//! Which bytes of the arena are free. Pure: knows offsets only.
//!
//! Best fit: an extent is cut from the shortest free run that is long enough. Runs that touch are joined when they are freed.

use std::collections::{BTreeMap, BTreeSet};

/// Extents begin and end at multiples of this many bytes: a cache line.
pub const UNIT: u64 = 64;

/// A run of bytes of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Extent {
    pub offset: u64,
    /// Bytes that were asked for.
    pub len: u64,
}

impl Extent {
    /// Bytes that it takes.
    pub fn taken(self) -> u64 {
        self.len.next_multiple_of(UNIT)
    }
}

pub struct Extents {
    by_offset: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    free: u64,
}

impl Extents {
    pub fn new(bytes: u64) -> Extents {
        let bytes = bytes / UNIT * UNIT;
        let mut extents = Extents { by_offset: BTreeMap::new(), by_len: BTreeSet::new(), free: 0 };
        if bytes > 0 {
            extents.insert(0, bytes);
        }
        extents
    }

    fn insert(&mut self, offset: u64, len: u64) {
        self.by_offset.insert(offset, len);
        self.by_len.insert((len, offset));
        self.free += len;
    }
    fn remove(&mut self, offset: u64, len: u64) {
        self.by_offset.remove(&offset);
        self.by_len.remove(&(len, offset));
        self.free -= len;
    }

    pub fn free_bytes(&self) -> u64 {
        self.free
    }

    /// None: no free run is long enough. `len` is at least 1.
    pub fn allocate(&mut self, len: u64) -> Option<Extent> {
        let taken = len.max(1).next_multiple_of(UNIT);
        let &(run, offset) = self.by_len.range((taken, 0)..).next()?;
        self.remove(offset, run);
        if run > taken {
            self.insert(offset + taken, run - taken);
        }
        Some(Extent { offset, len })
    }

    /// Panics if a part of it is free already: its bytes would be given out twice.
    pub fn free(&mut self, extent: Extent) {
        let (mut offset, mut len) = (extent.offset, extent.len.max(1).next_multiple_of(UNIT));
        let before = self.by_offset.range(..=offset).next_back().map(|(o, l)| (*o, *l));
        let after = self.by_offset.range(offset..).next().map(|(o, l)| (*o, *l));
        assert!(before.is_none_or(|(o, l)| o + l <= offset), "freed twice: {extent:?}");
        assert!(after.is_none_or(|(o, _)| offset + len <= o), "freed twice: {extent:?}");
        if let Some((o, l)) = before.filter(|(o, l)| o + l == offset) {
            self.remove(o, l);
            (offset, len) = (o, len + l);
        }
        if let Some((o, l)) = after.filter(|(o, _)| offset + len == *o) {
            self.remove(o, l);
            len += l;
        }
        self.insert(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extents_never_overlap_and_all_bytes_come_back(ops in prop::collection::vec((any::<bool>(), 1u64..5000), 1..400)) {
            let total = 64 * 1024;
            let mut extents = Extents::new(total);
            let mut held: Vec<Extent> = Vec::new();
            for (allocates, number) in ops {
                if allocates {
                    if let Some(new) = extents.allocate(number) {
                        prop_assert!(new.offset + new.taken() <= total);
                        for old in &held {
                            let apart = new.offset >= old.offset + old.taken() || old.offset >= new.offset + new.taken();
                            prop_assert!(apart, "{new:?} overlaps {old:?}");
                        }
                        held.push(new);
                    } else {
                        prop_assert!(!held.is_empty());
                    }
                } else if !held.is_empty() {
                    let extent = held.swap_remove(number as usize % held.len());
                    extents.free(extent);
                }
                let taken: u64 = held.iter().map(|extent| extent.taken()).sum();
                prop_assert_eq!(extents.free_bytes(), total - taken);
            }
            held.drain(..).for_each(|extent| extents.free(extent));
            prop_assert_eq!(extents.allocate(total), Some(Extent { offset: 0, len: total }));
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn an_extent_freed_twice_is_noticed() {
        let mut extents = Extents::new(4096);
        let extent = extents.allocate(100).unwrap();
        extents.free(extent);
        extents.free(extent);
    }
}
