//! The bytes of objects: the arena that clients map to write, and files on flash, one an object, which they map too.
//!
//! Objects do not survive the daemon: files that an earlier one left are removed at the start.

use super::{ObjectId, Spill};
use crate::catalogue::Fault;
use crate::memory::arena::Arena;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskLock};
use terrace_io::real::disk::RealDisk;

/// Bytes of one write to flash.
const WRITE_BYTES: usize = 1 << 20;

struct Files {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    _lock: Box<dyn DiskLock>,
}

pub struct ObjectBytes {
    pub arena: Arc<Arena>,
    flash: Option<Files>,
}

fn name_of(id: ObjectId) -> String {
    format!("object-{id:016x}")
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::Busy(format!("flash for objects: {error}"))
}

impl ObjectBytes {
    /// Without flash, and if the directory cannot be used, all objects are in memory.
    pub fn open(bytes: u64, directory: Option<&Path>) -> Result<ObjectBytes, String> {
        let arena = Arena::writable(bytes).map_err(|error| format!("{bytes} bytes for objects: {error}"))?;
        let open = |directory: &Path| -> Result<Files, terrace_io::disk::DiskError> {
            let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(directory)?);
            let lock = disk.lock()?;
            for file in disk.list()?.iter().filter(|file| file.starts_with("object-")) {
                disk.remove(file)?;
            }
            Ok(Files { disk, directory: directory.to_path_buf(), _lock: lock })
        };
        let flash = directory.and_then(|directory| open(directory).ok());
        Ok(ObjectBytes { arena: Arc::new(arena), flash })
    }

    pub fn has_flash(&self) -> bool {
        self.flash.is_some()
    }

    /// Where the object's file is.
    pub fn path(&self, id: ObjectId) -> Option<PathBuf> {
        Some(self.flash.as_ref()?.directory.join(name_of(id)))
    }

    /// Makes the object's file, of zeros.
    pub fn create(&self, id: ObjectId, len: u64) -> Result<(), Fault> {
        let flash = self.flash.as_ref().ok_or_else(|| failed("there is none"))?;
        let file = flash.disk.create(&name_of(id)).map_err(failed)?;
        // Whole sectors: the disk writes no other.
        file.grow(len.max(1).next_multiple_of(terrace_io::SECTOR as u64), false).map_err(failed)
    }

    /// Copies an object from memory to its file.
    pub fn spill(&self, spill: Spill) -> Result<(), Fault> {
        self.create(spill.id, spill.extent.len)?;
        let flash = self.flash.as_ref().ok_or_else(|| failed("there is none"))?;
        let file = flash.disk.open(&name_of(spill.id)).map_err(failed)?;
        let bytes = self.arena.bytes(spill.extent);
        for (at, part) in bytes.chunks(WRITE_BYTES).enumerate() {
            let mut buf = AlignedBuf::zeroed(part.len());
            buf[..part.len()].copy_from_slice(part);
            file.write(Class::BpeFill, (at * WRITE_BYTES) as u64, &buf).map_err(failed)?;
        }
        Ok(())
    }

    /// The object is gone. Readers that have its file mapped keep their bytes.
    pub fn remove(&self, id: ObjectId) {
        if let Some(flash) = &self.flash {
            // A file that stays is removed at the next start.
            let _ = flash.disk.remove(&name_of(id));
        }
    }
}
