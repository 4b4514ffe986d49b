//! Which slots of the spill space are whose. Memory work only.

use crate::below::Tier;
use crate::page::{PageId, SpaceId, Tag};
use crate::planted;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// A page's place in the spill space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub tier: Tier,
    pub no: u32,
}

/// Where a page's image is.
#[derive(Clone, Copy)]
pub(super) struct Home {
    pub slot: Slot,
    pub tag: Tag,
}

#[derive(Default)]
pub(super) struct Slots {
    /// Of each space, by page number.
    pub homes: HashMap<SpaceId, Vec<Option<Home>>>,
    /// Slots below `next` that are nobody's, of the file in use.
    pub free: BTreeSet<u32>,
    pub next: u32,
    pub used: u64,
}

impl Slots {
    pub fn home_mut(&mut self, id: PageId) -> Option<&mut Option<Home>> {
        self.homes.get_mut(&id.space)?.get_mut(id.page as usize)
    }
    pub fn home(&self, id: PageId) -> Option<Home> {
        self.homes.get(&id.space)?.get(id.page as usize).copied().flatten()
    }

    /// The slot that the page has on the tier, or a free one: the first, so that the file's end is free.
    pub fn take(&mut self, id: PageId, tier: Tier) -> Slot {
        if let Some(home) = self.home(id).filter(|home| home.slot.tier == tier) {
            return home.slot;
        }
        let no = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        Slot { tier, no }
    }

    /// The slot is nobody's any more. Those of a tier that is left are no use; one beyond `next` was given back before, when its
    /// space was dropped while the page was written.
    pub fn release(&mut self, slot: Slot, tier: Tier) {
        let given_back = slot.no >= self.next && !planted::SLOT_RELEASED_TWICE.on();
        if slot.tier != tier || given_back {
            return;
        }
        self.free.insert(slot.no);
        while self.next > 0 && self.free.remove(&(self.next - 1)) {
            self.next -= 1;
        }
    }

    /// The page's image is there from now on. What it had on a tier that was left is gone with it.
    pub fn set(&mut self, id: PageId, home: Home) {
        let pages = self.homes.entry(id.space).or_default();
        let at = id.page as usize;
        if pages.len() <= at {
            pages.resize(at + 1, None);
        }
        self.used += u64::from(pages[at].replace(home).is_none());
    }
}
