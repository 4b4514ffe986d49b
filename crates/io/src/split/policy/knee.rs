//! Knee filling: each device is kept just past its knee, and no profile is needed. The default.
//!
//! The knee of a device is how many requests it takes in flight before they begin to queue: its rate × its latency without a queue.
//! Below the knee one more request in flight adds throughput, above it only waiting. So the device with the lowest latency is filled
//! first, up to its limit, then the next one. If all are full, the rest goes where (in flight + 1) / rate is least.
//!
//! Two mechanisms set the limit:
//! * *Following*: `GAIN × rate × floor`, in each period. It falls only in a period in which the device was filled to it: if there was
//!   too little demand, a low rate proves nothing. It may rise in any period. So a change is followed within a few periods.
//! * *Trials*: now and then a device gets another limit for a few periods. A drain, to half its requests, measures the *floor*, the
//!   latency without a queue. What is measured at the limit always has a queue. A drain that loses no throughput was not deep enough:
//!   the next one goes to half of it. If the latency stays high though half as much is
//!   sent, then others cause it, and the limit is right to grow. A step, an eighth up or down, compares what the requests in flight
//!   are worth here and on the next device, and keeps the better limit. Only limits up to [`TUNED_MAX`] are tuned so: beyond, less is
//!   at stake than can be measured. A tuned limit that is far from the followed one is dropped.
//!
//! As long as trials find something new, the next comes soon ([`GAP_MIN`]); otherwise the pauses grow up to [`GAP_MAX`].
//!
//! A device *collapses* if it delivers less when it is overfull, as persistent memory does under many threads. Then it gets no more
//! than its limit as long as another device can queue the rest.
//!
//! Hangs need no rule here: suspect devices get no requests. Idle devices are measured by the router's probes.

use super::{Governor, Start};
use crate::split::meter::{Activity, Sample};
use crate::split::plan::{LIMIT_UNIT, NEVER, Plan};
use crate::split::{DEVICES_MAX, PerDevice, planted};

const MILLI: u64 = 1_000_000;
/// How far past its knee a device is filled: so much variance of service times is covered.
const GAIN: f64 = 1.25;
const SLACK: f64 = 0.5;
/// Requests that a device needs in a period before their mean latency counts; or the time that counts anyway.
const ENOUGH: u64 = 24;
const LONG_ENOUGH: u64 = 50 * MILLI;
/// The same, for a trial.
const ENOUGH_TRIED: u64 = 200;
const LONG_ENOUGH_TRIED: u64 = 100 * MILLI;
pub const GAP_MIN: u64 = 60 * MILLI;
pub const GAP_MAX: u64 = 5_000 * MILLI;
/// A trial that does not take effect in this time is given up.
const TRIAL_MAX: u64 = 400 * MILLI;
/// A change of the floor or of the rate that counts as news.
const NEWS: f64 = 0.15;
const TUNED_MAX: f64 = 32.0;
/// A drain that leaves more than this part of the rate was not deep enough.
const LOST: f64 = 0.9;
/// Of this many trials one is a drain.
const DRAIN_EVERY: u32 = 8;
/// A difference between two rates that counts.
const NOISE: f64 = 0.01;
/// An overfull device that delivers less than this part of what it delivered at its limit collapses.
const COLLAPSED: f64 = 0.92;
/// After this time a collapsing device may be overfilled again, to see.
const COLLAPSE_REMEMBERED: u64 = 20_000 * MILLI;
const LIMIT_MAX: f64 = 1e6;

#[derive(Clone, Copy, Default)]
struct Estimate {
    /// Latency without a queue, in nanoseconds; 0: not measured.
    floor: f64,
    /// The followed limit.
    limit: f64,
    tuned: Option<f64>,
    /// Requests a second when full.
    rate: f64,
    /// Requests a second at the limit, not beyond it.
    rate_at_limit: f64,
    /// A drain found it faster than when it was overfull.
    suspected: bool,
    /// When it was last seen to collapse; 0: never.
    collapsed: u64,
    sum: Activity,
    elapsed: u64,
    next_trial: u64,
    gap: u64,
    trials: u32,
    /// The next step is upward.
    upward: bool,
    /// To how many requests the next drain goes, if that is less than half of the limit; 0: unknown.
    depth: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Drain,
    Step,
}

