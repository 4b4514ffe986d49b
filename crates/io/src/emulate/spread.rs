//! How latencies spread around their mean: most requests are a little faster, few much slower.
//!
//! A shape, not a measurement of one product: it makes batches wait for their slowest request and shows
//! what a tail does to a commit. Drawn from a generator of one seed, so that runs are alike.

use crate::clock::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shares of the mean latency at ascending quantiles, the first 0 and the last 1; straight lines
/// between. The mean of the curve is 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread(&'static [(f64, f64)]);

/// Every request takes the mean.
pub const EVEN: Spread = Spread(&[(0.0, 1.0), (1.0, 1.0)]);

/// Half of the requests within 0.9 of the mean; one of a hundred takes twice, one of a thousand five times
/// as long, none more than ten times.
pub const TAIL: Spread =
    Spread(&[(0.0, 0.737), (0.5, 0.9), (0.9, 1.15), (0.99, 2.0), (0.999, 5.0), (1.0, 10.0)]);

impl Spread {
    /// The share at a quantile from 0 to 1.
    pub fn at(&self, quantile: f64) -> f64 {
        let above = self.0.iter().position(|(q, _)| *q >= quantile).unwrap_or(self.0.len() - 1).max(1);
        let ((q0, low), (q1, high)) = (self.0[above - 1], self.0[above]);
        low + (high - low) * (quantile - q0) / (q1 - q0)
    }

    /// In words, to stand beside figures.
    pub fn describe(&self) -> String {
        if *self == EVEN {
            return "every request at its mean latency".into();
        }
        let at = |quantile| self.at(quantile);
        format!(
            "latencies are means, spread: p50 {:.2}, p99 {:.1}, p99.9 {:.1}, at most {:.0} times",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        )
    }
}

/// Draws latencies.
pub(super) struct Draw {
    spread: Spread,
    drawn: AtomicU64,
}

impl Draw {
    pub fn new(spread: Spread, seed: u64) -> Draw {
        Draw { spread, drawn: AtomicU64::new(seed) }
    }

    /// The next request's latency.
    pub fn next(&self, mean: Nanos) -> Nanos {
        if self.spread == EVEN {
            return mean;
        }
        // SplitMix64: the counter is its state.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut bits = self.drawn.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        let quantile = (bits >> 11) as f64 / (1u64 << 53) as f64;
        (mean as f64 * self.spread.at(quantile)) as Nanos
    }
}
