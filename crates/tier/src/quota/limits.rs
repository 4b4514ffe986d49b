//! Token buckets: what a table may read from each tier, and write to it, in a second.
//!
//! Reads and writes have buckets of their own, as Linux has them for block devices: who bounds a scan does not mean the flush of
//! what others change.
//!
//! A read takes its tokens at once and waits until they would have come, so reads are served in the order in which they
//! came, and a test's clock gives the same waits each time. A write is made while the bucket owes nothing, and then pays: it
//! may be larger than what the bucket holds. Where it cannot wait (log, frames or slots run out) it is made all the same, and counted.

use super::{Limit, TableRule};
use crate::below::Tier;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};

/// What a bucket holds at the most: the tokens of a tenth of a second.
const BURST: Nanos = 100_000_000;
/// What those who do not wait leave to those who do.
const DEBT_MAX: Nanos = 1_000_000_000;

/// Until so many tokens of `rate` a second have come.
fn spacing(rate: u64, cost: u64) -> Nanos {
    (u128::from(cost) * 1_000_000_000 / u128::from(rate)).min(u128::from(Nanos::MAX)) as Nanos
}

/// A token bucket that holds a tenth of a second's tokens: it says when, not whether.
#[derive(Debug, Default)]
pub struct Bucket {
    /// When the last token that was promised will have come.
    promised: Nanos,
}

impl Bucket {
    /// Takes `cost` tokens of `rate` a second; 0: there is no limit. Returns how long to wait first, in nanoseconds.
    pub fn take(&mut self, now: Nanos, rate: u64, cost: u64) -> Nanos {
        if rate == 0 {
            return 0;
        }
        let began = self.promised.max(now.saturating_sub(BURST));
        self.promised = began.saturating_add(spacing(rate, cost));
        began.saturating_sub(now)
    }

    /// Takes tokens and does not wait for them: those that follow pay, with no more than a second.
    pub fn owe(&mut self, now: Nanos, rate: u64, cost: u64) {
        let before = self.promised;
        self.take(now, rate, cost);
        self.promised = self.promised.min(before.max(now.saturating_add(DEBT_MAX)));
    }

    /// The request was given up while it waited, or took less than was thought: its tokens are the others'.
    pub fn give_back(&mut self, rate: u64, cost: u64) {
        if rate > 0 {
            self.promised = self.promised.saturating_sub(spacing(rate, cost));
        }
    }

    /// How often `cost` may be taken now without waiting.
    pub fn room(&self, now: Nanos, rate: u64, cost: u64) -> u64 {
        if rate == 0 {
            return u64::MAX;
        }
        let began = self.promised.max(now.saturating_sub(BURST));
        now.checked_sub(began).map_or(0, |free| free / spacing(rate, cost).max(1) + 1)
    }

    /// How long until it owes nothing.
    fn owes(&self, now: Nanos, rate: u64) -> Nanos {
        if rate == 0 { 0 } else { self.promised.saturating_sub(now) }
    }
}

#[derive(Debug, Default)]
struct Buckets {
    requests: Bucket,
    bytes: Bucket,
}

type Shared = Mutex<Buckets, { Mutexes::Limits as u8 }>;

/// A table's rules at work.
#[derive(Debug, Default)]
pub struct Table {
    pub id: u32,
    pub rule: TableRule,
    reads: [Shared; 3],
    writes: [Shared; 3],
    /// Reads that waited, and how long in all.
    pub waits: AtomicU64,
    pub wait_nanos: AtomicU64,
    /// The same of who changes rows, builds or writes large values.
    pub write_waits: AtomicU64,
    pub write_wait_nanos: AtomicU64,
    /// Changed pages that wait for the volume, and blocks that wait for the store, as far as the flusher and the sinker met them.
    pub pages_held: AtomicU64,
    pub blocks_held: AtomicU64,
    /// Pages and objects that were written beyond the limit.
    pub over: AtomicU64,
    /// Pages that flash did not get.
    pub fills_refused: AtomicU64,
}

impl Table {
    pub(super) fn new(id: u32, rule: TableRule) -> Table {
        Table { id, rule, ..Table::default() }
    }

    /// Whether reads of any tier are limited.
    pub fn has_limits(&self) -> bool {
        [Tier::Flash, Tier::Volume, Tier::Object].into_iter().any(|tier| self.limits(tier))
    }

    pub fn limits(&self, tier: Tier) -> bool {
        self.limit(tier).is_some()
    }

    fn limit(&self, tier: Tier) -> Option<(&Shared, Limit)> {
        let (at, limit) = match tier {
            Tier::Flash => (0, self.rule.flash_limit),
            Tier::Volume => (1, self.rule.volume_limit),
            Tier::Object => (2, self.rule.object_limit),
            Tier::Log => return None,
        };
        (limit != Limit::default()).then_some((&self.reads[at], limit))
    }

