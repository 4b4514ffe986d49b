//! Planted bugs of the tiers; see `terrace_io::planted`.

pub use terrace_log::planted::Switch;

/// A slot is reused before the record that took its name away is durable.
pub static SLOT_REUSED_EARLY: Switch = Switch::new();
/// Slots are reused that a copy of the volume is about to read.
pub static COPIED_SLOT_REUSED: Switch = Switch::new();
/// The copier of the volume is not told of a slot that is written meanwhile.
pub static WRITTEN_NOT_NOTED: Switch = Switch::new();
/// The checkpoint passes images that are written but whose map record is not durable.
pub static UNMAPPED_IMAGE_PASSED: Switch = Switch::new();
/// Images that pass by the log are named before they are synced.
pub static BYPASS_NOT_SYNCED: Switch = Switch::new();
/// A page is copied to be written while an older image of it is on its way.
pub static WRITTEN_BY_TWO: Switch = Switch::new();
/// A page is written before the log is durable up to its LSN.
pub static PAGE_BEFORE_LOG: Switch = Switch::new();
/// Publication cleans pages that changed while the object was put.
pub static CHANGED_PAGE_CLEANED: Switch = Switch::new();
/// A value of a flash cache is moved to another segment although it was invalidated since it was read.
pub static MOVED_AFTER_INVALIDATION: Switch = Switch::new();
/// A flash cache serves an intact value of the right key that is not the version asked for.
pub static BLOCK_VERSION_IGNORED: Switch = Switch::new();
/// A flash cache serves what has the key's fingerprint, without a look at the key.
pub static BLOCK_KEY_IGNORED: Switch = Switch::new();
/// The BPE serves an intact image whose tag is not the map's.
pub static FLASH_TAG_IGNORED: Switch = Switch::new();
/// A queued fill lands after its invalidation.
pub static FILL_AFTER_INVALIDATION: Switch = Switch::new();
/// The sinker asks a store that throttles as often as before.
pub static THROTTLED_NOT_LEARNT: Switch = Switch::new();
/// An object is deleted as soon as it is superseded, in memory.
pub static OBJECT_DELETED_EARLY: Switch = Switch::new();
/// Eviction looks whether a page is pinned, and claims it a moment later.
pub static PINS_SEEN_EARLY: Switch = Switch::new();
/// A frame that was found without a lock is not asked again whose it is.
pub static STALE_FRAME_TRUSTED: Switch = Switch::new();
/// A frame whose page is being evicted is taken for unchanged.
pub static LEAVING_FRAME_TRUSTED: Switch = Switch::new();
/// A new page's frame is not waited for while the flusher still holds its latch.
pub static LATCHED_FRAME_TAKEN: Switch = Switch::new();
/// The flusher calls a page clean that changed since it copied it.
pub static CHANGE_AFTER_COPY_FORGOTTEN: Switch = Switch::new();
/// A page that another thread loads is handed out before it is loaded.
pub static CLAIM_NOT_WAITED: Switch = Switch::new();
/// An object is deleted while it is being read.
pub static READER_IGNORED: Switch = Switch::new();
/// A ghost hit does not take the identifier off the list: one eviction counts as evidence for ever.
pub static GHOST_HIT_KEPT: Switch = Switch::new();
/// What of a map page is zeros, and not kept in memory, stays in a copy as it was before.
pub static END_OF_IMAGE_LEFT: Switch = Switch::new();
/// A map page is written over its newest home.
pub static HOME_OVERWRITTEN: Switch = Switch::new();
/// A block that is sunk again is put over its current object.
pub static OBJECT_OVERWRITTEN: Switch = Switch::new();
/// The map does not report one of its objects as such if it is a patch: collection takes it for a stranger's.
pub static PATCH_UNNAMED: Switch = Switch::new();
/// Pages that were in the patch object before the new one are still where they were in that.
pub static PATCH_PLACES_KEPT: Switch = Switch::new();
/// A patch object that was superseded is deleted before the record that says so is durable.
pub static PATCH_DELETED_EARLY: Switch = Switch::new();
/// The volume names a patch object before its format says that it may.
pub static PATCHES_NOT_NOTED: Switch = Switch::new();
/// A put whose reply is lost counts as done.
pub static REPLY_GUESSED: Switch = Switch::new();
/// An object that a snapshot names is deleted.
pub static SNAPSHOT_IGNORED: Switch = Switch::new();
/// Objects are deleted while a copy of the volume ends.
pub static SNAPSHOT_HOLD_IGNORED: Switch = Switch::new();
/// Objects are read from the own store before they are copied there.
pub static COPIED_TOO_EARLY: Switch = Switch::new();
/// What an attached instance needs of its source is released before all is copied.
pub static RELEASED_TOO_EARLY: Switch = Switch::new();
/// The same before the map that needs no more of it is durable.
pub static RELEASED_BEFORE_DURABLE: Switch = Switch::new();
/// An object that was superseded while it was copied stays.
pub static COPY_KEPT: Switch = Switch::new();
/// The epoch object is not read again before objects are deleted.
pub static FENCE_NOT_READ: Switch = Switch::new();
/// The store is taken from the writer with the lower epoch.
pub static PASSED_IGNORED: Switch = Switch::new();
/// Nothing is noted on the volume before the store is taken.
pub static TAKER_NOT_NOTED: Switch = Switch::new();
/// A writer's mark in the store stands still while it publishes and deletes.
pub static MARK_STANDS: Switch = Switch::new();
/// A fenced instance publishes what it has put.
pub static FENCED_PUBLISHES: Switch = Switch::new();
/// The scrub takes any lineage's objects for its own.
pub static LINEAGE_IGNORED: Switch = Switch::new();
/// What a put left that was cut off is not removed.
pub static STAGED_KEPT: Switch = Switch::new();
/// Redo is applied to an image that has it already.
pub static REDO_APPLIED_TWICE: Switch = Switch::new();
/// A temporary page is flushed to the slab and named in the map, too.
pub static TEMPORARY_NAMED: Switch = Switch::new();
/// The memory of frames that could not be emptied is lent with that of the others.
pub static LENT_IN_USE: Switch = Switch::new();
/// A temporary page that is read back gives its slot in the spill space away, which a clean eviction still needs.
pub static SPILL_SLOT_FREED_EARLY: Switch = Switch::new();
/// The spill file is cut to as many slots as are in use, wherever they are.
pub static SPILL_CUT_SHORT: Switch = Switch::new();
/// A start leaves the spill file of the run before.
pub static SPILL_LEFT: Switch = Switch::new();
/// Flash is told of a flushed image before the map names it.
pub static FLASH_TOLD_EARLY: Switch = Switch::new();
/// A copy on flash that is rewritten stays beside the new one, and is trusted.
pub static COPY_NOT_INVALIDATED: Switch = Switch::new();
/// A slot of the spill space that was given back with its space, while it was written, is given back again.
pub static SLOT_RELEASED_TWICE: Switch = Switch::new();
/// The checkpoint passes the change of a freed page before it is durable that the page is free.
pub static FREED_PAGE_PASSED: Switch = Switch::new();
/// Forgetting a freed page may forget the state of its new use.
pub static USED_PAGE_FORGOTTEN: Switch = Switch::new();
/// The search for a victim drops the queue's entry of a page that is just coming in.
pub static CLAIMED_ENTRY_DROPPED: Switch = Switch::new();
/// A split read of a slot takes whatever intact image of the page is there.
pub static SPLIT_TAG_NOT_CHECKED: Switch = Switch::new();
/// Stretches of the archived log count although a later writer had begun before their end.
pub static FENCED_STRETCH_TAKEN: Switch = Switch::new();
