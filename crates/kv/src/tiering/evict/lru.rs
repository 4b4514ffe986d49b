//! Least recently used, of a sample. The mark is the time of the last use.

use super::{Candidate, Mark, Policy, Verdict};

#[derive(Default)]
pub struct Lru {
    now: u32,
}

#[cfg(test)]
impl Lru {
    pub fn at(now: u32) -> Lru {
        Lru { now }
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }
    fn admitted(&mut self, _: u64) -> Mark {
        self.now = self.now.wrapping_add(1);
        Mark(self.now)
    }
    fn used(&mut self, _: Mark, _: u64) -> Mark {
        self.now = self.now.wrapping_add(1);
        Mark(self.now)
    }
    fn victim(&mut self, candidates: &[Candidate]) -> Verdict {
        let age = |candidate: &Candidate| self.now.wrapping_sub(candidate.mark.0);
        let oldest = candidates.iter().enumerate().max_by_key(|(_, candidate)| age(candidate));
        Verdict::Evict(oldest.map_or(0, |(index, _)| index))
    }
    fn evicted(&mut self, _: Candidate) {}
    fn deleted(&mut self, _: Mark) {}
}
