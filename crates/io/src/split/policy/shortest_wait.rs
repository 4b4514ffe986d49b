//! Join the shortest estimated wait: each request goes where it is expected to end first.
//!
//! A device's estimate is its latency without a queue plus what is in flight beyond its knee, divided by its rate. The rate is the
//! highest of late, the latency the lowest of late; both are forgotten slowly. Greedy for each request: it leaves the cache only
//! once its queue takes longer than the backend's latency.

use super::{Governor, Start};
use crate::split::PerDevice;
use crate::split::meter::Sample;
use crate::split::plan::{LIMIT_UNIT, NEVER, Plan};

/// Part of the distance to the present value that an extreme loses in a period.
const FORGETTING: f64 = 0.02;

#[derive(Clone, Copy, Default)]
struct Estimate {
    rate: f64,
    latency: f64,
}

pub struct ShortestWait {
    devices: usize,
    of: PerDevice<Estimate>,
}

impl ShortestWait {
    pub fn new(start: &Start) -> ShortestWait {
        ShortestWait { devices: start.devices, of: Default::default() }
    }
}

impl Governor for ShortestWait {
    fn tick(&mut self, sample: &Sample) -> Plan {
        let (mut limits, mut costs, mut latencies) = ([LIMIT_UNIT; 4], [NEVER; 4], [NEVER; 4]);
        for device in 0..self.devices {
            let estimate = &mut self.of[device];
            if let Some(latency) = sample.devices[device].mean() {
                let rate = sample.rate(device);
                estimate.rate = rate.max(estimate.rate + FORGETTING * (rate - estimate.rate));
                estimate.latency = match estimate.latency {
                    0.0 => latency,
                    old => latency.min(old + FORGETTING * (latency - old)),
                };
            }
            if estimate.rate > 0.0 {
                let knee = estimate.rate * estimate.latency / 1e9;
                limits[device] = (knee.max(1.0) * f64::from(LIMIT_UNIT)) as u32;
                costs[device] = (1e9 / estimate.rate) as u64;
                latencies[device] = estimate.latency as u64;
            } else {
                // Not measured yet: the first requests find out.
                (costs[device], latencies[device]) = (1_000, 1 + device as u64);
            }
        }
        Plan::Wait { limits, costs, latencies }
    }
}
