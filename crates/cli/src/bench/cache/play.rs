//! Plays a trace: once through memory, which gives a stream of what flash sees, and that stream through each policy.

use super::trace::Trace;
use std::collections::BTreeSet;
use terrace_tier::flash::admission::memory::{Memory, Use};
use terrace_tier::flash::admission::policy::{Fate, Named};
use terrace_tier::page::{PageId, SpaceId};

/// Writes that flash may be ahead of its budget.
const BURST: u64 = 64;

/// What flash sees of a trace, in order: an object's number and two bits of what happened to it.
pub struct Stream {
    events: Vec<u32>,
    /// From here on it counts; before, flash warms up.
    counted: usize,
    pub requests: u64,
    pub memory_hits: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// Memory missed it.
    Read(u32),
    /// It was flushed with new content.
    Flushed(u32),
    /// It leaves memory, used there once or more often.
    Left(u32, u8),
}

fn pack(event: Event) -> u32 {
    match event {
        Event::Read(object) => object << 2,
        Event::Flushed(object) => object << 2 | 1,
        Event::Left(object, 0 | 1) => object << 2 | 2,
        Event::Left(object, _) => object << 2 | 3,
    }
}

fn unpack(packed: u32) -> Event {
    let object = packed >> 2;
    match packed & 3 {
        0 => Event::Read(object),
        1 => Event::Flushed(object),
        2 => Event::Left(object, 1),
        _ => Event::Left(object, 2),
    }
}

/// What came of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    pub flash_hits: u64,
    /// Memory's misses: `flash_hits` of them found their page on flash.
    pub reads: u64,
    pub writes: u64,
    /// Writes that the budget did not allow.
    pub dropped: u64,
    /// Bytes written to flash, read from it, and read from below it.
    pub bytes_written: u64,
    pub bytes_from_flash: u64,
    pub bytes_from_below: u64,
    /// Memory of the policy in bytes; 0 if none would do.
    pub policy_bytes: usize,
}

impl Stream {
    /// With `frames` pages of memory; the first `warm_up` uses don't count.
    pub fn new(trace: &Trace, frames: usize, warm_up: usize) -> Stream {
        let mut memory = Memory::new(frames);
        let mut stream = Stream { events: Vec::new(), counted: 0, requests: 0, memory_hits: 0 };
        for (n, (object, write)) in trace.uses().enumerate() {
            let counts = n >= warm_up;
            if n == warm_up {
                stream.counted = stream.events.len();
            }
            stream.requests += u64::from(counts);
            let left = match memory.access(page(object), write) {
                Use::Hit => {
                    stream.memory_hits += u64::from(counts);
                    continue;
                }
                Use::Missed(left) => left,
            };
            stream.events.push(pack(Event::Read(object)));
            if let Some(left) = left {
                let object = left.id.page;
                if left.dirty {
                    stream.events.push(pack(Event::Flushed(object)));
                }
                stream.events.push(pack(Event::Left(object, left.accesses)));
            }
        }
        if warm_up >= trace.len() {
            stream.counted = stream.events.len();
        }
        stream
    }

    /// What the policy makes of it with a flash of `pages`. `budget` bounds its writes, for each miss of memory.
    pub fn play(
        &self,
        trace: &Trace,
        page_bytes: u64,
        named: Named,
        pages: usize,
        seed: u64,
        budget: Option<f64>,
    ) -> Outcome {
        let mut policy = named.build::<PageId>(pages, seed);
        let mut out = Outcome::default();
        let (mut reads, mut writes) = (0, 0);
        for (n, packed) in self.events.iter().enumerate() {
            let counts = u64::from(n >= self.counted);
            match unpack(*packed) {
                Event::Read(object) => {
                    reads += 1;
                    let bytes = trace.size(object).unwrap_or(page_bytes);
                    let hit = policy.read(page(object));
                    out.read(hit, bytes, counts);
                }
                Event::Flushed(object) => {
                    policy.invalidate(page(object));
                }
                Event::Left(object, accesses) => {
                    let may_write = budget.is_none_or(|each| writes < BURST + (each * reads as f64) as u64);
                    match policy.left(page(object), accesses, may_write) {
                        Fate::Written => {
                            writes += 1;
                            out.writes += counts;
                            out.bytes_written += counts * trace.size(object).unwrap_or(page_bytes);
                        }
                        Fate::Dropped => out.dropped += counts,
                        Fate::Kept | Fate::Declined => {}
                    }
                }
            }
        }
        out.policy_bytes = policy.bytes();
        out
    }

