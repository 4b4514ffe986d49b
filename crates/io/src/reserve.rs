//! Address space held ahead of need: memory that can grow in place, and shrink, while others use it.
//!
//! A reservation costs nothing but addresses. A part of it has memory from [`Reserved::commit`] until
//! [`Reserved::release`]; what is outside cannot be touched. So whoever keeps addresses into it keeps them valid.

use std::ptr::NonNull;

/// The kernel's pages; parts of a reservation begin and end at multiples of this.
const PAGE: usize = 4096;

/// Parts from this length on, in bytes, ask for huge pages: fewer misses of the address cache.
const HUGE_MIN: usize = 16 << 20;

/// A range of addresses, part of which has memory.
pub struct Reserved {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the range is the value's own; what is done with the bytes is the caller's promise.
unsafe impl Send for Reserved {}
// SAFETY: as above.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Reserves `len` bytes of addresses, rounded up to the kernel's pages. None: there are not so many.
    pub fn new(len: usize) -> Option<Reserved> {
        if len > isize::MAX as usize - PAGE {
            return None;
        }
        let len = len.max(1).next_multiple_of(PAGE);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping; the kernel chooses its place.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, kind, -1, 0) };
        if place == libc::MAP_FAILED {
            return None;
        }
        NonNull::new(place.cast()).map(|base| Reserved { base, len })
    }

    /// Where it begins.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
    /// Bytes of addresses.
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives memory to bytes `from..to`, zeroed where they had none; `from` is rounded down and `to` up to the
    /// kernel's pages. False: the machine does not give it, or that is not within the reservation.
    pub fn commit(&self, from: usize, to: usize) -> bool {
        let (from, to) = (from / PAGE * PAGE, to.next_multiple_of(PAGE));
        if to > self.len {
            return false;
        }
        if from >= to {
            return true;
        }
        // SAFETY: within the mapping; it becomes usable, which takes nothing from anybody.
        let place = unsafe { self.base.as_ptr().add(from) };
        // SAFETY: as above.
        if unsafe { libc::mprotect(place.cast(), to - from, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return false;
        }
        if to - from >= HUGE_MIN {
            // SAFETY: as above. It is advice: nothing depends on it.
            unsafe { libc::madvise(place.cast(), to - from, libc::MADV_HUGEPAGE) };
        }
        true
    }

    /// Takes the memory of bytes `from..to` back to the machine; `from` is rounded up and `to` down to the kernel's
    /// pages. False: the machine refused, and all is as before.
    ///
    /// # Safety
    /// Nobody looks at these bytes any more, until they are committed again.
    pub unsafe fn release(&self, from: usize, to: usize) -> bool {
        let (from, to) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
        if from >= to || to > self.len {
            return from >= to;
        }
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: within the mapping, and unused by the caller's promise. A new mapping in place of the old one gives
        // back the machine's promise as well as the memory.
        let place = unsafe {
            let at = self.base.as_ptr().add(from);
            libc::mmap(at.cast(), to - from, libc::PROT_NONE, kind, -1, 0)
        };
        place != libc::MAP_FAILED
    }

    /// Gives the memory of bytes `from..to` to the machine; they stay committed, and are zero when somebody looks at them next. `from`
    /// is rounded up and `to` down to the kernel's pages. False: the machine refused, and all is as before.
    ///
    /// # Safety
    /// Nobody looks at these bytes meanwhile, and nobody needs what is in them.
    pub unsafe fn give_up(&self, from: usize, to: usize) -> bool {
        let (from, to) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
        if from >= to || to > self.len {
            return from >= to;
        }
        // SAFETY: within the mapping, and unused by the caller's promise.
        unsafe { libc::madvise(self.base.as_ptr().add(from).cast(), to - from, libc::MADV_DONTNEED) == 0 }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nothing refers to it any more.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
    }

    #[test]
    fn memory_comes_and_goes_and_addresses_stay() {
        const PART: usize = 64 << 20;
        let place = Reserved::new(1 << 40).expect("addresses are plenty");
        assert!(place.commit(0, 2 * PART) && place.commit(PART, 2 * PART));
        let before = resident();
        // SAFETY: committed, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(place.base(), 2 * PART) }.fill(7);
        assert!(resident() > before + PART + PART / 2);
        // SAFETY: the slice is gone.
        assert!(unsafe { place.release(PART, 2 * PART) });
        assert!(resident() < before + PART + PART / 2, "the memory has gone back");
        assert!(place.commit(PART, 2 * PART));
        // SAFETY: committed, and nobody writes.
        let bytes = unsafe { std::slice::from_raw_parts(place.base(), 2 * PART) };
        assert!(bytes[..PART].iter().all(|b| *b == 7) && bytes[PART..].iter().all(|b| *b == 0));
        // Given up, it stays to be used.
        let before = resident();
        // SAFETY: nobody needs it.
        assert!(unsafe { place.give_up(0, PART) });
        assert!(resident() < before - PART / 2, "the memory has gone back");
        // SAFETY: committed, and nobody writes.
        assert!(unsafe { std::slice::from_raw_parts(place.base(), PART) }.iter().all(|b| *b == 0));
        assert!(!place.commit(0, (1 << 40) + 1) && Reserved::new(usize::MAX).is_none());
    }
}
