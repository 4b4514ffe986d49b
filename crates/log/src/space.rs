//! Room in the rings: reserved in blocks before a latch is taken, so that a ring cannot overflow.
//!
//! Which partitions a mini-transaction will touch is not known when it reserves. So a reservation
//! counts against every ring, as the blocks its bytes take when they start a block of their own
//! (`ceil(bytes / payload)`): a sync pads, and what a mini-transaction adds to one ring is never more
//! than that. When it appends, the reservation ends and its rings count the blocks exactly.
//!
//! For each ring, always: blocks in use + blocks reserved ≤ blocks of the ring. `Ring::take` asserts it.
//!
//! The last share of a ring is kept: a larger one from new work, a smaller one from all but the flush
//! and the checkpoint, which free space. So a rollback that fills the log cannot stop what would
//! empty it.

use crate::Urgency;
use crate::block::blocks_for;

/// One block in this many is kept from new work.
const KEPT_FROM_NEW: u64 = 6;
/// One block in this many is kept for work that frees space.
const KEPT_FOR_CHECKPOINT: u64 = 16;
/// A checkpoint is wanted when one block in this many is in use.
const CHECKPOINT_AT: u64 = 2;
/// Room is needed when this many blocks in a hundred are in use: new work goes on a little longer.
const NEEDED_AT: u64 = 75;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Granted,
    /// Only a checkpoint helps.
    Wait,
    /// Larger than the log can ever give.
    Never,
}

pub(crate) struct LogSpace {
    blocks: u64,
    reserved: u64,
}

impl LogSpace {
    pub fn new(blocks: u64) -> LogSpace {
        LogSpace { blocks, reserved: 0 }
    }

    /// Takes room for `bytes` if there is any; `used` counts the fullest ring.
    pub fn reserve(&mut self, used: u64, bytes: u64, urgency: Urgency) -> Verdict {
        let need = blocks_for(bytes);
        let kept = self.blocks / kept_share(urgency).unwrap_or(u64::MAX);
        if need + kept > self.blocks {
            return Verdict::Never;
        }
        if used + self.reserved + need + kept > self.blocks {
            return Verdict::Wait;
        }
        self.reserved += need;
        Verdict::Granted
    }

    /// Ends a reservation of `bytes`.
    pub fn give_back(&mut self, bytes: u64) {
        let blocks = blocks_for(bytes);
        assert!(self.reserved >= blocks, "log room is given back twice");
        self.reserved -= blocks;
    }

    pub fn wants_checkpoint(&self, used: u64) -> bool {
        (used + self.reserved) * CHECKPOINT_AT > self.blocks
    }

    /// Whether no table's limit may hold the checkpoint back.
    pub fn needs_checkpoint(&self, used: u64) -> bool {
        (used + self.reserved) * 100 > self.blocks * NEEDED_AT
    }

    /// How far it has come from where a checkpoint is wanted to where it is needed: blocks, and all of them.
    pub fn pressure(&self, used: u64) -> (u64, u64) {
        let (from, to) = (self.blocks / CHECKPOINT_AT, self.blocks * NEEDED_AT / 100);
        ((used + self.reserved).saturating_sub(from), to - from)
    }
}

fn kept_share(urgency: Urgency) -> Option<u64> {
    match urgency {
        Urgency::Normal => Some(KEPT_FROM_NEW),
        Urgency::Reserve => Some(KEPT_FOR_CHECKPOINT),
        Urgency::Checkpoint => None,
    }
}
