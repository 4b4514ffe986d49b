//! Which flash slot a page gets and which page is evicted for it: slots of one size, and CLOCK.
//!
//! Free slots are in a free list, or were never used (at `fresh` or above); `table` has those in use.
//!
//! The hand goes round the slots in device order. A slot used since the hand last passed is spared, once for each use, at most
//! three times; a new slot starts with no uses, so it must earn its stay. CloudJump III §4.1.3, with two bits instead of one.
//!
//! Not here: I/O, locks (the owner's), images.

use super::shares::Shares;
use crate::flash::core::Slots;
pub use crate::flash::table::{FlashSlot, Matches};
use crate::flash::table::{Table, USES_MAX};
use crate::limits::quota::{Class, Holder, may_leave};

/// Slots that the hand passes in one call before it takes the next one that is not busy.
const WALK_MAX: u32 = 4096;

/// Slots of its own that a table over its cap examines for a victim.
const OWN_MAX: u32 = 64;

pub struct Index {
    /// The fingerprint of a slot in the free list is the next one's number plus 1.
    table: Table,
    /// Slots at and above this are not used (any more).
    limit: u32,
    /// Slots at and above this were never used, or (with `restoring`) are not known yet.
    fresh: u32,
    /// The index of an earlier run is being restored, slot after slot.
    restoring: bool,
    /// Head of the free list, plus 1.
    free: u32,
    hand: u32,
    /// Which class each slot's page belongs to, if any table has rules (`quota`).
    shares: Shares,
}

impl Index {
    pub fn new(slots: u32) -> Index {
        Index {
            table: Table::new(slots),
            limit: slots,
            fresh: 0,
            restoring: false,
            free: 0,
            hand: 0,
            shares: Shares::default(),
        }
    }

    /// The classes of pages; see [`Shares`].
    pub fn shares(&self) -> &Shares {
        &self.shares
    }
    /// Sets the classes. Pages keep theirs.
    pub fn set_holders(&mut self, holders: Vec<Holder>) {
        let used = &self.table.used;
        self.shares.set(holders, self.table.marks.len(), |slot| used.get(slot));
    }
    /// Assigns this class to the pages with this fingerprint.
    pub fn classify(&mut self, mark: u32, class: Class) {
        for slot in self.matches(mark) {
            self.shares.leaves(slot);
            self.shares.comes(slot, class);
        }
    }

    /// The number of slots that may be used.
    pub fn limit(&self) -> u32 {
        self.limit
    }
    /// The number of slots in the table.
    pub fn in_use(&self) -> u32 {
        self.table.in_use()
    }
    pub fn is_busy(&self, slot: FlashSlot) -> bool {
        self.table.busy.get(slot)
    }

    /// Every slot whose page has this fingerprint.
    pub fn matches(&self, mark: u32) -> Matches {
        self.table.matches(mark)
    }

    /// Allocates a slot for a page with this fingerprint: a free one, a fresh one, or one that the hand takes from its page. It
    /// is in the table and busy. Returns None if no slot can be had.
    pub fn fill(&mut self, mark: u32, class: Class) -> Option<FlashSlot> {
        let slot = if self.shares.holder(class).is_full() {
            self.take_own(class)?
        } else {
            self.take_free().or_else(|| self.take_fresh()).or_else(|| self.take_old(class))?
        };
        self.table.busy.set(slot, true);
        self.link(slot, mark, class);
        Some(slot)
    }

    fn link(&mut self, slot: FlashSlot, mark: u32, class: Class) {
        self.shares.comes(slot, class);
        self.table.link(slot, mark);
    }
    fn unlink(&mut self, slot: FlashSlot) {
        self.table.unlink(slot);
        self.shares.leaves(slot);
    }

    /// From now on slots are known only as far as `restore` has come.
    pub fn begin_restore(&mut self) {
        assert_eq!(self.fresh, 0, "an index that was used is not put back");
        self.restoring = true;
    }

    /// The next slots have pages with these fingerprints; 0 means no page.
    pub fn restore(&mut self, marks: impl Iterator<Item = u32>) {
        assert!(self.restoring, "slots are put back that are known");
        for mark in marks {
            let slot = self.fresh;
            if slot >= self.limit {
                return;
            }
            self.fresh += 1;
            if mark == 0 {
                self.release(slot);
            } else {
                self.link(slot, mark, 0);
            }
        }
    }

    /// Ends the restore; the slots above were never used.
    pub fn end_restore(&mut self) {
        self.restoring = false;
    }

