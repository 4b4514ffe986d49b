//! Rows that are locked as they are read: one by one, or as a scan comes to them.
//!
//! A row is looked at and locked under its leaf's latch, which who changes it needs, too.

use super::off_page::{WantedParts, payload};
use crate::error::{Error, Result};
use crate::lock::{InTheWay, Mode, WantedLock};
use crate::row::{Head, TxnId};
use crate::table::Table;
use crate::tree::FoundEntry;
use crate::txn::version::head_of;
use crate::txn::{Lock, Txn, TxnState};
use terrace_tier::memory::pages::WeakPin;
use terrace_tier::memory::pool::Access;
use terrace_tier::page::SpaceId;

impl Txn {
    /// The latest committed version of a row, locked; or else, where gaps are locked, that there is none.
    pub(super) fn get_locked(
        &self,
        table: &Table,
        key: &[u8],
        mode: Mode,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut value = Vec::new();
        let locked = self.lock_latest(table, key, mode, &mut value);
        self.tell()?;
        match locked? {
            Locked::Row(_) => payload(table, &value, WantedParts::ALL, out, &mut Vec::new()),
            _ => Ok(false),
        }
    }

    /// Locks the row with this key as it is now, without reading what it has; or else, where gaps are locked, that there is none. False:
    /// there is none.
    pub fn lock(&self, table: &Table, key: &[u8], lock: Lock) -> Result<bool> {
        if let Some(side) = self.side(table) {
            return side.lock(table, key, lock);
        }
        let mode = match lock {
            Lock::None => return Err(Error::Invalid("a lock that locks nothing".into())),
            Lock::Shared => Mode::Shared,
            Lock::Exclusive => Mode::Exclusive,
        };
        if self.strict_view().is_some_and(|view| !table.is_usable(0, view)) {
            return Err(Error::Changed(format!("table {}", table.name())));
        }
        let _scope = self.cancellable();
        let locked = self.lock_latest(table, key, mode, &mut Vec::new());
        self.tell()?;
        Ok(matches!(locked?, Locked::Row(_)))
    }

    fn lock_latest(&self, table: &Table, key: &[u8], mode: Mode, value: &mut Vec<u8>) -> Result<Locked> {
        let mut state = self.state.lock();
        loop {
            let how = How { mode, waits: true, beside: Beside::Nothing };
            let found = self.lock_row(&mut state, table, 0, key, how, None, value)?;
            if matches!(found, Locked::Row(_)) || !self.locks_gaps() {
                return Ok(found);
            }
            // No row: none comes, either. If the key was not kept free yet, one may have come by now.
            let space = table.tree(0)?.space().id();
            if !self.keep(&mut state, space, key, Some(&[key, &[0]].concat()))? {
                return Ok(Locked::Nothing);
            }
        }
    }

    /// Keeps a range of a tree's keys free of others' inserts until the transaction ends (see `Locks::keep`).
    pub(crate) fn keep(
        &self,
        state: &mut TxnState,
        space: SpaceId,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<bool> {
        let new = self.core.locks.keep(self.session, space, from, to)?;
        if new {
            state.notes_gap(space);
        }
        Ok(new)
    }

    /// Locks the key of one of the table's trees, if a live value is there: then it is copied to `out`. `near` may be the
    /// key's leaf in that tree. Looked at and locked under one latch, which who changes the value needs, too: so the copy
    /// is the newest there is.
    pub(crate) fn lock_row(
        &self,
        state: &mut TxnState,
        table: &Table,
        index: usize,
        key: &[u8],
        how: How<'_>,
        near: Option<&WeakPin>,
        out: &mut Vec<u8>,
    ) -> Result<Locked> {
        let tree = table.tree(index)?;
        let space = tree.space().id();
        let core = &self.core;
        let mut request =
            self.request(state, (space, key), WantedLock { mode: how.mode, ..WantedLock::SHARED });
        let latest = if how.beside.is_some() { None } else { state.take_latest(space, how.mode, key) };
        let beside = latest.as_deref().map_or(how.beside, Beside::InLeaf);
        if beside.is_some() {
            state.notes_range(space);
        }
        let joins = latest.is_none() || state.begins_range(space, how.mode);
        let mut is_beside = false;
        loop {
            let look = |found: Option<FoundEntry<'_>>| {
                let Some(found) = found else { return Ok(Err(None)) };
                let head = head_of(found.value())?;
                if self.is_others(state.id, head) {
                    return Ok(Err(Some(InTheWay::Txn(head.txn))));
                }
                if index == 0 && self.is_too_new(state, head) {
                    return Err(Error::RowChanged);
                }
                if head.deleted() {
                    return Ok(Err(None));
                }
                let new = match state.id != 0 && head.txn == state.id {
                    true => false,
                    false => {
                        let beside = self.known_beside(state.id, beside, found);
                        is_beside = beside.is_some();
                        let beside = beside.filter(|_| joins);
                        match core.locks.take_row(self.session, space, key, how.mode, beside)? {
                            Ok(new) => new,
                            Err(way) => return Ok(Err(Some(way))),
                        }
                    }
                };
                out.clear();
                out.extend_from_slice(found.value());
                Ok::<_, Error>(Ok(new))
            };
            match tree.find_near(near, key, Access::Normal, look)?? {
                Ok(new) => {
                    state.locks(u64::from(new));
                    if !how.beside.is_some() {
                        state.locked_latest((space, how.mode), key, latest, is_beside);
                    }
                    request.served();
                    return Ok(Locked::Row(new));
                }
                Err(None) => return Ok(Locked::Nothing),
                Err(Some(_)) if !how.waits => return Ok(Locked::InTheWay),
                Err(Some(way)) => request.wait(&way, |txn| core.ids.is_active(txn))?,
            }
        }
    }

