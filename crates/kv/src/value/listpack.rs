//! A listpack: a sequence of small strings and integers in one allocation, byte-compatible with Redis's.
//!
//! Layout: total bytes (u32, little-endian), number of elements (u16, little-endian; 65535 means
//! "count them"), the elements, and the terminator 0xFF. An element is its encoding byte, its data and its own
//! length, written so that it can be read from right to left (`backlen`). A string that is a
//! canonical integer is stored as a number, so `push_back(b"12")` and reading give the same bytes.
//!
//! Invariants
//! * The bytes are well-formed: `from_bytes` checks every element before it accepts foreign bytes.
//! * A `Pos` is the offset of an element's first byte. Every change invalidates all positions except
//!   the ones that it returns.
//!
//! Not here: limits on size. The types that hold a listpack convert it to another encoding in time.

use super::integer::{INTEGER_CHARS_MAX, parse_integer};

const HEADER_BYTES: usize = 6;
const END: u8 = 0xFF;
/// The element count of the header that means "unknown, count them".
const COUNT_UNKNOWN: u16 = u16::MAX;

/// Bytes that aren't a listpack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed listpack")]
pub struct MalformedListpack;

/// The place of an element in one listpack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pos(usize);

/// An element of a collection: a number if its encoding stores one, else its bytes.
#[derive(Debug, Clone, Copy)]
pub enum Element<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

impl<'a> Element<'a> {
    /// The element's bytes. `buffer` holds the digits of a number.
    pub fn bytes<'b>(self, buffer: &'b mut itoa::Buffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Element::Int(value) => buffer.format(value).as_bytes(),
            Element::Bytes(bytes) => bytes,
        }
    }

    pub fn to_vec(self) -> Vec<u8> {
        self.bytes(&mut itoa::Buffer::new()).to_vec()
    }

    pub fn to_box(self) -> Box<[u8]> {
        self.bytes(&mut itoa::Buffer::new()).into()
    }

    /// Whether the element's bytes are `bytes`.
    pub fn is(self, bytes: &[u8]) -> bool {
        match self {
            Element::Int(value) => {
                bytes.len() <= INTEGER_CHARS_MAX && itoa::Buffer::new().format(value).as_bytes() == bytes
            }
            Element::Bytes(own) => own == bytes,
        }
    }

    pub fn byte_len(self) -> usize {
        self.bytes(&mut itoa::Buffer::new()).len()
    }
}

/// One element as it's stored, without its backlen.
enum Encoded<'a> {
    Int { bytes: [u8; 9], len: usize },
    Str { header: [u8; 5], header_len: usize, data: &'a [u8] },
}

impl<'a> Encoded<'a> {
    fn new(data: &'a [u8]) -> Self {
        match parse_integer(data) {
            Some(value) => Self::int(value),
            None => Self::string(data),
        }
    }

    fn int(value: i64) -> Self {
        let mut bytes = [0; 9];
        let little = value.to_le_bytes();
        let len = match value {
            0..=127 => {
                bytes[0] = value as u8;
                1
            }
            -4096..=4095 => {
                let bits = (value & 0x1FFF) as u16;
                bytes[0] = 0xC0 | (bits >> 8) as u8;
                bytes[1] = bits as u8;
                2
            }
            -32768..=32767 => {
                bytes[0] = 0xF1;
                bytes[1..3].copy_from_slice(&little[..2]);
                3
            }
            -8388608..=8388607 => {
                bytes[0] = 0xF2;
                bytes[1..4].copy_from_slice(&little[..3]);
                4
            }
            -2147483648..=2147483647 => {
                bytes[0] = 0xF3;
                bytes[1..5].copy_from_slice(&little[..4]);
                5
            }
            _ => {
                bytes[0] = 0xF4;
                bytes[1..9].copy_from_slice(&little);
                9
            }
        };
        Encoded::Int { bytes, len }
    }

    fn string(data: &'a [u8]) -> Self {
        let mut header = [0; 5];
        let header_len = match data.len() {
            len @ 0..=63 => {
                header[0] = 0x80 | len as u8;
                1
            }
            len @ 64..=4095 => {
                header[0] = 0xE0 | (len >> 8) as u8;
                header[1] = len as u8;
                2
            }
            len => {
                header[0] = 0xF0;
                header[1..5].copy_from_slice(&(len as u32).to_le_bytes());
                5
            }
        };
        Encoded::Str { header, header_len, data }
    }

