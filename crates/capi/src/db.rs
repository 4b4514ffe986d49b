//! Instances.

use crate::error::{Fault, Result, TERRACE_DB_OK, guard};
use crate::handle::{get, give, take, text};
use std::ffi::{c_char, c_int, c_void};
use terrace::{Config, Db, Durability};

/// An open instance.
pub struct TerraceDb(pub(crate) Db);

/// A setting by its name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceDbSetting {
    /// As in docs/settings.md.
    pub name: *const c_char,
    /// A number, or a size with a unit.
    pub value: *const c_char,
}

/// Is called with the name of each tree. Another return value than 0 ends the listing.
pub type TerraceDbNameFn = Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char) -> c_int>;

/// Until the commit survives a loss of power.
pub const TERRACE_DB_WAIT: c_int = 0;
/// Until the commit survives the end of the process.
pub const TERRACE_DB_WRITTEN: c_int = 1;
/// Not at all.
pub const TERRACE_DB_NO_WAIT: c_int = 2;

pub(crate) fn durability_of(code: c_int) -> Result<Durability> {
    match code {
        TERRACE_DB_WAIT => Ok(Durability::Wait),
        TERRACE_DB_WRITTEN => Ok(Durability::Written),
        TERRACE_DB_NO_WAIT => Ok(Durability::None),
        _ => Err(Fault::invalid(format!("{code} is not a durability"))),
    }
}

/// See the header.
///
/// # Safety
/// `path` ends with a zero byte; `db` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_open(path: *const c_char, db: *mut *mut TerraceDb) -> c_int {
    // SAFETY: the caller's promises.
    unsafe { terrace_db_open_with(path, std::ptr::null(), 0, db) }
}

/// See the header.
///
/// # Safety
/// As `terrace_db_open`; `settings` points to `count` settings whose texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_open_with(
    path: *const c_char,
    settings: *const TerraceDbSetting,
    count: usize,
    db: *mut *mut TerraceDb,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: the caller's promise.
            let mut config = Config::new(unsafe { text(path, "path") }?);
            if settings.is_null() && count > 0 {
                return Err(Fault::invalid(format!("{count} settings at a null pointer")));
            }
            for at in 0..count {
                // SAFETY: the caller's promise: there are `count` of them.
                let setting = unsafe { *settings.add(at) };
                // SAFETY: the caller's promise.
                let (name, value) = unsafe {
                    (text(setting.name, "setting's name")?, text(setting.value, "setting's value")?)
                };
                config = config.set(name, value);
            }
            Ok(TerraceDb(Db::open_with(config)?))
        };
        // SAFETY: the caller's promise.
        unsafe { give(db, open) }?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `db` is null or a live handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_close(db: *mut TerraceDb) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        if let Some(db) = unsafe { take(db) } {
            db.0.close()?;
        }
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `db` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_sync(db: *const TerraceDb) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { get(db, "instance") }?.0.sync()?;
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `db` is a live handle; `each` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_trees(
    db: *const TerraceDb,
    each: TerraceDbNameFn,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let db = unsafe { get(db, "instance") }?;
        let each = each.ok_or_else(|| Fault::invalid("the function is a null pointer"))?;
        for name in db.0.trees() {
            let name = std::ffi::CString::new(name).map_err(|_| {
                Fault::invalid("a tree that was made by another program has a zero byte in its name")
            })?;
            // SAFETY: the caller's promise; the name lives until the call returns.
            if unsafe { each(context, name.as_ptr()) } != 0 {
                break;
            }
        }
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `db` is a live handle; `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_drop_tree(db: *const TerraceDb, name: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (db, name) = unsafe { (get(db, "instance")?, text(name, "name")?) };
        db.0.drop_tree(name)?;
        Ok(TERRACE_DB_OK)
    })
}
