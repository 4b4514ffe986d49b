//! The health of one device: up, or suspect.
//!
//! A device becomes suspect when [`FAILURES`] requests in a row fail, or when the caller says that one exceeded its bound. A
//! suspect device gets shadow probes, one at a time: a second read of a block that another device serves, for which no reader waits.
//! The pause between probes doubles from [`PAUSE_MIN`] to [`PAUSE_MAX`]. [`ANSWERS`] answers in a row, however slow, and the device is
//! up: how fast it is, is the policy's matter. A probe without an answer for [`LOST`] counts as failed and frees its place.
//!
//! Everything is in atomics and no step waits. Two threads that see the same fault at once mark it once.

use crate::clock::Nanos;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

const MILLI: Nanos = 1_000_000;

/// Failed requests in a row that make a device suspect.
pub const FAILURES: u32 = 3;
/// Answered probes in a row that clear it.
pub const ANSWERS: u32 = 2;
pub const PAUSE_MIN: Nanos = 5 * MILLI;
pub const PAUSE_MAX: Nanos = 200 * MILLI;
/// A probe that is out for this long will not come back.
pub const LOST: Nanos = 400 * MILLI;
/// An idle device is measured again after this time at most; sooner if it is fast.
pub const REMEMBERED: Nanos = 10_000 * MILLI;

#[derive(Default)]
pub struct Health {
    failures: AtomicU32,
    answers: AtomicU32,
    pause: AtomicU64,
    /// When the next probe may start; `Nanos::MAX` while one is out.
    next: AtomicU64,
    /// When the last probe started.
    started: AtomicU64,
    /// Times that it became suspect.
    pub suspicions: AtomicU64,
}

impl Health {
    /// A request failed. True: the device is suspect by that.
    pub fn failed(&self, now: Nanos) -> bool {
        let suspect = self.failures.fetch_add(1, Relaxed) + 1 == FAILURES;
        if suspect {
            self.suspect(now);
        }
        suspect
    }

    pub fn answered(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// Begins a suspicion.
    pub fn suspect(&self, now: Nanos) {
        self.suspicions.fetch_add(1, Relaxed);
        self.answers.store(0, Relaxed);
        self.pause.store(PAUSE_MIN, Relaxed);
        self.next.store(now + PAUSE_MIN, Relaxed);
    }

    /// Takes the place of the probe if one is due.
    pub fn probe(&self, now: Nanos) -> bool {
        let next = self.next.load(Relaxed);
        if next == Nanos::MAX {
            let started = self.started.load(Relaxed);
            if now.saturating_sub(started) < LOST
                || self.started.compare_exchange(started, now, Relaxed, Relaxed).is_err()
            {
                return false;
            }
            self.answers.store(0, Relaxed);
            self.pause.store(PAUSE_MAX, Relaxed);
            return true;
        }
        if now < next || self.next.compare_exchange(next, Nanos::MAX, Relaxed, Relaxed).is_err() {
            return false;
        }
        self.started.store(now, Relaxed);
        true
    }

    /// A probe came back. True: the device is up again.
    pub fn probed(&self, now: Nanos, answered: bool) -> bool {
        let pause = match answered {
            true => self.pause.load(Relaxed),
            false => (self.pause.load(Relaxed) * 2).min(PAUSE_MAX),
        };
        self.pause.store(pause, Relaxed);
        self.next.store(now + if answered { PAUSE_MIN } else { pause }, Relaxed);
        if !answered {
            self.answers.store(0, Relaxed);
            return false;
        }
        let up = self.answers.fetch_add(1, Relaxed) + 1 >= ANSWERS;
        if up {
            self.failures.store(0, Relaxed);
        }
        up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_are_suspect_and_two_with_an_answer_between_are_not() {
        let health = Health::default();
        assert!(!health.failed(1));
        assert!(!health.failed(1));
        health.answered();
        assert!(!health.failed(1));
        assert!(!health.failed(1));
        assert!(health.failed(1));
    }

    #[test]
    fn one_probe_is_out_at_a_time_and_pauses_double_to_their_limit() {
        let health = Health::default();
        health.suspect(0);
        assert!(!health.probe(PAUSE_MIN - 1));
        let (mut now, mut pauses) = (PAUSE_MIN, Vec::new());
        for _ in 0..8 {
            assert!(health.probe(now));
            assert!(!health.probe(now + 1), "one is out");
            assert!(!health.probed(now, false));
            let pause =
                (0..).map(|wait| wait * MILLI).find(|wait| health.next.load(Relaxed) <= now + wait).unwrap();
            pauses.push(pause / MILLI);
            now += pause;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 200, 200, 200]);
        assert!(health.probe(now));
        assert!(!health.probed(now, true));
        now += PAUSE_MIN;
        assert!(health.probe(now));
        assert!(health.probed(now, true));
    }

    #[test]
    fn a_lost_probe_frees_its_place() {
        let health = Health::default();
        health.suspect(0);
        assert!(health.probe(PAUSE_MIN));
        assert!(!health.probe(PAUSE_MIN + LOST - 1));
        assert!(health.probe(PAUSE_MIN + LOST));
        assert!(!health.probe(PAUSE_MIN + LOST + 1));
    }
}
