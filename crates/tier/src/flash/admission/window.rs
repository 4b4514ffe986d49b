//! W-TinyLFU (Einziger, Friedman, Manes): new pages enter a window of one hundredth, an LRU; a page that leaves it must have been
//! requested more often than the victim of the main part. The main part is an LRU of pages on probation and one of protected
//! pages, which hold at most four fifths.

use super::policy::{Fate, Policy};
use super::sketch::Sketch;
use super::slots::{Links, List, Slot, Slots};
use crate::flash::key::{Key, mark};

/// Misses for a page of the cache after which a count has halved.
const FADES: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Window,
    Probation,
    Protected,
}

pub(super) struct WTinyLfu<K> {
    slots: Slots<K>,
    links: Links,
    window: List,
    probation: List,
    protected: List,
    parts: Vec<Part>,
    window_max: usize,
    protected_max: usize,
    sketch: Sketch,
}

impl<K: Key> WTinyLfu<K> {
    pub fn new(pages: usize) -> WTinyLfu<K> {
        let window_max = (pages / 100).max(1);
        WTinyLfu {
            slots: Slots::new(pages),
            links: Links::new(pages),
            window: List::EMPTY,
            probation: List::EMPTY,
            protected: List::EMPTY,
            parts: vec![Part::Window; pages],
            window_max,
            protected_max: pages.saturating_sub(window_max) * 4 / 5,
            sketch: Sketch::new(pages, FADES),
        }
    }

    fn take_out(&mut self, slot: Slot) {
        let list = match self.parts[slot as usize] {
            Part::Window => &mut self.window,
            Part::Probation => &mut self.probation,
            Part::Protected => &mut self.protected,
        };
        self.links.remove(list, slot);
    }

    fn put_in(&mut self, slot: Slot, part: Part) {
        let list = match part {
            Part::Window => &mut self.window,
            Part::Probation => &mut self.probation,
            Part::Protected => &mut self.protected,
        };
        self.links.push(list, slot);
        self.parts[slot as usize] = part;
    }

    fn estimate(&self, slot: Slot) -> u8 {
        self.sketch.estimate(mark(self.slots.page(slot)))
    }

    /// Evicts one page from a full cache: the less requested one of the window's victim and the main part's victim.
    fn make_room(&mut self) {
        let candidate = self.window.oldest().filter(|_| self.window.len >= self.window_max);
        let victim = self.probation.oldest().or_else(|| self.protected.oldest());
        let loser = match (candidate, victim) {
            (Some(candidate), Some(victim)) if self.estimate(candidate) > self.estimate(victim) => {
                self.take_out(candidate);
                self.put_in(candidate, Part::Probation);
                victim
            }
            (Some(candidate), _) => candidate,
            (None, Some(victim)) => victim,
            (None, None) => self.window.oldest().expect("a full cache has pages"),
        };
        self.take_out(loser);
        self.slots.remove(loser);
    }
}

impl<K: Key> Policy<K> for WTinyLfu<K> {
    fn read(&mut self, id: K) -> bool {
        self.sketch.note(mark(id));
        let Some(slot) = self.slots.find(id) else { return false };
        self.take_out(slot);
        let part = match self.parts[slot as usize] {
            Part::Window => Part::Window,
            Part::Probation | Part::Protected => Part::Protected,
        };
        self.put_in(slot, part);
        if self.protected.len > self.protected_max
            && let Some(oldest) = self.protected.oldest()
        {
            self.take_out(oldest);
            self.put_in(oldest, Part::Probation);
        }
        true
    }

    fn left(&mut self, id: K, _accesses: u8, may_write: bool) -> Fate {
        match (self.slots.find(id), may_write && self.slots.capacity() > 0) {
            (Some(_), _) => return Fate::Kept,
            (None, false) => return Fate::Dropped,
            (None, true) => {}
        }
        if self.slots.is_full() {
            self.make_room();
        } else if self.window.len >= self.window_max
            && let Some(oldest) = self.window.oldest()
        {
            // While there is room, what the window gives goes to the main part without a contest.
            self.take_out(oldest);
            self.put_in(oldest, Part::Probation);
        }
        let slot = self.slots.insert(id);
        self.put_in(slot, Part::Window);
        Fate::Written
    }

    fn invalidate(&mut self, id: K) -> bool {
        let Some(slot) = self.slots.find(id) else { return false };
        self.take_out(slot);
        self.slots.remove(slot);
        true
    }

    fn has(&self, id: K) -> bool {
        self.slots.find(id).is_some()
    }
    fn pages(&self) -> usize {
        self.slots.len()
    }
    fn bytes(&self) -> usize {
        self.slots.bytes() + self.links.bytes() + self.parts.capacity().div_ceil(4) + self.sketch.bytes()
    }
}
