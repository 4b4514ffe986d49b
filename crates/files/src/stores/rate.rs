//! Requests to the store a second: a schedule in which each request takes the next free moment. Pure.

use terrace_io::clock::Nanos;

const SECOND: Nanos = 1_000_000_000;

pub struct Rate {
    /// Between two requests; 0 is no limit.
    gap: Nanos,
    next: Nanos,
}

impl Rate {
    pub fn new(per_second: u64, now: Nanos) -> Rate {
        Rate { gap: SECOND.checked_div(per_second).unwrap_or(0), next: now }
    }

    /// Nanoseconds after which the request may be made. A tenth of a second of unused requests is kept for a burst.
    pub fn take(&mut self, now: Nanos) -> Nanos {
        if self.gap == 0 {
            return 0;
        }
        self.next = self.next.max(now.saturating_sub(SECOND / 10));
        let wait = self.next.saturating_sub(now);
        self.next += self.gap;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_requests_than_the_limit_and_a_burst() {
        let mut rate = Rate::new(100, 0);
        let times: Vec<Nanos> = (0..1000).map(|_| rate.take(SECOND)).collect();
        for second in 0..8 {
            let within = |at: &&Nanos| (second * SECOND..(second + 1) * SECOND).contains(at);
            assert!(times.iter().filter(within).count() <= 111);
        }
        assert!(*times.last().unwrap() > 9 * SECOND);
        assert_eq!(Rate::new(0, 0).take(7), 0);
    }
}
