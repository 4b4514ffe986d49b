//! Errors at the border: one code for each thing a caller does differently, and the last message of each thread.
//!
//! Every exported function runs inside [`guard`], which turns an engine error into its code, keeps its text, and
//! stops a panic.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_engine::Error;

/// What a call returns. 0 and 1 are no errors.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TerraceCode {
    Ok = 0,
    /// No such row, or no further row. Not an error.
    NoRow = 1,
    /// A unique index has the key already; `terrace_error_index` tells which index.
    Duplicate = 2,
    LockTimeout = 3,
    /// The transaction was chosen to end a deadlock; it must be rolled back.
    Deadlock = 4,
    /// No such table, transaction or savepoint.
    Absent = 5,
    Exists = 6,
    /// A key or row is larger than the engine stores.
    TooLarge = 7,
    /// A tier is unreachable for now; the call may be tried later.
    Unavailable = 8,
    /// Out of room on the volume or in the object buffer.
    Full = 9,
    /// Bytes on a tier are not what was written; the message names tier, space and page.
    Corrupt = 10,
    /// An earlier failure (a sync that failed) forbids further writing; close and open again.
    Poisoned = 11,
    /// The call itself is wrong.
    Invalid = 12,
    /// `terrace_txn_cancel` ended the wait.
    Cancelled = 13,
    TooManyLocks = 14,
    /// A bug: the library panicked. The message says where.
    Panic = 15,
    /// The volume or the table is in use by another process or session.
    Busy = 16,
    /// The transaction's view is older than an index of the table: it must be started again to use it.
    Changed = 17,
    /// An object is not in the object store, where it should be; the message names page and object.
    Missing = 18,
    /// Strict snapshots: a row to lock is newer than what the transaction sees; it must be rolled back.
    RowChanged = 19,
}

pub use TerraceCode as Code;

/// An error on its way out.
#[derive(Debug)]
pub struct Fault {
    pub code: Code,
    pub index: u32,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub fn new(code: Code, message: String) -> Fault {
        Fault { code, index: u32::MAX, message }
    }
    pub fn invalid(message: String) -> Fault {
        Fault::new(Code::Invalid, message)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let message = error.to_string();
        let mut index = u32::MAX;
        let code = match error {
            Error::Duplicate { index: at } => {
                index = at as u32;
                Code::Duplicate
            }
            Error::LockTimeout => Code::LockTimeout,
            Error::Deadlock => Code::Deadlock,
            Error::Absent(_) => Code::Absent,
            Error::Exists(_) => Code::Exists,
            Error::TooLarge { .. } => Code::TooLarge,
            Error::Unavailable(_) => Code::Unavailable,
            Error::Full(_) => Code::Full,
            Error::Corrupt(_) => Code::Corrupt,
            Error::Missing(_) => Code::Missing,
            Error::Poisoned(_) => Code::Poisoned,
            Error::Invalid(_) => Code::Invalid,
            Error::Cancelled => Code::Cancelled,
            Error::TooManyLocks { .. } => Code::TooManyLocks,
            Error::Busy(_) => Code::Busy,
            Error::Changed(_) => Code::Changed,
            Error::RowChanged => Code::RowChanged,
        };
        Fault { code, index, message }
    }
}

struct Last {
    index: u32,
    message: String,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { index: u32::MAX, message: String::new() }) };
}

fn remember(fault: Fault) -> i32 {
    let code = fault.code as i32;
    // At a thread's very end there is no one left to read the message.
    let _ = LAST.try_with(|last| {
        *last.borrow_mut() = Last { index: fault.index, message: fault.message };
    });
    code
}

/// Runs `body` for an exported function; nothing unwinds past it.
pub(crate) fn guard(body: impl FnOnce() -> Result<Code>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code as i32,
        Ok(Err(fault)) => remember(fault),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| text.to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "panic without a message".into());
            remember(Fault::new(Code::Panic, format!("internal error in the storage engine: {text}")))
        }
    }
}

/// Copies the text of this thread's last error into `buffer` (at most `capacity` bytes, the last one 0) and returns
/// the text's full length. With `capacity` 0 nothing is copied.
///
/// # Safety
/// `buffer` points to `capacity` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_error_message(buffer: *mut u8, capacity: usize) -> usize {
    LAST.try_with(|last| {
        let last = last.borrow();
        let text = last.message.as_bytes();
        if capacity > 0 {
            let mut len = text.len().min(capacity - 1);
            while len > 0 && !last.message.is_char_boundary(len) {
                len -= 1;
            }
            // SAFETY: len < capacity, the caller's promise about the buffer.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, len);
                *buffer.add(len) = 0;
            }
        }
        text.len()
    })
    .unwrap_or(0)
}

/// The index (its place in the table's definition) that this thread's last `TERRACE_DUPLICATE` was about; all ones if
/// the last error was another.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_error_index() -> u32 {
    LAST.try_with(|last| last.borrow().index).unwrap_or(u32::MAX)
}
