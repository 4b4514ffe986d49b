//! Back-pressure: writers are slowed when purge cannot keep up.
//!
//! History that a reader holds back is not purge's to take away and slows no writer. What purge could take and has not
//! yet is its lag, in undo records. Beyond `purge_lag_max` each change costs a delay that grows with the lag, up to
//! [`DELAY_MAX`]: so writers and purge come to an even pace, and undo does not fill the volume. While purge gets nowhere
//! (`purge::trouble`) there is no pace to come to, and changes cost nothing.

use crate::error::{Error, Result};
use crate::txn::shared::Core;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::cancel;
use terrace_io::clock::Nanos;
use terrace_io::observe;
use terrace_io::sched::Event;

/// The delay of one change when the lag is twice what is allowed, in nanoseconds.
const DELAY: Nanos = 200_000;
const DELAY_MAX: Nanos = 5_000_000;
/// Delays are added up until a wait of so long is worth it.
const WAIT: Nanos = 1_000_000;

#[derive(Default)]
pub struct PurgeThrottle {
    /// What one change costs now.
    delay: AtomicU64,
    /// Notified when changes cost nothing any more.
    released: Event,
    pub waits: AtomicU64,
    pub nanos: AtomicU64,
}

/// What one change costs at a lag.
fn delay(lag: u64, max: u64) -> Nanos {
    if max == 0 || lag <= max {
        return 0;
    }
    let delay = u128::from(lag - max) * u128::from(DELAY) / u128::from(max);
    delay.clamp(1, u128::from(DELAY_MAX)) as Nanos
}

impl PurgeThrottle {
    /// What one change costs now, in nanoseconds.
    pub fn delay(&self) -> Nanos {
        self.delay.load(Ordering::Relaxed)
    }
}

impl Core {
    /// Undo records that purge could take away and has not.
    pub fn purge_lag(&self) -> u64 {
        let (oldest, newest) = (self.ids.oldest_view(), self.ids.published());
        self.purge.history.lock().lag(oldest, newest)
    }

    /// Sets the brake as the lag is now.
    pub fn set_purge_throttle(&self) {
        let new = match self.purge.trouble.is_stuck() {
            true => 0,
            false => delay(self.purge_lag(), self.config.purge_lag_max as u64),
        };
        let old = self.purge.throttle.delay.swap(new, Ordering::Relaxed);
        if old > 0 && new == 0 {
            self.purge.throttle.released.notify();
        }
    }

    /// One more change by a writer that owes so much already: it waits when that is enough. Latches are not held; row
    /// locks may be, and purge waits for none. A change whose wait is cancelled is not made.
    pub fn slow_down(&self, owed: &mut Nanos) -> Result<()> {
        let delay = self.purge.throttle.delay();
        if delay == 0 {
            *owed = 0;
            return Ok(());
        }
        *owed += delay;
        if *owed < WAIT {
            return Ok(());
        }
        let (world, wait) = (&self.storage.world, std::mem::take(owed));
        self.purge.wanted.notify();
        if cancel::refuses(observe::Wait::Purge) {
            return Err(Error::Cancelled);
        }
        let (since, released) = (world.clock.now(), self.purge.throttle.released.ticket());
        if self.purge.throttle.delay() > 0 {
            let _shown = observe::wait(observe::Wait::Purge);
            world.sched.wait(&self.purge.throttle.released, released, Some(wait));
        }
        self.purge.throttle.waits.fetch_add(1, Ordering::Relaxed);
        self.purge.throttle.nanos.fetch_add(world.clock.now().saturating_sub(since), Ordering::Relaxed);
        if cancel::asked() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_with_the_lag() {
        assert_eq!((delay(0, 1000), delay(1000, 1000), delay(u64::MAX, 0)), (0, 0, 0));
        assert_eq!((delay(2000, 1000), delay(3000, 1000)), (DELAY, 2 * DELAY));
        assert_eq!((delay(1001, 1_000_000_000), delay(u64::MAX, 1000)), (0, DELAY_MAX));
        assert_eq!(delay(1_000_000_001, 1_000_000_000), 1);
    }
}
