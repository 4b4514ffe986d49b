//! Changes within a node's page, each recorded as few and small redo operations.
//!
//! The caller holds the page's exclusive latch, found the node [`sound`](Node::sound), and made sure
//! of room: nothing here can fail. An insert is three operations: the entry, its slot before those above, the counts; an
//! update of equal length writes the bytes that differ; a repack moves each run of live bytes once.

use super::node::{ENTRY_HEAD, FENCE_HEAD, Node, SLOT, SLOTS, at, head};
use smallvec::SmallVec;
use terrace_tier::page::{self, PAGE_SIZE};
use terrace_tier::redo::PageMut;

/// Values are compared in steps of this many bytes. An operation's own head is 3 or 4 bytes, so an equal
/// word is worth leaving out.
const WORD: usize = 8;

/// Log bytes that [`insert`], [`remove`] or [`set_value`] takes at most for an entry of `len` bytes of
/// key and value.
pub const fn log_of_entry(len: usize) -> usize {
    len + 96
}

/// Log bytes that [`remove`] takes at most.
pub const LOG_OF_REMOVAL: usize = 24;

/// Log bytes that [`repack`] or `build::Image::write_to` takes at most.
pub const LOG_OF_PAGE: usize = PAGE_SIZE + 256;

fn node<'a>(page: &'a PageMut<'_>) -> Node<'a> {
    Node::new(page.get())
}

/// Makes the page an empty node that holds all keys.
pub fn init_empty(page: &mut PageMut<'_>) {
    page.write_u16(at::HEAP, PAGE_SIZE as u16);
}

/// Inserts an entry at `slot`. The gap has room for it ([`Node::need`]).
pub fn insert(page: &mut PageMut<'_>, slot: usize, key: &[u8], value: &[u8]) {
    let (count, prefix) = (node(page).count(), node(page).prefix_len());
    let suffix = &key[prefix..];
    assert!(slot <= count && node(page).gap() >= SLOT + ENTRY_HEAD + suffix.len() + value.len());
    let offset = put_entry(page, suffix, value);
    page.insert(SLOTS + SLOT * slot, &slot_of(suffix, offset), SLOT * (count - slot));
    write_counts(page, count + 1, offset, 0);
}

/// Writes the entry's bytes below the heap; the caller moves the heap.
fn put_entry(page: &mut PageMut<'_>, suffix: &[u8], value: &[u8]) -> usize {
    let mut bytes: SmallVec<[u8; 512]> = SmallVec::new();
    bytes.extend_from_slice(&(suffix.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
    bytes.extend_from_slice(suffix);
    bytes.extend_from_slice(value);
    let offset = node(page).heap() - bytes.len();
    page.write(offset, &bytes);
    offset
}

fn slot_of(suffix: &[u8], offset: usize) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..4].copy_from_slice(&head(suffix).to_le_bytes());
    slot[4..].copy_from_slice(&(offset as u16).to_le_bytes());
    slot
}

fn write_counts(page: &mut PageMut<'_>, count: usize, heap: usize, more_garbage: usize) {
    let garbage = node(page).garbage() + more_garbage;
    let mut counts = [0; 6];
    counts[..2].copy_from_slice(&(count as u16).to_le_bytes());
    counts[2..4].copy_from_slice(&(heap as u16).to_le_bytes());
    counts[4..].copy_from_slice(&(garbage as u16).to_le_bytes());
    page.write(at::COUNT, &counts[..if more_garbage == 0 { 4 } else { 6 }]);
}

/// Removes the entry at `slot`.
pub fn remove(page: &mut PageMut<'_>, slot: usize) {
    let (count, heap, len) = (node(page).count(), node(page).heap(), node(page).entry_len(slot));
    assert!(slot < count);
    let slot_at = SLOTS + SLOT * slot;
    page.shift(slot_at, slot_at + SLOT, SLOT * (count - slot - 1));
    write_counts(page, count - 1, heap, len);
}

/// Whether [`set_value`] can put a value of this length into the page as it is.
pub fn value_fits(node: Node<'_>, slot: usize, len: usize) -> bool {
    len <= node.value(slot).len() || node.gap() >= ENTRY_HEAD + node.suffix(slot).len() + len
}

