//! What is cached: each file's version and its blocks in memory, which reads wait for what, and what is under lease. Pure: it does no input or
//! output and knows no clock. It is given reads and the ends of flights, and gives back answers ([`Done`]) and flights to make ([`Task`]).
//!
//! A file's way. Unknown → a *check* is in flight → known, with some blocks. A check is a request that tells the current version: the GET
//! of the file's start, or a HEAD. A known file is *fresh* as [`Freshness`] says; otherwise a check precedes the read. Reads that come
//! while a check is in flight join it, except with `Freshness::Always`: there the flight may have begun before a change that the reader
//! knows of, so they wait for one more, common to all of them.
//!
//! A block is loading (one flight, any number of waiters) or here. A block that is here can be leased; one without leases is in the list
//! of least recent use, from which it is evicted. Bytes of a leased block are never freed: if its file changes or is evicted it is
//! *detached*, and freed with its last lease.
//!
//! Versions. All blocks of a file are of its known version. When another version is found, everything of the old one is detached and the
//! reads that wait for its blocks begin again ([`RESTARTS_MAX`] times), so an answer is always of one version. `epoch` says what a flight
//! may tell: one that began before a write of the file through this daemon is made again.
//!
//! Not here: moving bytes (`read`), sockets (`session`).

mod beside;
mod checks;
mod forget;
mod lru;
mod peers;
mod published;
mod room;
#[cfg(test)]
mod tests;
mod unsaved;

pub use beside::{Offer, Wanted, number_of};
pub use peers::Held;
pub use room::{Room, Victim};

use crate::memory::extents::{Extent, Extents};
use crate::memory::index::Index;
use hashbrown::HashMap;
use lru::Lru;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_io::clock::Nanos;

/// Bytes of a block; a file's last one is shorter.
pub const BLOCK_BYTES: u64 = 8 << 20;
/// Times that one read begins again because the file changed.
const RESTARTS_MAX: u8 = 4;

/// Blocks that wait to be copied to flash; more are copied when they are evicted.
const UNSAVED_MAX: usize = 1 << 16;

pub type BlockId = u32;

/// How long what is known of a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freshness {
    /// Files never change.
    Immutable,
    /// This many nanoseconds.
    Ttl(Nanos),
    /// Each read asks the store.
    Always,
}

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    #[error("there is no such file")]
    Absent,
    #[error("the file changed while it was read")]
    Changed,
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    Invalid(String),
    #[error("the file exists already")]
    Exists,
}

/// What a store says of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    pub version: Arc<str>,
    pub length: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Leases on the bytes.
    Bytes,
    /// The bytes in memory, and no lease.
    Warm,
    Stat,
}

/// A read, as a client asks for it.
#[derive(Clone, Debug)]
pub struct Read {
    pub client: u64,
    pub request: u64,
    /// Its place in a batch.
    pub item: u32,
    pub wants: Wants,
    pub path: Arc<str>,
    pub offset: u64,
    pub length: u64,
    /// The version that it must be.
    pub expected: Option<Arc<str>>,
    /// What is known of the file must have been true at this time or later; 0: as the freshness says.
    pub since: Nanos,
}

/// The client of reads that other nodes have asked for: no client's id.
pub const PEER: u64 = u64::MAX - 1;

/// Bytes that a client now has a lease on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leased {
    pub block: BlockId,
    /// In the arena.
    pub extent: Extent,
    /// Bytes of the whole block, which the lease holds in memory.
    pub held: u64,
}

#[derive(Debug)]
pub struct Done {
    pub client: u64,
    pub request: u64,
    pub item: u32,
    pub answer: Result<(Meta, Vec<Leased>), Fault>,
    /// For [`PEER`]: when what is said of the file was known to be true.
    pub checked: Nanos,
}

