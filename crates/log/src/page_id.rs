//! What the log and everything above it name pages by: positions in the log, spaces, pages, blocks of pages.

use std::fmt;

/// Pages of one block: 2 MiB.
pub const BLOCK_PAGES: u32 = 128;

/// A position in the global log, in bytes since the instance was made. 0 is "before everything".
pub type Glsn = u64;

/// Where the positions of changes to temporary pages begin. These changes are in no log; the positions order them, after all
/// logged ones.
pub const TEMPORARY_GLSN: Glsn = 1 << 62;

/// One tree's run of pages. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SpaceId(pub u32);

/// The spaces that every instance has.
impl SpaceId {
    /// No space: a page of the free map.
    pub const NONE: SpaceId = SpaceId(0);
    /// The map's own pages (their home locations are fixed; they have no slots).
    pub const MAP: SpaceId = SpaceId(1);
    /// Undo streams. Never sinks.
    pub const UNDO: SpaceId = SpaceId(2);
    /// The catalog tree. Never sinks.
    pub const CATALOG: SpaceId = SpaceId(3);
    /// The first id given to a user's tree.
    pub const FIRST_USER: SpaceId = SpaceId(16);

    /// Spaces from here on belong to temporary tables: unlogged, lost when the process ends, never in the volume's slab nor in an
    /// object. Each of the instance's own spaces has a temporary counterpart there.
    pub const FIRST_TEMPORARY: SpaceId = SpaceId(1 << 31);
    pub const TEMPORARY_UNDO: SpaceId = SpaceId(1 << 31 | 2);
    pub const TEMPORARY_CATALOG: SpaceId = SpaceId(1 << 31 | 3);
    pub const FIRST_TEMPORARY_USER: SpaceId = SpaceId(1 << 31 | 16);

    pub fn is_temporary(self) -> bool {
        self >= SpaceId::FIRST_TEMPORARY
    }
    /// Whether the space's pages may go to the object store.
    pub fn sinks(self) -> bool {
        self >= SpaceId::FIRST_USER && !self.is_temporary()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PageId {
    pub space: SpaceId,
    pub page: u32,
}

impl PageId {
    pub const fn new(space: SpaceId, page: u32) -> PageId {
        PageId { space, page }
    }
    pub fn block(self) -> BlockId {
        BlockId { space: self.space, block: self.page / BLOCK_PAGES }
    }
    /// The page's index in its block, below [`BLOCK_PAGES`].
    pub fn in_block(self) -> usize {
        (self.page % BLOCK_PAGES) as usize
    }
    pub fn as_u64(self) -> u64 {
        (self.space.0 as u64) << 32 | self.page as u64
    }
}

/// 128 neighbouring pages of one space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    pub space: SpaceId,
    pub block: u32,
}

impl BlockId {
    /// The `index`th page of the block.
    pub fn page(self, index: usize) -> PageId {
        PageId::new(self.space, self.block * BLOCK_PAGES + index as u32)
    }
}

impl fmt::Debug for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space.0, self.page)
    }
}
impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space.0, self.page)
    }
}
impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.space.0, self.block)
    }
}
impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.space.0, self.block)
    }
}
