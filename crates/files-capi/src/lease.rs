//! Bytes of files where the daemon has them.

use crate::connection::TerraceFiles;
use crate::error::guard;
use crate::{get, get_mut, text};
use std::ffi::{c_char, c_int};
use terrace_files::client::View;

/// A part of a file in the shared memory.
#[repr(C)]
pub struct TerraceFilesPiece {
    data: *const u8,
    size: usize,
}

/// Leased bytes of a file.
pub struct TerraceFilesLease {
    pieces: Vec<TerraceFilesPiece>,
    /// Ends the lease when it is dropped.
    _view: View<'static>,
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_lease_get(
    fs: *mut TerraceFiles,
    path: *const c_char,
    offset: u64,
    size: u64,
    lease: *mut *mut TerraceFilesLease,
    pieces: *mut *const TerraceFilesPiece,
    count: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (place, pieces, count) = unsafe {
            (
                get_mut(lease, "place for the lease")?,
                get_mut(pieces, "place for the pieces")?,
                get_mut(count, "place for their number")?,
            )
        };
        (*place, *pieces, *count) = (std::ptr::null_mut(), std::ptr::null(), 0);
        // SAFETY: the caller's promise. It keeps the connection until the lease is released, so the view may borrow it for as long.
        let (fs, path): (&'static TerraceFiles, &str) =
            unsafe { (get(fs, "connection")?, text(path, "path")?) };
        let view = fs.client.read(path, offset, size, "")?;
        let piece = |piece: &[u8]| TerraceFilesPiece { data: piece.as_ptr(), size: piece.len() };
        let made = Box::new(TerraceFilesLease { pieces: view.pieces().map(piece).collect(), _view: view });
        (*pieces, *count) = (made.pieces.as_ptr(), made.pieces.len());
        *place = Box::into_raw(made);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_lease_release(lease: *mut TerraceFilesLease) {
    let _ = guard(|| {
        if !lease.is_null() {
            // SAFETY: `lease_get` made it of a box, and the caller does not use it any more.
            drop(unsafe { Box::from_raw(lease) });
        }
        Ok(())
    });
}
