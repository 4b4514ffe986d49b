//! Snapshots.

use crate::db::TerraceDb;
use crate::error::{TERRACE_DB_OK, found, guard};
use crate::handle::{TerraceDbBuffer, TerraceDbBytes, get, give, read_into, take};
use crate::range::{TerraceDbBounds, TerraceDbRange, bounds_of};
use crate::tree::{TerraceDbTree, tree_of};
use std::ffi::c_int;
use terrace::Snapshot;

/// A consistent state of all trees.
pub struct TerraceDbSnapshot(Snapshot);

/// See the header.
///
/// # Safety
/// `db` is a live handle; `snapshot` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_snapshot_open(
    db: *const TerraceDb,
    snapshot: *mut *mut TerraceDbSnapshot,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        unsafe { give(snapshot, || Ok(TerraceDbSnapshot(get(db, "instance")?.0.snapshot()))) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `snapshot` and `tree` are live handles; `key` is lent; `value` is zeroed or was filled by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_snapshot_get(
    snapshot: *const TerraceDbSnapshot,
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: *mut TerraceDbBuffer,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (snapshot, tree, key) = unsafe { (get(snapshot, "snapshot")?, tree_of(tree)?, key.get()?) };
        let read = |value: &mut Vec<u8>| {
            let found = snapshot.0.get(tree, key)?;
            Ok(found.map(|found| *value = found).is_some())
        };
        // SAFETY: the caller's promise.
        unsafe { read_into(value, read) }.map(found)
    })
}

/// See the header.
///
/// # Safety
/// `snapshot` and `tree` are live handles; `bounds` is null or lent; `range` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_snapshot_range(
    snapshot: *const TerraceDbSnapshot,
    tree: *const TerraceDbTree,
    bounds: *const TerraceDbBounds,
    range: *mut *mut TerraceDbRange,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: the caller's promises.
            let (snapshot, tree, bounds) =
                unsafe { (get(snapshot, "snapshot")?, tree_of(tree)?, bounds_of(bounds)?) };
            Ok(TerraceDbRange(snapshot.0.range::<&[u8]>(tree, bounds)?.into()))
        };
        // SAFETY: the caller's promise.
        unsafe { give(range, open) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `snapshot` and `tree` are live handles; `prefix` is lent; `range` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_snapshot_prefix(
    snapshot: *const TerraceDbSnapshot,
    tree: *const TerraceDbTree,
    prefix: TerraceDbBytes,
    range: *mut *mut TerraceDbRange,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: the caller's promises.
            let (snapshot, tree, prefix) =
                unsafe { (get(snapshot, "snapshot")?, tree_of(tree)?, prefix.get()?) };
            Ok(TerraceDbRange(snapshot.0.prefix(tree, prefix)?.into()))
        };
        // SAFETY: the caller's promise.
        unsafe { give(range, open) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `snapshot` is null or a live handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_snapshot_close(snapshot: *mut TerraceDbSnapshot) {
    guard(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(snapshot) });
        Ok(TERRACE_DB_OK)
    });
}
