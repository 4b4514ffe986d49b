//! Errors by kind: what the caller does next.

use std::fmt;
use terrace_engine::Error as EngineError;

/// What the caller does about an [`Error`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let error = db.tree("").unwrap_err();
/// assert_eq!(error.kind(), terrace::ErrorKind::Invalid);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another transaction was in the way: a deadlock, a lock wait that timed out, a row changed since the snapshot. Roll back and run
    /// the transaction again, as [`Db::transact`](crate::Db::transact) does.
    Conflict,
    /// The object store or a device does not answer, or a bounded resource is used up (row locks, background calls). Try later.
    Unavailable,
    /// No room on the volume or in the log. Free some, or make it larger.
    Full,
    /// Another process has the instance, or the tree has other handles.
    Busy,
    /// There is no such tree.
    NotFound,
    /// The call is wrong: fix it.
    Invalid,
    /// Stored bytes are not what was written: run `terrace check`.
    Corrupt,
    /// An earlier failure (a sync that failed) forbids further writing: close and open again.
    Poisoned,
}

/// A failed call: a kind to act on, and a text for people.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let error = db.drop_tree("nothing").unwrap_err();
/// assert_eq!(error.kind(), terrace::ErrorKind::NotFound);
/// assert!(error.to_string().contains("nothing"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    /// The transaction cannot go on.
    ends: bool,
}

/// A result whose error is an [`Error`].
///
/// ```
/// fn count(tree: &terrace::Tree) -> terrace::Result<usize> {
///     tree.iter()?.try_fold(0, |n, pair| pair.map(|_| n + 1))
/// }
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// assert_eq!(count(&db.tree("t")?)?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), ends: false }
    }

    /// One that ends its transaction.
    pub(crate) fn conflict(message: &str) -> Error {
        Error { ends: true, ..Error::new(ErrorKind::Conflict, message) }
    }

    /// What the caller does next.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// # let tree = db.tree("t")?;
    /// let long = vec![0; 1 << 20];
    /// assert_eq!(tree.put(long, "x").unwrap_err().kind(), terrace::ErrorKind::Invalid);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the transaction that met it can only be rolled back.
    pub(crate) fn ends_transaction(&self) -> bool {
        self.ends
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[doc(hidden)]
impl From<EngineError> for Error {
    fn from(error: EngineError) -> Error {
        let kind = match &error {
            EngineError::LockTimeout
            | EngineError::Deadlock
            | EngineError::RowChanged
            | EngineError::Changed(_) => ErrorKind::Conflict,
            EngineError::Unavailable(_) | EngineError::TooManyLocks { .. } | EngineError::Cancelled => {
                ErrorKind::Unavailable
            }
            EngineError::Full(_) => ErrorKind::Full,
            EngineError::Busy(_) => ErrorKind::Busy,
            EngineError::Absent(_) => ErrorKind::NotFound,
            EngineError::Duplicate { .. }
            | EngineError::Exists(_)
            | EngineError::TooLarge { .. }
            | EngineError::Invalid(_) => ErrorKind::Invalid,
            EngineError::Corrupt(_) | EngineError::Missing(_) => ErrorKind::Corrupt,
            EngineError::Poisoned(_) => ErrorKind::Poisoned,
        };
        // After a wait that timed out the transaction may go on without the change.
        let ends = kind == ErrorKind::Conflict && !matches!(error, EngineError::LockTimeout);
        Error { kind, message: error.to_string(), ends }
    }
}
