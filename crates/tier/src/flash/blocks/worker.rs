//! The worker of a cache of blocks: writes queued values, makes segments ready, saves directories, and reads them after a start.

use super::find::Window;
use super::record::{self, StoredKey};
use super::segments::{Extent, Geometry};
use super::{BATCH_BYTES, BlockCache, Flash, add, count, directory};
use crate::flash::core::Slots;
use crate::flash::fills::Fill;
use crate::flash::key::mark;
use crate::flash::table::FlashSlot;
use crate::planted;
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::disk::{DiskError, Op};
use terrace_io::sched::{Event, Step, Worker};

/// Directories that one step reads.
const DIRECTORIES: u32 = 16;
/// Values of an evicted segment that are read at once to be moved.
const MOVES: usize = 16;
/// After this number of bytes the open segment's directory is saved even if values are queued.
const SAVE_AFTER: usize = 4 << 20;
/// Without fills for this time, in nanoseconds, it is saved too.
const SAVE_IDLE: Nanos = 2_000_000_000;

impl<K: StoredKey> BlockCache<K> {
    fn owner(&self) -> directory::Owner {
        directory::Owner { id: self.settings.owner, key_bytes: K::BYTES as u32 }
    }

    /// Writes one batch, and does a piece of the other work. Only the worker calls it.
    fn step(&self) -> Step {
        let Some(flash) = &self.flash else { return Step::Idle };
        if self.restore_some(flash) {
            return Step::Worked;
        }
        let wrote = self.write_some(flash);
        let readied = self.make_ready();
        let worked = wrote || readied;
        let (due, unsaved) = {
            let mut state = self.state.lock();
            let waited = std::mem::replace(&mut state.idle, !worked) && !worked;
            (waited || state.unsaved_bytes >= SAVE_AFTER, state.core.index.has_unsaved())
        };
        if unsaved && self.save_one(flash, due) {
            return Step::Worked;
        }
        match (worked, unsaved) {
            (true, _) => Step::Worked,
            (false, true) => Step::IdleFor(SAVE_IDLE),
            (false, false) => Step::Idle,
        }
    }

    /// Writes queued values of one segment, in one request. Returns true if there were any.
    fn write_some(&self, flash: &Flash) -> bool {
        let (fills, extents, offset, bytes) = {
            let mut guard = self.state.lock();
            let core = &mut guard.core;
            let (mut segment, mut sum) = (None, 0);
            let of_batch = |fill: &&Fill<K>| {
                let own = core.index.geometry.segment_of(fill.slot);
                sum += core.index.extent(fill.slot).len as usize;
                *segment.get_or_insert(own) == own
                    && (sum <= BATCH_BYTES || sum == core.index.extent(fill.slot).len as usize)
            };
            let batch = core.fills.queued().take_while(of_batch).count();
            let fills = core.fills.start(batch);
            let slots: Vec<FlashSlot> = fills.iter().map(|fill| fill.slot).collect();
            let (offset, bytes) = core.index.lay_out(&slots, core.fills.queued().map(|fill| fill.slot));
            let extents: Vec<Extent> = slots.iter().map(|slot| core.index.extent(*slot)).collect();
            (fills, extents, offset, bytes)
        };
        let (Some(first), Some(first_extent)) = (fills.first(), extents.first()) else { return false };
        let result = if fills.len() == 1 && first.image.len() == bytes as usize {
            flash.file.write(self.settings.fill_class, offset, &first.image)
        } else {
            let mut batch = AlignedBuf::zeroed(bytes as usize);
            for (fill, extent) in fills.iter().zip(&extents) {
                let from = ((extent.at - first_extent.at) * super::segments::UNIT) as usize;
                let len = extent.len as usize;
                batch[from..from + len].copy_from_slice(&fill.image[..len]);
            }
            flash.file.write(self.settings.fill_class, offset, &batch)
        };
        let slots: Vec<FlashSlot> = fills.iter().map(|fill| fill.slot).collect();
        let queued: usize = fills.iter().map(|fill| fill.image.len()).sum();
        drop(fills);
        self.wrote(&slots, queued, bytes, result);
        true
    }

