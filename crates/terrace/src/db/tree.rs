//! A tree: byte keys to byte values, in key order. Each call here is a transaction of its own.

use crate::db::event_loop::{self, TryGet};
use crate::db::range::{Bounds, Range};
use crate::db::txn;
use crate::db::{InUse, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::read;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use terrace_engine::Lock;
use terrace_engine::Txn;

/// An ordered map of byte keys to byte values, durable. Clones are handles of the same one, for any thread.
///
/// A key has at most 3,500 bytes, a value at most 4 GiB; values that are too large for a leaf lie in pages of their own. Each method is a
/// transaction: what it writes is durable when it returns. Several changes belong in a [`Txn`](crate::Txn) or a [`Batch`](crate::Batch).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("planets")?;
/// tree.put("earth", "3")?;
/// assert_eq!(tree.get("earth")?.as_deref(), Some(&b"3"[..]));
/// assert!(tree.delete("earth")?);
/// # drop(tree);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Tree {
    db: Arc<Inner>,
    in_use: Arc<InUse>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tree").field(&self.name()).finish()
    }
}

impl Tree {
    pub(crate) fn new(db: Arc<Inner>, in_use: Arc<InUse>) -> Tree {
        Tree { db, in_use }
    }

    /// What it is made of, for a caller of the same instance.
    pub(crate) fn of(&self, db: &Arc<Inner>) -> Result<&Arc<InUse>> {
        match Arc::ptr_eq(db, &self.db) {
            true => Ok(&self.in_use),
            false => Err(Error::new(ErrorKind::Invalid, "the tree is of another instance")),
        }
    }

    pub(crate) fn in_use(&self) -> &Arc<InUse> {
        &self.in_use
    }
    /// Whether both are handles of the same tree.
    pub(crate) fn is(&self, other: &Tree) -> bool {
        Arc::ptr_eq(&self.in_use, &other.in_use)
    }

    /// Its name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// assert_eq!(db.tree("t")?.name(), "t");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(&self) -> String {
        self.in_use.table.name()
    }

    /// The value of a key, if it has one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// assert_eq!(tree.get("key")?, None);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        read::get(&self.db.begin(), &self.in_use.table, key.as_ref(), Lock::None)
    }

    /// As [`Tree::get`], into a buffer that is used again. False: there is no such key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("key", "value")?;
    /// let mut value = Vec::new();
    /// assert!(tree.get_into("key", &mut value)? && value == b"value");
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.db.begin().get(&self.in_use.table, key.as_ref(), Lock::None, value)?)
    }

    /// The values of several keys, in their order, from one consistent state. What is not in memory is fetched side by side.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("b", "2")?;
    /// assert_eq!(tree.multi_get(&["a", "b"])?, [None, Some(b"2".to_vec())]);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>> {
        read::multi_get(&self.db.begin(), &self.in_use.table, keys, Lock::None)
    }

    /// Reads a key without waiting for I/O, for event loops: see [`TryGet`].
    ///
    /// If the answer is [`TryGet::Pending`], the read was started in the background, and `done` is called once with its result, as of now,
    /// from another thread. It must neither wait nor panic. With every other answer it is not called.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("key", "value")?;
    /// let (told, heard) = std::sync::mpsc::channel();
    /// let value = match tree.try_get("key", move |value| told.send(value).unwrap())? {
    ///     terrace::TryGet::Hit(value) => Some(value),
    ///     terrace::TryGet::Absent => None,
    ///     terrace::TryGet::Pending => heard.recv()??, // an event loop goes on with other work instead
    ///     terrace::TryGet::Busy => tree.get("key")?,
    /// };
    /// assert_eq!(value.as_deref(), Some(&b"value"[..]));
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get(
        &self,
        key: impl AsRef<[u8]>,
        done: impl FnOnce(Result<Option<Vec<u8>>>) + Send + 'static,
    ) -> Result<TryGet> {
        event_loop::try_get(&self.db, &self.db.begin(), &self.in_use, key.as_ref(), done)
    }

    /// A write of one statement, durable when it returns.
    fn write<T>(&self, work: impl FnOnce(&Arc<Txn>) -> Result<T>) -> Result<T> {
        let txn = self.db.begin();
        let done = work(&txn)?;
        txn.commit()?.wait()?;
        Ok(done)
    }

    /// Sets a key, whether it is there or not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("key", "one")?;
    /// tree.put("key", "two")?;
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(|txn| {
            txn.put(&self.in_use.table, key.as_ref(), value.as_ref())?;
            Ok(())
        })
    }

    /// Sets a key that is not there. False: it is, and stays as it is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// assert!(tree.insert("key", "one")?);
    /// assert!(!tree.insert("key", "two")?);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.write(|txn| txn::insert(txn, &self.in_use.table, key.as_ref(), value.as_ref()))
    }

    /// Deletes a key. False: it was not there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// assert!(!tree.delete("key")?);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.write(|txn| txn::delete(txn, &self.in_use.table, key.as_ref()))
    }

    /// Deletes all keys in a range, in one transaction. Returns how many. It reads and marks each of them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("a", "1")?;
    /// tree.put("b", "2")?;
    /// assert_eq!(tree.delete_range("a".."b")?, 1);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        let bounds = Bounds::of(&range);
        self.write(|txn| txn::delete_range(txn, &self.in_use.table, &bounds))
    }

    /// The pairs whose keys lie in a range, in order, as of now; from the back with `rev`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// for key in ["a", "b", "c"] {
    ///     tree.put(key, "x")?;
    /// }
    /// let keys: Vec<Vec<u8>> = tree.range("b"..)?.rev().map(|pair| pair.unwrap().0).collect();
    /// assert_eq!(keys, [b"c", b"b"]);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Range<'static>> {
        Range::new(&self.db, self.db.begin(), &self.in_use, Bounds::of(&range), Lock::None)
    }

    /// The pairs whose keys start with a prefix, in order, as of now; from the back with `rev`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("user/1", "Ada")?;
    /// tree.put("visit/1", "home")?;
    /// assert_eq!(tree.prefix("user/")?.count(), 1);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range<'static>> {
        let bounds = Bounds::of_prefix(prefix.as_ref());
        Range::new(&self.db, self.db.begin(), &self.in_use, bounds, Lock::None)
    }

    /// All pairs, in order, as of now; from the back with `rev`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// assert!(tree.iter()?.next().is_none());
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Result<Range<'static>> {
        Range::new(&self.db, self.db.begin(), &self.in_use, Bounds::all(), Lock::None)
    }

    /// About how many keys it has. Of changes that are not committed, and of deleted keys that are not cleaned up yet, some may count; and a
    /// crash may lose what was counted since the last structure change. Costs nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("key", "value")?;
    /// assert_eq!(tree.approximate_len(), 1);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn approximate_len(&self) -> u64 {
        self.in_use.table.estimate().rows
    }
}
