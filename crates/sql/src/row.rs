//! Rows at the border: one row with its entries.

use crate::bytes::TerraceBytes;
use crate::catalog::TerraceTable;
use crate::error::{Code, Fault, Result, guard};
use crate::transaction::{TerraceTxn, lock_of};
use terrace_engine::Entry;
use terrace_engine::KeyChange;
use terrace_engine::Row;
use terrace_engine::Span;

/// An entry of a secondary index.
#[repr(C)]
pub struct TerraceEntry {
    pub size: usize,
    /// The index's place in the table's definition.
    pub index: u32,
    /// The index's columns, then the primary key.
    pub key: TerraceBytes,
    /// How many bytes of `key` must be unique; all ones if none (not a unique index, or a column is NULL).
    pub unique_len: usize,
    /// Where in `key` the primary key starts.
    pub primary_at: usize,
    /// Returned by reads of this index alone.
    pub value: TerraceBytes,
}

/// Up to this many entries are handed over without an allocation.
const FEW: usize = 16;

/// Hands `body` the entries as the engine wants them.
///
/// # Safety
/// `entries` points to `count` valid entries whose bytes live during the call.
pub(crate) unsafe fn with_entries<T>(
    entries: *const TerraceEntry,
    count: usize,
    body: impl FnOnce(&[Entry<'_>]) -> Result<T>,
) -> Result<T> {
    if count == 0 {
        return body(&[]);
    }
    // SAFETY: the caller's promise.
    let raw = unsafe { std::slice::from_raw_parts(entries, count) };
    if raw.iter().any(|entry| entry.size != size_of::<TerraceEntry>()) {
        return Err(Fault::invalid("terrace_entry of another version".into()));
    }
    let one = |entry: &TerraceEntry| Entry {
        index: entry.index as usize,
        // SAFETY: the caller's promise.
        key: unsafe { entry.key.get() },
        unique_len: (entry.unique_len != usize::MAX).then_some(entry.unique_len),
        primary_at: entry.primary_at,
        // SAFETY: the caller's promise.
        value: unsafe { entry.value.get() },
    };
    if let [only] = raw {
        body(&[one(only)])
    } else if count <= FEW {
        let few: [Entry<'_>; FEW] = std::array::from_fn(|at| one(&raw[at.min(count - 1)]));
        body(&few[..count])
    } else {
        body(&raw.iter().map(one).collect::<Vec<_>>())
    }
}

/// A run of a row's bytes that may be kept apart from the row, if its leaf has no room for all of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceSpan {
    pub at: u32,
    pub len: u32,
    /// What the caller calls it; below 65536.
    pub name: u32,
}

/// Hands `body` the row as the engine wants it.
///
/// # Safety
/// `row` lives during the call, `spans` points to `count` spans.
pub(crate) unsafe fn with_row<T>(
    row: TerraceBytes,
    spans: *const TerraceSpan,
    count: usize,
    body: impl FnOnce(Row<'_>) -> Result<T>,
) -> Result<T> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { row.get() };
    if count == 0 {
        return body(bytes.into());
    }
    // SAFETY: the caller's promise.
    let raw = unsafe { std::slice::from_raw_parts(spans, count) };
    let one = |span: &TerraceSpan| {
        let name =
            u16::try_from(span.name).map_err(|_| Fault::invalid("a span's name is too large".into()))?;
        Ok(Span { at: span.at, len: span.len, name })
    };
    let spans = raw.iter().map(one).collect::<Result<Vec<Span>>>()?;
    body(Row { bytes, spans: &spans })
}

/// Inserts a row and its entries in secondary indexes. On an error the row is not there. `spans` (null if there are none) are in
/// order, and don't touch.
///
/// # Safety
/// The handles are open; all bytes live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_insert(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    key: TerraceBytes,
    row: TerraceBytes,
    spans: *const TerraceSpan,
    span_count: usize,
    entries: *const TerraceEntry,
    entry_count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (txn, table) = (&(*txn).txn, &(*table).table);
            with_entries(entries, entry_count, |entries| {
                with_row(row, spans, span_count, |row| Ok(txn.insert(table, key.get(), row, entries)?))
            })?;
        }
        Ok(Code::Ok)
    })
}

/// Replaces the row with this key. `old_entries` and `new_entries` are only those that change. Bytes of a span that the row
/// has apart already are not written again.
///
/// # Safety
/// As `terrace_row_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_update(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    key: TerraceBytes,
    row: TerraceBytes,
    spans: *const TerraceSpan,
    span_count: usize,
    old_entries: *const TerraceEntry,
    old_count: usize,
    new_entries: *const TerraceEntry,
    new_count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (txn, table) = (&(*txn).txn, &(*table).table);
            with_entries(old_entries, old_count, |old| {
                with_entries(new_entries, new_count, |new| {
                    with_row(row, spans, span_count, |row| Ok(txn.update(table, key.get(), row, old, new)?))
                })
            })?;
        }
        Ok(Code::Ok)
    })
}

