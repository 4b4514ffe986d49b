//! Temporary pages: those of temporary tables, of their undo and of their catalog. They live in memory. Those that do not fit are
//! in a spill space: a file on local flash, outside of what the BPE's CLOCK may evict; or on the volume if there is no flash, or
//! if flash has failed. CloudJump III §4.1.2 calls it single-write.
//!
//! There is no log record, no map record, no sync, no recovery: the next start removes the file. So a page keeps its slot for
//! life and is written in place. This file has the three substitutes: [`Unlogged`] for the log, [`SpillRoom`] for the object buffer's
//! slots, [`Spill`] for map, slab and flash.
//!
//! Only the flusher writes, and takes slots. A page is read only while it is not in memory, and written only while it is: so no
//! thread reads a slot that is being written. Locks: `reading`, shared, during a read; `slots`, for memory work only; `files`,
//! while a file grows or shrinks.

mod files;
mod moves;
mod slots;

use crate::address::Tier;
use crate::memory::lower_tiers::ReadError;
use crate::memory::pages::{self, NoRoom};
use crate::memory::pool::Pool;
use crate::page::{self, Glsn, PAGE_SIZE, PageId, SpaceId, TEMPORARY_GLSN, Tag};
use crate::planted;
use files::SpillFile;
use slots::{Home, Slot, Slots};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::disk::{Class, Disk, DiskError, File, Op};
use terrace_io::lock::{Mutex, Mutexes, RwLock, RwLocks};
use terrace_log::{LogError, LogRoom, LsnRange, PageRedo, Redo, Urgency};

/// The file's name, on flash and on the volume.
pub const FILE: &str = "temporary";
/// The file grows in steps of this many slots (16 MiB); if the device has no space for that, down to the second number. It
/// shrinks when it has two steps more than needed.
const GROWTH: u32 = 1024;
const GROWTH_MIN: u32 = 16;
/// Temporary pages may fill this part of the frames before space for all of them is taken on a device.
const IN_MEMORY: usize = 8;
/// Additional space to ask for on the device, in pages: a client that was promised space may not have created its pages yet when
/// the next one asks. This bounds the pages that are promised and not created.
const BETWEEN: u64 = 512;

/// How much of a space is spilled.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Spilled {
    pub flash: u64,
    pub volume: u64,
}

#[derive(Default, Debug)]
pub struct SpillCounters {
    pub written: AtomicU64,
    pub read: AtomicU64,
    /// Writes that failed on flash, after which the volume is used.
    pub errors: AtomicU64,
    /// Pages refused because temporary tables have reached their limit.
    pub full: AtomicU64,
}

/// The spill space.
pub struct Spill {
    slots: Mutex<Slots, { Mutexes::Temporary as u8 }>,
    /// Held, shared, by a reader from the look-up of the page's slot to the end of the read.
    reading: RwLock<(), { RwLocks::Temporary as u8 }>,
    /// Flash, if the instance has it, and the volume.
    files: Mutex<Vec<SpillFile>, { Mutexes::Temporary as u8 }>,
    /// Flash has failed, or there is none: new slots are on the volume. Changed with `slots` locked, because slot numbers belong
    /// to one tier's file.
    on_volume: AtomicBool,
    /// Maximum number of temporary pages, in memory and spilled.
    max: AtomicU64,
    pub counters: SpillCounters,
}

/// Removes the file of an earlier run. A failure on dead flash is ignored.
pub fn remove_left(flash: Option<&dyn Disk>, volume: &dyn Disk) -> Result<(), DiskError> {
    if planted::SPILL_LEFT.on() {
        return Ok(());
    }
    if let Some(flash) = flash.filter(|flash| flash.exists(FILE).unwrap_or(false)) {
        let _ = flash.remove(FILE);
    }
    if volume.exists(FILE)? { volume.remove(FILE) } else { Ok(()) }
}

