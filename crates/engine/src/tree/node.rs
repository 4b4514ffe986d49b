//! A node's page, read.
//!
//! After the page header (`terrace_tier::page`) slots grow upward, and entries grow downward from
//! the page's end. The header's 16 owned bytes:
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 48 | 2 | count of slots |
//! | 50 | 2 | heap: the lowest byte in use by an entry or fence |
//! | 52 | 2 | garbage: bytes above `heap` that nothing uses |
//! | 54 | 2 | length of the prefix that both fences share and that is cut from every key |
//! | 56 | 4 | right sibling's page number, 0 if none |
//! | 60 | 2 | where the low fence is, 0 if below all keys |
//! | 62 | 2 | where the high fence is, 0 if above all keys |
//!
//! A slot is 6 bytes: the first four bytes of its key after the prefix (the *head*, big-endian,
//! zero-padded, so that heads order as keys do) and its entry's offset. An entry is key length u16,
//! value length u16, the key without prefix, the value. A fence is length u16 and the whole key.
//!
//! A node holds the keys `low <= k < high`. An inner node's values are page numbers (u32); entry
//! `i` leads to the keys from its own up to the next one's. The first entry's key is the node's low
//! fence and stored as empty.
//!
//! Reading is total: whatever the bytes are, nothing here panics or runs away. [`Node::sound`]
//! checks what the write path relies on, [`Node::verify`] checks everything in one page.

use std::cmp::Ordering;
use terrace_tier::page::{PAGE_HEADER, PAGE_SIZE, PageKind, PageRef};

pub mod at {
    //! Byte offsets.
    pub const COUNT: usize = 48;
    pub const HEAP: usize = 50;
    pub const GARBAGE: usize = 52;
    pub const PREFIX: usize = 54;
    pub const RIGHT: usize = 56;
    pub const LOW: usize = 60;
    pub const HIGH: usize = 62;
}

pub const SLOTS: usize = PAGE_HEADER;
pub const SLOT: usize = 6;
pub const ENTRY_HEAD: usize = 4;
pub const FENCE_HEAD: usize = 2;

/// Bytes for slots, entries and fences.
pub const CAPACITY: usize = PAGE_SIZE - SLOTS;
/// The longest key.
pub const MAX_KEY: usize = 3500;
/// The most that key and value may have together: with the longest fences, two such entries fit a
/// page, so a page that lacks room can be split.
pub const MAX_ENTRY: usize = 4000;
/// The longest value that fits whatever the key is. See [`max_inline_value`].
pub const MAX_INLINE_VALUE: usize = MAX_ENTRY - MAX_KEY;
/// A node above this level is corrupt: even two children a node would have filled the space.
pub const MAX_LEVEL: u8 = 33;

const _: () = assert!(CAPACITY - 2 * (FENCE_HEAD + MAX_KEY) >= 2 * (SLOT + ENTRY_HEAD + MAX_ENTRY));

/// The longest value beside a key of this length; longer ones go to overflow pages.
pub const fn max_inline_value(key_len: usize) -> usize {
    MAX_ENTRY - key_len
}

/// Page flag: the node is out of its parent and about to be merged into its left neighbour.
pub const FLAG_MERGING: u16 = 1;

/// The first four bytes, as a number that orders as they do.
#[inline]
pub fn head(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(four) => u32::from_be_bytes(*four),
        None => {
            let mut padded = [0; 4];
            padded[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(padded)
        }
    }
}

/// Orders keys as bytes; mostly the first eight decide, or four of short ones, without a call. Of two that are as long as each other and
/// no longer than sixteen the last ones do then: that bytes which are equal are among them again doesn't matter.
#[inline]
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some(x), Some(y)) = (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        if x != y {
            return u64::from_be_bytes(*x).cmp(&u64::from_be_bytes(*y));
        }
        if a.len() == 8 || b.len() == 8 {
            return a.len().cmp(&b.len());
        }
        if let (true, Some(x), Some(y)) =
            (a.len() == b.len() && a.len() <= 16, a.last_chunk::<8>(), b.last_chunk::<8>())
        {
            return u64::from_be_bytes(*x).cmp(&u64::from_be_bytes(*y));
        }
    } else if let (Some(x), Some(y)) = (a.first_chunk::<4>(), b.first_chunk::<4>()) {
        if x != y {
            return u32::from_be_bytes(*x).cmp(&u32::from_be_bytes(*y));
        }
        if a.len() == 4 || b.len() == 4 {
            return a.len().cmp(&b.len());
        }
        // One of them is shorter than eight.
        if let (true, Some(x), Some(y)) = (a.len() == b.len(), a.last_chunk::<4>(), b.last_chunk::<4>()) {
            return u32::from_be_bytes(*x).cmp(&u32::from_be_bytes(*y));
        }
    } else {
        return a.iter().cmp(b);
    }
    a.cmp(b)
}

pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// What a node with these fences cuts from its keys.
pub fn prefix_of(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| common_prefix(low, high))
}

#[derive(Clone, Copy)]
pub struct Node<'a> {
    page: PageRef<'a>,
}

impl<'a> Node<'a> {
    #[inline]
    pub fn new(page: PageRef<'a>) -> Node<'a> {
        Node { page }
    }
    pub fn page(self) -> PageRef<'a> {
        self.page
    }
    pub fn level(self) -> u8 {
        self.page.level()
    }
    pub fn is_leaf(self) -> bool {
        self.page.level() == 0
    }
    /// Whether the page is a node at all, of the kind that its level asks for.
    #[inline]
    pub fn is_live(self) -> bool {
        let kind = if self.is_leaf() { PageKind::Leaf } else { PageKind::Inner };
        self.page.kind() == kind as u8
    }
    /// Whether the page was given back to its space.
    pub fn is_free(self) -> bool {
        self.page.kind() == PageKind::Free as u8
    }
    pub fn is_merging(self) -> bool {
        self.page.flags() & FLAG_MERGING != 0
    }
    #[inline]
    pub fn count(self) -> usize {
        usize::from(self.page.u16(at::COUNT))
    }
    pub fn heap(self) -> usize {
        usize::from(self.page.u16(at::HEAP))
    }
    pub fn garbage(self) -> usize {
        usize::from(self.page.u16(at::GARBAGE))
    }
    #[inline]
    pub fn prefix_len(self) -> usize {
        usize::from(self.page.u16(at::PREFIX))
    }
    pub fn prefix(self) -> &'a [u8] {
        let low = self.low();
        low.get(..self.prefix_len()).unwrap_or(low)
    }
    pub fn right(self) -> Option<u32> {
        Some(self.page.u32(at::RIGHT)).filter(|page| *page != 0)
    }
    #[inline]
    pub fn low(self) -> &'a [u8] {
        self.fence(at::LOW).unwrap_or(&[])
    }
    #[inline]
    pub fn high(self) -> Option<&'a [u8]> {
        self.fence(at::HIGH)
    }
    #[inline]
    fn fence(self, field: usize) -> Option<&'a [u8]> {
        match usize::from(self.page.u16(field)) {
            0 => None,
            offset => Some(self.page.bytes(offset + FENCE_HEAD, usize::from(self.page.u16(offset)))),
        }
    }

    #[inline]
    pub fn offset(self, slot: usize) -> usize {
        usize::from(self.page.u16(SLOTS + SLOT * slot + 4))
    }
    /// The key's bytes after the prefix.
    #[inline]
    pub fn suffix(self, slot: usize) -> &'a [u8] {
        let offset = self.offset(slot);
        self.page.bytes(offset + ENTRY_HEAD, usize::from(self.page.u16(offset)))
    }
    #[inline]
    pub fn value(self, slot: usize) -> &'a [u8] {
        let offset = self.offset(slot);
        let key_len = usize::from(self.page.u16(offset));
        self.page.bytes(offset + ENTRY_HEAD + key_len, usize::from(self.page.u16(offset + 2)))
    }
    pub fn entry_len(self, slot: usize) -> usize {
        let offset = self.offset(slot);
        ENTRY_HEAD + usize::from(self.page.u16(offset)) + usize::from(self.page.u16(offset + 2))
    }
    /// Reads a little of each of these entries. A caller that copies them one after the other waits for memory once, not for each.
    #[inline]
    pub fn touch(self, slots: std::ops::Range<usize>) {
        std::hint::black_box(slots.fold(0, |all, slot| all ^ self.page.u16(self.offset(slot))));
    }
    /// An inner node's child.
    #[inline]
    pub fn child(self, slot: usize) -> u32 {
        self.value(slot).first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b))
    }
    /// The whole key of an entry. An inner node's first entry has its low fence.
    pub fn key_into(self, slot: usize, key: &mut Vec<u8>) {
        key.clear();
        if slot == 0 && !self.is_leaf() {
            key.extend_from_slice(self.low());
        } else {
            key.extend_from_slice(self.prefix());
            key.extend_from_slice(self.suffix(slot));
        }
    }
    pub fn key(self, slot: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_into(slot, &mut key);
        key
    }

    /// Bytes between the slots and the heap.
    pub fn gap(self) -> usize {
        self.heap().saturating_sub(SLOTS + SLOT * self.count())
    }
    /// Bytes that are free, or would be after a repack.
    pub fn free(self) -> usize {
        self.gap() + self.garbage()
    }
    /// Bytes of slots, entries and fences.
    pub fn used(self) -> usize {
        CAPACITY.saturating_sub(self.free())
    }
    /// What a new entry takes, its slot included.
    pub fn need(self, key_len: usize, value_len: usize) -> usize {
        SLOT + ENTRY_HEAD + key_len.saturating_sub(self.prefix_len()) + value_len
    }
    /// The node's size if it cut only so much from its keys.
    pub fn used_with_prefix(self, prefix: usize) -> usize {
        self.used() + self.count() * self.prefix_len().saturating_sub(prefix)
    }

    /// Whether the key lies left of this node's end.
    #[inline]
    pub fn below_high(self, key: &[u8]) -> bool {
        self.high().is_none_or(|high| compare(key, high).is_lt())
    }
    #[inline]
    pub fn contains(self, key: &[u8]) -> bool {
        compare(self.low(), key).is_le() && self.below_high(key)
    }

    /// Whether the header can be written by: the areas are within the page and in order.
    pub fn sound(self) -> bool {
        let heap = self.heap();
        SLOTS + SLOT * self.count() <= heap
            && heap <= PAGE_SIZE
            && self.garbage() <= PAGE_SIZE - heap
            && self.prefix_len() <= self.low().len()
            && (self.is_leaf() || self.count() > 0)
    }

    /// Whether the header can be written by, for an entry with this key.
    pub fn is_sound_for(self, key: &[u8]) -> bool {
        self.sound() && key.starts_with(self.prefix())
    }

    /// Whether an entry lies within the heap.
    pub fn entry_is_sound(self, slot: usize) -> bool {
        let offset = self.offset(slot);
        offset >= self.heap() && offset + self.entry_len(slot) <= PAGE_SIZE
    }

    /// Checks everything that one page can tell. For structure changes and the checker.
    pub fn verify(self) -> Result<(), &'static str> {
        if !self.sound() {
            return Err("the node's areas overlap");
        }
        let (low, high) = (self.low(), self.high());
        if high.is_some_and(|high| high <= low) {
            return Err("its high fence is not above its low fence");
        }
        if self.prefix_len() > prefix_of(low, high) {
            return Err("its prefix is longer than what its fences share");
        }
        let mut live = 0;
        for field in [at::LOW, at::HIGH] {
            let offset = usize::from(self.page.u16(field));
            if offset != 0 {
                let len = FENCE_HEAD + usize::from(self.page.u16(offset));
                if offset < self.heap() || offset + len > PAGE_SIZE {
                    return Err("a fence leaves the heap");
                }
                live += len;
            }
        }
        for slot in 0..self.count() {
            live += self.verify_entry(slot)?;
        }
        if live + self.garbage() != PAGE_SIZE - self.heap() {
            return Err("the heap's bytes do not add up");
        }
        Ok(())
    }

    fn verify_entry(self, slot: usize) -> Result<usize, &'static str> {
        if !self.entry_is_sound(slot) {
            return Err("an entry leaves the heap");
        }
        let suffix = self.suffix(slot);
        if self.slot_head(slot) != head(suffix) {
            return Err("a key head is not its key's");
        }
        if slot > 0 && self.suffix(slot - 1) >= suffix {
            return Err("its keys are out of order");
        }
        let rest = |fence: &'a [u8]| fence.get(self.prefix_len()..).unwrap_or(&[]);
        let first_of_inner = slot == 0 && !self.is_leaf();
        if first_of_inner && !suffix.is_empty() {
            return Err("its first entry has a key");
        }
        // The keys are in order: so the first and the last of them stand for all.
        let first = slot == usize::from(!self.is_leaf());
        if first && suffix < rest(self.low()) {
            return Err("a key is below the low fence");
        }
        let last = !first_of_inner && slot + 1 == self.count();
        if last && self.high().is_some_and(|high| suffix >= rest(high)) {
            return Err("a key is not below the high fence");
        }
        if !self.is_leaf() && self.value(slot).len() != 4 {
            return Err("a child is not a page number");
        }
        Ok(self.entry_len(slot))
    }

    #[inline]
    pub fn slot_head(self, slot: usize) -> u32 {
        self.page.u32(SLOTS + SLOT * slot)
    }
}

#[cfg(test)]
mod tests;
