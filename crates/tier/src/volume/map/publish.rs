//! Changing the map: each change is one mini-transaction over map pages.

use super::entry::{self, Entry};
use super::image::Image;
use super::{Inner, Map, MapError, MapPage, group_of};
use crate::address::{Home, Located, ObjectKey, ObjectShape, Slot};
use crate::page::{BLOCK_PAGES, BlockId, PageId, PageKind, SpaceId, Tag};
use crate::planted;
use crate::redo::PageMut;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use terrace_log::{LogError, LogRoom, LsnRange, PageRedo, Urgency, record_bound};

/// Redo bytes of one page's new slot.
const SLOT_REDO: u64 = 40;
/// Redo bytes of a new map page and its owner.
const NEW_PAGE_REDO: u64 = record_bound(64);
const OBJECT_REDO: u64 = record_bound(1024 + 9 * BLOCK_PAGES as usize);

type Ops = BTreeMap<u32, Vec<u8>>;

impl Inner {
    /// The map page for a group of blocks, created if it does not exist yet.
    fn page_for(&mut self, space: SpaceId, group: u32, ops: &mut Ops) -> u32 {
        if let Some(page) = self.index.get(&(space, group)) {
            return *page;
        }
        let number = self.free_pages.pop().unwrap_or_else(|| {
            self.pages.push(MapPage {
                image: Image::blank(),
                first_change: None,
                home: 0,
                lost: false,
                torn: false,
                doubtful: false,
            });
            self.pages.len() as u32 - 1
        });
        let mut page = self.page_anew(number, ops);
        entry::set_owner(&mut page, space, group);
        self.index.insert((space, group), number);
        number
    }

    /// The map page, empty.
    fn page_anew<'a>(&'a mut self, number: u32, ops: &'a mut Ops) -> PageMut<'a> {
        let image = &mut self.pages[number as usize].image;
        image.clear();
        let mut page = image.head_mut(ops.entry(number).or_default());
        page.init(PageId::new(SpaceId::MAP, number), PageKind::Map, 0);
        page
    }

    /// The map page, to change this entry.
    fn page_mut<'a>(&'a mut self, number: u32, index: u32, ops: &'a mut Ops) -> PageMut<'a> {
        self.pages[number as usize].image.entry_mut(index, ops.entry(number).or_default())
    }

    fn entry(&self, number: u32, index: u32) -> Entry<'_> {
        Entry::new(self.pages[number as usize].image.page(), index)
    }

    /// The block's entry has changed: updates the data for the choice of what to sink.
    fn note_stored(&mut self, block: BlockId) {
        let (group, index) = group_of(block);
        let Some(number) = self.index.get(&(block.space, group)).copied() else { return };
        let stored = self.entry(number, index).stored();
        self.buffered.has_stored(block, stored);
    }
}

/// Released slots, each with the page's index in the block and its tag.
type Released = Vec<(Slot, usize, Tag)>;

impl Inner {
    /// The block's pages are in the object now, except those that were flushed since they were taken.
    fn become_whole(
        &mut self,
        number: u32,
        index: u32,
        taken: &[(usize, Tag)],
        shape: &ObjectShape,
        ops: &mut Ops,
    ) -> Released {
        let in_patch: Vec<usize> = {
            let before = self.entry(number, index);
            (0..BLOCK_PAGES as usize).filter(|i| before.in_patch(*i).is_some()).collect()
        };
        entry::set_object(&mut self.page_mut(number, index, ops), index, shape);
        // Pages of the old patch are in the object now: no other thread creates places in a patch (each block has one mover).
        in_patch.iter().for_each(|i| entry::clear_slot(&mut self.page_mut(number, index, ops), index, *i));
        let mut released = Vec::new();
        for (i, tag) in taken {
            let current = self.entry(number, index);
            let unchanged = current.tag(*i) == *tag || planted::CHANGED_PAGE_CLEANED.on();
            if let (Some(slot), true) = (current.slot(*i), unchanged) {
                released.push((slot, *i, current.tag(*i)));
                entry::clear_slot(&mut self.page_mut(number, index, ops), index, *i);
            }
        }
        released
    }