    fn len(&self) -> usize {
        match self {
            Encoded::Int { len, .. } => *len,
            Encoded::Str { header_len, data, .. } => header_len + data.len(),
        }
    }

    /// Writes the element and its backlen over `target`, which has exactly the room.
    fn write(&self, target: &mut [u8]) {
        let len = self.len();
        match self {
            Encoded::Int { bytes, len } => target[..*len].copy_from_slice(&bytes[..*len]),
            Encoded::Str { header, header_len, data } => {
                target[..*header_len].copy_from_slice(&header[..*header_len]);
                target[*header_len..len].copy_from_slice(data);
            }
        }
        let (backlen, backlen_len) = backlen_of(len);
        target[len..].copy_from_slice(&backlen[..backlen_len]);
    }
}

/// How many bytes the backlen of an element of `len` bytes takes.
fn backlen_bytes(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..=16382 => 2,
        16383..=2097150 => 3,
        2097151..=268435454 => 4,
        _ => 5,
    }
}

fn backlen_of(len: usize) -> ([u8; 5], usize) {
    let count = backlen_bytes(len);
    let mut bytes = [0; 5];
    let mut rest = len;
    for at in (0..count).rev() {
        bytes[at] = (rest & 127) as u8 | if at == 0 { 0 } else { 128 };
        rest >>= 7;
    }
    (bytes, count)
}

/// The length of the element that starts with `bytes`, without its backlen; `None` if it isn't one.
fn encoded_len(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    Some(match first {
        0x00..=0x7F => 1,
        0x80..=0xBF => 1 + usize::from(first & 0x3F),
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 2 + (usize::from(first & 0x0F) << 8 | usize::from(*bytes.get(1)?)),
        0xF0 => 5usize.checked_add(u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?) as usize)?,
        0xF1 => 3,
        0xF2 => 4,
        0xF3 => 5,
        0xF4 => 9,
        _ => return None,
    })
}

#[derive(Clone, PartialEq, Eq)]
pub struct Listpack {
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Listpack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

impl Listpack {
    pub fn new() -> Self {
        Self { bytes: vec![HEADER_BYTES as u8 + 1, 0, 0, 0, 0, 0, END] }
    }

    /// Takes bytes from a file or a client after checking every element.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, MalformedListpack> {
        if bytes.len() < HEADER_BYTES + 1 || bytes[bytes.len() - 1] != END {
            return Err(MalformedListpack);
        }
        let total = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if total != bytes.len() {
            return Err(MalformedListpack);
        }
        let end = bytes.len() - 1;
        let mut at = HEADER_BYTES;
        let mut count = 0usize;
        while at < end {
            let len = encoded_len(&bytes[at..end]).ok_or(MalformedListpack)?;
            let (backlen, backlen_len) = backlen_of(len);
            let next =
                at.checked_add(len).and_then(|sum| sum.checked_add(backlen_len)).ok_or(MalformedListpack)?;
            if next > end || bytes[at + len..next] != backlen[..backlen_len] {
                return Err(MalformedListpack);
            }
            at = next;
            count += 1;
        }
        let stated = u16::from_le_bytes([bytes[4], bytes[5]]);
        if stated != COUNT_UNKNOWN && usize::from(stated) != count {
            return Err(MalformedListpack);
        }
        Ok(Self { bytes })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// The number of elements: O(1) below 65535, else they're counted.
    pub fn len(&self) -> usize {
        match u16::from_le_bytes([self.bytes[4], self.bytes[5]]) {
            COUNT_UNKNOWN => self.positions().count(),
            count => usize::from(count),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_BYTES + 1
    }

    fn end(&self) -> usize {
        self.bytes.len() - 1
    }

    /// The length of the element at `at`, without its backlen.
    fn len_at(&self, at: usize) -> usize {
        encoded_len(&self.bytes[at..]).expect("a listpack's bytes are checked when they come in")
    }

    fn after(&self, at: usize) -> usize {
        let len = self.len_at(at);
        at + len + backlen_bytes(len)
    }

    fn pos(&self, at: usize) -> Option<Pos> {
        (at < self.end()).then_some(Pos(at))
    }

    pub fn first(&self) -> Option<Pos> {
        self.pos(HEADER_BYTES)
    }

    pub fn last(&self) -> Option<Pos> {
        self.before(self.end())
    }

    pub fn next(&self, pos: Pos) -> Option<Pos> {
        self.pos(self.after(pos.0))
    }

    pub fn prev(&self, pos: Pos) -> Option<Pos> {
        self.before(pos.0)
    }

    /// The element that ends where `at` starts.
    fn before(&self, at: usize) -> Option<Pos> {
        if at == HEADER_BYTES {
            return None;
        }
        let mut len = 0usize;
        let mut shift = 0;
        let mut from = at - 1;
        loop {
            let byte = self.bytes[from];
            len |= usize::from(byte & 127) << shift;
            if byte & 128 == 0 {
                return Some(Pos(from - len));
            }
            shift += 7;
            from -= 1;
        }
    }

    /// The element at `index` from the left; from the right if the index is in the right half.
    pub fn at(&self, index: usize) -> Option<Pos> {
        let len = self.len();
        if index >= len {
            return None;
        }
        if index < len / 2 {
            self.positions().nth(index)
        } else {
            let mut pos = self.last()?;
            for _ in index + 1..len {
                pos = self.prev(pos)?;
            }
            Some(pos)
        }
    }

    pub fn get(&self, pos: Pos) -> Element<'_> {
        let bytes = &self.bytes[pos.0..];
        let signed = |bits: &[u8]| {
            let mut wide = if bits[bits.len() - 1] & 128 == 0 { [0; 8] } else { [0xFF; 8] };
            wide[..bits.len()].copy_from_slice(bits);
            Element::Int(i64::from_le_bytes(wide))
        };
        match bytes[0] {
            small @ 0x00..=0x7F => Element::Int(i64::from(small)),
            0x80..=0xBF => Element::Bytes(&bytes[1..self.len_at(pos.0)]),
            high @ 0xC0..=0xDF => {
                let bits = i64::from(high & 0x1F) << 8 | i64::from(bytes[1]);
                Element::Int(if bits >= 1 << 12 { bits - (1 << 13) } else { bits })
            }
            0xE0..=0xEF => Element::Bytes(&bytes[2..self.len_at(pos.0)]),
            0xF0 => Element::Bytes(&bytes[5..self.len_at(pos.0)]),
            0xF1 => signed(&bytes[1..3]),
            0xF2 => signed(&bytes[1..4]),
            0xF3 => signed(&bytes[1..5]),
            _ => signed(&bytes[1..9]),
        }
    }

