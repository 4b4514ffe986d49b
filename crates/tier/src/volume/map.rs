//! The map: for each block its current object and, if it has one, its patch object; for each page its tag, length and slot.
//!
//! The map is the authority on where a page is stored and which image of it is current. It is held in memory as a whole, as the
//! 16 KiB map pages that are also its disk format: fifteen entries of 1088 bytes each (`entry`), except never-used entries at a
//! page's end (`image`). Its changes are logged like those of any page, under the space `MAP`, so recovery replays it with the
//! same operations, first and to the end.
//!
//! Map page `n` has two fixed homes in the file `map`, at `2n` and `2n + 1` pages. A write goes to
//! the home that does not hold the newest durable version (`home`). So a torn write leaves the other.
//!
//! Which map page holds which blocks is derived at start from the pages' own owner fields; so are the
//! free slots (`slots`).
//!
//! Crash: if a record did not become durable, the map still names the old slot or object. The image in the new slot is then
//! unreferenced: the slot is free again when free slots are derived.
//!
//! Locks: `inner`, held for memory work and `Redo::append` (which never waits). Log room is taken before.
//!
//! Not here: writing images (`flush`, `sink`), reading them (`read`).

pub(crate) mod buffered;
mod clean;
pub mod copy;
pub mod entry;
pub mod home;
mod image;
mod publish;
pub mod resize;
pub(crate) mod slots;

use crate::address::OBJECT_HEADER as HEADER;
use crate::address::ObjectKey;
use crate::address::{BufferedBlock, Home, InObject, Located, Slot};
use crate::page::{BLOCK_PAGES, BlockId, Glsn, PageId, SpaceId, Tag};
use entry::{ENTRIES, Entry};
use hashbrown::HashMap;
use image::Image;
use slots::Slots;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use terrace_io::disk::{DiskError, File};
use terrace_io::lock::{RwLock, RwLocks};
use terrace_io::sched::Event;
use terrace_log::{LogError, Redo};

/// Bytes of memory for a slot whose clean copy is remembered.
pub const CLEAN_COPY: u64 = clean::BYTES;

#[derive(Debug, Clone, thiserror::Error)]
pub enum MapError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("map page {page} is corrupt: {what}")]
    Corrupt { page: u32, what: String },
}

pub(crate) struct MapPage {
    pub image: Image,
    /// First log position that neither home contains; None when a home contains all changes.
    pub first_change: Option<Glsn>,
    /// The home that holds the newest durable version: 0 or 1.
    pub home: u8,
    /// No home has the version that the log continues from: only an INIT in the log can restore it.
    pub lost: bool,
    /// A home was unreadable at the start: torn or damaged.
    pub torn: bool,
    /// The other home is unreadable and may have been the newer one. If that is a torn write, the log still has the change that
    /// it was for. If it was damaged later, the log may no longer have it.
    pub doubtful: bool,
}

pub(crate) struct Inner {
    pub pages: Vec<MapPage>,
    /// The map page of each (space, group of fifteen blocks).
    pub index: HashMap<(SpaceId, u32), u32>,
    pub free_pages: Vec<u32>,
    /// Spaces dropped since the start: a flush in progress may still arrive with their pages.
    pub dropped: hashbrown::HashSet<SpaceId>,
    pub slots: Slots,
    pub buffered: buffered::Buffered,
}

impl Inner {
    pub(crate) fn locate(&self, id: PageId) -> Located {
        let (group, index) = group_of(id.block());
        let Some(page) = self.index.get(&(id.space, group)) else { return Located::Never };
        let entry = Entry::new(self.pages[*page as usize].image.page(), index);
        let i = id.in_block();
        match entry.tag(i) {
            0 => Located::Never,
            tag => Located::At(Home { tag, slot: entry.slot(i), object: in_object(entry, i) }),
        }
    }
}

