//! Pending flash writes (fills): a bounded queue that no thread waits for.
//!
//! A fill is in the index from the moment it is queued. Until its write has ended its image stays here: reads are served from
//! here, and an invalidation cancels it. A fill that is already being written can't be cancelled; it is marked, and its slot is
//! not reused before the write has ended. So after a page was invalidated, no late write puts the old image where a reader could
//! find it.
//!
//! Generic over the key. Not here: where a fill is written (`bpe/worker`, `blocks/worker`).
//!
//! Locks: the owner's.

use super::key::Key;
use super::table::FlashSlot;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_io::AlignedBuf;

/// A value that is to be, or is being, written to its slot.
#[derive(Clone)]
pub(crate) struct Fill<K> {
    pub key: K,
    pub slot: FlashSlot,
    pub image: Arc<AlignedBuf>,
}

pub(crate) struct Fills<K> {
    queue: VecDeque<Fill<K>>,
    writing: Vec<Fill<K>>,
    /// Entries promised to fills whose image is being copied.
    promised: usize,
    /// Maximum number of fills at once.
    max: usize,
    /// Buffers for reuse: all have `image_bytes`.
    spare: Vec<Arc<AlignedBuf>>,
    /// The length of every image, in bytes; 0: images differ in length, and no buffer is kept.
    image_bytes: usize,
}

impl<K: Key> Fills<K> {
    /// A queue of at most `max` images of this length; 0: of any length.
    pub fn new(max: usize, image_bytes: usize) -> Fills<K> {
        Fills {
            queue: VecDeque::with_capacity(max),
            writing: Vec::new(),
            promised: 0,
            max,
            spare: Vec::new(),
            image_bytes,
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
    pub fn redeem(&mut self, fill: Option<Fill<K>>) {
        assert!(self.promised > 0, "a place in the fill queue was redeemed that nobody promised");
        self.promised -= 1;
        self.queue.extend(fill);
    }

    /// The image that is queued or being written to `slot`.
    pub fn find(&self, slot: FlashSlot) -> Option<&Fill<K>> {
        self.queue.iter().chain(&self.writing).find(|f| f.slot == slot)
    }

    /// Cancels a queued fill. Returns the bytes of its image; None if it is being written already.
    pub fn cancel(&mut self, slot: FlashSlot) -> Option<usize> {
        let at = self.queue.iter().position(|f| f.slot == slot)?;
        let fill = self.queue.remove(at)?;
        let bytes = fill.image.len();
        self.keep(fill.image);
        Some(bytes)
    }

    /// The queued fills, in order, without those that are being written.
    pub fn queued(&self) -> impl Iterator<Item = &Fill<K>> {
        self.queue.iter()
    }

    /// The next up to `max` fills, in slot order. They can be found until `written`.
    pub fn start(&mut self, max: usize) -> Vec<Fill<K>> {
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
    pub fn clear(&mut self) -> Vec<Fill<K>> {
        self.queue.drain(..).collect()
    }

    fn keep(&mut self, image: Arc<AlignedBuf>) {
        // A worker or reader may still hold it: then it is freed when they drop it.
        if Arc::strong_count(&image) == 1 && image.len() == self.image_bytes {
            self.spare.push(image);
        }
    }
}

/// A buffer of `len` bytes with a copy of the image: the given one if no other reference to it exists.
pub(crate) fn copied(spare: Option<Arc<AlignedBuf>>, image: &[u8], len: usize) -> Arc<AlignedBuf> {
    let mut buf = spare.unwrap_or_else(|| Arc::new(AlignedBuf::zeroed(len)));
    match Arc::get_mut(&mut buf) {
        Some(bytes) => bytes[..image.len()].copy_from_slice(image),
        None => buf = Arc::new(AlignedBuf::from_slice(image)),
    }
    buf
}
