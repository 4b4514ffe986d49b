//! Allocation of the spill space's slots. Memory work only.

use crate::address::Tier;
use crate::page::{PageId, SpaceId, Tag};
use crate::planted;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// A page's position in the spill space.
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
    /// The images of each space, by page number.
    pub homes: HashMap<SpaceId, Vec<Option<Home>>>,
    /// Free slots below `next`, in the file in use.
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

    /// The page's slot on the tier, or a free one: the lowest, so that the file's end stays free.
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

    /// Frees the slot. Slots on an abandoned tier are dropped. A slot beyond `next` was freed before, when its space was dropped
    /// while the page was written.
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

    /// The page's image is in this slot from now on. An image on an abandoned tier is forgotten.
    pub fn set(&mut self, id: PageId, home: Home) {
        let pages = self.homes.entry(id.space).or_default();
        let at = id.page as usize;
        if pages.len() <= at {
            pages.resize(at + 1, None);
        }
        self.used += u64::from(pages[at].replace(home).is_none());
    }
}
