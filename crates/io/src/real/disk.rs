//! A directory on a real device.
//!
//! Files are opened with `O_DIRECT` where the file system allows it, else through the page cache;
//! either way nothing counts as durable before `fdatasync`. The requests of a batch, and the syncs of
//! files written together, are in flight together: see [`super::batch`].

use super::batch::{Backend, Carrier, Piece, backend};
use super::file::{RealFile, failed};
use super::holder;
use crate::disk::{Class, Disk, DiskError, DiskLock, File, FileWrite, Result};
use crate::share::Share;
use crate::stats::{DiskStats, DiskTally};
use std::any::Any;
use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const LOCK_FILE: &str = "lock";

pub struct RealDisk {
    path: PathBuf,
    /// Nothing in the directory is made, changed or removed.
    read_only: bool,
    tally: Arc<DiskTally>,
    carrier: Carrier,
    /// What background classes may have in flight, in all files.
    share: Arc<Share>,
}

impl RealDisk {
    /// The directory, made, durably, if there is none. Its batches go the way of this process's [`backend`].
    pub fn open(path: impl AsRef<Path>) -> Result<RealDisk> {
        RealDisk::open_through(path, backend()?)
    }

    /// As [`RealDisk::open`], with batches through `backend`; an error if that is not to be had.
    pub fn open_through(path: impl AsRef<Path>, backend: Backend) -> Result<RealDisk> {
        let path = path.as_ref().to_path_buf();
        let fail = |what, e: &IoError| failed(what, &path.display().to_string(), 0, 0, e);
        let carrier = Carrier::of(backend).map_err(|cause| fail(backend.name(), &IoError::other(cause)))?;
        make_directory(&path)?;
        Ok(RealDisk {
            path,
            read_only: false,
            tally: Arc::default(),
            carrier,
            share: Arc::new(Share::of_device()),
        })
    }