/// A device is given another limit than its own for a while.
struct Trial {
    device: usize,
    kind: Kind,
    since: u64,
    /// The limit that is compared with, and the limit that is tried.
    kept: f64,
    limit: f64,
    /// Requests that were in flight before have ended.
    is_settled: bool,
}

pub struct Knee {
    devices: usize,
    of: PerDevice<Estimate>,
    trial: Option<Trial>,
}

/// A device's period: requests a second, mean latency, mean requests in flight.
#[derive(Clone, Copy)]
struct Seen {
    rate: f64,
    latency: f64,
    occupancy: f64,
}

/// The device has more than its share: all others were full, too.
fn is_overfull(in_flight: f64, limit: f64) -> bool {
    in_flight > 1.5 * limit + 2.0
}

impl Estimate {
    /// What the device did since the last call, once that is enough.
    fn take(&mut self, more: Activity, elapsed: u64, enough: u64, long_enough: u64) -> Option<Seen> {
        self.sum.add(more);
        self.elapsed += elapsed;
        if self.elapsed == 0 || self.sum.finished < enough && self.elapsed < long_enough {
            return None;
        }
        let (sum, elapsed) = (std::mem::take(&mut self.sum), std::mem::take(&mut self.elapsed) as f64);
        let latency = sum.mean()?;
        let rate = sum.finished as f64 * 1e9 / elapsed;
        Some(Seen { rate, latency, occupancy: sum.latency as f64 / elapsed })
    }

    /// The limit that is kept between trials.
    fn effective(&self) -> f64 {
        self.tuned.unwrap_or(self.limit)
    }

    fn set_limit(&mut self, limit: f64) {
        self.limit = limit.clamp(1.0, LIMIT_MAX);
        if self.tuned.is_some_and(|k| (self.limit - k).abs() > 1.5 && !(0.6..1.7).contains(&(self.limit / k)))
        {
            self.tuned = None;
            self.trials = 0;
            self.depth = 0.0;
        }
    }

    fn followed(&self, rate: f64) -> f64 {
        GAIN * rate * self.floor / 1e9 + SLACK
    }

    /// A period without a trial.
    fn learn(&mut self, seen: Seen, now: u64) {
        let Seen { rate, latency, occupancy } = seen;
        let effective = self.effective();
        let was_filled = occupancy >= effective - 1.0;
        let was_overfull = is_overfull(occupancy, effective);
        if was_overfull && rate < COLLAPSED * self.rate_at_limit {
            if self.collapses(now) {
                // What it does now says nothing about its knee.
                return;
            }
            if std::mem::take(&mut self.suspected) {
                self.collapsed = now;
                return;
            }
            // Slower, or collapsed? A drain tells.
            self.trials = 0;
            self.next_trial = self.next_trial.min(now);
        }
        self.suspected &= !was_overfull;
        if self.floor == 0.0 {
            self.floor = latency;
        } else if latency < self.floor {
            self.floor += 0.5 * (latency - self.floor);
        } else if occupancy <= 0.6 * effective {
            self.floor += 0.1 * (latency - self.floor);
        }
        let target = self.followed(rate);
        if target > self.limit {
            self.set_limit(target);
        } else if was_filled || planted::DIP_TAKEN_FOR_CONGESTION.on() {
            self.set_limit(self.limit + 0.5 * (target - self.limit));
        }
        if !was_filled {
            self.rate = self.rate.max(rate);
            return;
        }
        if self.rate > 0.0 && (rate / self.rate - 1.0).abs() > NEWS {
            self.try_soon(now);
            self.rate = rate;
        }
        self.rate = if self.rate == 0.0 { rate } else { self.rate + 0.3 * (rate - self.rate) };
        if !was_overfull {
            self.rate_at_limit +=
                if self.rate_at_limit == 0.0 { rate } else { 0.3 * (rate - self.rate_at_limit) };
        }
    }

    fn try_soon(&mut self, now: u64) {
        self.gap = GAP_MIN;
        self.next_trial = self.next_trial.min(now + GAP_MIN);
    }