pub struct Map {
    pub(crate) inner: RwLock<Inner, { RwLocks::Map as u8 }>,
    pub(crate) file: Arc<dyn File>,
    /// The target number of slots, for the choice of what to sink (`resize`).
    pub(crate) goal: AtomicU32,
    pub(crate) redo: Arc<dyn Redo>,
    /// A writer found no slot while freed slots are held back.
    pub(crate) hold_hinders: AtomicBool,
    /// Slots became free.
    pub slots_freed: Event,
    /// Slots that sinking released, since the start.
    pub(crate) sunk: AtomicU64,
    /// LSN of the newest page that was written to its home since the start.
    pub(crate) newest_home: AtomicU64,
    /// Slots and, in the upper half, free slots when some were last taken or freed; all ones: not known yet.
    pub(crate) pressure: AtomicU64,
    /// Wakes the sinker: slots are low, or a first block could sink, or objects are to be collected.
    pub slots_wanted: Arc<Event>,
}

/// Pages of one space by the tier that holds their current image.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SpaceCounts {
    pub pages: u64,
    pub volume: u64,
    pub object: u64,
    pub objects: u64,
    /// Size of the objects in the store.
    pub object_bytes: u64,
}

pub(crate) fn group_of(block: BlockId) -> (u32, u32) {
    (block.block / ENTRIES, block.block % ENTRIES)
}

impl Map {
    pub fn locate(&self, id: PageId) -> Located {
        self.inner.read().locate(id)
    }

    /// The pages of a block that have slots, with their tags, and the block's object.
    pub fn block(&self, block: BlockId) -> BlockState {
        let (group, index) = group_of(block);
        let inner = self.inner.read();
        let Some(page) = inner.index.get(&(block.space, group)) else { return BlockState::default() };
        let entry = Entry::new(inner.pages[*page as usize].image.page(), index);
        BlockState {
            homes: (0..BLOCK_PAGES as usize)
                .map(|i| {
                    (entry.tag(i) != 0).then(|| Home {
                        tag: entry.tag(i),
                        slot: entry.slot(i),
                        object: in_object(entry, i),
                    })
                })
                .collect(),
            object: entry.object(),
            patch: entry.patch(),
            snapshot_version: entry.snapshot_version(),
            wanted: inner.buffered.wanted(block),
        }
    }

    /// The page was read from its slot, or would have been worth a copy on flash without a slot: flash may get it when its block
    /// sinks.
    pub fn want_on_flash(&self, id: PageId) {
        self.inner.read().buffered.want(id.block(), id.in_block());
    }

    /// All blocks that have slots: for the choice of what to sink. Unordered.
    pub fn buffered_blocks(&self) -> Vec<BufferedBlock> {
        self.inner.read().buffered.all()
    }

    pub fn counts(&self) -> HashMap<SpaceId, SpaceCounts> {
        let mut counts: HashMap<SpaceId, SpaceCounts> = HashMap::new();
        self.each_entry(|block, entry| {
            let c = counts.entry(block.space).or_default();
            c.objects += objects_of(entry).count() as u64;
            c.object_bytes += bytes_of_objects(entry);
            for i in (0..BLOCK_PAGES as usize).filter(|i| entry.tag(*i) != 0) {
                c.pages += 1;
                if entry.slot(i).is_some() {
                    c.volume += 1;
                } else {
                    c.object += 1;
                }
            }
        });
        counts
    }

    /// Every page of the space that was ever flushed.
    pub fn pages_of(&self, space: SpaceId) -> Vec<PageId> {
        let mut pages = Vec::new();
        self.each_entry_of(
            |found| found == space,
            |block, entry| {
                pages.extend((0..BLOCK_PAGES as usize).filter(|i| entry.tag(*i) != 0).map(|i| block.page(i)));
            },
        );
        pages
    }

    /// Every space that has an entry.
    pub fn spaces(&self) -> Vec<SpaceId> {
        let mut spaces: Vec<_> = self.inner.read().index.keys().map(|(space, _)| *space).collect();
        spaces.sort_unstable();
        spaces.dedup();
        spaces
    }

