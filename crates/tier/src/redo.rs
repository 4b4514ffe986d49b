//! Redo: the changes of a mini-transaction to one page, as operations on its bytes.
//!
//! Operations are physical and know nothing of trees, so recovery works below every structure: `init` (a formatted, empty page),
//! `write` bytes, `insert` bytes before others, which move up, `shift` bytes within the page, `fill`. They are applied in order
//! to an image whose LSN is below the record's. The page then carries the record's end LSN, so applying is idempotent.
//!
//! Encoding: the two highest bits of the first byte give the kind. An offset in the page has 14 bits: the lower eight are in the
//! byte after the one with the higher six. A length below 128 is one byte; otherwise one byte has its lower seven bits and the
//! highest bit set, and the next byte has the rest.
//!
//! * 0, write: `place · length · bytes`
//! * 1, insert: `place · length · length of what moves up · bytes`
//! * 2, shift: `to · from · length`
//! * 3, by the rest of the byte: 0, init: `kind u8 · level u8`; 1, fill: `place · length · byte`

use crate::page::{self, Glsn, PAGE_HEADER, PAGE_SIZE, PageId, PageKind, PageRef};
use std::ops::Deref;

const WRITE: u8 = 0;
const INSERT: u8 = 1;
const SHIFT: u8 = 2;
/// Bit position of the kind in the first byte: above the higher bits of an offset.
const KIND: u32 = 6;
const INIT: u8 = 3 << KIND;
const FILL: u8 = INIT | 1;
/// Bits of an offset or a length.
const BITS: u32 = 14;
const _: () = assert!(PAGE_SIZE == 1 << BITS && KIND + u8::BITS == BITS);

/// A page under exclusive latch whose changes are recorded as they are made.
pub struct PageMut<'a> {
    bytes: &'a mut [u8],
    ops: &'a mut Vec<u8>,
}

