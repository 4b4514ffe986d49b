//! Which class each slot's page belongs to: a byte a slot, on instances where any table has rules; otherwise nothing.
//!
//! Class 0 is that of all tables without rules. The classes of one table count together. A table with a cap has its slots in a
//! ring, in the order in which they were filled, so that a victim is found when a page may only replace a page of its own table.

use super::index::FlashSlot;
use crate::limits::quota::{Class, Holder};
use std::collections::VecDeque;

#[derive(Default)]
pub struct Shares {
    of_slot: Vec<Class>,
    holders: Vec<Holder>,
    /// The first class of each class's table: it holds the count and the ring.
    group: Vec<Class>,
    rings: Vec<VecDeque<FlashSlot>>,
}

impl Shares {
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Sets the classes; the first is that of all tables without rules. `used` tells whether a slot has a page.
    pub fn set(&mut self, mut holders: Vec<Holder>, slots: usize, used: impl Fn(FlashSlot) -> bool) {
        if holders.len() <= 1 {
            *self = Shares::default();
            return;
        }
        let first =
            |class: &Holder| holders.iter().position(|h| h.table == class.table).unwrap_or(0) as Class;
        let group: Vec<Class> = holders.iter().map(first).collect();
        holders.iter_mut().for_each(|holder| holder.used = 0);
        let rings = vec![VecDeque::new(); holders.len()];
        let of_slot = std::mem::take(&mut self.of_slot);
        *self = Shares { of_slot: vec![0; slots], holders, group, rings };
        for slot in (0..slots as FlashSlot).filter(|slot| used(*slot)) {
            let class = of_slot.get(slot as usize).copied().unwrap_or(0);
            self.comes(slot, if usize::from(class) < self.holders.len() { class } else { 0 });
        }
    }

    pub fn resize(&mut self, slots: usize) {
        if !self.is_empty() {
            self.of_slot.resize(slots, 0);
            // Slots that no longer exist belong to no class.
            self.rings.iter_mut().for_each(|ring| ring.retain(|slot| (*slot as usize) < slots));
        }
    }

    /// A class, with its table's count and cap.
    pub fn holder(&self, class: Class) -> Holder {
        match self.holders.get(usize::from(class)) {
            Some(holder) => {
                let table = &self.holders[usize::from(self.group[usize::from(class)])];
                Holder { used: table.used, ..*holder }
            }
            None => Holder::default(),
        }
    }
    pub fn holder_of(&self, slot: FlashSlot) -> Holder {
        self.holder(self.of_slot[slot as usize])
    }

    fn group_of(&self, slot: FlashSlot) -> usize {
        usize::from(self.group[usize::from(self.of_slot[slot as usize])])
    }

    /// A page of the class was put into the slot.
    pub fn comes(&mut self, slot: FlashSlot, class: Class) {
        if self.is_empty() {
            return;
        }
        self.of_slot[slot as usize] = class;
        let group = self.group_of(slot);
        self.holders[group].used += 1;
        if self.holders[group].max > 0 {
            let (used, limit) =
                (self.holders[group].used as usize, 2 * self.holders[group].max as usize + 64);
            self.rings[group].push_back(slot);
            if self.rings[group].len() > limit.max(2 * used) {
                self.tidy(group);
            }
        }
    }

    /// Removes entries of slots that belong to other tables by now, and duplicates.
    fn tidy(&mut self, group: usize) {
        let mut seen = hashbrown::HashSet::new();
        let ring = std::mem::take(&mut self.rings[group]);
        self.rings[group] =
            ring.into_iter().filter(|slot| self.group_of(*slot) == group && seen.insert(*slot)).collect();
    }

    /// The slot's page was removed.
    pub fn leaves(&mut self, slot: FlashSlot) {
        if !self.is_empty() {
            let group = self.group_of(slot);
            self.holders[group].used -= 1;
            self.of_slot[slot as usize] = 0;
        }
    }

    /// Takes the oldest slot of the class's table out of the ring.
    pub fn oldest(&mut self, class: Class) -> Option<FlashSlot> {
        let group = usize::from(*self.group.get(usize::from(class))?);
        while let Some(slot) = self.rings[group].pop_front() {
            if (slot as usize) < self.of_slot.len() && self.group_of(slot) == group {
                return Some(slot);
            }
        }
        None
    }
    /// That slot is spared: it goes to the end of the ring.
    pub fn spare(&mut self, slot: FlashSlot) {
        let group = self.group_of(slot);
        self.rings[group].push_back(slot);
    }

    /// Panics if the counts are wrong. For tests.
    pub fn check_invariants(&self, used: impl Fn(FlashSlot) -> bool) {
        let mut counts = vec![0; self.holders.len()];
        (0..self.of_slot.len() as FlashSlot)
            .filter(|slot| used(*slot))
            .for_each(|slot| counts[self.group_of(slot)] += 1);
        for (holder, (count, group)) in self.holders.iter().zip(counts.iter().zip(&self.group)) {
            assert!(holder.used == *count, "class {group} has {count} slots and counts {}", holder.used);
        }
    }
}