/// Replaces the value at `slot`. A value that is not longer stays where it is.
pub fn set_value(page: &mut PageMut<'_>, slot: usize, value: &[u8]) {
    let (count, heap, offset) = (node(page).count(), node(page).heap(), node(page).offset(slot));
    assert!(slot < count && value_fits(node(page), slot, value.len()));
    let old_len = node(page).value(slot).len();
    if value.len() <= old_len {
        let value_at = offset + node(page).entry_len(slot) - old_len;
        if value.len() < old_len {
            page.write_u16(offset + 2, value.len() as u16);
            write_counts(page, count, heap, old_len - value.len());
        }
        write_difference(page, value_at, value);
        return;
    }
    let suffix: SmallVec<[u8; 128]> = SmallVec::from_slice(node(page).suffix(slot));
    let dead = node(page).entry_len(slot);
    let offset = put_entry(page, &suffix, value);
    page.write_u16(SLOTS + SLOT * slot + 4, offset as u16);
    write_counts(page, count, offset, dead);
}

/// Writes over the first bytes of the value at `slot`, which is at least as long.
pub fn set_start(page: &mut PageMut<'_>, slot: usize, start: &[u8]) {
    let (offset, len) = (node(page).offset(slot), node(page).value(slot).len());
    assert!(slot < node(page).count() && start.len() <= len);
    let value_at = offset + node(page).entry_len(slot) - len;
    write_difference(page, value_at, start);
}

/// Writes the runs of bytes in which `new` differs from what is at `start`. Compares by words: runs with
/// an equal word between them are two operations.
fn write_difference(page: &mut PageMut<'_>, start: usize, new: &[u8]) {
    let mut at = 0;
    while let Some(first) = next_word(page, start, new, at, false) {
        let end = next_word(page, start, new, first, true).unwrap_or(new.len());
        let old = &page[start + first..start + end];
        let differs = |(old, new): (&u8, &u8)| old != new;
        let front = old.iter().zip(&new[first..end]).position(differs).unwrap_or(0);
        let back = old.iter().zip(&new[first..end]).rposition(differs).unwrap_or(0);
        page.write(start + first + front, &new[first + front..=first + back]);
        at = end;
    }
}

/// The first word of `new` from `at` on, which is one, that is the same as on the page, or is not.
#[inline]
fn next_word(page: &PageMut<'_>, start: usize, new: &[u8], at: usize, same: bool) -> Option<usize> {
    let old = page.get().bytes(start + at, new.len() - at);
    let word = |bytes: &[u8]| bytes.first_chunk::<WORD>().map(|word| u64::from_le_bytes(*word));
    let mut words = old.chunks(WORD).zip(new[at..].chunks(WORD));
    let found = |(old, new): (&[u8], &[u8])| match (word(old), word(new)) {
        (Some(old), Some(new)) => (old == new) == same,
        _ => (old == new) == same,
    };
    words.position(found).map(|word| at + WORD * word)
}

/// Marks the node as leaving its parent, or not.
pub fn set_flags(page: &mut PageMut<'_>, flags: u16) {
    page.write_u16(page::at::FLAGS, flags);
}

/// What [`repack`] makes of a node.
pub struct Keep<'a> {
    /// Entries below this stay.
    pub count: usize,
    /// A new high fence and right sibling; without it both stay.
    pub cut: Option<(&'a [u8], u32)>,
    /// The prefix that is cut from the keys from now on: not shorter than it was.
    pub prefix: usize,
}

impl<'a> Keep<'a> {
    /// The node's high fence and right sibling from now on.
    pub fn of(&self, node: Node<'a>) -> (Option<&'a [u8]>, Option<u32>) {
        match self.cut {
            Some((high, right)) => (Some(high), Some(right)),
            None => (node.high(), node.right()),
        }
    }
}

/// Log bytes that a repack takes, about: where it is much, writing the page anew is cheaper.
pub fn repack_log(node: Node<'_>, keep: &Keep<'_>) -> usize {
    let each = if keep.prefix == node.prefix_len() { 11 } else { 18 };
    each * keep.count + 128 + keep.cut.map_or(0, |(high, _)| high.len())
}

/// A piece of live bytes in the heap.
#[derive(Clone, Copy)]
struct Live {
    offset: usize,
    len: usize,
    owner: Owner,
}

#[derive(Clone, Copy)]
enum Owner {
    Slot(usize),
    /// A fence's header field.
    Fence(usize),
}

