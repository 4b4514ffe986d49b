//! A local directory as an object store: a key is a path below it.
//!
//! What the crate's `LocalFileSystem` does not do is added here, for slots are reused once an object
//! is published, so an object must survive the loss of power like one in a real store:
//! * a directory counts as durable only when this process has synced it and all above it (another
//!   thread, or a process that died, may have made it and not synced it yet);
//! * an object found to exist already is synced before that is told;
//! * a deletion is synced;
//! * a put on condition of a version compares and replaces under a lock on the root directory; so does each
//!   put of the epoch object, which removes what a put of it left that died;
//! * a root that is no longer the directory that was opened (unmounted, moved away) answers nothing, unless
//!   the other directory has an epoch object: an object put into the place below a mount would be gone
//!   when the mount is back. What a put that was under way has made there goes again, with the root itself unless it was a mount's:
//!   otherwise an operator who moves the directory back would find it moved into that one.
//!
//! An upload in parts is a staged file that parts are written into at their offsets; its completion syncs it and gives it the key as
//! its name (`uploads`).
//!
//! Directories that became empty are removed when no put is under way (`gate`). Staged files of a
//! process that died (`<key>#<number>`) stay until [`ObjectStore::remove_staged`]; listings don't show them.
//!
//! Locks: gate, then `durable`; the root's file lock inside the gate.

mod staged;
mod uploads;

use crate::object::adapter::each_in_order;
use crate::object::verdict::cause;
use crate::share::Share;
use crate::stats::{StoreStats, StoreTally};
use crate::store::{Listed, ObjectStore, Purpose, Result, Start, StoreError, Upload, UploadPart, Version};
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResultPayload, ObjectMeta, ObjectStore as _, ObjectStoreExt as _, PutMode,
    PutOptions, PutPayload,
};
use parking_lot::{Mutex, RwLock};
use pollster::block_on;
use std::collections::HashSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use uploads::Uploads;

/// The object that every store in use has.
const EPOCH: &str = "epoch";
/// Directories remembered as durable; beyond it one starts anew.
const DURABLE_MAX: usize = 1 << 16;

pub(crate) struct Local {
    inner: LocalFileSystem,
    root: PathBuf,
    /// Device and inode of the root.
    identity: Mutex<(u64, u64)>,
    /// Another file system begins at the root.
    is_mount: bool,
    /// Puts and deletions share it; removing empty directories has it alone.
    gate: RwLock<()>,
    durable: Mutex<HashSet<PathBuf>>,
    /// Why a directory could not be synced: from then on nothing is put.
    unsynced: Mutex<Option<String>>,
    uploads: Uploads,
    share: Share,
    /// Requests of one call that are in flight at a time.
    parallel_max: usize,
    tally: StoreTally,
}

fn identity(dir: &FsPath) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(dir).map(|meta| (meta.dev(), meta.ino()))
}

fn sync_dir(dir: &FsPath) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

impl Local {
    /// Opens the directory, made if there is none unless it is opened to read only.
    pub(crate) fn open(root: &FsPath, in_flight_max: usize, read_only: bool) -> Result<Local> {
        let refuse = |cause: String| StoreError::Refused { key: root.display().to_string(), cause };
        let absolute = std::path::absolute(root).map_err(|e| refuse(e.to_string()))?;
        if !read_only {
            std::fs::create_dir_all(&absolute).map_err(|e| refuse(e.to_string()))?;
        }
        let root = absolute.canonicalize().map_err(|e| refuse(e.to_string()))?;
        // Those above may be new too; one that can't be opened was not made here.
        for dir in root.ancestors().filter(|_| !read_only) {
            let _ = sync_dir(dir);
        }
        let identity = identity(&root).map_err(|e| refuse(e.to_string()))?;
        let above = root.parent().and_then(|above| self::identity(above).ok());
        let is_mount = above.is_none_or(|(device, _)| device != identity.0);
        let inner = LocalFileSystem::new_with_prefix(&root).map_err(|e| refuse(cause(&e)))?.with_fsync(true);
        let places = in_flight_max.max(2);
        Ok(Local {
            inner,
            root,
            identity: Mutex::new(identity),
            is_mount,
            gate: RwLock::default(),
            durable: Mutex::default(),
            unsynced: Mutex::default(),
            uploads: Uploads::default(),
            share: Share::new(places, places / 2),
            parallel_max: places / 2,
            tally: StoreTally::default(),
        })
    }

