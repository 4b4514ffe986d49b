//! What every flash cache has in memory, and the steps that keep it clean: looking up, judging what was read, invalidating.
//!
//! A cache is this core plus a place for its values: slots of one size (`bpe`, pages) or segments (`blocks`, values of any size).
//! The place decides where a value goes and what is evicted for it; this file decides what may be served. It does no I/O and takes
//! no lock: the cache holds its own around each call.
//!
//! Clean cache (invariant 2). A value is served only if it is intact, of the key asked for, and the version that the reader expects
//! ([`Validity`]). Besides, a value leaves the index when it is invalidated, and a queued fill is in the index already, so the same
//! invalidation cancels it. Either rule alone would be enough; a device that loses a write breaks the second and is caught by the
//! first.

use super::admission::filter::Filter;
use super::fills::Fills;
use super::key::{Validity, Verdict, mark};
use super::table::{FlashSlot, Matches, Table};
use crate::planted;
use std::sync::Arc;
use terrace_io::AlignedBuf;

/// The slots of a cache, as far as the core needs them.
pub(crate) trait Slots {
    fn table(&mut self) -> &mut Table;
    /// Every slot whose key has this fingerprint.
    fn matches(&self, mark: u32) -> Matches;
    fn is_busy(&self, slot: FlashSlot) -> bool;
    /// Removes the slot's value. The slot is free now, or will be when it is no longer busy.
    fn remove(&mut self, slot: FlashSlot);
    /// The slot's write has ended, or will not begin.
    fn settle(&mut self, slot: FlashSlot);

    /// Removes the slot's value if it still has this fingerprint and is on flash. Returns true if it did.
    fn remove_if(&mut self, slot: FlashSlot, mark: u32) -> bool {
        let same = self.table().holds(slot, mark) && !self.is_busy(slot);
        if same {
            self.remove(slot);
        }
        same
    }
}

/// Where a value may be.
pub(crate) enum LookedUp {
    /// Queued for this slot, or being written to it.
    Queued(FlashSlot, Arc<AlignedBuf>),
    /// In any of these slots, or in none.
    OnFlash(Matches),
}

/// What an invalidation did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Cleared {
    pub removed: u64,
    /// Removed values whose write was queued or in progress.
    pub cancelled: u64,
    /// Bytes that their images had in the queue.
    pub bytes: usize,
}

pub(crate) struct Core<V: Validity, S> {
    pub index: S,
    pub filter: Filter<V::Key>,
    pub fills: Fills<V::Key>,
}

/// The version to check for: the expected one, unless a planted bug trusts the index.
#[inline]
pub(crate) fn expected<T>(version: T) -> Option<T> {
    let trusting = planted::FLASH_TAG_IGNORED.on()
        || planted::FILL_AFTER_INVALIDATION.on()
        || planted::COPY_NOT_INVALIDATED.on();
    (!trusting).then_some(version)
}

impl<V: Validity, S: Slots> Core<V, S> {
    pub fn look(&self, key: V::Key, mark: u32) -> LookedUp {
        let mut on_flash = Matches::new();
        for slot in self.index.matches(mark) {
            if !self.index.is_busy(slot) {
                on_flash.push(slot);
            } else if let Some(fill) = self.fills.find(slot).filter(|fill| fill.key == key) {
                return LookedUp::Queued(slot, fill.image.clone());
            }
        }
        LookedUp::OnFlash(on_flash)
    }

    /// What was read from `slot` for a key with this fingerprint was judged. Returns true if it may be served. If not, the slot is
    /// freed, unless it belongs to another key.
    pub fn judged(&mut self, slot: FlashSlot, mark: u32, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Current => {
                self.index.table().touch(slot, mark);
                return true;
            }
            // The saved index may be older than the value: then this entry belongs to no other key.
            Verdict::OtherKey { mark: other } if other == mark => return false,
            Verdict::OtherKey { .. } | Verdict::OtherVersion | Verdict::Corrupt => {}
        }
        self.index.remove_if(slot, mark);
        false
    }

    /// The key has a newer value than any that was evicted: clears every match and cancels queued fills.
    pub fn invalidate(&mut self, key: V::Key) -> Cleared {
        let mut cleared = Cleared::default();
        for slot in self.index.matches(mark(key)) {
            let busy = self.index.is_busy(slot);
            if busy && planted::FILL_AFTER_INVALIDATION.on() {
                continue;
            }
            self.index.remove(slot);
            cleared.removed += 1;
            // It was worth a slot a moment ago: its next eviction is admitted.
            self.filter.remember(key);
            if busy {
                cleared.cancelled += 1;
                // One that is being written already keeps its slot busy until the write has ended.
                if let Some(bytes) = self.fills.cancel(slot) {
                    cleared.bytes += bytes;
                    self.index.settle(slot);
                }
            }
        }
        cleared
    }
}
