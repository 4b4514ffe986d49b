//! A packed block: many small files in one value of the flash cache, which describes itself. Pure.
//!
//! The files lie in the order of their paths, so the files of one directory are side by side. Little-endian (`docs/format.md`):
//!
//! | part | bytes | what |
//! | --- | --- | --- |
//! | body | | the bytes of the files, one after the other |
//! | entries | 24 each | version (8, hashed), offset in the body (4), length (4), CRC-32C of path, version and bytes (4), end of the name (4) |
//! | names | | the paths without their common prefix, one after the other |
//! | prefix | | what all paths begin with |
//! | bitmap | | a bit an entry, the lowest first: it is live |
//! | trailer | 48 | below |
//!
//! The trailer: CRC-32C of all from the entries up to it and of the rest of it (4), magic `TFPK` (4), format 1 (4), entries (4), bytes of the body (4), of the
//! names (4), of the prefix (4), zero (4), id of the block (8), generation (8).
//!
//! The body has no checksum of its own: each file has one, because a part of a block may be read alone. What a footer says is believed only if its
//! checksum, its id and its lengths are right.

use crate::planted;
use std::ops::Range;
use std::sync::Arc;

pub const TRAILER: usize = 48;
const ENTRY: usize = 24;
const MAGIC: u32 = u32::from_le_bytes(*b"TFPK");
const FORMAT: u32 = 1;

/// A file to be packed.
#[derive(Clone, Debug)]
pub struct Item {
    pub path: Arc<str>,
    pub version: u64,
    pub bytes: Arc<[u8]>,
}

impl Item {
    /// Bytes that it takes in a block, with what the footer says of it.
    pub fn packed_bytes(&self) -> usize {
        packed_bytes(&self.path, self.bytes.len())
    }
}

pub fn packed_bytes(path: &str, len: usize) -> usize {
    len + ENTRY + path.len() + 1
}

/// What a footer says of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub version: u64,
    /// In the block.
    pub bytes: Range<usize>,
    pub is_live: bool,
    crc: u32,
}

/// A footer, as it was read or written: the entries are decoded as they are asked for.
pub struct Footer {
    pub id: u64,
    pub generation: u64,
    pub body: usize,
    count: usize,
    names: usize,
    prefix: usize,
    /// From the entries up to the trailer.
    table: Box<[u8]>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn check_of(path: &str, version: u64, bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c(path.as_bytes());
    let crc = crc32c::crc32c_append(crc, &version.to_le_bytes());
    crc32c::crc32c_append(crc, bytes)
}

/// Bytes that the first and the last of sorted paths begin with both: all between them do, too.
fn common_prefix(first: &str, last: &str) -> usize {
    let same = first.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
    (0..=same).rev().find(|at| first.is_char_boundary(*at) && last.is_char_boundary(*at)).unwrap_or(0)
}

/// A block of these files, which are in the order of their paths. `is_live` says which of them are not superseded already.
pub fn encode(id: u64, generation: u64, items: &[Item], is_live: impl Fn(usize) -> bool) -> Vec<u8> {
    let body: usize = items.iter().map(|item| item.bytes.len()).sum();
    let prefix = match (items.first(), items.last()) {
        (Some(first), Some(last)) => &first.path[..common_prefix(&first.path, &last.path)],
        _ => "",
    };
    let all: usize = items.iter().map(Item::packed_bytes).sum();
    let mut block = Vec::with_capacity(all + prefix.len() + items.len().div_ceil(8) + TRAILER);
    items.iter().for_each(|item| block.extend_from_slice(&item.bytes));
    let (mut offset, mut name_end) = (0, 0);
    for item in items {
        name_end += item.path.len() - prefix.len();
        block.extend_from_slice(&item.version.to_le_bytes());
        for number in [
            offset as u32,
            item.bytes.len() as u32,
            check_of(&item.path, item.version, &item.bytes),
            name_end as u32,
        ] {
            block.extend_from_slice(&number.to_le_bytes());
        }
        offset += item.bytes.len();
    }
    items.iter().for_each(|item| block.extend_from_slice(&item.path.as_bytes()[prefix.len()..]));
    block.extend_from_slice(prefix.as_bytes());
    for first in (0..items.len()).step_by(8) {
        let bits = (first..items.len().min(first + 8)).filter(|at| is_live(*at));
        block.push(bits.fold(0, |byte, at| byte | 1 << (at - first)));
    }
    let mut trailer = [0; TRAILER];
    let numbers = [MAGIC, FORMAT, items.len() as u32, body as u32, name_end as u32, prefix.len() as u32, 0];
    for (place, number) in trailer[4..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    trailer[32..40].copy_from_slice(&id.to_le_bytes());
    trailer[40..].copy_from_slice(&generation.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block[body..]), &trailer[4..]);
    trailer[..4].copy_from_slice(&crc.to_le_bytes());
    block.extend_from_slice(&trailer);
    block
}

/// Makes another block of it, with the same files: `footer` is the one that it has.
pub fn renumber(
    block: &mut [u8],
    footer: &Footer,
    id: u64,
    generation: u64,
    is_live: impl Fn(usize) -> bool,
) {
    let end = footer.body + footer.table.len();
    let bitmap = footer.body + footer.names_at() + footer.names + footer.prefix;
    let Some((table, trailer)) = block.split_at_mut_checked(end) else { return };
    if trailer.len() != TRAILER {
        return;
    }
    for (at, byte) in table[bitmap..].iter_mut().enumerate() {
        let bits = (at * 8..footer.count.min(at * 8 + 8)).filter(|at| is_live(*at));
        *byte = bits.fold(0, |byte, at| byte | 1 << (at % 8));
    }
    trailer[32..40].copy_from_slice(&id.to_le_bytes());
    trailer[40..].copy_from_slice(&generation.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&table[footer.body..]), &trailer[4..]);
    trailer[..4].copy_from_slice(&crc.to_le_bytes());
}

