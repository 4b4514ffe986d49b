//! Gathers a block's current pages, as they will be stored. An image is taken from the nearest tier that has one with the map's
//! tag: memory, volume, flash. Images that none of them has come from the block's old objects, with one request each, which then
//! reads all needed pages of the object, in stored form. If the block gets a patch object, only the patch's pages are gathered:
//! pages in slots, and other pages that the block's previous patch has.
//!
//! Pages are packed a few at a time. Pages of the old patch come first and are copied: their buffer is released before the
//! object's is read. So a block takes no more than the bytes that will be put for it, images of a few pages, and the bytes read
//! from one object; at most two blocks' images (`sink::MEMORY_MIN`).

use super::SinkError;
use super::mover::{BLOCK_BYTES, Mover};
use super::policy;
use crate::address::ObjectKey;
use crate::address::Tier;
use crate::address::{Home, InObject, Located};
use crate::flash::{FlashCache, Leaving};
use crate::memory::frame::ACCESSES_MAX;
use crate::objects::object::bytes_of_bodies;
use crate::objects::object::codec::Codec;
use crate::page::{self, BadImage, BlockId, PAGE_SIZE, Tag};
use crate::volume::map::BlockState;
use std::ops::Range;
use std::sync::atomic::Ordering;
use terrace_io::AlignedBuf;
use terrace_io::clock::Nanos;
use terrace_io::sched::Woken;
use terrace_io::store::{Bytes, Purpose, StoreError};

/// Number of times that a block is gathered again because a page moved while it was read.
const GATHERS: usize = 16;
/// Number of pages held as images at a time.
const WINDOW: usize = 16;
const WINDOW_BYTES: usize = WINDOW * PAGE_SIZE;
/// Number of batches for whose writing a block offering pages to flash waits, and the maximum wait for each, in nanoseconds.
const FILLS_PATIENCE: usize = 32;
const FILLS_REST: Nanos = 5_000_000;

/// A block as it will be stored.
pub(super) struct Gathered {
    /// Index in the block, current tag, stored body.
    pub pages: Vec<(usize, Tag, Bytes)>,
    /// Pages that have slots, with their tags.
    pub taken: Vec<(usize, Tag)>,
    pub snapshot_version: u64,
    /// Bytes of memory that the bodies keep: those read from the old object include gaps.
    pub held: usize,
    /// They will be a patch in addition to this object; None: the block's next object.
    pub beside: Option<ObjectKey>,
}

/// A page as it will be stored: packed here, or the body in the old object.
enum Body {
    Packed(Range<usize>),
    Stored(Bytes),
}

/// The same after its image was checked: a packed body of this length, or the body in the old object.
enum CheckedBody {
    Packed(usize),
    Stored(Bytes),
}

/// Which page failed, and how.
type Failure = (usize, SinkError);
/// For each page requested from the old object, its body, or the error.
type Bodies = Vec<Option<Result<Bytes, StoreError>>>;

/// Whether a page has to be read from the old object.
fn is_far(home: &Home) -> bool {
    home.slot.is_none()
}

/// Whether a page has to be read from the block's patch object.
fn is_patched(state: &BlockState, home: &Home) -> bool {
    is_far(home) && home.object.is_some_and(|at| Some(at.key) == state.patch)
}

impl Mover {
    /// What will be put for the block: if that is a patch beside an object, the locations are those of the patch's pages, and the
    /// object is given.
    fn form(&self, block: BlockId, codec: Codec, patches: bool) -> (BlockState, Option<ObjectKey>) {
        let mut state = self.map.block(block);
        let writer = self.fence.writer();
        let Some(base) = state.object.filter(|key| {
            let ours = (key.lineage, key.block_id()) == (writer.lineage, block);
            patches && self.patches.is_some() && ours
        }) else {
            return (state, None);
        };
        let patch = state.patch;
        let goes = |home: &Home| !is_far(home) || home.object.is_some_and(|at| Some(at.key) == patch);
        let page = self.page_bytes(&state, codec);
        let (mut new, mut carried, mut whole) = (0, 0, 0);
        for home in state.homes.iter().flatten() {
            let length = home.object.filter(|_| is_far(home)).map_or(page, |at| at.length);
            whole += length;
            match goes(home) {
                true if is_far(home) => carried += length,
                true => new += length,
                false => {}
            }
        }
        if policy::form(new, carried, whole) == policy::Form::Whole {
            return (state, None);
        }
        state.homes.iter_mut().for_each(|home| *home = home.filter(goes));
        (state, Some(base))
    }

