//! A table's counter for one transaction alone, as long as a statement takes: a replica that replays the statement from the source's log gets
//! the values that it had here, one behind the other.

use super::Txn;
use crate::error::Result;
use crate::lock::WantedLock;
use crate::table::Table;
use crate::tree::MAX_KEY;
use std::sync::atomic::Ordering;

/// Its name among those of the primary tree's rows: longer than any key.
static COUNTER: [u8; MAX_KEY + 1] = [0; MAX_KEY + 1];

impl Txn {
    /// The counter is this transaction's until [`Txn::release_counter`]. Waits for the present holder, as for a row.
    ///
    /// # Errors
    /// As of a wait for a row; then it has to be released all the same.
    pub fn lock_counter(&self, table: &Table) -> Result<()> {
        let _scope = self.cancellable();
        table.counter_wanted.fetch_add(1, Ordering::SeqCst);
        if table.is_temporary() {
            return Ok(());
        }
        let state = self.state.lock();
        let space = table.tree(0)?.space().id();
        let mut request = self.request(&state, (space, &COUNTER), WantedLock::UNIQUE);
        while let Err(way) = self.core.locks.take_unique(self.session, space, &COUNTER)? {
            request.wait(&way, |txn| self.core.ids.is_active(txn))?;
        }
        Ok(())
    }

    /// After each [`Txn::lock_counter`].
    pub fn release_counter(&self, table: &Table) {
        if !table.is_temporary()
            && let Ok(tree) = table.tree(0)
        {
            self.core.locks.release_unique(self.session, tree.space().id(), &COUNTER);
        }
        table.counter_wanted.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Table {
    /// Whether a transaction has the counter for itself, or waits for it.
    pub fn counter_is_locked(&self) -> bool {
        self.counter_wanted.load(Ordering::SeqCst) != 0
    }
}
