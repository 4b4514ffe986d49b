//! Counters of requests: what moved, why, how long it took, how often it failed.
//!
//! A device counts per [`Class`], a store per [`Purpose`]. Reading them disturbs nobody; the figures
//! of one snapshot need not be of one moment.

use crate::disk::Class;
use crate::store::Purpose;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Totals since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    pub requests: u64,
    /// Bytes of the requests that succeeded.
    pub bytes: u64,
    pub errors: u64,
    /// The sum over all requests, queueing included; those of one batch run side by side and each
    /// count for the whole batch's time.
    pub nanos: u64,
}

#[derive(Default)]
pub(crate) struct Tally {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
}

impl Tally {
    pub(crate) fn note(&self, started: Instant, bytes: u64, is_ok: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if is_ok {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn read(&self) -> Count {
        Count {
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

/// A device's counters.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DiskStats {
    classes: [Count; Class::COUNT],
    /// Syncs of files; their time is part of it.
    pub syncs: Count,
}

impl DiskStats {
    pub fn of(&self, class: Class) -> Count {
        self.classes[class as usize]
    }
}

/// A store's counters.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StoreStats {
    purposes: [Count; Purpose::COUNT],
    /// Attempts beyond the first of a request.
    pub retries: u64,
    /// Attempts that the store asked to slow down.
    pub throttled: u64,
}

impl StoreStats {
    pub fn of(&self, purpose: Purpose) -> Count {
        self.purposes[purpose as usize]
    }
}

#[derive(Default)]
pub(crate) struct DiskTally {
    pub(crate) classes: [Tally; Class::COUNT],
    pub(crate) syncs: Tally,
}

impl DiskTally {
    pub(crate) fn read(&self) -> DiskStats {
        DiskStats { classes: std::array::from_fn(|i| self.classes[i].read()), syncs: self.syncs.read() }
    }
}

#[cfg_attr(not(feature = "object-store"), allow(dead_code))]
#[derive(Default)]
pub(crate) struct StoreTally {
    pub(crate) purposes: [Tally; Purpose::COUNT],
    pub(crate) retries: AtomicU64,
    pub(crate) throttled: AtomicU64,
}

#[cfg_attr(not(feature = "object-store"), allow(dead_code))]
impl StoreTally {
    pub(crate) fn read(&self) -> StoreStats {
        StoreStats {
            purposes: std::array::from_fn(|i| self.purposes[i].read()),
            retries: self.retries.load(Ordering::Relaxed),
            throttled: self.throttled.load(Ordering::Relaxed),
        }
    }
}
