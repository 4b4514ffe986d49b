//! Moving one block: pages gathered, one object put, the map told. The path of a sink, a step a line, is
//! [`Mover::sink`]. CloudJump III §3.2 (W3, W4), §4.2.4.
//!
//! Pages are noted with the tag that they had when they were taken. Only those that still have it when
//! the object is published are clean then; a page that was flushed meanwhile keeps its slot. An image
//! is taken from the nearest tier that has one with the map's tag: memory, flash, volume, and only what
//! none of them has from the block's old object, with one request.
//!
//! A crash before the publication is durable leaves an object that nothing names (`collect` finds it); one
//! after it, a block that is clean. A publication that comes twice changes nothing.
//!
//! Locks: none held over any step. One mover a block at a time (`sink` sees to it).

use super::room::Room;
use super::{Sequences, SinkError};
use crate::below::Tier;
use crate::collect::Collector;
use crate::fence::Fence;
use crate::map::{BlockState, Home, InObject, Located, Map};
use crate::object::codec::Codec;
use crate::object::key::ObjectKey;
use crate::object::{BodyError, Draft, Objects, PutError};
use crate::object_buffer::ObjectBuffer;
use crate::page::{self, BLOCK_PAGES, BlockId, PAGE_SIZE, PageId, Tag};
use crate::path::FlashCache;
use crate::pool::Pool;
use crate::redo::Redo;
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::sched::Sched;
use terrace_io::store::{Purpose, StoreError};

/// Times that a block is gathered anew because a page moved while it was read.
const GATHERS: usize = 16;
/// Keys that may be found taken, one after the other.
const KEYS: usize = 16;
/// Times that a put is tried before its key is given up.
const PUTS: usize = 3;
const PAGES: usize = BLOCK_PAGES as usize;
/// A block's images.
pub(super) const BLOCK_BYTES: usize = PAGES * PAGE_SIZE;

/// What a sink needs of the rest.
pub(super) struct Mover {
    pub map: Arc<Map>,
    pub buffer: Arc<ObjectBuffer>,
    pub pool: Arc<Pool>,
    pub redo: Arc<dyn Redo>,
    pub flash: Option<Arc<dyn FlashCache>>,
    pub objects: Arc<Objects>,
    pub fence: Arc<Fence>,
    pub sequences: Arc<dyn Sequences>,
    pub collector: Arc<Collector>,
    pub sched: Arc<dyn Sched>,
    pub room: Room,
}

/// What became of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sunk {
    /// Its pages are in a new object; so many of them were only in slots before.
    Put { pages: u32 },
    /// No page of it has a slot.
    Nothing,
    /// Its space was dropped meanwhile.
    Gone,
}

/// A block's current images.
struct Gathered {
    images: AlignedBuf,
    /// The current tag of each page that has an image.
    tags: Vec<Option<Tag>>,
    /// Of pages whose image is their stored body already, its length.
    packed: Vec<Option<usize>>,
    /// Pages that have slots, with their tags.
    taken: Vec<(usize, Tag)>,
    snapshot_version: u64,
}

impl Mover {
    pub fn sink(&self, block: BlockId) -> Result<Sunk, SinkError> {
        self.fence.take()?;
        let mut place = self.room.take(BLOCK_BYTES + self.stored_bytes(block));
        let codec = self.objects.codecs.of(block.space);
        let Some(mut gathered) = self.gather(block, codec)? else { return Ok(Sunk::Nothing) };
        self.sched.point("sink-gathered");
        let lengths = self.pack(codec, &mut gathered);
        // The store's client has a copy while it puts.
        place.shrink_to(2 * gathered.images.len());
        let mut rest = &gathered.images[..];
        let mut pages: Vec<(usize, Tag, &[u8])> = Vec::with_capacity(PAGES);
        for ((i, tag), len) in gathered.tags.iter().enumerate().zip(lengths) {
            let (body, more) = rest.split_at(len);
            pages.extend(tag.map(|tag| (i, tag, body)));
            rest = more;
        }
        let (key, shape) = self.put(block, gathered.snapshot_version, &pages)?;
        self.sched.point("sink-put");
        if let Some(lost) = self.fence.lost().filter(|_| !crate::planted::FENCED_PUBLISHES.on()) {
            return Err(lost.into()); // a fenced instance publishes nothing
        }
        let Some(range) = self.map.publish_object(block, &gathered.taken, &shape)? else {
            self.collector.orphan(key);
            return Ok(Sunk::Gone);
        };
        self.sched.point("sink-published");
        // Slots come free, and the old object may go, only now.
        self.redo.make_durable(range.end)?;
        self.map.settle();
        Ok(Sunk::Put { pages: gathered.taken.len() as u32 })
    }

