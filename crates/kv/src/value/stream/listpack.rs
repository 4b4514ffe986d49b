//! Reading and building listpacks, the packed sequences of strings and integers that RDB stores small collections and stream nodes in.
//!
//! Six bytes of header (total bytes u32, entries u16 or 65535 for "count them"), entries, an end byte 255. An entry is an encoding byte,
//! data, and its own length again in one to five bytes so that the pack can be walked backwards.

use crate::value::integer::parse_integer;

pub const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;

/// The bytes are no listpack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// An element: a string in place, or an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element<'a> {
    Str(&'a [u8]),
    Int(i64),
}

impl Element<'_> {
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Element::Str(bytes) => bytes.to_vec(),
            Element::Int(value) => itoa::Buffer::new().format(value).as_bytes().to_vec(),
        }
    }

    /// The element as an integer, also if it is a string of digits.
    pub fn integer(self) -> Option<i64> {
        match self {
            Element::Str(bytes) => parse_integer(bytes),
            Element::Int(value) => Some(value),
        }
    }

    pub fn equals(self, bytes: &[u8]) -> bool {
        match self {
            Element::Str(own) => own == bytes,
            Element::Int(value) => itoa::Buffer::new().format(value).as_bytes() == bytes,
        }
    }
}

/// A listpack whose every entry has been checked.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks the whole pack: sizes, every entry, its back length, the count and the end.
    pub fn checked(bytes: &'a [u8]) -> Result<View<'a>, Malformed> {
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed)?;
        let total = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let count = u16::from_le_bytes([header[4], header[5]]);
        if total as usize != bytes.len() || bytes.len() <= HEADER_BYTES || bytes.last() != Some(&END) {
            return Err(Malformed);
        }
        let mut at = HEADER_BYTES;
        let mut entries = 0usize;
        while bytes[at] != END {
            let (_, size) = entry_at(bytes, at).ok_or(Malformed)?;
            let mut back = [0; 5];
            let back = encode_back(size, &mut back);
            if bytes.get(at + size..at + size + back.len()) != Some(back) {
                return Err(Malformed);
            }
            at += size + back.len();
            entries += 1;
            if at >= bytes.len() {
                return Err(Malformed);
            }
        }
        if at != bytes.len() - 1 || count != u16::MAX && usize::from(count) != entries {
            return Err(Malformed);
        }
        Ok(View { bytes })
    }

    /// A pack that [`Builder`] made or [`View::checked`] accepted before. A malformed one ends early, without a panic.
    pub fn trusted(bytes: &'a [u8]) -> View<'a> {
        View { bytes }
    }

    pub fn iter(self) -> Iter<'a> {
        Iter { bytes: self.bytes, at: HEADER_BYTES }
    }
}

/// Walks forward. `at` is the offset of the next entry.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iter<'a> {
    pub fn from_offset(bytes: &'a [u8], at: usize) -> Iter<'a> {
        Iter { bytes, at }
    }

    pub fn offset(&self) -> usize {
        self.at
    }

    /// Steps over `count` elements. `false` if there are fewer.
    pub fn skip_elements(&mut self, count: usize) -> bool {
        (0..count).all(|_| self.next().is_some())
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        if *self.bytes.get(self.at)? == END {
            return None;
        }
        let (element, size) = entry_at(self.bytes, self.at)?;
        self.at += size + back_size(size);
        Some(element)
    }
}

/// The entry at `at` and the bytes of its encoding and data.
fn entry_at(bytes: &[u8], at: usize) -> Option<(Element<'_>, usize)> {
    let bytes = bytes.get(at..)?;
    let first = *bytes.first()?;
    let string = |header: usize, length: usize| {
        Some((Element::Str(bytes.get(header..header.checked_add(length)?)?), header + length))
    };
    let integer = |width: usize| {
        let data = bytes.get(1..1 + width)?;
        let raw = data.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let unused = 64 - 8 * width as u32;
        Some((Element::Int((raw << unused) as i64 >> unused), 1 + width))
    };
    match first {
        0..=0x7f => Some((Element::Int(i64::from(first)), 1)),
        0x80..=0xbf => string(1, usize::from(first & 0x3f)),
        0xc0..=0xdf => {
            let raw = i64::from(first & 0x1f) << 8 | i64::from(*bytes.get(1)?);
            Some((Element::Int(if raw >= 1 << 12 { raw - (1 << 13) } else { raw }), 2))
        }
        0xe0..=0xef => string(2, usize::from(first & 0x0f) << 8 | usize::from(*bytes.get(1)?)),
        0xf0 => string(5, u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?) as usize),
        0xf1 => integer(2),
        0xf2 => integer(3),
        0xf3 => integer(4),
        0xf4 => integer(8),
        _ => None,
    }
}

