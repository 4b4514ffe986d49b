//! The pace of writers while blocks are sinking: slower, the fewer slots of the object buffer are free.
//!
//! Below the low watermark the sinker works for room (`tier/src/objects/sink/policy.rs`). If writers take slots faster than it
//! frees them, each change costs a delay: negligible at the watermark, and growing without a step until changes
//! take slots no faster than blocks sink. So writers do not reach the point where no slot is free and all of them wait
//! until a block has gone, which is left as the last resort (`slot_reservation`, `Pool::wait_to_change`).
//!
//! A transaction that holds locks pays its delay when it has ended, unless that is large.
//!
//! In the same way writers to a table with a write limit are slowed, and no others, while that limit holds pages of it back.
//!
//! A wait ends when the delay, as it is by then, has passed: it gets shorter while it lasts if blocks sink. Without
//! an object store nothing gives slots back, and no writer is slowed; nor for what sinking cannot give: where undo or the catalog hold
//! the slots, a writer waits until all else has sunk and no longer, and continues to where it gets the error that the object buffer is full.
//! Nor where no block has sunk for as long as one waits for room
//! (`log_wait_timeout_ms`): then new pages are refused, and changes in place, which take no slot, go on.

use crate::error::{Error, Result};
use crate::storage::slot_reservation;
use crate::table::Table;
use crate::txn::shared::Core;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::cancel;
use terrace_io::clock::Nanos;
use terrace_io::observe;
use terrace_log::Redo;
use terrace_tier::ablation::Mechanism;
use terrace_tier::limits::quota;
use terrace_tier::memory::pool;
use terrace_tier::objects::sink::{self, policy};
use terrace_tier::volume::flush;

/// The delay of one change with half of the slots between nil and the watermark gone, twice, in nanoseconds.
const DELAY: Nanos = 1_000_000;
/// With none left.
const DELAY_MAX: Nanos = 1_000_000_000;
/// Delays are added up until a wait of so long is worth it.
const WAIT: Nanos = 1_000_000;
/// A transaction that holds locks waits if it owes at least this much: a smaller delay it pays when it has ended, so that others that want
/// its rows don't pay for it. A row that many want would otherwise be held by a waiting transaction most of the time.
const LATE: Nanos = 20_000_000;
/// How often a waiting writer looks again.
const LOOK: Nanos = 20_000_000;

#[derive(Default)]
pub struct WriteThrottle {
    pub waits: AtomicU64,
    pub nanos: AtomicU64,
    /// While changes cost something: slots sunk when it was looked last, and since when there are no more. 0: they cost nothing.
    sunk: AtomicU64,
    still_since: AtomicU64,
}

impl WriteThrottle {
    /// Whether nothing has sunk for so long that nothing will by waiting.
    fn is_stuck(&self, now: Nanos, sunk: u64, patience: Nanos) -> bool {
        let since = self.still_since.load(Ordering::Relaxed);
        if since == 0 || self.sunk.swap(sunk, Ordering::Relaxed) != sunk {
            self.sunk.store(sunk, Ordering::Relaxed);
            self.still_since.store(now.max(1), Ordering::Relaxed);
            return false;
        }
        now.saturating_sub(since) > patience
    }

    fn is_free(&self) {
        if self.still_since.load(Ordering::Relaxed) != 0 {
            self.still_since.store(0, Ordering::Relaxed);
        }
    }
}

/// What one change costs. `keep` slots are for more urgent needs: here they count as none. `coming`: slots that sinking can free.
fn delay(free: u32, keep: u32, slots: u32, coming: u32) -> Nanos {
    let low = policy::low(slots);
    if free >= low || (coming == 0 && !crate::planted::THROTTLED_FOR_NOTHING.on()) {
        return 0;
    }
    let span = u64::from(low.saturating_sub(keep));
    let left = u64::from(free.saturating_sub(keep)).min(span);
    steep(span - left, span)
}

/// x² / (1 - x), where x is how much of the span is gone.
fn steep(gone: u64, span: u64) -> Nanos {
    if gone >= span {
        return DELAY_MAX;
    }
    let [gone, span] = [gone, span].map(u128::from);
    (gone * gone * u128::from(DELAY) / (span * (span - gone))).min(u128::from(DELAY_MAX)) as Nanos
}

