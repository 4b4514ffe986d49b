//! Pointers, bytes and buffers.

use crate::error::{Fault, Result};
use std::ffi::{CStr, c_char};

/// Bytes that their owner lends.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceDbBytes {
    /// The first of them. May be null if there are none.
    pub data: *const u8,
    /// How many.
    pub size: usize,
}

impl TerraceDbBytes {
    pub(crate) fn of(bytes: &[u8]) -> TerraceDbBytes {
        TerraceDbBytes { data: bytes.as_ptr(), size: bytes.len() }
    }

    /// # Safety
    /// `data` points to `size` bytes that do not change for `'b`.
    pub(crate) unsafe fn get<'b>(self) -> Result<&'b [u8]> {
        match (self.data.is_null(), self.size) {
            (_, 0) => Ok(&[]),
            (true, size) => Err(Fault::invalid(format!("{size} bytes at a null pointer"))),
            // No slice is larger, and no address space has more.
            (_, size) if size > isize::MAX as usize => {
                Err(Fault::invalid(format!("a length of {size} bytes")))
            }
            // SAFETY: the caller's promise.
            (false, size) => Ok(unsafe { std::slice::from_raw_parts(self.data, size) }),
        }
    }
}

/// A value's buffer, which the caller owns: zeroed, or filled by an earlier call.
#[repr(C)]
pub struct TerraceDbBuffer {
    /// The value.
    pub data: *mut u8,
    /// Its length.
    pub size: usize,
    /// Bytes allocated.
    pub capacity: usize,
}

impl TerraceDbBuffer {
    /// Takes the allocation out and leaves the buffer zeroed.
    ///
    /// # Safety
    /// The buffer is zeroed or was filled by `put_back`.
    unsafe fn take(&mut self) -> Vec<u8> {
        let (data, capacity) = (self.data, self.capacity);
        *self = TerraceDbBuffer { data: std::ptr::null_mut(), size: 0, capacity: 0 };
        match data.is_null() || capacity == 0 {
            true => Vec::new(),
            // SAFETY: the caller's promise: `put_back` took pointer and capacity from a vector, and no other owner is left.
            false => unsafe { Vec::from_raw_parts(data, 0, capacity) },
        }
    }

    fn put_back(&mut self, bytes: Vec<u8>) {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        *self = TerraceDbBuffer { data: bytes.as_mut_ptr(), size: bytes.len(), capacity: bytes.capacity() };
        if self.capacity == 0 {
            self.data = std::ptr::null_mut();
        }
    }
}

/// Reads a value into the caller's buffer, whose memory is used again. False: there is none, and the buffer is empty.
///
/// # Safety
/// `buffer` is null or points to a buffer that is zeroed or was filled here.
pub(crate) unsafe fn read_into(
    buffer: *mut TerraceDbBuffer,
    read: impl FnOnce(&mut Vec<u8>) -> Result<bool>,
) -> Result<bool> {
    // SAFETY: the caller's promise.
    let buffer = unsafe { buffer.as_mut() }.ok_or_else(|| Fault::invalid("the buffer is a null pointer"))?;
    // SAFETY: the caller's promise.
    let mut bytes = unsafe { buffer.take() };
    let found = read(&mut bytes);
    if !matches!(found, Ok(true)) {
        bytes.clear();
    }
    buffer.put_back(bytes);
    found
}

/// See the header.
///
/// # Safety
/// `buffer` is null or points to a buffer that is zeroed or was filled by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_buffer_free(buffer: *mut TerraceDbBuffer) {
    // SAFETY: the caller's promise.
    if let Some(buffer) = unsafe { buffer.as_mut() } {
        // SAFETY: the caller's promise.
        drop(unsafe { buffer.take() });
    }
}

/// What a handle points to.
///
/// # Safety
/// `handle` is null or a live handle of this type.
pub(crate) unsafe fn get<'h, T>(handle: *const T, what: &str) -> Result<&'h T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Fault::invalid(format!("the {what} is a null pointer")))
}

/// The same, to change it.
///
/// # Safety
/// As `get`; no other thread uses the handle.
pub(crate) unsafe fn get_mut<'h, T>(handle: *mut T, what: &str) -> Result<&'h mut T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| Fault::invalid(format!("the {what} is a null pointer")))
}

/// Makes a handle where the caller wants it. The caller's pointer is null until then, so that it is null after an error.
///
/// # Safety
/// `place` is null or may be written.
pub(crate) unsafe fn give<T>(place: *mut *mut T, make: impl FnOnce() -> Result<T>) -> Result<()> {
    // SAFETY: the caller's promise.
    let place = unsafe { place.as_mut() }
        .ok_or_else(|| Fault::invalid("the place for the new handle is a null pointer"))?;
    *place = std::ptr::null_mut();
    *place = Box::into_raw(Box::new(make()?));
    Ok(())
}

/// Takes a handle back. None: it is null.
///
/// # Safety
/// `handle` is null or a live handle that no thread uses any more.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise: `give` made it of a box.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// A text of the caller's.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn text<'t>(text: *const c_char, what: &str) -> Result<&'t str> {
    if text.is_null() {
        return Err(Fault::invalid(format!("the {what} is a null pointer")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Fault::invalid(format!("the {what} is not UTF-8")))
}
