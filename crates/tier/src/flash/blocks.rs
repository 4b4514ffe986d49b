//! A cache on flash for values of any size under any key: blocks of files, large values of a key-value store.
//!
//! It is the second cache on [`Core`]: admission, ghost list, index and the rules of what may be served are those of the page cache
//! (`bpe`). Values lie in segments (`blocks/segments`), small ones side by side in one sector if they were written together. A segment
//! carries a directory of its values, from which the index is rebuilt after a start, piece after piece in the background, while values
//! are read already. Nothing here is durable or needs to be.
//!
//! What is served: bytes that are intact, of this key, and of the version the reader names ([`Records`]). The reader knows the current
//! version (an ETag, a generation); an older one is a miss and is dropped.
//!
//! Limits. The file never exceeds `flash_bytes`. Memory is [`BlockSettings::memory_bytes`]. Values wait to be written in a queue
//! bounded by number and bytes; at the limit a value is not cached, and counted. A value longer than [`BlockCache::value_bytes_max`] is
//! refused, and counted.
//!
//! Bad flash. On a full device only segments that have room are used from then on. After a few errors in a row the cache turns itself
//! off and everything is a miss.
//!
//! Locks: `state`, for memory work only; no I/O under it. A reader looks at the device with no lock: its segment may be written anew
//! meanwhile, and then the record says so.
//!
//! Not here: which version is current, and what a miss costs: the owner's.

mod directory;
mod find;
mod peek;
mod record;
mod segments;
mod worker;

pub use peek::Part;
pub use record::{BlockKey, StoredKey, Value};
pub use worker::BlockWorker;

use super::admission::Admission;
use super::admission::filter::{Filter, Memory, Rule};
use super::core::Core;
use super::fills::{Fill, Fills};
use super::key::mark;
use record::{Records, record_len, sealed};
use segments::{Geometry, Segments};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::SECTOR;
use terrace_io::disk::{Class, Disk, DiskError, DiskLock, File};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::Event;

pub const FILE: &str = "blocks";
/// Errors in a row after which the flash is not used any more.
const ERRORS_MAX: u32 = 8;
/// With less than one segment in this many free, flash counts as full for admission.
const ROOM: usize = 16;
/// Segments that a cache has at least: one open, one ready, one being evicted, and one to read from.
const SEGMENTS_MIN: u64 = 4;
/// Bytes of the shortest segment.
const SEGMENT_MIN: u64 = 64 << 10;
/// Bytes that one write has at most, if it has several values.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub struct BlockSettings {
    /// Whose values they are: another owner's flash is begun anew.
    pub owner: u128,
    /// Flash to use, in bytes.
    pub flash_bytes: u64,
    /// Bytes of a segment: the unit of eviction. It is made shorter where flash would have fewer than four.
    pub segment_bytes: u32,
    /// The mean length of values that is expected, in bytes. Shorter ones fill a segment's slots before its bytes.
    pub value_bytes: u32,
    /// Values that may wait to be written, and their bytes: they are in memory meanwhile.
    pub queue_values: usize,
    pub queue_bytes: usize,
    /// Which evidence of reuse buys a flash write.
    pub admission: Rule,
    /// What the last run left there is used again.
    pub warm: bool,
    /// How the reads and writes are scheduled and counted.
    pub read_class: Class,
    pub fill_class: Class,
}

impl BlockSettings {
    /// Settings for this owner and size, the others as they suit blocks of files.
    pub fn new(owner: u128, flash_bytes: u64) -> BlockSettings {
        BlockSettings {
            owner,
            flash_bytes,
            segment_bytes: 32 << 20,
            value_bytes: 16 << 10,
            queue_values: 1024,
            queue_bytes: 64 << 20,
            admission: Rule::Ghost,
            warm: true,
            read_class: Class::BpeRead,
            fill_class: Class::BpeFill,
        }
    }