impl Core {
    /// What one change costs now. Slots that dirty pages will take are taken.
    fn slot_delay(&self) -> Nanos {
        let map = &self.storage.map;
        let without = self.storage.config.without.has(Mechanism::Pacing);
        if self.storage.cold.is_none()
            || self.is_temporary()
            || without
            || crate::planted::WRITERS_NOT_THROTTLED.on()
        {
            return 0;
        }
        let (slots, free) = map.slots_pressure_lately();
        if free.saturating_sub(self.storage.pages.pool().homeless() as u32) >= policy::low(slots) {
            self.write_throttle.is_free();
            return 0;
        }
        let pool = self.storage.pages.pool();
        let coming = map.slots_to_come() + pool.homeless_sinking() as u32;
        let free = free.saturating_sub(pool.homeless() as u32);
        let cost = delay(free, slot_reservation::keep_of_tables(map), slots, coming);
        if cost == 0 {
            self.write_throttle.is_free();
            return 0;
        }
        let patience = self.storage.config.log_wait_timeout_ms.saturating_mul(1_000_000);
        let stuck = self.write_throttle.is_stuck(self.storage.world.clock.now(), map.slots_sunk(), patience);
        if stuck { 0 } else { cost }
    }

    /// The table's limits, if it has some of writes.
    fn limiting(&self, table: &Table) -> Option<Arc<quota::Table>> {
        let rules = &self.storage.rules;
        if !rules.limit_writes() {
            return None;
        }
        rules.limiting_writes(table.tree(0).ok()?.space().id())
    }

    /// What one change costs where the table's own limit of writes holds pages or blocks back: nothing worth a word at first, and growing until
    /// changes make pages dirty no faster than they may be written. So the limit need not yield: for frames, for the log, for slots.
    fn limit_delay(&self, table: &Table) -> Nanos {
        let Some(table) = self.limiting(table) else { return 0 };
        let mut cost = 0;
        if table.pages_held.load(Ordering::Relaxed) > 0 {
            let pool = self.storage.pages.pool();
            let frames = pool.frames_in_circulation();
            let (from, to) = (pool::dirty_limit(frames), flush::limit::yields_at(frames));
            cost = steep(pool.dirty_frames().saturating_sub(from) as u64, (to - from) as u64);
            let (gone, span) = self.storage.log.pressure();
            cost = cost.max(steep(gone, span));
        }
        if table.blocks_held.load(Ordering::Relaxed) > 0 {
            let (slots, free) = self.storage.map.slots_pressure_lately();
            // As the sinker counts them.
            let free = free.saturating_sub(self.storage.pages.pool().homeless() as u32);
            let (from, to) = (policy::low(slots), sink::limit::yields_at(slots));
            cost = cost.max(steep(u64::from(from.saturating_sub(free)), u64::from(from - to)));
        }
        cost
    }

