//! The router: names a device for each request, and keeps what it learns.
//!
//! [`Router::route`] counts the request as started; each route ends in one [`Router::finished`]. Between them a caller that waits
//! longer than [`Route::hedge_after`] says so ([`Router::overdue`]) and reads elsewhere ([`Router::fall_back`]); the late request
//! still ends in `finished`, whenever it does.
//!
//! Cost of a request: three loads, two increments of the device's count of requests in flight, one compare-and-swap of the lane's
//! word, four increments in the lane. No lock, no allocation. The period's end adds the tick: bounded by lanes × devices. Its mutex
//! is only ever tried, so no thread waits for it.

use super::health::{Health, REMEMBERED};
use super::meter::{Activity, Lane, Sample};
use super::plan::{Cell, NEVER, Plan, choose};
use super::planted;
use super::policy::{Governor, Policy, Start};
use super::profile::Profile;
use super::{DEVICES_MAX, Mask, PerDevice, members};
use crate::clock::Nanos;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

const MILLI: Nanos = 1_000_000;
/// Lanes of a router. More threads than this share lanes.
pub const LANES: usize = 16;

/// The number of the calling thread's lane.
pub fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: std::cell::Cell<usize> = std::cell::Cell::new(NEXT.fetch_add(1, Relaxed) % LANES));
    MINE.get()
}

/// A device as the operator describes it. The nearest comes first.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    pub name: String,
    /// It bills by request.
    pub billed: bool,
    /// Scales what a policy gives it: 1 leaves it as it is, 0 sends no hits. A billed device without a weight has 0.
    pub weight: Option<f64>,
}

impl Device {
    pub fn new(name: &str) -> Device {
        Device { name: name.into(), billed: false, weight: None }
    }

    pub fn effective_weight(&self) -> f64 {
        self.weight.unwrap_or(if self.billed { 0.0 } else { 1.0 }).clamp(0.0, 1.0)
    }
}

#[derive(Clone)]
pub struct Settings {
    pub policy: Policy,
    /// Length of a period.
    pub period: Nanos,
    /// A request is hedged after `hedge_factor` × the device's recent mean latency, at least `hedge_min`, at most `hedge_max`.
    pub hedge_factor: u64,
    pub hedge_min: Nanos,
    pub hedge_max: Nanos,
    /// Threads that send requests, for policies that look their number up in a profile.
    pub threads: u32,
    pub profile: Option<Arc<Profile>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::default(),
            period: 10 * MILLI,
            hedge_factor: 10,
            hedge_min: 5 * MILLI,
            hedge_max: 1_000 * MILLI,
            threads: 1,
            profile: None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Devices that have the bytes.
    pub on: Mask,
    pub bytes: u32,
}

/// Where to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub device: usize,
    /// Read there too, and tell the result to [`Router::probed`]. No reader waits for it.
    pub shadow: Option<usize>,
    /// Without an answer after this time, read elsewhere.
    pub hedge_after: Nanos,
}

/// How a read ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Failed,
    /// The device answered, and its copy is not the current one.
    Stale,
}

/// What one device did since the start, for an operator.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceStatus {
    pub name: String,
    pub reads: u64,
    pub bytes: u64,
    pub failed: u64,
    pub stale: u64,
    pub overdue: u64,
    pub probes: u64,
    pub in_flight: u32,
    pub is_suspect: bool,
    pub suspicions: u64,
    /// Mean latency in the last period with requests, in nanoseconds.
    pub latency: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    pub policy: &'static str,
    /// The mode of the policy, if it has modes.
    pub mode: &'static str,
    pub plan: Plan,
    pub fall_backs: u64,
    pub devices: Vec<DeviceStatus>,
}

#[derive(Default)]
#[repr(align(128))]
struct Shared {
    in_flight: AtomicI64,
    hedge_after: AtomicU64,
    mean: AtomicU64,
    /// The same, down at once and up slowly: what a probe probably takes.
    usual: AtomicU64,
    stale: AtomicU64,
    overdue: AtomicU64,
    probes: AtomicU64,
    health: Health,
}

struct Slow {
    governor: Box<dyn Governor>,
    last: Nanos,
    seen: PerDevice<Activity>,
    /// When each device last finished a request, or was asked for one.
    measured: PerDevice<Nanos>,
}

