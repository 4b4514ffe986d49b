//! A cache on local flash for what a front keeps beside its trees: blocks of files, large values.
//!
//! Values of any size lie under a [`Key`] and a version, which the reader names: an older version is a miss. A value enters when it
//! leaves the front's own memory, if it was used more than once or was evicted a short while ago ([`Rule`]). Nothing is durable, and a
//! restart finds the values of the last run again, in the background. The cache never exceeds its flash nor [`BlockSettings::memory_bytes`].
//!
//! ```
//! use terrace::flash::{BlockKey, BlockSettings, FlashCache};
//!
//! let dir = tempfile::tempdir()?;
//! let cache: FlashCache<BlockKey> = FlashCache::open(dir.path(), BlockSettings::new(1, 64 << 20))?;
//! let key = BlockKey { object: 0x5EED, block: 3 };
//! cache.evicted(key, 7, b"the bytes of version 7", 2);
//! assert_eq!(cache.find(key, 7).as_deref(), Some(&b"the bytes of version 7"[..]));
//! assert!(cache.find(key, 8).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Not here: the cache itself, which is `terrace_tier::flash::blocks`.

use crate::{Error, ErrorKind, Result};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use terrace_io::World;
use terrace_io::disk::Disk;
use terrace_io::observe;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_io::sched::WorkerHandle;
pub use terrace_tier::flash::admission::filter::Rule;
pub use terrace_tier::flash::blocks::{
    BlockCache, BlockCounters, BlockKey, BlockSettings, BlockStatus, BlockWorker, Offered, Part, StoredKey,
    Value,
};
pub use terrace_tier::flash::key::Key;

/// A [`BlockCache`] in a directory, with the worker that writes it.
pub struct FlashCache<K: StoredKey> {
    cache: Arc<BlockCache<K>>,
    worker: Option<Box<dyn WorkerHandle>>,
}

impl<K: StoredKey> FlashCache<K> {
    /// Opens the cache; what the last run left is read again in the background. A directory that cannot be used is a cache that is off
    /// ([`BlockStatus::off`] says why). Fails if no thread can be had.
    pub fn open(path: impl AsRef<Path>, settings: BlockSettings) -> Result<FlashCache<K>> {
        let path = path.as_ref();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(path).unwrap_or_else(|_| RealDisk::at(path)));
        FlashCache::open_on(&*observe::disk(disk), &world(), settings)
    }

    /// As `open`, on a disk and in a world that the caller has: tests simulate them.
    pub fn open_on(disk: &dyn Disk, world: &World, settings: BlockSettings) -> Result<FlashCache<K>> {
        let cache = Arc::new(BlockCache::open(disk, settings));
        let worker = world.sched.try_spawn(Box::new(BlockWorker(cache.clone()))).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("no thread can be had for the flash cache: {error}"))
        })?;
        Ok(FlashCache { cache, worker: Some(worker) })
    }
}

impl<K: StoredKey> Deref for FlashCache<K> {
    type Target = BlockCache<K>;
    fn deref(&self) -> &BlockCache<K> {
        &self.cache
    }
}

impl<K: StoredKey> Drop for FlashCache<K> {
    /// Writes what is queued, so that the next run finds it.
    fn drop(&mut self) {
        drop(self.worker.take());
        self.cache.save();
    }
}
