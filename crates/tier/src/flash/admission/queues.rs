//! Policies of queues: LRU, 2Q and S3-FIFO. All of them write every page that leaves memory.

use super::policy::{Fate, Policy};
use super::slots::{Links, List, Slot, Slots};
use crate::flash::ghost::Ghost;
use crate::flash::key::Key;

pub(super) struct Lru<K> {
    slots: Slots<K>,
    links: Links,
    list: List,
}

impl<K: Key> Lru<K> {
    pub fn new(pages: usize) -> Lru<K> {
        Lru { slots: Slots::new(pages), links: Links::new(pages), list: List::EMPTY }
    }
}

impl<K: Key> Policy<K> for Lru<K> {
    fn read(&mut self, id: K) -> bool {
        let found = self.slots.find(id);
        found.inspect(|slot| self.links.renew(&mut self.list, *slot)).is_some()
    }

    fn left(&mut self, id: K, _accesses: u8, may_write: bool) -> Fate {
        match (self.slots.find(id), may_write && self.slots.capacity() > 0) {
            (Some(_), _) => return Fate::Kept,
            (None, false) => return Fate::Dropped,
            (None, true) => {}
        }
        if self.slots.is_full() {
            let oldest = self.links.pop(&mut self.list).expect("a full cache has pages");
            self.slots.remove(oldest);
        }
        let slot = self.slots.insert(id);
        self.links.push(&mut self.list, slot);
        Fate::Written
    }

    fn invalidate(&mut self, id: K) -> bool {
        let Some(slot) = self.slots.find(id) else { return false };
        self.links.remove(&mut self.list, slot);
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
        self.slots.bytes() + self.links.bytes()
    }
}

/// What 2Q and S3-FIFO have in common: a first queue, a main one, and a ghost list of what left the first.
struct Two<K> {
    slots: Slots<K>,
    links: Links,
    first: List,
    main: List,
    in_main: Vec<bool>,
    first_max: usize,
    ghost: Ghost<K>,
}

impl<K: Key> Two<K> {
    fn new(pages: usize, first_max: usize, ghost: usize) -> Two<K> {
        Two {
            slots: Slots::new(pages),
            links: Links::new(pages),
            first: List::EMPTY,
            main: List::EMPTY,
            in_main: vec![false; pages],
            first_max: first_max.max(1),
            ghost: Ghost::new(ghost),
        }
    }

    fn insert(&mut self, id: K) -> Slot {
        let main = self.ghost.take(id);
        let slot = self.slots.insert(id);
        self.in_main[slot as usize] = main;
        let list = if main { &mut self.main } else { &mut self.first };
        self.links.push(list, slot);
        slot
    }

    fn remove(&mut self, slot: Slot) -> K {
        let list = if self.in_main[slot as usize] { &mut self.main } else { &mut self.first };
        self.links.remove(list, slot);
        self.slots.remove(slot)
    }

    /// The oldest page of the first queue is gone and remembered.
    fn demote(&mut self) {
        let slot = self.first.oldest().expect("the first queue has pages");
        let id = self.remove(slot);
        self.ghost.remember(id);
    }

    /// A page of the first queue is one of the main queue.
    fn promote(&mut self, slot: Slot) {
        self.links.remove(&mut self.first, slot);
        self.links.push(&mut self.main, slot);
        self.in_main[slot as usize] = true;
    }

    fn invalidate(&mut self, id: K) -> bool {
        let found = self.slots.find(id);
        found.map(|slot| self.remove(slot)).is_some()
    }

    fn bytes(&self) -> usize {
        let ghost = self.ghost.capacity() * size_of::<u32>();
        self.slots.bytes() + self.links.bytes() + self.in_main.capacity().div_ceil(8) + ghost
    }
}

/// 2Q (Johnson, Shasha): a quarter for pages seen once, a FIFO; half as many identifiers as pages; the
/// rest an LRU of pages that came again.
pub(super) struct TwoQueues<K>(Two<K>);

