//! What a transaction may tell: with durable reads, nothing that a crash can undo.
//!
//! A view holds only durable commits (`ids::unseen`). A read under locks, a change and a look for a duplicate find the newest version of a value,
//! whose commit may not be durable yet. The transaction notes the newest such commit ([`Txn::is_others`]) and *owes* it until views take it.
//!
//! What it owes is waited for
//! * before a read under locks returns, or any other operation, unless the statement tells its client nothing of what it reads
//!   ([`Txn::set_tells`]: a statement that changes rows);
//! * before it opens a view, which so holds all that the transaction has seen before;
//! * by [`Txn::settle`], at the end of a statement and of a transaction;
//! * by the ticket of a commit that has changed nothing. A commit record lies behind those that its transaction has seen.
//!
//! No latch and no lock of the engine's is held meanwhile; row locks are.

use super::Txn;
use crate::error::Result;
use crate::row::{Head, TxnId};
use crate::txn::ids::Standing;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct Told {
    /// The newest commit that it has seen and that views did not take then. 0: none.
    owed: AtomicU64,
    /// The statement at hand tells nothing of what it reads.
    silent: AtomicBool,
    /// Views hold all that was committed before they are opened.
    of_all: AtomicBool,
}

impl Told {
    pub fn owed(&self) -> u64 {
        self.owed.load(Ordering::Relaxed)
    }
}

impl Txn {
    /// Whether a value was written by another transaction that is active. If by one whose commit views do not take yet, it is noted.
    pub(super) fn is_others(&self, me: TxnId, head: Head) -> bool {
        if head.txn == me {
            return false;
        }
        match self.core.ids.standing(head.txn) {
            Standing::Active => true,
            Standing::Unseen(number) => {
                self.told.owed.fetch_max(number, Ordering::Relaxed);
                false
            }
            Standing::Seen => false,
        }
    }

    /// Whether, from now on, results are sent to a client before the transaction ends; as when it begins. If not, the commits that it saw
    /// are waited for at its end.
    pub fn set_tells(&self, on: bool) {
        self.told.silent.store(!on, Ordering::Relaxed);
        self.side.get().iter().for_each(|side| side.set_tells(on));
    }

    /// From now on a view that is opened holds all that was committed before, for which it waits: for a replica, which applies what follows.
    pub fn set_views_of_all(&self, on: bool) {
        self.told.of_all.store(on, Ordering::Relaxed);
    }

    /// As [`Txn::open_view`], with all that is committed by now, for which it waits.
    pub fn open_view_of_all(&self) {
        self.see_all();
        self.open_view();
    }
    fn see_all(&self) {
        if self.core.ids.unseen() > 0 {
            self.counts_wait();
            // If the log has failed, views stay as they are.
            let _ = self.core.ids.see_all();
        }
    }
    fn counts_wait(&self) {
        self.core.counters.read_log_waits.fetch_add(1, Ordering::Relaxed);
    }

    /// What the transaction has seen so far no crash takes back, when it returns.
    pub fn settle(&self) -> Result<()> {
        let owed = self.told.owed();
        if owed == 0 {
            return Ok(());
        }
        if !self.core.ids.is_seen(owed) {
            self.counts_wait();
            self.core.ids.see(owed)?;
        }
        self.told.owed.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// An operation returns.
    #[inline]
    pub(crate) fn tell(&self) -> Result<()> {
        if self.told.owed() == 0
            || self.told.silent.load(Ordering::Relaxed)
            || crate::planted::LOCKED_READ_NOT_WAITED.on()
        {
            return Ok(());
        }
        self.settle()
    }

    #[inline]
    pub(super) fn waits_before_view(&self) -> bool {
        self.told.owed() != 0 || self.told.of_all.load(Ordering::Relaxed)
    }

    /// Called before a view is opened, without the transaction's lock.
    pub(super) fn before_view(&self) {
        match self.told.of_all.load(Ordering::Relaxed) {
            true => self.see_all(),
            // If the log has failed, views stay as they are.
            false => _ = self.settle(),
        }
    }
}