/// What the end of a block says.
pub enum Tail {
    Whole(Footer),
    /// The footer has this number of bytes, more than were given.
    Needs(usize),
    /// It is no footer of this block.
    Invalid,
}

/// Reads the footer of block `id`, which has `value_len` bytes, from its last bytes.
pub fn decode(id: u64, value_len: usize, tail: &[u8]) -> Tail {
    let Some(at) = tail.len().checked_sub(TRAILER) else { return Tail::Invalid };
    let trailer = &tail[at..];
    let number = |at| u32_at(trailer, at) as usize;
    let (count, body, names, prefix) = (number(12), number(16), number(20), number(24));
    let is_it = u32_at(trailer, 4) == MAGIC && u32_at(trailer, 8) == FORMAT && u64_at(trailer, 32) == id;
    let table = [count.checked_mul(ENTRY), Some(names), Some(prefix), Some(count.div_ceil(8))]
        .into_iter()
        .try_fold(0usize, |sum, part| sum.checked_add(part?));
    let Some(table) = table.filter(|_| is_it) else { return Tail::Invalid };
    let footer = table.checked_add(TRAILER);
    if footer.and_then(|footer| footer.checked_add(body)) != Some(value_len) {
        return Tail::Invalid;
    }
    let Some(begin) = at.checked_sub(table) else { return Tail::Needs(table + TRAILER) };
    let table = &tail[begin..at];
    let crc = crc32c::crc32c_append(crc32c::crc32c(table), &trailer[4..]);
    if crc != u32_at(trailer, 0) && !planted::FOOTER_NOT_VERIFIED.on() {
        return Tail::Invalid;
    }
    let generation = u64_at(trailer, 40);
    Tail::Whole(Footer { id, generation, body, count, names, prefix, table: table.into() })
}