    /// The most that any policy could hit: it knows which page is read next. Writes what it keeps, and nothing else.
    pub fn optimal(&self, trace: &Trace, page_bytes: u64, pages: usize) -> Outcome {
        // The next read of the same object after each event that is a read.
        const NEVER: u32 = u32::MAX;
        let mut next_read = vec![NEVER; trace.objects()];
        let mut after = vec![NEVER; self.events.len()];
        for (n, packed) in self.events.iter().enumerate().rev() {
            if let Event::Read(object) = unpack(*packed) {
                after[n] = std::mem::replace(&mut next_read[object as usize], n as u32);
            }
        }
        let mut held: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut out = Outcome::default();
        for (n, packed) in self.events.iter().enumerate() {
            let counts = u64::from(n >= self.counted);
            match unpack(*packed) {
                Event::Read(object) => {
                    let hit = held.remove(&(n as u32, object));
                    next_read[object as usize] = after[n];
                    if hit {
                        held.insert((after[n], object));
                    }
                    out.read(hit, trace.size(object).unwrap_or(page_bytes), counts);
                }
                Event::Flushed(object) => {
                    held.remove(&(next_read[object as usize], object));
                }
                Event::Left(object, _) => {
                    let one = (next_read[object as usize], object);
                    if one.0 == NEVER || held.contains(&one) || pages == 0 {
                        continue;
                    }
                    if held.len() == pages {
                        if held.last().is_some_and(|last| *last < one) {
                            continue;
                        }
                        held.pop_last();
                    }
                    held.insert(one);
                    out.writes += counts;
                    out.bytes_written += counts * trace.size(object).unwrap_or(page_bytes);
                }
            }
        }
        out
    }
}

impl Outcome {
    fn read(&mut self, hit: bool, bytes: u64, counts: u64) {
        self.reads += counts;
        self.flash_hits += u64::from(hit) * counts;
        let moved = if hit { &mut self.bytes_from_flash } else { &mut self.bytes_from_below };
        *moved += bytes * counts;
    }
}

fn page(object: u32) -> PageId {
    PageId::new(SpaceId::FIRST_USER, object)
}

#[cfg(test)]
mod tests {
    use super::super::trace::{Access, Builder};
    use super::*;

    fn trace(uses: &[u64]) -> Trace {
        let mut builder = Builder::default();
        uses.iter().for_each(|n| builder.add(Access::read(*n)));
        builder.finish().expect("it has uses")
    }

    const TEXTBOOK: [u64; 20] = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];

    #[test]
    fn hits_are_those_counted_by_hand() {
        let trace = trace(&TEXTBOOK);
        let stream = Stream::new(&trace, 0, 0);
        let of = |name: &str, pages| {
            let named = name.parse().expect("it is a name");
            stream.play(&trace, 10, named, pages, 1, None)
        };
        let lru = of("lru", 3);
        assert_eq!((lru.flash_hits, lru.reads, lru.writes), (8, 20, 12));
        assert_eq!((lru.bytes_from_flash, lru.bytes_from_below, lru.bytes_written), (80, 120, 120));
        assert_eq!((of("fifo", 3).flash_hits, of("fifo", 6).flash_hits), (5, 14));
        // The textbook's optimum hits 11 times. A policy that may decline page 4, which is used once, keeps 0 for one hit more.
        let optimal = stream.optimal(&trace, 10, 3);
        assert_eq!((optimal.flash_hits, optimal.reads), (12, 20));
        assert!(optimal.writes < 9, "{optimal:?}");
        assert_eq!(stream.optimal(&trace, 10, 0).flash_hits, 0);
    }

    #[test]
    fn accesses_during_the_warm_up_do_not_count() {
        let trace = trace(&TEXTBOOK);
        let (all, tail) = (Stream::new(&trace, 0, 0), Stream::new(&trace, 0, 12));
        assert_eq!((all.requests, tail.requests), (20, 8));
        let named = "lru".parse().expect("it is a name");
        // 2 1 2 0 1 7 0 1 after twelve uses: a hit, a miss, a hit, a miss, a hit, a miss, two hits.
        let tail = tail.play(&trace, 10, named, 3, 1, None);
        assert_eq!((tail.flash_hits, tail.reads, tail.writes), (5, 8, 3));
        // All of it warm-up: nothing counts.
        let none = Stream::new(&trace, 0, 20);
        assert_eq!((none.requests, none.play(&trace, 10, named, 3, 1, None).reads), (0, 0));
    }

    #[test]
    fn memory_answers_first_and_changes_make_copies_worthless() {
        let mut builder = Builder::default();
        let mut add = |key, write| builder.add(Access { write, ..Access::read(key) });
        for round in 0..6 {
            (0..40).for_each(|key| add(key, round == 4 && key < 10));
        }
        let trace = builder.finish().expect("it has uses");
        assert_eq!(trace.writes, 10);
        let named = "lru".parse().expect("it is a name");
        let stream = Stream::new(&trace, 40, 0);
        assert_eq!((stream.memory_hits, stream.requests), (200, 240));
        assert_eq!(stream.play(&trace, 1, named, 40, 1, None).flash_hits, 0);
        // A loop over more than memory has: all from flash after the first round, and what was changed is written again.
        let stream = Stream::new(&trace, 16, 0);
        assert_eq!(stream.memory_hits, 0);
        let out = stream.play(&trace, 1, named, 40, 1, None);
        assert_eq!((out.flash_hits, out.writes), (200, 50));
        // A budget below that drops writes.
        let out = stream.play(&trace, 1, named, 10, 1, Some(0.1));
        assert!(out.dropped > 0 && out.writes <= BURST + 24, "{out:?}");
    }
}