    /// None: flash is too small.
    fn geometry(&self) -> Option<Geometry> {
        let bytes = u64::from(self.segment_bytes).min(self.flash_bytes / SEGMENTS_MIN) / SECTOR as u64
            * SECTOR as u64;
        if bytes < SEGMENT_MIN {
            return None;
        }
        let per = (bytes / u64::from(self.value_bytes.max(1))).clamp(4, bytes / 64) as u32;
        let directory = (directory::bytes(per) as u32).next_multiple_of(SECTOR as u32);
        let segments = (self.flash_bytes / bytes).min(u64::from(u32::MAX / 4) / u64::from(per));
        Some(Geometry { bytes: bytes as u32, directory, per, segments: segments as u32 })
    }

    /// Memory of a cache with these settings, in bytes: index, what admission remembers, and the queue with the write in progress. A
    /// test measures it.
    pub fn memory_bytes(&self) -> u64 {
        let Some(geometry) = self.geometry() else { return 0 };
        let admission = if self.admission == Rule::GhostWhole { 4 } else { 2 }
            + if self.admission.counts() { 3 } else { 0 };
        // Fingerprint 4, table 6, bits 0.5, place 8.
        u64::from(geometry.slots()) * (19 + admission)
            + u64::from(geometry.segments) * 48
            + self.queue_bytes as u64
            + (self.queue_values * 160 + BATCH_BYTES) as u64
    }
}

/// What became of a value that left memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It is on its way to flash, and can be found already.
    Queued,
    /// Flash has a value of this key, or of one with the same fingerprint.
    Kept,
    /// There is no evidence of reuse: only its key was remembered.
    Remembered,
    /// It was to be written, and the queue or the open segment had no room: only its key was remembered.
    Dropped,
    /// It is longer than a segment takes.
    TooLong,
    /// The flash is not used.
    Off,
}

#[derive(Default, Debug)]
pub struct BlockCounters {
    pub hits: AtomicU64,
    /// Hits of values that were not yet written.
    pub queue_hits: AtomicU64,
    pub misses: AtomicU64,
    pub fills: AtomicU64,
    pub fill_bytes: AtomicU64,
    pub fill_dropped: AtomicU64,
    pub fill_cancelled: AtomicU64,
    pub remembered: AtomicU64,
    pub too_long: AtomicU64,
    pub invalidated: AtomicU64,
    /// Values that were moved when their segment was evicted, and those that were not although they had been used.
    pub moved: AtomicU64,
    pub move_dropped: AtomicU64,
    /// Segments that were evicted.
    pub evicted: AtomicU64,
    /// Another key has the same fingerprint.
    pub false_matches: AtomicU64,
    /// The value was of another version.
    pub stale: AtomicU64,
    pub corrupt: AtomicU64,
    pub errors: AtomicU64,
    /// The device had no room.
    pub full: AtomicU64,
}

/// The present state, for people.
#[derive(Clone, Debug)]
pub struct BlockStatus {
    pub values: u64,
    /// Segments without values, of how many.
    pub segments_free: u64,
    pub segments: u64,
    /// Bytes that the file spans.
    pub file_bytes: u64,
    /// Values that the last run left and this one has found again, so far.
    pub restored: u64,
    /// Directories of the last run are still being read.
    pub restoring: bool,
    /// Bytes of values that wait to be written.
    pub queue_bytes: u64,
    /// Values were written whose directory was not: a crash would lose them.
    pub unsaved: bool,
    /// Why the flash is not used, if so.
    pub off: Option<String>,
}

struct CacheState<K: StoredKey> {
    core: Core<Records<K>, Segments>,
    /// Bytes of queued values, with those whose record is being copied.
    queue_bytes: usize,
    /// The next segment whose directory is to be read, while that goes on.
    restoring: Option<u32>,
    restored: u64,
    /// Bytes written since the open segment's directory was.
    unsaved_bytes: usize,
    /// The worker had nothing to do when it looked last.
    idle: bool,
    /// In a row.
    errors: u32,
    off: Option<String>,
}

/// The file, and what the directory lock keeps others from.
struct Flash {
    file: Arc<dyn File>,
    geometry: Geometry,
    _lock: Box<dyn DiskLock>,
}

pub struct BlockCache<K: StoredKey> {
    state: Mutex<CacheState<K>, { Mutexes::Flash as u8 }>,
    settings: BlockSettings,
    /// None if the flash could not even be opened.
    flash: Option<Flash>,
    wake: Arc<Event>,
    pub counters: BlockCounters,
}

