//! Files that become visible together.

use crate::connection::TerraceFiles;
use crate::error::{Result, guard, invalid};
use crate::file::{EXCLUSIVE, TerraceFilesFile, WRITE};
use crate::{get, get_mut, text};
use std::ffi::{CString, c_char, c_int};

/// A group of files.
pub struct TerraceFilesGroup {
    fs: *mut TerraceFiles,
    name: CString,
    has_ended: bool,
}

impl TerraceFilesGroup {
    fn name(&self) -> Result<&str> {
        if self.has_ended {
            return Err(invalid("the group was committed or aborted"));
        }
        self.name.to_str().map_err(|_| invalid("the group's name is not UTF-8"))
    }

    /// # Safety
    /// The connection is live.
    unsafe fn end(&mut self, ask: impl FnOnce(&TerraceFiles, &str) -> Result<u64>) -> Result<u64> {
        // SAFETY: the caller's promise.
        let fs = unsafe { get(self.fs, "connection") }?;
        let files = ask(fs, self.name()?)?;
        self.has_ended = true;
        Ok(files)
    }
}

fn place(fs: *mut TerraceFiles, name: &str) -> Result<*mut TerraceFilesGroup> {
    let name = CString::new(name).map_err(|_| invalid("the group's name has a zero byte"))?;
    Ok(Box::into_raw(Box::new(TerraceFilesGroup { fs, name, has_ended: false })))
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_group_begin(
    fs: *mut TerraceFiles,
    group: *mut *mut TerraceFilesGroup,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let to = unsafe { get_mut(group, "place for the group") }?;
        *to = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        let name = unsafe { get(fs, "connection") }?.client.begin_group()?;
        *to = place(fs, &name)?;
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_group_resume(
    fs: *mut TerraceFiles,
    name: *const c_char,
    group: *mut *mut TerraceFilesGroup,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let to = unsafe { get_mut(group, "place for the group") }?;
        *to = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        let (of_fs, name) = unsafe { (get(fs, "connection")?, text(name, "name")?) };
        of_fs.client.resume_group(name)?;
        *to = place(fs, name)?;
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_group_name(group: *const TerraceFilesGroup) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { group.as_ref() }.map_or(c"".as_ptr(), |group| group.name.as_ptr())
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_group_open(
    group: *mut TerraceFilesGroup,
    path: *const c_char,
    flags: c_int,
    file: *mut *mut TerraceFilesFile,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let to = unsafe { get_mut(file, "place for the file") }?;
        *to = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        let (group, path) = unsafe { (get(group, "group")?, text(path, "path")?) };
        if flags != WRITE && flags != WRITE | EXCLUSIVE {
            return Err(invalid("files of a group are opened for writing"));
        }
        // SAFETY: the caller keeps the connection as long as the group.
        let fs = unsafe { get(group.fs, "connection") }?;
        let handle = fs.client.open_in_group(group.name()?, path, flags & EXCLUSIVE != 0)?;
        *to = Box::into_raw(Box::new(TerraceFilesFile::written(group.fs, path, handle)));
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_group_commit(group: *mut TerraceFilesGroup, count: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { get_mut(group, "group") }?;
        // SAFETY: the caller keeps the connection as long as the group.
        let files = unsafe { group.end(|fs, name| Ok(fs.client.commit_group(name)?)) }?;
        // SAFETY: the caller's promise.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = files;
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_group_abort(group: *mut TerraceFilesGroup) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { get_mut(group, "group") }?;
        // SAFETY: the caller keeps the connection as long as the group.
        unsafe { group.end(|fs, name| Ok(fs.client.abort_group(name)?)) }.map(drop)
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_group_free(group: *mut TerraceFilesGroup) {
    let _ = guard(|| {
        if group.is_null() {
            return Ok(());
        }
        // SAFETY: `begin` or `resume` made it of a box, and the caller does not use it any more.
        let mut group = unsafe { Box::from_raw(group) };
        if !group.has_ended {
            // SAFETY: the caller keeps the connection as long as the group.
            unsafe { group.end(|fs, name| Ok(fs.client.abort_group(name)?)) }?;
        }
        Ok(())
    });
}