    fn path(&self, key: &str) -> Result<(Path, PathBuf)> {
        let refuse = |cause: String| StoreError::Refused { key: key.into(), cause };
        let path = Path::parse(key).map_err(|e| refuse(e.to_string()))?;
        let file = self.inner.path_to_filesystem(&path).map_err(|e| refuse(cause(&e)))?;
        Ok((path, file))
    }

    /// The file of an object. The engine's own keys have nothing that is written otherwise in a path.
    fn file_of(&self, key: &str) -> Result<PathBuf> {
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if key.split('/').all(plain) { Ok(self.root.join(key)) } else { Ok(self.path(key)?.1) }
    }

    /// A directory could not be synced: what it names may be gone after a loss of power, and another sync would not say so.
    fn not_synced(&self, key: &str, error: &std::io::Error) -> StoreError {
        let why = self.unsynced.lock().get_or_insert_with(|| error.to_string()).clone();
        self.closed_to_puts(key, &why)
    }

    fn closed_to_puts(&self, key: &str, why: &str) -> StoreError {
        let cause =
            format!("{}: a sync failed ({why}); nothing is put until it is opened anew", self.root.display());
        StoreError::Unavailable { key: key.into(), cause }
    }

    fn check_syncs(&self, key: &str) -> Result<()> {
        match &*self.unsynced.lock() {
            Some(why) => Err(self.closed_to_puts(key, why)),
            None => Ok(()),
        }
    }