    /// Every object that an entry names.
    pub fn objects(&self) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        self.each_entry(|_, entry| keys.extend(objects_of(entry)));
        keys
    }

    /// Every block that has an object, in order.
    pub fn blocks_with_objects(&self) -> Vec<BlockId> {
        let mut blocks = Vec::new();
        self.each_entry(|block, entry| blocks.extend(entry.object().map(|_| block)));
        blocks.sort_unstable();
        blocks
    }

    /// Blocks that have a patch object beside their object.
    pub fn patches(&self) -> u64 {
        let mut patches = 0;
        self.each_entry(|_, entry| patches += u64::from(entry.patch().is_some()));
        patches
    }

    /// Bytes of all current objects, including pages that are newer in slots.
    pub fn object_bytes(&self) -> u64 {
        let mut bytes = 0;
        self.each_entry(|_, entry| bytes += bytes_of_objects(entry));
        bytes
    }

    /// The highest page of each space that was ever flushed.
    pub fn last_pages(&self) -> HashMap<SpaceId, u32> {
        let mut last = HashMap::new();
        self.each_entry(|block, entry| {
            if let Some(i) = (0..BLOCK_PAGES as usize).rev().find(|i| entry.tag(*i) != 0) {
                let page = last.entry(block.space).or_insert(0);
                *page = block.page(i).page.max(*page);
            }
        });
        last
    }

    /// Every page that has a slot, with its tag, in slot order: for reading them all.
    pub fn slots_in_use(&self) -> Vec<(Slot, PageId, Tag)> {
        let mut slots = Vec::new();
        self.each_entry(|block, entry| {
            let pages =
                (0..BLOCK_PAGES as usize).filter_map(|i| Some((entry.slot(i)?, block.page(i), entry.tag(i))));
            slots.extend(pages);
        });
        slots.sort_unstable();
        slots
    }

    /// Map pages one of whose homes cannot be read, as found at the start. The other home has every change that counts.
    pub fn homes_unreadable(&self) -> Vec<u32> {
        let inner = self.inner.read();
        (0u32..).zip(&inner.pages).filter(|(_, page)| page.torn).map(|(number, _)| number).collect()
    }

    /// Whether the map in memory names the object as its block's current one, or as its current patch.
    pub fn names(&self, key: &ObjectKey) -> bool {
        let block = key.block_id();
        let (group, index) = group_of(block);
        let inner = self.inner.read();
        let Some(page) = inner.index.get(&(block.space, group)) else { return false };
        let entry = Entry::new(inner.pages[*page as usize].image.page(), index);
        objects_of(entry).any(|named| named == *key)
    }

    fn each_entry(&self, each: impl FnMut(BlockId, Entry<'_>)) {
        self.each_entry_of(|_| true, each);
    }

    fn each_entry_of(&self, wanted: impl Fn(SpaceId) -> bool, mut each: impl FnMut(BlockId, Entry<'_>)) {
        let inner = self.inner.read();
        for ((space, group), page) in inner.index.iter().filter(|((space, _), _)| wanted(*space)) {
            let page = inner.pages[*page as usize].image.page();
            for index in 0..ENTRIES {
                each(BlockId { space: *space, block: group * ENTRIES + index }, Entry::new(page, index));
            }
        }
    }

    // --- slots -------------------------------------------------------------------------------

    pub fn slots_total(&self) -> u32 {
        self.inner.read().slots.count()
    }
    /// Slots that sinking released, since the start: the number grows while sinking makes progress.
    pub fn slots_sunk(&self) -> u64 {
        self.sunk.load(Ordering::Relaxed)
    }
    pub fn slots_free(&self) -> u32 {
        self.inner.read().slots.free()
    }

    /// Memory in bytes: the map's pages, in their used parts, and the record of clean copies.
    pub fn bytes(&self) -> u64 {
        let inner = self.inner.read();
        let of_page = |page: &MapPage| (size_of::<MapPage>() + page.image.size()) as u64;
        inner.pages.iter().map(of_page).sum::<u64>() + inner.slots.clean().bytes()
    }
    /// Bytes in use of the map's file.
    pub fn file_bytes(&self) -> u64 {
        home::room_for(self.inner.read().pages.len())
    }
    /// The free slot that probably has a clean copy of the page, which is in an object with this tag. The reader checks the
    /// image: the slot may be allocated meanwhile.
    pub fn clean_copy(&self, id: PageId, tag: Tag) -> Option<Slot> {
        self.inner.read().slots.clean().find(id, tag)
    }
    /// The slot holds another image.
    pub fn no_clean_copy(&self, id: PageId, tag: Tag, slot: Slot) {
        self.inner.write().slots.is_not_clean(id, tag, slot);
    }
    /// Sets for how many slots clean copies are remembered ([`CLEAN_COPY`] bytes each); initially for none. Pages without a
    /// remembered copy are read from the object.
    pub fn keep_clean_copies(&self, slots: u32) {
        self.inner.write().slots.keep_clean(slots);
    }
    /// Free slots with clean copies.
    pub fn clean_copies(&self) -> u32 {
        self.inner.read().slots.clean().copies()
    }
    /// Free slots that fit in the object buffer's file.
    pub fn slots_usable(&self) -> u32 {
        self.inner.read().slots.usable()
    }
    /// Slots and free slots, as far as the device has space.
    pub fn slots_pressure(&self) -> (u32, u32) {
        self.inner.read().slots.pressure()
    }
    /// The same for the choice of what to sink: while the object buffer is being shrunk, as if it had the new size already.
    pub fn slots_to_aim_at(&self) -> (u32, u32) {
        let (slots, free) = self.slots_pressure();
        let goal = self.goal.load(Ordering::Relaxed).min(slots);
        (goal, free.saturating_sub(slots - goal))
    }
    /// As `slots_pressure`, slightly outdated and without the lock: cheap enough for each change.
    pub fn slots_pressure_lately(&self) -> (u32, u32) {
        match self.pressure.load(Ordering::Relaxed) {
            u64::MAX => self.slots_pressure(),
            both => (both as u32, (both >> 32) as u32),
        }
    }
    fn note_pressure(&self, inner: &Inner) {
        let (slots, free) = inner.slots.pressure();
        self.pressure.store(u64::from(free) << 32 | u64::from(slots), Ordering::Relaxed);
    }
    /// The object buffer's file has grown to `slots` slots or more: concurrent calls may report in any order. `short`: the device
    /// has no space for more.
    pub fn raise_slots(&self, limit: u32, short: bool) {
        let mut inner = self.inner.write();
        let limit = limit.max(inner.slots.room());
        inner.slots.set_limit(limit, short);
        self.note_pressure(&inner);
    }
    /// The object buffer's file has space for `slots` slots; `short`: the device has none for more.
    pub fn limit_slots(&self, limit: u32, short: bool) {
        let mut inner = self.inner.write();
        inner.slots.set_limit(limit, short);
        self.note_pressure(&inner);
    }
    /// Slots that sinking everything sinkable would free, in addition to those free now.
    pub fn slots_to_come(&self) -> u32 {
        let inner = self.inner.read();
        inner.buffered.sinking_slots() + inner.slots.pending()
    }
    /// Slots that no sinking frees: those of undo and the catalog.
    pub fn slots_staying(&self) -> u32 {
        self.inner.read().buffered.staying_slots()
    }
    /// Whether slots wait for the log to be durable.
    pub fn has_pending_slots(&self) -> bool {
        self.inner.read().slots.has_pending()
    }

    /// Slots reserved from pages without a slot, so that a page that has one can always be rewritten (which frees one) and the
    /// checkpoint advances in a full object buffer.
    pub fn slots_reserve(&self) -> u32 {
        (self.slots_total() / 64).clamp(1, 64)
    }

    /// Takes free slots for up to `n` images; `keep` are left for more urgent needs. Fewer than `n`: full for now.
    pub fn take_up_to(&self, n: usize, keep: u32) -> Vec<Slot> {
        let durable = self.redo.durable();
        let mut inner = self.inner.write();
        inner.slots.settle(durable);
        let taken = inner.slots.take(n, keep);
        let (slots, free) = inner.slots.pressure();
        let low = free < slots / 4;
        self.note_pressure(&inner);
        if taken.len() < n && inner.slots.is_held() {
            self.hold_hinders.store(true, Ordering::Relaxed);
        }
        drop(inner);
        if low || taken.len() < n {
            self.slots_wanted.notify();
        }
        taken
    }

    /// As `take_up_to`, but all `n` or None.
    pub fn take_slots(&self, n: usize, keep: u32) -> Option<Vec<Slot>> {
        let taken = self.take_up_to(n, keep);
        if taken.len() == n {
            return Some(taken);
        }
        self.give_back_slots(&taken);
        None
    }

    /// Returns slots whose write failed or was not mapped.
    pub fn give_back_slots(&self, slots: &[Slot]) {
        let mut inner = self.inner.write();
        slots.iter().for_each(|slot| inner.slots.give_back(*slot));
        self.note_pressure(&inner);
    }

    /// Frees the slots whose releasing record is durable by now.
    pub fn settle(&self) {
        let durable = self.redo.durable();
        if !self.inner.read().slots.has_pending() {
            return;
        }
        let mut inner = self.inner.write();
        let freed = inner.slots.settle(durable);
        self.note_pressure(&inner);
        drop(inner);
        if freed > 0 {
            self.slots_freed.notify();
        }
    }

    /// Superseded objects whose superseding record is durable: to be collected.
    pub fn collectable(&self) -> Vec<ObjectKey> {
        let durable = if crate::planted::OBJECT_DELETED_EARLY.on() { Glsn::MAX } else { self.redo.durable() };
        self.inner.write().slots.collectable(durable)
    }

    /// Whether superseded objects wait for their superseding record to be durable.
    pub fn has_collectable(&self) -> bool {
        self.inner.read().slots.has_collectable()
    }

    /// The inconsistencies of the map: for the checker. Nothing may change the map meanwhile.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut seen = HashMap::new();
        let total = self.inner.read().slots.named();
        self.each_entry(|block, entry| {
            faults.extend(entry.fault().map(|(i, what)| format!("page {} {what}", block.page(i))));
            for i in 0..BLOCK_PAGES as usize {
                if let Some(slot) = entry.slot(i) {
                    let id = block.page(i);
                    if slot.0 >= total {
                        faults.push(format!("page {id} is in slot {}, but there are {total}", slot.0));
                    }
                    if let Some(other) = seen.insert(slot, id) {
                        faults.push(format!("pages {other} and {id} are both in slot {}", slot.0));
                    }
                }
            }
        });
        let inner = self.inner.read();
        let free = seen.iter().filter(|(slot, _)| slot.0 < total && !inner.slots.is_taken(**slot));
        faults
            .extend(free.map(|(slot, id)| format!("page {id} is in slot {}, which counts as free", slot.0)));
        faults
    }
}

