//! What can go wrong, and what the caller does next.

pub(crate) mod tree;
use terrace_io::disk::DiskError;
use terrace_io::store::StoreError;
use terrace_log::LogError;
use terrace_log::recovery::ReplayError;
use terrace_tier::memory::lower_tiers::ReadError;
use terrace_tier::memory::mtr::MtrError;
use terrace_tier::memory::pages::NoRoom;
use terrace_tier::objects::archive::BadStretch;
use terrace_tier::objects::fence::FenceError;
use terrace_tier::objects::snapshots::SnapshotError;
use terrace_tier::volume::flush::FlushError;
use terrace_tier::volume::map::MapError;
pub use tree::TreeError;

/// What the caller does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Retry the transaction.
    Conflict,
    /// Retry later.
    Unavailable,
    /// Fix the call.
    Invalid,
    /// Run the checker.
    Corrupt,
    /// Reopen the engine.
    Poisoned,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The key is there already in the table's `index`.
    #[error("duplicate key in index {index}")]
    Duplicate { index: usize },
    #[error("waited too long for a row lock")]
    LockTimeout,
    /// The transaction was rolled back to let others go on.
    #[error("deadlock: the transaction was rolled back")]
    Deadlock,
    #[error("{0} does not exist")]
    Absent(String),
    #[error("{0} exists already")]
    Exists(String),
    #[error("{what} of {len} bytes is larger than {max}")]
    TooLarge { what: &'static str, len: usize, max: usize },
    #[error("{0}")]
    Unavailable(String),
    #[error("no room: {0}")]
    Full(String),
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// The store has no object where the map says.
    #[error("missing: {0}")]
    Missing(String),
    #[error("the engine stopped and must be opened again: {0}")]
    Poisoned(String),
    #[error("{0}")]
    Invalid(String),
    #[error("cancelled")]
    Cancelled,
    #[error("too many row locks: {held} of {max}, in {bytes} bytes of {bytes_max}")]
    TooManyLocks { held: usize, max: usize, bytes: usize, bytes_max: usize },
    #[error("{0}")]
    Busy(String),
    /// Strict snapshots: the row to lock is newer than what the transaction sees. It must be rolled back.
    #[error("a row was changed since the transaction's view was opened")]
    RowChanged,
    /// What the transaction sees is older than an index.
    #[error("{0} was changed since the transaction's view was opened")]
    Changed(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn kind(&self) -> Kind {
        match self {
            Error::LockTimeout | Error::Deadlock | Error::RowChanged | Error::Changed(_) => Kind::Conflict,
            Error::Unavailable(_)
            | Error::Full(_)
            | Error::TooManyLocks { .. }
            | Error::Busy(_)
            | Error::Cancelled => Kind::Unavailable,
            Error::Duplicate { .. }
            | Error::Absent(_)
            | Error::Exists(_)
            | Error::TooLarge { .. }
            | Error::Invalid(_) => Kind::Invalid,
            Error::Corrupt(_) | Error::Missing(_) => Kind::Corrupt,
            Error::Poisoned(_) => Kind::Poisoned,
        }
    }
}

/// ", process 4711 on db1 since …", or nothing.
pub(crate) fn holder_in_words(by: Option<&terrace_io::disk::Holder>) -> String {
    by.map_or(String::new(), |by| format!(", {} since {}", by.who, crate::calendar::seconds(by.since_ms)))
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Error {
        match error {
            DiskError::Full { .. } => Error::Full(error.to_string()),
            DiskError::Absent { .. } | DiskError::Exists { .. } => Error::Corrupt(error.to_string()),
            DiskError::Locked { .. } => Error::Busy(error.to_string()),
            DiskError::Failed { .. } | DiskError::Overdue { .. } => Error::Poisoned(error.to_string()),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        match error {
            StoreError::Absent { .. } => Error::Corrupt(error.to_string()),
            StoreError::Cancelled { .. } => Error::Cancelled,
            StoreError::Conflict { .. } | StoreError::Refused { .. } => Error::Invalid(error.to_string()),
            _ => Error::Unavailable(error.to_string()),
        }
    }
}

impl From<FenceError> for Error {
    fn from(error: FenceError) -> Error {
        match error {
            FenceError::Store(e) => e.into(),
            FenceError::Corrupt { .. } => Error::Corrupt(error.to_string()),
            _ => Error::Invalid(error.to_string()),
        }
    }
}

impl From<SnapshotError> for Error {
    fn from(error: SnapshotError) -> Error {
        match error {
            SnapshotError::Store(e) => e.into(),
            SnapshotError::Corrupt { .. } => Error::Corrupt(error.to_string()),
            SnapshotError::Full { .. } => Error::Full(error.to_string()),
        }
    }
}

impl From<BadStretch> for Error {
    fn from(error: BadStretch) -> Error {
        Error::Corrupt(error.to_string())
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        match error {
            LogError::Poisoned(_) => Error::Poisoned(error.to_string()),
            LogError::Cancelled => Error::Cancelled,
            LogError::Full { .. } => Error::Full(error.to_string()),
        }
    }
}

impl From<ReplayError> for Error {
    fn from(error: ReplayError) -> Error {
        match error {
            ReplayError::Disk(e) => e.into(),
            ReplayError::Corrupt(what) => Error::Corrupt(what),
            ReplayError::Legacy(what) => Error::Invalid(what),
        }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        match error {
            ReadError::Absent(_) | ReadError::Corrupt { .. } | ReadError::BadRedo { .. } => {
                Error::Corrupt(error.to_string())
            }
            ReadError::Disk { .. } => Error::Unavailable(error.to_string()),
            ReadError::Store { id, error: StoreError::Absent { key } } => {
                Error::Missing(format!("page {id}: its object {key} is no longer in the object store"))
            }
            ReadError::Store { error, .. } => error.into(),
            ReadError::NoFrame { .. } => Error::Full(error.to_string()),
            ReadError::Cancelled => Error::Cancelled,
        }
    }
}

impl From<MtrError> for Error {
    fn from(error: MtrError) -> Error {
        match error {
            MtrError::Log(e) => e.into(),
            MtrError::Frame(e) => e.into(),
            MtrError::Room(NoRoom::Cancelled) => Error::Cancelled,
            MtrError::Room(NoRoom::Full(what)) => Error::Full(what),
            MtrError::Room(NoRoom::Log(e)) => e.into(),
            MtrError::Room(NoRoom::Disk(e)) => e.into(),
        }
    }
}

impl From<MapError> for Error {
    fn from(error: MapError) -> Error {
        match error {
            MapError::Log(e) => e.into(),
            MapError::Disk(e) => e.into(),
            MapError::Corrupt { .. } => Error::Corrupt(error.to_string()),
        }
    }
}

impl From<FlushError> for Error {
    fn from(error: FlushError) -> Error {
        match error {
            FlushError::Full { .. } => Error::Full(error.to_string()),
            FlushError::Log(e) => e.into(),
            FlushError::Disk(e) => e.into(),
            FlushError::Map(e) => e.into(),
        }
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Error {
        match error {
            TreeError::Read(e) => e.into(),
            TreeError::Mtr(e) => e.into(),
            TreeError::Corrupt { .. } | TreeError::Hollow { .. } | TreeError::Gone { .. } => {
                Error::Corrupt(error.to_string())
            }
            TreeError::KeyTooLong { len, max } => Error::TooLarge { what: "a key", len, max },
            TreeError::EntryTooLarge { len, max } => Error::TooLarge { what: "an entry", len, max },
            TreeError::SpaceFull(_) => Error::Full(error.to_string()),
            TreeError::Bulk(_) => Error::Invalid(error.to_string()),
        }
    }
}
