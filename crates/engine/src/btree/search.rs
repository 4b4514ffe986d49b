//! Search within a node: a binary search over the key heads beside the slots. Only where heads are
//! equal is an entry's own key touched.

use super::node::{Node, SLOT, SLOTS, head};
use std::cmp::Ordering;

/// Where a key is, or would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The first slot whose key is not below the one looked for.
    pub slot: usize,
    pub found: bool,
}

impl<'a> Node<'a> {
    /// Finds a key that shares the node's prefix (any key between its fences does).
    #[inline]
    pub fn find(self, key: &[u8]) -> Place {
        let suffix = key.get(self.prefix_len()..).unwrap_or(&[]);
        let wanted = head(suffix);
        let Some(slots) = self.page().all().get(SLOTS..SLOTS + SLOT * self.count()) else {
            return Place { slot: 0, found: false };
        };
        // Invariant: slots below `base` are below the key; slots from `base + size` on are not.
        let (mut base, mut size) = (0, self.count());
        while size > 0 {
            let half = size / 2;
            let middle = base + half;
            let below = match self.head_in(slots, middle).cmp(&wanted) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => self.suffix(middle) < suffix,
            };
            base = if below { middle + 1 } else { base };
            size = if below { size - half - 1 } else { half };
        }
        let found = base < self.count() && self.head_in(slots, base) == wanted && self.suffix(base) == suffix;
        Place { slot: base, found }
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
