//! Calls for event loops: they answer at once, or say what they would wait for.
//!
//! A read that misses goes on in the background ([`crate::background`]) and calls back with its result. A write is made in a transaction that
//! refuses waits: where the engine is about to wait, for a page, a row, room or a slower purge, the call fails instead, the transaction
//! is rolled back, and the caller is told what it was. It may then hand the batch to the background ([`Db::write_soon`]).
//!
//! What these calls still do on the caller's thread: latch pages (no thread waits or does I/O while it holds a latch); undo what a refused write had changed,
//! which reads a page that has left memory meanwhile; and, once in many thousand transactions, write the superblock.

use crate::background::CallReason;
use crate::db::batch::Batch;
use crate::db::commit::Commit;
use crate::db::{Db, InUse, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::read;
use std::sync::Arc;
use terrace_engine::Lock;
use terrace_engine::Txn;
use terrace_io::observe;

/// What [`Tree::try_get`](crate::Tree::try_get) can say at once.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// tree.put("key", "value")?;
/// let answer = tree.try_get("key", |_| {})?;
/// assert!(matches!(answer, terrace::TryGet::Hit(_) | terrace::TryGet::Pending));
/// # drop(tree);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TryGet {
    /// The value, which was in memory.
    Hit(Vec<u8>),
    /// There is no such key.
    Absent,
    /// It takes I/O, which has begun: the callback is called with the result.
    Pending,
    /// It takes I/O, and too many calls are under way: nothing has begun, and the callback is gone.
    Busy,
}

/// What a write that must not wait would have waited for.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// let other = db.begin();
/// other.put(&tree, "key", "mine")?;
/// let mut batch = terrace::Batch::new();
/// batch.put(&tree, "key", "value");
/// match db.try_write(&batch)? {
///     terrace::TryWrite::WouldWait(terrace::Wait::Row { holder }) => assert_eq!(holder, other.id()),
///     _ => unreachable!("another transaction has changed the key"),
/// }
/// # drop((tree, batch, other));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Wait {
    /// A key that another transaction has locked or changed.
    Row {
        /// That transaction's [`Txn::id`](crate::Txn::id); 0 if it is a write of one call, or has just ended.
        holder: u64,
    },
    /// A page that is not in memory.
    Page,
    /// Free memory for pages: changed ones are to be written first.
    Frames,
    /// Room in the log.
    Log,
    /// Room on the volume: cold pages are to go to the object store first.
    Slots,
    /// The volume: a value so large passes by the log and is written before its commit.
    Volume,
    /// Old versions are cleaned up more slowly than they come.
    Purge,
    /// Too many transactions write at the same time.
    Writers,
}

impl From<(observe::Wait, u64)> for Wait {
    fn from((wait, holder): (observe::Wait, u64)) -> Wait {
        match wait {
            observe::Wait::RowLock => Wait::Row { holder },
            observe::Wait::Page => Wait::Page,
            observe::Wait::Frame | observe::Wait::Flush => Wait::Frames,
            observe::Wait::LogSync | observe::Wait::LogRoom => Wait::Log,
            observe::Wait::Slots => Wait::Slots,
            observe::Wait::Purge => Wait::Purge,
            observe::Wait::UndoStream => Wait::Writers,
        }
    }
}

/// What came of [`Db::try_write`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let mut batch = terrace::Batch::new();
/// batch.put(&db.tree("t")?, "key", "value");
/// let (told, heard) = std::sync::mpsc::channel();
/// match db.try_write(&batch)? {
///     terrace::TryWrite::Done(commit) => commit.then(move |durable| told.send(durable).unwrap()),
///     terrace::TryWrite::WouldWait(_) => {
///         let done = move |durable| told.send(durable).unwrap();
///         assert!(db.write_soon(batch, done).is_ok());
///     }
/// }
/// heard.recv()??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum TryWrite {
    /// It is made, and others see it.
    Done(Commit),
    /// It would have waited. Nothing is changed.
    WouldWait(Wait),
}

