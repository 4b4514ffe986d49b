//! An exact set of keys in little memory, for a session that holds many row locks in one tree.
//!
//! The keys lie in order in chunks, found by the least key that each may have (its bound). A chunk keeps the prefix that its keys share
//! once, and of each key the rest:
//!
//! * a list: the rests in order. Where all keys are of one length each takes exactly its bytes and is found by bisection; else each has
//!   its length before it. A list that has grown too long is split in two, preferably where the part before the last two bytes changes.
//! * a bitmap: keys that differ in their last two bytes alone, with a bit for each that there can be. A list of such keys becomes one
//!   when the bitmap takes no more than the list, and a list again when few are left.
//!
//! So dense integers take from two bytes down to a bit each, random keys of 16 bytes about 20. A lock by name (`names`) takes 76.
//!
//! Invariants: chunks are not empty; the keys of a chunk are at or above its bound and below the next one's; `len` and `bytes` are what
//! counting would give. `check_invariants` counts.
//!
//! Not here: whose keys they are, and in which mode they are locked (`crowds`).

use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};

/// A list of longer rests is split, one of rests of two bytes becomes a bitmap.
const LIST_MAX: usize = 4096;
const LIST_OF_TWO_MAX: usize = BITMAP_WORDS * 8;
const BITMAP_WORDS: usize = (1 << 16) / 64;
/// A bitmap with fewer keys becomes a list.
const BITMAP_MIN: u32 = 1024;
/// What a chunk takes beside its own bytes: its place in the map, which is two thirds full as a rule, and what the allocator adds to its
/// three pieces.
const CHUNK_BYTES: usize = (size_of::<Box<[u8]>>() + size_of::<Chunk>()) * 3 / 2 + 3 * 16;

struct List {
    prefix: Box<[u8]>,
    /// The length of each rest; 0: each has its own before it, in two bytes.
    width: usize,
    rests: Vec<u8>,
}

struct Bitmap {
    prefix: Box<[u8]>,
    count: u32,
    words: Box<[u64]>,
}

enum Chunk {
    List(List),
    Bitmap(Bitmap),
}

/// What became of a key that a chunk was to take.
enum Put {
    Added,
    WasThere,
    /// The chunk is a bitmap of other keys.
    Foreign,
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl List {
    /// Of rests in order behind a prefix that all share: the longest one is found.
    fn of(prefix: &[u8], rests: &[&[u8]]) -> List {
        let (first, last) = (rests.first().copied().unwrap_or(&[]), rests.last().copied().unwrap_or(&[]));
        let shortest = rests.iter().map(|rest| rest.len()).min().unwrap_or(0);
        let more = common(first, last).min(shortest.saturating_sub(2));
        let same = rests.iter().all(|rest| rest.len() == first.len());
        let width = if same { first.len() - more } else { 0 };
        let bytes = rests.iter().map(|rest| rest.len() - more + if width == 0 { 2 } else { 0 }).sum();
        let mut list = List {
            prefix: [prefix, &first[..more]].concat().into(),
            width,
            rests: Vec::with_capacity(bytes),
        };
        for rest in rests {
            list.append(&rest[more..]);
        }
        list
    }

    fn append(&mut self, rest: &[u8]) {
        if self.width == 0 {
            self.rests.extend_from_slice(&(rest.len() as u16).to_be_bytes());
        }
        self.rests.extend_from_slice(rest);
    }

    /// The rest at this offset and the offset behind it.
    fn at(&self, offset: usize) -> (&[u8], usize) {
        let (from, to) = match self.width {
            0 => {
                let len = usize::from(u16::from_be_bytes([self.rests[offset], self.rests[offset + 1]]));
                (offset + 2, offset + 2 + len)
            }
            width => (offset, offset + width),
        };
        (&self.rests[from..to], to)
    }

    /// The rests from an offset on.
    fn from(&self, offset: usize) -> impl Iterator<Item = &[u8]> {
        let mut next = offset;
        std::iter::from_fn(move || {
            let (rest, after) = (next < self.rests.len()).then(|| self.at(next))?;
            next = after;
            Some(rest)
        })
    }

    /// The offset of a rest, or where it would be.
    fn find(&self, rest: &[u8]) -> Result<usize, usize> {
        if self.width == 0 {
            let mut offset = 0;
            while offset < self.rests.len() {
                let (other, after) = self.at(offset);
                match other.cmp(rest) {
                    std::cmp::Ordering::Less => offset = after,
                    std::cmp::Ordering::Equal => return Ok(offset),
                    std::cmp::Ordering::Greater => break,
                }
            }
            return Err(offset);
        }
        let (mut low, mut high) = (0, self.rests.len() / self.width);
        while low < high {
            let middle = (low + high) / 2;
            match self.at(middle * self.width).0.cmp(rest) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle * self.width),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low * self.width)
    }

