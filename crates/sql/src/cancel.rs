//! Cancelling at the border: ends what a transaction, or a thread, waits for, from another thread.

use crate::error::{Code, guard};
use crate::transaction::TerraceTxn;
use std::sync::Arc;
use terrace_engine::Cancel;
use terrace_engine::CancelScope;

/// Ends waits from another thread: a transaction's, or those of a thread that says for how long. Freed by `terrace_cancel_close`.
pub struct TerraceCancel {
    cancel: Arc<Cancel>,
}

/// A time in which a thread's waits can be cancelled. Ended by `terrace_scope_end`, on that thread.
pub struct TerraceScope {
    _scope: CancelScope,
}

/// A handle by which another thread can end this transaction's waits.
///
/// # Safety
/// `txn` is open, `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_cancel_handle(
    txn: *const TerraceTxn,
    out: *mut *mut TerraceCancel,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let cancel = (*txn).txn.cancel_handle();
            *out = Box::into_raw(Box::new(TerraceCancel { cancel }));
        }
        Ok(Code::Ok)
    })
}

/// The wait the transaction is in, and every later one, ends with `TERRACE_CANCELLED`, until its next
/// `terrace_txn_statement_begin`; or that which the thread is in, until `terrace_cancel_clear`. Safe beside everything else.
///
/// # Safety
/// `cancel` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_txn_cancel(cancel: *const TerraceCancel) {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { &*cancel }.cancel.cancel();
        Ok(Code::Ok)
    });
}

/// Frees the handle; null is fine.
///
/// # Safety
/// `cancel` came from this library and is no longer used by any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cancel_close(cancel: *mut TerraceCancel) {
    if !cancel.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(cancel) });
    }
}

/// A handle for waits that are no transaction's.
///
/// # Safety
/// `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cancel_create(out: *mut *mut TerraceCancel) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { *out = Box::into_raw(Box::new(TerraceCancel { cancel: Arc::default() })) };
        Ok(Code::Ok)
    })
}

/// A former cancel is over.
///
/// # Safety
/// `cancel` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_cancel_clear(cancel: *const TerraceCancel) {
    // SAFETY: the caller's promise.
    unsafe { &*cancel }.cancel.clear();
}

/// What this thread waits for from here on, but in calls for a transaction, can be cancelled.
///
/// # Safety
/// `cancel` is open. Scopes of one thread end in the reverse order of their beginnings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_scope_begin(cancel: *const TerraceCancel) -> *mut TerraceScope {
    // SAFETY: the caller's promise.
    let scope = unsafe { &*cancel }.cancel.scope();
    Box::into_raw(Box::new(TerraceScope { _scope: scope }))
}

/// Ends the scope; null is fine.
///
/// # Safety
/// `scope` was begun on this thread and has not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_scope_end(scope: *mut TerraceScope) {
    if !scope.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(scope) });
    }
}