/// Deletes the row with this key and its entries.
///
/// # Safety
/// As `terrace_row_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_delete(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    key: TerraceBytes,
    entries: *const TerraceEntry,
    entry_count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (txn, table) = (&(*txn).txn, &(*table).table);
            with_entries(entries, entry_count, |entries| Ok(txn.delete(table, key.get(), entries)?))?;
        }
        Ok(Code::Ok)
    })
}

/// Stands before each change of `terrace_rows_change`, in the machine's byte order.
#[repr(C)]
pub struct TerraceChangeHead {
    /// 0 for a row, else the index's place in the table's definition.
    pub index: u32,
    pub key_len: u32,
    /// Where in the key the primary key starts.
    pub primary_at: u32,
    /// All ones: what is at the key goes, and no value follows.
    pub value_len: u32,
}

/// The change at the start of `bytes`, and its length; None if it is not whole.
fn change_of(bytes: &[u8]) -> Option<(KeyChange<'_>, usize)> {
    let (head, rest) = bytes.split_first_chunk::<{ size_of::<TerraceChangeHead>() }>()?;
    let number = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (key, rest) = rest.split_at_checked(number(4) as usize)?;
    let goes = number(12) == u32::MAX;
    let put = if goes { None } else { Some(rest.get(..number(12) as usize)?) };
    let change = KeyChange { index: number(0) as usize, key, primary_at: number(8) as usize, put };
    Some((change, head.len() + key.len() + put.map_or(0, <[u8]>::len)))
}

/// Changes and deletes rows that the transaction has locked, with their entries, as if `terrace_row_update` and `terrace_row_delete` were
/// called for each; no new entry must be unique. `changes` has, one behind the other, what becomes of each row and of each of its entries that
/// changes: a `terrace_change_head`, the key, then the row or the entry's value, if one is put. On an error nothing is changed.
///
/// # Safety
/// The handles are open, `changes` lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_rows_change(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    changes: TerraceBytes,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, table, mut bytes) = unsafe { (&(*txn).txn, &(*table).table, changes.get()) };
        let mut changes = Vec::with_capacity(bytes.len() / 64);
        while !bytes.is_empty() {
            let Some((change, len)) = change_of(bytes) else {
                return Err(Fault::invalid("a terrace_change_head that promises more than there is".into()));
            };
            changes.push(change);
            bytes = &bytes[len..];
        }
        txn.change_rows(table, &mut changes)?;
        Ok(Code::Ok)
    })
}

/// Locks the row with this key as it is now, without reading what it has: `TERRACE_NO_ROW` if there is none, and from REPEATABLE READ on none
/// comes then.
///
/// # Safety
/// The handles are open, `key` lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_lock(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    key: TerraceBytes,
    lock: u32,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, table, key) = unsafe { (&(*txn).txn, &(*table).table, key.get()) };
        Ok(if txn.lock(table, key, lock_of(lock)?)? { Code::Ok } else { Code::NoRow })
    })
}

/// Has the pages of an index fetched, side by side, that reads of these keys need and that are not in memory. Advice: it neither waits nor fails. Keys in
/// their order ask for no page twice. `index`: 0 is the rows' own.
///
/// # Safety
/// The handles are open; `keys` points to `count` keys, which live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_rows_fetch_soon(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    index: u32,
    keys: *const TerraceBytes,
    count: usize,
) {
    let _ = guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let keys = if count == 0 { &[] } else { std::slice::from_raw_parts(keys, count) };
            (*txn).txn.fetch_soon(&(*table).table, index as usize, keys.iter().map(|key| key.get()));
        }
        Ok(Code::Ok)
    });
}

/// The table's auto-increment counter is the transaction's until `terrace_row_counter_release`, which has to follow, whatever this returns: a session
/// that takes values from it asks `terrace_row_counter_is_locked` and waits here, too.
///
/// # Safety
/// The handles are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_counter_lock(txn: *mut TerraceTxn, table: *const TerraceTable) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, table) = unsafe { (&(*txn).txn, &(*table).table) };
        txn.lock_counter(table)?;
        Ok(Code::Ok)
    })
}

/// # Safety
/// The handles are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_counter_release(txn: *mut TerraceTxn, table: *const TerraceTable) {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, table) = unsafe { (&(*txn).txn, &(*table).table) };
        txn.release_counter(table);
        Ok(Code::Ok)
    });
}

/// Whether a transaction has the table's counter for itself, or waits for it.
///
/// # Safety
/// `table` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_counter_is_locked(table: *const TerraceTable) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*table }.table.counter_is_locked()
}

/// Reads the row with this key. `*row` belongs to the transaction and lives until its next `terrace_row_get`.
///
/// # Safety
/// The handles are open, `key` lives during the call, `row` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_get(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    key: TerraceBytes,
    lock: u32,
    row: *mut TerraceBytes,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let txn = &mut *txn;
            let found = txn.txn.get(&(*table).table, key.get(), lock_of(lock)?, &mut txn.row)?;
            *row = if found { TerraceBytes::of(&txn.row) } else { TerraceBytes::EMPTY };
            Ok(if found { Code::Ok } else { Code::NoRow })
        }
    })
}
