//! The bytes of an object: a header of 1 KiB and the stored bodies of the block's pages, in order.
//!
//! Header, little-endian (`docs/format.md`):
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic `TERRAOBJ` |
//! | 8 | 4 | format version: 2 if a page is compressed, else 1 |
//! | 12 | 4 | CRC-32C of the header, with this field zero |
//! | 16 | 16 | lineage of its own key |
//! | 32 | 4 | space |
//! | 36 | 4 | block |
//! | 40 | 4 | writer epoch |
//! | 44 | 4 | page size |
//! | 48 | 8 | sequence |
//! | 56 | 8 | snapshot version |
//! | 64 | 16 | content hash: XXH3-128 of the header (this field and the CRC zero) and the bodies |
//! | 80 | 48 | zero |
//! | 128 | 512 | tag of each page; 0 = not in the object |
//! | 640 | 256 | stored length of each page in bytes, u16; 0 = not in the object |
//! | 896 | 128 | codec of each page: 0 raw, 1 lz4, 2 zstd (`codec`); raw alone in version 1 |
//!
//! A page's body begins where those of the pages before it end, so the map's lengths locate it without
//! the header. Each page is tagged and, where it pays, compressed by itself (`codec`).

use super::codec::{Codec, PAYS};
pub use crate::address::OBJECT_HEADER as HEADER;
use crate::address::{LENGTH_UNIT, ObjectKey, ObjectShape};
use crate::page::{BLOCK_PAGES, PAGE_SIZE, SpaceId, Tag};
use twox_hash::xxhash3_128::Hasher;

const PAGES: usize = BLOCK_PAGES as usize;
const MAGIC: [u8; 8] = *b"TERRAOBJ";
/// Every page is stored uncompressed.
const VERSION_RAW: u32 = 1;
/// Pages may be compressed.
const VERSION_CODECS: u32 = 2;

const CRC: usize = 12;
const CONTENT: usize = 64;
const TAGS: usize = 128;
const LENGTHS: usize = TAGS + 4 * PAGES;
const CODECS: usize = LENGTHS + 2 * PAGES;

const _: () = assert!(CODECS + PAGES == HEADER && PAGE_SIZE <= u16::MAX as usize);

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadObject {
    #[error("{len} bytes are no object")]
    Short { len: usize },
    #[error("not an object of ours")]
    Magic,
    #[error("format version {0} is not known")]
    Version(u32),
    #[error("header checksum is {found:#010x}, content gives {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("page {index} of the block: {what}")]
    Page { index: usize, what: &'static str },
    #[error("pages of {0} bytes are not known")]
    PageSize(u32),
    #[error("it says that it is {0}")]
    Name(ObjectKey),
    #[error("it is {found} bytes long, its header says {expected}")]
    Length { found: usize, expected: usize },
    #[error("its header has bytes that nobody writes")]
    Stray,
    #[error("its content hash differs from its header's")]
    Content,
}

/// An object's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub key: ObjectKey,
    pub snapshot_version: u64,
    pub content: u128,
    pub tags: [Tag; PAGES],
    /// Stored length of each page in bytes; 0 = not in the object.
    pub lengths: [u16; PAGES],
    /// How each page is stored; no codec where there is no page.
    pub codecs: [Codec; PAGES],
}

impl Header {
    /// The header of a new object; `bodies` are the stored pages that it has, in order.
    pub fn new<B: AsRef<[u8]>>(key: ObjectKey, snapshot_version: u64, bodies: &[(usize, Tag, B)]) -> Header {
        let (tags, lengths, codecs) = ([0; PAGES], [0; PAGES], [Codec::None; PAGES]);
        let mut header = Header { key, snapshot_version, content: 0, tags, lengths, codecs };
        for (index, tag, body) in bodies {
            let body = body.as_ref();
            assert!(*tag != 0 && body.len() <= PAGE_SIZE && body.len().is_multiple_of(LENGTH_UNIT));
            assert!(header.lengths[*index..].iter().all(|l| *l == 0), "an object's pages come in order");
            header.tags[*index] = *tag;
            header.lengths[*index] = body.len() as u16;
            if body.len() < PAGE_SIZE {
                assert!(body.len() <= PAYS);
                header.codecs[*index] = Codec::numbered(body[0]).unwrap_or(Codec::None);
                assert!(header.codecs[*index] != Codec::None, "a short body says how it is compressed");
            }
        }
        header.content = content(&header, bodies.iter().map(|(_, _, body)| body.as_ref()));
        header
    }

    /// Bytes of the whole object.
    pub fn object_len(&self) -> usize {
        HEADER + self.lengths.iter().map(|l| usize::from(*l)).sum::<usize>()
    }

    /// The entry for the map.
    pub fn shape(&self) -> ObjectShape {
        ObjectShape { key: self.key, snapshot_version: self.snapshot_version, lengths: self.lengths }
    }

