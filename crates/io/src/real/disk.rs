//! A directory on a real device.
//!
//! Files are opened with `O_DIRECT` where the file system allows it, else through the page cache;
//! either way nothing counts as durable before `fdatasync`. A batch is submitted to a small pool of
//! threads, so that many requests are in flight at a time.

use crate::aligned::AlignedBuf;
use crate::disk::{Class, Disk, DiskError, DiskLock, File, Op, Result};
use crate::stats::{DiskStats, DiskTally};
use crate::{SECTOR, disk};
use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Zero-filling is written in pieces of this size.
const FILL: usize = 1 << 20;
/// Requests of one batch in flight at a time.
const IN_FLIGHT: usize = 8;
const LOCK_FILE: &str = "lock";

pub struct RealDisk {
    path: PathBuf,
    /// Nothing in the directory is made, changed or removed.
    read_only: bool,
    tally: Arc<DiskTally>,
}

impl RealDisk {
    /// The directory, made if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<RealDisk> {
        let path = path.as_ref().to_path_buf();
        fs::create_dir_all(&path).map_err(|e| failed("create", &path.display().to_string(), 0, 0, &e))?;
        Ok(RealDisk { path, read_only: false, tally: Arc::default() })
    }

    /// A directory that is there, to be read only: files are opened for reading, so whatever would change
    /// one fails, and a sync does nothing.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<RealDisk> {
        let path = path.as_ref().to_path_buf();
        let name = path.display().to_string();
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => Ok(RealDisk { path, read_only: true, tally: Arc::default() }),
            Ok(_) => Err(failed("open", &name, 0, 0, &IoError::from(ErrorKind::NotADirectory))),
            Err(e) => Err(failed("open", &name, 0, 0, &e)),
        }
    }

    fn writable(&self, what: &'static str, name: &str) -> Result<()> {
        if self.read_only {
            return Err(failed(what, name, 0, 0, &IoError::from(ErrorKind::ReadOnlyFilesystem)));
        }
        Ok(())
    }

    /// The directory as it is, looked at by nobody yet: if it is not there, what is done in it fails.
    pub fn at(path: impl AsRef<Path>) -> RealDisk {
        RealDisk { path: path.as_ref().to_path_buf(), read_only: false, tally: Arc::default() }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open_with(&self, name: &str, create: bool) -> Result<Arc<dyn File>> {
        let open = |direct: bool| {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(!self.read_only).create_new(create);
            if direct {
                options.custom_flags(libc::O_DIRECT);
            }
            options.open(self.path_of(name))
        };
        let file = match open(true) {
            // The file system has no direct I/O: a file made by the attempt is opened again.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                if create {
                    let _ = fs::remove_file(self.path_of(name));
                }
                open(false)
            }
            other => other,
        };
        match file {
            Ok(file) => {
                let len = file.metadata().map_err(|e| failed("stat", name, 0, 0, &e))?.len();
                let (name, len) = (name.to_string(), AtomicU64::new(len));
                Ok(Arc::new(RealFile { name, file, len, read_only: self.read_only, tally: self.tally.clone() }))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                Err(DiskError::Absent { name: self.path_of(name).display().to_string() })
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                Err(DiskError::Exists { name: self.path_of(name).display().to_string() })
            }
            Err(e) => Err(failed(if create { "create" } else { "open" }, name, 0, 0, &e)),
        }
    }
}

fn failed(what: &'static str, name: &str, offset: u64, len: u64, error: &IoError) -> DiskError {
    if error.raw_os_error() == Some(libc::ENOSPC) || error.raw_os_error() == Some(libc::EDQUOT) {
        return DiskError::Full { name: name.to_string(), what };
    }
    DiskError::Failed { name: name.to_string(), what, offset, len, cause: error.to_string() }
}

struct RealLock {
    _file: fs::File,
}
impl DiskLock for RealLock {}

