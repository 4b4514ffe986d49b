//! The storage tier: where values live that are not in memory.
//!
//! A stored value is the key's RDB form, the bytes that `DUMP` answers without its footer, and the time at which it expires. The tier knows
//! nothing of types or commands. A large collection is stored as a head and a row an element (`value::large`); a stored element is the element's value
//! as it is. Elements of a collection have its generation, a number that no other collection has or had.
//!
//! Contract of a [`Storage`]
//! * A write is atomic: after a crash all of its rows are there or none.
//! * Its completion says what became of it. Once a completion was called, the write has no further effect: a write that timed out and lands
//!   later would overwrite a newer one. An adapter that cannot know settles the question before it reports [`Outcome::Unknown`].
//! * Writes are issued one after another per key (`tiering::queue` sees to that), at most [`Storage::writes_in_flight_max`] at a time.
//! * A read that began before a write completed may return the state before or after it.
//! * A completion is called from any thread and must neither wait nor panic: it sends a message and wakes the event loop.
//!
//! | file | holds |
//! | --- | --- |
//! | `row` | the key of a row: slot, hash, position of a `SCAN` cursor |
//! | `engine` | the adapter over `terrace::Db` |
//! | `journal` | the log of write-back |
//! | `none` | no storage: memory is all there is |
//! | `redis` | the adapter over another server, Redis or Valkey |

pub mod engine;
pub mod journal;
pub mod none;
pub mod redis;
pub mod row;

use crate::value::large::Head;
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace_io::disk::Disk;

pub use crate::value::name::Name;
pub use row::Position;

/// What a [`Key`] names. The order is that of the rows of a write: a collection before its elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Part {
    /// A key of a database: its value, or the head of a large collection.
    Whole,
    /// An element of the large collection of a generation.
    Element(u64),
    /// That the collection of a generation is gone: its elements are removed in the background. Such a row is put and never deleted.
    Gone(u64),
}

/// A key of a database, or an element of one of its large collections.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The number that `SELECT` takes.
    pub db: u16,
    pub part: Part,
    pub name: Name,
}

impl Key {
    pub fn new(db: u16, name: &[u8]) -> Key {
        Key { db, part: Part::Whole, name: name.into() }
    }

    pub fn element(db: u16, generation: u64, element: &[u8]) -> Key {
        Key { db, part: Part::Element(generation), name: element.into() }
    }

    pub fn gone(db: u16, generation: u64) -> Key {
        Key { db, part: Part::Gone(generation), name: Name::new(b"") }
    }

    /// Whether it is a key of its database, which is counted, filtered and scanned.
    pub fn is_whole(&self) -> bool {
        self.part == Part::Whole
    }

    /// Whether emptying its database makes a change of it needless. That a collection is gone stays true.
    pub fn goes_with(&self, db: u16) -> bool {
        self.db == db && !matches!(self.part, Part::Gone(_))
    }
}

/// A value as the storage tier keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// Unix time in milliseconds.
    pub expires_ms: Option<u64>,
    /// Type byte and payload of RDB 10.
    pub rdb: Vec<u8>,
}

/// What a read says at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Get {
    Hit(Stored),
    Absent,
    /// The completion is called with the result.
    Pending,
}

/// Why storage refuses or fails.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StorageError {
    /// The call cannot succeed, such as one with a key that is too long.
    #[error("{0}")]
    Invalid(String),
    /// It may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// What is stored cannot be read.
    #[error("{0}")]
    Corrupt(String),
}

impl From<crate::value::large::BadHead> for StorageError {
    fn from(_: crate::value::large::BadHead) -> StorageError {
        StorageError::Corrupt("the head of a large collection has a wrong length".into())
    }
}

impl From<crate::value::large::BadElement> for StorageError {
    fn from(_: crate::value::large::BadElement) -> StorageError {
        StorageError::Corrupt("an element of a large collection cannot be read".into())
    }
}

