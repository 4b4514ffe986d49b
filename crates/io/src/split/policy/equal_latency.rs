//! Latency equalising, as MOST and Colloid do it: the share moves by a step toward the device that answers faster.
//!
//! MOST's own values: every 200 ms, by 2 %, unless the latencies are within 5 %. A device that was idle keeps its last latency.
//! Two devices.

use super::fixed::two;
use super::{Epoch, Governor};
use crate::split::meter::Sample;
use crate::split::plan::{Dispatch, Plan};

const PERIOD: u64 = 200_000_000;
const STEP: f64 = 0.02;
const TOLERANCE: f64 = 0.05;

pub struct EqualLatency {
    share: f64,
    latency: [Option<f64>; 2],
    epoch: Epoch,
}

impl EqualLatency {
    pub fn new() -> EqualLatency {
        EqualLatency { share: 1.0, latency: [None; 2], epoch: Epoch::default() }
    }
}

impl Governor for EqualLatency {
    fn tick(&mut self, sample: &Sample) -> Plan {
        if let Some(epoch) = self.epoch.add(sample, PERIOD) {
            for (device, latency) in self.latency.iter_mut().enumerate() {
                *latency = epoch.devices[device].mean().or(*latency);
            }
            if let [Some(cache), Some(backend)] = self.latency {
                if cache > backend * (1.0 + TOLERANCE) {
                    self.share = (self.share - STEP).max(0.0);
                } else if backend > cache * (1.0 + TOLERANCE) {
                    self.share = (self.share + STEP).min(1.0);
                }
            }
        }
        two(self.share, Dispatch::Diffused)
    }
}
