//! The flush (W1, W2, W5): dirty pages get a durable image on the volume.
//!
//! One step takes a batch of dirty pages and walks this path, a step a line, in [`Flusher::flush`]:
//! copy under the shared latch → log durable up to the copies (invariant 1, the *global* horizon) →
//! seal → free slots → write → one sync → map record → the flash copy is invalid, or rewritten
//! (`write_policy`) → the frame is clean.
//! The old slot becomes free when the map record is durable, and until then the checkpoint may not
//! pass the page's first change ([`Flusher::oldest_bound`]).
//!
//! A crash before the map record is durable leaves the old image named and the log to redo from; one
//! after it, the new image. One dirty page costs one slot, not a block's room. This departs from the
//! order of CloudJump III §4.2.3 and keeps its promise (DESIGN §3).
//!
//! There is one flusher. Whoever wants pages flushed sets a target and waits for `progress`; but who makes the pages of a
//! large value writes these itself (`through`).
//!
//! Temporary pages go their own way, past all of that ([`Flusher::spill`], in `temporary`).
//!
//! Not here: which pages (`choose`), what becomes of blocks (`sink`).

use crate::bypass::BypassCounters;
use crate::frame::FrameNo;
use crate::map::entry::Slot;
use crate::map::{Home, Located, Map, MapError};
use crate::object_buffer::ObjectBuffer;
use crate::page::{self, Glsn, PAGE_SIZE, PageId};
use crate::path::FlashCache;
use crate::pool::{DirtyCopy, Pool};
use crate::redo::{LogError, Redo};
use crate::temporary::Spill;
use crate::write_policy::Writes;
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_io::AlignedBuf;
use terrace_io::disk::DiskError;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use through::Writing;

pub mod forget;
pub mod limit;
mod through;

/// Pages of one batch.
const BATCH: usize = 64;
/// How long to rest when slots are full or the device fails, in nanoseconds.
const REST: u64 = 20_000_000;

/// What to flush next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The oldest first changes: the checkpoint waits, or there are many dirty pages.
    Oldest,
    /// Those next in line for eviction: frames run low.
    Coldest,
    Nothing,
}

/// Numbers that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    pub frames: usize,
    pub dirty: usize,
    pub free: usize,
    pub free_low: usize,
    pub oldest: Option<Glsn>,
    /// Everything first changed below this is to be flushed.
    pub target: Glsn,
}

/// Frames of a pool, 64 MiB, up to which its readers need more clean ones the larger it is.
const SMALL: usize = 4096;

/// So many eighths of the frames, and of those beyond [`SMALL`] so many 32nds.
pub(crate) fn share(frames: usize, eighths: usize, of_more: usize) -> usize {
    frames.min(SMALL) * eighths / 8 + frames.saturating_sub(SMALL) * of_more / 32
}

/// Dirty pages may take three eighths of the frames before they are flushed without need; of a large pool far more, for what is changed all
/// the time, as a random index under load, is better written seldom.
pub fn dirty_limit(frames: usize) -> usize {
    share(frames, 3, 28)
}

/// Pages of a batch that nobody waits for: a sync for so many more in a larger pool.
fn batch(frames: usize) -> usize {
    (frames / 32).clamp(BATCH, 4 * BATCH)
}

