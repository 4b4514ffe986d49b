//! The payload of DUMP and RESTORE: type byte, value, version (u16, little-endian), CRC-64 of all before it.

use super::crc64::crc64;
use super::{Object, RDB_VERSION, RdbError, Result, SliceSource};

const FOOTER_BYTES: usize = 10;

/// Appends version and checksum to a type byte and value.
pub fn seal(mut value: Vec<u8>) -> Vec<u8> {
    value.extend_from_slice(&RDB_VERSION.to_le_bytes());
    let checksum = crc64(0, &value);
    value.extend_from_slice(&checksum.to_le_bytes());
    value
}

/// The type byte and value of a payload whose version and checksum are right.
pub fn open(payload: &[u8]) -> Option<&[u8]> {
    open_any(payload).filter(|value| !value.is_empty())
}

/// As [`open`]; a payload without contents is right too.
pub fn open_any(payload: &[u8]) -> Option<&[u8]> {
    let (value, footer) = payload.split_last_chunk::<FOOTER_BYTES>()?;
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let (checked, checksum) = payload.split_last_chunk::<8>()?;
    let right = version <= RDB_VERSION && crc64(0, checked) == u64::from_le_bytes(*checksum);
    right.then_some(value)
}

/// As [`open`], of a server whose version may be newer than ours: whether its value can be read, its type byte says.
pub fn open_of_any_version(payload: &[u8]) -> Option<&[u8]> {
    let (checked, checksum) = payload.split_last_chunk::<8>()?;
    let (value, _) = payload.split_last_chunk::<FOOTER_BYTES>()?;
    (crc64(0, checked) == u64::from_le_bytes(*checksum) && !value.is_empty()).then_some(value)
}

/// A type byte and a value.
pub fn encode(object: &Object) -> Vec<u8> {
    let mut out = vec![0];
    out[0] = object.write(&mut out);
    out
}

/// The value after a type byte. Bytes that follow the value are an error.
pub fn decode(bytes: &[u8]) -> Result<Object> {
    let (kind, value) = bytes.split_first().ok_or(RdbError::Truncated)?;
    let mut source = SliceSource::new(value);
    let object = Object::read(&mut source, *kind)?;
    if source.rest().is_empty() { Ok(object) } else { Err(RdbError::Corrupt("bytes after the value")) }
}
