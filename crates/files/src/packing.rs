//! Small files on flash: packed by directory into blocks of up to 8 MB, which the flash cache keeps as one value each. A read of one file brings its
//! neighbours, so thousands of small files take few requests to flash.
//!
//! A file's way. It leaves memory, or is copied while flash has room → *staged*, in memory, in the order of paths (`stage`) → packed: the worker makes a
//! block of a run of paths and gives it to the flash cache (`seal`) → found again by the index (`index`), the block's footer (`block`) and a read of an
//! aligned part of the block (`find`, `window`). Blocks are never changed. A file that is superseded or evicted has its bit cleared in memory; blocks with
//! few live files, and short ones, are rebuilt together (`compact`).
//!
//! What is served. The reader names the version; an entry of another one is cleared. The bytes of a file have a checksum with its path and its
//! version, so neither a torn block nor a number that is used again is ever served. A block that fails is dropped whole.
//!
//! After a start the index is rebuilt from the footers in the background, once the flash cache knows what it has. Of two entries for a path that of the
//! higher generation counts. What was staged is lost with the process: a file is staged for two seconds at most. Evictions by a person are not on flash:
//! after a crash such a file may be found again, if its version is current.
//!
//! A block that was compacted stays on flash until its successor and the directory that names it are written.
//!
//! Limits. [`Shares`] divides the memory: staged files, blocks that are being made, parts that were read, footers, and the index, whose size bounds the
//! number of files; the blocks of the oldest generation are dropped for others. Flash is the cache's: blocks count as its other values do.
//!
//! Locks: `state`, for memory work only; no I/O under it. The flash cache's lock may be taken under it.
//!
//! Not here: the flash cache (`terrace::flash`), what is in memory and known (`catalogue`).

pub mod block;
mod compact;
mod find;
mod index;
mod moving;
mod restore;
mod seal;
mod stage;
#[cfg(test)]
mod tests;
mod window;

pub use find::{Found, Loaded};
pub use moving::{Adopted, Moving};

use block::{Footer, Item};
use index::{BlockNumber, Index};
use parking_lot::Mutex;
use stage::Stage;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::flash::{BlockCache, BlockKey};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::{Event, Step};
use twox_hash::{XxHash3_64, XxHash3_128};
use window::Window;

/// Files below this length are packed.
pub const FILE_MAX: u64 = 16 << 10;
/// The longest block: with what the flash cache adds, four of them fill a segment of it.
const BLOCK_MAX: usize = (8 << 20) - (64 << 10);
/// A staged file is packed after this time, in nanoseconds, even if it is alone.
const STAGED_TIME: Nanos = 2_000_000_000;
/// Between two looks of the worker, in nanoseconds, and while the cache's queue is full.
const LOOK: Nanos = 50_000_000;
const QUEUE_LOOK: Nanos = 2_000_000;
/// Flash that numbers of blocks are provided for, one each, in bytes: blocks are shorter until they are compacted.
const NUMBER_BYTES: u64 = 1 << 20;
/// Blocks that have a successor and wait for it to be written.
const RETIRED_MAX: usize = 64;
/// Numbers that one step looks at.
const SWEEP: u32 = 256;
/// Files that left memory for the first time and may come back, remembered by a fingerprint each.
const REMEMBERED: usize = 1 << 16;

pub type Cache = BlockCache<BlockKey>;

/// How the memory for packing is divided, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    pub stage: usize,
    /// The longest block. Three are in memory while blocks are compacted: what is read, its files, and what is written.
    pub block: usize,
    pub recent: usize,
    pub footers: usize,
    pub index: usize,
}

impl Shares {
    /// None: the memory is too little for packing.
    pub fn of(memory: u64) -> Option<Shares> {
        let eighth = (memory / 8) as usize;
        let block = eighth.min(BLOCK_MAX);
        let stage = (2 * eighth).min(4 * BLOCK_MAX);
        let recent = eighth.min(2 * BLOCK_MAX);
        let footers = eighth.min(4 * BLOCK_MAX);
        let taken = stage + 3 * block + recent + footers + REMEMBERED * 4;
        let index = (memory as usize).checked_sub(taken)?;
        (block >= 1 << 20).then_some(Shares { stage, block, recent, footers, index })
    }
}

/// What became of a file that is to be packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Staged {
    Taken,
    /// It is packed or staged already.
    Kept,
    /// There is no evidence of reuse: only a fingerprint of it was remembered.
    Remembered,
    /// As much is staged as may be.
    Full,
}

