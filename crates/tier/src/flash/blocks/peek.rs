//! Reading a part of a value, for owners whose values prove themselves part by part.
//!
//! The checksum of a record is over all of it, so a part tells neither its key nor its version. The owner checks the bytes by what it knows of
//! them; what it does not accept is not served.

use super::find::Window;
use super::record::{self, StoredKey};
use super::{BlockCache, count};
use crate::flash::core::{LookedUp, Slots};
use crate::flash::key::mark;
use std::ops::{Deref, Range};
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::DiskError;

/// Bytes of a value from `at` on. Unproved.
pub struct Part {
    /// Bytes of the whole value.
    pub value_len: usize,
    /// Where the part begins in the value.
    pub at: usize,
    buf: Arc<AlignedBuf>,
    bytes: Range<usize>,
}

impl Part {
    fn new(value_len: usize, range: &Range<usize>, buf: Arc<AlignedBuf>, from: usize) -> Option<Part> {
        let bytes = from..from.checked_add(range.len())?;
        (bytes.end <= buf.len()).then_some(Part { value_len, at: range.start, buf, bytes })
    }
}

impl Deref for Part {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.bytes.clone()]
    }
}

impl<K: StoredKey> BlockCache<K> {
    /// A part of the key's value that the owner accepts: `range` is given the length of the value. One read for each value that has the key's
    /// fingerprint, of which there is nearly always one.
    pub fn peek(
        &self,
        key: K,
        range: impl Fn(usize) -> Range<usize>,
        mut accepts: impl FnMut(&Part) -> bool,
    ) -> Option<Part> {
        let mark = mark(key);
        let within = |len: usize| {
            let range = range(len);
            range.start.min(len)..range.end.clamp(range.start.min(len), len)
        };
        let windows: Vec<(Window, usize, Range<usize>)> = {
            let state = self.state.lock();
            match state.core.look(key, mark) {
                LookedUp::Queued(_, image) => {
                    drop(state);
                    let len = record::len_of(&image).checked_sub(record::HEADER)?;
                    let range = within(len);
                    let part = Part::new(len, &range, image, record::HEADER + range.start)?;
                    count(&self.counters.queue_hits);
                    return accepts(&part).then_some(part);
                }
                LookedUp::OnFlash(slots) => {
                    let geometry = state.core.index.geometry;
                    let window = |slot| {
                        let extent = state.core.index.extent(slot);
                        let len = (extent.len as usize).checked_sub(record::HEADER)?;
                        let range = within(len);
                        let part = record::HEADER + range.start..record::HEADER + range.end;
                        Some((Window::part(&geometry, slot, extent, &part), len, range))
                    };
                    slots.iter().rev().filter_map(|slot| window(*slot)).collect()
                }
            }
        };
        let flash = self.flash.as_ref()?;
        for (window, len, range) in windows {
            match flash.read(self.settings.read_class, &[window]).pop()? {
                Ok(buf) => {
                    let Some(part) = Part::new(len, &range, Arc::new(buf), window.from) else { continue };
                    if !accepts(&part) {
                        continue;
                    }
                    let mut state = self.state.lock();
                    state.errors = 0;
                    state.core.index.table().touch(window.slot, mark);
                    drop(state);
                    count(&self.counters.hits);
                    return Some(part);
                }
                Err(DiskError::Overdue { .. }) => {} // the reader has another copy
                Err(error) => {
                    Slots::remove_if(&mut self.state.lock().core.index, window.slot, mark);
                    self.failed(&error);
                }
            }
        }
        count(&self.counters.misses);
        None
    }
}
