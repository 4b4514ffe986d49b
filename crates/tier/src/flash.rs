//! Caches on local flash: volatile, clean copies only.
//!
//! What decides and remembers is generic over the key (`key`) and, where bytes are judged, over how a value proves itself: the admission
//! policies (`admission`), the ghost list (`ghost`), the hash table of slots (`table`), the queue of writes (`fills`), and the rules of
//! what may be served (`core`). Two caches stand on it: pages in slots of one size (`bpe`, the buffer pool extension, behind the trait below), and
//! values of any size in segments (`blocks`, for fronts).

pub mod admission;
pub mod blocks;
pub mod bpe;
mod core;
mod fills;
pub mod ghost;
pub mod key;
mod table;

use crate::page::{PageId, Tag};
use terrace_io::sched::Event;

/// What admission needs to know about a clean page that is evicted.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Its uses in memory, the first included.
    pub accesses: u8,
    /// The volume has the page, and misses do not mostly wait for the volume: the flash space is better used for other pages.
    pub near: bool,
}

impl Leaving {
    /// A page with this number of uses that flash may admit.
    pub fn used(accesses: u8) -> Leaving {
        Leaving { accesses, near: false }
    }
}

/// The flash extension, as the path and the flusher see it.
pub trait FlashCache: Send + Sync {
    /// Whether flash probably has an image of the page; does no I/O.
    fn seems_to_have(&self, id: PageId) -> bool;
    /// Fills `image` if the flash has the page's image with this tag, intact.
    fn find(&self, id: PageId, tag: Tag, image: &mut [u8]) -> bool;
    /// As `find` for several pages, in one batch where that costs less: one answer a page. A page that is not found counts as a
    /// miss only when it is looked up by itself.
    fn find_many(&self, pages: &[(PageId, Tag)], images: &mut [&mut [u8]]) -> Vec<bool> {
        pages.iter().zip(images).map(|((id, tag), image)| self.find(*id, *tag, image)).collect()
    }
    /// A clean page with this image is evicted: admit it or remember its identifier. Never waits. Returns true if it was left on
    /// the volume (`Leaving::near`) and is worth a copy when it sinks.
    fn evicted(&self, id: PageId, tag: Tag, image: &[u8], leaving: Leaving) -> bool;
    /// The page was flushed with new content: no copy of it is current any more.
    fn invalidate(&self, id: PageId);
    /// As `invalidate`, and if there was a copy, this image replaces it. Never waits. Returns false if it did not.
    fn rewrite(&self, id: PageId, tag: Tag, image: &[u8]) -> bool {
        let _ = (tag, image);
        self.invalidate(id);
        false
    }
    /// Writes the image that flash has again. Never waits.
    fn write_again(&self, id: PageId, image: &[u8]) {
        let _ = (id, image);
    }
    /// Whether the queue of writes is long.
    fn is_behind(&self) -> bool {
        false
    }
    /// Notified when queued writes have completed: for callers that prefer waiting to having their pages dropped.
    fn written(&self) -> Option<&Event> {
        None
    }
}
