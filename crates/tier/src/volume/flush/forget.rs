//! Freed pages: no image of them is needed any more, so none is written, and existing images are released.
//!
//! A crash may lose the record that freed a page, and then the page has its content as before. So nothing of it may be lost for
//! good before that record is durable:
//! * the map record that removes the image's name follows it in the log, and is durable only with everything before it; the slot
//!   becomes free when it is (`map::slots`);
//! * a dirty page becomes clean at once, but its first change bounds the checkpoint until both records are durable
//!   ([`Flusher::oldest_bound`]), as it does for an image whose name is not durable yet.
//!
//! Redo that a later crash finds for such a page is applied to an empty image; so the last record that formats the page must be
//! in the log if any record after it is. That holds for pages that are written in one mini-transaction, or past the log, and
//! never changed: those of large values, and of builds that are rolled back; and for pages that the freeing itself formats: those
//! of trees and of undo.
//!
//! A page that is not in memory is identified by the location of its image when it was freed ([`Freed::Below`]): if the page is
//! reused its image is elsewhere, because a slot or an object's key is not allocated again before the old name is durably
//! removed.
//!
//! The page may be reused at any time. It is then latched, and has another LSN afterwards. So a thread that holds its shared
//! latch and finds the LSN that the page had when it was freed knows that it was not reused, and will not be until the latch is
//! released. And while no other thread writes the page ([`Writing`]), no older image of it is on its way to a slot.

use super::Flusher;
use super::through::Writing;
use crate::memory::pages::Freed;
use crate::page::Glsn;
use crate::planted;
use terrace_log::Urgency;

impl Flusher {
    /// Releases the images of pages freed by a mini-transaction whose range ended at `end`, except those that another thread
    /// writes or has reused. May wait for log space; no latch is held.
    pub fn forget(&self, freed: &[Freed], end: Glsn) {
        // Before other threads are kept from writing them: log space may depend on those writes.
        let Ok(mut room) = self.map.room_to_clear(freed.len(), Urgency::Reserve) else {
            return; // the log has stopped, or is full: the images stay until their pages are reused
        };
        let mut writing = Writing::new(self);
        let freed: Vec<&Freed> = freed.iter().filter(|page| writing.begin(page.id())).collect();
        let (mut frames, mut gone) = (Vec::new(), Vec::with_capacity(freed.len()));
        for page in freed {
            match page {
                Freed::Here { pin, lsn } if self.pool.latch_as_it_was(pin.frame(), *lsn) => {
                    frames.push(pin.frame());
                    gone.push((pin.id(), None));
                }
                Freed::Here { .. } => {}
                // It may have been reused already: then its location below belongs to the new content.
                Freed::Below { id, home } if !self.pool.has(*id) => gone.push((*id, Some(*home))),
                Freed::Below { .. } => {}
            }
        }
        let named = self.map.clear(&mut room, &gone);
        let end = named.map_or(end, |range| range.end.max(end));
        let frames = frames.into_iter();
        let first = frames.clone().filter_map(|no| self.pool.frame(no).first_change()).min();
        if let Some(first) = first.filter(|_| !planted::FREED_PAGE_PASSED.on()) {
            self.unmapped.lock().push_back((first, end));
        }
        frames.for_each(|no| self.pool.forget_change(no));
        if first.is_some() {
            self.pool.batch_flushed();
        }
        // A thread that reused one just before may have relied on its slot.
        let below = gone.iter().filter(|(_, home)| home.is_some());
        below.for_each(|(id, _)| self.pool.lost_its_place(*id));
        drop(writing);
        if let Some(flash) = self.flash() {
            gone.iter().for_each(|(id, _)| flash.invalidate(*id));
        }
    }
}
