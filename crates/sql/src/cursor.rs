//! Cursors at the border. One call positions, one call hands over a batch of rows.
//!
//! The rows handed over are an array that points into the cursor's own memory: what it copied of a leaf, as a rule, else
//! a buffer. A batch has the same rows in one run of bytes: for each a head of 16 bytes (`terrace_row_head`, not aligned),
//! then the entry's key, then the value. Both live until the cursor's next call. A cursor that locks hands over one row
//! at a time, so that no row is locked that the reader has not reached; more only if the reader says that it needs all of them.

mod fill;

use crate::bytes::TerraceBytes;
use crate::catalog::TerraceTable;
use crate::error::{Code, Fault, guard};
use crate::transaction::{TerraceTxn, lock_of};
pub(crate) use fill::append_row;
use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use terrace_engine::Access;
use terrace_engine::Account;
use terrace_engine::Buffers;
use terrace_engine::Cursor;
use terrace_engine::Lock;

/// A position in one index. Freed by `terrace_cursor_close`, before its transaction.
pub struct TerraceCursor {
    cursor: OpenCursor,
    primary: bool,
    locking: bool,
    rows: Vec<TerraceRow>,
    /// Of `rows`.
    bytes: usize,
    /// Copies of leaves that the rows lie in.
    copies: usize,
    /// What is not in the copy of the leaf.
    buffer: Vec<u8>,
    row: Vec<u8>,
    /// Of `rows`.
    holes: Vec<TerraceHole>,
    /// While it is closed: the memory of the cursor that was in it.
    memory: Buffers,
    /// Counts the memory of all of this.
    account: Account,
}

/// Where a cursor is while it is open. It is large, and opened and closed with every statement: so it is made and ends in place.
#[derive(Default)]
struct OpenCursor(Option<Cursor>);

impl Deref for OpenCursor {
    type Target = Cursor;
    #[inline]
    fn deref(&self) -> &Cursor {
        self.0.as_ref().expect("a cursor that is used is open")
    }
}

impl DerefMut for OpenCursor {
    #[inline]
    fn deref_mut(&mut self) -> &mut Cursor {
        self.0.as_mut().expect("a cursor that is used is open")
    }
}

/// The number of closed ones that a thread keeps for its next cursors, and of each no vector of values that is longer.
const SPARES: usize = 2;
const SPARE_BYTES: usize = 1 << 16;
/// If a batch's share of memory is below this, a closed cursor's memory is freed, not kept.
const KEPT_FROM: usize = 64 << 10;

thread_local! {
    #[expect(clippy::vec_box, reason = "a cursor stays where it is")]
    static SPARE: RefCell<Vec<Box<TerraceCursor>>> = const { RefCell::new(Vec::new()) };
}

impl TerraceCursor {
    /// A closed one.
    fn take() -> Box<TerraceCursor> {
        SPARE.try_with(|spares| spares.borrow_mut().pop()).ok().flatten().unwrap_or_else(|| {
            Box::new(TerraceCursor {
                cursor: OpenCursor::default(),
                primary: false,
                locking: false,
                rows: Vec::new(),
                bytes: 0,
                copies: 0,
                buffer: Vec::new(),
                row: Vec::new(),
                holes: Vec::new(),
                memory: Buffers::default(),
                account: Account::default(),
            })
        })
    }

    /// Bytes that it has reserved.
    fn reserved(&self) -> usize {
        let cursor = self.cursor.0.as_ref().map_or_else(|| self.memory.memory(), |cursor| cursor.memory());
        let rows =
            self.rows.capacity() * size_of::<TerraceRow>() + self.holes.capacity() * size_of::<TerraceHole>();
        cursor + rows + self.buffer.capacity() + self.row.capacity()
    }

