//! Orthus (FAST '21): hill climbing on total throughput, from the cache downwards.
//!
//! Three trials of [`TRIAL`] each, at a step below the current share, at it, and a step above it; then the best of the three is the
//! current share. Two devices.

use super::fixed::two;
use super::{Epoch, Governor};
use crate::split::meter::Sample;
use crate::split::plan::{Dispatch, Plan};

const TRIAL: u64 = 50_000_000;
const STEP: f64 = 0.05;
const OFFSETS: [f64; 3] = [0.0, -STEP, STEP];

pub struct HillClimbing {
    share: f64,
    trial: usize,
    found: [f64; 3],
    epoch: Epoch,
}

impl HillClimbing {
    pub fn new() -> HillClimbing {
        HillClimbing { share: 1.0, trial: 0, found: [0.0; 3], epoch: Epoch::default() }
    }
}

impl Governor for HillClimbing {
    fn tick(&mut self, sample: &Sample) -> Plan {
        if let Some(epoch) = self.epoch.add(sample, TRIAL) {
            self.found[self.trial] = epoch.total_rate();
            self.trial += 1;
            if self.trial == OFFSETS.len() {
                let best = (0..OFFSETS.len()).max_by(|a, b| self.found[*a].total_cmp(&self.found[*b]));
                // `max_by` takes the last of equals: at the border a step outwards is the current share.
                let offset = best.map_or(0.0, |best| OFFSETS[best]);
                self.share = (self.share + offset).clamp(0.0, 1.0);
                self.trial = 0;
            }
        }
        two(self.share + OFFSETS[self.trial], Dispatch::Diffused)
    }
}
