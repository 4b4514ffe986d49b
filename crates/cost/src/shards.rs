//! How often a cache of any size would miss, estimated from a sample of the reads in one pass and bounded memory: SHARDS
//! with a fixed number of samples (Waldspurger, Park, Garthwaite, Ahmad, FAST 2015, §3.2).
//!
//! A page is sampled if its hash is below a threshold, so either all of its reads are seen or none: what is seen is a
//! cache of the same workload on a smaller scale. The number of sampled pages that were read since a page's
//! last read, divided by the rate, estimates its LRU stack distance. When there are more sampled pages than may be,
//! the one with the highest hash goes and the threshold becomes its hash, for ever. So a read weighs what the rate was
//! then, inverted.
//!
//! Age. Old reads say little of future ones: the caller that records reads halves the counts ([`Shards::halve`]) when
//! [`Shards::is_due`] says so, after sixty-four sampled reads for each page that may be sampled. The pages and their order stay.
//!
//! Error. With `samples` pages, the miss ratio at any size is off by less than `1 / sqrt(samples)` on average; the tests
//! hold it to 0.02 on average and 0.05 at worst with 2048 pages, against exact stack distances. It is an LRU's curve:
//! queues and admission do somewhat better, pages read ahead much better.
//!
//! Not here: which reads are recorded (`memory/pool/sample` in the tier), what a curve means in money (`advice`).

use crate::curve::{Curve, STEPS};
use std::collections::BTreeMap;

const DOUBLINGS: usize = 40;
/// Sampled reads for each page that may be sampled, after which those before count half.
const HALF_LIFE: u64 = 64;

#[derive(Clone, Copy)]
struct Sampled {
    /// Its place in the order of last reads.
    at: u32,
    page: u64,
}

/// The sampled pages and how far back their reads reached.
pub struct Shards {
    samples: usize,
    /// Pages whose hash is below it are sampled.
    threshold: u64,
    /// By hash.
    pages: BTreeMap<u64, Sampled>,
    order: Order,
    /// Reads by stack distance, weighed.
    distances: Vec<f64>,
    /// Reads of pages that had not been read before, weighed.
    first: f64,
    /// Sampled reads since they were halved.
    young: u64,
}

impl Shards {
    /// Keeps at most `samples` pages; about 50 bytes each.
    pub fn new(samples: usize) -> Shards {
        let samples = samples.max(16);
        Shards {
            samples,
            threshold: u64::MAX,
            pages: BTreeMap::new(),
            order: Order::new(2 * samples),
            distances: vec![0.0; STEPS * DOUBLINGS + 1],
            first: 0.0,
            young: 0,
        }
    }

    /// Whether what was counted until now is to count half.
    pub fn is_due(&self) -> bool {
        self.young >= HALF_LIFE * self.samples as u64
    }

    /// What was counted until now counts half from now on.
    pub fn halve(&mut self) {
        self.distances.iter_mut().for_each(|reads| *reads /= 2.0);
        self.first /= 2.0;
        self.young = 0;
    }

    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    pub fn sampled(&self) -> usize {
        self.pages.len()
    }

    /// The share of all pages that are sampled.
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    /// A page was read. `hash` spreads `page` evenly over 64 bits, and no two pages have the same. False: it is not
    /// sampled (any more).
    pub fn read(&mut self, page: u64, hash: u64) -> bool {
        if hash >= self.threshold {
            return false;
        }
        self.young += 1;
        let weight = 1.0 / self.rate();
        match self.pages.get(&hash) {
            Some(found) => {
                let between = self.order.after(found.at);
                let bucket = bucket_of(f64::from(between) * weight);
                self.distances[bucket] += weight;
            }
            None => self.first += weight,
        }
        self.bring(page, hash);
        hash < self.threshold
    }

    /// A page came into memory without a read: it was made there.
    pub fn made(&mut self, page: u64, hash: u64) -> bool {
        if hash < self.threshold {
            self.bring(page, hash);
        }
        hash < self.threshold
    }

