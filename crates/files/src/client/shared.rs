//! The memory that the daemon shares, in a client: the mapping, and reads of it that ask the daemon nothing.
//!
//! Such a read finds the file's blocks in the index (`memory::index`), copies them, and looks whether the entries still hold: then the bytes
//! are of one version, which was fresh when the read began. If anything is missing, past its time or was overwritten meanwhile, the read
//! has failed and the daemon is to be asked.
//!
//! The daemon sees nothing of these reads, so a client tells it which blocks they used, one of [`SAMPLE`] of them, [`TOLD`] at a time.

use super::{Error, Result};
use crate::catalogue::{BLOCK_BYTES, block_len};
use crate::memory::index::{Entry, HEADER_BYTES, Index, SET_BYTES};
use crate::wire::{Fields, Malformed, Op, Put};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One in this many reads is remembered, and this many remembered ones are told at a time.
const SAMPLE: u32 = 8;
const TOLD: usize = 64;
/// Blocks of one read: a longer one is the daemon's.
const BLOCKS_MAX: u64 = 8;

/// Everything of the daemon that is mapped.
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is read only, belongs to no thread, and lives until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub fn new(fd: impl AsFd, bytes: usize) -> std::io::Result<Mapping> {
        let fd = fd.as_fd();
        // SAFETY: a new mapping of an open descriptor, at an address that the system chooses.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapping { base, bytes }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// # Safety
    /// The range is in the mapping, and a lease keeps its bytes from changing as long as the slice is used.
    pub unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference to it can outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Where the daemon's answer to the greeting says things are.
#[derive(Clone, Debug)]
pub struct Layout {
    pub mapped: u64,
    /// Bytes before the index.
    pub arena: u64,
    pub sets: u64,
    pub seed: u64,
    pub store: String,
}

impl Layout {
    pub fn of(fields: &mut Fields<'_>) -> std::result::Result<Layout, Malformed> {
        let (_version, mapped) = (fields.u32()?, fields.u64()?);
        let (_block, _frame, _batch) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let layout = Layout {
            mapped,
            arena: fields.u64()?,
            sets: fields.u64()?,
            seed: fields.u64()?,
            store: fields.text()?.to_string(),
        };
        let index = layout.sets.checked_mul(SET_BYTES).and_then(|bytes| bytes.checked_add(HEADER_BYTES));
        let index = index.and_then(|bytes| bytes.checked_add(layout.arena));
        match index.is_some_and(|end| end <= mapped) && layout.arena.is_multiple_of(8) {
            true => Ok(layout),
            false => Err(Malformed("the index is not in the shared memory")),
        }
    }
}

pub struct Shared {
    mapping: Arc<Mapping>,
    arena: u64,
    index: Index,
    reads: AtomicU32,
    recent: parking_lot::Mutex<Vec<u32>>,
}

/// What a read without a question found.
#[derive(Clone, Copy)]
pub struct CachedFile {
    first: Entry,
    /// Bytes that were copied.
    pub copied: usize,
    /// The file's length.
    pub length: u64,
}

impl CachedFile {
    pub fn version(&self) -> Option<String> {
        self.first.with_version(str::to_string)
    }
}

impl Shared {
    pub fn new(mapping: Arc<Mapping>, layout: &Layout) -> Result<Shared> {
        if mapping.bytes() as u64 != layout.mapped {
            return Err(Error::Malformed(Malformed("the shared memory has another length")));
        }
        // SAFETY: the index lies in the mapping, as `Layout::of` has checked, which lives as long as `self`. It is only read.
        let index =
            unsafe { Index::new(mapping.base.add(layout.arena as usize), layout.sets, layout.seed, 0) };
        let (reads, recent) = (AtomicU32::new(0), parking_lot::Mutex::default());
        Ok(Shared { mapping, arena: layout.arena, index, reads, recent })
    }

    fn now() -> u64 {
        crate::unix::monotonic()
    }

    /// The file's version and length, if they are known, fresh, and its first block is here.
    pub fn stat(&self, path: &str) -> Option<CachedFile> {
        let first = self.index.find(path, 0, Shared::now())?;
        self.used(first.block);
        Some(CachedFile { first, copied: 0, length: first.length })
    }

    /// Copies bytes from `offset`, at most `length`, to where `place` says, which is given their number and returns null if it has no room.
    /// None: the daemon must be asked. What was written to the place is then of no use.
    ///
    /// # Safety
    /// `place` returns null or a pointer to as many bytes as it is given, that nothing else uses meanwhile.
    pub unsafe fn copy(
        &self,
        path: &str,
        offset: u64,
        length: u64,
        expected: &str,
        place: impl FnOnce(usize) -> *mut u8,
    ) -> Option<CachedFile> {
        let now = Shared::now();
        let first_index = u32::try_from(offset / BLOCK_BYTES).ok()?;
        let first = self.index.find(path, first_index, now)?;
        if !expected.is_empty() && first.with_version(|version| version == expected) != Some(true) {
            return None;
        }
        let len = length.min(first.length.saturating_sub(offset));
        let end = offset + len;
        if len > (BLOCKS_MAX - 1) * BLOCK_BYTES {
            return None;
        }
        let mut to = place(usize::try_from(len).ok()?);
        if to.is_null() {
            return None;
        }
        let mut entries = [first; BLOCKS_MAX as usize];
        let (mut at, mut count) = (offset, 0);
        while at < end {
            let index = u32::try_from(at / BLOCK_BYTES).ok()?;
            let entry = if count == 0 { first } else { self.index.find(path, index, now)? };
            let is_same = entry.length == first.length && entry.is_same_version(&first);
            let from = at - u64::from(index) * BLOCK_BYTES;
            let bytes = block_len(entry.length, index).saturating_sub(from).min(end - at);
            let begin = entry.offset.checked_add(from)?;
            if !is_same || bytes == 0 || begin.checked_add(bytes).is_none_or(|end| end > self.arena) {
                return None;
            }
            // SAFETY: the source is in the mapping, as was checked; the target is the caller's promise, and has room: no more than `len`
            // bytes are copied in all. The daemon may write to the source meanwhile: then `still_holds` says so and the copy is not used.
            // It is a call of the C library, about whose source the compiler assumes nothing.
            unsafe {
                libc::memcpy(
                    to.cast(),
                    self.mapping.base.as_ptr().add(begin as usize).cast(),
                    bytes as usize,
                );
                to = to.add(bytes as usize);
            }
            *entries.get_mut(count)? = entry;
            count += 1;
            at += bytes;
        }
        if !entries.iter().take(count.max(1)).all(|entry| self.index.still_holds(entry)) {
            return None;
        }
        self.used(first.block);
        Some(CachedFile { first, copied: len as usize, length: first.length })
    }

    fn used(&self, block: u32) {
        // Not each eighth: then a program that reads in a circle would never be seen to use some of its files.
        let scattered = self.reads.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9);
        if scattered < u32::MAX / SAMPLE {
            self.recent.lock().push(block);
        }
    }

    /// Whether the daemon is to be told what was read.
    pub fn has_news(&self) -> bool {
        self.recent.lock().len() >= TOLD
    }

    /// A request that tells the daemon which blocks were read, if there are any. It has no answer.
    pub fn news(&self, out: &mut Vec<u8>) {
        let blocks = std::mem::take(&mut *self.recent.lock());
        if blocks.is_empty() {
            return;
        }
        let mut frame = Put::new(out, 0, Op::Touch as u8);
        frame.u32(blocks.len() as u32 * SAMPLE).u32(blocks.len() as u32);
        for block in blocks {
            frame.u32(block);
        }
    }

    /// Sends the news at once. If the socket has no room the daemon is not told: the news is about what is used much.
    pub fn tell(&self, stream: BorrowedFd<'_>) {
        let mut out = Vec::new();
        self.news(&mut out);
        crate::unix::send_now(stream, &out);
    }
}
