//! Visibility: transaction ids, commit sequence numbers, read views.
//!
//! One counter gives transaction ids and commit sequence numbers. A view is one number: it sees the
//! transactions whose commit sequence number is at or below it. A transaction that the table does
//! not know has committed before every open view began. Those that ended are kept one by one for a while, then in
//! few entries ([`past`]): a long reader makes nothing grow with the commits behind it.
//!
//! Commit: under `order`, the number is taken, the commit record appended and the number published;
//! so the log has commits in the order of their numbers, and a view sees all up to its own.
//!
//! With [`Ids::set_durable`] a number is published only when the log is durable up to its commit record ([`unseen`]).

mod past;
mod unseen;

use crate::row::TxnId;
use hashbrown::HashMap;
use past::{End, Past};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::lock::{Mutex, Mutexes, RwLock, RwLocks};
use terrace_log::Redo;
use terrace_tier::page::Glsn;
pub use unseen::Standing;
use unseen::Views;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Active,
    /// Its commit sequence number.
    Committed(u64),
    /// Nothing of it is left; readers may still hold copies of what it wrote before this number.
    RolledBack(u64),
}

/// Ended transactions that may be known beyond need.
const SETTLE_AFTER: u64 = 1024;
/// From this number on a committing session settles them, if purge is late.
const SETTLE_NOW: u64 = 8 * SETTLE_AFTER;

struct KnownTxns {
    /// Those that are active, and those that ended of late.
    fates: HashMap<TxnId, Fate>,
    past: Past,
}

pub struct Ids {
    next: AtomicU64,
    /// The newest number that views may take. Stored under the lock of `views`.
    published: AtomicU64,
    /// Whether views take only commits that are durable.
    durable: AtomicBool,
    /// Commits that views do not take yet; the length of the queue in `views`.
    unseen: AtomicU64,
    redo: Arc<dyn Redo>,
    known: RwLock<KnownTxns, { RwLocks::Transactions as u8 }>,
    /// All below are committed and visible to every view, or never were.
    low: Arc<AtomicU64>,
    views: Mutex<Views, { Mutexes::Views as u8 }>,
    /// Transactions that ended since [`Ids::settle`] last looked.
    ended: AtomicU64,
    /// The oldest view when [`Ids::settle`] last passed over all that are known.
    settled: AtomicU64,
    pub order: Mutex<(), { Mutexes::CommitOrder as u8 }>,
}

impl Ids {
    /// Numbers go on at `next`. `low` is told below which number every view sees all. `redo` is the log of the commits.
    pub fn new(next: u64, low: Arc<AtomicU64>, redo: Arc<dyn Redo>) -> Ids {
        Ids {
            next: AtomicU64::new(next),
            published: AtomicU64::new(next),
            durable: AtomicBool::new(false),
            unseen: AtomicU64::new(0),
            redo,
            known: RwLock::new(KnownTxns { fates: HashMap::default(), past: Past::new(next) }),
            low,
            views: Mutex::default(),
            ended: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            order: Mutex::new(()),
        }
    }

