//! Redo that is not applied yet, by page.
//!
//! Recovery fills it; a page's records are applied when the page is read for the first time, by
//! the thread that reads it or by the background pass. A record that creates the page anew (`INIT`) makes those
//! before it needless, and the page needs no older image.
//!
//! **The bound**: until a page with its redo is in memory *and known dirty* (`admitted`), its first
//! record bounds the checkpoint. So the log still has every record that is waited for here.
//!
//! **Memory**: records are kept, packed, up to a budget; beyond it only their place in the log is kept, and they are
//! read again when they are needed. The list of places counts in the budget, but is not bounded by it: 24 bytes a record, and
//! some 150 a page.
//!
//! Lock: `inner`, for memory work; ops are copied out and applied without it. The claim on the page
//! (see `pool`) keeps two readers of one page apart.

use super::packed::{self, At, Packed};
use crate::error::Error;
use crate::planted;
use crate::superblock::{LOG_BLOCKS_MAX, PARTITIONS_MAX};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::File;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_log::block::BLOCK;
use terrace_log::record::RecordHeader;
use terrace_log::recovery::{LogBounds, LogPosition, Reader};
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::page::{Glsn, PageId, PageRef, SpaceId};
use terrace_tier::read::PendingRedo;
use terrace_tier::redo;

/// Blocks read at a time when records are read again.
const REREAD_BLOCKS: u64 = 8;

#[derive(Clone, Copy)]
enum Ops {
    /// As [`At`].
    Kept { chunk: u32, at: u16 },
    /// A [`LogPosition`]: its block is counted from the partition's start, of which the superblock tells.
    InLog { partition: u8, offset: u16, block: u32 },
}

#[derive(Clone, Copy)]
struct Record {
    first: Glsn,
    length: u32,
    len: u32,
    ops: Ops,
}

impl Ops {
    fn kept(At { chunk, at }: At) -> Ops {
        Ops::Kept { chunk, at }
    }
}

/// There are very many.
const _: () = assert!(size_of::<Record>() == 24);
const _: () = assert!(BLOCK <= 1 << 16 && PARTITIONS_MAX <= 1 << 8 && LOG_BLOCKS_MAX <= 1 << 32);

impl Record {
    fn end(&self) -> Glsn {
        self.first + u64::from(self.length)
    }
}

type Records = SmallVec<[Record; 1]>;

#[derive(Default)]
struct Waiting {
    records: Records,
    /// The first record's range: no checkpoint may pass it until the page is admitted.
    bound: Glsn,
    /// Applied to an image that is on its way into memory.
    applied: bool,
}

#[derive(Default)]
struct Inner {
    pages: HashMap<PageId, Waiting>,
    bounds: BTreeSet<(Glsn, PageId)>,
    /// For the background pass: every page once, the oldest bound first.
    queue: VecDeque<PageId>,
    packed: Packed,
    /// Of all pages.
    records: usize,
}

impl Inner {
    fn bytes(&self) -> usize {
        self.packed.bytes() + self.records * size_of::<Record>()
    }

    fn keep(&mut self, owner: (PageId, Glsn), ops: &[u8]) -> Ops {
        let (at, full) = self.packed.put(owner, ops);
        full.into_iter().for_each(|chunk| self.tidy(chunk));
        Ops::kept(at)
    }

    /// They are no page's any more.
    fn let_go(&mut self, records: &[Record]) {
        self.records -= records.len();
        let mut sparse = SmallVec::<[u32; 4]>::new();
        for record in records {
            if let Ops::Kept { chunk, at } = record.ops
                && self.packed.let_go(At { chunk, at }, record.len as usize)
                && !sparse.contains(&chunk)
            {
                sparse.push(chunk);
            }
        }
        sparse.into_iter().for_each(|chunk| self.tidy(chunk));
    }

    /// Gives a chunk back if it is sparse: moves what is needed of it.
    fn tidy(&mut self, chunk: u32) {
        if !self.packed.is_sparse(chunk) {
            return;
        }
        let bytes = self.packed.take(chunk);
        for ((id, first), at, ops) in packed::entries(&bytes) {
            let Some(waiting) = self.pages.get_mut(&id) else { continue };
            let from = waiting.records.partition_point(|record| record.first < first);
            let same = waiting.records[from..].iter_mut().take_while(|record| record.first == first);
            let is_it = |ops| matches!(ops, Ops::Kept { chunk: c, at: a } if (c, a) == (chunk, at));
            for record in same.filter(|record| is_it(record.ops)) {
                record.ops = Ops::kept(self.packed.put((id, first), ops).0);
            }
        }
        // No sooner: what was moved is not to be taken for what is still to be looked at.
        self.packed.give_back(chunk);
    }

