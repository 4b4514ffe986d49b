//! What devices did in a period, and the counters it is taken from.
//!
//! A lane counts what its requests did, in a cache line of its own. A tick sums all lanes and takes the difference to the tick
//! before. By Little's law the time that requests spent on a device, divided by the period, is how many were in flight on average.

use super::{DEVICES_MAX, PerDevice};
use crate::clock::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one device did in a period. Sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Requests that ended, also those that failed.
    pub finished: u64,
    pub bytes: u64,
    /// Time from route to end, of all that ended.
    pub latency: Nanos,
    pub failed: u64,
}

impl Activity {
    pub fn since(self, before: Activity) -> Activity {
        Activity {
            finished: self.finished.wrapping_sub(before.finished),
            bytes: self.bytes.wrapping_sub(before.bytes),
            latency: self.latency.wrapping_sub(before.latency),
            failed: self.failed.wrapping_sub(before.failed),
        }
    }

    pub fn add(&mut self, more: Activity) {
        self.finished += more.finished;
        self.bytes += more.bytes;
        self.latency += more.latency;
        self.failed += more.failed;
    }

    /// Mean latency, in nanoseconds; None: no request ended.
    pub fn mean(&self) -> Option<f64> {
        (self.finished > 0).then(|| self.latency as f64 / self.finished as f64)
    }
}

/// A period, as a policy sees it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sample {
    pub now: Nanos,
    /// Length of the period, in nanoseconds; above 0.
    pub elapsed: Nanos,
    pub devices: PerDevice<Activity>,
    /// In flight at the period's end.
    pub in_flight: PerDevice<u32>,
    /// Devices that exist, are not suspect and may get hits.
    pub usable: super::Mask,
    /// Threads that the caller says it has.
    pub threads: u32,
}

impl Sample {
    /// Requests a second that ended on a device.
    pub fn rate(&self, device: usize) -> f64 {
        self.devices[device].finished as f64 * 1e9 / self.elapsed as f64
    }

    /// Requests a second that ended on all devices.
    pub fn total_rate(&self) -> f64 {
        (0..DEVICES_MAX).map(|device| self.rate(device)).sum()
    }

    /// Requests in flight on a device, on average.
    pub fn occupancy(&self, device: usize) -> f64 {
        self.devices[device].latency as f64 / self.elapsed as f64
    }

    /// Requests in flight on all devices, on average.
    pub fn outstanding(&self) -> f64 {
        (0..DEVICES_MAX).map(|device| self.occupancy(device)).sum()
    }

    /// Bytes of a request, on average; 0: none ended.
    pub fn block(&self) -> u64 {
        let (finished, bytes) =
            self.devices.iter().fold((0, 0), |(n, bytes), d| (n + d.finished - d.failed, bytes + d.bytes));
        bytes.checked_div(finished).unwrap_or(0)
    }
}

#[derive(Default)]
struct Counts {
    finished: AtomicU64,
    bytes: AtomicU64,
    latency: AtomicU64,
    failed: AtomicU64,
}

/// What the requests of one thread or core did. A cache line pair of its own, so that lanes do not disturb each other.
#[derive(Default)]
#[repr(align(128))]
pub struct Lane {
    /// The dispatcher's state: see `plan::choose`.
    pub word: AtomicU64,
    counts: PerDevice<Counts>,
}

impl Lane {
    pub fn note(&self, device: usize, bytes: u64, latency: Nanos, failed: bool) {
        let counts = &self.counts[device];
        counts.finished.fetch_add(1, Relaxed);
        counts.bytes.fetch_add(bytes, Relaxed);
        counts.latency.fetch_add(latency, Relaxed);
        counts.failed.fetch_add(u64::from(failed), Relaxed);
    }

    pub fn activity(&self, device: usize) -> Activity {
        let counts = &self.counts[device];
        Activity {
            finished: counts.finished.load(Relaxed),
            bytes: counts.bytes.load(Relaxed),
            latency: counts.latency.load(Relaxed),
            failed: counts.failed.load(Relaxed),
        }
    }
}
