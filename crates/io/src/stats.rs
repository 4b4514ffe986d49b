//! Counters of requests: what moved, why, how long it took, how often it failed.
//!
//! A device counts per [`Class`], a store per [`Purpose`]. Reading them disturbs no request; the figures
//! of one snapshot need not be consistent with each other.

mod latency;

use crate::clock::Nanos;
use crate::traffic::{Class, Purpose};
pub use latency::Latency;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Totals since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    pub requests: u64,
    /// Bytes of the requests that succeeded.
    pub bytes: u64,
    pub errors: u64,
    /// Attempts beyond a request's first; a device's requests are attempted once.
    pub retries: u64,
    /// The sum over all requests, queueing included; those of one batch run side by side and each
    /// count for the whole batch's time.
    pub nanos: u64,
    /// The same, one by one.
    pub latency: Latency,
}

impl Count {
    /// The mean latency in nanoseconds; 0 if there was no request.
    pub fn mean(&self) -> Nanos {
        self.nanos.checked_div(self.requests).unwrap_or(0)
    }

    fn add(&mut self, other: &Count) {
        let Count { requests, bytes, errors, retries, nanos, latency } = other;
        self.requests += requests;
        self.bytes += bytes;
        self.errors += errors;
        self.retries += retries;
        self.nanos += nanos;
        self.latency.add(latency);
    }
}

impl<'a> std::iter::Sum<&'a Count> for Count {
    fn sum<I: Iterator<Item = &'a Count>>(counts: I) -> Count {
        counts.fold(Count::default(), |mut sum, count| {
            sum.add(count);
            sum
        })
    }
}

pub(crate) struct Tally {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    retries: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; latency::BUCKETS],
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            requests: AtomicU64::default(),
            bytes: AtomicU64::default(),
            errors: AtomicU64::default(),
            retries: AtomicU64::default(),
            nanos: AtomicU64::default(),
            buckets: [const { AtomicU64::new(0) }; latency::BUCKETS],
        }
    }
}

impl Tally {
    pub(crate) fn note(&self, started: Instant, bytes: u64, is_ok: bool) {
        self.note_taken(started.elapsed().as_nanos() as Nanos, bytes, is_ok);
    }

    /// As [`Tally::note`], of a request that took so long by another clock.
    pub(crate) fn note_taken(&self, nanos: Nanos, bytes: u64, is_ok: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.buckets[latency::bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
        if is_ok {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cfg_attr(not(feature = "object-store"), allow(dead_code))]
    pub(crate) fn note_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Count {
        Count {
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            nanos: self.nanos.load(Ordering::Relaxed),
            latency: Latency::new(std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed))),
        }
    }
}

/// A device's counters. On the heap: with their histograms they take tens of kilobytes, and a thread of the server has a small stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskStats {
    classes: Box<[Count]>,
    syncs: Box<[Count]>,
}

impl Default for DiskStats {
    fn default() -> DiskStats {
        let none = || vec![Count::default(); Class::MAX].into_boxed_slice();
        DiskStats { classes: none(), syncs: none() }
    }
}

impl DiskStats {
    /// Reads and writes of a class.
    pub fn of(&self, class: Class) -> Count {
        self.classes[class.index()]
    }
    /// Syncs of files after a class's writes.
    pub fn syncs_of(&self, class: Class) -> Count {
        self.syncs[class.index()]
    }
    /// All reads and writes.
    pub fn total(&self) -> Count {
        self.classes.iter().sum()
    }
    /// All syncs of files.
    pub fn syncs(&self) -> Count {
        self.syncs.iter().sum()
    }
}

/// A store's counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreStats {
    pub(crate) purposes: Box<[Count]>,
    /// Attempts that the store asked to slow down.
    pub throttled: u64,
}

impl Default for StoreStats {
    fn default() -> StoreStats {
        StoreStats { purposes: vec![Count::default(); Purpose::MAX].into(), throttled: 0 }
    }
}

impl StoreStats {
    pub fn of(&self, purpose: Purpose) -> Count {
        self.purposes[purpose.index()]
    }
    pub fn total(&self) -> Count {
        self.purposes.iter().sum()
    }
}

#[derive(Default)]
pub(crate) struct DiskTally {
    pub(crate) classes: [Tally; Class::MAX],
    pub(crate) syncs: [Tally; Class::MAX],
}

impl DiskTally {
    pub(crate) fn read(&self) -> DiskStats {
        DiskStats {
            classes: self.classes.iter().map(Tally::read).collect(),
            syncs: self.syncs.iter().map(Tally::read).collect(),
        }
    }
}

#[cfg_attr(not(feature = "object-store"), allow(dead_code))]
#[derive(Default)]
pub(crate) struct StoreTally {
    pub(crate) purposes: [Tally; Purpose::MAX],
    pub(crate) throttled: AtomicU64,
}

#[cfg_attr(not(feature = "object-store"), allow(dead_code))]
impl StoreTally {
    pub(crate) fn read(&self) -> StoreStats {
        StoreStats {
            purposes: self.purposes.iter().map(Tally::read).collect(),
            throttled: self.throttled.load(Ordering::Relaxed),
        }
    }
}
