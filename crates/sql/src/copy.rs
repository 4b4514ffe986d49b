//! A copy of the running engine's volume, at the border.

use crate::alter::TerraceProgressFn;
use crate::bytes::TerraceBytes;
use crate::engine::TerraceEngine;
use crate::error::{Code, Fault, Result, guard};
use std::ffi::c_void;
use std::sync::Arc;
use terrace_engine::storage::copy::{BackgroundCopy, Progress};
use terrace_io::real::disk::RealDisk;

/// A copy that is being made in the background. Freed by `terrace_copy_finish` or `terrace_copy_discard`.
pub struct TerraceCopy {
    // Dropped first: it removes its files.
    copy: BackgroundCopy,
    place: CopyDirectory,
}

/// The directory of a copy. Dropped, it is removed if it was made and is empty.
struct CopyDirectory {
    disk: Arc<RealDisk>,
    made: bool,
}

impl CopyDirectory {
    fn open(path: &str) -> Result<CopyDirectory> {
        if !std::path::Path::new(path).is_absolute() {
            return Err(Fault::invalid(format!("the copy at {path}: the path is not absolute")));
        }
        let opened = RealDisk::open_new(path);
        let (disk, made) = opened.map_err(|error| Fault::invalid(format!("the copy at {path}: {error}")))?;
        Ok(CopyDirectory { disk: Arc::new(disk), made })
    }
}

impl Drop for CopyDirectory {
    fn drop(&mut self) {
        if self.made {
            self.disk.remove_directory();
        }
    }
}

/// # Safety
/// `progress` may be called with `context`.
unsafe fn tell(progress: TerraceProgressFn, context: *mut c_void, told: Progress) -> bool {
    // SAFETY: the caller's promise.
    progress.is_none_or(|progress| unsafe { progress(context, told.done, told.all) })
}

/// Copies the volume into a directory, which is made, or is there and empty. An engine opened there goes on from a moment between the
/// call and its return, as after a crash. Commits go on meanwhile. `progress` (may be null) is told of bytes; after an error, `TERRACE_CANCELLED` by
/// `progress` among them, what was made is removed. With an object store, a snapshot is recorded there that keeps the objects which the copy names.
///
/// # Safety
/// `engine` is open; `path` lives during the call; `progress` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_engine_copy(
    engine: *const TerraceEngine,
    path: TerraceBytes,
    progress: TerraceProgressFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { (&*engine, path.text()?) };
        let place = CopyDirectory::open(path)?;
        // SAFETY: the caller's promise.
        engine.engine.copy(place.disk.clone(), &mut |told| unsafe { tell(progress, context, told) })?;
        Ok(Code::Ok)
    })
}

/// Begins a copy as `terrace_engine_copy` makes one, and goes on with it in the background until its end is asked for. What fails there, `terrace_copy_finish` tells.
///
/// # Safety
/// `engine` is open, and is closed after the copy has ended; `path` lives during the call; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_copy_begin(
    engine: *const TerraceEngine,
    path: TerraceBytes,
    out: *mut *mut TerraceCopy,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { (&*engine, path.text()?) };
        let place = CopyDirectory::open(path)?;
        let copy = engine.engine.copy_in_background(place.disk.clone())?;
        // SAFETY: the caller's promise.
        unsafe { *out = Box::into_raw(Box::new(TerraceCopy { copy, place })) };
        Ok(Code::Ok)
    })
}

/// Ends the copy: it is of a moment in this call, and durable when it returns. After an error what was made is removed. Frees the handle in any case.
///
/// # Safety
/// `copy` came from `terrace_copy_begin` and is no longer used by any other thread; `progress` may be called with `context` on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_copy_finish(
    copy: *mut TerraceCopy,
    progress: TerraceProgressFn,
    context: *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let TerraceCopy { copy, place } = *unsafe { Box::from_raw(copy) };
        // SAFETY: the caller's promise.
        copy.finish(&mut |told| unsafe { tell(progress, context, told) })?;
        drop(place);
        Ok(Code::Ok)
    })
}

/// Ends the copy and removes what was made. Null is fine.
///
/// # Safety
/// `copy` came from `terrace_copy_begin` and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_copy_discard(copy: *mut TerraceCopy) {
    guard(|| {
        if !copy.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(copy) });
        }
        Ok(Code::Ok)
    });
}