fn count(counter: &AtomicU64) {
    add(counter, 1);
}
fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// No flash.
const NOTHING: Geometry = Geometry { bytes: 0, directory: 0, per: 1, segments: 0 };

impl Flash {
    /// True: there may be something to restore.
    fn open(disk: &dyn Disk, settings: &BlockSettings) -> Result<(Flash, bool), String> {
        let failed = |error: DiskError| format!("{}: {error}", disk.describe());
        let geometry = settings.geometry().ok_or_else(|| {
            let (has, needs) = (settings.flash_bytes, SEGMENTS_MIN * SEGMENT_MIN);
            format!("{}: {has} bytes of flash are too few, a cache of blocks needs {needs}", disk.describe())
        })?;
        let lock = disk.lock().map_err(failed)?;
        let kept = if settings.warm { disk.open(FILE).ok() } else { None };
        let warm = kept.is_some();
        let file = match kept {
            Some(file) => file,
            None => {
                if disk.exists(FILE).map_err(failed)? {
                    disk.remove(FILE).map_err(failed)?;
                }
                let file = disk.create(FILE).map_err(failed)?;
                disk.sync_dir().map_err(failed)?;
                file
            }
        };
        let end = geometry.offset(geometry.segments);
        if file.len() > end {
            file.shrink(end).map_err(failed)?;
        }
        Ok((Flash { file, geometry, _lock: lock }, warm))
    }
}

impl<K: StoredKey> BlockCache<K> {
    /// Takes the directory. If it cannot be used, the cache is off and says why in its status: that is no reason not to start. Reads
    /// nothing but the file's name: a start takes the same time whatever flash holds.
    pub fn open(disk: &dyn Disk, settings: BlockSettings) -> BlockCache<K> {
        let (flash, warm, off) = match Flash::open(disk, &settings) {
            Ok((flash, warm)) => (Some(flash), warm, None),
            Err(why) => (None, false, Some(why)),
        };
        let geometry = flash.as_ref().map_or(NOTHING, |flash| flash.geometry);
        let mut index = Segments::new(geometry);
        if warm {
            index.begin_restore();
        }
        let cache = BlockCache {
            state: Mutex::new(CacheState {
                core: Core {
                    index,
                    filter: filter_of(settings.admission, geometry.slots() as usize),
                    fills: Fills::new(settings.queue_values.max(1), 0),
                },
                queue_bytes: 0,
                restoring: warm.then_some(0),
                restored: 0,
                unsaved_bytes: 0,
                idle: false,
                errors: 0,
                off,
            }),
            settings,
            flash,
            wake: Arc::new(Event::new()),
            counters: BlockCounters::default(),
        };
        cache.make_ready();
        cache
    }

