//! A node's whole image, made in memory and written to a page in one go: right halves of splits,
//! merged nodes, bulk-built nodes, and nodes whose prefix changes.

use super::node::{ENTRY_HEAD, FENCE_HEAD, Node, SLOT, SLOTS, at, head, prefix_of};
use terrace_tier::page::{PAGE_SIZE, PageId, PageKind};
use terrace_tier::redo::PageMut;

pub struct Image {
    bytes: Vec<u8>,
    level: u8,
    flags: u16,
    prefix: usize,
    count: usize,
    heap: usize,
}

impl Image {
    /// An empty node with these fences.
    pub fn new(level: u8, low: &[u8], high: Option<&[u8]>, right: Option<u32>) -> Image {
        let prefix = prefix_of(low, high);
        let mut image =
            Image { bytes: vec![0; PAGE_SIZE], level, flags: 0, prefix, count: 0, heap: PAGE_SIZE };
        image.put_u16(at::PREFIX, prefix);
        image.bytes[at::RIGHT..at::RIGHT + 4].copy_from_slice(&right.unwrap_or(0).to_le_bytes());
        if !low.is_empty() {
            image.fence(at::LOW, low);
        }
        if let Some(high) = high {
            image.fence(at::HIGH, high);
        }
        image
    }

    pub fn with_flags(mut self, flags: u16) -> Image {
        self.flags = flags;
        self
    }

    fn put_u16(&mut self, offset: usize, value: usize) {
        self.bytes[offset..offset + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }

    fn fence(&mut self, field: usize, key: &[u8]) {
        self.heap -= FENCE_HEAD + key.len();
        self.put_u16(self.heap, key.len());
        self.bytes[self.heap + FENCE_HEAD..self.heap + FENCE_HEAD + key.len()].copy_from_slice(key);
        self.put_u16(field, self.heap);
    }

    /// Bytes of slots, entries and fences so far.
    pub fn used(&self) -> usize {
        SLOT * self.count + PAGE_SIZE - self.heap
    }
    pub fn count(&self) -> usize {
        self.count
    }
    fn gap(&self) -> usize {
        self.heap - SLOTS - SLOT * self.count
    }

    /// Appends an entry; keys ascend. An inner node's first key is its low fence and is not stored.
    /// Returns false, and does nothing, if there is no room.
    #[must_use]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let suffix = if self.level > 0 && self.count == 0 { &[] } else { &key[self.prefix..] };
        let len = ENTRY_HEAD + suffix.len() + value.len();
        if self.gap() < SLOT + len {
            return false;
        }
        self.heap -= len;
        self.put_u16(self.heap, suffix.len());
        self.put_u16(self.heap + 2, value.len());
        let key_at = self.heap + ENTRY_HEAD;
        self.bytes[key_at..key_at + suffix.len()].copy_from_slice(suffix);
        self.bytes[key_at + suffix.len()..self.heap + len].copy_from_slice(value);
        let slot_at = SLOTS + SLOT * self.count;
        self.bytes[slot_at..slot_at + 4].copy_from_slice(&head(suffix).to_le_bytes());
        self.put_u16(slot_at + 4, self.heap);
        self.count += 1;
        true
    }

    /// Appends a node's entries from `slots`. False if they do not all fit.
    #[must_use]
    pub fn push_from(&mut self, node: Node<'_>, slots: std::ops::Range<usize>) -> bool {
        let mut key = Vec::new();
        slots.into_iter().all(|slot| {
            node.key_into(slot, &mut key);
            self.push(&key, node.value(slot))
        })
    }

    pub fn kind(&self) -> PageKind {
        if self.level == 0 { PageKind::Leaf } else { PageKind::Inner }
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    /// Makes the bytes this node, behind their header: an empty page of this kind and level.
    pub fn fill(mut self, bytes: &mut [u8]) {
        assert_eq!(self.flags, 0, "a built node has no flags");
        self.put_u16(at::COUNT, self.count);
        self.put_u16(at::HEAP, self.heap);
        let slots = SLOTS + SLOT * self.count;
        bytes[at::COUNT..slots].copy_from_slice(&self.bytes[at::COUNT..slots]);
        bytes[self.heap..].copy_from_slice(&self.bytes[self.heap..]);
    }

    /// Makes the page this node. Whatever it was before is gone.
    pub fn write_to(mut self, page: &mut PageMut<'_>, id: PageId) {
        page.init(id, self.kind(), self.level);
        self.put_u16(at::COUNT, self.count);
        self.put_u16(at::HEAP, self.heap);
        if self.flags != 0 {
            super::edit::set_flags(page, self.flags);
        }
        page.write(at::COUNT, &self.bytes[at::COUNT..SLOTS + SLOT * self.count]);
        page.write(self.heap, &self.bytes[self.heap..]);
    }
}
