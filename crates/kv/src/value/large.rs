//! Large collections: what memory knows of a collection whose elements are rows of their own in storage.
//!
//! A list of more than [`BYTES_MAX`] bytes, and a hash, set or sorted set that leaves its compact encoding and has more than [`ELEMENTS_MAX`] elements or `BYTES_MAX`
//! bytes, becomes large with the command that made it so, and stays large. Its table has the elements that are in memory. Beside it stand here the number of
//! elements, which of those that are not in the table are known to be absent, and what the present command has changed. The rows of a list are its listpacks
//! (`list::packs`): what is said here of elements and their names holds for these and their numbers.
//!
//! The *head* is what storage keeps under the key: generation, number of elements, and a time before which no field expires. It is
//! written with each change of an element, in the same write.
//!
//! A generation is a number that a collection gets when it becomes large, and no other collection ever has. Elements are stored and fetched by generation, so
//! an element of a collection that was deleted is never taken for one of the collection that followed.
//!
//! Invariants
//! * An element whose change is not stored yet is in the table or known to be absent: such elements are not evicted.
//! * A complete collection has all its elements in the table.
//!
//! A command sees only what was made known for it before (`dispatch::large`). One that asks for an element that is not known is an error of the table of
//! needs (`command::needs`): [`misses`] counts them, and the dispatcher replies with an error.

use crate::planted;
use crate::value::table::Table;
use siphasher::sip::SipHasher13;
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::Hasher;

/// Elements and bytes above which a collection becomes large.
pub const ELEMENTS_MAX: usize = 128;
pub const BYTES_MAX: usize = 8 << 10;

/// What an absent element costs beside its bytes, about.
const ABSENT_OVERHEAD: usize = 24;

/// The first byte of a head, in place of a type of RDB.
pub const LARGE_HASH: u8 = 240;
pub const LARGE_SET: u8 = 241;
pub const LARGE_ZSET: u8 = 242;
pub const LARGE_LIST: u8 = 243;

thread_local! {
    static MISSES: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread asked a large collection for what is not known.
pub fn misses() -> u64 {
    MISSES.get()
}

/// A command asked a large collection for what is not known.
pub fn count_miss() {
    MISSES.set(MISSES.get() + 1);
}

/// The head of a large collection cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadHead;

/// An element of a large collection cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadElement;

/// An element as storage keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ElementValue {
    /// Milliseconds since the epoch.
    pub expires_ms: Option<i64>,
    pub value: Vec<u8>,
}

/// The score of a member as storage keeps it: exactly, which its text in a listpack is not for a negative zero.
pub fn score_bytes(score: f64) -> [u8; 8] {
    score.to_bits().to_be_bytes()
}

/// The score that a stored element is.
pub fn parse_score(stored: &[u8]) -> Result<f64, BadElement> {
    let bits = stored.try_into().map_err(|_| BadElement)?;
    let score = f64::from_bits(u64::from_be_bytes(bits));
    if score.is_nan() { Err(BadElement) } else { Ok(score) }
}

/// A stable hash of a name: it is part of what is stored.
pub fn hash(name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(name);
    hasher.finish()
}

/// Where an element stands in the order of its collection: 48 bits of its hash.
pub fn position(element: &[u8]) -> u64 {
    hash(element) >> 16
}

/// What storage keeps under the key of a large collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub kind: u8,
    pub generation: u64,
    pub len: u64,
    /// No element expires before, in milliseconds since the epoch.
    pub next_ms: Option<i64>,
    /// Lists have them.
    pub packs: Option<PackNumbers>,
}

/// The numbers of the listpacks of a large list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackNumbers {
    pub first: u64,
    pub last: u64,
    /// Whether all numbers from the first to the last at the distance of neighbours are there, and no others.
    pub is_even: bool,
}