/// What became of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As durable as it was asked to be.
    Written,
    /// Storage is as it was before.
    NotWritten(StorageError),
    /// It is written or it is not, and will not change any more.
    Unknown(StorageError),
}

/// What a write waits for: `appendfsync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// `always`: survives a loss of power.
    Durable,
    /// `everysec`: survives the end of the process; a loss of power after about a second.
    #[default]
    Written,
    /// `no`: is not waited for.
    Unwaited,
}

/// One row of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub key: Key,
    /// The new value; `None` deletes the key.
    pub value: Option<Stored>,
    /// Whether the key has a row now, and when that expires. Counts are kept by it.
    pub existed: bool,
    pub expired_ms: Option<u64>,
}

/// Changes that are made together or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Write {
    /// Databases that are emptied before the rows are written.
    pub emptied: Vec<u16>,
    /// Generations of large collections that live on, though the emptied databases have heads of them now. Those of which the rows have heads need not be
    /// here. A log that is replayed empties a database again, when storage has what came later.
    pub alive: Vec<u64>,
    pub rows: Vec<Row>,
    /// Write-back: with this write, storage has everything up to this record of the write-back log. Kept with the rows, atomically. Such a write is
    /// large and no client waits for it: it is not made on the caller's thread.
    pub log_position: Option<u64>,
}

impl Write {
    /// Bytes of the names and values of its rows.
    pub fn bytes(&self) -> u64 {
        let value = |row: &Row| row.value.as_ref().map_or(0, |value| value.rdb.len());
        self.rows.iter().map(|row| (row.key.name.len() + value(row)) as u64).sum()
    }

    /// The generations that no emptied database takes along.
    pub fn all_alive(&self) -> BTreeSet<u64> {
        self.alive.iter().copied().chain(heads(self.rows.iter().map(|row| (&row.key, &row.value)))).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.emptied.is_empty() && self.rows.is_empty() && self.log_position.is_none()
    }
}

/// The generations of those values that are heads of large collections.
pub fn heads<'a>(values: impl Iterator<Item = (&'a Key, &'a Option<Stored>)>) -> impl Iterator<Item = u64> {
    values
        .filter(|(key, _)| key.is_whole())
        .filter_map(|(_, value)| Head::parse(&value.as_ref()?.rdb).ok().flatten())
        .map(|head| head.generation)
}

/// A key that a scan found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScannedKey {
    pub position: Position,
    pub name: Box<[u8]>,
    /// The type byte of RDB.
    pub type_byte: u8,
    pub expires_ms: Option<u64>,
}

/// A piece of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    pub keys: Vec<ScannedKey>,
    /// The position after the last one that this piece covers; `None` at the end of the database.
    pub next: Option<Position>,
}

/// An element of a large collection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Element {
    pub position: Position,
    pub name: Box<[u8]>,
    pub value: Stored,
}

/// A piece of a large collection, in the order of positions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Elements {
    pub found: Vec<Element>,
    /// The position after the last one that this piece covers; `None` at the end of the collection.
    pub next: Option<Position>,
}

pub type GetDone = Arc<dyn Fn(&Key, Result<Option<Stored>, StorageError>) + Send + Sync>;
pub type WriteDone = Box<dyn FnOnce(Outcome) + Send>;
pub type ScanDone = Box<dyn FnOnce(Result<Scanned, StorageError>) + Send>;
pub type ElementsDone = Box<dyn FnOnce(Result<Elements, StorageError>) + Send>;
pub type ExpiredDone = Box<dyn FnOnce(Result<Vec<Key>, StorageError>) + Send>;

/// Storage at one point in time.
pub trait View: Send {
    /// The next keys of any database, about `bytes` of them; none at the end. A key comes once. Waits for the device.
    fn read(&mut self, bytes: usize) -> Result<Vec<(Key, Stored)>, StorageError>;

    /// All elements of a large collection. Waits for the device.
    fn elements(&mut self, generation: u64) -> Result<Vec<Element>, StorageError> {
        let _ = generation;
        Ok(Vec::new())
    }
}

