//! A log record: what one mini-transaction did to one page.
//!
//! `own first GLSN u64 · range first GLSN u64 · range length u32 · ops length u32 · space u32 · page
//! u32 · ops`, little-endian. GLSNs count the records' bytes, so a mini-transaction's range is the sum
//! of its records' sizes, and the log is gapless exactly if each record begins where another ends.
//!
//! A record has no checksum of its own: it is only ever read out of intact blocks of one epoch that
//! follow each other.

use terrace_tier::page::{Glsn, PageId, SpaceId};
use terrace_tier::redo::record_bound;

pub const HEADER: usize = 32;
const _: () = assert!(record_bound(0) >= HEADER as u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    pub own: Glsn,
    pub first: Glsn,
    pub length: u32,
    pub ops_len: u32,
    pub id: PageId,
}

/// What stands at the start of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded<'a> {
    Record(RecordHeader, &'a [u8]),
    /// The bytes end before the record does.
    Short,
    Nonsense,
}

/// Bytes of a record with so many bytes of ops: its share of the range.
pub fn size(ops_len: usize) -> u64 {
    (HEADER + ops_len) as u64
}

/// Bytes of the record that begins at `at` of a buffer that we filled ourselves.
pub fn size_at(records: &[u8], at: usize) -> usize {
    let len = &records[at + 20..at + 24];
    HEADER + u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize
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
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&header.own.to_le_bytes());
    bytes[8..16].copy_from_slice(&header.first.to_le_bytes());
    bytes[16..20].copy_from_slice(&header.length.to_le_bytes());
    bytes[20..24].copy_from_slice(&header.ops_len.to_le_bytes());
    bytes[24..28].copy_from_slice(&header.id.space.0.to_le_bytes());
    bytes[28..].copy_from_slice(&header.id.page.to_le_bytes());
    out.extend_from_slice(&bytes);
    out.extend_from_slice(ops);
}

/// The record at the start of `bytes`, and its ops.
pub fn decode(bytes: &[u8]) -> Decoded<'_> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else { return Decoded::Short };
    let u32_at = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
    let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
    let header = RecordHeader {
        own: u64_at(0),
        first: u64_at(8),
        length: u32_at(16),
        ops_len: u32_at(20),
        id: PageId::new(SpaceId(u32_at(24)), u32_at(28)),
    };
    let end = header.first.checked_add(u64::from(header.length));
    let own_end = header.own.checked_add(size(header.ops_len as usize));
    let fits = matches!((end, own_end), (Some(end), Some(own_end)) if own_end <= end);
    if header.first == 0 || header.own < header.first || !fits {
        return Decoded::Nonsense;
    }
    match rest.get(..header.ops_len as usize) {
        Some(ops) => Decoded::Record(header, ops),
        None => Decoded::Short,
    }
}