#[derive(Default)]
pub struct Counters {
    /// Files found staged, in a part that had been read, and by a read of flash.
    pub staged_hits: AtomicU64,
    pub recent_hits: AtomicU64,
    pub read_hits: AtomicU64,
    /// Reads of parts of blocks, and their bytes.
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub footer_reads: AtomicU64,
    pub sealed: AtomicU64,
    pub sealed_files: AtomicU64,
    pub compacted: AtomicU64,
    /// Entries that were of another version than the current one.
    pub stale: AtomicU64,
    /// Blocks that were dropped because what was read of them is not what was written, or as flash has them no more.
    pub dropped: AtomicU64,
    pub restored: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A read of a part of a block that others may wait for.
struct Flight {
    block: BlockNumber,
    bytes: std::ops::Range<usize>,
    ended: Arc<Event>,
}

struct State {
    stage: Stage,
    index: Index,
    footers: VecDeque<Arc<Footer>>,
    footer_bytes: usize,
    recent: VecDeque<Arc<Loaded>>,
    recent_bytes: usize,
    flights: Vec<Flight>,
    window: Window,
    generation: u64,
    /// Blocks whose files are in another one, until that is written.
    retired: VecDeque<BlockNumber>,
    /// The next number whose footer is to be read after the start.
    restoring: Option<BlockNumber>,
    next_number: BlockNumber,
    next_swept: BlockNumber,
    remembered: Box<[u32]>,
}

pub struct Packs {
    state: Mutex<State>,
    shares: Shares,
    world: World,
    /// The name of all blocks of this store in the flash cache.
    object: u128,
    /// For what is brought beside a file, in bytes.
    bring_bytes: usize,
    pub wake: Arc<Event>,
    pub counters: Counters,
}

/// How the index knows a path.
fn mark_of(path: &str) -> u64 {
    XxHash3_64::oneshot(path.as_bytes())
}

impl Packs {
    /// `arena` bytes of memory are for what is read, `flash` bytes are the cache's.
    pub fn new(world: World, shares: Shares, store: &str, flash: u64, arena: u64) -> Packs {
        let blocks = (flash / NUMBER_BYTES).clamp(256, 1 << 20) as usize;
        let files = shares.index.saturating_sub(blocks * index::BLOCK_BYTES) / index::FILE_BYTES;
        Packs {
            state: Mutex::new(State {
                stage: Stage::new(shares.stage),
                index: Index::new(blocks, files),
                footers: VecDeque::new(),
                footer_bytes: 0,
                recent: VecDeque::new(),
                recent_bytes: 0,
                flights: Vec::new(),
                window: Window::default(),
                generation: 0,
                retired: VecDeque::new(),
                restoring: Some(0),
                next_number: 0,
                next_swept: 0,
                remembered: vec![0; REMEMBERED].into(),
            }),
            shares,
            world,
            object: XxHash3_128::oneshot(format!("{store}\0packed blocks").as_bytes()),
            bring_bytes: (arena / 2) as usize,
            wake: Arc::new(Event::new()),
            counters: Counters::default(),
        }
    }

    fn key(&self, number: BlockNumber) -> BlockKey {
        BlockKey { object: self.object, block: u64::from(number) }
    }

    /// A file leaves memory, or is copied while it is there. Unless flash `has_room`, it is taken only if it was used more than once, or left memory a
    /// while ago. It is `version` of the path, and current.
    pub fn stage(&self, path: &Arc<str>, version: u64, bytes: &[u8], accesses: u8, has_room: bool) -> Staged {
        let mark = mark_of(path);
        let mut state = self.state.lock();
        if state.stage.get(path).is_some_and(|item| item.version == version) {
            return Staged::Kept;
        }
        // A fetch of another version has cleared the entry: it looks here first.
        if state.index.find(mark).is_some() {
            return Staged::Kept;
        }
        let place = &mut state.remembered[mark as usize % REMEMBERED];
        let fingerprint = (mark >> 32) as u32;
        if !has_room && accesses < 2 && *place != fingerprint {
            *place = fingerprint;
            return Staged::Remembered;
        }
        let now = self.world.clock.now();
        let item = Item { path: path.clone(), version, bytes: bytes.into() };
        if !state.stage.add(item, now) {
            drop(state);
            self.wake.notify();
            return Staged::Full;
        }
        let is_due = state.stage.bytes() >= self.shares.block;
        drop(state);
        if is_due {
            self.wake.notify();
        }
        Staged::Taken
    }

    /// Whether a look may find the file.
    pub fn seems_to_have(&self, path: &str) -> bool {
        let state = self.state.lock();
        state.stage.get(path).is_some() || state.index.find(mark_of(path)).is_some()
    }

    /// Nothing of the file is served any more.
    pub fn forget(&self, path: &str) {
        let mut state = self.state.lock();
        state.stage.remove(path);
        state.index.remove(mark_of(path));
    }

    /// Neighbours were used for the first time, or evicted before they were.
    pub fn learn(&self, used: u64, unused: u64) {
        self.state.lock().window.learn(used, unused, self.shares.block);
    }

