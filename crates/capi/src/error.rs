//! Codes, and the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace::{Error, ErrorKind};

/// Done.
pub const TERRACE_DB_OK: c_int = 0;
/// Done, and there is no such key, no further pair, or the key to insert is there. Not an error.
pub const TERRACE_DB_NONE: c_int = 1;
/// Roll back and run the transaction again.
pub const TERRACE_DB_CONFLICT: c_int = 2;
/// Try later.
pub const TERRACE_DB_UNAVAILABLE: c_int = 3;
/// Make room.
pub const TERRACE_DB_FULL: c_int = 4;
/// Another process or handle uses it.
pub const TERRACE_DB_BUSY: c_int = 5;
/// There is no such tree.
pub const TERRACE_DB_NOT_FOUND: c_int = 6;
/// Fix the call.
pub const TERRACE_DB_INVALID: c_int = 7;
/// Run `terrace check`.
pub const TERRACE_DB_CORRUPT: c_int = 8;
/// Close and open again.
pub const TERRACE_DB_POISONED: c_int = 9;
/// A bug in this library.
pub const TERRACE_DB_PANIC: c_int = 10;

/// An error on its way out.
pub(crate) struct Fault {
    code: c_int,
    text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub fn invalid(text: impl Into<String>) -> Fault {
        Fault { code: TERRACE_DB_INVALID, text: text.into() }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let code = match error.kind() {
            ErrorKind::Conflict => TERRACE_DB_CONFLICT,
            ErrorKind::Unavailable => TERRACE_DB_UNAVAILABLE,
            ErrorKind::Full => TERRACE_DB_FULL,
            ErrorKind::Busy => TERRACE_DB_BUSY,
            ErrorKind::NotFound => TERRACE_DB_NOT_FOUND,
            ErrorKind::Invalid => TERRACE_DB_INVALID,
            ErrorKind::Corrupt => TERRACE_DB_CORRUPT,
            ErrorKind::Poisoned => TERRACE_DB_POISONED,
            // A kind that this interface does not know yet: its text says what it is.
            _ => TERRACE_DB_UNAVAILABLE,
        };
        Fault { code, text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(fault: Fault) -> c_int {
    let mut text = fault.text.into_bytes();
    text.retain(|byte| *byte != 0);
    // A thread that ends has no last error any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    fault.code
}

/// Runs the body of an exported function. Nothing unwinds past it.
pub(crate) fn guard(body: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(fault)) => remember(fault),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = format!("internal error: {}", text.as_deref().unwrap_or("a panic without a message"));
            // What a panic carries may panic when it is dropped.
            std::mem::forget(panic);
            remember(Fault { code: TERRACE_DB_PANIC, text })
        }
    }
}

/// `TERRACE_DB_OK`, or `TERRACE_DB_NONE`.
pub(crate) fn found(is: bool) -> c_int {
    if is { TERRACE_DB_OK } else { TERRACE_DB_NONE }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_db_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_a_code_and_a_text() {
        let code = guard(|| panic!("planted {}", 1));
        // SAFETY: the text is this thread's, and no other error follows.
        let text = unsafe { CStr::from_ptr(terrace_db_error()) };
        assert_eq!((code, text.to_str()), (TERRACE_DB_PANIC, Ok("internal error: planted 1")));
    }

    #[test]
    fn an_error_is_the_text_of_its_own_thread() {
        let code = guard(|| Err(Fault::invalid("mine\0")));
        let other = std::thread::spawn(|| {
            // SAFETY: a string of this thread's that no call changes meanwhile.
            unsafe { CStr::from_ptr(terrace_db_error()) }.to_owned()
        });
        assert_eq!(other.join().unwrap().to_bytes(), b"");
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(terrace_db_error()) };
        assert_eq!((code, text.to_bytes()), (TERRACE_DB_INVALID, &b"mine"[..]));
    }
}
