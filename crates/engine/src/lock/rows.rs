//! Taking row locks, one by one or as a part of a range, and giving them back.
//!
//! A scan that locks a row next to the one it locked before makes its lock longer instead of taking another: one lock is
//! taken, kept and given back for any number of rows. The caller must know that no row that is not the session's lies between
//! the two, and that none comes before the lock is taken: from the leaf's latch, or from gap locks.

use super::gaps::Size;
use super::{InTheWay, Inner, Locks, Mode, NameRef, WantedLock};
use crate::error::Result;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use terrace_tier::page::SpaceId;

/// Of fewer locks on single rows none is given back before the transaction ends, as long as none is in a compact set.
const FEW: u32 = 64;

/// The next key that there can be.
fn successor(key: &[u8]) -> SmallVec<[u8; 64]> {
    let mut next = SmallVec::from_slice(key);
    next.push(0);
    next
}

impl Locks {
    /// Takes the lock on a row that lives if nothing is in the way: true if the session had none on it that is as strong; one
    /// that is weaker stays beside it. `beside`: a key whose
    /// row the session has locked in at least this mode, and no row lives between the two that it has not.
    ///
    /// # Errors
    /// [`crate::Error::TooManyLocks`] if as many are held as may be.
    pub fn take_row(
        &self,
        session: u64,
        space: SpaceId,
        key: &[u8],
        mode: Mode,
        beside: Option<&[u8]>,
    ) -> Result<std::result::Result<bool, InTheWay>> {
        self.take_row_in(&mut self.inner.lock(), session, NameRef { space, key }, mode, beside)
    }

    /// As [`Locks::take_row`], and before that keeps the keys from `from` up to the row's free of others' inserts. The caller
    /// holds the leaf's latch and sees that none was made there.
    ///
    /// # Errors
    /// [`crate::Error::TooManyLocks`] if as many are held as may be.
    pub fn take_next_key(
        &self,
        session: u64,
        (space, from): (SpaceId, &[u8]),
        key: &[u8],
        mode: Mode,
        beside: Option<&[u8]>,
    ) -> Result<std::result::Result<bool, InTheWay>> {
        let mut inner = self.inner.lock();
        if let Some(beside) = beside
            && inner.go_on(session, NameRef { space, key }, mode, from, beside)
        {
            return Ok(Ok(true));
        }
        self.keep_in(&mut inner, session, space, from, Some(key))?;
        self.take_row_in(&mut inner, session, NameRef { space, key }, mode, beside)
    }

    /// Goes on with a scan upward that has locked `from` last, in this mode and with the gap before it, over the keys that follow it: as
    /// [`Locks::take_next_key`] for each, as far as that is the usual case. Returns how many it has locked.
    /// The caller holds the leaf's latch.
    pub fn take_following<'k>(
        &self,
        session: u64,
        (space, from): (SpaceId, &[u8]),
        mode: Mode,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> usize {
        let mut inner = self.inner.lock();
        let free = |key: &&[u8]| inner.locks.owners(NameRef { space, key }).next().is_none();
        let Some((count, last)) = keys.take_while(free).enumerate().last() else { return 0 };
        // Rows that no session has locked by name: nor can others have in ranges, if the last of them goes on from `from`.
        match inner.go_on(session, NameRef { space, key: last }, mode, from, from) {
            true => count + 1,
            false => 0,
        }
    }

    fn take_row_in(
        &self,
        inner: &mut Inner,
        session: u64,
        name: NameRef<'_>,
        mode: Mode,
        beside: Option<&[u8]>,
    ) -> Result<std::result::Result<bool, InTheWay>> {
        let named = inner.locks.held_by(session, name);
        let mine = named.max(match inner.ranges {
            0 => None,
            _ => inner.gaps.mode_at(session, name.space, name.key),
        });
        if mine.is_some_and(|mine| mine >= mode) {
            return Ok(Ok(false));
        }
        if let Some(way) = inner.in_the_way(session, name, WantedLock { mode, ..WantedLock::SHARED }, false) {
            return Ok(Err(way));
        }
        if let Some(other) = beside {
            self.take_beside(inner, session, name, mode, other)?;
            return Ok(Ok(true));
        }
        if named.is_none() {
            self.check_room(inner)?;
        }
        self.add(inner, session, name, mode);
        Ok(Ok(true))
    }

