//! The disk seam: named files in one directory of one device.
//!
//! What a disk promises, and no more: bytes written are durable after [`File::sync`] returned Ok;
//! names are durable after [`Disk::sync_dir`] returned Ok. Until then any subset of the unsynced
//! 512-byte sectors may be on the device after a crash, others hold what they held or garbage.
//! A failed write or sync is final for the caller: it latches and never retries an fsync.

use crate::AlignedBuf;
pub mod hedge;

pub use crate::traffic::Class;
use std::any::Any;
use std::sync::Arc;

#[derive(Debug, Clone, thiserror::Error)]
pub enum DiskError {
    #[error("no file {name}")]
    Absent { name: String },
    #[error("file {name} exists")]
    Exists { name: String },
    #[error("{what} {name}: the device is full")]
    Full { name: String, what: &'static str },
    /// The device did not answer in time, and another copy is to be read ([`hedge`]).
    #[error("read {name} at {offset}: no answer in time")]
    Overdue { name: String, offset: u64 },
    #[error("{name} is locked by another instance{}", by.as_ref().map_or(String::new(), |by| format!(" ({})", by.who)))]
    Locked { name: String, by: Option<Holder> },
    /// `len` is 0 where no bytes are at issue.
    #[error("{what} {name}{}: {cause}", place(*offset, *len))]
    Failed { name: String, what: &'static str, offset: u64, len: u64, cause: String },
}

pub type Result<T> = std::result::Result<T, DiskError>;

/// The holder of a lock, as it has named itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// As "process 4711 on db1".
    pub who: String,
    /// Unix time in milliseconds.
    pub since_ms: u64,
}

fn place(offset: u64, len: u64) -> String {
    if len == 0 { String::new() } else { format!(" at {offset} for {len} bytes") }
}

/// One request of a batch. `offset` and the buffer's length are multiples of [`crate::SECTOR`].
pub enum Op<'a> {
    Read { offset: u64, buf: &'a mut [u8] },
    Write { offset: u64, buf: &'a [u8] },
}

impl Op<'_> {
    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            Op::Read { buf, .. } => buf.len(),
            Op::Write { buf, .. } => buf.len(),
        }
    }
}

/// An open file. Offsets and lengths of reads and writes are multiples of [`crate::SECTOR`];
/// memory should be too (an implementation copies what isn't).
pub trait File: Any + Send + Sync {
    fn name(&self) -> &str;
    /// Current length in bytes.
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Makes the file at least `len` bytes long; the new part is zero-filled (really written, not
    /// merely allocated) when `zero` is set, else sparse. Not durable until `sync`.
    fn grow(&self, len: u64, zero: bool) -> Result<()>;
    /// Makes the file at least `len` bytes long, with room on the device for the new part if the file system
    /// can promise that: then `Full` comes here and not at a write. Not durable until `sync`.
    fn allocate(&self, len: u64) -> Result<()> {
        self.grow(len, false)
    }
    /// Makes the file at most `len` bytes long and gives the rest back to the device. A crash before the next `sync`
    /// leaves the old length or the new one. No thread reads or writes beyond `len` meanwhile.
    fn shrink(&self, len: u64) -> Result<()>;
    /// Fills `buf` from `offset`. A read past the end is an error.
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// As `read`, into all of a buffer that the file has meanwhile: a read that is left behind ([`hedge`]) keeps it.
    fn read_owned(&self, class: Class, offset: u64, mut buf: AlignedBuf) -> Result<AlignedBuf> {
        self.read(class, offset, &mut buf)?;
        Ok(buf)
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()>;
    /// Submits all, waits for all; one result a request, in order.
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>>;
    /// Everything written to this file before the call is durable when it returns Ok.
    fn sync(&self, class: Class) -> Result<()>;
}

/// Writes to one of several files that are written and synced together.
pub struct FileWrite<'a> {
    pub file: &'a (dyn File + 'static),
    pub ops: Vec<Op<'a>>,
}

/// Held while an instance uses the directory.
pub trait DiskLock: Send + Sync {}

/// One directory on one device.
pub trait Disk: Send + Sync {
    /// What to call it in messages: the path.
    fn describe(&self) -> String;
    /// Opens a file that exists.
    fn open(&self, name: &str) -> Result<Arc<dyn File>>;
    /// Creates an empty file; `Exists` if there is one. The name is durable after `sync_dir`.
    fn create(&self, name: &str) -> Result<Arc<dyn File>>;
    fn exists(&self, name: &str) -> Result<bool>;
    fn remove(&self, name: &str) -> Result<()>;
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// All names, sorted.
    fn list(&self) -> Result<Vec<String>>;
    fn sync_dir(&self) -> Result<()>;
    /// Writes to several files of this disk; one result a file, in order. A device that can does it side
    /// by side.
    fn write_all(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        writes.iter_mut().map(|w| w.file.batch(class, &mut w.ops).into_iter().collect()).collect()
    }
    /// Syncs several files of this disk, each as by [`File::sync`]; one result a file, in order. A device
    /// that can does it side by side.
    fn sync_all(&self, class: Class, files: &[&(dyn File + 'static)]) -> Vec<Result<()>> {
        files.iter().map(|file| file.sync(class)).collect()
    }
    /// Writes to several files of this disk and syncs each that was written; one result a file, in order:
    /// the log's partitions are written so. A file's sync comes after its own writes; nothing is promised
    /// of the order between files.
    fn write_synced(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        let mut results = self.write_all(class, writes);
        let written: Vec<&dyn File> =
            writes.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(w, _)| w.file).collect();
        let synced = self.sync_all(class, &written);
        let places = results.iter_mut().filter(|result| result.is_ok());
        places.zip(synced).for_each(|(place, synced)| *place = synced);
        results
    }
    /// Writes to several files of this disk as [`Disk::write_all`] does, and hands the bytes to the operating system: they survive the
    /// end of this process at once, the loss of power only after a sync. Where there is such a way, without a wait for the device.
    fn write_handed(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        self.write_all(class, writes)
    }
    /// How the requests of a batch get to be in flight together, by name; None: nothing is to be said of it.
    fn batches(&self) -> Option<&'static str> {
        None
    }
    /// Takes the directory for one instance; `Locked` if another has it.
    fn lock(&self) -> Result<Box<dyn DiskLock>>;
    /// Bytes still free on the device.
    fn free_bytes(&self) -> Result<u64>;
    /// Counters since the start, where they are kept.
    fn stats(&self) -> Option<crate::stats::DiskStats> {
        None
    }
}