/// Bytes of the back length of an entry of `size` bytes.
fn back_size(size: usize) -> usize {
    match size {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

fn encode_back(size: usize, room: &mut [u8; 5]) -> &[u8] {
    let width = back_size(size);
    for (i, byte) in room[..width].iter_mut().enumerate() {
        let group = (size >> (7 * (width - 1 - i))) as u8 & 0x7f;
        *byte = if i == 0 { group } else { group | 0x80 };
    }
    &room[..width]
}

/// Appends the encoded form of an integer, without the back length.
fn encode_integer(out: &mut Vec<u8>, value: i64) {
    match value {
        0..=127 => out.push(value as u8),
        -4096..=4095 => {
            let raw = (value & 0x1fff) as u16;
            out.extend_from_slice(&[0xc0 | (raw >> 8) as u8, raw as u8]);
        }
        _ => {
            let (code, width) = match value {
                -0x8000..=0x7fff => (0xf1, 2),
                -0x80_0000..=0x7f_ffff => (0xf2, 3),
                -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
                _ => (0xf4, 8),
            };
            out.push(code);
            out.extend_from_slice(&value.to_le_bytes()[..width]);
        }
    }
}

fn encode_string(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        length @ 0..=63 => out.push(0x80 | length as u8),
        length @ 64..=4095 => out.extend_from_slice(&[0xe0 | (length >> 8) as u8, length as u8]),
        length => {
            out.push(0xf0);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

/// A listpack that grows at its end and whose integers can be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Builder {
    bytes: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder { bytes: vec![HEADER_BYTES as u8 + 1, 0, 0, 0, 0, 0, END] }
    }
}

impl Builder {
    /// Adopts a pack that [`View::checked`] accepted.
    pub fn adopt(bytes: Vec<u8>) -> Result<Builder, Malformed> {
        View::checked(&bytes)?;
        Ok(Builder { bytes })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    pub fn iter(&self) -> Iter<'_> {
        View::trusted(&self.bytes).iter()
    }

    /// Appends a string. One that is the decimal form of an integer is stored as the integer.
    pub fn push(&mut self, bytes: &[u8]) {
        match parse_integer(bytes) {
            Some(value) => self.push_integer(value),
            None => self.append(|out| encode_string(out, bytes)),
        }
    }

    pub fn push_integer(&mut self, value: i64) {
        self.append(|out| encode_integer(out, value));
    }

    fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.pop();
        let from = self.bytes.len();
        encode(&mut self.bytes);
        let mut room = [0; 5];
        let back = encode_back(self.bytes.len() - from, &mut room);
        self.bytes.extend_from_slice(back);
        self.bytes.push(END);
        self.set_header(1);
    }

    /// Replaces the element at byte offset `at` by an integer.
    pub fn replace_integer(&mut self, at: usize, value: i64) {
        let Some((_, size)) = entry_at(&self.bytes, at) else { return };
        let mut entry = Vec::with_capacity(10);
        encode_integer(&mut entry, value);
        let mut room = [0; 5];
        let back = encode_back(entry.len(), &mut room).to_vec();
        entry.extend_from_slice(&back);
        self.bytes.splice(at..at + size + back_size(size), entry);
        self.set_header(0);
    }

    fn set_header(&mut self, added: u16) {
        let total = (self.bytes.len() as u32).to_le_bytes();
        self.bytes[..4].copy_from_slice(&total);
        let count = u16::from_le_bytes([self.bytes[4], self.bytes[5]]).saturating_add(added);
        self.bytes[4..6].copy_from_slice(&count.to_le_bytes());
    }
}
