//! A log record: what one mini-transaction did to one page.
//!
//! `own first GLSN u64 · range first GLSN u64 · range length u32 · ops length u32 · space u32 · page
//! u32 · ops`, little-endian. GLSNs count the records' bytes, so a mini-transaction's range is the sum
//! of its records' sizes, and the log is gapless exactly if each record begins where another ends.

use terrace_tier::page::{Glsn, PageId, SpaceId};

pub const HEADER: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    pub own: Glsn,
    pub first: Glsn,
    pub length: u32,
    pub ops_len: u32,
    pub id: PageId,
}

/// Bytes of a record with so many bytes of ops: its share of the range.
pub fn size(ops_len: usize) -> u64 {
    (HEADER + ops_len) as u64
}

impl RecordHeader {
    /// End of the mini-transaction's range.
    pub fn end(&self) -> Glsn {
        self.first + u64::from(self.length)
    }
    pub fn own_end(&self) -> Glsn {
        self.own + size(self.ops_len as usize)
    }
}

pub fn encode(header: &RecordHeader, ops: &[u8], out: &mut Vec<u8>) {
    assert_eq!(ops.len(), header.ops_len as usize);
    out.extend_from_slice(&header.own.to_le_bytes());
    out.extend_from_slice(&header.first.to_le_bytes());
    out.extend_from_slice(&header.length.to_le_bytes());
    out.extend_from_slice(&header.ops_len.to_le_bytes());
    out.extend_from_slice(&header.id.space.0.to_le_bytes());
    out.extend_from_slice(&header.id.page.to_le_bytes());
    out.extend_from_slice(ops);
}

/// The record at the start of `bytes`, and its ops; None if it is cut short or makes no sense.
pub fn decode(bytes: &[u8]) -> Option<(RecordHeader, &[u8])> {
    let u32_at = |i: usize| Some(u32::from_le_bytes(bytes.get(i..i + 4)?.try_into().ok()?));
    let u64_at = |i: usize| Some(u64::from_le_bytes(bytes.get(i..i + 8)?.try_into().ok()?));
    let header = RecordHeader {
        own: u64_at(0)?,
        first: u64_at(8)?,
        length: u32_at(16)?,
        ops_len: u32_at(20)?,
        id: PageId::new(SpaceId(u32_at(24)?), u32_at(28)?),
    };
    let ops = bytes.get(HEADER..HEADER.checked_add(header.ops_len as usize)?)?;
    let end = header.first.checked_add(u64::from(header.length))?;
    let own_end = header.own.checked_add(size(ops.len()))?;
    (header.first > 0 && header.own >= header.first && own_end <= end).then_some((header, ops))
}