    /// Bytes that a merge may get of the block's old object.
    fn stored_bytes(&self, block: BlockId) -> usize {
        let homes = self.map.block(block).homes;
        let stored = homes.iter().flatten().filter(|home| home.slot.is_none()).filter_map(|home| home.object);
        stored.map(|object| object.length).sum()
    }

    /// Compresses each image, one behind the other, and gives back the rest of the memory. Returns the lengths of the stored
    /// bodies, of all places in the block; 0 where there is no page.
    fn pack(&self, codec: Codec, gathered: &mut Gathered) -> Vec<usize> {
        let images = &mut gathered.images;
        let mut lengths = Vec::with_capacity(PAGES);
        let mut end = 0;
        for (i, tag) in gathered.tags.iter().enumerate() {
            let at = i * PAGE_SIZE;
            let len = match (tag, gathered.packed[i]) {
                (Some(_), Some(len)) => len,
                (Some(_), None) => self.objects.packer.pack(codec, &mut images[at..at + PAGE_SIZE]),
                (None, _) => 0,
            };
            images.copy_within(at..at + len, end);
            end += len;
            lengths.push(len);
        }
        images.truncate(end);
        lengths
    }

    /// Puts the pages under a new key. A key whose fate is not known when we give up is left to collection.
    fn put(
        &self,
        block: BlockId,
        snapshot_version: u64,
        pages: &[(usize, Tag, &[u8])],
    ) -> Result<(ObjectKey, crate::map::entry::ObjectShape), SinkError> {
        let writer = self.fence.writer();
        for _ in 0..KEYS {
            let sequence = self.sequences.next()?;
            let BlockId { space, block } = block;
            let mut key = ObjectKey { lineage: writer.lineage, space, block, epoch: writer.epoch, sequence };
            if crate::planted::OBJECT_OVERWRITTEN.on()
                && let Some(current) = self.map.block(key.block_id()).object
            {
                key = current;
                self.objects.store().delete(terrace_io::store::Purpose::Sink, &key.to_string())?;
            }
            let draft = Draft::new(key, snapshot_version, pages);
            let mut tries = 0;
            loop {
                tries += 1;
                match self.objects.put(&draft) {
                    Ok(()) => return Ok((key, draft.header().shape())),
                    // It has other content, so it is not ours to delete either. The next number.
                    Err(PutError::Taken { .. }) => break,
                    Err(PutError::Store(StoreError::Unknown { .. })) if tries < PUTS => {}
                    Err(PutError::Store(error)) => {
                        if matches!(error, StoreError::Unknown { .. }) || tries > 1 {
                            self.collector.orphan(key);
                        }
                        return Err(error.into());
                    }
                }
            }
        }
        Err(SinkError::Sequence(format!("{KEYS} keys in a row are taken by other objects")))
    }

    /// The current image of every page of the block. None if no page has a slot.
    fn gather(&self, block: BlockId, codec: Codec) -> Result<Option<Gathered>, SinkError> {
        let mut failed = None;
        for _ in 0..GATHERS {
            let state = self.map.block(block);
            if !state.homes.iter().flatten().any(|home| home.slot.is_some()) {
                return Ok(None);
            }
            match self.gather_once(block, &state, codec) {
                Ok(gathered) => return Ok(Some(gathered)),
                Err((Some(i), error)) => {
                    // The page may have moved while we read: then its image is elsewhere.
                    let home = state.homes[i].map_or(Located::Never, Located::At);
                    if self.map.locate(block.page(i)) == home {
                        return Err(error);
                    }
                    failed = Some(error);
                }
                Err((None, error)) => return Err(error),
            }
        }
        Err(failed.unwrap_or(SinkError::Moving { block }))
    }

    /// Err says which page failed, if it was one.
    fn gather_once(
        &self,
        block: BlockId,
        state: &BlockState,
        codec: Codec,
    ) -> Result<Gathered, (Option<usize>, SinkError)> {
        let mut images = AlignedBuf::zeroed(BLOCK_BYTES);
        let (mut on_volume, mut far) = (Vec::new(), Vec::new());
        let mut need_object = false;
        for (i, home) in state.homes.iter().enumerate().filter_map(|(i, h)| h.map(|h| (i, h))) {
            let image = &mut images[i * PAGE_SIZE..(i + 1) * PAGE_SIZE];
            let in_memory = self.in_memory(block, i, home.tag, image);
            if home.slot.is_none() {
                need_object |= !in_memory
                    && !self.flash.as_ref().is_some_and(|flash| flash.seems_to_have(block.page(i)));
                far.push((i, home, in_memory));
            } else if !in_memory {
                on_volume.push((i, home));
            }
        }
        self.from_volume(block, &on_volume, &mut images)?;
        // If the old object must be asked, it gives all that it has with one request, and as it will be stored again. If
        // not, each page is near.
        let mut packed = vec![None; state.homes.len()];
        let mut in_object = Vec::new();
        for (i, home, in_memory) in far {
            let image = &mut images[i * PAGE_SIZE..(i + 1) * PAGE_SIZE];
            if need_object || !in_memory && !self.on_flash(block, i, home.tag, image) {
                in_object.push((i, home));
            }
        }
        self.from_object(block, &in_object, codec, &mut images, &mut packed)?;
        Ok(Gathered {
            images,
            tags: state.homes.iter().map(|h| h.map(|h| h.tag)).collect(),
            packed,
            taken: (0..state.homes.len())
                .filter_map(|i| state.homes[i].filter(|h| h.slot.is_some()).map(|h| (i, h.tag)))
                .collect(),
            snapshot_version: state.snapshot_version,
        })
    }

