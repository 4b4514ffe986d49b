//! Cursors over what a transaction sees of an index, in key order, both ways.
//!
//! Without a lock: the versions that the transaction's view sees; an entry's own past decides, so the
//! primary tree is read only for rows that are asked for. With a lock: the newest committed rows,
//! each locked before it is returned (for a secondary index the entry and the row). From REPEATABLE READ on
//! such a cursor also keeps others from inserting between the rows it returns, and from where it was told
//! to start up to where its prefix ends.
//!
//! Beside the usual path:
//!
//! * Scattered rows of a secondary index, and leaves for a row's entries, that only the store has are fetched in parallel (`fetching.rs`,
//!   `txn/rows/far.rs`: `Cursor::reads_row`, `Far::ask`, `Pages::fetch_soon`).
//! * A locking scan reads and locks under one shared latch; locks of neighbouring rows merge into one range (`locking.rs`, `lock/rows.rs`:
//!   `lock_in_place`, `Locks::take_next_key`).
//! * A statement that locks a whole table or range locks all rows that the scan has copied of a leaf at once, ahead of the reader (`ahead.rs`,
//!   `lock/rows.rs`: `lock_following`, `Locks::take_following`).

mod ahead;
mod fetching;
mod locking;
mod visible;

use crate::error::{Error, Result};
use crate::row::off_page::Hole;
use crate::row::{self, Head};
use crate::table::Table;
use crate::tree;
use crate::txn::cancel::Scope;
pub use crate::txn::cursor_memory::{Account, CursorMemory, PLENTY};
use crate::txn::rows::off_page::{PartFilter, WantedParts, payload};
use crate::txn::version::Reader;
use crate::txn::{Lock, Txn};
use fetching::Fetching;
use locking::{InPlace, Last, Taken};
use std::sync::Arc;
use terrace_tier::memory::pool::Access;

/// Where to start, relative to a key; `First` and `Last` need none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    AtLeast,
    After,
    AtMost,
    Before,
    First,
    Last,
}

/// What came of [`Cursor::lock_row`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowLock {
    Locked,
    /// It went meanwhile: [`Cursor::again`] looks at its entry anew.
    Gone,
    /// Another session has it, and rows that are locked are left out.
    Skipped,
}

/// What there is at an entry for the reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryVisibility {
    Seen,
    Nothing,
    /// Something, but another session has locked it.
    Skipped,
}

/// More bytes than this are not kept for the next cursor.
const KEPT_MAX: usize = 1 << 16;

/// The memory of a cursor that is gone, for the next one.
#[derive(Default)]
pub struct Buffers {
    tree: tree::Buffers,
    /// State of the cursor that reads the rows of entries.
    rows: tree::Buffers,
    prefix: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    rest: Vec<u8>,
}

impl Buffers {
    /// Bytes that are reserved.
    pub fn memory(&self) -> usize {
        let bytes = [&self.key, &self.value, &self.rest].map(|bytes| bytes.capacity()).iter().sum::<usize>();
        self.tree.memory() + self.rows.memory() + bytes
    }
}