/// The block's object and its patch object, if it has them.
fn objects_of(entry: Entry<'_>) -> impl Iterator<Item = ObjectKey> {
    let patch = entry.patch().filter(|_| !crate::planted::PATCH_UNNAMED.on());
    entry.object().into_iter().chain(patch)
}

/// Their size in the store.
fn bytes_of_objects(entry: Entry<'_>) -> u64 {
    let Some(_) = entry.object() else { return 0 };
    let patch = entry.patch().map_or(0, |_| HEADER + entry.patch_body());
    (HEADER + entry.offset(BLOCK_PAGES as usize) + patch) as u64
}

/// Where the page is: in its slot or, if it has none, where its newest image is in the store.
fn in_object(entry: Entry<'_>, i: usize) -> Option<InObject> {
    if let Some(place) = entry.in_patch(i) {
        return Some(InObject { key: entry.patch()?, offset: place.offset, length: place.length });
    }
    let key = entry.object().filter(|_| entry.in_object(i))?;
    Some(InObject { key, offset: entry.offset(i), length: entry.length(i) })
}

/// The map's information on one block.
#[derive(Clone, Default, Debug)]
pub struct BlockState {
    /// One for each page, None where no image was ever flushed. Empty if the block is unknown.
    pub homes: Vec<Option<Home>>,
    pub object: Option<ObjectKey>,
    /// The patch object: has the newest images of some pages.
    pub patch: Option<ObjectKey>,
    pub snapshot_version: u64,
    /// A bit for each page that is worth a copy on flash when it sinks.
    pub wanted: u128,
}

#[cfg(test)]
mod tests;
