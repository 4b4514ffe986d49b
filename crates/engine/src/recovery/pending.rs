//! Redo that is not applied yet, by page.
//!
//! Recovery fills it; a page's records are applied when the page is read for the first time, by
//! whoever reads it or by the background pass. A record that makes the page anew (`INIT`) makes those
//! before it needless, and the page needs no older image.
//!
//! **The bound**: until a page with its redo is in memory *and known dirty* (`admitted`), its first
//! record bounds the checkpoint. So the log still has every record that is waited for here.
//!
//! **Memory** is bounded: records are kept, packed, up to a budget; of those beyond it only the place
//! in the log is kept, and they are read again when they are needed. About 40 bytes a record besides.
//!
//! Lock: `inner`, for memory work; ops are copied out and applied without it. The claim on the page
//! (see `pool`) keeps two readers of one page apart.

use super::scan::{Place, Reader};
use crate::error::Error;
use crate::log::record::RecordHeader;
use crate::planted;
use crate::superblock::Superblock;
use hashbrown::HashMap;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::File;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_tier::below::ReadError;
use terrace_tier::page::{Glsn, PageId, PageRef, SpaceId};
use terrace_tier::path::PendingRedo;
use terrace_tier::redo;

/// Blocks read at a time when records are read again.
const REREAD_BLOCKS: u64 = 8;
/// Ops are packed into chunks of so many bytes, each freed when its last record is gone.
const CHUNK: usize = 64 << 10;

#[derive(Clone, Copy)]
enum Ops {
    /// Chunk and place in it.
    Kept(u32, u32),
    InLog(Place),
}

#[derive(Clone, Copy)]
struct Record {
    first: Glsn,
    end: Glsn,
    ops: Ops,
    len: u32,
}

#[derive(Default)]
struct Waiting {
    records: Vec<Record>,
    /// The first record's range: no checkpoint may pass it until the page is admitted.
    bound: Glsn,
    /// Applied to an image that is on its way into memory.
    applied: bool,
}

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    live: u32,
}

#[derive(Default)]
struct Inner {
    pages: HashMap<PageId, Waiting>,
    bounds: BTreeSet<(Glsn, PageId)>,
    /// For the background pass: every page once, the oldest bound first.
    queue: VecDeque<PageId>,
    chunks: Vec<Chunk>,
    kept_bytes: usize,
}

impl Inner {
    fn keep(&mut self, ops: &[u8]) -> Ops {
        if self.chunks.last().is_none_or(|c| c.bytes.len() + ops.len() > CHUNK) {
            self.chunks.push(Chunk { bytes: Vec::with_capacity(CHUNK.max(ops.len())), live: 0 });
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let at = chunk.bytes.len();
        chunk.bytes.extend_from_slice(ops);
        chunk.live += 1;
        self.kept_bytes += ops.len();
        Ops::Kept(number as u32, at as u32)
    }

    fn let_go(&mut self, records: &[Record]) {
        let chunks = self.chunks.len();
        for record in records {
            if let Ops::Kept(number, _) = record.ops {
                let chunk = &mut self.chunks[number as usize];
                chunk.live -= 1;
                self.kept_bytes -= record.len as usize;
                // The last one is still being filled.
                if chunk.live == 0 && number as usize + 1 < chunks {
                    chunk.bytes = Vec::new();
                }
            }
        }
    }

    fn forget(&mut self, id: PageId) {
        if let Some(waiting) = self.pages.remove(&id) {
            self.bounds.remove(&(waiting.bound, id));
            self.let_go(&waiting.records);
            if self.pages.is_empty() {
                self.chunks = Vec::new();
            }
        }
    }
}

pub struct Pending {
    inner: Mutex<Inner, { Mutexes::Pending as u8 }>,
    budget: usize,
    superblock: Superblock,
    files: Vec<Arc<dyn File>>,
    pub counters: PendingCounters,
}

#[derive(Default, Debug)]
pub struct PendingCounters {
    /// Records that recovery handed over; pages that were given theirs.
    pub records: AtomicU64,
    pub applied: AtomicU64,
    /// Records that were read from the log a second time.
    pub reread: AtomicU64,
}

impl Pending {
    /// `superblock` is the one that recovery reads by; `budget` bounds the ops kept, in bytes.
    pub fn new(superblock: Superblock, files: Vec<Arc<dyn File>>, budget: usize) -> Pending {
        Pending { inner: Mutex::default(), budget, superblock, files, counters: PendingCounters::default() }
    }

    /// Takes a record that recovery found; in GLSN order.
    pub fn add(&self, header: &RecordHeader, ops: &[u8], place: Place) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        self.counters.records.fetch_add(1, Ordering::Relaxed);
        if redo::starts_with_init(ops) {
            let before = inner.pages.get_mut(&header.id).map(|w| std::mem::take(&mut w.records));
            before.into_iter().for_each(|records| inner.let_go(&records));
        }
        let ops_at =
            if inner.kept_bytes + ops.len() <= self.budget { inner.keep(ops) } else { Ops::InLog(place) };
        let record = Record { first: header.first, end: header.end(), ops: ops_at, len: ops.len() as u32 };
        let waiting = inner.pages.entry(header.id).or_insert_with(|| {
            inner.bounds.insert((header.first, header.id));
            inner.queue.push_back(header.id);
            Waiting { bound: header.first, ..Waiting::default() }
        });
        waiting.records.push(record);
    }

    /// Pages that still wait for their redo.
    pub fn pages(&self) -> usize {
        self.inner.lock().pages.len()
    }

