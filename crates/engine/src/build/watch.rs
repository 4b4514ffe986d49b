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
        if inner.overflowed || inner.bytes + key.len() + KEY_OVERHEAD > self.bytes_max {
            *inner = Inner { overflowed: true, ..Inner::default() };
            return;
        }
        inner.bytes += key.len() + KEY_OVERHEAD;
        inner.keys.insert(key.into(), txn);
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
    fn too_many_keys_are_said_for_good() {
        let watch = Watch::new(10 * (KEY_OVERHEAD + 1));
        (0..10).for_each(|n| watch.add(&[n], 1));
        watch.add(b"a", 1);
        assert_eq!(watch.len(), 0);
        watch.add(b"b", 1);
        assert!(watch.take().is_none() && watch.take().is_none());
    }
}
