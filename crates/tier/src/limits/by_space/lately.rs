//! Recent event counts: over the last hour and the current five minutes.
//!
//! Twelve slices of five minutes, and the current one. A slice is cleared when its time comes round again, by the next thread
//! that counts or queries: no timer is needed.

use parking_lot::Mutex;
use terrace_io::clock::Nanos;

const SLICE: Nanos = 300_000_000_000;
const SLICES: usize = 13;

#[derive(Default, Debug)]
pub struct Lately(Mutex<Slices>);

#[derive(Default, Debug)]
struct Slices {
    /// The number of the newest slice.
    newest: u64,
    counts: [u32; SLICES],
}

impl Slices {
    fn come_to(&mut self, now: Nanos) {
        let newest = (now / SLICE).max(self.newest);
        for slice in (self.newest + 1..=newest).rev().take(SLICES) {
            self.counts[(slice % SLICES as u64) as usize] = 0;
        }
        self.newest = newest;
    }
}

impl Lately {
    pub fn add(&self, now: Nanos) {
        let mut slices = self.0.lock();
        slices.come_to(now);
        let at = (slices.newest % SLICES as u64) as usize;
        slices.counts[at] = slices.counts[at].saturating_add(1);
    }

    /// The count for the time that [`covered`] returns.
    pub fn count(&self, now: Nanos) -> u64 {
        let mut slices = self.0.lock();
        slices.come_to(now);
        slices.counts.iter().map(|n| u64::from(*n)).sum()
    }
}

/// The time that the counts at `now` cover, in nanoseconds, if counting began at `since`: 60 to 65 minutes at most.
pub fn covered(now: Nanos, since: Nanos) -> Nanos {
    let all = (SLICES as Nanos - 1) * SLICE + now % SLICE;
    all.min(now.saturating_sub(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn a_second(lately: &Lately, now: Nanos, since: Nanos) -> f64 {
        lately.count(now) as f64 / (covered(now, since) as f64 / 1e9)
    }

    #[test]
    fn a_steady_rate_is_told_after_a_minute_and_after_days() {
        let (lately, since) = (Lately::default(), 7777 * SECOND);
        for n in 0..100_000u64 {
            let now = since + n * 3 * SECOND;
            lately.add(now);
            if n >= 20 {
                let rate = a_second(&lately, now, since);
                assert!((rate * 3.0 - 1.0).abs() < 0.06, "{rate} a second after {n}");
            }
        }
    }

    #[test]
    fn what_was_more_than_an_hour_ago_does_not_count() {
        let (lately, since) = (Lately::default(), 0);
        (0..50_000).for_each(|_| lately.add(10 * SECOND)); // a load
        assert!(a_second(&lately, 20 * SECOND, since) == 2500.0);
        assert_eq!(lately.count(3600 * SECOND - 1), 50_000);
        assert_eq!(lately.count(3900 * SECOND), 0);
        lately.add(3900 * SECOND);
        assert_eq!((lately.count(4000 * SECOND), lately.count(1_000_000_000 * SECOND)), (1, 0));
        // Threads look at the clock before they have the lock.
        lately.add(5 * SECOND);
        assert_eq!(lately.count(1_000_000_000 * SECOND), 1);
    }

    #[test]
    fn each_slice_leaves_by_itself() {
        let lately = Lately::default();
        (0..13).for_each(|slice| (0..=slice).for_each(|_| lately.add(slice * SLICE)));
        let mut left = (1..=13).sum::<u64>();
        for slice in 12..25 {
            assert_eq!(lately.count(slice * SLICE + 1), left, "{slice}");
            left -= slice - 11;
        }
        assert_eq!(left, 0);
    }
}