    /// A read by who cannot wait: it takes its tokens.
    pub fn owe(&self, tier: Tier, now: Nanos, requests: u64, bytes: u64) {
        if let Some((buckets, limit)) = self.limit(tier) {
            let mut buckets = buckets.lock();
            buckets.requests.owe(now, limit.requests, requests);
            buckets.bytes.owe(now, limit.bytes, bytes);
        }
    }

    /// A read that takes more than it waited for, at once: who comes next waits for it.
    pub fn charge(&self, tier: Tier, now: Nanos, requests: u64, bytes: u64) {
        if let Some((buckets, limit)) = self.limit(tier) {
            let mut buckets = buckets.lock();
            buckets.requests.take(now, limit.requests, requests);
            buckets.bytes.take(now, limit.bytes, bytes);
        }
    }

    /// A read that waited was given up.
    pub fn give_back(&self, tier: Tier, requests: u64, bytes: u64) {
        if let Some((buckets, limit)) = self.limit(tier) {
            let mut buckets = buckets.lock();
            buckets.requests.give_back(limit.requests, requests);
            buckets.bytes.give_back(limit.bytes, bytes);
        }
    }

    /// How long a read of `bytes` in `requests` from the tier waits for its tokens, which are taken.
    pub fn take(&self, tier: Tier, now: Nanos, requests: u64, bytes: u64) -> Nanos {
        let Some((buckets, limit)) = self.limit(tier) else { return 0 };
        let mut buckets = buckets.lock();
        let by_requests = buckets.requests.take(now, limit.requests, requests);
        let wait = by_requests.max(buckets.bytes.take(now, limit.bytes, bytes));
        if wait > 0 {
            self.waits.fetch_add(1, Ordering::Relaxed);
            self.wait_nanos.fetch_add(wait, Ordering::Relaxed);
        }
        wait
    }

    pub(super) fn limits_any_writes(&self) -> bool {
        [Tier::Flash, Tier::Volume, Tier::Object].into_iter().any(|tier| self.write_limit(tier).is_some())
    }

    fn write_limit(&self, tier: Tier) -> Option<(&Shared, Limit)> {
        let (at, limit) = match tier {
            Tier::Flash => (0, self.rule.flash_writes),
            Tier::Volume => (1, self.rule.volume_writes),
            Tier::Object => (2, self.rule.object_writes),
            Tier::Log => return None,
        };
        (limit != Limit::default()).then_some((&self.writes[at], limit))
    }

    /// How many writes of so many bytes to the tier may be made now. Takes nothing.
    pub fn write_room(&self, tier: Tier, now: Nanos, bytes: u64) -> u64 {
        let Some((buckets, limit)) = self.write_limit(tier) else { return u64::MAX };
        let buckets = buckets.lock();
        buckets.requests.room(now, limit.requests, 1).min(buckets.bytes.room(now, limit.bytes, bytes))
    }

    /// How long until there is room for a write to the tier.
    pub fn write_wait(&self, tier: Tier, now: Nanos) -> Nanos {
        let Some((buckets, limit)) = self.write_limit(tier) else { return 0 };
        let buckets = buckets.lock();
        buckets.requests.owes(now, limit.requests).max(buckets.bytes.owes(now, limit.bytes))
    }

    /// Writes to the tier, for which there was room or which could not wait for it. Those that could not are counted, and leave
    /// no more than a second's debt. Whether there was room: then all is paid.
    pub fn wrote(&self, tier: Tier, now: Nanos, requests: u64, bytes: u64) -> bool {
        let Some((buckets, limit)) = self.write_limit(tier) else { return true };
        let mut buckets = buckets.lock();
        let room = buckets.requests.owes(now, limit.requests).max(buckets.bytes.owes(now, limit.bytes)) == 0;
        if room {
            buckets.requests.take(now, limit.requests, requests);
            buckets.bytes.take(now, limit.bytes, bytes);
        } else {
            buckets.requests.owe(now, limit.requests, requests);
            buckets.bytes.owe(now, limit.bytes, bytes);
            self.over.fetch_add(requests, Ordering::Relaxed);
        }
        room
    }

    /// A write that was paid came to so many bytes less than was thought.
    pub fn wrote_less(&self, tier: Tier, bytes: u64) {
        if let Some((buckets, limit)) = self.write_limit(tier) {
            buckets.lock().bytes.give_back(limit.bytes, bytes);
        }
    }

    /// Somebody waited before he wrote.
    pub fn waited_to_write(&self, nanos: Nanos) {
        self.write_waits.fetch_add(1, Ordering::Relaxed);
        self.write_wait_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}
