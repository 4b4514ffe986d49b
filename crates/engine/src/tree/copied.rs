//! Neighbouring entries of a leaf, copied.

use super::node::{ENTRY_HEAD, Node};
use std::ops::Range;

/// Entries that are touched before they are copied one by one.
const TOUCHED: usize = 16;
/// Fewer entries are copied one by one.
const HEAP_MIN: usize = 8;
/// Bytes that stay reserved after `shrink`: for keys and values, and as many for the entries' places.
const SHORT: usize = 512;

/// An entry: the key, then the value, up to `end`.
#[derive(Clone, Copy)]
struct Entry {
    key: usize,
    value: usize,
    end: usize,
}

/// Entries, in memory of their own.
#[derive(Default)]
pub struct Copied {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Copied {
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// The key of an entry; empty if there is none.
    #[inline]
    pub fn key(&self, at: usize) -> &[u8] {
        self.entries.get(at).map_or(&[], |e| &self.bytes[e.key..e.value])
    }
    #[inline]
    pub fn value(&self, at: usize) -> &[u8] {
        self.entries.get(at).map_or(&[], |e| &self.bytes[e.value..e.end])
    }
    /// Keys and values from one of the entries on.
    pub fn from(&self, at: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        let entries = self.entries.get(at..).unwrap_or(&[]);
        entries.iter().map(|e| (&self.bytes[e.key..e.value], &self.bytes[e.value..e.end]))
    }
    /// Keys and values of those before one of the entries, the nearest first.
    pub fn before(&self, at: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        let entries = self.entries.get(..at).unwrap_or(&[]);
        entries.iter().rev().map(|e| (&self.bytes[e.key..e.value], &self.bytes[e.value..e.end]))
    }
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }
    /// Bytes that are reserved.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
    /// Frees the memory beyond what a few entries need. There are no entries now.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to(SHORT);
        self.entries.shrink_to(SHORT / size_of::<Entry>());
    }
    /// As `clear`, and what was copied stays where it is: it is given back. The next entries come into `room`.
    pub fn clear_into(&mut self, room: Vec<u8>) -> Vec<u8> {
        self.entries.clear();
        std::mem::replace(&mut self.bytes, room)
    }

    /// Copies these slots of a leaf. The copy is empty before.
    pub fn copy(&mut self, node: Node<'_>, slots: Range<usize>) {
        if slots.len() < HEAP_MIN || !self.copy_heap(node, slots.clone()) {
            self.copy_one_by_one(node, slots);
        }
    }

    /// Where they are most of the leaf: copies all of its heap in one go, and puts the prefix of the keys in place of what stands
    /// before each. False, and nothing is copied: they are not, or the prefix has no room there, or an entry leaves the heap.
    pub(super) fn copy_heap(&mut self, node: Node<'_>, slots: Range<usize>) -> bool {
        let (prefix, start) = (node.prefix(), node.heap());
        let heap = node.page().all().get(start..).unwrap_or(&[]);
        let live = heap.len().saturating_sub(node.garbage());
        if slots.end > node.count()
            || 2 * live * slots.len() < heap.len() * node.count()
            || prefix.len() > ENTRY_HEAD
        {
            return false;
        }
        let mut before = [0; ENTRY_HEAD];
        before[ENTRY_HEAD - prefix.len()..].copy_from_slice(prefix);
        self.bytes.extend_from_slice(heap);
        self.entries.reserve(slots.len());
        for slot in slots {
            let at = node.offset(slot).wrapping_sub(start);
            let head = self.bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<ENTRY_HEAD>());
            let Some(head) = head else { return self.give_up() };
            let [key_0, key_1, value_0, value_1] = *head;
            *head = before;
            let key = at + ENTRY_HEAD;
            let value = key + usize::from(u16::from_le_bytes([key_0, key_1]));
            let end = value + usize::from(u16::from_le_bytes([value_0, value_1]));
            if end > heap.len() {
                return self.give_up();
            }
            self.entries.push(Entry { key: key - prefix.len(), value, end });
        }
        true
    }

    #[cold]
    fn give_up(&mut self) -> bool {
        self.clear();
        false
    }

    pub(super) fn copy_one_by_one(&mut self, node: Node<'_>, slots: Range<usize>) {
        let prefix = node.prefix();
        if slots.len() > 1 {
            self.bytes.reserve(node.used() + slots.len() * prefix.len());
            self.entries.reserve(slots.len());
        }
        for slot in slots.clone() {
            if slots.len() > 1 && (slot - slots.start).is_multiple_of(TOUCHED) {
                node.touch(slot..slots.end.min(slot + TOUCHED));
            }
            let key = self.bytes.len();
            if !prefix.is_empty() {
                self.bytes.extend_from_slice(prefix);
            }
            self.bytes.extend_from_slice(node.suffix(slot));
            let value = self.bytes.len();
            self.bytes.extend_from_slice(node.value(slot));
            self.entries.push(Entry { key, value, end: self.bytes.len() });
        }
    }
}
