//! Planted bugs of the engine; see `terrace_io::planted`.

use crate::error::{Error, Result};
use std::cell::RefCell;
use std::sync::Arc;
use terrace_io::random::Random;
pub use terrace_log::planted::Switch;

/// The checkpoint moves on while the log behind it is copied.
pub static COPIED_LOG_RELEASED: Switch = Switch::new();
/// A backup's manifest is put before what it names.
pub static MANIFEST_FIRST: Switch = Switch::new();
/// The manifest of a removed backup stays.
pub static MANIFEST_KEPT: Switch = Switch::new();
/// A backup is removed although an attached instance reads it.
pub static REFERENCE_IGNORED: Switch = Switch::new();
/// An instance is attached to a repository that does not know of it.
pub static ATTACHED_WITHOUT_REFERENCE: Switch = Switch::new();
/// A clone is made without a snapshot of its own in its source's store.
pub static CLONED_WITHOUT_SNAPSHOT: Switch = Switch::new();
/// A restored volume gets its superblock before its files and objects are there.
pub static RESTORED_TOO_EARLY: Switch = Switch::new();
/// A restore to a time takes what was committed up to two seconds later.
pub static TIME_PASSED: Switch = Switch::new();
/// A replay of the archived log that was cut short begins again.
pub static PROGRESS_NOT_KEPT: Switch = Switch::new();
/// A replay counts as done before what it did is durable.
pub static REPLAYED_TOO_EARLY: Switch = Switch::new();
/// The checkpoint ignores redo that is not applied yet.
pub static PENDING_REDO_PASSED: Switch = Switch::new();
/// Tables that are redefined together are written one after the other.
pub static REDEFINED_APART: Switch = Switch::new();
/// Views take commits that are not durable yet, and readers under locks do not wait for them.
pub static SEEN_BEFORE_DURABLE: Switch = Switch::new();
/// Readers under locks do not wait for the commits that they have seen.
pub static LOCKED_READ_NOT_WAITED: Switch = Switch::new();
/// A commit's ticket does not wait for the log.
pub static TICKET_NOT_WAITED: Switch = Switch::new();
/// The checkpoint passes dirty pages.
pub static DIRTY_PAGE_PASSED: Switch = Switch::new();
/// The checkpoint passes map entries that are not written home.
pub static MAP_PASSED: Switch = Switch::new();
/// Purge takes what an open view still sees.
pub static VIEW_IGNORED: Switch = Switch::new();
/// Recovery ends unfinished transactions without undoing them.
pub static UNFINISHED_KEPT: Switch = Switch::new();
/// A change of the catalog is acknowledged before it is durable.
pub static CATALOG_NOT_WAITED: Switch = Switch::new();
/// Rollback takes an update's record off and leaves the row as it is.
pub static ROLLBACK_SKIPS: Switch = Switch::new();
/// Undo of a delete mark is taken for that of any value that names its place.
pub static STALE_COPY_BELIEVED: Switch = Switch::new();
/// Purge removes a row that was deleted and has come back since.
pub static REVIVED_ROW_PURGED: Switch = Switch::new();
/// A start gives transaction ids out again that were given out before the crash.
pub static ID_REUSED: Switch = Switch::new();
/// The locks of locking reads are given back at the end of the statement, before the commit.
pub static LOCK_RELEASED_EARLY: Switch = Switch::new();
/// The waiter behind one that gives up isn't woken.
pub static BEHIND_NOT_WOKEN: Switch = Switch::new();
/// A writer doesn't look whether the row's last writer is active.
pub static ROW_LOCK_IGNORED: Switch = Switch::new();
/// A bulk build takes page numbers without noting them in undo.
pub static EXTENT_NOT_NOTED: Switch = Switch::new();
/// A transaction is committed before the pages of its large values that pass by the log are written.
pub static COMMITTED_HOLLOW: Switch = Switch::new();
/// An upsert of an existing row is taken for an insert: its undo is dropped at commit.
pub static PUT_WITHOUT_PAST: Switch = Switch::new();
/// Rows that are deleted together leave no undo behind the commit.
pub static MARKS_WITHOUT_PAST: Switch = Switch::new();
/// A write that must not wait, and would, is committed as far as it came.
pub static REFUSED_COMMITTED: Switch = Switch::new();
/// A large value is written without being noted in undo.
pub static LARGE_NOT_NOTED: Switch = Switch::new();
/// Purge of an update frees the parts of a row that the update kept.
pub static KEPT_PART_FREED: Switch = Switch::new();
/// An update keeps parts of a row that it has seen, and doesn't look whether the row still has them.
pub static KEPT_PART_TRUSTED: Switch = Switch::new();
/// Rollback puts a delete mark back that purge has passed already.
pub static PURGED_MARK_KEPT: Switch = Switch::new();
/// A truncated table's large values are numbered from 1 again, while undo still names the old ones.
pub static SERIALS_ANEW: Switch = Switch::new();
/// Ids of spaces are given out again that a dropped table had.
pub static SPACE_ID_REUSED: Switch = Switch::new();
/// The superblock is written over its newest copy.
pub static SUPERBLOCK_OVERWRITTEN: Switch = Switch::new();
/// Inserts don't look for gap locks.
pub static GAP_IGNORED: Switch = Switch::new();
/// A scan that keeps gaps goes back to its last locked row for each row that it skips, or that is dead.
pub static PASSED_AGAIN: Switch = Switch::new();
/// A compact set of locks that becomes a bitmap forgets its first key.
pub static CONVERSION_FORGETS: Switch = Switch::new();
/// A row's lock that was given back when the row was changed is not taken again when the change is undone.
pub static LOCK_LOST_WITH_CHANGE: Switch = Switch::new();
/// Writers take slots as fast as they can, until none is free.
pub static WRITERS_NOT_THROTTLED: Switch = Switch::new();
/// Writers wait for slots with the locks that they hold, however little they owe.
pub static THROTTLED_WITH_LOCKS: Switch = Switch::new();
/// Builds in bulk take the slots that small writers are slowed for.
pub static BUILDS_NOT_THROTTLED: Switch = Switch::new();
/// Writers are slowed for slots that sinking cannot free.
pub static THROTTLED_FOR_NOTHING: Switch = Switch::new();
/// A request for more slots than sinking can ever free waits for them.
pub static HOPELESS_WAITED: Switch = Switch::new();
/// Recovery rolls prepared transactions back like unfinished ones.
pub static PREPARED_FORGOTTEN: Switch = Switch::new();
/// A prepared transaction that is being rolled back is prepared still, after a crash.
pub static PREPARED_IN_ROLLBACK: Switch = Switch::new();
/// What goes back, a statement or to a savepoint, leaves the changes of temporary tables.
pub static SIDE_KEPT: Switch = Switch::new();
/// A row that is inserted into a range of another's row locks is locked with it.
pub static RANGE_NOT_SPLIT: Switch = Switch::new();
/// Rows behind the end of a range are locked ahead with those of it.
pub static LOCKED_PAST_END: Switch = Switch::new();
/// Purge trusts undo's list of the values of a mark over which another transaction put a row, and freed them as it rolled back.
pub static LOST_MARK_BELIEVED: Switch = Switch::new();
/// Whose rollback failed gives its stream to the next transaction.
pub static UNFINISHED_STREAM_REUSED: Switch = Switch::new();
/// A transaction of which a statement could not be undone may be committed.
pub static HALF_A_STATEMENT_COMMITTED: Switch = Switch::new();
/// Purge waits for each page in its turn.
pub static PURGE_LOOKS_NOT_AHEAD: Switch = Switch::new();
/// Purge that starts over after an error trusts undo's list of values' pages.
pub static PURGED_TWICE_UNSEEN: Switch = Switch::new();
/// Purge comes again and again to a page that is lost.
pub static LOST_PAGE_WAITED_FOR: Switch = Switch::new();
/// A large value that is freed again takes pages with it that are another's by now.
pub static OTHERS_PAGE_FREED: Switch = Switch::new();
/// Rows that are taken together with one that the reader sees are not asked whose they are.
pub static SEEN_WITH_NEIGHBOUR: Switch = Switch::new();
/// Pages of freed values that a crash brings back take room again.
pub static FREED_BROUGHT_BACK: Switch = Switch::new();
/// Entries lose their heads before every view sees them.
pub static SHORTENED_UNSEEN: Switch = Switch::new();
/// A cursor goes on at its slot in a leaf that was evicted or changed since the run was copied.
pub static LOST_PLACE_TRUSTED: Switch = Switch::new();
/// No bug, but what is rare made common: entries are shortened whenever one is put beside them, not when their leaf is full.
pub static SHORTENED_AT_ONCE: Switch = Switch::new();

thread_local! {
    /// No bug, but what is rare made common: if it is there, steps of rollbacks in this thread fail at random moments, as where a page is not to be had.
    pub static ROLLBACKS_FAIL: RefCell<Option<Arc<dyn Random>>> = const { RefCell::new(None) };
}

/// Fails once in `n` times, if [`ROLLBACKS_FAIL`] says so.
pub(crate) fn rollback_may_fail(n: u64) -> Result<()> {
    match ROLLBACKS_FAIL.with_borrow(|random| random.as_ref().is_some_and(|random| random.below(n) == 0)) {
        true => Err(Error::Unavailable("planted".into())),
        false => Ok(()),
    }
}
