//! Recent request counts of pages, estimated: a count-min sketch whose counts fade (TinyLFU).
//!
//! A page's four counters are in one cache line, so recording and querying touch one line. Only the lowest of the four is
//! incremented (conservative update). Counts fade evenly: at regular intervals one line is halved, each line once in a window. An
//! estimate is never below the true count of the window, and above it where pages share counters.

/// Words of a line, sixteen counters of four bits each.
const WORDS: usize = 8;
/// Counters of a page, each in two words of the line that are its own.
const ROWS: usize = 4;
/// Bytes of counters for a page of the cache.
const BYTES: usize = 3;
/// Where a count stops.
pub const MOST: u8 = 15;
const HALVES: u64 = 0x7777_7777_7777_7777;

#[repr(align(64))]
#[derive(Clone)]
struct Line([u64; WORDS]);

pub struct Sketch {
    lines: Vec<Line>,
    /// Notes from one line's halving to the next's.
    every: u64,
    notes: u64,
    /// Halved next.
    next: usize,
}

/// A counter's word in the line, and its shift.
type Place = (usize, u32);

fn count(line: &Line, (word, shift): Place) -> u8 {
    (line.0[word] >> shift) as u8 & MOST
}

impl Sketch {
    /// For a cache of `pages`; what was noted counts half when `window` times as many notes have come.
    pub fn new(pages: usize, window: usize) -> Sketch {
        let lines = (pages * BYTES).div_ceil(size_of::<Line>()).max(1);
        let every = ((pages * window) as u64 / lines as u64).max(1);
        Sketch { lines: vec![Line([0; WORDS]); lines], every, notes: 0, next: 0 }
    }

    /// The line of a well-mixed mark and the places of its counters in it.
    fn places(&self, mark: u32) -> (usize, [Place; ROWS]) {
        let line = (u64::from(mark) * self.lines.len() as u64) >> 32;
        // The line has used the upper bits up.
        let mixed = u64::from(mark).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let place = |row: usize| {
            let at = mixed >> (5 * row) & 31;
            (2 * row + (at as usize >> 4), 4 * (at as u32 & 15))
        };
        (line as usize, std::array::from_fn(place))
    }

    /// The page was asked for.
    pub fn note(&mut self, mark: u32) {
        let (at, places) = self.places(mark);
        let line = &mut self.lines[at];
        let least = places.iter().map(|place| count(line, *place)).min().unwrap_or(MOST);
        for (word, shift) in places {
            if least < MOST && count(line, (word, shift)) == least {
                line.0[word] += 1 << shift;
            }
        }
        self.notes += 1;
        if self.notes >= self.every {
            self.notes = 0;
            self.lines[self.next].0.iter_mut().for_each(|word| *word = *word >> 1 & HALVES);
            self.next = (self.next + 1) % self.lines.len();
        }
    }

    pub fn estimate(&self, mark: u32) -> u8 {
        let (at, places) = self.places(mark);
        places.iter().map(|place| count(&self.lines[at], *place)).min().unwrap_or(0)
    }

    /// Memory that it has, in bytes.
    pub fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::spread;
    use crate::page::{PageId, SpaceId};

    fn mark(n: u32) -> u32 {
        (spread(PageId::new(SpaceId(20), n)) >> 32) as u32
    }

    #[test]
    fn an_estimate_is_never_below_the_count_and_mostly_right() {
        let mut sketch = Sketch::new(1000, 1_000_000);
        let count = |n: u32| n % 10;
        for n in 0..400 {
            (0..count(n)).for_each(|_| sketch.note(mark(n)));
        }
        let mut right = 0;
        for n in 0..400 {
            let estimate = u32::from(sketch.estimate(mark(n)));
            assert!(estimate >= count(n), "page {n}: {estimate} of {}", count(n));
            right += u32::from(estimate == count(n));
        }
        assert!(right > 320, "{right} of 400 are right");
        assert_eq!(sketch.bytes(), (3_usize * 1000).next_multiple_of(64));
    }

    #[test]
    fn counts_fade_by_half_in_a_window() {
        let mut sketch = Sketch::new(160, 10);
        (0..12).for_each(|_| sketch.note(mark(1)));
        let before = sketch.estimate(mark(1));
        assert!(before >= 11, "{before}");
        // A window of notes of one other page: what fades is the age, not a full sketch.
        (0..1600).for_each(|_| sketch.note(mark(2)));
        let after = sketch.estimate(mark(1));
        assert!((5..=6).contains(&after), "{before}, then {after}");
        assert!(sketch.estimate(mark(2)) >= 14, "a count stops at its end instead of beginning anew");
    }
}
