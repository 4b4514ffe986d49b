//! The primitives of RDB: lengths, strings, integers and doubles.
//!
//! A length is 1, 2, 5 or 9 bytes; the two upper bits of the first one say which, and a fourth pattern marks a string that is stored as an
//! integer or compressed. Strings that are short decimal integers are stored as integers of 1, 2 or 4 bytes; strings longer than 20 bytes
//! are compressed if that saves room.

use super::{RdbError, Result, Source, lzf};

const ENCODED_INT8: u64 = 0;
const ENCODED_INT16: u64 = 1;
const ENCODED_INT32: u64 = 2;
const ENCODED_LZF: u64 = 3;
const LENGTH_32: u8 = 0x80;
const LENGTH_64: u8 = 0x81;

/// The longest string: Redis's `proto-max-bulk-len` by default.
pub const STRING_MAX: u64 = 512 << 20;
/// Shorter strings are not compressed.
const COMPRESS_MIN: usize = 21;
/// The same, of strings that storage keeps.
const STORED_COMPRESS_MIN: usize = 256;

enum Length {
    Plain(u64),
    Encoded(u64),
}

fn read_either(source: &mut impl Source) -> Result<Length> {
    let first = source.byte()?;
    let low = u64::from(first & 0x3f);
    Ok(match first >> 6 {
        0 => Length::Plain(low),
        1 => Length::Plain(low << 8 | u64::from(source.byte()?)),
        3 => Length::Encoded(low),
        _ if first == LENGTH_32 => Length::Plain(u64::from(u32::from_be_bytes(source.array()?))),
        _ if first == LENGTH_64 => Length::Plain(u64::from_be_bytes(source.array()?)),
        _ => return Err(RdbError::Corrupt("unknown length encoding")),
    })
}

pub fn read_length(source: &mut impl Source) -> Result<u64> {
    match read_either(source)? {
        Length::Plain(length) => Ok(length),
        Length::Encoded(_) => Err(RdbError::Corrupt("a string where a length belongs")),
    }
}

/// Reads the number of elements of a collection. Each takes at least `bytes_each` bytes, so a number the source cannot hold is refused.
pub fn read_count(source: &mut impl Source, bytes_each: u64) -> Result<usize> {
    let count = read_length(source)?;
    if count.checked_mul(bytes_each).is_none_or(|bytes| bytes > source.remaining()) {
        return Err(RdbError::Truncated);
    }
    usize::try_from(count).map_err(|_| RdbError::Truncated)
}

pub fn read_string(source: &mut impl Source) -> Result<Vec<u8>> {
    let integer = match read_either(source)? {
        Length::Plain(length) if length <= STRING_MAX => return source.bytes(length),
        Length::Plain(_) => return Err(RdbError::Corrupt("a string longer than 512 MiB")),
        Length::Encoded(ENCODED_INT8) => i64::from(source.array::<1>()?[0] as i8),
        Length::Encoded(ENCODED_INT16) => i64::from(i16::from_le_bytes(source.array()?)),
        Length::Encoded(ENCODED_INT32) => i64::from(i32::from_le_bytes(source.array()?)),
        Length::Encoded(ENCODED_LZF) => {
            let compressed = read_length(source)?;
            let length = read_length(source)?;
            if length > STRING_MAX || length > lzf::expansion_max(compressed) {
                return Err(RdbError::Corrupt("a compressed string of impossible length"));
            }
            let compressed = source.bytes(compressed)?;
            return lzf::decompress(&compressed, length as usize)
                .ok_or(RdbError::Corrupt("a compressed string does not expand"));
        }
        Length::Encoded(_) => return Err(RdbError::Corrupt("unknown string encoding")),
    };
    Ok(itoa::Buffer::new().format(integer).as_bytes().to_vec())
}

/// The doubles of sorted sets since RDB 8: eight bytes, little-endian.
pub fn read_double(source: &mut impl Source) -> Result<f64> {
    Ok(f64::from_le_bytes(source.array()?))
}

/// The doubles of older sorted sets: a length byte and decimal text, or a length that stands for a special value.
pub fn read_text_double(source: &mut impl Source) -> Result<f64> {
    match source.byte()? {
        255 => Ok(f64::NEG_INFINITY),
        254 => Ok(f64::INFINITY),
        253 => Ok(f64::NAN),
        length => {
            let text = source.bytes(u64::from(length))?;
            let text =
                std::str::from_utf8(&text).map_err(|_| RdbError::Corrupt("a score that is not text"))?;
            text.trim().parse().map_err(|_| RdbError::Corrupt("a score that is not a number"))
        }
    }
}

pub fn write_length(out: &mut Vec<u8>, length: u64) {
    if length < 1 << 6 {
        out.push(length as u8);
    } else if length < 1 << 14 {
        out.extend_from_slice(&((length as u16) | 0x4000).to_be_bytes());
    } else if let Ok(short) = u32::try_from(length) {
        out.push(LENGTH_32);
        out.extend_from_slice(&short.to_be_bytes());
    } else {
        out.push(LENGTH_64);
        out.extend_from_slice(&length.to_be_bytes());
    }
}

/// How strings are written: [`write_string`] or one of those below it.
pub type WriteString = fn(&mut Vec<u8>, &[u8]);

/// As Redis writes strings.
pub fn write_string(out: &mut Vec<u8>, string: &[u8]) {
    write_compressed_from(out, string, COMPRESS_MIN);
}

/// Compresses only where it pays.
pub fn write_stored_string(out: &mut Vec<u8>, string: &[u8]) {
    write_compressed_from(out, string, STORED_COMPRESS_MIN);
}

/// Never compresses.
pub fn write_plain_string(out: &mut Vec<u8>, string: &[u8]) {
    write_compressed_from(out, string, usize::MAX);
}

fn write_compressed_from(out: &mut Vec<u8>, string: &[u8], bytes_min: usize) {
    if string.len() <= 11
        && let Some(integer) = crate::value::integer::parse_integer(string)
        && write_small_integer(out, integer)
    {
        return;
    }
    if string.len() >= bytes_min
        && let Some(compressed) = lzf::compress(string)
    {
        out.push(0xc0 | ENCODED_LZF as u8);
        write_length(out, compressed.len() as u64);
        write_length(out, string.len() as u64);
        out.extend_from_slice(&compressed);
        return;
    }
    write_length(out, string.len() as u64);
    out.extend_from_slice(string);
}

fn write_small_integer(out: &mut Vec<u8>, integer: i64) -> bool {
    if let Ok(byte) = i8::try_from(integer) {
        out.extend_from_slice(&[0xc0 | ENCODED_INT8 as u8, byte as u8]);
    } else if let Ok(short) = i16::try_from(integer) {
        out.push(0xc0 | ENCODED_INT16 as u8);
        out.extend_from_slice(&short.to_le_bytes());
    } else if let Ok(word) = i32::try_from(integer) {
        out.push(0xc0 | ENCODED_INT32 as u8);
        out.extend_from_slice(&word.to_le_bytes());
    } else {
        return false;
    }
    true
}
