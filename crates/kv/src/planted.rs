//! Planted bugs of the key-value server; see `terrace_io::planted`.

pub use terrace::planted::Switch;

/// A fetch that ends late is taken although the key was written meanwhile.
pub static LATE_FETCH_TAKEN: Switch = Switch::new();
/// A key's next write is issued while the one before it is in flight.
pub static QUEUE_REORDERS: Switch = Switch::new();
/// A key whose change is not stored yet may be evicted.
pub static DIRTY_EVICTED: Switch = Switch::new();
/// Changes that are coalesced are divided between writes by key, whatever transaction they belong to.
pub static COALESCED_ACROSS_EXEC: Switch = Switch::new();
/// The entry of a write that failed stays in memory.
pub static FAILED_ENTRY_KEPT: Switch = Switch::new();
/// A reply does not wait for the write whose value it tells.
pub static READ_BEFORE_WRITTEN: Switch = Switch::new();
/// The filter of absent keys is believed before its rebuild has seen all keys.
pub static FILTER_TRUSTED_EARLY: Switch = Switch::new();
/// A write-back that failed is put behind what waits, and the log is believed to be needed from there on.
pub static PUT_BACK_BEHIND: Switch = Switch::new();
/// A start does not replay the write-back log.
pub static LOG_NOT_REPLAYED: Switch = Switch::new();
/// A reply does not wait for its record of the write-back log.
pub static REPLY_BEFORE_LOGGED: Switch = Switch::new();
/// Rows are written before the log is durable up to the records that they hold.
pub static ROWS_BEFORE_LOG: Switch = Switch::new();
/// The write-back log is believed to be stored up to its last record by each write.
pub static LOG_RELEASED_EARLY: Switch = Switch::new();
/// A turn's changes are a record a key.
pub static RECORD_DIVIDED: Switch = Switch::new();
/// The event loop believes that its own sync of the write-back log is made already.
pub static SYNC_SKIPPED: Switch = Switch::new();
/// Databases are exchanged in storage while changes are on their way there.
pub static SWAPPED_WHILE_DIRTY: Switch = Switch::new();
/// Connections to the server below that failed are left open there.
pub static OLD_CONNECTIONS_LEFT: Switch = Switch::new();
/// A key that a command changes is not saved first, though a save has yet to reach it.
pub static NOT_COPIED_ON_WRITE: Switch = Switch::new();
/// A fetched element is taken although its collection was deleted and another took its key meanwhile.
pub static GENERATION_IGNORED: Switch = Switch::new();
/// An emptied database takes the large collections along that were written to it since.
pub static EMPTIED_TAKES_LIVE_COLLECTIONS: Switch = Switch::new();
/// The head of a large collection is not written with its elements.
pub static HEAD_NOT_WRITTEN: Switch = Switch::new();
/// An element that was absent counts as absent after it was added.
pub static ABSENT_KEPT: Switch = Switch::new();
/// A list in whose middle a listpack was inserted or removed is believed to be even.
pub static UNEVEN_TAKEN_FOR_EVEN: Switch = Switch::new();
/// A new score of a member of a large sorted set is not noted as a change.
pub static SCORE_NOT_NOTED: Switch = Switch::new();
/// A listpack that is evicted from the left side of a list leaves the gap where it was.
pub static GAP_NOT_MOVED: Switch = Switch::new();
