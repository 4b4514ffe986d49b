//! Memory of the process, as its allocator and the system count it.

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
