//! Rows: insert, update, delete, get, with their entries in the secondary trees.
//!
//! A row operation that fails undoes what it had done itself, so that the statement can go on with
//! the next row.

mod batch;
mod far;
pub(crate) mod locking;
pub(crate) mod off_page;

pub use batch::KeyChange;

use super::change::Act;
use super::{Lock, Txn, TxnState};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::lock::{InTheWay, Mode, WantedLock};
use crate::row::off_page::{Hole, Larges, Row};
use crate::row::{self, Head};
use crate::table::Table;
use crate::tree::overflow::{self, Large, WrittenFor};
use crate::tree::{MAX_KEY, Tree};
use crate::txn::version::{Reader, VisibleVersion, head_of, seen};
use far::Far;
use off_page::{Opened, WantedParts};
use terrace_tier::memory::pool::Access;

/// What a row has in a secondary index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    pub index: usize,
    /// The secondary key, then the primary key.
    pub key: &'a [u8],
    /// How much of the key must be unique; None if nothing (not unique, or with NULL).
    pub unique_len: Option<usize>,
    /// Where the primary key begins in `key`.
    pub primary_at: usize,
    /// What a covering read needs beside the key.
    pub value: &'a [u8],
}

/// Tries before a reader that always finds stale copies gives up: each try needs another writer.
pub(crate) const STALE_MAX: usize = 10_000;

/// What [`Txn::try_get`] can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TryGet {
    /// The row is in the caller's buffer.
    Hit,
    Absent,
    /// It takes I/O, or may: nothing is known.
    WouldBlock,
}

/// Whether a row must be at the key that is put.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum There {
    No,
    Yes,
    Either,
}

