//! How long one goes on trying: back-off with jitter, and a budget of retries for the whole store.
//!
//! Each retry costs a token, each success earns a part of one back: while the store is sick, requests
//! fail after one attempt instead of multiplying its load. A read of pages that the store has told when to come again comes then,
//! as long as there is time, because a statement waits for it. (Background work gets the error, and tries again later by itself.)

use parking_lot::Mutex;
use std::time::Duration;

/// Tokens at the start, and at most.
const TOKENS_MAX: f64 = 64.0;
/// What a success earns.
const EARNED: f64 = 0.1;
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Tokens for retries, shared by all requests of a store.
pub(crate) struct Budget(Mutex<f64>);

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget(Mutex::new(TOKENS_MAX))
    }
    pub(crate) fn succeeded(&self) {
        let mut tokens = self.0.lock();
        *tokens = (*tokens + EARNED).min(TOKENS_MAX);
    }
    fn take(&self) -> bool {
        let mut tokens = self.0.lock();
        let has_one = *tokens >= 1.0;
        if has_one {
            *tokens -= 1.0;
        }
        has_one
    }
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    GiveUp,
    /// Try again after so long.
    Wait(Duration),
}

/// One request's attempts.
pub(crate) struct Patience<'a> {
    pub(crate) budget: &'a Budget,
    pub(crate) attempts_max: u32,
    /// Time for the whole request.
    pub(crate) time_max: Duration,
    /// Whether it is a read of pages that a statement waits for.
    pub(crate) waited_for: bool,
}

impl Patience<'_> {
    /// * `attempts` made so far, `spent` the time since the first began.
    /// * `asked` is the time that the store asked for.
    /// * `roll` is a random number.
    pub(crate) fn next(&self, attempts: u32, spent: Duration, asked: Option<Duration>, roll: u64) -> Next {
        let most = FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(LONGEST);
        // Somewhere in the upper half: spread out, but never at once.
        let half = most.as_nanos() as u64 / 2;
        let backed_off = Duration::from_nanos(half + roll % half.max(1));
        let wait = asked.map_or(backed_off, |asked| asked.max(backed_off));
        let told = self.waited_for && asked.is_some();
        let goes_on = spent.saturating_add(wait) < self.time_max
            && (told || attempts < self.attempts_max && self.budget.take());
        if goes_on { Next::Wait(wait) } else { Next::GiveUp }
    }
}

#[cfg(test)]
mod tests;
