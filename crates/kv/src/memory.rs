//! Memory of the process, as its allocator and the system count it.
//!
//! The allocator's sum is read from time to time ([`Meter::refresh`]) and brought up to date in between with what this thread has allocated and freed since,
//! which costs two loads: the event loop makes and frees nearly all values.
//!
//! Free pages that the allocator keeps are given back when the process is over its bound ([`give_back`]), and after a second in any case.

pub use tikv_jemallocator::Jemalloc as Allocator;

use std::cell::RefCell;
use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};

/// Settings of the allocator: pages that are free for a second go back to the system, so that what is resident follows what is allocated.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 37] = b"dirty_decay_ms:1000,muzzy_decay_ms:0\0";

/// Bytes that are allocated; 0 if the process has another allocator than jemalloc.
pub fn allocated_bytes() -> usize {
    let refreshed = tikv_jemalloc_ctl::epoch::advance().is_ok();
    if refreshed { tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0) } else { 0 }
}

/// Bytes of physical memory that the allocator has from the system.
pub fn resident_bytes() -> usize {
    let refreshed = tikv_jemalloc_ctl::epoch::advance().is_ok();
    if refreshed { tikv_jemalloc_ctl::stats::resident::read().unwrap_or(0) } else { 0 }
}

/// Bytes of physical memory of the process; 0 if the system does not say.
pub fn process_bytes() -> usize {
    #[allow(clippy::disallowed_methods, reason = "a figure of the kernel, not a file of the data")]
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    // SAFETY: a constant of the system is asked for.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    pages.unwrap_or(0) * page_bytes
}

/// Gives free pages of the allocator back to the system.
pub fn give_back() {
    // SAFETY: the name ends with a zero, and this command takes no value and returns none. The number means all arenas.
    let failed = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"arena.4096.purge".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        )
    };
    // The allocator does so by itself later.
    debug_assert_eq!(failed, 0);
}

thread_local! {
    static COUNTERS: RefCell<Option<(ThreadLocal<u64>, ThreadLocal<u64>)>> = const { RefCell::new(None) };
}

thread_local! {
    /// The number of the look that was the last when this thread began to execute commands, and what it had allocated and freed then.
    static LAST_SEEN: std::cell::Cell<(u64, (u64, u64))> = const { std::cell::Cell::new((0, (0, 0))) };
}

/// What this thread has allocated, and what it has freed.
fn of_thread() -> (u64, u64) {
    COUNTERS.with_borrow_mut(|counters| {
        if counters.is_none() {
            *counters = allocatedp::read().ok().zip(deallocatedp::read().ok());
        }
        counters.as_ref().map_or((0, 0), |(allocated, freed)| (allocated.get(), freed.get()))
    })
}

/// How much memory is used. Belongs to the thread that executes commands: one at a time, each of which says so first ([`Meter::enter`]).
#[derive(Default)]
pub struct Meter {
    allocated: u64,
    /// What the thread that executes commands had allocated and freed then.
    of_thread: (u64, u64),
    /// What was allocated since the last look, by threads that executed commands before.
    moved: u64,
    /// Counts the looks at the whole process.
    looks: u64,
    /// Physical memory of the process then.
    pub process: usize,
    /// Bytes of the process outside the allocator: the program, and the buffer pool of the storage tier.
    pub elsewhere: usize,
    /// Bytes that the allocator has in use and cannot hand out as they are.
    pub fragments: usize,
}

impl Meter {
    /// Looks at the whole process.
    pub fn refresh(&mut self) {
        let allocated = allocated_bytes();
        (self.allocated, self.of_thread, self.process) = (allocated as u64, of_thread(), process_bytes());
        (self.moved, self.looks) = (0, self.looks + 1);
        LAST_SEEN.set((self.looks, self.of_thread));
        self.elsewhere = self.process.saturating_sub(tikv_jemalloc_ctl::stats::resident::read().unwrap_or(0));
        let active = tikv_jemalloc_ctl::stats::active::read().unwrap_or(0);
        let metadata = tikv_jemalloc_ctl::stats::metadata::read().unwrap_or(0);
        self.fragments = (active + metadata).saturating_sub(allocated);
    }

    /// Bytes that are allocated now.
    pub fn used(&self) -> usize {
        let (allocated, freed) = of_thread();
        let grown = self.allocated.wrapping_add(allocated.wrapping_sub(self.of_thread.0));
        grown.saturating_sub(freed.wrapping_sub(self.of_thread.1)) as usize
    }

    /// Bytes that this thread has allocated since the last look at the whole process, freed ones included.
    pub fn moved(&self) -> usize {
        (self.moved + of_thread().0.wrapping_sub(self.of_thread.0)) as usize
    }

    /// A thread begins to execute commands. What it has allocated since it last did so is added, unless a look at the process has counted that.
    pub fn enter(&mut self) {
        let now = of_thread();
        let (looks, then) = LAST_SEEN.replace((self.looks, now));
        let (allocated, freed) = if looks == self.looks {
            (now.0.wrapping_sub(then.0), now.1.wrapping_sub(then.1))
        } else {
            (0, 0)
        };
        self.allocated = self.allocated.wrapping_add(allocated).wrapping_sub(freed);
        self.moved += allocated;
        self.of_thread = now;
    }
}
