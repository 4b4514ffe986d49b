//! Runs of pages: what a scan reads next comes with what it reads now. From an object a run is one request, and time
//! to its first byte is most of what a page costs; from the volume it is one batch. Flash is near: pages there are read
//! one by one, when they are wanted.

use super::{Path, from_body};
use crate::below::{Below, Fetched, ReadError, Tier};
use crate::map::entry::Slot;
use crate::map::{Home, InObject, Located};
use crate::page::{self, BLOCK_PAGES, PageId};
use std::sync::atomic::Ordering;

/// Pages behind one that are read with it from the volume: enough to hide a request's latency.
const FROM_VOLUME: usize = 15;

/// The tier below flash that a page is on: a slot, or an object.
fn same_place(one: &Home, other: &Home) -> bool {
    match (one.slot, other.slot) {
        (Some(_), Some(_)) => true,
        (None, None) => one.object.map(|at| at.key) == other.object.map(|at| at.key),
        _ => false,
    }
}

impl Path {
    pub(super) fn on_flash(&self, id: PageId) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.seems_to_have(id))
    }

    /// The pages of the block behind `id` that are where it is, up to the first that is not. Those that are on flash as
    /// well are read from there when they are wanted; a few of them do not end the run.
    pub(super) fn pages_ahead(&self, id: PageId, max: usize) -> Vec<PageId> {
        let block = self.map.block(id.block());
        let home = |i: usize| block.homes.get(i).copied().flatten();
        let Some(first) = home(id.in_block()).filter(|_| !self.on_flash(id)) else { return Vec::new() };
        let max = if first.slot.is_some() { max.min(FROM_VOLUME) } else { max };
        (id.in_block() + 1..BLOCK_PAGES as usize)
            .take(max)
            .take_while(|i| home(*i).is_some_and(|home| same_place(&first, &home)))
            .map(|i| id.block().page(i))
            .filter(|id| !self.on_flash(*id))
            .collect()
    }

    /// The pages of the block among the `max` from `from` on, in groups: those on flash each by itself, the others by the
    /// place below that they are at. None of a table whose reads are limited.
    pub(super) fn block_stretch(&self, from: PageId, max: usize) -> Vec<Vec<PageId>> {
        if self.limits_reads(from.space) {
            return Vec::new();
        }
        let block = self.map.block(from.block());
        let pages = block.homes.iter().enumerate().skip(from.in_block()).take(max);
        let (mut near, mut groups) = (Vec::new(), Vec::<Vec<PageId>>::new());
        let mut last = None;
        for (i, home) in pages.filter_map(|(i, home)| home.map(|home| (i, home))) {
            let id = from.block().page(i);
            if self.on_flash(id) {
                near.push(vec![id]);
                continue;
            }
            match groups.last_mut().filter(|_| last.is_some_and(|last| same_place(&last, &home))) {
                Some(group) => group.push(id),
                None => groups.push(vec![id]),
            }
            last = Some(home);
        }
        near.extend(groups);
        near
    }

    /// Reads a run together. A page that moved meanwhile, or whose image is not good, is an error among the pages
    /// ahead, and is looked for by itself if it is the one that is wanted: the first.
    pub(super) fn run(&self, ids: &[PageId], images: &mut [&mut [u8]]) -> Vec<Result<Fetched, ReadError>> {
        let homes: Vec<Option<Home>> = ids
            .iter()
            .map(|id| match self.map.locate(*id) {
                Located::At(home) => Some(home),
                Located::Never => None,
            })
            .collect();
        let Some(first) = homes.first().copied().flatten() else {
            return ids.iter().zip(images).map(|(id, image)| self.fetch(*id, image)).collect();
        };
        let together: Vec<(usize, Home)> = homes
            .iter()
            .enumerate()
            .filter_map(|(i, home)| home.filter(|home| same_place(&first, home)).map(|home| (i, home)))
            .collect();
        let mut results: Vec<Result<Fetched, ReadError>> =
            ids.iter().map(|id| Err(ReadError::Absent(*id))).collect();
        let mut targets: Vec<Option<&mut [u8]>> = images.iter_mut().map(|image| Some(&mut **image)).collect();
        let parts: Vec<&mut [u8]> = together.iter().filter_map(|(i, _)| targets[*i].take()).collect();
        let (tier, read) = self.read_together(ids, &together, parts);
        for ((i, home), read) in together.iter().zip(read) {
            let (id, image) = (ids[*i], &mut *images[*i]);
            results[*i] = read
                .and_then(|()| {
                    page::check(image, id, Some(home.tag)).map_err(|bad| ReadError::Corrupt { id, tier, bad })
                })
                .and_then(|()| self.with_redo(id, tier, image));
        }
        if results[0].is_err() {
            results[0] = self.fetch(ids[0], images[0]);
        }
        results
    }

    fn read_together(
        &self,
        ids: &[PageId],
        pages: &[(usize, Home)],
        images: Vec<&mut [u8]>,
    ) -> (Tier, Vec<Result<(), ReadError>>) {
        let count = pages.len() as u64;
        let slots: Vec<Slot> = pages.iter().filter_map(|(_, home)| home.slot).collect();
        let tier = if slots.len() == pages.len() { Tier::Volume } else { Tier::Object };
        self.spend(ids[0], tier, count);
        if slots.len() == pages.len() {
            self.counters.volume.fetch_add(count, Ordering::Relaxed);
            let read = self.buffer.read_into(&slots, images).into_iter().zip(pages);
            let failed = |i: usize, error| ReadError::Disk { id: ids[i], tier: Tier::Volume, error };
            return (
                Tier::Volume,
                read.map(|(read, (i, _))| read.map_err(|error| failed(*i, error))).collect(),
            );
        }
        let at: Vec<InObject> = pages.iter().filter_map(|(_, home)| home.object).collect();
        let Some(objects) = self.objects.as_ref().filter(|_| at.len() == pages.len()) else {
            return (Tier::Object, pages.iter().map(|(i, _)| Err(ReadError::Absent(ids[*i]))).collect());
        };
        self.counters.object.fetch_add(count, Ordering::Relaxed);
        let read = objects.read_pages(&at, images).into_iter().zip(pages);
        (Tier::Object, read.map(|(read, (i, _))| read.map_err(|error| from_body(ids[*i], error))).collect())
    }
}
