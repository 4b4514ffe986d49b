//! Applies a table's limit of writes to the volume.
//!
//! The flusher never waits for tokens. Pages of a table without tokens stay dirty, other pages are flushed past them, and the
//! flusher returns to them when there are tokens. A thread that writes its own pages (a large value, a bulk build) waits before
//! it copies or takes anything: it holds no latch, no slot and no page that other threads could want to write.
//!
//! A limit is overridden by need, and pages written beyond it are counted (`Table::over`): when a thread waits for pages to be
//! flushed up to a position (`Flusher::request`: log space, slots, a clean shutdown), and when half of the frames are dirty.
//! Before that, writers of the table's rows are throttled (the engine's `write_throttle`), so that it happens because of other tables'
//! writes, or not at all.

use super::{FlushError, Flusher};
use crate::address::Tier;
use crate::limits::quota::Table;
use crate::memory::frame::FrameNo;
use crate::memory::pool::{dirty_limit, share};
use crate::page::{Glsn, PAGE_SIZE, PageId, SpaceId};
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_io::cancel::Cancel;
use terrace_io::clock::Nanos;
use terrace_io::observe;
use terrace_log::LogError;

/// Tokens arrive one by one, and one sync serves many pages: wait at least for this time's worth of tokens, in nanoseconds. Less
/// than a bucket holds.
const REST_MIN: Nanos = 50_000_000;
/// How often a waiting writer checks whether the limit is overridden.
const LOOK: Nanos = 20_000_000;
const PAGE: u64 = PAGE_SIZE as u64;

/// Number of dirty pages from which on limits are overridden: row writers are stopped slightly above it.
pub fn yields_at(frames: usize) -> usize {
    share(frames, 4, 29)
}

/// The tokens that a table has left in one choice.
struct TokensLeft {
    table: Arc<Table>,
    pages: u64,
    held: u64,
}

/// A choice of pages to flush: which of them may be written now.
pub(super) struct Turns<'f> {
    flusher: &'f Flusher,
    now: Nanos,
    any: bool,
    tables: HashMap<u32, TokensLeft>,
    /// Tables that limit their writes, by space.
    spaces: HashMap<SpaceId, Option<u32>>,
    urgent: Glsn,
    target: Glsn,
    /// With this number of dirty pages limits are overridden.
    beyond: usize,
    /// Many pages are dirty in addition to those held back.
    crowded: bool,
}

impl<'f> Turns<'f> {
    pub fn new(flusher: &'f Flusher) -> Turns<'f> {
        let (dirty, frames) = (flusher.pool.dirty_frames(), flusher.pool.frames_in_circulation());
        let beside = dirty.saturating_sub(flusher.held.load(Ordering::Relaxed));
        Turns {
            flusher,
            now: flusher.pool.world.clock.now(),
            any: flusher.writes.limit(),
            tables: HashMap::new(),
            spaces: HashMap::new(),
            urgent: flusher.urgent.load(Ordering::Acquire),
            target: flusher.target.load(Ordering::Acquire),
            beyond: dirty.saturating_sub(yields_at(frames)),
            crowded: beside > dirty_limit(frames),
        }
    }

    fn limiting(&mut self, space: SpaceId) -> Option<u32> {
        if let Some(known) = self.spaces.get(&space) {
            return *known;
        }
        let table = self.flusher.writes.limiting(space);
        let id = table.as_ref().map(|table| table.id);
        self.spaces.insert(space, id);
        if let Some(table) = table {
            // Wait for a batch's worth of tokens, instead of one sync a token.
            let due = table.write_wait(Tier::Volume, self.now.saturating_sub(REST_MIN)) == 0;
            let pages = if due { table.write_room(Tier::Volume, self.now, PAGE) } else { 0 };
            self.tables.entry(table.id).or_insert(TokensLeft { table, pages, held: 0 });
        }
        id
    }

    /// Chooses from the oldest pages. While pages are held back many are dirty, and some are older than the requested position:
    /// that is no reason to flush other tables' pages early.
    pub fn admits(&mut self, id: PageId, first: Glsn) -> bool {
        if !self.any {
            return true;
        }
        match self.limiting(id.space) {
            None => self.crowded || first < self.target,
            Some(table) => self.admits_of(table, first),
        }
    }

    /// Chooses from the pages that are evicted next.
    pub fn admits_cold(&mut self, id: PageId, first: Glsn) -> bool {
        let limiting = if self.any { self.limiting(id.space) } else { None };
        limiting.is_none_or(|table| self.admits_of(table, first))
    }

    fn admits_of(&mut self, table: u32, first: Glsn) -> bool {
        let Some(left) = self.tables.get_mut(&table) else { return true };
        let has_room = left.pages > 0;
        left.pages = left.pages.saturating_sub(1);
        let urgent = first < self.urgent;
        // When limits are overridden, row writers of the table are still throttled.
        left.held += u64::from(!has_room && !urgent);
        let yields = !has_room && !urgent && self.beyond > 0;
        self.beyond -= usize::from(yields);
        has_room || urgent || yields
    }

    /// Reports what is held back. Returns how long until some of it may be written; None: nothing is held back.
    pub fn end(self) -> Option<Nanos> {
        let mut all = 0;
        self.flusher.writes.each_limiting(|table| {
            let held = self.tables.get(&table.id).map_or(0, |left| left.held);
            table.pages_held.store(held, Ordering::Relaxed);
        });
        let mut wait = None;
        for left in self.tables.values().filter(|left| left.held > 0) {
            all += left.held;
            let mine = left.table.write_wait(Tier::Volume, self.now.saturating_sub(REST_MIN)).max(LOOK);
            wait = Some(wait.map_or(mine, |wait: Nanos| wait.min(mine)));
        }
        self.flusher.held.store(all as usize, Ordering::Relaxed);
        wait
    }
}

impl Flusher {
    /// The oldest dirty pages that may be written, and how long until more may be.
    pub(super) fn oldest_in_turn(&self, max: usize) -> (Vec<FrameNo>, Option<Nanos>) {
        let mut turns = Turns::new(self);
        let frames = self.pool.oldest_dirty_frames_that(max, |id, first| turns.admits(id, first));
        (frames, turns.end())
    }

