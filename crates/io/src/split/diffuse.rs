//! How a share of requests for each device becomes a device for each request.
//!
//! [`diffuse`] carries the rounding error of each request to the next one. Over any run of requests a device of two gets within
//! one request of its share, and within half a request of it counted from the start. [`Batch`] is Algorithm 1 of NetCAS, batched
//! weighted round robin, as printed or with its comparison mended; the benchmark and the policies named after the paper use it.
//!
//! Both keep their state in one word, so that a lane changes it with one compare-and-swap.

use super::{DEVICES_MAX, Mask, PerDevice, members};

/// Weights of one plan add up to this.
pub const WHOLE: i32 = 8192;

/// What each device is owed, in parts of [`WHOLE`] requests. The sum is 0, apart from what unusable devices are owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credits(pub PerDevice<i16>);

impl Credits {
    pub fn from_word(word: u64) -> Credits {
        Credits(std::array::from_fn(|device| (word >> (16 * device)) as u16 as i16))
    }
    pub fn word(self) -> u64 {
        self.0
            .iter()
            .enumerate()
            .fold(0, |word, (device, credit)| word | u64::from(*credit as u16) << (16 * device))
    }
}

/// The next device of `usable` by their weights, and what the devices are owed afterwards. Devices that are not usable keep what
/// they are owed. None if no usable device has a weight.
pub fn diffuse(credits: Credits, weights: &PerDevice<u16>, usable: Mask) -> Option<(usize, Credits)> {
    let total: i32 = members(usable).map(|device| i32::from(weights[device])).sum();
    if total == 0 {
        return None;
    }
    let mut owed = credits.0.map(i32::from);
    let mut best = None;
    for device in members(usable).filter(|device| weights[*device] > 0) {
        owed[device] += i32::from(weights[device]) * WHOLE / total;
        if best.is_none_or(|best: usize| owed[device] > owed[best]) {
            best = Some(device);
        }
    }
    let chosen = best?;
    owed[chosen] -= WHOLE;
    Some((chosen, Credits(owed.map(|credit| credit.clamp(-2 * WHOLE, 2 * WHOLE) as i16))))
}

/// The window and the longest pattern of Algorithm 1. The paper leaves both open; its published code has these values.
pub const WINDOW: u32 = 100;
pub const BATCH: u32 = 10;

/// The state of Algorithm 1 between two requests. All zero: before the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Requests of this window that were dispatched, plus one; 0: no window was begun.
    count: u8,
    position: u8,
    pattern: u8,
    pattern_cache: u8,
    cache_quota: u8,
    backend_quota: u8,
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Batch {
    pub fn from_word(word: u64) -> Batch {
        let [count, position, pattern, pattern_cache, cache_quota, backend_quota, _, _] = word.to_le_bytes();
        let left = (WINDOW + 1).checked_sub(u32::from(count));
        let is_sound = left == Some(u32::from(cache_quota) + u32::from(backend_quota)) && pattern > 0;
        match is_sound {
            true => Batch { count, position, pattern, pattern_cache, cache_quota, backend_quota },
            // Another dispatcher used the word before.
            false => Batch::default(),
        }
    }

    pub fn word(self) -> u64 {
        let Batch { count, position, pattern, pattern_cache, cache_quota, backend_quota } = self;
        u64::from_le_bytes([count, position, pattern, pattern_cache, cache_quota, backend_quota, 0, 0])
    }

    /// Lines 7 to 20 of Algorithm 1 for one request: 0 is the cache, 1 the backend, and the next state. `share` is ρ in parts of
    /// [`WHOLE`]. `printed` compares as line 14 does, with `>`; otherwise with `≥`, as is meant.
    pub fn next(mut self, share: u16, printed: bool) -> (usize, Batch) {
        if self.count == 0 || u32::from(self.count) > WINDOW {
            let a = ((u32::from(share) * WINDOW + WHOLE as u32 / 2) / WHOLE as u32).min(WINDOW);
            let b = WINDOW - a;
            let pattern = (WINDOW / gcd(a, b)).min(BATCH);
            self = Batch {
                count: 1,
                position: 0,
                pattern: pattern as u8,
                pattern_cache: (pattern * a / WINDOW) as u8,
                cache_quota: a as u8,
                backend_quota: b as u8,
            };
        }
        let chosen = if self.cache_quota > 0 && self.backend_quota > 0 {
            let to_backend = match printed {
                true => self.position > self.pattern_cache,
                false => self.position >= self.pattern_cache,
            };
            self.position = (self.position + 1) % self.pattern;
            usize::from(to_backend)
        } else {
            usize::from(self.cache_quota == 0)
        };
        match chosen {
            0 => self.cache_quota -= 1,
            _ => self.backend_quota -= 1,
        }
        self.count += 1;
        (chosen, self)
    }
}

