//! Support for copies of a running volume: what a copy takes from the map, and how slots are held meanwhile.
//!
//! While slots are held, no slot that any record has named since then is written again: at whatever log position the copy ends,
//! the images that the map named there are where it named them. Released slots wait, so a hold must be short: flushes take new
//! slots.

use super::Map;
use crate::page::{self, Glsn, PAGE_SIZE, PageRef};
use crate::volume::object_buffer::Written;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, DiskError, File};

/// Number of map pages written at a time.
const BATCH: usize = 32;

impl Map {
    /// Until called with `false`, no released slot becomes free.
    pub fn hold_slots(&self, held: bool) {
        self.hold_hinders.store(false, Ordering::Relaxed);
        self.inner.write().slots.hold(held);
        if !held {
            self.settle();
        }
    }

    /// Whether slots are held. A writer that waits for a slot calls this, which tells the holder that it waits.
    pub fn waits_for_held(&self) -> bool {
        let held = self.inner.read().slots.is_held();
        if held {
            self.hold_hinders.store(true, Ordering::Relaxed);
        }
        held
    }

    /// Whether a writer has waited for a slot since the hold began.
    pub fn hold_hinders(&self) -> bool {
        self.hold_hinders.load(Ordering::Relaxed)
    }

    /// Slots in use, promised or pending, a bit each.
    pub fn slots_taken(&self) -> Vec<u64> {
        self.inner.read().slots.taken().to_vec()
    }

    /// Those of the written slots that are not free by now.
    pub fn taken_of(&self, written: &Written) -> Vec<u64> {
        // In this order: a slot that is allocated in between is recorded again when it is written.
        let mut chosen = written.take();
        self.inner.read().slots.taken().iter().zip(&mut chosen).for_each(|(taken, word)| *word &= taken);
        chosen
    }

    /// Slots that a copy has to consider, including free ones.
    pub fn slots_named(&self) -> u32 {
        self.inner.read().slots.named()
    }

    pub fn pages(&self) -> usize {
        self.inner.read().pages.len()
    }

    /// Writes the map as it is in memory into a map file of another volume, each page into its first home; not durable yet. The
    /// log must be kept from a checkpoint before this call, at least up to the position returned. Changes continue meanwhile: the
    /// pages are from different points in time, and redo makes them consistent.
    pub fn write_copy(&self, file: &dyn File) -> Result<Glsn, DiskError> {
        let mut buf = AlignedBuf::zeroed(BATCH * 2 * PAGE_SIZE);
        let (mut first, mut newest) = (0, 0);
        loop {
            let (pages, lsn) = self.copy_pages(first, &mut buf);
            if pages.is_empty() {
                return Ok(newest);
            }
            newest = lsn.max(newest);
            let home = 2 * PAGE_SIZE as u64;
            let (offset, end) = (pages.start as u64 * home, pages.end as u64 * home);
            if file.len() < end {
                file.grow(super::home::room_for(pages.end), true)?;
            }
            file.write(Class::MapWrite, offset, &buf[..pages.len() * 2 * PAGE_SIZE])?;
            first = pages.end;
        }
    }

    /// The pages copied, each followed by an empty second home, and their newest LSN.
    fn copy_pages(&self, first: usize, buf: &mut [u8]) -> (Range<usize>, Glsn) {
        let inner = self.inner.read();
        let mut newest = 0;
        let mut end = first;
        for (map_page, homes) in inner.pages[first..].iter().zip(buf.chunks_exact_mut(2 * PAGE_SIZE)) {
            let (copy, second) = homes.split_at_mut(PAGE_SIZE);
            map_page.image.copy_to(copy);
            second.fill(0);
            // A page that was never used is all zeros, as in a new file.
            if copy.iter().any(|byte| *byte != 0) {
                newest = newest.max(PageRef::new(copy).lsn());
                page::seal(copy);
            }
            end += 1;
        }
        (first..end, newest)
    }
}
