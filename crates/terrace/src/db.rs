//! An open instance.
//!
//! Every handle (tree, transaction, snapshot, range, commit) keeps the instance open. It is closed by [`Db::close`], or when the last handle is
//! dropped; both make every commit durable. What crashes instead is recovered by the next [`Db::open`].
//!
//! A tree is a table of the engine's with one index, whose properties say [`MARK`]: tables of other fronts are not taken for trees.
//! Open trees are known by name as long as a handle or a transaction's change uses them, so that none of those is dropped.

pub(crate) mod batch;
pub(crate) mod commit;
pub(crate) mod event_loop;
pub(crate) mod range;
pub(crate) mod snapshot;
pub(crate) mod tree;
pub(crate) mod txn;
use crate::background::{Background, in_callback};
use crate::config::Config;
use crate::db::batch::{Batch, Change};
use crate::db::commit::{Commit, Durability};
use crate::db::snapshot::Snapshot;
use crate::db::tree::Tree;
use crate::db::txn::{Isolation, Txn};
use crate::error::{Error, ErrorKind, Result};
use crate::open;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use terrace_engine::Engine;
use terrace_engine::IndexDef;
use terrace_engine::Table;
use terrace_engine::TableDef;
use terrace_io::sched::{Event, Step, Worker};

/// Properties of a table that is a tree.
const MARK: &[u8] = b"terrace tree 1";
/// The longest name of a tree, in bytes.
const NAME_MAX: usize = 500;
/// How often [`Db::transact`] and [`Db::write`] run again after a conflict.
const TRIES_MAX: u32 = 1000;

/// A tree that is in use.
pub(crate) struct InUse {
    pub table: Arc<Table>,
}

pub(crate) struct Inner {
    engine: Arc<Engine>,
    pub background: Arc<Background>,
    trees: Mutex<HashMap<String, Weak<InUse>>>,
    metrics: Option<open::Listener>,
    is_closed: AtomicBool,
}

impl Inner {
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
    /// A transaction of one statement.
    pub fn begin(&self) -> Arc<terrace_engine::Txn> {
        self.engine.begin(terrace_engine::Isolation::RepeatableRead)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.metrics.take());
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let (engine, background) = (self.engine.clone(), self.background.clone());
        if !in_callback() {
            background.stop();
            // What is not written is recovered by the next open.
            let _ = engine.shutdown();
            return;
        }
        // A worker of the instance runs the callback that dropped the last handle: it cannot wait for its own end.
        let sched = engine.core().storage.world.sched.clone();
        let closer = Closer { engine: Some((engine, background)), wanted: Arc::default() };
        if let Ok(handle) = sched.try_spawn(Box::new(closer)) {
            std::mem::forget(handle);
        }
    }
}

/// Closes an instance on a thread of its own.
struct Closer {
    engine: Option<(Arc<Engine>, Arc<Background>)>,
    wanted: Arc<Event>,
}

impl Worker for Closer {
    fn name(&self) -> &'static str {
        "closer"
    }
    fn step(&mut self) -> Step {
        if let Some((engine, background)) = self.engine.take() {
            background.stop();
            let _ = engine.shutdown();
        }
        Step::Idle
    }
    fn wake_event(&self) -> Arc<Event> {
        self.wanted.clone()
    }
}

/// An open instance. Clones are handles of the same one, for any thread.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let db = terrace::Db::open(dir.path())?;
/// db.tree("greetings")?.put("en", "hello")?;
/// db.close()?;
/// let db = terrace::Db::open(dir.path())?;
/// assert_eq!(db.tree("greetings")?.get("en")?.as_deref(), Some(&b"hello"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("trees", &self.trees()).finish_non_exhaustive()
    }
}

