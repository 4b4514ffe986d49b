//! Pages that purge can't read.
//!
//! If a page is damaged or lost, a delete mark or a large value stays where it is: its tree has to be rebuilt in any case, and nothing
//! behind it, in any table, waits for that. Every reader sees such a mark as what it is.
//!
//! A page that may be there when it is asked for again (the store or the volume does not answer), or one of undo, is waited for. After some
//! tries writers are not slowed for a purge that gets nowhere: that would go on for as long, and bring purge nothing.

use crate::error::{Error, Result};
use crate::txn::shared::Core;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::lock::{Mutex, Mutexes};

/// Tries in a row from which on it is trouble.
const TRIES: u64 = 3;

const NAME: &str = "purge_trouble";

#[derive(Default)]
pub struct Trouble {
    /// Why it gets nowhere, if so.
    stuck: Mutex<Option<Error>, { Mutexes::History as u8 }>,
    /// Why what was passed by last was.
    passed: Mutex<Option<String>, { Mutexes::History as u8 }>,
    /// Marks and values that were.
    pub count: AtomicU64,
}

impl Trouble {
    /// `times` steps in a row have failed, the last one with this error.
    pub(super) fn failed(&self, times: u64, error: &Error) {
        if times >= TRIES {
            *self.stuck.lock() = Some(error.clone());
        }
    }

    pub(super) fn over(&self) {
        *self.stuck.lock() = None;
    }

    pub fn is_stuck(&self) -> bool {
        self.stuck.lock().is_some()
    }

    pub fn troubles(&self) -> Vec<crate::storage::trouble::Trouble> {
        use crate::storage::trouble::{REBUILD, Trouble};
        let stuck = self.stuck.lock().clone();
        let stuck =
            stuck.and_then(|error| Trouble::of_work(NAME, &error, format!("purge gets nowhere: {error}")));
        let (count, passed) = (self.count.load(Ordering::Relaxed), self.passed.lock().clone());
        let left = passed.map(|last| {
            let what = "delete marks and large values that can't be read";
            Trouble::act(NAME, format!("purge has left {count} {what}, the last: {last}; {REBUILD}"))
        });
        stuck.into_iter().chain(left).collect()
    }

    /// Purge continues without this many if what it met is lost for good.
    pub(super) fn pass_by<E: Into<Error>>(&self, core: &Core, error: E, count: usize) -> Result<()> {
        let error = error.into();
        let is_lost = match &error {
            Error::Corrupt(_) => true,
            // Of another's store that says nothing.
            Error::Missing(_) => core.storage.cold.iter().all(|cold| cold.fence.check().is_ok()),
            _ => false,
        };
        if !is_lost || crate::planted::LOST_PAGE_WAITED_FOR.on() {
            return Err(error);
        }
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        *self.passed.lock() = Some(error.to_string());
        Ok(())
    }
}