pub(crate) fn try_get(
    db: &Inner,
    txn: &Arc<Txn>,
    tree: &Arc<InUse>,
    key: &[u8],
    done: impl FnOnce(Result<Option<Vec<u8>>>) + Send + 'static,
) -> Result<TryGet> {
    let mut value = Vec::new();
    match txn.try_get(&tree.table, key, &mut value)? {
        terrace_engine::TryGet::Hit => return Ok(TryGet::Hit(value)),
        terrace_engine::TryGet::Absent => return Ok(TryGet::Absent),
        terrace_engine::TryGet::WouldBlock => {}
    }
    let (txn, tree, key) = (txn.clone(), tree.clone(), key.to_vec());
    let bytes = key.len();
    let call = move |turn| {
        let read = match turn {
            CallReason::Run => read::get(&txn, &tree.table, &key, Lock::None),
            CallReason::Closing => Err(Error::new(ErrorKind::Unavailable, "the instance was closed")),
        };
        // What it held is free when the caller hears of it.
        drop((txn, tree));
        done(read);
    };
    Ok(if db.background.submit(bytes, call) { TryGet::Pending } else { TryGet::Busy })
}

impl Db {
    /// Carries out a batch without waiting, for event loops: if it would wait, it changes nothing and says for what.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// if let terrace::TryWrite::Done(commit) = db.try_write(&batch)? {
    ///     commit.wait()?;
    /// }
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_write(&self, batch: &Batch) -> Result<TryWrite> {
        self.own(batch)?;
        let txn = self.inner().begin();
        if batch.changes().any(|change| txn.waits_for_volume(change.value_len())) {
            return Ok(TryWrite::WouldWait(Wait::Volume));
        }
        txn.refuse_waits(true);
        if let Some(refused) = txn.refused() {
            return Ok(TryWrite::WouldWait(refused.into()));
        }
        let made = batch.changes().try_for_each(|change| change.make(&txn));
        if let Some(refused) = txn.refused() {
            if terrace_engine::planted::REFUSED_COMMITTED.on() {
                let _ = txn.commit();
            }
            // What of it can't be undone at once is undone in the background.
            let _ = txn.rollback();
            return Ok(TryWrite::WouldWait(refused.into()));
        }
        made?;
        Ok(TryWrite::Done(Commit { ticket: txn.commit()?, _db: self.inner().clone() }))
    }

    /// Carries out a batch in the background, for event loops; `done` is called once when it is durable or has failed, from another thread. It must
    /// neither wait nor panic. Two batches may be carried out in either order. If too many calls are under way, the batch is given back, and
    /// `done` is not called.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// let (told, heard) = std::sync::mpsc::channel();
    /// assert!(db.write_soon(batch, move |durable| told.send(durable).unwrap()).is_ok());
    /// heard.recv()??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_soon(
        &self,
        batch: Batch,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) -> std::result::Result<(), Batch> {
        let (db, bytes) = (self.clone(), batch.bytes());
        // The batch is the caller's again if no worker takes it.
        let place = Arc::new(parking_lot::Mutex::new(Some(batch)));
        let taken = place.clone();
        let call = move |turn| {
            let Some(batch) = taken.lock().take() else { return };
            let submitted = match turn {
                CallReason::Run => db.submit(&batch),
                CallReason::Closing => Err(Error::new(ErrorKind::Unavailable, "the instance was closed")),
            };
            drop((db, batch));
            match submitted {
                Ok(commit) => commit.then(done),
                Err(error) => done(Err(error)),
            }
        };
        if self.inner().background.submit(bytes, call) {
            return Ok(());
        }
        let batch = place.lock().take();
        batch.map_or(Ok(()), Err)
    }

    /// Runs `work` on one of the instance's background threads, for event loops that need more than one read: it may wait. It is given an error if the
    /// instance is closed before its turn. Returns false, and drops `work`, if too many calls are under way.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let (told, heard) = std::sync::mpsc::channel();
    /// let work = move |turn: terrace::Result<()>| told.send(turn.and_then(|()| Ok(tree.iter()?.count()))).unwrap();
    /// assert!(db.run_soon(work));
    /// assert_eq!(heard.recv()??, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_soon(&self, work: impl FnOnce(Result<()>) + Send + 'static) -> bool {
        self.inner().background.submit(0, move |turn| match turn {
            CallReason::Run => work(Ok(())),
            CallReason::Closing => {
                work(Err(Error::new(ErrorKind::Unavailable, "the instance was closed")));
            }
        })
    }
}
