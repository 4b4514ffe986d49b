//! What a transaction knows of itself, under its lock.

use super::change::Buffers;
use super::hints::Hints;
use crate::error::{Error, Result};
use crate::lock::{Face, Mode, Phase};
use crate::row::RollPtr;
use crate::row::TxnId;
use crate::undo::stream::{Mark, Stream};
use std::sync::Arc;
use terrace_tier::memory::pages::Pin;
use terrace_tier::page::{Glsn, PageId, SpaceId};

/// Rows locked from which on each is looked at whether it lies beside the one before: few have locks of their own.
const MANY: u64 = 64;
/// A transaction that has locked this many rows has its single locks in compact sets, where one takes a hundredth of a range: a range begins
/// with the [`RUN`]th row that lies beside the one before it.
const CROWD: u64 = crate::lock::CROWD as u64;
pub(crate) const RUN: u32 = 8;

/// The row that was locked last, of many. A session that looks up one row after the other in their order (a replica that applies row events) has one
/// lock for neighbours, as a scan has.
#[derive(Default)]
pub(super) struct Latest {
    key: Vec<u8>,
    of: Option<(SpaceId, Mode)>,
    /// Rows up to this one of which each lay beside the one before it.
    run: u32,
}

/// Locks on rows were given back there because the rows were changed: undoing only such a change takes the lock again.
#[derive(Default)]
pub(super) struct GivenBack {
    /// Whose they were.
    pub session: u64,
    pub spaces: Vec<SpaceId>,
}

impl GivenBack {
    /// The session that takes locks again there when a change is undone. Not if all is undone.
    pub fn takes_again(&self, space: SpaceId, rolling_back: bool) -> Option<u64> {
        let takes = !rolling_back && self.spaces.contains(&space);
        (takes && !crate::planted::LOCK_LOST_WITH_CHANGE.on()).then_some(self.session)
    }
}

#[derive(Default)]
pub(crate) struct TxnState {
    /// 0: nothing changed yet.
    pub id: TxnId,
    pub stream: Option<Stream>,
    /// The Begin record and its page.
    pub(super) begin: RollPtr,
    pub(super) begin_page: Option<Pin>,
    pub(super) begin_mark: Option<Mark>,
    /// The last record.
    pub last: RollPtr,
    pub(super) statement: RollPtr,
    /// Something was changed whose old version another session may read.
    pub(super) has_past: bool,
    pub(super) view: Option<u64>,
    /// Rows newer than the view are not locked (`strict`).
    pub(super) strict: bool,
    /// It changed what no rollback undoes: in a deadlock another member is the victim, if possible.
    pub(super) one_way: bool,
    /// The trees in which it holds gap locks, and those in which it may hold row locks on ranges.
    pub(super) gaps: Vec<SpaceId>,
    pub(super) ranges: Vec<SpaceId>,
    pub(super) given_back: GivenBack,
    /// Rows locked, one by one or on ranges.
    pub(super) locked: u64,
    /// In two trees: an entry's and its row's.
    pub(super) latest: [Latest; 2],
    /// The Load records that stand in undo (`fill`).
    pub(super) loads: Vec<RollPtr>,
    /// Pages of large values whose bytes are in no log, and perhaps not on the volume yet (`large`).
    pub(super) unwritten: Vec<PageId>,
    /// Undo records written.
    pub(super) changes: u64,
    /// Those of them that are of rows, not of index entries.
    pub(super) rows: u64,
    pub(super) lock_wait_ms: u64,
    /// What it owes for changes while purge is late, in nanoseconds.
    pub(super) owed: u64,
    /// The same while slots are few.
    pub(super) owed_for_slots: u64,
    pub(super) prepared: bool,
    /// Up to where the log must be durable for that to be durable.
    pub(super) prepared_end: Glsn,
    /// It began to be rolled back: nothing else can become of it.
    pub(super) rolling_back: bool,
    /// Places to which it was to be undone and is not: it can't be committed.
    pub(super) owed_undo: Vec<RollPtr>,
    pub(super) ended: bool,
    /// What others see of it, if it has one.
    pub(super) face: Option<Arc<Face>>,
    pub(super) hints: Hints,
    /// The next changes of entries have each their like in the same index soon after.
    pub(super) pairs: bool,
    pub(super) buffers: Buffers,
}

