//! Which blocks have pages in the object buffer, how many, and when one was last flushed.
//!
//! Derived at start and kept up to date by every publication, so that the choice of what to sink looks at buffered blocks only,
//! not at the whole map. "When" is a log position; a caller that wants time keeps a few pairs of position and time.

use crate::address::{BufferedBlock, Stored};
use crate::page::{BlockId, Glsn, SpaceId};
use hashbrown::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
struct Block {
    slots: u32,
    last_change: Glsn,
    /// The count of slots taken when it came here, or last sank.
    since: u64,
    rewrites: u32,
    /// A bit for each page that was flushed again.
    rewritten: u128,
    /// A bit for each page that is worth a copy on flash when it sinks, judged by events since pages of the block last released
    /// their slots.
    wanted: [AtomicU64; 2],
    stored: Stored,
}

#[derive(Default)]
pub(crate) struct Buffered {
    blocks: HashMap<BlockId, Block>,
    /// Blocks here whose space sinks.
    sinking: usize,
    /// Slots that they have taken in total.
    taken: u64,
    /// Their slots, and those of other blocks.
    sinking_slots: u32,
    staying_slots: u32,
}

impl Buffered {
    /// The page with index `i` of the block was flushed; `new` if it had no slot before. Returns true if the block is the first
    /// that could be sunk.
    pub fn flushed(&mut self, block: BlockId, i: usize, new: bool, end: Glsn) -> bool {
        let (mut first, sinks) = (false, block.space.sinks());
        let entry = self.blocks.entry(block).or_insert_with(|| {
            self.sinking += usize::from(sinks);
            first = sinks && self.sinking == 1;
            Block { since: self.taken, ..Block::default() }
        });
        if new {
            entry.slots += 1;
            *(if sinks { &mut self.sinking_slots } else { &mut self.staying_slots }) += 1;
            self.taken += u64::from(sinks);
        } else {
            entry.rewrites = entry.rewrites.saturating_add(1);
            entry.rewritten |= 1 << i;
        }
        entry.last_change = entry.last_change.max(end);
        first
    }

    /// The block has sunk: this number of its pages released their slots.
    pub fn cleaned(&mut self, block: BlockId, pages: u32) {
        if let Some(entry) = self.blocks.get_mut(&block) {
            let wanted = Default::default();
            *entry = Block { since: self.taken, rewrites: 0, rewritten: 0, wanted, ..*entry };
        }
        self.gave_up(block, pages);
    }

    /// Updates what the store has of the block.
    pub fn has_stored(&mut self, block: BlockId, stored: Stored) {
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.stored = stored;
        }
    }

    /// This number of pages of the block released their slots.
    pub fn gave_up(&mut self, block: BlockId, pages: u32) {
        let Some(entry) = self.blocks.get_mut(&block) else { return };
        assert!(entry.slots >= pages, "block {block} gives up more slots than it has");
        entry.slots -= pages;
        let slots = if block.space.sinks() { &mut self.sinking_slots } else { &mut self.staying_slots };
        *slots -= pages;
        if entry.slots == 0 {
            self.blocks.remove(&block);
            self.sinking -= usize::from(block.space.sinks());
        }
    }

    /// The page with index `i` is worth a copy on flash when the block sinks.
    pub fn want(&self, block: BlockId, i: usize) {
        let Some(entry) = self.blocks.get(&block) else { return };
        entry.wanted[i / 64].fetch_or(1 << (i % 64), Ordering::Relaxed);
    }

    /// Pages of the block that are worth a copy on flash when it sinks, a bit each.
    pub fn wanted(&self, block: BlockId) -> u128 {
        let Some(entry) = self.blocks.get(&block) else { return 0 };
        let [low, high] = [0, 1].map(|half| u128::from(entry.wanted[half].load(Ordering::Relaxed)));
        low | high << 64
    }

    pub fn forget(&mut self, space: SpaceId) {
        self.blocks.retain(|block, _| block.space != space);
        let sinking = self.blocks.iter().filter(|(block, _)| block.space.sinks());
        (self.sinking, self.sinking_slots) =
            sinking.fold((0, 0), |(n, slots), (_, of)| (n + 1, slots + of.slots));
        let staying = self.blocks.iter().filter(|(block, _)| !block.space.sinks());
        self.staying_slots = staying.map(|(_, of)| of.slots).sum();
    }

    /// Slots of pages whose space sinks.
    pub fn sinking_slots(&self) -> u32 {
        self.sinking_slots
    }

    /// Slots of pages whose space does not.
    pub fn staying_slots(&self) -> u32 {
        self.staying_slots
    }

    pub fn all(&self) -> Vec<BufferedBlock> {
        let each = |(block, of): (&BlockId, &Block)| BufferedBlock {
            block: *block,
            slots: of.slots,
            last_change: of.last_change,
            age: self.taken - of.since,
            rewrites: of.rewrites,
            rewritten: of.rewritten.count_ones(),
            stored: of.stored,
        };
        self.blocks.iter().map(each).collect()
    }
}
