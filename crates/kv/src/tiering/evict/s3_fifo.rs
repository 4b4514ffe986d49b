//! S3-FIFO on samples.
//!
//! The mark is one bit for the queue (small or main), two bits of uses, and 29 bits of the time at which the entry joined its queue. New entries join the
//! small queue, those whose hash the ghost list still has join main at once. When small holds more than a tenth of the entries, its oldest candidate
//! goes, unless it was used more than once: then it moves to main. Else main's oldest goes, unless it was used: then it joins main again with one
//! use less. The queues are only orders of time: the oldest of a sample stands for the head.
//!
//! The ghost list is a table of fingerprints with a clock of its own: an evicted entry is remembered for as many evictions as main has entries.

use super::{Candidate, Mark, Policy, Verdict};

const MAIN: u32 = 1 << 31;
const USES_SHIFT: u32 = 29;
const USES_MAX: u32 = 3;
const TIME: u32 = (1 << USES_SHIFT) - 1;
/// Small's share of the entries, as a divisor.
const SMALL_SHARE: u64 = 10;

/// Fingerprint and time of an evicted entry.
#[derive(Clone, Copy, Default)]
struct Ghost {
    fingerprint: u32,
    evicted: u32,
}

pub struct S3Fifo {
    now: u32,
    small: u64,
    main: u64,
    evictions: u32,
    ghosts: Box<[Ghost]>,
}

fn uses(mark: Mark) -> u32 {
    mark.0 >> USES_SHIFT & USES_MAX
}

fn is_main(mark: Mark) -> bool {
    mark.0 & MAIN != 0
}

impl S3Fifo {
    /// `entries`: about how many fit.
    pub fn new(entries: usize) -> S3Fifo {
        let ghosts = vec![Ghost::default(); entries.next_power_of_two().clamp(64, 1 << 24)].into();
        S3Fifo { now: 0, small: 0, main: 0, evictions: 1, ghosts }
    }

    fn mark(&self, queue: u32, uses: u32) -> Mark {
        Mark(queue | uses << USES_SHIFT | self.now & TIME)
    }

    fn ghost(&mut self, hash: u64) -> (&mut Ghost, u32) {
        let slot = hash as usize & (self.ghosts.len() - 1);
        (&mut self.ghosts[slot], (hash >> 32) as u32)
    }

    fn age(&self, mark: Mark) -> u32 {
        self.now.wrapping_sub(mark.0 & TIME) & TIME
    }

    /// The oldest candidate of a queue.
    fn oldest(&self, candidates: &[Candidate], of_main: bool) -> Option<usize> {
        let of_queue = candidates.iter().enumerate().filter(|(_, one)| is_main(one.mark) == of_main);
        of_queue.max_by_key(|(_, one)| self.age(one.mark)).map(|(index, _)| index)
    }
}

impl Policy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
    }

    fn admitted(&mut self, hash: u64) -> Mark {
        self.now = self.now.wrapping_add(1);
        let (evictions, remembered) = (self.evictions, self.main.max(64));
        let (ghost, fingerprint) = self.ghost(hash);
        let is_known = ghost.evicted != 0
            && ghost.fingerprint == fingerprint
            && u64::from(evictions.wrapping_sub(ghost.evicted)) <= remembered;
        if is_known {
            *ghost = Ghost::default();
            self.main += 1;
            return self.mark(MAIN, 0);
        }
        self.small += 1;
        self.mark(0, 0)
    }

    fn used(&mut self, mark: Mark, _: u64) -> Mark {
        match uses(mark) {
            USES_MAX => mark,
            _ => Mark(mark.0 + (1 << USES_SHIFT)),
        }
    }

    fn victim(&mut self, candidates: &[Candidate]) -> Verdict {
        let from_small = self.small * SMALL_SHARE > self.small + self.main;
        let Some(index) =
            self.oldest(candidates, !from_small).or_else(|| self.oldest(candidates, from_small))
        else {
            return Verdict::Evict(0);
        };
        let mark = candidates[index].mark;
        let spared = match (is_main(mark), uses(mark)) {
            (false, 0 | 1) | (true, 0) => return Verdict::Evict(index),
            (false, _) => {
                self.small = self.small.saturating_sub(1);
                self.main += 1;
                self.mark(MAIN, 0)
            }
            (true, uses) => self.mark(MAIN, uses - 1),
        };
        self.now = self.now.wrapping_add(1);
        let mut marks: Vec<Mark> = candidates.iter().map(|candidate| candidate.mark).collect();
        marks[index] = spared;
        Verdict::Spare(marks)
    }

    fn evicted(&mut self, candidate: Candidate) {
        self.deleted(candidate.mark);
        self.now = self.now.wrapping_add(1);
        self.evictions = self.evictions.wrapping_add(1).max(1);
        if !is_main(candidate.mark) {
            let evicted = self.evictions;
            let (ghost, fingerprint) = self.ghost(candidate.hash);
            *ghost = Ghost { fingerprint, evicted };
        }
    }

    fn deleted(&mut self, mark: Mark) {
        let queue = if is_main(mark) { &mut self.main } else { &mut self.small };
        *queue = queue.saturating_sub(1);
    }
}