pub trait Storage: Send + Sync {
    fn name(&self) -> &'static str;

    /// Reads keys. One answer a key, in order; `done` is called once for each that is [`Get::Pending`].
    ///
    /// # Errors
    /// The whole call failed: no key is read, `done` is not called.
    fn get_many(&self, keys: &[Key], done: &GetDone) -> Result<Vec<Get>, StorageError>;

    /// Writes atomically. Returns the outcome if it is known at once, else calls `done` with it.
    fn write(&self, write: Write, durability: Durability, done: WriteDone) -> Option<Outcome>;

    /// How many writes may be in flight at a time.
    fn writes_in_flight_max(&self) -> usize;

    /// About `limit` keys of a database in the order of their positions, from `from` on. Keys of one position are never divided between two pieces.
    ///
    /// With [`Storage::is_ordered`] false the order is storage's own: `from` is where the piece before said to go on, at first 0, and a key that is stored from the first piece
    /// to the last is found at least once.
    fn scan(&self, db: u16, from: Position, limit: usize, done: ScanDone);

    /// As [`Storage::scan`], for a caller that needs no types.
    fn scan_names(&self, db: u16, from: Position, limit: usize, done: ScanDone) {
        self.scan(db, from, limit, done);
    }

    /// Whether scans follow the order of positions, so that a range of positions is a range of a scan.
    fn is_ordered(&self) -> bool {
        true
    }

    /// Some keys of a database that are chosen by chance: those from a position on, which is chosen by chance.
    fn random(&self, db: u16, from: Position, limit: usize, done: ScanDone) {
        self.scan_names(db, from, limit, done);
    }

    /// Whether keys whose time has come are deleted without being asked for. Then [`Storage::count`] is what storage has said last, and [`Storage::expired`] has it say it.
    fn expires_by_itself(&self) -> bool {
        false
    }

    /// Whether a key is not for clients.
    fn reserves(&self, db: u16, name: &[u8]) -> bool {
        let _ = (db, name);
        false
    }

    /// Why nothing can be read and written now, if that is known.
    fn failure(&self) -> Option<StorageError> {
        None
    }

    /// At most `limit` keys whose time has come at `now_ms`, the earliest first.
    fn expired(&self, now_ms: u64, limit: usize, done: ExpiredDone);

    /// The first generation that no collection has had. `None`: this storage keeps collections whole.
    fn next_generation(&self) -> Option<u64> {
        None
    }

    /// About `limit` elements of a large collection in the order of their positions, from `from` on. Elements of one position are never divided
    /// between two pieces.
    fn elements(&self, generation: u64, from: Position, limit: usize, done: ElementsDone) {
        let _ = (generation, from, limit);
        done(Err(StorageError::Invalid("this storage keeps collections whole".into())));
    }

    /// What is stored now, whatever is written later: all writes whose completion was called, and for each other one all of it or nothing.
    fn view(&self) -> Result<Box<dyn View>, StorageError>;

    /// Keeps a small text under a name, durably when it returns. For what is changed rarely: it waits for the device.
    fn keep(&self, name: &str, value: &[u8]) -> Result<(), StorageError>;

    /// What was kept under a name.
    fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StorageError>;

    /// Exchanges the keys of two databases, durably when it returns, and keeps [`Write::log_position`] with that. For what is rare: it waits for the device.
    /// Nothing is being written meanwhile.
    ///
    /// # Errors
    /// Nothing is exchanged for those who ask from now on. If the device failed, the next start may find it done.
    fn swap(&self, first: u16, second: u16, log_position: Option<u64>) -> Result<(), StorageError>;
    /// How many keys a database has, expired ones included until they are deleted. Exact, and takes no time.
    fn count(&self, db: u16) -> u64;

    /// The newest [`Write::log_position`] that was written; 0 if there was none.
    fn log_position(&self) -> u64;

    /// Where the write-back log is kept; `None`: there is no place for one, and only write-through is possible.
    fn log_disk(&self) -> Option<Arc<dyn Disk>>;
}
