//! Uploads in parts to a directory: one staged file each, `<key>#<number>`, which no listing shows.
//!
//! Parts are written at their offsets, in any order. The completion checks that every part was written, syncs the file and links it
//! to the key, which fails if the key exists. What a process that dies leaves is a staged file like any other
//! ([`ObjectStore::remove_staged`](crate::store::ObjectStore::remove_staged)); an upload does not outlive the process.
//!
//! Locks: `Uploads::open`, to find an upload; `Staged::parts`, to note a part. None is held over a write.

use super::{EPOCH, Local, refused_or_unavailable, sync_dir};
use crate::random::Random;
use crate::real::RealRandom;
use crate::store::{Bytes, Result, StoreError, Upload, UploadPart, Version};
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _};
use parking_lot::Mutex;
use pollster::block_on;
use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

/// Uploads that are open at a time: each has an open file.
const OPEN_MAX: usize = 256;

/// An upload's file and what was written into it.
struct Staged {
    file: File,
    path: PathBuf,
    /// Offset and length in bytes, by number.
    parts: Mutex<HashMap<u32, (u64, u64)>>,
}

/// The uploads of this process, by their ids.
#[derive(Default)]
pub(super) struct Uploads {
    open: Mutex<HashMap<String, Arc<Staged>>>,
}

impl Uploads {
    fn find(&self, upload: &Upload) -> Result<Arc<Staged>> {
        self.open.lock().get(&upload.id).cloned().ok_or_else(|| refused(&upload.key, "no such upload"))
    }
}

fn refused(key: &str, cause: &str) -> StoreError {
    StoreError::Refused { key: key.into(), cause: cause.into() }
}

fn failed(key: &str, error: &std::io::Error) -> StoreError {
    refused_or_unavailable(key, error.kind(), error.to_string())
}

impl Local {
    /// The length and the version that the object has now.
    pub(super) fn length_and_version(&self, key: &str, path: &Path) -> Result<(u64, Version)> {
        let meta = block_on(self.inner.head(path)).map_err(|error| super::failed(key, &error))?;
        Ok((meta.size, Version(meta.e_tag.unwrap_or_default())))
    }

    pub(super) fn begin(&self, key: &str, file: &FsPath) -> Result<Upload> {
        if key == EPOCH {
            return Err(refused(key, "the epoch object is put whole"));
        }
        self.check_syncs(key)?;
        let _gate = self.gate.read();
        let mut open = self.uploads.open.lock();
        if open.len() >= OPEN_MAX {
            let cause = format!("{OPEN_MAX} uploads are open");
            return Err(StoreError::Unavailable { key: key.into(), cause });
        }
        self.ensure_directories(key, file)?;
        let id = RealRandom.next_u64().to_string();
        let mut name = file.as_os_str().to_os_string();
        name.push(format!("#{id}"));
        let path = PathBuf::from(name);
        let staged = File::create_new(&path).map_err(|error| failed(key, &error))?;
        open.insert(id.clone(), Arc::new(Staged { file: staged, path, parts: Mutex::default() }));
        Ok(Upload { key: key.into(), id })
    }

    pub(super) fn write_part(
        &self,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        let staged = self.uploads.find(upload)?;
        staged.file.write_all_at(body, offset).map_err(|error| failed(&upload.key, &error))?;
        let bytes = body.len() as u64;
        staged.parts.lock().insert(number, (offset, bytes));
        Ok(UploadPart { number, offset, bytes, tag: String::new() })
    }

    pub(super) fn complete(
        &self,
        upload: &Upload,
        parts: &[UploadPart],
        path: &Path,
        file: &FsPath,
        replaces: bool,
    ) -> Result<Version> {
        let key = upload.key.as_str();
        let staged = self.uploads.find(upload)?;
        let length = UploadPart::check(key, parts)?;
        let written = staged.parts.lock().clone();
        let is_written = |part: &UploadPart| written.get(&part.number) == Some(&(part.offset, part.bytes));
        if let Some(part) = parts.iter().find(|part| !is_written(part)) {
            return Err(refused(key, &format!("part {} was not written as it is listed", part.number)));
        }
        self.check_syncs(key)?;
        let _gate = self.gate.read();
        self.ensure_directories(key, file)?;
        // A part that was written and then left out of the list may reach beyond the end.
        let synced = staged.file.set_len(length).and_then(|()| staged.file.sync_all());
        if let Err(error) = synced {
            // What a failed sync has lost, another one would not say: the upload ends here.
            self.uploads.open.lock().remove(&upload.id);
            let _ = std::fs::remove_file(&staged.path);
            return Err(failed(key, &error));
        }
        let linked = match replaces {
            true => std::fs::rename(&staged.path, file),
            false => std::fs::hard_link(&staged.path, file),
        };
        if linked.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
            return Err(self.taken(key, file));
        }
        if self.check_root(key).is_err() {
            self.leave(file, linked.is_ok());
            let cause = "the directory went away meanwhile".into();
            return Err(StoreError::Unknown { key: key.into(), cause });
        }
        linked.map_err(|error| failed(key, &error))?;
        self.uploads.open.lock().remove(&upload.id);
        // Its second name, if it has one, goes; should it stay, `remove_staged` removes it.
        let _ = std::fs::remove_file(&staged.path);
        let dir = file.parent().unwrap_or(&self.root);
        sync_dir(dir).map_err(|error| self.not_synced(key, &error))?;
        match block_on(self.inner.head(path)) {
            Ok(meta) => Ok(Version(meta.e_tag.unwrap_or_default())),
            Err(error @ Error::NotFound { .. }) => {
                Err(StoreError::Unknown { key: key.into(), cause: error.to_string() })
            }
            Err(error) => Err(super::failed(key, &error)),
        }
    }

    pub(super) fn abort(&self, upload: &Upload) -> Result<()> {
        let Some(staged) = self.uploads.open.lock().remove(&upload.id) else { return Ok(()) };
        match std::fs::remove_file(&staged.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&upload.key, &error)),
            _ => Ok(()),
        }
    }
}
