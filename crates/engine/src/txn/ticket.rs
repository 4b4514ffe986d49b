//! When a commit is durable.

use crate::core::Core;
use crate::error::{Error, Result};
use std::sync::Arc;
use terrace_tier::page::Glsn;
use terrace_tier::redo::LogError;

/// A commit's promise: [`Ticket::wait`] returns when it is durable, [`Ticket::wait_written`] when a killed process keeps it, [`Ticket::then`] calls back.
pub struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) end: Glsn,
    /// What the transaction owes for slots, in nanoseconds.
    pub(super) owed: u64,
}

impl Ticket {
    /// Whether there is nothing to wait for: the transaction changed nothing.
    pub fn is_nothing(&self) -> bool {
        self.end == 0
    }

    pub fn wait(&self) -> Result<()> {
        if self.end > 0 && !crate::planted::TICKET_NOT_WAITED.on() {
            self.core.streams.pages().redo().make_durable(self.end)?;
        }
        self.keep_pace();
        Ok(())
    }

    /// As `wait`, but until the operating system has it: the commit survives the end of the process, and the loss of power about a
    /// second later.
    pub fn wait_written(&self) -> Result<()> {
        if self.end > 0 {
            self.core.streams.pages().redo().make_written(self.end)?;
        }
        self.keep_pace();
        Ok(())
    }

    /// Waits as one has to who changed rows while the object buffer was nearly full, and has not waited yet: less than 20 ms. `wait` does so, too.
    pub fn keep_pace(&self) {
        self.core.pay_late(self.owed);
    }

    /// Returns without waiting; `done` is called once when the commit is durable, or when that fails: at once, or by the
    /// thread that writes the log, which waits for nothing else. So it must not wait. If the engine is dropped and was
    /// not shut down it may never be called.
    pub fn then(&self, done: impl FnOnce(Result<()>) + Send + 'static) {
        let promise = move |durable: std::result::Result<(), LogError>| done(durable.map_err(Error::from));
        self.core.storage.log.when_durable(self.end, Box::new(promise));
    }
}
