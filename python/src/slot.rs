//! Handles: what closes with their database, and what a forked process leaves alone.
//!
//! A slot's content is used under its read lock, by threads without the GIL. Closing a database takes its content, then that of each of its handles, which
//! waits for calls that are running. A handle that is made meanwhile is registered under the read lock of the handle that it was made from, so the closing
//! thread finds it when it looks again.
//!
//! A forked process has neither the threads of its parent's databases nor a say over the locks that they hold: its calls fail before they take any
//! lock, and it drops no content.

use crate::errors::{invalid, raised};
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// The error of a handle that is closed only with its database.
pub(crate) const CLOSED: &str = "the database is closed";

/// How often this process, or one that it was forked from, was a forked child.
static FORKS: AtomicU32 = AtomicU32::new(0);

#[pyfunction]
pub(crate) fn _forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

pub(crate) struct Slot<T> {
    /// The text of the error if there is no content.
    gone: &'static str,
    made_after: u32,
    content: RwLock<Option<T>>,
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if self.is_of_parent() {
            std::mem::forget(self.content.get_mut().take());
        }
    }
}

impl<T> Slot<T> {
    pub fn new(content: T, gone: &'static str) -> Slot<T> {
        Slot { gone, made_after: forks(), content: RwLock::new(Some(content)) }
    }

    /// Whether a process made it that this one was forked from.
    pub fn is_of_parent(&self) -> bool {
        self.made_after != forks()
    }

    fn check(&self) -> PyResult<()> {
        match self.is_of_parent() {
            true => Err(invalid(
                "the database was opened before this process was forked: open databases in the child, or start it with spawn",
            )),
            false => Ok(()),
        }
    }

    /// Does something with the content, without the GIL.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&T) -> terrace::Result<R> + Send,
    ) -> PyResult<R>
    where
        T: Send + Sync,
    {
        self.check()?;
        let done = py.detach(|| self.used(work));
        done.ok_or_else(|| invalid(self.gone))?.map_err(raised)
    }

    /// As `with`. Nothing is done if the content is gone.
    pub fn with_if_there(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&T) -> terrace::Result<()> + Send,
    ) -> PyResult<()>
    where
        T: Send + Sync,
    {
        self.check()?;
        py.detach(|| self.used(work)).unwrap_or(Ok(())).map_err(raised)
    }

    /// Does something with the content. The calling thread is without the GIL.
    pub fn used<R>(&self, work: impl FnOnce(&T) -> R) -> Option<R> {
        self.content.read().as_ref().map(work)
    }

    /// Takes the content out, without the GIL. None: it was taken.
    pub fn take(&self, py: Python<'_>) -> PyResult<Option<T>>
    where
        T: Send + Sync,
    {
        self.check()?;
        Ok(py.detach(|| self.content.write().take()))
    }
}

trait Empties: Send + Sync {
    fn empty(&self);
}

impl<T: Send + Sync> Empties for Slot<T> {
    fn empty(&self) {
        let content = self.content.write().take();
        drop(content);
    }
}

/// The handles of a database.
#[derive(Default)]
pub(crate) struct Handles {
    all: Mutex<(Vec<Weak<dyn Empties>>, usize)>,
}

impl Handles {
    /// A handle with this content. To be called while the content that it was made from is in use.
    pub fn keep<T: Send + Sync + 'static>(&self, content: T, gone: &'static str) -> Arc<Slot<T>> {
        let slot = Arc::new(Slot::new(content, gone));
        let mut all = self.all.lock();
        // Handles that are gone are removed when the list has doubled.
        if all.0.len() >= all.1 {
            all.0.retain(|one| one.strong_count() > 0);
            all.1 = (2 * all.0.len()).max(64);
        }
        let weak: Weak<Slot<T>> = Arc::downgrade(&slot);
        all.0.push(weak);
        slot
    }

    /// Empties all handles, and those that are made from them meanwhile. Waits for calls that are running.
    pub fn empty(&self) {
        loop {
            let all = std::mem::take(&mut self.all.lock().0);
            if all.is_empty() {
                return;
            }
            all.iter().filter_map(Weak::upgrade).for_each(|one| one.empty());
        }
    }
}
