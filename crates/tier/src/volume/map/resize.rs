//! Resizing the object buffer while pages are flushed and sunk. CloudJump III §2.3.
//!
//! Growing changes a number in the superblock and then in memory: the file grows when slots are needed. Shrinking: slots from the
//! new number on are no longer allocated. The pages in them are copied to lower slots, and map records say so ([`Mover`]). When
//! the last of these records is durable the slots are removed: the superblock is changed, and the file is truncated. After a
//! crash before that, the old number is in force and every page is where a durable record says; after a later crash no page is
//! beyond the new number.
//!
//! Not here: making room first by sinking, and the superblock (the engine's `resize`).

use super::{Map, MapError};
use crate::address::Slot;
use crate::page::{self, BadImage, PAGE_SIZE, PageId, Tag};
use crate::volume::object_buffer::ObjectBuffer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_io::disk::DiskError;

/// Number of pages that are copied with one sync.
const BATCH: usize = 256;

#[derive(Debug, Clone, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("page {id} in slot {} of the volume: {bad}", slot.0)]
    Corrupt { id: PageId, slot: Slot, bad: BadImage },
}

/// The result of one step of a mover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// This number of pages has a lower slot now.
    Some(usize),
    /// There is no free slot to move to.
    NoRoom,
    /// No page is beyond the limit any more; the old slots may still wait for the log.
    AllDone,
}

/// Numbers of slots that the policy of a resize needs.
#[derive(Clone, Copy, Debug)]
pub struct SlotsInUse {
    pub count: u32,
    pub used: u32,
    /// In use beyond `count`.
    pub beyond: u32,
}

impl Map {
    pub fn slots_in_numbers(&self) -> SlotsInUse {
        let slots = &self.inner.read().slots;
        let beyond = slots.beyond();
        SlotsInUse { count: slots.count(), used: slots.count() - slots.free() + beyond, beyond }
    }

    /// What to sink is chosen as if there were only this number of slots. `u32::MAX`: the actual number.
    pub fn aim_at_slots(&self, slots: u32) {
        self.goal.store(slots, Ordering::Relaxed);
        self.slots_wanted.notify();
    }

    /// Allocates slots below `count` only. Those above stay until `forget_slots`.
    pub fn set_slots(&self, count: u32) {
        let mut inner = self.inner.write();
        inner.slots.set_count(count);
        self.note_pressure(&inner);
        drop(inner);
        self.slots_freed.notify();
    }

    /// Removes the slots above the limit if all of them are free. Returns false if they are not yet.
    pub fn forget_slots(&self) -> bool {
        self.settle();
        let mut inner = self.inner.write();
        let free = inner.slots.beyond() == 0;
        if free {
            inner.slots.forget_beyond();
        }
        free
    }

    /// Pages in slots from `first` on, at most `max`, the highest slots first.
    fn pages_beyond(&self, first: u32, max: usize) -> Vec<(Slot, PageId, Tag)> {
        let mut pages = self.slots_in_use();
        pages.retain(|(slot, ..)| slot.0 >= first);
        let skip = pages.len().saturating_sub(max);
        pages.split_off(skip)
    }
}

/// Copies pages from the slots that are to be removed to lower ones.
pub struct Mover {
    map: Arc<Map>,
    buffer: Arc<ObjectBuffer>,
    /// Pages found by the last search, in slot order.
    found: Vec<(Slot, PageId, Tag)>,
}

impl Mover {
    pub fn new(map: Arc<Map>, buffer: Arc<ObjectBuffer>) -> Mover {
        Mover { map, buffer, found: Vec::new() }
    }

    /// Moves some pages. No latch is held.
    pub fn step(&mut self) -> Result<Moved, MoveError> {
        if self.found.is_empty() {
            // The search reads the whole map, so it collects many pages at once.
            self.found = self.map.pages_beyond(self.map.slots_total(), 64 * BATCH);
            if self.found.is_empty() {
                return Ok(Moved::AllDone);
            }
        }
        let batch = self.found.split_off(self.found.len().saturating_sub(BATCH));
        let to = self.map.take_up_to(batch.len(), 0);
        if to.is_empty() {
            self.found.clear();
            return Ok(Moved::NoRoom);
        }
        let moved = self.copy(&batch[..to.len()], &to);
        if moved.is_err() {
            self.found.clear();
        }
        moved.map(Moved::Some)
    }

    fn copy(&self, pages: &[(Slot, PageId, Tag)], to: &[Slot]) -> Result<usize, MoveError> {
        let mut images = AlignedBuf::zeroed(pages.len() * PAGE_SIZE);
        let from: Vec<Slot> = pages.iter().map(|(slot, ..)| *slot).collect();
        let mut read = self.buffer.read_many(&from, &mut images).into_iter();
        // Pages that were flushed again, sunk or dropped since they were found need no move.
        let (mut changes, mut slots, mut at) = (Vec::new(), Vec::new(), 0);
        let mut fault = None;
        for (i, (slot, id, tag)) in pages.iter().enumerate() {
            let image = &images[i * PAGE_SIZE..(i + 1) * PAGE_SIZE];
            let seen = read.next().unwrap_or(Ok(())).map_err(MoveError::Disk).and_then(|()| {
                page::check(image, *id, Some(*tag)).map_err(|bad| MoveError::Corrupt {
                    id: *id,
                    slot: *slot,
                    bad,
                })
            });
            match seen {
                Ok(()) => {
                    images.copy_within(i * PAGE_SIZE..(i + 1) * PAGE_SIZE, at * PAGE_SIZE);
                    changes.push((*id, to[at], *tag));
                    slots.push(to[at]);
                    at += 1;
                }
                Err(error) if self.map.is_at(*id, *slot, *tag) => fault = Some(error),
                Err(_) => {}
            }
        }
        self.map.give_back_slots(&to[at..]);
        let images = &images[..at * PAGE_SIZE];
        let written = self.buffer.write_many(&slots, images).and_then(|()| self.buffer.sync());
        if let Err(error) = written {
            self.map.give_back_slots(&slots);
            return Err(error.into());
        }
        let old = pages.iter().map(|(slot, id, _)| (*id, *slot)).collect();
        self.map.publish_moves(&changes, &old).inspect_err(|_| self.map.give_back_slots(&slots))?;
        fault.map_or(Ok(at), Err)
    }
}

impl Map {
    /// Whether the page's image with this tag is in this slot.
    fn is_at(&self, id: PageId, slot: Slot, tag: Tag) -> bool {
        matches!(self.locate(id), super::Located::At(home) if home.slot == Some(slot) && home.tag == tag)
    }
}