    pub fn push_back(&mut self, data: &[u8]) {
        self.splice(self.end(), 0, Some(&Encoded::new(data)));
        self.change_count(1);
    }

    pub fn push_front(&mut self, data: &[u8]) {
        self.splice(HEADER_BYTES, 0, Some(&Encoded::new(data)));
        self.change_count(1);
    }

    /// Inserts `data` before the element at `pos`, and returns the place of the new element.
    pub fn insert_before(&mut self, pos: Pos, data: &[u8]) -> Pos {
        self.splice(pos.0, 0, Some(&Encoded::new(data)));
        self.change_count(1);
        pos
    }

    /// Inserts `data` after the element at `pos`, and returns the place of the new element.
    pub fn insert_after(&mut self, pos: Pos, data: &[u8]) -> Pos {
        let at = self.after(pos.0);
        self.splice(at, 0, Some(&Encoded::new(data)));
        self.change_count(1);
        Pos(at)
    }

    pub fn replace(&mut self, pos: Pos, data: &[u8]) {
        let old = self.after(pos.0) - pos.0;
        self.splice(pos.0, old, Some(&Encoded::new(data)));
    }

    /// Removes the element at `pos`, and returns the place of the one after it.
    pub fn remove(&mut self, pos: Pos) -> Option<Pos> {
        self.remove_run(pos, 1)
    }

    /// Removes up to `count` elements from `pos` on, and returns the place of the one after them.
    pub fn remove_run(&mut self, pos: Pos, count: usize) -> Option<Pos> {
        let mut at = pos.0;
        let mut removed = 0;
        while removed < count && at < self.end() {
            at = self.after(at);
            removed += 1;
        }
        self.splice(pos.0, at - pos.0, None);
        self.change_count(-(removed as isize));
        self.pos(pos.0)
    }

    /// Moves the elements from `pos` on into a listpack of their own.
    pub fn split_off(&mut self, pos: Pos) -> Listpack {
        let count = self.len();
        let end = self.end();
        let mut tail = Listpack { bytes: Vec::new() };
        let body = &self.bytes[pos.0..end];
        tail.bytes.reserve_exact(HEADER_BYTES + body.len() + 1);
        tail.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        tail.bytes.extend_from_slice(body);
        tail.bytes.push(END);
        tail.set_total();
        tail.set_count(usize::from(COUNT_UNKNOWN));
        let tail_count = tail.positions().count();
        tail.set_count(tail_count);
        self.bytes.truncate(pos.0);
        self.bytes.push(END);
        self.bytes.shrink_to_fit();
        self.set_total();
        self.set_count(count - tail_count);
        tail
    }

