use super::*;

/// Pages from a seed, so that a failure is repeated.
struct Trace {
    state: u64,
    zipf: Vec<f64>,
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Trace {
    /// Popularity falls as rank to the power of -`skew`; 0: all alike.
    fn new(seed: u64, pages: usize, skew: f64) -> Trace {
        let mut sum = 0.0;
        let zipf = (1..=pages)
            .map(|rank| {
                sum += (rank as f64).powf(-skew);
                sum
            })
            .collect();
        Trace { state: seed, zipf }
    }
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let share = (mix(self.state) >> 11) as f64 / (1u64 << 53) as f64;
        let at = share * self.zipf[self.zipf.len() - 1];
        self.zipf.partition_point(|sum| *sum < at) as u64
    }
}

/// Another name for each page, so that its hash has nothing to do with its rank.
fn hash(seed: u64, page: u64) -> u64 {
    mix(page.wrapping_add(mix(seed)))
}

/// The exact LRU, the slow way: the last read first.
#[derive(Default)]
struct Exact {
    stack: Vec<u64>,
    distances: Vec<usize>,
    first: usize,
}

impl Exact {
    fn read(&mut self, page: u64) {
        match self.stack.iter().rposition(|other| *other == page) {
            Some(at) => {
                self.distances.push(self.stack.len() - 1 - at);
                self.stack.remove(at);
            }
            None => self.first += 1,
        }
        self.stack.push(page);
    }
    fn miss_ratio(&self, pages: usize) -> f64 {
        let far = self.distances.iter().filter(|distance| **distance >= pages).count();
        (far + self.first) as f64 / (self.distances.len() + self.first) as f64
    }
}

fn both(seed: u64, pages: usize, skew: f64, reads: usize, samples: usize) -> (Exact, Curve) {
    let (mut trace, mut exact, mut shards) =
        (Trace::new(seed, pages, skew), Exact::default(), Shards::new(samples));
    for _ in 0..reads {
        let page = trace.next();
        exact.read(page);
        shards.read(page, hash(seed, page));
        assert!(shards.sampled() <= samples);
    }
    (exact, shards.curve(Some(reads as f64)))
}

/// (mean, worst) difference of miss ratios over sizes up to all pages.
fn errors(exact: &Exact, curve: &Curve, pages: usize) -> (f64, f64) {
    let sizes: Vec<usize> = (1..=60).map(|i| (pages * i / 60).max(1)).collect();
    let off =
        sizes.iter().map(|size| (exact.miss_ratio(*size) - curve.miss_ratio(*size as f64).unwrap()).abs());
    let off: Vec<f64> = off.collect();
    (off.iter().sum::<f64>() / off.len() as f64, off.iter().copied().fold(0.0, f64::max))
}

#[test]
fn with_every_page_sampled_it_is_the_exact_curve() {
    for (seed, skew) in [(1, 0.0), (2, 0.9), (3, 1.3)] {
        let (exact, curve) = both(seed, 700, skew, 20_000, 1000);
        assert_eq!(curve.rate(), 1.0);
        let (mean, worst) = errors(&exact, &curve, 700);
        // What is left is the width of the buckets.
        assert!(mean < 0.004 && worst < 0.02, "seed {seed}: {mean} {worst}");
        assert!((curve.first_ratio() - exact.first as f64 / 20_000.0).abs() < 1e-9);
        assert_eq!(curve.miss_ratio(1e9), Some(curve.first_ratio()));
    }
}

#[test]
fn a_sample_of_a_tenth_is_near_the_exact_curve() {
    let mut all = Vec::new();
    for (seed, skew) in [(11, 0.0), (12, 0.6), (13, 0.9), (14, 1.0), (15, 1.2)] {
        let pages = 20_480;
        let (exact, curve) = both(seed, pages, skew, 120_000, 2048);
        assert!(curve.rate() < 1.0, "seed {seed}: the sample is a sample");
        let (mean, worst) = errors(&exact, &curve, pages);
        println!("skew {skew}: rate {:.3}, mean {mean:.4}, worst {worst:.4}", curve.rate());
        assert!(mean < 0.02 && worst < 0.05, "seed {seed}: mean {mean}, worst {worst}");
        all.push(mean);
    }
    assert!(all.iter().any(|mean| *mean > 0.0), "an estimate that is never off is no estimate");
}

