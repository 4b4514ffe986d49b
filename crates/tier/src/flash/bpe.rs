//! The buffer pool extension (R2): clean page images on local flash. CloudJump III §4.1.
//!
//! Filled only by eviction (`admission` decides), emptied by invalidation and by CLOCK (`index`). A flush may rewrite what is
//! there (`write_policy`).
//! Nothing here is durable or needs to be: losing the flash, or getting an old one back, loses
//! nothing. It starts with what the last run left: the index is saved now and then (`saved`) and put back by the
//! worker, piece after piece, while pages are read already.
//!
//! Clean cache (invariant 2). A page is served only if its image is intact, says that it is this
//! page, and has the tag that the map names now. A checksum alone would not do: an old image
//! validates itself perfectly. Besides, an entry leaves the index when its page is flushed, and a
//! queued fill is in the index already, so it is called back by the same invalidation (`fill`). Either
//! rule alone would be enough; a device that loses a write breaks the second and is caught by the first.
//!
//! Bad flash. A full device: only slots that were written are used from then on. A few errors in a
//! row: the extension turns itself off, gives its memory back, and the engine goes on without.
//!
//! What may be served, and what an invalidation clears, is decided in `flash/core`, for this cache and for others.
//!
//! Locks: `state`, for memory work only; no I/O under it. A reader looks at the device with no lock:
//! its slot may be given to another page meanwhile, and then header and tag say so.
//!
//! Not here: how a page is looked for (`find`), more flash or less (`resize`), what happens in the background (`worker`), when pages are evicted (`memory/pool`), the order of the tiers (`read`).

pub mod chunk;
mod find;
mod image;
pub mod index;
mod resize;
mod rules;
pub mod saved;
mod shares;
mod worker;

pub use resize::FlashResizeError;
pub use worker::BpeWorker;

use crate::flash::admission::Admission;
use crate::flash::admission::filter::{self, Filter, Rule};
use crate::flash::core::{Cleared, Core};
use crate::flash::fills::{self, Fill, Fills};
use crate::flash::key::mark as mark_of;
use crate::flash::{FlashCache, Leaving};
use crate::limits::by_space::{BySpace, FlashCounts};
use crate::limits::quota::{self, Class, Entry, Rules};
use crate::page::{PAGE_SIZE, PageId, Tag};
use crate::planted;
use chunk::Chunks;
use hashbrown::HashMap;
use image::PageImages;
use index::Index;
use saved::Saved;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_io::clock::Clock;
use terrace_io::disk::{Disk, DiskError};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::Event;

/// Errors in a row after which the flash is not used any more.
const ERRORS_MAX: u32 = 8;
/// With less than one slot in this many free, flash counts as full for admission.
const ROOM: u32 = 16;
/// The ghost list remembers one page for each two that the flash has room for: a shorter one asks for more reuse. `ghost-whole` remembers all.
pub const GHOST_SHARE: usize = 2;
/// Misses of memory for a page of flash after which a count of uses has halved.
const WINDOW: usize = 10;
/// Memory of the index and of what admission remembers for a page's room on flash, in bytes. A test measures it.
pub fn bytes_per_page(admission: Rule) -> usize {
    match admission {
        Rule::GhostWhole => 15,
        _ if admission.counts() => 16,
        _ => 13,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct BpeSettings {
    /// Whose pages they are: another owner's flash is begun anew.
    pub owner: u128,
    /// Flash to use, in bytes.
    pub flash_bytes: u64,
    /// Images that may wait to be written, each in memory meanwhile.
    pub queue_pages: usize,
    /// Which evidence buys a flash write.
    pub admission: Rule,
    /// What the last run left there is used again.
    pub warm: bool,
}

/// What a look into the flash gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The image was filled in.
    Hit,
    Absent,
}

/// What became of an evicted page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evicted {
    /// Its image is on its way to flash.
    Queued,
    /// The flash has it already.
    Kept,
    /// Only its identifier was kept.
    Remembered,
    /// It was to be written, but the queue is full: only its identifier was kept.
    Dropped,
    /// Its table or index is kept off flash (`quota`).
    Refused,
    /// The volume has it, and flash has better use for its room. `wanted`: it is worth a copy once it has sunk.
    Near { wanted: bool },
    /// The flash is not used.
    Off,
}

