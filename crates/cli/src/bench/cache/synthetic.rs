//! Made traces: `zipf:EXPONENT:OBJECTS:REQUESTS` and `loop:OBJECTS:REQUESTS`, with more behind a further colon, in any
//! order: `per-page=15` (neighbours share a page), `scatter` (popular objects are no neighbours), `writes=5` (percent
//! that change the page), `seed=7`.

use super::trace::{Access, Builder, OBJECTS_MAX, Result, Trace};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// What the description may say, for people.
pub const FORMS: &str = "zipf:EXPONENT:OBJECTS:REQUESTS or loop:OBJECTS:REQUESTS, and then per-page=N, scatter, writes=PERCENT, seed=N";

struct Extras {
    per_page: u64,
    scatter: bool,
    writes: f64,
    seed: u64,
}

fn extras(text: Option<&str>, seed: u64) -> Option<Extras> {
    let mut extras = Extras { per_page: 1, scatter: false, writes: 0.0, seed };
    for one in text.into_iter().flat_map(|text| text.split(',')) {
        match one.split_once('=').unwrap_or((one, "")) {
            ("per-page", n) => extras.per_page = n.parse().ok().filter(|n| *n > 0)?,
            ("scatter", "") => extras.scatter = true,
            ("writes", n) => {
                let percent: f64 = n.parse().ok().filter(|n| (0.0..=100.0).contains(n))?;
                extras.writes = percent / 100.0;
            }
            ("seed", n) => extras.seed = n.parse().ok()?,
            _ => return None,
        }
    }
    Some(extras)
}

/// The trace of the description, if it is one and no file.
pub fn make(what: &str, seed: u64) -> Option<Result<Trace>> {
    let parts: Vec<&str> = what.split(':').collect();
    let wrong = || Err(format!("a made trace is {FORMS}"));
    match *parts.first()? {
        "zipf" | "loop" => Some(made(&parts, seed).unwrap_or_else(wrong)),
        _ => None,
    }
}

fn made(parts: &[&str], seed: u64) -> Option<Result<Trace>> {
    let count =
        |at: usize| parts.get(at)?.parse::<u64>().ok().filter(|n| (1..=OBJECTS_MAX as u64).contains(n));
    let zipf = parts[0] == "zipf";
    let at = if zipf { 2 } else { 1 };
    let (objects, requests) = (count(at)?, count(at + 1)?);
    if parts.len() > at + 3 {
        return None;
    }
    let extras = extras(parts.get(at + 2).copied(), seed)?;
    let ranks = match zipf {
        true => {
            let exponent = parts.get(1)?.parse::<f64>().ok().filter(|e| *e >= 0.0)?;
            Some(Zipf::new(objects as f64, exponent).ok()?)
        }
        false => None,
    };
    let mut random = SmallRng::seed_from_u64(extras.seed);
    let mut builder = Builder::default();
    for n in 0..requests {
        let rank = match &ranks {
            Some(zipf) => zipf.sample(&mut random) as u64 - 1,
            None => n % objects,
        };
        let object = if extras.scatter { scattered(rank, objects) } else { rank };
        let write = extras.writes > 0.0 && random.random_bool(extras.writes);
        builder.add(Access { write, ..Access::read(object / extras.per_page) });
    }
    Some(builder.finish())
}

/// Another object for each rank: a permutation of `0..objects`, by a cycle of a power of two whose numbers
/// beyond `objects` are walked over.
fn scattered(rank: u64, objects: u64) -> u64 {
    let mask = objects.next_power_of_two() - 1;
    let shift = mask.count_ones() / 2 + 1;
    let mut at = rank;
    loop {
        at = at.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask;
        at ^= at >> shift;
        at = at.wrapping_mul(0xBF58_476D_1CE4_E5B9) & mask;
        if at < objects {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattering_is_a_permutation() {
        for objects in [1, 2, 3, 100, 4096, 5000] {
            let mut seen: Vec<u64> = (0..objects).map(|rank| scattered(rank, objects)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..objects), "{objects} objects");
        }
    }

    #[test]
    fn a_synthetic_trace_matches_its_description() {
        let uses = |what: &str| -> Vec<(u32, bool)> {
            make(what, 1).expect("it is a description").expect("it is right").uses().collect()
        };
        assert_eq!(uses("loop:3:7").iter().map(|u| u.0).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(uses("loop:4:4:per-page=2").iter().map(|u| u.0).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!(uses("zipf:1.2:1000:5000"), uses("zipf:1.2:1000:5000:seed=1"), "the seed alone decides");
        assert_ne!(uses("zipf:1.2:1000:5000"), uses("zipf:1.2:1000:5000:seed=2"));
        let changes = uses("zipf:1.2:1000:5000:writes=20,scatter").iter().filter(|u| u.1).count();
        assert!((900..1100).contains(&changes), "{changes} of 5000");
        // The first rank has 1/H of the uses; H of 1000 ranks and exponent 1 is 7.485.
        let zipf = make("zipf:1:1000:20000", 3).expect("it is a description").expect("it is right");
        let mut counts = vec![0; zipf.objects()];
        zipf.uses().for_each(|(object, _)| counts[object as usize] += 1);
        let most = counts.iter().max().copied().unwrap_or(0);
        assert!((2500..2850).contains(&most), "{most} of 20000");
        for wrong in [
            "zipf",
            "zipf:1:0:5",
            "zipf:x:5:5",
            "loop:5",
            "loop:5:5:writes=101",
            "loop:5:5:what=1",
            "zipf:1:2:3:seed=1:4",
        ] {
            assert!(make(wrong, 1).is_some_and(|made| made.is_err()), "`{wrong}`");
        }
        assert!(make("some.csv", 1).is_none());
    }
}
