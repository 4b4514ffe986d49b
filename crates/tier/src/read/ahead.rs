//! Runs of pages: the pages that a scan reads next are read with the present one. From an object a run is one request, and the
//! time to its first byte is most of the cost of a page; from the volume or from flash it is one batch. Flash is near: a scan
//! that begins there reads few pages along, because an unused page costs about as much as the wait that a used one saves.

use super::{FlashCache, ReadPath, from_body};
use crate::ablation::Mechanism;
use crate::address::ObjectKey;
use crate::address::Slot;
use crate::address::Tier;
use crate::address::{Home, InObject, Located};
use crate::memory::lower_tiers::{Below, Fetched, ReadError};
use crate::memory::pool::ScanDirection;
use crate::page::{self, BLOCK_PAGES, PageId, Tag};
use std::sync::atomic::Ordering;

/// Pages behind one that are read with it from the volume: enough to hide a request's latency.
const FROM_VOLUME: usize = 15;
/// Pages behind one that are read with it from flash, if they are there: enough to begin with (`docs/decisions/2026-11-22-flash-is-read-in-batches-and-scans-start-small.md`).
const FROM_FLASH: usize = 3;
/// Pages that a prefetcher reads from flash in one batch: more would save little, and hold up those who wait for one page.
const FLASH_BATCH: usize = 16;

/// Whether two pages of a block are in slots both, or in its objects both.
fn same_tier(one: &Home, other: &Home) -> bool {
    one.slot.is_some() == other.slot.is_some()
}

/// Whether two pages are at the same place below flash: in slots, or in one object.
fn same_place(one: &Home, other: &Home) -> bool {
    match (one.slot, other.slot) {
        (Some(_), Some(_)) => true,
        (None, None) => one.object.map(|at| at.key) == other.object.map(|at| at.key),
        _ => false,
    }
}

/// Where a page is that memory lacks. What is in one place of a block comes with one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageSource {
    Flash,
    Slot,
    /// The slot that it left when it sank to this object.
    CleanCopy(Option<ObjectKey>),
    Object(Option<ObjectKey>),
}

impl ReadPath {
    fn place(&self, id: PageId, home: &Home) -> PageSource {
        let object = home.object.map(|at| at.key);
        match home.slot {
            _ if self.on_flash(id) => PageSource::Flash,
            Some(_) => PageSource::Slot,
            None if self.map.clean_copy(id, home.tag).is_some() => PageSource::CleanCopy(object),
            None => PageSource::Object(object),
        }
    }

    /// None of a table whose reads are limited.
    pub(super) fn pages_beside(&self, id: PageId, before: u32, after: u32) -> Vec<PageId> {
        if self.limits_reads(id.space) {
            return Vec::new();
        }
        let (block, at) = (id.block(), id.in_block());
        let homes = self.map.block(block).homes;
        let place = |i: usize| homes.get(i)?.as_ref().map(|home| self.place(block.page(i), home));
        let Some(here) = place(at) else { return Vec::new() };
        let last = at.saturating_add(after as usize).min(BLOCK_PAGES as usize - 1);
        (at.saturating_sub(before as usize)..=last)
            .filter(|i| place(*i) == Some(here))
            .map(|i| block.page(i))
            .collect()
    }

    /// A patch object has few of the block's pages: those of distant numbers stand side by side.
    pub(super) fn are_close_in_object(&self, one: PageId, next: PageId, gap: u32) -> bool {
        let object = |id| match self.map.locate(id) {
            Located::At(home) if home.slot.is_none() => home.object,
            _ => None,
        };
        let (Some(one), Some(next)) = (object(one), object(next)) else { return false };
        let between = next.offset.saturating_sub(one.offset + one.length);
        one.key == next.key && between <= gap.saturating_sub(1) as usize * one.length
    }

