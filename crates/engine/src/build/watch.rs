//! What changes in a table while an index is built of it: the keys of rows, each with the transaction that changed it
//! last. A row's change is told before its transaction ends; so what a view does not see of it is known.

use crate::row::TxnId;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// What a key takes beside its bytes, about.
const KEY_OVERHEAD: usize = 48;

#[derive(Default)]
struct Inner {
    keys: HashMap<Box<[u8]>, TxnId>,
    bytes: usize,
    /// Keys were dropped: there were too many.
    overflowed: bool,
}

impl Inner {
    fn insert(&mut self, key: &[u8], txn: TxnId, bytes_max: usize) {
        if self.overflowed || self.bytes + key.len() + KEY_OVERHEAD > bytes_max {
            *self = Inner { overflowed: true, ..Inner::default() };
            return;
        }
        self.bytes += key.len() + KEY_OVERHEAD;
        self.keys.insert(key.into(), txn);
    }
}

pub struct Watch {
    inner: Mutex<Inner>,
    /// Bytes of memory that keys may take.
    bytes_max: usize,
}

impl Watch {
    pub(crate) fn new(bytes_max: usize) -> Watch {
        Watch { inner: Mutex::default(), bytes_max }
    }

    pub(crate) fn add(&self, key: &[u8], txn: TxnId) {
        let mut inner = self.inner.lock();
        if let Some(last) = inner.keys.get_mut(key) {
            *last = txn;
            return;
        }
        inner.insert(key, txn, self.bytes_max);
    }

    /// Adds a key as somebody found it a while ago: what was told of it since is newer and stays.
    pub(crate) fn add_found(&self, key: &[u8], txn: TxnId) {
        let mut inner = self.inner.lock();
        if !inner.keys.contains_key(key) {
            inner.insert(key, txn, self.bytes_max);
        }
    }

    /// Hands over what was gathered. None: it was too much.
    pub(crate) fn take(&self) -> Option<HashMap<Box<[u8]>, TxnId>> {
        let mut inner = self.inner.lock();
        if inner.overflowed {
            return None;
        }
        inner.bytes = 0;
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

    #[test]
    fn a_key_is_told_once_with_its_last_transaction() {
        let watch = Watch::new(1000);
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
        let watch = Watch::new(1000);
        watch.add(b"a", 1);
        let taken = watch.take().unwrap();
        watch.add(b"a", 2);
        taken.iter().for_each(|(key, txn)| watch.add_found(key, *txn));
        watch.add_found(b"b", 1);
        let taken = watch.take().unwrap();
        assert_eq!((taken[&b"a"[..]], taken[&b"b"[..]]), (2, 1));
    }

    #[test]
    fn too_many_keys_are_said_for_good() {
        let watch = Watch::new(10 * (KEY_OVERHEAD + 1));
        (0..10).for_each(|n| watch.add(&[n], 1));
        watch.add(b"a", 1);
        assert_eq!(watch.len(), 0);
        watch.add(b"b", 1);
        assert!(watch.take().is_none() && watch.take().is_none() && !watch.is_empty());
    }
}