    /// Closes it, and keeps its memory.
    fn put(mut self: Box<TerraceCursor>) {
        let (room, counted) = (self.cursor.room(), self.account.counted());
        let is_short = room.share(counted) < KEPT_FROM || !room.may_keep(counted);
        let Self { cursor, memory, rows, holes, buffer, row, .. } = &mut *self;
        cursor.end_into(memory);
        cursor.0 = None;
        if is_short {
            // Open cursors need it.
            *memory = Buffers::default();
            (*rows, *holes, *buffer, *row) = Default::default();
        }
        rows.clear();
        holes.clear();
        for bytes in [buffer, row] {
            bytes.clear();
            bytes.shrink_to(SPARE_BYTES);
        }
        self.account.set(self.reserved());
        // At a thread's very end nothing is kept.
        let _ = SPARE.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARES {
                spares.push(self);
            }
        });
    }
}

/// How to open a cursor.
#[repr(C)]
pub struct TerraceCursorOptions {
    pub size: usize,
    pub index: u32,
    /// A `terrace_lock`.
    pub lock: u32,
    /// A long scan: it doesn't push other pages out of memory.
    pub scan: bool,
    /// Rows that others have locked are left out instead of waited for.
    pub skip_locked: bool,
    /// A locking reader reads all rows up to the end: they may be locked some at a time.
    pub reads_all: bool,
    /// Only rows are locked, whatever the isolation level keeps free between them.
    pub rows_alone: bool,
}

/// Where to go.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TerraceSeek {
    /// The first key ≥ the given one.
    AtLeast = 0,
    /// The first key > the given one.
    After = 1,
    /// The last key ≤ the given one.
    AtMost = 2,
    /// The last key < the given one.
    Before = 3,
    First = 4,
    Last = 5,
    /// The next row after the cursor's.
    Next = 6,
    /// The row before the cursor's.
    Previous = 7,
}

/// What a batch holds beside each entry's key.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TerraceWant {
    /// The row, whichever index the cursor is in.
    Row = 0,
    /// What the index itself holds: the entry's own value; in the primary index the row.
    Entry = 1,
    /// As `Row`; but of a row that has no room in its leaf only the first bytes (`terrace_fetch.first_bytes`), or nothing.
    /// Every other row is whole, and none of these is empty.
    Start = 2,
}

/// What a filter says of an entry.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TerraceVerdict {
    /// Not this one; on to the next.
    Skip = 0,
    /// Its row is wanted.
    Keep = 1,
    /// Nothing is wanted from here on.
    End = 2,
    /// The call ends with `TERRACE_CANCELLED`.
    Cancel = 3,
    /// It is no entry of this index; the call ends with `TERRACE_CORRUPT`.
    Damaged = 4,
}

/// Judges an entry before its row is read: a `terrace_verdict`. All that is passed is borrowed for the callback, which
/// must not use the cursor. `primary_at` is where in the key the primary key starts.
pub type TerraceFilterFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: TerraceBytes,
        primary_at: u32,
        value: TerraceBytes,
    ) -> i32,
>;

/// Whether a part of a row that is kept apart from it is wanted. `row` is what is left of the row, `name` what the part's span was
/// called. All that is passed is borrowed for the callback, which must not use the cursor.
pub type TerracePartFn =
    Option<unsafe extern "C" fn(context: *mut c_void, row: TerraceBytes, name: u32) -> bool>;

/// What to fetch.
#[repr(C)]
pub struct TerraceFetch {
    pub size: usize,
    /// A `terrace_seek`. Further rows of the batch follow in the same direction.
    pub seek: u32,
    /// A `terrace_want`.
    pub want: u32,
    pub key: TerraceBytes,
    /// Stop after the first row whose key doesn't start with these bytes (that row is not handed over). Empty: never.
    pub prefix: TerraceBytes,
    /// As with `prefix`, the first key that is not below these bytes ends a read upward that locks nothing. Empty: none does. For a read
    /// that locks: rows from there on are locked when they are asked for, not before.
    pub end: TerraceBytes,
    /// Null: every entry is wanted.
    pub filter: TerraceFilterFn,
    /// Null: all parts of rows are wanted. Else where others are missing `terrace_rows.first_hole` says.
    pub parts: TerracePartFn,
    /// For the filter, and for `parts`.
    pub context: *mut c_void,
    /// The maximum number of rows (at least one is tried); a cursor that locks hands over one, or those that were locked with it.
    pub max_rows: u32,
    /// No further row is begun once the batch is so large.
    pub max_bytes: u32,
    /// With `TERRACE_WANT_START`: this many bytes, or all if the row has fewer. A row with parts that are kept apart is whole except for
    /// those parts, unless this is 0.
    pub first_bytes: u32,
}

