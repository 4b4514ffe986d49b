//! Write batches.

use crate::db::{TerraceDb, durability_of};
use crate::error::{TERRACE_DB_OK, guard};
use crate::handle::{TerraceDbBytes, get, get_mut, give, take};
use crate::range::{TerraceDbBounds, bounds_of};
use crate::tree::{TerraceDbTree, tree_of};
use std::ffi::c_int;
use terrace::Batch;

/// Blind writes that belong together.
pub struct TerraceDbBatch(Batch);

/// See the header.
///
/// # Safety
/// `batch` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_batch_new(batch: *mut *mut TerraceDbBatch) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { give(batch, || Ok(TerraceDbBatch(Batch::new()))) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `batch` is a live handle that no other thread uses; `tree` is a live handle; `key` and `value` are lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_batch_put(
    batch: *mut TerraceDbBatch,
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: TerraceDbBytes,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (batch, tree, key, value) =
            unsafe { (get_mut(batch, "batch")?, tree_of(tree)?, key.get()?, value.get()?) };
        batch.0.put(tree, key, value);
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_batch_delete(
    batch: *mut TerraceDbBatch,
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (batch, tree, key) = unsafe { (get_mut(batch, "batch")?, tree_of(tree)?, key.get()?) };
        batch.0.delete(tree, key);
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_batch_put`; `bounds` is null or lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_batch_delete_range(
    batch: *mut TerraceDbBatch,
    tree: *const TerraceDbTree,
    bounds: *const TerraceDbBounds,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (batch, tree, range) = unsafe { (get_mut(batch, "batch")?, tree_of(tree)?, bounds_of(bounds)?) };
        batch.0.delete_range::<&[u8]>(tree, range);
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `batch` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_batch_len(batch: *const TerraceDbBatch) -> usize {
    // SAFETY: the caller's promise.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.0.len())
}

/// See the header.
///
/// # Safety
/// `batch` is null or a live handle that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_batch_clear(batch: *mut TerraceDbBatch) {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { get_mut(batch, "batch") }?.0.clear();
        Ok(TERRACE_DB_OK)
    });
}

/// See the header.
///
/// # Safety
/// `batch` is null or a live handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_batch_free(batch: *mut TerraceDbBatch) {
    guard(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(batch) });
        Ok(TERRACE_DB_OK)
    });
}

/// See the header.
///
/// # Safety
/// `db` and `batch` are live handles; no thread changes the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_write(
    db: *const TerraceDb,
    batch: *const TerraceDbBatch,
    durability: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (db, batch) = unsafe { (get(db, "instance")?, get(batch, "batch")?) };
        db.0.write_with(&batch.0, durability_of(durability)?)?;
        Ok(TERRACE_DB_OK)
    })
}