impl TxnState {
    /// Nothing of it is undone that was to stay.
    pub(super) fn is_whole(&self) -> Result<()> {
        match self.is_going_back() {
            true => Err(Error::Invalid("the transaction is being rolled back".into())),
            false => Ok(()),
        }
    }
    pub(super) fn is_going_back(&self) -> bool {
        self.rolling_back || !self.owed_undo.is_empty()
    }
    /// It was to go back so far, and did not.
    pub(super) fn owes_undo(&mut self, to: RollPtr) {
        if !self.owed_undo.contains(&to) {
            self.owed_undo.push(to);
        }
    }
    /// Its records end at `last` now, by going back.
    pub(super) fn went_back(&mut self, last: RollPtr) {
        self.last = last;
        self.owed_undo.retain(|to| *to != last);
    }
    /// Whether it holds enough locks for those on rows that it changes to be released.
    pub(super) fn locks_many(&self) -> bool {
        self.locked >= MANY
    }
    /// Whether its single locks are compact.
    pub(crate) fn is_crowd(&self) -> bool {
        self.locked >= CROWD
    }
    pub(super) fn gave_back(&mut self, session: u64, space: SpaceId) {
        self.given_back.session = session;
        if !self.given_back.spaces.contains(&space) {
            self.given_back.spaces.push(space);
        }
    }
    /// It is about to lock a range of rows there.
    pub(super) fn notes_range(&mut self, space: SpaceId) {
        if !self.ranges.contains(&space) {
            self.ranges.push(space);
        }
    }
    pub(super) fn notes_gap(&mut self, space: SpaceId) {
        if !self.gaps.contains(&space) {
            self.gaps.push(space);
        }
    }
    /// The record at the stream's next place was written.
    pub(super) fn appended(&mut self, len: usize) {
        if let Some(last) = self.stream.as_ref().map(Stream::next) {
            self.appended_several(1, last, len);
        }
    }
    pub(super) fn show_changes(&self) {
        if let Some(face) = &self.face {
            face.set_changes(self.changes, Some(self.rows));
        }
    }
    /// It has locked `rows` more rows.
    pub(super) fn locks(&mut self, rows: u64) {
        if rows > 0 {
            self.locked += rows;
            self.show_locked();
        }
    }
    /// It has given back the lock on this one: no lock of a neighbour's goes on from it.
    pub(super) fn unlocks(&mut self, space: SpaceId, key: &[u8]) {
        self.locked = self.locked.saturating_sub(1);
        self.show_locked();
        let is_it = |latest: &&mut Latest| latest.of.is_some_and(|(of, _)| of == space) && latest.key == key;
        self.latest.iter_mut().filter(is_it).for_each(|latest| latest.key.clear());
    }
    /// The row that was locked last there in this mode, which is another than this, if many are locked. It is the caller's until
    /// [`TxnState::locked_latest`].
    pub(super) fn take_latest(&mut self, space: SpaceId, mode: Mode, key: &[u8]) -> Option<Vec<u8>> {
        if self.locked < MANY {
            return None;
        }
        let latest = self.latest.iter_mut().find(|latest| latest.of == Some((space, mode)))?;
        // Empty: no row was locked.
        (!latest.key.is_empty() && latest.key != key).then(|| std::mem::take(&mut latest.key))
    }
    /// Whether a row beside the one locked last there is locked with it as a range.
    pub(super) fn begins_range(&self, space: SpaceId, mode: Mode) -> bool {
        let latest = self.latest.iter().find(|latest| latest.of == Some((space, mode)));
        !self.is_crowd() || latest.is_some_and(|latest| latest.run >= RUN)
    }
    /// This row is locked; `is_beside`: nothing but dead rows is between it and the one before. `room` is what `take_latest` gave.
    pub(super) fn locked_latest(
        &mut self,
        (space, mode): (SpaceId, Mode),
        key: &[u8],
        room: Option<Vec<u8>>,
        is_beside: bool,
    ) {
        if self.locked < MANY {
            return;
        }
        if self.latest[0].of != Some((space, mode)) {
            self.latest.swap(0, 1);
        }
        let latest = &mut self.latest[0];
        let goes_on = is_beside && latest.of == Some((space, mode));
        latest.run = if goes_on { latest.run.saturating_add(1) } else { 0 };
        latest.of = Some((space, mode));
        if let Some(room) = room {
            latest.key = room;
        }
        latest.key.clear();
        latest.key.extend_from_slice(key);
    }
    fn show_locked(&self) {
        if let Some(face) = &self.face {
            face.set_locked(self.locked);
        }
    }
    pub(super) fn show_phase(&self, phase: Phase) {
        if let Some(face) = &self.face {
            face.set_phase(phase);
        }
    }
    /// `count` records were written, `len` bytes in all, the last of them at `last`.
    pub(super) fn appended_several(&mut self, count: u64, last: RollPtr, len: usize) {
        if let Some(stream) = &mut self.stream {
            self.last = last;
            self.changes += count;
            stream.appended(len);
            self.show_changes();
        }
    }
}
