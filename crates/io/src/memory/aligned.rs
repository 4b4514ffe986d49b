//! Memory aligned for direct I/O.
//!
//! Large buffers are mapped from the kernel and go back to it at once: an allocator would keep what batches
//! of pages leave behind, in each thread's share, beyond the memory that the engine may use.

use crate::SECTOR;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Buffers from this length on, in bytes, are mapped.
const MAPPED_MIN: usize = 64 << 10;
/// What the kernel maps is a multiple of this, in bytes.
const KERNEL_PAGE: usize = 4096;

/// Mapped buffers from this length on, in bytes, ask for huge pages: fewer misses of the address cache.
const HUGE_MIN: usize = 16 << 20;

/// Bytes that all buffers of this process have from the kernel.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// A zeroed byte buffer whose address and length are multiples of [`SECTOR`].
pub struct AlignedBuf {
    ptr: std::ptr::NonNull<u8>,
    len: usize,
    /// Bytes that are mapped, whole pages of the kernel's; 0: the allocator's.
    mapped: usize,
}

// SAFETY: the buffer owns its memory and has no interior mutability.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A zeroed buffer of `len` bytes, rounded up to a multiple of [`SECTOR`].
    pub fn zeroed(len: usize) -> AlignedBuf {
        let len = len.max(1).next_multiple_of(SECTOR);
        let layout = Layout::from_size_align(len, SECTOR).expect("a buffer's size fits isize");
        let mapped = if len >= MAPPED_MIN { len.next_multiple_of(KERNEL_PAGE) } else { 0 };
        let raw = if mapped > 0 {
            map(mapped)
        } else {
            // SAFETY: the layout's size is not zero.
            unsafe { alloc_zeroed(layout) }
        };
        let Some(ptr) = std::ptr::NonNull::new(raw) else { handle_alloc_error(layout) };
        MAPPED.fetch_add(mapped, Ordering::Relaxed);
        AlignedBuf { ptr, len, mapped }
    }

    /// Shortens the buffer to `len` bytes, rounded up to a multiple of [`SECTOR`]. If it is mapped, the pages behind are returned
    /// to the kernel.
    pub fn truncate(&mut self, len: usize) {
        let len = len.max(1).next_multiple_of(SECTOR);
        if self.mapped == 0 || len >= self.len {
            return;
        }
        self.len = len;
        let keep = len.next_multiple_of(KERNEL_PAGE);
        if keep < self.mapped {
            // SAFETY: the tail of a mapping that this value owns; it is behind `len`, so nothing refers to it.
            let unmapped = unsafe { libc::munmap(self.ptr.as_ptr().add(keep).cast(), self.mapped - keep) };
            if unmapped == 0 {
                MAPPED.fetch_sub(self.mapped - keep, Ordering::Relaxed);
                self.mapped = keep;
            }
        }
    }

    /// Bytes that all buffers of this process have from the kernel now: those of small ones are not among them.
    pub fn mapped() -> usize {
        MAPPED.load(Ordering::Relaxed)
    }

    /// The first `at` bytes, and the rest as native-endian words; `at` is a multiple of a word's length.
    pub fn split_words_mut(&mut self, at: usize) -> (&mut [u8], &mut [u64]) {
        let (front, back) = self.split_at_mut(at);
        assert!(at.is_multiple_of(size_of::<u64>()));
        // SAFETY: any bits are a `u64`. The buffer starts at and is as long as a multiple of a sector, and `at` is one of a word, so that
        // nothing is left over on either side.
        let (_, words, _) = unsafe { back.align_to_mut::<u64>() };
        (front, words)
    }
    /// [`AlignedBuf::split_words_mut`], to read.
    pub fn split_words(&self, at: usize) -> (&[u8], &[u64]) {
        let (front, back) = self.split_at(at);
        assert!(at.is_multiple_of(size_of::<u64>()));
        // SAFETY: as above.
        let (_, words, _) = unsafe { back.align_to::<u64>() };
        (front, words)
    }

    /// Whether the kernel would give a buffer of `len` bytes now. Asked before a large allocation, so that a refusal can be
    /// reported as an error.
    pub fn is_to_be_had(len: usize) -> bool {
        if len > isize::MAX as usize - SECTOR {
            return false;
        }
        let len = len.max(1).next_multiple_of(SECTOR);
        let place = map(len);
        if place.is_null() {
            return false;
        }
        // SAFETY: mapped just now with this length; no other thread has seen it.
        unsafe { libc::munmap(place.cast(), len) == 0 }
    }

    /// A copy of `bytes`, padded with zeros.
    pub fn from_slice(bytes: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(bytes.len());
        buf[..bytes.len()].copy_from_slice(bytes);
        buf
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` addresses `len` initialised bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.len, SECTOR).expect("checked when allocated");
        if self.mapped > 0 {
            // SAFETY: mapped in `zeroed`, and still with this length; nothing refers to it any more.
            let unmapped = unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.mapped) };
            debug_assert_eq!(unmapped, 0);
            MAPPED.fetch_sub(self.mapped, Ordering::Relaxed);
            return;
        }
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.ptr.as_ptr(), layout) }
    }
}

/// Zeroed pages of the kernel's; null if there are none.
fn map(len: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping; the kernel chooses its place.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
    if place == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    if len >= HUGE_MIN {
        // SAFETY: the mapping just made. It is advice: nothing depends on it.
        unsafe { libc::madvise(place, len, libc::MADV_HUGEPAGE) };
    }
    place.cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_not_to_be_had() {
        assert!(AlignedBuf::is_to_be_had(1 << 20));
        assert!(!AlignedBuf::is_to_be_had(1 << 60));
        assert!(!AlignedBuf::is_to_be_had(usize::MAX));
    }

    #[test]
    fn a_buffer_cut_short_keeps_what_is_left() {
        for len in [4 << 10, 1 << 20] {
            let mut buf = AlignedBuf::zeroed(len);
            buf.fill(7);
            buf.truncate(5000);
            let left = if len < MAPPED_MIN { len } else { 5000usize.next_multiple_of(SECTOR) };
            assert_eq!(buf.len(), left, "the allocator's are left as they are");
            buf.truncate(1 << 30);
            assert!(buf.len() == left && buf.iter().all(|byte| *byte == 7));
            buf.truncate(0);
            assert_eq!(buf[0], 7);
        }
    }
}
