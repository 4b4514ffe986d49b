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
//! * *Closing*: devices may cost each other throughput, by a processor or a bus that they share. So now and then a device that is not the
//!   nearest gets nothing for a few periods, and the throughput of all devices is compared. If two trials in a row lose nothing, it is
//!   closed: only probes go there, and now and then a trial opens it again. This is what keeps the whole from falling below the
//!   nearest device alone.
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
/// With at most this many requests in flight there is no queue.
const ALONE: f64 = 1.0;
/// Measurements in a row that raise the floor.
const FLOOR_SAMPLES: u32 = 8;
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
/// A device is worth its requests if it adds this part to the throughput of all.
const WORTH: f64 = 0.003;
/// How long the throughput of all is measured in a trial.
const CLOSED_FOR: u64 = 40 * MILLI;
/// Trials in a row that close a device, and that open it again. Where a gain is lost in the noise, trials end one way or the other by
/// chance: then it stays closed most of the time, for an open device that adds nothing still costs latency.
const CLOSED_AFTER: u32 = 2;
const OPENED_AFTER: u32 = 4;
/// The first trial of this kind; earlier, limits are not found yet.
const CLOSING_FIRST: u64 = 500 * MILLI;

#[derive(Clone, Copy, Default)]
struct Estimate {
    /// Latency without a queue, in nanoseconds; 0: not measured.
    floor: f64,
    /// How many measurements in a row exceeded the floor, and the least of them.
    above: (u32, f64),
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
    /// Requests go to the other devices: it added nothing.
    closed: bool,
    /// How many trials in a row said that it should be the other way round.
    doubts: u32,
    next_closing: u64,
    closing_gap: u64,
    /// To how many requests the next drain goes, if that is less than half of the limit; 0: unknown.
    depth: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Drain,
    Step,
    /// An open device is closed, or a closed one is opened.
    Closing,
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
    /// Requests of all devices that ended since then, and the time.
    finished: u64,
    elapsed: u64,
}

/// A closing that was tried, until the throughput in the usual state is known again: demand may have changed meanwhile.
struct Judged {
    device: usize,
    /// Requests a second of all devices in the trial, and before it.
    found: f64,
    before: f64,
    finished: u64,
    elapsed: u64,
    /// The first period after the trial has passed.
    begun: bool,
}

pub struct Knee {
    devices: usize,
    of: PerDevice<Estimate>,
    trial: Option<Trial>,
    judged: Option<Judged>,
    /// Requests a second of all devices between trials; 0: unknown.
    total: f64,
}

/// A device's period: requests a second, mean latency, mean requests in flight.
#[derive(Clone, Copy)]
struct Measured {
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
    fn take(&mut self, more: Activity, elapsed: u64, enough: u64, long_enough: u64) -> Option<Measured> {
        self.sum.add(more);
        self.elapsed += elapsed;
        if self.elapsed == 0 || self.sum.finished < enough && self.elapsed < long_enough {
            return None;
        }
        let (sum, elapsed) = (std::mem::take(&mut self.sum), std::mem::take(&mut self.elapsed) as f64);
        let latency = sum.mean()?;
        let rate = sum.finished as f64 * 1e9 / elapsed;
        Some(Measured { rate, latency, occupancy: sum.latency as f64 / elapsed })
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
    fn learn(&mut self, seen: Measured, now: u64) {
        let Measured { rate, latency, occupancy } = seen;
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
        self.learn_floor(latency, occupancy <= (0.6 * effective).max(ALONE));
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
            self.upward = rate > self.rate;
            self.try_soon(now);
            self.rate = rate;
        }
        self.rate = if self.rate == 0.0 { rate } else { self.rate + 0.3 * (rate - self.rate) };
        if !was_overfull {
            self.rate_at_limit +=
                if self.rate_at_limit == 0.0 { rate } else { 0.3 * (rate - self.rate_at_limit) };
        }
    }