/// A flight to make: a request to flash or the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// The version, the length and the first block, if that is the whole file or `first`: answered by [`Catalogue::checked`].
    Start { path: Arc<str>, epoch: u64, first: bool },
    /// The version and the length: answered by [`Catalogue::checked`].
    Head { path: Arc<str>, epoch: u64 },
    /// A block: answered by [`Catalogue::loaded`].
    Block { path: Arc<str>, version: Arc<str>, index: u32, len: u64, flight: u64 },
}

impl Task {
    pub fn path(&self) -> &str {
        match self {
            Task::Start { path, .. } | Task::Head { path, .. } | Task::Block { path, .. } => path,
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Reads answered from memory at once, and those that waited for a flight.
    pub hits: u64,
    pub waited: u64,
    /// The hits that clients copied by the index.
    pub unasked: u64,
    pub failed: u64,
    /// Blocks evicted from memory.
    pub evicted: u64,
    /// Files that were brought beside others; those of them that were used, and those that were evicted before they were.
    pub brought: u64,
    pub brought_used: u64,
    pub brought_unused: u64,
    /// Files found in another version than the known one.
    pub changed: u64,
    /// Reads of files past their time that were served because the store did not answer.
    pub served_in_outage: u64,
}

struct Known {
    meta: Meta,
    checked: Nanos,
    /// The store did not answer at that time.
    is_doubted: bool,
}

struct Check {
    epoch: u64,
    began: Nanos,
    /// Served by this flight, and by the next one.
    now: Vec<u64>,
    next: Vec<u64>,
}

enum Slot {
    Loading { flight: u64, waiters: Vec<u64> },
    Here(BlockId),
}

#[derive(Default)]
struct File {
    known: Option<Known>,
    /// Grows when flights under way must not be believed.
    epoch: u64,
    check: Option<Check>,
    /// By index; few.
    slots: Vec<(u32, Slot)>,
}

impl File {
    fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.iter().find(|(i, _)| *i == index).map(|(_, slot)| slot)
    }
}

struct Block {
    path: Arc<str>,
    version: Arc<str>,
    index: u32,
    extent: Extent,
    leases: u32,
    /// Its file has it; otherwise it is freed with the last lease.
    attached: bool,
    /// It came beside another file, from flash.
    brought: bool,
    accesses: u8,
}

impl Block {
    /// A use now would be the first one of a file that was brought beside another.
    fn is_first_use(&self) -> bool {
        self.brought && self.accesses == 0
    }

