//! Address space held ahead of need: memory that can grow in place, and shrink, while others use it.
//!
//! A reservation costs nothing but addresses. A part of it has memory from [`Reserved::commit`] until
//! [`Reserved::release`]; what is outside cannot be touched. So whoever keeps addresses into it keeps them valid.
//!
//! Huge pages mean fewer misses of the address cache. What is touched at once asks for them ([`Reserved::ask_huge`]); for what is touched
//! piece by piece, and given up so, the owner says which part is to have one now ([`Reserved::take_huge`]).

use parking_lot::Mutex;
use std::ptr::NonNull;

/// The kernel's pages; parts of a reservation begin and end at multiples of this.
const PAGE: usize = 4096;

/// Bytes of a huge page. Reservations of this length or more begin at a multiple of it.
pub const HUGE: usize = 2 << 20;

/// Lengths from which on huge pages are worth it, in bytes.
pub const HUGE_MIN: usize = 16 << 20;

/// Held by a thread that has the kernel make a huge page: the process's setting may be another meanwhile.
static SETTING: Mutex<()> = Mutex::new(());

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
    /// Reserves `len` bytes of addresses, rounded up to the kernel's pages. None: there are not that many.
    pub fn new(len: usize) -> Option<Reserved> {
        if len > isize::MAX as usize - PAGE {
            return None;
        }
        let len = len.max(1).next_multiple_of(PAGE);
        let more = if len >= HUGE { HUGE - PAGE } else { 0 };
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let all = len.checked_add(more)?;
        // SAFETY: a new private mapping; the kernel chooses its place.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, kind, -1, 0) };
        if place == libc::MAP_FAILED {
            return None;
        }
        let front = if more == 0 { 0 } else { (place as usize).next_multiple_of(HUGE) - place as usize };
        for (from, to) in [(0, front), (front + len, all)] {
            if from < to {
                // SAFETY: in the mapping just made, before and behind what is kept of it.
                let unmapped = unsafe { libc::munmap(place.cast::<u8>().add(from).cast(), to - from) };
                debug_assert_eq!(unmapped, 0);
            }
        }
        // SAFETY: in the mapping.
        NonNull::new(unsafe { place.cast::<u8>().add(front) }).map(|base| Reserved { base, len })
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
        // SAFETY: within the mapping; it becomes usable, which takes nothing from any other thread.
        let place = unsafe { self.base.as_ptr().add(from) };
        // SAFETY: as above.
        if unsafe { libc::mprotect(place.cast(), to - from, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return false;
        }
        true
    }

    /// Asks for huge pages for bytes `from..to`, if they are many; they are committed, and about to be touched.
    pub fn ask_huge(&self, from: usize, to: usize) {
        if to.saturating_sub(from) >= HUGE_MIN {
            self.advise(from, to, libc::MADV_HUGEPAGE);
        }
    }

    /// Bytes `from..to`, committed, have no huge pages but by [`Reserved::take_huge`]: what is given up in part is not made whole by the kernel.
    pub fn refuse_huge(&self, from: usize, to: usize) {
        self.advise(from, to, libc::MADV_NOHUGEPAGE);
    }

    /// Has the kernel make one huge page of the bytes at `at`, a multiple of [`HUGE`]. They are committed and refuse huge pages otherwise. Bytes
    /// that have memory keep it, and then there is no huge page, nor where the kernel has none to give, or is older than 5.14: memory comes
    /// as the bytes are touched.
    ///
    /// A process that has turned huge pages off has them on for a moment: MariaDB turns them off when its engines have started, and means
    /// by that all but the buffers of pages.
    pub fn take_huge(&self, at: usize) {
        if !at.is_multiple_of(HUGE) || at.checked_add(HUGE).is_none_or(|to| to > self.len) {
            return;
        }
        let _setting = SETTING.lock();
        // 3 is off for all but those who ask, as we do.
        // SAFETY: asks and changes nothing.
        let off = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) } == 1;
        let set = |off: libc::c_ulong| {
            // SAFETY: no code relies on memory coming in huge pages.
            unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, off, 0, 0, 0) };
        };
        if off {
            set(0);
        }
        self.advise(at, at + HUGE, libc::MADV_HUGEPAGE);
        // As if one byte were written, whoever has it.
        self.advise(at, at + PAGE, libc::MADV_POPULATE_WRITE);
        self.advise(at, at + HUGE, libc::MADV_NOHUGEPAGE);
        if off {
            set(1);
        }
    }

    /// Advice that changes no byte of committed memory: nothing depends on whether the kernel takes it.
    fn advise(&self, from: usize, to: usize, advice: libc::c_int) {
        assert!(from <= to && to <= self.len);
        // SAFETY: within the mapping, and no byte is other than before.
        unsafe { libc::madvise(self.base.as_ptr().add(from).cast(), to - from, advice) };
    }

    /// Takes the memory of bytes `from..to` back to the machine; `from` is rounded up and `to` down to the kernel's
    /// pages. False: the machine refused, and all is as before.
    ///
    /// # Safety
    /// No thread reads these bytes any more, until they are committed again.
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

    /// Returns the memory of bytes `from..to` to the machine; they stay committed, and are zero when they are read next. `from`
    /// is rounded up and `to` down to the kernel's pages. False: the machine refused, and all is as before.
    ///
    /// # Safety
    /// No thread reads or writes these bytes meanwhile, and their content is not needed.
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
        // SAFETY: committed, and no other thread has it.
        unsafe { std::slice::from_raw_parts_mut(place.base(), 2 * PART) }.fill(7);
        assert!(resident() > before + PART + PART / 2);
        // SAFETY: the slice is gone.
        assert!(unsafe { place.release(PART, 2 * PART) });
        assert!(resident() < before + PART + PART / 2, "the memory has gone back");
        assert!(place.commit(PART, 2 * PART));
        // SAFETY: committed, and no thread writes.
        let bytes = unsafe { std::slice::from_raw_parts(place.base(), 2 * PART) };
        assert!(bytes[..PART].iter().all(|b| *b == 7) && bytes[PART..].iter().all(|b| *b == 0));
        // Given up, it stays to be used.
        let before = resident();
        // SAFETY: the content is not needed.
        assert!(unsafe { place.give_up(0, PART) });
        assert!(resident() < before - PART / 2, "the memory has gone back");
        // SAFETY: committed, and no thread writes.
        assert!(unsafe { std::slice::from_raw_parts(place.base(), PART) }.iter().all(|b| *b == 0));
        assert!(!place.commit(0, (1 << 40) + 1) && Reserved::new(usize::MAX).is_none());
    }

    /// Bytes of huge pages in the mapping that has this place.
    fn huge(place: *const u8) -> usize {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut within = false;
        let mut kib = 0;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((from, to)) = first.split_once('-') {
                let number = |text| usize::from_str_radix(text, 16).unwrap();
                within = (number(from)..number(to)).contains(&(place as usize));
            } else if within && first == "AnonHugePages:" {
                kib += words.next().unwrap().parse::<usize>().unwrap();
            }
        }
        kib << 10
    }

    /// In a process of its own, since the setting is the process's: the child says what it saw by its exit code.
    #[test]
    fn a_part_has_a_huge_page_though_the_process_refuses_them() {
        let setting =
            std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if setting.is_empty() || setting.contains("[never]") {
            eprintln!("not tried: this kernel gives no huge pages");
            return;
        }
        const CHILD: &str = "TERRACE_TEST_HUGE";
        if std::env::var_os(CHILD).is_none() {
            let name = "memory::reserve::tests::a_part_has_a_huge_page_though_the_process_refuses_them";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let child = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
            assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
            return;
        }
        // SAFETY: a setting of this process.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
        let place = Reserved::new(64 << 20).unwrap();
        assert!((place.base() as usize).is_multiple_of(HUGE) && place.commit(0, 64 << 20));
        place.refuse_huge(0, 64 << 20);
        place.take_huge(0);
        place.take_huge(3 * HUGE);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) }, 1, "as it was");
        // SAFETY: committed, and no other thread has it.
        unsafe { std::slice::from_raw_parts_mut(place.base(), 8 * HUGE) }.fill(7);
        assert_eq!(huge(place.base()), 2 * HUGE);
        // What is given up in part stays given up, and the rest is there.
        // SAFETY: the content is not needed.
        assert!(unsafe { place.give_up(HUGE / 2, HUGE) });
        place.take_huge(0);
        assert_eq!(huge(place.base()), HUGE);
        // SAFETY: committed, and no thread writes.
        let bytes = unsafe { std::slice::from_raw_parts(place.base(), 4 * HUGE) };
        assert!(bytes[..HUGE / 2].iter().all(|b| *b == 7) && bytes[HUGE / 2..HUGE].iter().all(|b| *b == 0));
        assert!(bytes[HUGE..].iter().all(|b| *b == 7));
        // Outside, and not at its begin: nothing.
        place.take_huge(64 << 20);
        place.take_huge(PAGE);
    }
}