pub struct Cursor {
    txn: Arc<Txn>,
    table: Arc<Table>,
    index: usize,
    lock: Lock,
    cursor: tree::Cursor,
    /// In the primary tree, for the rows of entries: neighbours' rows are often in one leaf.
    rows: Option<Box<tree::Cursor>>,
    /// Memory for it.
    for_rows: tree::Buffers,
    /// Keys that don't start with it are the end (see [`Cursor::set_prefix`]).
    prefix: Vec<u8>,
    /// The row is as the tree's cursor has it: its key and value are read there, not copied.
    in_place: bool,
    /// The reader, for as long as a batch is handed over; None outside of one.
    reader: Option<Reader>,
    key: Vec<u8>,
    /// The value seen, with its head.
    value: Vec<u8>,
    /// The row or the extra bytes.
    rest: Vec<u8>,
    primary_at: usize,
    /// The number of bytes that are read of a large row, and the parts that are wanted of one with parts.
    enough: usize,
    parts: Option<Box<PartFilter>>,
    /// Where parts are missing in the row that was read last.
    holes: Vec<Hole>,
    /// Rows that others have locked are left out instead of waited for.
    skips_locked: bool,
    /// If another session has locked a row, its committed version is returned, not locked.
    wants_semi: bool,
    /// The row at hand is such a version.
    semi: bool,
    /// The value is the row's, as it was when it was locked for the entry at hand.
    has_row: bool,
    /// The locks on the entry at hand and on its row are new.
    taken: Taken,
    /// The entry that was locked last, and the row that was locked last for an entry: the next lock may be one with it.
    last_entry: Last,
    last_row: Last,
    /// Whether the gaps between rows are locked.
    locks_gaps: bool,
    /// Up to where (from where, backward) gaps are locked: the key from which on a forward scan still looks, the key
    /// below which a backward scan does. None: the end of the tree.
    edge: Option<Vec<u8>>,
    /// The edge is the key of the row at hand.
    on_edge: bool,
    /// Rows of entries are locked by [`Cursor::lock_row`], not when their entries are found.
    rows_later: bool,
    /// The reader wants no rows of entries.
    entries_only: bool,
    /// The entry at hand is locked, and its row not yet.
    row_open: bool,
    /// Rows may be locked before they are asked for (`ahead`), and this many that follow the one at hand are.
    locks_ahead: bool,
    ahead_end: Vec<u8>,
    ahead: usize,
    fetching: Fetching,
}

impl Cursor {
    /// Makes one where it is going to stay, which is empty: it is large.
    pub(crate) fn put(
        txn: Arc<Txn>,
        table: Arc<Table>,
        index: usize,
        lock: Lock,
        access: Access,
        memory: &mut Buffers,
        place: &mut Option<Cursor>,
    ) -> Result<()> {
        assert!(place.is_none(), "a cursor is made in an empty place");
        // A locking reader sees the latest rows, unless it is not to lock what its view does not see: none of these rows tells when it changed.
        let view = if lock == Lock::None { txn.view() } else { txn.strict_view() };
        if view.is_some_and(|view| !table.is_usable(index, view)) {
            return Err(Error::Changed(format!("table {}", table.name())));
        }
        let mut cursor = tree::Cursor::with(table.tree(index)?, access, &mut memory.tree);
        if lock != Lock::None {
            cursor.set_checked();
        }
        let locks_gaps = lock != Lock::None && txn.locks_gaps();
        *place = Some(Cursor {
            locks_gaps,
            edge: None,
            on_edge: false,
            txn,
            table,
            index,
            lock,
            cursor,
            rows: None,
            for_rows: std::mem::take(&mut memory.rows),
            prefix: std::mem::take(&mut memory.prefix),
            in_place: false,
            reader: None,
            key: std::mem::take(&mut memory.key),
            value: std::mem::take(&mut memory.value),
            rest: std::mem::take(&mut memory.rest),
            primary_at: 0,
            enough: usize::MAX,
            parts: None,
            holes: Vec::new(),
            skips_locked: false,
            wants_semi: false,
            semi: false,
            has_row: false,
            taken: Taken::default(),
            last_entry: Last::default(),
            last_row: Last::default(),
            rows_later: false,
            entries_only: false,
            row_open: false,
            locks_ahead: false,
            ahead_end: Vec::new(),
            ahead: 0,
            fetching: Fetching::default(),
        });
        Ok(())
    }

    /// Puts the cursor's memory there, for the next one; nothing is in it, and what a large value took is given back. The cursor is good for
    /// nothing any more.
    pub fn end_into(&mut self, memory: &mut Buffers) {
        self.cursor.end_into(&mut memory.tree);
        match &mut self.rows {
            Some(rows) => rows.end_into(&mut memory.rows),
            None => memory.rows = std::mem::take(&mut self.for_rows),
        }
        let Cursor { prefix, key, value, rest, .. } = self;
        for (bytes, kept) in [
            (prefix, &mut memory.prefix),
            (key, &mut memory.key),
            (value, &mut memory.value),
            (rest, &mut memory.rest),
        ] {
            *kept = std::mem::take(bytes);
            kept.clear();
            kept.shrink_to(KEPT_MAX);
        }
    }

