//! The best that is possible on a machine in a steady state: every static ratio, and every limit of the cache, tried out.
//!
//! A ratio is what NetCAS's profile has; a limit (at most that number of requests at the cache, the rest at the backend, and the other way
//! round) is what a router can do besides. Whatever delivers most is the oracle, so it is at least as good as the best ratio.

use super::{MILLI, Scene, play};
use crate::clock::Nanos;
use crate::split::Policy;

/// Ratios in this many steps.
const STEPS: u32 = 40;
/// The first part of a run does not count.
const WARM: Nanos = 100 * MILLI;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Best {
    /// Requests a second.
    pub rate: f64,
    pub policy: Policy,
    /// Requests a second of the best ratio alone.
    pub ratio_rate: f64,
    pub ratio: f64,
}

/// Requests a second of a fixed decision, and of the cache's share of them.
pub fn rate(scene: &Scene, policy: Policy) -> f64 {
    let run = play(scene, policy);
    run.rate(WARM, scene.length)
}

/// The oracle of a scene without episodes. `length` of each trial is the scene's.
pub fn best(scene: &Scene, steps: u32) -> Best {
    let outstanding = scene.demand[0].outstanding;
    let steps = if steps == 0 { STEPS } else { steps };
    let mut best = Best { rate: 0.0, policy: Policy::CacheOnly, ratio_rate: 0.0, ratio: 1.0 };
    for step in (0..=steps).rev() {
        let share = f64::from(step) / f64::from(steps);
        let found = rate(scene, Policy::Static(share));
        if found > best.rate {
            (best.rate, best.policy) = (found, Policy::Static(share));
        }
        if found > best.ratio_rate {
            (best.ratio_rate, best.ratio) = (found, share);
        }
    }
    let mut limit = 1;
    while limit < outstanding {
        for policy in [Policy::Limited(0, limit), Policy::Limited(1, limit)] {
            let found = rate(scene, policy);
            if found > best.rate {
                (best.rate, best.policy) = (found, policy);
            }
        }
        limit += (limit / 3).max(1);
    }
    best
}
