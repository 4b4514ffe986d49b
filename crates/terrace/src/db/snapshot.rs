//! A consistent state to read.

use crate::db::Inner;
use crate::db::event_loop::{self, TryGet};
use crate::db::range::{Bounds, Range};
use crate::db::tree::Tree;
use crate::error::Result;
use crate::read;
use std::ops::RangeBounds;
use std::sync::Arc;
use terrace_engine::Lock;
use terrace_engine::Txn;

/// A consistent state of all trees, to read from any thread. While it exists, the versions that it sees are kept.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// tree.put("key", "old")?;
/// let snapshot = db.snapshot();
/// tree.put("key", "new")?;
/// assert_eq!(snapshot.get(&tree, "key")?.as_deref(), Some(&b"old"[..]));
/// # drop((tree, snapshot));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    txn: Arc<Txn>,
    db: Arc<Inner>,
}

impl Snapshot {
    pub(crate) fn new(db: Arc<Inner>) -> Snapshot {
        let txn = db.begin();
        txn.open_view();
        Snapshot { txn, db }
    }

    /// The value of a key, if it has one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// assert!(db.snapshot().get(&tree, "key")?.is_none());
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        read::get(&self.txn, &tree.of(&self.db)?.table, key.as_ref(), Lock::None)
    }

    /// The values of several keys, in their order. What is not in memory is fetched side by side.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("b", "2")?;
    /// assert_eq!(db.snapshot().multi_get(&tree, &["a", "b"])?, [None, Some(b"2".to_vec())]);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn multi_get(&self, tree: &Tree, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>> {
        read::multi_get(&self.txn, &tree.of(&self.db)?.table, keys, Lock::None)
    }

    /// As [`Tree::try_get`], of this state.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let snapshot = db.snapshot();
    /// tree.put("key", "value")?;
    /// let answer = snapshot.try_get(&tree, "key", |_| unreachable!("nothing was read"))?;
    /// assert_eq!(answer, terrace::TryGet::Absent);
    /// # drop((tree, snapshot));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get(
        &self,
        tree: &Tree,
        key: impl AsRef<[u8]>,
        done: impl FnOnce(Result<Option<Vec<u8>>>) + Send + 'static,
    ) -> Result<TryGet> {
        event_loop::try_get(&self.db, &self.txn, tree.of(&self.db)?, key.as_ref(), done)
    }

    /// The pairs whose keys lie in a range, in order; from the back with `rev`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("b", "2")?;
    /// assert_eq!(db.snapshot().range(&tree, "a".."c")?.count(), 1);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, tree: &Tree, range: impl RangeBounds<K>) -> Result<Range<'static>> {
        let tree = tree.of(&self.db)?;
        Range::new(&self.db, self.txn.clone(), tree, Bounds::of(&range), Lock::None)
    }

    /// The pairs whose keys start with a prefix, in order; from the back with `rev`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// tree.put("user/1", "Ada")?;
    /// assert_eq!(db.snapshot().prefix(&tree, "user/")?.count(), 1);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix(&self, tree: &Tree, prefix: impl AsRef<[u8]>) -> Result<Range<'static>> {
        let tree = tree.of(&self.db)?;
        Range::new(&self.db, self.txn.clone(), tree, Bounds::of_prefix(prefix.as_ref()), Lock::None)
    }
}
