//! How pages come into memory: claimed, loaded from below or created, published. A claim whose load failed is dropped.

use super::{Access, Pool};
use crate::address::Tier;
use crate::limits::by_space::add;
use crate::limits::meter;
use crate::memory::frame::{FrameNo, FrameState};
use crate::memory::lower_tiers::{Fetched, ImageBelow, ReadError};
use crate::memory::queues::EntryQueue;
use crate::page::PageId;
use crate::planted;
use crate::sync::RawLatch as _;
use std::sync::atomic::Ordering;

impl Pool {
    /// Drops a claim: nothing was loaded.
    pub(super) fn unclaim(&self, id: PageId, no: FrameNo) {
        let hits = self.frame(no).take_hits();
        if hits > 0 {
            add(&self.reads.of(id.space).memory, hits);
            self.shard(id).hits.fetch_add(hits, Ordering::Relaxed);
        }
        self.table.remove(&self.arena, id, no);
        self.give_frame(no);
        self.shard(id).claims_ended.notify();
    }

    /// Publishes an image that was fetched into a claimed frame.
    pub(super) fn admit(&self, id: PageId, no: FrameNo, fetched: Fetched, place: EntryQueue) {
        if let Some(first) = fetched.first_change {
            if fetched.from == Tier::Log {
                self.set_homeless(no);
            }
            self.set_dirty(no, first);
            self.below.admitted(id);
        }
        self.publish(no, place);
    }

    /// Maps `id` to the free frame `no`, unless another thread was first.
    pub(super) fn claim(&self, id: PageId, no: FrameNo) -> bool {
        self.arena.prepare(no);
        self.table.insert(&self.arena, id, no, || {
            let frame = self.frame(no);
            assert_eq!(frame.state(), FrameState::Free);
            frame.set_id(id);
            frame.set_state(FrameState::Claimed);
        })
    }

    pub(super) fn load_claimed(&self, id: PageId, no: FrameNo, access: Access) -> Result<FrameNo, ReadError> {
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        let since = self.world.clock.now();
        let ahead = self.claim_ahead(id, access.ahead_max(), access.way());
        if let (Some((next, _)), Some((last, _))) = (ahead.first(), ahead.last()) {
            let is_alone = next.page.abs_diff(id.page) > 1;
            self.scans.missed(id, last.page.abs_diff(id.page) + 1, access.way(), is_alone);
        }
        let fetched = if ahead.is_empty() {
            // SAFETY: the claim makes this thread the frame's only owner.
            self.below.fetch(id, unsafe { self.arena.bytes_mut(no) })
        } else {
            self.fetch_with(id, no, &ahead)
        };
        match fetched {
            Ok(fetched) => {
                if access.counts_below() {
                    add(self.reads.of(id.space).from(fetched.from), 1);
                    add(&self.counters.reads_below, 1);
                    meter::read(fetched.from, self.world.clock.now() - since);
                }
                self.sample_arrival(no, id, access.counts_below());
                let frame = self.frame(no);
                frame.came(self.period.load(Ordering::Relaxed), access.heats());
                // The statement reads it next. If memory is small it may be evicted before; it should not be fetched from the
                // store twice.
                if access == Access::Estimate && fetched.from == Tier::Object {
                    frame.expect_use();
                }
                frame.pin_again();
                let place = if access == Access::Once { EntryQueue::First } else { EntryQueue::Old };
                self.admit(id, no, fetched, place);
                Ok(no)
            }
            Err(error) => {
                self.unclaim(id, no);
                Err(error)
            }
        }
    }

    /// Ends a claim: the page is in memory.
    pub(super) fn publish(&self, no: FrameNo, place: EntryQueue) {
        let frame = self.frame(no);
        frame.version.fetch_add(1, Ordering::AcqRel);
        let (id, turn) = (frame.id(), frame.turn.load(Ordering::Relaxed));
        let period = {
            let mut queues = self.queues.lock();
            queues.sweep(|no, turn| self.frame(no).turn.load(Ordering::Acquire) != turn);
            queues.push(no, turn, place);
            queues.arrived()
        };
        self.period.store(period, Ordering::Relaxed);
        frame.set_state(FrameState::Ready);
        self.shard(id).claims_ended.notify();
    }

    /// Creates a page that exists nowhere else in the frame `no`, latched exclusively and pinned.
    pub(crate) fn create(&self, id: PageId, no: FrameNo) {
        assert!(self.try_create(id, no), "page {id} is created but is in memory already");
    }

    /// The same, unless the page is in memory, or being loaded or evicted: then returns false.
    pub(crate) fn try_create(&self, id: PageId, no: FrameNo) -> bool {
        if !self.claim(id, no) {
            return false;
        }
        let frame = self.frame(no);
        frame.came(self.period.load(Ordering::Relaxed), true);
        self.sample_made(no, id);
        frame.pin_again();
        // The frame was just freed: the flusher may still be about to unlatch the page that it made clean here.
        if planted::LATCHED_FRAME_TAKEN.on() {
            frame.latch.try_lock_exclusive();
        } else {
            frame.latch.lock_exclusive();
        }
        self.set_homeless(no);
        // SAFETY: the claim makes this thread the frame's only owner.
        unsafe { self.arena.bytes_mut(no) }.fill(0);
        self.publish(no, EntryQueue::Old);
        true
    }

    /// A page was formatted again, whatever image of it other tiers have. The caller has the exclusive latch.
    pub(crate) fn renewed(&self, no: FrameNo) {
        match self.below.held(self.frame(no).id()) {
            ImageBelow::Nowhere => self.set_homeless(no),
            ImageBelow::InSlot | ImageBelow::InObject => self.clear_homeless(no),
        }
    }

    /// Whether formatting the page again needs no slot beyond those taken or promised already.
    pub(crate) fn has_place(&self, id: PageId) -> bool {
        let promised = self
            .table
            .with(&self.arena, id, |no| no.is_some_and(|no| self.frame(no).homeless.load(Ordering::Acquire)));
        promised || self.below.held(id) == ImageBelow::InSlot
    }
}
