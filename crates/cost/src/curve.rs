//! A miss-ratio curve: the share of reads that a cache misses, by its size in pages.

/// Steps of a curve for each doubling of the size.
pub(crate) const STEPS: usize = 16;

/// Misses by size of the cache. Reads of pages that had not been read before are misses at any size.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// (pages that a cache must have, reads that it then has), with growing sizes.
    steps: Vec<(f64, f64)>,
    first: f64,
    reads: f64,
    rate: f64,
}

impl Curve {
    /// `first`: reads of pages that had not been read before; `reads`: all; `rate`: the share of pages sampled.
    pub fn new(steps: Vec<(f64, f64)>, first: f64, reads: f64, rate: f64) -> Curve {
        // By chance the sample may weigh more than all reads: then the reads are what it weighs.
        let seen = first + steps.iter().map(|(_, reads)| reads).sum::<f64>();
        let far = seen - steps.first().filter(|(size, _)| *size <= 1.0).map_or(0.0, |(_, reads)| *reads);
        Curve { steps, first, reads: reads.max(far), rate }
    }

    /// The same curve, scaled to `reads` reads.
    pub fn of_reads(mut self, reads: f64) -> Curve {
        if self.reads > 0.0 {
            let factor = reads / self.reads;
            self.steps.iter_mut().for_each(|(_, n)| *n *= factor);
            (self.first, self.reads) = (self.first * factor, reads);
        }
        self
    }

    pub fn reads(&self) -> f64 {
        self.reads
    }
    pub fn rate(&self) -> f64 {
        self.rate
    }
    pub fn steps(&self) -> &[(f64, f64)] {
        &self.steps
    }
    pub fn first(&self) -> f64 {
        self.first
    }

    /// The share of the reads that no cache would have had: of pages read for the first time. 0 without any reads.
    pub fn first_ratio(&self) -> f64 {
        if self.reads > 0.0 { self.first / self.reads } else { 0.0 }
    }

    /// The share of the reads that an LRU cache of `pages` misses, from 0 to 1. None without any reads.
    pub fn miss_ratio(&self, pages: f64) -> Option<f64> {
        if self.reads <= 0.0 {
            return None;
        }
        let missed = self.steps.iter().map(|(size, reads)| reads * (1.0 - had(pages, *size)));
        Some(((self.first + missed.sum::<f64>()) / self.reads).clamp(0.0, 1.0))
    }

    /// The same if no read had been a page's first: how it goes on once all has been read.
    pub fn miss_ratio_later(&self, pages: f64) -> Option<f64> {
        let rest = 1.0 - self.first_ratio();
        let missed = self.miss_ratio(pages)? - self.first_ratio();
        Some(if rest > 0.0 { (missed / rest).clamp(0.0, 1.0) } else { 0.0 })
    }

    /// The largest size at which the curve still falls, in pages.
    pub fn end(&self) -> f64 {
        self.steps.last().map_or(0.0, |(size, _)| *size)
    }
}

/// The share of a step's reads that a cache of `pages` has. Within the step they are spread evenly.
fn had(pages: f64, size: f64) -> f64 {
    if pages >= size {
        return 1.0;
    }
    let start = 1.0 + (size - 1.0) / (1.0 / STEPS as f64).exp2();
    ((pages - start) / (size - start)).clamp(0.0, 1.0)
}
