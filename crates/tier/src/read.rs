//! The read below memory: R2 flash, R3 volume, R4 object store, then the redo that recovery left. A temporary page is read from
//! its spill space.
//!
//! On the volume a page is in its slot or, after sinking, perhaps still in the slot that it left (`map/clean.rs`).
//!
//! [`ReadPath::fetch`] is the whole read, one line a tier. With `split`, a page that is both on flash and on the volume is read where it is served best (`split`). The map says which image is current. An image from any tier is served only
//! if it is intact, belongs to this page, and carries the map's tag (invariants 2 and 9). A corrupt image on flash is a miss. A
//! corrupt image on the volume or in an object is an error that names tier, object, space and page: flash was searched before,
//! and no other place has an image with the map's tag (an object of a page that has a slot is older).

mod ahead;
mod limit;
pub mod split;

use crate::ablation::{Mechanism, Without};
use crate::address::Slot;
use crate::address::Tier;
use crate::address::{Home, InObject, Located};
use crate::flash::{FlashCache, Leaving};
use crate::memory::lower_tiers::{Below, Fetched, ImageBelow, ReadError, TurnNo};
use crate::memory::misses::Misses;
use crate::memory::pool::ScanDirection;
use crate::objects::object::BodyError;
use crate::objects::object::PageObjects;
use crate::page::{self, Glsn, PAGE_SIZE, PageId, PageRef, Tag};
use crate::volume::map::Map;
use crate::volume::object_buffer::ObjectBuffer;
use crate::volume::temporary::Spill;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::store::StoreError;

/// Redo that recovery found and that is not applied yet.
pub trait PendingRedo: Send + Sync {
    /// Applies the pending redo of the page to its image (all zero if no tier has one) and forgets it. Returns the first log
    /// position applied.
    fn apply(&self, id: PageId, image: &mut [u8]) -> Result<Option<Glsn>, ReadError>;
    /// Whether any redo is pending for the page.
    fn has(&self, id: PageId) -> bool;
    /// The page is in memory and known to be dirty: its redo no longer bounds the checkpoint.
    fn admitted(&self, id: PageId);
}

#[derive(Default, Debug)]
pub struct PathCounters {
    pub flash: AtomicU64,
    pub volume: AtomicU64,
    /// Reads from the volume that used clean copies of sunk pages.
    pub clean: AtomicU64,
    pub object: AtomicU64,
    pub corrupt: AtomicU64,
}

pub struct ReadPath {
    map: Arc<Map>,
    buffer: Arc<ObjectBuffer>,
    flash: Option<Arc<dyn FlashCache>>,
    objects: Option<Arc<dyn PageObjects>>,
    pending: OnceLock<Arc<dyn PendingRedo>>,
    limits: OnceLock<limit::Limits>,
    spill: OnceLock<Arc<Spill>>,
    split: OnceLock<Arc<split::PageSplit>>,
    misses: Arc<Misses>,
    without: Without,
    pub counters: PathCounters,
}

impl ReadPath {
    pub fn new(
        map: Arc<Map>,
        buffer: Arc<ObjectBuffer>,
        flash: Option<Arc<dyn FlashCache>>,
        objects: Option<Arc<dyn PageObjects>>,
        misses: Arc<Misses>,
    ) -> ReadPath {
        ReadPath {
            map,
            buffer,
            flash,
            objects,
            pending: OnceLock::new(),
            limits: OnceLock::new(),
            spill: OnceLock::new(),
            split: OnceLock::new(),
            misses,
            without: Without::default(),
            counters: PathCounters::default(),
        }
    }

    pub fn without(self, without: Without) -> ReadPath {
        ReadPath { without, ..self }
    }

    /// Set once, before the first read.
    pub fn set_pending(&self, pending: Arc<dyn PendingRedo>) {
        assert!(self.pending.set(pending).is_ok(), "pending redo is set twice");
    }

    /// Where temporary pages are. Set once, before the first of them is created.
    pub fn set_spill(&self, spill: Arc<Spill>) {
        assert!(self.spill.set(spill).is_ok(), "the spill space is set twice");
    }

    /// Below memory, the spill space has the only image of a temporary page.
    fn fetch_temporary(&self, id: PageId, image: &mut [u8]) -> Result<Fetched, ReadError> {
        let spill = self.spill.get().ok_or(ReadError::Absent(id))?;
        let from = spill.read(id, image).map_err(|error| self.counted(error))?;
        Ok(Fetched { from, first_change: None })
    }

