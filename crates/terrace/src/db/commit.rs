//! When a commit is durable.

use crate::background::callback;
use crate::db::Inner;
use crate::error::{Error, Result};
use std::sync::Arc;
use terrace_engine::Ticket;

/// What a commit waits for before it returns. It is visible to others in any case.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// let txn = db.begin();
/// txn.put(&tree, "key", "value")?;
/// txn.commit_with(terrace::Durability::None)?;
/// # drop(tree);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Durability {
    /// Until it survives a loss of power, and all commits before it. Commits that wait at the same time share one sync. One that changed
    /// nothing waits for nothing: [`Db::sync`](crate::Db::sync) waits for what it has read.
    #[default]
    Wait,
    /// Until it survives the end of the process. It survives a loss of power about a second later.
    Written,
    /// For nothing. It survives a loss of power about a second later, and is never there in part or without what was committed before it.
    None,
}

/// A transaction that is committed and may not be durable yet. To drop it is [`Durability::None`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
/// let tree = db.tree("t")?;
/// let txn = db.begin();
/// txn.put(&tree, "key", "value")?;
/// let commit = txn.submit()?;
/// assert_eq!(tree.get("key")?.as_deref(), Some(&b"value"[..])); // others see it
/// commit.wait()?;
/// # drop(tree);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a commit that nobody waits for is durable about a second later"]
pub struct Commit {
    pub(crate) ticket: Ticket,
    /// The instance stays open until the commit is waited for.
    pub(crate) _db: Arc<Inner>,
}

impl Commit {
    pub(crate) fn until(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Wait => self.ticket.wait()?,
            Durability::Written => self.ticket.wait_written()?,
            Durability::None => self.ticket.throttle(),
        }
        Ok(())
    }

    /// Returns when the commit survives a loss of power.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// db.submit(&batch)?.wait()?;
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(self) -> Result<()> {
        self.until(Durability::Wait)
    }

    /// Returns when the commit is as durable as asked for: [`Durability::Written`] waits for a write to the log and no sync, [`Durability::None`]
    /// waits for nothing but the pace that a nearly full volume sets.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// db.submit(&batch)?.wait_for(terrace::Durability::Written)?;
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for(self, durability: Durability) -> Result<()> {
        self.until(durability)
    }

    /// Returns at once; `done` is called once, when the commit is durable or that has failed: at once, or by the thread that writes the
    /// log. So it must neither wait nor panic. Of two commits the one that came later is not called back first, unless it changed nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Db::open_with(terrace::Config::new(dir.path()).log(4 << 20).memory(8 << 20))?;
    /// let mut batch = terrace::Batch::new();
    /// batch.put(&db.tree("t")?, "key", "value");
    /// let (told, heard) = std::sync::mpsc::channel();
    /// db.submit(&batch)?.then(move |durable| told.send(durable).unwrap());
    /// heard.recv()??;
    /// # drop(batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn then(self, done: impl FnOnce(Result<()>) + Send + 'static) {
        let done = move |durable: terrace_engine::Result<()>| {
            callback(move || done(durable.map_err(Error::from)));
        };
        self.ticket.then(done);
    }
}