#[derive(Default, Debug)]
pub struct BpeCounters {
    pub hits: AtomicU64,
    pub queue_hits: AtomicU64,
    pub misses: AtomicU64,
    pub fills: AtomicU64,
    pub fill_dropped: AtomicU64,
    pub fill_cancelled: AtomicU64,
    pub remembered: AtomicU64,
    /// Pages that rules keep off flash.
    pub refused: AtomicU64,
    /// Pages that the volume has, while it is the store that misses wait for.
    pub near: AtomicU64,
    pub invalidated: AtomicU64,
    /// Flushed pages whose copy was rewritten.
    pub rewritten: AtomicU64,
    /// Another page has the same fingerprint.
    pub false_matches: AtomicU64,
    /// The image was of this page, intact, and not the current one.
    pub stale: AtomicU64,
    pub corrupt: AtomicU64,
    pub errors: AtomicU64,
    /// The device had no room for a fill.
    pub full: AtomicU64,
}

/// What there is, for people.
#[derive(Clone, Debug)]
pub struct BpeStatus {
    pub pages: u64,
    pub pages_max: u64,
    /// Bytes that the file spans.
    pub file_bytes: u64,
    /// Pages that the last run left and this one has found again, so far.
    pub restored: u64,
    /// Why the flash is not used, if so.
    pub off: Option<String>,
}

struct BpeState {
    core: Core<PageImages, Index>,
    /// The class of each table and placement that has rules.
    classes: HashMap<(u32, bool), Class>,
    admission: Rule,
    /// The next piece of the saved index to put back, while that goes on.
    restoring: Option<u32>,
    restored: u64,
    /// Pieces whose slots were filled since they were saved.
    unsaved: BTreeSet<u32>,
    /// Fills since then.
    unsaved_fills: u32,
    /// The worker had nothing to do when it looked last.
    idle: bool,
    /// In a row.
    errors: u32,
    off: Option<String>,
}

struct Files {
    chunks: Chunks,
    saved: Saved,
}

impl Files {
    /// Takes the flash directory. True: there is something to put back.
    fn open(flash: &dyn Disk, settings: &BpeSettings) -> Result<(Files, bool), DiskError> {
        let lock = flash.lock()?;
        let kept = Saved::open(flash, settings.owner).filter(|_| flash.exists(chunk::FILE).unwrap_or(false));
        let chunks = Chunks::open(flash, lock, kept.is_some())?;
        // What lies beyond the size that it may have is given back.
        chunks.shrink(slots_of(settings.flash_bytes))?;
        match kept {
            Some(saved) => Ok((Files { chunks, saved }, true)),
            None => Ok((Files { chunks, saved: Saved::begin(flash, settings.owner)? }, false)),
        }
    }
}

type WhenRestored = Box<dyn Fn(&Bpe) + Send + Sync>;

pub struct Bpe {
    state: Mutex<BpeState, { Mutexes::Flash as u8 }>,
    /// None if the flash could not even be opened.
    files: Option<Files>,
    wake: Arc<Event>,
    /// A batch of fills is written.
    written: Event,
    rules: OnceLock<(Arc<Rules>, Arc<dyn Clock>)>,
    /// What is to be done when the saved index is back.
    when_restored: OnceLock<WhenRestored>,
    pub counters: BpeCounters,
    pub by_space: BySpace<FlashCounts>,
}

/// What admission remembers for a flash of this number of slots.
pub fn filter_of(rule: Rule, slots: usize) -> Filter {
    let share = if rule == Rule::GhostWhole { 1 } else { GHOST_SHARE };
    Filter::new(rule, slots, filter::Memory { ghost_percent: 100 / share, window: WINDOW })
}

