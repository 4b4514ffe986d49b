//! Memory objects: made, sealed, read and released by their names, as in Gopher's interface.

use crate::connection::TerraceFiles;
use crate::error::{Result, guard, invalid};
use crate::{get, get_mut, text};
use std::ffi::{c_char, c_int};

/// A connection and the name of an object.
///
/// # Safety
/// As the header says of pointers. The connection outlives what is kept in it.
unsafe fn named(fs: *mut TerraceFiles, name: *const c_char) -> Result<(&'static TerraceFiles, &'static str)> {
    // SAFETY: the caller's promise.
    Ok(unsafe { (get(fs, "connection")?, text(name, "name")?) })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_create_object(
    fs: *mut TerraceFiles,
    name: *const c_char,
    size: usize,
    at_once: c_int,
    data: *mut *mut u8,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (place, (fs, name)) = unsafe { (get_mut(data, "place for the data")?, named(fs, name)?) };
        *place = std::ptr::null_mut();
        let mut object = fs.client.create_object(name, size, at_once != 0)?;
        *place = object.bytes_mut().as_mut_ptr();
        fs.objects.written.borrow_mut().insert(name.to_string(), object);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_seal_object(fs: *mut TerraceFiles, name: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, name) = unsafe { named(fs, name) }?;
        let object = fs.objects.written.borrow_mut().remove(name);
        let object =
            object.ok_or_else(|| invalid("this connection is not writing an object of that name"))?;
        Ok(object.seal()?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_get_object(
    fs: *mut TerraceFiles,
    name: *const c_char,
    timeout_ms: u64,
    data: *mut *const u8,
    size: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (place, (fs, name)) = unsafe { (get_mut(data, "place for the data")?, named(fs, name)?) };
        *place = std::ptr::null();
        let object = fs
            .client
            .get_object(name, timeout_ms)?
            .ok_or(terrace_files::client::Error::Fault(terrace_files::catalogue::Fault::Absent))?;
        *place = object.as_ptr();
        // SAFETY: the caller's promise.
        if let Some(size) = unsafe { size.as_mut() } {
            *size = object.len();
        }
        fs.objects.read.borrow_mut().entry(name.to_string()).or_default().push(object);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_release_object(fs: *mut TerraceFiles, name: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, name) = unsafe { named(fs, name) }?;
        let mut read = fs.objects.read.borrow_mut();
        let of_name = read.get_mut(name);
        let of_name = of_name.ok_or_else(|| invalid("this connection has not got an object of that name"))?;
        // The one that was got first.
        drop(of_name.remove(0));
        if of_name.is_empty() {
            read.remove(name);
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_delete_object(fs: *mut TerraceFiles, name: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, name) = unsafe { named(fs, name) }?;
        // One that this connection is writing is given up by its end, which deletes it.
        let written = fs.objects.written.borrow_mut().remove(name);
        match written {
            Some(object) => drop(object),
            None => fs.client.delete_object(name)?,
        }
        Ok(())
    })
}