    /// Estimated size of a packed page of the block, from its objects or from all pages so far.
    fn page_bytes(&self, state: &BlockState, codec: Codec) -> usize {
        let objects: Vec<usize> =
            state.homes.iter().flatten().filter_map(|home| Some(home.object?.length)).collect();
        match codec {
            Codec::None => PAGE_SIZE,
            _ if objects.is_empty() => self.objects.packer.mean(),
            _ => objects.iter().sum::<usize>() / objects.len(),
        }
    }

    /// Bytes that gathering the block will take: those that may be read from an old object, and packed pages in addition,
    /// estimated from its objects or from all pages so far.
    pub fn expected(&self, block: BlockId, codec: Codec, patches: bool) -> usize {
        let (state, _) = self.form(block, codec, patches);
        let page = self.page_bytes(&state, codec);
        bytes_to_gather(&state, codec, (page + page / 8).min(PAGE_SIZE))
    }

    /// Every page of the block; or, with `patches` and if it pays, the pages of a patch object. None if no page has a slot.
    pub fn gather(&self, block: BlockId, codec: Codec, patches: bool) -> Result<Option<Gathered>, SinkError> {
        let mut failed = None;
        for _ in 0..GATHERS {
            let (state, beside) = self.form(block, codec, patches);
            if state.homes.iter().flatten().all(is_far) {
                return Ok(None);
            }
            match self.gather_once(block, &state, codec) {
                Ok(gathered) => return Ok(Some(Gathered { beside, ..gathered })),
                Err((i, error)) => {
                    // The page may have moved during the read: then its image is elsewhere.
                    let home = state.homes[i].map_or(Located::Never, Located::At);
                    if self.map.locate(block.page(i)) == home {
                        return Err(error);
                    }
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or(SinkError::Moving { block }))
    }

    fn gather_once(&self, block: BlockId, state: &BlockState, codec: Codec) -> Result<Gathered, Failure> {
        // Bodies one after the other, followed by images about to be packed: only as many pages as there is room for, because no
        // body is longer than its image.
        let mut packed = AlignedBuf::zeroed(BLOCK_BYTES);
        let mut end = 0;
        let mut bodies: Vec<Option<Body>> = state.homes.iter().map(|_| None).collect();
        let (mut held, mut patience) = (0, FILLS_PATIENCE);
        let patched = |i: &usize| state.homes[*i].is_some_and(|home| is_patched(state, &home));
        let there = (0..state.homes.len()).filter(|i| state.homes[*i].is_some());
        let (of_patch, others): (Vec<usize>, Vec<usize>) = there.partition(patched);
        for pages in [&of_patch, &others].into_iter().filter(|pages| !pages.is_empty()) {
            let mut stored = self.stored_bodies(block, state, pages, &mut packed[end..][..PAGE_SIZE])?;
            for window in pages.chunks(WINDOW) {
                let first = end.next_multiple_of(PAGE_SIZE);
                let images = &mut packed[first..][..window.len() * PAGE_SIZE];
                self.near_images(block, state, window, images)?;
                for (place, i) in window.iter().enumerate() {
                    let from = first + place * PAGE_SIZE;
                    let image = &mut packed[from..][..PAGE_SIZE];
                    let found = match state.homes[*i] {
                        Some(home) if !is_far(&home) => {
                            if state.wanted >> i & 1 == 1 {
                                self.offer(block, *i, home.tag, image, &mut patience);
                            }
                            CheckedBody::Packed(self.objects.packer.pack(codec, image))
                        }
                        _ => self.far_body(block, state, (pages, *i), &mut stored, codec, image)?,
                    };
                    let length = match found {
                        CheckedBody::Packed(length) => {
                            packed.copy_within(from..from + length, end);
                            length
                        }
                        CheckedBody::Stored(body) if patched(i) => {
                            packed[end..][..body.len()].copy_from_slice(&body);
                            body.len()
                        }
                        CheckedBody::Stored(body) => {
                            bodies[*i] = Some(Body::Stored(body));
                            continue;
                        }
                    };
                    bodies[*i] = Some(Body::Packed(end..end + length));
                    end += length;
                }
            }
            if pages.iter().any(|i| matches!(bodies[*i], Some(Body::Stored(_)))) {
                held = bytes_of_bodies(&far_of(state, pages));
            }
        }
        packed.truncate(end);
        held += end;
        let packed = Bytes::from_owner(packed);
        let take = |body| match body {
            Body::Packed(range) => packed.slice(range),
            Body::Stored(bytes) => bytes,
        };
        let tags = state.homes.iter().map(|home| home.map(|home| home.tag));
        let pages = tags.zip(bodies).enumerate();
        Ok(Gathered {
            pages: pages.filter_map(|(i, (tag, body))| Some((i, tag?, take(body?)))).collect(),
            taken: (0..state.homes.len())
                .filter_map(|i| state.homes[i].filter(|home| !is_far(home)).map(|home| (i, home.tag)))
                .collect(),
            snapshot_version: state.snapshot_version,
            held,
            beside: None,
        })
    }

    fn in_memory(&self, block: BlockId, i: usize, tag: Tag, image: &mut [u8]) -> bool {
        self.pool.copy_clean(block.page(i), image) && page::seal(image) == tag
    }

    fn on_flash(&self, block: BlockId, i: usize, tag: Tag, image: &mut [u8]) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.find(block.page(i), tag, image))
    }

