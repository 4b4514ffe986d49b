//! Bypass (CloudJump III §3.3): pages of bulk builds get their images on the volume at once. They bypass the log, the dirty pages
//! and the flusher, and only their builder waits for them: small commits never queue behind them.
//!
//! Written images are unreferenced until [`Bypass::publish`]: then one sync, and one map record that names them. So a reference
//! to such a page, logged after that, is never durable without it. A crash before leaves images in slots that are free again; the
//! owner of the page numbers returns those.
//!
//! A copy stays in memory if free frames are plentiful.
//!
//! The pages are new: no tier has them, and no redo for them exists. No other thread knows their numbers yet.

use crate::address::Slot;
use crate::memory::frame::FrameNo;
use crate::page::{self, PAGE_SIZE, PageId, PageKind, Tag};
use crate::volume::flush::{FlushError, Flusher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::disk::DiskError;

/// Pages of one write.
const BATCH: usize = 64;
/// Number of pages after which written images are synced and named, so that no sync is large. Unnamed images cannot sink: in a
/// small object buffer they take a sixteenth, because several trees may be built at a time.
const SYNC: usize = 1024;

#[derive(Default, Debug)]
pub struct BypassCounters {
    pub pages: AtomicU64,
    pub syncs: AtomicU64,
}

/// One builder's images in progress. On drop, unpublished images are discarded and their slots are freed.
pub struct Bypass {
    flusher: Arc<Flusher>,
    images: AlignedBuf,
    /// The pages of `images`.
    ids: Vec<(PageId, PageKind, u8)>,
    /// Written, not named yet.
    written: Vec<(PageId, Slot, Tag)>,
    has_written: bool,
    /// Those of them that are in memory, pinned.
    kept: Vec<(PageId, FrameNo)>,
}

impl Bypass {
    pub fn new(flusher: Arc<Flusher>) -> Bypass {
        let images = AlignedBuf::zeroed(BATCH * PAGE_SIZE);
        Bypass {
            flusher,
            images,
            ids: Vec::with_capacity(BATCH),
            written: Vec::new(),
            has_written: false,
            kept: Vec::new(),
        }
    }

    /// Adds a page: `fill` writes after the header of an empty one. May write, sync and wait; no latch is held.
    pub fn put(
        &mut self,
        id: PageId,
        (kind, level): (PageKind, u8),
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), FlushError> {
        if self.ids.len() == BATCH {
            self.write()?;
        }
        if self.written.len() >= SYNC.min((self.flusher.map().slots_total() / 16) as usize) {
            self.publish()?;
        }
        let at = self.ids.len() * PAGE_SIZE;
        let image = &mut self.images[at..at + PAGE_SIZE];
        page::format(image, id, kind, level);
        // All redo of the page comes later.
        page::set_lsn(image, self.flusher.redo().appended());
        fill(image);
        self.ids.push((id, kind, level));
        Ok(())
    }

    /// Pages that have no slot yet: the space to ask for with the next one (`Pages::ask_room`).
    pub fn unwritten(&self) -> usize {
        self.ids.len() % BATCH
    }

    /// Whether nothing is written yet, and there are no more than `pages` pages.
    pub fn is_small(&self, pages: usize) -> bool {
        self.ids.len() <= pages && self.written.is_empty() && !self.has_written
    }

    /// Returns the pages that are not written yet, and forgets them.
    pub fn take_each<E>(
        &mut self,
        mut each: impl FnMut(PageId, (PageKind, u8), &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let ids = std::mem::take(&mut self.ids);
        let all = ids.into_iter().zip(self.images.chunks_exact(PAGE_SIZE));
        all.into_iter().try_for_each(|((id, kind, level), image)| each(id, (kind, level), image))
    }

    fn write(&mut self) -> Result<(), FlushError> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let (first, ..) = self.ids[0];
        self.flusher.wait_to_write(first.space, None)?;
        let slots = self.flusher.new_slots(self.ids.len())?;
        let images = &mut self.images[..self.ids.len() * PAGE_SIZE];
        let tags: Vec<Tag> = images.chunks_exact_mut(PAGE_SIZE).map(page::seal).collect();
        if let Err(error) = self.flusher.buffer().write_many(&slots, images) {
            self.flusher.map().give_back_slots(&slots);
            return Err(self.flusher.disk_failed(error));
        }
        self.flusher.charge(first.space, self.ids.len() as u64);
        self.has_written = true;
        let pool = self.flusher.pool();
        for ((id, ..), image) in self.ids.iter().zip(images.chunks_exact(PAGE_SIZE)) {
            self.kept.extend(pool.keep_made(*id, image).map(|no| (*id, no)));
        }
        let all = self.ids.drain(..).zip(slots).zip(tags);
        self.written.extend(all.map(|(((id, ..), slot), tag)| (id, slot, tag)));
        Ok(())
    }

    /// Makes all pages so far durable, and then names them in the map. Records logged after it returns may refer to them.
    pub fn publish(&mut self) -> Result<(), FlushError> {
        self.write()?;
        if self.written.is_empty() {
            return Ok(());
        }
        let flusher = self.flusher.clone();
        if !crate::planted::BYPASS_NOT_SYNCED.on() {
            flusher.buffer().sync().map_err(|error| flusher.disk_failed(error))?;
        }
        flusher.map().publish_slots(&self.written)?;
        flusher.bypass.pages.fetch_add(self.written.len() as u64, Ordering::Relaxed);
        flusher.bypass.syncs.fetch_add(1, Ordering::Relaxed);
        self.written.clear();
        self.kept.drain(..).for_each(|(_, no)| flusher.pool().unpin(no));
        Ok(())
    }
}

impl Drop for Bypass {
    fn drop(&mut self) {
        let slots: Vec<Slot> = self.written.iter().map(|(_, slot, _)| *slot).collect();
        self.flusher.map().give_back_slots(&slots);
        self.kept.drain(..).for_each(|(id, no)| self.flusher.pool().forget_made(id, no));
    }
}

impl Flusher {
    /// A slot for each of `n` new pages.
    fn new_slots(&self, n: usize) -> Result<Vec<Slot>, FlushError> {
        self.stretch(n)?;
        let map = self.map();
        map.take_slots(n, map.slots_reserve()).ok_or(FlushError::Full { total: map.slots_total() })
    }

    /// Handles a failed write or sync: as the flusher's own, unless the device is only full.
    pub(crate) fn disk_failed(&self, error: DiskError) -> FlushError {
        let error = FlushError::Disk(error);
        if !matches!(error, FlushError::Disk(DiskError::Full { .. })) {
            self.fail(error.clone());
        }
        error
    }
}
