//! A copy of the running engine's volume, at the border.

use crate::alter::TerraceProgressFn;
use crate::bytes::TerraceBytes;
use crate::engine::TerraceEngine;
use crate::error::{Code, Fault, guard};
use std::ffi::c_void;
use std::sync::Arc;
use terrace_io::real::disk::RealDisk;

/// Copies the volume into a directory, which is made, or is there and empty. An engine opened there goes on from a moment between the
/// call and its return, as after a crash. Commits go on meanwhile. `progress` (may be null) is told of bytes; after an error, `TERRACE_CANCELLED` by
/// `progress` among them, what was made is removed. `TERRACE_INVALID` with an object store.
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
        let (disk, made) = RealDisk::open_new(path)
            .map_err(|error| Fault::invalid(format!("the copy at {path}: {error}")))?;
        let disk = Arc::new(disk);
        let copied = engine.engine.copy(disk.clone(), &mut |told| {
            // SAFETY: the caller's promise.
            progress.is_none_or(|progress| unsafe { progress(context, told.done, told.all) })
        });
        if copied.is_err() && made {
            disk.remove_directory();
        }
        copied?;
        Ok(Code::Ok)
    })
}