impl Head {
    /// The head that a stored value is, if it is one.
    pub fn parse(form: &[u8]) -> Result<Option<Head>, BadHead> {
        let Some((&kind, rest)) = form.split_first() else { return Ok(None) };
        let len = match kind {
            LARGE_HASH | LARGE_SET | LARGE_ZSET => 24,
            LARGE_LIST => 41,
            _ => return Ok(None),
        };
        if rest.len() != len {
            return Err(BadHead);
        }
        let number = |at: usize| {
            let bytes = rest.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_be_bytes).ok_or(BadHead)
        };
        let (generation, len, next) = (number(0)?, number(8)?, number(16)?);
        let next_ms = (next != u64::MAX).then_some(i64::try_from(next).unwrap_or(i64::MAX));
        let packs = match kind {
            LARGE_LIST => {
                let (first, last) = (number(24)?, number(32)?);
                if first > last || rest[40] > 1 {
                    return Err(BadHead);
                }
                Some(PackNumbers { first, last, is_even: rest[40] == 1 })
            }
            _ => None,
        };
        Ok(Some(Head { kind, generation, len, next_ms, packs }))
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut form = vec![self.kind];
        form.extend_from_slice(&self.generation.to_be_bytes());
        form.extend_from_slice(&self.len.to_be_bytes());
        form.extend_from_slice(&self.next_ms.map_or(u64::MAX, |at_ms| at_ms.max(0) as u64).to_be_bytes());
        if let Some(packs) = &self.packs {
            form.extend_from_slice(&packs.first.to_be_bytes());
            form.extend_from_slice(&packs.last.to_be_bytes());
            form.push(u8::from(packs.is_even));
        }
        form
    }
}

/// An element that a command has changed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChangedElement {
    pub name: Box<[u8]>,
    /// Whether it was there before the first of the changes.
    pub existed: bool,
}

#[derive(Debug)]
pub struct Large {
    pub generation: u64,
    /// Elements of the collection, wherever they are.
    len: usize,
    /// No element that is not in memory expires before.
    later_ms: Option<i64>,
    is_complete: bool,
    absent: HashSet<Box<[u8]>>,
    absent_bytes: usize,
    /// What was changed since [`Large::take_changed`].
    changed: Vec<ChangedElement>,
}

impl Large {
    /// Describes a collection that becomes large: every element is in a table.
    pub fn with<V>(generation: u64, table: &Table<V>) -> Large {
        let mut large = Large::complete(generation, table.len());
        let added = |(name, _): (&[u8], &V)| ChangedElement { name: name.into(), existed: false };
        large.changed.extend(table.iter().map(added));
        large
    }

    /// Describes a collection whose elements are all in memory.
    pub fn complete(generation: u64, len: usize) -> Large {
        Large {
            generation,
            len,
            is_complete: true,
            ..Large::of(&Head { kind: 0, generation, len: 0, next_ms: None, packs: None })
        }
    }

