//! What a cursor locks: entries, their rows and the gaps between them, and what it gives back.
//!
//! The usual case is [`Cursor::lock_in_place`], one look into the leaf; what is not usual goes by
//! [`Cursor::look_locked`], which may wait. A lock that adjoins the last one becomes one with it (`lock`).

use super::{Cursor, EntryVisibility, RowLock};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::lock::Mode;
use crate::row::{self, Head};
use crate::tree;
use crate::txn::rows::STALE_MAX;
use crate::txn::rows::locking::{Beside, How, Locked, LockedInLeaf};
use crate::txn::rows::off_page::Opened;
use crate::txn::state::RUN;
use crate::txn::{Lock, Txn, TxnState};

#[derive(Default)]
pub(super) struct Taken {
    pub entry: bool,
    pub row: bool,
}

/// What [`Cursor::lock_in_place`] did with the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InPlace {
    Locked,
    /// Another session has locked it, which the scan skips. The gap before it is locked, if the scan locks gaps.
    Skipped,
    /// It is to be looked at more closely.
    Unusual,
}

/// What was locked last in a tree, unless something was passed since that is not locked.
#[derive(Default)]
pub(super) struct Last {
    key: Vec<u8>,
    locked: bool,
    /// Rows up to this one that were locked one after the other, with none between them given back or passed.
    run: u32,
}

impl Last {
    pub fn set(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.locked = true;
        self.run = self.run.saturating_add(1);
    }
    pub fn forget(&mut self) {
        (self.locked, self.run) = (false, 0);
    }
    /// How the next lock is taken, if gap locks keep rows from coming between them, or else if not. Where they don't, rows may be given
    /// back one by one, and each leaves a piece of a range: so a transaction with many locks, whose single ones are compact, begins a range with
    /// the [`RUN`]th row only.
    pub fn beside(&self, kept: bool, txn: &Txn) -> Beside<'_> {
        match (self.locked, kept) {
            (false, _) => Beside::Nothing,
            (true, false) if self.run < RUN && txn.with_state(|state| state.is_crowd()) => Beside::Nothing,
            (true, true) => Beside::Kept(&self.key),
            (true, false) => Beside::InLeaf(&self.key),
        }
    }
}

impl Cursor {
    /// From now on, or no longer, the entry of a secondary index is returned when it is locked, and its row is locked by
    /// [`Cursor::lock_row`]: a reader that filters by the entry locks no rows that it doesn't want. For cursors that lock.
    pub fn lock_rows_later(&mut self, on: bool) {
        self.rows_later = on && self.lock != Lock::None && self.index != 0;
    }

    /// From now on no gaps are locked: the reader decides nothing by what is not there.
    pub fn lock_rows_alone(&mut self) {
        self.locks_gaps = false;
    }

    /// Locks the row of the entry at hand, if that is still to be done.
    pub fn lock_row(&mut self) -> Result<RowLock> {
        if !self.row_open {
            return Ok(RowLock::Locked);
        }
        let _scope = self.txn.cancellable();
        let look = self.lock_row_of_entry();
        self.txn.tell()?;
        Ok(match look? {
            EntryVisibility::Seen => {
                self.row_open = false;
                self.pass_edge();
                RowLock::Locked
            }
            EntryVisibility::Nothing => RowLock::Gone,
            EntryVisibility::Skipped => RowLock::Skipped,
        })
    }

    /// Gives back the locks of the last row returned: it was not what the reader looked for.
    pub fn unlock_last(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        let key = if self.in_place { self.cursor.key() } else { &self.key };
        let mode = self.mode();
        let unlock = |index, key: &[u8]| {
            if let Ok(tree) = self.table.tree(index) {
                self.txn.with_state(|state| self.txn.unlock(state, tree.space().id(), key, mode));
            }
        };
        if taken.entry {
            unlock(self.index, key);
            self.last_entry.forget();
        }
        if taken.row {
            unlock(0, &key[self.primary_at..]);
            self.last_row.forget();
        }
    }

    /// As [`Cursor::unlock_last`], if the isolation level keeps no locks on what is not wanted.
    pub fn unlock_unwanted(&mut self) {
        if self.lock != Lock::None && !self.locks_gaps {
            self.unlock_last();
        }
    }

    /// Gaps up to the entry at hand are locked.
    pub(super) fn pass_edge(&mut self) {
        if self.locks_gaps {
            let edge = self.edge.get_or_insert_default();
            edge.clear();
            edge.extend_from_slice(&self.key);
            self.on_edge = true;
        }
    }