    /// A wanted page will be read from the store from now on: offers it to flash, as at an eviction.
    fn offer(&self, block: BlockId, i: usize, tag: Tag, image: &[u8], patience: &mut usize) {
        let id = block.page(i);
        let Some(flash) = self.flash.as_ref().filter(|flash| !flash.seems_to_have(id)) else { return };
        self.wait_for_fills(&**flash, patience);
        // It may have been changed and flushed meanwhile: flash would keep a useless image, and not the current one.
        let is_current = matches!(self.map.locate(id), Located::At(home) if home.tag == tag);
        if is_current && !self.pool.has(id) {
            flash.evicted(id, tag, image, Leaving::used(ACCESSES_MAX));
        }
    }

    /// A block offers many pages at once, more than may be queued for writing. If flash is slow or busy, a block waits for a
    /// bounded number of batches, and if flash writes nothing, for one wait only.
    fn wait_for_fills(&self, flash: &dyn FlashCache, batches: &mut usize) {
        let Some(written) = flash.written() else { return };
        while *batches > 0 {
            let ticket = written.ticket();
            if !flash.is_behind() {
                return;
            }
            *batches = match self.sched.wait(written, ticket, Some(FILLS_REST)) {
                Woken::Notified => *batches - 1,
                Woken::TimedOut => 0,
            };
        }
    }

    /// The old object's bodies of those pages that have to be read from it; None if all pages are nearer. `scratch`: a page.
    fn stored_bodies(
        &self,
        block: BlockId,
        state: &BlockState,
        pages: &[usize],
        scratch: &mut [u8],
    ) -> Result<Bodies, Failure> {
        let tag = |i: &usize| state.homes[*i].filter(is_far).map(|home| (*i, home.tag));
        let flash = self.flash.as_ref();
        let mut bodies: Bodies = state.homes.iter().map(|_| None).collect();
        let is_needed = pages.iter().filter_map(tag).any(|(i, tag)| {
            !self.in_memory(block, i, tag, scratch)
                && !flash.is_some_and(|flash| flash.seems_to_have(block.page(i)))
        });
        if is_needed {
            self.ask(block, state, pages, &mut bodies)?;
        }
        Ok(bodies)
    }

    /// Reads all these pages from the old object, with one request.
    fn ask(
        &self,
        block: BlockId,
        state: &BlockState,
        pages: &[usize],
        bodies: &mut Bodies,
    ) -> Result<(), Failure> {
        let (mut far, mut objects) = (Vec::new(), Vec::new());
        for i in pages {
            let Some(home) = state.homes[*i].filter(is_far) else { continue };
            let nowhere = SinkError::Nowhere { id: block.page(*i) };
            objects.push(home.object.ok_or((*i, nowhere))?);
            far.push(*i);
        }
        for (i, body) in far.into_iter().zip(self.objects.read_bodies(Purpose::Merge, &objects)) {
            bodies[i] = Some(body);
        }
        self.sched.point("sink-asked");
        Ok(())
    }

    /// The images of those of the pages that have slots, each in its position.
    fn near_images(
        &self,
        block: BlockId,
        state: &BlockState,
        pages: &[usize],
        images: &mut [u8],
    ) -> Result<(), Failure> {
        let mut missing: Vec<(usize, Home)> = Vec::new();
        for (place, i) in pages.iter().enumerate() {
            let Some(home) = state.homes[*i].filter(|home| !is_far(home)) else { continue };
            let image = &mut images[place * PAGE_SIZE..][..PAGE_SIZE];
            if !self.in_memory(block, *i, home.tag, image) {
                missing.push((place, home));
            }
        }
        let slots: Vec<_> = missing.iter().filter_map(|(_, home)| home.slot).collect();
        let results = self.buffer.read_into(&slots, places(missing.iter().map(|(place, _)| *place), images));
        for ((place, home), result) in missing.iter().zip(results) {
            let (i, image) = (pages[*place], &mut images[place * PAGE_SIZE..][..PAGE_SIZE]);
            let id = block.page(i);
            let bad = match result {
                Ok(()) => page::check(image, id, Some(home.tag)).map_err(|bad| SinkError::Corrupt {
                    id,
                    tier: Tier::Volume,
                    key: None,
                    bad,
                }),
                Err(error) => Err(SinkError::Disk(error)),
            };
            match bad {
                Ok(()) => {}
                // Flash may have the same image, intact (invariant 9).
                Err(_) if self.on_flash(block, i, home.tag, image) => self.count_repair(),
                Err(error) => return Err((i, error)),
            }
        }
        Ok(())
    }