    /// From now on, or no longer, the reader asks for entries, not for their rows.
    pub fn set_entries_only(&mut self, on: bool) {
        self.entries_only = on;
    }

    /// From now on rows that others have locked are left out (`SKIP LOCKED`). Nothing for a cursor that locks nothing.
    pub fn skip_locked(&mut self) {
        self.skips_locked = true;
    }

    /// From now on, or no longer, a row that another session has locked is returned as it was last committed, and not locked: a reader
    /// that doesn't want that version needn't wait for the row. For cursors over rows that lock no gaps; others wait in any case.
    pub fn set_semi_consistent(&mut self, on: bool) {
        self.wants_semi = on;
    }
    /// Whether the row at hand is a committed version that is not locked.
    pub fn is_semi_consistent(&self) -> bool {
        self.semi
    }
    fn semi_consistent(&self) -> bool {
        self.wants_semi && self.index == 0 && !self.locks_gaps && self.txn.reads_beside_locks()
    }

    pub fn seek(&mut self, key: &[u8], seek: Seek) -> Result<bool> {
        let _scope = self.txn.cancellable();
        let to = match seek {
            Seek::AtLeast => tree::Seek::AtLeast(key),
            Seek::After => tree::Seek::After(key),
            Seek::AtMost => tree::Seek::AtMost(key),
            Seek::Before => tree::Seek::Before(key),
            Seek::First => tree::Seek::First,
            Seek::Last => tree::Seek::Last,
        };
        if self.lock == Lock::None && self.reader.is_none() {
            // The view is older than what is copied under it: else a value could be rolled back in between, and forgotten
            // before the view asks whose it was.
            self.txn.reader();
        }
        self.row_open = false;
        self.last_entry.forget();
        let valid = self.cursor.seek(to)?;
        let backward = matches!(seek, Seek::AtMost | Seek::Before | Seek::Last);
        self.fetching.begin(backward);
        if self.locks_gaps {
            self.on_edge = false;
            self.edge = match seek {
                Seek::First => Some(Vec::new()),
                Seek::Last => None,
                Seek::AtLeast | Seek::Before => Some(key.to_vec()),
                // Before the key that follows it at once.
                Seek::After | Seek::AtMost => Some([key, &[0]].concat()),
            };
        }
        self.settle(valid, backward)
    }

    /// From now on the first key that doesn't start with `prefix` ends the cursor: it is neither returned nor
    /// locked. The empty prefix ends nothing.
    pub fn set_prefix(&mut self, prefix: &[u8]) {
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
    }

    /// From now on the first key that is not below `end` ends the way up of a cursor that locks nothing. Empty: none does.
    pub fn set_end(&mut self, end: &[u8]) {
        debug_assert!(end.is_empty() || self.lock == Lock::None);
        self.cursor.set_end(end);
    }

    /// From now on only the first `bytes` bytes are read of a row that is not in its leaf; None: all. Rows in
    /// their leaf are always whole.
    pub fn set_enough(&mut self, bytes: Option<usize>) {
        self.enough = bytes.unwrap_or(usize::MAX);
    }
    /// From now on, of rows with parts that are kept apart, only those parts are read that `wants` says. None: all.
    pub fn set_parts(&mut self, wants: Option<Box<PartFilter>>) {
        self.parts = wants;
    }
    /// Where parts are missing in the row at hand: in [`Cursor::value`], or in what [`Cursor::row`] read last.
    pub fn holes(&self) -> &[Hole] {
        if self.in_place && self.index == 0 { &[] } else { &self.holes }
    }

    /// Looks again at the entry at hand, whose row is gone; if there is nothing any more, it goes on to the next.
    pub fn again(&mut self, backward: bool) -> Result<bool> {
        let _scope = self.txn.cancellable();
        self.row_open = false;
        self.settle(true, backward)
    }

