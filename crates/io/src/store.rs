//! The object store seam: immutable objects by key, blocking calls.
//!
//! A time-out or a lost reply is not an answer ([`StoreError::Unknown`]): the caller resolves it by
//! reading the header at the exact key. `Absent` is final.
//!
//! Large objects. An upload in parts ([`ObjectStore::begin_upload`]) becomes an object when it is completed, whole and at once; until
//! then no reader sees it. A stream reads an object in chunks of one version. Both are built from single requests of the trait, so every
//! wrapper (emulation, counters, retries, faults) applies to each part and each chunk: see `multipart` and `stream`.

mod multipart;
mod read_only;
mod stream;

pub use multipart::{MultipartPlan, PARTS_MAX};
pub use read_only::ReadOnly;
pub use stream::StreamPlan;

pub use crate::traffic::Purpose;
pub use bytes::Bytes;
use std::sync::Arc;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("object {key} does not exist")]
    Absent { key: String },
    /// The condition of a put or of a read of one version did not hold.
    #[error("object {key} exists already or changed meanwhile")]
    Conflict { key: String },
    #[error("the object store asks to slow down ({key}); retry after {retry_after_ms} ms")]
    Throttled { key: String, retry_after_ms: u64 },
    /// The request surely had no effect; it may be tried later.
    #[error("the object store is unavailable ({key}): {cause}")]
    Unavailable { key: String, cause: String },
    /// The reply was lost or late: the effect is not known.
    #[error("no answer from the object store ({key}): {cause}")]
    Unknown { key: String, cause: String },
    /// Credentials, bucket or configuration are wrong; trying again will not help.
    #[error("the object store refuses ({key}): {cause}")]
    Refused { key: String, cause: String },
    /// The caller was cancelled (see [`crate::cancel`]). Only reads end so.
    #[error("cancelled ({key})")]
    Cancelled { key: String },
}

impl StoreError {
    /// No failure of the store: the object does not exist, or exists already, or the caller was cancelled.
    pub fn is_answer(&self) -> bool {
        matches!(self, StoreError::Absent { .. } | StoreError::Conflict { .. } | StoreError::Cancelled { .. })
    }
}

pub type Result<T> = std::result::Result<T, StoreError>;

/// A version of an object, as the store names it (its ETag).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// The first bytes of an object, with what the same answer says of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub bytes: Bytes,
    /// The whole object's, in bytes.
    pub length: u64,
    pub version: Version,
}

/// What lies directly in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The prefix of keys that go on below it, without the slash at its end.
    Folder(String),
    Object {
        key: String,
        length: u64,
        /// Milliseconds since 1970.
        modified_ms: u64,
    },
}

/// An upload in parts that was begun and is not yet completed or aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub key: String,
    /// The store's name for it.
    pub id: String,
}

/// A part that the store has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadPart {
    /// From 0.
    pub number: u32,
    /// In the object, in bytes.
    pub offset: u64,
    pub bytes: u64,
    /// The store's name for it.
    pub tag: String,
}

impl UploadPart {
    /// The object's length, if these are all its parts in order; else `Refused`.
    pub fn check(key: &str, parts: &[UploadPart]) -> Result<u64> {
        let mut end = 0;
        for (number, part) in parts.iter().enumerate() {
            if part.number as usize != number || part.offset != end {
                let cause = format!("part {number} of the upload is missing or out of order");
                return Err(StoreError::Refused { key: key.into(), cause });
            }
            end += part.bytes;
        }
        if parts.is_empty() || parts.len() > PARTS_MAX {
            let cause = format!("an upload has 1 to {PARTS_MAX} parts, not {}", parts.len());
            return Err(StoreError::Refused { key: key.into(), cause });
        }
        Ok(end)
    }
}

/// Where a store keeps its objects, so that another store of the same service can copy them without reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Provider, server and bucket. Places of equal services can be copied within.
    pub service: String,
    /// What stands before each key, without the slash at its end.
    pub prefix: String,
}

fn unsupported<T>(key: &str, what: &str) -> Result<T> {
    Err(StoreError::Refused { key: key.into(), cause: format!("this store does not support {what}") })
}

