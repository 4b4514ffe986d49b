//! Flash below the arena: the generic cache of blocks, keyed by store, path and block, with the version checked on use.
//!
//! Small files of one directory are packed into one value of it (`packing`).
//!
//! Not here: the cache (`terrace::flash`), and which blocks are evicted from memory (`catalogue`).

use crate::catalogue::{BLOCK_BYTES, Victim, number_of};
use crate::packing::{self, Adopted, Found, Moving, Packs, Staged};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::flash::{BlockKey, BlockSettings, BlockStatus, FlashCache, Offered, Rule, Value};
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::Disk;
use terrace_io::sched::{Event, Step};
use twox_hash::XxHash3_128;

/// Bytes of the queue above which blocks that could be written later are; the queue takes as many at least.
const QUEUE_BYTES: u64 = 16 << 20;
/// Flash of which one segment in this many is free has room for blocks that were used once.
const FREE_SHARE: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Now,
    /// The queue is long, or what the last run left is still being looked at.
    Later,
    /// Flash is full, or off.
    None,
}

pub struct Flash {
    cache: FlashCache<BlockKey>,
    store: String,
    /// Small files, if they are packed.
    pub packs: Option<Packs>,
    /// As the worker that packs saw it last: flash has free segments.
    packs_have_room: AtomicBool,
}

/// What packing has of the memory, in bytes, and the arena that what it brings goes to.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    pub shares: packing::Shares,
    pub arena: u64,
}

fn owner_of(store: &str) -> u128 {
    XxHash3_128::oneshot(store.as_bytes())
}

fn settings(store: &str, bytes: u64, memory: u64) -> BlockSettings {
    BlockSettings {
        // A segment holds several of the largest blocks.
        segment_bytes: 32 << 20,
        // Small files come in thousands.
        queue_values: 8192,
        queue_bytes: (memory / 8).clamp(QUEUE_BYTES, 64 << 20) as usize,
        admission: Rule::Ghost,
        ..BlockSettings::new(owner_of(store), bytes)
    }
}

impl Flash {
    /// Memory that the cache takes beside its flash, in bytes, of the daemon's `memory`.
    pub fn memory_bytes(bytes: u64, memory: u64) -> u64 {
        settings("", bytes, memory).memory_bytes()
    }

    pub fn open(
        world: &World,
        directory: &Path,
        bytes: u64,
        memory: u64,
        store: &str,
        packing: Option<Packing>,
    ) -> Result<Flash, String> {
        let cache =
            FlashCache::open(directory, settings(store, bytes, memory)).map_err(|error| error.to_string())?;
        Ok(Flash::on(cache, world, bytes, store, packing))
    }

    /// On a disk that the caller has: tests simulate it.
    pub fn open_on(
        disk: &dyn Disk,
        world: &World,
        bytes: u64,
        memory: u64,
        store: &str,
        packing: Option<Packing>,
    ) -> Result<Flash, String> {
        let cache = FlashCache::open_on(disk, world, settings(store, bytes, memory))
            .map_err(|error| error.to_string())?;
        Ok(Flash::on(cache, world, bytes, store, packing))
    }

    fn on(
        cache: FlashCache<BlockKey>,
        world: &World,
        bytes: u64,
        store: &str,
        packing: Option<Packing>,
    ) -> Flash {
        let packs =
            packing.map(|packing| Packs::new(world.clone(), packing.shares, store, bytes, packing.arena));
        Flash { cache, store: store.to_string(), packs, packs_have_room: AtomicBool::new(true) }
    }

    fn key(&self, path: &str, block: u32) -> BlockKey {
        let mut name = Vec::with_capacity(self.store.len() + path.len() + 1);
        name.extend_from_slice(self.store.as_bytes());
        name.push(0);
        name.extend_from_slice(path.as_bytes());
        BlockKey { object: XxHash3_128::oneshot(&name), block: u64::from(block) }
    }

    /// Whether a HEAD may save the GET of the file's first block.
    pub fn seems_to_have(&self, path: &str) -> bool {
        self.seems_to_have_block(path, 0)
    }

    /// Whether flash probably has the block; does no I/O.
    pub fn seems_to_have_block(&self, path: &str, block: u32) -> bool {
        block == 0 && self.packs.as_ref().is_some_and(|packs| packs.seems_to_have(path))
            || self.cache.seems_to_have(self.key(path, block))
    }

