//! Free slots: derived from the map at start, never stored.
//!
//! A slot is free when no entry names it *and* the record that removed its name is durable. Until then it waits in `pending`,
//! with that record's log position (invariant 3).

use super::clean::Clean;
use crate::address::{ObjectKey, Slot};
use crate::page::{Glsn, PageId, Tag};
use std::collections::VecDeque;

pub(crate) struct Slots {
    /// A set bit is a slot in use or pending.
    taken: Vec<u64>,
    /// The number of slots that `taken` covers, and how many of them may be allocated.
    len: u32,
    count: u32,
    free: u32,
    /// Slots that the file has space for; those of them that may be allocated; the free ones of these.
    room: u32,
    limit: u32,
    usable: u32,
    /// The device has no space for more.
    short: bool,
    /// The slot from which the search for free ones continues; after the last slot it wraps to the first.
    hand: usize,
    pending: VecDeque<(Glsn, Slot)>,
    /// While set, no superseded slot becomes free.
    held: bool,
    collect: VecDeque<(Glsn, ObjectKey)>,
    clean: Clean,
}

impl Slots {
    pub fn new(count: u32) -> Slots {
        let count = count.min(Slot::COUNT_MAX);
        let mut taken = vec![0u64; (count as usize).div_ceil(64)];
        let spare = taken.len() * 64 - count as usize;
        if let (Some(last), true) = (taken.last_mut(), spare > 0) {
            *last = !0 << (64 - spare);
        }
        let (limit, usable) = (count, count);
        let (pending, collect) = (VecDeque::new(), VecDeque::new());
        let (len, room) = (count, count);
        let (free, short, hand, clean) = (count, false, 0, Clean::default());
        Slots {
            taken,
            len,
            count,
            free,
            room,
            limit,
            usable,
            short,
            hand,
            pending,
            held: false,
            collect,
            clean,
        }
    }

    pub fn count(&self) -> u32 {
        self.count
    }
    /// Slots that an entry may name: more than `count` during a shrink.
    pub fn named(&self) -> u32 {
        self.len
    }
    /// Slots from `count` on that are not free yet.
    pub fn beyond(&self) -> u32 {
        let (first, spare) = (self.count as usize / 64, self.count % 64);
        let used = |word: usize| match word {
            _ if word == first => (self.taken[word] >> spare).count_ones(),
            _ => self.taken[word].count_ones(),
        };
        let padding = self.taken.len() as u32 * 64 - self.len;
        (first..self.taken.len()).map(used).sum::<u32>().saturating_sub(padding)
    }

    /// From now on only slots below `count` are allocated. Existing slots above stay as they are until `forget_beyond`.
    pub fn set_count(&mut self, count: u32) {
        let count = count.min(Slot::COUNT_MAX);
        if count > self.len {
            self.set_len(count);
        }
        self.count = count;
        self.limit = self.room.min(count);
        self.hand = 0;
        let free = |word: usize, end: u32| {
            let open = (end as usize).saturating_sub(word * 64);
            let shut = if open >= 64 { 0 } else { !0 << open };
            (!(self.taken[word] | shut)).count_ones()
        };
        let of = |end: u32| (0..(end as usize).div_ceil(64)).map(|word| free(word, end)).sum();
        (self.free, self.usable) = (of(count), of(self.limit));
    }

    /// Removes the slots from `count` on: all of them are free.
    pub fn forget_beyond(&mut self) {
        assert_eq!(self.beyond(), 0, "a slot that is in use is given up");
        self.set_len(self.count);
    }

    /// Slots that the file has space for.
    pub fn room(&self) -> u32 {
        self.room
    }
    /// Bits beyond the last slot count as taken.
    fn set_len(&mut self, len: u32) {
        let pad = |taken: &mut Vec<u64>, len: u32, on: bool| {
            let spare = taken.len() * 64 - len as usize;
            if let (Some(last), true) = (taken.last_mut(), spare > 0) {
                let bits = !0 << (64 - spare);
                *last = if on { *last | bits } else { *last & !bits };
            }
        };
        pad(&mut self.taken, self.len, false);
        self.taken.resize((len as usize).div_ceil(64), 0);
        self.taken.shrink_to_fit();
        pad(&mut self.taken, len, true);
        self.len = len;
        self.clean.forget();
    }
    pub fn free(&self) -> u32 {
        self.free
    }
    /// Free slots that the file has space for.
    pub fn usable(&self) -> u32 {
        self.usable
    }
    /// Slots and free slots, as far as the device has space: all of them while it has.
    pub fn pressure(&self) -> (u32, u32) {
        if self.short { (self.limit, self.usable) } else { (self.count, self.free) }
    }
    /// The file has space for `slots` slots; `short`: the device has none for more.
    pub fn set_limit(&mut self, limit: u32, short: bool) {
        self.room = limit;
        self.limit = limit.min(self.count);
        self.short = short;
        let free = |word: usize| (!(self.taken[word] | self.shut(word))).count_ones();
        self.usable = (0..(self.limit as usize).div_ceil(64)).map(free).sum();
    }
    /// The slots of a word that lie beyond the limit.
    fn shut(&self, word: usize) -> u64 {
        match (self.limit as usize).saturating_sub(word * 64) {
            open if open >= 64 => 0,
            open => !0 << open,
        }
    }
    pub fn is_taken(&self, slot: Slot) -> bool {
        self.taken.get(slot.0 as usize / 64).is_none_or(|w| w >> (slot.0 % 64) & 1 == 1)
    }