    /// Pages taken and not flushed since, and those that were in the old patch, are in this patch.
    fn become_patched(
        &mut self,
        number: u32,
        index: u32,
        taken: &[(usize, Tag)],
        patch: &ObjectShape,
        ops: &mut Ops,
    ) -> Released {
        entry::set_patch(&mut self.page_mut(number, index, ops), index, patch);
        let mut tags = [None; BLOCK_PAGES as usize];
        taken.iter().for_each(|(i, tag)| tags[*i] = Some(*tag));
        let (mut released, mut offset) = (Vec::new(), 0);
        for (i, length) in patch.lengths.iter().map(|length| usize::from(*length)).enumerate() {
            let current = self.entry(number, index);
            let (tag, slot, place) = (current.tag(i), current.slot(i), current.in_patch(i));
            if length == 0 {
                assert_eq!(place, None, "patch {} lacks page {i} of its block", patch.key); // invariant 4
                continue;
            }
            let unchanged = tag != 0 && tags[i] == Some(tag) || planted::CHANGED_PAGE_CLEANED.on();
            let carried = place.is_some() && !planted::PATCH_PLACES_KEPT.on();
            let sunk = slot.filter(|_| unchanged);
            if sunk.is_some() || carried {
                released.extend(sunk.map(|slot| (slot, i, tag)));
                let place = entry::BodyRange { offset, length };
                entry::set_place(&mut self.page_mut(number, index, ops), index, i, place);
            }
            offset += length;
        }
        released
    }
}

impl Map {
    /// Appends the changes to the log and stamps the map pages; under the lock, without waiting. Each record names the version
    /// that it continues from, so that a load detects a gap.
    fn log(&self, inner: &mut Inner, room: &mut LogRoom, mut ops: Ops) -> LsnRange {
        for (number, ops) in &mut ops {
            let image = &mut inner.pages[*number as usize].image;
            let before = image.page().lsn();
            entry::set_before(&mut image.head_mut(ops), before);
        }
        let records: Vec<PageRedo<'_>> = ops
            .iter()
            .map(|(number, ops)| PageRedo { id: PageId::new(SpaceId::MAP, *number), ops })
            .collect();
        self.redo.append(room, &records, &mut |range| {
            for number in ops.keys() {
                let map_page = &mut inner.pages[*number as usize];
                map_page.image.set_lsn(range.end);
                map_page.first_change.get_or_insert(range.first);
                map_page.lost = false;
            }
        })
    }

    /// The images are written and synced: each page's current image is now in its new slot. Slots
    /// superseded become free when the record is durable.
    pub fn publish_slots(&self, changes: &[(PageId, Slot, Tag)]) -> Result<LsnRange, MapError> {
        self.publish(changes, None)
    }

    /// As `publish_slots`, for the same images as in the slots `from`. Pages that were flushed again, sunk or dropped meanwhile
    /// stay where they are, and their new slots are freed.
    pub fn publish_moves(
        &self,
        changes: &[(PageId, Slot, Tag)],
        from: &HashMap<PageId, Slot>,
    ) -> Result<LsnRange, MapError> {
        self.publish(changes, Some(from))
    }

    fn publish(
        &self,
        changes: &[(PageId, Slot, Tag)],
        from: Option<&HashMap<PageId, Slot>>,
    ) -> Result<LsnRange, MapError> {
        let groups = {
            let mut groups: Vec<_> =
                changes.iter().map(|(id, ..)| (id.space, group_of(id.block()).0)).collect();
            groups.sort_unstable();
            groups.dedup();
            groups.len() as u64
        };
        let bytes = changes.len() as u64 * SLOT_REDO + groups * (NEW_PAGE_REDO + record_bound(64));
        let mut room = self.redo.clone().reserve(bytes, Urgency::Checkpoint)?;
        let mut inner = self.inner.write();
        let mut ops = Ops::new();
        let (mut released, mut flushed) = (Vec::new(), Vec::with_capacity(changes.len()));
        for (id, slot, tag) in changes {
            if inner.dropped.contains(&id.space) {
                inner.slots.give_back(*slot);
                continue;
            }
            let (group, index) = group_of(id.block());
            if from.is_some() {
                let now = inner.index.get(&(id.space, group)).map(|number| inner.entry(*number, index));
                let now = now.and_then(|now| Some((now.slot(id.in_block())?, now.tag(id.in_block()))));
                let old = from.and_then(|from| from.get(id)).copied();
                if now.is_none() || now != old.map(|slot| (slot, *tag)) {
                    inner.slots.give_back(*slot);
                    continue;
                }
            }
            let number = inner.page_for(id.space, group, &mut ops);
            let before = inner.entry(number, index).slot(id.in_block());
            released.extend(before);
            flushed.push((*id, before.is_none()));
            entry::set_slot(&mut inner.page_mut(number, index, &mut ops), index, id.in_block(), *slot, *tag);
        }
        if ops.is_empty() {
            let end = self.redo.appended();
            return Ok(LsnRange { first: end, end });
        }
        let range = self.log(&mut inner, &mut room, ops);
        released.into_iter().for_each(|slot| inner.slots.release_at(range.end, slot));
        let mut first = false;
        // Moves do not make their blocks warmer.
        let mut blocks: Vec<BlockId> = Vec::new();
        for (id, new) in flushed.into_iter().filter(|_| from.is_none()) {
            first |= inner.buffered.flushed(id.block(), id.in_block(), new, range.end);
            if blocks.last() != Some(&id.block()) {
                blocks.push(id.block());
            }
        }
        blocks.into_iter().for_each(|block| inner.note_stored(block));
        drop(inner);
        if first {
            self.slots_wanted.notify();
        }
        Ok(range)
    }