impl Footer {
    pub fn len(&self) -> usize {
        self.count
    }
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Bytes of the whole block.
    pub fn block_len(&self) -> usize {
        self.body + self.table.len() + TRAILER
    }
    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.table.len() + 128
    }

    fn name_end(&self, at: usize) -> usize {
        match at.checked_sub(1) {
            None => 0,
            Some(before) => (u32_at(&self.table, before * ENTRY + 20) as usize).min(self.names),
        }
    }

    fn names_at(&self) -> usize {
        self.count * ENTRY
    }

    /// The path of an entry; None if it is no text, or there is no such entry.
    pub fn path(&self, at: usize) -> Option<String> {
        if at >= self.count {
            return None;
        }
        let names = self.table.get(self.names_at()..self.names_at() + self.names)?;
        let name = names.get(self.name_end(at)..self.name_end(at + 1))?;
        let prefix = self.table.get(self.names_at() + self.names..)?.get(..self.prefix)?;
        Some([std::str::from_utf8(prefix).ok()?, std::str::from_utf8(name).ok()?].concat())
    }

    /// Whether the entry is of this path, without making a copy of it.
    pub fn is_of(&self, at: usize, path: &str) -> bool {
        let names = self.table.get(self.names_at()..).unwrap_or_default();
        let name = names.get(self.name_end(at)..self.name_end(at + 1));
        let prefix = names.get(self.names..).and_then(|rest| rest.get(..self.prefix));
        at < self.count
            && matches!((prefix, name), (Some(prefix), Some(name))
                if path.as_bytes().strip_prefix(prefix) == Some(name))
    }

    pub fn entry(&self, at: usize) -> Option<Entry> {
        let place = self.table.get(at * ENTRY..(at + 1) * ENTRY).filter(|_| at < self.count)?;
        let (offset, len) = (u32_at(place, 8) as usize, u32_at(place, 12) as usize);
        let bytes = offset..offset.checked_add(len).filter(|end| *end <= self.body)?;
        let bitmap = self.names_at() + self.names + self.prefix;
        let is_live = self.table.get(bitmap + at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
        Some(Entry { version: u64_at(place, 0), bytes, is_live, crc: u32_at(place, 16) })
    }

    /// Whether these are the bytes of the entry, whose path is `path`.
    pub fn proves(&self, entry: &Entry, path: &str, bytes: &[u8]) -> bool {
        planted::PACKED_BYTES_NOT_VERIFIED.on() || check_of(path, entry.version, bytes) == entry.crc
    }

    /// The entries whose bytes begin in a range of the block. They are in the order of their offsets.
    pub fn entries_in(&self, bytes: &Range<usize>) -> Range<usize> {
        let offset = |at: usize| u32_at(&self.table, at * ENTRY + 8) as usize;
        let first_from = |from: usize| {
            let (mut low, mut high) = (0, self.count);
            while low < high {
                let middle = (low + high) / 2;
                if offset(middle) < from { low = middle + 1 } else { high = middle }
            }
            low
        };
        first_from(bytes.start)..first_from(bytes.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn item(path: &str, version: u64, len: usize) -> Item {
        let bytes = (0..len).map(|at| (at as u64 * 31 + version) as u8).collect();
        Item { path: path.into(), version, bytes }
    }

    fn footer_of(id: u64, block: &[u8], given: usize) -> Option<Footer> {
        match decode(id, block.len(), &block[block.len() - given.min(block.len())..]) {
            Tail::Whole(footer) => Some(footer),
            Tail::Needs(more) => footer_of(id, block, more),
            Tail::Invalid => None,
        }
    }

    fn items() -> Vec<Item> {
        (0..37).map(|n| item(&format!("tab/ä/{n:03}"), n % 5, 1 + n as usize * 17 % 900)).collect()
    }

    #[test]
    fn a_block_tells_what_is_in_it() {
        let items = items();
        let block = encode(9, 4, &items, |at| at % 3 != 0);
        let footer =
            footer_of(9, &block, TRAILER).expect("it needs more than the trailer, and says how much");
        assert_eq!((footer.len(), footer.generation), (items.len(), 4));
        for (at, item) in items.iter().enumerate() {
            let entry = footer.entry(at).unwrap();
            assert_eq!(footer.path(at).as_deref(), Some(&*item.path));
            assert!(footer.is_of(at, &item.path) && !footer.is_of(at, "tab/ä/x"));
            assert_eq!((entry.version, entry.is_live), (item.version, at % 3 != 0));
            assert_eq!(block[entry.bytes.clone()], item.bytes[..]);
            assert!(footer.proves(&entry, &item.path, &item.bytes));
            let mut other = item.bytes.to_vec();
            other[0] ^= 1;
            assert!(
                !footer.proves(&entry, &item.path, &other) && !footer.proves(&entry, "tab/ä/x", &item.bytes)
            );
            assert!(footer.entries_in(&entry.bytes).eq(at..at + 1));
        }
        assert!(footer.entry(items.len()).is_none() && footer.path(items.len()).is_none());
        assert!(footer_of(8, &block, 1 << 20).is_none(), "it is another block's");
    }

    #[test]
    fn a_block_with_another_number_is_what_would_have_been_made_with_it() {
        let items = items();
        let mut block = encode(9, 4, &items, |_| true);
        let footer = footer_of(9, &block, block.len()).unwrap();
        renumber(&mut block, &footer, 77, 5, |at| at % 5 == 1);
        assert!(block == encode(77, 5, &items, |at| at % 5 == 1));
    }

    #[test]
    fn a_footer_with_a_changed_byte_is_refused() {
        let block = encode(9, 4, &items(), |_| true);
        let body: usize = items().iter().map(|item| item.bytes.len()).sum();
        for at in body..block.len() {
            let mut torn = block.clone();
            torn[at] ^= 0x40;
            assert!(footer_of(9, &torn, block.len()).is_none(), "byte {at}");
        }
        assert!(footer_of(9, &block[..block.len() - 1], block.len()).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_footer_or_refused(bytes in prop::collection::vec(any::<u8>(), TRAILER..600), count in 0usize..20, rest in 0usize..200) {
            let mut bytes = bytes;
            let at = bytes.len() - TRAILER;
            let table = count * ENTRY + rest + count.div_ceil(8);
            let body = at.saturating_sub(table);
            let numbers = [MAGIC, FORMAT, count as u32, body as u32, rest as u32, 0, 0];
            for (place, number) in bytes[at + 4..].chunks_exact_mut(4).zip(numbers) {
                place.copy_from_slice(&number.to_le_bytes());
            }
            bytes[at + 32..at + 40].copy_from_slice(&9u64.to_le_bytes());
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[body..at]), &bytes[at + 4..]);
            bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            if let Tail::Whole(footer) = decode(9, bytes.len(), &bytes) {
                for at in 0..footer.len() + 1 {
                    if let Some(entry) = footer.entry(at) {
                        prop_assert!(entry.bytes.end <= body);
                    }
                    let _ = (footer.path(at), footer.is_of(at, "x"));
                }
                footer.entries_in(&(0..100));
            } else {
                prop_assert!(table > at);
            }
        }
    }
}