impl Txn {
    /// Puts a row, in place of the present one if there is one, in one descent. Returns whether there was. For tables without secondary
    /// indexes: a caller that does not know the old row does not know its entries.
    pub fn put<'r>(&self, table: &Table, key: &[u8], row: impl Into<Row<'r>>) -> Result<bool> {
        let row = row.into();
        if let Some(side) = self.side(table) {
            return side.put(table, key, row);
        }
        if table.def().indexes.len() != 1 {
            return Err(Error::Invalid(format!("table {} has secondary indexes", table.name())));
        }
        let mut was = false;
        self.row_operation(table, |state| {
            was = self.put_row(state, table, key, row, There::Either)?;
            Ok(())
        })?;
        Ok(was)
    }

    /// Deletes the existing ones of these rows, leaf by leaf. Returns how many there were. For tables without secondary indexes. The keys are sorted.
    pub fn delete_rows(&self, table: &Table, keys: &mut [&[u8]]) -> Result<u64> {
        if let Some(side) = self.side(table) {
            return side.delete_rows(table, keys);
        }
        if table.def().indexes.len() != 1 {
            return Err(Error::Invalid(format!("table {} has secondary indexes", table.name())));
        }
        keys.sort_unstable();
        let mut deleted = 0;
        self.row_operation(table, |state| {
            deleted = self.mark_sorted_rows(state, table, keys)?;
            Ok(())
        })?;
        Ok(deleted)
    }

    /// Inserts a row with its entries.
    pub fn insert<'r>(
        &self,
        table: &Table,
        key: &[u8],
        row: impl Into<Row<'r>>,
        entries: &[Entry<'_>],
    ) -> Result<()> {
        let row = row.into();
        if let Some(side) = self.side(table) {
            return side.insert(table, key, row, entries);
        }
        self.row_operation(table, |state| {
            let mut far = Far::begin(self);
            self.put_row(state, table, key, row, There::No)?;
            entries.iter().enumerate().try_for_each(|(n, entry)| {
                far.ask(table, entries[n..].iter());
                self.insert_entry(state, table, entry)
            })
        })
    }

    /// Changes an existing row. Only the entries that change are given: the old ones, the new ones.
    pub fn update<'r>(
        &self,
        table: &Table,
        key: &[u8],
        row: impl Into<Row<'r>>,
        old: &[Entry<'_>],
        new: &[Entry<'_>],
    ) -> Result<()> {
        let row = row.into();
        if let Some(side) = self.side(table) {
            return side.update(table, key, row, old, new);
        }
        self.row_operation(table, |state| {
            let mut far = Far::begin(self);
            self.put_row(state, table, key, row, There::Yes)?;
            // What becomes of an entry is often a neighbour of what it was.
            state.pairs = !new.is_empty();
            let marked = old.iter().enumerate().try_for_each(|(n, entry)| {
                far.ask(table, old[n..].iter().chain(new));
                self.mark(state, table, entry.index, entry.key)
            });
            state.pairs = false;
            marked?;
            new.iter().enumerate().try_for_each(|(n, entry)| {
                far.ask(table, new[n..].iter());
                self.insert_entry(state, table, entry)
            })
        })
    }

    /// Deletes an existing row, with its entries.
    pub fn delete(&self, table: &Table, key: &[u8], entries: &[Entry<'_>]) -> Result<()> {
        if let Some(side) = self.side(table) {
            return side.delete(table, key, entries);
        }
        self.row_operation(table, |state| {
            let mut far = Far::begin(self);
            self.mark(state, table, 0, key)?;
            entries.iter().enumerate().try_for_each(|(n, entry)| {
                far.ask(table, entries[n..].iter());
                self.mark(state, table, entry.index, entry.key)
            })
        })
    }

    fn row_operation(&self, table: &Table, work: impl FnOnce(&mut TxnState) -> Result<()>) -> Result<()> {
        let _scope = self.cancellable();
        let mut state = self.state.lock();
        self.pay(&mut state, table)?;
        self.start(&mut state)?;
        let before = state.last;
        let done = work(&mut state);
        if let Err(error) = done {
            self.rollback_state(&mut state, before)?;
            drop(state);
            self.tell()?;
            return Err(error);
        }
        drop(state);
        self.tell()
    }

    /// Waits for purge and for slots, if they are late, as one more change has to.
    fn pay(&self, state: &mut TxnState, table: &Table) -> Result<()> {
        self.core.slow_down(&mut state.owed)?;
        let holds = state.id != 0 || state.locked > 0;
        self.core.throttle_write(table, holds, &mut state.owed_for_slots)
    }

    /// Returns whether a row was there.
    fn put_row(
        &self,
        state: &mut TxnState,
        table: &Table,
        key: &[u8],
        row: Row<'_>,
        there: There,
    ) -> Result<bool> {
        if key.len() > MAX_KEY {
            return Err(Error::TooLarge { what: "a key", len: key.len(), max: MAX_KEY });
        }
        let mut keeps = there == There::Yes;
        loop {
            let (before, mut kept) = (state.last, Larges::new());
            let (flags, rest) = self.store(state, table, key, row, keeps.then_some(&mut kept))?;
            let (mut past, mut lost, mut was) = (false, false, false);
            let done = self.change(state, table, 0, key, Some(rest.len()), |old| {
                (past, lost) = (old.is_some(), false);
                was = old.is_some_and(|(head, _)| !head.deleted());
                match (old, there) {
                    (Some((head, _)), There::No) if !head.deleted() => Err(Error::Duplicate { index: 0 }),
                    (None, There::Yes) => Err(Error::Absent("the row".into())),
                    (Some((head, _)), There::Yes) if head.deleted() => Err(Error::Absent("the row".into())),
                    _ if !off_page::names(old, &kept) && !crate::planted::KEPT_PART_TRUSTED.on() => {
                        lost = true;
                        Err(Error::RowChanged)
                    }
                    _ => Ok(Act::Put(flags, &rest)),
                }
            });
            state.has_past |= past && !(there == There::Either && crate::planted::PUT_WITHOUT_PAST.on());
            if !lost {
                return done.map(|()| was);
            }
            // The row is another one since it was looked at: all is written, as if nothing had been there.
            self.rollback_state(state, before)?;
            keeps = false;
        }
    }

    fn mark(&self, state: &mut TxnState, table: &Table, index: usize, key: &[u8]) -> Result<()> {
        state.has_past = true;
        self.change(state, table, index, key, None, |old| match old {
            Some((head, _)) if !head.deleted() => Ok(Act::Mark),
            _ if index == 0 => Err(Error::Absent("the row".into())),
            _ => Err(Txn::lacks_entry(table, index)),
        })
    }

    fn lacks_entry(table: &Table, index: usize) -> Error {
        Error::Corrupt(format!("table {}: index {index} lacks the entry of a row", table.name()))
    }

    fn insert_entry(&self, state: &mut TxnState, table: &Table, entry: &Entry<'_>) -> Result<()> {
        if entry.key.len() > MAX_KEY {
            return Err(Error::TooLarge { what: "a key", len: entry.key.len(), max: MAX_KEY });
        }
        let rest = row::entry_rest(entry.primary_at, entry.value);
        self.insert_sorted_entry(state, table, entry.index, entry.key, entry.unique_len, &rest)
    }

    fn insert_sorted_entry(
        &self,
        state: &mut TxnState,
        table: &Table,
        index: usize,
        key: &[u8],
        unique: Option<usize>,
        rest: &[u8],
    ) -> Result<()> {
        let space = table.tree(index)?.space().id();
        let unique = unique.and_then(|len| key.get(..len));
        if let Some(prefix) = unique {
            self.check_unique(state, table, index, prefix)?;
        }
        let mut past = false;
        let done = self.change(state, table, index, key, Some(rest.len()), |old| {
            past = old.is_some();
            match old {
                Some((head, _)) if !head.deleted() => Err(Error::Duplicate { index }),
                _ => Ok(Act::Put(0, rest)),
            }
        });
        state.has_past |= past;
        if let Some(prefix) = unique {
            // From here on the entry itself keeps others out.
            self.core.locks.release_unique(self.session, space, prefix);
        }
        done
    }

    /// Inserts a value as a load has sorted it: a row of the primary tree, or an entry, whose first `unique` bytes must not come twice.
    pub(crate) fn insert_value(
        &self,
        table: &Table,
        index: usize,
        key: &[u8],
        unique: Option<usize>,
        value: &[u8],
    ) -> Result<()> {
        let Some((head, rest)) = Head::decode(value) else {
            return Err(Error::Corrupt("a value without a head".into()));
        };
        self.row_operation(table, |state| {
            if index > 0 {
                return self.insert_sorted_entry(state, table, index, key, unique, rest);
            }
            let mut past = false;
            let done = self.change(state, table, 0, key, Some(rest.len()), |old| {
                past = old.is_some();
                match old {
                    Some((head, _)) if !head.deleted() => Err(Error::Duplicate { index: 0 }),
                    _ => Ok(Act::Put(head.flags, rest)),
                }
            });
            state.has_past |= past;
            done
        })
    }

    /// Writes a large value of a load, a row or a part of one.
    pub(crate) fn write_large_of_load(&self, table: &Table, bytes: &[u8]) -> Result<overflow::Placed> {
        let tree = table.tree(0)?;
        let mut state = self.state.lock();
        self.start(&mut state)?;
        self.write_large(&mut state, table, tree.space(), bytes, WrittenFor::Build)
    }

    /// Makes sure that no live entry has this prefix, and that none can come before ours is in: a short
    /// lock on the prefix is held when it returns Ok.
    fn check_unique(&self, state: &mut TxnState, table: &Table, index: usize, prefix: &[u8]) -> Result<()> {
        let tree = table.tree(index)?;
        let mut request = self.request(state, (tree.space().id(), prefix), WantedLock::UNIQUE);
        let is_active = |txn| self.core.ids.is_active(txn);
        loop {
            if let Err(way) = self.core.locks.take_unique(self.session, tree.space().id(), prefix)? {
                request.wait(&way, is_active)?;
                continue;
            }
            let found = self.live_with_prefix(state, &tree, prefix);
            match found {
                Ok(None) => return Ok(()),
                Ok(Some(way)) => {
                    self.core.locks.release_unique(self.session, tree.space().id(), prefix);
                    match way {
                        Live::Entry => return Err(Error::Duplicate { index }),
                        Live::Undecided(way) => request.wait(&way, is_active)?,
                    }
                }
                Err(error) => {
                    self.core.locks.release_unique(self.session, tree.space().id(), prefix);
                    return Err(error);
                }
            }
        }
    }

    fn live_with_prefix(
        &self,
        state: &TxnState,
        tree: &std::sync::Arc<Tree>,
        prefix: &[u8],
    ) -> Result<Option<Live>> {
        let mut cursor = crate::tree::Cursor::new(tree.clone(), Access::Normal);
        let mut valid = cursor.seek(crate::tree::Seek::AtLeast(prefix))?;
        while valid && cursor.key().starts_with(prefix) {
            // The cursor's copy may be older than a roll back.
            if let Some((head, active)) = self.newest(state, tree, cursor.key())? {
                if active {
                    return Ok(Some(Live::Undecided(InTheWay::Txn(head.txn))));
                }
                if !head.deleted() {
                    return Ok(Some(Live::Entry));
                }
            }
            valid = cursor.next()?;
        }
        Ok(None)
    }

    /// The head of the value at `key`, and whether another transaction that wrote it is active. It is asked under the
    /// leaf's latch, which a rollback needs too: so what no active transaction wrote is committed, or this transaction's own.
    fn newest(&self, state: &TxnState, tree: &Tree, key: &[u8]) -> Result<Option<(Head, bool)>> {
        tree.get(key, Access::Normal, |value| {
            let Some(value) = value else { return Ok(None) };
            let head = head_of(value)?;
            Ok(Some((head, self.is_others(state.id, head))))
        })?
    }

    /// Reads the row at `key` into `out`. False if there is none. With a lock: the latest committed
    /// version, locked until the transaction ends.
    pub fn get(&self, table: &Table, key: &[u8], lock: Lock, out: &mut Vec<u8>) -> Result<bool> {
        if let Some(side) = self.side(table) {
            return side.get(table, key, lock, out);
        }
        let _scope = self.cancellable();
        match lock {
            Lock::None => {
                let reader = self.reader();
                self.read(table, reader, key, WantedParts::ALL, out, &mut Vec::new())
            }
            Lock::Shared => self.get_locked(table, key, Mode::Shared, out),
            Lock::Exclusive => self.get_locked(table, key, Mode::Exclusive, out),
        }
    }

    /// A consistent read of one row that does no I/O: for fronts without a thread a request. A large value is read as well if all its
    /// pages are in memory. A miss is the front's to hand to a thread that may wait, in [`Txn::get`]. No other thread uses the transaction meanwhile.
    pub fn try_get(&self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<TryGet> {
        if let Some(side) = self.side(table) {
            return side.try_get(table, key, out);
        }
        let reader = self.reader();
        let tree = table.tree(0)?;
        let mut large = None;
        let found = tree.try_get(key, Access::Normal, |value| {
            let Some((head, row)) = value.and_then(Head::decode) else {
                // What makes no sense is the waiting reader's to name.
                return if value.is_none() { TryGet::Absent } else { TryGet::WouldBlock };
            };
            match reader.sees(&self.core, head.txn) {
                true if head.deleted() => TryGet::Absent,
                true if head.in_leaf() => {
                    out.clear();
                    out.extend_from_slice(row);
                    TryGet::Hit
                }
                true if head.large() => {
                    large = Large::decode(row);
                    TryGet::WouldBlock
                }
                false if head.roll.is_fresh() => TryGet::Absent,
                // Its past, or its parts, may be anywhere.
                _ => TryGet::WouldBlock,
            }
        })?;
        // Pages of large values are latched without the leaf. One that is freed meanwhile is no longer the value's, which each page tells.
        if let Some(large) = large {
            out.clear();
            let read = overflow::try_read(tree.space(), large, Access::Normal, out);
            return Ok(if read { TryGet::Hit } else { TryGet::WouldBlock });
        }
        Ok(found.unwrap_or(TryGet::WouldBlock))
    }

    /// A consistent read of one row, or of what is wanted of it (`off_page::open`).
    pub(crate) fn read(
        &self,
        table: &Table,
        reader: Reader,
        key: &[u8],
        asked: WantedParts<'_>,
        out: &mut Vec<u8>,
        holes: &mut Vec<Hole>,
    ) -> Result<bool> {
        let tree = table.tree(0)?;
        for _ in 0..STALE_MAX {
            let near = tree.get(key, Access::Normal, |value| match value {
                None => Near::Nothing,
                Some(value) => match Head::decode(value) {
                    Some((head, row)) if head.in_leaf() && reader.sees(&self.core, head.txn) => {
                        if head.deleted() {
                            return Near::Nothing;
                        }
                        out.clear();
                        holes.clear();
                        out.extend_from_slice(row);
                        Near::Row
                    }
                    // Its past, what it refers to or what is wrong with it is looked at without the latch.
                    _ => Near::Value(value.to_vec()),
                },
            })?;
            let value = match near {
                Near::Nothing => return Ok(false),
                Near::Row => return Ok(true),
                Near::Value(value) => value,
            };
            let value = match seen(&self.core, reader, table.id, 0, key, &value)? {
                VisibleVersion::Current => value,
                VisibleVersion::Past(past) => past,
                VisibleVersion::Nothing => return Ok(false),
                VisibleVersion::Stale => continue,
            };
            match off_page::open(table, &value, asked, out, holes)? {
                Opened::Whole => return Ok(true),
                Opened::Stale => {}
                // A reader of uncommitted data reads it as it will be after a rollback.
                Opened::Hollow(_) if reader.view.is_none() => {
                    return self.with_view_of_now(|now| self.read(table, now, key, asked, out, holes));
                }
                Opened::Hollow(page) => return Err(TreeError::Hollow { page }.into()),
            }
        }
        Err(Error::Unavailable("a row changes faster than it can be read".into()))
    }

    /// From now on, or no longer, the transaction refuses waits: what would have to wait, for I/O too, fails with
    /// [`Error::Cancelled`] and changes nothing. To roll back may wait all the same. It refuses at once if the log is behind.
    pub fn refuse_waits(&self, on: bool) {
        self.cancel.refuse_waits(on);
        if on && self.core.storage.log.is_behind() {
            self.cancel.refuses(terrace_io::observe::Wait::LogRoom, 0);
        }
    }
    /// What it refused to wait for first, and the [`Txn::session`] that holds it up (0: none). A change may have succeeded and be
    /// noted here: it was to be slowed down.
    pub fn refused(&self) -> Option<(terrace_io::observe::Wait, u64)> {
        self.cancel.refused()
    }
    /// The number by which lock waits name the transaction.
    pub fn session(&self) -> u64 {
        self.session
    }
    /// Whether a row of `bytes` bytes makes its commit wait for the volume: its bytes bypass the log.
    pub fn waits_for_volume(&self, row: usize) -> bool {
        self.core.passes_by_log(row)
    }

    /// Has pages fetched that reads of these keys of an index need and that are not in memory, side by side; 0 is the rows' own. Advice: it neither
    /// waits nor fails.
    pub fn fetch_soon<'k>(&self, table: &Table, index: usize, keys: impl Iterator<Item = &'k [u8]>) {
        let Ok(tree) = table.tree(index) else { return };
        let mut last = None;
        for id in keys.filter_map(|key| tree.missing(key)) {
            if last != Some(id) && !tree.pages().fetch_soon(id) {
                return;
            }
            last = Some(id);
        }
    }

    pub(crate) fn with_state<R>(&self, work: impl FnOnce(&mut TxnState) -> R) -> R {
        work(&mut self.state.lock())
    }
    pub(crate) fn core(&self) -> &crate::txn::shared::Core {
        &self.core
    }
}

/// What a consistent read found under the leaf's latch.
enum Near {
    Nothing,
    /// The row is copied.
    Row,
    /// The value as it is in the tree.
    Value(Vec<u8>),
}

/// What keeps a unique key from being inserted.
enum Live {
    Entry,
    Undecided(InTheWay),
}
