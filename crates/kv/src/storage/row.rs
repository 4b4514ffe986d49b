//! The keys of rows.
//!
//! A value's row key is `space u32 | slot u16 | hash 48 bits | name`, big-endian. A space is a database's present generation: emptying a database
//! gives it a new one, and the rows of the old one are removed in the background. The slot is the cluster's hash slot, so that a slot is a
//! range. The hash is of the name and never changes, so that slot and hash are a cursor of `SCAN`: 62 bits, a position in the order of rows that
//! stays valid whatever is inserted or deleted.
//!
//! An element's row key is `generation u64 | hash 48 bits | element`. An element of more than [`ELEMENT_MAX`] bytes has its first bytes and 128 bits of
//! its hash there, which is longer than any whole element, and is itself in the row.
//!
//! An expiry row's key is `time u64 | row key`, its value is empty. It is a hint: the value's row has the last word.

use crate::storage::{Element, StorageError, Stored};
use crate::value::large::{self, hash};
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher128};
use std::hash::Hasher;

/// The longest name that fits a row key of the engine's 3,500 bytes, its expiry row included.
pub const NAME_MAX: usize = 3_400;

/// Bytes before the name.
pub const PREFIX: usize = 4 + 2 + 6;

/// The longest element that stands whole in its row key.
pub const ELEMENT_MAX: usize = 1024;
/// Bytes of a longer element that stand in its row key before the hash.
const ELEMENT_START: usize = ELEMENT_MAX + 1 - 16;

/// Flags of a row: a time of expiry follows; an element follows with its length.
const EXPIRES: u8 = 1;
const LONG_ELEMENT: u8 = 4;

/// How many slots there are.
const SLOTS: u16 = 16_384;

/// Where a key stands in the order of rows: 14 bits of slot, 48 bits of hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Position(pub u64);

impl Position {
    pub const MAX: Position = Position((1 << 62) - 1);

    pub fn of(name: &[u8]) -> Position {
        Position(u64::from(slot(name)) << 48 | hash(name) >> 16)
    }

    /// The last position of an element.
    pub const ELEMENT_MAX: Position = Position((1 << 48) - 1);

    /// Where an element stands in the order of its collection: 48 bits of its hash.
    pub fn of_element(element: &[u8]) -> Position {
        Position(large::position(element))
    }

    /// The position after this one, if there is one.
    pub fn next(self) -> Option<Position> {
        (self < Position::MAX).then_some(Position(self.0 + 1))
    }

    fn bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// The cluster's hash slot of a key: CRC-16 (XMODEM) of the part between the first braces, if that is not empty, else of all.
pub fn slot(name: &[u8]) -> u16 {
    let tag = memchr::memchr(b'{', name).and_then(|open| {
        let rest = &name[open + 1..];
        let close = memchr::memchr(b'}', rest)?;
        (close > 0).then_some(&rest[..close])
    });
    crc16(tag.unwrap_or(name)) % SLOTS
}

const CRC16: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

/// The row key of a name.
pub fn row_key(space: u32, name: &[u8]) -> Vec<u8> {
    let mut key = start_of(space, Position::of(name));
    key.extend_from_slice(name);
    key
}

/// The least row key at or after a position. The slot and the hash are 62 bits of the position's 64: the same order.
pub fn start_of(space: u32, position: Position) -> Vec<u8> {
    let mut key = Vec::with_capacity(PREFIX + 32);
    key.extend_from_slice(&space.to_be_bytes());
    key.extend_from_slice(&position.bytes());
    key
}

/// Space, position and name of a row key.
pub fn parse(key: &[u8]) -> Result<(u32, Position, &[u8]), StorageError> {
    let corrupt = || StorageError::Corrupt("a row's key is too short".into());
    let (space, rest) = key.split_first_chunk::<4>().ok_or_else(corrupt)?;
    let (position, name) = rest.split_first_chunk::<8>().ok_or_else(corrupt)?;
    Ok((u32::from_be_bytes(*space), Position(u64::from_be_bytes(*position)), name))
}

/// The key of an expiry row.
pub fn expiry_key(expires_ms: u64, row_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + row_key.len());
    key.extend_from_slice(&expires_ms.to_be_bytes());
    key.extend_from_slice(row_key);
    key
}

/// Time and row key of an expiry row.
pub fn parse_expiry(key: &[u8]) -> Result<(u64, &[u8]), StorageError> {
    let (time, row) = key
        .split_first_chunk::<8>()
        .ok_or_else(|| StorageError::Corrupt("an expiry row's key is too short".into()))?;
    Ok((u64::from_be_bytes(*time), row))
}

/// The row key of an element.
pub fn element_key(generation: u64, element: &[u8]) -> Vec<u8> {
    let mut key = element_start(generation, Position::of_element(element));
    if element.len() <= ELEMENT_MAX {
        key.extend_from_slice(element);
        return key;
    }
    let mut hasher = SipHasher128::new_with_keys(0, 0);
    hasher.write(element);
    key.extend_from_slice(&element[..ELEMENT_START]);
    key.extend_from_slice(&hasher.finish128().as_u128().to_be_bytes());
    key
}

/// The least row key of an element at or after a position.
pub fn element_start(generation: u64, position: Position) -> Vec<u8> {
    let mut key = Vec::with_capacity(14 + 32);
    key.extend_from_slice(&generation.to_be_bytes());
    key.extend_from_slice(&position.0.to_be_bytes()[2..]);
    key
}

/// An element's row.
pub fn encode_element(element: &[u8], value: &Stored) -> Vec<u8> {
    let mut row = encode(value);
    if element.len() > ELEMENT_MAX {
        row[0] |= LONG_ELEMENT;
        row.extend_from_slice(element);
        row.extend_from_slice(&(element.len() as u32).to_be_bytes());
    }
    row
}