    /// The object is durable in the store: it becomes the block's current and only one. Pages `taken` into it (index in
    /// the block, tag) no longer need a slot if their tag is unchanged; a page that changed meanwhile keeps its slot. Returns
    /// None if the space was dropped meanwhile, or each page of the block freed: the object is not needed then.
    pub fn publish_object(
        &self,
        block: BlockId,
        taken: &[(usize, Tag)],
        shape: &ObjectShape,
    ) -> Result<Option<LsnRange>, MapError> {
        self.publish_stored(block, taken, shape, None)
    }

    /// As `publish_object` for a patch object: it has the pages `taken`, and all pages whose newest image is in the block's
    /// previous patch. It replaces that patch beside the block's object, which is `base`. Also returns None if `base` is no
    /// longer the block's object.
    pub fn publish_patch(
        &self,
        block: BlockId,
        taken: &[(usize, Tag)],
        patch: &ObjectShape,
        base: &ObjectKey,
    ) -> Result<Option<LsnRange>, MapError> {
        self.publish_stored(block, taken, patch, Some(base))
    }

    fn publish_stored(
        &self,
        block: BlockId,
        taken: &[(usize, Tag)],
        shape: &ObjectShape,
        base: Option<&ObjectKey>,
    ) -> Result<Option<LsnRange>, MapError> {
        let mut room = self.redo.clone().reserve(OBJECT_REDO, Urgency::Checkpoint)?;
        let mut inner = self.inner.write();
        let (group, index) = group_of(block);
        let Some(number) = inner.index.get(&(block.space, group)).copied() else { return Ok(None) };
        let before = inner.entry(number, index);
        let (object, patch) = (before.object(), before.patch());
        if before.is_empty() || base.is_some_and(|base| object != Some(*base)) {
            return Ok(None);
        }
        let mut ops = Ops::new();
        let released = match base {
            None => inner.become_whole(number, index, taken, shape, &mut ops),
            Some(_) => inner.become_patched(number, index, taken, shape, &mut ops),
        };
        let current = inner.entry(number, index);
        let homeless = (0..BLOCK_PAGES as usize).find(|i| {
            let somewhere =
                current.slot(*i).is_some() || current.in_patch(*i).is_some() || current.in_object(*i);
            current.tag(*i) != 0 && !somewhere
        });
        assert_eq!(homeless, None, "object {} lacks a page that has no slot", shape.key); // invariant 4
        let range = self.log(&mut inner, &mut room, ops);
        inner.buffered.cleaned(block, released.len() as u32);
        inner.note_stored(block);
        self.sunk.fetch_add(released.len() as u64, std::sync::atomic::Ordering::Relaxed);
        for (slot, i, tag) in released {
            inner.slots.release_clean(range.end, slot, block.page(i), tag);
        }
        // If it is published again under the same key, it is still the current one.
        let superseded = object.filter(|_| base.is_none()).into_iter().chain(patch);
        for key in superseded.filter(|key| *key != shape.key) {
            let early = planted::PATCH_DELETED_EARLY.on() && patch == Some(key);
            inner.slots.collect_at(if early { 0 } else { range.end }, key);
        }
        Ok(Some(range))
    }