    /// The entry at hand was not wanted, nor its row.
    pub(super) fn leave_entry(&mut self) {
        if self.row_open {
            self.row_open = false;
            self.pass_edge();
        }
    }

    /// Locks the place of an entry that is not live. True if it was not locked before.
    pub(super) fn keep_key(&mut self) -> Result<bool> {
        let space = self.cursor.tree().space().id();
        let next = [&self.key, &[0][..]].concat();
        self.txn.with_state(|state| self.txn.keep(state, space, &self.key, Some(&next)))
    }

    /// Locks the gap between the edge and the entry that the tree's cursor is on, or the end if it is on none that is
    /// wanted. Moves the cursor to an entry that came into the gap before it was locked. Returns whether the cursor is
    /// on an entry.
    pub(super) fn lock_gap(&mut self, mut valid: bool, backward: bool) -> Result<bool> {
        let space = self.cursor.tree().space().id();
        loop {
            let wanted = valid && self.is_wanted();
            let prefix_end;
            let (from, to) = if backward {
                (if wanted { self.cursor.key() } else { &self.prefix }, self.edge.as_deref())
            } else {
                prefix_end = successor(&self.prefix);
                let end = if wanted { Some(self.cursor.key()) } else { prefix_end.as_deref() };
                (self.edge.as_deref().unwrap_or(&[]), end)
            };
            if !self.txn.with_state(|state| self.txn.keep(state, space, from, to))? {
                return Ok(valid);
            }
            // Locked. Is it still the next one?
            let edge = self.edge.as_deref();
            if valid && edge.is_some_and(|edge| self.cursor.is_fresh_with(edge)) {
                return Ok(true);
            }
            valid = self.cursor.seek(match (backward, edge) {
                (false, Some(edge)) if self.on_edge => tree::Seek::After(edge),
                (false, edge) => tree::Seek::AtLeast(edge.unwrap_or(&[])),
                (true, Some(edge)) => tree::Seek::Before(edge),
                (true, None) => tree::Seek::Last,
            })?;
        }
    }

    /// The row that another session has locked, as it was last committed.
    fn look_committed(&mut self) -> Result<EntryVisibility> {
        let txn = self.txn.clone();
        let mut look = |reader| match self.read_again()? {
            true => self.look_closely(reader),
            false => Ok(EntryVisibility::Nothing),
        };
        let seen = match txn.is_strict() {
            // As InnoDB: at READ UNCOMMITTED, as it is.
            true => look(txn.newest_reader())?,
            false => txn.with_view_of_now(look)?,
        };
        self.semi = seen == EntryVisibility::Seen;
        Ok(seen)
    }

    pub(super) fn mode(&self) -> Mode {
        if self.lock == Lock::Shared { Mode::Shared } else { Mode::Exclusive }
    }

    /// The usual case: what the tree's cursor copied is unchanged, it is committed, in the leaf, and no other session has
    /// a lock against it, nor against the gap before it; or another session has a lock against it, and the scan skips it.
    pub(super) fn lock_in_place(&mut self, backward: bool) -> Result<InPlace> {
        // Down, the gap is the one above the entry, which may go on in other leaves.
        if (self.locks_gaps && backward) || !self.is_wanted() {
            return Ok(InPlace::Unusual);
        }
        let Some((head, rest)) = Head::decode(self.cursor.value()) else { return Ok(InPlace::Unusual) };
        let key = self.cursor.key();
        let primary_at = match self.index {
            0 => 0,
            _ => match row::entry_parts(rest) {
                Some((at, _)) if at <= key.len() => at,
                _ => return Ok(InPlace::Unusual),
            },
        };
        if !head.in_leaf() {
            return Ok(InPlace::Unusual);
        }
        let space = self.cursor.tree().space().id();
        let edge = self.edge.as_deref().unwrap_or(&[]);
        let how = (self.mode(), self.last_entry.beside(self.locks_gaps, &self.txn));
        let lock = |state: &mut TxnState| {
            self.cursor.if_fresh(|found| match self.locks_gaps {
                true if !found.is_leaf_of(edge) => Ok((LockedInLeaf::Unusual, 0)),
                gaps => {
                    let locked =
                        self.txn.lock_in_leaf(state, space, key, gaps.then_some(edge), how, found)?;
                    let ahead = match locked {
                        LockedInLeaf::Row(new) => self.lock_following(state, new),
                        _ => 0,
                    };
                    Ok((locked, ahead))
                }
            })
        };
        let locked: Option<Result<_>> = self.txn.with_state(lock);
        let new = match locked.transpose()? {
            Some((LockedInLeaf::Row(new), ahead)) => {
                self.ahead = ahead;
                new
            }
            Some((LockedInLeaf::InTheWay, _)) if self.skips_locked => {
                self.take_key();
                self.last_entry.forget();
                return Ok(InPlace::Skipped);
            }
            _ => return Ok(InPlace::Unusual),
        };
        self.taken.entry = new;
        self.take_key();
        self.primary_at = primary_at;
        self.last_entry.set(&self.key);
        self.in_place = true;
        let seen = self.index == 0 || self.lock_row_or_later()? == EntryVisibility::Seen;
        self.in_place = seen;
        Ok(if seen { InPlace::Locked } else { InPlace::Unusual })
    }

