//! The arena: anonymous memory that the daemon writes and clients map to read.
//!
//! It is a memfd, sealed so that its length stays and no client can write or map it for writing. The daemon's own mapping, made before the
//! seal, is the only writable one.
//!
//! Which thread may touch which bytes: a [`Loading`] extent is its holder's alone: it is written through it. [`Loading::loaded`] ends that, and
//! from then on its bytes only change after the extent was freed and allocated again. The catalogue frees it when no lease is on it.

use super::extents::Extent;
use super::index::{HEADER_BYTES, Index, SET_BYTES};
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

pub struct Arena {
    fd: OwnedFd,
    base: NonNull<u8>,
    /// Of blocks.
    bytes: usize,
    /// Of blocks and the index behind them.
    mapped: usize,
}

// SAFETY: the mapping belongs to no thread, and bytes are reached by the rules of the module's header.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// An extent that is being filled. Dropping it without [`Loading::loaded`] does not free it: the loader returns it to the catalogue.
pub struct Loading {
    arena: Arc<Arena>,
    extent: Extent,
}

impl Arena {
    /// Memory is taken page by page, as it is written. `bytes` is a multiple of 4096.
    pub fn new(bytes: u64, index_bytes: u64) -> Result<Arena> {
        Arena::sealed(bytes, index_bytes, libc::F_SEAL_FUTURE_WRITE)
    }

    /// An arena that clients map to write, too: for objects, each of which one client writes.
    pub fn writable(bytes: u64) -> Result<Arena> {
        Arena::sealed(bytes, 0, 0)
    }

    fn sealed(bytes: u64, index_bytes: u64, seal: libc::c_int) -> Result<Arena> {
        let mapped = usize::try_from(bytes + index_bytes).map_err(Error::other)?;
        let bytes = bytes as usize;
        // SAFETY: the name is a C string.
        let fd = unsafe {
            libc::memfd_create(c"terrace-files".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), mapped as libc::off_t) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a new mapping of a file of this length, at an address that the system chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => return Err(Error::last_os_error()),
        };
        let arena = Arena { fd, base, bytes, mapped };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | seal | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is open.
        if unsafe { libc::fcntl(arena.fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(arena)
    }

    pub fn len(&self) -> u64 {
        self.bytes as u64
    }

    /// Bytes that clients map.
    pub fn mapped(&self) -> u64 {
        self.mapped as u64
    }

    /// The index, over the memory behind the blocks. The caller keeps the arena as long as the index, and makes it once.
    pub fn index(&self, seed: u64, epoch: u64) -> Index {
        let sets = ((self.mapped - self.bytes) as u64).saturating_sub(HEADER_BYTES) / SET_BYTES;
        assert!(self.mapped - self.bytes >= HEADER_BYTES as usize, "the index has no room");
        // SAFETY: the memory behind the blocks is mapped as long as the arena lives, writable, and reached in no other way. The caller keeps
        // the arena.
        unsafe { Index::new(self.base.add(self.bytes), sets, seed, epoch) }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// To be passed to clients.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn check(&self, extent: Extent) {
        let end = extent.offset.checked_add(extent.len);
        assert!(end.is_some_and(|end| end <= self.len()), "{extent:?} is not in the arena");
    }

    /// The extent was just allocated, and this is the only call for it.
    pub fn loading(self: &Arc<Arena>, extent: Extent) -> Loading {
        self.check(extent);
        Loading { arena: self.clone(), extent }
    }

    /// The bytes of a loaded extent, which the caller keeps from being freed meanwhile.
    pub fn bytes(&self, extent: Extent) -> &[u8] {
        self.check(extent);
        // SAFETY: within the mapping, which lives as long as `self`; loaded bytes are not written while the extent is held.
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().add(extent.offset as usize), extent.len as usize)
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference to it can outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

impl Loading {
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let Extent { offset, len } = self.extent;
        // SAFETY: within the mapping; until it is loaded, the extent is this value's alone, and `&mut self` makes the slice unique.
        unsafe { std::slice::from_raw_parts_mut(self.arena.base.as_ptr().add(offset as usize), len as usize) }
    }

    /// It is filled.
    pub fn loaded(self) -> Extent {
        self.extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_can_map_the_arena_to_read_but_not_to_write() {
        let arena = Arc::new(Arena::new(1 << 20, 0).unwrap());
        let mut loading = arena.loading(Extent { offset: 4096, len: 5 });
        loading.bytes_mut().copy_from_slice(b"hello");
        assert_eq!(arena.bytes(loading.loaded()), b"hello");
        let map = |protection| {
            // SAFETY: a new mapping of an open descriptor.
            unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    1 << 20,
                    protection,
                    libc::MAP_SHARED,
                    arena.fd().as_raw_fd(),
                    0,
                )
            }
        };
        assert_eq!(map(libc::PROT_READ | libc::PROT_WRITE), libc::MAP_FAILED);
        let shared = map(libc::PROT_READ);
        assert_ne!(shared, libc::MAP_FAILED);
        // SAFETY: the mapping has a MiB and is readable.
        let seen = unsafe { std::slice::from_raw_parts(shared.cast::<u8>().add(4096), 5) };
        assert_eq!(seen, b"hello");
        // SAFETY: the descriptor is open; the call fails.
        assert_ne!(unsafe { libc::ftruncate(arena.fd().as_raw_fd(), 0) }, 0);
    }
}
