//! The hash table of a flash cache: 32-bit fingerprints of keys to slot numbers, and a few bits a slot.
//!
//! Memory a slot: 4 bytes for the fingerprint of the key in it, 6 for the table (open addressing with linear probing, two thirds
//! full), 4 bits. With the ghost list's 2 bytes that is under 13 bytes a page (CloudJump III §4.1.3 has 46).
//!
//! A fingerprint does not identify a key: several slots may match one. A look-up reads each match and lets the value's own header
//! decide; an invalidation clears every match.
//!
//! States of a slot, given by its bits:
//!
//! | used | busy | it is |
//! | --- | --- | --- |
//! | 0 | 0 | free |
//! | 1 | 1 | filled: in the table already, its value is queued or being written |
//! | 1 | 0 | in the table, its value is on flash |
//! | 0 | 1 | removed while its value was being written: free when the write has ended |
//!
//! Not here: which slot a new value gets and which value is evicted (`bpe/index`: fixed slots and CLOCK; `blocks/segments`: slots of
//! segments), I/O, locks (the owner's).

use smallvec::SmallVec;

/// Maximum of a slot's use count.
pub(crate) const USES_MAX: u8 = 3;

/// A place for one value, counted from 0.
pub type FlashSlot = u32;

/// Slots whose fingerprint matches; nearly always zero or one.
pub type Matches = SmallVec<[FlashSlot; 4]>;

pub(crate) struct Bits(Vec<u64>);

impl Bits {
    fn new(len: u32) -> Bits {
        Bits(vec![0; (len as usize).div_ceil(64)])
    }
    pub fn get(&self, i: u32) -> bool {
        self.0[i as usize / 64] >> (i % 64) & 1 == 1
    }
    fn resize(&mut self, len: u32) {
        self.0.resize((len as usize).div_ceil(64), 0);
        self.0.shrink_to_fit();
        if let (Some(last), spare @ 1..) = (self.0.last_mut(), len % 64) {
            *last &= (1 << spare) - 1;
        }
    }
    pub fn set(&mut self, i: u32, on: bool) {
        let word = &mut self.0[i as usize / 64];
        *word = *word & !(1 << (i % 64)) | u64::from(on) << (i % 64);
    }
}

pub(crate) struct Table {
    /// For a slot in use, its key's fingerprint; for others, the owner's.
    pub marks: Vec<u32>,
    /// Slots plus 1; 0 is an empty position.
    positions: Vec<u32>,
    pub used: Bits,
    pub busy: Bits,
    /// Uses since eviction last considered the slot, at most three, in two bits.
    used_once: Bits,
    used_twice: Bits,
    in_use: u32,
}

impl Table {
    pub fn new(slots: u32) -> Table {
        Table {
            marks: vec![0; slots as usize],
            positions: vec![0; Table::positions_for(slots)],
            used: Bits::new(slots),
            busy: Bits::new(slots),
            used_once: Bits::new(slots),
            used_twice: Bits::new(slots),
            in_use: 0,
        }
    }

    fn positions_for(slots: u32) -> usize {
        slots as usize + slots as usize / 2 + 1
    }

    /// The number of slots in the table.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    fn home(&self, mark: u32) -> usize {
        ((u64::from(mark) * self.positions.len() as u64) >> 32) as usize
    }
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.positions.len() { 0 } else { at + 1 }
    }

    /// Every slot whose key has this fingerprint.
    pub fn matches(&self, mark: u32) -> Matches {
        let mut found = Matches::new();
        let mut at = self.home(mark);
        while self.positions[at] != 0 {
            let slot = self.positions[at] - 1;
            if self.marks[slot as usize] == mark {
                found.push(slot);
            }
            at = self.after(at);
        }
        found
    }

    fn enter(&mut self, slot: FlashSlot) {
        let mut at = self.home(self.marks[slot as usize]);
        while self.positions[at] != 0 {
            at = self.after(at);
        }
        self.positions[at] = slot + 1;
    }

    /// Puts a free slot into the table, with no uses.
    pub fn link(&mut self, slot: FlashSlot, mark: u32) {
        self.marks[slot as usize] = mark;
        self.used.set(slot, true);
        self.set_uses(slot, 0);
        self.in_use += 1;
        self.enter(slot);
    }

    /// Removes the slot from the table and closes the gap, so that every entry is still reached from its home position without
    /// passing an empty one.
    pub fn unlink(&mut self, slot: FlashSlot) {
        let len = self.positions.len();
        let mut gap = self.home(self.marks[slot as usize]);
        while self.positions[gap] != slot + 1 {
            assert!(self.positions[gap] != 0, "flash slot {slot} is in use but not in the table");
            gap = self.after(gap);
        }
        let mut at = self.after(gap);
        while self.positions[at] != 0 {
            let home = self.home(self.marks[self.positions[at] as usize - 1]);
            if (at + len - home) % len >= (at + len - gap) % len {
                self.positions[gap] = self.positions[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.positions[gap] = 0;
        self.used.set(slot, false);
        self.in_use -= 1;
    }

    /// Whether the slot is in use for a key with this fingerprint. False also for a slot that does not exist.
    pub fn holds(&self, slot: FlashSlot, mark: u32) -> bool {
        self.marks.get(slot as usize) == Some(&mark) && self.used.get(slot)
    }

    /// A reader found the slot's value: eviction spares it once more. Does nothing if the slot holds another value by now.
    pub fn touch(&mut self, slot: FlashSlot, mark: u32) {
        if self.holds(slot, mark) {
            self.set_uses(slot, (self.uses(slot) + 1).min(USES_MAX));
        }
    }
    pub fn uses(&self, slot: FlashSlot) -> u8 {
        u8::from(self.used_once.get(slot)) | u8::from(self.used_twice.get(slot)) << 1
    }
    pub fn set_uses(&mut self, slot: FlashSlot, uses: u8) {
        self.used_once.set(slot, uses & 1 == 1);
        self.used_twice.set(slot, uses & 2 == 2);
    }

    /// Allocates memory for `slots` slots and enters those in use below `fresh` again, which takes a few cache misses each.
    pub fn resize(&mut self, slots: u32, fresh: u32) {
        self.marks.resize(slots as usize, 0);
        self.marks.shrink_to_fit();
        for bits in [&mut self.used, &mut self.busy, &mut self.used_once, &mut self.used_twice] {
            bits.resize(slots);
        }
        self.positions = Vec::new(); // freed before the new one is allocated
        self.positions = vec![0; Table::positions_for(slots)];
        for slot in 0..fresh {
            if self.used.get(slot) {
                self.enter(slot);
            }
        }
    }

    /// Panics if table and bits disagree. For tests.
    pub fn check_invariants(&self) {
        let linked: Vec<u32> = self.positions.iter().filter(|s| **s != 0).map(|s| s - 1).collect();
        assert_eq!(linked.len(), self.in_use as usize);
        for slot in &linked {
            assert!(self.used.get(*slot), "slot {slot} is in the table but not used");
            assert!(self.matches(self.marks[*slot as usize]).contains(slot), "slot {slot} cannot be found");
        }
    }
}
