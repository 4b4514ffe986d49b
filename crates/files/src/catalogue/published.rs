//! What clients may read by the shared index without a question, and what they tell of that.

use super::{BlockId, Catalogue, Slot};
use crate::memory::index::Index;
use crate::planted;
use std::sync::Arc;

impl Catalogue {
    /// From now on what is here and fresh is published there.
    pub fn publish_in(&mut self, index: Index) {
        self.index = Some(index);
    }

    /// What is known of the file holds until another time.
    pub(super) fn publish(&self, path: &Arc<str>) {
        let here = self.files.get(path).into_iter().flat_map(|file| &file.slots);
        here.for_each(|(_, slot)| {
            if let Slot::Here(id) = slot {
                self.publish_block(*id)
            }
        });
    }

    pub(super) fn publish_block(&self, id: BlockId) {
        let (Some(index), Some(Some(block))) = (&self.index, self.blocks.get(id as usize)) else { return };
        let Some(known) = self.files.get(&block.path).and_then(|file| file.known.as_ref()) else { return };
        if let Some(until) = self.settings.freshness.until(known.checked) {
            let file = (&*known.meta.version, known.meta.length);
            index.publish(&block.path, block.index, block.extent.offset, id, file, until);
        }
    }

    pub(super) fn withdraw(&self, path: &str, number: u32) {
        if let Some(index) = &self.index
            && !planted::NOT_WITHDRAWN.on()
        {
            index.withdraw(path, number);
        }
    }

    /// Clients have read these blocks without a question, and others: `reads` in all.
    pub fn touched(&mut self, blocks: impl IntoIterator<Item = BlockId>, reads: u64) {
        self.counts.hits += reads;
        self.counts.unasked += reads;
        for id in blocks {
            let Some(Some(block)) = self.blocks.get_mut(id as usize) else { continue };
            self.counts.brought_used += u64::from(block.is_first_use());
            block.accesses = block.accesses.saturating_add(1);
            if block.leases == 0 {
                self.lru.remove(id);
                self.lru.push(id);
            }
        }
    }
}
