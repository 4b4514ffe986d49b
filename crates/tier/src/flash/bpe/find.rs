//! Finding pages: first in the index, then in the fill queue or on the device, where the image itself decides.
//!
//! Several pages take one index look-up and one batch of reads: a request to flash has the same latency however many pages it
//! reads.

use super::image::PageImages;
use super::index::FlashSlot;
use super::{Bpe, Lookup, count};
use crate::flash::core::{LookedUp, expected};
use crate::flash::key::{Validity, Verdict, mark as mark_of};
use crate::page::{PageId, Tag};
use terrace_io::disk::DiskError;

/// A page that is searched for.
#[derive(Clone, Copy)]
struct Wanted {
    id: PageId,
    mark: u32,
    tag: Tag,
}

impl Wanted {
    fn new(id: PageId, tag: Tag) -> Wanted {
        Wanted { id, mark: mark_of(id), tag }
    }
}

impl Bpe {
    /// Finds the page's current image, which has the tag `expected`. Does at most one read for each slot that matches. The
    /// content of `image` is undefined if the page is absent.
    pub fn find(&self, id: PageId, expected: Tag, image: &mut [u8]) -> Lookup {
        let page = Wanted::new(id, expected);
        let look = {
            let mut state = self.state.lock();
            state.core.filter.missed(id);
            state.core.look(page.id, page.mark)
        };
        let found = match look {
            LookedUp::Queued(slot, queued) => self.serve_queued(page, slot, &queued, image),
            LookedUp::OnFlash(slots) => slots.iter().any(|slot| self.read_slot(page, *slot, image)),
        };
        count(if found { &self.counters.hits } else { &self.counters.misses });
        if found { Lookup::Hit } else { Lookup::Absent }
    }

    /// As `find` for several pages: one index look-up, and one batch of reads. Returns true for each page found. Pages not found
    /// are not counted: a reader that needs one looks it up by itself.
    pub fn find_many(&self, pages: &[(PageId, Tag)], images: &mut [&mut [u8]]) -> Vec<bool> {
        let pages: Vec<Wanted> = pages.iter().map(|(id, tag)| Wanted::new(*id, *tag)).collect();
        let looks: Vec<LookedUp> = {
            let state = self.state.lock();
            pages.iter().map(|page| state.core.look(page.id, page.mark)).collect()
        };
        let mut found = vec![false; pages.len()];
        let (mut places, mut parts) = (Vec::new(), Vec::new());
        for (i, (look, image)) in looks.iter().zip(images.iter_mut()).enumerate() {
            match look {
                LookedUp::Queued(slot, queued) => {
                    found[i] = self.serve_queued(pages[i], *slot, queued, image)
                }
                LookedUp::OnFlash(slots) => {
                    if let Some(slot) = slots.first() {
                        places.push((i, *slot));
                        parts.push((*slot, &mut **image));
                    }
                }
            }
        }
        let read = match &self.files {
            Some(files) if !parts.is_empty() => files.chunks.read_many(parts),
            _ => Vec::new(),
        };
        // One device fault may fail a whole batch: that counts as one error.
        let mut failed = false;
        for ((i, slot), read) in places.into_iter().zip(read) {
            match read {
                Ok(()) => found[i] = self.serves(pages[i], slot, images[i]),
                Err(error) => failed |= self.lost(pages[i], slot, Some(&error).filter(|_| !failed)),
            }
        }
        for (i, look) in looks.iter().enumerate() {
            // Another page with the same fingerprint was tried first.
            if let LookedUp::OnFlash(slots) = look
                && !found[i]
            {
                found[i] = slots.iter().skip(1).any(|slot| self.read_slot(pages[i], *slot, images[i]));
            }
        }
        let mut state = self.state.lock();
        for (page, _) in pages.iter().zip(&found).filter(|(_, found)| **found) {
            state.core.filter.missed(page.id);
            count(&self.counters.hits);
        }
        found
    }

    fn serve_queued(&self, page: Wanted, slot: FlashSlot, queued: &[u8], image: &mut [u8]) -> bool {
        count(&self.counters.queue_hits);
        image.copy_from_slice(queued);
        self.serves(page, slot, image)
    }

    /// Reads the slot. Returns true if it has the image.
    fn read_slot(&self, page: Wanted, slot: FlashSlot, image: &mut [u8]) -> bool {
        let Some(files) = &self.files else { return false };
        match files.chunks.read(slot, image) {
            Ok(()) => self.serves(page, slot, image),
            Err(DiskError::Overdue { .. }) => false, // the reader has another copy
            Err(error) => {
                self.lost(page, slot, Some(&error));
                false
            }
        }
    }

    /// The slot could not be read, with an error that counts if one is given. Returns false if the slot was cut off after it was
    /// found in the index; that is not a device error.
    fn lost(&self, page: Wanted, slot: FlashSlot, error: Option<&DiskError>) -> bool {
        if slot >= self.state.lock().core.index.limit() {
            return false;
        }
        if let Some(error) = error {
            self.failed(error);
        }
        self.state.lock().core.index.remove_if(slot, page.mark);
        true
    }

    /// Whether the image, which came from `slot`, may be served. If not, the slot is freed, unless it belongs to another page.
    fn serves(&self, page: Wanted, slot: FlashSlot, image: &[u8]) -> bool {
        let Wanted { id, mark, tag } = page;
        let verdict = PageImages::check(image, id, expected(tag));
        let mut state = self.state.lock();
        let served = state.core.judged(slot, mark, verdict);
        match verdict {
            Verdict::Current => {
                state.errors = 0;
                if let Some(rule) = self.rule_of(id) {
                    // Entries restored from an earlier run have no class until they are hit.
                    let class = state.class_of(Some(&rule));
                    state.core.index.classify(mark, class);
                }
            }
            Verdict::OtherKey { .. } => count(&self.counters.false_matches),
            Verdict::OtherVersion => count(&self.counters.stale),
            Verdict::Corrupt => count(&self.counters.corrupt),
        }
        served
    }
}

#[cfg(test)]
mod tests;