    /// A drain took effect.
    fn learn_drained(&mut self, seen: Seen, limit: f64, now: u64) {
        let Seen { rate, latency, .. } = seen;
        let old = self.floor;
        let is_deep = limit < 2.0 || rate < LOST * self.rate;
        self.depth = if is_deep { limit } else { (limit / 2.0).floor().max(1.0) };
        self.floor = if latency < old { latency } else { 0.5 * (old + latency) };
        if rate * COLLAPSED > self.rate && self.rate > 0.0 {
            // Fewer requests in flight, and more of them end: it collapses when overfull, or it has just become faster. The next
            // overfull period tells.
            (self.suspected, self.rate_at_limit) = (true, rate);
        } else {
            self.rate_at_limit = self.rate.max(rate);
        }
        if self.floor < old {
            self.set_limit(self.limit.min(self.followed(self.rate.max(rate))));
        }
        if self.tuned.is_none() && self.limit <= TUNED_MAX && is_deep {
            self.tuned = Some(self.limit.round());
        }
        let is_news = !is_deep || (self.floor / old - 1.0).abs() > NEWS;
        self.after_trial(is_news, now);
        if is_news {
            // A floor that was far off takes several drains.
            self.trials = 0;
        }
    }

    /// A step took effect. `elsewhere`: requests a second that one more request in flight adds on another device.
    fn learn_step(&mut self, seen: Seen, kept: f64, limit: f64, elsewhere: f64, now: u64) {
        let gained = seen.rate - self.rate;
        // A step is worth what the requests in flight that it adds here, or frees here, would do elsewhere.
        let price = 0.5 * elsewhere * (limit - kept);
        let is_better = match limit > kept {
            true => gained > price.max(NOISE * self.rate),
            false if elsewhere > 0.0 => gained > price,
            false => gained > 5.0 * NOISE * self.rate,
        };
        if is_better {
            (self.tuned, self.rate) = (Some(limit), seen.rate);
        } else {
            self.upward = !self.upward;
        }
        let is_hopeless = !is_better && gained.abs() > 4.0 * price.abs();
        self.after_trial(is_better, now);
        if is_hopeless {
            self.gap = (self.gap * 2).min(GAP_MAX);
            self.next_trial = now + self.gap;
        }
    }

    fn after_trial(&mut self, is_news: bool, now: u64) {
        self.trials += 1;
        self.gap = if is_news { GAP_MIN } else { (self.gap * 2).min(GAP_MAX) };
        self.next_trial = now + self.gap;
    }

    /// The limit of the next drain.
    fn drained(&self, kept: f64) -> f64 {
        let half = (kept / 2.0).floor().max(1.0);
        if self.depth > 0.0 { half.min(self.depth) } else { half }
    }

    fn collapses(&self, now: u64) -> bool {
        self.collapsed > 0 && now - self.collapsed < COLLAPSE_REMEMBERED
    }
}

impl Knee {
    pub fn new(start: &Start) -> Knee {
        let first = Estimate { limit: 4.0, gap: GAP_MIN, ..Estimate::default() };
        Knee { devices: start.devices, of: [first; DEVICES_MAX], trial: None }
    }

    fn step_trial(&mut self, sample: &Sample) {
        let Some(trial) = &mut self.trial else { return };
        let (device, now) = (trial.device, sample.now);
        if now - trial.since > TRIAL_MAX || sample.usable & 1 << device == 0 {
            self.of[device].next_trial = now + self.of[device].gap;
            self.trial = None;
            return;
        }
        if !trial.is_settled {
            (self.of[device].sum, self.of[device].elapsed) = Default::default();
            // Requests that were queued before are counted when they end: one more period lets them pass.
            trial.is_settled = f64::from(sample.in_flight[device]) <= trial.limit + 1.0;
            return;
        }
        let seen =
            self.of[device].take(sample.devices[device], sample.elapsed, ENOUGH_TRIED, LONG_ENOUGH_TRIED);
        if let Some(seen) = seen {
            let (kind, kept, limit) = (trial.kind, trial.kept, trial.limit);
            match kind {
                Kind::Drain => self.of[device].learn_drained(seen, limit, now),
                Kind::Step => {
                    let elsewhere = self.elsewhere(device, sample);
                    self.of[device].learn_step(seen, kept, limit, elsewhere, now);
                }
            }
            self.trial = None;
        }
    }

