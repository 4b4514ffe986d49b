//! What every transaction and worker shares.

use crate::config::Config;
use crate::error::Result;
use crate::lock::Locks;
use crate::storage::Storage;
use crate::table::catalog::Catalog;
use crate::table::row_counters::RowCounters;
use crate::tree::bulk::{Build, Numbers};
use crate::txn::cursor_memory::CursorMemory;
use crate::txn::history::History;
use crate::txn::ids::Ids;
use crate::txn::orphaned::Rollbacks;
use crate::txn::purge::Unforgotten;
use crate::txn::purge::trouble::Trouble;
use crate::txn::purge_throttle::PurgeThrottle;
use crate::txn::temporary::Temporary;
use crate::txn::write_throttle::WriteThrottle;
use crate::undo::stream::Streams;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::Event;
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
    pub history: Mutex<History, { Mutexes::History as u8 }>,
    pub purge_wanted: Arc<Event>,
    /// The commit sequence numbers of transactions that may have been purged in part.
    pub(crate) purged_in_part: Mutex<HashSet<u64>, { Mutexes::History as u8 }>,
    /// What was purged last, as long as its undo is not forgotten: nothing else is purged before.
    pub(crate) unforgotten: Mutex<Option<Unforgotten>, { Mutexes::History as u8 }>,
    pub purging: Trouble,
    pub rollbacks: Rollbacks,
    pub purge_throttle: PurgeThrottle,
    pub write_throttle: WriteThrottle,
    sessions: AtomicU64,
    /// Whether built pages pass by the log (`terrace_tier::volume::bypass`), and large values.
    pub bypass: AtomicBool,
    /// Values of at least this many bytes do.
    pub bypass_from: AtomicU64,
    /// Numbers below this are reserved in the superblock.
    reserved: AtomicU64,
    /// Somebody reserves more, and those who can't go on before that wait.
    reserving: AtomicBool,
    reserved_more: Event,
    pub counters: TxnCounters,
    pub rows: RowCounters,
}

/// How full nodes of a built tree are: some room for what comes.
const FILL_PERCENT: usize = 94;

/// Large values pass by the log from this size on, in bytes: below, a sync of the volume costs more than it saves.
pub const BYPASS_FROM: u64 = 64 << 10;

/// Numbers that are reserved ahead; how many are left when a thread reserves more; below which number other threads wait for that: the one
/// that reserves takes some that are not counted here.
const RESERVE: u64 = 1_100_000;
const RESERVE_EARLY: u64 = 500_000;
const RESERVE_LEAST: u64 = 100_000;

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
            history: Mutex::default(),
            purge_wanted: Arc::new(Event::new()),
            purged_in_part: Mutex::default(),
            unforgotten: Mutex::default(),
            purging: Trouble::default(),
            rollbacks: Rollbacks::default(),
            purge_throttle: PurgeThrottle::default(),
            write_throttle: WriteThrottle::default(),
            sessions: AtomicU64::new(0),
            bypass: AtomicBool::new(true),
            bypass_from: AtomicU64::new(BYPASS_FROM),
            reserved: AtomicU64::new(reserved),
            reserving: AtomicBool::new(false),
            reserved_more: Event::new(),
            counters: TxnCounters::default(),
            rows: RowCounters::default(),
        }
    }

    /// How a tree is built whose numbers these are.
    pub fn build(&self, numbers: Box<dyn Numbers>, urgency: Urgency) -> Build {
        let bypass = self.bypass.load(Ordering::Relaxed);
        let bypass = bypass.then(|| Bypass::new(self.storage.flusher.clone()));
        Build { fill: FILL_PERCENT, urgency, numbers, bypass }
    }

    pub fn new_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes sure that the next numbers are above all that the superblock allows after a crash. Called
    /// with no latch or lock held.
    pub fn reserve_numbers(&self) -> Result<()> {
        if self.is_temporary() {
            return Ok(()); // nothing of it outlives the process
        }
        loop {
            let ticket = self.reserved_more.ticket();
            let left = || self.reserved.load(Ordering::Acquire).saturating_sub(self.ids.peek());
            if left() >= RESERVE_EARLY {
                return Ok(());
            }
            if !self.reserving.swap(true, Ordering::AcqRel) {
                let done = if left() >= RESERVE_EARLY { Ok(()) } else { self.reserve_more() };
                self.reserving.store(false, Ordering::Release);
                self.reserved_more.notify();
                return done;
            }
            if left() >= RESERVE_LEAST {
                return Ok(());
            }
            self.storage.world.sched.wait(&self.reserved_more, ticket, None);
        }
    }

    fn reserve_more(&self) -> Result<()> {
        let bound = self.ids.peek() + RESERVE;
        self.storage.checkpointer.write_both(|s| s.transactions = s.transactions.max(bound))?;
        self.reserved.fetch_max(bound, Ordering::AcqRel);
        Ok(())
    }

    /// The commit sequence number of what is purged next.
    pub fn next_past(&self) -> Option<u64> {
        self.history.lock().first_csn()
    }

    /// Views take the commit now, as they did not when it was made: wakes purge if it waits for this one.
    pub fn wake_purge_of_first(&self, csn: u64) {
        if self.next_past() == Some(csn) {
            self.purge_wanted.notify();
        }
    }

    /// Wakes purge after a commit, but not for each one: the first that waits, then
    /// whenever a batch has come together. In between purge looks by itself.
    pub fn wake_purge(&self, csn: u64) {
        let (first, many) = {
            let history = self.history.lock();
            (
                history.first_csn() == Some(csn),
                !history.is_empty() && history.len().is_multiple_of(PURGE_BATCH),
            )
        };
        if many {
            self.set_purge_throttle();
        }
        if first || many || self.ids.wants_settling() {
            self.purge_wanted.notify();
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
