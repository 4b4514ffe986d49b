//! Strict snapshots: first committer wins.
//!
//! A transaction that has a view and is strict locks no row whose newest committed version the view doesn't see:
//! the read, update or delete that wants it fails with [`RowChanged`](crate::error::Error::RowChanged), and so does an insert at a key that was
//! deleted, or inserted, since. Where it can't be told, in an index or a table rebuilt since, reads that lock fail as those that
//! do not ([`Changed`](crate::error::Error::Changed)). The session that gets it rolls the transaction back. So what a transaction writes rests on what it
//! has read. It asks for rows only, not for entries of other indexes: each leads to its row.
//!
//! The version is checked under the leaf's latch. One that is still being written is waited for first: it may be rolled
//! back. For a committed one no lock is waited for, since nothing can make it older.

use super::{Txn, TxnState};
use crate::lock::Isolation;
use crate::row::Head;
use crate::txn::version::Reader;

impl TxnState {
    /// The view beyond which no row is locked, if there is one.
    pub(super) fn strict_view(&self) -> Option<u64> {
        self.view.filter(|_| self.strict)
    }
}

impl Txn {
    /// From now on, or no longer, the transaction is strict.
    pub fn set_strict(&self, on: bool) {
        self.state.lock().strict = on;
    }
    pub(crate) fn is_strict(&self) -> bool {
        self.state.lock().strict
    }

    /// The view beyond which it locks no row, if there is one.
    pub(crate) fn strict_view(&self) -> Option<u64> {
        self.state.lock().strict_view()
    }

    /// Whether the row is too new to be locked. It is committed, or the transaction's own.
    pub(super) fn is_too_new(&self, state: &TxnState, head: Head) -> bool {
        let unseen = |view| head.txn != state.id && !self.core.ids.sees(view, head.txn);
        // As InnoDB: where gaps are not locked, nor is what is not there.
        state.strict_view().is_some_and(unseen) && (!head.deleted() || self.locks_gaps())
    }

    /// Reads what is newest, committed or not.
    pub(crate) fn newest_reader(&self) -> Reader {
        Reader { view: None, me: self.state.lock().id }
    }

    /// Whether a locked row may be returned as it was committed before: not to a reader that would find out when it locks it.
    pub(crate) fn reads_beside_locks(&self) -> bool {
        self.isolation != Isolation::ReadCommitted || !self.is_strict()
    }
}
