//! The bytes of a record of the write-back log.
//!
//! Header of 32 bytes: `TKVJ`, 4 bytes of zero, length of the body `u64`, number `u64`, XXH3 of number and body `u64`. Body: count of emptied databases `u16`,
//! each `u16`; count of rows `u32`, each: database `u16`, flags `u8` (1: a value, 2: it expires, 4: an element, 8: a collection that is gone), generation `u64`
//! if flagged 4 or 8, length of the key `u32`, key, time of expiry `u64`, length of the value `u64`, value: the RDB form, or an element's value. Little-endian. A record begins at a multiple of 8 bytes.

use crate::storage::{Key, Part, Stored};
use twox_hash::XxHash3_64;

const MAGIC: &[u8; 8] = b"TKVJ\0\0\0\0";
pub const HEADER: usize = 32;
const HAS_VALUE: u8 = 1;
const EXPIRES: u8 = 2;
const IS_ELEMENT: u8 = 4;
const IS_GONE: u8 = 8;

/// What the commands of a turn changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    pub number: u64,
    /// Databases that were emptied before the rows were written.
    pub emptied: Vec<u16>,
    /// Values, or `None` for keys that were deleted.
    pub rows: Vec<(Key, Option<Stored>)>,
}

fn checksum(number: u64, body: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(number, body)
}

/// Writes a record row by row, so that a value is serialised where it ends up.
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    number: u64,
}

impl<'a> Encoder<'a> {
    /// Begins a record at the end of `out`, of exactly `rows` rows.
    pub fn begin(out: &'a mut Vec<u8>, number: u64, emptied: &[u16], rows: usize) -> Encoder<'a> {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER]);
        out.extend_from_slice(&(emptied.len() as u16).to_le_bytes());
        emptied.iter().for_each(|db| out.extend_from_slice(&db.to_le_bytes()));
        out.extend_from_slice(&(rows as u32).to_le_bytes());
        Encoder { out, start, number }
    }

    /// Adds a row: a key that was deleted, or when it expires and a function that appends its value.
    pub fn row(&mut self, key: &Key, value: Option<(Option<u64>, impl FnOnce(&mut Vec<u8>))>) {
        let expires_ms = value.as_ref().and_then(|(expires_ms, _)| *expires_ms);
        let flags = u8::from(value.is_some()) * HAS_VALUE + u8::from(expires_ms.is_some()) * EXPIRES;
        let (part, generation) = match key.part {
            Part::Whole => (0, None),
            Part::Element(generation) => (IS_ELEMENT, Some(generation)),
            Part::Gone(generation) => (IS_GONE, Some(generation)),
        };
        let out = &mut *self.out;
        out.extend_from_slice(&key.db.to_le_bytes());
        out.push(flags | part);
        generation.iter().for_each(|generation| out.extend_from_slice(&generation.to_le_bytes()));
        out.extend_from_slice(&(key.name.len() as u32).to_le_bytes());
        out.extend_from_slice(&key.name);
        expires_ms.iter().for_each(|at_ms| out.extend_from_slice(&at_ms.to_le_bytes()));
        let Some((_, write)) = value else { return };
        let at = out.len();
        out.extend_from_slice(&[0; 8]);
        write(out);
        let len = (out.len() - at - 8) as u64;
        out[at..at + 8].copy_from_slice(&len.to_le_bytes());
    }

    /// Completes and pads the record.
    pub fn end(self) {
        let Encoder { out, start, number } = self;
        let (header, body) = out[start..].split_at_mut(HEADER);
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&(body.len() as u64).to_le_bytes());
        header[16..24].copy_from_slice(&number.to_le_bytes());
        header[24..].copy_from_slice(&checksum(number, body).to_le_bytes());
        let padded = out.len().next_multiple_of(8);
        out.resize(padded, 0);
    }
}

impl Record {
    /// Appends the record to `out`, padded.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut record = Encoder::begin(out, self.number, &self.emptied, self.rows.len());
        for (key, value) in &self.rows {
            let value = value.as_ref();
            record.row(
                key,
                value.map(|it| (it.expires_ms, |out: &mut Vec<u8>| out.extend_from_slice(&it.rdb))),
            );
        }
        record.end();
    }

    /// Length of the body and number that a header says, if it is one.
    pub fn header(bytes: &[u8]) -> Option<(u64, u64)> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let (number, _) = rest.split_first_chunk::<8>()?;
        (magic == MAGIC).then_some((u64::from_le_bytes(*len), u64::from_le_bytes(*number)))
    }

    /// The record of a header and a body. `None` if they do not belong together, or say something impossible.
    pub fn decode(header: &[u8], body: &[u8]) -> Option<Record> {
        let (_, number) = Record::header(header)?;
        let sum = header.get(24..HEADER)?;
        if sum != checksum(number, body).to_le_bytes() {
            return None;
        }
        let mut rest = Fields(body);
        let emptied = rest.u16()?;
        let emptied = (0..emptied).map(|_| rest.u16()).collect::<Option<Vec<u16>>>()?;
        let count = rest.u32()?;
        let mut rows = Vec::new();
        for _ in 0..count {
            let (db, flags) = (rest.u16()?, *rest.take(1)?.first()?);
            let part = match flags & (IS_ELEMENT | IS_GONE) {
                0 => Part::Whole,
                IS_ELEMENT => Part::Element(rest.u64()?),
                IS_GONE => Part::Gone(rest.u64()?),
                _ => return None,
            };
            let len = rest.u32()? as usize;
            let key = Key { db, part, name: rest.take(len)?.into() };
            let expires_ms = if flags & EXPIRES != 0 { Some(rest.u64()?) } else { None };
            let value = match flags & HAS_VALUE {
                0 => None,
                _ => {
                    let len = usize::try_from(rest.u64()?).ok()?;
                    Some(Stored { expires_ms, rdb: rest.take(len)?.to_vec() })
                }
            };
            rows.push((key, value));
        }
        rest.0.is_empty().then_some(Record { number, emptied, rows })
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn u16(&mut self) -> Option<u16> {
        self.fixed().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.fixed().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_damaged_one_is_not_read() {
        let record = Record {
            number: 77,
            emptied: vec![3],
            rows: vec![
                (Key::new(0, b"a"), Some(Stored { expires_ms: None, rdb: b"\0\x01x".to_vec() })),
                (Key::new(9, b""), Some(Stored { expires_ms: Some(5), rdb: Vec::new() })),
                (Key::new(1, b"deleted"), None),
                (Key::element(1, 1 << 40, b"e"), Some(Stored { expires_ms: Some(6), rdb: b"v".to_vec() })),
                (Key::gone(1, 3), Some(Stored::default())),
            ],
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(bytes.len() % 8, 0);
        let (len, number) = Record::header(&bytes).unwrap();
        assert_eq!(number, 77);
        let body = HEADER..HEADER + len as usize;
        assert_eq!(Record::decode(&bytes[..HEADER], &bytes[body.clone()]), Some(record));
        for at in 0..body.end {
            bytes[at] ^= 1;
            // The length is the reader's: it has cut off the body by it.
            let is_read = Record::decode(&bytes[..HEADER], &bytes[body.clone()]).is_some();
            assert_eq!(is_read, (8..16).contains(&at), "{at}");
            bytes[at] ^= 1;
        }
    }
}
