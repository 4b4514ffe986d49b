//! Rows that statements have read and changed, since the start.
//!
//! A session counts for itself, and tells when a statement ends, or in between if there are many ([`RowCounters::add`]). Sessions tell side by
//! side in places of their own, so that as a rule none waits for another's cache line. What is rolled back later stays counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sessions beyond this many share places.
const PLACES: usize = 32;

/// Rows, by what became of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Rows {
    pub read: u64,
    pub inserted: u64,
    pub updated: u64,
    pub deleted: u64,
}

impl Rows {
    fn parts(&self) -> [u64; 4] {
        [self.read, self.inserted, self.updated, self.deleted]
    }
}

/// Two cache lines: processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct CounterLines([AtomicU64; 4]);

#[derive(Default)]
pub struct RowCounters([CounterLines; PLACES]);

impl RowCounters {
    /// `session` is any number that sessions have for themselves.
    pub fn add(&self, session: u64, rows: &Rows) {
        let CounterLines(counters) = &self.0[session as usize % PLACES];
        for (counter, more) in counters.iter().zip(rows.parts()).filter(|(_, more)| *more > 0) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub fn sum(&self) -> Rows {
        let sum = |part: usize| self.0.iter().map(|place| place.0[part].load(Ordering::Relaxed)).sum();
        Rows { read: sum(0), inserted: sum(1), updated: sum(2), deleted: sum(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_sessions_are_summed() {
        let counted = RowCounters::default();
        std::thread::scope(|scope| {
            for session in 0..100u64 {
                let counted = &counted;
                scope.spawn(move || {
                    for _ in 0..50 {
                        counted.add(session, &Rows { read: session, inserted: 1, updated: 0, deleted: 2 });
                    }
                });
            }
        });
        assert_eq!(
            counted.sum(),
            Rows { read: 50 * 99 * 100 / 2, inserted: 5000, updated: 0, deleted: 10_000 }
        );
    }
}
