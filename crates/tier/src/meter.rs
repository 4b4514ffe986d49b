//! What the running statement read: pages by tier, and the time that took. Counted by the thread that reads, for
//! itself; whoever runs statements on it takes the counts when one ends ([`take`]).
//!
//! A count costs one addition to the thread's own memory. Time is measured where a page is not in memory, only.

use crate::below::Tier;
use std::cell::Cell;

/// Where a page was: as indexes of [`Reads`].
pub const PLACES: [&str; 5] = ["memory", "flash", "volume", "object", "log"];
const MEMORY: usize = 0;

/// Pages that a piece of work read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reads {
    /// By place, as in [`PLACES`].
    pub pages: [u64; PLACES.len()],
    /// Time until the page was in memory, in nanoseconds. Of `memory`: time that others were waited for who
    /// brought the page.
    pub nanos: [u64; PLACES.len()],
    /// Pages that came with another one, before anybody asked for them.
    pub ahead: u64,
}

thread_local! {
    static PAGES: [Cell<u64>; PLACES.len()] = const { [const { Cell::new(0) }; PLACES.len()] };
    static NANOS: [Cell<u64>; PLACES.len()] = const { [const { Cell::new(0) }; PLACES.len()] };
    static AHEAD: Cell<u64> = const { Cell::new(0) };
}

fn bump(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get().wrapping_add(more));
}

#[inline]
pub(crate) fn hit() {
    PAGES.with(|pages| bump(&pages[MEMORY], 1));
}

pub(crate) fn waited(nanos: u64) {
    NANOS.with(|all| bump(&all[MEMORY], nanos));
}

pub(crate) fn read(from: Tier, nanos: u64) {
    let place = match from {
        Tier::Flash => 1,
        Tier::Volume => 2,
        Tier::Object => 3,
        Tier::Log => 4,
    };
    PAGES.with(|pages| bump(&pages[place], 1));
    NANOS.with(|all| bump(&all[place], nanos));
}

pub(crate) fn ahead() {
    AHEAD.with(|cell| bump(cell, 1));
}

/// What this thread has read since it was asked last.
pub fn take() -> Reads {
    Reads {
        pages: PAGES.with(|pages| std::array::from_fn(|i| pages[i].take())),
        nanos: NANOS.with(|nanos| std::array::from_fn(|i| nanos[i].take())),
        ahead: AHEAD.with(Cell::take),
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
        std::thread::scope(|scope| _ = scope.spawn(|| assert_eq!(take(), Reads::default())));
        let reads = take();
        assert_eq!((reads.pages, reads.nanos, reads.ahead), ([1, 0, 2, 0, 0], [7, 0, 300, 0, 0], 0));
        assert_eq!(take(), Reads::default());
    }
}
