//! What flash brought beside a file that was asked for, into the arena: files that the catalogue wants.

use super::Files;
use crate::catalogue::{Offer, Wanted};
use crate::flash::Flash;
use crate::packing::Loaded;

impl Files {
    /// Attaches the neighbours of `path` that were read with it. Whatever finds no room is left on flash.
    pub(super) fn bring(&self, flash: &Flash, loaded: &Loaded, path: &str) {
        let (at, offers): (Vec<usize>, Vec<Offer>) = loaded
            .files()
            .filter(|(_, name, ..)| name != path)
            .map(|(at, name, version, len)| (at, Offer { path: name.into(), version, len: len as u64 }))
            .unzip();
        let places: Vec<usize> = (0..offers.len()).collect();
        let (wanted, (used, unused)) = self.tell(|catalogue, _| {
            (catalogue.room_beside(&offers, &places, true), catalogue.take_news_of_brought())
        });
        if let Some(packs) = &flash.packs {
            packs.learn(used, unused);
        }
        let Wanted { found, waiting, victims } = wanted;
        self.copy_beside(loaded, &at, &offers, found);
        if waiting.is_empty() {
            return;
        }
        for victim in &victims {
            self.to_flash(victim);
        }
        let wanted = self.tell(|catalogue, _| {
            victims.iter().for_each(|victim| catalogue.give_back(victim.extent));
            catalogue.room_beside(&offers, &waiting, false)
        });
        self.copy_beside(loaded, &at, &offers, wanted.found);
    }

    fn copy_beside(
        &self,
        loaded: &Loaded,
        at: &[usize],
        offers: &[Offer],
        found: Vec<(usize, crate::memory::extents::Extent)>,
    ) {
        let mut copied = Vec::with_capacity(found.len());
        for (place, extent) in found {
            let bytes = loaded.bytes(at[place]).filter(|_| loaded.proves(at[place], &offers[place].path));
            let mut loading = self.arena.loading(extent);
            let is_right = bytes.is_some_and(|bytes| {
                loading.bytes_mut().copy_from_slice(bytes);
                true
            });
            copied.push((place, loading.loaded(), is_right));
        }
        self.tell(|catalogue, _| {
            for (place, extent, is_right) in copied {
                match is_right {
                    true => catalogue.brought(&offers[place], extent),
                    false => catalogue.give_back(extent),
                }
            }
        });
    }
}
