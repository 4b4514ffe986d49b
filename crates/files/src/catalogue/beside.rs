//! Files that come into memory beside one that was asked for: flash brings them in the same read.
//!
//! One is wanted if its file is known in this very version and not here, loading neither. It has no lease and no reader; its first use is counted, or its eviction if that comes before.

use super::{Catalogue, Victim};
use crate::memory::extents::Extent;
use crate::planted;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// A version, as flash names it.
pub fn number_of(version: &str) -> u64 {
    XxHash3_64::oneshot(version.as_bytes())
}

/// A file that flash has brought.
#[derive(Clone, Debug)]
pub struct Offer {
    pub path: Arc<str>,
    /// As flash names versions.
    pub version: u64,
    pub len: u64,
}

/// What the catalogue takes of what was brought.
#[derive(Default)]
pub struct Wanted {
    /// By the offers' places: where their bytes are to be copied.
    pub found: Vec<(usize, Extent)>,
    /// Wanted, and without room until the victims' extents are given back.
    pub waiting: Vec<usize>,
    pub victims: Vec<Victim>,
}

impl Catalogue {
    fn wants(&self, offer: &Offer) -> Option<Arc<str>> {
        let file = self.files.get(&offer.path)?;
        let meta = &file.known.as_ref()?.meta;
        let is_it = number_of(&meta.version) == offer.version || planted::BROUGHT_VERSION_IGNORED.on();
        (is_it && meta.length == offer.len && file.slots.is_empty()).then(|| meta.version.clone())
    }

    /// Allocates room for those of the offers that are wanted. `evicts`: what was not used for longest makes way.
    pub fn room_beside(&mut self, offers: &[Offer], places: &[usize], evicts: bool) -> Wanted {
        let mut wanted = Wanted::default();
        let mut missing = 0;
        for place in places {
            let Some(offer) = offers.get(*place).filter(|offer| self.wants(offer).is_some()) else {
                continue;
            };
            match self.extents.allocate(offer.len) {
                Some(extent) => wanted.found.push((*place, extent)),
                None => {
                    missing += offer.len;
                    wanted.waiting.push(*place);
                }
            }
        }
        if evicts && missing > 0 {
            self.evict_bytes(missing, &mut wanted.victims);
        }
        wanted
    }

    /// Brought files that were used for the first time, and that were evicted before they were, since this was asked last.
    pub fn take_news_of_brought(&mut self) -> (u64, u64) {
        let (used, unused) = (self.counts.brought_used, self.counts.brought_unused);
        let (used_before, unused_before) = std::mem::replace(&mut self.brought_told, (used, unused));
        (used - used_before, unused - unused_before)
    }

    /// The bytes of an offer are in the extent.
    pub fn brought(&mut self, offer: &Offer, extent: Extent) {
        let attached =
            self.wants(offer).and_then(|version| self.attach(&offer.path, &version, 0, extent, true));
        match attached {
            Some(_) => self.counts.brought += 1,
            None => self.give_back(extent),
        }
    }
}
