//! Room on the volume for what a sort cannot keep in memory: one file, written and read in order, gone with its owner.
//!
//! Nothing in it outlives the process: it is never synced, and what a crash leaves of it the next start removes.

use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::{Class, Disk, DiskError, File};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::{AlignedBuf, SECTOR};

const PREFIX: &str = "sort.";
/// The file grows so many bytes at a time.
const GROW: u64 = 4 << 20;
/// Bytes of a request.
pub const CHUNK: usize = 64 << 10;
/// Bytes of a chunk that a reader keeps when it reads the next; an entry is shorter.
pub const CARRIED: usize = 32 << 10;

static NAMES: AtomicU64 = AtomicU64::new(0);

/// Removes what a crash left.
pub fn remove_left(volume: &dyn Disk) -> Result<()> {
    for name in volume.list()?.iter().filter(|name| name.starts_with(PREFIX)) {
        volume.remove(name)?;
    }
    Ok(())
}

/// The disk is full, or it fails: neither is more than this sort's concern, for nobody else reads the file.
fn failed(error: DiskError) -> Error {
    match error {
        DiskError::Full { .. } => Error::Full(format!("sorting: {error}")),
        other => Error::Unavailable(format!("sorting: {other}")),
    }
}

struct Place {
    file: Option<Arc<dyn File>>,
    /// Where the next bytes go; a multiple of [`SECTOR`].
    next: u64,
    len: u64,
}

pub struct Spill {
    volume: Arc<dyn Disk>,
    name: String,
    place: Mutex<Place, { Mutexes::Sorts as u8 }>,
}

/// Bytes in the file.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    start: u64,
    len: u64,
}

impl Spill {
    /// The file is made with the first byte.
    pub fn new(volume: Arc<dyn Disk>) -> Arc<Spill> {
        let name = format!("{PREFIX}{}", NAMES.fetch_add(1, Ordering::Relaxed));
        Arc::new(Spill { volume, name, place: Mutex::new(Place { file: None, next: 0, len: 0 }) })
    }

    /// Writes whole sectors behind all that was written before. Returns where they are.
    fn append(&self, bytes: &[u8]) -> Result<u64> {
        let mut place = self.place.lock();
        let file = match &place.file {
            Some(file) => file.clone(),
            None => place.file.insert(self.volume.create(&self.name).map_err(failed)?).clone(),
        };
        let (at, end) = (place.next, place.next + bytes.len() as u64);
        if end > place.len {
            let len = end.next_multiple_of(GROW);
            file.allocate(len).map_err(failed)?;
            place.len = len;
        }
        file.write(Class::Spill, at, bytes).map_err(failed)?;
        place.next = end;
        Ok(at)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let file = self.place.lock().file.clone();
        let file = file.ok_or_else(|| Error::Invalid("nothing was spilled".into()))?;
        file.read(Class::Spill, at, into).map_err(failed)
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        if self.place.get_mut().file.take().is_some() {
            // If it stays, the next start removes it.
            let _ = self.volume.remove(&self.name);
        }
    }
}

/// Writes one run. Nobody else appends to the file meanwhile.
pub struct Writer {
    spill: Arc<Spill>,
    buffer: AlignedBuf,
    used: usize,
    start: Option<u64>,
    len: u64,
}

impl Writer {
    pub fn new(spill: Arc<Spill>) -> Writer {
        Writer { spill, buffer: AlignedBuf::zeroed(CHUNK), used: 0, start: None, len: 0 }
    }

    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let now = bytes.len().min(CHUNK - self.used);
            self.buffer[self.used..self.used + now].copy_from_slice(&bytes[..now]);
            self.used += now;
            bytes = &bytes[now..];
            if self.used == CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.used > 0 {
            let at = self.spill.append(&self.buffer[..self.used.next_multiple_of(SECTOR)])?;
            self.start.get_or_insert(at);
            self.len += self.used as u64;
            self.used = 0;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Run> {
        self.flush()?;
        Ok(Run { start: self.start.unwrap_or(0), len: self.len })
    }
}

/// Reads one run.
pub struct Reader {
    spill: Arc<Spill>,
    run: Run,
    /// Bytes of the run read so far.
    read: u64,
    /// What is left of the chunk before, up to [`CARRIED`], and from there the chunk at hand.
    buffer: AlignedBuf,
    /// What of it is not taken yet.
    left: Range<usize>,
}

impl Reader {
    pub fn new(spill: Arc<Spill>, run: Run) -> Reader {
        Reader { spill, run, read: 0, buffer: AlignedBuf::zeroed(CARRIED + CHUNK), left: CARRIED..CARRIED }
    }

    /// Whether everything was taken.
    pub fn is_at_end(&self) -> bool {
        self.read == self.run.len && self.left.is_empty()
    }

    /// The next `len` bytes, not taken yet; at most [`CARRIED`].
    pub fn peek(&mut self, len: usize) -> Result<&[u8]> {
        while self.left.len() < len {
            let now = (self.run.len - self.read).min(CHUNK as u64) as usize;
            if now == 0 || self.left.len() > CARRIED {
                return Err(Error::Unavailable("sorting: the file ends too early".into()));
            }
            let start = CARRIED - self.left.len();
            self.buffer.copy_within(self.left.clone(), start);
            let sectors = now.next_multiple_of(SECTOR);
            self.spill.read(self.run.start + self.read, &mut self.buffer[CARRIED..CARRIED + sectors])?;
            self.left = start..CARRIED + now;
            self.read += now as u64;
        }
        Ok(self.peeked(len))
    }
    /// What was peeked at last, without a look at the file.
    pub fn peeked(&self, len: usize) -> &[u8] {
        &self.buffer[self.left.start..][..len]
    }
    pub fn take(&mut self, len: usize) {
        self.left.start += len;
    }
}
