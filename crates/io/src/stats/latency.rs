//! A histogram of latencies in a fixed number of buckets whose widths grow with the latency.
//!
//! Whole microseconds: one bucket each below four, from there on four to each doubling, up to about two
//! minutes; the last bucket has all that took longer. So a quantile is known to about an eighth.

use crate::clock::Nanos;

/// Buckets to each doubling.
const STEPS: u64 = 4;
/// Doublings: the last bucket begins at 1.75 · 2²⁶ µs.
const DOUBLINGS: u64 = 26;
pub(super) const BUCKETS: usize = (STEPS * DOUBLINGS) as usize;

/// The bucket of a latency.
pub(super) fn bucket_of(nanos: Nanos) -> usize {
    let micros = nanos / 1_000;
    if micros < STEPS {
        return micros as usize;
    }
    let doubling = u64::from(micros.ilog2());
    let step = (micros >> (doubling - 2)) % STEPS;
    ((doubling - 1) * STEPS + step).min(BUCKETS as u64 - 1) as usize
}

/// Where a bucket begins, in microseconds.
fn start_of(bucket: usize) -> u64 {
    let (doubling, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if doubling == 0 { step } else { (STEPS + step) << (doubling - 1) }
}

/// How many requests took how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    buckets: [u64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { buckets: [0; BUCKETS] }
    }
}

impl Latency {
    pub(super) fn new(buckets: [u64; BUCKETS]) -> Latency {
        Latency { buckets }
    }

    pub(super) fn add(&mut self, other: &Latency) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, more)| *sum += more);
    }

    /// The number of requests that took less than `micros` microseconds, a power of two.
    pub fn below(&self, micros: u64) -> u64 {
        self.buckets[..bucket_of(micros * 1_000)].iter().sum()
    }

    /// The latency, in nanoseconds, that this share of the requests (0 to 1) did not exceed: the middle of
    /// its bucket. 0 if there was no request.
    pub fn quantile(&self, share: f64) -> Nanos {
        let all: u64 = self.buckets.iter().sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        at.map_or(0, |bucket| (start_of(bucket) + start_of(bucket + 1)) * 1_000 / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(latencies: impl IntoIterator<Item = Nanos>) -> Latency {
        let mut latency = Latency::default();
        latencies.into_iter().for_each(|nanos| latency.buckets[bucket_of(nanos)] += 1);
        latency
    }

    #[test]
    fn buckets_join_without_a_gap_and_hold_what_falls_between_their_ends() {
        for bucket in 0..BUCKETS - 1 {
            let (from, to) = (start_of(bucket), start_of(bucket + 1));
            assert!(from < to, "{bucket}");
            assert_eq!(bucket_of(from * 1_000), bucket);
            assert_eq!(bucket_of(to * 1_000 - 1), bucket);
            assert!(from < STEPS || (to - from) * STEPS <= from, "{bucket} is wider than a quarter");
        }
        assert!(
            (100_000_000..200_000_000).contains(&start_of(BUCKETS - 1)),
            "the last begins at about two minutes"
        );
        assert_eq!(bucket_of(Nanos::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_is_within_an_eighth_of_the_exact_one() {
        // From 5 µs to 5 s, evenly on a log scale.
        let mut exact: Vec<Nanos> =
            (0..10_000).map(|i| (5_000.0 * 1e6f64.powf(f64::from(i) / 10_000.0)) as Nanos).collect();
        let latency = of(exact.iter().copied());
        exact.sort_unstable();
        for share in [0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let expected = exact[(exact.len() as f64 * share).ceil() as usize - 1] as f64;
            let found = latency.quantile(share) as f64;
            assert!((found / expected - 1.0).abs() < 0.126, "p{share}: {found}, not {expected}");
        }
    }

    #[test]
    fn latencies_below_a_power_of_two_are_known_exactly() {
        let latency = of([900, 3_999, 15_999, 16_000, 70_000]);
        assert_eq!([1, 4, 16, 64, 1 << 20].map(|micros| latency.below(micros)), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn few_requests_have_quantiles_too() {
        assert_eq!(Latency::default().quantile(0.99), 0);
        let one = of([2_000_000]);
        assert_eq!(one.quantile(0.5), one.quantile(0.99));
        let mut two = of([2_000_000]);
        two.add(&of([80_000_000]));
        assert!((1_750_000..2_250_000).contains(&two.quantile(0.5)), "{}", two.quantile(0.5));
        assert!((70_000_000..90_000_000).contains(&two.quantile(0.99)), "{}", two.quantile(0.99));
    }
}
