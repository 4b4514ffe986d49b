//! Rows at the border: one row with its entries.

use crate::bytes::TerraceBytes;
use crate::catalog::TerraceTable;
use crate::error::{Code, Fault, Result, guard};
use crate::transaction::{TerraceTxn, lock_of};
use terrace_engine::Entry;

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
    if count <= FEW {
        let few: [Entry<'_>; FEW] = std::array::from_fn(|at| one(&raw[at.min(count - 1)]));
        body(&few[..count])
    } else {
        body(&raw.iter().map(one).collect::<Vec<_>>())
    }
}

/// Inserts a row and its entries in secondary indexes. On an error the row is not there.
///
/// # Safety
/// The handles are open; all bytes live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_insert(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    key: TerraceBytes,
    row: TerraceBytes,
    entries: *const TerraceEntry,
    entry_count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (txn, table) = (&(*txn).txn, &(*table).table);
            with_entries(entries, entry_count, |entries| {
                Ok(txn.insert(table, key.get(), row.get(), entries)?)
            })?;
        }
        Ok(Code::Ok)
    })
}

/// Replaces the row with this key. `old_entries` and `new_entries` are only those that change.
///
/// # Safety
/// As `terrace_row_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_row_update(
    txn: *mut TerraceTxn,
    table: *const TerraceTable,
    key: TerraceBytes,
    row: TerraceBytes,
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
                    Ok(txn.update(table, key.get(), row.get(), old, new)?)
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
