//! The flash filler: writes queued fills, restores the saved index after a start, and saves it regularly.

use super::chunk::Chunks;
use super::index::FlashSlot;
use super::{Bpe, Files, count, saved};
use std::sync::Arc;
use terrace_io::clock::Nanos;
use terrace_io::disk::DiskError;
use terrace_io::sched::{Event, Step, Worker};

/// Number of images written in parallel.
const BATCH: usize = 32;
/// Pieces of the saved index that one step restores or saves.
const PIECES: u32 = 8;
/// After this number of fills since the last save, the index is saved even if fills are queued.
const SAVE_AFTER: u32 = 1024;
/// Without fills for this time, in nanoseconds, it is saved too.
const SAVE_IDLE: Nanos = 2_000_000_000;

impl Bpe {
    /// Does one batch of fills, and a piece of the other work. Only the worker calls it.
    pub(super) fn step(&self) -> Step {
        let Some(files) = &self.files else { return Step::Idle };
        let filled = self.write_fills(&files.chunks);
        if self.put_back(files) {
            return Step::Worked;
        }
        let mut state = self.state.lock();
        let waited = std::mem::replace(&mut state.idle, !filled) && !filled;
        if state.unsaved_fills >= SAVE_AFTER || (waited && !state.unsaved.is_empty()) {
            drop(state);
            self.save_some(files);
            return Step::Worked;
        }
        match (filled, state.unsaved.is_empty()) {
            (true, _) => Step::Worked,
            (false, true) => Step::Idle,
            (false, false) => Step::IdleFor(SAVE_IDLE),
        }
    }

    /// Returns true if there were fills to write.
    fn write_fills(&self, chunks: &Chunks) -> bool {
        let fills = self.state.lock().core.fills.start(BATCH);
        if fills.is_empty() {
            return false;
        }
        let images: Vec<(FlashSlot, &[u8])> = fills.iter().map(|f| (f.slot, &f.image[..])).collect();
        let results = chunks.write(&images);
        let slots: Vec<FlashSlot> = fills.iter().map(|f| f.slot).collect();
        drop(fills);
        for (slot, result) in slots.iter().zip(&results) {
            self.settle(*slot, result);
        }
        self.state.lock().core.fills.written();
        self.written.notify();
        true
    }

    /// Restores some of the saved index. Returns true while there may be more of it.
    fn put_back(&self, files: &Files) -> bool {
        let Some(first) = self.state.lock().restoring else { return false };
        let pieces = files.saved.load(first, PIECES);
        let next = first + pieces.len() as u32;
        // The file of images may be shorter than the index: slots beyond its end were never filled.
        let there = |piece: u32| {
            let slots = files.chunks.slots().saturating_sub(u64::from(piece) * saved::MARKS as u64);
            slots.min(saved::MARKS as u64) as usize
        };
        for (marks, piece) in pieces.iter().zip(first..) {
            let mut state = self.state.lock();
            if state.restoring.is_none() {
                return false; // turned off meanwhile
            }
            let before = state.core.index.in_use();
            let marks = marks.iter().copied().chain(std::iter::repeat(0));
            state.core.index.restore(marks.take(there(piece)));
            state.restored += u64::from(state.core.index.in_use() - before);
        }
        let more = !pieces.is_empty() && there(next) > 0;
        let mut state = self.state.lock();
        let more = more && state.restoring.is_some();
        state.restoring = more.then_some(next);
        if !more {
            state.core.index.end_restore();
            drop(state);
            self.when_restored.get().into_iter().for_each(|act| act(self));
        }
        more
    }

    /// Saves some of the index. A failed save is ignored: the next start has fewer hits.
    fn save_some(&self, files: &Files) {
        let pieces: Vec<(u32, Vec<u32>)> = {
            let mut state = self.state.lock();
            let numbers: Vec<u32> = state.unsaved.iter().copied().take(PIECES as usize).collect();
            numbers.iter().for_each(|number| _ = state.unsaved.remove(number));
            if state.unsaved.is_empty() {
                state.unsaved_fills = 0;
            }
            let marks = |number: u32| state.core.index.marks(number * saved::MARKS as u32, saved::MARKS);
            numbers.into_iter().map(|number| (number, marks(number))).collect()
        };
        match files.saved.save(&pieces) {
            Ok(()) | Err(DiskError::Full { .. }) => {}
            Err(error) => self.failed(&error),
        }
    }

    /// Saves the rest of the index: for a clean shutdown, after the worker has ended.
    pub fn save(&self) {
        let Some(files) = &self.files else { return };
        while !self.state.lock().unsaved.is_empty() {
            self.save_some(files);
        }
    }

    /// A fill's write has ended.
    pub(super) fn settle(&self, slot: FlashSlot, result: &Result<(), DiskError>) {
        {
            let mut state = self.state.lock();
            if state.off.is_some() {
                return;
            }
            if result.is_err() {
                state.core.index.remove(slot);
            }
            state.core.index.settle(slot);
            match result {
                Ok(()) => {
                    count(&self.counters.fills);
                    state.errors = 0;
                    state.unsaved.insert(saved::piece_of(slot));
                    state.unsaved_fills += 1;
                    return;
                }
                Err(DiskError::Full { .. }) => {
                    // Completed writes stand; nothing more fits. A slot within the file was a hole in it.
                    count(&self.counters.full);
                    let limit = state.core.index.frontier().max(slot);
                    state.core.index.shrink(limit);
                    return;
                }
                Err(_) => {}
            }
        }
        if let Err(error) = result {
            self.failed(error);
        }
    }
}

/// Writes queued fills to flash.
pub struct BpeWorker(pub Arc<Bpe>);

impl Worker for BpeWorker {
    fn name(&self) -> &'static str {
        "flash filler"
    }
    fn step(&mut self) -> Step {
        self.0.step()
    }
    fn wake_event(&self) -> Arc<Event> {
        self.0.wake.clone()
    }
}
