//! What every transaction and worker shares.

use crate::config::Config;
use crate::error::Result;
use crate::lock::Locks;
use crate::storage::Storage;
use crate::table::catalog::Catalog;
use crate::table::row_counters::RowCounters;
use crate::tree::bulk::{Build, Numbers};
use crate::txn::cursor_memory::CursorMemory;
use crate::txn::ids::Ids;
use crate::txn::large::LogBypass;
use crate::txn::number_reservation::NumberReservation;
use crate::txn::orphaned::Rollbacks;
use crate::txn::purge::state::PurgeState;
use crate::txn::temporary::Temporary;
use crate::txn::write_throttle::WriteThrottle;
use crate::undo::stream::Streams;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_log::Urgency;
use terrace_tier::page::SpaceId;
use terrace_tier::volume::bypass::Bypass;

#[derive(Default, Debug)]
pub struct TxnCounters {
    pub begun: AtomicU64,
    pub committed: AtomicU64,
    pub rolled_back: AtomicU64,
    /// How often a read waited for the log, until what it had seen, or was to see, was durable.
    pub read_log_waits: AtomicU64,
    pub purged: AtomicU64,
    /// Rows and entries that loads have sorted before they inserted them beside others.
    pub sorted: AtomicU64,
}

pub struct Core {
    pub storage: Arc<Storage>,
    /// The core of temporary tables, once there was one; of that core itself: none (`temporary`).
    pub(crate) temporary: Temporary,
    pub config: Config,
    pub ids: Ids,
    pub locks: Locks,
    /// The memory of open cursors.
    pub cursors: Arc<CursorMemory>,
    pub streams: Streams,
    pub catalog: Catalog,
    pub purge: PurgeState,
    pub rollbacks: Rollbacks,
    pub write_throttle: WriteThrottle,
    sessions: AtomicU64,
    pub bypass: LogBypass,
    pub numbers: NumberReservation,
    pub counters: TxnCounters,
    pub rows: RowCounters,
}

/// How full nodes of a built tree are: some room for what comes.
const FILL_PERCENT: usize = 94;

/// Transactions in history that are worth waking purge for.
pub const PURGE_BATCH: u64 = 64;

impl Core {
    pub fn new(
        storage: Arc<Storage>,
        config: Config,
        ids: Ids,
        locks: Locks,
        streams: Streams,
        catalog: Catalog,
    ) -> Core {
        let reserved = storage.checkpointer.superblock().transactions;
        let bypass = LogBypass::default();
        // The archive must have every change.
        bypass.on.store(storage.archiver.is_none(), Ordering::Relaxed);
        let cursors = Arc::new(CursorMemory::new(storage.pages.pool(), config.cursors_own()));
        Core {
            cursors,
            storage,
            temporary: Temporary::default(),
            config,
            ids,
            locks,
            streams,
            catalog,
            purge: PurgeState::default(),
            rollbacks: Rollbacks::default(),
            write_throttle: WriteThrottle::default(),
            sessions: AtomicU64::new(0),
            bypass,
            numbers: NumberReservation::new(reserved),
            counters: TxnCounters::default(),
            rows: RowCounters::default(),
        }
    }

    /// How a tree is built whose numbers these are.
    pub fn build(&self, numbers: Box<dyn Numbers>, urgency: Urgency) -> Build {
        let bypass = self.bypass.on.load(Ordering::Relaxed);
        let bypass = bypass.then(|| Bypass::new(self.storage.flusher.clone()));
        Build { fill: FILL_PERCENT, urgency, numbers, bypass }
    }

    pub fn new_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes sure that the next transaction numbers are above all that the superblock allows after a crash. Called with no latch or lock
    /// held.
    pub fn reserve_numbers(&self) -> Result<()> {
        if self.is_temporary() {
            return Ok(()); // nothing of it outlives the process
        }
        self.numbers.ensure(&self.ids, &self.storage)
    }

    /// The commit sequence number of what is purged next.
    pub fn next_past(&self) -> Option<u64> {
        self.purge.history.lock().first_csn()
    }

    /// Views take the commit now, as they did not when it was made: wakes purge if it waits for this one.
    pub fn wake_purge_of_first(&self, csn: u64) {
        if self.next_past() == Some(csn) {
            self.purge.wanted.notify();
        }
    }

    /// Wakes purge after a commit, but not for each one: the first that waits, then
    /// whenever a batch has come together. In between purge looks by itself.
    pub fn wake_purge(&self, csn: u64) {
        let (first, many) = {
            let history = self.purge.history.lock();
            (
                history.first_csn() == Some(csn),
                !history.is_empty() && history.len().is_multiple_of(PURGE_BATCH),
            )
        };
        if many {
            self.set_purge_throttle();
        }
        if first || many || self.ids.wants_settling() {
            self.purge.wanted.notify();
        }
        self.ids.settle_if_late();
    }

    /// Forgets what was made for a change of definitions that failed.
    pub fn drop_abandoned(&self) {
        let _ = self.drop_spaces(self.catalog.take_abandoned());
    }

    /// Forgets spaces that no table names any more, durably, unless they are in use. Purge comes to those that are
    /// left: the error is only the first that has another reason.
    pub fn drop_spaces(&self, spaces: Vec<SpaceId>) -> Result<()> {
        let mut first = None;
        for space in spaces {
            if let Err(error) = self.storage.let_space_go(space)
                && !matches!(error, crate::error::Error::Busy(_))
            {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }
}
