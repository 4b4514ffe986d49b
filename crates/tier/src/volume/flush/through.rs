//! Write-through (CloudJump III §3.3): pages of large values, whose content is not in the log, are written to the volume by the
//! thread that created them. They never queue behind other dirty pages, and the log writer never behind them.
//!
//! The pages are treated like all dirty pages: latched when created, stamped with LSNs, and the flusher may write them first. The
//! map record follows the record that created the page in the log, so a name is never durable without that record.
//!
//! A thread that copies a page to write it excludes other writers of it ([`Writing`]) until the map names the image: if two
//! images of one page were being written at a time, the older one could be named last.

use super::{FlushError, Flusher};
use crate::address::Slot;
use crate::memory::pool::{Access, DirtyCopy, Lookup};
use crate::page::{self, Glsn, PAGE_SIZE, PageId, PageKind, PageRef, SpaceId, Tag};
use crate::planted;
use hashbrown::HashMap;
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_io::cancel::Cancel;
use terrace_io::clock::Nanos;
use terrace_log::LogError;

/// Pages of one write.
const BATCH: usize = 64;
/// The interval at which a waiting thread checks again, in nanoseconds.
const LOOK: Nanos = 5_000_000;

/// Pages that a thread writes, closed to other writers until this is dropped.
pub(super) struct Writing<'f> {
    flusher: &'f Flusher,
    ids: Vec<PageId>,
}

impl<'f> Writing<'f> {
    pub(super) fn new(flusher: &'f Flusher) -> Writing<'f> {
        Writing { flusher, ids: Vec::new() }
    }

    /// Returns false if another thread writes the page already. Called before the page is copied.
    pub(super) fn begin(&mut self, id: PageId) -> bool {
        let free = self.flusher.writing.lock().insert(id);
        if free {
            self.ids.push(id);
        }
        free || planted::WRITTEN_BY_TWO.on()
    }

    /// The page that was begun last is not written.
    pub(super) fn cancel(&mut self, id: PageId) {
        if self.ids.pop_if(|last| *last == id).is_some() {
            self.flusher.writing.lock().remove(&id);
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut writing = self.flusher.writing.lock();
        self.ids.iter().for_each(|id| _ = writing.remove(id));
    }
}

/// Images that are written and not named. On drop, their slots are freed.
struct Written<'f> {
    flusher: &'f Flusher,
    pages: Vec<(DirtyCopy, Slot, Tag)>,
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let slots: Vec<Slot> = self.pages.iter().map(|(_, slot, _)| *slot).collect();
        self.flusher.map.give_back_slots(&slots);
    }
}

/// The state of a page with regard to its write.
enum WriteState {
    /// Its image is durable and named, or is not needed any more.
    Done,
    /// Another thread writes or changes it now.
    Busy,
    Copied(DirtyCopy),
}

impl Flusher {
    /// Makes those of these pages of large values durable, and named by the map, that are not yet. Records logged after it
    /// returns may rely on their content. Waits while no slot is free, up to `patience` nanoseconds or until cancelled; no latch
    /// is held.
    pub fn write_through(&self, pages: &[PageId], patience: Nanos) -> Result<(), FlushError> {
        self.write_through_until(pages, patience, None)
    }

    /// The same for an operation that cannot be cancelled, as a commit: when `killed` is requested, limits of tables are
    /// overridden for it.
    pub fn write_through_until(
        &self,
        pages: &[PageId],
        patience: Nanos,
        killed: Option<&Cancel>,
    ) -> Result<(), FlushError> {
        let clock = &self.pool.world.clock;
        let mut left = pages.to_vec();
        let mut since = clock.now();
        while !left.is_empty() {
            let progress = self.progress.ticket();
            if let Some(error) = self.failure() {
                return Err(error);
            }
            let before = left.len();
            let asked = clock.now();
            let max = self.wait_to_write(left[0].space, killed)?;
            since += clock.now() - asked;
            let busy;
            (left, busy) = self.write_in_turn(left, max)?;
            if left.len() < before {
                since = clock.now();
            }
            if !busy {
                continue; // the remaining pages are limited, and wait for their tokens
            }
            if clock.now() - since > patience {
                return Err(FlushError::Full { total: self.map.slots_total() });
            }
            if terrace_io::cancel::asked() {
                return Err(LogError::Cancelled.into());
            }
            self.map.slots_wanted.notify();
            if self.map.has_pending_slots() {
                self.redo.make_durable(self.redo.appended())?;
                self.map.settle();
            }
            self.pool.world.sched.wait(&self.progress, progress, Some(LOOK));
        }
        Ok(())
    }

