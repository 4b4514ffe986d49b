//! Which blocks are to be copied to flash.

use super::{Block, BlockId, Catalogue, Victim};

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

    pub fn unsaved(&self) -> usize {
        self.unsaved.len()
    }
}
