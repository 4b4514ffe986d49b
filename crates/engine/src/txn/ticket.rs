//! When a commit is durable, and visible.
//!
//! With durable reads (`ids::unseen`) a commit is visible when it is durable; if the transaction has changed nothing, its ticket waits for the
//! commits that it has seen under locks.

use crate::error::{Error, Result};
use crate::txn::shared::Core;
use std::sync::Arc;
use terrace_log::LogError;
use terrace_tier::page::Glsn;

/// A commit's promise: [`Ticket::wait`] returns when it is durable, [`Ticket::wait_written`] when a killed process keeps it, [`Ticket::then`] calls back.
pub struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) end: Glsn,
    /// Its commit sequence number, or the newest that it has seen under locks.
    pub(super) number: u64,
    /// What the transaction owes for slots, in nanoseconds.
    pub(super) owed: u64,
}

impl Ticket {
    /// Whether there is nothing to wait for: the transaction changed nothing, and has seen nothing that is not durable.
    pub fn is_nothing(&self) -> bool {
        self.end == 0 && self.core.ids.is_seen(self.number)
    }

    /// Waits until others see the commit, as with durable reads they do not at once. `wait` and `wait_written` do so, too.
    pub fn wait_seen(&self) -> Result<()> {
        if !self.core.ids.is_seen(self.number) {
            self.core.ids.see(self.number)?;
            self.core.wake_purge_of_first(self.number);
        }
        Ok(())
    }

    pub fn wait(&self) -> Result<()> {
        if self.end > 0 && !crate::planted::TICKET_NOT_WAITED.on() {
            self.core.streams.pages().redo().make_durable(self.end)?;
            self.wait_seen()?;
        } else if self.end == 0 {
            self.wait_seen()?;
        }
        self.throttle();
        Ok(())
    }

    /// As `wait`, but until the operating system has it: the commit survives the end of the process, and the loss of power about a
    /// second later.
    pub fn wait_written(&self) -> Result<()> {
        if self.end > 0 {
            self.core.streams.pages().redo().make_written(self.end)?;
        }
        self.wait_seen()?;
        self.throttle();
        Ok(())
    }

    /// Waits as a writer has to that changed rows while the object buffer was nearly full, and has not waited yet: less than 20 ms. `wait` does so, too.
    pub fn throttle(&self) {
        self.core.pay_late(self.owed);
    }

    /// Returns without waiting; `done` is called once when the commit is durable, or when that fails: at once, or by the
    /// thread that writes the log, which waits for nothing else. So it must not wait. If the engine is dropped and was
    /// not shut down it may never be called.
    pub fn then(&self, done: impl FnOnce(Result<()>) + Send + 'static) {
        let promise = move |durable: std::result::Result<(), LogError>| done(durable.map_err(Error::from));
        let end = self.core.ids.seen_at(self.number).map_or(self.end, |seen_at| seen_at.max(self.end));
        self.core.storage.log.when_durable(end, Box::new(promise));
    }
}
