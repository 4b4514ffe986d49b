//! The packed forms that older versions wrote: ziplist, zipmap and intset (the last one is still written). Read only, all bounds checked.

use super::{RdbError, Result};

const ZIPLIST: RdbError = RdbError::Corrupt("a malformed ziplist");
const ZIPMAP: RdbError = RdbError::Corrupt("a malformed zipmap");
const INTSET: RdbError = RdbError::Corrupt("a malformed intset");

fn text(value: i64) -> Vec<u8> {
    itoa::Buffer::new().format(value).as_bytes().to_vec()
}

/// The elements of a ziplist: ten bytes of header, entries that begin with the length of the one before, an end byte 255.
pub fn ziplist(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let total = bytes.first_chunk().map(|size| u32::from_le_bytes(*size)).ok_or(ZIPLIST)?;
    if total as usize != bytes.len() {
        return Err(ZIPLIST);
    }
    let mut rest = bytes.get(10..).ok_or(ZIPLIST)?;
    let mut elements = Vec::new();
    loop {
        match rest.first() {
            Some(255) if rest.len() == 1 => return Ok(elements),
            Some(255) | None => return Err(ZIPLIST),
            Some(254) => rest = rest.get(5..).ok_or(ZIPLIST)?,
            Some(_) => rest = &rest[1..],
        }
        let (element, size) = ziplist_entry(rest).ok_or(ZIPLIST)?;
        elements.push(element);
        rest = &rest[size..];
    }
}

fn ziplist_entry(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let first = *bytes.first()?;
    let string = |header: usize, length: usize| {
        Some((bytes.get(header..header.checked_add(length)?)?.to_vec(), header + length))
    };
    let integer = |width: usize| {
        let raw =
            bytes.get(1..1 + width)?.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let unused = 64 - 8 * width as u32;
        Some((text((raw << unused) as i64 >> unused), 1 + width))
    };
    match first {
        0..=0x3f => string(1, usize::from(first)),
        0x40..=0x7f => string(2, usize::from(first & 0x3f) << 8 | usize::from(*bytes.get(1)?)),
        0x80..=0xbf => string(5, u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?) as usize),
        0xc0 => integer(2),
        0xd0 => integer(4),
        0xe0 => integer(8),
        0xf0 => integer(3),
        0xfe => integer(1),
        0xf1..=0xfd => Some((text(i64::from(first) - 0xf1), 1)),
        _ => None,
    }
}

/// The pairs of a zipmap: a count, then names and values with their lengths, a value followed by unused bytes; an end byte 255.
pub fn zipmap(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rest = bytes.get(1..).ok_or(ZIPMAP)?;
    let mut pairs = Vec::new();
    while *rest.first().ok_or(ZIPMAP)? != 255 {
        let name = zipmap_string(&mut rest, false)?;
        let value = zipmap_string(&mut rest, true)?;
        pairs.push((name, value));
    }
    if rest.len() != 1 {
        return Err(ZIPMAP);
    }
    Ok(pairs)
}

fn zipmap_string(rest: &mut &[u8], with_unused: bool) -> Result<Vec<u8>> {
    let (length, header) = match *rest.first().ok_or(ZIPMAP)? {
        255 => return Err(ZIPMAP),
        254 => (
            rest.get(1..)
                .and_then(|size| size.first_chunk())
                .map(|size| u32::from_le_bytes(*size))
                .ok_or(ZIPMAP)? as usize,
            5,
        ),
        length => (usize::from(length), 1),
    };
    let mut unused = 0;
    let mut from = header;
    if with_unused {
        unused = usize::from(*rest.get(from).ok_or(ZIPMAP)?);
        from += 1;
    }
    let end = from.checked_add(length).ok_or(ZIPMAP)?;
    let string = rest.get(from..end).ok_or(ZIPMAP)?.to_vec();
    *rest = rest.get(end + unused..).ok_or(ZIPMAP)?;
    Ok(string)
}

/// The members of an intset: width and count, then integers of that width in ascending order.
pub fn intset(bytes: &[u8]) -> Result<Vec<i64>> {
    let (header, data) = bytes.split_first_chunk::<8>().ok_or(INTSET)?;
    let width = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    if !matches!(width, 2 | 4 | 8) || count.checked_mul(width) != Some(data.len()) || count == 0 {
        return Err(INTSET);
    }
    let unused = 64 - 8 * width as u32;
    let members: Vec<i64> = data
        .chunks_exact(width)
        .map(|raw| {
            (raw.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte)) << unused) as i64
                >> unused
        })
        .collect();
    if members.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(INTSET);
    }
    Ok(members)
}

/// The intset of ascending `members`, as narrow as they allow.
pub fn write_intset(members: &[i64]) -> Vec<u8> {
    let fits =
        |bits: u32| members.iter().all(|member| *member >= -1 << (bits - 1) && *member < 1 << (bits - 1));
    let width: usize = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    let mut out = Vec::with_capacity(8 + width * members.len());
    out.extend_from_slice(&(width as u32).to_le_bytes());
    out.extend_from_slice(&(members.len() as u32).to_le_bytes());
    for member in members {
        out.extend_from_slice(&member.to_le_bytes()[..width]);
    }
    out
}