pub struct Router {
    devices: Vec<Device>,
    settings: Settings,
    weights: PerDevice<f64>,
    /// Devices that may get hits.
    hits: Mask,
    all: Mask,
    plan: Cell,
    suspect: AtomicU8,
    /// Idle devices, of which each wants one request.
    wanted: AtomicU8,
    next_tick: AtomicU64,
    fall_backs: AtomicU64,
    shared: PerDevice<Shared>,
    lanes: [Lane; LANES],
    slow: Mutex<Slow>,
}

impl Router {
    /// Panics if there is no device, or more than [`DEVICES_MAX`].
    pub fn new(devices: Vec<Device>, settings: Settings) -> Router {
        assert!((1..=DEVICES_MAX).contains(&devices.len()));
        let all = ((1u16 << devices.len()) - 1) as Mask;
        let weights: PerDevice<f64> =
            std::array::from_fn(|device| devices.get(device).map_or(0.0, Device::effective_weight));
        let hits =
            members(all).filter(|device| weights[*device] > 0.0).fold(0, |mask, device| mask | 1 << device);
        let start =
            Start { devices: devices.len(), profile: settings.profile.clone(), threads: settings.threads };
        let (governor, plan) = settings.policy.start(&start);
        let router = Router {
            weights,
            hits,
            all,
            plan: Cell::new(&weighted(plan, &weights)),
            suspect: AtomicU8::new(0),
            wanted: AtomicU8::new(0),
            next_tick: AtomicU64::new(0),
            fall_backs: AtomicU64::new(0),
            shared: Default::default(),
            lanes: Default::default(),
            slow: Mutex::new(Slow {
                governor,
                last: 0,
                seen: Default::default(),
                measured: Default::default(),
            }),
            devices,
            settings,
        };
        router.shared.iter().for_each(|shared| shared.hedge_after.store(router.settings.hedge_max, Relaxed));
        // Lanes begin at different phases, so that several threads do not send their first requests to one device.
        for (number, lane) in router.lanes.iter().enumerate() {
            if matches!(router.plan.get(), Plan::Share { dispatch: super::plan::Dispatch::Random, .. }) {
                lane.word.store(number as u64 * 0x9E37, Relaxed);
            }
        }
        router
    }

    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Names the device for a request, and counts it as started. `lane` is the thread's or the core's number. A request that no
    /// known device has goes to device 0.
    pub fn route(&self, lane: usize, request: &Request, now: Nanos) -> Route {
        self.tick_if_due(now);
        let on = match request.on & self.all {
            0 => 1,
            on => on,
        };
        let suspect = self.suspect.load(Relaxed);
        let usable = first_of([on & self.hits & !suspect, on & !suspect, on & self.hits, on]);
        let device = match self.claim_probe(usable) {
            Some(device) => device,
            None => self.dispatch(lane, usable),
        };
        let shadow = match suspect & on & self.hits & !(1 << device) {
            0 => None,
            suspects => members(suspects).find(|suspect| self.shared[*suspect].health.probe(now)),
        };
        if let Some(shadow) = shadow {
            self.shared[shadow].probes.fetch_add(1, Relaxed);
        }
        self.start(device, shadow)
    }

    fn start(&self, device: usize, shadow: Option<usize>) -> Route {
        self.shared[device].in_flight.fetch_add(1, Relaxed);
        Route { device, shadow, hedge_after: self.shared[device].hedge_after.load(Relaxed) }
    }