    /// The write of these slots has ended; their images had `queued` bytes in the queue.
    fn wrote(&self, slots: &[FlashSlot], queued: usize, bytes: u32, result: Result<(), DiskError>) {
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            state.core.fills.written();
            state.queue_bytes = state.queue_bytes.saturating_sub(queued);
            if state.off.is_some() {
                return;
            }
            for slot in slots {
                if result.is_err() {
                    state.core.index.remove(*slot);
                }
                state.core.index.settle(*slot);
            }
            match &result {
                Ok(()) => {
                    slots.iter().for_each(|slot| state.core.index.written(*slot));
                    state.errors = 0;
                    state.unsaved_bytes += bytes as usize;
                    add(&self.counters.fills, slots.len() as u64);
                    add(&self.counters.fill_bytes, u64::from(bytes));
                    return;
                }
                Err(DiskError::Full { .. }) => {
                    count(&self.counters.full);
                    if let Some(slot) = slots.first() {
                        let segment = state.core.index.geometry.segment_of(*slot);
                        state.core.index.no_room(segment);
                    }
                    return;
                }
                Err(_) => {}
            }
        }
        if let Err(error) = result {
            self.failed(&error);
        }
    }

    /// Makes a segment ready to be opened: a free one, or the oldest, which is evicted. Returns true if it did.
    pub(super) fn make_ready(&self) -> bool {
        let Some(flash) = &self.flash else { return false };
        let segment = {
            let mut state = self.state.lock();
            if state.restoring.is_some() || state.off.is_some() || !state.core.index.needs_ready() {
                return false;
            }
            state.core.index.take_free()
        };
        let Some(segment) = segment else { return self.evict_segment(flash) };
        let end = flash.geometry.offset(segment + 1);
        let grown = if flash.file.len() >= end { Ok(()) } else { flash.file.grow(end, false) };
        let error = {
            let mut state = self.state.lock();
            if state.off.is_some() {
                return false;
            }
            match grown {
                Ok(()) => {
                    state.core.index.set_ready(segment);
                    return true;
                }
                Err(error) => {
                    state.core.index.no_room(segment);
                    error
                }
            }
        };
        match error {
            DiskError::Full { .. } => count(&self.counters.full),
            error => self.failed(&error),
        }
        true
    }

    /// Evicts the oldest segment: moves its used values to the open segment, drops the others. Returns true if there was one.
    fn evict_segment(&self, flash: &Flash) -> bool {
        let (segment, kept) = {
            let mut state = self.state.lock();
            let Some((segment, slots)) = state.core.index.evict() else { return false };
            let index = &state.core.index;
            let kept: Vec<(u32, Window)> = slots
                .into_iter()
                .filter_map(|slot| {
                    Some((index.mark_of(slot)?, Window::new(&index.geometry, slot, index.extent(slot))))
                })
                .collect();
            (segment, kept)
        };
        count(&self.counters.evicted);
        for some in kept.chunks(MOVES) {
            let windows: Vec<Window> = some.iter().map(|(_, window)| *window).collect();
            let read = flash.read(self.settings.read_class, &windows);
            for ((mark, window), buf) in some.iter().zip(read) {
                let moved = buf.is_ok_and(|buf| self.move_value(flash, *mark, *window, &buf[window.from..]));
                count(if moved { &self.counters.moved } else { &self.counters.move_dropped });
            }
        }
        let mut state = self.state.lock();
        if state.off.is_none() {
            state.core.index.release(segment);
        }
        true
    }

    /// Queues the record for the open segment, and removes it from its old one, if the index still has it there. False: it did not.
    fn move_value(&self, flash: &Flash, mark_in_index: u32, window: Window, bytes: &[u8]) -> bool {
        let Some((key, _)) = record::intact::<K>(bytes).filter(|(key, _)| mark(*key) == mark_in_index) else {
            return false;
        };
        let len = record::len_of(bytes);
        let image = Arc::new(AlignedBuf::from_slice(&bytes[..len]));
        loop {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let there =
                state.core.index.holds(window.slot, mark_in_index) || planted::MOVED_AFTER_INVALIDATION.on();
            if state.off.is_some() || !there {
                return false;
            }
            if !self.promise(state, image.len()) {
                drop(guard);
                // The queue is full: this thread is the one that empties it.
                if !self.write_some(flash) {
                    return false;
                }
                continue;
            }
            state.core.index.remove(window.slot);
            let slot = state.core.index.place(mark_in_index, len as u32);
            let fill = slot.map(|slot| Fill { key, slot, image: image.clone() });
            self.redeem(state, image.len(), fill);
            return slot.is_some();
        }
    }

    /// Saves one directory; the open segment's only if it is `due`. A failed save only counts as an error of the device: the next start
    /// has fewer hits. Returns true if there was one to save.
    fn save_one(&self, flash: &Flash, due: bool) -> bool {
        let (segment, entries) = {
            let mut state = self.state.lock();
            let Some(segment) = state.core.index.take_unsaved(due) else { return false };
            if due {
                state.unsaved_bytes = 0;
            }
            (segment, state.core.index.directory(segment))
        };
        let bytes = directory::encode(&flash.geometry, self.owner(), segment, &entries);
        match flash.file.write(self.settings.fill_class, flash.geometry.offset(segment), &bytes) {
            Ok(()) | Err(DiskError::Full { .. }) => {}
            Err(error) => self.failed(&error),
        }
        true
    }

    /// Writes what is queued and saves all directories: for a clean shutdown, after the worker has ended.
    pub fn save(&self) {
        let Some(flash) = &self.flash else { return };
        while self.write_some(flash) {}
        while self.save_one(flash, true) {}
    }

    /// Reads the next directories of the last run. Returns true while there may be more.
    fn restore_some(&self, flash: &Flash) -> bool {
        let Some(first) = self.state.lock().restoring else { return false };
        let geometry: Geometry = flash.geometry;
        let last = geometry.segments.min(first + DIRECTORIES);
        let there = |segment: &u32| geometry.offset(segment + 1) <= flash.file.len();
        let in_file: Vec<u32> = (first..last).filter(there).collect();
        let mut bufs: Vec<AlignedBuf> =
            in_file.iter().map(|_| AlignedBuf::zeroed(geometry.directory as usize)).collect();
        let mut ops: Vec<Op<'_>> = in_file
            .iter()
            .zip(&mut bufs)
            .map(|(segment, buf)| Op::Read { offset: geometry.offset(*segment), buf: &mut buf[..] })
            .collect();
        // A segment whose directory cannot be read is free.
        let results = flash.file.batch(self.settings.read_class, &mut ops);
        drop(ops);
        let read = in_file.iter().zip(bufs.iter().zip(results));
        let mut found = read
            .filter(|(_, (_, result))| result.is_ok())
            .filter_map(|(segment, (buf, _))| {
                Some((*segment, directory::decode(&geometry, self.owner(), *segment, buf)?))
            })
            .collect::<Vec<_>>()
            .into_iter()
            .peekable();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.restoring.is_none() {
            return false; // turned off meanwhile
        }
        for segment in first..last {
            let entries = found.next_if(|(found, _)| *found == segment).map(|(_, entries)| entries);
            state.restored += u64::from(state.core.index.restore(segment, entries));
        }
        let more = last < geometry.segments && geometry.offset(last + 1) <= flash.file.len();
        if more {
            state.restoring = Some(last);
            return true;
        }
        for segment in last..geometry.segments {
            state.core.index.restore(segment, None);
        }
        state.core.index.end_restore();
        state.restoring = None;
        true
    }
}

/// Writes queued values to flash.
pub struct BlockWorker<K: StoredKey>(pub Arc<BlockCache<K>>);

impl<K: StoredKey> Worker for BlockWorker<K> {
    fn name(&self) -> &'static str {
        "block filler"
    }
    fn step(&mut self) -> Step {
        self.0.step()
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.wake.clone()
    }
}
