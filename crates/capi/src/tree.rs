//! Trees. Each call is a transaction of its own, durable when it returns.

use crate::db::TerraceDb;
use crate::error::{Result, TERRACE_DB_NONE, TERRACE_DB_OK, found, guard};
use crate::handle::{TerraceDbBuffer, TerraceDbBytes, get, give, read_into, take, text};
use crate::range::{TerraceDbBounds, TerraceDbRange, bounds_of};
use std::ffi::{c_char, c_int};
use terrace::Tree;

/// A tree of an open instance.
pub struct TerraceDbTree(pub(crate) Tree);

/// # Safety
/// `tree` is null or a live handle.
pub(crate) unsafe fn tree_of<'h>(tree: *const TerraceDbTree) -> Result<&'h Tree> {
    // SAFETY: the caller's promise.
    Ok(&unsafe { get(tree, "tree") }?.0)
}

/// See the header.
///
/// # Safety
/// `db` is a live handle; `name` ends with a zero byte; `tree` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_tree_open(
    db: *const TerraceDb,
    name: *const c_char,
    tree: *mut *mut TerraceDbTree,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let open = || unsafe { Ok(TerraceDbTree(get(db, "instance")?.0.tree(text(name, "name")?)?)) };
        // SAFETY: the caller's promise.
        unsafe { give(tree, open) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_tree_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_find_tree(
    db: *const TerraceDb,
    name: *const c_char,
    tree: *mut *mut TerraceDbTree,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        if let Some(tree) = unsafe { tree.as_mut() } {
            *tree = std::ptr::null_mut();
        }
        // SAFETY: the caller's promises.
        let (db, name) = unsafe { (get(db, "instance")?, text(name, "name")?) };
        let Some(there) = db.0.find_tree(name)? else { return Ok(TERRACE_DB_NONE) };
        // SAFETY: the caller's promise.
        unsafe { give(tree, || Ok(TerraceDbTree(there))) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `tree` is null or a live handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_tree_close(tree: *mut TerraceDbTree) {
    guard(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(tree) });
        Ok(TERRACE_DB_OK)
    });
}

/// See the header.
///
/// # Safety
/// `tree` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_approximate_len(tree: *const TerraceDbTree) -> u64 {
    let mut len = 0;
    guard(|| {
        // SAFETY: the caller's promise.
        len = unsafe { tree_of(tree) }?.approximate_len();
        Ok(TERRACE_DB_OK)
    });
    len
}

/// See the header.
///
/// # Safety
/// `tree` is a live handle; `key` is lent; `value` is zeroed or was filled by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_get(
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: *mut TerraceDbBuffer,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (tree, key) = unsafe { (tree_of(tree)?, key.get()?) };
        // SAFETY: the caller's promise.
        unsafe { read_into(value, |value| Ok(tree.get_into(key, value)?)) }.map(found)
    })
}

/// See the header.
///
/// # Safety
/// `tree` is a live handle; `key` and `value` are lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_put(
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: TerraceDbBytes,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (tree, key, value) = unsafe { (tree_of(tree)?, key.get()?, value.get()?) };
        tree.put(key, value)?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// As `terrace_db_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_insert(
    tree: *const TerraceDbTree,
    key: TerraceDbBytes,
    value: TerraceDbBytes,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (tree, key, value) = unsafe { (tree_of(tree)?, key.get()?, value.get()?) };
        Ok(found(tree.insert(key, value)?))
    })
}

/// See the header.
///
/// # Safety
/// `tree` is a live handle; `key` is lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_delete(tree: *const TerraceDbTree, key: TerraceDbBytes) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (tree, key) = unsafe { (tree_of(tree)?, key.get()?) };
        Ok(found(tree.delete(key)?))
    })
}

/// See the header.
///
/// # Safety
/// `tree` is a live handle; `bounds` is null or lent; `deleted` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_delete_range(
    tree: *const TerraceDbTree,
    bounds: *const TerraceDbBounds,
    deleted: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (tree, range) = unsafe { (tree_of(tree)?, bounds_of(bounds)?) };
        let count = tree.delete_range::<&[u8]>(range)?;
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
/// `tree` is a live handle; `bounds` is null or lent; `range` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_range_open(
    tree: *const TerraceDbTree,
    bounds: *const TerraceDbBounds,
    range: *mut *mut TerraceDbRange,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: the caller's promises.
            let (tree, bounds) = unsafe { (tree_of(tree)?, bounds_of(bounds)?) };
            Ok(TerraceDbRange(tree.range::<&[u8]>(bounds)?.into()))
        };
        // SAFETY: the caller's promise.
        unsafe { give(range, open) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `tree` is a live handle; `prefix` is lent; `range` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_prefix(
    tree: *const TerraceDbTree,
    prefix: TerraceDbBytes,
    range: *mut *mut TerraceDbRange,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let open = || unsafe { Ok(TerraceDbRange(tree_of(tree)?.prefix(prefix.get()?)?.into())) };
        // SAFETY: the caller's promise.
        unsafe { give(range, open) }?;
        Ok(TERRACE_DB_OK)
    })
}