    /// Makes the directories above `file` and syncs each whose durability this process doesn't know.
    fn ensure_directories(&self, key: &str, file: &FsPath) -> Result<()> {
        let dir = file.parent().unwrap_or(&self.root);
        if dir == self.root || self.durable.lock().contains(dir) {
            return Ok(());
        }
        // Never the root: it is not the one that was opened if it is not there.
        let below: Vec<&FsPath> = dir.ancestors().take_while(|d| *d != self.root).collect();
        for made in below.into_iter().rev() {
            match std::fs::create_dir(made) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(refused_or_unavailable(key, error.kind(), error.to_string()));
                }
                _ => {}
            }
        }
        // From the bottom: a name is durable when the directory that holds it is synced.
        let new: Vec<&FsPath> = {
            let durable = self.durable.lock();
            dir.ancestors().take_while(|d| *d != self.root && !durable.contains(*d)).collect()
        };
        for made in &new {
            sync_dir(made.parent().unwrap_or(&self.root)).map_err(|error| match error.kind() {
                ErrorKind::NotFound => refused_or_unavailable(key, error.kind(), error.to_string()),
                _ => self.not_synced(key, &error),
            })?;
        }
        let mut durable = self.durable.lock();
        if durable.len() + new.len() > DURABLE_MAX {
            durable.clear();
        }
        durable.extend(new.into_iter().map(FsPath::to_path_buf));
        Ok(())
    }

    fn remove_empty_directories(&self, file: &FsPath) {
        let Some(_alone) = self.gate.try_write() else { return };
        for dir in file.ancestors().skip(1).take_while(|d| *d != self.root && d.starts_with(&self.root)) {
            if std::fs::remove_dir(dir).is_err() {
                return;
            }
            self.durable.lock().remove(dir);
        }
    }

    /// The root is another directory, in which a put has made what it needed, with the object if `has_object`: that goes.
    fn leave(&self, file: &FsPath, has_object: bool) {
        if has_object {
            let _ = std::fs::remove_file(file);
        }
        let below = file.ancestors().skip(1).take_while(|d| *d != self.root && d.starts_with(&self.root));
        // What has anything in it stays.
        if below.into_iter().all(|dir| std::fs::remove_dir(dir).is_ok()) && !self.is_mount {
            let _ = std::fs::remove_dir(&self.root);
        }
    }

    fn check_root(&self, key: &str) -> Result<()> {
        let cause = match identity(&self.root) {
            Ok(found) if found == *self.identity.lock() => return Ok(()),
            // Mounted after the start, or back as another device. Whose it is, the fence finds out.
            Ok(found) if self.root.join(EPOCH).exists() => {
                *self.identity.lock() = found;
                self.durable.lock().clear();
                return Ok(());
            }
            Ok(_) => "it is another directory than the one opened: unmounted or replaced?".to_string(),
            Err(error) => error.to_string(),
        };
        Err(StoreError::Unavailable { key: key.into(), cause: format!("{}: {cause}", self.root.display()) })
    }

    /// Counts a request, and lets background ones wait while many are under way.
    fn counted<T>(
        &self,
        purpose: Purpose,
        key: &str,
        bytes_of: impl Fn(&T) -> u64,
        request: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let started = Instant::now();
        let result = match self.share.enter(purpose.urgency(), 1) {
            Some(_place) => self.check_root(key).and_then(|()| request()),
            None => Err(StoreError::Cancelled { key: key.into() }),
        };
        let bytes = result.as_ref().map_or(0, bytes_of);
        let is_answer = result.as_ref().err().is_none_or(StoreError::is_answer);
        self.tally.purposes[purpose.index()].note(started, bytes, is_answer);
        result
    }

    /// The lock on the root directory, held until the file is closed.
    fn lock_root(&self, key: &str) -> Result<File> {
        let unavailable =
            |e: std::io::Error| StoreError::Unavailable { key: key.into(), cause: e.to_string() };
        let lock = File::open(&self.root).map_err(unavailable)?;
        // SAFETY: the descriptor is open for the call; closing it frees the lock.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(unavailable(std::io::Error::last_os_error()));
        }
        Ok(lock)
    }

    /// The same for a put, if it is one of the epoch object; what died putting that one is removed.
    fn lock_epoch(&self, key: &str, file: &FsPath) -> Result<Option<File>> {
        if key != EPOCH {
            return Ok(None);
        }
        let lock = self.lock_root(key)?;
        staged::remove_of(file).map_err(|e| refused_or_unavailable(key, e.kind(), e.to_string()))?;
        Ok(Some(lock))
    }

    /// The object exists: `Conflict`, once it is durable. The writer that put it may have died before its name was synced.
    fn taken(&self, key: &str, file: &FsPath) -> StoreError {
        let synced = File::open(file)
            .and_then(|f| f.sync_all())
            .and_then(|()| sync_dir(file.parent().unwrap_or(&self.root)));
        match synced {
            Ok(()) => StoreError::Conflict { key: key.into() },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                StoreError::Unknown { key: key.into(), cause: error.to_string() }
            }
            Err(error) => self.not_synced(key, &error),
        }
    }

    fn put(
        &self,
        key: &str,
        path: &Path,
        file: &FsPath,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<Version> {
        self.check_syncs(key)?;
        self.ensure_directories(key, file)?;
        let is_new = matches!(mode, PutMode::Create);
        let options = PutOptions { mode, ..PutOptions::default() };
        let done = block_on(self.inner.put_opts(path, payload, options));
        if !matches!(done, Err(Error::AlreadyExists { .. })) && self.check_root(key).is_err() {
            // It may have gone into another directory just now, or have made one to go into.
            self.leave(file, is_new && done.is_ok());
            let cause = "the directory went away meanwhile".into();
            return Err(StoreError::Unknown { key: key.into(), cause });
        }
        match done {
            Ok(result) => Ok(Version(result.e_tag.unwrap_or_default())),
            Err(Error::AlreadyExists { .. }) => Err(self.taken(key, file)),
            // The name exists, and this writer made it: its sync failed. Reading it would report success.
            Err(error) if is_new && file.exists() && io_kind(&error) != Some(ErrorKind::StorageFull) => {
                Err(self.not_synced(key, &std::io::Error::other(cause(&error))))
            }
            Err(error) if file.exists() => Err(StoreError::Unknown { key: key.into(), cause: cause(&error) }),
            Err(error) => Err(failed(key, &error)),
        }
    }
}

