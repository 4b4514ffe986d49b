//! Which keys storage cannot have: a read of such a key is answered without storage.
//!
//! Positions (slot and hash, see `storage::row`) are divided into [`PARTS`] ranges by their upper bits, each with a blocked Bloom filter of its own:
//! one cache line of 64 bytes a key, [`PROBES`] bits of it. A part is *unknown* until a scan of its range has put every stored key into it; until then it
//! says [`Says::Maybe`], so that a start needs no scan. Keys that are written go into the filter, and into the one that is being built, at once.
//!
//! A Bloom filter cannot forget. A part whose deletions since its scan are more than half of its keys, or which has grown beyond
//! the room it was built for, is due to be rebuilt; the old filter answers until then. All filters together take at most `bytes_max`: when that is little,
//! a part says "maybe" more often, never "absent" of a key that exists.
//!
//! Not here: the scan, which the server runs at its leisure ([`Filter::begin_rebuild`] says of what).

use crate::planted;
use crate::storage::Position;

/// Ranges of positions, each of 16 slots.
pub const PARTS: usize = 1024;
/// Bits that a key sets.
const PROBES: u32 = 6;
/// Bits a key when there is room enough: about 0.5 % false positives with one block a key.
const BITS_PER_KEY: u64 = 14;
const BLOCK_BITS: u64 = 512;
/// Words of 64 bits in a block.
const WORDS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Says {
    Absent,
    Maybe,
}

#[derive(Clone, Debug, Default)]
struct Bloom {
    blocks: Box<[[u64; WORDS]]>,
}