#[test]
fn a_scan_that_returns_falls_off_at_its_length() {
    let mut shards = Shards::new(512);
    for _ in 0..5 {
        (0..5000).for_each(|page| _ = shards.read(page, hash(3, page)));
    }
    let curve = shards.curve(Some(25_000.0));
    assert!(curve.miss_ratio(4000.0).unwrap() > 0.95, "an LRU that is too small has nothing of a loop");
    assert!(curve.miss_ratio(6000.0).unwrap() < 0.25, "then only first reads miss");
}

#[test]
fn the_curve_falls_and_memory_is_bounded_for_any_trace() {
    for seed in 0..40 {
        let samples = 16 + (seed as usize * 37) % 200;
        let mut trace = Trace::new(seed, 3000, (seed % 5) as f64 * 0.4);
        let (mut shards, mut reads) = (Shards::new(samples), 0.0);
        for i in 0..6000u64 {
            let page = trace.next();
            match mix(i ^ seed) % 50 {
                0 => _ = shards.made(page, hash(seed, page)),
                1 => shards.forget(|page| page % 7 == i % 7),
                _ => {
                    reads += 1.0;
                    shards.read(page, hash(seed, page));
                }
            }
            assert!(shards.sampled() <= samples && shards.order.taken as usize == shards.sampled());
        }
        let curve = shards.curve(Some(reads));
        let ratios: Vec<f64> = (0..200).map(|i| curve.miss_ratio(f64::from(i * 20)).unwrap()).collect();
        assert!(ratios.windows(2).all(|pair| pair[1] <= pair[0]), "seed {seed}: {ratios:?}");
        assert!(ratios.iter().all(|ratio| (0.0..=1.0).contains(ratio)));
    }
}

#[test]
fn a_page_that_was_made_in_memory_is_not_missed_at_its_first_read() {
    let mut shards = Shards::new(100);
    (0..10).for_each(|page| _ = shards.made(page, hash(1, page)));
    (0..10).for_each(|page| _ = shards.read(page, hash(1, page)));
    let curve = shards.curve(None);
    assert_eq!((curve.reads(), curve.miss_ratio(11.0), curve.miss_ratio(9.0)), (10.0, Some(0.0), Some(1.0)));
    shards.forget(|page| page < 5);
    assert_eq!(shards.sampled(), 5);
    assert_eq!(Shards::new(100).curve(None).miss_ratio(5.0), None, "nothing was read");
}

/// A workload of small distances for a long time, then one of large ones: the curve is of the second one after a while, and
/// of both where nothing ages.
#[test]
fn older_reads_count_less_and_less() {
    let run = |ages: bool| {
        let (mut shards, mut reads) = (Shards::new(256), 0.0);
        let mut read = |shards: &mut Shards, page: u64| {
            shards.read(page, hash(3, page));
            reads += 1.0;
            if ages && shards.is_due() {
                shards.halve();
                reads /= 2.0;
            }
        };
        (0..400_000u64).for_each(|n| read(&mut shards, n % 100));
        (0..400_000u64).for_each(|n| read(&mut shards, 1000 + n % 4000));
        shards.curve(Some(reads)).of_reads(800_000.0)
    };
    let (old, young) = (run(false), run(true));
    let missed = |curve: &Curve| curve.miss_ratio(1000.0).unwrap();
    println!("{} without age, {} with", missed(&old), missed(&young));
    assert!((missed(&old) - 0.5).abs() < 0.05 && missed(&young) > 0.9);
    assert_eq!((old.reads(), young.reads()), (800_000.0, 800_000.0));
    let (later, small) = (young.miss_ratio_later(5000.0).unwrap(), young.miss_ratio(5000.0).unwrap());
    assert!(later < 0.05 && small < 0.05, "all of it is had: {later}, {small}");
}