    pub fn next(&mut self) -> Result<bool> {
        if self.ahead > 0 {
            self.next_of_ahead();
            return Ok(true);
        }
        self.leave_entry();
        let (_scope, valid) = self.step(false)?;
        self.settle(valid, false)
    }
    pub fn prev(&mut self) -> Result<bool> {
        self.leave_entry();
        let (_scope, valid) = self.step(true)?;
        self.settle(valid, true)
    }
    /// A step that may wait can be cancelled. Most steps hand out what is copied already, in few instructions; those that
    /// find more to do than that have a scope where they find it.
    fn step(&mut self, backward: bool) -> Result<(Option<Scope>, bool)> {
        self.fetching.steps(backward);
        if self.cursor.step_in_run(backward) {
            return Ok((None, true));
        }
        let scope = self.txn.cancellable();
        let valid = if backward { self.cursor.prev()? } else { self.cursor.next()? };
        Ok((Some(scope), valid))
    }

    /// From here to [`Cursor::batch_end`] the reader is one: several rows are read in one go, in
    /// which the transaction changes nothing and opens no new view.
    pub fn batch_begin(&mut self) {
        if self.lock == Lock::None {
            self.reader = Some(self.txn.reader());
        }
    }
    pub fn batch_end(&mut self) {
        self.reader = None;
    }
    fn reader(&self) -> Reader {
        self.reader.unwrap_or_else(|| self.txn.reader())
    }

    /// About how many entries the reader is going to ask for before it does something else; 0: it doesn't know.
    pub fn expect(&mut self, entries: usize) {
        self.cursor.expect(self.fetching.expected(entries));
    }
    /// The memory bound that all open cursors share.
    pub fn room(&self) -> &Arc<CursorMemory> {
        &self.txn.core().cursors
    }
    /// Bytes that the cursor has reserved for what it copies.
    pub fn memory(&self) -> usize {
        let rows = self.rows.as_ref().map_or(self.for_rows.memory(), |rows| rows.memory());
        let bytes = [&self.key, &self.value, &self.rest].map(|bytes| bytes.capacity()).iter().sum::<usize>();
        self.cursor.memory() + rows + bytes
    }
    /// Limits the number of entries that are copied at a time, and frees memory reserved for more with the next copy; `usize::MAX`: no limit.
    pub fn limit_runs(&mut self, entries: usize) {
        self.cursor.limit_runs(entries);
    }
    /// Whether key and value lie in what was copied of a leaf, which [`Cursor::hold`] keeps.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }
    /// What was copied with this entry stays where it is, up to [`Cursor::release`]. How many copies do so.
    pub fn hold(&mut self) -> usize {
        self.cursor.hold()
    }
    pub fn release(&mut self) {
        self.cursor.release();
    }

    /// The entry's key.
    pub fn key(&self) -> &[u8] {
        if self.in_place { self.cursor.key() } else { &self.key }
    }
    /// The row (primary index) or the extra bytes of a covering entry.
    pub fn value(&self) -> &[u8] {
        if !self.in_place {
            return &self.rest;
        }
        let value = self.cursor.value();
        match self.index {
            // None of it is wanted, or it wouldn't be read in place.
            0 if value.first().is_some_and(|flags| flags & (row::LARGE | row::APART) != 0) => &[],
            0 => value.get(row::head_len(value)..).unwrap_or(&[]),
            _ => value.get(row::head_len(value) + row::PRIMARY_AT..).unwrap_or(&[]),
        }
    }
    pub fn primary_key(&self) -> &[u8] {
        &self.key()[self.primary_at..]
    }

    /// Reads the row that the entry belongs to.
    ///
    /// False: a reader without a view has met an entry whose row has gone since.
    pub fn row(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        if self.index == 0 {
            out.clear();
            out.extend_from_slice(self.value());
            return Ok(true);
        }
        let mut holes = std::mem::take(&mut self.holes);
        let read = self.read_row(out, &mut holes);
        self.holes = holes;
        let found = read?;
        if found || (self.lock == Lock::None && self.reader().view.is_none()) {
            return Ok(found);
        }
        Err(self.without_row())
    }

    fn without_row(&self) -> Error {
        Error::Corrupt(format!("table {}: an entry of index {} has no row", self.table.name(), self.index))
    }