    /// The same for the pages that are evicted next.
    pub(super) fn coldest_in_turn(&self, max: usize) -> (Vec<FrameNo>, Option<Nanos>) {
        let mut turns = Turns::new(self);
        let mut frames = self.pool.cold_dirty_frames(max);
        frames.retain(|no| {
            let frame = self.pool.frame(*no);
            frame.first_change().is_some_and(|first| turns.admits_cold(frame.id(), first))
        });
        (frames, turns.end())
    }

    /// The flusher has nothing to do: nothing is held back.
    pub(super) fn holds_nothing_back(&self) {
        self.held.store(0, Ordering::Relaxed);
        self.writes.each_limiting(|table| table.pages_held.store(0, Ordering::Relaxed));
    }

    /// Whether limits are overridden because of the number of dirty pages.
    fn yields_to_all(&self) -> bool {
        self.pool.dirty_frames() > yields_at(self.pool.frames_in_circulation())
    }

    /// Pages of the space were written to the volume.
    pub(crate) fn charge(&self, space: SpaceId, pages: u64) {
        if let Some(table) = self.writes.limiting(space) {
            table.wrote(Tier::Volume, self.pool.world.clock.now(), pages, pages * PAGE);
        }
    }

    /// Waits until the space's table may write to the volume, and returns how many pages it may write at once; takes no tokens.
    /// The caller holds no latch, and no page or slot that another thread could want. A caller that cannot be cancelled waits
    /// until `killed` is requested.
    pub(crate) fn wait_to_write(&self, space: SpaceId, killed: Option<&Cancel>) -> Result<usize, FlushError> {
        let world = &self.pool.world;
        let since = world.clock.now();
        loop {
            let progress = self.progress.ticket();
            let Some(table) = self.writes.limiting(space) else { return Ok(usize::MAX) };
            let now = world.clock.now();
            let room = table.write_room(Tier::Volume, now, PAGE);
            let urgent = self.urgent.load(Ordering::Acquire);
            let yields = || {
                killed.is_some_and(Cancel::is_asked)
                    || self.yields_to_all()
                    || self.pool.oldest_dirty().is_some_and(|first| first < urgent)
            };
            if room > 0 || yields() {
                if now > since {
                    table.waited_to_write(now - since);
                }
                return Ok(if room > 0 { room.min(usize::MAX as u64) as usize } else { usize::MAX });
            }
            if terrace_io::cancel::asked() {
                return Err(LogError::Cancelled.into());
            }
            let _shown = observe::wait(observe::Wait::Flush);
            let wait = table.write_wait(Tier::Volume, now).clamp(1, LOOK);
            world.sched.wait(&self.progress, progress, Some(wait));
        }
    }
}
