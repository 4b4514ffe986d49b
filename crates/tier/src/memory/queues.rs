//! The eviction order of pages: `old` and `young`.
//!
//! Pages from below enter `old`. When a page reaches the end of `old` and was used again in memory, it moves to `young` (a
//! sampled promotion: a hit moves nothing). `young` is a CLOCK of bounded share; a page that reaches its end unused goes back to
//! `old` and is evicted from there. Pages read only to open or sample a table (`Access::Once`) are queued in `first`, and are
//! evicted before `old`. If such a page was used meanwhile, it goes to `old` as if it had just been read. CloudJump III §4.1.1.

use crate::memory::frame::FrameNo;
use std::collections::VecDeque;

/// Number of pages in `old` that may be skipped as not evictable before `young` is searched instead.
const SKIPS_MAX: usize = 256;

/// Share of the frames that `young` may hold, in eighths.
const YOUNG_EIGHTHS: usize = 7;

/// Stale entries allowed in addition to one entry a frame, before all entries are swept.
const STALE_MIN: usize = 64;

/// While as many pages arrive as the pool has frames, this many periods pass.
const PERIODS: usize = 32;

/// What the pool reports about a frame when its turn comes.
pub(crate) struct FrameReport {
    /// The entry belongs to a page that has left the frame.
    pub stale: bool,
    pub accesses: u8,
    /// Clean and unpinned.
    pub evictable: bool,
}

/// The queue that a page enters when it comes into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryQueue {
    First,
    Old,
}

pub(crate) struct Queues {
    first: VecDeque<(FrameNo, u32)>,
    old: VecDeque<(FrameNo, u32)>,
    young: VecDeque<(FrameNo, u32)>,
    young_max: usize,
    /// Frames whose access count the caller is to reset.
    pub cooled: Vec<FrameNo>,
    pub promoted: u64,
    arrivals: usize,
    /// Arrivals in a period.
    period: usize,
    /// At this number of entries at least half of them are stale, and they are swept.
    sweep_at: usize,
}

impl Queues {
    pub fn new(frames: usize) -> Queues {
        Queues {
            first: VecDeque::new(),
            old: VecDeque::with_capacity(frames),
            young: VecDeque::with_capacity(frames),
            young_max: frames * YOUNG_EIGHTHS / 8,
            cooled: Vec::new(),
            promoted: 0,
            arrivals: 0,
            period: (frames / PERIODS).max(1),
            sweep_at: 2 * frames + STALE_MIN,
        }
    }

    /// Sets the number of frames. The current period is kept.
    pub fn resize(&mut self, frames: usize) {
        let now = self.arrivals / self.period;
        self.period = (frames / PERIODS).max(1);
        self.arrivals = now * self.period;
        self.young_max = frames * YOUNG_EIGHTHS / 8;
    }

    /// Counts a page that came into memory. Returns the current period: the clock of replacement.
    pub fn arrived(&mut self) -> u32 {
        self.arrivals += 1;
        (self.arrivals / self.period) as u32
    }

    pub fn push(&mut self, no: FrameNo, turn: u32, place: EntryQueue) {
        match place {
            EntryQueue::First => self.first.push_back((no, turn)),
            EntryQueue::Old => self.push_old(no, turn),
        }
    }

    pub fn push_old(&mut self, no: FrameNo, turn: u32) {
        self.old.push_back((no, turn));
    }

    pub fn entries(&self) -> usize {
        self.first.len() + self.old.len() + self.young.len()
    }

    /// Whether there is an entry, for tests.
    pub fn has(&self, no: FrameNo, turn: u32) -> bool {
        self.first.iter().chain(&self.old).chain(&self.young).any(|entry| *entry == (no, turn))
    }

    /// Removes stale entries once they are the majority. An eviction removes its page's entry. Pages of a dropped space leave
    /// theirs behind, and while tables are created and dropped in free frames nothing searches for a victim.
    pub fn sweep(&mut self, is_stale: impl Fn(FrameNo, u32) -> bool) {
        if self.entries() < self.sweep_at {
            return;
        }
        for queue in [&mut self.first, &mut self.old, &mut self.young] {
            queue.retain(|(no, turn)| !is_stale(*no, *turn));
        }
        self.sweep_at = 2 * self.entries() + STALE_MIN;
    }