    /// The current image from the nearest tier that has it.
    fn fetch_image(&self, id: PageId, home: &Home, image: &mut [u8]) -> Result<Tier, ReadError> {
        if let Some(copies) = self.second_copy(id, home)
            && let Some(tier) = self.split_image(copies, id, home, image)
        {
            return Ok(tier); // R2 or R3
        }
        if self.limits_reads(id.space) && self.on_flash(id) {
            self.spend(id, Tier::Flash, 1);
        }
        if self.flash.as_ref().is_some_and(|flash| flash.find(id, home.tag, image)) {
            self.counters.flash.fetch_add(1, Ordering::Relaxed);
            return Ok(Tier::Flash); // R2
        }
        if let Some(slot) = home.slot {
            self.spend(id, Tier::Volume, 1);
            self.counters.volume.fetch_add(1, Ordering::Relaxed);
            self.map.want_on_flash(id);
            return self.misses.on_volume(|| self.from_volume(id, slot, Some(home.tag), image)); // R3
        }
        let Some(at) = &home.object else { return Err(ReadError::Absent(id)) };
        if self.clean_copy(id, home.tag, image) {
            return Ok(Tier::Volume); // R3, in a slot that is free
        }
        self.spend(id, Tier::Object, 1);
        self.counters.object.fetch_add(1, Ordering::Relaxed);
        self.misses.in_store(|| self.from_object(id, at, home.tag, image)) // R4
    }

    fn from_volume(
        &self,
        id: PageId,
        slot: Slot,
        tag: Option<Tag>,
        image: &mut [u8],
    ) -> Result<Tier, ReadError> {
        self.buffer.read(slot, image).map_err(|error| ReadError::Disk { id, tier: Tier::Volume, error })?;
        page::check(image, id, tag).map_err(|bad| ReadError::Corrupt {
            id,
            tier: Tier::Volume,
            key: None,
            bad,
        })?;
        Ok(Tier::Volume)
    }

    /// Fills `image` if a freed slot still has the page's image.
    fn clean_copy(&self, id: PageId, tag: Tag, image: &mut [u8]) -> bool {
        let Some(slot) = self.map.clean_copy(id, tag) else { return false };
        self.spend(id, Tier::Volume, 1);
        let read = self.misses.on_volume(|| self.from_volume(id, slot, Some(tag), image));
        match read {
            Ok(_) => self.counters.clean.fetch_add(1, Ordering::Relaxed),
            // Usually the slot was allocated again meanwhile: the object has the page.
            Err(_) => {
                self.map.no_clean_copy(id, tag, slot);
                return false;
            }
        };
        self.counters.volume.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn from_object(&self, id: PageId, at: &InObject, tag: Tag, image: &mut [u8]) -> Result<Tier, ReadError> {
        let Some(objects) = &self.objects else {
            let key = at.key.to_string();
            let cause = "this instance was opened without an object store".to_string();
            return Err(ReadError::Store { id, error: StoreError::Refused { key, cause } });
        };
        objects.read_page(at, image).map_err(|error| from_body(id, at, error))?;
        page::check(image, id, Some(tag)).map_err(|bad| ReadError::Corrupt {
            id,
            tier: Tier::Object,
            key: Some(at.key),
            bad,
        })?;
        Ok(Tier::Object)
    }

    /// Applies the redo that recovery left for the page.
    fn with_redo(&self, id: PageId, from: Tier, image: &mut [u8]) -> Result<Fetched, ReadError> {
        let first_change = match self.pending.get() {
            Some(pending) => pending.apply(id, image)?,
            None => None,
        };
        Ok(Fetched { from, first_change })
    }

    fn counted(&self, error: ReadError) -> ReadError {
        if matches!(error, ReadError::Corrupt { .. }) {
            self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
        }
        error
    }
}

/// The error of a page that could not be read from its object.
fn from_body(id: PageId, at: &InObject, error: BodyError) -> ReadError {
    match error {
        BodyError::Store(error) => ReadError::Store { id, error },
        BodyError::Corrupt(bad) => ReadError::Corrupt { id, tier: Tier::Object, key: Some(at.key), bad },
    }
}

impl Below for ReadPath {
    fn fetch(&self, id: PageId, image: &mut [u8]) -> Result<Fetched, ReadError> {
        if id.space.is_temporary() {
            return self.fetch_temporary(id, image);
        }
        let mut from = Tier::Log;
        match self.map.locate(id) {
            Located::Never => image.fill(0),
            Located::At(mut home) => {
                from = loop {
                    match self.fetch_image(id, &home, image) {
                        Ok(tier) => break tier,
                        // The page may have moved during the read: its block was sunk, and its slot or its old object is gone.
                        // Then the page is elsewhere.
                        Err(error) => match self.map.locate(id) {
                            Located::At(now) if now != home => home = now,
                            // Or it was freed, and other pages use its place.
                            Located::Never => {
                                image.fill(0);
                                break Tier::Log;
                            }
                            _ => return Err(self.counted(error)),
                        },
                    }
                };
            }
        }
        let fetched = self.with_redo(id, from, image)?;
        if from == Tier::Log && PageRef::new(image).lsn() == 0 {
            return Err(ReadError::Absent(id));
        }
        Ok(fetched)
    }