/// The policy: a pure function.
pub fn choose(p: Pressure) -> Choice {
    if p.dirty == 0 {
        Choice::Nothing
    } else if p.oldest.is_some_and(|oldest| oldest < p.target) {
        Choice::Oldest
    } else if p.free < 2 * p.free_low && p.frames - p.free > p.dirty / 2 && p.dirty * 4 > p.frames {
        Choice::Coldest
    } else if p.dirty > dirty_limit(p.frames) {
        Choice::Oldest
    } else {
        Choice::Nothing
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum FlushError {
    #[error("the object buffer is full: {total} slots, none free")]
    Full { total: u32 },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Map(#[from] MapError),
}

#[derive(Default, Debug)]
pub struct FlushCounters {
    pub pages: AtomicU64,
    pub batches: AtomicU64,
    pub full: AtomicU64,
    pub errors: AtomicU64,
}

/// Shared by the flusher's worker and those who ask it.
pub struct Flusher {
    pool: Arc<Pool>,
    map: Arc<Map>,
    buffer: Arc<ObjectBuffer>,
    redo: Arc<dyn Redo>,
    flash: Option<Arc<dyn FlashCache>>,
    spill: OnceLock<Arc<Spill>>,
    writes: Writes,
    target: AtomicU64,
    /// Up to here limits of writes yield.
    urgent: AtomicU64,
    /// Dirty pages that limits held back when it was looked last.
    held: AtomicUsize,
    /// Images that are mapped by a record not yet durable: (smallest first change, end of the record).
    unmapped: Mutex<VecDeque<(Glsn, Glsn)>, { Mutexes::Flush as u8 }>,
    /// A write or sync failed: the volume is not to be trusted any more.
    failed: Mutex<Option<FlushError>, { Mutexes::Flush as u8 }>,
    /// So often the log was too full for a batch's map records: the next batches are half as large each time.
    tight: AtomicU32,
    /// Where the worker copies a batch's images.
    images: Mutex<Option<AlignedBuf>, { Mutexes::Flush as u8 }>,
    /// Where a large value's pages are copied, while nobody does.
    through: Mutex<Vec<AlignedBuf>, { Mutexes::Flush as u8 }>,
    /// Pages that are copied to be written and not named yet.
    writing: Mutex<HashSet<PageId>, { Mutexes::Flush as u8 }>,
    /// A batch was flushed, or the flusher failed.
    pub progress: Arc<Event>,
    pub counters: FlushCounters,
    pub bypass: BypassCounters,
}

impl Flusher {
    pub fn new(
        pool: Arc<Pool>,
        map: Arc<Map>,
        buffer: Arc<ObjectBuffer>,
        redo: Arc<dyn Redo>,
        flash: Option<Arc<dyn FlashCache>>,
    ) -> Flusher {
        map.limit_slots(buffer.grown(), false);
        Flusher {
            pool,
            map,
            buffer,
            redo,
            flash,
            spill: OnceLock::new(),
            writes: Writes::default(),
            target: AtomicU64::new(0),
            urgent: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            unmapped: Mutex::default(),
            failed: Mutex::new(None),
            tight: AtomicU32::new(0),
            images: Mutex::new(None),
            through: Mutex::default(),
            writing: Mutex::default(),
            progress: Arc::new(Event::new()),
            counters: FlushCounters::default(),
            bypass: BypassCounters::default(),
        }
    }

    /// Where temporary pages go. Set once, before the first of them is made.
    pub fn set_spill(&self, spill: Arc<Spill>) {
        assert!(self.spill.set(spill).is_ok(), "the spill space is set twice");
    }

    /// What becomes of copies on flash.
    pub fn writes(&self) -> &Writes {
        &self.writes
    }
    pub(crate) fn flash(&self) -> Option<&dyn FlashCache> {
        self.flash.as_deref()
    }

    // For `bypass`, which writes to the same file and names images in the same map.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
    pub(crate) fn map(&self) -> &Map {
        &self.map
    }
    pub(crate) fn buffer(&self) -> &ObjectBuffer {
        &self.buffer
    }
    pub(crate) fn redo(&self) -> &dyn Redo {
        &*self.redo
    }
    /// A write or sync failed: the flusher gives up.
    pub(crate) fn fail(&self, error: FlushError) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        *self.failed.lock() = Some(error);
        self.progress.notify();
    }

    /// Asks for everything first changed below `target` to be flushed, whatever limits tables have. Does not wait.
    pub fn request(&self, target: Glsn) {
        let urgent = self.urgent.fetch_max(target, Ordering::AcqRel) < target;
        self.wish(target);
        if urgent && self.writes.limit() {
            self.pool.flush_wanted.notify();
        }
    }

    /// The same as far as limits allow.
    pub fn wish(&self, target: Glsn) {
        if self.target.fetch_max(target, Ordering::AcqRel) < target {
            self.pool.flush_wanted.notify();
        }
    }

    /// Why the flusher gave up, if it did: a failed write or sync is final.
    pub fn failure(&self) -> Option<FlushError> {
        self.failed.lock().clone()
    }

    /// The smallest first change of an image whose map record is not durable.
    pub fn oldest_bound(&self) -> Option<Glsn> {
        if crate::planted::UNMAPPED_IMAGE_PASSED.on() {
            return None;
        }
        let durable = self.redo.durable();
        let mut unmapped = self.unmapped.lock();
        unmapped.retain(|(_, end)| *end > durable);
        unmapped.iter().map(|(first, _)| *first).min()
    }

    fn pressure(&self) -> Pressure {
        Pressure {
            frames: self.pool.frames_in_circulation(),
            dirty: self.pool.dirty_frames(),
            free: self.pool.free_frames(),
            free_low: self.pool.free_low(),
            oldest: self.pool.oldest_dirty(),
            target: self.target.load(Ordering::Acquire),
        }
    }

    /// One batch, if there is need. Only the worker calls it.
    fn step(&self) -> Step {
        if self.failed.lock().is_some() {
            return Step::Idle;
        }
        self.map.settle();
        let pressure = self.pressure();
        let for_checkpoint = pressure.oldest.is_some_and(|oldest| oldest < pressure.target);
        let (frames, held) = match choose(pressure) {
            Choice::Nothing => {
                self.holds_nothing_back();
                let moved = self.spill.get().is_some_and(|spill| spill.give_back_room(self.pool.unspilled()));
                return if moved { Step::Worked } else { Step::Idle };
            }
            Choice::Oldest => self.oldest_in_turn(self.room_for(batch(self.pool.frames_in_circulation()))),
            Choice::Coldest => {
                let cold = self.coldest_in_turn(self.room_for(BATCH));
                if cold.0.is_empty() { self.oldest_in_turn(self.room_for(BATCH)) } else { cold }
            }
        };
        if let Some(rest) = held.filter(|_| frames.is_empty()) {
            return Step::IdleFor(rest);
        }
        // Its memory stays for the next batch: to map and unmap it each time disturbs all threads.
        let kept = self.images.lock().take().filter(|images| images.len() >= frames.len() * PAGE_SIZE);
        let mut images = kept.unwrap_or_else(|| AlignedBuf::zeroed(frames.len() * PAGE_SIZE));
        let step = self.flush_frames(frames, &mut images, for_checkpoint);
        *self.images.lock() = Some(images);
        step
    }

    /// How many of so many pages to take at a time.
    fn room_for(&self, pages: usize) -> usize {
        (pages >> self.tight.load(Ordering::Relaxed).min(usize::BITS - 1)).max(1)
    }

    fn flush_frames(&self, frames: Vec<FrameNo>, images: &mut [u8], for_checkpoint: bool) -> Step {
        let mut copies: Vec<DirtyCopy> = Vec::with_capacity(frames.len());
        let mut writing = Writing::new(self);
        for no in frames {
            let id = self.pool.frame(no).id();
            if !writing.begin(id) {
                continue;
            }
            let at = copies.len() * PAGE_SIZE;
            let copy = self.pool.copy_dirty(no, &mut images[at..at + PAGE_SIZE]);
            // Temporary pages go another way: a batch is all of them, or none.
            let first = copies.first().map(DirtyCopy::is_temporary);
            match copy.filter(|c| c.id == id && first.is_none_or(|first| first == c.is_temporary())) {
                Some(copy) => copies.push(copy),
                None => writing.cancel(id),
            }
        }
        if copies.is_empty() {
            return Step::IdleFor(1_000_000); // all are being changed right now
        }
        let end = copies.len() * PAGE_SIZE;
        let flushed = match self.spill.get().filter(|_| copies[0].is_temporary()) {
            Some(spill) => self.spill(spill, &copies, &mut images[..end]),
            None => self.flush(copies, &mut images[..end], for_checkpoint),
        };
        drop(writing);
        match flushed {
            Ok(()) => {
                self.tight.store(0, Ordering::Relaxed);
                self.progress.notify();
                Step::Worked
            }
            // Nor is a log that is full: nothing was mapped, and what it waits for will move on. Fewer pages may find room meanwhile.
            Err(FlushError::Map(MapError::Log(LogError::Full { .. }))) => {
                self.tight.fetch_add(1, Ordering::Relaxed);
                self.counters.full.fetch_add(1, Ordering::Relaxed);
                self.progress.notify();
                Step::IdleFor(REST)
            }
            // The device being full is no fault: nothing was mapped, and sinking makes room.
            Err(FlushError::Full { .. } | FlushError::Disk(DiskError::Full { .. })) => {
                self.map.slots_wanted.notify();
                self.counters.full.fetch_add(1, Ordering::Relaxed);
                // Pending slots become free when the log is durable; others when a block has sunk.
                if self.redo.make_durable(self.redo.appended()).is_err() {
                    return Step::Idle;
                }
                self.map.settle();
                self.progress.notify();
                Step::IdleFor(REST)
            }
            Err(error) => {
                self.fail(error);
                Step::Idle
            }
        }
    }

    /// The flush of a batch, from copies to clean frames. In a full object buffer, of as many as have room.
    fn flush(
        &self,
        mut copies: Vec<DirtyCopy>,
        images: &mut [u8],
        for_checkpoint: bool,
    ) -> Result<(), FlushError> {
        let newest = copies.iter().map(|c| c.lsn).max().unwrap_or(0);
        if crate::planted::OWN_HORIZON_ONLY.on() {
            let ids: Vec<PageId> = copies.iter().map(|c| c.id).collect();
            self.redo.make_durable_own(&ids, newest)?;
        } else if !crate::planted::PAGE_BEFORE_LOG.on() {
            self.redo.make_durable(newest)?; // invariant 1: log first
        }
        let slots = self.find_room(&mut copies, images)?;
        if slots.is_empty() {
            return Err(FlushError::Full { total: self.map.slots_total() });
        }
        let images = &mut images[..copies.len() * PAGE_SIZE];
        let tags: Vec<_> = images.chunks_exact_mut(PAGE_SIZE).map(page::seal).collect();
        let written = self.buffer.write_many(&slots, images).and_then(|()| self.buffer.sync());
        if let Err(error) = written {
            self.map.give_back_slots(&slots);
            return Err(error.into());
        }
        let changes: Vec<(PageId, _, _)> =
            copies.iter().zip(&slots).zip(&tags).map(|((c, slot), tag)| (c.id, *slot, *tag)).collect();
        if crate::planted::FLASH_TOLD_EARLY.on() {
            for ((copy, tag), image) in copies.iter().zip(&tags).zip(images.chunks_exact(PAGE_SIZE)) {
                self.write_to_flash(copy.id, *tag, image, for_checkpoint);
            }
        }
        let range = self.map.publish_slots(&changes).inspect_err(|_| self.map.give_back_slots(&slots))?;
        let first = copies.iter().map(|c| c.first_change).min().unwrap_or(0);
        self.unmapped.lock().push_back((first, range.end));
        for ((copy, tag), image) in copies.iter().zip(tags).zip(images.chunks_exact(PAGE_SIZE)) {
            if !crate::planted::FLASH_TOLD_EARLY.on() {
                self.write_to_flash(copy.id, tag, image, for_checkpoint);
            }
            self.pool.flushed(copy);
            self.charge(copy.id.space, 1);
        }
        self.pool.batch_flushed();
        self.counters.pages.fetch_add(copies.len() as u64, Ordering::Relaxed);
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A free slot for each copy. Copies that get none leave the batch, and their images with them:
    /// a page that has no slot yet leaves the reserve to those whose rewriting gives one back.
    fn find_room(&self, copies: &mut Vec<DirtyCopy>, images: &mut [u8]) -> Result<Vec<Slot>, DiskError> {
        self.stretch(copies.len())?;
        let has_slot =
            |c: &DirtyCopy| matches!(self.map.locate(c.id), Located::At(Home { slot: Some(_), .. }));
        let rewrites: Vec<bool> = copies.iter().map(has_slot).collect();
        let again = rewrites.iter().filter(|again| **again).count();
        let mut for_new = self.map.take_up_to(copies.len() - again, self.map.slots_reserve()).into_iter();
        let mut for_again = self.map.take_up_to(again, 0).into_iter();
        let mut slots = Vec::with_capacity(copies.len());
        let mut at = 0;
        let mut rewrites = rewrites.into_iter();
        copies.retain(|_| {
            let again = rewrites.next().unwrap_or(false);
            let slot = if again { for_again.next() } else { for_new.next() };
            if let Some(slot) = slot {
                images.copy_within(at * PAGE_SIZE..(at + 1) * PAGE_SIZE, slots.len() * PAGE_SIZE);
                slots.push(slot);
            }
            at += 1;
            slot.is_some()
        });
        Ok(slots)
    }

    /// Lets the object buffer's file grow until `n` new images find room, if the device has it.
    pub fn stretch(&self, n: usize) -> Result<(), DiskError> {
        let total = self.map.slots_total();
        let wanted = n as u32 + self.map.slots_reserve();
        while self.map.slots_usable() < wanted && self.buffer.grown() < total {
            match self.buffer.grow(total) {
                Ok(grown) => self.map.raise_slots(grown, false),
                Err(DiskError::Full { .. }) => {
                    self.map.raise_slots(self.buffer.grown(), true);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The worker's face of the flusher.
pub struct FlushWorker(pub Arc<Flusher>);

impl Worker for FlushWorker {
    fn name(&self) -> &'static str {
        "flusher"
    }
    fn step(&mut self) -> Step {
        self.0.step()
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.pool.flush_wanted.clone()
    }
}

#[cfg(test)]
mod tests;
