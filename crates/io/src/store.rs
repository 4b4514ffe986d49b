//! The object store seam: immutable objects by key, blocking calls.
//!
//! A time-out or a lost reply is not an answer ([`StoreError::Unknown`]): the caller resolves it by
//! reading the header at the exact key. `Absent` is final.

pub use crate::traffic::Purpose;
pub use bytes::Bytes;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("object {key} does not exist")]
    Absent { key: String },
    /// Only from `put_if_absent` and `put_if_match`: the condition did not hold.
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
    /// Whoever asked does not want to know any more (see [`crate::cancel`]). Only reads end so.
    #[error("cancelled ({key})")]
    Cancelled { key: String },
}

impl StoreError {
    /// No failure of the store: that there is no such object or that there is one, or nobody wants to know any more.
    pub fn is_answer(&self) -> bool {
        matches!(self, StoreError::Absent { .. } | StoreError::Conflict { .. } | StoreError::Cancelled { .. })
    }
}

pub type Result<T> = std::result::Result<T, StoreError>;

/// A version of an object, as the store names it (its ETag).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

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
    /// Deletes; deleting what is absent is Ok.
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()>;
    /// Keys that start with `prefix`, in order, calling `each` with a key and its size in bytes.
    /// Only the scrubber and tests list.
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()>;
    /// Removes what puts left that never ended, of the keys below `prefix` (a folder, with its slash) that `is_dead`
    /// says nobody puts any more. Returns how many. Stores that leave nothing have nothing to do.
    fn remove_staged(&self, purpose: Purpose, prefix: &str, is_dead: &dyn Fn(&str) -> bool) -> Result<u64> {
        let _ = (purpose, prefix, is_dead);
        Ok(0)
    }
    /// Counters since the start, where they are kept.
    fn stats(&self) -> Option<crate::stats::StoreStats> {
        None
    }
}