    /// Describes a collection whose elements are all in storage.
    pub fn of(head: &Head) -> Large {
        Large {
            generation: head.generation,
            len: usize::try_from(head.len).unwrap_or(usize::MAX),
            later_ms: head.next_ms,
            is_complete: false,
            absent: HashSet::new(),
            absent_bytes: 0,
            changed: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// No element that is not in memory expires before.
    pub fn later_ms(&self) -> Option<i64> {
        self.later_ms
    }

    pub fn heap_bytes(&self) -> usize {
        let changed: usize = self.changed.iter().map(|changed| changed.name.len() + 24).sum();
        size_of::<Large>() + self.absent_bytes + changed
    }

    /// Whether it is known that an element that is not in the table is absent.
    pub fn knows_absent(&self, name: &[u8]) -> bool {
        self.is_complete || self.absent.contains(name)
    }

    /// An element that is not in the table was asked for: it is known to be absent, or the command must not have asked.
    pub fn check_absent(&self, name: &[u8]) {
        if !self.knows_absent(name) {
            count_miss();
        }
    }

    /// All elements were asked for.
    pub fn check_complete(&self) {
        if !self.is_complete {
            count_miss();
        }
    }

    /// A command has set an element.
    pub fn set(&mut self, name: &[u8], is_new: bool) {
        if is_new {
            self.len += 1;
            if !planted::ABSENT_KEPT.on() {
                self.forget_absent(name);
            }
        }
        self.note(name, !is_new);
    }

    /// A command has removed an element.
    pub fn removed(&mut self, name: &[u8]) {
        self.len = self.len.saturating_sub(1);
        self.note_absent(name);
        self.note(name, true);
    }

    /// A command has changed a row. `existed`: it was there before.
    pub fn note(&mut self, name: &[u8], existed: bool) {
        // The first change of a row says what was before.
        if self.changed.last().is_none_or(|last| *last.name != *name) {
            self.changed.push(ChangedElement { name: name.into(), existed });
        }
    }

    /// The number of elements of a row has changed.
    pub fn resized(&mut self, before: usize, now: usize) {
        self.len = (self.len + now).saturating_sub(before);
    }

    /// Storage does not have an element, or will not.
    pub fn note_absent(&mut self, name: &[u8]) {
        if self.absent.insert(name.into()) {
            self.absent_bytes += name.len() + ABSENT_OVERHEAD;
        }
    }

    pub fn forget_absent(&mut self, name: &[u8]) {
        if self.absent.remove(name) {
            self.absent_bytes -= name.len() + ABSENT_OVERHEAD;
        }
    }

    /// What was changed, each element once, with its state before the first change.
    pub fn take_changed(&mut self) -> Vec<ChangedElement> {
        let mut changed = std::mem::take(&mut self.changed);
        if changed.len() > 1 {
            // Stable: the first change of an element stays the first.
            changed.sort_by(|one, other| one.name.cmp(&other.name));
            changed.dedup_by(|later, first| later.name == first.name);
        }
        changed
    }

    #[cfg(test)]
    pub fn changed_len(&self) -> usize {
        self.changed.len()
    }

    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Every element is in the table.
    pub fn completed(&mut self) {
        (self.is_complete, self.later_ms) = (true, None);
    }

    /// An element leaves memory; it expires at a time.
    pub fn evicted(&mut self, at_ms: Option<i64>) {
        self.is_complete = false;
        self.later_ms = self.later_ms.into_iter().chain(at_ms).min();
    }

    /// Forgets that elements are absent, as far as `may_forget` allows it; returns how many.
    pub fn forget_all_absent(&mut self, mut may_forget: impl FnMut(&[u8]) -> bool) -> usize {
        let before = self.absent.len();
        if before > 0 {
            self.absent.retain(|name| !may_forget(name));
            self.absent.shrink_to_fit();
            self.absent_bytes = self.absent.iter().map(|name| name.len() + ABSENT_OVERHEAD).sum();
        }
        before - self.absent.len()
    }

    /// How many elements are known to be absent one by one.
    pub fn absent_len(&self) -> usize {
        self.absent.len()
    }
}

/// The elements of a large collection that are in memory.
pub trait Resident {
    fn count(&self) -> usize;
    fn name_at(&self, place: u32) -> &[u8];
    /// Takes an element out, and says when it expires.
    fn take(&mut self, name: &[u8]) -> Option<i64>;
}

impl Resident for Table<()> {
    fn count(&self) -> usize {
        Table::len(self)
    }
    fn name_at(&self, place: u32) -> &[u8] {
        self.key_at(place)
    }
    fn take(&mut self, name: &[u8]) -> Option<i64> {
        self.remove(name);
        None
    }
}

/// Takes about `count` elements that `may_evict` out of memory, beginning at a place by chance. Returns how many went, absent ones included.
pub fn evict(
    large: &mut Large,
    elements: &mut impl Resident,
    random: u64,
    count: usize,
    mut may_evict: impl FnMut(&[u8]) -> bool,
) -> usize {
    let mut evicted = 0;
    if large.absent_len() > elements.count() {
        evicted += large.forget_all_absent(&mut may_evict);
    }
    let mut place = (random % (elements.count() as u64).max(1)) as usize;
    // Of many dirty elements, not all are looked at.
    for _ in 0..2 * count {
        if evicted >= count || elements.count() == 0 {
            break;
        }
        place = if place >= elements.count() { 0 } else { place };
        let name = elements.name_at(place as u32);
        if !may_evict(name) {
            place += 1;
            continue;
        }
        let name: Box<[u8]> = name.into();
        large.evicted(elements.take(&name));
        evicted += 1;
    }
    if evicted == 0 {
        evicted += large.forget_all_absent(&mut may_evict);
    }
    evicted
}

/// Visits the elements of the next positions, whatever is in memory: a cursor holds. Looks at every element.
pub fn scan_by_position<V>(
    table: &Table<V>,
    cursor: u64,
    count: usize,
    mut visit: impl FnMut(&[u8], &V),
) -> u64 {
    let mut ahead: Vec<(u64, &[u8], &V)> = table
        .iter()
        .map(|(name, value)| (position(name), name, value))
        .filter(|(position, ..)| *position >= cursor)
        .collect();
    ahead.sort_unstable_by_key(|(position, name, _)| (*position, *name));
    let mut last = None;
    for (at, (position, name, value)) in ahead.into_iter().enumerate() {
        if at >= count && last != Some(position) {
            return position;
        }
        last = Some(position);
        visit(name, value);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_other_values_are_none() {
        for next_ms in [None, Some(0), Some(1_700_000_000_000)] {
            let head = Head { kind: LARGE_HASH, generation: 7, len: 1 << 33, next_ms, packs: None };
            assert_eq!(Head::parse(&head.bytes()), Ok(Some(head)));
            assert!(Head::parse(&head.bytes()[..20]).is_err());
        }
        for is_even in [false, true] {
            let packs = Some(PackNumbers { first: 5, last: 1 << 63, is_even });
            let head = Head { kind: LARGE_LIST, generation: 7, len: 9, next_ms: None, packs };
            let bytes = head.bytes();
            assert_eq!(Head::parse(&bytes), Ok(Some(head)));
            assert!(Head::parse(&bytes[..25]).is_err() && Head::parse(&bytes[..41]).is_err());
            assert!(Head::parse(&[&bytes[..41], &[2]].concat()).is_err());
        }
        assert_eq!(Head::parse(b"\x00\x03abc"), Ok(None));
        assert_eq!(Head::parse(b""), Ok(None));
    }

    #[test]
    fn scores_are_read_as_they_were_written_and_other_values_are_errors() {
        for score in [0.0, -0.0, 1.5, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE] {
            assert_eq!(parse_score(&score_bytes(score)).map(f64::to_bits), Ok(score.to_bits()));
        }
        assert_eq!(parse_score(&score_bytes(f64::NAN)), Err(BadElement));
        assert_eq!(parse_score(b"1.5"), Err(BadElement));
    }

    #[test]
    fn changes_of_an_element_are_one_with_what_was_before_the_first() {
        let mut large = Large::complete(1, 1);
        large.set(b"new", true);
        large.removed(b"old");
        large.removed(b"new");
        large.set(b"old", true);
        large.set(b"old", false);
        let changed = large.take_changed();
        let of = |name: &[u8], existed| ChangedElement { name: name.into(), existed };
        assert_eq!(changed, [of(b"new", false), of(b"old", true)]);
        assert_eq!((large.len(), large.has_changed()), (1, false));
    }

    #[test]
    fn an_incomplete_collection_knows_only_what_it_was_told() {
        let mut large = Large::complete(1, 2);
        assert!(large.knows_absent(b"x"));
        large.removed(b"gone");
        large.evicted(Some(50));
        assert!(!large.knows_absent(b"x") && large.knows_absent(b"gone"));
        assert_eq!(large.later_ms(), Some(50));
        let before = misses();
        large.check_absent(b"gone");
        assert_eq!(misses(), before);
        large.check_absent(b"x");
        large.check_complete();
        assert_eq!(misses(), before + 2);
        assert_eq!(large.forget_all_absent(|_| true), 1);
        assert!(!large.knows_absent(b"gone"));
    }
}
