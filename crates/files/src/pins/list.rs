//! The pins on flash: one file, replaced whole, with a checksum.

use std::path::Path;
use std::sync::Arc;
use terrace_io::disk::{Class, Disk, DiskError, DiskLock};
use terrace_io::real::disk::RealDisk;
use terrace_io::{AlignedBuf, SECTOR};
use twox_hash::XxHash3_128;

const NAME: &str = "pins";
const NEW: &str = "pins-new";
const MAGIC: u32 = u32::from_le_bytes(*b"TFP1");
/// Magic, length of what follows, and its checksum.
const HEAD: usize = 4 + 8 + 16;
/// A thousand paths of a kilobyte, and some.
const BYTES_MAX: usize = 2 << 20;

pub struct List {
    disk: Arc<dyn Disk>,
    _lock: Box<dyn DiskLock>,
}

impl List {
    pub fn open(directory: &Path) -> Result<List, String> {
        let why = |error: DiskError| format!("{}: {error}", directory.display());
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(directory).map_err(why)?);
        let lock = disk.lock().map_err(why)?;
        Ok(List { disk, _lock: lock })
    }

    /// An error: there is a list, and it is damaged.
    pub fn read(&self) -> Result<Vec<String>, String> {
        if !self.disk.exists(NAME).map_err(|error| error.to_string())? {
            return Ok(Vec::new());
        }
        let file = self.disk.open(NAME).map_err(|error| error.to_string())?;
        let len = usize::try_from(file.len()).unwrap_or(usize::MAX) / SECTOR * SECTOR;
        let damaged = || "the list of pins on flash is damaged: remove it, and pin again".to_string();
        if len == 0 || len > BYTES_MAX {
            return Err(damaged());
        }
        let mut buffer = AlignedBuf::zeroed(len);
        file.read(Class::BpeRead, 0, &mut buffer).map_err(|error| error.to_string())?;
        let number = |at: usize| u64::from_le_bytes(buffer[at..at + 8].try_into().unwrap_or_default());
        let length = usize::try_from(number(4)).unwrap_or(usize::MAX);
        let body = HEAD.checked_add(length).and_then(|end| buffer.get(HEAD..end)).ok_or_else(damaged)?;
        if buffer[..4] != MAGIC.to_le_bytes() || buffer[12..HEAD] != XxHash3_128::oneshot(body).to_le_bytes()
        {
            return Err(damaged());
        }
        let text = std::str::from_utf8(body).map_err(|_| damaged())?;
        Ok(text.lines().map(str::to_string).collect())
    }

    /// Paths have no line ends.
    pub fn write<'a>(&self, pins: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let body = pins.collect::<Vec<_>>().join("\n");
        let mut buffer = AlignedBuf::zeroed((HEAD + body.len()).next_multiple_of(SECTOR));
        buffer[..4].copy_from_slice(&MAGIC.to_le_bytes());
        buffer[4..12].copy_from_slice(&(body.len() as u64).to_le_bytes());
        buffer[12..HEAD].copy_from_slice(&XxHash3_128::oneshot(body.as_bytes()).to_le_bytes());
        buffer[HEAD..HEAD + body.len()].copy_from_slice(body.as_bytes());
        let write = || {
            if self.disk.exists(NEW)? {
                self.disk.remove(NEW)?;
            }
            let file = self.disk.create(NEW)?;
            file.grow(buffer.len() as u64, false)?;
            file.write(Class::BpeFill, 0, &buffer)?;
            file.sync(Class::BpeFill)?;
            self.disk.rename(NEW, NAME)?;
            self.disk.sync_dir()
        };
        write().map_err(|error: DiskError| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_read_back_and_a_damaged_list_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let list = List::open(dir.path()).unwrap();
        assert_eq!(list.read().unwrap(), Vec::<String>::new());
        for pins in [&["a/b", "ä ö"][..], &["one"], &[]] {
            list.write(pins.iter().copied()).unwrap();
            assert_eq!(list.read().unwrap(), pins);
        }
        list.write(["a/b"].into_iter()).unwrap();
        let path = dir.path().join(NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[HEAD] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(list.read().unwrap_err().contains("damaged"));
        std::fs::write(&path, b"").unwrap();
        assert!(list.read().is_err());
    }
}
