//! The rate of requests to the store: a pure structure. Not higher than the setting allows, and lower while the store throttles.
//!
//! Requests are spaced evenly, with a short burst after idle time. When the store throttles (429, 503) the spacing doubles,
//! between a minimum and a second; each block that succeeds takes a quarter off it, until it is zero. So the sinker finds the
//! rate that the store accepts, and writers are throttled to it as slots run low.

use terrace_io::clock::Nanos;

const SECOND: Nanos = 1_000_000_000;
/// The spacing after the store throttles first, and the maximum spacing.
const FIRST: Nanos = 10_000_000;
const SPACING_MAX: Nanos = SECOND;
/// A smaller spacing is set to zero.
const NONE: Nanos = 1_000_000;
/// Number of requests that need no spacing, after an idle time that they would have taken.
const BURST: u64 = 8;

#[derive(Debug)]
pub struct Rate {
    /// Spacing of requests by the setting; 0: unlimited.
    setting: Nanos,
    /// Additional spacing because the store throttles.
    learnt: Nanos,
    /// When the next request is due.
    next: Nanos,
}

impl Rate {
    /// At most this many requests a second; 0: no limit.
    pub fn new(per_second: u64) -> Rate {
        Rate { setting: SECOND.checked_div(per_second).unwrap_or(0), learnt: 0, next: 0 }
    }

    /// The present spacing of requests.
    pub fn spacing(&self) -> Nanos {
        self.setting.max(self.learnt)
    }

    /// How long to wait before the next request.
    pub fn wait(&self, now: Nanos) -> Nanos {
        self.next.saturating_sub(now)
    }

    /// Records this number of requests.
    pub fn spend(&mut self, now: Nanos, requests: u64) {
        let spacing = self.spacing();
        self.next = self.next.max(now.saturating_sub(BURST * spacing)) + requests * spacing;
    }

    pub fn throttled(&mut self, now: Nanos) {
        if crate::planted::THROTTLED_NOT_LEARNT.on() {
            return;
        }
        self.learnt = (2 * self.learnt).clamp(FIRST, SPACING_MAX);
        self.next = self.next.max(now + self.learnt);
    }

    pub fn succeeded(&mut self) {
        self.learnt -= self.learnt / 4;
        if self.learnt < NONE {
            self.learnt = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests in a second, each sent as soon as it may be and lasting a millisecond.
    fn in_a_second(rate: &mut Rate, from: Nanos) -> u64 {
        let (mut now, mut made) = (from, 0);
        while now < from + SECOND {
            let wait = rate.wait(now);
            if wait == 0 {
                rate.spend(now, 1);
                made += 1;
            }
            now += wait.max(1_000_000);
        }
        made
    }

    #[test]
    fn a_limit_is_kept_with_a_burst_at_the_beginning() {
        for per_second in [1, 10, 100] {
            let mut rate = Rate::new(per_second);
            assert!(in_a_second(&mut rate, 100 * SECOND) <= per_second + BURST + 1);
            assert!(
                (per_second..=per_second + 1).contains(&in_a_second(&mut rate, 101 * SECOND)),
                "{per_second}"
            );
        }
        assert_eq!(in_a_second(&mut Rate::new(0), 0), 1000);
    }

    #[test]
    fn a_store_that_throttles_is_asked_less_and_less_and_then_more_again() {
        let mut rate = Rate::new(0);
        let mut before = 1000;
        for second in 1..8 {
            rate.throttled(second * SECOND);
            let made = in_a_second(&mut rate, second * SECOND);
            assert!(made < before, "{second}: {before}, then {made}");
            before = made;
        }
        (0..10).for_each(|_| rate.throttled(10 * SECOND));
        assert_eq!(rate.spacing(), SPACING_MAX);
        (0..200).for_each(|_| rate.succeeded());
        assert_eq!(rate.spacing(), 0);
        assert_eq!(in_a_second(&mut rate, 20 * SECOND), 1000);
    }

    /// A store that accepts fifty requests a second: the rate converges to about that, and stays.
    #[test]
    fn it_finds_what_the_store_takes() {
        let (mut rate, mut now, mut taken, mut refused) = (Rate::new(0), SECOND, 0, 0u64);
        let mut free_at = 0;
        while now < 61 * SECOND {
            let wait = rate.wait(now);
            if wait > 0 {
                now += wait;
                continue;
            }
            rate.spend(now, 1);
            if now < free_at {
                refused += 1;
                rate.throttled(now);
            } else {
                free_at = now.max(free_at) + SECOND / 50;
                taken += 1;
                rate.succeeded();
            }
            now += 1_000_000;
        }
        assert!(taken > 60 * 50 / 3 && refused < taken / 2, "{taken} taken, {refused} refused");
    }
}
