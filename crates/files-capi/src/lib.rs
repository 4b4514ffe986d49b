//! The C client of `terrace files`. `include/terrace_files.h` is written by hand and holds every function's contract; `include/gopher.h` is a thin layer of
//! other names on it, `include/terrace_files.hpp` one of classes for C++. `tests/programs.rs` compiles and runs programs that use every function of them.
//!
//! * A handle is a `Box` whose pointer the caller owns. A null handle is an error, or nothing to free.
//! * Files and leases point to their connection: the caller keeps it until they are closed and released.
//! * Nothing unwinds across: a panic becomes a code.
//!
//! | file | holds |
//! | --- | --- |
//! | `error` | codes, the last error of a thread, the guard around each function |
//! | `connection` | connecting, whole files, batches, listings, deletions |
//! | `file` | open files |
//! | `group` | files that become visible together |
//! | `lease` | bytes in the shared memory |
//! | `object`, `held` | memory objects |
//!
//! Not here: anything that crate `terrace_files` can do.

mod connection;
mod error;
mod file;
mod group;
mod held;
mod lease;
mod object;

pub use connection::*;
pub use error::terrace_files_error;
pub use file::*;
pub use group::*;
pub use lease::*;
pub use object::*;

use error::{Result, invalid};
use std::ffi::{CStr, c_char};

/// What a handle points to.
///
/// # Safety
/// `handle` is null or a live handle of this type.
unsafe fn get<'h, T>(handle: *const T, what: &str) -> Result<&'h T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid(&format!("the {what} is a null pointer")))
}

/// The same, to change it.
///
/// # Safety
/// As `get`; nothing else uses it meanwhile.
unsafe fn get_mut<'h, T>(handle: *mut T, what: &str) -> Result<&'h mut T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| invalid(&format!("the {what} is a null pointer")))
}

/// A text of the caller's.
///
/// # Safety
/// `text` is null or ends with a zero byte.
unsafe fn text<'t>(text: *const c_char, what: &str) -> Result<&'t str> {
    if text.is_null() {
        return Err(invalid(&format!("the {what} is a null pointer")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| invalid(&format!("the {what} is not UTF-8")))
}

/// Bytes of the caller's that are filled.
///
/// # Safety
/// `buffer` points to `size` bytes that nothing else uses meanwhile, or `size` is 0.
unsafe fn buffer<'b>(buffer: *mut u8, size: usize) -> Result<&'b mut [u8]> {
    match (buffer.is_null(), size) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(invalid("the buffer is a null pointer")),
        (_, size) if size > isize::MAX as usize => Err(invalid("the buffer is longer than memory")),
        // SAFETY: the caller's promise. Whatever the bytes hold, a byte is valid.
        (false, size) => Ok(unsafe { std::slice::from_raw_parts_mut(buffer, size) }),
    }
}
