//! How long commands took: samples of slow moments for `LATENCY`, and a histogram for each command.
//!
//! A sample is kept for each second and event whose longest duration reached `latency-monitor-threshold`. A histogram counts durations by
//! powers of two from 1,024 ns.

use std::collections::BTreeMap;
use std::collections::VecDeque;

/// Samples kept of an event.
const SAMPLES_MAX: usize = 160;
const BUCKETS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Unix time in seconds.
    pub at: i64,
    pub millis: u64,
}

#[derive(Default)]
pub struct Event {
    pub samples: VecDeque<Sample>,
    pub longest_millis: u64,
}

/// By the names of events: `command` and `fast-command`.
#[derive(Default)]
pub struct Latency {
    pub events: BTreeMap<&'static str, Event>,
}

impl Latency {
    pub fn add(&mut self, event: &'static str, at: i64, millis: u64) {
        let event = self.events.entry(event).or_default();
        event.longest_millis = event.longest_millis.max(millis);
        match event.samples.back_mut() {
            Some(last) if last.at == at => last.millis = last.millis.max(millis),
            _ => event.samples.push_back(Sample { at, millis }),
        }
        if event.samples.len() > SAMPLES_MAX {
            event.samples.pop_front();
        }
    }
}

/// Counts of durations; bucket `n` holds those of at most 1,024 ns times 2 to the `n`.
#[derive(Clone, Copy, Default)]
pub struct Histogram([u32; BUCKETS]);

impl Histogram {
    pub fn add(&mut self, nanos: u64) {
        let bucket = nanos.div_ceil(1024).next_power_of_two().trailing_zeros() as usize;
        let count = &mut self.0[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(1);
    }

    /// The bounds in microseconds at which the count of all durations up to them grows, with that count.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut total = 0;
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(bucket, count)| {
            total += u64::from(*count);
            // The bound that a histogram of two decimal digits shows for this power of two.
            let bound = 1024u64 << bucket;
            ((bound + (bound >> 7) - 1) / 1000, total)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_keeps_the_longest_duration_and_old_samples_go() {
        let mut latency = Latency::default();
        latency.add("command", 7, 3);
        latency.add("command", 7, 9);
        latency.add("command", 7, 5);
        let event = &latency.events["command"];
        assert_eq!(event.samples, [Sample { at: 7, millis: 9 }]);
        for at in 8..1000 {
            latency.add("command", at, 1);
        }
        let event = &latency.events["command"];
        assert_eq!((event.samples.len(), event.longest_millis), (SAMPLES_MAX, 9));
        assert_eq!(event.samples[0].at, 840);
    }

    #[test]
    fn the_steps_of_a_histogram_are_cumulative_with_the_bounds_of_redis() {
        let mut histogram = Histogram::default();
        for nanos in [0, 1024, 1025, 30_000, u64::MAX >> 1] {
            histogram.add(nanos);
        }
        let steps: Vec<(u64, u64)> = histogram.steps().collect();
        assert_eq!(steps[..3], [(1, 2), (2, 3), (33, 4)]);
        assert_eq!(steps[3].1, 5);
    }
}
