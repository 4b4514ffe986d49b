//! What a copy of the volume takes from the map, and what it holds meanwhile.
//!
//! While slots are held, none that any record named since is written to again: whatever log position the copy ends at, the images that the map
//! named there are where it named them. Slots given up wait, so this is for moments: who flushes takes new ones.

use super::Map;
use crate::object_buffer::Written;
use crate::page::{self, Glsn, PAGE_SIZE, PageRef};
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, DiskError, File};

/// Map pages written at a time.
const BATCH: usize = 32;

impl Map {
    /// No slot that is given up becomes free, until this is called with `false`.
    pub fn hold_slots(&self, held: bool) {
        self.hold_hinders.store(false, Ordering::Relaxed);
        self.inner.write().slots.hold(held);
        if !held {
            self.settle();
        }
    }

    /// Whether slots are held; who waits for one says so by this to who holds them.
    pub fn waits_for_held(&self) -> bool {
        let held = self.inner.read().slots.is_held();
        if held {
            self.hold_hinders.store(true, Ordering::Relaxed);
        }
        held
    }

    /// Somebody waits for a slot since the hold began.
    pub fn hold_hinders(&self) -> bool {
        self.hold_hinders.load(Ordering::Relaxed)
    }

    /// Slots in use, promised or given up and not free yet, a bit each.
    pub fn slots_taken(&self) -> Vec<u64> {
        self.inner.read().slots.taken().to_vec()
    }

    /// Of the slots that were written those that are not free by now.
    pub fn taken_of(&self, written: &Written) -> Vec<u64> {
        // In this order: a slot that is given out in between is noted again when it is written.
        let mut chosen = written.take();
        self.inner.read().slots.taken().iter().zip(&mut chosen).for_each(|(taken, word)| *word &= taken);
        chosen
    }

    /// Slots that a copy has to reckon with, the free ones among them.
    pub fn slots_named(&self) -> u32 {
        self.inner.read().slots.named()
    }

    pub fn pages(&self) -> usize {
        self.inner.read().pages.len()
    }

    /// Writes the map as it is in memory into a map file of another volume, each page into its first home; not durable yet. The log must
    /// be kept from a checkpoint that was before it, up to the position returned, at least. Changes go on meanwhile: pages are of
    /// different moments, and redo makes them one.
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

    /// Which pages were copied, each followed by an empty second home, and the newest LSN of them.
    fn copy_pages(&self, first: usize, buf: &mut [u8]) -> (Range<usize>, Glsn) {
        let inner = self.inner.read();
        let mut newest = 0;
        let mut end = first;
        for (map_page, homes) in inner.pages[first..].iter().zip(buf.chunks_exact_mut(2 * PAGE_SIZE)) {
            let (copy, second) = homes.split_at_mut(PAGE_SIZE);
            map_page.image.copy_to(copy);
            second.fill(0);
            // One that was never used is all zeros, as in a new file.
            if copy.iter().any(|byte| *byte != 0) {
                newest = newest.max(PageRef::new(copy).lsn());
                page::seal(copy);
            }
            end += 1;
        }
        (first..end, newest)
    }
}