    fn rest<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let rest = key.strip_prefix(&self.prefix[..])?;
        (self.width == 0 || rest.len() == self.width).then_some(rest)
    }

    /// Makes the list one that the key fits into: its prefix no longer than what the key shares, its form one for the key's length.
    fn make_fit(&mut self, key: &[u8]) {
        if self.rest(key).is_some() {
            return;
        }
        let shared = common(&self.prefix, key);
        let more = self.prefix[shared..].to_vec();
        let whole: Vec<Vec<u8>> = self.from(0).map(|rest| [&more[..], rest].concat()).collect();
        let same = self.width > 0 && key.len() == self.prefix.len() + self.width;
        let mut list = List {
            prefix: self.prefix[..shared].into(),
            width: if same { self.width + more.len() } else { 0 },
            rests: Vec::new(),
        };
        whole.iter().for_each(|rest| list.append(rest));
        *self = list;
    }

    fn insert(&mut self, key: &[u8]) -> bool {
        self.make_fit(key);
        let rest = &key[self.prefix.len()..];
        let Err(offset) = self.find(rest) else { return false };
        let len = [0; 2].len() * usize::from(self.width == 0) + rest.len();
        let old = self.rests.len();
        if old + len > self.rests.capacity() {
            self.rests.reserve_exact(len + (old / 4).max(32));
        }
        self.rests.resize(old + len, 0);
        self.rests.copy_within(offset..old, offset + len);
        let place = &mut self.rests[offset..offset + len];
        if self.width == 0 {
            place[..2].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        }
        place[len - rest.len()..].copy_from_slice(rest);
        true
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Some(Ok(offset)) = self.rest(key).map(|rest| self.find(rest)) else { return false };
        let (_, after) = self.at(offset);
        self.rests.drain(offset..after);
        if self.rests.len() < self.rests.capacity() / 2 {
            self.rests.shrink_to(self.rests.len() * 5 / 4);
        }
        true
    }

    fn is_too_long(&self) -> bool {
        self.rests.len() > if self.width == 2 { LIST_OF_TWO_MAX } else { LIST_MAX }
    }

    /// Takes the upper part off, if there are two of them: with the bound between them.
    fn split(&mut self) -> Option<(Box<[u8]>, List)> {
        let rests: Vec<&[u8]> = self.from(0).collect();
        let whole = List::of(&self.prefix, &rests);
        if !whole.is_too_long() || rests.len() < 2 {
            *self = whole;
            return None;
        }
        let middle = rests.len() / 2;
        // Where a bitmap's keys would end, if it is to become some.
        let ends = |at: &usize| {
            let part = self.width.saturating_sub(2);
            rests[*at - 1][..part] != rests[*at][..part]
        };
        let at = match self.width {
            0 => middle,
            _ => (1..rests.len()).filter(ends).min_by_key(|at| at.abs_diff(middle)).unwrap_or(middle),
        };
        let (low, high) = (List::of(&self.prefix, &rests[..at]), List::of(&self.prefix, &rests[at..]));
        // As short as one can be: where the lists end with their prefixes, so do their ranges.
        let bound = [&self.prefix[..], &rests[at][..common(rests[at - 1], rests[at]) + 1]].concat();
        *self = low;
        Some((bound.into(), high))
    }

    fn first_key(&self) -> Box<[u8]> {
        [&self.prefix[..], self.at(0).0].concat().into()
    }

    fn bitmap(&self) -> Bitmap {
        let mut bitmap =
            Bitmap { prefix: self.prefix.clone(), count: 0, words: vec![0; BITMAP_WORDS].into() };
        let lost = usize::from(crate::planted::CONVERSION_FORGETS.on());
        for rest in self.from(0).skip(lost) {
            bitmap.set(bit(rest));
        }
        bitmap
    }
}

/// The number of a key's bit: its last two bytes.
fn bit(rest: &[u8]) -> usize {
    usize::from(rest[0]) << 8 | usize::from(rest[1])
}

impl Bitmap {
    fn bit(&self, key: &[u8]) -> Option<usize> {
        let rest = key.strip_prefix(&self.prefix[..])?;
        (rest.len() == 2).then(|| bit(rest))
    }
    fn has(&self, bit: usize) -> bool {
        self.words[bit / 64] & 1 << (bit % 64) != 0
    }
    fn set(&mut self, bit: usize) -> bool {
        let new = !self.has(bit);
        self.words[bit / 64] |= 1 << (bit % 64);
        self.count += u32::from(new);
        new
    }
    fn unset(&mut self, bit: usize) -> bool {
        let was = self.has(bit);
        self.words[bit / 64] &= !(1 << (bit % 64));
        self.count -= u32::from(was);
        was
    }
    /// The bits that are set, from one on.
    fn from(&self, bit: usize) -> impl Iterator<Item = usize> {
        let words = self.words.iter().enumerate().skip(bit / 64);
        words.flat_map(move |(at, word)| {
            let mut left = if at == bit / 64 { word & (!0 << (bit % 64)) } else { *word };
            std::iter::from_fn(move || {
                let lowest = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(at * 64 + lowest)
            })
        })
    }
    fn list(&self) -> List {
        let rests = self.from(0).flat_map(|bit| (bit as u16).to_be_bytes()).collect();
        List { prefix: self.prefix.clone(), width: 2, rests }
    }
    fn key(&self, bit: usize) -> Vec<u8> {
        [&self.prefix[..], &(bit as u16).to_be_bytes()].concat()
    }
}

