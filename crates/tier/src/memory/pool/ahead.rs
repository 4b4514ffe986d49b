//! Read-ahead: a scan that misses a page also claims the next pages, if the same request can fetch them.
//!
//! A prefetched page counts as read at its first use, from the tier that it came from: its frame stores that tier until then.

use super::scans::Stretch;
use super::{Pool, ScanDirection};
use crate::limits::by_space::add;
use crate::limits::meter;
use crate::memory::frame::FrameNo;
use crate::memory::lower_tiers::{Fetched, ReadError};
use crate::memory::prefetch::PREFETCH_MAX;
use crate::memory::queues::EntryQueue;
use crate::page::{BLOCK_PAGES, PageId};
use std::cmp::Reverse;
use std::sync::atomic::Ordering;

/// Maximum number of pages read ahead in one request: with the wanted page half a megabyte.
const AHEAD_MAX: usize = 31;
/// Maximum distance between two wanted pages in one request: the pages between are read too, which saves a request.
const GAP: u32 = 8;

impl Pool {
    /// Sets the maximum number of pages that a prefetcher's request spans, which bounds its buffers. A miss during a scan reads
    /// no more pages along either.
    pub fn set_prefetch(&self, pages: usize) {
        self.prefetch_max.store(pages.clamp(1, PREFETCH_MAX), Ordering::Relaxed);
    }

    /// Claims pages ahead of `id` that the same request fetches, up to `max`. Only in the middle of a scan: one of the two pages
    /// before `id` (after it, in a descending scan) is in memory. Takes frames that are free beyond need, and waits for none.
    pub(super) fn claim_ahead(&self, id: PageId, max: usize, way: ScanDirection) -> Vec<(PageId, FrameNo)> {
        if max == 0 {
            return Vec::new();
        }
        let near = |back: u32| {
            let page = match way {
                ScanDirection::Up => id.page.checked_sub(back),
                ScanDirection::Down => id.page.checked_add(back),
            };
            page.is_some_and(|page| self.table.find(&self.arena, PageId::new(id.space, page)).is_some())
        };
        if !near(1) && !near(2) {
            return Vec::new();
        }
        let most = max.min(AHEAD_MAX).min(self.prefetch_max.load(Ordering::Relaxed));
        let spare = self.free_frames().saturating_sub(self.free_low() / 2).min(most);
        if spare < most {
            self.headroom.prefetch_was_short();
            self.frames_wanted.notify();
        }
        if spare == 0 {
            return Vec::new();
        }
        let mut claimed = Vec::new();
        let mut last = id;
        for ahead in self.below.ahead(id, spare, way) {
            // Pages that are in memory already are read along and dropped; but not too many of them, nor more than the buffers
            // hold.
            let (low, high) = if way == ScanDirection::Up { (last, ahead) } else { (ahead, last) };
            if !self.below.are_close(low, high, GAP) || ahead.page.abs_diff(id.page) as usize > most {
                break;
            }
            if self.has(ahead) {
                continue;
            }
            let Some(no) = self.spare_frame() else { break };
            if !self.claim(ahead, no) {
                self.give_frame(no);
                continue;
            }
            last = ahead;
            claimed.push((ahead, no));
        }
        claimed
    }

    /// Fetches the pages of a stretch that are not in memory, neighbours together: those on flash from flash, the others from
    /// below. Ends when no frames can be spared. Errors are ignored: a reader that needs the page will see them.
    pub(crate) fn prefetch(&self, stretch: Stretch) {
        let Stretch { mut from, count, way } = stretch;
        let mut left = match way {
            ScanDirection::Up => count.min((u32::MAX - from.page).saturating_add(1)),
            ScanDirection::Down => count.min(from.page.saturating_add(1)),
        };
        while left > 0 {
            let in_block = from.in_block() as u32;
            let (first, room) = match way {
                ScanDirection::Up => (from, left.min(BLOCK_PAGES - in_block)),
                ScanDirection::Down => {
                    let room = left.min(in_block + 1);
                    (PageId::new(from.space, from.page - (room - 1)), room)
                }
            };
            let mut parts = self.requests(first, room as usize);
            if way == ScanDirection::Down {
                parts.sort_by_key(|part| Reverse(part.last().copied()));
            }
            if !parts.iter().all(|part| self.prefetch_run(part)) {
                return;
            }
            left -= room;
            let next = match way {
                ScanDirection::Up => from.page.checked_add(room),
                ScanDirection::Down => from.page.checked_sub(room),
            };
            let Some(next) = next else { return };
            from.page = next;
        }
    }

    /// The requests for those of the block's next `room` pages from `from` on that are not in memory: one list of pages for each
    /// request.
    fn requests(&self, from: PageId, room: usize) -> Vec<Vec<PageId>> {
        // The number of pages that one request spans.
        let most = self.prefetch_max.load(Ordering::Relaxed) as u32;
        let mut parts = Vec::new();
        for mut group in self.below.stretch(from, room) {
            group.retain(|id| !self.has(*id));
            for run in group.chunk_by(|one, next| self.below.are_close(*one, *next, GAP)) {
                let mut rest = run;
                while let Some(first) = rest.first() {
                    let end = first.page.saturating_add(most);
                    let (part, behind) = rest.split_at(rest.partition_point(|id| id.page < end).max(1));
                    parts.push(part.to_vec());
                    rest = behind;
                }
            }
        }
        parts
    }