    fn victim(&self) -> Victim {
        Victim {
            path: self.path.clone(),
            version: self.version.clone(),
            index: self.index,
            extent: self.extent,
            accesses: self.accesses,
        }
    }
}

/// A read that waits for blocks or a check.
struct Waiting {
    read: Read,
    restarts: u8,
    meta: Option<Meta>,
    first: u32,
    got: Vec<Option<BlockId>>,
    missing: u32,
}

pub struct Settings {
    pub freshness: Freshness,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Files that are known at a time.
    pub files_max: usize,
    /// Reads that wait at a time.
    pub waiting_max: usize,
    /// Bytes that one answer leases; a longer read is answered in part.
    pub read_bytes_max: u64,
    /// There is flash, to which blocks are copied when they come.
    pub saves: bool,
}

pub struct Catalogue {
    settings: Settings,
    /// What clients may read without a question.
    index: Option<Index>,
    files: HashMap<Arc<str>, File>,
    /// All files, the oldest first: candidates to be forgotten.
    order: VecDeque<Arc<str>>,
    blocks: Vec<Option<Block>>,
    free_blocks: Vec<BlockId>,
    lru: Lru,
    /// Blocks that came since the saver looked last; some may be gone.
    unsaved: VecDeque<BlockId>,
    extents: Extents,
    waiting: HashMap<u64, Waiting>,
    next_id: u64,
    /// For whoever calls: answers to deliver and flights to make.
    pub done: Vec<Done>,
    pub tasks: Vec<Task>,
    pub counts: Counts,
    /// By a hash of the path: a version of such a path that was current before this time is not believed.
    floors: Box<[Nanos]>,
    /// The counts of brought files that were told already.
    brought_told: (u64, u64),
    /// Bytes were freed since the flag was cleared.
    pub freed: bool,
}

/// The indexes of the blocks that hold the range, which is not empty.
fn blocks_of(offset: u64, length: u64) -> (u32, u32) {
    ((offset / BLOCK_BYTES) as u32, ((offset + length - 1) / BLOCK_BYTES) as u32)
}

/// Bytes of a block of a file.
pub fn block_len(length: u64, index: u32) -> u64 {
    length.saturating_sub(u64::from(index) * BLOCK_BYTES).min(BLOCK_BYTES)
}

impl Catalogue {
    pub fn new(settings: Settings) -> Catalogue {
        let extents = Extents::new(settings.arena_bytes);
        Catalogue {
            settings,
            index: None,
            files: HashMap::new(),
            order: VecDeque::new(),
            blocks: Vec::new(),
            free_blocks: Vec::new(),
            lru: Lru::default(),
            unsaved: VecDeque::new(),
            extents,
            waiting: HashMap::new(),
            next_id: 0,
            done: Vec::new(),
            tasks: Vec::new(),
            counts: Counts::default(),
            floors: vec![0; peers::FLOORS].into(),
            brought_told: (0, 0),
            freed: false,
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A client's read: answered at once, or when the flights it needs have ended.
    pub fn begin(&mut self, read: Read, now: Nanos) {
        if !self.files.contains_key(&read.path) && !self.make_room_for_a_file() {
            return self.fail(&read, Fault::Busy("too many files are in use at a time".into()));
        }
        let file = self.files.entry(read.path.clone()).or_insert_with(|| {
            self.order.push_back(read.path.clone());
            File::default()
        });
        let holds = |known: &Known| {
            let is_believed = read.client != PEER || !known.is_doubted;
            is_believed && known.checked >= read.since && self.settings.freshness.holds(known.checked, now)
        };
        let is_fresh = file.check.is_none() && file.known.as_ref().is_some_and(holds);
        if is_fresh {
            return self.look(read, 0);
        }
        self.check(read, 0, now);
    }

    /// The file is known and fresh: leases the blocks that are here, and waits for the others.
    fn look(&mut self, read: Read, restarts: u8) {
        let Some(file) = self.files.get(&read.path) else { return self.fail(&read, Fault::Absent) };
        let Some(known) = &file.known else { return self.fail(&read, Fault::Absent) };
        let meta = known.meta.clone();
        if read.expected.as_ref().is_some_and(|expected| *expected != meta.version) {
            return self.fail(&read, Fault::Changed);
        }
        let length =
            read.length.min(meta.length.saturating_sub(read.offset)).min(self.settings.read_bytes_max);
        if length == 0 || read.wants == Wants::Stat {
            return self.answer(&read, meta, Vec::new());
        }
        let (first, last) = blocks_of(read.offset, length);
        let mut got = Vec::with_capacity((last - first + 1) as usize);
        let mut missing = 0;
        for index in first..=last {
            let here = match self.files.get(&read.path).and_then(|file| file.slot(index)) {
                Some(Slot::Here(block)) => Some(*block),
                _ => None,
            };
            if let Some(block) = here {
                self.lease(block);
            }
            missing += u32::from(here.is_none());
            got.push(here);
        }
        if missing == 0 {
            self.counts.hits += 1;
            return self.finish(&read, meta, length, &got);
        }
        if self.waiting.len() >= self.settings.waiting_max {
            got.iter().flatten().for_each(|block| self.release(*block));
            return self.fail(&read, Fault::Busy("too many reads wait for the store".into()));
        }
        self.counts.waited += 1;
        let id = self.id();
        for index in (first..=last).filter(|index| got[(index - first) as usize].is_none()) {
            self.wait_for_block(&read.path, &meta, index, id);
        }
        self.waiting.insert(id, Waiting { read, restarts, meta: Some(meta), first, got, missing });
    }

    fn wait_for_block(&mut self, path: &Arc<str>, meta: &Meta, index: u32, id: u64) {
        let flight = self.id();
        let Some(file) = self.files.get_mut(path) else { return };
        if let Some((_, Slot::Loading { waiters, .. })) = file.slots.iter_mut().find(|(i, _)| *i == index) {
            return waiters.push(id);
        }
        file.slots.push((index, Slot::Loading { flight, waiters: vec![id] }));
        let (path, version) = (path.clone(), meta.version.clone());
        self.tasks.push(Task::Block { path, version, index, len: block_len(meta.length, index), flight });
    }

    /// Answers with the parts of the leased blocks that the read asked for.
    fn finish(&mut self, read: &Read, meta: Meta, length: u64, got: &[Option<BlockId>]) {
        if read.wants == Wants::Warm {
            got.iter().flatten().for_each(|block| self.release(*block));
            return self.answer(read, meta, Vec::new());
        }
        let end = read.offset + length;
        let mut parts = Vec::with_capacity(got.len());
        for block in got.iter().flatten() {
            let Some(Some(held)) = self.blocks.get(*block as usize) else { continue };
            let begin = u64::from(held.index) * BLOCK_BYTES;
            let from = read.offset.max(begin) - begin;
            let to = end.min(begin + held.extent.len) - begin;
            let extent = Extent { offset: held.extent.offset + from, len: to - from };
            parts.push(Leased { block: *block, extent, held: held.extent.taken() });
        }
        self.answer(read, meta, parts);
    }

    fn answer(&mut self, read: &Read, meta: Meta, parts: Vec<Leased>) {
        let Read { client, request, item, .. } = *read;
        let known = if client == PEER {
            self.files.get(&read.path).and_then(|file| file.known.as_ref())
        } else {
            None
        };
        let checked =
            known.filter(|known| known.meta == meta && !known.is_doubted).map_or(0, |known| known.checked);
        self.done.push(Done { client, request, item, answer: Ok((meta, parts)), checked });
    }

    fn fail(&mut self, read: &Read, fault: Fault) {
        self.counts.failed += 1;
        let Read { client, request, item, .. } = *read;
        self.done.push(Done { client, request, item, answer: Err(fault), checked: 0 });
    }

    fn lease(&mut self, id: BlockId) {
        let Some(Some(block)) = self.blocks.get_mut(id as usize) else { return };
        if block.leases == 0 {
            self.lru.remove(id);
        }
        block.leases += 1;
        self.counts.brought_used += u64::from(block.is_first_use());
        block.accesses = block.accesses.saturating_add(1);
    }

    /// Ends one lease. The caller had it.
    pub fn release(&mut self, id: BlockId) {
        let Some(Some(block)) = self.blocks.get_mut(id as usize) else { return };
        assert!(block.leases > 0, "block {id} has no lease");
        block.leases -= 1;
        if block.leases > 0 {
            return;
        }
        if block.attached {
            self.lru.push(id)
        } else {
            self.free(id)
        }
        self.freed = true;
    }

    fn free(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(id as usize).and_then(Option::take) {
            assert!(block.leases == 0, "block {id} is freed under a lease");
            self.extents.free(block.extent);
            self.free_blocks.push(id);
            self.freed = true;
        }
    }

    /// A block without leases, in its file.
    fn attach(
        &mut self,
        path: &Arc<str>,
        version: &Arc<str>,
        index: u32,
        extent: Extent,
        brought: bool,
    ) -> Option<BlockId> {
        let file = self.files.get_mut(path)?;
        let id = self.free_blocks.pop().unwrap_or(self.blocks.len() as BlockId);
        file.slots.retain(|(i, _)| *i != index);
        file.slots.push((index, Slot::Here(id)));
        let (path, version) = (path.clone(), version.clone());
        let block =
            Some(Block { path, version, index, extent, leases: 0, attached: true, brought, accesses: 0 });
        match self.blocks.get_mut(id as usize) {
            Some(place) => *place = block,
            None => self.blocks.push(block),
        }
        self.lru.push(id);
        if self.settings.saves && !brought {
            self.unsaved.push_back(id);
            if self.unsaved.len() > UNSAVED_MAX {
                self.unsaved.pop_front();
            }
        }
        self.publish_block(id);
        Some(id)
    }

    /// A flight for a block has ended. Gives the extent back if it is not wanted any more.
    pub fn loaded(&mut self, path: &Arc<str>, flight: u64, result: Result<Extent, Fault>, now: Nanos) {
        let is_it = |slot: &Slot| matches!(slot, Slot::Loading { flight: f, .. } if *f == flight);
        let found = self.files.get_mut(path).and_then(|file| {
            let at = file.slots.iter().position(|(_, slot)| is_it(slot))?;
            let (index, slot) = file.slots.swap_remove(at);
            let Slot::Loading { waiters, .. } = slot else { return None };
            let version = file.known.as_ref().map(|known| known.meta.version.clone())?;
            Some((index, waiters, version))
        });
        let (extent, (index, waiters, version)) = match (result, found) {
            (Ok(extent), None) => return self.give_back(extent),
            (Err(_), None) => return,
            (Ok(extent), Some(found)) => (extent, found),
            (Err(Fault::Changed | Fault::Absent), Some((_, waiters, _))) => {
                self.counts.changed += 1;
                let others = self.void(path);
                return waiters.into_iter().chain(others).for_each(|id| self.restart(id, now));
            }
            (Err(fault), Some((_, waiters, _))) => {
                return waiters.into_iter().for_each(|id| self.fail_waiting(id, &fault));
            }
        };
        let Some(block) = self.attach(path, &version, index, extent, false) else {
            return self.give_back(extent);
        };
        for id in waiters {
            let Some(waiting) = self.waiting.get_mut(&id) else { continue };
            let Some(place @ None) = waiting.got.get_mut((index - waiting.first) as usize) else { continue };
            *place = Some(block);
            waiting.missing -= 1;
            let is_whole = waiting.missing == 0;
            self.lease(block);
            if is_whole && let Some(waiting) = self.waiting.remove(&id) {
                let Some(meta) = waiting.meta else { continue };
                let read = waiting.read;
                let length = read.length.min(meta.length - read.offset).min(self.settings.read_bytes_max);
                self.finish(&read, meta, length, &waiting.got);
            }
        }
    }

    fn fail_waiting(&mut self, id: u64, fault: &Fault) {
        if let Some(waiting) = self.waiting.remove(&id) {
            waiting.got.iter().flatten().for_each(|block| self.release(*block));
            self.fail(&waiting.read, fault.clone());
        }
    }

    /// The version that the read began with is no longer the file's.
    fn restart(&mut self, id: u64, now: Nanos) {
        let Some(waiting) = self.waiting.remove(&id) else { return };
        waiting.got.iter().flatten().for_each(|block| self.release(*block));
        if waiting.restarts >= RESTARTS_MAX {
            return self.fail(&waiting.read, Fault::Changed);
        }
        self.check(waiting.read, waiting.restarts + 1, now);
    }

    pub fn files(&self) -> usize {
        self.files.len()
    }
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
    /// Blocks in memory, those under lease among them, and the bytes that are taken.
    pub fn blocks(&self) -> (usize, usize, u64) {
        let all = self.blocks.len() - self.free_blocks.len();
        (all, all - self.lru.len(), self.settings.arena_bytes - self.extents.free_bytes())
    }

    /// Whether all of a known file's bytes are in memory.
    pub fn is_in_memory(&self, path: &str) -> bool {
        self.files.get(path).is_some_and(|file| {
            let Some(known) = &file.known else { return false };
            let count = known.meta.length.div_ceil(BLOCK_BYTES) as usize;
            file.slots.iter().filter(|(_, slot)| matches!(slot, Slot::Here(_))).count() == count
        })
    }
}