    /// Fingerprints of the pages whose images are on flash, from slot `from` on; 0 for the others.
    pub fn marks(&self, from: FlashSlot, count: usize) -> Vec<u32> {
        let here = |slot: u32| {
            if self.table.used.get(slot) && !self.table.busy.get(slot) {
                self.table.marks[slot as usize]
            } else {
                0
            }
        };
        (from..self.fresh.min(self.limit)).take(count).map(here).collect()
    }

    fn take_free(&mut self) -> Option<FlashSlot> {
        while let Some(slot) = self.free.checked_sub(1) {
            self.free = self.table.marks[slot as usize];
            if slot < self.limit {
                return Some(slot);
            }
        }
        None
    }

    fn take_fresh(&mut self) -> Option<FlashSlot> {
        while self.fresh < self.limit && !self.restoring {
            let slot = self.fresh;
            self.fresh += 1;
            // A slot that was beyond the limit for a while may still be being written: it is freed when the write has ended.
            if !self.table.busy.get(slot) {
                return Some(slot);
            }
        }
        None
    }

    /// CLOCK. There is no free slot among the known ones when this is called.
    fn take_old(&mut self, class: Class) -> Option<FlashSlot> {
        let slot = self.find_old(class)?;
        self.unlink(slot);
        Some(slot)
    }

    /// A slot of the class's table, which has reached its cap: the oldest one not used since it was filled.
    fn take_own(&mut self, class: Class) -> Option<FlashSlot> {
        for turn in 0..OWN_MAX {
            let slot = self.shares.oldest(class)?;
            if self.table.busy.get(slot) || self.table.uses(slot) > 0 && turn < OWN_MAX / 2 {
                self.table.set_uses(slot, self.table.uses(slot).saturating_sub(1));
                self.shares.spare(slot);
                continue;
            }
            self.unlink(slot);
            return Some(slot);
        }
        None
    }

    /// Removes at most `count` pages of the class's table that exceed its cap, oldest first. Returns true if all that could be
    /// removed are gone: a slot being written stays until its write has ended and another page comes.
    pub fn trim(&mut self, class: Class, count: usize) -> bool {
        let (mut taken, mut busy) = (0, 0);
        loop {
            let holder = self.shares.holder(class);
            if holder.max == 0 || holder.used <= holder.max + busy {
                return true;
            }
            if taken == count {
                return false;
            }
            let Some(slot) = self.shares.oldest(class) else { return true };
            if self.table.busy.get(slot) {
                self.shares.spare(slot);
                busy += 1;
            } else {
                self.remove(slot);
                taken += 1;
            }
        }
    }

    /// The hand's next victim to be replaced by a page of this class; the hand moves past it.
    fn find_old(&mut self, class: Class) -> Option<FlashSlot> {
        let (comer, mut protected) = (self.shares.holder(class), 0);
        let known = self.fresh.min(self.limit);
        for step in 0..(u32::from(USES_MAX) + 1).saturating_mul(known) {
            let slot = self.hand;
            self.hand = if slot + 1 >= known { 0 } else { slot + 1 };
            if self.table.busy.get(slot) || !self.table.used.get(slot) {
                continue;
            }
            if !self.shares.is_empty() && !may_leave(&self.shares.holder_of(slot), &comer) {
                protected += 1;
                if protected == WALK_MAX {
                    return None;
                }
                continue;
            }
            let uses = self.table.uses(slot);
            if uses > 0 && step < WALK_MAX {
                self.table.set_uses(slot, uses - 1);
                continue;
            }
            return Some(slot);
        }
        None
    }

    /// The slot whose page would be evicted next, and its fingerprint; None if a slot is free or all are busy. The hand stays
    /// there: this slot is the next victim, unless it is passed.
    pub fn candidate(&mut self, class: Class) -> Option<(FlashSlot, u32)> {
        if self.free != 0 || self.fresh < self.limit && !self.restoring || self.shares.holder(class).is_full()
        {
            return None;
        }
        let slot = self.find_old(class)?;
        self.hand = slot;
        Some((slot, self.table.marks[slot as usize]))
    }

    /// Moves the hand past the candidate, if it is still there: the candidate stays.
    pub fn pass(&mut self, slot: FlashSlot) {
        if self.hand == slot {
            self.hand = if slot + 1 >= self.fresh.min(self.limit) { 0 } else { slot + 1 };
        }
    }

    /// A reader found the slot's page: spare it once more. Does nothing if the slot holds another page by now.
    pub fn touch(&mut self, slot: FlashSlot, mark: u32) {
        self.table.touch(slot, mark);
    }

