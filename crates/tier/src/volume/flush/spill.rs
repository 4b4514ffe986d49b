//! The flush of temporary pages.

use super::Spill;
use crate::address::Slot;
use crate::memory::pool::DirtyCopy;
use crate::page::{PAGE_SIZE, PageId, PageRef, Tag};
use crate::planted;
use crate::volume::flush::{FlushError, Flusher};

impl Flusher {
    /// Flushes temporary pages: after the write, the frames are clean.
    pub(crate) fn spill(
        &self,
        spill: &Spill,
        copies: &[DirtyCopy],
        images: &mut [u8],
    ) -> Result<(), FlushError> {
        let ids: Vec<PageId> = copies.iter().map(|copy| copy.id).collect();
        spill.write(&ids, images)?;
        if planted::TEMPORARY_NAMED.on() {
            self.name_temporary(&ids, images)?;
        }
        for copy in copies {
            self.writes().count_single(copy.id.space);
            // Only this flusher makes dirty pages clean: a page that is in no frame was dropped, with its space's slots.
            if !self.pool().flushed(copy) && !self.pool().has(copy.id) {
                spill.forget(copy.id);
            }
        }
        self.pool().batch_flushed();
        Ok(())
    }

    /// The planted bug: treats them as permanent pages.
    fn name_temporary(&self, ids: &[PageId], images: &[u8]) -> Result<(), FlushError> {
        let slots = self.map().take_up_to(ids.len(), self.map().slots_reserve());
        let images = &images[..slots.len() * PAGE_SIZE];
        self.buffer().write_many(&slots, images)?;
        self.buffer().sync()?;
        let tags = images.chunks_exact(PAGE_SIZE).map(|image| PageRef::new(image).tag());
        let named: Vec<(PageId, Slot, Tag)> =
            ids.iter().zip(slots).zip(tags).map(|((id, slot), tag)| (*id, slot, tag)).collect();
        self.map().publish_slots(&named)?;
        Ok(())
    }
}
