//! NetCAS with its known faults mended. Two devices.
//!
//! | fault of the printed form | here |
//! | --- | --- |
//! | Algorithm 1 compares with `>`, and truncates patterns | rounding errors are carried on ([`crate::split::diffuse`]) |
//! | latency inflation is unbounded and drowns the loss of bandwidth | each deviation is limited to 0 to 1 |
//! | baselines are never forgotten | they move toward what is seen by 1 % a second |
//! | at ρ = 1 nothing measures the backend | the router asks an idle device for a request; see `router.rs` |
//! | a dip in demand looks like congestion | lost bandwidth counts only while latency is inflated too |
//! | ρ ignores how few requests are in flight | the requests in flight are divided where the profile's sum of both rates is highest |
//! | a ratio changes after a warm-up of three seconds | after three epochs |

use super::fixed::two;
use super::netcas::{EPOCH, THRESHOLD, WEIGHT, Window, point, ratio};
use super::{Epoch, Governor, Start};
use crate::split::meter::Sample;
use crate::split::plan::{Dispatch, Plan};
use crate::split::profile::Profile;
use std::sync::Arc;

const FORGETTING: f64 = 0.001;
const WARM_UP: u32 = 3;
/// Ways to divide the requests in flight that are tried.
const DIVISIONS: u32 = 64;

pub struct Mended {
    profile: Option<Arc<Profile>>,
    epochs: u32,
    epoch: Epoch,
    bandwidth: Window,
    bandwidth_max: f64,
    latency_min: f64,
    congested: bool,
    share: f64,
}

impl Mended {
    pub fn new(start: &Start) -> Mended {
        Mended {
            profile: start.profile.clone(),
            epochs: 0,
            epoch: Epoch::default(),
            bandwidth: Window::default(),
            bandwidth_max: 0.0,
            latency_min: 0.0,
            congested: false,
            share: 1.0,
        }
    }

    fn score(&mut self, epoch: &Sample) -> f64 {
        let bandwidth = self.bandwidth.add(epoch.devices[1].bytes as f64 * 1e9 / epoch.elapsed as f64);
        let max = self.bandwidth_max;
        self.bandwidth_max = bandwidth.max(max + FORGETTING * (bandwidth - max));
        let Some(latency) = epoch.devices[1].mean() else { return 0.0 };
        self.latency_min = match self.latency_min {
            0.0 => latency,
            min => latency.min(min + FORGETTING * (latency - min)),
        };
        let inflated = ((latency - self.latency_min) / self.latency_min).clamp(0.0, 1.0);
        let lost = ((self.bandwidth_max - bandwidth) / self.bandwidth_max.max(1.0)).clamp(0.0, 1.0);
        1000.0 * (WEIGHT * if inflated > 0.2 { lost } else { 0.0 } + WEIGHT * inflated)
    }

    /// The rates of both devices at the division of the requests in flight that has the highest sum.
    fn best_rates(&self, epoch: &Sample, drop: f64) -> Option<[f64; 2]> {
        let (profile, at) = (self.profile.as_ref()?, point(epoch));
        let outstanding = epoch.outstanding().max(1.0);
        let mut best = None;
        for part in 0..=DIVISIONS {
            let cache = outstanding * f64::from(part) / f64::from(DIVISIONS);
            let rates = [
                profile.rate_at(0, at.block, at.threads, cache)?,
                profile.rate_at(1, at.block, at.threads, outstanding - cache)? * (1.0 - drop / 1000.0),
            ];
            if best.is_none_or(|[a, b]: [f64; 2]| rates[0] + rates[1] >= a + b) {
                best = Some(rates);
            }
        }
        best
    }
}

impl Governor for Mended {
    fn tick(&mut self, sample: &Sample) -> Plan {
        if let Some(epoch) = self.epoch.add(sample, EPOCH)
            && epoch.block() > 0
        {
            let drop = self.score(&epoch);
            self.epochs += 1;
            self.congested = self.epochs > WARM_UP && drop > THRESHOLD;
            let drop = if self.congested { drop } else { 0.0 };
            self.share = self.best_rates(&epoch, drop).map_or(1.0, |rates| ratio(rates, 0.0));
        }
        two(self.share, Dispatch::Diffused)
    }

    fn mode(&self) -> &'static str {
        match (&self.profile, self.congested) {
            (None, _) => "no table",
            _ if self.epochs <= WARM_UP => "warm-up",
            (_, true) => "congestion",
            (_, false) => "stable",
        }
    }
}