/// Moves the live bytes together at the page's end, so that all free bytes are in the gap. The node
/// has passed [`Node::verify`].
///
/// From the highest piece down, each moves up or stays: it never lands on a piece not yet moved.
pub fn repack(page: &mut PageMut<'_>, keep: &Keep<'_>) {
    let more = keep.prefix - node(page).prefix_len();
    let mut live = live_of(node(page), keep);
    live.sort_unstable_by_key(|piece| std::cmp::Reverse(piece.offset));
    let mut offsets = vec![0; keep.count];
    let mut top = PAGE_SIZE;
    let mut i = 0;
    while i < live.len() {
        let mut end = i + 1;
        while more == 0 && end < live.len() && live[end].offset + live[end].len == live[end - 1].offset {
            end += 1; // neighbours move as one
        }
        let (start, len) = (live[end - 1].offset, live[i].offset + live[i].len - live[end - 1].offset);
        match live[i].owner {
            Owner::Slot(slot) if more > 0 => {
                top = shorten(page, slot, top, more);
                offsets[slot] = top;
            }
            _ => {
                let moved = top - len - start;
                page.shift(top - len, start, len);
                top -= len;
                for piece in &live[i..end] {
                    match piece.owner {
                        Owner::Slot(slot) => offsets[slot] = piece.offset + moved,
                        Owner::Fence(field) => page.write_u16(field, (piece.offset + moved) as u16),
                    }
                }
            }
        }
        i = end;
    }
    write_slots(page, &offsets);
    if let Some((high, right)) = keep.cut {
        top = write_high(page, top, high, right);
    }
    let mut counts = [0; 8];
    for (i, value) in [keep.count, top, 0, keep.prefix].into_iter().enumerate() {
        counts[2 * i..2 * i + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }
    page.write(at::COUNT, &counts);
}

/// Moves an entry so that it ends at `top`, without the first `more` bytes of its key. Returns where
/// it starts.
fn shorten(page: &mut PageMut<'_>, slot: usize, top: usize, more: usize) -> usize {
    let (offset, len) = (node(page).offset(slot), node(page).entry_len(slot));
    let (key_len, value_len) = (node(page).suffix(slot).len(), node(page).value(slot).len());
    let gone = more.min(key_len);
    let to = top - (len - gone);
    page.shift(to + ENTRY_HEAD, offset + ENTRY_HEAD + gone, len - ENTRY_HEAD - gone);
    let mut entry_head = [0; ENTRY_HEAD];
    entry_head[..2].copy_from_slice(&((key_len - gone) as u16).to_le_bytes());
    entry_head[2..].copy_from_slice(&(value_len as u16).to_le_bytes());
    page.write(to, &entry_head);
    to
}

fn write_slots(page: &mut PageMut<'_>, offsets: &[usize]) {
    let mut slots = Vec::with_capacity(SLOT * offsets.len());
    for &offset in offsets {
        let suffix = page.get().bytes(offset + ENTRY_HEAD, usize::from(page.get().u16(offset)));
        slots.extend_from_slice(&head(suffix).to_le_bytes());
        slots.extend_from_slice(&(offset as u16).to_le_bytes());
    }
    page.write(SLOTS, &slots);
}

/// Writes a high fence below `top` and links to the right sibling. Returns where the fence starts.
fn write_high(page: &mut PageMut<'_>, top: usize, high: &[u8], right: u32) -> usize {
    let mut fence = Vec::with_capacity(FENCE_HEAD + high.len());
    fence.extend_from_slice(&(high.len() as u16).to_le_bytes());
    fence.extend_from_slice(high);
    let start = top - fence.len();
    page.write(start, &fence);
    page.write_u32(at::RIGHT, right);
    page.write_u16(at::HIGH, start as u16);
    start
}

fn live_of(node: Node<'_>, keep: &Keep<'_>) -> Vec<Live> {
    let mut live = Vec::with_capacity(keep.count + 2);
    for slot in 0..keep.count {
        live.push(Live { offset: node.offset(slot), len: node.entry_len(slot), owner: Owner::Slot(slot) });
    }
    let fences: &[usize] = if keep.cut.is_some() { &[at::LOW] } else { &[at::LOW, at::HIGH] };
    for &field in fences {
        let offset = usize::from(node.page().u16(field));
        if offset != 0 {
            let len = FENCE_HEAD + usize::from(node.page().u16(offset));
            live.push(Live { offset, len, owner: Owner::Fence(field) });
        }
    }
    live
}