    /// Log space for clearing `pages` pages, in the worst case each in a block of its own.
    pub fn room_to_clear(&self, pages: usize, urgency: Urgency) -> Result<LogRoom, LogError> {
        self.redo.clone().reserve(pages as u64 * (2 * SLOT_REDO + record_bound(64)), urgency)
    }

    /// Clears the pages: no image of them is current any more. Their slots become free when the record is durable, and the object
    /// of a block without other pages is then collected. If a page comes with a location, only the image at that location is
    /// cleared. Does not wait. Returns None if no page had such an image.
    pub fn clear(&self, room: &mut LogRoom, pages: &[(PageId, Option<Home>)]) -> Option<LsnRange> {
        let mut inner = self.inner.write();
        let mut ops = Ops::new();
        let (mut released, mut objects, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
        for (id, home) in pages {
            let (group, index) = group_of(id.block());
            let Some(number) = inner.index.get(&(id.space, group)).copied() else { continue };
            let entry = inner.entry(number, index);
            if entry.tag(id.in_block()) == 0
                || home.is_some_and(|home| inner.locate(*id) != Located::At(home))
            {
                continue;
            }
            released.extend(entry.slot(id.in_block()).map(|slot| (slot, id.block())));
            entry::clear_page(&mut inner.page_mut(number, index, &mut ops), index, id.in_block());
            let entry = inner.entry(number, index);
            if entry.object().is_some() && entry.is_empty() {
                objects.extend(entry.object().into_iter().chain(entry.patch()));
                entry::clear_object(&mut inner.page_mut(number, index, &mut ops), index);
            }
            blocks.push(id.block());
        }
        if ops.is_empty() {
            return None;
        }
        let range = self.log(&mut inner, room, ops);
        for (slot, block) in released {
            inner.slots.release_at(range.end, slot);
            inner.buffered.gave_up(block, 1);
        }
        blocks.dedup();
        blocks.into_iter().for_each(|block| inner.note_stored(block));
        let any = !objects.is_empty();
        objects.into_iter().for_each(|key| inner.slots.collect_at(range.end, key));
        drop(inner);
        if any {
            self.slots_wanted.notify(); // there are objects to collect
        }
        Some(range)
    }

    /// Removes a space: its slots become free and its objects are collected when the record is durable. Idempotent.
    pub fn drop_space(&self, space: SpaceId) -> Result<Option<LsnRange>, MapError> {
        let mut last = None::<LsnRange>;
        loop {
            // A bounded number of pages at a time: each step is complete in itself, and after a crash the catalog repeats the
            // drop.
            const STEP: usize = 64;
            let mut room = self.redo.clone().reserve(STEP as u64 * NEW_PAGE_REDO, Urgency::Reserve)?;
            let mut inner = self.inner.write();
            inner.dropped.insert(space);
            if last.is_none() {
                // Before the first removal: a step may have to wait, and no sinker may choose a block that has been removed.
                inner.buffered.forget(space);
            }
            let mine: Vec<(SpaceId, u32)> =
                inner.index.keys().filter(|(s, _)| *s == space).take(STEP).copied().collect();
            if mine.is_empty() {
                drop(inner);
                self.slots_wanted.notify(); // there may be objects to collect
                return Ok(last);
            }
            let mut ops = Ops::new();
            let (mut slots, mut keys, mut freed) = (Vec::new(), Vec::new(), Vec::new());
            for owner in mine {
                let Some(number) = inner.index.remove(&owner) else { continue };
                for index in 0..entry::ENTRIES {
                    let entry = inner.entry(number, index);
                    slots.extend((0..BLOCK_PAGES as usize).filter_map(|i| entry.slot(i)));
                    keys.extend(entry.object().into_iter().chain(entry.patch()));
                }
                inner.page_anew(number, &mut ops);
                freed.push(number);
            }
            let range = self.log(&mut inner, &mut room, ops);
            inner.free_pages.extend(freed);
            slots.into_iter().for_each(|slot| inner.slots.release_at(range.end, slot));
            keys.into_iter().for_each(|key| inner.slots.collect_at(range.end, key));
            last = Some(range);
        }
    }
}
