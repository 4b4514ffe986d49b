//! Write-back, attached: the log, the replies that wait for it, the write in flight, the clients that are slowed.
//!
//! 1. After a command, what it changed is added to the open record (`Promises`) and to the dirty keys (`Queue::add_logged`); its reply waits for the record.
//! 2. At the end of a turn the record is appended to the log. With `appendfsync always` its replies wait for a sync, else they go.
//! 3. When enough is dirty, or for long enough, the oldest dirty keys are cut off; when the log is durable up to the newest record, their rows are written.
//!    One such write is in flight at a time. One that fails is put back and tried again; if it is not known what became of it, its keys are read first.
//! 4. Writers are slowed as the dirty bytes grow, and wait at the bound (`tiering::write_policy`).
//!
//! A change of policy takes effect when nothing waits for storage any more; until then writers wait. So the changes of one policy never rest on
//! those of the other, and in write-through nothing of the log is needed.
//!
//! If the log fails, replies wait until their rows are stored, all dirty keys in one write.
//!
//! What runs on this is in `dispatch::write_back`.

use crate::client::ClientId;
use crate::storage::journal::Journal;
use crate::storage::{Key, StorageError, Stored, Write};
use crate::tiering::promises::Promises;
use crate::tiering::queue::{Before, FlightId};
use crate::tiering::write_policy::Mode;
use std::collections::{BTreeSet, HashMap};
use terrace_io::clock::Nanos;

/// A write that waits for the log.
pub(crate) struct Unissued {
    pub(crate) id: FlightId,
    pub(crate) write: Write,
    /// The newest record when it was cut off.
    pub(crate) upto: u64,
    pub(crate) is_sync_asked: bool,
}

/// A write of which it is not known what became: its keys are being read.
pub(crate) struct Settling {
    pub(crate) id: FlightId,
    pub(crate) unread: usize,
    pub(crate) found: HashMap<Key, Before>,
    pub(crate) is_failed: bool,
    /// When its keys are read again.
    pub(crate) again_ms: Option<i64>,
}

/// Syncs of the log that replies wait for.
#[derive(Default)]
pub(crate) struct Syncs {
    /// Replies wait for a sync that was not asked for yet.
    pub(crate) is_wanted: bool,
    /// Replies that wait for the next sync, for the one that is being made, and that the last one released.
    pub(crate) waiting: usize,
    pub(crate) syncing: usize,
    pub(crate) released: usize,
    /// When the next sync begins at the latest, if it is held back for more writers.
    pub(crate) due: Nanos,
    /// When the one that is being made began.
    pub(crate) began: Option<Nanos>,
    /// When the last one ended, and how long it took.
    pub(crate) ended: Nanos,
    pub(crate) took: Nanos,
}

impl Syncs {
    /// A sync begins.
    pub(crate) fn begin(&mut self, now: Nanos) {
        if self.began.is_none() {
            self.began = Some(now);
            self.is_wanted = false;
            self.syncing += std::mem::take(&mut self.waiting);
        }
    }

    /// It has ended.
    pub(crate) fn end(&mut self, now: Nanos) {
        if let Some(began) = self.began.take() {
            (self.ended, self.took) = (now, now.saturating_sub(began));
            self.released = std::mem::take(&mut self.syncing);
        }
    }
}

/// Counters of `INFO tiering`.
#[derive(Default)]
pub struct BackCounters {
    /// Commands that waited, and that were followed by a delay.
    pub waited: u64,
    pub delayed: u64,
    pub delay_us: u64,
    pub failed_writes: u64,
}

pub struct WriteBack {
    /// What is in effect.
    pub mode: Mode,
    pub journal: Journal,
    pub promises: Promises,
    pub counters: BackCounters,
    /// Why the last write failed, if it did.
    pub failure: Option<StorageError>,
    /// Records up to here are durable in the log.
    pub(crate) synced: u64,
    pub(crate) sync_asked_ms: i64,
    pub(crate) syncs: Syncs,
    pub(crate) unissued: Option<Unissued>,
    /// The write in flight, and the record up to which storage has everything when it has landed.
    pub(crate) flight: Option<(FlightId, u64)>,
    pub(crate) settling: Option<Settling>,
    pub(crate) retry_ms: i64,
    /// Clients that are not read from until a time.
    pub(crate) delays: BTreeSet<(Nanos, ClientId)>,
    /// Clients whose commands wait for room.
    pub(crate) throttled: Vec<ClientId>,
}

impl WriteBack {
    /// `last` is the newest record that was replayed: it is in storage.
    pub fn new(journal: Journal, last: u64) -> WriteBack {
        WriteBack {
            mode: Mode::WriteThrough,
            journal,
            promises: Promises::new(last),
            counters: BackCounters::default(),
            failure: None,
            synced: last,
            sync_asked_ms: 0,
            syncs: Syncs::default(),
            unissued: None,
            flight: None,
            settling: None,
            retry_ms: 0,
            delays: BTreeSet::new(),
            throttled: Vec::new(),
        }
    }

    /// What storage has of a key, as a read says.
    pub(crate) fn before(stored: Option<&Stored>) -> Before {
        Before { existed: stored.is_some(), expires_ms: stored.and_then(|stored| stored.expires_ms) }
    }
}