pub trait ObjectStore: Send + Sync {
    /// What to call it in messages: the URL without credentials.
    fn describe(&self) -> String;
    /// Stores a new object of these parts, one behind the other, without copying them; durable when it returns Ok. `Conflict` if
    /// the key exists.
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version>;
    /// Replaces an object whose current version is `expected`.
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version>;
    /// Fills `buf` from `offset` of the object; an object too short for it is `Refused`.
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// The whole object and its version.
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)>;
    /// The object's length in bytes and its version.
    fn head(&self, _purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        unsupported(key, "asking for an object's length")
    }
    /// As [`ObjectStore::get_range`], of this version only; `Conflict` if the object has another one.
    fn get_range_of(
        &self,
        _purpose: Purpose,
        key: &str,
        _offset: u64,
        _buf: &mut [u8],
        _expected: &Version,
    ) -> Result<()> {
        unsupported(key, "reading one version")
    }
    /// The first `max` bytes of the object, or all if it has fewer, with its length and its version, in one request (two if the
    /// object is empty). Built from `get` where a store has nothing better.
    fn get_start(&self, purpose: Purpose, key: &str, max: usize) -> Result<Start> {
        let (body, version) = self.get(purpose, key)?;
        let (length, bytes) = (body.len() as u64, Bytes::from(body));
        Ok(Start { bytes: bytes.slice(..bytes.len().min(max)), length, version })
    }
    /// Stores an object of these parts whatever the key held before; durable when it returns Ok. Of two writers the later one wins, so
    /// this is for objects that users own, never for the engine's.
    fn replace(&self, _purpose: Purpose, key: &str, _parts: &[Bytes]) -> Result<Version> {
        unsupported(key, "replacing objects without a condition")
    }
    /// As [`ObjectStore::complete_upload`], whatever the key held before.
    fn complete_replacing(
        &self,
        _purpose: Purpose,
        upload: &Upload,
        _parts: &[UploadPart],
    ) -> Result<Version> {
        unsupported(&upload.key, "replacing objects without a condition")
    }
    /// For [`ObjectStore::copy_within`]; None: its objects can only be read and put.
    fn origin(&self) -> Option<Origin> {
        None
    }
    /// Makes the object `from` of another place of the same service an object of this one, which the service does by itself; replaces what the key held. `Absent` if there is no
    /// such object. Whole or not at all; repeating it has the same result if the source does not change.
    fn copy_within(&self, _purpose: Purpose, _source: &Origin, from: &str, _to: &str) -> Result<()> {
        unsupported(from, "copies within the service")
    }
    /// What lies directly below `folder` (without a slash at its end; the empty one is the root), in the order of names. A folder that
    /// does not exist holds nothing. Built from `list` where a store has nothing better; times are 0 then.
    fn list_folder(&self, purpose: Purpose, folder: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut last = None;
        self.list(purpose, &prefix, &mut |key, length| match key[prefix.len()..].split_once('/') {
            Some((name, _)) if last.as_deref() == Some(name) => {}
            Some((name, _)) => {
                last = Some(name.to_string());
                each(Listed::Folder(format!("{prefix}{name}")));
            }
            None => each(Listed::Object { key: key.to_string(), length, modified_ms: 0 }),
        })
    }
    /// Begins an upload in parts. Nothing is visible of it. One that is neither completed nor aborted costs room until
    /// [`ObjectStore::remove_staged`], or a rule of the bucket's life cycle, removes it.
    fn begin_upload(&self, _purpose: Purpose, key: &str) -> Result<Upload> {
        unsupported(key, "uploads in parts")
    }
    /// Stores a part, which begins at `offset` of the object. Repeating a part replaces it. Parts may be sent in any order and side
    /// by side. S3 wants all but the last to have 5 MiB or more.
    fn put_part(
        &self,
        _purpose: Purpose,
        upload: &Upload,
        _number: u32,
        _offset: u64,
        _body: &Bytes,
    ) -> Result<UploadPart> {
        unsupported(&upload.key, "uploads in parts")
    }
    /// Makes the object of all its parts, in order; durable when it returns Ok. `Conflict` if the key exists, `Refused` if a part is
    /// missing; the upload then remains, to be aborted. On Google Cloud Storage and Azure the key is checked by a request of its
    /// own: of two uploads to one key that are completed at the same moment, the later one replaces the other.
    fn complete_upload(&self, _purpose: Purpose, upload: &Upload, _parts: &[UploadPart]) -> Result<Version> {
        unsupported(&upload.key, "uploads in parts")
    }
    /// Drops an upload and its parts; one that does not exist is Ok. Once it returned Ok, no late completion can take effect.
    fn abort_upload(&self, _purpose: Purpose, upload: &Upload) -> Result<()> {
        unsupported(&upload.key, "uploads in parts")
    }
    /// Requests that one call may have in flight side by side. 1 where all must happen on the caller's thread (a simulation).
    fn parallel_max(&self) -> usize {
        1
    }
    /// Deletes; deleting what is absent is Ok.
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()>;
    /// Keys that start with `prefix`, in order, calling `each` with a key and its size in bytes.
    /// Only the scrubber and tests list.
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()>;
    /// Removes what puts left that never ended, of the keys below `prefix` (a folder, with its slash) that `is_dead`
    /// says have no writer any more. Returns how many. Stores that leave nothing have nothing to do.
    fn remove_staged(&self, purpose: Purpose, prefix: &str, is_dead: &dyn Fn(&str) -> bool) -> Result<u64> {
        let _ = (purpose, prefix, is_dead);
        Ok(0)
    }
    /// Opens another place as this one was opened. Nothing is asked of it yet.
    fn beside(&self, url: &str, _endpoint: Option<&str>, _read_only: bool) -> Result<Arc<dyn ObjectStore>> {
        unsupported(url, "opening other places")
    }
    /// Counters since the start, where they are kept.
    fn stats(&self) -> Option<crate::stats::StoreStats> {
        None
    }
}