    pub(super) fn on_flash(&self, id: PageId) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.seems_to_have(id))
    }

    /// The pages of the block behind `id`, or before it, that are where it is, the nearest first. On flash: those among the next few. Below: up to the first that is not.
    /// Those that are on flash as well come from there with each other, and do not end the run, nor do those of the block's other
    /// object, which come with each other likewise.
    pub(super) fn pages_ahead(&self, id: PageId, max: usize, way: ScanDirection) -> Vec<PageId> {
        let block = self.map.block(id.block());
        let home = |i: usize| block.homes.get(i).copied().flatten();
        let Some(first) = home(id.in_block()) else { return Vec::new() };
        let near = self.on_flash(id);
        let max = match first.slot {
            _ if near => max.min(FROM_FLASH),
            Some(_) => max.min(FROM_VOLUME),
            None => max,
        };
        let at = id.in_block();
        let place = |n: usize| if way == ScanDirection::Up { at + n } else { at - n };
        let there = if way == ScanDirection::Up { BLOCK_PAGES as usize - 1 - at } else { at };
        (1..=there.min(max))
            .map(place)
            .take_while(|i| home(*i).is_some_and(|home| near || same_tier(&first, &home)))
            .filter(|i| home(*i).is_some_and(|home| near || same_place(&first, &home)))
            .map(|i| id.block().page(i))
            .filter(|id| self.on_flash(*id) == near)
            .collect()
    }

    /// The pages of the block among the `max` from `from` on, in groups: those on flash some at a time, the others by the
    /// place below that they are at. None of a table whose reads are limited.
    pub(super) fn block_stretch(&self, from: PageId, max: usize) -> Vec<Vec<PageId>> {
        if self.limits_reads(from.space) {
            return Vec::new();
        }
        let block = self.map.block(from.block());
        let pages = block.homes.iter().enumerate().skip(from.in_block()).take(max);
        let (mut near, mut groups) = (Vec::new(), Vec::<Vec<PageId>>::new());
        // One for each of the block's objects since the last page in a slot, or one of slots.
        let mut open: Vec<(Home, usize)> = Vec::new();
        for (i, home) in pages.filter_map(|(i, home)| home.map(|home| (i, home))) {
            let id = from.block().page(i);
            if self.on_flash(id) {
                near.push(id);
                continue;
            }
            open.retain(|(first, _)| same_tier(first, &home));
            match open.iter().find(|(first, _)| same_place(first, &home)) {
                Some((_, group)) => groups[*group].push(id),
                None => {
                    open.push((home, groups.len()));
                    groups.push(vec![id]);
                }
            }
        }
        near.chunks(FLASH_BATCH).map(<[PageId]>::to_vec).chain(groups).collect()
    }

    /// Reads a run together, from flash if its first page is there. A page that moved meanwhile, or whose image is not good, is an
    /// error among the pages ahead, and is looked for by itself if it is the one that is wanted: the first.
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
        let flash = self.flash.as_deref().filter(|flash| flash.seems_to_have(ids[0]) && !self.avoids_flash());
        let together: Vec<(usize, Home)> = homes
            .iter()
            .enumerate()
            .filter_map(|(i, home)| Some((i, (*home)?)))
            .filter(|(_, home)| flash.is_some() || same_place(&first, home))
            .collect();
        let mut results: Vec<Result<Fetched, ReadError>> =
            ids.iter().map(|id| Err(ReadError::Absent(*id))).collect();
        let mut targets: Vec<Option<&mut [u8]>> = images.iter_mut().map(|image| Some(&mut **image)).collect();
        let parts: Vec<&mut [u8]> = together.iter().filter_map(|(i, _)| targets[*i].take()).collect();
        let read = match flash {
            Some(flash) => self.read_flash(flash, ids, &together, parts),
            None if first.slot.is_some() => self.read_slots(ids, &together, parts),
            None => self.read_sunk(ids, &together, parts),
        };
        for ((i, home), read) in together.iter().zip(read) {
            let (id, image) = (ids[*i], &mut *images[*i]);
            results[*i] = read.and_then(|tier| {
                // What came from flash, or from a slot that is free, was looked at there.
                let unseen = tier == Tier::Object || first.slot.is_some() && tier == Tier::Volume;
                if unseen {
                    let key = home.object.filter(|_| tier == Tier::Object).map(|at| at.key);
                    page::check(image, id, Some(home.tag)).map_err(|bad| ReadError::Corrupt {
                        id,
                        tier,
                        key,
                        bad,
                    })?;
                }
                self.with_redo(id, tier, image)
            });
        }
        if results[0].is_err() {
            results[0] = self.fetch(ids[0], images[0]);
        }
        results
    }

    /// What flash has of the pages; the others are absent.
    fn read_flash(
        &self,
        flash: &dyn FlashCache,
        ids: &[PageId],
        pages: &[(usize, Home)],
        mut images: Vec<&mut [u8]>,
    ) -> Vec<Result<Tier, ReadError>> {
        self.spend(ids[0], Tier::Flash, pages.len() as u64);
        let wanted: Vec<(PageId, Tag)> = pages.iter().map(|(i, home)| (ids[*i], home.tag)).collect();
        let found = if self.without.has(Mechanism::VectoredReads) {
            wanted.iter().zip(&mut images).map(|((id, tag), image)| flash.find(*id, *tag, image)).collect()
        } else {
            flash.find_many(&wanted, &mut images)
        };
        let count = found.iter().filter(|found| **found).count() as u64;
        self.counters.flash.fetch_add(count, Ordering::Relaxed);
        let read = found.into_iter().zip(wanted);
        read.map(|(found, (id, _))| if found { Ok(Tier::Flash) } else { Err(ReadError::Absent(id)) })
            .collect()
    }

    /// The pages, all of which have slots.
    fn read_slots(
        &self,
        ids: &[PageId],
        pages: &[(usize, Home)],
        images: Vec<&mut [u8]>,
    ) -> Vec<Result<Tier, ReadError>> {
        let slots: Vec<Slot> = pages.iter().filter_map(|(_, home)| home.slot).collect();
        self.spend(ids[0], Tier::Volume, slots.len() as u64);
        self.counters.volume.fetch_add(slots.len() as u64, Ordering::Relaxed);
        let read = if self.without.has(Mechanism::VectoredReads) {
            slots.iter().zip(images).map(|(slot, image)| self.buffer.read(*slot, image)).collect()
        } else {
            self.buffer.read_into(&slots, images)
        };
        let read = read.into_iter().zip(pages);
        let failed = |i: usize, error| ReadError::Disk { id: ids[i], tier: Tier::Volume, error };
        read.map(|(read, (i, _))| read.map(|()| Tier::Volume).map_err(|error| failed(*i, error))).collect()
    }

    /// The pages, none of which has a slot: those whose image the slot still has that they left when they sank from there, the others from
    /// their object, with one request.
    fn read_sunk(
        &self,
        ids: &[PageId],
        pages: &[(usize, Home)],
        images: Vec<&mut [u8]>,
    ) -> Vec<Result<Tier, ReadError>> {
        let mut images: Vec<Option<&mut [u8]>> = images.into_iter().map(Some).collect();
        let mut read = self.read_clean_copies(ids, pages, &mut images);
        let (mut far, mut at, mut parts) = (Vec::new(), Vec::<InObject>::new(), Vec::new());
        for (place, image) in images.into_iter().enumerate() {
            let (Some(image), Some(object)) = (image, pages[place].1.object) else { continue };
            far.push(place);
            at.push(object);
            parts.push(image);
        }
        let Some(objects) = self.objects.as_ref().filter(|_| !far.is_empty()) else { return read };
        self.spend(ids[0], Tier::Object, far.len() as u64);
        self.counters.object.fetch_add(far.len() as u64, Ordering::Relaxed);
        for ((place, at), result) in far.into_iter().zip(&at).zip(objects.read_pages(&at, parts)) {
            let id = ids[pages[place].0];
            read[place] = result.map(|()| Tier::Object).map_err(|error| from_body(id, at, error));
        }
        read
    }

    /// What free slots still have of the pages, looked at: these images are taken. The others are absent.
    fn read_clean_copies(
        &self,
        ids: &[PageId],
        pages: &[(usize, Home)],
        images: &mut [Option<&mut [u8]>],
    ) -> Vec<Result<Tier, ReadError>> {
        let mut found = Vec::new();
        for (place, (i, home)) in pages.iter().enumerate() {
            if let Some(slot) = self.map.clean_copy(ids[*i], home.tag)
                && let Some(image) = images[place].take()
            {
                found.push((place, slot, image));
            }
        }
        let mut read: Vec<Result<Tier, ReadError>> =
            pages.iter().map(|(i, _)| Err(ReadError::Absent(ids[*i]))).collect();
        if found.is_empty() {
            return read;
        }
        self.spend(ids[0], Tier::Volume, found.len() as u64);
        let slots: Vec<Slot> = found.iter().map(|(_, slot, _)| *slot).collect();
        let parts: Vec<&mut [u8]> = found.iter_mut().map(|(.., image)| &mut **image).collect();
        let results = self.buffer.read_into(&slots, parts);
        for ((place, slot, image), result) in found.into_iter().zip(results) {
            let (i, home) = pages[place];
            if result.is_ok() && page::check(image, ids[i], Some(home.tag)).is_ok() {
                self.counters.clean.fetch_add(1, Ordering::Relaxed);
                self.counters.volume.fetch_add(1, Ordering::Relaxed);
                read[place] = Ok(Tier::Volume);
            } else {
                // Given out meanwhile, as a rule: the object has it.
                self.map.no_clean_copy(ids[i], home.tag, slot);
                images[place] = Some(image);
            }
        }
        read
    }
}
