//! Least frequently used, of a sample, with decay.
//!
//! The mark is 24 bits of time and 8 bits of a logarithmic counter, which grows with a probability that falls with its value and falls by one each
//! [`DECAY`] units of time. A new entry starts at [`FIRST`], so that it is not the first to go.

use super::{Candidate, Mark, Policy, Verdict};

const FIRST: u32 = 5;
const FACTOR: u64 = 10;
/// Time that takes one off a counter.
const DECAY: u32 = 1 << 14;
const TIME_BITS: u32 = 24;
const TIME: u32 = (1 << TIME_BITS) - 1;

#[derive(Default)]
pub struct Lfu {
    now: u32,
}

impl Lfu {
    fn count(&self, mark: Mark) -> u32 {
        let age = self.now.wrapping_sub(mark.0 & TIME) & TIME;
        (mark.0 >> TIME_BITS).saturating_sub(age / DECAY)
    }
    fn mark(&self, count: u32) -> Mark {
        Mark(count << TIME_BITS | self.now & TIME)
    }
}

impl Policy for Lfu {
    fn name(&self) -> &'static str {
        "lfu"
    }
    fn frequency(&self, mark: Mark) -> Option<u32> {
        Some(self.count(mark))
    }
    fn admitted(&mut self, _: u64) -> Mark {
        self.now = self.now.wrapping_add(1);
        self.mark(FIRST)
    }
    fn used(&mut self, mark: Mark, random: u64) -> Mark {
        self.now = self.now.wrapping_add(1);
        let count = self.count(mark);
        let odds = u64::from(count.saturating_sub(FIRST)) * FACTOR + 1;
        self.mark(if count < 255 && random.is_multiple_of(odds) { count + 1 } else { count })
    }
    fn victim(&mut self, candidates: &[Candidate]) -> Verdict {
        let rank = |candidate: &Candidate| {
            let age = self.now.wrapping_sub(candidate.mark.0 & TIME) & TIME;
            (self.count(candidate.mark), std::cmp::Reverse(age))
        };
        let least = candidates.iter().enumerate().min_by_key(|(_, candidate)| rank(candidate));
        Verdict::Evict(least.map_or(0, |(index, _)| index))
    }
    fn evicted(&mut self, _: Candidate) {}
    fn deleted(&mut self, _: Mark) {}
}
