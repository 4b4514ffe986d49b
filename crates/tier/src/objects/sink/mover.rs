//! Sinks one block: gathers its pages (`gather`), puts one object, and updates the map. [`Mover::sink`] is the path of a sink,
//! one line a step. CloudJump III §3.2 (W3, W4), §4.2.4.
//!
//! If few of the block's pages changed, a *patch object* is put: only those pages, and those whose newest images are in the
//! previous patch. The block's object stays beside it (`policy::form`). Either way a block names at most two objects.
//!
//! Each page is recorded with the tag that it had when it was gathered. Only pages that still have this tag when the object is
//! published are clean then; a page that was flushed meanwhile keeps its slot.
//!
//! A crash before the publication is durable leaves an unreferenced object (`collect` finds it); a later one, a block that is
//! clean. Publication is idempotent.
//!
//! Locks: none held over any step. One mover a block at a time (`sink` ensures it).

use super::gather::Gathered;
use super::room::SinkMemory;
use super::{Patches, Sequences, SinkError};
use crate::address::ObjectKey;
use crate::address::PATCH_MAX;
use crate::flash::FlashCache;
use crate::memory::pool::Pool;
use crate::objects::collect::Collector;
use crate::objects::fence::Fence;
use crate::objects::object::{Draft, Objects, PutError};
use crate::page::{BLOCK_PAGES, BlockId, PAGE_SIZE, Tag};
use crate::volume::map::Map;
use crate::volume::object_buffer::ObjectBuffer;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use terrace_io::sched::Sched;
use terrace_io::store::{Bytes, StoreError};
use terrace_log::Redo;

/// Maximum number of consecutive keys that may be found taken.
const KEYS: usize = 16;
/// Number of attempts of a put before its key is given up.
const PUTS: usize = 3;
/// A block's images.
pub(super) const BLOCK_BYTES: usize = BLOCK_PAGES as usize * PAGE_SIZE;

/// The services that a sink needs.
pub(super) struct Mover {
    pub map: Arc<Map>,
    pub buffer: Arc<ObjectBuffer>,
    pub pool: Arc<Pool>,
    pub redo: Arc<dyn Redo>,
    pub flash: Option<Arc<dyn FlashCache>>,
    pub objects: Arc<Objects>,
    pub fence: Arc<Fence>,
    pub sequences: Arc<dyn Sequences>,
    /// None: no patches are put.
    pub patches: Option<Arc<dyn Patches>>,
    pub collector: Arc<Collector>,
    pub sched: Arc<dyn Sched>,
    pub room: SinkMemory,
    /// Images that were damaged in the nearest tier, and were taken from another copy with the same tag.
    pub repaired: AtomicU64,
}

/// The outcome of sinking a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sunk {
    /// Its pages are in a new object; this number of them was only in slots before. `patch`: the object has these pages and few
    /// others, and the block's object stays beside it.
    Put { pages: u32, patch: bool },
    /// No page of it has a slot.
    Nothing,
    /// Its space was dropped meanwhile, or its pages were freed.
    Gone,
}

impl Mover {
    /// Requires that the store is this instance's (`Fence::keep_up`). Also returns the object's size in bytes.
    pub fn sink(&self, block: BlockId) -> Result<(Sunk, usize), SinkError> {
        let codec = self.objects.codecs.of(block.space);
        let mut patches = true;
        let (place, bytes, gathered) = loop {
            let mut place = self.room.take(self.expected(block, codec, patches));
            let Some(gathered) = self.gather(block, codec, patches)? else { return Ok((Sunk::Nothing, 0)) };
            let bytes = gathered.pages.iter().map(|(_, _, body)| body.len()).sum();
            // Larger than estimated: the map could not name it.
            if gathered.beside.is_some() && bytes > PATCH_MAX {
                patches = false;
                continue;
            }
            place.fit(gathered.held);
            break (place, bytes, gathered);
        };
        self.sched.point("sink-gathered");
        let Gathered { pages, taken, snapshot_version, beside, .. } = gathered;
        if beside.is_some() && !crate::planted::PATCHES_NOT_NOTED.on() {
            self.patches.iter().try_for_each(|patches| patches.note()).map_err(SinkError::Unnoted)?;
        }
        let (key, shape) = self.put(block, snapshot_version, &pages)?;
        // The bytes are released before the wait for the log.
        drop(pages);
        drop(place);
        self.sched.point("sink-put");
        if let Some(lost) = self.fence.lost().filter(|_| !crate::planted::FENCED_PUBLISHES.on()) {
            return Err(lost.into()); // a fenced instance publishes nothing
        }
        let published = match &beside {
            None => self.map.publish_object(block, &taken, &shape),
            Some(base) => self.map.publish_patch(block, &taken, &shape, base),
        };
        if !matches!(published, Ok(Some(_))) {
            self.collector.orphan(key);
        }
        let Some(range) = published? else { return Ok((Sunk::Gone, bytes)) };
        self.sched.point("sink-published");
        // Only now slots become free, and the old object may be deleted.
        self.redo.make_durable(range.end)?;
        self.map.settle();
        Ok((Sunk::Put { pages: taken.len() as u32, patch: beside.is_some() }, bytes))
    }

    /// Puts the pages under a new key. If the outcome of a put is unknown when it is given up, its key is left to collection.
    fn put(
        &self,
        block: BlockId,
        snapshot_version: u64,
        pages: &[(usize, Tag, Bytes)],
    ) -> Result<(ObjectKey, crate::address::ObjectShape), SinkError> {
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
                    // It has other content, so it is not ours and must not be deleted. Use the next number.
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
}
