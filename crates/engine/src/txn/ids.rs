//! Who is visible to whom: transaction ids, commit sequence numbers, read views.
//!
//! One counter gives transaction ids and commit sequence numbers. A view is one number: it sees the
//! transactions whose commit sequence number is at or below it. A transaction that the table does
//! not know has committed before every open view began.
//!
//! Commit: under `order`, the number is taken, the commit record appended and the number published;
//! so the log has commits in the order of their numbers, and a view sees all up to its own.

use crate::row::TxnId;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

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

pub struct Ids {
    next: AtomicU64,
    /// The newest number that views may take.
    published: AtomicU64,
    fates: RwLock<HashMap<TxnId, Fate>>,
    /// All below are committed and visible to every view, or never were.
    low: AtomicU64,
    views: Mutex<BTreeMap<u64, u32>>,
    /// Transactions that ended since [`Ids::settle`] last looked.
    ended: AtomicU64,
    /// The oldest view when [`Ids::settle`] last passed over all that are known.
    settled: AtomicU64,
    pub order: Mutex<()>,
}

impl Ids {
    /// Numbers go on at `next`.
    pub fn new(next: u64) -> Ids {
        Ids {
            next: AtomicU64::new(next),
            published: AtomicU64::new(next),
            fates: RwLock::default(),
            low: AtomicU64::new(0),
            views: Mutex::default(),
            ended: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            order: Mutex::new(()),
        }
    }

    pub fn peek(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// A new number; for transactions it is known as active before anybody can see what they write.
    pub fn begin(&self) -> TxnId {
        let id = self.next.fetch_add(1, Ordering::AcqRel) + 1;
        self.fates.write().insert(id, Fate::Active);
        id
    }
    /// A transaction that recovery found unfinished.
    pub fn revive(&self, id: TxnId) {
        self.fates.write().insert(id, Fate::Active);
    }

    /// A commit sequence number; the caller holds `order`.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::AcqRel) + 1
    }
    /// The commit record is in the log: views may see it. The caller holds `order`.
    pub fn committed(&self, id: TxnId, csn: u64) {
        self.fates.write().insert(id, Fate::Committed(csn));
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.published.store(csn, Ordering::Release);
    }
    pub fn rolled_back(&self, id: TxnId) {
        let _order = self.order.lock();
        let at = self.number();
        self.fates.write().insert(id, Fate::RolledBack(at));
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.published.store(at, Ordering::Release);
    }

    pub fn is_active(&self, id: TxnId) -> bool {
        id >= self.low.load(Ordering::Acquire) && self.fates.read().get(&id) == Some(&Fate::Active)
    }

    /// Whether a view sees what `id` wrote.
    pub fn sees(&self, view: u64, id: TxnId) -> bool {
        if id < self.low.load(Ordering::Acquire) {
            return true;
        }
        match self.fates.read().get(&id) {
            None => true,
            Some(Fate::Committed(csn)) => *csn <= view,
            Some(Fate::Active | Fate::RolledBack(_)) => false,
        }
    }

    pub fn open_view(&self) -> u64 {
        let mut views = self.views.lock();
        let view = self.published.load(Ordering::Acquire);
        *views.entry(view).or_insert(0) += 1;
        view
    }
    /// Returns the oldest view (see [`Ids::oldest_view`]) if this was older.
    pub fn close_view(&self, view: u64) -> Option<u64> {
        let mut views = self.views.lock();
        let count = views.get_mut(&view)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        views.remove(&view);
        let published = self.published.load(Ordering::Acquire);
        let oldest = views.keys().next().copied().unwrap_or(published).min(published);
        (view < oldest).then_some(oldest)
    }
    /// What every open view, and every one to come, sees at least.
    pub fn oldest_view(&self) -> u64 {
        let views = self.views.lock();
        let published = self.published.load(Ordering::Acquire);
        views.keys().next().copied().unwrap_or(published).min(published)
    }
    pub fn views(&self) -> usize {
        self.views.lock().values().map(|n| *n as usize).sum()
    }

    /// Whether so many transactions ended that [`Ids::settle`] is worth its pass over all that are known.
    pub fn wants_settling(&self) -> bool {
        self.ended.load(Ordering::Relaxed) >= SETTLE_AFTER
    }
    /// Forgets the transactions that no view can doubt any more. False if there can be none: the oldest view
    /// is still the one of the last pass, and what ended since came after it. So a long reader does not make
    /// every look go over all that ended behind it.
    pub fn settle(&self) -> bool {
        self.ended.store(0, Ordering::Relaxed);
        let oldest = self.oldest_view();
        if self.settled.swap(oldest, Ordering::AcqRel) == oldest {
            return false;
        }
        let mut fates = self.fates.write();
        fates.retain(|_, fate| match fate {
            Fate::Active => true,
            Fate::Committed(at) | Fate::RolledBack(at) => *at > oldest,
        });
        let low = fates.keys().min().copied().unwrap_or(oldest);
        self.low.fetch_max(low.min(oldest), Ordering::AcqRel);
        // What a long reader held back leaves no memory behind, nor room to pass over.
        if fates.capacity() > 8 * (fates.len() + SETTLE_AFTER as usize) {
            let keep = 2 * (fates.len() + SETTLE_AFTER as usize);
            fates.shrink_to(keep);
        }
        true
    }
    pub fn known(&self) -> usize {
        self.fates.read().len()
    }
}

#[cfg(test)]
mod tests;
