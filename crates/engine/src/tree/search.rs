//! Search within a node: a binary search over the key heads beside the slots. Only where heads are
//! equal is an entry's own key touched.

use super::node::{Node, SLOT, SLOTS, compare, head};
use std::cmp::Ordering;

/// Where a key is, or would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotPosition {
    /// The first slot whose key is not below the one looked for.
    pub slot: usize,
    pub found: bool,
}

impl<'a> Node<'a> {
    /// Finds a key that shares the node's prefix (any key between its fences does).
    #[inline]
    pub fn find(self, key: &[u8]) -> SlotPosition {
        let suffix = key.get(self.prefix_len()..).unwrap_or(&[]);
        let wanted = head(suffix);
        let Some(slots) = self.page().all().get(SLOTS..SLOTS + SLOT * self.count()) else {
            return SlotPosition { slot: 0, found: false };
        };
        let count = self.count();
        if count == 0 {
            return SlotPosition { slot: 0, found: false };
        }
        // By heads alone, without a branch that depends on them: the loop's only guess is its end.
        let (mut base, mut size) = (0, count);
        while size > 1 {
            let half = size / 2;
            base = if self.head_in(slots, base + half) < wanted { base + half } else { base };
            size -= half;
        }
        base += usize::from(self.head_in(slots, base) < wanted);
        // Then, among equal heads, by the keys: slots below `base` are below the key.
        let mut end = base;
        while end < count && self.head_in(slots, end) == wanted {
            let step = (end - base + 1).min(count - end);
            end += step;
        }
        while base < end {
            let middle = base + (end - base) / 2;
            let below = match self.head_in(slots, middle).cmp(&wanted) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => compare(self.suffix(middle), suffix).is_lt(),
            };
            (base, end) = if below { (middle + 1, end) } else { (base, middle) };
        }
        let found =
            base < count && self.head_in(slots, base) == wanted && compare(self.suffix(base), suffix).is_eq();
        SlotPosition { slot: base, found }
    }

    #[inline]
    fn head_in(self, slots: &[u8], slot: usize) -> u32 {
        // Heads are stored as they compare when read little-endian.
        slots.get(SLOT * slot..).and_then(|s| s.first_chunk::<4>()).map_or(0, |b| u32::from_le_bytes(*b))
    }

    /// The slot of the child that holds `key`.
    #[inline]
    pub fn child_slot(self, key: &[u8]) -> usize {
        let place = self.find(key);
        if place.found { place.slot } else { place.slot.saturating_sub(1) }
    }

    /// The slot of the child that holds the keys just below `key`.
    pub fn child_slot_before(self, key: &[u8]) -> usize {
        self.find(key).slot.saturating_sub(1)
    }
}