    fn dispatch(&self, lane: usize, usable: Mask) -> usize {
        let plan = self.plan.get();
        let counts = std::array::from_fn(|device| self.in_flight(device));
        let lane = &self.lanes[lane % LANES].word;
        let mut word = lane.load(Relaxed);
        // Another thread of this lane may come between; each failure means that one of them got through.
        loop {
            let (device, next) = choose(&plan, usable, &counts, word);
            if next == word {
                return device;
            }
            match lane.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return device,
                Err(now) => word = now,
            }
        }
    }

    /// Takes the request that an idle device wants, if there is one.
    fn claim_probe(&self, usable: Mask) -> Option<usize> {
        let wanted = self.wanted.load(Relaxed) & usable;
        if wanted == 0 {
            return None;
        }
        let device = wanted.trailing_zeros() as usize;
        let before = self.wanted.fetch_and(!(1 << device), Relaxed);
        (before & 1 << device != 0).then(|| {
            self.shared[device].probes.fetch_add(1, Relaxed);
            device
        })
    }

    /// The next device for a request of which those of `tried` failed, were stale or are overdue. None: there is no other.
    pub fn fall_back(&self, tried: Mask, request: &Request) -> Option<Route> {
        let rest = request.on & self.all & !tried;
        if rest == 0 {
            return None;
        }
        self.fall_backs.fetch_add(1, Relaxed);
        let usable = first_of([rest & self.hits & !self.suspect.load(Relaxed), rest & self.hits, rest]);
        Some(self.start(usable.trailing_zeros() as usize, None))
    }

    /// A request ended, `latency` after its route. `bytes` were read.
    pub fn finished(
        &self,
        lane: usize,
        device: usize,
        bytes: u32,
        latency: Nanos,
        outcome: Outcome,
        now: Nanos,
    ) {
        let shared = &self.shared[device];
        shared.in_flight.fetch_sub(1, Relaxed);
        let failed = outcome == Outcome::Failed;
        self.lanes[lane % LANES].note(device, u64::from(bytes), latency, failed);
        match outcome {
            Outcome::Done => shared.health.answered(),
            Outcome::Stale => _ = shared.stale.fetch_add(1, Relaxed),
            Outcome::Failed => {
                if shared.health.failed(now) {
                    self.suspect.fetch_or(1 << device, Relaxed);
                }
            }
        }
    }

    /// A request has waited longer than its bound.
    pub fn overdue(&self, device: usize, now: Nanos) {
        let shared = &self.shared[device];
        shared.overdue.fetch_add(1, Relaxed);
        if planted::HANG_NOT_SUSPECTED.on() {
            return;
        }
        if self.suspect.fetch_or(1 << device, Relaxed) & 1 << device == 0 {
            shared.health.suspect(now);
        }
    }

    /// A shadow probe came back.
    pub fn probed(&self, device: usize, answered: bool, now: Nanos) {
        if self.shared[device].health.probed(now, answered) {
            self.suspect.fetch_and(!(1 << device), Relaxed);
        }
    }

    /// How long a read of a device may take before another device is asked.
    pub fn hedge_after(&self, device: usize) -> Nanos {
        self.shared[device].hedge_after.load(Relaxed)
    }

    /// The device fails, or lets requests exceed their bound, and gets probes only.
    pub fn is_suspect(&self, device: usize) -> bool {
        self.suspect.load(Relaxed) & 1 << device != 0
    }

    pub fn in_flight(&self, device: usize) -> u32 {
        self.shared[device].in_flight.load(Relaxed).clamp(0, i64::from(u32::MAX)) as u32
    }

    fn tick_if_due(&self, now: Nanos) {
        let due = self.next_tick.load(Relaxed);
        if now < due {
            return;
        }
        let next = now + self.settings.period;
        if self.next_tick.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
            self.tick(now);
        }
    }

    /// Ends the period: asks the policy for the next plan. Called by `route` when it is due.
    pub fn tick(&self, now: Nanos) {
        let Some(mut slow) = self.slow.try_lock() else { return };
        let slow = &mut *slow;
        let elapsed = now.saturating_sub(slow.last);
        let is_first = slow.last == 0;
        slow.last = now.max(1);
        if is_first {
            slow.measured = [now; DEVICES_MAX];
        }
        if is_first || elapsed == 0 {
            return;
        }
        let mut sample = Sample {
            now,
            elapsed,
            usable: self.hits & !self.suspect.load(Relaxed),
            threads: self.settings.threads,
            ..Sample::default()
        };
        for device in 0..self.devices.len() {
            let mut sum = Activity::default();
            self.lanes.iter().for_each(|lane| sum.add(lane.activity(device)));
            sample.devices[device] = sum.since(slow.seen[device]);
            slow.seen[device] = sum;
            sample.in_flight[device] = self.in_flight(device);
            self.keep_measured(device, &sample, &mut slow.measured);
        }
        let plan = slow.governor.tick(&sample);
        self.plan.set(&weighted(plan, &self.weights));
    }

    /// Renews the device's bound, or asks for a request if it has been idle for too long.
    fn keep_measured(&self, device: usize, sample: &Sample, measured: &mut PerDevice<Nanos>) {
        let shared = &self.shared[device];
        let old = shared.mean.load(Relaxed);
        if let Some(mean) = sample.devices[device].mean() {
            // Up at once, down slowly: a bound that is too short costs a request, one that is too long costs a wait.
            let mean = mean as u64;
            let kept = if mean > old { mean } else { (old * 7 + mean) / 8 };
            shared.mean.store(kept, Relaxed);
            let usual = shared.usual.load(Relaxed);
            let usual = if usual == 0 || mean < usual { mean } else { (usual * 7 + mean) / 8 };
            shared.usual.store(usual, Relaxed);
            let Settings { hedge_factor, hedge_min, hedge_max, .. } = self.settings;
            shared.hedge_after.store(kept.saturating_mul(hedge_factor).clamp(hedge_min, hedge_max), Relaxed);
            measured[device] = sample.now;
            return;
        }
        let may = self.hits & 1 << device != 0 && !planted::IDLE_NOT_PROBED.on();
        // A probe takes the place of a hit: at most half a percent of one reader's time. One late probe does not put off the next ones.
        let pause = (shared.usual.load(Relaxed) * 200).clamp(100 * MILLI, REMEMBERED);
        let unknown = old == 0;
        if may && sample.in_flight[device] == 0 && (unknown || sample.now - measured[device] >= pause) {
            measured[device] = sample.now;
            self.wanted.fetch_or(1 << device, Relaxed);
        }
    }

    pub fn status(&self) -> Status {
        let (policy, mode) = (self.settings.policy.name(), self.slow.lock().governor.mode());
        let suspect = self.suspect.load(Relaxed);
        let devices = self.devices.iter().enumerate().map(|(number, device)| {
            let mut sum = Activity::default();
            self.lanes.iter().for_each(|lane| sum.add(lane.activity(number)));
            let shared = &self.shared[number];
            DeviceStatus {
                name: device.name.clone(),
                reads: sum.finished,
                bytes: sum.bytes,
                failed: sum.failed,
                stale: shared.stale.load(Relaxed),
                overdue: shared.overdue.load(Relaxed),
                probes: shared.probes.load(Relaxed),
                in_flight: self.in_flight(number),
                is_suspect: suspect & 1 << number != 0,
                suspicions: shared.health.suspicions.load(Relaxed),
                latency: shared.mean.load(Relaxed),
            }
        });
        let fall_backs = self.fall_backs.load(Relaxed);
        Status { policy, mode, plan: self.plan.get(), fall_backs, devices: devices.collect() }
    }
}