fn refused_or_unavailable(key: &str, kind: ErrorKind, cause: String) -> StoreError {
    match kind {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory => {
            StoreError::Refused { key: key.into(), cause }
        }
        _ => StoreError::Unavailable { key: key.into(), cause },
    }
}

/// `Conflict` if the open file is no longer what `meta` says: it is written in place, by another program, while it is read.
fn check_unchanged(key: &str, file: &File, meta: &ObjectMeta) -> Result<()> {
    let now = file.metadata().map_err(|e| refused_or_unavailable(key, e.kind(), e.to_string()))?;
    let modified = meta.last_modified;
    let is_same = now.len() == meta.size
        && now.mtime() == modified.timestamp()
        && now.mtime_nsec() == i64::from(modified.timestamp_subsec_nanos());
    if is_same { Ok(()) } else { Err(StoreError::Conflict { key: key.into() }) }
}

/// What a failure of the crate means; it surely had no effect.
fn failed(key: &str, error: &Error) -> StoreError {
    if matches!(error, Error::NotFound { .. }) {
        return StoreError::Absent { key: key.into() };
    }
    match io_kind(error) {
        Some(kind) => refused_or_unavailable(key, kind, cause(error)),
        None => StoreError::Refused { key: key.into(), cause: cause(error) },
    }
}

/// What the system said, if it was that.
fn io_kind(error: &Error) -> Option<ErrorKind> {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(one) = source {
        if let Some(io) = one.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        source = one.source();
    }
    None
}