    fn in_memory(&self, block: BlockId, i: usize, tag: Tag, image: &mut [u8]) -> bool {
        self.pool.copy_clean(block.page(i), image) && page::seal(image) == tag
    }

    fn on_flash(&self, block: BlockId, i: usize, tag: Tag, image: &mut [u8]) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.find(block.page(i), tag, image))
    }

    fn from_volume(
        &self,
        block: BlockId,
        missing: &[(usize, Home)],
        images: &mut [u8],
    ) -> Result<(), (Option<usize>, SinkError)> {
        let slots: Vec<_> = missing.iter().filter_map(|(_, home)| home.slot).collect();
        let results = self.buffer.read_into(&slots, places(missing.iter().map(|(i, _)| *i), images));
        for ((i, home), result) in missing.iter().zip(results) {
            let image = &mut images[i * PAGE_SIZE..(i + 1) * PAGE_SIZE];
            let bad = match result {
                Ok(()) => page::check(image, block.page(*i), Some(home.tag))
                    .map_err(|bad| SinkError::Corrupt { id: block.page(*i), tier: Tier::Volume, bad }),
                Err(error) => Err(SinkError::Disk(error)),
            };
            match bad {
                Ok(()) => {}
                // Flash may have the same image, intact (invariant 9).
                Err(_) if self.on_flash(block, *i, home.tag, image) => {}
                Err(error) => return Err((Some(*i), error)),
            }
        }
        Ok(())
    }

    /// Pages that the codec has stored before come as they are stored, once their image has been looked at.
    fn from_object(
        &self,
        block: BlockId,
        missing: &[(usize, Home)],
        codec: Codec,
        images: &mut [u8],
        packed: &mut [Option<usize>],
    ) -> Result<(), (Option<usize>, SinkError)> {
        let mut wanted: Vec<(usize, Tag, InObject)> = Vec::new();
        for (i, home) in missing {
            let nowhere = SinkError::Nowhere { id: block.page(*i) };
            wanted.push((*i, home.tag, home.object.ok_or((Some(*i), nowhere))?));
        }
        let homes: Vec<InObject> = wanted.iter().map(|(_, _, at)| *at).collect();
        let targets = places(wanted.iter().map(|(i, _, _)| *i), images);
        let results = self.objects.read_stored(Purpose::Merge, &homes, targets, &mut |n, body, image| {
            let (i, tag, _) = wanted[n];
            if page::check(image, block.page(i), Some(tag)).is_ok() {
                packed[i] = self.objects.packer.take_over(codec, body, image);
            }
        });
        for ((i, tag, _), result) in wanted.iter().zip(results) {
            let (id, image) = (block.page(*i), &mut images[i * PAGE_SIZE..(i + 1) * PAGE_SIZE]);
            let bad = match result {
                Ok(()) if packed[*i].is_some() => Ok(()),
                Ok(()) => page::check(image, id, Some(*tag)).map_err(|bad| SinkError::Corrupt {
                    id,
                    tier: Tier::Object,
                    bad,
                }),
                Err(error) => Err(from_body(id, error)),
            };
            match bad {
                Ok(()) => {}
                // Memory or flash may have the same image, intact (invariant 9).
                Err(_) if self.in_memory(block, *i, *tag, image) || self.on_flash(block, *i, *tag, image) => {
                }
                Err(error) => return Err((Some(*i), error)),
            }
        }
        Ok(())
    }
}

fn from_body(id: PageId, error: BodyError) -> SinkError {
    match error {
        BodyError::Store(error) => error.into(),
        BodyError::Corrupt(bad) => SinkError::Corrupt { id, tier: Tier::Object, bad },
    }
}

/// The images of these pages of a block, in the block's order.
fn places(pages: impl Iterator<Item = usize>, images: &mut [u8]) -> Vec<&mut [u8]> {
    let mut all = images.chunks_exact_mut(PAGE_SIZE).enumerate();
    pages.filter_map(|i| all.find(|(place, _)| *place == i).map(|(_, image)| image)).collect()
}