impl<'a> PageMut<'a> {
    pub fn new(bytes: &'a mut [u8], ops: &'a mut Vec<u8>) -> PageMut<'a> {
        assert_eq!(bytes.len(), PAGE_SIZE);
        PageMut { bytes, ops }
    }

    /// For a page whose bytes after these are zero: changes must stay within them.
    pub(crate) fn start_of(bytes: &'a mut [u8], ops: &'a mut Vec<u8>) -> PageMut<'a> {
        assert!((PAGE_HEADER..=PAGE_SIZE).contains(&bytes.len()));
        PageMut { bytes, ops }
    }

    pub fn get(&self) -> PageRef<'_> {
        PageRef::start_of(self.bytes)
    }

    /// Formats the page as an empty one of this kind.
    pub fn init(&mut self, id: PageId, kind: PageKind, level: u8) {
        let lsn = self.get().lsn();
        page::format(self.bytes, id, kind, level);
        page::set_lsn(self.bytes, lsn);
        self.ops.clear();
        self.ops.extend_from_slice(&[INIT, kind as u8, level]);
    }

    /// Panics if the range leaves the page or touches checksum, id or LSN.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        assert!(at >= page::at::FLAGS && at + data.len() <= PAGE_SIZE, "write of {} at {at}", data.len());
        if data.is_empty() {
            return;
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
        self.op(WRITE, at, &[], &[data.len()]);
        self.ops.extend_from_slice(data);
    }

    /// Writes `data`; the `moved` bytes at this offset move up, behind it.
    pub fn insert(&mut self, at: usize, data: &[u8], moved: usize) {
        let end = at + data.len();
        assert!(at >= PAGE_HEADER && end + moved <= PAGE_SIZE, "insert of {} at {at}", data.len());
        if data.is_empty() || moved == 0 {
            return self.write(at, data);
        }
        self.bytes.copy_within(at..at + moved, end);
        self.bytes[at..end].copy_from_slice(data);
        self.op(INSERT, at, &[], &[data.len(), moved]);
        self.ops.extend_from_slice(data);
    }

    /// Records an operation except its bytes.
    #[inline]
    fn op(&mut self, kind: u8, at: usize, places: &[usize], lengths: &[usize]) {
        let (mut head, mut len) = ([0; 8], 0);
        let mut put = |byte: u8| {
            head[len] = byte;
            len += 1;
        };
        put(kind << KIND | (at >> u8::BITS) as u8);
        put(at as u8);
        for place in places {
            put((place >> u8::BITS) as u8);
            put(*place as u8);
        }
        for length in lengths {
            if *length < 0x80 {
                put(*length as u8);
            } else {
                put(*length as u8 | 0x80);
                put((length >> 7) as u8);
            }
        }
        self.ops.extend_from_slice(&head[..len]);
    }

    /// As `write`, but not logged: redo of the page's changes does not restore it. For bytes that nothing durable relies on
    /// before the page's image is durable. The mini-transaction also changes the page in logged ways, so it is dirty.
    pub fn write_past_log(&mut self, at: usize, data: &[u8]) {
        assert!(at >= page::at::FLAGS && at + data.len() <= PAGE_SIZE, "write of {} at {at}", data.len());
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    pub fn write_u8(&mut self, at: usize, value: u8) {
        self.write(at, &[value]);
    }
    pub fn write_u16(&mut self, at: usize, value: u16) {
        self.write(at, &value.to_le_bytes());
    }
    pub fn write_u32(&mut self, at: usize, value: u32) {
        self.write(at, &value.to_le_bytes());
    }
    pub fn write_u64(&mut self, at: usize, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    /// Copies `len` bytes within the page, as `memmove` does.
    pub fn shift(&mut self, to: usize, from: usize, len: usize) {
        assert!(to >= PAGE_HEADER && from >= PAGE_HEADER && to + len <= PAGE_SIZE && from + len <= PAGE_SIZE);
        if len == 0 || to == from {
            return;
        }
        self.bytes.copy_within(from..from + len, to);
        self.op(SHIFT, to, &[from], &[len]);
    }

    pub fn fill(&mut self, at: usize, len: usize, byte: u8) {
        assert!(at >= PAGE_HEADER && at + len <= PAGE_SIZE);
        if len == 0 {
            return;
        }
        self.bytes[at..at + len].fill(byte);
        self.ops.push(FILL);
        self.op(0, at, &[], &[len]);
        self.ops.push(byte);
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// Ops that do not decode, or that leave the page: the log is corrupt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("redo of page {id}: bad operation at byte {at}")]
pub struct BadRedo {
    pub id: PageId,
    pub at: usize,
}

/// Whether the ops begin by formatting the page, so that no older image is needed.
pub fn starts_with_init(ops: &[u8]) -> bool {
    ops.first() == Some(&INIT)
}

/// Applies the ops of a record that ends at `end` to an image. Does nothing if the image has them.
pub fn apply(bytes: &mut [u8], id: PageId, ops: &[u8], end: Glsn) -> Result<(), BadRedo> {
    if PageRef::new(bytes).lsn() >= end && !crate::planted::REDO_APPLIED_TWICE.on() {
        return Ok(());
    }
    let mut at = 0;
    while at < ops.len() {
        at += apply_one(bytes, id, &ops[at..]).ok_or(BadRedo { id, at })?;
    }
    page::set_lsn(bytes, end);
    Ok(())
}

/// Applies ops to an image, whatever its LSN, which stays.
pub fn apply_all(bytes: &mut [u8], id: PageId, ops: &[u8]) -> Result<(), BadRedo> {
    let lsn = PageRef::new(bytes).lsn();
    let mut at = 0;
    while at < ops.len() {
        at += apply_one(bytes, id, &ops[at..]).ok_or(BadRedo { id, at })?;
    }
    page::set_lsn(bytes, lsn);
    Ok(())
}

/// Applies the first of `ops`. Returns its encoded length, or None if it is not valid.
fn apply_one(bytes: &mut [u8], id: PageId, ops: &[u8]) -> Option<usize> {
    let first = *ops.first()?;
    let mut rest = &ops[1..];
    match first >> KIND {
        WRITE => {
            let (to, len) = (place(first, &mut rest)?, length(&mut rest)?);
            let data = rest.split_off(..len)?;
            if to < page::at::FLAGS {
                return None;
            }
            bytes.get_mut(to..to + len)?.copy_from_slice(data);
        }
        INSERT => {
            let (to, len, moved) = (place(first, &mut rest)?, length(&mut rest)?, length(&mut rest)?);
            let data = rest.split_off(..len)?;
            if to < PAGE_HEADER || to + len + moved > PAGE_SIZE {
                return None;
            }
            bytes.copy_within(to..to + moved, to + len);
            bytes[to..to + len].copy_from_slice(data);
        }
        SHIFT => {
            let to = place(first, &mut rest)?;
            let from = place(*rest.split_off_first()?, &mut rest)?;
            let len = length(&mut rest)?;
            if to < PAGE_HEADER || to + len > PAGE_SIZE || from + len > PAGE_SIZE {
                return None;
            }
            bytes.copy_within(from..from + len, to);
        }
        _ if first == INIT => {
            let kind = kind_of(*rest.split_off_first()?)?;
            page::format(bytes, id, kind, *rest.split_off_first()?);
        }
        _ if first == FILL => {
            let to = place(*rest.split_off_first()?, &mut rest)?;
            let len = length(&mut rest)?;
            let byte = *rest.split_off_first()?;
            if to < PAGE_HEADER {
                return None;
            }
            bytes.get_mut(to..to + len)?.fill(byte);
        }
        _ => return None,
    }
    Some(ops.len() - rest.len())
}

/// Decodes an offset whose first byte was read.
fn place(first: u8, rest: &mut &[u8]) -> Option<usize> {
    let high = usize::from(first & ((1 << KIND) - 1));
    Some(high << u8::BITS | usize::from(*rest.split_off_first()?))
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    let low = *rest.split_off_first()?;
    let high = if low < 0x80 { 0 } else { *rest.split_off_first()? };
    Some(usize::from(low & 0x7F) | usize::from(high) << 7)
}

fn kind_of(byte: u8) -> Option<PageKind> {
    use PageKind::*;
    [Free, Leaf, Inner, Overflow, SpaceHeader, Undo, System, Map, Bits].into_iter().find(|k| *k as u8 == byte)
}

#[cfg(test)]
mod tests;
