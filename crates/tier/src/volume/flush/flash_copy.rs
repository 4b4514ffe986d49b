//! What becomes of a page's copy on flash when the page is flushed: the mover of the write policies (`limits::write_policy`).

use super::Flusher;
use crate::limits::by_space::add;
use crate::limits::write_policy::{Circumstances, Write, choose};
use crate::page::{PageId, Tag};

impl Flusher {
    /// The flash's part of a page's flush (W5), after its new image is mapped.
    pub(crate) fn write_to_flash(&self, id: PageId, tag: Tag, image: &[u8], for_checkpoint: bool) {
        let writes = self.writes();
        let mut rewritten = false;
        if let Some(flash) = self.flash() {
            let now = Circumstances { for_checkpoint, flash_is_behind: flash.is_behind(), temporary: false };
            match choose(writes.said_of(id.space), writes.all(), now) {
                Write::Dual => rewritten = flash.rewrite(id, tag, image),
                Write::Clean | Write::Single => flash.invalidate(id),
            }
        }
        let counts = writes.by_space.of(id.space);
        add(if rewritten { &counts.dual } else { &counts.clean }, 1);
    }
}
