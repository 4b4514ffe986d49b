//! The saved index: which slot held which page, for the next start.
//!
//! The file `bpe.index` beside the images; little-endian pieces of 4 KiB, each with its CRC-32C in
//! front (of bytes 4..4096). The first is the header:
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 4 | 4 | magic `TFX1` |
//! | 8 | 4 | page size |
//! | 16 | 16 | the owner of the flash: the instance id |
//!
//! Piece 1 + k has its number k (u32 at 4) and the fingerprints of slots 1022·k and up, four bytes
//! each; 0 is no page.
//!
//! The content is a hint and is never synced: an image is served only if it is intact, of that page and with the map's tag
//! (`bpe`), however it was found. So a torn, old, or missing file costs hits and nothing else. CloudJump III §4.1.3 wants a BPE
//! that is warm after a restart.
//!
//! Locks: none.

use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskError, File, Op};

use super::index::FlashSlot;
use crate::page::PAGE_SIZE;
use std::sync::Arc;

pub const FILE: &str = "bpe.index";
pub(crate) const PIECE: usize = 4096;
/// Fingerprints of one piece.
pub(crate) const MARKS: usize = (PIECE - 8) / 4;
const MAGIC: [u8; 4] = *b"TFX1";

pub(crate) struct Saved {
    file: Arc<dyn File>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn sealed(mut piece: AlignedBuf) -> AlignedBuf {
    let crc = crc32c::crc32c(&piece[4..]);
    piece[..4].copy_from_slice(&crc.to_le_bytes());
    piece
}

fn header(owner: u128) -> AlignedBuf {
    let mut piece = AlignedBuf::zeroed(PIECE);
    piece[4..8].copy_from_slice(&MAGIC);
    piece[8..12].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
    piece[16..32].copy_from_slice(&owner.to_le_bytes());
    sealed(piece)
}

/// The piece that has the slot's fingerprint.
pub(crate) fn piece_of(slot: FlashSlot) -> u32 {
    slot / MARKS as u32
}

impl Saved {
    /// Opens the file that the same owner saved. Returns None if there is none that can be used.
    pub fn open(flash: &dyn Disk, owner: u128) -> Option<Saved> {
        let file = flash.open(FILE).ok()?;
        let mut found = AlignedBuf::zeroed(PIECE);
        file.read(Class::BpeRead, 0, &mut found).ok()?;
        (found[..] == header(owner)[..]).then_some(Saved { file })
    }

    /// Creates an empty file, discarding any content.
    pub fn begin(flash: &dyn Disk, owner: u128) -> Result<Saved, DiskError> {
        if flash.exists(FILE)? {
            flash.remove(FILE)?;
        }
        let file = flash.create(FILE)?;
        file.grow(PIECE as u64, false)?;
        file.write(Class::BpeFill, 0, &header(owner))?;
        Ok(Saved { file })
    }

    /// The number of pieces in the file.
    pub fn pieces(&self) -> u32 {
        (self.file.len() / PIECE as u64).saturating_sub(1).min(u64::from(u32::MAX)) as u32
    }

    /// Reads up to `max` pieces from `first` on: the fingerprints of each intact piece; none for the others.
    pub fn load(&self, first: u32, max: u32) -> Vec<Vec<u32>> {
        let count = self.pieces().saturating_sub(first).min(max);
        let mut bytes = AlignedBuf::zeroed(count as usize * PIECE);
        let at = (u64::from(first) + 1) * PIECE as u64;
        if count == 0 || self.file.read(Class::BpeRead, at, &mut bytes).is_err() {
            return vec![Vec::new(); count as usize];
        }
        let intact = |number: u32, piece: &[u8]| {
            u32_at(piece, 0) == crc32c::crc32c(&piece[4..]) && u32_at(piece, 4) == number
        };
        bytes
            .chunks_exact(PIECE)
            .zip(first..)
            .map(|(piece, number)| match intact(number, piece) {
                true => (0..MARKS).map(|i| u32_at(piece, 8 + 4 * i)).collect(),
                false => Vec::new(),
            })
            .collect()
    }

    /// Saves pieces: number and fingerprints each, at most [`MARKS`].
    pub fn save(&self, pieces: &[(u32, Vec<u32>)]) -> Result<(), DiskError> {
        let encoded: Vec<(u64, AlignedBuf)> = pieces
            .iter()
            .map(|(number, marks)| {
                let mut piece = AlignedBuf::zeroed(PIECE);
                piece[4..8].copy_from_slice(&number.to_le_bytes());
                for (place, mark) in piece[8..].chunks_exact_mut(4).zip(marks) {
                    place.copy_from_slice(&mark.to_le_bytes());
                }
                ((u64::from(*number) + 1) * PIECE as u64, sealed(piece))
            })
            .collect();
        let end = encoded.iter().map(|(at, _)| at + PIECE as u64).max().unwrap_or(0);
        if end > self.file.len() {
            self.file.grow(end, false)?;
        }
        let mut ops: Vec<Op<'_>> =
            encoded.iter().map(|(offset, buf)| Op::Write { offset: *offset, buf }).collect();
        self.file.batch(Class::BpeFill, &mut ops).into_iter().collect()
    }
}
