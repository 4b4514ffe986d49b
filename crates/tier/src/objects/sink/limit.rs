//! Applies a table's limit of writes to the object store. CloudJump III §3.1.
//!
//! Blocks of a table without tokens stay in the object buffer, and others sink. Before slots run out the limit is overridden:
//! when few are left and blocks of other tables would not free enough. Blocks put then are counted (`Table::over`). A caller that
//! requests a block to be sunk does not wait either.
//!
//! A block takes tokens for a whole block before it is gathered, and returns what it did not need.

use super::policy;
use super::{SinkState, Sinker};
use crate::address::BufferedBlock;
use crate::address::Tier;
use crate::limits::quota::Table;
use crate::page::SpaceId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::clock::Nanos;

/// The maximum cost of a block.
const BLOCK: u64 = super::mover::BLOCK_BYTES as u64;
/// How often limits are checked for being overridden, in nanoseconds.
const LOOK: Nanos = 50_000_000;

/// Limits are overridden below this share of free slots: at that point, writers of other tables' rows are hardly throttled yet.
pub fn yields_at(slots: u32) -> u32 {
    policy::low(slots) / 4 * 3
}

/// The limits' verdict on the blocks that could sink.
pub(super) struct InTurn {
    pub blocks: Vec<BufferedBlock>,
    /// Whether they sink although their tables have no tokens.
    pub yields: bool,
    /// The time until some of the held-back blocks may sink; None: none is held back.
    pub wait: Option<Nanos>,
}

impl Sinker {
    fn limiting(&self, space: SpaceId) -> Option<Arc<Table>> {
        self.rules.get()?.limiting_writes(space)
    }

    /// Selects those of the blocks that may sink now. `needed` slots are wanted; `free` of `slots` are free.
    pub(super) fn in_turn(
        &self,
        blocks: Vec<BufferedBlock>,
        needed: u32,
        (slots, free): (u32, u32),
    ) -> InTurn {
        if !self.rules.get().is_some_and(|rules| rules.limit_writes()) {
            return InTurn { blocks, yields: false, wait: None };
        }
        let now = self.world.clock.now();
        let (mut others, mut held) = (Vec::new(), Vec::new());
        for block in blocks {
            let table = self.limiting(block.block.space);
            match table.filter(|table| table.write_room(Tier::Object, now, BLOCK) == 0) {
                Some(table) => held.push((block, table)),
                None => others.push(block),
            }
        }
        let rules = self.rules.get().map_or(Vec::new(), |rules| rules.all());
        rules.iter().for_each(|(_, rule)| rule.table.blocks_held.store(0, Ordering::Relaxed));
        let sinking = others.iter().filter(|block| block.block.space.sinks());
        let enough = sinking.map(|block| u64::from(block.slots)).sum::<u64>() >= u64::from(needed);
        // When limits are overridden, row writers of the table are still throttled.
        held.iter().for_each(|(_, table)| _ = table.blocks_held.fetch_add(1, Ordering::Relaxed));
        if free < yields_at(slots) && !enough {
            others.extend(held.into_iter().map(|(block, _)| block));
            return InTurn { blocks: others, yields: true, wait: None };
        }
        let waits = held.iter().map(|(_, table)| table.write_wait(Tier::Object, now));
        let look = if needed > 0 { LOOK } else { Nanos::MAX };
        InTurn { blocks: others, yields: false, wait: waits.min().map(|wait| wait.clamp(1, look)) }
    }

    /// A block of the space is to sink: takes its tokens. Returns false if there are none.
    pub(super) fn takes_turn(&self, space: SpaceId, state: &SinkState) -> bool {
        let Some(table) = self.limiting(space) else { return true };
        state.yields || table.write_room(Tier::Object, self.world.clock.now(), BLOCK) > 0
    }

    /// A block is about to be put. Returns false if it exceeds the limit and is not fully paid.
    pub(super) fn pay(&self, space: SpaceId) -> bool {
        self.limiting(space).is_none_or(|table| table.wrote(Tier::Object, self.world.clock.now(), 1, BLOCK))
    }

    /// A paid block came to `bytes` bytes.
    pub(super) fn give_back(&self, space: SpaceId, bytes: usize) {
        if let Some(table) = self.limiting(space) {
            table.wrote_less(Tier::Object, BLOCK.saturating_sub(bytes as u64));
        }
    }
}