    fn forget(&mut self, id: PageId) {
        if let Some(waiting) = self.pages.remove(&id) {
            self.bounds.remove(&(waiting.bound, id));
            self.let_go(&waiting.records);
            if self.pages.is_empty() {
                self.packed = Packed::default();
            }
        }
    }
}

pub struct Pending {
    inner: Mutex<Inner, { Mutexes::Pending as u8 }>,
    budget: usize,
    bounds: LogBounds,
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
    /// `bounds` is what recovery reads by; `budget` bounds the memory for ops, in bytes.
    pub fn new(bounds: LogBounds, files: Vec<Arc<dyn File>>, budget: usize) -> Pending {
        Pending { inner: Mutex::default(), budget, bounds, files, counters: PendingCounters::default() }
    }

    /// Takes a record that recovery found; in GLSN order.
    pub fn add(&self, header: &RecordHeader, ops: &[u8], place: LogPosition) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        self.counters.records.fetch_add(1, Ordering::Relaxed);
        if redo::starts_with_init(ops) {
            let before = inner.pages.get_mut(&header.id).map(|w| std::mem::take(&mut w.records));
            before.into_iter().for_each(|records| inner.let_go(&records));
        }
        inner.records += 1;
        let ops_at = match inner.bytes() + inner.packed.needs(ops.len()) <= self.budget {
            true => inner.keep((header.id, header.first), ops),
            false => self.in_log(place),
        };
        let record =
            Record { first: header.first, length: header.length, len: ops.len() as u32, ops: ops_at };
        let waiting = inner.pages.entry(header.id).or_insert_with(|| {
            inner.bounds.insert((header.first, header.id));
            inner.queue.push_back(header.id);
            Waiting { bound: header.first, ..Waiting::default() }
        });
        waiting.records.push(record);
    }

    fn in_log(&self, place: LogPosition) -> Ops {
        let start = self.bounds.starts.get(place.partition as usize).copied().unwrap_or(0);
        Ops::InLog {
            partition: place.partition as u8,
            offset: place.offset as u16,
            block: place.sequence.wrapping_sub(start) as u32,
        }
    }

    /// Pages that still wait for their redo.
    pub fn pages(&self) -> usize {
        self.inner.lock().pages.len()
    }

    /// Bytes of memory that ops take up.
    pub fn kept_bytes(&self) -> usize {
        self.inner.lock().packed.bytes()
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

    /// The page is in memory, or free. If its redo was not applied on the way there, it was created anew since (a freed
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
            Ops::Kept { chunk, at } => Some(inner.packed.get(At { chunk, at }, record.len as usize).to_vec()),
            Ops::InLog { .. } => None,
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
        let Ops::InLog { partition, offset, block } = record.ops else {
            unreachable!("records in memory come with their ops")
        };
        self.counters.reread.fetch_add(1, Ordering::Relaxed);
        let number = usize::from(partition);
        let sequence = self.bounds.starts[number] + u64::from(block);
        let place = LogPosition { partition: partition.into(), sequence, offset: offset.into() };
        let at = readers.iter().position(|(n, _)| *n == number).unwrap_or_else(|| {
            let reader = Reader::new(&self.bounds, number, self.files[number].clone(), REREAD_BLOCKS);
            readers.push((number, reader));
            readers.len() - 1
        });
        let reader = &mut readers[at].1;
        let bad = |cause: String| ReadError::BadRedo { id, cause };
        let ops = reader.ops(place, record.len as usize).map_err(|e| bad(Error::from(e).to_string()))?;
        ops.ok_or_else(|| bad(format!("the log's record at {} cannot be read any more", record.first)))
    }

    /// Applies what waits for the page to its image, and keeps it: for inspection. The same in any number of
    /// calls, as long as it is not applied for good.
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
            if before >= record.end() && !terrace_tier::planted::REDO_APPLIED_TWICE.on() {
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
            redo::apply(image, id, &ops, record.end())
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
