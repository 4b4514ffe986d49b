//! Which pages the large values have that were read lately: their names stand in the pages only, each in the one before, and who replaces a
//! value, which it has just read, notes them for who frees it. Nothing depends on it: what is not remembered is read again.
//!
//! Bounded in bytes; what was remembered first is forgotten first.

use crate::page::SpaceId;
use crate::sync::{Mutex, Mutexes};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one takes beside the numbers of its pages: in the map with what that leaves free, in the queue, its allocation.
const ENTRY: usize = 128;

/// A value: its space and its serial number there, which no other value of the space ever has.
type Name = (SpaceId, u64);

#[derive(Default)]
struct Known {
    pages: HashMap<Name, Box<[u32]>>,
    /// In the order in which they came.
    order: VecDeque<Name>,
    bytes: usize,
}

#[derive(Default)]
pub struct Chains {
    most: AtomicUsize,
    known: Mutex<Known, { Mutexes::Chains as u8 }>,
}

fn bytes(pages: &[u32]) -> usize {
    ENTRY + size_of_val(pages)
}

impl Chains {
    /// What all of them may take, in bytes. None before this is said.
    pub fn limit(&self, bytes: usize) {
        self.most.store(bytes, Ordering::Relaxed);
    }

    /// Whether a value of so many pages would be remembered, and is not.
    pub fn lacks(&self, space: SpaceId, serial: u64, pages: usize) -> bool {
        // One alone takes no more than an eighth.
        let fits = ENTRY + pages * size_of::<u32>() <= self.most.load(Ordering::Relaxed) / 8;
        fits && !self.known.lock().pages.contains_key(&(space, serial))
    }

    /// These are the pages of the value, in its order, all of them.
    pub fn remember(&self, space: SpaceId, serial: u64, pages: Vec<u32>) {
        let (name, most) = ((space, serial), self.most.load(Ordering::Relaxed));
        let mut known = self.known.lock();
        let pages = pages.into_boxed_slice();
        known.bytes += bytes(&pages);
        match known.pages.insert(name, pages) {
            Some(before) => known.bytes -= bytes(&before),
            None => known.order.push_back(name),
        }
        while known.bytes > most
            && let Some(first) = known.order.pop_front()
        {
            known.bytes -= known.pages.remove(&first).map_or(0, |pages| bytes(&pages));
        }
    }

    /// What is remembered of the value, for `look`.
    pub fn with<T>(&self, space: SpaceId, serial: u64, look: impl FnOnce(&[u32]) -> T) -> Option<T> {
        self.known.lock().pages.get(&(space, serial)).map(|pages| look(pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(20);

    #[test]
    fn what_came_first_is_forgotten_first() {
        let chains = Chains::default();
        assert!(!chains.lacks(SPACE, 1, 1), "nothing may be remembered yet");
        chains.limit(16 * (ENTRY + 8));
        (0..17).for_each(|serial| chains.remember(SPACE, serial, vec![serial as u32, 7]));
        let pages = |space, serial| chains.with(space, serial, <[u32]>::to_vec);
        assert_eq!(
            (pages(SPACE, 0), pages(SPACE, 1), pages(SPACE, 16)),
            (None, Some(vec![1, 7]), Some(vec![16, 7]))
        );
        assert_eq!(pages(SpaceId(21), 6), None);
        assert!(chains.lacks(SPACE, 0, 2) && !chains.lacks(SPACE, 6, 2) && !chains.lacks(SPACE, 0, 1000));
        assert_eq!(chains.known.lock().bytes, 16 * (ENTRY + 8));
    }

    #[test]
    fn one_that_comes_again_counts_once() {
        let chains = Chains::default();
        chains.limit(1 << 20);
        (0..1000).for_each(|_| chains.remember(SPACE, 3, vec![1, 2, 3]));
        let known = chains.known.lock();
        assert_eq!((known.bytes, known.order.len()), (ENTRY + 12, 1));
    }
}
