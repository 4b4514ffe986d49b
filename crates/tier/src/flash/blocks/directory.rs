//! A segment's directory: which values it has and where, for the next start.
//!
//! At the segment's start, little-endian (`docs/format.md`):
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | CRC-32C of the rest of the directory |
//! | 4 | 4 | magic `TFB1` |
//! | 8 | 4 | bytes of a segment |
//! | 12 | 4 | values that a segment may have, *n* |
//! | 16 | 16 | the owner of the flash |
//! | 32 | 8 | life: counts up each time that any segment is opened |
//! | 40 | 4 | the segment's number |
//! | 44 | 4 | bytes of a key |
//! | 48 | 12 *n* | for each value its fingerprint (u32), its place in units of 512 bytes from the segment's start (u32), and its length in bytes with its header (u32; 0: no value) |
//!
//! It is a hint and never synced: a value is served only if it proves itself (`record`). A torn, old or missing directory costs hits
//! and nothing else.

use super::segments::{Extent, Geometry};
use terrace_io::AlignedBuf;

const MAGIC: [u8; 4] = *b"TFB1";
const HEADER: usize = 48;
const ENTRY: usize = 12;

/// Bytes of the directory of `per` values, before it is rounded up to whole sectors.
pub(super) fn bytes(per: u32) -> usize {
    HEADER + ENTRY * per as usize
}

/// Whose directory it is.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub id: u128,
    pub key_bytes: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// What is the same in each directory of the segment.
fn header(geometry: &Geometry, owner: Owner, segment: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&geometry.bytes.to_le_bytes());
    header[12..16].copy_from_slice(&geometry.per.to_le_bytes());
    header[16..32].copy_from_slice(&owner.id.to_le_bytes());
    header[40..44].copy_from_slice(&segment.to_le_bytes());
    header[44..48].copy_from_slice(&owner.key_bytes.to_le_bytes());
    header
}

pub(super) fn encode(
    geometry: &Geometry,
    owner: Owner,
    segment: u32,
    (life, entries): &(u64, Vec<Option<(u32, Extent)>>),
) -> AlignedBuf {
    let mut directory = AlignedBuf::zeroed(geometry.directory as usize);
    directory[..HEADER].copy_from_slice(&header(geometry, owner, segment));
    directory[32..40].copy_from_slice(&life.to_le_bytes());
    for (place, entry) in directory[HEADER..].chunks_exact_mut(ENTRY).zip(entries) {
        if let Some((mark, extent)) = entry {
            place[..4].copy_from_slice(&mark.to_le_bytes());
            place[4..8].copy_from_slice(&extent.at.to_le_bytes());
            place[8..].copy_from_slice(&extent.len.to_le_bytes());
        }
    }
    let crc = crc32c::crc32c(&directory[4..]);
    directory[..4].copy_from_slice(&crc.to_le_bytes());
    directory
}

/// None: these are not the bytes of this segment's directory.
pub(super) fn decode(
    geometry: &Geometry,
    owner: Owner,
    segment: u32,
    bytes: &[u8],
) -> Option<(u64, Vec<Option<(u32, Extent)>>)> {
    let (own, expected) = (bytes.get(..HEADER)?, header(geometry, owner, segment));
    let same = own[4..32] == expected[4..32] && own[40..] == expected[40..];
    if !same || u32_at(bytes, 0) != crc32c::crc32c(&bytes[4..]) {
        return None;
    }
    let entry = |place: &[u8]| {
        let extent = Extent { at: u32_at(place, 4), len: u32_at(place, 8) };
        (extent.len > 0).then(|| (u32_at(place, 0), extent))
    };
    let entries = bytes[HEADER..].chunks_exact(ENTRY).take(geometry.per as usize).map(entry).collect();
    Some((own[32..40].try_into().map_or(0, u64::from_le_bytes), entries))
}