impl Spill {
    /// `max` bounds the number of temporary pages.
    pub fn new(flash: Option<Arc<dyn Disk>>, volume: Arc<dyn Disk>, max: u64) -> Spill {
        let place = |disk, tier| SpillFile { disk, tier, file: None, grown: 0 };
        let on_volume = flash.is_none();
        let files = flash.map(|disk| place(disk, Tier::Flash)).into_iter();
        Spill {
            slots: Mutex::default(),
            reading: RwLock::new(()),
            files: Mutex::new(files.chain([place(volume, Tier::Volume)]).collect()),
            on_volume: AtomicBool::new(on_volume),
            max: AtomicU64::new(max),
            counters: SpillCounters::default(),
        }
    }

    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
    pub fn set_max(&self, pages: u64) {
        self.max.store(pages, Ordering::Relaxed);
    }
    /// Pages that have an image here.
    pub fn used(&self) -> u64 {
        self.slots.lock().used
    }
    /// The size of the files in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.files.lock().iter().map(|place| u64::from(place.grown) * PAGE_SIZE as u64).sum()
    }
    /// The pages of the space that have an image here.
    pub fn of_space(&self, space: SpaceId) -> Spilled {
        let slots = self.slots.lock();
        let mut spilled = Spilled::default();
        for home in slots.homes.get(&space).into_iter().flatten().flatten() {
            match home.slot.tier {
                Tier::Flash => spilled.flash += 1,
                _ => spilled.volume += 1,
            }
        }
        spilled
    }

    fn tier(&self) -> Tier {
        if self.on_volume.load(Ordering::Acquire) { Tier::Volume } else { Tier::Flash }
    }

    /// The file on the tier, created if needed.
    fn file(&self, tier: Tier) -> Result<Arc<dyn File>, DiskError> {
        let mut files = self.files.lock();
        let place = files.iter_mut().find(|place| place.tier == tier);
        match place {
            Some(place) => place.open(),
            None => Err(DiskError::Absent { name: FILE.into() }),
        }
    }

    /// Grows the file to this number of slots, or fails because the device is full.
    fn grow(&self, tier: Tier, slots: u32) -> Result<(), DiskError> {
        let mut files = self.files.lock();
        let Some(place) = files.iter_mut().find(|place| place.tier == tier) else { return Ok(()) };
        let file = place.open()?;
        let mut step = GROWTH;
        while place.grown < slots {
            let to = place.grown.saturating_add(step);
            match file.allocate(u64::from(to) * PAGE_SIZE as u64) {
                Ok(()) => place.grown = to,
                Err(DiskError::Full { .. }) if step > GROWTH_MIN => step /= 8,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ensures space for this number of pages. If flash fails, the volume is used.
    fn reserve(&self, pages: u64) -> Result<(), DiskError> {
        let pages = pages.min(u64::from(u32::MAX)) as u32;
        let tier = self.tier();
        match self.grow(tier, pages) {
            Err(error) if self.leave_flash(tier, &error) => self.grow(Tier::Volume, pages),
            other => other,
        }
    }

    /// `tier` has failed. If that was flash, the first thread that notices switches to the volume. A full device is not a
    /// failure.
    fn leave_flash(&self, tier: Tier, error: &DiskError) -> bool {
        if matches!(error, DiskError::Full { .. }) || tier == Tier::Volume {
            return false;
        }
        let mut slots = self.slots.lock();
        if !self.on_volume.swap(true, Ordering::AcqRel) {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
            slots.free.clear();
            slots.next = 0;
        }
        true
    }

    /// Whether the page has a slot.
    pub(crate) fn has(&self, id: PageId) -> bool {
        self.slots.lock().home(id).is_some()
    }

    /// Fills `image` with the page's image, and returns the tier that it was on.
    pub(crate) fn read(&self, id: PageId, image: &mut [u8]) -> Result<Tier, ReadError> {
        let _reading = self.reading.read_recursive();
        let home = self.slots.lock().home(id).ok_or(ReadError::Absent(id))?;
        let tier = home.slot.tier;
        let failed = |error| ReadError::Disk { id, tier, error };
        let file = self.file(tier).map_err(failed)?;
        file.read(Class::Spill, u64::from(home.slot.no) * PAGE_SIZE as u64, image).map_err(failed)?;
        self.counters.read.fetch_add(1, Ordering::Relaxed);
        page::check(image, id, Some(home.tag)).map_err(|bad| ReadError::Corrupt {
            id,
            tier,
            key: None,
            bad,
        })?;
        if planted::SPILL_SLOT_FREED_EARLY.on() {
            let mut slots = self.slots.lock();
            slots.release(home.slot, self.tier());
        }
        Ok(tier)
    }

    /// Writes the images of pages, each to its slot or to a new one.
    pub(super) fn write(&self, ids: &[PageId], images: &mut [u8]) -> Result<(), DiskError> {
        let tags: Vec<Tag> = images.chunks_exact_mut(PAGE_SIZE).map(page::seal).collect();
        loop {
            let (tier, slots, next) = {
                let mut slots = self.slots.lock();
                let tier = self.tier();
                (tier, ids.iter().map(|id| slots.take(*id, tier)).collect::<Vec<_>>(), slots.next)
            };
            let written = self.grow(tier, next).and_then(|()| {
                let ops = slots.iter().zip(images.chunks_exact(PAGE_SIZE));
                let offset = |slot: &Slot| u64::from(slot.no) * PAGE_SIZE as u64;
                let mut ops: Vec<Op<'_>> =
                    ops.map(|(slot, buf)| Op::Write { offset: offset(slot), buf }).collect();
                self.file(tier)?.batch(Class::Spill, &mut ops).into_iter().collect::<Result<(), _>>()
            });
            let mut held = self.slots.lock();
            match written {
                Ok(()) => {
                    for ((id, slot), tag) in ids.iter().zip(slots).zip(tags) {
                        held.set(*id, Home { slot, tag });
                    }
                    self.counters.written.fetch_add(ids.len() as u64, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => {
                    for (id, slot) in ids.iter().zip(slots) {
                        if held.home(*id).is_none_or(|home| home.slot != slot) {
                            held.release(slot, self.tier());
                        }
                    }
                    drop(held);
                    if !self.leave_flash(tier, &error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The page's image is not needed any more.
    pub(super) fn forget(&self, id: PageId) {
        let mut slots = self.slots.lock();
        let tier = self.tier();
        if let Some(home) = slots.home_mut(id).and_then(Option::take) {
            slots.used -= 1;
            slots.release(home.slot, tier);
        }
    }

    /// The space is dropped, and its pages are out of memory: its slots are free.
    pub fn drop_space(&self, space: SpaceId) {
        let mut slots = self.slots.lock();
        let tier = self.tier();
        for home in slots.homes.remove(&space).into_iter().flatten().flatten() {
            slots.used -= 1;
            slots.release(home.slot, tier);
        }
    }

    /// Truncates the file if much of it is free; `in_memory` pages have no slot yet. Pages behind large free areas are moved to
    /// the front first, some at a time. Returns true if there may be more to move. Only for the flusher, which takes slots. A
    /// failure to truncate is ignored.
    pub(crate) fn give_back_room(&self, in_memory: usize) -> bool {
        let tier = self.tier();
        let steps = |slots: u64| (slots.min(u64::from(u32::MAX / 2)) as u32).next_multiple_of(GROWTH);
        let ends = || {
            let slots = self.slots.lock();
            // Space for the pages in memory was promised, or may have been.
            let least = slots.used + in_memory as u64;
            let end = if planted::SPILL_CUT_SHORT.on() { 0 } else { u64::from(slots.next) };
            (steps(least), steps(least.max(end)))
        };
        let ((least, end), grown) = (ends(), self.grown(tier));
        let is_much = |keep: u32| grown >= keep.saturating_add(2 * GROWTH);
        let moved = is_much(least) && end > least && self.move_down(tier, least);
        let keep = if moved { ends().1 } else { end };
        let mut files = self.files.lock();
        let Some(place) = files.iter_mut().find(|place| place.tier == tier) else { return false };
        if let Some(file) = place.file.as_ref().filter(|_| is_much(keep))
            && file.shrink(u64::from(keep) * PAGE_SIZE as u64).is_ok()
        {
            place.grown = keep;
        }
        moved
    }

    /// Slots that the tier's file has space for.
    fn grown(&self, tier: Tier) -> u32 {
        self.files.lock().iter().find(|place| place.tier == tier).map_or(0, |place| place.grown)
    }

    /// Removes the files: the engine has stopped. The next start removes any that are left.
    pub fn remove(&self) {
        for place in self.files.lock().iter_mut() {
            if place.file.take().is_some() {
                let _ = place.disk.remove(FILE);
            }
        }
    }
}

/// The substitute for the log of temporary pages: positions only, nothing is written.
pub struct Unlogged {
    next: AtomicU64,
}

impl Default for Unlogged {
    fn default() -> Unlogged {
        Unlogged { next: AtomicU64::new(TEMPORARY_GLSN) }
    }
}

impl Redo for Unlogged {
    fn reserve(self: Arc<Self>, bytes: u64, _: Urgency) -> Result<LogRoom, LogError> {
        Ok(LogRoom::unlimited(bytes))
    }
    fn give_back(&self, _: u64) {}
    fn append(&self, _: &mut LogRoom, _: &[PageRedo<'_>], stamp: &mut dyn FnMut(LsnRange)) -> LsnRange {
        let first = self.next.fetch_add(1, Ordering::AcqRel);
        let range = LsnRange { first, end: first + 1 };
        stamp(range);
        range
    }
    fn durable(&self) -> Glsn {
        self.appended()
    }
    fn appended(&self) -> Glsn {
        self.next.load(Ordering::Acquire)
    }
    fn make_durable(&self, _: Glsn) -> Result<(), LogError> {
        Ok(())
    }
}

/// The substitute for slots of the object buffer: bounds the number of temporary pages, and reserves space on the device for
/// pages that memory may not hold before they are created, so that a full device fails here and not during a flush.
pub struct SpillRoom {
    pub pool: Arc<Pool>,
    pub spill: Arc<Spill>,
}

impl pages::SlotAdmission for SpillRoom {
    fn admit(&self, pages: usize, _: SpaceId) -> Result<(), NoRoom> {
        let (spill, there) = (&self.spill, self.pool.unspilled() as u64 + self.spill.used());
        let wanted = there + pages as u64;
        let full = |what: String| {
            spill.counters.full.fetch_add(1, Ordering::Relaxed);
            Err(NoRoom::Full(what))
        };
        if wanted > spill.max() {
            let max = spill.max() * PAGE_SIZE as u64;
            return full(format!("temporary tables have all that temporary_max gives them: {max} bytes"));
        }
        if wanted as usize <= self.pool.frames_in_circulation() / IN_MEMORY {
            return Ok(());
        }
        match spill.reserve(wanted + BETWEEN) {
            Ok(()) => Ok(()),
            Err(DiskError::Full { .. }) => full(format!(
                "temporary tables: the device has room for {} bytes of them",
                spill.file_bytes()
            )),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