    fn read_row(&mut self, out: &mut Vec<u8>, holes: &mut Vec<Hole>) -> Result<bool> {
        holes.clear();
        if std::mem::take(&mut self.has_row) && payload(&self.table, &self.value, self.asked(), out, holes)? {
            return Ok(true);
        }
        let _scope = self.txn.cancellable();
        match self.lock {
            Lock::None => {
                let (reader, far) = (self.reader(), self.reads_row());
                let found = self.row_nearby(reader, out)?
                    || self.txn.read(&self.table, reader, self.primary_key(), self.asked(), out, holes)?;
                self.row_was_read(far);
                Ok(found)
            }
            // The row is locked since the entry was returned.
            lock => self.txn.get(&self.table, self.primary_key(), lock, out),
        }
    }
    fn asked(&self) -> WantedParts<'_> {
        WantedParts { enough: self.enough, parts: self.parts.as_deref() }
    }

    /// The row if what the tree has now is what the reader sees, all of it in the leaf. False: it is to
    /// be looked at more closely.
    fn row_nearby(&mut self, reader: Reader, out: &mut Vec<u8>) -> Result<bool> {
        let mut rows = match self.rows.take() {
            Some(rows) => rows,
            None => Box::new(tree::Cursor::with(self.table.tree(0)?, Access::Normal, &mut self.for_rows)),
        };
        let key = self.primary_key();
        let found = rows.seek(tree::Seek::AtLeast(key))? && rows.key() == key;
        let row = Head::decode(rows.value()).filter(|(head, _)| {
            found && !head.deleted() && head.in_leaf() && reader.sees(self.txn.core(), head.txn)
        });
        if let Some((_, row)) = row {
            out.clear();
            out.extend_from_slice(row);
        }
        let seen = row.is_some();
        self.rows = Some(rows);
        Ok(seen)
    }

    /// Goes on in the direction until there is something to see, and until it may be told.
    fn settle(&mut self, valid: bool, backward: bool) -> Result<bool> {
        let found = self.find(valid, backward);
        if self.lock != Lock::None {
            self.txn.tell()?;
        }
        found
    }

    /// Goes on in the direction until there is something to see.
    fn find(&mut self, mut valid: bool, backward: bool) -> Result<bool> {
        self.taken = Taken::default();
        self.has_row = false;
        self.in_place = false;
        self.semi = false;
        self.ahead = 0;
        loop {
            if valid && self.lock != Lock::None {
                match self.lock_in_place(backward)? {
                    InPlace::Locked => {
                        if !self.row_open {
                            self.pass_edge();
                        }
                        return Ok(true);
                    }
                    InPlace::Skipped if backward || !self.cursor.is_past_end() => {
                        if !crate::planted::PASSED_AGAIN.on() {
                            self.pass_edge();
                        }
                        (_, valid) = self.step(backward)?;
                        continue;
                    }
                    InPlace::Skipped | InPlace::Unusual => {}
                }
            }
            let _scope = (self.lock != Lock::None).then(|| self.txn.cancellable());
            if self.locks_gaps {
                valid = self.lock_gap(valid, backward)?;
            }
            if !valid || !self.is_wanted() || (!backward && self.cursor.is_past_end()) {
                break;
            }
            let seen = match self.lock {
                Lock::None => self.look()?,
                Lock::Shared | Lock::Exclusive => self.look_locked()?,
            };
            if seen == EntryVisibility::Seen {
                if !self.row_open {
                    self.pass_edge();
                }
                return Ok(true);
            }
            if self.locks_gaps && seen == EntryVisibility::Nothing && self.keep_key()? {
                continue; // Nothing was there, but something may have come before its place was kept.
            }
            // The gap up to this entry is locked: the next one begins here. Were the edge to stay where the scan began, each
            // gap that begins in another leaf would send the scan back to the edge, past all the entries between.
            if !crate::planted::PASSED_AGAIN.on() {
                self.pass_edge();
            }
            (_, valid) = self.step(backward)?;
        }
        self.key.clear();
        self.rest.clear();
        self.primary_at = 0;
        Ok(false)
    }

    /// Whether the entry's key starts with the prefix. Without a prefix no comparison is called, for a row takes few
    /// instructions more than one.
    fn is_wanted(&self) -> bool {
        self.prefix.is_empty() || self.cursor.key().starts_with(&self.prefix)
    }

    fn take_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.cursor.key());
    }
}