    /// Requests to the device that failed.
    pub fn errors(&self) -> u64 {
        self.cache.counters.errors.load(Ordering::Relaxed)
    }

    /// A small file that is packed. `reserve` is asked for room before flash is read.
    pub fn find_packed<R>(&self, path: &str, version: &str, reserve: impl Fn(usize) -> R) -> Option<Found> {
        self.packs.as_ref()?.find(&self.cache, path, number_of(version), reserve)
    }

    pub fn find(&self, path: &str, block: u32, version: &str) -> Option<Value> {
        self.cache.find(self.key(path, block), number_of(version))
    }

    /// A block leaves memory.
    pub fn evicted(&self, victim: &Victim, bytes: &[u8]) -> Offered {
        if let Some(packs) = &self.packs
            && victim.index == 0
            && (bytes.len() as u64) < packing::FILE_MAX
        {
            let has_room = self.packs_have_room.load(Ordering::Relaxed);
            let number = number_of(&victim.version);
            return match packs.stage(&victim.path, number, bytes, victim.accesses, has_room) {
                Staged::Taken => Offered::Queued,
                Staged::Kept => Offered::Kept,
                Staged::Remembered => Offered::Remembered,
                Staged::Full => Offered::Dropped,
            };
        }
        let key = self.key(&victim.path, victim.index);
        self.cache.evicted(key, number_of(&victim.version), bytes, victim.accesses)
    }

    /// A block that another node gave of a file that is not packed.
    pub fn keep(&self, path: &str, block: u32, version: &str, bytes: &[u8]) -> Offered {
        self.cache.evicted(self.key(path, block), number_of(version), bytes, u8::MAX)
    }

    /// The next packed block, from this number on, of files whose marks are wanted, and the number after it.
    pub fn give(&self, from: u32, wants: impl Fn(u64) -> bool) -> Option<(u32, Moving)> {
        self.packs.as_ref()?.give(&self.cache, from, wants)
    }

    /// A packed block that another node gave.
    pub fn adopt(&self, id: u64, bytes: Vec<u8>, wants: impl Fn(u64) -> bool) -> Adopted {
        match &self.packs {
            Some(packs) => packs.adopt(&self.cache, id, bytes, wants),
            None => Adopted::Never,
        }
    }

    /// Whether a block can be written without another's place, and the queue is short.
    pub fn has_room(&self) -> Room {
        let status = self.cache.status();
        match status.off {
            None if status.restoring || status.queue_bytes > QUEUE_BYTES => Room::Later,
            None if status.segments_free * FREE_SHARE > status.segments => Room::Now,
            _ => Room::None,
        }
    }

    /// The file changed: its first block's place is free at once, the others' when they are looked for.
    pub fn forget(&self, path: &str) {
        if let Some(packs) = &self.packs {
            packs.forget(path);
        }
        self.cache.invalidate(self.key(path, 0));
    }

    /// Nothing of the file is kept.
    pub fn forget_all(&self, path: &str, length: u64) {
        self.forget(path);
        let blocks = length.div_ceil(BLOCK_BYTES).max(1) as u32;
        (0..blocks).for_each(|block| self.cache.invalidate(self.key(path, block)));
    }

    /// A piece of the work on packed files, for the worker that does it.
    pub fn pack_some(&self) -> Step {
        let Some(packs) = &self.packs else { return Step::Idle };
        self.packs_have_room.store(self.has_room() != Room::None, Ordering::Relaxed);
        packs.step(&self.cache)
    }

    /// Packs all that is staged; after that worker has ended.
    pub fn pack_all(&self, until: Nanos) {
        if let Some(packs) = &self.packs {
            packs.flush(&self.cache, until);
        }
    }

    pub fn pack_wake(&self) -> Option<std::sync::Arc<Event>> {
        self.packs.as_ref().map(|packs| packs.wake.clone())
    }

    pub fn status(&self) -> BlockStatus {
        self.cache.status()
    }

    /// Blocks found, and blocks written.
    pub fn counts(&self) -> (u64, u64) {
        use std::sync::atomic::Ordering::Relaxed;
        (self.cache.counters.hits.load(Relaxed), self.cache.counters.fills.load(Relaxed))
    }
}