    /// Locks a value whose leaf is latched, and from `from` (if it is given) up to it the gap, in which nothing is.
    pub(crate) fn lock_in_leaf(
        &self,
        state: &mut TxnState,
        space: SpaceId,
        key: &[u8],
        from: Option<&[u8]>,
        (mode, beside): (Mode, Beside<'_>),
        found: FoundEntry<'_>,
    ) -> Result<LockedInLeaf> {
        let head = head_of(found.value())?;
        if head.deleted() || self.is_others(state.id, head) || self.is_too_new(state, head) {
            return Ok(LockedInLeaf::Unusual);
        }
        let scans = beside.is_some();
        let latest = if scans { None } else { state.take_latest(space, mode, key) };
        let joins = latest.is_none() || state.begins_range(space, mode);
        let beside = self.known_beside(state.id, latest.as_deref().map_or(beside, Beside::InLeaf), found);
        let is_beside = beside.is_some();
        let beside = beside.filter(|_| joins);
        if beside.is_some() {
            state.notes_range(space);
        }
        let locks = &self.core.locks;
        let taken = match from {
            Some(from) => {
                state.notes_gap(space);
                locks.take_next_key(self.session, (space, from), key, mode, beside)?
            }
            None => locks.take_row(self.session, space, key, mode, beside)?,
        };
        let Ok(new) = taken else { return Ok(LockedInLeaf::InTheWay) };
        state.locks(u64::from(new));
        if !scans {
            state.locked_latest((space, mode), key, latest, is_beside);
        }
        Ok(LockedInLeaf::Row(new))
    }

    /// Locks the rows that follow `from`, which was locked last by a scan upward that keeps gaps, as far as they are committed and
    /// in the leaf and no other session has a lock against it. Returns how many. Their leaf is latched.
    pub(crate) fn lock_following<'k>(
        &self,
        state: &mut TxnState,
        (space, from): (SpaceId, &[u8]),
        mode: Mode,
        rows: impl Iterator<Item = (&'k [u8], &'k [u8])>,
    ) -> usize {
        let me = state.id;
        let plain = |(_, value): &(&[u8], &[u8])| {
            Head::decode(value).is_some_and(|(head, _)| {
                !head.deleted()
                    && head.in_leaf()
                    && !self.is_others(me, head)
                    && !self.is_too_new(state, head)
            })
        };
        let keys = rows.take_while(plain).map(|(key, _)| key);
        let count = self.core.locks.take_following(self.session, (space, from), mode, keys);
        state.locks(count as u64);
        count
    }

    /// The key beside which a lock is taken, if that is known of it.
    fn known_beside<'k>(&self, me: TxnId, beside: Beside<'k>, found: FoundEntry<'_>) -> Option<&'k [u8]> {
        let dead = |value: &[u8]| {
            Head::decode(value).is_some_and(|(head, _)| head.deleted() && !self.is_others(me, head))
        };
        match beside {
            Beside::Nothing => None,
            Beside::Kept(key) => Some(key),
            Beside::InLeaf(key) => found.is_beside(key, dead).then_some(key),
        }
    }

    /// Gives back a lock in the mode in which it was new when it was taken.
    pub(crate) fn unlock(&self, state: &mut TxnState, space: SpaceId, key: &[u8], mode: Mode) {
        state.unlocks(space, key);
        self.core.locks.release_row(self.session, space, key, mode);
    }
}

/// How a locking read locks a row.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub mode: Mode,
    /// Whether a lock of another session is waited for.
    pub waits: bool,
    pub beside: Beside<'a>,
}

/// A key whose row the reader has locked in the same mode, so that one lock may do for both rows.
#[derive(Clone, Copy)]
pub(crate) enum Beside<'a> {
    Nothing,
    /// Gap locks have kept rows from coming between the two since the reader saw that there is none that it has not locked.
    Kept(&'a [u8]),
    /// If it is in the same leaf and only dead values lie between the two.
    InLeaf(&'a [u8]),
}

impl Beside<'_> {
    fn is_some(self) -> bool {
        !matches!(self, Beside::Nothing)
    }
}

/// What a scan did with a value in its latched leaf.
pub(crate) enum LockedInLeaf {
    /// It is locked now, and whether the lock is new.
    Row(bool),
    /// Another session holds or awaits a lock on the row. No new lock but that on the gap before it.
    InTheWay,
    /// The value is deleted, not committed, or too new: it is to be looked at more closely. No new lock.
    Unusual,
}

/// What a locking read found at a key.
pub(crate) enum Locked {
    /// A live value, locked now, and whether the lock is new.
    Row(bool),
    /// No live value, and no new lock.
    Nothing,
    /// Another session has it, and it was not to be waited for. No new lock.
    InTheWay,
}
