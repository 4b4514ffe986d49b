//! Codes, and the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_files::catalogue::Fault;
use terrace_files::client::Error;

pub const OK: c_int = 0;
const ABSENT: c_int = 1;
const CHANGED: c_int = 2;
const UNAVAILABLE: c_int = 3;
const REFUSED: c_int = 4;
const BUSY: c_int = 5;
const INVALID: c_int = 6;
const EXISTS: c_int = 7;
pub const FULL: c_int = 8;
const PANIC: c_int = 9;

/// An error on its way out.
pub struct Failed {
    code: c_int,
    text: String,
}

pub type Result<T> = std::result::Result<T, Failed>;

pub fn invalid(text: &str) -> Failed {
    Failed { code: INVALID, text: text.into() }
}

pub fn code_of(fault: &Fault) -> c_int {
    match fault {
        Fault::Absent => ABSENT,
        Fault::Changed => CHANGED,
        Fault::Unavailable(_) => UNAVAILABLE,
        Fault::Refused(_) => REFUSED,
        Fault::Busy(_) => BUSY,
        Fault::Invalid(_) => INVALID,
        Fault::Exists => EXISTS,
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let code = match &error {
            Error::Fault(fault) => code_of(fault),
            Error::Malformed(_) => REFUSED,
            Error::Io(_) => UNAVAILABLE,
        };
        Failed { code, text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(failed: Failed) -> c_int {
    let mut text = failed.text.into_bytes();
    text.retain(|byte| *byte != 0);
    // A thread that ends has no last error any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    failed.code
}

fn caught<T>(body: impl FnOnce() -> Result<T>) -> std::result::Result<T, c_int> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.map_err(remember),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            // What a panic carries may panic when it is dropped.
            std::mem::forget(panic);
            Err(remember(Failed { code: PANIC, text: format!("internal error: {text}") }))
        }
    }
}

/// Runs the body of an exported function. Nothing unwinds past it.
pub fn guard(body: impl FnOnce() -> Result<()>) -> c_int {
    caught(body).map_or_else(|code| code, |()| OK)
}

/// The same, for a function that returns a number or a negative code.
pub fn guard_number(body: impl FnOnce() -> Result<u64>) -> i64 {
    caught(body).map_or_else(|code| -i64::from(code), |number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_files_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
