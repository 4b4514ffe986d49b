//! Adoption: a volume takes the store from a writer that it does not know, because an operator says that the other copy of the
//! volume is lost. `docs/decisions/2026-11-22-adopt-notes-the-volume-first-then-the-store.md`.
//!
//! First the volume records both writers: the one found, and the new one. Then the new one replaces the one found, if the epoch
//! object is unchanged. A crash in between leaves a volume whose next start takes the store, unless the other copy has written to
//! it meanwhile: then it is fenced as before.

use super::{EpochAction, EpochContent, Fence, FenceError};

/// The distance of the adopting writer's epoch above both volumes' epochs: a copy of a format that recorded no takers goes by the
/// epoch alone, and may have been started a few times without reaching the store.
const LEAP: u32 = 1000;

/// The epoch of a writer that adopts a store; None: there are no more epochs.
pub fn epoch(of_volume: u32, found: &EpochContent) -> Option<u32> {
    of_volume.max(found.writer.epoch).checked_add(LEAP)
}

impl Fence {
    /// Takes the store from `expected`. Fails with `Moved` if the store has another holder by now.
    pub fn adopt(&self, expected: &EpochContent) -> Result<(), FenceError> {
        self.note_takers(&[expected.taker(), self.writer.taker()])?;
        self.put(&EpochContent { writer: self.writer, mark: 0 }, &|found| match found {
            Some(found) if found.writer == self.writer => Ok(EpochAction::Done), // the reply was lost, the effect was not
            Some(found) if found == expected => Ok(EpochAction::Put),
            Some(found) => {
                let holder = self.holder(&found.writer);
                Err(FenceError::Moved { store: self.store.describe(), found: found.writer.epoch, holder })
            }
            None => Err(FenceError::Empty { store: self.store.describe() }),
        })
    }
}
