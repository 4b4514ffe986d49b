//! Flash below the arena: the generic cache of blocks, keyed by store, path and block, with the version checked on use.
//!
//! Not here: the cache (`terrace::flash`), and which blocks are evicted from memory (`catalogue`).

use crate::catalogue::{BLOCK_BYTES, Victim};
use std::hash::Hasher;
use std::path::Path;
use terrace::flash::{BlockKey, BlockSettings, BlockStatus, FlashCache, Offered, Rule, Value};
use twox_hash::{XxHash3_64, XxHash3_128};

/// Bytes of the queue above which blocks that could be written later are.
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
}

fn owner_of(store: &str) -> u128 {
    XxHash3_128::oneshot(store.as_bytes())
}

fn settings(store: &str, bytes: u64) -> BlockSettings {
    BlockSettings {
        // A segment holds several of the largest blocks.
        segment_bytes: 32 << 20,
        // Small files come in thousands.
        queue_values: 8192,
        admission: Rule::Ghost,
        ..BlockSettings::new(owner_of(store), bytes)
    }
}

/// A version, as the cache of blocks names it.
fn number_of(version: &str) -> u64 {
    let mut hasher = XxHash3_64::with_seed(0);
    hasher.write(version.as_bytes());
    hasher.finish()
}

impl Flash {
    /// Memory that the cache takes beside its flash, in bytes.
    pub fn memory_bytes(bytes: u64) -> u64 {
        settings("", bytes).memory_bytes()
    }

    pub fn open(directory: &Path, bytes: u64, store: &str) -> Result<Flash, String> {
        let cache = FlashCache::open(directory, settings(store, bytes)).map_err(|error| error.to_string())?;
        Ok(Flash { cache, store: store.to_string() })
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
        self.cache.seems_to_have(self.key(path, 0))
    }

    pub fn find(&self, path: &str, block: u32, version: &str) -> Option<Value> {
        self.cache.find(self.key(path, block), number_of(version))
    }

    /// A block leaves memory.
    pub fn evicted(&self, victim: &Victim, bytes: &[u8]) -> Offered {
        let key = self.key(&victim.path, victim.index);
        self.cache.evicted(key, number_of(&victim.version), bytes, victim.accesses)
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
        self.cache.invalidate(self.key(path, 0));
    }

    /// Nothing of the file is kept.
    pub fn forget_all(&self, path: &str, length: u64) {
        let blocks = length.div_ceil(BLOCK_BYTES).max(1) as u32;
        (0..blocks).for_each(|block| self.cache.invalidate(self.key(path, block)));
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
