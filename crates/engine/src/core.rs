//! What every transaction and worker shares.

use crate::catalog::Catalog;
use crate::config::Config;
use crate::error::Result;
use crate::lock::Locks;
use crate::storage::Storage;
use crate::txn::ids::Ids;
use crate::undo::stream::{Mark, Streams};
use parking_lot::Mutex;
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::sched::Event;
use terrace_tier::page::SpaceId;

/// A committed transaction whose undo somebody may still need.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    pub csn: u64,
    pub txn: u64,
    pub stream: usize,
    pub begin: Mark,
    pub end: Mark,
}

/// Committed transactions that purge has not done with, in the order of their commits.
#[derive(Default)]
pub struct History {
    pasts: VecDeque<Past>,
    /// Those of them that purge has not begun with.
    untouched: HashSet<u64>,
}

impl History {
    pub fn push(&mut self, past: Past) {
        self.untouched.insert(past.txn);
        self.pasts.push_back(past);
    }
    pub fn len(&self) -> usize {
        self.pasts.len()
    }
    pub fn is_empty(&self) -> bool {
        self.pasts.is_empty()
    }
    pub fn first(&self) -> Option<Past> {
        self.pasts.front().copied()
    }
    pub fn last(&self) -> Option<Past> {
        self.pasts.back().copied()
    }
    /// Whether purge is still to come to all that the transaction did.
    pub fn is_untouched(&self, txn: u64) -> bool {
        self.untouched.contains(&txn)
    }
    /// Purge begins with the first.
    pub fn touch_first(&mut self) {
        if let Some(past) = self.pasts.front() {
            self.untouched.remove(&past.txn);
        }
    }
    /// Purge has done with the first. True if it was the last one in its stream.
    pub fn pop_first(&mut self) -> bool {
        let Some(past) = self.pasts.pop_front() else { return false };
        // What a long reader held back leaves no memory behind.
        let keep = 2 * (self.pasts.len() + PURGE_BATCH);
        if self.pasts.capacity() > 4 * keep {
            self.pasts.shrink_to(keep);
        }
        if self.untouched.capacity() > 4 * keep {
            self.untouched.shrink_to(keep);
        }
        !self.pasts.iter().any(|p| p.stream == past.stream)
    }
}

#[derive(Default, Debug)]
pub struct TxnCounters {
    pub begun: AtomicU64,
    pub committed: AtomicU64,
    pub rolled_back: AtomicU64,
    pub purged: AtomicU64,
}

pub struct Core {
    pub storage: Storage,
    pub config: Config,
    pub ids: Ids,
    pub locks: Locks,
    pub streams: Streams,
    pub catalog: Catalog,
    pub history: Mutex<History>,
    pub purge_wanted: Arc<Event>,
    /// Spaces dropped while somebody still used them.
    pub zombies: Mutex<Vec<SpaceId>>,
    sessions: AtomicU64,
    /// Numbers below this are reserved in the superblock.
    reserved: AtomicU64,
    pub counters: TxnCounters,
}

/// Numbers reserved at a time, and how early.
const RESERVE: u64 = 1_000_000;
const RESERVE_EARLY: u64 = 100_000;

/// Transactions in history that are worth waking purge for.
pub const PURGE_BATCH: usize = 64;

impl Core {
    pub fn new(storage: Storage, config: Config, ids: Ids, locks: Locks, streams: Streams, catalog: Catalog) -> Core {
        let reserved = storage.checkpointer.superblock().transactions;
        Core {
            storage,
            config,
            ids,
            locks,
            streams,
            catalog,
            history: Mutex::default(),
            purge_wanted: Arc::new(Event::new()),
            zombies: Mutex::default(),
            sessions: AtomicU64::new(0),
            reserved: AtomicU64::new(reserved),
            counters: TxnCounters::default(),
        }
    }

    pub fn new_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes sure that the next numbers are above all that the superblock allows after a crash. Called
    /// with no latch or lock held.
    pub fn reserve_numbers(&self) -> Result<()> {
        let need = self.ids.peek() + RESERVE_EARLY;
        if need > self.reserved.load(Ordering::Acquire) {
            let bound = need + RESERVE;
            self.storage.checkpointer.write_both(|s| s.transactions = s.transactions.max(bound))?;
            self.reserved.fetch_max(bound, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The commit sequence number of what is purged next.
    pub fn next_past(&self) -> Option<u64> {
        self.history.lock().first().map(|past| past.csn)
    }

    /// Wakes purge after a commit that is published, but not for each one: the first that waits, then
    /// whenever a batch has come together. In between purge looks by itself.
    pub fn wake_purge(&self, csn: u64) {
        let due = {
            let history = self.history.lock();
            history.first().is_some_and(|past| past.csn == csn) || (!history.is_empty() && history.len() % PURGE_BATCH == 0)
        };
        if due || self.ids.wants_settling() {
            self.purge_wanted.notify();
        }
    }

    /// Forgets spaces that no table names any more, as far as nobody uses them.
    pub fn drop_spaces(&self, spaces: Vec<SpaceId>) -> Result<()> {
        for space in spaces {
            match self.storage.drop_space(space) {
                Ok(()) => {}
                Err(crate::error::Error::Busy(_)) => self.zombies.lock().push(space),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