/// Shares as weights: the shares are scaled so that they add up to [`WHOLE`], as far as rounding allows.
pub fn weights(shares: &PerDevice<f64>) -> PerDevice<u16> {
    let total: f64 = shares.iter().sum();
    if total <= 0.0 || !total.is_finite() {
        return std::array::from_fn(|device| if device == 0 { WHOLE as u16 } else { 0 });
    }
    std::array::from_fn(|device| (shares[device].max(0.0) / total * f64::from(WHOLE)).round() as u16)
}

const _: () = assert!(DEVICES_MAX * 16 <= 64);

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest deviation of device 0 from its share over a long run, counted from the start of each window.
    fn deviation(share: f64, mut next: impl FnMut() -> usize) -> f64 {
        let (mut got, mut worst) = (0.0, 0.0f64);
        for request in 1..=(10 * WINDOW) {
            got += if next() == 0 { 1.0 } else { 0.0 };
            worst = worst.max((got - share * f64::from(request)).abs());
        }
        worst
    }

    fn batched(share: f64, printed: bool) -> impl FnMut() -> usize {
        let mut state = Batch::default();
        let weight = (share * f64::from(WHOLE)).round() as u16;
        move || {
            let (chosen, next) = state.next(weight, printed);
            state = Batch::from_word(next.word());
            chosen
        }
    }

    fn diffused(share: f64) -> impl FnMut() -> usize {
        let mut state = Credits::default();
        let weights = weights(&[share, 1.0 - share, 0.0, 0.0]);
        move || {
            let (chosen, next) = diffuse(state, &weights, 0b11).unwrap();
            state = Credits::from_word(next.word());
            chosen
        }
    }

    #[test]
    fn diffused_requests_are_within_half_a_request_of_their_share() {
        for percent in 0..=100 {
            let share = f64::from(percent) / 100.0;
            // Weights are rounded to one part of 8192: over a thousand requests that is an eighth of a request.
            let worst = deviation(share, diffused(share));
            assert!(worst <= 0.5 + 1000.0 / 8192.0, "{share}: {worst}");
        }
    }

    #[test]
    fn the_printed_comparison_sends_runs_of_fifty_at_an_even_split() {
        let mut next = batched(0.5, true);
        let sent: Vec<usize> = (0..100).map(|_| next()).collect();
        let longest = sent.chunk_by(|a, b| a == b).map(<[usize]>::len).max();
        assert_eq!(longest, Some(50));
        let mut mended = batched(0.5, false);
        let sent: Vec<usize> = (0..100).map(|_| mended()).collect();
        assert_eq!(sent.chunk_by(|a, b| a == b).map(<[usize]>::len).max(), Some(1));
    }

    #[test]
    fn truncated_patterns_deviate_by_several_requests_and_diffusion_does_not() {
        let worst = (1..100).map(|p| deviation(f64::from(p) / 100.0, batched(f64::from(p) / 100.0, false)));
        let worst = worst.fold(0.0, f64::max);
        assert!((5.0..10.0).contains(&worst), "{worst}");
    }

    #[test]
    fn each_window_of_a_batch_has_its_share_exactly() {
        for (percent, printed) in (0..=100_u32).flat_map(|p| [(p, true), (p, false)]) {
            let mut next = batched(f64::from(percent) / 100.0, printed);
            for _ in 0..3 {
                let cache = (0..WINDOW).filter(|_| next() == 0).count();
                assert_eq!(cache, percent as usize, "printed: {printed}");
            }
        }
    }

    #[test]
    fn three_devices_get_their_shares_and_an_unusable_one_nothing() {
        let weights = weights(&[5.0, 3.0, 2.0, 0.0]);
        let (mut state, mut got) = (Credits::default(), [0; 3]);
        for _ in 0..1000 {
            let (chosen, next) = diffuse(state, &weights, 0b111).unwrap();
            state = next;
            got[chosen] += 1;
        }
        assert!(got.iter().zip([500i32, 300, 200]).all(|(got, wanted)| (got - wanted).abs() <= 1), "{got:?}");
        for _ in 0..100 {
            let (chosen, next) = diffuse(state, &weights, 0b101).unwrap();
            state = next;
            assert_ne!(chosen, 1);
        }
        assert_eq!(diffuse(state, &weights, 0b1000), None);
    }
}
