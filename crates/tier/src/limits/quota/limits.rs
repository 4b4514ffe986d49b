//! Token buckets: how much a table may read from each tier, and write to it, in a second.
//!
//! Reads and writes have separate buckets, as Linux has them for block devices: a limit on a scan should not limit the flush of
//! other clients' changes.
//!
//! A read takes its tokens at once and waits until they would have arrived, so reads are served in order of arrival, and a test's
//! clock gives the same waits each time. A write is made while the bucket has no debt, and then pays: it may be larger than the
//! bucket. If it cannot wait (log, frames or slots run out) it is made all the same, and counted.

use super::{Limit, TableRule};
use crate::address::Tier;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};

/// The capacity of a bucket: the tokens of a tenth of a second.
const BURST: Nanos = 100_000_000;
/// The part that operations which do not wait leave to those which do.
const DEBT_MAX: Nanos = 1_000_000_000;

/// The time in which this number of tokens arrives, at `rate` a second.
fn spacing(rate: u64, cost: u64) -> Nanos {
    (u128::from(cost) * 1_000_000_000 / u128::from(rate)).min(u128::from(Nanos::MAX)) as Nanos
}

/// A token bucket that holds a tenth of a second's tokens: it returns when a request may run, not whether.
#[derive(Debug, Default)]
pub struct Bucket {
    /// When the last token promised will have arrived.
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

    /// Takes tokens without waiting for them: later requests pay, with at most a second's debt.
    pub fn owe(&mut self, now: Nanos, rate: u64, cost: u64) {
        let before = self.promised;
        self.take(now, rate, cost);
        self.promised = self.promised.min(before.max(now.saturating_add(DEBT_MAX)));
    }

    /// The request was cancelled while it waited, or needed less than estimated: returns its tokens.
    pub fn give_back(&mut self, rate: u64, cost: u64) {
        if rate > 0 {
            self.promised = self.promised.saturating_sub(spacing(rate, cost));
        }
    }

    /// How many times `cost` may be taken now without waiting.
    pub fn room(&self, now: Nanos, rate: u64, cost: u64) -> u64 {
        if rate == 0 {
            return u64::MAX;
        }
        let began = self.promised.max(now.saturating_sub(BURST));
        now.checked_sub(began).map_or(0, |free| free / spacing(rate, cost).max(1) + 1)
    }

    /// How long until it has no debt.
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

/// A table's rules in use.
#[derive(Debug, Default)]
pub struct Table {
    pub id: u32,
    pub rule: TableRule,
    reads: [Shared; 3],
    writes: [Shared; 3],
    /// Reads that waited, and the total time.
    pub waits: AtomicU64,
    pub wait_nanos: AtomicU64,
    /// The same for operations that change rows, build or write large values.
    pub write_waits: AtomicU64,
    pub write_wait_nanos: AtomicU64,
    /// Changed pages that waited for the volume, and blocks that waited for the store, as often as the flusher and the sinker
    /// found them.
    pub pages_held: AtomicU64,
    pub blocks_held: AtomicU64,
    /// Pages and objects written beyond the limit.
    pub over: AtomicU64,
    /// Pages that were dropped instead of written to flash.
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

    /// A read that cannot wait: it takes its tokens.
    pub fn owe(&self, tier: Tier, now: Nanos, requests: u64, bytes: u64) {
        if let Some((buckets, limit)) = self.limit(tier) {
            let mut buckets = buckets.lock();
            buckets.requests.owe(now, limit.requests, requests);
            buckets.bytes.owe(now, limit.bytes, bytes);
        }
    }

    /// A read that takes more than it waited for, at once: the next reader waits for it.
    pub fn charge(&self, tier: Tier, now: Nanos, requests: u64, bytes: u64) {
        if let Some((buckets, limit)) = self.limit(tier) {
            let mut buckets = buckets.lock();
            buckets.requests.take(now, limit.requests, requests);
            buckets.bytes.take(now, limit.bytes, bytes);
        }
    }

    /// A waiting read was cancelled.
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

    /// How many writes of this size to the tier may be made now. Takes no tokens.
    pub fn write_room(&self, tier: Tier, now: Nanos, bytes: u64) -> u64 {
        let Some((buckets, limit)) = self.write_limit(tier) else { return u64::MAX };
        let buckets = buckets.lock();
        buckets.requests.room(now, limit.requests, 1).min(buckets.bytes.room(now, limit.bytes, bytes))
    }

    /// How long until a write to the tier may be made.
    pub fn write_wait(&self, tier: Tier, now: Nanos) -> Nanos {
        let Some((buckets, limit)) = self.write_limit(tier) else { return 0 };
        let buckets = buckets.lock();
        buckets.requests.owes(now, limit.requests).max(buckets.bytes.owes(now, limit.bytes))
    }

    /// Records writes to the tier that were within the limit or could not wait. Those that could not wait are counted, and leave
    /// at most a second's debt. Returns whether they were within the limit: then all is paid.
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

    /// A paid write was this many bytes smaller than estimated.
    pub fn wrote_less(&self, tier: Tier, bytes: u64) {
        if let Some((buckets, limit)) = self.write_limit(tier) {
            buckets.lock().bytes.give_back(limit.bytes, bytes);
        }
    }

    /// A writer waited before it wrote.
    pub fn waited_to_write(&self, nanos: Nanos) {
        self.write_waits.fetch_add(1, Ordering::Relaxed);
        self.write_wait_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}
