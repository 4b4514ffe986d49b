//! Finding values: first in the index, then in the queue or on the device, where the record itself decides.
//!
//! Several values take one look-up and one batch of reads: a request to flash has the same latency however many it reads.

use super::record::{Records, StoredKey, Value};
use super::segments::{Extent, Geometry, UNIT};
use super::{BlockCache, Flash, count};
use crate::flash::core::LookedUp;
use crate::flash::key::{Validity, Verdict, mark};
use crate::flash::table::FlashSlot;
use std::ops::Range;
use std::sync::Arc;
use terrace_io::disk::{DiskError, Op};
use terrace_io::{AlignedBuf, SECTOR};

/// A record on flash, with the sectors that it lies in.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub slot: FlashSlot,
    /// In the file.
    offset: u64,
    len: usize,
    /// Where the record begins in the window.
    pub from: usize,
}

impl Window {
    pub fn new(geometry: &Geometry, slot: FlashSlot, extent: Extent) -> Window {
        let begin = geometry.offset(geometry.segment_of(slot)) + u64::from(extent.at) * u64::from(UNIT);
        let offset = begin / SECTOR as u64 * SECTOR as u64;
        let from = (begin - offset) as usize;
        Window { slot, offset, len: (from + extent.len as usize).next_multiple_of(SECTOR), from }
    }

    /// These bytes of the record.
    pub fn part(geometry: &Geometry, slot: FlashSlot, extent: Extent, bytes: &Range<usize>) -> Window {
        let whole = Window::new(geometry, slot, extent);
        let begin = whole.from + bytes.start;
        let from = begin % SECTOR;
        let len = (from + bytes.len()).next_multiple_of(SECTOR);
        Window { slot, offset: whole.offset + (begin - from) as u64, len, from }
    }
}

/// What was looked for.
struct Wanted<K> {
    key: K,
    version: u64,
    mark: u32,
    found: Option<Value>,
    /// Where it may be, that was not tried yet.
    windows: Vec<Window>,
}

impl Flash {
    /// Reads the windows in one batch; a buffer or an error each.
    pub(super) fn read(
        &self,
        class: terrace_io::disk::Class,
        windows: &[Window],
    ) -> Vec<Result<AlignedBuf, DiskError>> {
        if let [window] = windows {
            return vec![self.file.read_owned(class, window.offset, AlignedBuf::zeroed(window.len))];
        }
        let mut bufs: Vec<AlignedBuf> = windows.iter().map(|window| AlignedBuf::zeroed(window.len)).collect();
        let mut ops: Vec<Op<'_>> = windows
            .iter()
            .zip(&mut bufs)
            .map(|(window, buf)| Op::Read { offset: window.offset, buf: &mut buf[..] })
            .collect();
        let results = self.file.batch(class, &mut ops);
        drop(ops);
        bufs.into_iter().zip(results).map(|(buf, result)| result.map(|()| buf)).collect()
    }
}

impl<K: StoredKey> BlockCache<K> {
    /// Finds this version of the key's value.
    pub fn find(&self, key: K, version: u64) -> Option<Value> {
        self.find_many(&[(key, version)]).pop().flatten()
    }

    /// As `find` for several, in one batch of reads: one answer each.
    pub fn find_many(&self, wanted: &[(K, u64)]) -> Vec<Option<Value>> {
        let mut queued = Vec::new();
        let mut wanted: Vec<Wanted<K>> = {
            let mut guard = self.state.lock();
            let core = &mut guard.core;
            let look = |(i, (key, version)): (usize, &(K, u64))| {
                let (key, version, mark) = (*key, *version, mark(*key));
                core.filter.missed(key);
                let mut windows = Vec::new();
                match core.look(key, mark) {
                    LookedUp::Queued(slot, image) => queued.push((i, slot, image)),
                    LookedUp::OnFlash(slots) => {
                        let geometry = core.index.geometry;
                        let window =
                            |slot: &FlashSlot| Window::new(&geometry, *slot, core.index.extent(*slot));
                        windows.extend(slots.iter().rev().map(window));
                    }
                }
                Wanted { key, version, mark, found: None, windows }
            };
            wanted.iter().enumerate().map(look).collect()
        };
        for (i, slot, image) in queued {
            wanted[i].found = self.serves(&wanted[i], slot, image, 0);
            count(&self.counters.queue_hits);
        }
        // Nearly always one round: a second one tries a value with the same fingerprint.
        while let Some(flash) = &self.flash {
            let tried: Vec<(usize, Window)> = wanted
                .iter_mut()
                .enumerate()
                .filter(|(_, wanted)| wanted.found.is_none())
                .filter_map(|(i, wanted)| Some((i, wanted.windows.pop()?)))
                .collect();
            if tried.is_empty() {
                break;
            }
            let windows: Vec<Window> = tried.iter().map(|(_, window)| *window).collect();
            // One device fault may fail a whole batch: that counts as one error.
            let mut fault = None;
            for ((i, window), read) in tried.iter().zip(flash.read(self.settings.read_class, &windows)) {
                match read {
                    Ok(buf) => {
                        wanted[*i].found = self.serves(&wanted[*i], window.slot, Arc::new(buf), window.from);
                    }
                    Err(DiskError::Overdue { .. }) => {} // the reader has another copy
                    Err(error) => {
                        fault = Some(error);
                        let mut state = self.state.lock();
                        crate::flash::core::Slots::remove_if(
                            &mut state.core.index,
                            window.slot,
                            wanted[*i].mark,
                        );
                    }
                }
            }
            if let Some(error) = fault {
                self.failed(&error);
            }
        }
        let found = wanted.into_iter().map(|wanted| wanted.found);
        found
            .inspect(|found| count(if found.is_some() { &self.counters.hits } else { &self.counters.misses }))
            .collect()
    }

    /// The value of the record that begins at `from`, which came from `slot`, if it may be served.
    fn serves(
        &self,
        wanted: &Wanted<K>,
        slot: FlashSlot,
        buf: Arc<AlignedBuf>,
        from: usize,
    ) -> Option<Value> {
        let record = buf.get(from..).unwrap_or(&[]);
        let verdict = Records::check(record, wanted.key, crate::flash::core::expected(wanted.version));
        let mut state = self.state.lock();
        let served = state.core.judged(slot, wanted.mark, verdict);
        match verdict {
            Verdict::Current => state.errors = 0,
            Verdict::OtherKey { .. } => count(&self.counters.false_matches),
            Verdict::OtherVersion => count(&self.counters.stale),
            Verdict::Corrupt => count(&self.counters.corrupt),
        }
        drop(state);
        if served { Value::of_record(buf, from) } else { None }
    }
}
