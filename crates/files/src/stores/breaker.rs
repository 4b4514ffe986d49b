//! Failing fast: while the store does not answer, requests fail at once with the reason, and one a second is let through to find out
//! whether it is back. Pure.

use terrace_io::clock::Nanos;

/// Failures in a row from which the store is taken to be unreachable.
const FAILURES: u32 = 3;
/// Between two requests that find out whether it is back.
const PROBE: Nanos = 1_000_000_000;

pub enum Gate {
    Open,
    Closed(String),
}

#[derive(Default)]
pub struct Breaker {
    failures: u32,
    reason: String,
    next_probe: Nanos,
}

impl Breaker {
    pub fn enter(&mut self, now: Nanos) -> Gate {
        if self.failures < FAILURES {
            return Gate::Open;
        }
        if now >= self.next_probe {
            self.next_probe = now + PROBE;
            return Gate::Open;
        }
        Gate::Closed(self.reason.clone())
    }

    pub fn answered(&mut self) {
        self.failures = 0;
    }

    pub fn failed(&mut self, now: Nanos, reason: String) {
        self.failures = self.failures.saturating_add(1);
        self.next_probe = now + PROBE;
        self.reason = reason;
    }

    pub fn reason(&self) -> Option<String> {
        (self.failures >= FAILURES).then(|| self.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(breaker: &mut Breaker, now: Nanos) -> bool {
        matches!(breaker.enter(now), Gate::Open)
    }

    #[test]
    fn a_store_that_fails_thrice_is_asked_once_a_second_until_it_answers() {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES {
            assert!(is_open(&mut breaker, 5));
            breaker.failed(5, "down".into());
        }
        assert!(matches!(breaker.enter(6), Gate::Closed(reason) if reason == "down"));
        assert!(is_open(&mut breaker, 5 + PROBE), "the probe");
        assert!(!is_open(&mut breaker, 6 + PROBE), "one probe at a time");
        breaker.answered();
        assert!(is_open(&mut breaker, 6 + PROBE) && breaker.reason().is_none());
    }

    #[test]
    fn failures_between_answers_close_nothing() {
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            breaker.failed(1, "once".into());
            breaker.failed(1, "twice".into());
            breaker.answered();
            assert!(is_open(&mut breaker, 1));
        }
    }
}
