//! Pairs of a tree in key order, from both ends.
//!
//! Each end is a cursor of the engine's, opened when it is first used. A cursor holds no latch between calls: it copies a batch of pairs and hands
//! them out. The ends meet where the key of one is not beyond that of the other.

use crate::db::{InUse, Inner};
use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as AtomicOrdering};
use terrace_engine::Access;
use terrace_engine::Cursor;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Txn;

/// The keys of a range.
pub(crate) struct Bounds {
    pub low: Bound<Vec<u8>>,
    pub high: Bound<Vec<u8>>,
}

fn owned<K: AsRef<[u8]>>(bound: Bound<&K>) -> Bound<Vec<u8>> {
    bound.map(|key| key.as_ref().to_vec())
}

impl Bounds {
    pub fn of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Bounds {
        Bounds { low: owned(range.start_bound()), high: owned(range.end_bound()) }
    }

    pub fn all() -> Bounds {
        Bounds { low: Bound::Unbounded, high: Bound::Unbounded }
    }

    pub fn of_prefix(prefix: &[u8]) -> Bounds {
        let mut end = prefix.to_vec();
        while end.pop_if(|last| *last == u8::MAX).is_some() {}
        let high = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            // Nothing is above all that starts so.
            None => Bound::Unbounded,
        };
        Bounds { low: Bound::Included(prefix.to_vec()), high }
    }

    pub fn is_above(&self, key: &[u8]) -> bool {
        match &self.high {
            Bound::Included(high) => key > &high[..],
            Bound::Excluded(high) => key >= &high[..],
            Bound::Unbounded => false,
        }
    }
    fn is_below(&self, key: &[u8]) -> bool {
        match &self.low {
            Bound::Included(low) => key < &low[..],
            Bound::Excluded(low) => key <= &low[..],
            Bound::Unbounded => false,
        }
    }

    /// Where a way up starts.
    pub fn start(&self) -> (&[u8], Seek) {
        match &self.low {
            Bound::Included(low) => (low, Seek::AtLeast),
            Bound::Excluded(low) => (low, Seek::After),
            Bound::Unbounded => (&[], Seek::First),
        }
    }
    fn end(&self) -> (&[u8], Seek) {
        match &self.high {
            Bound::Included(high) => (high, Seek::AtMost),
            Bound::Excluded(high) => (high, Seek::Before),
            Bound::Unbounded => (&[], Seek::Last),
        }
    }
}

/// Pairs of a tree in key order: an iterator from both ends.
///
/// It sees what its snapshot or transaction sees. It may see a change that its transaction makes during the iteration, or not; no
/// key comes twice. Pairs are copied in batches; [`Range::advance`] hands them out without a copy of their own.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// for key in ["a", "b", "c"] {
///     tree.put(key, "x")?;
/// }
/// let mut range = tree.iter()?;
/// let (first, last) = (range.next().unwrap()?, range.next_back().unwrap()?);
/// assert_eq!((&first.0[..], &last.0[..]), (&b"a"[..], &b"c"[..]));
/// # drop((tree, range));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Range<'t> {
    front: Option<Box<Cursor>>,
    back: Option<Box<Cursor>>,
    done: bool,
    bounds: Bounds,
    lock: Lock,
    txn: Arc<Txn>,
    tree: Arc<InUse>,
    /// Set when a step's error ends the transaction.
    dooms: Option<Arc<AtomicBool>>,
    _db: Arc<Inner>,
    _txn: PhantomData<&'t ()>,
}

impl<'t> Range<'t> {
    pub(crate) fn new(
        db: &Arc<Inner>,
        txn: Arc<Txn>,
        tree: &Arc<InUse>,
        bounds: Bounds,
        lock: Lock,
    ) -> Result<Range<'t>> {
        Ok(Range {
            front: None,
            back: None,
            done: false,
            bounds,
            lock,
            txn,
            tree: tree.clone(),
            dooms: None,
            _db: db.clone(),
            _txn: PhantomData,
        })
    }

    /// A step whose error ends the transaction sets `doomed`.
    pub(crate) fn dooms(mut self, doomed: Arc<AtomicBool>) -> Range<'t> {
        self.dooms = Some(doomed);
        self
    }

    /// Steps an end. False: there is nothing more.
    fn step(&mut self, backward: bool) -> Result<bool> {
        self.try_step(backward).inspect_err(|error| {
            if let Some(doomed) = self.dooms.as_ref().filter(|_| error.ends_transaction()) {
                doomed.store(true, AtomicOrdering::Relaxed);
            }
        })
    }

    fn try_step(&mut self, backward: bool) -> Result<bool> {
        if self.done {
            return Ok(false);
        }
        // Whatever fails ends the range.
        self.done = true;
        let end = if backward { &mut self.back } else { &mut self.front };
        let valid = match end {
            Some(cursor) => {
                if backward {
                    cursor.prev()?
                } else {
                    cursor.next()?
                }
            }
            None => {
                let mut cursor = Box::new(self.txn.cursor(&self.tree.table, 0, self.lock, Access::Normal)?);
                let (key, seek) = if backward { self.bounds.end() } else { self.bounds.start() };
                if let (Bound::Excluded(high), Lock::None, false) = (&self.bounds.high, self.lock, backward) {
                    cursor.set_end(high);
                }
                let valid = cursor.seek(key, seek)?;
                *end = Some(cursor);
                valid
            }
        };
        let Some(cursor) = end.as_ref().filter(|_| valid) else { return Ok(false) };
        let key = cursor.key();
        if if backward { self.bounds.is_below(key) } else { self.bounds.is_above(key) } {
            return Ok(false);
        }
        if let (Some(front), Some(back)) = (&self.front, &self.back)
            && front.key().cmp(back.key()) != Ordering::Less
        {
            return Ok(false);
        }
        self.done = false;
        Ok(true)
    }

    /// The next pair, borrowed until the next call: no pair is allocated.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("key", "value")?;
    /// let (mut range, mut bytes) = (tree.iter()?, 0);
    /// while let Some((key, value)) = range.advance()? {
    ///     bytes += key.len() + value.len();
    /// }
    /// assert_eq!(bytes, 8);
    /// # drop((tree, range));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advance(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let valid = self.step(false)?;
        Ok(self.front.as_ref().filter(|_| valid).map(|cursor| (cursor.key(), cursor.value())))
    }

    /// As [`Range::advance`], from the back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("key", "value")?;
    /// assert_eq!(tree.iter()?.advance_back()?, Some((&b"key"[..], &b"value"[..])));
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advance_back(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let valid = self.step(true)?;
        Ok(self.back.as_ref().filter(|_| valid).map(|cursor| (cursor.key(), cursor.value())))
    }
}

fn pair((key, value): (&[u8], &[u8])) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

impl Iterator for Range<'_> {
    type Item = std::result::Result<(Vec<u8>, Vec<u8>), Error>;
    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|found| found.map(pair)).transpose()
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance_back().map(|found| found.map(pair)).transpose()
    }
}