    /// The longest value that is cached, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.flash.as_ref().map_or(0, |flash| flash.geometry.record_max() as usize - record::HEADER)
    }

    /// A value leaves memory after `accesses` uses there, the first included. It is `version` of this key, and current. Copies it at
    /// most; never waits for the device.
    pub fn evicted(&self, key: K, version: u64, value: &[u8], accesses: u8) -> Offered {
        let (mark, len) = (mark(key), record_len(value.len()));
        let buffer = len.next_multiple_of(SECTOR);
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if state.off.is_some() {
                return Offered::Off;
            }
            if value.len() > self.value_bytes_max() {
                count(&self.counters.too_long);
                return Offered::TooLong;
            }
            if let Some(offered) = self.judge(state, key, mark, accesses) {
                return offered;
            }
            if !self.promise(state, buffer) {
                state.core.filter.remember(key);
                count(&self.counters.fill_dropped);
                return Offered::Dropped;
            }
        }
        let image = sealed(key, version, value);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // It may have come another way meanwhile, or the flash was turned off.
        let there = !state.core.index.matches_any(mark) && state.off.is_none();
        let slot = if there { state.core.index.place(mark, len as u32) } else { None };
        self.redeem(state, buffer, slot.map(|slot| Fill { key, slot, image }));
        if slot.is_none() {
            state.core.filter.remember(key);
            count(&self.counters.fill_dropped);
            return Offered::Dropped;
        }
        drop(guard);
        self.wake.notify();
        Offered::Queued
    }

    /// None: it is to be written.
    fn judge(&self, state: &mut CacheState<K>, key: K, mark: u32, accesses: u8) -> Option<Offered> {
        let (index, filter) = (&state.core.index, &mut state.core.filter);
        if index.matches_any(mark) {
            return Some(Offered::Kept);
        }
        let (free, all) = index.room();
        match filter.judge(key, accesses, free * ROOM > all, |_| index.candidate()) {
            Admission::Admit => None,
            Admission::Remember => {
                count(&self.counters.remembered);
                Some(Offered::Remembered)
            }
        }
    }

    /// Promises a place in the queue for a record whose buffer has `len` bytes. False: the queue is full.
    fn promise(&self, state: &mut CacheState<K>, len: usize) -> bool {
        let fits = state.queue_bytes == 0 || state.queue_bytes + len <= self.settings.queue_bytes;
        let promised = fits && state.core.fills.promise().is_some();
        state.queue_bytes += if promised { len } else { 0 };
        promised
    }
    /// Redeems a promise with the fill, or cancels it.
    fn redeem(&self, state: &mut CacheState<K>, len: usize, fill: Option<Fill<K>>) {
        if fill.is_none() {
            state.queue_bytes = state.queue_bytes.saturating_sub(len);
        }
        state.core.fills.redeem(fill);
    }

    /// The key has a newer value than any that was evicted, or none: clears every match and cancels queued fills.
    pub fn invalidate(&self, key: K) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let cleared = state.core.invalidate(key);
        state.queue_bytes = state.queue_bytes.saturating_sub(cleared.bytes);
        add(&self.counters.invalidated, cleared.removed);
        add(&self.counters.fill_cancelled, cleared.cancelled);
    }

    /// Whether a value of this key seems to be on flash: by its fingerprint, so for guesses only.
    pub fn seems_to_have(&self, key: K) -> bool {
        self.state.lock().core.index.matches_any(mark(key))
    }

    pub fn status(&self) -> BlockStatus {
        let state = self.state.lock();
        let (free, all) = state.core.index.room();
        BlockStatus {
            values: u64::from(state.core.index.in_use()),
            segments_free: free as u64,
            segments: all as u64,
            file_bytes: self.flash.as_ref().map_or(0, |flash| flash.file.len()),
            restored: state.restored,
            restoring: state.restoring.is_some(),
            queue_bytes: state.queue_bytes as u64,
            unsaved: state.core.index.has_unsaved(),
            off: state.off.clone(),
        }
    }

    /// Counts an error of the device; after a few in a row the flash is not used any more.
    fn failed(&self, error: &DiskError) {
        count(&self.counters.errors);
        let mut state = self.state.lock();
        state.errors += 1;
        if state.errors >= ERRORS_MAX && state.off.is_none() {
            state.off = Some(format!("{ERRORS_MAX} errors in a row, the last: {error}"));
            state.core.index = Segments::new(NOTHING);
            state.core.filter = filter_of(Rule::AdmitAll, 0);
            state.core.fills.clear();
            state.queue_bytes = 0;
            state.restoring = None;
        }
    }

    /// Panics if the index is not in order. For tests.
    pub fn check_invariants(&self) {
        let state = self.state.lock();
        state.core.index.check_invariants();
        assert!(state.off.is_none() || state.core.index.in_use() == 0);
        let one = (self.value_bytes_max() + record::HEADER).next_multiple_of(SECTOR);
        assert!(
            state.queue_bytes <= self.settings.queue_bytes.max(one),
            "{} bytes are queued",
            state.queue_bytes
        );
    }
}

/// What admission remembers for a flash of this number of slots.
fn filter_of<K: StoredKey>(rule: Rule, slots: usize) -> Filter<K> {
    let ghost_percent = if rule == Rule::GhostWhole { 100 } else { 50 };
    Filter::new(rule, slots, Memory { ghost_percent, ..Memory::default() })
}

#[cfg(test)]
mod tests;
