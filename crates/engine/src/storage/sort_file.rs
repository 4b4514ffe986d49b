//! Room on the volume for what a sort cannot keep in memory: one file for all sorts of a build, gone with its owner. It is given out in
//! chunks; those of a run that is not needed any more are reused before the file grows.
//!
//! Nothing in it outlives the process: it is never synced, and what a crash leaves of it the next start removes.

use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::{Class, Disk, DiskError, File};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::{AlignedBuf, SECTOR};

const PREFIX: &str = "sort.";
/// The file grows by this many bytes at a time.
const GROW: u64 = 4 << 20;
/// Bytes of a request, and of what is given out at a time.
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

/// The disk is full, or it fails: that fails this sort only, for the file has no other reader.
fn failed(error: DiskError) -> Error {
    match error {
        DiskError::Full { .. } => Error::Full(format!("sorting: {error}")),
        other => Error::Unavailable(format!("sorting: {other}")),
    }
}

#[derive(Default)]
struct SortFile {
    file: Option<Arc<dyn File>>,
    /// Chunks that were given out for the first time.
    chunks: u32,
    /// The free ones among them.
    free: BTreeSet<u32>,
    len: u64,
}

pub struct Spill {
    volume: Arc<dyn Disk>,
    name: String,
    place: Mutex<SortFile, { Mutexes::Sorts as u8 }>,
}

/// Bytes in the file, which are its own as long as it is there.
pub struct Run {
    spill: Arc<Spill>,
    chunks: Vec<u32>,
    len: u64,
}

impl Spill {
    /// The file is made with the first byte.
    pub fn new(volume: Arc<dyn Disk>) -> Arc<Spill> {
        let name = format!("{PREFIX}{}", NAMES.fetch_add(1, Ordering::Relaxed));
        Arc::new(Spill { volume, name, place: Mutex::default() })
    }

    /// The first free chunk.
    fn take(&self) -> Result<(Arc<dyn File>, u32)> {
        let mut place = self.place.lock();
        let file = match &place.file {
            Some(file) => file.clone(),
            None => place.file.insert(self.volume.create(&self.name).map_err(failed)?).clone(),
        };
        if let Some(chunk) = place.free.pop_first() {
            return Ok((file, chunk));
        }
        let end = (u64::from(place.chunks) + 1) * CHUNK as u64;
        if end > place.len {
            let len = end.next_multiple_of(GROW);
            file.allocate(len).map_err(failed)?;
            place.len = len;
        }
        place.chunks += 1;
        Ok((file, place.chunks - 1))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let file = self.place.lock().file.clone();
        let file = file.ok_or_else(|| Error::Invalid("nothing was spilled".into()))?;
        file.read(Class::Spill, at, into).map_err(failed)
    }
}

impl Run {
    /// Where its bytes from `from` on are, the start of a chunk. None: behind its end.
    fn place(&self, from: u64) -> Option<u64> {
        let chunk = self.chunks.get((from / CHUNK as u64) as usize)?;
        Some(u64::from(*chunk) * CHUNK as u64)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.spill.place.lock().free.extend(self.chunks.drain(..));
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

/// Writes one run.
pub struct Writer {
    run: Run,
    buffer: AlignedBuf,
    used: usize,
}

impl Writer {
    pub fn new(spill: Arc<Spill>) -> Writer {
        let run = Run { spill, chunks: Vec::new(), len: 0 };
        Writer { run, buffer: AlignedBuf::zeroed(CHUNK), used: 0 }
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
            let (file, chunk) = self.run.spill.take()?;
            self.run.chunks.push(chunk);
            let bytes = &self.buffer[..self.used.next_multiple_of(SECTOR)];
            file.write(Class::Spill, u64::from(chunk) * CHUNK as u64, bytes).map_err(failed)?;
            self.run.len += self.used as u64;
            self.used = 0;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Run> {
        self.flush()?;
        Ok(self.run)
    }
}

/// Reads one run.
pub struct Reader {
    run: Arc<Run>,
    /// Bytes of the run read so far.
    read: u64,
    /// What is left of the chunk before, up to [`CARRIED`], and from there the chunk at hand.
    buffer: AlignedBuf,
    /// What of it is not taken yet.
    left: Range<usize>,
}

impl Reader {
    pub fn new(run: Arc<Run>) -> Reader {
        Reader { run, read: 0, buffer: AlignedBuf::zeroed(CARRIED + CHUNK), left: CARRIED..CARRIED }
    }

    /// Whether everything was taken.
    pub fn is_at_end(&self) -> bool {
        self.read == self.run.len && self.left.is_empty()
    }

    /// The next `len` bytes, not taken yet; at most [`CARRIED`].
    pub fn peek(&mut self, len: usize) -> Result<&[u8]> {
        while self.left.len() < len {
            let now = (self.run.len - self.read).min(CHUNK as u64) as usize;
            let place = self.run.place(self.read).filter(|_| now > 0 && self.left.len() <= CARRIED);
            let Some(place) = place else {
                return Err(Error::Unavailable("sorting: the file ends too early".into()));
            };
            let start = CARRIED - self.left.len();
            self.buffer.copy_within(self.left.clone(), start);
            let sectors = now.next_multiple_of(SECTOR);
            self.run.spill.read(place, &mut self.buffer[CARRIED..CARRIED + sectors])?;
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
