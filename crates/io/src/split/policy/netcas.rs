//! NetCAS as printed (§3.4 to §3.7). Two devices: the cache and the backend.
//!
//! | mode | what happens |
//! | --- | --- |
//! | No Table | the profile lacks the workload: a second of the cache alone, then one of the backend alone, fill its cell |
//! | Warm-up | three seconds at ρ_base, until the windows are full |
//! | Stable | ρ_base, computed once |
//! | Congestion | ρ is computed again in each epoch, with the backend's throughput scaled by (1 − d / 1000) |
//!
//! The congestion score d comes from the loss of bandwidth against the highest seen, and from the inflation of latency against the
//! lowest seen, each weighted with a half. Neither baseline is ever forgotten. What the paper leaves open is as in its published
//! code: an epoch of 100 ms, a window of 20 epochs, a threshold of 90 per thousand between Stable and Congestion.
//!
//! Its faults are kept: see `mended.rs`.

use super::fixed::two;
use super::{Epoch, Governor, Start};
use crate::split::meter::Sample;
use crate::split::plan::{Dispatch, Plan};
use crate::split::profile::{Point, Profile};
use std::collections::VecDeque;

pub(super) const EPOCH: u64 = 100_000_000;
pub(super) const WINDOW: usize = 20;
const WARM_UP: u32 = 30;
/// Epochs of each device alone, without a profile.
const ALONE: u32 = 10;
pub(super) const THRESHOLD: f64 = 90.0;
pub(super) const WEIGHT: f64 = 0.5;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    /// Epochs so far, and the cache's rate.
    NoTable(u32, f64),
    WarmUp(u32),
    Stable,
    Congestion,
}

/// A sliding mean.
#[derive(Default)]
pub(super) struct Window(VecDeque<f64>);

impl Window {
    pub(super) fn add(&mut self, value: f64) -> f64 {
        if self.0.len() == WINDOW {
            self.0.pop_front();
        }
        self.0.push_back(value);
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }
}

pub struct Netcas {
    profile: Profile,
    mode: Mode,
    epoch: Epoch,
    bandwidth: Window,
    bandwidth_max: f64,
    latency_min: f64,
    /// ρ, of the last decision.
    share: f64,
}

/// The workload of an epoch, as a profile names it.
pub(super) fn point(epoch: &Sample) -> Point {
    let threads = epoch.threads.max(1);
    let depth = (epoch.outstanding() / f64::from(threads)).round().max(1.0) as u32;
    Point { block: epoch.block() as u32, depth, threads }
}

/// ρ with the backend's throughput scaled down by `drop` per thousand.
pub(super) fn ratio(rates: [f64; 2], drop: f64) -> f64 {
    let backend = rates[1] * (1.0 - drop / 1000.0);
    if rates[0] + backend <= 0.0 { 1.0 } else { rates[0] / (rates[0] + backend) }
}

impl Netcas {
    pub fn new(start: &Start) -> Netcas {
        let profile = start.profile.as_deref().cloned().unwrap_or_default();
        let mode = if profile.cells().is_empty() { Mode::NoTable(0, 0.0) } else { Mode::WarmUp(0) };
        Netcas {
            profile,
            mode,
            epoch: Epoch::default(),
            bandwidth: Window::default(),
            bandwidth_max: 0.0,
            latency_min: f64::INFINITY,
            share: 1.0,
        }
    }

    /// `drop_permil` of an epoch, limited to 0 to 1000 as the formula for ρ wants it.
    fn score(&mut self, epoch: &Sample) -> f64 {
        let bandwidth = self.bandwidth.add(epoch.devices[1].bytes as f64 * 1e9 / epoch.elapsed as f64);
        self.bandwidth_max = self.bandwidth_max.max(bandwidth);
        let Some(latency) = epoch.devices[1].mean() else {
            // No request went to the backend: there is no latency, and all bandwidth is lost.
            return (1000.0 * WEIGHT).min(if self.bandwidth_max > 0.0 { 1000.0 } else { 0.0 });
        };
        self.latency_min = self.latency_min.min(latency);
        let lost = (self.bandwidth_max - bandwidth) / self.bandwidth_max.max(1.0);
        let inflated = (latency - self.latency_min) / self.latency_min;
        (1000.0 * (WEIGHT * lost + WEIGHT * inflated)).clamp(0.0, 1000.0)
    }

    fn base(&self, epoch: &Sample) -> Option<[f64; 2]> {
        self.profile.nearest(point(epoch)).map(|cell| cell.rates)
    }

    fn epoch(&mut self, epoch: &Sample) {
        if let Mode::NoTable(epochs, cache) = self.mode {
            // The first epoch of each device still has requests of the other.
            self.mode = match epochs + 1 {
                n if n < ALONE => Mode::NoTable(n, cache),
                ALONE => Mode::NoTable(ALONE, epoch.rate(0)),
                n if n < 2 * ALONE => Mode::NoTable(n, cache),
                _ => {
                    self.profile.put(point(epoch), [cache, epoch.rate(1)]);
                    Mode::WarmUp(0)
                }
            };
            self.share = if matches!(self.mode, Mode::NoTable(n, _) if n >= ALONE) { 0.0 } else { 1.0 };
            if self.mode != Mode::WarmUp(0) {
                return;
            }
        }
        let drop = self.score(epoch);
        let Some(rates) = self.base(epoch) else {
            self.mode = Mode::NoTable(0, 0.0);
            self.share = 1.0;
            return;
        };
        self.mode = match self.mode {
            Mode::WarmUp(epochs) if epochs < WARM_UP => Mode::WarmUp(epochs + 1),
            Mode::WarmUp(_) => Mode::Stable,
            Mode::Stable if drop > THRESHOLD => Mode::Congestion,
            Mode::Congestion if drop < THRESHOLD => Mode::Stable,
            mode => mode,
        };
        self.share = ratio(rates, if self.mode == Mode::Congestion { drop } else { 0.0 });
    }
}

impl Governor for Netcas {
    fn tick(&mut self, sample: &Sample) -> Plan {
        if let Some(epoch) = self.epoch.add(sample, EPOCH)
            && epoch.block() > 0
        {
            self.epoch(&epoch);
        }
        two(self.share, Dispatch::Batched { printed: true })
    }

    fn mode(&self) -> &'static str {
        match self.mode {
            Mode::NoTable(..) => "no table",
            Mode::WarmUp(_) => "warm-up",
            Mode::Stable => "stable",
            Mode::Congestion => "congestion",
        }
    }
}
