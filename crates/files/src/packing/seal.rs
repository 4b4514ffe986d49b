//! Making a block of staged files and giving it to the flash cache.
//!
//! The files stay staged until the cache can find the block. What is superseded or evicted meanwhile is not live in it.

use super::block::{self, Item};
use super::index::BlockNumber;
use super::{BLOCK_MAX, Cache, Packs, STAGED_TIME, count, mark_of};
use crate::planted;
use terrace::flash::Offered;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sealed {
    Block,
    Nothing,
    /// The cache takes none at the moment.
    QueueFull,
}

/// A block in the making.
pub(super) struct Sealing {
    pub number: BlockNumber,
    pub generation: u64,
    pub items: Vec<Item>,
    pub bytes: Vec<u8>,
}

impl Packs {
    pub(super) fn block_bytes(&self, cache: &Cache) -> usize {
        self.shares.block.min(cache.value_bytes_max()).min(BLOCK_MAX)
    }

    /// Packs a run of staged files, if as many are staged as make a block, or one has been staged for long. `all`: whatever is staged.
    pub(super) fn seal(&self, cache: &Cache, all: bool) -> Sealed {
        let block_bytes = self.block_bytes(cache);
        let items = {
            let state = self.state.lock();
            let now = self.world.clock.now();
            let is_old = || state.stage.oldest().is_some_and(|came| now.saturating_sub(came) >= STAGED_TIME);
            // A quarter more than a block: then the run ends where the order of paths says, not where the files do.
            let is_due =
                state.stage.bytes() >= (block_bytes + block_bytes / 4).min(self.shares.stage * 7 / 8);
            match all || is_due || is_old() {
                true => state.stage.run(block_bytes - block_bytes / 64),
                false => return Sealed::Nothing,
            }
        };
        if items.is_empty() {
            return Sealed::Nothing;
        }
        let Some(sealing) = self.make(cache, items) else { return Sealed::QueueFull };
        match self.offer(cache, &sealing) {
            Offered::Queued => {}
            Offered::Kept | Offered::Dropped => return Sealed::QueueFull,
            // It never will be taken.
            Offered::TooLong | Offered::Off | Offered::Remembered => {
                let mut state = self.state.lock();
                sealing.items.iter().for_each(|item| _ = state.stage.take(item));
                return Sealed::Nothing;
            }
        }
        self.sealed(cache, sealing);
        Sealed::Block
    }

    /// A block of these files, which are in the order of their paths.
    pub(super) fn make(&self, cache: &Cache, items: Vec<Item>) -> Option<Sealing> {
        let number = self.free_number(cache)?;
        let generation = self.next_generation();
        let bytes = block::encode(u64::from(number), generation, &items, |_| true);
        Some(Sealing { number, generation, items, bytes })
    }

    pub(super) fn next_generation(&self) -> u64 {
        let mut state = self.state.lock();
        state.generation += 1;
        state.generation
    }

    pub(super) fn offer(&self, cache: &Cache, sealing: &Sealing) -> Offered {
        // It was decided file by file that they are worth it.
        cache.evicted(self.key(sealing.number), sealing.generation, &sealing.bytes, u8::MAX)
    }

    /// The cache has the block: its files are found there from now on.
    pub(super) fn sealed(&self, cache: &Cache, sealing: Sealing) {
        let Sealing { number, generation, items, bytes } = sealing;
        count(&self.counters.sealed, 1);
        count(&self.counters.sealed_files, items.len() as u64);
        let dropped = {
            let mut state = self.state.lock();
            let mut mark = |item: &Item| {
                let is_current = state.stage.take(item) || planted::EVICTED_WHILE_PACKED_KEPT.on();
                is_current.then(|| mark_of(&item.path))
            };
            let marks: Vec<Option<u64>> = items.iter().map(&mut mark).collect();
            state.index.insert(number, generation, bytes.len(), &marks)
        };
        dropped.into_iter().for_each(|number| cache.invalidate(self.key(number)));
    }
}
