//! A log block: 4 KiB of a partition's ring.
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | CRC-32C of bytes 4.. |
//! | 4 | 4 | magic `TLOG` |
//! | 8 | 4 | writer epoch |
//! | 12 | 2 | partition |
//! | 14 | 2 | bytes of records in this block |
//! | 16 | 8 | sequence: the block's number in its partition since the instance was made |
//! | 24 | 8 | durable horizon known when the block was written |
//! | 32 | .. | records; one may go on in the next block |
//!
//! A write of the log begins with a new block, so it begins with a record, and a block that holds
//! acknowledged records is never written again.

use terrace_tier::page::Glsn;

pub const BLOCK: usize = 4096;
const HEADER: usize = 32;
/// Record bytes a block holds.
pub const PAYLOAD: usize = BLOCK - HEADER;
const MAGIC: [u8; 4] = *b"TLOG";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    pub epoch: u32,
    pub partition: u16,
    pub sequence: u64,
    /// Everything below was durable when the block was written.
    pub attested: Glsn,
}

/// Blocks that `bytes` of records take.
pub fn blocks_for(bytes: u64) -> u64 {
    bytes.div_ceil(PAYLOAD as u64)
}

/// Writes `records` into consecutive blocks of `out`, the first with the header's sequence.
pub fn encode(header: BlockHeader, records: &[u8], out: &mut [u8]) {
    assert_eq!(out.len() as u64, blocks_for(records.len() as u64) * BLOCK as u64);
    for (i, (part, block)) in records.chunks(PAYLOAD).zip(out.chunks_exact_mut(BLOCK)).enumerate() {
        block[4..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&header.epoch.to_le_bytes());
        block[12..14].copy_from_slice(&header.partition.to_le_bytes());
        block[14..16].copy_from_slice(&(part.len() as u16).to_le_bytes());
        block[16..24].copy_from_slice(&(header.sequence + i as u64).to_le_bytes());
        block[24..32].copy_from_slice(&header.attested.to_le_bytes());
        block[HEADER..HEADER + part.len()].copy_from_slice(part);
        block[HEADER + part.len()..].fill(0);
        let crc = crc32c::crc32c(&block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The header and records of an intact block; None if it is not one.
pub fn decode(block: &[u8]) -> Option<(BlockHeader, &[u8])> {
    let u32_at = |i: usize| Some(u32::from_le_bytes(block.get(i..i + 4)?.try_into().ok()?));
    let u64_at = |i: usize| Some(u64::from_le_bytes(block.get(i..i + 8)?.try_into().ok()?));
    if block.len() != BLOCK || block[4..8] != MAGIC || u32_at(0)? != crc32c::crc32c(&block[4..]) {
        return None;
    }
    let used = usize::from(u16::from_le_bytes([block[14], block[15]]));
    let header = BlockHeader {
        epoch: u32_at(8)?,
        partition: u16::from_le_bytes([block[12], block[13]]),
        sequence: u64_at(16)?,
        attested: u64_at(24)?,
    };
    Some((header, block.get(HEADER..HEADER + used)?))
}
