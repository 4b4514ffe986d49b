//! What changes in a table while an index is built of it: the keys of rows, each with the transaction that changed it
//! last. A row's change is told before its transaction ends; so what a view does not see of it is known.
//!
//! Its memory is lent by the pool until the end. A writer that reports a row may hold a latch.

use crate::row::TxnId;
use hashbrown::HashMap;
use std::sync::Arc;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_tier::memory::pool::{Loan, Pool, Purpose};

/// What a key takes beside its bytes, about.
const KEY_OVERHEAD: usize = 64;
/// The least that is borrowed at a time, in bytes. A table of very many partitions has as many lists, most of them short.
const STEP_MIN: usize = 1024;

struct Inner {
    keys: HashMap<Box<[u8]>, TxnId>,
    bytes: usize,
    /// Bytes of the keys that were handed over last: the receiver still needs them.
    bytes_taken: usize,
    loan: Loan,
    /// Keys were dropped: there were too many.
    overflowed: bool,
}

impl Inner {
    fn borrow(&mut self, bytes: usize, step: usize) -> bool {
        let lent = self.loan.bytes();
        let more = bytes.saturating_sub(lent);
        more == 0 || self.loan.take(more.max(lent.clamp(STEP_MIN, step))) || self.loan.take(more)
    }

    fn insert(&mut self, key: &[u8], txn: TxnId, Watch { bytes_max, step, .. }: &Watch) {
        let (bytes_max, step) = (*bytes_max, *step);
        let bytes = self.bytes + key.len() + KEY_OVERHEAD;
        self.overflowed =
            self.overflowed || bytes > bytes_max || !self.borrow(bytes + self.bytes_taken, step);
        if self.overflowed {
            (self.keys, self.bytes) = (HashMap::new(), 0);
            self.loan.keep(self.bytes_taken);
            return;
        }
        self.bytes = bytes;
        self.keys.insert(key.into(), txn);
    }
}

pub struct Watch {
    inner: Mutex<Inner, { Mutexes::Watch as u8 }>,
    /// Bytes of memory that keys may take.
    bytes_max: usize,
    /// The most bytes that are borrowed at a time, if fewer do.
    step: usize,
}

impl Watch {
    pub(crate) fn new(bytes_max: usize, pool: &Arc<Pool>) -> Watch {
        let (keys, loan) = (HashMap::new(), Loan::new(pool, Purpose::Watches));
        let inner = Inner { keys, bytes: 0, bytes_taken: 0, loan, overflowed: false };
        Watch { inner: Mutex::new(inner), bytes_max, step: pool.loan_step() }
    }

    pub(crate) fn add(&self, key: &[u8], txn: TxnId) {
        let mut inner = self.inner.lock();
        if let Some(last) = inner.keys.get_mut(key) {
            *last = txn;
            return;
        }
        inner.insert(key, txn, self);
    }

    /// Adds a key as it was found a while ago: what was reported of it since is newer and stays.
    pub(crate) fn add_found(&self, key: &[u8], txn: TxnId) {
        let mut inner = self.inner.lock();
        if !inner.keys.contains_key(key) {
            inner.insert(key, txn, self);
        }
    }

    /// Hands over what was gathered. None: it was too much.
    pub(crate) fn take(&self) -> Option<HashMap<Box<[u8]>, TxnId>> {
        let mut inner = self.inner.lock();
        if inner.overflowed {
            return None;
        }
        (inner.bytes_taken, inner.bytes) = (inner.bytes, 0);
        Some(std::mem::take(&mut inner.keys))
    }

    /// No key was told that is not handed over.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.inner.lock();
        !inner.overflowed && inner.keys.is_empty()
    }
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pool;

    #[test]
    fn a_watched_key_is_reported_once_with_its_last_transaction() {
        let watch = Watch::new(1000, &pool());
        watch.add(b"a", 1);
        watch.add(b"b", 2);
        watch.add(b"a", 3);
        assert_eq!(watch.len(), 2);
        let taken = watch.take().unwrap();
        assert_eq!((taken[&b"a"[..]], taken[&b"b"[..]]), (3, 2));
        assert!(watch.take().unwrap().is_empty());
    }

    #[test]
    fn a_key_found_earlier_does_not_hide_a_later_change() {
        let watch = Watch::new(1000, &pool());
        watch.add(b"a", 1);
        let taken = watch.take().unwrap();
        watch.add(b"a", 2);
        taken.iter().for_each(|(key, txn)| watch.add_found(key, *txn));
        watch.add_found(b"b", 1);
        let taken = watch.take().unwrap();
        assert_eq!((taken[&b"a"[..]], taken[&b"b"[..]]), (2, 1));
    }

    #[test]
    fn the_memory_of_watched_keys_is_borrowed_also_after_they_are_handed_over() {
        let pool = crate::testing::pool_of(256);
        let lent = || pool.lent_for(Purpose::Watches);
        let watch = Watch::new(1 << 20, &pool);
        assert_eq!(lent(), 0);
        let fill = || (0..5000u64).for_each(|n| watch.add(&n.to_be_bytes(), 1));
        fill();
        let once = 5000 * (KEY_OVERHEAD + 8);
        assert!((once..once + (128 << 10)).contains(&lent()), "{}", lent());
        let taken = watch.take().unwrap();
        fill();
        assert!((2 * once..2 * once + (128 << 10)).contains(&lent()), "{} with {} keys", lent(), taken.len());
        // What the pool has lent to others is not to be had.
        let mut others = Loan::new(&pool, Purpose::Locks);
        while others.take(16 << 10) {}
        (5000..8000u64).for_each(|n| watch.add(&n.to_be_bytes(), 1));
        assert!(watch.take().is_none());
        drop(watch);
        assert_eq!(lent(), 0);
    }

    #[test]
    fn very_many_short_lists_take_what_they_need() {
        let pool = crate::testing::pool_of(256);
        let watches: Vec<Watch> = (0..1000).map(|_| Watch::new(1 << 20, &pool)).collect();
        watches.iter().for_each(|watch| watch.add(b"a", 1));
        assert!(watches.iter().all(|watch| watch.take().is_some_and(|keys| keys.len() == 1)));
        // A longer one among them has what is left.
        let last = Watch::new(1 << 20, &pool);
        (0..5000u64).for_each(|n| last.add(&n.to_be_bytes(), 1));
        assert!(last.take().is_some());
    }

    #[test]
    fn an_overflow_of_watched_keys_is_reported_permanently() {
        let watch = Watch::new(10 * (KEY_OVERHEAD + 1), &pool());
        (0..10).for_each(|n| watch.add(&[n], 1));
        watch.add(b"a", 1);
        assert_eq!(watch.len(), 0);
        watch.add(b"b", 1);
        assert!(watch.take().is_none() && watch.take().is_none() && !watch.is_empty());
    }
}
