use super::*;
use hashbrown::HashMap;

const SAMPLE: usize = 10;

/// A generator of numbers that is the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// About Zipf with exponent 1 over `n` keys.
    fn zipf(&mut self, n: u64) -> u64 {
        (((n as f64).ln() * self.unit()).exp() as u64).min(n) - 1
    }
}

/// A cache of `room` entries; returns the share of hits.
fn hits(policy: &mut dyn Policy, room: usize, trace: impl Iterator<Item = u64>) -> f64 {
    let mut numbers = Numbers(7);
    let mut place: HashMap<u64, usize> = HashMap::new();
    let mut entries: Vec<(u64, Mark)> = Vec::new();
    let hash = |key: u64| Numbers(key).next();
    let (mut hits, mut all) = (0, 0);
    for key in trace {
        all += 1;
        if let Some(&at) = place.get(&key) {
            hits += 1;
            entries[at].1 = policy.used(entries[at].1, numbers.next());
            continue;
        }
        let mut spared = 0;
        while entries.len() >= room {
            let drawn: Vec<usize> = (0..SAMPLE).map(|_| numbers.next() as usize % entries.len()).collect();
            let candidate = |&at: &usize| Candidate { hash: hash(entries[at].0), mark: entries[at].1 };
            let candidates: Vec<Candidate> = drawn.iter().map(candidate).collect();
            match policy.victim(&candidates) {
                Verdict::Spare(marks) => {
                    spared += 1;
                    assert!(spared < 1000, "{} evicts nothing", policy.name());
                    drawn.iter().zip(marks).zip(&candidates).for_each(|((&at, mark), before)| {
                        // An entry drawn twice keeps the change.
                        if mark != before.mark {
                            entries[at].1 = mark;
                        }
                    });
                }
                Verdict::Evict(index) => {
                    let at = drawn[index];
                    policy.evicted(candidates[index]);
                    place.remove(&entries[at].0);
                    entries.swap_remove(at);
                    if let Some((moved, _)) = entries.get(at) {
                        place.insert(*moved, at);
                    }
                }
            }
        }
        place.insert(key, entries.len());
        entries.push((key, policy.admitted(hash(key))));
    }
    f64::from(hits) / f64::from(all)
}

fn all(room: usize, trace: impl Fn() -> Vec<u64>) -> HashMap<&'static str, f64> {
    let share = |name: &'static str| {
        let mut policy = by_name(name, room).expect("it has this policy");
        let share = hits(&mut *policy, room, trace().into_iter());
        eprintln!("{name}: {:.1} % hits", share * 100.0);
        (name, share)
    };
    ["lru", "lfu", "s3-fifo"].into_iter().map(share).collect()
}

#[test]
fn skewed_reads_hit_more_with_s3_fifo_and_lfu_than_with_lru() {
    let trace = || {
        let mut numbers = Numbers(1);
        (0..300_000).map(|_| numbers.zipf(100_000)).collect()
    };
    let hits = all(2_000, trace);
    assert!(hits["s3-fifo"] > hits["lru"] && hits["lfu"] > hits["lru"], "{hits:?}");
    // The 2,000 most popular keys of 100,000 have ln 2000 / ln 100000 = 66 % of the reads.
    assert!(hits.values().all(|share| (0.5..0.67).contains(share)), "{hits:?}");
}

#[test]
fn scans_do_not_flush_what_is_popular_out_of_s3_fifo() {
    // Half of the reads are a scan that never returns.
    let trace = || {
        let mut numbers = Numbers(2);
        let scan = |at: u64| 1_000_000 + at;
        (0..300_000).map(|at| if at % 2 == 0 { numbers.zipf(100_000) } else { scan(at) }).collect()
    };
    let hits = all(2_000, trace);
    assert!(hits["s3-fifo"] > hits["lru"] * 1.08, "{hits:?}");
}

#[test]
fn every_policy_follows_a_change_of_what_is_popular() {
    let trace = || {
        let mut numbers = Numbers(3);
        (0..400_000u64).map(|at| numbers.zipf(100_000) + if at < 200_000 { 0 } else { 10_000_000 }).collect()
    };
    let hits = all(2_000, trace);
    assert!(hits.values().all(|share| *share > 0.45), "{hits:?}");
}

#[test]
fn what_returns_soon_after_its_eviction_joins_main_in_s3_fifo() {
    let mut policy = S3Fifo::new(64);
    let first = Candidate { hash: 1 << 40 | 1, mark: policy.admitted(1 << 40 | 1) };
    assert_eq!(policy.victim(&[first]), Verdict::Evict(0));
    policy.evicted(first);
    let returned = policy.admitted(first.hash);
    let mark = policy.used(returned, 0);
    // It is spared once for its use.
    let Verdict::Spare(marks) = policy.victim(&[Candidate { mark, ..first }]) else { panic!("it goes") };
    assert_eq!(policy.victim(&[Candidate { mark: marks[0], ..first }]), Verdict::Evict(0));
}

#[test]
fn the_order_of_lru_survives_a_wrap_of_its_time() {
    let mut lru = Lru::at(u32::MAX - 1);
    let old = Candidate { hash: 1, mark: lru.admitted(1) };
    let _ = lru.admitted(2);
    let new = Candidate { hash: 3, mark: lru.admitted(3) };
    assert_eq!(lru.victim(&[new, old]), Verdict::Evict(1));
}
