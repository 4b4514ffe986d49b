//! Planted bugs of the file cache; see `terrace_log::planted`.

pub use terrace::planted::Switch;

/// A footer of a packed block is believed without its checksum.
pub static FOOTER_NOT_VERIFIED: Switch = Switch::new();
/// Bytes of a packed file are served without their checksum.
pub static PACKED_BYTES_NOT_VERIFIED: Switch = Switch::new();
/// A packed file is served whatever its version is.
pub static PACKED_VERSION_IGNORED: Switch = Switch::new();
/// A compacted block takes the place of files that were packed anew, or evicted, while it was made.
pub static COMPACTED_OVER_NEWER: Switch = Switch::new();
/// The blocks that a compaction replaces are dropped before the new one is written.
pub static COMPACTED_BLOCK_DROPPED_EARLY: Switch = Switch::new();
/// A file that is evicted while its block is made stays in the block.
pub static EVICTED_WHILE_PACKED_KEPT: Switch = Switch::new();
/// A flight that began before the file was written here is believed.
pub static OLD_FLIGHT_BELIEVED: Switch = Switch::new();
/// What is known of a file survives a write of it here.
pub static KNOWN_AFTER_WRITE: Switch = Switch::new();
/// A file that was brought beside another is taken for the known version whatever its own is.
pub static BROUGHT_VERSION_IGNORED: Switch = Switch::new();
/// A block's entry stays in the index that clients read when its bytes are freed.
pub static NOT_WITHDRAWN: Switch = Switch::new();
/// A commit of a group ends with its files put, although one of them failed.
pub static GROUP_HALF_COMMITTED: Switch = Switch::new();
/// An object is given to readers while it is being written.
pub static UNSEALED_OBJECT_GIVEN: Switch = Switch::new();
/// The bytes of a deleted object are free although a reader has them.
pub static READ_OBJECT_FREED: Switch = Switch::new();
/// An object that a reader has is moved to flash.
pub static REFERENCED_OBJECT_SPILLED: Switch = Switch::new();
/// The blocks of a pinned file may be evicted.
pub static PINNED_BLOCK_RELEASED: Switch = Switch::new();
/// A frame of another node is believed without its checksum.
pub static PEER_FRAME_NOT_VERIFIED: Switch = Switch::new();
/// A node that does not know the secret is answered.
pub static PEER_NOT_AUTHENTICATED: Switch = Switch::new();
/// Another node's version of a file is taken however long ago it was current.
pub static PEER_VERSION_OF_ANY_AGE: Switch = Switch::new();
/// A block that another node gave is kept without a look at the checksums of its files.
pub static GIVEN_BLOCK_NOT_VERIFIED: Switch = Switch::new();
