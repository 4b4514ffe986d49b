//! Pages that were freed: no image of them is needed any more, so none is written, and those that there are go.
//!
//! A crash may take the record that freed a page with it, and then the page is what it was. So nothing of it may be lost for good before that
//! record is durable:
//! * the map's record that takes the image's name away follows it in the log, and is durable only with all before it; the slot
//!   becomes free when it is (`map::slots`);
//! * a dirty page becomes clean at once, but its first change bounds the checkpoint until both records are durable
//!   ([`Flusher::oldest_bound`]), as that of an image does whose name is not durable yet.
//!
//! Redo that a later crash finds for such a page is applied to nothing; so the last record that makes the page anew must be in the
//! log if any after it is. That is so of pages that are written in one mini-transaction, or past the log, and never changed: those of large values,
//! and of builds that go back; and of those that the freeing itself makes anew: of trees and of undo.
//!
//! A page that is not in memory is known by where its image was when it was freed ([`Freed::Below`]): who uses it anew has its image
//! elsewhere, for a slot or an object's key is not given out again before this one's name is durably gone.
//!
//! The page may be used anew at any time. It is then latched, and has another LSN when it is not any more. So whoever has its latch,
//! shared, and finds the LSN that it had when it was freed, knows that nobody has used it, and that nobody will until he lets go. And
//! while nobody else writes the page ([`Writing`]), no older image of it is on its way to a slot.

use super::Flusher;
use super::through::Writing;
use crate::map::Home;
use crate::page::{Glsn, PageId};
use crate::pages::Pin;
use crate::planted;
use crate::redo::Urgency;

/// A page that was freed.
pub enum Freed {
    /// In memory, and the LSN that it had then.
    Here { pin: Pin, lsn: Glsn },
    /// Not in memory, and where its image was then. Nobody had changed it since that was written.
    Below { id: PageId, home: Home },
}

impl Freed {
    pub fn id(&self) -> PageId {
        match self {
            Freed::Here { pin, .. } => pin.id(),
            Freed::Below { id, .. } => *id,
        }
    }
}

impl Flusher {
    /// Lets go what there is of pages that a mini-transaction freed whose range ended at `end`, as far as nobody writes them or
    /// uses them anew. May wait for log space; no latch is held.
    pub fn forget(&self, freed: &[Freed], end: Glsn) {
        // Before others are kept from writing them: that may be what log space waits for.
        let Ok(mut room) = self.map.room_to_clear(freed.len(), Urgency::Reserve) else {
            return; // the log has stopped, or is full: they stay until they are used anew
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
                // Used anew already, perhaps: then what it had below is its place.
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
        // Whoever used one anew just before may have counted on what it had.
        let below = gone.iter().filter(|(_, home)| home.is_some());
        below.for_each(|(id, _)| self.pool.lost_its_place(*id));
        drop(writing);
        if let Some(flash) = self.flash() {
            gone.iter().for_each(|(id, _)| flash.invalidate(*id));
        }
    }
}