    /// Removes the slot's page from the table. The slot is free now, or will be when it is no longer busy.
    pub fn remove(&mut self, slot: FlashSlot) {
        if self.table.used.get(slot) {
            self.unlink(slot);
            if !self.table.busy.get(slot) {
                self.release(slot);
            }
        }
    }

    /// Removes the slot's page if it still has this fingerprint and is on flash. Returns true if it did.
    pub fn remove_if(&mut self, slot: FlashSlot, mark: u32) -> bool {
        let same = self.table.holds(slot, mark) && !self.table.busy.get(slot);
        if same {
            self.remove(slot);
        }
        same
    }

    /// The slot's write has ended.
    pub fn settle(&mut self, slot: FlashSlot) {
        assert!(self.table.busy.get(slot), "a write ended in flash slot {slot} that nobody writes");
        self.table.busy.set(slot, false);
        // At `fresh` and above, where `shrink` has cut it off, it will be reused as a fresh one.
        if !self.table.used.get(slot) && slot < self.fresh {
            self.release(slot);
        }
    }

    /// No slot at or above this one is in use.
    pub fn frontier(&self) -> u32 {
        (0..self.fresh).rev().find(|slot| self.table.used.get(*slot)).map_or(0, |slot| slot + 1)
    }

    /// From now on only slots below `limit` are used: the device has no space for more. Pages above are removed.
    pub fn shrink(&mut self, limit: u32) {
        if limit < self.limit {
            (limit..self.fresh.min(self.limit)).for_each(|slot| self.remove(slot));
            self.limit = limit;
            self.fresh = self.fresh.min(limit);
            self.hand = 0;
        }
    }

    /// Whether no write to a slot beyond the limit is in progress.
    pub fn is_quiet_beyond(&self) -> bool {
        (self.limit..self.table.marks.len() as u32).all(|slot| !self.table.busy.get(slot))
    }

    /// The number of slots for which it has memory.
    pub fn capacity(&self) -> u32 {
        self.table.marks.len() as u32
    }

    /// Allocates memory for `slots` slots, all of which may be used. Slots beyond the old limit that were used before were cut
    /// off by `shrink` and have no writes in progress. The table is rebuilt, which takes a few cache misses a page.
    pub fn resize(&mut self, slots: u32) {
        assert!(slots >= self.limit, "pages are cut off");
        assert!(slots >= self.capacity() || self.is_quiet_beyond(), "a slot that is written to is cut off");
        let mut free = Vec::new();
        while let Some(slot) = self.free.checked_sub(1) {
            self.free = self.table.marks[slot as usize];
            // At `fresh` and above they will be reused as fresh ones.
            if slot < self.fresh.min(slots) {
                free.push(slot);
            }
        }
        self.shares.resize(slots as usize);
        self.limit = slots;
        self.fresh = self.fresh.min(slots);
        self.hand = if self.hand < self.fresh { self.hand } else { 0 };
        self.table.resize(slots, self.fresh);
        free.into_iter().for_each(|slot| self.release(slot));
    }

    fn release(&mut self, slot: FlashSlot) {
        self.table.marks[slot as usize] = self.free;
        self.free = slot + 1;
    }

    /// Panics if table, bits and free list disagree. For tests.
    pub fn check_invariants(&self) {
        self.table.check_invariants();
        let mut free = std::collections::HashSet::new();
        let mut next = self.free;
        while let Some(slot) = next.checked_sub(1) {
            assert!(
                !self.table.used.get(slot) && !self.table.busy.get(slot),
                "slot {slot} is in use and in the free list"
            );
            assert!(free.insert(slot), "the free list goes in a circle at slot {slot}");
            next = self.table.marks[slot as usize];
        }
        for slot in 0..self.fresh {
            let held = self.table.used.get(slot) || self.table.busy.get(slot);
            assert!(held || free.contains(&slot), "slot {slot} is lost");
        }
        self.shares.check_invariants(|slot| self.table.used.get(slot));
        assert!(self.fresh <= self.limit && (self.hand < self.limit || self.limit == 0));
    }
}

impl Slots for Index {
    fn table(&mut self) -> &mut Table {
        &mut self.table
    }
    fn matches(&self, mark: u32) -> Matches {
        Index::matches(self, mark)
    }
    fn is_busy(&self, slot: FlashSlot) -> bool {
        Index::is_busy(self, slot)
    }
    fn remove(&mut self, slot: FlashSlot) {
        Index::remove(self, slot);
    }
    fn settle(&mut self, slot: FlashSlot) {
        Index::settle(self, slot);
    }
}

#[cfg(test)]
mod tests;