/// The rows fetched.
#[repr(C)]
pub struct TerraceBatch {
    pub size: usize,
    pub rows: u32,
    /// Nothing follows: the index ended, or the prefix did. (False doesn't mean that something follows.)
    pub ended: bool,
    pub data: TerraceBytes,
}

/// Stands before each row of a batch, in the machine's byte order.
#[repr(C)]
pub struct TerraceRowHead {
    pub key_len: u32,
    /// Where in the key the primary key starts.
    pub primary_at: u32,
    pub value_len: u32,
    pub reserved: u32,
}

/// The rows fetched, where they lie.
#[repr(C)]
pub struct TerraceRows {
    pub size: usize,
    pub count: u32,
    /// As in `terrace_batch`.
    pub ended: bool,
    pub first: *const TerraceRow,
    /// Those of all rows, one behind the other: see `terrace_row.holes`.
    pub first_hole: *const TerraceHole,
}

/// One of the rows fetched.
#[repr(C)]
pub struct TerraceRow {
    pub key: TerraceBytes,
    pub value: TerraceBytes,
    /// Where in the key the primary key starts.
    pub primary_at: u32,
    /// The number of places in which bytes of the value are missing.
    pub holes: u32,
}

/// Where a part is missing in a value.
#[repr(C)]
pub struct TerraceHole {
    pub at: u32,
    /// The number of bytes that belong there.
    pub len: u32,
    /// What the part's span was called.
    pub name: u32,
}

/// # Safety
/// The handles are open, `options` and `out` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cursor_open(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    options: *const TerraceCursorOptions,
    out: *mut *mut TerraceCursor,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, table, options) = unsafe { (&*txn, &*table, &*options) };
        if options.size != size_of::<TerraceCursorOptions>() {
            return Err(Fault::invalid("terrace_cursor_options of another version".into()));
        }
        let lock = lock_of(options.lock)?;
        let access = if options.scan { Access::Scan } else { Access::Normal };
        let mut cursor = TerraceCursor::take();
        let memory = &mut cursor.memory;
        let place = &mut cursor.cursor.0;
        txn.txn.cursor_in(&table.table, options.index as usize, lock, access, memory, place)?;
        cursor.account.enter(cursor.cursor.room());
        (cursor.primary, cursor.locking) = (options.index == 0, lock != Lock::None);
        (cursor.bytes, cursor.copies) = (0, 0);
        if options.skip_locked {
            cursor.cursor.skip_locked();
        }
        if options.rows_alone {
            cursor.cursor.lock_rows_alone();
        }
        cursor.cursor.lock_ahead(options.reads_all);
        // SAFETY: the caller's promise.
        unsafe { *out = Box::into_raw(cursor) };
        Ok(Code::Ok)
    })
}

/// Frees the cursor; null is fine.
///
/// # Safety
/// `cursor` came from this library and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cursor_close(cursor: *mut TerraceCursor) {
    guard(|| {
        if !cursor.is_null() {
            // SAFETY: the caller's promise.
            unsafe { Box::from_raw(cursor) }.put();
        }
        Ok(Code::Ok)
    });
}