/// Slots of a flash of this number of bytes.
fn slots_of(flash_bytes: u64) -> u32 {
    (flash_bytes / PAGE_SIZE as u64).min(u64::from(u32::MAX / 4)) as u32
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Bpe {
    /// Takes the flash. If it cannot be used, the extension is off, and says why in its status: that is no reason
    /// not to start.
    pub fn open(flash: &dyn Disk, settings: BpeSettings) -> Bpe {
        let slots = slots_of(settings.flash_bytes);
        let (files, warm, off) = match Files::open(flash, &settings) {
            Ok((files, warm)) => (Some(files), warm && settings.warm, None),
            Err(error) => (None, false, Some(format!("{}: {error}", flash.describe()))),
        };
        let slots = if off.is_some() { 0 } else { slots };
        let mut index = Index::new(slots);
        if warm {
            index.begin_restore();
        }
        Bpe {
            state: Mutex::new(BpeState {
                core: Core {
                    index,
                    filter: filter_of(settings.admission, slots as usize),
                    fills: Fills::new(settings.queue_pages.max(1), PAGE_SIZE),
                },
                classes: HashMap::new(),
                admission: settings.admission,
                restoring: warm.then_some(0),
                restored: 0,
                unsaved: BTreeSet::new(),
                unsaved_fills: 0,
                idle: false,
                errors: 0,
                off,
            }),
            files,
            wake: Arc::new(Event::new()),
            written: Event::new(),
            rules: OnceLock::new(),
            when_restored: OnceLock::new(),
            counters: BpeCounters::default(),
            by_space: BySpace::default(),
        }
    }

    /// A clean page leaves memory; `image` is sealed and current. Copies it at most; never waits
    /// for the device.
    pub fn evicted(&self, id: PageId, image: &[u8], leaving: Leaving) -> Evicted {
        let mark = mark_of(id);
        let rule = self.rule_of(id);
        let entry = rule.as_ref().map_or(Entry::Ask, |rule| quota::entry(rule.placement));
        if entry == Entry::Refuse {
            count(&self.counters.refused);
            return Evicted::Refused;
        }
        let of_space = self.by_space.of(id.space);
        let spare = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if state.off.is_some() {
                return Evicted::Off;
            }
            if !state.core.index.matches(mark).is_empty() {
                return Evicted::Kept;
            }
            let class = state.class_of(rule.as_ref());
            let holder = state.core.index.shares().holder(class);
            let has_room =
                state.core.index.in_use() < state.core.index.limit() / ROOM * (ROOM - 1) && !holder.is_full();
            let is_asked = !leaving.near || has_room || holder.used < holder.min;
            let mut candidate = None;
            let ghost_hits = state.core.filter.ghost_hits();
            let admission = match entry {
                Entry::Take => Admission::Admit,
                _ if !is_asked => {
                    count(&self.counters.near);
                    let wanted = state.core.filter.is_reused(id, leaving.accesses, false);
                    if state.core.filter.ghost_hits() > ghost_hits {
                        count(&of_space.ghost_hits);
                    }
                    return Evicted::Near { wanted };
                }
                _ => state.core.filter.judge(id, leaving.accesses, has_room, |_| {
                    candidate = state.core.index.candidate(class);
                    candidate.map(|(_, mark)| mark)
                }),
            };
            if state.core.filter.ghost_hits() > ghost_hits {
                count(&of_space.ghost_hits);
            }
            match admission {
                // A place in the queue first: what a limited table is charged for is written.
                Admission::Admit => match state.core.fills.promise() {
                    Some(spare) if self.may_fill(rule.as_ref()) => spare,
                    Some(_) => {
                        state.core.fills.redeem(None);
                        state.core.filter.remember(id);
                        return Evicted::Dropped;
                    }
                    None => {
                        state.core.filter.remember(id);
                        count(&self.counters.fill_dropped);
                        return Evicted::Dropped;
                    }
                },
                Admission::Remember => {
                    if let Some((slot, _)) = candidate {
                        state.core.index.pass(slot);
                    }
                    count(&self.counters.remembered);
                    count(&of_space.remembered);
                    return Evicted::Remembered;
                }
            }
        };
        let image = fills::copied(spare, image, PAGE_SIZE);
        let mut state = self.state.lock();
        let class = state.class_of(rule.as_ref());
        let slot = state.core.index.fill(mark, class);
        state.core.fills.redeem(slot.map(|slot| Fill { key: id, slot, image }));
        if slot.is_none() {
            state.core.filter.remember(id);
            count(&self.counters.fill_dropped);
            return Evicted::Dropped;
        }
        drop(state);
        count(&of_space.admitted);
        self.wake.notify();
        Evicted::Queued
    }

    /// The page has a newer image, which takes the place of the one that flash has; if it has none, or its queue is
    /// full, the page is not on flash afterwards. Copies the image at most; never waits for the device.
    pub fn rewrite(&self, id: PageId, image: &[u8]) -> bool {
        let mark = mark_of(id);
        let had = self.seems_to_have(id);
        if !planted::COPY_NOT_INVALIDATED.on() {
            self.invalidate(id);
        }
        let rule = self.rule_of(id);
        if !had || rule.as_ref().is_some_and(|rule| quota::entry(rule.placement) == Entry::Refuse) {
            return false;
        }
        let promised = {
            let mut state = self.state.lock();
            if state.off.is_some() { None } else { state.core.fills.promise() }
        };
        let Some(spare) = promised else {
            count(&self.counters.fill_dropped);
            return false;
        };
        if !self.may_fill(rule.as_ref()) {
            self.state.lock().core.fills.redeem(None);
            return false;
        }
        let image = fills::copied(spare, image, PAGE_SIZE);
        let mut state = self.state.lock();
        let class = state.class_of(rule.as_ref());
        let slot = if state.off.is_some() { None } else { state.core.index.fill(mark, class) };
        state.core.fills.redeem(slot.map(|slot| Fill { key: id, slot, image }));
        drop(state);
        if slot.is_none() {
            count(&self.counters.fill_dropped);
            return false;
        }
        count(&self.counters.rewritten);
        self.wake.notify();
        true
    }

    /// The page leaves memory once more, and its copy makes way for the same image, if the queue takes it: what it costs to write at each
    /// eviction (`Mechanism::KeptCopies`).
    pub fn write_again(&self, id: PageId, image: &[u8]) {
        let mark = mark_of(id);
        let rule = self.rule_of(id);
        let promised = {
            let mut state = self.state.lock();
            let busy = state.core.index.matches(mark).iter().any(|slot| state.core.index.is_busy(*slot));
            if state.off.is_some() || busy { None } else { state.core.fills.promise() }
        };
        let Some(spare) = promised else { return };
        let image = fills::copied(spare, image, PAGE_SIZE);
        let mut state = self.state.lock();
        let class = state.class_of(rule.as_ref());
        let slot = if state.off.is_some() {
            None
        } else {
            for slot in state.core.index.matches(mark) {
                state.core.index.remove_if(slot, mark);
            }
            state.core.index.fill(mark, class)
        };
        state.core.fills.redeem(slot.map(|slot| Fill { key: id, slot, image }));
        drop(state);
        self.counters.rewritten.fetch_add(u64::from(slot.is_some()), Ordering::Relaxed);
        self.wake.notify();
    }

    /// More than half of the fills that may wait are waiting.
    pub fn is_behind(&self) -> bool {
        self.state.lock().core.fills.is_behind()
    }

    /// The page has a newer image than any that was evicted: clears every match and calls queued
    /// fills back.
    pub fn invalidate(&self, id: PageId) {
        let cleared = self.state.lock().core.invalidate(id);
        if cleared != Cleared::default() {
            self.counters.invalidated.fetch_add(cleared.removed, Ordering::Relaxed);
            self.counters.fill_cancelled.fetch_add(cleared.cancelled, Ordering::Relaxed);
        }
    }

    /// Whether a page of this name seems to be on flash: by its fingerprint, so for guesses only.
    pub fn seems_to_have(&self, id: PageId) -> bool {
        !self.state.lock().core.index.matches(mark_of(id)).is_empty()
    }

    pub fn status(&self) -> BpeStatus {
        let state = self.state.lock();
        BpeStatus {
            pages: u64::from(state.core.index.in_use()),
            pages_max: u64::from(state.core.index.limit()),
            file_bytes: self.files.as_ref().map_or(0, |files| files.chunks.grown()),
            restored: state.restored,
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
            state.core.index = Index::new(0);
            state.classes.clear();
            state.core.filter = filter_of(Rule::AdmitAll, 0);
            state.core.fills.clear();
            state.unsaved.clear();
            if std::mem::take(&mut state.restoring).is_some() {
                state.core.index.end_restore();
            }
        }
    }

    /// Panics if the index is not in order, or a busy slot has no fill. For tests.
    pub fn check_invariants(&self) {
        let state = self.state.lock();
        state.core.index.check_invariants();
        assert!(state.off.is_none() || state.core.index.in_use() == 0);
    }
}