/// A second hash: positions have 62 good bits, of which the upper ones are spent on the part.
fn mix(position: Position, db: u16) -> u64 {
    let mut x =
        position.0 ^ (u64::from(db) << 62).rotate_left(7) ^ u64::from(db).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Bloom {
    fn with_room(keys: u64, bytes_max: u64) -> Bloom {
        let blocks = (keys * BITS_PER_KEY).div_ceil(BLOCK_BITS).min(bytes_max / (BLOCK_BITS / 8)).max(1);
        Bloom { blocks: vec![[0; WORDS]; blocks as usize].into() }
    }

    fn at(&self, hash: u64) -> (usize, impl Iterator<Item = (usize, u64)> + use<>) {
        let block = ((u128::from(hash) * self.blocks.len() as u128) >> 64) as usize;
        let mut bits = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let probes = (0..PROBES).map(move |_| {
            bits = bits.rotate_left(9).wrapping_mul(0xd6e8_feb8_6659_fd93);
            let bit = bits >> 55;
            ((bit / 64) as usize, 1 << (bit % 64))
        });
        (block, probes)
    }

    fn insert(&mut self, hash: u64) {
        let (block, probes) = self.at(hash);
        for (word, bit) in probes {
            self.blocks[block][word] |= bit;
        }
    }

    fn may_have(&self, hash: u64) -> bool {
        let (block, mut probes) = self.at(hash);
        probes.all(|(word, bit)| self.blocks[block][word] & bit != 0)
    }

    fn bytes(&self) -> u64 {
        (self.blocks.len() * WORDS * 8) as u64
    }
}

#[derive(Clone, Debug, Default)]
struct Part {
    /// `None`: unknown, every key may be there.
    bloom: Option<Bloom>,
    /// What is being built.
    next: Option<Bloom>,
    /// Keys put in since the last scan, those of the scan included.
    keys: u64,
    deleted: u64,
    next_keys: u64,
    /// Keys that `bloom` has room for.
    room: u64,
}

pub struct Filter {
    parts: Vec<Part>,
    bytes_max: u64,
    bytes: u64,
}

impl Filter {
    pub fn new(bytes_max: u64) -> Filter {
        Filter { parts: vec![Part::default(); PARTS], bytes_max, bytes: 0 }
    }

    /// The part of a position.
    pub fn part(position: Position) -> usize {
        (position.0 >> 52) as usize % PARTS
    }

    /// Whether storage may have a key.
    pub fn says(&self, db: u16, position: Position) -> Says {
        let part = &self.parts[Filter::part(position)];
        let bloom = match planted::FILTER_TRUSTED_EARLY.on() {
            true => part.next.as_ref().or(part.bloom.as_ref()),
            false => part.bloom.as_ref(),
        };
        match bloom {
            Some(bloom) if !bloom.may_have(mix(position, db)) => Says::Absent,
            _ => Says::Maybe,
        }
    }

    /// A key is about to be written: from now on storage may have it.
    pub fn insert(&mut self, db: u16, position: Position) {
        let (part, hash) = (&mut self.parts[Filter::part(position)], mix(position, db));
        if let Some(bloom) = &mut part.bloom {
            bloom.insert(hash);
            part.keys += 1;
        }
        if let Some(next) = &mut part.next {
            next.insert(hash);
            part.next_keys += 1;
        }
    }

    /// A key was deleted.
    pub fn deleted(&mut self, position: Position) {
        self.parts[Filter::part(position)].deleted += 1;
    }

    /// All keys of a database were deleted: every part may be worn.
    pub fn emptied(&mut self) {
        self.parts.iter_mut().for_each(|part| part.deleted = part.keys.max(64));
    }

    /// Keys have got other databases: nothing is known. No part is being built.
    pub fn forget(&mut self) {
        self.parts.fill(Part::default());
        self.bytes = 0;
    }

    /// Storage is about to lose all its keys: begins to build every part that is not being built and has or may have some, for about `keys` keys. What is written from now on goes into
    /// both filters, and no scan is needed. Returns the parts, for [`Filter::end_rebuild`] when it is known whether storage has lost them.
    pub fn begin_empty(&mut self, keys: u64) -> Vec<usize> {
        let parts: Vec<usize> = (0..PARTS)
            .filter(|part| {
                let Part { bloom, next, keys, .. } = &self.parts[*part];
                next.is_none() && (bloom.is_none() || *keys > 0)
            })
            .collect();
        parts.iter().for_each(|part| self.begin_part(*part, keys));
        parts
    }

    /// The next part that is due to be built, if any. The caller tells of each key that is on its way to storage now ([`Filter::scanned`]): the scan may
    /// miss it, and it was written before the new filter began to listen. Then it scans the range in every database, tells of each key and ends with
    /// [`Filter::end_rebuild`]. `keys` is about how many keys storage has in all.
    pub fn begin_rebuild(&mut self, keys: u64) -> Option<usize> {
        let part = (0..PARTS).find(|part| self.is_due(*part))?;
        self.begin(part, keys).then_some(part)
    }

    /// Whether a part is unknown, or its filter is worn, and it is not being built.
    pub fn is_due(&self, part: usize) -> bool {
        let part = &self.parts[part];
        let is_worn = part.deleted * 2 > part.keys.max(64) || part.keys > part.room.max(64) * 2;
        part.next.is_none() && (part.bloom.is_none() || is_worn)
    }

    /// As [`Filter::begin_rebuild`], of a part of the caller's choice; false if it is not due.
    pub fn begin(&mut self, part: usize, keys: u64) -> bool {
        if !self.is_due(part) {
            return false;
        }
        self.begin_part(part, keys);
        true
    }

    fn begin_part(&mut self, part: usize, keys: u64) {
        let expected = keys.div_ceil(PARTS as u64) * 5 / 4 + 64;
        let next = Bloom::with_room(expected, self.bytes_max / PARTS as u64 / 2);
        self.bytes += next.bytes();
        let part_of = &mut self.parts[part];
        (part_of.next, part_of.next_keys, part_of.deleted) = (Some(next), 0, 0);
    }

    /// The positions of a part, both ends included.
    pub fn range(part: usize) -> (Position, Position) {
        let first = (part as u64) << 52;
        (Position(first), Position(first | ((1 << 52) - 1)))
    }

    /// A scan of a part found a key.
    pub fn scanned(&mut self, db: u16, position: Position) {
        let part = &mut self.parts[Filter::part(position)];
        if let Some(next) = &mut part.next {
            next.insert(mix(position, db));
            part.next_keys += 1;
        }
    }

    /// A scan of a part has ended; `whole`: it saw every key.
    pub fn end_rebuild(&mut self, part: usize, whole: bool) {
        let part = &mut self.parts[part];
        let Some(next) = part.next.take() else { return };
        if !whole {
            self.bytes -= next.bytes();
            return;
        }
        self.bytes -= part.bloom.as_ref().map_or(0, Bloom::bytes);
        part.room = next.blocks.len() as u64 * BLOCK_BITS / BITS_PER_KEY;
        part.keys = part.next_keys;
        part.bloom = Some(next);
    }

    /// Bytes of all filters.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many parts can say "absent".
    pub fn known_parts(&self) -> usize {
        self.parts.iter().filter(|part| part.bloom.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(n: u64) -> Position {
        Position::of(format!("key:{n}").as_bytes())
    }

    fn build(filter: &mut Filter, stored: &[Position]) {
        while let Some(part) = filter.begin_rebuild(stored.len() as u64) {
            let (first, last) = Filter::range(part);
            stored.iter().filter(|at| (first..=last).contains(at)).for_each(|at| filter.scanned(0, *at));
            filter.end_rebuild(part, true);
        }
    }

    #[test]
    fn stored_keys_are_never_absent_and_99_of_100_absent_keys_are_known_to_be() {
        let stored: Vec<Position> = (0..50_000).map(position).collect();
        let mut filter = Filter::new(64 << 20);
        assert!(stored.iter().all(|at| filter.says(0, *at) == Says::Maybe), "nothing is known at the start");
        build(&mut filter, &stored);
        assert_eq!(filter.known_parts(), PARTS);
        assert!(stored.iter().all(|at| filter.says(0, *at) == Says::Maybe));
        let absent = (0..50_000).filter(|n| filter.says(0, position(1_000_000 + n)) == Says::Absent).count();
        assert!(absent >= 49_500, "{absent} of 50000");
        let other = (0..50_000).filter(|n| filter.says(1, position(*n)) == Says::Absent).count();
        assert!(other >= 49_500, "databases are told apart: {other} of 50000");
    }

    #[test]
    fn a_key_written_during_a_rebuild_is_not_absent_after_it() {
        let mut filter = Filter::new(1 << 20);
        let at = position(7);
        build(&mut filter, &[]);
        assert_eq!(filter.says(0, at), Says::Absent);
        for _ in 0..100 {
            filter.deleted(at);
        }
        let part = filter.begin_rebuild(0).unwrap();
        filter.insert(0, at);
        assert_eq!(filter.says(0, at), Says::Maybe);
        filter.end_rebuild(part, true);
        assert_eq!(filter.says(0, at), Says::Maybe);
    }

    #[test]
    fn a_rebuild_that_is_cut_off_leaves_the_old_filter() {
        let mut filter = Filter::new(1 << 20);
        let part = filter.begin_rebuild(10).unwrap();
        assert_eq!(filter.says(0, Filter::range(part).0), Says::Maybe);
        filter.end_rebuild(part, false);
        assert_eq!(filter.says(0, Filter::range(part).0), Says::Maybe);
        assert_eq!((filter.bytes(), filter.known_parts()), (0, 0));
    }

    #[test]
    fn filters_take_no_more_than_their_bytes() {
        let stored: Vec<Position> = (0..100_000).map(position).collect();
        let mut filter = Filter::new(256 << 10);
        build(&mut filter, &stored);
        assert!(filter.bytes() <= 256 << 10, "{} bytes", filter.bytes());
        assert!(stored.iter().all(|at| filter.says(0, *at) == Says::Maybe));
    }
}
