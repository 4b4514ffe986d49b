//! Transactions of several statements.

use crate::db::commit::{Commit, Durability};
use crate::db::range::{Bounds, Range};
use crate::db::tree::Tree;
use crate::db::{InUse, Inner};
use crate::error::{Error, Result};
use crate::read;
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_engine::Access;
use terrace_engine::Error as EngineError;
use terrace_engine::Lock;
use terrace_engine::Seek;
use terrace_engine::Table;
use terrace_engine::Txn as EngineTxn;

/// Keys that a range delete marks at a time.
const DELETED_TOGETHER: usize = 256;

/// What a transaction sees of others.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// let txn = db.begin_with(terrace::Isolation::Snapshot);
/// let before = txn.get(&tree, "key")?;
/// tree.put("key", "value")?; // another one
/// assert_eq!(txn.get(&tree, "key")?, before);
/// // What it writes rests on what it has read: the key was changed since.
/// assert_eq!(txn.put(&tree, "key", "mine").unwrap_err().kind(), terrace::ErrorKind::Conflict);
/// # drop((tree, txn));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Isolation {
    /// Reads see the state when the first of them was made, and its own changes. A write of a key that another transaction has changed since
    /// is a conflict, so no update is lost. Two transactions that each read what the other writes may both commit.
    #[default]
    Snapshot,
    /// Reads lock what they return and the gaps between, and see what is newest: the outcome is that of some order one after the other.
    Serializable,
}

/// A place in a transaction to go back to: see [`Txn::savepoint`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// let mut txn = db.begin();
/// txn.put(&tree, "kept", "x")?;
/// let savepoint: terrace::Savepoint = txn.savepoint();
/// txn.put(&tree, "undone", "x")?;
/// txn.rollback_to(&savepoint)?;
/// txn.commit()?;
/// assert!(tree.get("kept")?.is_some() && tree.get("undone")?.is_none());
/// # drop(tree);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Savepoint(terrace_engine::Savepoint);

/// A transaction: it changes several trees, all of it or nothing. Dropped without a commit it is rolled back.
///
/// It belongs to one thread at a time. A call that fails changes nothing. After a [`Conflict`](crate::ErrorKind::Conflict) other than a lock wait that timed out it
/// can only be rolled back; [`Db::transact`](crate::Db::transact) runs it again.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let (names, ages) = (db.tree("names")?, db.tree("ages")?);
/// let txn = db.begin();
/// txn.put(&names, "1", "Ada")?;
/// txn.put(&ages, "1", [36])?;
/// txn.commit()?;
/// # drop((names, ages));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Txn {
    txn: Arc<EngineTxn>,
    isolation: Isolation,
    /// It can only be rolled back.
    is_doomed: Cell<bool>,
    /// The same, as its ranges that lock have found; made with the first of them.
    doomed_by_range: OnceCell<Arc<AtomicBool>>,
    /// Trees that it has changed, which are not dropped meanwhile.
    changed: RefCell<SmallVec<[Arc<InUse>; 4]>>,
    db: Arc<Inner>,
}

