//! Finding a page in memory.

use super::frame_hint::LastSeen;
use super::{Access, Pool};
use crate::address::Home;
use crate::limits::meter;
use crate::memory::frame::{ACCESSES_MAX, Frame, FrameNo};
use crate::page::PageId;
use crate::planted;
use std::sync::atomic::Ordering;

/// Result of looking for a page in memory.
pub(crate) enum Lookup {
    Pinned(FrameNo),
    Claimed,
    Absent,
}

impl Pool {
    /// Finds a page in memory and pins it, first in the frame where it was last seen. A hit there counts as a use as others do,
    /// but is not counted as a read.
    #[inline]
    pub(crate) fn lookup_seen(&self, seen: &LastSeen, access: Access) -> Lookup {
        let no = seen.frame();
        let frame = self.frame(no);
        if !frame.try_pin_as(seen.id()) {
            return self.look_for(seen, access);
        }
        if access.heats() {
            self.heat(frame);
        }
        Lookup::Pinned(no)
    }

    #[inline]
    pub(super) fn heat(&self, frame: &Frame) {
        if frame.accesses() < ACCESSES_MAX {
            frame.touch(self.period.load(Ordering::Relaxed));
        }
    }

    #[cold]
    pub(super) fn look_for(&self, seen: &LastSeen, access: Access) -> Lookup {
        let found = self.lookup(seen.id(), access);
        if let Lookup::Pinned(no) = found {
            seen.is_in(no);
        }
        found
    }

    /// Finds a page in memory and pins it.
    #[inline]
    pub(crate) fn lookup(&self, id: PageId, access: Access) -> Lookup {
        let (no, frame) = match self.table.find(&self.arena, id).filter(|(_, frame)| frame.try_pin_as(id)) {
            Some(found) => found,
            None => match self.lookup_locked(id) {
                Lookup::Pinned(no) => (no, self.frame(no)),
                other => return other,
            },
        };
        if access.heats() {
            self.heat(frame);
        }
        if access.counts() {
            if !(frame.seems_unused() && self.first_use(no, id)) {
                frame.hit();
                meter::hit();
            }
            if frame.sampled.load(Ordering::Relaxed)
                && frame.noted_at.load(Ordering::Relaxed) != self.period.load(Ordering::Relaxed)
            {
                self.sample_hit(no, id);
            }
            if access.ahead_max() > 0 {
                self.scans.read(id);
            }
        }
        Lookup::Pinned(no)
    }

    #[cold]
    pub(super) fn lookup_locked(&self, id: PageId) -> Lookup {
        self.table.with(&self.arena, id, |no| {
            let Some(no) = no else { return Lookup::Absent };
            if planted::CLAIM_NOT_WAITED.on() {
                self.frame(no).pin_again();
                return Lookup::Pinned(no);
            }
            if self.frame(no).try_pin() { Lookup::Pinned(no) } else { Lookup::Claimed }
        })
    }

    pub(crate) fn is_far(&self, id: PageId) -> bool {
        !self.has(id) && self.below.is_far(id)
    }

    pub(crate) fn home_below(&self, id: PageId) -> Option<Home> {
        self.below.home(id)
    }

    /// Whether recovery has left redo for the page that its image lacks.
    pub(crate) fn has_pending(&self, id: PageId) -> bool {
        self.below.has_pending(id)
    }

    pub(crate) fn has(&self, id: PageId) -> bool {
        self.table.with(&self.arena, id, |no| no.is_some())
    }

    /// See [`crate::memory::pages::Pages::warm`].
    pub(crate) fn warm(&self, id: PageId) {
        if let Some((no, _)) = self.table.find(&self.arena, id) {
            self.arena.warm(no);
        }
    }
}