impl Disk for RealDisk {
    fn describe(&self) -> String {
        self.path.display().to_string()
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        self.open_with(name, false)
    }
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.writable("create", name)?;
        self.open_with(name, true)
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.path_of(name).try_exists().map_err(|e| failed("look up", name, 0, 0, &e))
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.writable("remove", name)?;
        fs::remove_file(self.path_of(name)).map_err(|e| match e.kind() {
            ErrorKind::NotFound => DiskError::Absent { name: name.to_string() },
            _ => failed("remove", name, 0, 0, &e),
        })
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.writable("rename", from)?;
        fs::rename(self.path_of(from), self.path_of(to)).map_err(|e| failed("rename", from, 0, 0, &e))
    }
    fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|e| failed("list", "", 0, 0, &e))? {
            let entry = entry.map_err(|e| failed("list", "", 0, 0, &e))?;
            names.extend(entry.file_name().into_string().ok().filter(|n| n != LOCK_FILE));
        }
        names.sort_unstable();
        Ok(names)
    }
    fn sync_dir(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let dir = fs::File::open(&self.path).map_err(|e| failed("open", "", 0, 0, &e))?;
        dir.sync_all().map_err(|e| failed("sync directory", "", 0, 0, &e))
    }
    fn lock(&self) -> Result<Box<dyn DiskLock>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(!self.read_only).create(!self.read_only).truncate(false);
        let file = match options.open(self.path_of(LOCK_FILE)) {
            Ok(file) => file,
            // Without the file nobody runs here. Readers lock the directory, which keeps out other readers only.
            Err(e) if self.read_only && e.kind() == ErrorKind::NotFound => {
                fs::File::open(&self.path).map_err(|e| failed("open", LOCK_FILE, 0, 0, &e))?
            }
            Err(e) => return Err(failed("open", LOCK_FILE, 0, 0, &e)),
        };
        // SAFETY: the descriptor is open for the call.
        let taken = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
        if taken {
            Ok(Box::new(RealLock { _file: file }))
        } else {
            Err(DiskError::Locked { name: self.describe() })
        }
    }
    fn stats(&self) -> Option<DiskStats> {
        Some(self.tally.read())
    }
    fn free_bytes(&self) -> Result<u64> {
        let path = std::ffi::CString::new(self.path.display().to_string())
            .map_err(|_| failed("stat", "", 0, 0, &IoError::from(ErrorKind::InvalidInput)))?;
        // SAFETY: all zero is a valid statvfs.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the call.
        if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
            return Err(failed("stat", "", 0, 0, &IoError::last_os_error()));
        }
        Ok(stat.f_bavail * stat.f_frsize)
    }
}

struct RealFile {
    name: String,
    file: fs::File,
    read_only: bool,
    len: AtomicU64,
    tally: Arc<DiskTally>,
}

fn is_aligned(buf: &[u8]) -> bool {
    (buf.as_ptr() as usize).is_multiple_of(SECTOR)
}

impl RealFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let fail = |len: usize, e: &IoError| failed("read", &self.name, offset, len as u64, e);
        if is_aligned(buf) {
            let len = buf.len();
            return self.file.read_exact_at(buf, offset).map_err(|e| fail(len, &e));
        }
        let mut bounce = AlignedBuf::zeroed(buf.len());
        let len = buf.len();
        self.file.read_exact_at(&mut bounce[..len], offset).map_err(|e| fail(len, &e))?;
        buf.copy_from_slice(&bounce[..len]);
        Ok(())
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let written = if is_aligned(buf) {
            self.file.write_all_at(buf, offset)
        } else {
            self.file.write_all_at(&AlignedBuf::from_slice(buf)[..buf.len()], offset)
        };
        written.map_err(|e| failed("write", &self.name, offset, buf.len() as u64, &e))?;
        self.len.fetch_max(offset + buf.len() as u64, Ordering::AcqRel);
        Ok(())
    }
    fn one(&self, op: &mut Op<'_>) -> Result<()> {
        match op {
            Op::Read { offset, buf } => self.read_at(*offset, buf),
            Op::Write { offset, buf } => self.write_at(*offset, buf),
        }
    }
}

impl RealFile {
    /// All requests of a batch, side by side if they are many.
    fn all(&self, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        if ops.len() < 4 {
            return ops.iter_mut().map(|op| self.one(op)).collect();
        }
        let part = ops.len().div_ceil(IN_FLIGHT);
        std::thread::scope(|scope| {
            let threads: Vec<_> = ops
                .chunks_mut(part)
                .map(|chunk| scope.spawn(move || chunk.iter_mut().map(|op| self.one(op)).collect::<Vec<_>>()))
                .collect();
            threads
                .into_iter()
                .flat_map(|t| {
                    t.join().unwrap_or_else(|_| {
                        vec![Err(failed("batch", &self.name, 0, 0, &IoError::from(ErrorKind::Other)))]
                    })
                })
                .collect()
        })
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
            self.len.fetch_max(len, Ordering::AcqRel);
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
            if unsafe { libc::fallocate(self.file.as_raw_fd(), 0, now as libc::off_t, (len - now) as libc::off_t) } == 0 {
                self.len.fetch_max(len, Ordering::AcqRel);
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
    fn read(&self, class: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        let started = Instant::now();
        let result = self.read_at(offset, buf);
        self.tally.classes[class as usize].note(started, buf.len() as u64, result.is_ok());
        result
    }
    fn write(&self, class: Class, offset: u64, buf: &[u8]) -> Result<()> {
        let started = Instant::now();
        let result = self.write_at(offset, buf);
        self.tally.classes[class as usize].note(started, buf.len() as u64, result.is_ok());
        result
    }
    fn batch(&self, class: Class, ops: &mut [Op<'_>]) -> Vec<Result<()>> {
        let started = Instant::now();
        let results = self.all(ops);
        for (op, result) in ops.iter().zip(&results) {
            let len = match op {
                Op::Read { buf, .. } => buf.len(),
                Op::Write { buf, .. } => buf.len(),
            };
            self.tally.classes[class as usize].note(started, len as u64, result.is_ok());
        }
        results
    }
    fn sync(&self, _class: disk::Class) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let started = Instant::now();
        let result = self.file.sync_data().map_err(|e| failed("sync", &self.name, 0, 0, &e));
        self.tally.syncs.note(started, 0, result.is_ok());
        result
    }
}

#[cfg(test)]
mod tests;
