//! Fills on their way to flash: a bounded queue that nobody waits for.
//!
//! A fill is in the index from the moment it is queued. Until its write has ended its image is here:
//! a reader is served from here, an invalidation cancels it. A fill that is already being written
//! can't be called back; it is marked, and its slot is not used again before the write has ended. So
//! no write lands after its page was invalidated, where a reader could find it.
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
    /// Places promised to fills whose image is being copied.
    promised: usize,
    /// At most so many fills are here at once.
    max: usize,
    /// Buffers to use again.
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

    /// More than half of the places are taken.
    pub fn is_behind(&self) -> bool {
        2 * self.len() > self.max
    }

    /// Promises a place, with a buffer to copy the image to. None if the queue is full.
    pub fn promise(&mut self) -> Option<Option<Arc<AlignedBuf>>> {
        if self.len() >= self.max {
            return None;
        }
        self.promised += 1;
        Some(self.spare.pop())
    }

    /// Redeems a promise with the fill, or with nothing.
    pub fn redeem(&mut self, fill: Option<Fill>) {
        assert!(self.promised > 0, "a place in the fill queue was redeemed that nobody promised");
        self.promised -= 1;
        self.queue.extend(fill);
    }

    /// The image that is on its way to `slot`.
    pub fn find(&self, slot: FlashSlot) -> Option<&Fill> {
        self.queue.iter().chain(&self.writing).find(|f| f.slot == slot)
    }

    /// Takes a queued fill back. False if it is being written already.
    pub fn cancel(&mut self, slot: FlashSlot) -> bool {
        let Some(at) = self.queue.iter().position(|f| f.slot == slot) else { return false };
        if let Some(fill) = self.queue.remove(at) {
            self.keep(fill.image);
        }
        true
    }

    /// The next up to `max` fills, in the order of their slots. They stay findable until `written`.
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

    /// Forgets what is queued. What is being written stays until it has ended.
    pub fn clear(&mut self) -> Vec<Fill> {
        self.queue.drain(..).collect()
    }

    fn keep(&mut self, image: Arc<AlignedBuf>) {
        // A worker or reader may still hold it: then it is freed when they let go.
        if Arc::strong_count(&image) == 1 {
            self.spare.push(image);
        }
    }
}

/// A buffer with a copy of the image: the given one if nobody else holds it.
pub(crate) fn copied(spare: Option<Arc<AlignedBuf>>, image: &[u8]) -> Arc<AlignedBuf> {
    let mut buf = spare.unwrap_or_else(|| Arc::new(AlignedBuf::zeroed(PAGE_SIZE)));
    match Arc::get_mut(&mut buf) {
        Some(bytes) => bytes[..image.len()].copy_from_slice(image),
        None => buf = Arc::new(AlignedBuf::from_slice(image)),
    }
    buf
}