    /// One range with what the session has beside the key. The other key itself does not come into it: whether its lock is
    /// still there was not checked, and another session may have it by now.
    fn take_beside(
        &self,
        inner: &mut Inner,
        session: u64,
        NameRef { space, key }: NameRef<'_>,
        mode: Mode,
        other: &[u8],
    ) -> Result<()> {
        let (low, high) =
            if other < key { (successor(other), successor(key)) } else { (key.into(), other.into()) };
        let (from, to): (&[u8], &[u8]) = (&low, &high);
        let full = self.check_room(inner);
        let rows = inner.gaps.of(space, session).rows(mode);
        let before = rows.size();
        if rows.go_on(from, to).is_some() {
            let after = rows.size();
            inner.long = inner.long + after.long - before.long;
            return Ok(());
        }
        if !rows.touches(from, Some(to))
            && let Err(error) = full
        {
            inner.gaps.forget_if_empty(session, space);
            return Err(error);
        }
        rows.add(from, Some(to));
        let after = rows.size();
        self.count_ranges(inner, (before, after));
        Ok(())
    }

    fn count_ranges(&self, inner: &mut Inner, (before, after): (Size, Size)) {
        inner.ranges = inner.ranges + after.ranges - before.ranges;
        inner.long = inner.long + after.long - before.long;
        self.held.fetch_add(after.ranges, Ordering::AcqRel);
        self.held.fetch_sub(before.ranges, Ordering::AcqRel);
    }

    /// What keeps the session from changing the value at the key, or from making one there. If nothing does, what others have
    /// locked around a key that comes into being is not locked there: they never saw it. Called under the leaf's latch.
    ///
    /// # Errors
    /// [`crate::Error::TooManyLocks`] if as many are held as may be.
    pub fn admit(
        &self,
        session: u64,
        space: SpaceId,
        key: &[u8],
        want: WantedLock,
    ) -> Result<Option<InTheWay>> {
        self.admit_writer(session, (space, key), want, false)
    }

    /// The same; `owns`: the session's transaction has changed the row before.
    pub fn admit_writer(
        &self,
        session: u64,
        (space, key): (SpaceId, &[u8]),
        want: WantedLock,
        owns: bool,
    ) -> Result<Option<InTheWay>> {
        if self.is_free(want) {
            return Ok(None);
        }
        let mut inner = self.inner.lock();
        if let Some(way) = inner.in_the_way(session, NameRef { space, key }, want, owns) {
            return Ok(Some(way));
        }
        if want.inserts && inner.ranges > 0 && !crate::planted::RANGE_NOT_SPLIT.on() {
            if inner.gaps.others_lock_any(session, space, key) {
                self.check_room(&mut inner)?;
            }
            let counts = inner.gaps.leave_out(session, space, key);
            self.count_ranges(&mut inner, counts);
        }
        Ok(None)
    }

    /// Gives back the lock on one row in this mode. What the session has in the other mode stays.
    pub fn release_row(&self, session: u64, space: SpaceId, key: &[u8], mode: Mode) {
        {
            let mut inner = self.inner.lock();
            if inner.ranges > 0 {
                let counts = inner.gaps.give_back(session, space, key, mode);
                self.count_ranges(&mut inner, counts);
                inner.gaps.forget_if_empty(session, space);
            }
            self.remove(&mut inner, session, NameRef { space, key }, mode);
            self.return_loan(&mut inner);
        }
        self.wake(Some(session), None);
    }

    /// Gives back the locks that the session has on single rows, in any mode, which its transaction has changed: its id in them is the
    /// lock now. Sessions that wait for them keep waiting for this one. Not where there are few: then it is less work to do so at the end.
    /// Returns how many there were.
    pub fn release_changed<'k>(
        &self,
        session: u64,
        space: SpaceId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> usize {
        let mut inner = self.inner.lock();
        if !inner.locks.has_many(session, FEW) {
            return 0;
        }
        let mut count = 0;
        for key in keys {
            for mode in [Mode::Shared, Mode::Exclusive] {
                count += usize::from(inner.locks.remove(session, NameRef { space, key }, mode));
            }
        }
        if count > 0 {
            self.held.fetch_sub(count, Ordering::AcqRel);
            self.return_loan(&mut inner);
        }
        count
    }

