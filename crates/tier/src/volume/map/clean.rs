//! Clean copies: the image of a sunk page remains in its old slot until the slot is allocated again.
//!
//! A read of the volume takes a hundredth of the time of a read of the store, and a free slot has no other use. Which image a
//! free slot has is remembered in memory only, and by a fingerprint: the reader checks the image, as it does with one from flash,
//! and reads the object if it is not the page with the map's tag. So entries may be wrong or lost without harm.
//!
//! Twelve bytes a slot: a fingerprint for each slot, and a set-associative table from pages to slots, half of it empty. To keep
//! this within the engine's memory, the opener of the map sets the number of slots covered, and counts the full memory in advance
//! ([`BYTES`]).

use crate::address::Slot;
use crate::page::{PageId, Tag};
use twox_hash::xxhash3_128::Hasher;

/// Bytes a slot.
pub const BYTES: u64 = 12;
/// Ways of a set.
const WAYS: usize = 8;
/// A table entry: the slot plus one, and above it the low bits of the fingerprint. 0: empty.
const SLOT_BITS: u32 = 24;
const LOW: u32 = u32::MAX >> SLOT_BITS;

#[derive(Default)]
pub(crate) struct Clean {
    /// The fingerprint of each slot; 0: no copy.
    owners: Vec<u32>,
    sets: Vec<[u32; WAYS]>,
    copies: u32,
    /// Copies are remembered in slots below this number; 0: in none.
    limit: u32,
}

/// The fingerprint of the image, never 0, and the hash of the page, for its set.
fn hashes(id: PageId, tag: Tag) -> (u32, u64) {
    let page = u64::from(id.space.0) << 32 | u64::from(id.page);
    let hash = |bytes: &[u8]| Hasher::oneshot(bytes) as u64;
    let owner = hash([page, u64::from(tag)].map(u64::to_le_bytes).as_flattened()) as u32;
    (owner.max(1), hash(&page.to_le_bytes()))
}

fn place(slot: Slot, owner: u32) -> u32 {
    (owner << SLOT_BITS) | (slot.0 + 1)
}

/// For an empty table entry, a slot that does not exist.
fn slot_of(place: u32) -> Slot {
    Slot((place & ((1 << SLOT_BITS) - 1)).wrapping_sub(1))
}

impl Clean {
    fn set_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.sets.len() as u128) >> 64) as usize
    }

    /// Whether the table entry is still valid.
    fn holds(&self, place: u32) -> bool {
        let owner = self.owners.get(slot_of(place).0 as usize).copied().unwrap_or(0);
        owner != 0 && place >> SLOT_BITS == owner & LOW
    }

    /// From now on copies in the first `slots` slots are remembered; those remembered so far are forgotten.
    pub fn keep(&mut self, slots: u32) {
        self.limit = slots;
        self.forget();
    }

    /// The page sank, and the slot has its image with this tag until it is allocated again.
    pub fn left(&mut self, id: PageId, tag: Tag, slot: Slot) {
        if slot.0 >= self.limit {
            return;
        }
        let slots = self.limit;
        if self.owners.is_empty() {
            self.owners = vec![0; slots as usize];
            self.sets = vec![[0; WAYS]; (slots as usize).div_ceil(WAYS / 2)];
        }
        let (owner, hash) = hashes(id, tag);
        let Some(of_slot) = self.owners.get_mut(slot.0 as usize) else { return };
        self.copies += u32::from(*of_slot == 0);
        *of_slot = owner;
        let set = self.set_of(hash);
        let at = (0..WAYS).find(|at| !self.holds(self.sets[set][*at]));
        self.sets[set][at.unwrap_or(owner as usize % WAYS)] = place(slot, owner);
    }

    /// The slot was allocated.
    pub fn taken(&mut self, slot: Slot) {
        if let Some(owner) = self.owners.get_mut(slot.0 as usize).filter(|owner| **owner != 0) {
            *owner = 0;
            self.copies -= 1;
        }
    }

    /// The free slot that probably has the page's image with this tag.
    pub fn find(&self, id: PageId, tag: Tag) -> Option<Slot> {
        if self.copies == 0 {
            return None;
        }
        let (owner, hash) = hashes(id, tag);
        let mut slots = self.sets[self.set_of(hash)]
            .iter()
            .filter(|place| **place >> SLOT_BITS == owner & LOW)
            .map(|place| slot_of(*place));
        slots.find(|slot| self.owners.get(slot.0 as usize) == Some(&owner))
    }

    /// The number of slots that have copies.
    pub fn copies(&self) -> u32 {
        self.copies
    }
    pub fn bytes(&self) -> u64 {
        u64::from(self.limit) * BYTES
    }

    /// Forgets all copies: for example because the slots are others now.
    pub fn forget(&mut self) {
        *self = Clean { limit: self.limit, ..Clean::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;

    fn page(n: u32) -> PageId {
        PageId::new(SpaceId(16 + n % 3), n)
    }

    /// Compared with a list that forgets nothing: each copy found is right, and hardly any is missed.
    #[test]
    fn what_is_found_was_left_there_and_most_is_found() {
        const SLOTS: u32 = 5000;
        let mut clean = Clean::default();
        clean.left(page(1), 7, Slot(0));
        assert_eq!((clean.find(page(1), 7), clean.bytes()), (None, 0), "none are kept");
        clean.keep(SLOTS);
        clean.left(page(1), 7, Slot(SLOTS));
        assert_eq!(clean.find(page(1), 7), None);
        let mut owners = vec![None; SLOTS as usize];
        let (mut found, mut asked) = (0, 0);
        for n in 0..40_000u32 {
            let slot = n.wrapping_mul(2_654_435_761) % SLOTS;
            if n % 5 == 0 {
                clean.taken(Slot(slot));
                owners[slot as usize] = None;
            } else {
                clean.left(page(n), n % 4 + 1, Slot(slot));
                owners[slot as usize] = Some((page(n), n % 4 + 1));
            }
            assert_eq!(clean.copies() as usize, owners.iter().flatten().count());
        }
        for (slot, (id, tag)) in owners.iter().enumerate().filter_map(|(slot, of)| Some((slot, (*of)?))) {
            asked += 1;
            let slot = Slot(slot as u32);
            assert!(clean.find(id, tag).is_none_or(|at| at == slot));
            assert_eq!(clean.find(id, tag + 1), None);
            found += u32::from(clean.find(id, tag).is_some());
        }
        assert!(found * 100 >= asked * 98, "{found} of {asked}");
        let taken = clean.owners.len() * size_of::<u32>() + clean.sets.len() * size_of::<[u32; WAYS]>();
        assert_eq!((clean.bytes(), taken as u64), (u64::from(SLOTS) * BYTES, u64::from(SLOTS) * BYTES));
        clean.forget();
        assert_eq!((clean.copies(), clean.find(page(1), 7)), (0, None));
    }
}
