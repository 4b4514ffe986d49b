//! The place of a copy: its files, from the empty place to the instance.

use crate::error::{Error, Result, holder_in_words};
use crate::storage::create::{COPYING, FRESH};
use crate::superblock::{self, Superblock};
use std::sync::Arc;
use terrace_io::disk::{Class, Disk, DiskError, DiskLock, File};
use terrace_io::random::Random;
use terrace_tier::volume::map::home;
use terrace_tier::volume::object_buffer;

/// What a failed request of a copy means: the original's engine goes on.
pub fn failed(error: DiskError) -> Error {
    match error {
        DiskError::Full { .. } => Error::Full(format!("the copy was given up: {error}")),
        error => Error::Unavailable(format!("the copy was given up: {error}")),
    }
}

/// Dropped before it is finished, everything that was made is removed.
pub struct Target {
    disk: Arc<dyn Disk>,
    files: Option<Files>,
    instance: u128,
    log_blocks: u64,
    partitions: usize,
    whole: bool,
    _lock: Box<dyn DiskLock>,
}

struct Files {
    pages: Arc<dyn File>,
    map: Arc<dyn File>,
    logs: Vec<Arc<dyn File>>,
}

impl Target {
    /// Makes the files at an empty place for a copy of the instance, which needs at least `bytes` bytes.
    pub fn make(
        disk: Arc<dyn Disk>,
        superblock: &Superblock,
        bytes: u64,
        random: &dyn Random,
    ) -> Result<Target> {
        let lock = disk.lock().map_err(|error| match error {
            DiskError::Locked { name, by } => {
                Error::Busy(format!("an instance runs at {name}{}", holder_in_words(by.as_ref())))
            }
            error => failed(error),
        })?;
        if let Some(name) = disk.list().map_err(failed)?.first() {
            return Err(Error::Invalid(format!("{} is not empty: it has {name}", disk.describe())));
        }
        let free = disk.free_bytes().map_err(failed)?;
        if free < bytes {
            return Err(Error::Full(format!(
                "{} has {free} bytes free, the copy takes {bytes} at least",
                disk.describe()
            )));
        }
        let mut target = Target {
            disk,
            files: None,
            instance: new_id(random),
            log_blocks: superblock.log_blocks,
            partitions: superblock.starts.len(),
            whole: false,
            _lock: lock,
        };
        target.files = Some(target.make_files().map_err(failed)?);
        Ok(target)
    }

    fn make_files(&self) -> std::result::Result<Files, DiskError> {
        let disk = &*self.disk;
        disk.create(COPYING)?.sync(Class::Superblock)?;
        disk.sync_dir()?;
        terrace_log::log::create(disk, self.partitions, self.log_blocks)?;
        home::create(disk)?;
        object_buffer::create(disk)?;
        let logs = (0..self.partitions).map(|partition| disk.open(&terrace_log::file_name(partition)));
        Ok(Files {
            pages: disk.open(object_buffer::FILE)?,
            map: disk.open(home::FILE)?,
            logs: logs.collect::<std::result::Result<_, DiskError>>()?,
        })
    }

    fn files(&self) -> &Files {
        self.files.as_ref().expect("the files are made before anybody has the target")
    }
    pub fn pages(&self) -> &dyn File {
        &*self.files().pages
    }
    pub fn map(&self) -> &dyn File {
        &*self.files().map
    }
    pub fn log(&self, partition: usize) -> &dyn File {
        &*self.files().logs[partition]
    }
    pub fn log_blocks(&self) -> u64 {
        self.log_blocks
    }
    pub fn id(&self) -> u128 {
        self.instance
    }
    /// As it stands in the log's blocks: the low half of its id.
    pub fn instance(&self) -> u64 {
        self.instance as u64
    }

    /// Room for pages: a full device shows here.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        let pages = self.pages();
        if pages.len() < bytes { pages.allocate(bytes).map_err(failed) } else { Ok(()) }
    }

    /// Everything is written: makes it durable, and then an instance. `superblock` is the original's at the copy's end.
    pub fn finish(&mut self, superblock: Superblock, random: &dyn Random) -> Result<()> {
        let mine = Superblock {
            instance: self.instance,
            lineage: new_id(random),
            generation: 1,
            clean: false,
            takers: Vec::new(), // writers of the original, whose store is not the copy's
            ..superblock
        };
        self.seal(&mine).map_err(failed)?;
        self.whole = true;
        Ok(())
    }

    /// Makes durable what is in the files.
    pub fn sync(&self) -> std::result::Result<(), DiskError> {
        let Files { pages, map, logs } = self.files();
        pages.sync(Class::PageFlush)?;
        map.sync(Class::MapWrite)?;
        logs.iter().try_for_each(|log| log.sync(Class::LogWrite))
    }

    fn seal(&self, superblock: &Superblock) -> std::result::Result<(), DiskError> {
        self.sync()?;
        let disk = &*self.disk;
        superblock.create_as(disk, FRESH)?;
        disk.sync_dir()?;
        disk.rename(FRESH, superblock::FILE)?;
        disk.sync_dir()?;
        disk.remove(COPYING)?;
        disk.sync_dir()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.whole {
            return;
        }
        self.files = None;
        // The superblock first: without it this is no instance, whatever else cannot be removed.
        let logs: Vec<String> = (0..self.partitions).map(terrace_log::file_name).collect();
        let names = [superblock::FILE, FRESH, object_buffer::FILE, home::FILE].into_iter();
        let names = names.chain(logs.iter().map(String::as_str)).chain([COPYING]);
        // What was not made is not there.
        names.for_each(|name| _ = self.disk.remove(name));
        let _ = self.disk.sync_dir();
    }
}

fn new_id(random: &dyn Random) -> u128 {
    u128::from(random.next_u64()) | u128::from(random.next_u64()) << 64
}