    /// As [`RealDisk::open`], for new files. True: the directory was made, and its name is durable.
    pub fn open_new(path: impl AsRef<Path>) -> Result<(RealDisk, bool)> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let made = match fs::create_dir(path) {
            Ok(()) => true,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
            Err(e) => return Err(failed("create", &name, 0, 0, &e)),
        };
        if made {
            sync_directory(parent(path))?;
        }
        Ok((RealDisk::open(path)?, made))
    }

    /// Removes the directory if it has nothing but the lock's file, which no process may hold.
    pub fn remove_directory(&self) {
        if self.list().is_ok_and(|names| names.is_empty()) {
            let _ = fs::remove_file(self.path_of(LOCK_FILE));
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// An existing directory, opened read-only: files are opened for reading, so an operation that would change
    /// one fails, and a sync does nothing.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<RealDisk> {
        let path = path.as_ref().to_path_buf();
        let name = path.display().to_string();
        let carrier =
            Carrier::of(backend()?).map_err(|cause| failed("open", &name, 0, 0, &IoError::other(cause)))?;
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => Ok(RealDisk {
                path,
                read_only: true,
                tally: Arc::default(),
                carrier,
                share: Arc::new(Share::of_device()),
            }),
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

    /// The directory as it is, not yet checked: if it does not exist, operations in it fail. Its
    /// batches run in turn if the requested backend is unavailable; the other disks do not open then.
    pub fn at(path: impl AsRef<Path>) -> RealDisk {
        let carrier = backend().ok().and_then(|backend| Carrier::of(backend).ok()).unwrap_or(Carrier::InTurn);
        RealDisk {
            path: path.as_ref().to_path_buf(),
            read_only: false,
            tally: Arc::default(),
            carrier,
            share: Arc::new(Share::of_device()),
        }
    }

    fn lock_error(&self, error: &IoError, file: Option<&mut fs::File>) -> DiskError {
        match error.kind() {
            ErrorKind::WouldBlock => {
                DiskError::Locked { name: self.describe(), by: file.and_then(holder::read) }
            }
            _ => failed("lock", &self.path_of(LOCK_FILE).display().to_string(), 0, 0, error),
        }
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
            Ok(file) => Ok(Arc::new(RealFile::new(
                name,
                file,
                self.read_only,
                self.tally.clone(),
                self.carrier,
                self.share.clone(),
            )?)),
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

/// A file of a real disk as what it is.
fn real<'a>(file: &'a (dyn File + 'static)) -> &'a RealFile {
    let real = (file as &dyn Any).downcast_ref::<RealFile>();
    real.unwrap_or_else(|| panic!("{} is a file of another kind of disk", file.name()))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_directory(path: &Path) -> Result<()> {
    let synced = fs::File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|e| failed("sync directory", &path.display().to_string(), 0, 0, &e))
}

/// Makes the directory, and those above it, as far as they are not there. What was made is durable.
fn make_directory(path: &Path) -> Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
    fs::create_dir_all(path).map_err(|e| failed("create", &path.display().to_string(), 0, 0, &e))?;
    let made = missing.into_iter().filter(|made| !made.as_os_str().is_empty());
    made.map(parent).try_for_each(sync_directory)
}

/// Takes an exclusive lock. NFS gives it only to a process that may write; it excludes readers, too, which take a shared one.
fn take_lock(read_only: bool, take: impl Fn(libc::c_int) -> std::io::Result<()>) -> std::io::Result<()> {
    match take(libc::LOCK_EX) {
        Err(e) if read_only && e.raw_os_error() == Some(libc::EBADF) => take(libc::LOCK_SH),
        taken => taken,
    }
}

struct RealLock {
    file: fs::File,
    /// The file has our name.
    is_named: bool,
}
impl DiskLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        if self.is_named {
            holder::erase(&self.file);
        }
    }
}

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
        let mut file = match options.open(self.path_of(LOCK_FILE)) {
            Ok(file) => file,
            // Without the file no instance runs here. Readers lock the directory, which keeps out other readers only.
            Err(e) if self.read_only && e.kind() == ErrorKind::NotFound => {
                fs::File::open(&self.path).map_err(|e| failed("open", LOCK_FILE, 0, 0, &e))?
            }
            Err(e) => return Err(failed("open", LOCK_FILE, 0, 0, &e)),
        };
        let take = |how| {
            // SAFETY: the descriptor is open for the call.
            match unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } {
                0 => Ok(()),
                _ => Err(IoError::last_os_error()),
            }
        };
        if let Err(error) = take_lock(self.read_only, take) {
            return Err(self.lock_error(&error, Some(&mut file)));
        }
        if !self.read_only {
            holder::write(&mut file);
        }
        Ok(Box::new(RealLock { file, is_named: !self.read_only }))
    }
    fn write_all(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        let started = Instant::now();
        let files: Vec<&RealFile> = writes.iter().map(|w| real(w.file)).collect();
        let mut pieces: Vec<Piece<'_, '_>> = Vec::new();
        for (file, write) in files.iter().copied().zip(writes.iter_mut()) {
            pieces.extend(write.ops.iter_mut().map(|op| Piece { file, op }));
        }
        let mut results = self.carrier.all(&mut pieces).into_iter();
        let of_file = |(file, write): (&RealFile, &FileWrite<'_>)| {
            let own: Vec<Result<()>> = results.by_ref().take(write.ops.len()).collect();
            file.note(class, started, &write.ops, &own);
            own.into_iter().collect()
        };
        files.into_iter().zip(writes.iter()).map(of_file).collect()
    }
    fn sync_all(&self, class: Class, files: &[&(dyn File + 'static)]) -> Vec<Result<()>> {
        if self.read_only {
            return files.iter().map(|_| Ok(())).collect();
        }
        let started = Instant::now();
        let files: Vec<&RealFile> = files.iter().map(|file| real(*file)).collect();
        let results = self.carrier.sync(&files);
        let tally = &self.tally.syncs[class.index()];
        results.iter().for_each(|result| tally.note(started, 0, result.is_ok()));
        results
    }
    fn write_handed(&self, class: Class, writes: &mut [FileWrite<'_>]) -> Vec<Result<()>> {
        let one = |write: &mut FileWrite<'_>| {
            let (started, file) = (Instant::now(), real(write.file));
            let results: Vec<Result<()>> = write.ops.iter_mut().map(|op| file.write_handed(op)).collect();
            file.note(class, started, &write.ops, &results);
            results.into_iter().collect()
        };
        writes.iter_mut().map(one).collect()
    }
    fn batches(&self) -> Option<&'static str> {
        Some(self.carrier.backend().name())
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

#[cfg(test)]
mod tests;