    /// Bytes of ops in memory.
    pub fn kept_bytes(&self) -> usize {
        self.inner.lock().kept_bytes
    }

    /// No checkpoint may pass this.
    pub fn oldest(&self) -> Option<Glsn> {
        if planted::PENDING_REDO_PASSED.on() {
            return None;
        }
        self.inner.lock().bounds.first().map(|(first, _)| *first)
    }

    /// Forgets the redo of every space that is not kept: they were dropped.
    pub fn retain_spaces(&self, keep: impl Fn(SpaceId) -> bool) {
        let mut inner = self.inner.lock();
        let gone: Vec<PageId> = inner.pages.keys().filter(|id| !keep(id.space)).copied().collect();
        gone.into_iter().for_each(|id| inner.forget(id));
    }

    /// The next page of the background pass. None: all are done.
    pub(crate) fn next_page(&self) -> Option<PageId> {
        let mut inner = self.inner.lock();
        while let Some(id) = inner.queue.pop_front() {
            if inner.pages.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }

    /// The page is in memory, or free. If its redo was not applied on the way there, it was made anew since (a freed
    /// page's number was used again), or will be: the log has that, and what waited for the old page is needless.
    pub(crate) fn done_with(&self, id: PageId) {
        self.inner.lock().forget(id);
    }

    /// The page could not be read now; it comes again after the others.
    pub(crate) fn put_back(&self, id: PageId) {
        self.inner.lock().queue.push_back(id);
    }

    /// What waits for a page, with the ops that are in memory.
    fn look_up(&self, id: PageId) -> Option<Vec<(Record, Option<Vec<u8>>)>> {
        let inner = self.inner.lock();
        let waiting = inner.pages.get(&id).filter(|w| !w.applied)?;
        let with_ops = |record: &Record| match record.ops {
            Ops::Kept(chunk, at) => {
                let at = at as usize;
                Some(inner.chunks[chunk as usize].bytes[at..at + record.len as usize].to_vec())
            }
            Ops::InLog(_) => None,
        };
        Some(waiting.records.iter().map(|r| (*r, with_ops(r))).collect())
    }

    /// The ops of a record that is not kept in memory. `readers` are those of the page's records before:
    /// what changed a page often stands in few blocks of the log, and each is read once.
    fn reread(
        &self,
        id: PageId,
        record: &Record,
        readers: &mut Vec<(usize, Reader)>,
    ) -> Result<Vec<u8>, ReadError> {
        let Ops::InLog(place) = record.ops else { unreachable!("records in memory come with their ops") };
        self.counters.reread.fetch_add(1, Ordering::Relaxed);
        let number = place.partition as usize;
        let at = readers.iter().position(|(n, _)| *n == number).unwrap_or_else(|| {
            let reader = Reader::new(&self.superblock, number, self.files[number].clone(), REREAD_BLOCKS);
            readers.push((number, reader));
            readers.len() - 1
        });
        let reader = &mut readers[at].1;
        let bad = |cause: String| ReadError::BadRedo { id, cause };
        let ops = reader.ops(place, record.len as usize).map_err(|e: Error| bad(e.to_string()))?;
        ops.ok_or_else(|| bad(format!("the log's record at {} cannot be read any more", record.first)))
    }

    /// Applies what waits for the page to its image, and keeps it: for looking. The same in any number of
    /// calls, as long as nobody applies it for good.
    pub fn show(&self, id: PageId, image: &mut [u8]) -> Result<(), ReadError> {
        match self.look_up(id) {
            Some(records) => self.bring_up(id, records, image).map(drop),
            None => Ok(()),
        }
    }

    /// Applies the records to the image. Returns the first log position applied.
    fn bring_up(
        &self,
        id: PageId,
        records: Vec<(Record, Option<Vec<u8>>)>,
        image: &mut [u8],
    ) -> Result<Option<Glsn>, ReadError> {
        let mut first = None;
        let mut readers = Vec::new();
        for (record, ops) in records {
            let before = PageRef::new(image).lsn();
            if before >= record.end && !terrace_tier::planted::REDO_APPLIED_TWICE.on() {
                continue; // the image has it
            }
            let ops = match ops {
                Some(ops) => ops,
                None => self.reread(id, &record, &mut readers)?,
            };
            if before == 0 && !redo::starts_with_init(&ops) {
                let cause =
                    format!("no tier has its image, and its redo begins at {} without one", record.first);
                return Err(ReadError::BadRedo { id, cause });
            }
            first = first.or(Some(record.first));
            redo::apply(image, id, &ops, record.end)
                .map_err(|e| ReadError::BadRedo { id, cause: e.to_string() })?;
        }
        Ok(first)
    }
}

impl PendingRedo for Pending {
    fn apply(&self, id: PageId, image: &mut [u8]) -> Result<Option<Glsn>, ReadError> {
        let Some(records) = self.look_up(id) else { return Ok(None) };
        let first = self.bring_up(id, records, image)?;
        self.counters.applied.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if first.is_none() {
            inner.forget(id); // the image had it all
        } else if let Some(waiting) = inner.pages.get_mut(&id) {
            waiting.applied = true;
            let records = std::mem::take(&mut waiting.records);
            inner.let_go(&records);
        }
        Ok(first)
    }

    fn has(&self, id: PageId) -> bool {
        self.inner.lock().pages.contains_key(&id)
    }

    fn admitted(&self, id: PageId) {
        let mut inner = self.inner.lock();
        if inner.pages.get(&id).is_some_and(|w| w.applied) {
            inner.forget(id);
        }
    }
}