    /// The body of the page with index `i`, one of `pages`, which has no slot; a packed body is in `image`. A body that the codec
    /// produced before is stored again as it is, after its image was checked.
    fn far_body(
        &self,
        block: BlockId,
        state: &BlockState,
        (pages, i): (&[usize], usize),
        stored: &mut Bodies,
        codec: Codec,
        image: &mut [u8],
    ) -> Result<CheckedBody, Failure> {
        let (id, packer) = (block.page(i), &self.objects.packer);
        let pack = |image: &mut [u8]| CheckedBody::Packed(packer.pack(codec, image));
        let nowhere = SinkError::Nowhere { id };
        let Some(Home { tag, object, .. }) = state.homes[i] else { return Err((i, nowhere)) };
        let near =
            |image: &mut [u8]| self.in_memory(block, i, tag, image) || self.on_flash(block, i, tag, image);
        if stored[i].is_none() {
            if near(image) {
                return Ok(pack(image));
            }
            // It has left that tier since, or never was there: so may the pages after it.
            let rest = pages.partition_point(|page| *page < i);
            self.ask(block, state, &pages[rest..], stored)?;
        }
        let Some(body) = stored[i].take() else { return Err((i, nowhere)) };
        let error = match body.map_err(SinkError::Unread) {
            Err(error) => error,
            Ok(body) => {
                let unpacked = packer.unpack(&body, image).map_err(BadImage::Stored);
                match unpacked.and_then(|()| page::check(image, id, Some(tag))) {
                    Ok(()) if packer.takes_over(codec, &body) => return Ok(CheckedBody::Stored(body)),
                    Ok(()) => return Ok(pack(image)),
                    Err(bad) => SinkError::Corrupt {
                        id,
                        tier: Tier::Object,
                        key: object.map(|at| Box::new(at.key)),
                        bad,
                    },
                }
            }
        };
        // Memory or flash may have the same image, intact (invariant 9).
        if !near(image) {
            return Err((i, error));
        }
        self.count_repair();
        Ok(pack(image))
    }

    fn count_repair(&self) {
        self.repaired.fetch_add(1, Ordering::Relaxed);
    }
}

/// The locations of those of the pages that have no slot.
fn far_of(state: &BlockState, pages: &[usize]) -> Vec<InObject> {
    pages.iter().filter_map(|i| state.homes[*i].filter(is_far)?.object).collect()
}

/// Bytes needed to gather pages with these locations, if one is packed to `page` bytes.
fn bytes_to_gather(state: &BlockState, codec: Codec, page: usize) -> usize {
    let pages = || (0..state.homes.len()).filter(|i| state.homes[*i].is_some());
    let (of_patch, others): (Vec<usize>, Vec<usize>) =
        pages().partition(|i| state.homes[*i].is_some_and(|home| is_patched(state, &home)));
    let (patch, object) = (far_of(state, &of_patch), far_of(state, &others));
    // Pages that the codec did not compress are tried again. (Which codec compressed a short one is not known here.)
    let again = |at: &&InObject| (at.length == PAGE_SIZE) != (codec == Codec::None);
    let copied: usize = patch.iter().map(|at| if again(&at) { page } else { at.length }).sum();
    let near = others.len() - object.len() + object.iter().filter(again).count();
    let beside = |packed: usize| (packed + WINDOW_BYTES).min(BLOCK_BYTES);
    let first = bytes_of_bodies(&patch) + beside(copied);
    first.max(bytes_of_bodies(&object) + beside(copied + near * page))
}

/// These pages' parts of `images`, in order.
fn places(pages: impl Iterator<Item = usize>, images: &mut [u8]) -> Vec<&mut [u8]> {
    let mut all = images.chunks_exact_mut(PAGE_SIZE).enumerate();
    pages.filter_map(|i| all.find(|(place, _)| *place == i).map(|(_, image)| image)).collect()
}
