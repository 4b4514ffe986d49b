//! An open file of a real disk: requests done one at a time, and what a batch needs of it.

use super::batch::{Carrier, Piece};
use super::ring::single::{self, Single};
use crate::AlignedBuf;
use crate::SECTOR;
use crate::clock::Nanos;
use crate::disk::hedge;
use crate::disk::{Class, DiskError, File, Op, Result};
use crate::share::{Share, in_pieces, places};
use crate::stats::DiskTally;
use crate::traffic::Urgency;
use std::cell::Cell;
use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Zero-filling is written in pieces of this size.
const FILL: usize = 1 << 20;
/// Reads up to this length, in bytes, are copied if they may be left behind; longer ones are made in the caller's own buffer
/// (`read_owned`), or are not left behind.
const COPIED: usize = 64 << 10;

thread_local! {
    /// Where this thread's next read that may be left behind goes.
    static BOUNCE: Cell<Option<AlignedBuf>> = const { Cell::new(None) };
}

pub(super) fn failed(what: &'static str, name: &str, offset: u64, len: u64, error: &IoError) -> DiskError {
    if error.raw_os_error() == Some(libc::ENOSPC) || error.raw_os_error() == Some(libc::EDQUOT) {
        return DiskError::Full { name: name.to_string(), what };
    }
    DiskError::Failed { name: name.to_string(), what, offset, len, cause: error.to_string() }
}

pub(super) fn is_aligned(buf: &[u8]) -> bool {
    (buf.as_ptr() as usize).is_multiple_of(SECTOR)
}

pub(super) struct RealFile {
    name: String,
    file: fs::File,
    read_only: bool,
    len: AtomicU64,
    /// The same file through the system's page cache. Opened when it is first needed.
    cached: OnceLock<fs::File>,
    tally: Arc<DiskTally>,
    carrier: Carrier,
    /// The disk's: what background classes may have in flight.
    share: Arc<Share>,
}

impl AsFd for RealFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl RealFile {
    pub fn new(
        name: &str,
        file: fs::File,
        read_only: bool,
        tally: Arc<DiskTally>,
        carrier: Carrier,
        share: Arc<Share>,
    ) -> Result<RealFile> {
        let len = file.metadata().map_err(|e| failed("stat", name, 0, 0, &e))?.len();
        let len = AtomicU64::new(len);
        let cached = OnceLock::new();
        Ok(RealFile { name: name.to_string(), file, read_only, len, cached, tally, carrier, share })
    }

    /// Its name, in errors.
    pub fn label(&self) -> &str {
        &self.name
    }

    /// A write came to its end at `end`.
    pub fn reaches(&self, end: u64) {
        self.len.fetch_max(end, Ordering::AcqRel);
    }

    /// Refuses what is not a multiple of a sector.
    pub fn check(&self, op: &Op<'_>) -> Result<()> {
        let (what, offset, len) = match op {
            Op::Read { offset, buf } => ("read", *offset, buf.len()),
            Op::Write { offset, buf } => ("write", *offset, buf.len()),
        };
        if offset.is_multiple_of(SECTOR as u64) && len.is_multiple_of(SECTOR) {
            return Ok(());
        }
        let cause = format!("not a multiple of {SECTOR} bytes");
        Err(DiskError::Failed { name: self.name.clone(), what, offset, len: len as u64, cause })
    }

    /// A request by itself.
    pub fn one(&self, op: &mut Op<'_>) -> Result<()> {
        self.check(op)?;
        match op {
            Op::Read { offset, buf } => self.read_at(*offset, buf),
            Op::Write { offset, buf } => self.write_at(*offset, buf),
        }
    }

