//! After a start: the index from the footers of the blocks that flash still has, in the background, a piece at a time.

use super::index::BlockNumber;
use super::{Cache, Packs, count, mark_of};

/// Numbers that one step looks at, and footers that it reads.
const NUMBERS: u32 = 4096;
const FOOTERS: usize = 16;

impl Packs {
    /// Returns true while there is more. The cache knows what it has.
    pub(super) fn restore_some(&self, cache: &Cache) -> bool {
        let (first, last) = {
            let state = self.state.lock();
            let Some(first) = state.restoring else { return false };
            (first, (first + NUMBERS).min(state.index.blocks_max() as u32))
        };
        let mut read = 0;
        let mut next = first;
        while next < last && read < FOOTERS {
            if cache.seems_to_have(self.key(next)) {
                read += 1;
                self.restore(cache, next);
            }
            next += 1;
        }
        let mut state = self.state.lock();
        let is_over = next as usize >= state.index.blocks_max();
        state.restoring = if is_over { None } else { Some(next) };
        !is_over
    }

    fn restore(&self, cache: &Cache, number: BlockNumber) {
        let Some(footer) = self.read_footer(cache, number, None) else {
            return cache.invalidate(self.key(number));
        };
        let mark = |at: usize| {
            let is_live = footer.entry(at).is_some_and(|entry| entry.is_live);
            footer.path(at).filter(|_| is_live).map(|path| mark_of(&path))
        };
        let marks: Vec<Option<u64>> = (0..footer.len()).map(mark).collect();
        let dropped = {
            let mut state = self.state.lock();
            state.generation = state.generation.max(footer.generation);
            state.index.insert(number, footer.generation, footer.block_len(), &marks)
        };
        count(&self.counters.restored, marks.len() as u64);
        dropped.into_iter().for_each(|number| cache.invalidate(self.key(number)));
    }
}
