//! Bulk builds yield to small writers where slots of the object buffer run low (CloudJump III §5.4c).
//!
//! A build takes slots as fast as it can write, and small writers, which are slowed by the slots that are left (`txn::write_throttle`),
//! would all but stand until it has ended. So a build continues unthrottled only while more slots are free than the number
//! at which small writers are slowed noticeably. Below that it gets a share of those that sinking frees, and the others the rest. If
//! nothing sinks any more it continues, too, until it gets the error that there is no room. Pages of its large values wait in the same way,
//! a few before each mini-transaction that writes them (`tree/overflow.rs`).

use crate::storage::slot_reservation::{LOOK, SlotReservation};
use terrace_io::cancel;
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::observe;
use terrace_tier::memory::pages::NoRoom;
use terrace_tier::objects::sink::policy;

/// Builds get one of this many slots that sink.
const SHARE: u64 = 2;
/// The share of this many slots may be taken at once: sinking frees them by the block.
const AT_ONCE: u64 = 128;
/// With nothing sunk for this long, in nanoseconds, builds do not yield.
const STILL: Nanos = 2_000_000_000;

#[derive(Default)]
pub struct BulkThrottle(Mutex<ThrottleState, { Mutexes::BulkThrottle as u8 }>);

#[derive(Default)]
struct ThrottleState {
    /// Slots sunk of which the share has been taken.
    claimed: u64,
    /// Slots sunk when it was looked last, and when that number was new.
    sunk: u64,
    since: Nanos,
}

/// The number of free slots, of `slots`, above which builds need not wait.
fn mark(slots: u32) -> u32 {
    policy::low(slots) / 4 * 3
}

impl ThrottleState {
    /// Whether a page may be built now that `sunk` slots have sunk in all. Takes it from the share.
    fn may_go(&mut self, now: Nanos, sunk: u64) -> bool {
        if sunk != self.sunk || self.since == 0 {
            (self.sunk, self.since) = (sunk, now.max(1));
        }
        self.claimed = self.claimed.max(sunk.saturating_sub(AT_ONCE));
        if sunk >= self.claimed + SHARE {
            self.claimed += SHARE;
            return true;
        }
        now.saturating_sub(self.since) > STILL
    }

    fn is_clear(&mut self) {
        self.since = 0;
    }
}

impl BulkThrottle {
    /// Until one page may be built.
    pub fn wait(&self, room: &SlotReservation) -> Result<(), NoRoom> {
        let (map, pool) = (&room.map, &room.pool);
        loop {
            let freed = map.slots_freed.ticket();
            let (slots, free) = map.slots_pressure_lately();
            let coming = || map.slots_to_come() > 0 || pool.homeless_sinking() > 0;
            if free.saturating_sub(pool.homeless() as u32) >= mark(slots) || !coming() {
                self.0.lock().is_clear();
                return Ok(());
            }
            if self.0.lock().may_go(room.world.clock.now(), map.slots_sunk()) {
                return Ok(());
            }
            if cancel::asked() {
                return Err(NoRoom::Cancelled);
            }
            map.slots_wanted.notify();
            if map.slots_to_come() == 0 {
                room.flusher.request(room.redo.appended()); // pages sink when they have been flushed
            }
            let _shown = observe::wait(observe::Wait::Slots);
            room.world.sched.wait(&map.slots_freed, freed, Some(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_get_their_share_of_sunk_slots_and_no_more() {
        let mut state = ThrottleState { claimed: 1000, ..ThrottleState::default() };
        let mut went = 0;
        for (now, sunk) in (1000..3000).step_by(50).enumerate() {
            while state.may_go(now as Nanos + 1, sunk) {
                went += 1;
            }
        }
        assert_eq!(went, (2950 - 1000) / SHARE);
    }

    #[test]
    fn slots_sunk_while_no_build_ran_give_no_credit() {
        let mut state = ThrottleState::default();
        let went = (0..1000).take_while(|_| state.may_go(1, 1_000_000)).count() as u64;
        assert_eq!(went, AT_ONCE / SHARE);
    }

    #[test]
    fn no_build_is_throttled_where_nothing_sinks() {
        let mut state = ThrottleState { claimed: 7, ..ThrottleState::default() };
        assert!(!state.may_go(10, 7) && !state.may_go(10 + STILL, 7));
        assert!(state.may_go(11 + STILL, 7));
        assert!(!state.may_go(12 + STILL, 8), "something does");
        state.is_clear();
        assert!(!state.may_go(100 + 3 * STILL, 8), "it begins anew");
    }
}
