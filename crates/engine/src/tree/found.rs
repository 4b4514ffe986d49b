//! An entry in its leaf, whose latch is held.

use super::node::{Node, compare};
use std::cmp::Ordering;

/// Entries with at most this many dead ones between them count as neighbours.
const DEAD_MAX: usize = 16;

#[derive(Clone, Copy)]
pub struct FoundEntry<'a> {
    node: Node<'a>,
    slot: usize,
}

impl<'a> FoundEntry<'a> {
    pub(super) fn new(node: Node<'a>, slot: usize) -> FoundEntry<'a> {
        FoundEntry { node, slot }
    }

    pub fn value(self) -> &'a [u8] {
        self.node.value(self.slot)
    }

    /// Whether the key belongs to the same leaf.
    pub fn is_leaf_of(self, key: &[u8]) -> bool {
        self.node.contains(key)
    }

    /// Whether `key` is in the same leaf, and no entry but those whose value is dead lies between it and this one.
    pub fn is_beside(self, key: &[u8], dead: impl Fn(&[u8]) -> bool) -> bool {
        let (node, mut slot) = (self.node, self.slot);
        if !node.contains(key) {
            return false;
        }
        let rest = key.get(node.prefix_len()..).unwrap_or(&[]);
        let up = compare(node.suffix(slot), rest).is_lt();
        for _ in 0..=DEAD_MAX {
            slot = if up { slot + 1 } else { slot.wrapping_sub(1) };
            if slot >= node.count() {
                return false;
            }
            match compare(node.suffix(slot), rest) {
                Ordering::Equal => return true,
                // Passed: the key is not there, but nothing is in between.
                Ordering::Less if !up => return true,
                Ordering::Greater if up => return true,
                _ if !dead(node.value(slot)) => return false,
                _ => {}
            }
        }
        false
    }
}