    /// Requests a second that one more request in flight adds on the best other device that is not full.
    fn elsewhere(&self, device: usize, sample: &Sample) -> f64 {
        let others = (0..self.devices).filter(|other| *other != device && sample.usable & 1 << other != 0);
        let free = others.filter(|other| {
            let of = &self.of[*other];
            // The request that runs the tick has just left its device. What a farther device may take is not bound by how it is tuned.
            let is_nearer = of.floor < self.of[device].floor;
            let limit = if is_nearer { of.effective() } else { of.effective().max(of.limit) + 1.0 };
            of.floor > 0.0 && f64::from(sample.in_flight[*other] + 1) < limit
        });
        free.map(|other| 1e9 / self.of[other].floor).fold(0.0, f64::max)
    }

    fn begin_trial(&mut self, sample: &Sample) {
        if self.trial.is_some() || sample.usable.count_ones() < 2 {
            return;
        }
        let due = (0..self.devices).find_map(|device| {
            let of = &self.of[device];
            // The request that runs the tick has just left its device.
            let busy = f64::from(sample.in_flight[device] + 1);
            let kept = of.effective().floor().min(busy);
            if sample.usable & 1 << device == 0 || sample.now < of.next_trial || of.floor == 0.0 {
                return None;
            }
            let is_drain = of.tuned.is_none() || of.trials % DRAIN_EVERY == 0;
            if is_overfull(busy, of.effective()) && of.trials > 0 {
                // Its limit decides little, and its queue would go elsewhere meanwhile: only the floor is looked at, rarely.
                let is_due = sample.now >= of.next_trial + GAP_MAX;
                return is_due.then_some((device, Kind::Drain, kept, of.drained(kept)));
            }
            if is_drain {
                return (busy >= 2.0).then_some((device, Kind::Drain, kept, of.drained(kept)));
            }
            let step = (kept / 8.0).ceil();
            let is_filled = busy >= of.effective();
            match of.upward && is_filled || kept < 2.0 {
                true if is_filled => Some((device, Kind::Step, kept, kept + step)),
                true => None,
                false => Some((device, Kind::Step, kept, kept - step)),
            }
        });
        if let Some((device, kind, kept, limit)) = due {
            self.trial = Some(Trial { device, kind, since: sample.now, kept, limit, is_settled: false });
        }
    }

    fn plan(&self, now: u64) -> Plan {
        let (mut limits, mut costs) = ([0; DEVICES_MAX], [NEVER; DEVICES_MAX]);
        for device in 0..self.devices {
            let of = &self.of[device];
            limits[device] = (of.effective() * f64::from(LIMIT_UNIT)) as u32;
            costs[device] = if of.rate > 0.0 { (1e9 / of.rate) as u64 } else { 1_000 };
            if of.collapses(now) {
                costs[device] = costs[device].saturating_mul(1 << 20);
            }
            if let Some(trial) = self.trial.as_ref().filter(|trial| trial.device == device) {
                (limits[device], costs[device]) = ((trial.limit * f64::from(LIMIT_UNIT)) as u32, NEVER);
            }
        }
        let mut order: PerDevice<u8> = std::array::from_fn(|device| device as u8);
        order.sort_by(|a, b| self.of[usize::from(*a)].floor.total_cmp(&self.of[usize::from(*b)].floor));
        Plan::Fill { order, limits, costs }
    }
}

impl Governor for Knee {
    fn tick(&mut self, sample: &Sample) -> Plan {
        if sample.elapsed > 0 {
            let tried = self.trial.as_ref().map(|trial| trial.device);
            for device in (0..self.devices).filter(|device| Some(*device) != tried) {
                let seen = self.of[device].take(sample.devices[device], sample.elapsed, ENOUGH, LONG_ENOUGH);
                if let Some(seen) = seen {
                    self.of[device].learn(seen, sample.now);
                }
            }
            self.step_trial(sample);
            self.begin_trial(sample);
        }
        self.plan(sample.now)
    }

    fn mode(&self) -> &'static str {
        if self.trial.is_some() { "trial" } else { "filling" }
    }
}