/// The element of a row key and a row.
pub fn decode_element(key: &[u8], row: &[u8]) -> Result<Element, StorageError> {
    let corrupt = |what: &str| StorageError::Corrupt(format!("an element's row {what}"));
    let (_, rest) = key.split_first_chunk::<8>().ok_or_else(|| corrupt("has a key that is too short"))?;
    let (position, name) =
        rest.split_first_chunk::<6>().ok_or_else(|| corrupt("has a key that is too short"))?;
    let mut wide = [0; 8];
    wide[2..].copy_from_slice(position);
    let position = Position(u64::from_be_bytes(wide));
    let Some((flags, rest)) = row.split_first() else { return Err(corrupt("is empty")) };
    let (rest, name) = match flags & LONG_ELEMENT {
        0 => (rest, name),
        _ => {
            let (rest, len) = rest.split_last_chunk::<4>().ok_or_else(|| corrupt("is too short"))?;
            let at = rest.len().checked_sub(u32::from_be_bytes(*len) as usize);
            rest.split_at(at.ok_or_else(|| corrupt("is too short"))?)
        }
    };
    let (expires_ms, value) = match flags & !LONG_ELEMENT {
        0 => (None, rest),
        EXPIRES => {
            let (time, value) = rest.split_first_chunk::<8>().ok_or_else(|| corrupt("is too short"))?;
            (Some(u64::from_be_bytes(*time)), value)
        }
        flags => return Err(corrupt(&format!("has unknown flags {flags:#x}"))),
    };
    if element_key(0, name)[8..] != key[8..] {
        return Err(corrupt("belongs to another element"));
    }
    Ok(Element { position, name: name.into(), value: Stored { expires_ms, rdb: value.to_vec() } })
}

/// A value's row: a byte of flags (1: an expiry time of 8 bytes follows), then the RDB form.
pub fn encode(value: &Stored) -> Vec<u8> {
    let mut row = Vec::with_capacity(9 + value.rdb.len());
    match value.expires_ms {
        Some(expires_ms) => {
            row.push(1);
            row.extend_from_slice(&expires_ms.to_be_bytes());
        }
        None => row.push(0),
    }
    row.extend_from_slice(&value.rdb);
    row
}

/// The expiry time of a row, and its RDB form.
pub fn decode(row: &[u8]) -> Result<(Option<u64>, &[u8]), StorageError> {
    match row.split_first() {
        Some((0, rdb)) => Ok((None, rdb)),
        Some((1, rest)) => match rest.split_first_chunk::<8>() {
            Some((time, rdb)) => Ok((Some(u64::from_be_bytes(*time)), rdb)),
            None => Err(StorageError::Corrupt("a row is too short for its expiry time".into())),
        },
        Some((flags, _)) => Err(StorageError::Corrupt(format!("a row has unknown flags {flags:#x}"))),
        None => Err(StorageError::Corrupt("a row is empty".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn slots_are_those_of_a_cluster() {
        // From the specification of the cluster protocol.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    }

    #[test]
    fn row_keys_are_ordered_by_space_and_position() {
        let mut names: Vec<Vec<u8>> = (0..500).map(|n| format!("key:{n}").into_bytes()).collect();
        names.sort_by_key(|name| Position::of(name));
        let keys: Vec<Vec<u8>> = names.iter().map(|name| row_key(7, name)).collect();
        assert!(keys.is_sorted());
        for (key, name) in keys.iter().zip(&names) {
            assert_eq!(parse(key), Ok((7, Position::of(name), &name[..])));
            assert!(start_of(7, Position::of(name)) <= *key && *key < start_of(8, Position::default()));
            assert!(Position::of(name) <= Position::MAX);
        }
    }

    #[test]
    fn elements_of_any_length_are_read_back_and_damaged_rows_are_errors() {
        let long = [b'e'; 2 * ELEMENT_MAX];
        let mut other = long;
        other[ELEMENT_MAX + 500] = b'f';
        let mut keys = HashSet::new();
        for element in [&b""[..], b"field", &long[..ELEMENT_MAX], &long[..ELEMENT_MAX + 1], &long, &other] {
            for expires_ms in [None, Some(77)] {
                let value = Stored { expires_ms, rdb: b"value".to_vec() };
                let (key, row) = (element_key(9, element), encode_element(element, &value));
                let read = decode_element(&key, &row).unwrap();
                assert_eq!((&read.name[..], &read.value), (element, &value));
                assert!(element_start(9, read.position) <= key && key < element_start(10, Position(0)));
                keys.insert(key.clone());
                assert!(decode_element(&key, &[]).is_err() && decode_element(&key[..10], &row).is_err());
                assert!(
                    decode_element(&element_key(9, b"another"), &row).is_err()
                        || element.len() <= ELEMENT_MAX
                );
                assert!(decode_element(&key, &[&[0x40], &row[1..]].concat()).is_err());
            }
        }
        assert_eq!(keys.len(), 6, "each element has a row of its own");
    }

    #[test]
    fn rows_keep_their_expiry_times_and_damaged_ones_are_errors() {
        for value in [
            Stored { expires_ms: None, rdb: b"\0\x03abc".to_vec() },
            Stored { expires_ms: Some(1_700_000_000_123), rdb: Vec::new() },
        ] {
            assert_eq!(decode(&encode(&value)), Ok((value.expires_ms, &value.rdb[..])));
        }
        for row in [&b""[..], b"\x01\0\0", b"\x07abc"] {
            assert!(matches!(decode(row), Err(StorageError::Corrupt(_))));
        }
        assert!(matches!(parse(b"short"), Err(StorageError::Corrupt(_))));
    }
}