impl Db {
    /// Opens the instance in a directory, with default settings. It is made if there is none, and recovered if it crashed.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let db = terrace::Db::open(dir.path())?;
    /// // One process at a time.
    /// assert_eq!(terrace::Db::open(dir.path()).err().unwrap().kind(), terrace::ErrorKind::Busy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Db::open_with(Config::new(path))
    }

    /// Opens an instance with settings of one's own.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20))?;
    /// let wrong = terrace::Config::new(dir.path()).set("memery", "1G").set("flash", "1G");
    /// let error = terrace::Db::open_with(wrong).err().unwrap();
    /// assert!(error.to_string().contains("memery") && error.to_string().contains("flash_path"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_with(config: Config) -> Result<Db> {
        let (settings, places, parts) = open::assemble_to_run(&config.text()?, "")?;
        let engine = open_engine(settings, parts)?;
        let metrics = match open::metrics_listen(&places) {
            None => None,
            Some(address) => {
                let seen = engine.clone();
                Some(open::Listener::start(address, move || {
                    terrace_engine::engine::inspect::metrics::running(&seen)
                })?)
            }
        };
        Ok(Db::of(engine, metrics))
    }

    /// Opens an instance on any devices, such as simulated ones.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn open_on(config: terrace_engine::Config, parts: terrace_engine::Parts) -> Result<Db> {
        Ok(Db::of(open_engine(config, parts)?, None))
    }

    /// Stops as a process does that is killed: nothing more is written. The next open recovers. Nothing else may use the instance.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn abandon(self) {
        self.inner.is_closed.store(true, Ordering::Relaxed);
    }

    fn of(engine: Arc<Engine>, metrics: Option<open::Listener>) -> Db {
        let background = Background::new(engine.core().storage.world.clone());
        let is_closed = AtomicBool::new(false);
        Db { inner: Arc::new(Inner { engine, background, trees: Mutex::default(), metrics, is_closed }) }
    }

    /// Closes the instance: every commit is durable, and the next open has nothing to recover.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if other handles exist: then the instance is closed when the last of them is dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// assert_eq!(db.clone().close().unwrap_err().kind(), terrace::ErrorKind::Busy);
    /// drop(tree);
    /// db.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(self) -> Result<()> {
        let Ok(inner) = Arc::try_unwrap(self.inner) else {
            return Err(Error::new(
                ErrorKind::Busy,
                "the instance has other handles: it closes with the last of them",
            ));
        };
        inner.is_closed.store(true, Ordering::Relaxed);
        inner.background.stop();
        inner.engine.shutdown()?;
        Ok(())
    }

    /// The tree of this name, which is made if there is none. Its making is durable when this returns, and belongs to no transaction.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let (one, same) = (db.tree("t")?, db.tree("t")?);
    /// one.put("key", "value")?;
    /// assert!(same.get("key")?.is_some());
    /// # drop((one, same));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tree(&self, name: &str) -> Result<Tree> {
        self.tree_or(name, |db| {
            let primary = IndexDef { name: "PRIMARY".into(), unique: true };
            let def = TableDef { indexes: vec![primary], properties: MARK.to_vec() };
            Ok(Some(db.engine.create_table(name, &def)?))
        })
        .and_then(|tree| tree.ok_or_else(|| absent(name)))
    }

    /// The tree of this name, if there is one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// assert!(db.find_tree("t")?.is_none());
    /// db.tree("t")?;
    /// assert!(db.find_tree("t")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find_tree(&self, name: &str) -> Result<Option<Tree>> {
        self.tree_or(name, |_| Ok(None))
    }

    fn tree_or(
        &self,
        name: &str,
        make: impl FnOnce(&Inner) -> Result<Option<Arc<Table>>>,
    ) -> Result<Option<Tree>> {
        if name.is_empty() || name.len() > NAME_MAX {
            let what = format!("a tree's name has 1 to {NAME_MAX} bytes, this one {}", name.len());
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let mut trees = self.inner.trees.lock();
        if let Some(in_use) = trees.get(name).and_then(Weak::upgrade) {
            return Ok(Some(Tree::new(self.inner.clone(), in_use)));
        }
        let table = match self.inner.engine.table_properties(name) {
            Ok(properties) if properties == MARK => Some(self.inner.engine.open_table(name)?),
            Ok(_) => {
                return Err(Error::new(ErrorKind::Invalid, format!("{name} is a table of another front")));
            }
            Err(terrace_engine::Error::Absent(_)) => make(&self.inner)?,
            Err(error) => return Err(error.into()),
        };
        let Some(table) = table else { return Ok(None) };
        let in_use = Arc::new(InUse { table });
        trees.retain(|_, tree| tree.strong_count() > 0);
        trees.insert(name.to_string(), Arc::downgrade(&in_use));
        Ok(Some(Tree::new(self.inner.clone(), in_use)))
    }

    /// Drops a tree with all that is in it. Durable when it returns; its room comes back in the background.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a handle of the tree, or a transaction that has changed it, exists.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// assert_eq!(db.drop_tree("t").unwrap_err().kind(), terrace::ErrorKind::Busy);
    /// drop(tree);
    /// db.drop_tree("t")?;
    /// assert!(db.trees().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        let mut trees = self.inner.trees.lock();
        if trees.get(name).is_some_and(|tree| tree.strong_count() > 0) {
            return Err(Error::new(ErrorKind::Busy, format!("tree {name} is in use")));
        }
        match self.inner.engine.table_properties(name) {
            Ok(properties) if properties == MARK => {}
            Ok(_) => {
                return Err(Error::new(ErrorKind::Invalid, format!("{name} is a table of another front")));
            }
            Err(_) => return Err(absent(name)),
        }
        trees.remove(name);
        Ok(self.inner.engine.drop_table(name)?)
    }

    /// The names of all trees, in order.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// db.tree("b")?;
    /// db.tree("a")?;
    /// assert_eq!(db.trees(), ["a", "b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trees(&self) -> Vec<String> {
        let engine = &self.inner.engine;
        let is_tree =
            |name: &String| engine.table_properties(name).is_ok_and(|properties| properties == MARK);
        engine.list_tables().into_iter().filter(is_tree).collect()
    }

    /// Begins a transaction with snapshot isolation ([`Isolation::Snapshot`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin();
    /// txn.put(&tree, "key", "value")?;
    /// assert!(tree.get("key")?.is_none()); // no other transaction sees it
    /// txn.commit()?;
    /// assert!(tree.get("key")?.is_some());
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(&self) -> Txn {
        self.begin_with(Isolation::default())
    }

    /// Begins a transaction.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let txn = db.begin_with(terrace::Isolation::Serializable);
    /// assert!(txn.get(&tree, "key")?.is_none()); // and no other transaction puts it before this one ends
    /// txn.put(&tree, "key", "value")?;
    /// txn.commit()?;
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin_with(&self, isolation: Isolation) -> Txn {
        Txn::begin(self.inner.clone(), isolation)
    }

    /// Runs a transaction and commits it, durably. After a conflict it is rolled back and run again, but not
    /// after a lock wait that timed out. Whatever else `work` returns as an error
    /// rolls it back and is returned.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let count = db.transact(|txn| {
    ///     let count = txn.get(&tree, "hits")?.map_or(0, |bytes| bytes[0]) + 1;
    ///     txn.put(&tree, "hits", [count])?;
    ///     Ok(count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # drop(tree);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transact<T>(&self, mut work: impl FnMut(&mut Txn) -> Result<T>) -> Result<T> {
        self.again_after_conflicts(|| {
            let mut txn = self.begin();
            let done = work(&mut txn)?;
            txn.commit()?;
            Ok(done)
        })
    }

    fn again_after_conflicts<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let world = &self.inner.engine.core().storage.world;
        for tries in 1.. {
            match work() {
                Err(error) if error.ends_transaction() && tries < TRIES_MAX => {
                    // Others have just won: they are to get on. Microseconds at first, some milliseconds when it goes on.
                    let most = 10_000u64 << tries.min(9);
                    let moment = Event::new();
                    world.sched.wait(&moment, moment.ticket(), Some(1 + world.random.next_u64() % most));
                }
                done => return done,
            }
        }
        Err(Error::conflict("too many conflicts"))
    }

    /// A consistent state of all trees as of now, to read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let tree = db.tree("t")?;
    /// let before = db.snapshot();
    /// tree.put("key", "value")?;
    /// assert!(before.get(&tree, "key")?.is_none());
    /// # drop((tree, before));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.inner.clone())
    }

    /// Carries out a batch, all of it or nothing. Durable when it returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let (names, ages) = (db.tree("names")?, db.tree("ages")?);
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&names, "1", "Ada");
    /// batch.put(&ages, "1", [36]);
    /// db.write(&batch)?;
    /// # drop((names, ages, batch));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.write_with(batch, Durability::Wait)
    }

    /// As [`Db::write`], with a durability of its own.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// db.write_with(&batch, terrace::Durability::None)?;
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_with(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.submit(batch)?.until(durability)
    }

    /// As [`Db::write`], and returns when others see it: see [`Commit`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// let commit = db.submit(&batch)?;
    /// // … other work …
    /// commit.wait()?;
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit(&self, batch: &Batch) -> Result<Commit> {
        self.own(batch)?;
        self.again_after_conflicts(|| {
            let txn = self.inner.begin();
            batch.changes().try_for_each(|change| change.make(&txn))?;
            Ok(Commit { ticket: txn.commit()?, _db: self.inner.clone() })
        })
    }

    /// An error if the batch has trees of another instance.
    pub(crate) fn own(&self, batch: &Batch) -> Result<()> {
        batch.changes().try_for_each(|change: Change<'_>| change.tree.of(&self.inner).map(|_| ()))
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Makes every commit so far durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// db.write_with(&batch, terrace::Durability::None)?;
    /// db.sync()?;
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        Ok(self.inner.engine.make_durable()?)
    }

    /// Counters and gauges by name, as docs/observability.md lists them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let misses = db.status().into_iter().find(|(name, _)| name == "pool_misses");
    /// assert!(misses.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn status(&self) -> Vec<(String, u64)> {
        let mut status = self.inner.engine.status();
        status.push(("background_calls".into(), self.inner.background.under_way() as u64));
        status
    }

    /// The engine, for the fronts of this workspace.
    #[doc(hidden)]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }
}

fn open_engine(config: terrace_engine::Config, parts: terrace_engine::Parts) -> Result<Arc<Engine>> {
    // Nothing ran that could have stopped: what failed is told by itself.
    let opened = Engine::open(config, parts).map_err(|error| match error {
        terrace_engine::Error::Poisoned(what) => terrace_engine::Error::Invalid(what),
        other => other,
    });
    Ok(opened?)
}

fn absent(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no tree {name}"))
}
