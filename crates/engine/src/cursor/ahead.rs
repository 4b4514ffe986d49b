//! Locking ahead: for a scan that is known to read all rows up to its end, the rows that were copied with the current one are
//! locked with it, under the same latch, as one longer range.
//!
//! They are what they were when they were copied for as long as they are locked, and no row comes between them, for the
//! gaps are locked too. So they are handed out without another look. A lock in the way of one of them ends the batch: it is
//! waited for when its turn comes, as without locking ahead.
//!
//! Not here: which scans may say that they read all rows. Such a scan must not end early, for locks once taken stay.

use super::Cursor;
use crate::planted;
use crate::txn::{Lock, TxnState};

impl Cursor {
    /// From now on, or no longer, rows may be locked before they are asked for: the reader asks for all of the tree, or up to
    /// [`Cursor::set_ahead_end`], and changes none before it has it. For cursors over rows that lock gaps and leave nothing out; nothing
    /// for others.
    pub fn lock_ahead(&mut self, on: bool) {
        let can = self.lock != Lock::None && self.index == 0 && self.locks_gaps && !self.skips_locked;
        self.locks_ahead = on && can;
        if can {
            self.cursor.set_reads_all(on);
        }
    }
    /// From now on rows from this key on are not locked before they are asked for; empty: all may be.
    pub fn set_ahead_end(&mut self, end: &[u8]) {
        let end = if planted::LOCKED_PAST_END.on() { &[] } else { end };
        self.ahead_end.clear();
        self.ahead_end.extend_from_slice(end);
        self.cursor.set_until(if self.locks_ahead { end } else { &[] });
    }
    /// Whether the next row is locked already: a step up to it never waits.
    pub fn has_ahead(&self) -> bool {
        self.ahead > 0
    }

    /// Locks what follows the row at hand, whose lock was new or not: how many rows. The leaf is latched, and is as it was
    /// copied.
    pub(super) fn lock_following(&self, state: &mut TxnState, new: bool) -> usize {
        if !self.locks_ahead || !new || !self.prefix.is_empty() {
            return 0;
        }
        let from = (self.cursor.tree().space().id(), self.cursor.key());
        let end = &self.ahead_end[..];
        let following = self.cursor.following().take_while(|(key, _)| end.is_empty() || *key < end);
        self.txn.lock_following(state, from, self.mode(), following)
    }

    /// Goes up to the next row, which is locked.
    pub(super) fn next_of_ahead(&mut self) {
        self.ahead -= 1;
        self.cursor.step_kept();
        self.take_key();
        self.last_entry.set(&self.key);
        self.taken.entry = true;
        self.pass_edge();
    }
}
