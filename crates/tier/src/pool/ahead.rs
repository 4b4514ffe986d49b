//! Reading ahead: a scan that misses a page claims those behind it too, if one request brings them along.

use super::Pool;
use crate::below::{Fetched, ReadError};
use crate::frame::FrameNo;
use crate::page::PageId;
use std::sync::atomic::Ordering;

/// Pages read ahead in one request, at the most: with the one that is wanted half a megabyte.
const AHEAD_MAX: usize = 31;

impl Pool {
    /// Claims pages behind `id` that come with it. Only in the middle of a scan: one of the two pages before it is in
    /// memory. Takes frames that are free beyond need, and waits for none.
    pub(super) fn claim_ahead(&self, id: PageId) -> Vec<(PageId, FrameNo)> {
        let near = |back: u32| {
            id.page
                .checked_sub(back)
                .is_some_and(|page| self.table.find(&self.arena, PageId::new(id.space, page)).is_some())
        };
        if !near(1) && !near(2) {
            return Vec::new();
        }
        let spare = self.free_frames().saturating_sub(self.free_low() / 2).min(AHEAD_MAX);
        if spare == 0 {
            return Vec::new();
        }
        let mut claimed = Vec::new();
        for ahead in self.below.ahead(id, spare) {
            let Some(no) = self.spare_frame() else { break };
            if !self.claim(ahead, no) {
                self.give_frame(no); // in memory already
                break;
            }
            claimed.push((ahead, no));
        }
        claimed
    }

    /// A free frame if some would be left.
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

    /// Fetches a claimed page together with those claimed ahead, which become known to all, or are forgotten.
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
                Ok(fetched) => {
                    self.frame(*no).came(self.period.load(Ordering::Relaxed), false);
                    self.admit(*id, *no, fetched);
                    self.counters.read_ahead.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => self.unclaim(*id, *no),
            }
        }
        wanted
    }
}