    /// Locks the row of the entry at hand, unless that is to be done later, or not at all: a reader of entries alone that lets others read them
    /// is disturbed by no change that leaves them as they are. As InnoDB.
    fn lock_row_or_later(&mut self) -> Result<EntryVisibility> {
        if self.entries_only && self.lock == Lock::Shared {
            return Ok(EntryVisibility::Seen);
        }
        if self.rows_later {
            self.row_open = true;
            return Ok(EntryVisibility::Seen);
        }
        self.lock_row_of_entry()
    }

    /// Locks the current entry and its row, and sees their newest version.
    pub(super) fn look_locked(&mut self) -> Result<EntryVisibility> {
        self.take_key();
        let mut is_stale = false;
        for _ in 0..STALE_MAX {
            let waits = !(self.skips_locked || self.semi_consistent());
            let beside = self.last_entry.beside(self.locks_gaps, &self.txn);
            let how = How { mode: self.mode(), waits, beside };
            let (near, out) = (self.cursor.leaf(), &mut self.value);
            let locked = self.txn.with_state(|state| {
                self.txn.lock_row(state, &self.table, self.index, &self.key, how, near, out)
            })?;
            match locked {
                Locked::Row(new) => self.taken.entry |= new,
                Locked::Nothing => return Ok(EntryVisibility::Nothing),
                Locked::InTheWay => {
                    self.last_entry.forget();
                    return if self.skips_locked {
                        Ok(EntryVisibility::Skipped)
                    } else {
                        self.look_committed()
                    };
                }
            }
            self.last_entry.set(&self.key);
            match self.open_value()? {
                Opened::Whole => {}
                Opened::Stale => {
                    is_stale = true; // others change the row
                    continue;
                }
                Opened::Hollow(page) => return Err(TreeError::Hollow { page }.into()),
            }
            if self.index == 0 {
                return Ok(EntryVisibility::Seen);
            }
            let row = self.lock_row_or_later()?;
            // The row went while its entry was locked: the entry's mark comes.
            if row != EntryVisibility::Nothing {
                return Ok(row);
            }
        }
        Err(match is_stale {
            true => Error::Unavailable("a row changes faster than it can be read".into()),
            false => self.without_row(),
        })
    }

    /// Locks the row of the entry at hand, or gives the entry's lock back.
    fn lock_row_of_entry(&mut self) -> Result<EntryVisibility> {
        let _scope = self.txn.cancellable();
        let far = self.reads_row();
        let beside = self.last_row.beside(false, &self.txn);
        let how = How { mode: self.mode(), waits: !self.skips_locked, beside };
        let (primary, out) = (&self.key[self.primary_at..], &mut self.value);
        let row =
            self.txn.with_state(|state| self.txn.lock_row(state, &self.table, 0, primary, how, None, out))?;
        self.row_was_read(far);
        let primary = &self.key[self.primary_at..];
        Ok(match row {
            Locked::Row(new) => {
                self.taken.row = new;
                self.has_row = true;
                self.last_row.set(primary);
                EntryVisibility::Seen
            }
            Locked::Nothing => {
                self.unlock_last();
                EntryVisibility::Nothing
            }
            Locked::InTheWay => {
                self.unlock_last();
                self.last_entry.forget();
                EntryVisibility::Skipped
            }
        })
    }
}

/// The least key above all that start with the prefix; None: there is no such key.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut next = prefix[..=kept].to_vec();
    next[kept] += 1;
    Some(next)
}