    /// Loads the page, and with it those of the `before` pages before it and the `after` pages after it that the same request
    /// fetches. Does nothing if no frames can be spared, or if each page needs a request of its own. Errors are ignored: a reader
    /// that needs the page will see them.
    pub(crate) fn bring_with(&self, id: PageId, before: u32, after: u32) {
        let mut ids = self.below.beside(id, before, after);
        ids.retain(|id| !self.has(*id));
        let most = self.prefetch_max.load(Ordering::Relaxed) as u32;
        let is_with = |run: &&[PageId]| run.contains(&id);
        let Some(run) = ids.chunk_by(|one, next| self.below.are_close(*one, *next, GAP)).find(is_with) else {
            return;
        };
        // No more than the buffers hold: the pages after `id` first.
        let from = run.partition_point(|one| one.page < id.page);
        let behind = run[from..].partition_point(|one| one.page < id.page.saturating_add(most));
        let run = &run[..from + behind];
        let end = run.last().map_or(id.page, |last| last.page + 1);
        let first = run.partition_point(|one| one.page.saturating_add(most) < end);
        self.prefetch_run(&run[first.min(from)..]);
    }

    /// Returns false if no frames can be spared.
    fn prefetch_run(&self, ids: &[PageId]) -> bool {
        let mut claimed: Vec<(PageId, FrameNo)> = Vec::new();
        let mut room = true;
        for id in ids {
            let Some(no) = self.spare_frame() else {
                room = false;
                break;
            };
            if self.claim(*id, no) {
                claimed.push((*id, no));
            } else {
                self.give_frame(no);
            }
        }
        let Some(((id, no), ahead)) = claimed.split_first() else { return room };
        let since = self.world.clock.now();
        let fetched = if ahead.is_empty() {
            // SAFETY: the claim makes this thread the frame's only owner.
            self.below.fetch(*id, unsafe { self.arena.bytes_mut(*no) })
        } else {
            self.fetch_with(*id, *no, ahead)
        };
        match fetched {
            Ok(fetched) => {
                self.came_ahead(*id, *no, fetched);
                meter::spent(fetched.from, self.world.clock.now() - since);
                self.counters.prefetched.fetch_add(claimed.len() as u64, Ordering::Relaxed);
            }
            Err(_) => self.unclaim(*id, *no),
        }
        room
    }

    /// A prefetched page has been loaded.
    fn came_ahead(&self, id: PageId, no: FrameNo, fetched: Fetched) {
        self.sample_arrival(no, id, false);
        self.frame(no).came_ahead(self.period.load(Ordering::Relaxed), fetched.from);
        self.admit(id, no, fetched, EntryQueue::Old);
        self.counters.read_ahead.fetch_add(1, Ordering::Relaxed);
        add(&self.reads.of(id.space).ahead, 1);
    }

    /// A counted read has found a page that was apparently prefetched. Returns false if another reader was first: then this read
    /// is a hit.
    #[cold]
    pub(super) fn first_use(&self, no: FrameNo, id: PageId) -> bool {
        let Some(from) = self.frame(no).take_unused() else { return false };
        add(self.reads.of(id.space).from(from), 1);
        add(&self.counters.reads_below, 1);
        meter::first_use(from);
        true
    }

    /// A free frame, if enough others remain free.
    fn spare_frame(&self) -> Option<FrameNo> {
        let mut free = self.free.lock();
        let left = free.list.len();
        let no = if left > self.free_low() / 2 { free.list.pop() } else { None };
        drop(free);
        if left <= self.headroom.wake() {
            self.frames_wanted.notify();
        }
        no
    }

    /// Fetches a claimed page together with those claimed ahead. These are published, or their claims are dropped.
    pub(super) fn fetch_with(
        &self,
        id: PageId,
        no: FrameNo,
        ahead: &[(PageId, FrameNo)],
    ) -> Result<Fetched, ReadError> {
        let ids: Vec<PageId> = std::iter::once(id).chain(ahead.iter().map(|(id, _)| *id)).collect();
        let frames = std::iter::once(no).chain(ahead.iter().map(|(_, no)| *no));
        // SAFETY: the claims make this thread the only owner of these frames, which are all different.
        let mut images: Vec<&mut [u8]> = frames.map(|no| unsafe { self.arena.bytes_mut(no) }).collect();
        let mut results = self.below.fetch_run(&ids, &mut images).into_iter();
        let wanted = results.next().unwrap_or(Err(ReadError::Absent(id)));
        drop(images);
        for ((id, no), result) in ahead.iter().zip(results) {
            match result {
                Ok(fetched) => self.came_ahead(*id, *no, fetched),
                Err(_) => self.unclaim(*id, *no),
            }
        }
        wanted
    }
}

#[cfg(test)]
mod tests;