    /// One more change to the table by a writer that owes so much already: it waits when that is enough. Latches are not held; row
    /// locks may be (`holds`), and neither flushing nor sinking waits for one. A change whose wait is cancelled is not made.
    pub fn throttle_write(&self, table: &Table, holds: bool, owed: &mut Nanos) -> Result<()> {
        let for_slots = self.slot_delay();
        let cost = for_slots.max(self.limit_delay(table));
        *owed = if cost == 0 { 0 } else { *owed + cost };
        let is_limit = for_slots < cost;
        let late = holds && !is_limit && !crate::planted::THROTTLED_WITH_LOCKS.on();
        if *owed < if late { LATE } else { WAIT } {
            return Ok(());
        }
        if cancel::refuses(observe::Wait::Slots) {
            self.storage.map.slots_wanted.notify();
            return Err(Error::Cancelled);
        }
        let wait = std::mem::take(owed);
        let waited = self.wait_out(wait, || self.slot_delay().max(self.limit_delay(table)));
        if is_limit {
            self.limiting(table).iter().for_each(|limited| limited.waited_to_write(waited));
        } else {
            self.count_wait(waited);
        }
        if cancel::asked() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// What a transaction that has ended still owes for its changes. Less than 20 ms.
    pub fn pay_late(&self, owed: Nanos) {
        if owed >= WAIT && self.slot_delay() > 0 {
            self.count_wait(self.wait_out(owed, || self.slot_delay()));
        }
    }

    fn count_wait(&self, waited: Nanos) {
        self.write_throttle.waits.fetch_add(1, Ordering::Relaxed);
        self.write_throttle.nanos.fetch_add(waited, Ordering::Relaxed);
    }

    /// Waits so long, or less if changes come to `cost` less meanwhile. Returns how long.
    fn wait_out(&self, wait: Nanos, cost: impl Fn() -> Nanos) -> Nanos {
        let (map, world) = (&self.storage.map, &self.storage.world);
        map.slots_wanted.notify();
        if self.slot_delay() > 0 && map.slots_to_come() == 0 {
            // New pages sink when they have been flushed.
            self.storage.flusher.request(self.storage.log.appended());
        }
        let since = world.clock.now();
        let _shown = observe::wait(observe::Wait::Slots);
        loop {
            let freed = map.slots_freed.ticket();
            let passed = world.clock.now().saturating_sub(since);
            let left = wait.min(cost().max(WAIT)).saturating_sub(passed);
            if left == 0 || cancel::asked() {
                break;
            }
            world.sched.wait(&map.slots_freed, freed, Some(left.min(LOOK)));
        }
        world.clock.now().saturating_sub(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_watermark_a_change_costs_nothing() {
        for (free, slots) in [(250, 1000), (1000, 1000), (64, 256), (0, 0)] {
            assert_eq!(delay(free, 10, slots, 9), 0, "{free} of {slots}");
        }
    }

    #[test]
    fn a_change_costs_nothing_where_sinking_frees_nothing() {
        for free in [0, 1, 100, 249] {
            assert_eq!((delay(free, 10, 1000, 0), delay(free, 10, 1000, 1) > 0), (0, true), "{free}");
        }
    }

    #[test]
    fn no_writer_waits_for_slots_that_never_come() {
        let pace = WriteThrottle::default();
        assert!(!pace.is_stuck(1000, 7, 50) && !pace.is_stuck(1050, 7, 50));
        assert!(pace.is_stuck(1051, 7, 50));
        assert!(!pace.is_stuck(1060, 8, 50), "a block has sunk");
        assert!(!pace.is_stuck(1110, 8, 50) && pace.is_stuck(1111, 8, 50));
        pace.is_free();
        assert!(!pace.is_stuck(9000, 8, 50), "slots were plenty meanwhile");
        assert!(pace.is_stuck(9051, 8, 50));
    }

    #[test]
    fn the_delay_grows_smoothly_until_no_slot_is_left() {
        // Slots, kept, free: nanoseconds.
        for (slots, keep, free, expected) in [
            (1000, 0, 249, 16),
            (1000, 0, 225, 11_111),
            (1000, 0, 125, 500_000),
            (1000, 0, 25, 8_100_000),
            (1000, 0, 1, 248_004_000),
            (1000, 0, 0, DELAY_MAX),
            (1000, 50, 150, 500_000),
            (1000, 50, 50, DELAY_MAX),
            (1000, 50, 10, DELAY_MAX),
            (1000, 300, 249, DELAY_MAX),
            (16_777_214, 320, 0, DELAY_MAX),
        ] {
            assert_eq!(delay(free, keep, slots, 1), expected, "{free} of {slots}, {keep} kept");
        }
        for (slots, keep) in [(256, 20), (1000, 30), (524_288, 320), (16_777_214, 320)] {
            // In steps of a thousandth, and one slot after the other near nil, where it is steep.
            let low = policy::low(slots);
            let mut order: Vec<u32> = (keep..low).step_by((low as usize / 1000).max(1)).collect();
            order.extend(keep..(keep + 500).min(low));
            order.sort_unstable_by(|a, b| b.cmp(a));
            let mut before = 0;
            for free in order {
                let now = delay(free, keep, slots, 1);
                assert!(now >= before, "{free} of {slots}: {before}, then {now}");
                let far = u64::from(free - keep) * 10 > u64::from(low - keep);
                assert!(!far || now <= 10 * DELAY, "{free} of {slots}: {now}");
                before = now;
            }
        }
    }
}