    /// Frames next in line for eviction, nearest first.
    pub fn old_tail(&self, max: usize) -> impl Iterator<Item = FrameNo> + '_ {
        self.first.iter().chain(&self.old).take(max).map(|(no, _)| *no)
    }

    /// Removes the next victim from the queues and returns it. Looks at each queued page at most once; those that stay are
    /// requeued.
    pub fn next_victim(&mut self, look: impl Fn(FrameNo, u32) -> FrameReport) -> Option<FrameNo> {
        while let Some((no, turn)) = self.first.pop_front() {
            let seen = look(no, turn);
            if !seen.stale && seen.accesses == 0 && seen.evictable {
                return Some(no);
            }
            if !seen.stale {
                self.old.push_back((no, turn));
            }
        }
        let mut skipped = 0;
        let mut budget = self.old.len() + self.young.len();
        while budget > 0 {
            budget -= 1;
            if self.old.is_empty() {
                self.shrink_young(&look, 1);
            }
            if skipped >= SKIPS_MAX.min(self.old.len()) && skipped > 0 {
                break;
            }
            let (no, turn) = self.old.pop_front()?;
            let seen = look(no, turn);
            if seen.stale {
                continue;
            }
            if seen.accesses > 1 {
                self.promoted += 1;
                self.cooled.push(no);
                self.young.push_back((no, turn));
                if self.young.len() > self.young_max {
                    self.shrink_young(&look, self.young.len() - self.young_max);
                }
            } else if seen.evictable {
                return Some(no);
            } else {
                skipped += 1;
                self.old.push_back((no, turn));
            }
        }
        self.victim_of_young(&look)
    }

    /// A victim from `young`, sparing pages in use once: `old` is full of pages that cannot be evicted, such as dirty ones that
    /// cannot be flushed now.
    fn victim_of_young(&mut self, look: &impl Fn(FrameNo, u32) -> FrameReport) -> Option<FrameNo> {
        for _ in 0..(2 * self.young.len()).min(2 * SKIPS_MAX) {
            let (no, turn) = self.young.pop_front()?;
            let seen = look(no, turn);
            if seen.stale {
                continue;
            }
            let in_use = seen.accesses > 0 && !self.cooled.contains(&no);
            if !in_use && seen.evictable {
                return Some(no);
            }
            if in_use {
                self.cooled.push(no);
            }
            self.young.push_back((no, turn));
        }
        None
    }

    /// Moves up to `count` pages from the end of `young` to `old`, sparing pages in use once.
    fn shrink_young(&mut self, look: &impl Fn(FrameNo, u32) -> FrameReport, count: usize) {
        let mut moved = 0;
        for _ in 0..2 * self.young.len() {
            if moved == count {
                return;
            }
            let Some((no, turn)) = self.young.pop_front() else { return };
            let seen = look(no, turn);
            if seen.stale {
                moved += 1;
            } else if seen.accesses > 0 && !self.cooled.contains(&no) {
                self.cooled.push(no);
                self.young.push_back((no, turn));
            } else {
                self.old.push_back((no, turn));
                moved += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::HashSet;

    /// As the pool does it: a cooled page has no accesses any more.
    fn victim(queues: &mut Queues, dirty: &HashSet<u32>, accesses: &RefCell<Vec<u8>>) -> Option<u32> {
        let victim = queues.next_victim(|no, _| FrameReport {
            stale: false,
            accesses: accesses.borrow()[no.0 as usize],
            evictable: !dirty.contains(&no.0),
        });
        for no in queues.cooled.drain(..) {
            accesses.borrow_mut()[no.0 as usize] = 0;
        }
        victim.map(|no| no.0)
    }

    #[test]
    fn pages_queued_to_leave_first_do_so_unless_they_were_used() {
        let mut queues = Queues::new(8);
        let place = |no: u32| if no.is_multiple_of(2) { EntryQueue::First } else { EntryQueue::Old };
        (0..8).for_each(|no| queues.push(FrameNo(no), 0, place(no)));
        // Used, and changed.
        let accesses = RefCell::new(vec![0, 0, 1, 0, 0, 0, 0, 0]);
        let dirty = HashSet::from([4]);
        assert_eq!(queues.old_tail(9).map(|no| no.0).collect::<Vec<_>>(), [0, 2, 4, 6, 1, 3, 5, 7]);
        let left: Vec<_> = std::iter::from_fn(|| victim(&mut queues, &dirty, &accesses)).collect();
        assert_eq!(left, [0, 6, 1, 3, 5, 7, 2]);
        assert_eq!(victim(&mut queues, &HashSet::new(), &accesses), Some(4));
    }

    #[test]
    fn sweeping_removes_entries_of_pages_that_are_gone_and_no_others() {
        let mut queues = Queues::new(8);
        for turn in 0..100_000 {
            queues.sweep(|no, at| no.0 < 4 && at != turn);
            match turn {
                0 => (4..8).for_each(|no| queues.push_old(FrameNo(no), 0)),
                _ => queues.push(
                    FrameNo(turn % 4),
                    turn,
                    if turn % 3 == 0 { EntryQueue::First } else { EntryQueue::Old },
                ),
            }
            assert!(queues.entries() < 200, "{} entries", queues.entries());
        }
        let look = |no: FrameNo, _| FrameReport { stale: no.0 < 4, accesses: 0, evictable: true };
        let left: Vec<_> = std::iter::from_fn(|| queues.next_victim(look)).map(|no| no.0).collect();
        assert_eq!(left, [4, 5, 6, 7]);
    }

    #[test]
    fn young_gives_when_old_is_all_dirty() {
        for frames in [16, 100, 2000] {
            let mut queues = Queues::new(frames);
            (0..frames as u32).for_each(|no| queues.push_old(FrameNo(no), 0));
            let accesses = RefCell::new(vec![2; frames]);
            // A round in which all pages are promoted, as far as `young` takes them.
            let first = victim(&mut queues, &HashSet::new(), &accesses).unwrap();
            let dirty: HashSet<u32> = queues.old.iter().map(|(no, _)| no.0).collect();
            assert!(!queues.young.is_empty() && !dirty.contains(&first));
            let mut left = frames - dirty.len() - 1;
            while left > 0 {
                let no = (0..4)
                    .find_map(|_| victim(&mut queues, &dirty, &accesses))
                    .expect("a clean page is found");
                assert!(!dirty.contains(&no));
                left -= 1;
            }
            assert_eq!(victim(&mut queues, &dirty, &accesses), None);
        }
    }
}