    /// Makes it the page that was read last.
    fn bring(&mut self, page: u64, hash: u64) {
        if let Some(found) = self.pages.get(&hash) {
            self.order.remove(found.at);
        }
        if self.order.is_full() {
            self.renumber(hash);
        }
        let at = self.order.append();
        self.pages.insert(hash, Sampled { at, page });
        if self.pages.len() > self.samples
            && let Some((highest, gone)) = self.pages.pop_last()
        {
            self.order.remove(gone.at);
            self.threshold = highest;
        }
    }

    /// Closes the gaps in the order. `without` has no place in it now.
    fn renumber(&mut self, without: u64) {
        let mut all: Vec<(u32, u64)> =
            self.pages.iter().filter(|(hash, _)| **hash != without).map(|(hash, s)| (s.at, *hash)).collect();
        all.sort_unstable();
        self.order.clear();
        for (_, hash) in all {
            let at = self.order.append();
            self.pages.entry(hash).and_modify(|sampled| sampled.at = at);
        }
    }

    /// Forgets pages that are no more. Their reads stay counted.
    pub fn forget(&mut self, is_gone: impl Fn(u64) -> bool) {
        let order = &mut self.order;
        self.pages.retain(|_, sampled| {
            let gone = is_gone(sampled.page);
            if gone {
                order.remove(sampled.at);
            }
            !gone
        });
    }

    /// The curve so far. `reads`: all reads, sampled or not, if that is known: it corrects what chance
    /// made of the most popular pages (SHARDS-adj).
    pub fn curve(&self, reads: Option<f64>) -> Curve {
        let seen = self.first + self.distances.iter().sum::<f64>();
        let steps = (0..self.distances.len()).filter(|i| self.distances[*i] > 0.0);
        let steps = steps.map(|i| (end_of(i), self.distances[i])).collect();
        Curve::new(steps, self.first, reads.unwrap_or(seen), self.rate())
    }
}

/// Bucket 0 has distance 0; then [`STEPS`] to a doubling.
fn bucket_of(distance: f64) -> usize {
    if distance < 1.0 {
        return 0;
    }
    let steps = (distance.log2() * STEPS as f64).floor() as usize;
    1 + steps.min(STEPS * DOUBLINGS - 1)
}

/// A cache of that many pages has all reads of the bucket, and those before it.
fn end_of(bucket: usize) -> f64 {
    if bucket == 0 { 1.0 } else { (bucket as f64 / STEPS as f64).exp2() + 1.0 }
}

/// Places in the order of last reads, as a Fenwick tree over which are taken.
struct Order {
    tree: Vec<u32>,
    next: u32,
    taken: u32,
}

impl Order {
    fn new(places: usize) -> Order {
        Order { tree: vec![0; places + 1], next: 0, taken: 0 }
    }
    fn is_full(&self) -> bool {
        self.next as usize + 1 == self.tree.len()
    }
    fn clear(&mut self) {
        self.tree.fill(0);
        (self.next, self.taken) = (0, 0);
    }
    fn change(&mut self, at: u32, taken: bool) {
        let mut i = at as usize + 1;
        while i < self.tree.len() {
            self.tree[i] = if taken { self.tree[i] + 1 } else { self.tree[i] - 1 };
            i += i & i.wrapping_neg();
        }
    }
    fn append(&mut self) -> u32 {
        let at = self.next;
        self.change(at, true);
        self.next += 1;
        self.taken += 1;
        at
    }
    fn remove(&mut self, at: u32) {
        self.change(at, false);
        self.taken -= 1;
    }
    /// How many are taken after `at`.
    fn after(&self, at: u32) -> u32 {
        let (mut i, mut before) = (at as usize + 1, 0);
        while i > 0 {
            before += self.tree[i];
            i -= i & i.wrapping_neg();
        }
        self.taken - before
    }
}

#[cfg(test)]
mod tests;
