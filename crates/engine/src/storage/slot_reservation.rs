//! Growth: a page is only made if there will be a slot for it.
//!
//! A page that was never flushed takes a slot at its first flush and gives none back. If more of them were made than
//! slots are free, the flusher would be stuck on them, the checkpoint behind it, and the log would fill up: then
//! nothing could be written any more, not even what makes room. So the promise is made when the page is made. What
//! only changes pages (DELETE in most leaves, most updates, commit) needs no promise: rewriting a page gives its old slot back.
//!
//! Free slots are those that the object buffer's file has room for; the file grows here, ahead of need, so that a full
//! device shows here too and not in the middle of a flush.
//!
//! A request for more than sinking can ever free, because undo and the catalog hold the slots, is refused at the second look: they never sink. A request
//! that can be met waits while blocks sink.
//!
//! Margins: pages of tables leave a margin to undo, and undo half of it to the catalog and to new spaces
//! (so that DELETE and TRUNCATE go on when INSERT does not; leaves that delete marks split count as undo), and all leave `Map::slots_reserve` to rollback, purge and the rewriting of pages.

use crate::storage::bulk_throttle::BulkThrottle;
use crate::storage::dropped_spaces::DroppedSpaces;
use crate::storage::recovery::pending::Pending;
use std::sync::Arc;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::observe;
use terrace_log::Redo;
use terrace_tier::memory::pages::Freed;
use terrace_tier::memory::pages::{NoRoom, SlotAdmission};
use terrace_tier::memory::pool::Pool;
use terrace_tier::page::{Glsn, SpaceId};
use terrace_tier::volume::flush::Flusher;
use terrace_tier::volume::map::Map;

/// How often a waiter looks again, in nanoseconds.
pub const LOOK: Nanos = 20_000_000;
/// How long to wait where nothing but a flush that is under way can give slots back, in nanoseconds.
const SHORT_WAIT: Nanos = 200_000_000;

pub struct SlotReservation {
    pub world: World,
    pub map: Arc<Map>,
    pub dropped_spaces: Arc<DroppedSpaces>,
    pub pool: Arc<Pool>,
    pub flusher: Arc<Flusher>,
    pub pending: Arc<Pending>,
    pub redo: Arc<dyn Redo>,
    /// Blocks sink to an object store, which gives slots back.
    pub sinks: bool,
    /// How long to wait for that, in nanoseconds.
    pub patience: Nanos,
    /// None: bulk builds do not yield.
    pub way: Option<BulkThrottle>,
}

/// What pages of tables leave to others, beside the reserve.
fn margin(map: &Map) -> u32 {
    (map.slots_total() / 16).min(256)
}

/// Slots that stay free when a page of a table is made.
pub fn keep_of_tables(map: &Map) -> u32 {
    margin(map) + map.slots_reserve()
}

impl SlotReservation {
    /// Slots that stay free when a page of the space is made.
    fn keep(&self, space: SpaceId) -> usize {
        let margin = margin(&self.map);
        let margin = match space {
            SpaceId::CATALOG => 0,
            SpaceId::UNDO => margin / 2,
            _ => margin,
        };
        (margin + self.map.slots_reserve()) as usize
    }

    fn has_room(&self, pages: usize, keep: usize) -> bool {
        let promised = self.pool.homeless() + self.pending.pages();
        self.map.slots_usable() as usize >= promised + pages + keep
    }

    /// Whether there would be no room if all had sunk that can. Redo that waits is counted in full, so it says nothing
    /// until it is applied.
    fn is_hopeless(&self, pages: usize, keep: usize) -> bool {
        let (slots, _) = self.map.slots_pressure();
        let homeless = self.pool.homeless();
        let staying =
            self.map.slots_staying() as usize + homeless.saturating_sub(self.pool.homeless_sinking());
        let known = self.sinks && self.pending.pages() == 0 && !crate::planted::HOPELESS_WAITED.on();
        known && staying + pages + keep > slots as usize
    }

    fn full(&self) -> NoRoom {
        let (slots, _) = self.map.slots_pressure();
        let total = self.map.slots_total();
        NoRoom::Full(if slots < total {
            format!(
                "the volume's device is full: it has room for {slots} pages of the {total} of object_buffer"
            )
        } else {
            format!("the object buffer is full: all {total} pages of object_buffer are in use")
        })
    }
}

impl SlotAdmission for SlotReservation {
    fn give_way(&self) -> Result<(), NoRoom> {
        match &self.way {
            Some(way) if self.sinks && !crate::planted::BUILDS_NOT_THROTTLED.on() => way.wait(self),
            _ => Ok(()),
        }
    }

    fn blocks_sink(&self) -> bool {
        self.sinks
    }

    fn freed(&self, pages: &[Freed], end: Glsn) {
        self.flusher.forget(pages, end);
        // What recovery found for them is of before they were freed, which begins with what makes them anew. One that was freed unread was
        // read since then.
        let here = pages.iter().filter(|page| matches!(page, Freed::Here { .. }));
        here.for_each(|page| self.pending.done_with(page.id()));
    }

    fn admit(&self, pages: usize, space: SpaceId) -> Result<(), NoRoom> {
        let keep = self.keep(space);
        let mut since = self.world.clock.now();
        let mut sunk = self.map.slots_sunk();
        // For a moment a page that is being flushed counts twice.
        let mut hopeless = None;
        let dropped = self.dropped_spaces.last();
        loop {
            let freed = self.map.slots_freed.ticket();
            if self.has_room(pages, keep) {
                return Ok(());
            }
            if terrace_io::cancel::refuses(observe::Wait::Slots) {
                self.map.slots_wanted.notify();
                return Err(NoRoom::Cancelled);
            }
            self.flusher.stretch(self.pool.homeless() + self.pending.pages() + pages + keep)?;
            // Tables that were dropped give theirs back when that is durable, and then purge has been there.
            let goes = dropped.is_some_and(|last| self.dropped_spaces.are_there(last));
            if goes || self.map.has_pending_slots() {
                self.redo.make_durable(self.redo.appended())?;
                self.map.settle();
            }
            if self.has_room(pages, keep) {
                return Ok(());
            }
            if terrace_io::cancel::asked() {
                return Err(NoRoom::Cancelled);
            }
            self.map.slots_wanted.notify();
            // Pages that were never flushed sink only when they have been.
            if self.sinks && self.pool.homeless() > 0 {
                self.flusher.request(self.redo.appended());
            }
            // Redo that waits is counted in full, though most of it is for pages that have a slot. A copy lets go of slots when it is told.
            let helped = goes || self.map.waits_for_held() || self.sinks || self.pending.pages() > 0;
            let patience = if helped { self.patience } else { self.patience.min(SHORT_WAIT) };
            // While blocks sink, who waits is late, not stuck.
            let now = (self.world.clock.now(), self.map.slots_sunk());
            let is_hopeless = !goes && self.is_hopeless(pages, keep);
            hopeless = is_hopeless.then(|| hopeless.unwrap_or(now.0));
            if hopeless.is_some_and(|since| now.0 - since >= LOOK) {
                return Err(self.full());
            }
            if now.1 > sunk {
                (since, sunk) = now;
            }
            if now.0 - since > patience {
                return Err(self.full());
            }
            let _shown = observe::wait(observe::Wait::Slots);
            self.world.sched.wait(&self.map.slots_freed, freed, Some(LOOK));
        }
    }
}