    /// Appends all elements of `other`.
    pub fn append(&mut self, other: &Listpack) {
        let count = self.len() + other.len();
        self.bytes.pop();
        self.bytes.reserve_exact(other.bytes.len() - HEADER_BYTES);
        self.bytes.extend_from_slice(&other.bytes[HEADER_BYTES..]);
        self.set_total();
        self.set_count(count);
    }

    /// The first element that equals `data` among the elements at `from`, `from + step` and so on.
    pub fn find(&self, data: &[u8], from: Pos, step: usize) -> Option<Pos> {
        let number = parse_integer(data);
        let mut at = from.0;
        let end = self.end();
        while at < end {
            let found = match (self.get(Pos(at)), number) {
                (Element::Int(own), Some(number)) => own == number,
                // Foreign listpacks may hold a number as a string.
                (Element::Bytes(own), _) => own == data,
                (Element::Int(_), None) => false,
            };
            if found {
                return Some(Pos(at));
            }
            for _ in 0..step {
                if at < end {
                    at = self.after(at);
                }
            }
        }
        None
    }

    fn positions(&self) -> impl Iterator<Item = Pos> + '_ {
        std::iter::successors(self.first(), |&pos| self.next(pos))
    }

    pub fn iter(&self) -> Iter<'_> {
        Iter { pack: self, front: self.first(), back: self.last() }
    }

    /// The elements from `pos` on.
    pub fn iter_from(&self, pos: Pos) -> Iter<'_> {
        Iter { pack: self, front: Some(pos), back: self.last() }
    }

    /// Whether `more` bytes of one element keep the listpack within what its header can say.
    pub fn has_room(&self, more: usize) -> bool {
        self.bytes.len().saturating_add(more) < (1 << 30)
    }

    /// Replaces `old` bytes at `at` by an encoded element.
    fn splice(&mut self, at: usize, old: usize, new: Option<&Encoded<'_>>) {
        let room = new.map_or(0, |element| element.len() + backlen_bytes(element.len()));
        let len = self.bytes.len();
        if room > old {
            let more = room - old;
            self.bytes.reserve_exact(more);
            self.bytes.resize(len + more, 0);
            self.bytes.copy_within(at + old..len, at + room);
        } else {
            self.bytes.copy_within(at + old..len, at + room);
            self.bytes.truncate(len - (old - room));
            if self.bytes.capacity() > 64 && self.bytes.capacity() > 2 * self.bytes.len() {
                self.bytes.shrink_to_fit();
            }
        }
        if let Some(element) = new {
            element.write(&mut self.bytes[at..at + room]);
        }
        self.set_total();
    }

    fn set_total(&mut self) {
        let total = u32::try_from(self.bytes.len()).expect("a listpack's holder bounds its bytes");
        self.bytes[..4].copy_from_slice(&total.to_le_bytes());
    }

    fn set_count(&mut self, count: usize) {
        let stated = u16::try_from(count).unwrap_or(COUNT_UNKNOWN);
        self.bytes[4..6].copy_from_slice(&stated.to_le_bytes());
    }

    fn change_count(&mut self, by: isize) {
        match u16::from_le_bytes([self.bytes[4], self.bytes[5]]) {
            COUNT_UNKNOWN => {
                if by < 0 {
                    let count = self.positions().count();
                    self.set_count(count);
                }
            }
            count => self.set_count(usize::from(count).saturating_add_signed(by)),
        }
    }
}

/// The elements in order, from both ends.
#[derive(Clone)]
pub struct Iter<'a> {
    pack: &'a Listpack,
    front: Option<Pos>,
    back: Option<Pos>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let pos = self.front?;
        if self.back == Some(pos) {
            (self.front, self.back) = (None, None);
        } else {
            self.front = self.pack.next(pos);
        }
        Some(self.pack.get(pos))
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    fn next_back(&mut self) -> Option<Element<'a>> {
        let pos = self.back?;
        if self.front == Some(pos) {
            (self.front, self.back) = (None, None);
        } else {
            self.back = self.pack.prev(pos);
        }
        Some(self.pack.get(pos))
    }
}

#[cfg(test)]
mod tests;
