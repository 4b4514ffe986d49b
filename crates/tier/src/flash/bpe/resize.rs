//! Resizing flash while pages are read. CloudJump III §2.3.
//!
//! Growing gives the index more slots; the file grows when they are filled. Shrinking takes slots from the end, 64 MiB at a time:
//! their pages are removed from the index, writes in progress there are awaited, the file is truncated. Only flash loses these
//! pages (invariant 2: its copies are clean). What admission remembers starts from empty.
//!
//! A crash leaves a file that is longer or shorter than the index says: the next start truncates it, or finds nothing there.

use super::{Bpe, chunk, filter_of, saved, slots_of};
use crate::page::PAGE_SIZE;
use terrace_io::disk::DiskError;

/// Slots of one step.
const STEP: u32 = (chunk::CHUNK / PAGE_SIZE as u64) as u32;

#[derive(Debug, Clone, thiserror::Error)]
pub enum FlashResizeError {
    #[error("flash is not used: {0}; a restart of the server uses it again, if the device works")]
    Off(String),
    /// The caller gave up; the old size is in force, and some pages were removed.
    #[error("flash still writes to slots that are to go")]
    GivenUp,
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl Bpe {
    /// Gives the flash `flash_bytes`. Calls `go_on` with the number of pages still to be removed; `go_on` pauses a little, and
    /// returns false to give up. One call at a time.
    pub fn resize(
        &self,
        flash_bytes: u64,
        go_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<(), FlashResizeError> {
        let slots = slots_of(flash_bytes);
        // The index of the last run is restored first: it is addressed by slot number.
        let before = loop {
            let state = self.state.lock();
            if let Some(why) = &state.off {
                return Err(FlashResizeError::Off(why.clone()));
            }
            if state.restoring.is_none() {
                break state.core.index.capacity();
            }
            drop(state);
            self.wake.notify();
            if !go_on(0) {
                return Err(FlashResizeError::GivenUp);
            }
        };
        self.cut(slots, go_on).inspect_err(|_| self.take_size(before))?;
        if let Some(files) = &self.files {
            files.chunks.shrink(slots).inspect_err(|_| self.take_size(before))?;
        }
        self.take_size(slots);
        Ok(())
    }

    /// Removes the pages beyond `slots` from the index, step by step, until no write is in progress there.
    fn cut(&self, slots: u32, go_on: &mut dyn FnMut(u32) -> bool) -> Result<(), FlashResizeError> {
        loop {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if let Some(why) = &state.off {
                return Err(FlashResizeError::Off(why.clone()));
            }
            let limit = state.core.index.limit();
            if limit > slots {
                let to = limit.saturating_sub(STEP).max(slots);
                state.core.index.shrink(to);
                state.unsaved.extend(saved::piece_of(to)..=saved::piece_of(limit - 1));
            } else if slots >= state.core.index.capacity() || state.core.index.is_quiet_beyond() {
                return Ok(());
            }
            let left = state.core.index.limit().saturating_sub(slots);
            drop(guard);
            self.wake.notify();
            if !go_on(left) {
                return Err(FlashResizeError::GivenUp);
            }
        }
    }

    /// Sets the number of slots, regardless of what was cut off before.
    fn take_size(&self, slots: u32) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.off.is_none() {
            state.core.index.resize(slots);
            state.core.filter = filter_of(state.admission, slots as usize);
        }
    }
}