    pub fn peek(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// A new number; a transaction's is known as active before any other session can see what it writes.
    pub fn begin(&self) -> TxnId {
        let mut known = self.known.write();
        // Under the lock: else `low` could pass a number that is taken and not yet known as active.
        let id = self.next.fetch_add(1, Ordering::AcqRel) + 1;
        known.fates.insert(id, Fate::Active);
        id
    }
    /// A transaction that recovery found unfinished.
    pub fn revive(&self, id: TxnId) {
        self.known.write().fates.insert(id, Fate::Active);
    }

    /// A commit sequence number; the caller holds `order`.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::AcqRel) + 1
    }
    /// The commit record is in the log, and no crash can undo the commit once the log is durable up to `end`. The caller holds `order`.
    pub fn committed(&self, id: TxnId, csn: u64, end: Glsn) {
        let mut known = self.known.write();
        // Under the lock: a reader that finds that the transaction is not active also finds that views do not take it yet, and no view that takes it
        // finds it active.
        self.publish(csn, end);
        known.fates.insert(id, Fate::Committed(csn));
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
    /// A number that no view has so far, and every one to come has or passes. Waits for the commits that views do not take yet.
    pub fn pass_views(&self) -> u64 {
        let at = {
            let _order = self.order.lock();
            let at = self.number();
            self.publish(at, 0);
            at
        };
        // If the log has failed no view comes that far, and nothing can be changed any more.
        let _ = self.see(at);
        at
    }
    pub fn rolled_back(&self, id: TxnId) {
        let _order = self.order.lock();
        let at = self.number();
        let mut known = self.known.write();
        self.publish(at, 0);
        known.fates.insert(id, Fate::RolledBack(at));
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    pub fn is_active(&self, id: TxnId) -> bool {
        self.standing(id) == Standing::Active
    }

    /// Whether a view sees what `id` wrote.
    pub fn sees(&self, view: u64, id: TxnId) -> bool {
        if id < self.low.load(Ordering::Acquire) {
            return true;
        }
        let known = self.known.read();
        match known.fates.get(&id) {
            None => known.past.sees(view, id),
            Some(Fate::Committed(csn)) => *csn <= view,
            Some(Fate::Active | Fate::RolledBack(_)) => false,
        }
    }

    pub fn open_view(&self) -> u64 {
        let mut views = self.views.lock();
        let view = self.advance(&mut views);
        // What is published only grows, so the newest view is the last.
        match views.open.back_mut() {
            Some((last, count)) if *last == view => *count += 1,
            _ => views.open.push_back((view, 1)),
        }
        view
    }
    /// Returns the oldest view (see [`Ids::oldest_view`]) if this was older.
    pub fn close_view(&self, view: u64) -> Option<u64> {
        let mut views = self.views.lock();
        let at = views.open.binary_search_by_key(&view, |(view, _)| *view).ok()?;
        views.open[at].1 -= 1;
        if views.open[at].1 > 0 {
            return None;
        }
        views.open.remove(at);
        let published = self.advance(&mut views);
        let oldest = views.open.front().map_or(published, |(view, _)| *view).min(published);
        (view < oldest).then_some(oldest)
    }
    /// What every open view, and every one to come, sees at least.
    pub fn oldest_view(&self) -> u64 {
        let mut views = self.views.lock();
        let published = self.advance(&mut views);
        views.open.front().map_or(published, |(view, _)| *view).min(published)
    }
    /// The newest number that views may take.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }
    pub fn views(&self) -> usize {
        self.views.lock().open.iter().map(|(_, count)| *count as usize).sum()
    }

    /// Whether enough transactions ended that [`Ids::settle`] is worth its pass over all that are known.
    pub fn wants_settling(&self) -> bool {
        self.ended.load(Ordering::Relaxed) >= SETTLE_AFTER
    }
    /// Settles if purge, which should have done so, is late: so what is known stays small. No latch is held.
    pub fn settle_if_late(&self) {
        if self.ended.load(Ordering::Relaxed) >= SETTLE_NOW {
            self.settle();
        }
    }
    /// Forgets the transactions that no view can doubt any more, and keeps those that ended in few entries. False if
    /// there is nothing to do: the oldest view is still the one of the last pass, and few have ended since.
    pub fn settle(&self) -> bool {
        let oldest = self.oldest_view();
        let same = self.settled.swap(oldest, Ordering::AcqRel) == oldest;
        if same && !self.wants_settling() {
            return false;
        }
        let mut known = self.known.write();
        self.ended.store(0, Ordering::Relaxed);
        // Under the lock: another pass must not know of newer views than this one.
        let (views, published) = {
            let mut views = self.views.lock();
            let published = self.advance(&mut views);
            (views.open.iter().map(|(view, _)| *view).collect::<Vec<_>>(), published)
        };
        let oldest = views.first().copied().unwrap_or(published).min(published);
        let KnownTxns { fates, past } = &mut *known;
        let mut ended = Vec::new();
        fates.retain(|id, fate| {
            let (Fate::Committed(at) | Fate::RolledBack(at)) = *fate else { return true };
            // A view that is opened from here on sees what was published.
            let settles = at <= published;
            if settles {
                ended.push(End { id: *id, at });
            }
            !settles
        });
        ended.sort_unstable_by_key(|end| end.id);
        past.add(&ended, &views);
        past.tidy(&views, same);
        let low = fates.keys().copied().chain(past.first()).chain([oldest]).min().unwrap_or(oldest);
        self.low.fetch_max(low, Ordering::AcqRel);
        // What came in a rush leaves no memory behind, nor room to pass over.
        if fates.capacity() > 8 * (fates.len() + SETTLE_AFTER as usize) {
            let keep = 2 * (fates.len() + SETTLE_AFTER as usize);
            fates.shrink_to(keep);
        }
        true
    }
    /// Transactions that are known one by one, and entries for the others.
    pub fn known(&self) -> usize {
        let known = self.known.read();
        known.fates.len() + known.past.entries()
    }
}

#[cfg(test)]
mod tests;