    /// Does a piece of the work that is due. One thread calls it.
    pub fn step(&self, cache: &Cache) -> Step {
        let status = cache.status();
        if status.off.is_some() {
            return Step::IdleFor(LOOK);
        }
        if status.restoring {
            return Step::IdleFor(QUEUE_LOOK);
        }
        if self.restore_some(cache) {
            return Step::Worked;
        }
        self.retire(cache, status.queue_bytes == 0 && !status.unsaved);
        match self.seal(cache, false) {
            seal::Sealed::Block => return Step::Worked,
            seal::Sealed::QueueFull => return Step::IdleFor(QUEUE_LOOK),
            seal::Sealed::Nothing => {}
        }
        self.sweep(cache);
        // Only while the cache has nothing else to write.
        if status.queue_bytes == 0 && self.compact(cache) { Step::Worked } else { Step::IdleFor(LOOK) }
    }

    /// Packs all that is staged, at the end. `until`: no longer.
    pub fn flush(&self, cache: &Cache, until: Nanos) {
        let never = Event::new();
        while self.world.clock.now() < until {
            if cache.status().restoring || self.restore_some(cache) {
                continue;
            }
            match self.seal(cache, true) {
                seal::Sealed::Block => {}
                seal::Sealed::Nothing => return,
                seal::Sealed::QueueFull => {
                    _ = self.world.sched.wait(&never, never.ticket(), Some(QUEUE_LOOK));
                }
            }
        }
    }

    /// Flash no longer has the block, or has other bytes in its place.
    fn drop_block(&self, cache: &Cache, number: BlockNumber, generation: u64) {
        let is_it = {
            let mut state = self.state.lock();
            let is_it = state.index.block(number).is_some_and(|block| block.generation == generation);
            is_it && state.index.drop_block(number)
        };
        if is_it {
            count(&self.counters.dropped, 1);
            cache.invalidate(self.key(number));
        }
    }

    /// Blocks that were compacted are dropped once their successors are written.
    fn retire(&self, cache: &Cache, all_is_written: bool) {
        let gone: Vec<BlockNumber> = {
            let mut state = self.state.lock();
            let keep = if all_is_written { 0 } else { RETIRED_MAX };
            let count = state.retired.len().saturating_sub(keep);
            state.retired.drain(..count).collect()
        };
        gone.into_iter().for_each(|number| cache.invalidate(self.key(number)));
    }

    /// Finds blocks that the flash cache has evicted.
    fn sweep(&self, cache: &Cache) {
        let looked: Vec<(BlockNumber, u64)> = {
            let mut state = self.state.lock();
            let (first, all) = (state.next_swept, state.index.blocks_max() as u32);
            let last = (first + SWEEP).min(all);
            state.next_swept = if last == all { 0 } else { last };
            (first..last).filter_map(|number| Some((number, state.index.block(number)?.generation))).collect()
        };
        for (number, generation) in looked {
            if !cache.seems_to_have(self.key(number)) {
                self.drop_block(cache, number, generation);
            }
        }
    }

    /// A number that no block has, on flash neither.
    fn free_number(&self, cache: &Cache) -> Option<BlockNumber> {
        let mut state = self.state.lock();
        let all = state.index.blocks_max() as u32;
        for _ in 0..all {
            let number = state.next_number % all;
            state.next_number = number + 1;
            let is_free = state.index.block(number).is_none() && !state.retired.contains(&number);
            if is_free && !cache.seems_to_have(self.key(number)) {
                return Some(number);
            }
        }
        None
    }

    fn remember_footer(state: &mut State, footer: &Arc<Footer>, bytes_max: usize) {
        state.footers.retain(|other| other.id != footer.id);
        state.footers.push_back(footer.clone());
        state.footer_bytes = state.footers.iter().map(|footer| footer.memory_bytes()).sum();
        while state.footer_bytes > bytes_max
            && let Some(oldest) = state.footers.pop_front()
        {
            state.footer_bytes -= oldest.memory_bytes();
        }
    }

    pub fn status(&self) -> Status {
        let state = self.state.lock();
        let (files, blocks, bytes) = state.index.sizes();
        Status {
            files,
            blocks,
            bytes,
            staged: state.stage.len(),
            staged_bytes: state.stage.bytes(),
            restoring: state.restoring.is_some(),
            window: state.window.bytes(),
        }
    }

    /// Panics if the index is not in order. For tests.
    pub fn check_invariants(&self) {
        let state = self.state.lock();
        state.index.check_invariants();
        assert!(state.stage.bytes() <= self.shares.stage && state.footer_bytes <= self.shares.footers);
    }
}

/// The present state, for people.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    pub files: usize,
    pub blocks: usize,
    pub bytes: usize,
    pub staged: usize,
    pub staged_bytes: usize,
    pub restoring: bool,
    pub window: usize,
}