    /// Latencies vary upward only: a reader that lost its processor for a while says nothing of the device. So the floor falls at once,
    /// and rises only to the least of [`FLOOR_SAMPLES`] measurements without a queue that all exceed it.
    fn learn_floor(&mut self, latency: f64, has_no_queue: bool) {
        if self.floor == 0.0 {
            self.floor = latency;
        } else if latency <= self.floor {
            self.floor += 0.5 * (latency - self.floor);
            self.above = (0, f64::INFINITY);
        } else if has_no_queue {
            let (count, least) = self.above;
            self.above = (count + 1, least.min(latency));
            if self.above.0 == FLOOR_SAMPLES {
                self.floor = self.above.1;
                self.above = (0, f64::INFINITY);
            }
        }
    }

    /// A trial of the other state took effect: `total` requests a second of all devices, and `usual` in the present state.
    fn learn_closing(&mut self, total: f64, usual: f64, now: u64) {
        let should_turn = match self.closed {
            false => total >= (1.0 - WORTH) * usual,
            true => total > (1.0 + WORTH) * usual,
        };
        self.doubts = if should_turn { self.doubts + 1 } else { 0 };
        let needed = if self.closed { OPENED_AFTER } else { CLOSED_AFTER };
        if self.doubts >= needed && !planted::BACKEND_NEVER_CLOSED.on() {
            self.closed ^= true;
            self.doubts = 0;
        }
        self.closing_gap = if should_turn { GAP_MIN } else { (self.closing_gap * 2).min(GAP_MAX) };
        self.next_closing = now + self.closing_gap;
    }

    fn try_soon(&mut self, now: u64) {
        self.gap = GAP_MIN;
        self.next_trial = self.next_trial.min(now + GAP_MIN);
    }

    /// A drain took effect.
    fn learn_drained(&mut self, seen: Measured, limit: f64, now: u64) {
        let Measured { rate, latency, .. } = seen;
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
    fn learn_step(&mut self, seen: Measured, kept: f64, limit: f64, elsewhere: f64, now: u64) {
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
        let first = Estimate {
            limit: 4.0,
            above: (0, f64::INFINITY),
            gap: GAP_MIN,
            closing_gap: GAP_MIN,
            next_closing: CLOSING_FIRST,
            ..Estimate::default()
        };
        Knee { devices: start.devices, of: [first; DEVICES_MAX], trial: None, judged: None, total: 0.0 }
    }

    fn step_trial(&mut self, sample: &Sample) {
        let Some(trial) = &mut self.trial else { return };
        let (device, now) = (trial.device, sample.now);
        if now - trial.since > TRIAL_MAX || sample.usable & 1 << device == 0 {
            let of = &mut self.of[device];
            (of.next_trial, of.next_closing) = (now + of.gap, now + of.closing_gap);
            self.trial = None;
            return;
        }
        if trial.kind == Kind::Closing {
            if !trial.is_settled {
                let is_empty = sample.in_flight[device] == 0;
                trial.is_settled = self.of[device].closed || is_empty;
                return;
            }
            trial.finished += sample.devices.iter().map(|device| device.finished).sum::<u64>();
            trial.elapsed += sample.elapsed;
            if trial.elapsed >= CLOSED_FOR && trial.finished >= ENOUGH_TRIED {
                let found = trial.finished as f64 * 1e9 / trial.elapsed as f64;
                (self.of[device].sum, self.of[device].elapsed) = Default::default();
                self.judged =
                    Some(Judged { device, found, before: self.total, finished: 0, elapsed: 0, begun: false });
                (self.trial, self.total) = (None, 0.0);
            }
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
                Kind::Closing => {}
                Kind::Drain => self.of[device].learn_drained(seen, limit, now),
                Kind::Step => {
                    let elsewhere = self.elsewhere(device, sample);
                    self.of[device].learn_step(seen, kept, limit, elsewhere, now);
                }
            }
            self.trial = None;
        }
    }