impl ObjectStore for Local {
    fn describe(&self) -> String {
        format!("file://{}", self.root.display())
    }

    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        let (path, file) = self.path(key)?;
        let payload: PutPayload = parts.iter().cloned().collect();
        let length = payload.content_length() as u64;
        self.counted(
            purpose,
            key,
            |_| length,
            || {
                let _gate = self.gate.read();
                let _lock = self.lock_epoch(key, &file)?;
                self.put(key, &path, &file, payload, PutMode::Create)
            },
        )
    }

    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        let (path, file) = self.path(key)?;
        self.counted(
            purpose,
            key,
            |_| body.len() as u64,
            || {
                let _gate = self.gate.read();
                let _lock = match self.lock_epoch(key, &file)? {
                    Some(lock) => lock,
                    None => self.lock_root(key)?,
                };
                let current = match block_on(self.inner.head(&path)) {
                    Ok(meta) => meta.e_tag,
                    Err(Error::NotFound { .. }) => None,
                    Err(error) => return Err(failed(key, &error)),
                };
                if current.as_deref() != Some(expected.0.as_str()) {
                    return Err(StoreError::Conflict { key: key.into() });
                }
                let payload = PutPayload::from_bytes(Bytes::copy_from_slice(body));
                self.put(key, &path, &file, payload, PutMode::Overwrite)
            },
        )
    }

    /// Without the crate: each miss reads a page, and most of the time went into URLs made of paths.
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let file = self.file_of(key)?;
        let length = buf.len() as u64;
        self.counted(
            purpose,
            key,
            |()| length,
            || {
                let failed = |e: std::io::Error| match e.kind() {
                    ErrorKind::NotFound => StoreError::Absent { key: key.into() },
                    kind => refused_or_unavailable(key, kind, e.to_string()),
                };
                let file = File::open(&file).map_err(failed)?;
                match file.read_exact_at(buf, offset) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        let there = file.metadata().map_err(failed)?.len().saturating_sub(offset);
                        let cause = format!("{length} bytes from {offset} asked for, {there} there");
                        Err(StoreError::Refused { key: key.into(), cause })
                    }
                    read => read.map_err(failed),
                }
            },
        )
    }

    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        let (path, _) = self.path(key)?;
        self.counted(
            purpose,
            key,
            |got: &(Vec<u8>, _)| got.0.len() as u64,
            || {
                block_on(async {
                    let result = self.inner.get_opts(&path, GetOptions::default()).await?;
                    let version = Version(result.meta.e_tag.clone().unwrap_or_default());
                    Ok((result.bytes().await?.into(), version))
                })
                .map_err(|e| failed(key, &e))
            },
        )
    }

    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        let (path, _) = self.path(key)?;
        self.counted(purpose, key, |_| 0, || self.length_and_version(key, &path))
    }

    /// From one open file: its version is the one that is compared.
    fn get_range_of(
        &self,
        purpose: Purpose,
        key: &str,
        offset: u64,
        buf: &mut [u8],
        expected: &Version,
    ) -> Result<()> {
        let (path, _) = self.path(key)?;
        let length = buf.len() as u64;
        self.counted(
            purpose,
            key,
            |()| length,
            || {
                let got = block_on(self.inner.get_opts(&path, GetOptions::default()));
                let got = got.map_err(|error| failed(key, &error))?;
                if got.meta.e_tag.as_deref() != Some(expected.0.as_str()) {
                    return Err(StoreError::Conflict { key: key.into() });
                }
                let GetResultPayload::File(file, _) = got.payload else {
                    return Err(StoreError::Refused { key: key.into(), cause: "it is not a file".into() });
                };
                match file.read_exact_at(buf, offset) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        check_unchanged(key, &file, &got.meta)?;
                        let cause = format!("{length} bytes from {offset} are not in the object");
                        Err(StoreError::Refused { key: key.into(), cause })
                    }
                    Err(error) => Err(refused_or_unavailable(key, error.kind(), error.to_string())),
                    Ok(()) => check_unchanged(key, &file, &got.meta),
                }
            },
        )
    }

    /// From one open file, as `get_range_of`.
    fn get_start(&self, purpose: Purpose, key: &str, max: usize) -> Result<Start> {
        let (path, _) = self.path(key)?;
        self.counted(
            purpose,
            key,
            |start: &Start| start.bytes.len() as u64,
            || {
                let got = block_on(self.inner.get_opts(&path, GetOptions::default()));
                let got = got.map_err(|error| failed(key, &error))?;
                let GetResultPayload::File(file, _) = got.payload else {
                    return Err(StoreError::Refused { key: key.into(), cause: "it is not a file".into() });
                };
                let mut bytes = vec![0; got.meta.size.min(max as u64) as usize];
                match file.read_exact_at(&mut bytes, 0) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        return Err(StoreError::Conflict { key: key.into() });
                    }
                    read => read.map_err(|e| refused_or_unavailable(key, e.kind(), e.to_string()))?,
                }
                check_unchanged(key, &file, &got.meta)?;
                let version = Version(got.meta.e_tag.unwrap_or_default());
                Ok(Start { bytes: bytes.into(), length: got.meta.size, version })
            },
        )
    }

    fn replace(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        let (path, file) = self.path(key)?;
        let payload: PutPayload = parts.iter().cloned().collect();
        let length = payload.content_length() as u64;
        let put = || {
            let _gate = self.gate.read();
            let _lock = self.lock_epoch(key, &file)?;
            self.put(key, &path, &file, payload, PutMode::Overwrite)
        };
        self.counted(purpose, key, |_| length, put)
    }

    fn complete_replacing(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        let (path, file) = self.path(&upload.key)?;
        self.counted(purpose, &upload.key, |_| 0, || self.complete(upload, parts, &path, &file, true))
    }

    fn list_folder(&self, purpose: Purpose, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        let path = Path::parse(folder)
            .map_err(|e| StoreError::Refused { key: folder.into(), cause: e.to_string() })?;
        let list = || match block_on(self.inner.list_with_delimiter(Some(&path))) {
            Err(Error::NotFound { .. }) => Ok(None),
            found => found.map(Some).map_err(|error| failed(folder, &error)),
        };
        if let Some(found) = self.counted(purpose, folder, |_| 0, list)? {
            each_in_order(found, 0, each);
        }
        Ok(())
    }

    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        let (_, file) = self.path(key)?;
        self.counted(purpose, key, |_| 0, || self.begin(key, &file))
    }

    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        let bytes = body.len() as u64;
        self.counted(purpose, &upload.key, |_| bytes, || self.write_part(upload, number, offset, body))
    }

    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        let (path, file) = self.path(&upload.key)?;
        self.counted(purpose, &upload.key, |_| 0, || self.complete(upload, parts, &path, &file, false))
    }

    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        let (_, file) = self.path(&upload.key)?;
        self.counted(purpose, &upload.key, |()| 0, || self.abort(upload))?;
        self.remove_empty_directories(&file);
        Ok(())
    }

    fn parallel_max(&self) -> usize {
        self.parallel_max
    }

    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        let (path, file) = self.path(key)?;
        let result = self.counted(
            purpose,
            key,
            |()| 0,
            || {
                let _gate = self.gate.read();
                match block_on(self.inner.delete(&path)) {
                    Ok(()) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(failed(key, &error)),
                }
                match sync_dir(file.parent().unwrap_or(&self.root)) {
                    Ok(()) => Ok(()),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(StoreError::Unknown { key: key.into(), cause: error.to_string() }),
                }
            },
        );
        self.remove_empty_directories(&file);
        result
    }

    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = Path::parse(folder)
            .map_err(|e| StoreError::Refused { key: prefix.into(), cause: e.to_string() })?;
        let mut found = self.counted(
            purpose,
            prefix,
            |_| 0,
            || {
                block_on(async {
                    let mut found = Vec::new();
                    let mut stream = self.inner.list(Some(&folder));
                    while let Some(meta) = stream.next().await {
                        match meta {
                            Ok(meta) if meta.location.as_ref().starts_with(prefix) => {
                                found.push((meta.location.to_string(), meta.size));
                            }
                            Ok(_) => {}
                            // Deleted meanwhile.
                            Err(Error::NotFound { .. }) => {}
                            Err(error) => return Err(failed(prefix, &error)),
                        }
                    }
                    Ok(found)
                })
            },
        )?;
        found.sort_unstable();
        found.iter().for_each(|(key, size)| each(key, *size));
        Ok(())
    }

    fn remove_staged(&self, purpose: Purpose, prefix: &str, is_dead: &dyn Fn(&str) -> bool) -> Result<u64> {
        let failed = |e: std::io::Error| refused_or_unavailable(prefix, e.kind(), e.to_string());
        let removed = self.counted(
            purpose,
            prefix,
            |_| 0,
            || {
                let mut removed = Vec::new();
                staged::below(&self.root.join(prefix), prefix, &mut removed).map_err(failed)?;
                removed.retain(|(key, _)| is_dead(key));
                let _gate = self.gate.read();
                for (_, file) in &removed {
                    match std::fs::remove_file(file) {
                        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
                        _ => {}
                    }
                }
                Ok(removed)
            },
        )?;
        removed.iter().for_each(|(_, file)| self.remove_empty_directories(file));
        Ok(removed.len() as u64)
    }

    fn beside(&self, url: &str, endpoint: Option<&str>, read_only: bool) -> Result<Arc<dyn ObjectStore>> {
        super::open_beside(url, endpoint, read_only)
    }
    fn stats(&self) -> Option<StoreStats> {
        Some(self.tally.read())
    }
}

#[cfg(test)]
mod tests;