impl FlashCache for Bpe {
    fn seems_to_have(&self, id: PageId) -> bool {
        Bpe::seems_to_have(self, id)
    }
    fn find(&self, id: PageId, tag: Tag, image: &mut [u8]) -> bool {
        Bpe::find(self, id, tag, image) == Lookup::Hit
    }
    fn find_many(&self, pages: &[(PageId, Tag)], images: &mut [&mut [u8]]) -> Vec<bool> {
        Bpe::find_many(self, pages, images)
    }
    fn evicted(&self, id: PageId, _tag: Tag, image: &[u8], leaving: Leaving) -> bool {
        Bpe::evicted(self, id, image, leaving) == Evicted::Near { wanted: true }
    }
    fn invalidate(&self, id: PageId) {
        Bpe::invalidate(self, id);
    }
    fn rewrite(&self, id: PageId, _tag: Tag, image: &[u8]) -> bool {
        Bpe::rewrite(self, id, image)
    }
    fn write_again(&self, id: PageId, image: &[u8]) {
        Bpe::write_again(self, id, image);
    }
    fn is_behind(&self) -> bool {
        Bpe::is_behind(self)
    }
    fn written(&self) -> Option<&Event> {
        Some(&self.written)
    }
}

#[cfg(test)]
mod tests;