    /// Marks a slot that an entry names. Returns false if it is out of range or named twice.
    pub fn claim(&mut self, slot: Slot) -> bool {
        if slot.0 >= self.count || self.is_taken(slot) {
            return false;
        }
        self.taken[slot.0 as usize / 64] |= 1 << (slot.0 % 64);
        self.free -= 1;
        self.usable -= u32::from(slot.0 < self.limit);
        true
    }

    /// Takes up to `n` free slots and leaves `keep`. They are allocated round robin, so that each keeps its clean copy for about
    /// the same time.
    pub fn take(&mut self, n: usize, keep: u32) -> Vec<Slot> {
        let n = n.min(self.usable.saturating_sub(keep) as usize);
        let mut slots = Vec::with_capacity(n);
        let words = self.taken.len();
        while slots.len() < n {
            let at = self.hand / 64 % words;
            let passed = (1u64 << (self.hand % 64)) - 1;
            let bit = (self.taken[at] | self.shut(at) | passed).trailing_ones();
            if bit == 64 {
                self.hand = (at + 1) * 64;
                continue;
            }
            self.taken[at] |= 1 << bit;
            slots.push(Slot(at as u32 * 64 + bit));
            self.hand = at * 64 + bit as usize + 1;
        }
        slots.iter().for_each(|slot| self.clean.taken(*slot));
        self.free -= n as u32;
        self.usable -= n as u32;
        slots
    }

    /// Returns a slot whose write was never mapped.
    pub fn give_back(&mut self, slot: Slot) {
        assert!(self.is_taken(slot) && slot.0 < self.len);
        self.taken[slot.0 as usize / 64] &= !(1 << (slot.0 % 64));
        if slot.0 >= self.count {
            return; // removed by a shrink
        }
        self.free += 1;
        self.usable += u32::from(slot.0 < self.limit);
    }

    /// The record that ends at `end` removed the slot's name.
    pub fn release_at(&mut self, end: Glsn, slot: Slot) {
        self.pending.push_back((end, slot));
    }
    /// As `release_at`, for a page that is in an object with this tag now: until the slot is allocated, it has a clean copy.
    pub fn release_clean(&mut self, end: Glsn, slot: Slot, id: PageId, tag: Tag) {
        self.release_at(end, slot);
        self.clean.left(id, tag, slot);
    }
    /// Sets for how many slots clean copies are remembered.
    pub fn keep_clean(&mut self, slots: u32) {
        self.clean.keep(slots);
    }
    pub fn clean(&self) -> &Clean {
        &self.clean
    }
    /// The slot does not have the page's copy, contrary to what was remembered.
    pub fn is_not_clean(&mut self, id: PageId, tag: Tag, slot: Slot) {
        if self.clean.find(id, tag) == Some(slot) {
            self.clean.taken(slot);
        }
    }
    /// The record that ends at `end` superseded the object.
    pub fn collect_at(&mut self, end: Glsn, key: ObjectKey) {
        self.collect.push_back((end, key));
    }

    /// Frees the slots that waited for the horizon to reach `durable`. Returns how many became free.
    pub fn settle(&mut self, durable: Glsn) -> usize {
        let mut freed = 0;
        if self.held && !crate::planted::COPIED_SLOT_REUSED.on() {
            return 0;
        }
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

    /// While held, pending slots stay pending.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }
    pub fn is_held(&self) -> bool {
        self.held
    }
    /// A bit for each slot that is in use, promised or pending.
    pub fn taken(&self) -> &[u64] {
        &self.taken
    }

    pub fn pending(&self) -> u32 {
        self.pending.len() as u32
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