    /// One round: up to `max` pages of the first one's space, and all pages without a limit. Returns the pages not written yet,
    /// and whether one could not be written although it may be.
    fn write_in_turn(&self, pages: Vec<PageId>, max: usize) -> Result<(Vec<PageId>, bool), FlushError> {
        let (first, mut of_first) = (pages[0].space, max);
        let mut limited: HashMap<SpaceId, bool> = HashMap::new();
        let (now, later): (Vec<PageId>, Vec<PageId>) = pages.into_iter().partition(|id| {
            if id.space != first {
                return !*limited.entry(id.space).or_insert_with(|| self.writes.limiting(id.space).is_some());
            }
            let turn = of_first > 0;
            of_first = of_first.saturating_sub(1);
            turn
        });
        let mut left = self.write_some(&now)?;
        let busy = !left.is_empty();
        left.extend(later);
        Ok((left, busy))
    }

    /// One round. Returns the pages that could not be written now.
    fn write_some(&self, pages: &[PageId]) -> Result<Vec<PageId>, FlushError> {
        let kept = self.through.lock().pop();
        let mut images = kept.unwrap_or_else(|| AlignedBuf::zeroed(BATCH * PAGE_SIZE));
        let mut left = Vec::new();
        // The order matters: written pages are freed, or clean, before other threads may write them.
        let mut writing = Writing::new(self);
        let mut written = Written { flusher: self, pages: Vec::with_capacity(pages.len()) };
        for pages in pages.chunks(BATCH) {
            let mut copies = Vec::with_capacity(pages.len());
            for id in pages {
                let at = copies.len() * PAGE_SIZE;
                match self.copy_of(*id, &mut writing, &mut images[at..at + PAGE_SIZE]) {
                    WriteState::Done => {}
                    WriteState::Busy => left.push(*id),
                    WriteState::Copied(copy) => copies.push(copy),
                }
            }
            if copies.is_empty() {
                continue;
            }
            let ids: Vec<PageId> = copies.iter().map(|copy| copy.id).collect();
            let slots = self.find_room(&mut copies, &mut images)?;
            left.extend(ids.into_iter().filter(|id| copies.iter().all(|copy| copy.id != *id)));
            let images = &mut images[..copies.len() * PAGE_SIZE];
            let tags: Vec<Tag> = images.chunks_exact_mut(PAGE_SIZE).map(page::seal).collect();
            written
                .pages
                .extend(copies.into_iter().zip(&slots).zip(tags).map(|((c, slot), tag)| (c, *slot, tag)));
            self.buffer.write_many(&slots, images).map_err(|error| self.disk_failed(error))?;
        }
        let mut free = self.through.lock();
        if free.is_empty() {
            free.push(images);
        }
        drop(free);
        let any = !written.pages.is_empty();
        if any {
            self.name(&mut written)?;
        }
        drop(writing);
        if any {
            self.progress.notify();
        }
        Ok(left)
    }

    /// A copy of the page, if it belongs to a large value and is dirty.
    fn copy_of(&self, id: PageId, writing: &mut Writing<'_>, image: &mut [u8]) -> WriteState {
        if !writing.begin(id) {
            return WriteState::Busy;
        }
        let found = match self.pool.lookup(id, Access::Internal) {
            // A dirty page stays in memory.
            Lookup::Absent => WriteState::Done,
            Lookup::Claimed => WriteState::Busy,
            Lookup::Pinned(no) => {
                let copy = self.pool.copy_dirty(no, image);
                let is_dirty = self.pool.frame(no).is_dirty();
                self.pool.unpin(no);
                match copy {
                    Some(copy) if PageRef::new(image).kind() == PageKind::Overflow as u8 => {
                        WriteState::Copied(copy)
                    }
                    // It was freed meanwhile: its change was rolled back.
                    Some(_) => WriteState::Done,
                    None if is_dirty => WriteState::Busy,
                    None => WriteState::Done,
                }
            }
        };
        if !matches!(found, WriteState::Copied(_)) {
            writing.cancel(id);
        }
        found
    }

    /// Syncs the written images, and publishes them in the map.
    fn name(&self, written: &mut Written<'_>) -> Result<(), FlushError> {
        if !planted::BYPASS_NOT_SYNCED.on() {
            self.buffer.sync().map_err(|error| self.disk_failed(error))?;
        }
        let named: Vec<(PageId, Slot, Tag)> =
            written.pages.iter().map(|(copy, slot, tag)| (copy.id, *slot, *tag)).collect();
        let range = self.map.publish_slots(&named)?;
        let pages = std::mem::take(&mut written.pages);
        let first: Glsn = pages.iter().map(|(copy, ..)| copy.first_change).min().unwrap_or(0);
        self.unmapped.lock().push_back((first, range.end));
        for of_space in pages.chunk_by(|(a, ..), (b, ..)| a.id.space == b.id.space) {
            self.charge(of_space[0].0.id.space, of_space.len() as u64);
        }
        for (copy, ..) in &pages {
            // The number of a new page may have had a copy there.
            if let Some(flash) = self.flash() {
                flash.invalidate(copy.id);
            }
            self.writes.count_clean(copy.id.space);
            self.pool.flushed(copy);
        }
        self.pool.batch_flushed();
        self.bypass.pages.fetch_add(pages.len() as u64, Ordering::Relaxed);
        self.bypass.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
