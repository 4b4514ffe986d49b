//! A page: 16 KiB, checksummed, carrying its own id and LSN.
//!
//! Header (64 bytes, little-endian; `docs/format.md`):
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | checksum: CRC-32C of bytes 4.., 0 stored as 1. It is the page image's *tag* |
//! | 4 | 2 | magic `TP` |
//! | 6 | 1 | format version, 1 |
//! | 7 | 1 | kind ([`PageKind`]) |
//! | 8 | 4 | space |
//! | 12 | 4 | page number |
//! | 16 | 8 | LSN: the end of the last mini-transaction that changed the page |
//! | 24 | 2 | flags |
//! | 26 | 1 | level in its tree |
//! | 27 | 1 | zero |
//! | 28 | 4 | key id, 0 while pages are not encrypted |
//! | 32 | 16 | authentication tag, zero while pages are not encrypted |
//! | 48 | 16 | owned by the kind of page |
//!
//! Reading is total: [`PageRef`]'s accessors never panic, whatever the bytes are. Bytes that come
//! from a disk or a store are checked by [`check`] and by the structure that owns the page.

pub use terrace_log::{BLOCK_PAGES, BlockId, Glsn, PageId, SpaceId, TEMPORARY_GLSN};

pub const PAGE_SIZE: usize = 16 * 1024;
pub const PAGE_HEADER: usize = 64;
pub const PAGE_VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"TP";

pub mod at {
    //! Byte offsets in the page header.
    pub const CHECKSUM: usize = 0;
    pub const MAGIC: usize = 4;
    pub const VERSION: usize = 6;
    pub const KIND: usize = 7;
    pub const SPACE: usize = 8;
    pub const PAGE: usize = 12;
    pub const LSN: usize = 16;
    pub const FLAGS: usize = 24;
    pub const LEVEL: usize = 26;
    pub const KEY_ID: usize = 28;
    pub const AUTH: usize = 32;
    pub const OWNED: usize = 48;
}

/// Identifies one image of one page: its checksum. Never 0; 0 in the map means "never written".
pub type Tag = u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageKind {
    /// All zero after creation.
    Free = 0,
    Leaf = 1,
    Inner = 2,
    Overflow = 3,
    SpaceHeader = 4,
    Undo = 5,
    System = 6,
    Map = 7,
    /// A bitmap of the free pages in one range of its space.
    Bits = 8,
}

/// Read access to a page's bytes. Total: out-of-range offsets read as zero or empty.
#[derive(Clone, Copy)]
pub struct PageRef<'a> {
    bytes: &'a [u8],
}

impl<'a> PageRef<'a> {
    /// `bytes` is [`PAGE_SIZE`] long.
    pub fn new(bytes: &'a [u8]) -> PageRef<'a> {
        debug_assert_eq!(bytes.len(), PAGE_SIZE);
        PageRef { bytes }
    }
    /// For a page whose bytes after these are all zero.
    pub(crate) fn start_of(bytes: &'a [u8]) -> PageRef<'a> {
        PageRef { bytes }
    }
    pub fn all(self) -> &'a [u8] {
        self.bytes
    }
    #[inline]
    pub fn bytes(self, offset: usize, len: usize) -> &'a [u8] {
        self.bytes.get(offset..offset.wrapping_add(len)).unwrap_or(&[])
    }
    #[inline]
    pub fn u8(self, offset: usize) -> u8 {
        self.bytes.get(offset).copied().unwrap_or(0)
    }
    #[inline]
    pub fn u16(self, offset: usize) -> u16 {
        self.bytes.get(offset..offset + 2).map_or(0, |b| u16::from_le_bytes(b.try_into().unwrap_or_default()))
    }
    #[inline]
    pub fn u32(self, offset: usize) -> u32 {
        self.bytes.get(offset..offset + 4).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap_or_default()))
    }
    #[inline]
    pub fn u64(self, offset: usize) -> u64 {
        self.bytes.get(offset..offset + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
    }
    pub fn id(self) -> PageId {
        PageId::new(SpaceId(self.u32(at::SPACE)), self.u32(at::PAGE))
    }
    pub fn lsn(self) -> Glsn {
        self.u64(at::LSN)
    }
    pub fn kind(self) -> u8 {
        self.u8(at::KIND)
    }
    pub fn level(self) -> u8 {
        self.u8(at::LEVEL)
    }
    pub fn flags(self) -> u16 {
        self.u16(at::FLAGS)
    }
    /// The tag that the header claims.
    pub fn tag(self) -> Tag {
        self.u32(at::CHECKSUM)
    }
}

