//! Free slots: derived from the map at start, never stored.
//!
//! A slot is free when no entry names it *and* the record that took its name away is durable. Until
//! then it waits in `pending`, with the log position that it waits for (invariant 3).

use super::entry::Slot;
use crate::object::key::ObjectKey;
use crate::page::Glsn;
use std::collections::VecDeque;

pub(crate) struct Slots {
    /// A set bit is a slot in use or pending.
    taken: Vec<u64>,
    count: u32,
    free: u32,
    hint: usize,
    pending: VecDeque<(Glsn, Slot)>,
    collect: VecDeque<(Glsn, ObjectKey)>,
}

impl Slots {
    pub fn new(count: u32) -> Slots {
        let count = count.min(Slot::COUNT_MAX);
        let mut taken = vec![0u64; (count as usize).div_ceil(64)];
        let spare = taken.len() * 64 - count as usize;
        if let (Some(last), true) = (taken.last_mut(), spare > 0) {
            *last = !0 << (64 - spare);
        }
        Slots { taken, count, free: count, hint: 0, pending: VecDeque::new(), collect: VecDeque::new() }
    }

    pub fn count(&self) -> u32 {
        self.count
    }
    pub fn free(&self) -> u32 {
        self.free
    }
    pub fn is_taken(&self, slot: Slot) -> bool {
        self.taken.get(slot.0 as usize / 64).is_none_or(|w| w >> (slot.0 % 64) & 1 == 1)
    }

    /// Marks a slot that an entry names. False if it is out of range or named twice.
    pub fn claim(&mut self, slot: Slot) -> bool {
        if slot.0 >= self.count || self.is_taken(slot) {
            return false;
        }
        self.taken[slot.0 as usize / 64] |= 1 << (slot.0 % 64);
        self.free -= 1;
        true
    }

    /// Up to `n` free slots; `keep` are left over.
    pub fn take(&mut self, n: usize, keep: u32) -> Vec<Slot> {
        let n = n.min(self.free.saturating_sub(keep) as usize);
        let mut slots = Vec::with_capacity(n);
        let words = self.taken.len();
        while slots.len() < n {
            let word = &mut self.taken[self.hint];
            if *word == !0 {
                self.hint = (self.hint + 1) % words;
                continue;
            }
            let bit = word.trailing_ones();
            *word |= 1 << bit;
            slots.push(Slot(self.hint as u32 * 64 + bit));
        }
        self.free -= n as u32;
        slots
    }

    /// A slot whose write was never mapped.
    pub fn give_back(&mut self, slot: Slot) {
        assert!(self.is_taken(slot) && slot.0 < self.count);
        self.taken[slot.0 as usize / 64] &= !(1 << (slot.0 % 64));
        self.free += 1;
        self.hint = self.hint.min(slot.0 as usize / 64);
    }

    /// The record that ends at `end` took the slot's name away.
    pub fn release_at(&mut self, end: Glsn, slot: Slot) {
        self.pending.push_back((end, slot));
    }
    /// The record that ends at `end` superseded the object.
    pub fn collect_at(&mut self, end: Glsn, key: ObjectKey) {
        self.collect.push_back((end, key));
    }

    /// Frees what waited for the horizon to reach `durable`. Returns how many slots became free.
    pub fn settle(&mut self, durable: Glsn) -> usize {
        let mut freed = 0;
        while let Some((end, slot)) = self.pending.front().copied() {
            if end > durable && !crate::planted::SLOT_REUSED_EARLY.on() {
                break;
            }
            self.pending.pop_front();
            self.give_back(slot);
            freed += 1;
        }
        freed
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub fn has_collectable(&self) -> bool {
        !self.collect.is_empty()
    }

    /// Objects whose superseding record is durable.
    pub fn collectable(&mut self, durable: Glsn) -> Vec<ObjectKey> {
        let n = self.collect.iter().take_while(|(end, _)| *end <= durable).count();
        self.collect.drain(..n).map(|(_, key)| key).collect()
    }
}