impl Chunk {
    fn of_one(key: &[u8]) -> Chunk {
        Chunk::List(List::of(&[], &[key]))
    }

    fn has(&self, key: &[u8]) -> bool {
        match self {
            Chunk::List(list) => list.rest(key).is_some_and(|rest| list.find(rest).is_ok()),
            Chunk::Bitmap(bitmap) => bitmap.bit(key).is_some_and(|bit| bitmap.has(bit)),
        }
    }

    fn insert(&mut self, key: &[u8]) -> Put {
        let added = match self {
            Chunk::List(list) => list.insert(key),
            Chunk::Bitmap(bitmap) => match bitmap.bit(key) {
                Some(bit) => bitmap.set(bit),
                None => return Put::Foreign,
            },
        };
        if added { Put::Added } else { Put::WasThere }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        match self {
            Chunk::List(list) => list.remove(key),
            Chunk::Bitmap(bitmap) => {
                let removed = bitmap.bit(key).is_some_and(|bit| bitmap.unset(bit));
                if removed && bitmap.count < BITMAP_MIN {
                    *self = Chunk::List(bitmap.list());
                }
                removed
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Chunk::List(list) => list.rests.is_empty(),
            Chunk::Bitmap(bitmap) => bitmap.count == 0,
        }
    }

    /// What it takes under a bound.
    fn bytes(&self, bound: &[u8]) -> usize {
        let own = match self {
            Chunk::List(list) => list.prefix.len() + list.rests.capacity(),
            Chunk::Bitmap(bitmap) => bitmap.prefix.len() + 8 * BITMAP_WORDS,
        };
        CHUNK_BYTES + bound.len() + own
    }

    /// Calls `each` with keys above `after`, in order, until it says that it is enough: false.
    fn each(&self, after: Option<&[u8]>, mut each: impl FnMut(&[u8]) -> bool) -> bool {
        let mut key = Vec::new();
        match self {
            Chunk::List(list) => {
                // Most are asked for from within, where a bisection finds the place.
                let from = match after.and_then(|after| list.rest(after)).map(|rest| list.find(rest)) {
                    Some(Ok(offset) | Err(offset)) => offset,
                    None => 0,
                };
                list.from(from).all(|rest| {
                    key.clear();
                    key.extend_from_slice(&list.prefix);
                    key.extend_from_slice(rest);
                    after.is_some_and(|after| &key[..] <= after) || each(&key)
                })
            }
            Chunk::Bitmap(bitmap) => {
                let from = after.and_then(|after| bitmap.bit(after)).unwrap_or(0);
                bitmap.from(from).all(|bit| {
                    key.clear();
                    key.extend_from_slice(&bitmap.prefix);
                    key.extend_from_slice(&(bit as u16).to_be_bytes());
                    after.is_some_and(|after| &key[..] <= after) || each(&key)
                })
            }
        }
    }
}

#[derive(Default)]
pub struct Set {
    chunks: BTreeMap<Box<[u8]>, Chunk>,
    len: usize,
    bytes: usize,
}

impl Set {
    pub fn len(&self) -> usize {
        self.len
    }
    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn has(&self, key: &[u8]) -> bool {
        let chunk = self.chunks.range::<[u8], _>((Unbounded, Included(key))).next_back();
        chunk.is_some_and(|(_, chunk)| chunk.has(key))
    }

    /// False: it was there.
    pub fn insert(&mut self, key: &[u8]) -> bool {
        let chunk = self.chunks.range_mut::<[u8], _>((Unbounded, Included(key))).next_back();
        let Some((bound, chunk)) = chunk else {
            self.add_chunk(Box::default(), Chunk::of_one(key));
            self.len += 1;
            return true;
        };
        let before = chunk.bytes(bound);
        match chunk.insert(key) {
            Put::WasThere => return false,
            Put::Foreign => {
                let bound = bound.clone();
                self.insert_foreign(&bound, key);
            }
            Put::Added => {
                let mut upper = None;
                if let Chunk::List(list) = chunk
                    && list.is_too_long()
                {
                    match list.width {
                        2 => *chunk = Chunk::Bitmap(list.bitmap()),
                        _ => upper = list.split(),
                    }
                }
                self.bytes = self.bytes + chunk.bytes(bound) - before;
                if let Some((bound, list)) = upper {
                    self.add_chunk(bound, Chunk::List(list));
                }
            }
        }
        self.len += 1;
        true
    }