fn first_of(masks: impl IntoIterator<Item = Mask>) -> Mask {
    masks.into_iter().find(|mask| *mask != 0).unwrap_or(1)
}

/// The plan as the operator's weights scale it.
fn weighted(mut plan: Plan, by: &PerDevice<f64>) -> Plan {
    if by.iter().all(|weight| *weight == 1.0) {
        return plan;
    }
    let scaled_cost = |cost: &mut u64, weight: f64| {
        *cost = if weight > 0.0 && *cost != NEVER { (*cost as f64 / weight) as u64 } else { NEVER };
    };
    match &mut plan {
        Plan::Share { weights, .. } => {
            weights.iter_mut().zip(by).for_each(|(weight, by)| *weight = (f64::from(*weight) * by) as u16);
        }
        Plan::Fill { limits, costs, .. } => {
            limits.iter_mut().zip(by).for_each(|(limit, by)| *limit = (f64::from(*limit) * by) as u32);
            costs.iter_mut().zip(by).for_each(|(cost, by)| scaled_cost(cost, *by));
        }
        Plan::Wait { costs, latencies, .. } => {
            costs.iter_mut().zip(by).for_each(|(cost, by)| scaled_cost(cost, *by));
            latencies.iter_mut().zip(by).for_each(|(latency, by)| scaled_cost(latency, *by));
        }
    }
    plan
}
