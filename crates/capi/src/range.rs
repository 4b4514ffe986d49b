//! Ranges.

use crate::error::{Fault, Result, TERRACE_DB_NONE, TERRACE_DB_OK, guard};
use crate::handle::{TerraceDbBytes, get_mut, take};
use std::ffi::c_int;
use std::ops::Bound;
use terrace::bindings::SharedRange;

/// Pairs in key order, from both ends.
pub struct TerraceDbRange(pub(crate) SharedRange);

/// The low key itself is left out.
pub const TERRACE_DB_LOW_EXCLUDED: u32 = 1;
/// The high key itself is part of the range.
pub const TERRACE_DB_HIGH_INCLUDED: u32 = 2;

/// Which keys a range has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TerraceDbBounds {
    /// Null data: from the first key.
    pub low: TerraceDbBytes,
    /// Null data: to the last key.
    pub high: TerraceDbBytes,
    /// `TERRACE_DB_LOW_EXCLUDED`, `TERRACE_DB_HIGH_INCLUDED`.
    pub flags: u32,
}

/// # Safety
/// `bounds` is null or points to bounds whose bytes are lent.
pub(crate) unsafe fn bounds_of<'b>(
    bounds: *const TerraceDbBounds,
) -> Result<(Bound<&'b [u8]>, Bound<&'b [u8]>)> {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { bounds.as_ref() }) else { return Ok((Bound::Unbounded, Bound::Unbounded)) };
    if given.flags & !(TERRACE_DB_LOW_EXCLUDED | TERRACE_DB_HIGH_INCLUDED) != 0 {
        return Err(Fault::invalid(format!("{} are not flags of a range", given.flags)));
    }
    // SAFETY: the caller's promise.
    let (low, high) = unsafe { (given.low.get()?, given.high.get()?) };
    let low = match given.flags & TERRACE_DB_LOW_EXCLUDED {
        _ if given.low.data.is_null() => Bound::Unbounded,
        0 => Bound::Included(low),
        _ => Bound::Excluded(low),
    };
    let high = match given.flags & TERRACE_DB_HIGH_INCLUDED {
        _ if given.high.data.is_null() => Bound::Unbounded,
        0 => Bound::Excluded(high),
        _ => Bound::Included(high),
    };
    Ok((low, high))
}

/// # Safety
/// See `terrace_db_range_next`.
unsafe fn step(
    range: *mut TerraceDbRange,
    backward: bool,
    key: *mut TerraceDbBytes,
    value: *mut TerraceDbBytes,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let range = unsafe { get_mut(range, "range") }?;
        let Some((found_key, found_value)) = range.0.step(backward)? else { return Ok(TERRACE_DB_NONE) };
        // SAFETY: the caller's promise.
        if let Some(key) = unsafe { key.as_mut() } {
            *key = TerraceDbBytes::of(found_key);
        }
        // SAFETY: the caller's promise.
        if let Some(value) = unsafe { value.as_mut() } {
            *value = TerraceDbBytes::of(found_value);
        }
        Ok(TERRACE_DB_OK)
    })
}

/// See the header.
///
/// # Safety
/// `range` is a live handle that no other thread uses; `key` and `value` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_range_next(
    range: *mut TerraceDbRange,
    key: *mut TerraceDbBytes,
    value: *mut TerraceDbBytes,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe { step(range, false, key, value) }
}

/// See the header.
///
/// # Safety
/// As `terrace_db_range_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_range_prev(
    range: *mut TerraceDbRange,
    key: *mut TerraceDbBytes,
    value: *mut TerraceDbBytes,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe { step(range, true, key, value) }
}

/// See the header.
///
/// # Safety
/// `range` is null or a live handle that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_range_close(range: *mut TerraceDbRange) {
    guard(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(range) });
        Ok(TERRACE_DB_OK)
    });
}