    /// Measures the usual state after a closing, and decides.
    fn step_judged(&mut self, sample: &Sample) {
        let Some(judged) = &mut self.judged else { return };
        if !std::mem::replace(&mut judged.begun, true) {
            return;
        }
        judged.finished += sample.devices.iter().map(|device| device.finished).sum::<u64>();
        judged.elapsed += sample.elapsed;
        if judged.elapsed >= CLOSED_FOR {
            let after = judged.finished as f64 * 1e9 / judged.elapsed as f64;
            let (device, found, before) = (judged.device, judged.found, judged.before);
            // The usual state is judged by its better measurement, the other one has to beat both.
            self.of[device].learn_closing(found, before.max(after), sample.now);
            self.judged = None;
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
        if self.trial.is_some() || self.judged.is_some() || sample.usable.count_ones() < 2 {
            return;
        }
        let due = (0..self.devices).find_map(|device| {
            let of = &self.of[device];
            // The request that runs the tick has just left its device.
            let busy = f64::from(sample.in_flight[device] + 1);
            let kept = of.effective().floor().min(busy);
            if of.closed {
                return None;
            }
            if sample.usable & 1 << device == 0 || sample.now < of.next_trial || of.floor == 0.0 {
                return None;
            }
            let is_drain = of.tuned.is_none() || of.trials.is_multiple_of(DRAIN_EVERY);
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
                // What exceeds the limit already, as all devices are full, is where the step begins.
                true if is_filled => Some((device, Kind::Step, busy.max(kept), busy.max(kept) + step)),
                true => None,
                false => Some((device, Kind::Step, kept, kept - step)),
            }
        });
        if let Some((device, kind, kept, limit)) = due.or_else(|| self.closing_due(sample)) {
            let since = sample.now;
            self.trial =
                Some(Trial { device, kind, since, kept, limit, is_settled: false, finished: 0, elapsed: 0 });
        }
    }

    /// A device other than the nearest whose closing or opening is to be tried.
    fn closing_due(&self, sample: &Sample) -> Option<(usize, Kind, f64, f64)> {
        // As the operator ordered them: what is measured depends on how the devices disturb each other.
        let nearest = sample.usable.trailing_zeros() as usize;
        let due = (0..self.devices).find(|device| {
            let of = &self.of[*device];
            let is_used = of.closed || sample.in_flight[*device] > 0;
            let is_known = of.floor > 0.0 && self.total > 0.0;
            *device != nearest
                && sample.usable & 1 << device != 0
                && is_used
                && is_known
                && sample.now >= of.next_closing
        })?;
        Some((due, Kind::Closing, self.of[due].effective(), 0.0))
    }

    /// Devices by their latency without a queue; those that were not measured come first, to be measured.
    fn order(&self) -> PerDevice<u8> {
        let mut order: PerDevice<u8> = std::array::from_fn(|device| device as u8);
        let of = |device: &u8| self.of[usize::from(*device)];
        let floor =
            |device: &u8| if usize::from(*device) < self.devices { of(device).floor } else { f64::INFINITY };
        order.sort_by(|a, b| floor(a).total_cmp(&floor(b)));
        order
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
            let trial = self.trial.as_ref().filter(|trial| trial.device == device);
            let closing = trial.is_some_and(|trial| trial.kind == Kind::Closing);
            if of.closed != closing {
                (limits[device], costs[device]) = (0, NEVER);
            }
            if let Some(trial) = trial.filter(|trial| trial.kind != Kind::Closing) {
                (limits[device], costs[device]) = ((trial.limit * f64::from(LIMIT_UNIT)) as u32, NEVER);
            }
        }
        Plan::Fill { order: self.order(), limits, costs }
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
            if self.trial.is_none() {
                let total = sample.total_rate();
                self.total = if self.total == 0.0 { total } else { self.total + 0.2 * (total - self.total) };
            }
            self.step_judged(sample);
            self.step_trial(sample);
            self.begin_trial(sample);
        }
        self.plan(sample.now)
    }

    fn mode(&self) -> &'static str {
        if self.trial.is_some() { "trial" } else { "filling" }
    }
}
