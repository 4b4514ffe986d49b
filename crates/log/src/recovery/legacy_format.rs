//! The log of the formats before 9: blocks `TLG1` with longer records, which this build does not read.
//!
//! A volume that was closed cleanly needs nothing of its log. It is opened: the new epoch's blocks come behind, and what the ring has of the
//! former ones are no blocks. Any other is refused and left as it is: the build that wrote it can close it cleanly.

use super::{LogBounds, ReplayError};
use crate::block::BLOCK;
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, File};

const MAGIC: [u8; 4] = *b"TLG1";
/// The first format version of a volume whose log has these blocks and records.
pub const VERSION_OF_LOG: u32 = 9;

/// Refuses a log of a former format that is needed.
pub fn refuse(bounds: &LogBounds, files: &[Arc<dyn File>]) -> Result<(), ReplayError> {
    if bounds.version >= VERSION_OF_LOG {
        return Ok(());
    }
    let mut needed = !bounds.clean;
    for (file, start) in files.iter().zip(&bounds.starts) {
        let mut block = AlignedBuf::zeroed(BLOCK);
        file.read(Class::LogRead, start % bounds.blocks * BLOCK as u64, &mut block)?;
        // An old copy of the superblock may say that it was closed cleanly.
        needed |= sequence(&block).is_some_and(|sequence| sequence >= *start);
    }
    if !needed {
        return Ok(());
    }
    Err(ReplayError::Legacy(format!(
        "the volume has format version {}, whose log this build does not read, and was not closed cleanly: start it once with \
         the build that wrote it, shut that down, and start this one",
        bounds.version
    )))
}

/// The number of an intact block.
fn sequence(block: &[u8]) -> Option<u64> {
    let (sum, rest) = block.split_first_chunk::<4>()?;
    let number = rest.get(20..28)?.first_chunk::<8>()?;
    let intact = rest.starts_with(&MAGIC) && u32::from_le_bytes(*sum) == crc32c::crc32c(rest);
    intact.then(|| u64::from_le_bytes(*number))
}
