//! The flush (W1, W2, W5): writes durable images of dirty pages to the volume.
//!
//! One step takes a batch of dirty pages through this path, one line a step, in [`Flusher::flush`]: copy under the shared latch →
//! log durable up to the copies (invariant 1, the *global* horizon) → seal → free slots → write → one sync → map record → the
//! flash copy is invalidated, or rewritten (`write_policy`) → the frame is clean. The old slot becomes free when the map record
//! is durable, and until then the checkpoint may not pass the page's first change ([`Flusher::oldest_bound`]).
//!
//! After a crash before the map record is durable, the map names the old image and the log has the redo; after a later crash it
//! names the new image. One dirty page costs one slot, not the space of a block. This departs from the order of CloudJump III
//! §4.2.3 and keeps its promise (DESIGN §3).
//!
//! There is one flusher. A thread that wants pages flushed sets a target and waits for `progress`; but the writer of a large
//! value's pages writes these itself (`through`).
//!
//! Temporary pages take a separate path ([`Flusher::spill`], in `temporary`).
//!
//! Not here: which pages (`choose`), what happens to blocks (`sink`).

use crate::address::Slot;
use crate::address::{Home, Located};
use crate::flash::FlashCache;
use crate::limits::write_policy::Writes;
use crate::memory::frame::FrameNo;
use crate::memory::pool::{DirtyCopy, Pool, dirty_limit};
use crate::page::{self, Glsn, PAGE_SIZE, PageId};
use crate::volume::bypass::BypassCounters;
use crate::volume::map::{Map, MapError};
use crate::volume::object_buffer::ObjectBuffer;
use crate::volume::temporary::Spill;
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_io::AlignedBuf;
use terrace_io::disk::DiskError;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::{Event, Step, Worker};
use terrace_log::{LogError, Redo};
use through::Writing;

mod flash_copy;
pub mod forget;
pub mod limit;
pub(crate) mod spill;
mod through;

/// Pages of one batch.
const BATCH: usize = 64;
/// The pause when slots are full or the device fails, in nanoseconds.
const REST: u64 = 20_000_000;

/// What to flush next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The pages with the oldest first changes: the checkpoint waits, or many pages are dirty.
    Oldest,
    /// The pages next in line for eviction: frames are low.
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

/// Pages of a batch that no thread waits for: in a larger pool, one sync covers more pages.
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

/// State shared by the flusher's worker and the threads that wait for it.
pub struct Flusher {
    pool: Arc<Pool>,
    map: Arc<Map>,
    buffer: Arc<ObjectBuffer>,
    redo: Arc<dyn Redo>,
    flash: Option<Arc<dyn FlashCache>>,
    spill: OnceLock<Arc<Spill>>,
    writes: Writes,
    target: AtomicU64,
    /// Up to this position, limits of writes are overridden.
    urgent: AtomicU64,
    /// Dirty pages that limits held back at the last check.
    held: AtomicUsize,
    /// Images that are mapped by a record not yet durable: (smallest first change, end of the record).
    unmapped: Mutex<VecDeque<(Glsn, Glsn)>, { Mutexes::Flush as u8 }>,
    /// A write or sync failed: the volume is no longer trusted.
    failed: Mutex<Option<FlushError>, { Mutexes::Flush as u8 }>,
    /// How often in a row the log was too full for a batch's map records: each time the next batch is halved.
    tight: AtomicU32,
    /// The buffer for a batch's images.
    images: Mutex<Option<AlignedBuf>, { Mutexes::Flush as u8 }>,
    /// The buffer for a large value's pages, while no writer uses it.
    through: Mutex<Vec<AlignedBuf>, { Mutexes::Flush as u8 }>,
    /// Pages that have been copied for a write and are not named yet.
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

    /// Where temporary pages are written. Set once, before the first of them is created.
    pub fn set_spill(&self, spill: Arc<Spill>) {
        assert!(self.spill.set(spill).is_ok(), "the spill space is set twice");
    }

    /// The policy for copies on flash.
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
    /// A write or sync failed: the flusher stops for good.
    pub(crate) fn fail(&self, error: FlushError) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        *self.failed.lock() = Some(error);
        self.progress.notify();
    }

    /// Requests the flush of everything first changed below `target`, overriding limits of tables. Does not wait.
    pub fn request(&self, target: Glsn) {
        let urgent = self.urgent.fetch_max(target, Ordering::AcqRel) < target;
        self.wish(target);
        if urgent && self.writes.limit() {
            self.pool.flush_wanted.notify();
        }
    }

    /// The same within the limits of tables.
    pub fn wish(&self, target: Glsn) {
        if self.target.fetch_max(target, Ordering::AcqRel) < target {
            self.pool.flush_wanted.notify();
        }
    }

    /// Why the flusher stopped, if it did: a failed write or sync is final.
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

    /// Flushes one batch, if needed. Only the worker calls it.
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
        // Its memory is kept for the next batch: mapping and unmapping it each time slows all threads.
        let kept = self.images.lock().take().filter(|images| images.len() >= frames.len() * PAGE_SIZE);
        let mut images = kept.unwrap_or_else(|| AlignedBuf::zeroed(frames.len() * PAGE_SIZE));
        let step = self.flush_frames(frames, &mut images, for_checkpoint);
        *self.images.lock() = Some(images);
        step
    }

    /// How many of `pages` pages to take at a time.
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
            // Temporary pages take a separate path: a batch contains only temporary pages, or none.
            let first = copies.first().map(DirtyCopy::is_temporary);
            match copy.filter(|c| c.id == id && first.is_none_or(|first| first == c.is_temporary())) {
                Some(copy) => copies.push(copy),
                None => writing.cancel(id),
            }
        }
        if copies.is_empty() {
            return Step::IdleFor(1_000_000); // all of them are being changed at present
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
            // A full log is no failure either: nothing was mapped, and log space will be freed. A smaller batch may fit
            // meanwhile.
            Err(FlushError::Map(MapError::Log(LogError::Full { .. }))) => {
                self.tight.fetch_add(1, Ordering::Relaxed);
                self.counters.full.fetch_add(1, Ordering::Relaxed);
                self.progress.notify();
                Step::IdleFor(REST)
            }
            // A full device is no failure: nothing was mapped, and sinking frees slots.
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

    /// Flushes a batch, from copies to clean frames. In a full object buffer, only the copies that get a slot.
    fn flush(
        &self,
        mut copies: Vec<DirtyCopy>,
        images: &mut [u8],
        for_checkpoint: bool,
    ) -> Result<(), FlushError> {
        let newest = copies.iter().map(|c| c.lsn).max().unwrap_or(0);
        if terrace_log::planted::OWN_HORIZON_ONLY.on() {
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

    /// Takes a free slot for each copy. Copies that get none leave the batch, with their images: a page that has no slot yet
    /// leaves the reserve to pages whose rewriting frees one.
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

    /// Lets the object buffer's file grow until `n` new images fit, if the device has space.
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

/// The flusher as a worker.
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
