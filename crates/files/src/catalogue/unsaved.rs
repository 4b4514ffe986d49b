//! Which blocks are to be copied to flash.

use super::{Block, BlockId, Catalogue, UNSAVED_MAX, Victim};

impl Catalogue {
    /// All blocks without leases, to be copied to flash at the end.
    pub fn all_idle(&self) -> Vec<Victim> {
        self.blocks.iter().flatten().filter(|block| block.leases == 0).map(Block::victim).collect()
    }

    /// The next blocks to copy to flash, of about `bytes`. The caller has a lease on each.
    pub fn take_unsaved(&mut self, bytes: u64) -> Vec<(BlockId, Victim)> {
        let (mut taken, mut sum) = (Vec::new(), 0);
        while sum < bytes
            && let Some(id) = self.unsaved.pop_front()
        {
            let Some(Some(block)) = self.blocks.get_mut(id as usize) else { continue };
            if block.leases == 0 {
                self.lru.remove(id);
            }
            block.leases += 1;
            sum += block.extent.taken();
            taken.push((id, block.victim()));
        }
        taken
    }

    /// Blocks that flash did not take: they are the next ones again. The caller gives its leases back.
    pub fn put_back_unsaved(&mut self, blocks: impl DoubleEndedIterator<Item = BlockId>) {
        for id in blocks.rev() {
            let is_held =
                self.blocks.get(id as usize).is_some_and(|b| b.as_ref().is_some_and(|b| b.attached));
            if is_held && self.unsaved.len() < UNSAVED_MAX {
                self.unsaved.push_front(id);
            }
            self.release(id);
        }
    }

    pub fn unsaved(&self) -> usize {
        self.unsaved.len()
    }
}