/// False: the key is there.
pub(crate) fn insert(txn: &EngineTxn, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
    match txn.insert(table, key, value, &[]) {
        Ok(()) => Ok(true),
        Err(EngineError::Duplicate { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// False: the key was not there.
pub(crate) fn delete(txn: &EngineTxn, table: &Table, key: &[u8]) -> Result<bool> {
    match txn.delete(table, key, &[]) {
        Ok(()) => Ok(true),
        Err(EngineError::Absent(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Locks and marks the keys of a range, some at a time.
pub(crate) fn delete_range(txn: &Arc<EngineTxn>, table: &Arc<Table>, bounds: &Bounds) -> Result<u64> {
    let mut cursor = txn.cursor(table, 0, Lock::Exclusive, Access::Normal)?;
    let (key, seek) = bounds.start();
    let mut valid = cursor.seek(key, seek)?;
    let mut deleted = 0;
    let mut keys: Vec<Vec<u8>> = Vec::new();
    loop {
        keys.clear();
        while valid && keys.len() < DELETED_TOGETHER && !bounds.is_above(cursor.key()) {
            keys.push(cursor.key().to_vec());
            valid = cursor.next()?;
        }
        let Some(last) = keys.last().cloned() else { return Ok(deleted) };
        let mut together: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        deleted += txn.delete_rows(table, &mut together)?;
        // What was copied ahead is older than the change.
        valid = cursor.seek(&last, Seek::After)?;
    }
}

impl Txn {
    pub(crate) fn begin(db: Arc<Inner>, isolation: Isolation) -> Txn {
        let txn = match isolation {
            Isolation::Snapshot => db.begin(),
            Isolation::Serializable => db.engine().begin(terrace_engine::Isolation::Serializable),
        };
        txn.set_strict(isolation == Isolation::Snapshot);
        let changed = RefCell::default();
        Txn { txn, isolation, is_doomed: Cell::new(false), doomed_by_range: OnceCell::new(), changed, db }
    }

    fn read_lock(&self) -> Lock {
        match self.isolation {
            Isolation::Snapshot => Lock::None,
            Isolation::Serializable => Lock::Shared,
        }
    }

    /// Notes whether what came of a call ends the transaction.
    pub(crate) fn noted<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| self.is_doomed.set(self.is_doomed.get() || error.ends_transaction()))
    }

    fn is_doomed(&self) -> bool {
        self.is_doomed.get()
            || self.doomed_by_range.get().is_some_and(|doomed| doomed.load(Ordering::Relaxed))
    }

    /// Does something with a tree that it may change or lock.
    fn with<T>(&self, tree: &Tree, work: impl FnOnce(&Arc<Table>) -> Result<T>) -> Result<T> {
        let in_use = tree.of(&self.db)?;
        if self.is_doomed() {
            return Err(Error::conflict("the transaction has met a conflict: roll it back"));
        }
        let mut changed = self.changed.borrow_mut();
        if !changed.iter().any(|known| Arc::ptr_eq(known, in_use)) {
            changed.push(in_use.clone());
        }
        drop(changed);
        self.noted(work(&in_use.table))
    }

    /// A number by which [`Wait::Row`](crate::Wait::Row) names the transaction.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// assert_ne!(db.begin().id(), db.begin().id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(&self) -> u64 {
        self.txn.session()
    }

    /// The value of a key, if it has one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "key", "mine")?;
    /// assert_eq!(txn.get(&tree, "key")?.as_deref(), Some(&b"mine"[..]));
    /// # drop((tree, txn));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let in_use = tree.of(&self.db)?;
        self.noted(read::get(&self.txn, &in_use.table, key.as_ref(), self.read_lock()))
    }

    /// The newest committed value of a key, locked until the transaction ends: no other transaction changes it, or inserts it if it is absent. A
    /// conflict, under [`Isolation::Snapshot`], if it was changed since the first read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// let count = txn.get_for_update(&tree, "hits")?.map_or(0, |value| value[0]);
    /// txn.put(&tree, "hits", [count + 1])?;
    /// txn.commit()?;
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_for_update(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.with(tree, |table| read::get(&self.txn, table, key.as_ref(), Lock::Exclusive))
    }

    /// The values of several keys, in their order. What is not in memory is fetched side by side.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "b", "2")?;
    /// assert_eq!(txn.multi_get(&tree, &["a", "b"])?, [None, Some(b"2".to_vec())]);
    /// # drop((tree, txn));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn multi_get(&self, tree: &Tree, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>> {
        let in_use = tree.of(&self.db)?;
        self.noted(read::multi_get(&self.txn, &in_use.table, keys, self.read_lock()))
    }

    /// Sets a key, whether it is there or not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "key", "value")?;
    /// txn.commit()?;
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(&self, tree: &Tree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.with(tree, |table| {
            self.txn.put(table, key.as_ref(), value.as_ref())?;
            Ok(())
        })
    }

    /// Sets a key that is not there. False: it is, and stays as it is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// assert!(txn.insert(&tree, "key", "one")?);
    /// assert!(!txn.insert(&tree, "key", "two")?);
    /// # drop((tree, txn));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(&self, tree: &Tree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.with(tree, |table| insert(&self.txn, table, key.as_ref(), value.as_ref()))
    }

    /// Deletes a key. False: it was not there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// assert!(!txn.delete(&tree, "key")?);
    /// # drop((tree, txn));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<bool> {
        self.with(tree, |table| delete(&self.txn, table, key.as_ref()))
    }

    /// Deletes all keys in a range. Returns how many. No other transaction inserts a key in the range until this one ends.
    ///
    /// If it fails in the middle, what it has deleted stays so in the transaction, which can be rolled back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "a", "1")?;
    /// txn.put(&tree, "b", "2")?;
    /// assert_eq!(txn.delete_range(&tree, "a"..="b")?, 2);
    /// # drop((tree, txn));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&self, tree: &Tree, range: impl RangeBounds<K>) -> Result<u64> {
        let bounds = Bounds::of(&range);
        self.with(tree, |table| {
            let before = self.txn.savepoint();
            delete_range(&self.txn, table, &bounds).inspect_err(|_| {
                // A rollback that fails keeps the transaction from being committed.
                let _ = self.txn.rollback_to(before);
            })
        })
    }

    /// The pairs whose keys lie in a range, in order; from the back with `rev`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "b", "2")?;
    /// assert_eq!(txn.range(&tree, "a".."c")?.count(), 1);
    /// # drop((tree, txn));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, tree: &Tree, range: impl RangeBounds<K>) -> Result<Range<'_>> {
        self.pairs(tree, Bounds::of(&range))
    }

    /// The pairs whose keys start with a prefix, in order; from the back with `rev`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "user/1", "Ada")?;
    /// assert_eq!(txn.prefix(&tree, "user/")?.count(), 1);
    /// # drop((tree, txn));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix(&self, tree: &Tree, prefix: impl AsRef<[u8]>) -> Result<Range<'_>> {
        self.pairs(tree, Bounds::of_prefix(prefix.as_ref()))
    }

    /// As `range`, without a lifetime: for [`crate::bindings`].
    pub(crate) fn range_unscoped<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        range: impl RangeBounds<K>,
    ) -> Result<Range<'static>> {
        self.pairs(tree, Bounds::of(&range))
    }

    /// As `prefix`, without a lifetime.
    pub(crate) fn prefix_unscoped(&self, tree: &Tree, prefix: &[u8]) -> Result<Range<'static>> {
        self.pairs(tree, Bounds::of_prefix(prefix))
    }

    /// The caller sees to it that the range is not used after the transaction has ended.
    fn pairs<'t>(&self, tree: &Tree, bounds: Bounds) -> Result<Range<'t>> {
        let range = Range::new(&self.db, self.txn.clone(), tree.of(&self.db)?, bounds, self.read_lock())?;
        Ok(match self.isolation {
            Isolation::Snapshot => range,
            Isolation::Serializable => range.dooms(self.doomed_by_range.get_or_init(Arc::default).clone()),
        })
    }

    /// A place to go back to.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut txn = db.begin();
    /// let savepoint = txn.savepoint();
    /// txn.rollback_to(&savepoint)?;
    /// # drop(txn);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.txn.savepoint())
    }

    /// Undoes what was changed since the savepoint, which stays. Locks stay, too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let mut txn = db.begin();
    /// let savepoint = txn.savepoint();
    /// txn.put(&tree, "key", "value")?;
    /// txn.rollback_to(&savepoint)?;
    /// assert!(txn.get(&tree, "key")?.is_none());
    /// # drop((tree, txn));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        Ok(self.txn.rollback_to(savepoint.0)?)
    }

    /// Commits, durably.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "key", "value")?;
    /// txn.commit()?;
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit(self) -> Result<()> {
        self.commit_with(Durability::Wait)
    }

    /// Commits, as durably as is asked.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "key", "value")?;
    /// txn.commit_with(terrace::Durability::Written)?;
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        self.submit()?.until(durability)
    }

    /// Commits and returns when others see it: see [`Commit`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "key", "value")?;
    /// txn.submit()?.then(|durable| assert!(durable.is_ok()));
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit(self) -> Result<Commit> {
        if self.is_doomed() {
            return Err(Error::conflict("the transaction has met a conflict: roll it back"));
        }
        Ok(Commit { ticket: self.txn.commit()?, _db: self.db.clone() })
    }

    /// Rolls back. To drop the transaction does the same.
    ///
    /// # Errors
    /// What is needed to undo a change may be unreachable: then it is undone in the background, and its keys stay locked until that is done.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "key", "value")?;
    /// txn.rollback()?;
    /// assert!(tree.get("key")?.is_none());
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rollback(self) -> Result<()> {
        Ok(self.txn.rollback()?)
    }
}
