//! An intset: a sorted array of integers in one allocation, byte-compatible with Redis's.
//!
//! Layout: width (u32, little-endian: 2, 4 or 8 bytes an integer), number of integers (u32,
//! little-endian), then the integers in ascending order, little-endian, each of that width. The
//! width grows with the first integer that needs it and never shrinks.

const HEADER_BYTES: usize = 8;

/// Bytes that aren't an intset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed intset")]
pub struct MalformedIntset;

#[derive(Clone, PartialEq, Eq)]
pub struct Intset {
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Intset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

impl Intset {
    pub fn new() -> Self {
        Self { bytes: vec![2, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// Takes bytes from a file or a client after checking them, order included.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, MalformedIntset> {
        if bytes.len() < HEADER_BYTES {
            return Err(MalformedIntset);
        }
        let set = Self { bytes };
        let (width, len) = (set.width(), set.len());
        let expected = len.checked_mul(width).and_then(|body| body.checked_add(HEADER_BYTES));
        if !matches!(width, 2 | 4 | 8) || expected != Some(set.bytes.len()) {
            return Err(MalformedIntset);
        }
        if (1..len).any(|at| set.value_at(at - 1) >= set.value_at(at)) {
            return Err(MalformedIntset);
        }
        Ok(set)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn len(&self) -> usize {
        u32::from_le_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]]) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn width(&self) -> usize {
        u32::from_le_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]]) as usize
    }

    fn value_at(&self, index: usize) -> i64 {
        let width = self.width();
        let at = HEADER_BYTES + index * width;
        let bytes = &self.bytes[at..at + width];
        let mut wide = if bytes[width - 1] & 128 == 0 { [0; 8] } else { [0xFF; 8] };
        wide[..width].copy_from_slice(bytes);
        i64::from_le_bytes(wide)
    }

    fn set_at(&mut self, index: usize, value: i64) {
        let width = self.width();
        let at = HEADER_BYTES + index * width;
        self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }

    fn set_len(&mut self, len: usize) {
        self.bytes[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    }

    /// The integer at `index` in ascending order.
    pub fn get(&self, index: usize) -> Option<i64> {
        (index < self.len()).then(|| self.value_at(index))
    }

    /// The index of `value`, or the index at which it would stand.
    fn search(&self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.value_at(middle).cmp(&value) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    pub fn contains(&self, value: i64) -> bool {
        width_of(value) <= self.width() && self.search(value).is_ok()
    }

    /// Returns whether `value` is new.
    pub fn insert(&mut self, value: i64) -> bool {
        if width_of(value) > self.width() {
            self.widen(width_of(value));
        }
        let Err(index) = self.search(value) else { return false };
        let (len, width) = (self.len(), self.width());
        let old_bytes = self.bytes.len();
        self.bytes.reserve_exact(width);
        self.bytes.resize(old_bytes + width, 0);
        let at = HEADER_BYTES + index * width;
        self.bytes.copy_within(at..old_bytes, at + width);
        self.set_at(index, value);
        self.set_len(len + 1);
        true
    }

    /// Returns whether `value` was there.
    pub fn remove(&mut self, value: i64) -> bool {
        if width_of(value) > self.width() {
            return false;
        }
        let Ok(index) = self.search(value) else { return false };
        let (len, width) = (self.len(), self.width());
        let at = HEADER_BYTES + index * width;
        self.bytes.drain(at..at + width);
        self.bytes.shrink_to_fit();
        self.set_len(len - 1);
        true
    }

    fn widen(&mut self, width: usize) {
        let values: Vec<i64> = self.iter().collect();
        self.bytes = Vec::with_capacity(HEADER_BYTES + (values.len() + 1) * width);
        self.bytes.extend_from_slice(&(width as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(values.len() as u32).to_le_bytes());
        for value in values {
            self.bytes.extend_from_slice(&value.to_le_bytes()[..width]);
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone + '_ {
        (0..self.len()).map(|index| self.value_at(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn bytes_are_those_of_redis() {
        let mut set = Intset::new();
        for value in [5, -1, 300] {
            assert!(set.insert(value));
        }
        assert_eq!(set.as_bytes(), [2, 0, 0, 0, 3, 0, 0, 0, 0xFF, 0xFF, 5, 0, 0x2C, 1]);
        assert!(set.insert(70_000));
        assert_eq!(&set.as_bytes()[..12], [4, 0, 0, 0, 4, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    }

    #[test]
    fn unordered_or_short_bytes_are_refused() {
        assert!(Intset::from_bytes(vec![2, 0, 0, 0, 2, 0, 0, 0, 5, 0, 5, 0]).is_err());
        assert!(Intset::from_bytes(vec![2, 0, 0, 0, 2, 0, 0, 0, 5, 0]).is_err());
        assert!(Intset::from_bytes(vec![3, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(Intset::from_bytes(vec![2, 0, 0]).is_err());
    }

    fn value() -> impl Strategy<Value = i64> {
        prop_oneof![-20i64..20, -40_000i64..40_000, any::<i32>().prop_map(i64::from), any::<i64>()]
    }

    proptest! {
        #[test]
        fn an_intset_equals_a_sorted_set(steps in prop::collection::vec((any::<bool>(), value()), 0..200)) {
            let (mut set, mut model) = (Intset::new(), BTreeSet::new());
            for (insert, value) in steps {
                if insert {
                    prop_assert_eq!(set.insert(value), model.insert(value));
                } else {
                    prop_assert_eq!(set.remove(value), model.remove(&value));
                }
                prop_assert_eq!(set.contains(value), model.contains(&value));
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert_eq!(Intset::from_bytes(set.as_bytes().to_vec()).unwrap(), set);
        }
    }
}
