//! A log block: 4 KiB of a partition's ring.
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | CRC-32C of bytes 4.. |
//! | 4 | 4 | magic and version, `TLG2` |
//! | 8 | 8 | instance: the low half of its id |
//! | 16 | 4 | writer epoch |
//! | 20 | 2 | partition |
//! | 22 | 2 | bytes of records in this block |
//! | 24 | 8 | sequence: the block's number in its partition since the instance was made |
//! | 32 | 8 | durable horizon known when the block was written |
//! | 40 | 2 | where in the records the first one begins that begins here; 0xFFFF: none does |
//! | 42 | 6 | zero |
//! | 48 | 8 | where the partition's record before that one ended: its position counts from there; 0 if none begins |
//! | 56 | .. | records; one may go on in the next block |
//!
//! A write of the log begins with a new block and with a record. A block that holds acknowledged
//! records is never written again: the rest of a write's last block stays empty.

use crate::Glsn;
use crate::record;

pub const BLOCK: usize = 4096;
const HEADER: usize = 56;
/// Record bytes a block holds.
pub const PAYLOAD: usize = BLOCK - HEADER;
const MAGIC: [u8; 4] = *b"TLG2";
const NONE: u16 = u16::MAX;

const _: () = assert!(BLOCK.is_multiple_of(terrace_io::SECTOR) && PAYLOAD < NONE as usize);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    pub instance: u64,
    pub epoch: u32,
    pub partition: u16,
    pub sequence: u64,
    /// Everything below was durable when the block was written.
    pub attested: Glsn,
    /// Where in the payload the first record begins that begins in this block.
    pub first: Option<u16>,
    /// Where the record before that one ended, if one begins.
    pub after: Glsn,
}

/// Blocks that `bytes` of records take.
pub fn blocks_for(bytes: u64) -> u64 {
    bytes.div_ceil(PAYLOAD as u64)
}

/// Writes `records` into consecutive blocks of `out`, the first with the header's sequence. The
/// first record begins at `begin`, and the one before it ended at the header's `after`; `header.first` is not looked at.
pub fn encode(header: BlockHeader, records: &[u8], begin: usize, out: &mut [u8]) {
    assert_eq!(out.len() as u64, blocks_for(records.len() as u64) * BLOCK as u64);
    let (mut next_record, mut after) = (begin, header.after);
    for (i, (part, block)) in records.chunks(PAYLOAD).zip(out.chunks_exact_mut(BLOCK)).enumerate() {
        let from = i * PAYLOAD;
        let begins = next_record < from + part.len();
        let (first, base) = if begins { ((next_record - from) as u16, after) } else { (NONE, 0) };
        while next_record < from + part.len() {
            let (len, end) = record::pass(records, next_record, after);
            (next_record, after) = (next_record + len, end);
        }
        block[4..8].copy_from_slice(&MAGIC);
        block[8..16].copy_from_slice(&header.instance.to_le_bytes());
        block[16..20].copy_from_slice(&header.epoch.to_le_bytes());
        block[20..22].copy_from_slice(&header.partition.to_le_bytes());
        block[22..24].copy_from_slice(&(part.len() as u16).to_le_bytes());
        block[24..32].copy_from_slice(&(header.sequence + i as u64).to_le_bytes());
        block[32..40].copy_from_slice(&header.attested.to_le_bytes());
        block[40..42].copy_from_slice(&first.to_le_bytes());
        block[42..48].fill(0);
        block[48..HEADER].copy_from_slice(&base.to_le_bytes());
        block[HEADER..HEADER + part.len()].copy_from_slice(part);
        block[HEADER + part.len()..].fill(0);
        let crc = crc32c::crc32c(&block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Makes an intact block one of another instance.
pub fn restamp(block: &mut [u8], instance: u64) {
    block[8..16].copy_from_slice(&instance.to_le_bytes());
    let crc = crc32c::crc32c(&block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
}

/// The header and records of an intact block; None if it is not one.
pub fn decode(block: &[u8]) -> Option<(BlockHeader, &[u8])> {
    let u32_at = |i: usize| Some(u32::from_le_bytes(block.get(i..i + 4)?.try_into().ok()?));
    let u64_at = |i: usize| Some(u64::from_le_bytes(block.get(i..i + 8)?.try_into().ok()?));
    if block.len() != BLOCK || block[4..8] != MAGIC || u32_at(0)? != crc32c::crc32c(&block[4..]) {
        return None;
    }
    let used = usize::from(u16::from_le_bytes([block[22], block[23]]));
    let first = Some(u16::from_le_bytes([block[40], block[41]])).filter(|f| *f != NONE);
    if first.is_some_and(|f| usize::from(f) >= used) {
        return None;
    }
    let header = BlockHeader {
        instance: u64_at(8)?,
        epoch: u32_at(16)?,
        partition: u16::from_le_bytes([block[20], block[21]]),
        sequence: u64_at(24)?,
        attested: u64_at(32)?,
        first,
        after: u64_at(48)?,
    };
    Some((header, block.get(HEADER..HEADER + used)?))
}