    pub fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| failed("sync", &self.name, 0, 0, &e))
    }

    /// Counts what became of a batch's requests.
    pub fn note(&self, class: Class, started: Instant, ops: &[Op<'_>], results: &[Result<()>]) {
        for (op, result) in ops.iter().zip(results) {
            self.tally.classes[class.index()].note(started, op.len() as u64, result.is_ok());
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len();
        if len <= COPIED
            && let Some(bound) = self.bound()
        {
            let bounce = BOUNCE.take().filter(|bounce| bounce.len() >= len);
            let bounce = bounce.unwrap_or_else(|| AlignedBuf::zeroed(len));
            let bounce = self.read_within(bound, offset, bounce, len)?;
            buf.copy_from_slice(&bounce[..len]);
            BOUNCE.set(Some(bounce));
            return Ok(());
        }
        self.read_here(offset, buf)
    }

    /// The bound of a read that may be left behind.
    fn bound(&self) -> Option<Nanos> {
        hedge::bound().filter(|_| matches!(self.carrier, Carrier::Rings(_)))
    }

    /// Fills the first `len` bytes of `buf` within `bound` nanoseconds, or leaves the read behind.
    fn read_within(&self, bound: Nanos, offset: u64, buf: AlignedBuf, len: usize) -> Result<AlignedBuf> {
        let (mut buf, begun) = match single::ALL.read(self.file.as_fd(), offset, buf, len, bound) {
            Single::Read(buf, Ok(moved)) => (buf, moved.min(len)),
            Single::Read(buf, Err(error)) if error.kind() == ErrorKind::Interrupted => (buf, 0),
            Single::Read(buf, Err(error)) if error.kind() == ErrorKind::WouldBlock => (buf, 0),
            Single::Read(_, Err(error)) => {
                return Err(failed("read", &self.name, offset, len as u64, &error));
            }
            Single::Overdue => return Err(DiskError::Overdue { name: self.name.clone(), offset }),
            Single::Not(buf) => (buf, 0),
        };
        if begun < len {
            // From its start: what is left need not be aligned.
            self.read_here(offset, &mut buf[..len])?;
        }
        Ok(buf)
    }

    fn read_here(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len();
        let read = if is_aligned(buf) {
            self.file.read_exact_at(buf, offset)
        } else {
            let mut bounce = AlignedBuf::zeroed(len);
            let read = self.file.read_exact_at(&mut bounce[..len], offset);
            buf.copy_from_slice(&bounce[..len]);
            read
        };
        read.map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => self.too_short(offset, len as u64),
            _ => failed("read", &self.name, offset, len as u64, &e),
        })
    }

    /// The file ends before what was to be read of it does: as it is on the disk, which others may have cut.
    fn too_short(&self, offset: u64, len: u64) -> DiskError {
        let end = self.file.metadata().map_or(self.len(), |found| found.len());
        let missing = (offset + len).saturating_sub(end.max(offset));
        let cause = format!("the file ends at {end}: {missing} bytes are missing");
        DiskError::Failed { name: self.name.clone(), what: "read", offset, len, cause }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let written = if is_aligned(buf) {
            self.file.write_all_at(buf, offset)
        } else {
            self.file.write_all_at(&AlignedBuf::from_slice(buf)[..buf.len()], offset)
        };
        written.map_err(|e| failed("write", &self.name, offset, buf.len() as u64, &e))?;
        self.reaches(offset + buf.len() as u64);
        Ok(())
    }

    /// Writes into the page cache, from where a sync of the file takes it. The kernel keeps both ways to one file apart: what the cache
    /// has of a place is written before, and dropped when, it is read or written directly. Without a cache it is a write like others.
    pub fn write_handed(&self, op: &mut Op<'_>) -> Result<()> {
        self.check(op)?;
        let Op::Write { offset, buf } = op else { return self.one(op) };
        let Some(cached) = self.through_cache() else { return self.write_at(*offset, buf) };
        let written = cached.write_all_at(buf, *offset);
        written.map_err(|e| failed("write", &self.name, *offset, buf.len() as u64, &e))?;
        self.reaches(*offset + buf.len() as u64);
        Ok(())
    }

    /// None: it can't be opened so, this time.
    fn through_cache(&self) -> Option<&fs::File> {
        if self.cached.get().is_none() {
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let opened = fs::OpenOptions::new().write(true).open(path).ok()?;
            return Some(self.cached.get_or_init(|| opened));
        }
        self.cached.get()
    }

    fn noted(&self, class: Class, mut op: Op<'_>) -> Result<()> {
        let started = Instant::now();
        let one = std::slice::from_mut(&mut op);
        let result =
            in_pieces(&self.share, class, one, |op| places(op.len()), |ops| vec![self.one(&mut ops[0])]);
        self.note(class, started, &[op], &result);
        result.into_iter().collect()
    }
}

impl File for RealFile {
    fn name(&self) -> &str {
        &self.name
    }
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }
    fn grow(&self, len: u64, zero: bool) -> Result<()> {
        let now = self.len();
        if len <= now {
            return Ok(());
        }
        if zero {
            let zeros = AlignedBuf::zeroed(FILL);
            let mut at = now;
            while at < len {
                let part = (len - at).min(FILL as u64) as usize;
                self.write_at(at, &zeros[..part])?;
                at += part as u64;
            }
        } else {
            self.file.set_len(len).map_err(|e| failed("grow", &self.name, now, len - now, &e))?;
            self.reaches(len);
        }
        Ok(())
    }
    fn allocate(&self, len: u64) -> Result<()> {
        let now = self.len();
        if len <= now {
            return Ok(());
        }
        loop {
            // SAFETY: the descriptor is open for the call.
            let done = unsafe {
                libc::fallocate(self.file.as_raw_fd(), 0, now as libc::off_t, (len - now) as libc::off_t)
            };
            if done == 0 {
                self.reaches(len);
                return Ok(());
            }
            let error = IoError::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The file system promises nothing: a write may meet a full device.
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return self.grow(len, false),
                _ => return Err(failed("allocate", &self.name, now, len - now, &error)),
            }
        }
    }
    fn shrink(&self, len: u64) -> Result<()> {
        let now = self.len();
        if len < now {
            self.file.set_len(len).map_err(|e| failed("shrink", &self.name, len, now - len, &e))?;
            self.len.store(len, Ordering::Release);
        }
        Ok(())
    }
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.noted(class, Op::Read { offset, buf })
    }
    fn read_owned(&self, class: Class, offset: u64, mut buf: AlignedBuf) -> Result<AlignedBuf> {
        let Some(bound) = self.bound().filter(|_| class.urgency() != Urgency::Background) else {
            return self.read(class, offset, &mut buf).map(|()| buf);
        };
        let (started, len) = (Instant::now(), buf.len());
        self.check(&Op::Read { offset, buf: &mut buf })?;
        let result = self.read_within(bound, offset, buf, len);
        self.tally.classes[class.index()].note(started, len as u64, result.is_ok());
        result
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        self.noted(class, Op::Write { offset, buf })
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        let started = Instant::now();
        let all = |ops: &mut [Op<'_>]| {
            let mut pieces: Vec<Piece<'_, '_>> = ops.iter_mut().map(|op| Piece { file: self, op }).collect();
            self.carrier.all(&mut pieces)
        };
        let results = in_pieces(&self.share, class, ops, |op| places(op.len()), all);
        self.note(class, started, ops, &results);
        results
    }
    fn sync(&self, class: Class) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let started = Instant::now();
        let result = self.sync_data();
        self.tally.syncs[class.index()].note(started, 0, result.is_ok());
        result
    }
}