/// Writes the header of an empty page: all zero except magic, version, kind, id and level.
pub fn format(bytes: &mut [u8], id: PageId, kind: PageKind, level: u8) {
    bytes.fill(0);
    bytes[at::MAGIC..at::MAGIC + 2].copy_from_slice(&MAGIC);
    bytes[at::VERSION] = PAGE_VERSION;
    bytes[at::KIND] = kind as u8;
    bytes[at::LEVEL] = level;
    bytes[at::SPACE..at::SPACE + 4].copy_from_slice(&id.space.0.to_le_bytes());
    bytes[at::PAGE..at::PAGE + 4].copy_from_slice(&id.page.to_le_bytes());
}

pub fn set_lsn(bytes: &mut [u8], lsn: Glsn) {
    bytes[at::LSN..at::LSN + 8].copy_from_slice(&lsn.to_le_bytes());
}

/// The tag computed from the image's bytes.
pub fn compute_tag(bytes: &[u8]) -> Tag {
    crc32c::crc32c(&bytes[at::MAGIC..]).max(1)
}

/// Stamps the checksum on a copy that is about to be written, and returns it.
pub fn seal(bytes: &mut [u8]) -> Tag {
    let tag = compute_tag(bytes);
    bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&tag.to_le_bytes());
    tag
}

/// What is wrong with an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadImage {
    #[error("checksum is {found:#010x}, content gives {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("not a page (magic {0:02x}{1:02x})")]
    Magic(u8, u8),
    #[error("format version {0} is not known")]
    Version(u8),
    #[error("it is page {found}")]
    Name { found: PageId },
    #[error("its tag is {found:#010x}, the map names {expected:#010x}")]
    Tag { found: Tag, expected: Tag },
    /// The bytes that an object has for the page.
    #[error("stored bytes: {0}")]
    Stored(BadBody),
}

/// Checks that `bytes` is an intact image of page `id` and, if `expected` is given, exactly the image that the map names. A
/// checksum alone proves that an image is intact, not that it is current.
pub fn check(bytes: &[u8], id: PageId, expected: Option<Tag>) -> Result<(), BadImage> {
    let page = PageRef::new(bytes);
    let computed = compute_tag(bytes);
    if page.tag() != computed {
        return Err(BadImage::Checksum { found: page.tag(), computed });
    }
    if page.bytes(at::MAGIC, 2) != MAGIC {
        return Err(BadImage::Magic(page.u8(at::MAGIC), page.u8(at::MAGIC + 1)));
    }
    if page.u8(at::VERSION) != PAGE_VERSION {
        return Err(BadImage::Version(page.u8(at::VERSION)));
    }
    if page.id() != id {
        return Err(BadImage::Name { found: page.id() });
    }
    match expected {
        Some(tag) if tag != computed => Err(BadImage::Tag { found: computed, expected: tag }),
        _ => Ok(()),
    }
}

const _: () = assert!(at::OWNED + 16 == PAGE_HEADER);
const _: () = assert!(PAGE_SIZE.is_multiple_of(terrace_io::SECTOR));

/// What is wrong with a stored body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    #[error("{0} bytes are no page's")]
    Length(usize),
    #[error("codec {0} is not known")]
    Codec(u8),
    #[error("checksum of the stored bytes is {found:#010x}, they give {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("its compressed bytes are said to be {0}")]
    Compressed(usize),
    #[error("it has bytes that nobody writes")]
    Stray,
    #[error("its compressed bytes are not a page's: {0}")]
    Unpack(String),
}

/// A page's name as 64 well-mixed bits (SplitMix64's finish).
pub(crate) fn spread(id: PageId) -> u64 {
    let x = id.as_u64().wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
