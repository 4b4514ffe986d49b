//! Page reads of the running statement: pages by tier, and the time that they took. The reading thread counts for itself; the
//! caller that runs statements on it takes the counts when one ends ([`take`]).
//!
//! A count costs one addition to thread-local memory. Time is measured only for pages that are not in memory.
//!
//! The first user of a prefetched page (`pool/ahead`) counts it for the tier that it came from. The time that this user waited
//! for the page is that tier's time.

use crate::address::Tier;
use std::cell::Cell;

/// The tiers in which a page may be found: names for the indexes of [`Reads`].
pub const PLACES: [&str; 5] = ["memory", "flash", "volume", "object", "log"];
const MEMORY: usize = 0;

/// Pages that a statement or other piece of work read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reads {
    /// By tier, as in [`PLACES`]; without first uses of prefetched pages.
    pub pages: [u64; PLACES.len()],
    /// First uses of pages that had been prefetched from this tier. Always zero for `memory`.
    pub ahead: [u64; PLACES.len()],
    /// The time spent waiting for pages from this tier, in nanoseconds. For `memory`: the time spent waiting for other threads
    /// that loaded a page.
    pub nanos: [u64; PLACES.len()],
}

thread_local! {
    static PAGES: [Cell<u64>; PLACES.len()] = const { [const { Cell::new(0) }; PLACES.len()] };
    static NANOS: [Cell<u64>; PLACES.len()] = const { [const { Cell::new(0) }; PLACES.len()] };
    static AHEAD: [Cell<u64>; PLACES.len()] = const { [const { Cell::new(0) }; PLACES.len()] };
    /// Nanoseconds spent waiting for the page being loaded, until it is known which tier it comes from.
    static WAITED: Cell<u64> = const { Cell::new(0) };
}

fn bump(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get().wrapping_add(more));
}

#[inline]
pub(crate) fn hit() {
    PAGES.with(|pages| bump(&pages[MEMORY], 1));
}

fn place(tier: Tier) -> usize {
    match tier {
        Tier::Flash => 1,
        Tier::Volume => 2,
        Tier::Object => 3,
        Tier::Log => 4,
    }
}

/// Adds a wait for the page being loaded. [`read`], [`first_use`] or [`settle`] assigns the time to a tier.
pub(crate) fn waited(nanos: u64) {
    WAITED.with(|waited| bump(waited, nanos));
}

/// The page is in memory, or its load failed: unassigned waiting time is counted as waiting for other threads.
pub(crate) fn settle() {
    NANOS.with(|all| bump(&all[MEMORY], WAITED.take()));
}

/// Pages from the object store that this thread was the first to use, since the counts were last taken.
pub fn far() -> u64 {
    let object = place(Tier::Object);
    PAGES.with(|pages| pages[object].get()).wrapping_add(AHEAD.with(|ahead| ahead[object].get()))
}

/// A page was read from this tier, in `nanos` nanoseconds plus the waiting time before.
pub(crate) fn read(from: Tier, nanos: u64) {
    PAGES.with(|pages| bump(&pages[place(from)], 1));
    spent(from, nanos);
}

/// The first use of a page that had been prefetched from this tier.
pub(crate) fn first_use(from: Tier) {
    AHEAD.with(|pages| bump(&pages[place(from)], 1));
    spent(from, 0);
}

/// Pages were prefetched from this tier, in `nanos` nanoseconds.
pub(crate) fn spent(from: Tier, nanos: u64) {
    NANOS.with(|all| bump(&all[place(from)], nanos.wrapping_add(WAITED.take())));
}

/// The counts of this thread since the previous call.
pub fn take() -> Reads {
    Reads {
        pages: PAGES.with(|pages| std::array::from_fn(|i| pages[i].take())),
        nanos: NANOS.with(|nanos| std::array::from_fn(|i| nanos[i].take())),
        ahead: AHEAD.with(|ahead| std::array::from_fn(|i| ahead[i].take())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_counts_for_itself_and_is_taken_once() {
        take();
        hit();
        read(Tier::Volume, 250);
        read(Tier::Volume, 50);
        waited(7);
        settle();
        std::thread::scope(|scope| _ = scope.spawn(|| assert_eq!(take(), Reads::default())));
        let reads = take();
        assert_eq!((reads.pages, reads.nanos, reads.ahead), ([1, 0, 2, 0, 0], [7, 0, 300, 0, 0], [0; 5]));
        assert_eq!(take(), Reads::default());
    }

    #[test]
    fn waiting_time_counts_for_the_tier_that_the_page_comes_from() {
        take();
        waited(40);
        waited(2);
        first_use(Tier::Object);
        settle();
        first_use(Tier::Flash); // it was in memory already
        waited(5);
        read(Tier::Volume, 100);
        settle();
        let reads = take();
        assert_eq!((reads.pages, reads.ahead), ([0, 0, 1, 0, 0], [0, 1, 0, 1, 0]));
        assert_eq!(reads.nanos, [0, 0, 105, 42, 0]);
    }
}