/// Positions and fetches. A row that a filter skips in READ COMMITTED gives its lock back. `TERRACE_NO_ROW` if the first row
/// is not there; fewer rows than asked for doesn't mean the end.
///
/// # Safety
/// `cursor` is open, `fetch` and what it points to are valid during the call, `rows` is valid and its `size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cursor_fetch_rows(
    cursor: *mut TerraceCursor,
    fetch: *const TerraceFetch,
    rows: *mut TerraceRows,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (cursor, fetch, rows) = unsafe { (&mut *cursor, &*fetch, &mut *rows) };
        if fetch.size != size_of::<TerraceFetch>() || rows.size != size_of::<TerraceRows>() {
            return Err(Fault::invalid("terrace_fetch or terrace_rows of another version".into()));
        }
        (rows.count, rows.ended, rows.first, rows.first_hole) =
            (0, false, std::ptr::null(), std::ptr::null());
        // SAFETY: the caller's promise.
        rows.ended = unsafe { cursor.fetch(fetch)? };
        (rows.count, rows.first) = (cursor.rows.len() as u32, cursor.rows.as_ptr());
        rows.first_hole = cursor.holes.as_ptr();
        Ok(if rows.count > 0 { Code::Ok } else { Code::NoRow })
    })
}

/// As `terrace_cursor_fetch_rows`, the rows one behind the other in one run of bytes. Their parts are wanted, all of them.
///
/// # Safety
/// `cursor` is open, `fetch` and what it points to are valid during the call, `batch` is valid and its `size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cursor_fetch(
    cursor: *mut TerraceCursor,
    fetch: *const TerraceFetch,
    batch: *mut TerraceBatch,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (cursor, fetch, batch) = unsafe { (&mut *cursor, &*fetch, &mut *batch) };
        if fetch.size != size_of::<TerraceFetch>() || batch.size != size_of::<TerraceBatch>() {
            return Err(Fault::invalid("terrace_fetch or terrace_batch of another version".into()));
        }
        if fetch.parts.is_some() {
            return Err(Fault::invalid("a batch of packed rows has no room for holes".into()));
        }
        (batch.rows, batch.ended, batch.data) = (0, false, TerraceBytes::EMPTY);
        // SAFETY: the caller's promise.
        batch.ended = unsafe { cursor.fetch(fetch)? };
        let mut packed = std::mem::take(&mut cursor.row);
        packed.clear();
        for row in &cursor.rows {
            // SAFETY: the cursor's memory stays until its next call.
            let (key, value) = unsafe { (row.key.get(), row.value.get()) };
            append_row(&mut packed, key, row.primary_at as usize, value);
        }
        cursor.row = packed;
        (batch.rows, batch.data) = (cursor.rows.len() as u32, TerraceBytes::of(&cursor.row));
        Ok(if batch.rows > 0 { Code::Ok } else { Code::NoRow })
    })
}

/// From now on, or no longer, a row that another transaction has locked is fetched as it was last committed, and not locked
/// (a semi-consistent read, below REPEATABLE READ and in the primary index).
///
/// # Safety
/// `cursor` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cursor_set_semi_consistent(cursor: *mut TerraceCursor, on: bool) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &mut *cursor }.cursor.set_semi_consistent(on);
        Ok(Code::Ok)
    })
}

/// From now on, or no longer, who reads with locks reads all rows up to the end, or to that of each fetch, and changes none before it is
/// fetched: they may be locked some at a time.
///
/// # Safety
/// `cursor` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cursor_set_reads_all(cursor: *mut TerraceCursor, on: bool) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &mut *cursor }.cursor.lock_ahead(on);
        Ok(Code::Ok)
    })
}

/// Whether the row fetched last is a committed version that is not locked.
///
/// # Safety
/// `cursor` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cursor_is_semi_consistent(cursor: *const TerraceCursor) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*cursor }.cursor.is_semi_consistent()
}

/// Gives back the lock on the row fetched last (READ COMMITTED: the row didn't match).
///
/// # Safety
/// `cursor` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cursor_unlock_last(cursor: *mut TerraceCursor) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &mut *cursor }.cursor.unlock_last();
        Ok(Code::Ok)
    })
}