    /// Takes a lock again that [`Locks::release_changed`] may have given back, before the change of the row is undone. No other session can have
    /// anything against it. The caller holds the leaf's latch.
    ///
    /// # Errors
    /// [`crate::Error::TooManyLocks`] if as many are held as may be.
    pub fn take_again(&self, session: u64, space: SpaceId, key: &[u8]) -> Result<()> {
        let mut inner = self.inner.lock();
        let name = NameRef { space, key };
        if inner.has_exclusive(session, name) {
            return Ok(());
        }
        self.check_room(&mut inner)?;
        self.add(&mut inner, session, name, Mode::Exclusive);
        Ok(())
    }

    /// Gives back a name that is no row's.
    pub fn release_unique(&self, session: u64, space: SpaceId, key: &[u8]) {
        self.remove(&mut self.inner.lock(), session, NameRef { space, key }, Mode::Exclusive);
        self.wake(Some(session), None);
    }

    fn remove(&self, inner: &mut Inner, session: u64, name: NameRef<'_>, mode: Mode) {
        if inner.locks.remove(session, name, mode) {
            self.held.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Gives back the session's gap locks in a tree.
    pub fn release_gaps(&self, session: u64, space: SpaceId) {
        {
            let mut inner = self.inner.lock();
            self.release_ranges(&mut inner, session, space, &[]);
            self.return_loan(&mut inner);
        }
        self.wake(Some(session), None);
    }

    fn release_ranges(&self, inner: &mut Inner, session: u64, space: SpaceId, rows: &[Mode]) {
        let (gaps, rows) = inner.gaps.remove(space, session, rows);
        self.gaps.fetch_sub(gaps.ranges, Ordering::AcqRel);
        inner.long -= gaps.long;
        self.count_ranges(inner, (rows, Size::default()));
    }

    /// Gives back a session's gap locks and its row locks in shared mode; it has or had ranges in these trees.
    pub fn release_reads(&self, session: u64, spaces: &[SpaceId]) {
        {
            let mut inner = self.inner.lock();
            let names = inner.locks.remove_all_shared(session);
            self.held.fetch_sub(names, Ordering::AcqRel);
            for space in spaces {
                self.release_ranges(&mut inner, session, *space, &[Mode::Shared]);
            }
            self.return_loan(&mut inner);
        }
        self.wake(Some(session), None);
    }

    /// Gives back all locks of a session that ends, which has or had ranges in these trees.
    pub fn release_all(&self, session: u64, spaces: &[SpaceId]) {
        {
            let mut inner = self.inner.lock();
            let names = inner.locks.remove_all(session);
            self.held.fetch_sub(names, Ordering::AcqRel);
            for space in spaces {
                self.release_ranges(&mut inner, session, *space, &[Mode::Shared, Mode::Exclusive]);
            }
            self.return_loan(&mut inner);
        }
        self.wake(Some(session), None);
    }
}

impl Inner {
    fn has_exclusive(&self, session: u64, name: NameRef<'_>) -> bool {
        let is_exclusive = |mode| mode == Some(Mode::Exclusive);
        is_exclusive(self.locks.held_by(session, name))
            || (self.ranges > 0 && is_exclusive(self.gaps.mode_at(session, name.space, name.key)))
    }

    /// The usual case of [`Locks::take_next_key`], in few steps: no other session has or wants anything there, and what the session
    /// has becomes longer. False: it is not that, and nothing is changed.
    fn go_on(&mut self, session: u64, name: NameRef<'_>, mode: Mode, from: &[u8], beside: &[u8]) -> bool {
        if !self.waiters.is_empty() || self.locks.owners(name).next().is_some() {
            return false;
        }
        let kept = self.gaps.only(name.space, session);
        let Some((after, before)) = kept.and_then(|kept| kept.go_on(mode, from, beside, name.key)) else {
            return false;
        };
        self.long = self.long + after - before;
        true
    }
}