    fn fetch_again(&self, id: PageId) {
        if !self.without.has(Mechanism::SingleFlight) || id.space.is_temporary() || self.has_pending(id) {
            return;
        }
        if let Located::At(home) = self.map.locate(id) {
            // Errors are ignored: the reader that loads the page will see them.
            let _ = self.fetch_image(id, &home, &mut AlignedBuf::zeroed(PAGE_SIZE));
        }
    }

    fn turn(&self, id: PageId, mine: &mut Option<TurnNo>) -> Nanos {
        self.wait_for_turn(id, mine)
    }

    fn end_turn(&self, id: PageId, no: TurnNo) {
        self.leave_turn(id, no);
    }

    fn ahead(&self, id: PageId, max: usize, way: ScanDirection) -> Vec<PageId> {
        if self.without.has(Mechanism::Prefetch) { Vec::new() } else { self.pages_ahead(id, max, way) }
    }

    fn stretch(&self, from: PageId, max: usize) -> Vec<Vec<PageId>> {
        if self.without.has(Mechanism::Prefetch) { Vec::new() } else { self.block_stretch(from, max) }
    }

    fn beside(&self, id: PageId, before: u32, after: u32) -> Vec<PageId> {
        if self.without.has(Mechanism::Prefetch) { Vec::new() } else { self.pages_beside(id, before, after) }
    }

    fn are_close(&self, one: PageId, next: PageId, gap: u32) -> bool {
        next.page - one.page <= gap || self.are_close_in_object(one, next, gap)
    }

    fn fetch_run(&self, ids: &[PageId], images: &mut [&mut [u8]]) -> Vec<Result<Fetched, ReadError>> {
        self.run(ids, images)
    }

    fn held(&self, id: PageId) -> ImageBelow {
        if id.space.is_temporary() {
            let spilled = self.spill.get().is_some_and(|spill| spill.has(id));
            return if spilled { ImageBelow::InSlot } else { ImageBelow::Nowhere };
        }
        match self.map.locate(id) {
            Located::Never => ImageBelow::Nowhere,
            Located::At(home) if home.slot.is_some() => ImageBelow::InSlot,
            Located::At(_) => ImageBelow::InObject,
        }
    }

    fn is_far(&self, id: PageId) -> bool {
        self.held(id) == ImageBelow::InObject
            && !self.flash.as_ref().is_some_and(|flash| flash.seems_to_have(id))
    }

    fn home(&self, id: PageId) -> Option<Home> {
        match self.map.locate(id) {
            Located::At(home) => Some(home),
            Located::Never => None,
        }
    }

    fn has_pending(&self, id: PageId) -> bool {
        self.pending.get().is_some_and(|pending| pending.has(id))
    }

    fn admitted(&self, id: PageId) {
        if let Some(pending) = self.pending.get() {
            pending.admitted(id);
        }
    }

    fn evicted(&self, id: PageId, image: &mut [u8], accesses: u8) {
        if id.space.is_temporary() {
            return; // its image is in the spill space
        }
        let Some(flash) = &self.flash else { return };
        // An image that flash has already is current: otherwise it would have been invalidated.
        let has = flash.seems_to_have(id);
        if !has || self.without.has(Mechanism::KeptCopies) {
            let tag = page::seal(image);
            // Flash may keep the current image only; a clean page is the current one.
            if let Located::At(home) = self.map.locate(id)
                && home.tag == tag
            {
                if has {
                    flash.write_again(id, image);
                    return;
                }
                let leaves = !self.without.has(Mechanism::FlashForTheStore);
                let near = leaves && home.slot.is_some() && self.misses.store_takes_longer();
                if flash.evicted(id, tag, image, Leaving { accesses, near }) {
                    self.map.want_on_flash(id);
                }
            }
        }
    }
}
