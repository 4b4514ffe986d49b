//! Memory asked of the kernel itself, past the allocator: buffers for direct I/O, and address space that is held ahead of need.

mod aligned;
pub mod reserve;

pub use aligned::AlignedBuf;
