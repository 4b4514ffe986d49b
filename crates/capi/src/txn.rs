//! Transactions.

use crate::db::{TerraceDb, durability_of};
use crate::error::{Fault, Result, TERRACE_DB_OK, found, guard};
use crate::handle::{TerraceDbBuffer, TerraceDbBytes, get, get_mut, give, read_into, take};
use crate::range::{TerraceDbBounds, TerraceDbRange, bounds_of};
use crate::tree::{TerraceDbTree, tree_of};
use std::ffi::c_int;
use std::sync::Arc;
use terrace::bindings::SharedTxn;
use terrace::{Isolation, Savepoint};

/// Reads see one state; a write of a key that was changed since is a conflict.
pub const TERRACE_DB_SNAPSHOT: c_int = 0;
/// Reads lock what they return and the gaps between.
pub const TERRACE_DB_SERIALIZABLE: c_int = 1;

/// A transaction. Its ranges share it and fail when it has ended.
pub struct TerraceDbTxn {
    txn: Arc<SharedTxn>,
    /// Those that a rollback to an earlier one has not removed.
    savepoints: Vec<Savepoint>,
}

/// # Safety
/// `txn` is null or a live handle.
unsafe fn txn_of<'h>(txn: *const TerraceDbTxn) -> Result<&'h Arc<SharedTxn>> {
    // SAFETY: the caller's promise.
    Ok(&unsafe { get(txn, "transaction") }?.txn)
}

/// See the header.
///
/// # Safety
/// `db` is a live handle; `txn` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_begin(
    db: *const TerraceDb,
    isolation: c_int,
    txn: *mut *mut TerraceDbTxn,
) -> c_int {
    guard(|| {
        let begin = || {
            let isolation = match isolation {
                TERRACE_DB_SNAPSHOT => Isolation::Snapshot,
                TERRACE_DB_SERIALIZABLE => Isolation::Serializable,
                _ => return Err(Fault::invalid(format!("{isolation} is not an isolation"))),
            };
            // SAFETY: the caller's promise.
            let txn = unsafe { get(db, "instance") }?.0.begin_with(isolation);
            Ok(TerraceDbTxn { txn: SharedTxn::new(txn), savepoints: Vec::new() })
        };
        // SAFETY: the caller's promise.
        unsafe { give(txn, begin) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `txn` and `tree` are live handles, the transaction's used by no other thread; `key` is lent; `value` is zeroed or was filled by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_get(
    txn: *mut TerraceDbTxn,
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: *mut TerraceDbBuffer,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (txn, tree, key) = unsafe { (txn_of(txn)?, tree_of(tree)?, key.get()?) };
        let read = |value: &mut Vec<u8>| {
            let found = txn.with(|txn| txn.get(tree, key))?;
            Ok(found.map(|found| *value = found).is_some())
        };
        // SAFETY: the caller's promise.
        unsafe { read_into(value, read) }.map(found)
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_txn_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_get_for_update(
    txn: *mut TerraceDbTxn,
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: *mut TerraceDbBuffer,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (txn, tree, key) = unsafe { (txn_of(txn)?, tree_of(tree)?, key.get()?) };
        let read = |value: &mut Vec<u8>| {
            let found = txn.with(|txn| txn.get_for_update(tree, key))?;
            Ok(found.map(|found| *value = found).is_some())
        };
        // SAFETY: the caller's promise.
        unsafe { read_into(value, read) }.map(found)
    })
}

/// See the header.
///
/// # Safety
/// `txn` and `tree` are live handles, the transaction's used by no other thread; `key` and `value` are lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_put(
    txn: *mut TerraceDbTxn,
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: TerraceDbBytes,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (txn, tree, key, value) = unsafe { (txn_of(txn)?, tree_of(tree)?, key.get()?, value.get()?) };
        txn.with(|txn| txn.put(tree, key, value))?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_txn_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_insert(
    txn: *mut TerraceDbTxn,
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: TerraceDbBytes,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (txn, tree, key, value) = unsafe { (txn_of(txn)?, tree_of(tree)?, key.get()?, value.get()?) };
        Ok(found(txn.with(|txn| txn.insert(tree, key, value))?))
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_txn_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_delete(
    txn: *mut TerraceDbTxn,
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (txn, tree, key) = unsafe { (txn_of(txn)?, tree_of(tree)?, key.get()?) };
        Ok(found(txn.with(|txn| txn.delete(tree, key))?))
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_txn_put`; `bounds` is null or lent; `deleted` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_delete_range(
    txn: *mut TerraceDbTxn,
    tree: *const TerraceDbTree,
    bounds: *const TerraceDbBounds,
    deleted: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (txn, tree, range) = unsafe { (txn_of(txn)?, tree_of(tree)?, bounds_of(bounds)?) };
        let count = txn.with(|txn| txn.delete_range::<&[u8]>(tree, range))?;
        // SAFETY: the caller's promise.
        if let Some(deleted) = unsafe { deleted.as_mut() } {
            *deleted = count;
        }
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_txn_get`; `bounds` is null or lent; `range` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_range(
    txn: *mut TerraceDbTxn,
    tree: *const TerraceDbTree,
    bounds: *const TerraceDbBounds,
    range: *mut *mut TerraceDbRange,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: the caller's promises.
            let (txn, tree, within) = unsafe { (txn_of(txn)?, tree_of(tree)?, bounds_of(bounds)?) };
            Ok(TerraceDbRange(txn.range::<&[u8]>(tree, within)?))
        };
        // SAFETY: the caller's promise.
        unsafe { give(range, open) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_txn_get`; `prefix` is lent; `range` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_prefix(
    txn: *mut TerraceDbTxn,
    tree: *const TerraceDbTree,
    prefix: TerraceDbBytes,
    range: *mut *mut TerraceDbRange,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let open = || unsafe { Ok(TerraceDbRange(txn_of(txn)?.prefix(tree_of(tree)?, prefix.get()?)?)) };
        // SAFETY: the caller's promise.
        unsafe { give(range, open) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `txn` is a live handle that no other thread uses; `savepoint` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_savepoint(txn: *mut TerraceDbTxn, savepoint: *mut usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (of, savepoint) = unsafe { (get_mut(txn, "transaction")?, get_mut(savepoint, "savepoint")?) };
        of.savepoints.push(of.txn.with(|txn| Ok(txn.savepoint()))?);
        *savepoint = of.savepoints.len();
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `txn` is a live handle that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_rollback_to(txn: *mut TerraceDbTxn, savepoint: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let of = unsafe { get_mut(txn, "transaction") }?;
        let to = savepoint.checked_sub(1).and_then(|at| of.savepoints.get(at));
        let to = to.ok_or_else(|| Fault::invalid(format!("the transaction has no savepoint {savepoint}")))?;
        of.txn.with(|txn| txn.rollback_to(to))?;
        of.savepoints.truncate(savepoint);
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `txn` is null or a live handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_commit(txn: *mut TerraceDbTxn, durability: c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let of = unsafe { take(txn) }.ok_or_else(|| Fault::invalid("the transaction is a null pointer"))?;
        of.txn.end()?.commit_with(durability_of(durability)?)?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `txn` is null or a live handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_txn_rollback(txn: *mut TerraceDbTxn) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        if let Some(of) = unsafe { take(txn) } {
            of.txn.end()?.rollback()?;
        }
        Ok(TERRACE_DB_OK)
    })
}
