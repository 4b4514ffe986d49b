//! Which page is in which slot: a hash table of slot numbers beside an array of pages.

use crate::flash::key::Key;
use hashbrown::HashTable;

/// A place for one page, counted from 0.
pub(super) type Slot = u32;

/// No slot.
pub(super) const NONE: Slot = Slot::MAX;

pub(super) struct Slots<K> {
    pages: Vec<K>,
    table: HashTable<Slot>,
    free: Vec<Slot>,
    capacity: usize,
}

impl<K: Key> Slots<K> {
    pub fn new(capacity: usize) -> Slots<K> {
        assert!(capacity < NONE as usize, "{capacity} slots are more than their numbers");
        Slots {
            pages: Vec::with_capacity(capacity),
            table: HashTable::with_capacity(capacity),
            free: Vec::new(),
            capacity,
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }
    pub fn capacity(&self) -> usize {
        self.capacity
    }
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }
    /// The page in a slot in use.
    pub fn page(&self, slot: Slot) -> K {
        self.pages[slot as usize]
    }

    pub fn find(&self, id: K) -> Option<Slot> {
        self.table.find(id.spread(), |slot| self.pages[*slot as usize] == id).copied()
    }

    /// Gives the page a slot; it has none, and one is free.
    pub fn insert(&mut self, id: K) -> Slot {
        assert!(!self.is_full(), "no slot is free");
        assert!(self.find(id).is_none(), "the key has a slot already");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.pages.push(id);
            (self.pages.len() - 1) as Slot
        });
        self.pages[slot as usize] = id;
        let pages = &self.pages;
        self.table.insert_unique(id.spread(), slot, |slot| pages[*slot as usize].spread());
        slot
    }

    /// Takes the page out of its slot.
    pub fn remove(&mut self, slot: Slot) -> K {
        let id = self.pages[slot as usize];
        match self.table.find_entry(id.spread(), |other| *other == slot) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => panic!("slot {slot} is not in use"),
        }
        self.free.push(slot);
        id
    }

    /// Memory that it has, in bytes.
    pub fn bytes(&self) -> usize {
        let entry = size_of::<Slot>() + 1;
        self.pages.capacity() * size_of::<K>()
            + self.free.capacity() * size_of::<Slot>()
            + self.table.capacity() * entry * 8 / 7
    }
}

/// Links of slots in lists, each slot in at most one list.
pub(super) struct Links(Vec<[Slot; 2]>);

/// Slots in an order, newest first.
#[derive(Clone, Copy)]
pub(super) struct List {
    first: Slot,
    last: Slot,
    pub len: usize,
}

impl List {
    pub const EMPTY: List = List { first: NONE, last: NONE, len: 0 };

    pub fn oldest(&self) -> Option<Slot> {
        (self.last != NONE).then_some(self.last)
    }
}

impl Links {
    pub fn new(slots: usize) -> Links {
        Links(vec![[NONE; 2]; slots])
    }

    pub fn push(&mut self, list: &mut List, slot: Slot) {
        self.0[slot as usize] = [NONE, list.first];
        match list.first {
            NONE => list.last = slot,
            first => self.0[first as usize][0] = slot,
        }
        list.first = slot;
        list.len += 1;
    }

    pub fn remove(&mut self, list: &mut List, slot: Slot) {
        let [newer, older] = self.0[slot as usize];
        match newer {
            NONE => list.first = older,
            newer => self.0[newer as usize][1] = older,
        }
        match older {
            NONE => list.last = newer,
            older => self.0[older as usize][0] = newer,
        }
        list.len -= 1;
    }

    pub fn pop(&mut self, list: &mut List) -> Option<Slot> {
        let slot = list.oldest()?;
        self.remove(list, slot);
        Some(slot)
    }

    pub fn renew(&mut self, list: &mut List, slot: Slot) {
        self.remove(list, slot);
        self.push(list, slot);
    }

    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<[Slot; 2]>()
    }
}