impl<K: Key> TwoQueues<K> {
    pub fn new(pages: usize) -> TwoQueues<K> {
        TwoQueues(Two::new(pages, pages / 4, pages / 2))
    }
}

impl<K: Key> Policy<K> for TwoQueues<K> {
    fn read(&mut self, id: K) -> bool {
        let Some(slot) = self.0.slots.find(id) else { return false };
        if self.0.in_main[slot as usize] {
            self.0.links.renew(&mut self.0.main, slot);
        }
        true
    }

    fn left(&mut self, id: K, _accesses: u8, may_write: bool) -> Fate {
        let two = &mut self.0;
        match (two.slots.find(id), may_write && two.slots.capacity() > 0) {
            (Some(_), _) => return Fate::Kept,
            (None, false) => return Fate::Dropped,
            (None, true) => {}
        }
        if two.slots.is_full() {
            if two.first.len > two.first_max || two.main.len == 0 {
                two.demote();
            } else {
                let oldest = two.main.oldest().expect("the main queue has pages");
                two.remove(oldest);
            }
        }
        two.insert(id);
        Fate::Written
    }

    fn invalidate(&mut self, id: K) -> bool {
        self.0.invalidate(id)
    }
    fn has(&self, id: K) -> bool {
        self.0.slots.find(id).is_some()
    }
    fn pages(&self) -> usize {
        self.0.slots.len()
    }
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// S3-FIFO (Yang and others, 2023): a tenth for what is new, nine tenths for what was used again, both
/// FIFOs; two bits of use a page; as many identifiers as the main queue has pages.
pub(super) struct S3Fifo<K> {
    two: Two<K>,
    uses: Vec<u8>,
    /// Uses of a page that are counted, by the bits that it has for them.
    most: u8,
}

impl<K: Key> S3Fifo<K> {
    /// With this number of bits a page for its uses, 1 or 2.
    pub fn new(pages: usize, bits: u8) -> S3Fifo<K> {
        let small = pages / 10;
        S3Fifo { two: Two::new(pages, small, pages - small), uses: vec![0; pages], most: (1 << bits) - 1 }
    }

    fn make_room(&mut self) {
        let two = &mut self.two;
        while two.slots.is_full() {
            if two.first.len >= two.first_max || two.main.len == 0 {
                let slot = two.first.oldest().expect("the small queue has pages");
                // Of two uses; of one, if no more are counted.
                if self.uses[slot as usize] >= self.most.min(2) {
                    two.promote(slot);
                    self.uses[slot as usize] = 0;
                } else {
                    two.demote();
                }
            } else {
                let slot = two.main.oldest().expect("the main queue has pages");
                match self.uses[slot as usize].checked_sub(1) {
                    Some(left) => {
                        self.uses[slot as usize] = left;
                        two.links.renew(&mut two.main, slot);
                    }
                    None => {
                        two.remove(slot);
                    }
                }
            }
        }
    }
}

impl<K: Key> Policy<K> for S3Fifo<K> {
    fn read(&mut self, id: K) -> bool {
        let Some(slot) = self.two.slots.find(id) else { return false };
        let uses = &mut self.uses[slot as usize];
        *uses = (*uses + 1).min(self.most);
        true
    }

    fn left(&mut self, id: K, _accesses: u8, may_write: bool) -> Fate {
        match (self.two.slots.find(id), may_write && self.two.slots.capacity() > 0) {
            (Some(_), _) => return Fate::Kept,
            (None, false) => return Fate::Dropped,
            (None, true) => {}
        }
        self.make_room();
        let slot = self.two.insert(id);
        self.uses[slot as usize] = 0;
        Fate::Written
    }

    fn invalidate(&mut self, id: K) -> bool {
        self.two.invalidate(id)
    }
    fn has(&self, id: K) -> bool {
        self.two.slots.find(id).is_some()
    }
    fn pages(&self) -> usize {
        self.two.slots.len()
    }
    fn bytes(&self) -> usize {
        self.two.bytes() + self.uses.capacity().div_ceil(if self.most == 1 { 8 } else { 4 })
    }
}
