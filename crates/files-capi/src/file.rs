//! Open files.

use crate::connection::TerraceFiles;
use crate::error::{Result, guard, guard_number, invalid};
use crate::{buffer, get, get_mut, text};
use std::ffi::{c_char, c_int};

pub(crate) const WRITE: c_int = 1;
pub(crate) const EXCLUSIVE: c_int = 2;

/// An open file.
pub struct TerraceFilesFile {
    fs: *mut TerraceFiles,
    path: String,
    /// The version of a file that is read.
    version: String,
    /// The handle of a file that is written.
    handle: Option<u64>,
    position: u64,
}

impl TerraceFilesFile {
    /// One that is written, by a handle of the connection.
    pub(crate) fn written(fs: *mut TerraceFiles, path: &str, handle: u64) -> TerraceFilesFile {
        TerraceFilesFile { fs, path: path.into(), version: String::new(), handle: Some(handle), position: 0 }
    }

    /// # Safety
    /// The connection is live.
    unsafe fn read(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        if self.handle.is_some() {
            return Err(invalid("the file is open for writing"));
        }
        // SAFETY: the caller's promise.
        let fs = unsafe { get(self.fs, "connection") }?;
        Ok(fs.client.read_into(&self.path, offset, into, &self.version)?.0)
    }
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_open(
    fs: *mut TerraceFiles,
    path: *const c_char,
    flags: c_int,
    file: *mut *mut TerraceFilesFile,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let place = unsafe { get_mut(file, "place for the file") }?;
        *place = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        let (of_fs, path) = unsafe { (get(fs, "connection")?, text(path, "path")?) };
        let (version, handle) = match flags {
            0 => (of_fs.client.stat(path)?.version, None),
            WRITE => (String::new(), Some(of_fs.client.open_write(path, false)?)),
            flags if flags == WRITE | EXCLUSIVE => {
                (String::new(), Some(of_fs.client.open_write(path, true)?))
            }
            _ => return Err(invalid("there are no such flags")),
        };
        *place =
            Box::into_raw(Box::new(TerraceFilesFile { fs, path: path.into(), version, handle, position: 0 }));
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_read(file: *mut TerraceFilesFile, into: *mut u8, size: usize) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let (file, into) = unsafe { (get_mut(file, "file")?, buffer(into, size)?) };
        // SAFETY: the caller keeps the connection until the file is closed.
        let got = unsafe { file.read(into, file.position) }? as u64;
        file.position += got;
        Ok(got)
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_pread(
    file: *mut TerraceFilesFile,
    into: *mut u8,
    size: usize,
    offset: u64,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let (file, into) = unsafe { (get(file, "file")?, buffer(into, size)?) };
        // SAFETY: the caller keeps the connection until the file is closed.
        Ok(unsafe { file.read(into, offset) }? as u64)
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_seek(file: *mut TerraceFilesFile, offset: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { get_mut(file, "file") }?;
        if file.handle.is_some() {
            return Err(invalid("the file is open for writing, from its start to its end"));
        }
        file.position = offset;
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_tell(file: *const TerraceFilesFile) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { file.as_ref() }.map_or(0, |file| file.position)
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_write(
    file: *mut TerraceFilesFile,
    from: *const u8,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise. The bytes are only read.
        let (file, from) = unsafe { (get_mut(file, "file")?, buffer(from.cast_mut(), size)?) };
        let handle = file.handle.ok_or_else(|| invalid("the file is open for reading"))?;
        // SAFETY: the caller keeps the connection until the file is closed.
        unsafe { get(file.fs, "connection") }?.client.write_part(handle, from)?;
        file.position += size as u64;
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_close(file: *mut TerraceFilesFile) -> c_int {
    guard(|| {
        if file.is_null() {
            return Err(invalid("the file is a null pointer"));
        }
        // SAFETY: `open` made it of a box, and the caller does not use it any more.
        let file = unsafe { Box::from_raw(file) };
        if let Some(handle) = file.handle {
            // SAFETY: the caller keeps the connection until the file is closed.
            unsafe { get(file.fs, "connection") }?.client.commit(handle)?;
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_abandon(file: *mut TerraceFilesFile) {
    let _ = guard(|| {
        if file.is_null() {
            return Ok(());
        }
        // SAFETY: `open` made it of a box, and the caller does not use it any more.
        let file = unsafe { Box::from_raw(file) };
        if let Some(handle) = file.handle {
            // SAFETY: the caller keeps the connection until the file is closed.
            unsafe { get(file.fs, "connection") }?.client.abort(handle)?;
        }
        Ok(())
    });
}