    fn version(&self) -> u32 {
        let raw = self.codecs.iter().all(|codec| *codec == Codec::None);
        if raw { VERSION_RAW } else { VERSION_CODECS }
    }

    fn encode_plain(&self) -> [u8; HEADER] {
        let mut b = [0; HEADER];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &self.version().to_le_bytes());
        put(16, &self.key.lineage.to_le_bytes());
        put(32, &self.key.space.0.to_le_bytes());
        put(36, &self.key.block.to_le_bytes());
        put(40, &self.key.epoch.to_le_bytes());
        put(44, &(PAGE_SIZE as u32).to_le_bytes());
        put(48, &self.key.sequence.to_le_bytes());
        put(56, &self.snapshot_version.to_le_bytes());
        self.tags.iter().enumerate().for_each(|(i, tag)| put(TAGS + 4 * i, &tag.to_le_bytes()));
        self.lengths.iter().enumerate().for_each(|(i, len)| put(LENGTHS + 2 * i, &len.to_le_bytes()));
        self.codecs.iter().enumerate().for_each(|(i, codec)| put(CODECS + i, &[*codec as u8]));
        b
    }

    pub fn encode(&self) -> [u8; HEADER] {
        let mut b = self.encode_plain();
        b[CONTENT..CONTENT + 16].copy_from_slice(&self.content.to_le_bytes());
        let crc = crc32c::crc32c(&b);
        b[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Reads a header; total over any bytes.
    pub fn decode(bytes: &[u8]) -> Result<Header, BadObject> {
        let Some(b) = bytes.first_chunk::<HEADER>() else {
            return Err(BadObject::Short { len: bytes.len() });
        };
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        let u128_at = |i: usize| u128::from(u64_at(i)) | u128::from(u64_at(i + 8)) << 64;
        if b[..8] != MAGIC {
            return Err(BadObject::Magic);
        }
        if !matches!(u32_at(8), VERSION_RAW | VERSION_CODECS) {
            return Err(BadObject::Version(u32_at(8)));
        }
        let mut unsigned = *b;
        unsigned[CRC..CRC + 4].fill(0);
        let computed = crc32c::crc32c(&unsigned);
        if u32_at(CRC) != computed {
            return Err(BadObject::Checksum { found: u32_at(CRC), computed });
        }
        if u32_at(44) as usize != PAGE_SIZE {
            return Err(BadObject::PageSize(u32_at(44)));
        }
        let tags: [Tag; PAGES] = std::array::from_fn(|i| u32_at(TAGS + 4 * i));
        let lengths: [u16; PAGES] = std::array::from_fn(|i| u32_at(LENGTHS + 2 * i) as u16);
        let mut codecs = [Codec::None; PAGES];
        for index in 0..PAGES {
            let len = usize::from(lengths[index]);
            let codec = Codec::numbered(b[CODECS + index]);
            codecs[index] = codec.unwrap_or(Codec::None);
            let what = if len > PAGE_SIZE || !len.is_multiple_of(LENGTH_UNIT) {
                "its stored length is impossible"
            } else if (len == 0) != (tags[index] == 0) {
                "it has a tag and no body, or a body and no tag"
            } else if codec.is_none() {
                "its codec is not known"
            } else if (codecs[index] == Codec::None) != (len == 0 || len == PAGE_SIZE) {
                "its stored length is not its codec's"
            } else if len > PAYS && len < PAGE_SIZE {
                "it is compressed to no gain"
            } else {
                continue;
            };
            return Err(BadObject::Page { index, what });
        }
        let key = ObjectKey {
            lineage: u128_at(16),
            space: SpaceId(u32_at(32)),
            block: u32_at(36),
            epoch: u32_at(40),
            sequence: u64_at(48),
        };
        let (snapshot_version, content) = (u64_at(56), u128_at(CONTENT));
        let header = Header { key, snapshot_version, content, tags, lengths, codecs };
        if header.encode() != *b { Err(BadObject::Stray) } else { Ok(header) }
    }
}

/// The content hash of a header and its bodies.
fn content<'a>(header: &Header, bodies: impl Iterator<Item = &'a [u8]>) -> u128 {
    let mut hasher = Hasher::new();
    hasher.write(&header.encode_plain());
    bodies.for_each(|body| hasher.write(body));
    hasher.finish_128()
}

/// Checks a whole object: its header, its key, its length and its content hash.
pub fn check(key: &ObjectKey, bytes: &[u8]) -> Result<Header, BadObject> {
    let header = Header::decode(bytes)?;
    if header.key != *key {
        return Err(BadObject::Name(header.key));
    }
    if header.object_len() != bytes.len() {
        return Err(BadObject::Length { found: bytes.len(), expected: header.object_len() });
    }
    if content(&header, std::iter::once(&bytes[HEADER..])) != header.content {
        return Err(BadObject::Content);
    }
    Ok(header)
}

#[cfg(test)]
mod tests;
