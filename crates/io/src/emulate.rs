//! Emulated tiers: a device or store that is as slow as another one.
//!
//! A [`Profile`] says what local flash, a network volume and an object store do; [`disk`] and [`store`]
//! wrap it around a real device or store. A request takes as long as the profile says, or as long as it really
//! takes if that is longer, so the devices below should be faster than those emulated. Requests
//! run side by side: each has its latency, drawn around the profile's mean ([`Spread`]), all share the
//! device's bandwidth and rate. A batch is the latency of its slowest request and the time of all its bytes.
//!
//! Time is the world's: in the simulation the delays pass on the simulated clock.
//!
//! Locks: `Share::free_at`, for arithmetic.

mod device;
mod remote;
mod spread;

pub use device::disk;
pub use remote::store;
pub use spread::{EVEN, Spread, TAIL};

use crate::World;
use crate::clock::Nanos;
use crate::sched::Event;
use parking_lot::Mutex;

const MICRO: Nanos = 1_000;
const MILLI: Nanos = 1_000_000;

/// What a block device does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Device {
    /// Mean latency of a read and of a write, in nanoseconds. A sync costs what it really costs.
    pub read: Nanos,
    pub write: Nanos,
    /// Bytes a second, reads and writes together.
    pub bandwidth: u64,
    /// Requests a second.
    pub rate: u64,
    pub spread: Spread,
}

/// What an object store does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Remote {
    /// To the first byte, on the mean, in nanoseconds; deletions, lists and small conditional writes as a put.
    pub get: Nanos,
    pub put: Nanos,
    /// Bytes a second of one request.
    pub stream: u64,
    /// Requests a second.
    pub gets: u64,
    pub puts: u64,
    pub spread: Spread,
}

/// How the three tiers below memory behave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profile {
    pub name: &'static str,
    pub flash: Device,
    pub volume: Device,
    pub store: Remote,
}

/// Local NVMe, a network volume and an object store as a large cloud sells them.
pub const CLOUD: Profile = Profile {
    name: "cloud",
    flash: Device {
        read: 80 * MICRO,
        write: 30 * MICRO,
        bandwidth: 2_000_000_000,
        rate: 400_000,
        spread: TAIL,
    },
    volume: Device {
        read: 250 * MICRO,
        write: 250 * MICRO,
        bandwidth: 1_000_000_000,
        rate: 50_000,
        spread: TAIL,
    },
    store: Remote {
        get: 30 * MILLI,
        put: 60 * MILLI,
        stream: 100_000_000,
        gets: 5_500,
        puts: 3_500,
        spread: TAIL,
    },
};

/// What a small instance gets of each: a few thousand requests a second of flash, the baseline of a general-purpose volume.
pub const SMALL: Profile = Profile {
    name: "small",
    flash: Device { read: 90 * MICRO, write: 40 * MICRO, bandwidth: 125_000_000, rate: 8_000, spread: TAIL },
    volume: Device {
        read: 500 * MICRO,
        write: 500 * MICRO,
        bandwidth: 125_000_000,
        rate: 3_000,
        spread: TAIL,
    },
    store: CLOUD.store,
};

/// Every profile, for messages.
pub const PROFILES: &[&Profile] = &[&CLOUD, &SMALL];

impl Profile {
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().copied().find(|profile| profile.name == name)
    }

    /// In words, to stand beside figures.
    pub fn describe(&self) -> String {
        let device = |d: &Device| {
            let Device { read, write, bandwidth, rate, .. } = *d;
            format!(
                "read {} µs, write {} µs, {} MB/s, {rate} requests/s",
                read / MICRO,
                write / MICRO,
                bandwidth / 1_000_000
            )
        };
        let Remote { get, put, stream, gets, puts, spread } = self.store;
        format!(
            "{}: flash {}; volume {}; object store GET {} ms, PUT {} ms, {} MB/s a stream, {gets} GET/s, {puts} PUT/s; {}",
            self.name,
            device(&self.flash),
            device(&self.volume),
            get / MILLI,
            put / MILLI,
            stream / 1_000_000,
            spread.describe()
        )
    }
}

/// What all requests share: it serves one after the other.
struct Share {
    free_at: Mutex<Nanos>,
}

/// Idle time that may be made up for: a short burst is not held back.
const BURST: Nanos = 5 * MILLI;

impl Share {
    fn new() -> Share {
        Share { free_at: Mutex::new(0) }
    }

    /// A request that occupies the share for `service`; returns when it has been served.
    fn serve(&self, now: Nanos, service: Nanos) -> Nanos {
        let mut free_at = self.free_at.lock();
        *free_at = (*free_at).max(now.saturating_sub(BURST)) + service;
        (*free_at).max(now)
    }
}

/// Waits until the clock shows `until`.
fn wait_until(world: &World, until: Nanos) {
    precise();
    let never = Event::new();
    let ticket = never.ticket();
    loop {
        let now = world.clock.now();
        if now >= until {
            return;
        }
        world.sched.wait(&never, ticket, Some(until - now));
    }
}

/// Asks the kernel to wake this thread on time: its default slack is as long as flash's latency.
fn precise() {
    thread_local!(static ASKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    if !ASKED.replace(true) {
        // SAFETY: a number for this thread; no memory is involved.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
    }
}

#[cfg(test)]
mod tests;