    /// A key that belongs where a bitmap of others is: before it, behind it, or, for it is of another length, between its keys.
    fn insert_foreign(&mut self, bound: &[u8], key: &[u8]) {
        let Some(Chunk::Bitmap(bitmap)) = self.take_chunk(bound) else { return };
        let first = bitmap.key(0);
        if key < &first[..] {
            self.add_chunk(bound.into(), Chunk::of_one(key));
            self.add_chunk(first.into(), Chunk::Bitmap(bitmap));
        } else if key > &bitmap.key(usize::from(u16::MAX))[..] {
            self.add_chunk(bound.into(), Chunk::Bitmap(bitmap));
            self.add_chunk(key.into(), Chunk::of_one(key));
        } else {
            // Few keys of a table are: lists of what is below, of it, and of what is above.
            let rests: Vec<[u8; 2]> = bitmap.from(0).map(|bit| (bit as u16).to_be_bytes()).collect();
            let at = rests.partition_point(|other| other[..] < key[bitmap.prefix.len()..]);
            let lists = |rests: &[[u8; 2]]| -> Vec<List> {
                let parts = rests.chunks(LIST_MAX / 4);
                parts
                    .map(|part| {
                        List::of(&bitmap.prefix, &part.iter().map(|rest| &rest[..]).collect::<Vec<_>>())
                    })
                    .collect()
            };
            let mut bound = Some(bound.into());
            let all =
                lists(&rests[..at]).into_iter().chain([List::of(&[], &[key])]).chain(lists(&rests[at..]));
            for list in all {
                let bound = bound.take().unwrap_or_else(|| list.first_key());
                self.add_chunk(bound, Chunk::List(list));
            }
        }
    }

    fn add_chunk(&mut self, bound: Box<[u8]>, chunk: Chunk) {
        self.bytes += chunk.bytes(&bound);
        self.chunks.insert(bound, chunk);
    }
    fn take_chunk(&mut self, bound: &[u8]) -> Option<Chunk> {
        let chunk = self.chunks.remove(bound)?;
        self.bytes -= chunk.bytes(bound);
        Some(chunk)
    }

    /// False: it was not there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let chunk = self.chunks.range_mut::<[u8], _>((Unbounded, Included(key))).next_back();
        let Some((bound, chunk)) = chunk else { return false };
        let before = chunk.bytes(bound);
        if !chunk.remove(key) {
            return false;
        }
        self.bytes = self.bytes + chunk.bytes(bound) - before;
        self.len -= 1;
        if chunk.is_empty() {
            let bound = bound.clone();
            self.take_chunk(&bound);
        }
        true
    }

    /// Calls `each` with up to `max` keys above `after`, in order. Returns the last of them, if there may be more.
    pub fn some(&self, after: Option<&[u8]>, max: usize, mut each: impl FnMut(&[u8])) -> Option<Vec<u8>> {
        let start: &[u8] = after.unwrap_or(&[]);
        let first = self.chunks.range::<[u8], _>((Unbounded, Included(start))).next_back();
        let from = first.map_or(start, |(bound, _)| bound);
        let (mut last, mut count) = (None, 0);
        for (_, chunk) in self.chunks.range::<[u8], _>((Included(from), Unbounded)) {
            let goes_on = chunk.each(after, |key| {
                each(key);
                count += 1;
                if count == max {
                    last = Some(key.to_vec());
                }
                count < max
            });
            if !goes_on {
                break;
            }
        }
        last
    }

    /// Counts everything anew.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        let mut bytes = 0;
        let mut len = 0;
        let mut last: Option<Vec<u8>> = None;
        let bounds: Vec<&[u8]> = self.chunks.keys().map(|bound| &**bound).collect();
        for (number, (bound, chunk)) in self.chunks.iter().enumerate() {
            assert!(!chunk.is_empty());
            bytes += chunk.bytes(bound);
            chunk.each(None, |key| {
                assert!(key >= &**bound && bounds.get(number + 1).is_none_or(|next| key < *next));
                assert!(last.as_deref().is_none_or(|last| last < key), "in order");
                last = Some(key.to_vec());
                len += 1;
                true
            });
        }
        assert_eq!((len, bytes), (self.len, self.bytes));
    }

    #[cfg(test)]
    pub fn bitmaps(&self) -> usize {
        self.chunks.values().filter(|chunk| matches!(chunk, Chunk::Bitmap(_))).count()
    }
}
