//! Where an image is: the tiers, slots on the volume, objects and places in them. Plain values; nothing here reads or writes.

mod object_key;

pub use object_key::ObjectKey;

use crate::page::{BLOCK_PAGES, BlockId, Glsn, Tag};

/// Where an image was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    Flash,
    Volume,
    Object,
    /// Nowhere: redo alone made it.
    Log,
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Tier::Flash => "flash",
            Tier::Volume => "volume",
            Tier::Object => "object store",
            Tier::Log => "log",
        })
    }
}

/// A 16 KiB slot in the object buffer's slab.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Slot(pub u32);

impl Slot {
    /// Slot numbers end here, because larger values stand for a place in the patch object. 224 GiB.
    pub const COUNT_MAX: u32 = 0xE0_0000;
}

/// Where an image is in an object: the block's object, or its patch object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InObject {
    pub key: ObjectKey,
    /// Offset in the object's body, in bytes.
    pub offset: usize,
    /// Stored length in bytes.
    pub length: usize,
}

/// Where the current image of a page is. The slot, if it has one, is newer than the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    pub tag: Tag,
    pub slot: Option<Slot>,
    pub object: Option<InObject>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Located {
    /// No image of the page was ever flushed.
    Never,
    At(Home),
}

/// Stored lengths are multiples of this, in bytes.
pub const LENGTH_UNIT: usize = 64;

/// Maximum number of bytes that a patch object's pages take.
pub const PATCH_MAX: usize = 512 << 10;

/// No sequence of a patch object reaches this.
pub(crate) const PATCH_SEQUENCES: u64 = 1 << 48;

/// An object as described by the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectShape {
    pub key: ObjectKey,
    pub snapshot_version: u64,
    /// Stored length of each page in bytes; 0 = not in the object.
    pub lengths: [u16; BLOCK_PAGES as usize],
}

impl ObjectShape {
    /// Bytes of all its pages.
    pub fn body(&self) -> usize {
        self.lengths.iter().map(|length| usize::from(*length)).sum()
    }
    /// Whether a block of this entry may have it as its patch, in addition to this object.
    pub fn can_patch(&self, base: &ObjectKey) -> bool {
        let body = self.body();
        (self.key.lineage, self.key.block_id()) == (base.lineage, base.block_id())
            && self.key.sequence < PATCH_SEQUENCES
            && (LENGTH_UNIT..=PATCH_MAX).contains(&body)
    }
}

pub const OBJECT_HEADER: usize = 1024;

/// A block with pages in the object buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferedBlock {
    pub block: BlockId,
    /// Pages in slots: sinking the block frees as many slots.
    pub slots: u32,
    /// End of the record that last gave one of its pages a slot.
    pub last_change: Glsn,
    /// Slots that pages of all blocks have taken since the block came here, or since it last sank.
    pub age: u64,
    /// Flushes in that time of pages that had a slot already, and the number of those pages.
    pub rewrites: u32,
    pub rewritten: u32,
    pub stored: Stored,
}

/// What the store has of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// Pages of the block, in any tier.
    pub pages: u32,
    /// Pages whose newest image is in the block's patch object.
    pub patched: u32,
    /// Whether the block has an object.
    pub has_object: bool,
}
