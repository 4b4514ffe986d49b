//! RDB, the serialised form of Redis's values: in files, in DUMP payloads and in the storage tier.
//!
//! | file | holds |
//! | --- | --- |
//! | `source` | where bytes come from: a slice or a file, always with a known end |
//! | `length` | lengths, integers, strings and doubles: the primitives of the format |
//! | `lzf`, `crc64` | compression of long strings, and the checksum of files and payloads |
//! | `listpack` | the byte-packed sequence that small collections and streams are stored in |
//! | `legacy` | the packed forms of older versions: ziplist, zipmap, intset |
//! | `object` | one value of any type, read and written |
//! | `stream` | the stream type |
//! | `payload` | DUMP: a type byte, a value, the version and a checksum |
//! | `file` | whole files: header, auxiliary fields, databases, keys, checksum |
//!
//! The format written is version 10, that of Redis 7.0. All versions up to it are read, and of values those that Redis 7.2 added.
//!
//! Bytes that are read may be hostile. Every length is compared with what the source still holds before memory is allocated for it,
//! and an expansion is limited to what the compression can produce, so a short input cannot ask for a large buffer. What does not decode
//! is an [`RdbError`], never a panic.

pub mod crc64;
pub mod file;
pub mod legacy;
pub mod length;
pub mod lzf;
pub mod object;
pub mod payload;
pub mod source;
pub mod stream;
mod value;

#[cfg(test)]
mod tests;

pub use object::Object;
pub use source::{SliceSource, Source};

/// The version that is written, and the newest that is read.
pub const RDB_VERSION: u16 = 10;

/// Why bytes are not RDB.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RdbError {
    #[error("the data ends before the value does")]
    Truncated,
    #[error("corrupt RDB data: {0}")]
    Corrupt(&'static str),
    #[error("value type {0} is not supported")]
    UnsupportedType(u8),
    #[error("RDB version {0} is newer than {RDB_VERSION}")]
    UnsupportedVersion(u16),
    #[error("cannot read: {0}")]
    Io(String),
}

impl From<crate::value::stream::listpack::Malformed> for RdbError {
    fn from(_: crate::value::stream::listpack::Malformed) -> RdbError {
        RdbError::Corrupt("a malformed listpack")
    }
}

pub type Result<T> = std::result::Result<T, RdbError>;

/// The byte in front of a value that says how it is encoded.
pub mod kind {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    pub const ZSET: u8 = 3;
    pub const HASH: u8 = 4;
    pub const ZSET_2: u8 = 5;
    pub const MODULE: u8 = 6;
    pub const MODULE_2: u8 = 7;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const ZSET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_QUICKLIST: u8 = 14;
    pub const STREAM_LISTPACKS: u8 = 15;
    pub const HASH_LISTPACK: u8 = 16;
    pub const ZSET_LISTPACK: u8 = 17;
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const STREAM_LISTPACKS_2: u8 = 19;
    /// Redis 7.2.
    pub const SET_LISTPACK: u8 = 20;
    pub const STREAM_LISTPACKS_3: u8 = 21;
    /// A hash whose fields expire: Redis 7.4.
    pub const HASH_METADATA: u8 = 24;
}
