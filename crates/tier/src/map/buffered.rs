//! Which blocks have pages in the object buffer, how many, and when one was last flushed.
//!
//! Derived at start, kept up to date by every publication, so that the choice of what to sink looks at
//! buffered blocks only, not at the whole map. "When" is a position of the log; whoever wants time keeps
//! a few pairs of both.

use crate::page::{BlockId, Glsn, SpaceId};
use hashbrown::HashMap;

/// A block with pages in the object buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferedBlock {
    pub block: BlockId,
    /// Pages in slots: sinking the block frees so many.
    pub slots: u32,
    /// End of the record that gave one of its pages a slot last.
    pub last_change: Glsn,
}

#[derive(Default)]
pub(crate) struct Buffered {
    blocks: HashMap<BlockId, (u32, Glsn)>,
    /// Blocks here whose space sinks.
    sinking: usize,
}

impl Buffered {
    /// A page of the block was flushed; `new` if it had no slot before. True if the block is the first
    /// that could be sunk.
    pub fn flushed(&mut self, block: BlockId, new: bool, end: Glsn) -> bool {
        let mut first = false;
        let entry = self.blocks.entry(block).or_insert_with(|| {
            self.sinking += usize::from(block.space.sinks());
            first = block.space.sinks() && self.sinking == 1;
            (0, 0)
        });
        entry.0 += u32::from(new);
        entry.1 = entry.1.max(end);
        first
    }

    /// So many pages of the block gave up their slots.
    pub fn cleaned(&mut self, block: BlockId, pages: u32) {
        let Some(entry) = self.blocks.get_mut(&block) else { return };
        assert!(entry.0 >= pages, "block {block} gives up more slots than it has");
        entry.0 -= pages;
        if entry.0 == 0 {
            self.blocks.remove(&block);
            self.sinking -= usize::from(block.space.sinks());
        }
    }

    pub fn forget(&mut self, space: SpaceId) {
        self.blocks.retain(|block, _| block.space != space);
        self.sinking = self.blocks.keys().filter(|b| b.space.sinks()).count();
    }

    pub fn all(&self) -> Vec<BufferedBlock> {
        let each = |(block, (slots, last_change)): (&BlockId, &(u32, Glsn))| BufferedBlock {
            block: *block,
            slots: *slots,
            last_change: *last_change,
        };
        self.blocks.iter().map(each).collect()
    }
}
