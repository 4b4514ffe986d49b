//! A value on flash: a header that says whose it is, then its bytes.
//!
//! Little-endian (`docs/format.md`):
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 4 | CRC-32C of the rest of the record |
//! | 4 | 4 | magic `TFV1` |
//! | 8 | 4 | length of the value in bytes |
//! | 12 | 4 | length of the key in bytes |
//! | 16 | 8 | version |
//! | 24 | 32 | key, then zeros |
//! | 56 | 8 | zero |
//! | 64 | | value |

use crate::flash::key::{Key, Validity, Verdict, mark};
use crate::planted;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use terrace_io::AlignedBuf;

pub(super) const HEADER: usize = 64;
const KEY_AT: usize = 24;
const KEY_MAX: usize = 32;
const MAGIC: [u8; 4] = *b"TFV1";

/// A key that a value on flash carries.
pub trait StoredKey: Key {
    /// At most 32.
    const BYTES: usize;
    /// `bytes` is [`StoredKey::BYTES`] long.
    fn write(self, bytes: &mut [u8]);
    /// Total: any bytes are some key.
    fn read(bytes: &[u8]) -> Self;
}

/// A block of an object, such as a version of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct BlockKey {
    /// Identifies the object, and its version if versions are objects of their own: a hash of 128 bits.
    pub object: u128,
    pub block: u64,
}

impl Key for BlockKey {
    fn spread(self) -> u64 {
        let mixed = |x: u64| {
            let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            x ^ (x >> 31)
        };
        let object = mixed(mixed(self.object as u64) ^ (self.object >> 64) as u64);
        mixed(object.wrapping_add(self.block.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

impl StoredKey for BlockKey {
    const BYTES: usize = 24;
    fn write(self, bytes: &mut [u8]) {
        bytes[..16].copy_from_slice(&self.object.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.block.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> BlockKey {
        let part = |from: usize, to: usize| bytes.get(from..to).unwrap_or(&[]);
        BlockKey {
            object: part(0, 16).try_into().map_or(0, u128::from_le_bytes),
            block: part(16, 24).try_into().map_or(0, u64::from_le_bytes),
        }
    }
}

/// A value that was found. It shares the buffer it was read into, or the queue's.
#[derive(Clone)]
pub struct Value {
    buf: Arc<AlignedBuf>,
    from: usize,
    len: usize,
}

impl Value {
    /// The value of the record that begins at `from`; None if it does not lie within the buffer.
    pub(super) fn of_record(buf: Arc<AlignedBuf>, from: usize) -> Option<Value> {
        let len = u32_at(buf.get(from..)?, 8) as usize;
        let from = from + HEADER;
        (buf.len() >= from.checked_add(len)?).then_some(Value { buf, from, len })
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.from..self.from + self.len]
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Length of the record of a value, in bytes.
pub(super) fn record_len(value: usize) -> usize {
    HEADER + value
}

/// Length in bytes of the record that these bytes begin with, if it is intact.
pub(super) fn len_of(bytes: &[u8]) -> usize {
    record_len(u32_at(bytes, 8) as usize)
}

/// A record with this value, in a buffer of its own.
pub(super) fn sealed<K: StoredKey>(key: K, version: u64, value: &[u8]) -> Arc<AlignedBuf> {
    const { assert!(K::BYTES <= KEY_MAX) };
    let mut record = AlignedBuf::zeroed(record_len(value.len()));
    record[4..8].copy_from_slice(&MAGIC);
    record[8..12].copy_from_slice(&(value.len() as u32).to_le_bytes());
    record[12..16].copy_from_slice(&(K::BYTES as u32).to_le_bytes());
    record[16..24].copy_from_slice(&version.to_le_bytes());
    key.write(&mut record[KEY_AT..KEY_AT + K::BYTES]);
    record[HEADER..HEADER + value.len()].copy_from_slice(value);
    let crc = crc32c::crc32c(&record[4..record_len(value.len())]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    Arc::new(record)
}

/// The key and the version that an intact record claims. `bytes` begins with the record and may be longer. None: it is not intact.
pub(super) fn intact<K: StoredKey>(bytes: &[u8]) -> Option<(K, u64)> {
    let len = record_len(u32_at(bytes, 8) as usize);
    let record = bytes.get(..len)?;
    let whole = record[4..8] == MAGIC
        && u32_at(record, 12) as usize == K::BYTES
        && u32_at(record, 0) == crc32c::crc32c(&record[4..]);
    let version = record.get(16..24)?.try_into().map_or(0, u64::from_le_bytes);
    whole.then(|| (K::read(&record[KEY_AT..KEY_AT + K::BYTES]), version))
}

/// A record proves itself: by its checksum, its key and its version.
pub(super) struct Records<K>(PhantomData<fn(K)>);

impl<K: StoredKey> Validity for Records<K> {
    type Key = K;
    type Version = u64;

    fn check(bytes: &[u8], key: K, expected: Option<u64>) -> Verdict {
        let Some((found, version)) = intact::<K>(bytes) else { return Verdict::Corrupt };
        if found != key && !planted::BLOCK_KEY_IGNORED.on() {
            return Verdict::OtherKey { mark: mark(found) };
        }
        let other = expected.is_some_and(|expected| expected != version);
        if other && !planted::BLOCK_VERSION_IGNORED.on() && !planted::BLOCK_KEY_IGNORED.on() {
            return Verdict::OtherVersion;
        }
        Verdict::Current
    }
}
