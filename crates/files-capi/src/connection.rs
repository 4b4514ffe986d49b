//! A connection: whole files, batches, what is known of files.

use crate::error::{FULL, OK, Result, code_of, guard, guard_number, invalid};
use crate::{buffer, get, get_mut, text};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use terrace_files::client::Client;

/// Bytes of a version, with its end.
const VERSION_BYTES: usize = 128;
/// Bytes that one request warms: a longer file is asked for in steps.
const STEP: u64 = 8 << 20;

/// A connection.
pub struct TerraceFiles {
    /// Before the client, to which they point.
    pub(crate) objects: crate::held::Held,
    pub(crate) client: Client,
}

/// What is known of a file.
#[repr(C)]
pub struct TerraceFilesInfo {
    length: u64,
    version: [u8; VERSION_BYTES],
}

/// A file of a batch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceFilesItem {
    code: c_int,
    offset: usize,
    size: usize,
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_connect(
    socket: *const c_char,
    target: *const c_char,
    fs: *mut *mut TerraceFiles,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let place = unsafe { get_mut(fs, "place for the connection") }?;
        *place = std::ptr::null_mut();
        let socket = match socket.is_null() {
            true => terrace_files::config::default_socket(),
            // SAFETY: the caller's promise.
            false => PathBuf::from(unsafe { text(socket, "socket") }?),
        };
        // SAFETY: the caller's promise.
        let target = if target.is_null() { "" } else { unsafe { text(target, "target") }? };
        *place = Box::into_raw(Box::new(TerraceFiles {
            objects: Default::default(),
            client: Client::connect(&socket, target)?,
        }));
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_disconnect(fs: *mut TerraceFiles) {
    let _ = guard(|| {
        if !fs.is_null() {
            // SAFETY: `connect` made it of a box, and the caller does not use it any more.
            drop(unsafe { Box::from_raw(fs) });
        }
        Ok(())
    });
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_get(
    fs: *mut TerraceFiles,
    path: *const c_char,
    offset: u64,
    into: *mut u8,
    size: usize,
    length: *mut u64,
) -> i64 {
    guard_number(|| {
        // SAFETY: the caller's promise.
        let (fs, path, into) = unsafe { (get(fs, "connection")?, text(path, "path")?, buffer(into, size)?) };
        let (got, of_file) = fs.client.read_into(path, offset, into, "")?;
        // SAFETY: the caller's promise.
        if let Some(length) = unsafe { length.as_mut() } {
            *length = of_file;
        }
        Ok(got as u64)
    })
}

/// The paths of a batch.
///
/// # Safety
/// `paths` points to `count` texts.
unsafe fn list<'t>(paths: *const *const c_char, count: usize) -> Result<Vec<&'t str>> {
    if paths.is_null() && count > 0 {
        return Err(invalid("the list of paths is a null pointer"));
    }
    // SAFETY: the caller's promise.
    (0..count).map(|at| unsafe { text(*paths.add(at), "path") }).collect()
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_prefetch(
    fs: *mut TerraceFiles,
    paths: *const *const c_char,
    count: usize,
    codes: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, paths) = unsafe { (get(fs, "connection")?, list(paths, count)?) };
        let mut found = vec![OK; count];
        let ranges: Vec<(&str, u64, u64)> = paths.iter().map(|path| (*path, 0, STEP)).collect();
        let mut rest = Vec::new();
        fs.client.warm(&ranges, |index, result| match result {
            Err(fault) => found[index] = code_of(&fault),
            Ok(info) => {
                rest.extend((1..info.length.div_ceil(STEP)).map(|block| (index, block * STEP)));
            }
        })?;
        let ranges: Vec<(&str, u64, u64)> =
            rest.iter().map(|(index, offset)| (paths[*index], *offset, STEP)).collect();
        fs.client.warm(&ranges, |at, result| {
            if let Err(fault) = result {
                found[rest[at].0] = code_of(&fault);
            }
        })?;
        if !codes.is_null() {
            // SAFETY: the caller's promise: it has room for `count`.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), codes, count) };
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_batch_read(
    fs: *mut TerraceFiles,
    paths: *const *const c_char,
    count: usize,
    into: *mut u8,
    size: usize,
    items: *mut TerraceFilesItem,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, paths, into) = unsafe { (get(fs, "connection")?, list(paths, count)?, buffer(into, size)?) };
        if items.is_null() && count > 0 {
            return Err(invalid("the place for the items is a null pointer"));
        }
        let mut found = vec![TerraceFilesItem { code: FULL, offset: 0, size: 0 }; count];
        let mut at = 0;
        let mut missing = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            match fs.client.copy_whole(path, &mut into[at..]) {
                Some(Ok(size)) => {
                    found[index] = TerraceFilesItem { code: OK, offset: at, size };
                    at += size;
                }
                Some(Err(size)) => found[index].size = size,
                None => missing.push(index),
            }
        }
        let of_missing: Vec<&str> = missing.iter().map(|index| paths[*index]).collect();
        fs.client.read_many(&of_missing, |of_missing, result| {
            let Some(item) = missing.get(of_missing).and_then(|index| found.get_mut(*index)) else { return };
            match result {
                Err(fault) => item.code = code_of(&fault),
                Ok(view) => {
                    item.size = view.info.length as usize;
                    let here: usize = view.pieces().map(<[u8]>::len).sum();
                    if here == item.size && here <= into.len() - at {
                        (item.code, item.offset) = (OK, at);
                        for piece in view.pieces() {
                            into[at..at + piece.len()].copy_from_slice(piece);
                            at += piece.len();
                        }
                    }
                }
            }
        })?;
        // A file that is longer than what is leased at a time is read alone.
        for (index, item) in found.iter_mut().enumerate() {
            if item.code == FULL && item.size <= into.len() - at && item.size > 0 {
                let (got, length) = fs.client.read_into(paths[index], 0, &mut into[at..], "")?;
                if got as u64 == length {
                    *item = TerraceFilesItem { code: OK, offset: at, size: got };
                    at += got;
                }
            }
        }
        if count > 0 {
            // SAFETY: the caller's promise: it has room for `count`.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), items, count) };
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_stat(
    fs: *mut TerraceFiles,
    path: *const c_char,
    info: *mut TerraceFilesInfo,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, path, info) =
            unsafe { (get(fs, "connection")?, text(path, "path")?, get_mut(info, "place for the answer")?) };
        let found = fs.client.stat(path)?;
        info.length = found.length;
        info.version = [0; VERSION_BYTES];
        let bytes = found.version.as_bytes();
        let len = bytes.len().min(VERSION_BYTES - 1);
        info.version[..len].copy_from_slice(&bytes[..len]);
        Ok(())
    })
}

/// What a listing calls.
pub type Each = extern "C" fn(context: *mut c_void, path: *const c_char, length: u64) -> c_int;

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_list(
    fs: *mut TerraceFiles,
    folder: *const c_char,
    each: Option<Each>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, folder) = unsafe { (get(fs, "connection")?, text(folder, "folder")?) };
        let each = each.ok_or_else(|| invalid("the function is a null pointer"))?;
        for entry in fs.client.list(folder.trim_matches('/'), true)? {
            let path = CString::new(entry.path).map_err(|_| invalid("a path has a zero byte"))?;
            if each(context, path.as_ptr(), entry.length) != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_delete(fs: *mut TerraceFiles, path: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, path) = unsafe { (get(fs, "connection")?, text(path, "path")?) };
        Ok(fs.client.delete(path)?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_files_delete_prefix(
    fs: *mut TerraceFiles,
    folder: *const c_char,
    count: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (fs, folder) = unsafe { (get(fs, "connection")?, text(folder, "folder")?) };
        let below = fs.client.list(folder.trim_matches('/'), true)?;
        for entry in &below {
            fs.client.delete(&entry.path)?;
        }
        // SAFETY: the caller's promise.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = below.len() as u64;
        }
        Ok(())
    })
}
