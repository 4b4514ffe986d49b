//! Pending flash writes (fills): a bounded queue that no thread waits for.
//!
//! A fill is in the index from the moment it is queued. Until its write has ended its image stays here: reads are served from
//! here, and an invalidation cancels it. A fill that is already being written can't be cancelled; it is marked, and its slot is
//! not reused before the write has ended. So after a page was invalidated, no late write puts the old image where a reader could
//! find it.
//!
//! Locks: the owner's.

use super::index::FlashSlot;
use crate::page::{PAGE_SIZE, PageId};
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_io::AlignedBuf;

/// A page's image that is to be, or is being, written to its slot.
#[derive(Clone)]
pub(crate) struct Fill {
    pub id: PageId,
    pub slot: FlashSlot,
    pub image: Arc<AlignedBuf>,
}

pub(crate) struct Fills {
    queue: VecDeque<Fill>,
    writing: Vec<Fill>,
    /// Entries promised to fills whose image is being copied.
    promised: usize,
    /// Maximum number of fills at once.
    max: usize,
    /// Buffers for reuse.
    spare: Vec<Arc<AlignedBuf>>,
}

impl Fills {
    pub fn new(max: usize) -> Fills {
        Fills {
            queue: VecDeque::with_capacity(max),
            writing: Vec::new(),
            promised: 0,
            max,
            spare: Vec::new(),
        }
    }

    /// Fills queued, promised and being written.
    pub fn len(&self) -> usize {
        self.queue.len() + self.writing.len() + self.promised
    }

    /// Whether more than half of the entries are taken.
    pub fn is_behind(&self) -> bool {
        2 * self.len() > self.max
    }

    /// Promises an entry, with a buffer to copy the image to. Returns None if the queue is full.
    pub fn promise(&mut self) -> Option<Option<Arc<AlignedBuf>>> {
        if self.len() >= self.max {
            return None;
        }
        self.promised += 1;
        Some(self.spare.pop())
    }

    /// Redeems a promise with the fill, or cancels it.
    pub fn redeem(&mut self, fill: Option<Fill>) {
        assert!(self.promised > 0, "a place in the fill queue was redeemed that nobody promised");
        self.promised -= 1;
        self.queue.extend(fill);
    }

    /// The image that is queued or being written to `slot`.
    pub fn find(&self, slot: FlashSlot) -> Option<&Fill> {
        self.queue.iter().chain(&self.writing).find(|f| f.slot == slot)
    }

    /// Cancels a queued fill. Returns false if it is being written already.
    pub fn cancel(&mut self, slot: FlashSlot) -> bool {
        let Some(at) = self.queue.iter().position(|f| f.slot == slot) else { return false };
        if let Some(fill) = self.queue.remove(at) {
            self.keep(fill.image);
        }
        true
    }

    /// The next up to `max` fills, in slot order. They can be found until `written`.
    pub fn start(&mut self, max: usize) -> Vec<Fill> {
        assert!(self.writing.is_empty(), "two fill workers");
        let n = max.min(self.queue.len());
        self.writing.extend(self.queue.drain(..n));
        self.writing.sort_unstable_by_key(|f| f.slot);
        self.writing.clone()
    }

    /// All writes that were started have ended.
    pub fn written(&mut self) {
        for fill in std::mem::take(&mut self.writing) {
            self.keep(fill.image);
        }
    }

    /// Drops the queued fills. Those being written stay until their writes have ended.
    pub fn clear(&mut self) -> Vec<Fill> {
        self.queue.drain(..).collect()
    }

    fn keep(&mut self, image: Arc<AlignedBuf>) {
        // A worker or reader may still hold it: then it is freed when they drop it.
        if Arc::strong_count(&image) == 1 {
            self.spare.push(image);
        }
    }
}

/// A buffer with a copy of the image: the given one if no other reference to it exists.
pub(crate) fn copied(spare: Option<Arc<AlignedBuf>>, image: &[u8]) -> Arc<AlignedBuf> {
    let mut buf = spare.unwrap_or_else(|| Arc::new(AlignedBuf::zeroed(PAGE_SIZE)));
    match Arc::get_mut(&mut buf) {
        Some(bytes) => bytes[..image.len()].copy_from_slice(image),
        None => buf = Arc::new(AlignedBuf::from_slice(image)),
    }
    buf
}
