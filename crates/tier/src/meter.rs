//! What the running statement read: pages by tier, and the time that took. Counted by the thread that reads, for
//! itself; whoever runs statements on it takes the counts when one ends ([`take`]).
//!
//! A count costs one addition to the thread's own memory. Time is measured where a page is not in memory, only.
//!
//! A page that came ahead (`pool/ahead`) is counted by who uses it first, as of the tier that it came from. What that one waited
//! until it was there is that tier's time.

use crate::below::Tier;
use std::cell::Cell;

/// Where a page was: as indexes of [`Reads`].
pub const PLACES: [&str; 5] = ["memory", "flash", "volume", "object", "log"];
const MEMORY: usize = 0;

/// Pages that a piece of work read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reads {
    /// By place, as in [`PLACES`]; without those that had come ahead.
    pub pages: [u64; PLACES.len()],
    /// Pages that had come from this place before anybody asked for them, and that nobody had used yet. None of `memory`.
    pub ahead: [u64; PLACES.len()],
    /// Time until pages from there were in memory, in nanoseconds, as far as they were waited for. Of `memory`: time that
    /// others were waited for who brought a page.
    pub nanos: [u64; PLACES.len()],
}

thread_local! {
    static PAGES: [Cell<u64>; PLACES.len()] = const { [const { Cell::new(0) }; PLACES.len()] };
    static NANOS: [Cell<u64>; PLACES.len()] = const { [const { Cell::new(0) }; PLACES.len()] };
    static AHEAD: [Cell<u64>; PLACES.len()] = const { [const { Cell::new(0) }; PLACES.len()] };
    /// Nanoseconds that the page which is being brought was waited for, until it is known where it comes from.
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

/// The page that is being brought was waited for. Whose the time is, says [`read`] or [`first_use`], or [`settle`].
pub(crate) fn waited(nanos: u64) {
    WAITED.with(|waited| bump(waited, nanos));
}

/// The page is there, or will not come: what it was waited for otherwise was for others.
pub(crate) fn settle() {
    NANOS.with(|all| bump(&all[MEMORY], WAITED.take()));
}

/// Pages from the object store that this thread has used first, since the counts were taken last.
pub fn far() -> u64 {
    let object = place(Tier::Object);
    PAGES.with(|pages| pages[object].get()).wrapping_add(AHEAD.with(|ahead| ahead[object].get()))
}

/// A page was brought from there, in so many nanoseconds and what it was waited for before.
pub(crate) fn read(from: Tier, nanos: u64) {
    PAGES.with(|pages| bump(&pages[place(from)], 1));
    spent(from, nanos);
}

/// The first use of a page that had come ahead from there.
pub(crate) fn first_use(from: Tier) {
    AHEAD.with(|pages| bump(&pages[place(from)], 1));
    spent(from, 0);
}

/// Pages came from there for no use yet, in so many nanoseconds.
pub(crate) fn spent(from: Tier, nanos: u64) {
    NANOS.with(|all| bump(&all[place(from)], nanos.wrapping_add(WAITED.take())));
}

/// What this thread has read since it was asked last.
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
    fn a_wait_is_of_the_tier_that_the_page_comes_from() {
        take();
        waited(40);
        waited(2);
        first_use(Tier::Object);
        settle();
        first_use(Tier::Flash); // it was there
        waited(5);
        read(Tier::Volume, 100);
        settle();
        let reads = take();
        assert_eq!((reads.pages, reads.ahead), ([0, 0, 1, 0, 0], [0, 1, 0, 1, 0]));
        assert_eq!(reads.nanos, [0, 0, 105, 42, 0]);
    }
}
