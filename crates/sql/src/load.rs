//! The first filling of a table, at the border.

use crate::alter::TerraceProgressFn;
use crate::bytes::TerraceBytes;
use crate::catalog::TerraceTable;
use crate::cursor::{TerraceBatch, append_row};
use crate::engine::TerraceEngine;
use crate::error::{Code, Fault, guard};
use crate::row::{TerraceEntry, TerraceSpan, with_entries, with_row};
use crate::transaction::TerraceTxn;
use std::ffi::c_void;
use terrace_engine::Load;

/// A table under its first filling. Freed by `terrace_load_close`.
pub struct TerraceLoad {
    load: Load,
    buffer: Vec<u8>,
}

/// Begins to fill an empty table (`TERRACE_INVALID` if it is not empty) that no other session knows. It cannot be
/// undone: if it fails, or `terrace_load_finish` is not reached, the table is to be dropped. `owner`'s cancel handle ends it.
/// `share`: how many such tables the statement fills. If more than one, `TERRACE_INVALID` may say that there is no memory, too: insert
/// row by row; and each ends with `terrace_table_filled`. `scattered`: rows in the order of their keys may be followed by ones before them.
///
/// # Safety
/// `engine`, `table` and `owner` are open, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_load_begin(
    engine: *const TerraceEngine,
    table: *const TerraceTable,
    owner: *const TerraceTxn,
    share: usize,
    scattered: bool,
    out: *mut *mut TerraceLoad,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, table, owner) = unsafe { (&*engine, &*table, &*owner) };
        let load = engine.engine.load_part(&table.table, &owner.txn, share, scattered)?;
        // SAFETY: the caller's promise.
        unsafe { *out = Box::into_raw(Box::new(TerraceLoad { load, buffer: Vec::new() })) };
        Ok(Code::Ok)
    })
}

/// Begins to fill a table within a transaction, as if `terrace_row_insert` were called for each row: others may use the table
/// meanwhile, and see nothing of it before the commit; the transaction itself sees the rows from `terrace_load_finish` on.
/// If a call fails, the statement is to be rolled back, after `terrace_load_close`. `share`: how many loads of the statement
/// there may be, as of partitions. `TERRACE_INVALID`: the table is not empty, or is indexed anew; insert row by row. `beside`: the
/// table may have rows; then rows that come in the order of their keys are inserted at once, all others, and all entries, are sorted
/// and come in the end.
///
/// # Safety
/// `engine`, `table` and `txn` are open, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_load_begin_within(
    engine: *const TerraceEngine,
    table: *const TerraceTable,
    txn: *const TerraceTxn,
    share: usize,
    beside: bool,
    out: *mut *mut TerraceLoad,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, table, txn) = unsafe { (&*engine, &*table, &*txn) };
        let load = match beside {
            true => engine.engine.load_beside(&table.table, &txn.txn, share)?,
            false => engine.engine.load_within(&table.table, &txn.txn, share)?,
        };
        // SAFETY: the caller's promise.
        unsafe { *out = Box::into_raw(Box::new(TerraceLoad { load, buffer: Vec::new() })) };
        Ok(Code::Ok)
    })
}

/// Takes a row with its entries in all indexes, as `terrace_row_insert` does. `TERRACE_DUPLICATE` may come here or in the end.
///
/// # Safety
/// `load` is open, key and row live during the call, `entries` are `count` valid entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_load_row(
    load: *mut TerraceLoad,
    key: TerraceBytes,
    row: TerraceBytes,
    spans: *const TerraceSpan,
    span_count: usize,
    entries: *const TerraceEntry,
    count: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (load, key) = (&mut *load, key.get());
            with_entries(entries, count, |all| {
                with_row(row, spans, span_count, |row| Ok(load.load.add(key, row, all)?))
            })?;
        }
        Ok(Code::Ok)
    })
}

/// Builds the table of its rows. `progress`, which may be null, is told how many entries of all indexes together are built. `part`: it is
/// one of several, and durable by `terrace_table_filled`.
///
/// # Safety
/// `load` is open; `progress` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_load_finish(
    load: *mut TerraceLoad,
    part: bool,
    progress: TerraceProgressFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let load = unsafe { &mut *load };
        let mut tell = |entries, all| match progress {
            // SAFETY: the caller's promise.
            Some(progress) => unsafe { progress(context, entries, all) },
            None => true,
        };
        match part {
            true => load.load.finish_part(&mut tell)?,
            false => load.load.finish_telling(&mut tell)?,
        }
        Ok(Code::Ok)
    })
}

/// A table that no other session knew has all its rows, by a load or row by row: older views cannot read it. `durable`: everything
/// that such tables were filled with is durable when it returns.
///
/// # Safety
/// `engine` and `table` are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_table_filled(
    engine: *const TerraceEngine,
    table: *const TerraceTable,
    durable: bool,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, table) = unsafe { (&*engine, &*table) };
        engine.engine.filled(&table.table, durable)?;
        Ok(Code::Ok)
    })
}

/// The row that the last `TERRACE_DUPLICATE` was about.
///
/// # Safety
/// `load` is open, `batch` is valid and its `size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_load_duplicate(load: *mut TerraceLoad, batch: *mut TerraceBatch) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (load, batch) = unsafe { (&mut *load, &mut *batch) };
        if batch.size != size_of::<TerraceBatch>() {
            return Err(Fault::invalid("terrace_batch of another version".into()));
        }
        let (key, row) = load.load.duplicate();
        load.buffer.clear();
        append_row(&mut load.buffer, key, 0, row);
        (batch.rows, batch.ended, batch.data) = (1, true, TerraceBytes::of(&load.buffer));
        Ok(Code::Ok)
    })
}

/// Frees the handle; null is fine.
///
/// # Safety
/// `load` came from this library and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_load_close(load: *mut TerraceLoad) {
    guard(|| {
        if !load.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(load) });
        }
        Ok(Code::Ok)
    });
}
