//! A sorted set: a listpack of member, score, member, score while it is small, else a hash table from
//! member to score beside an order with ranks.
//!
//! Entries are ordered by score, then by the member's bytes. Every range (by rank, score or
//! member) is a range of ranks: `partition` finds its ends.
//!
//! Invariants: no score is NaN; the table and the order hold the same entries; a slot's place is its member's.
//!
//! A large sorted set (`large`) has in its table and its order the members that are in memory.

mod elements;

use super::decimal::{format_score, parse_double};
use super::large::{self, Large};
use super::limits::CollectionLimits;
use super::listpack::{Element, Listpack, Pos};
use super::ranked::{Ranked, Slot};
use super::table::Table;
use crate::planted;
use std::cmp::Ordering;
use std::ops::Range;

#[derive(Debug, Clone, Default)]
pub struct Ordered {
    table: Table<f64>,
    ranked: Ranked,
}

#[derive(Debug, Clone)]
enum Body {
    Pack(Listpack),
    Ordered(Box<Ordered>),
}

#[derive(Debug)]
pub struct Zset {
    body: Body,
    /// `None`: the sorted set is stored whole.
    large: Option<Box<Large>>,
}

/// A copy is a collection of its own: it is not large yet.
impl Clone for Zset {
    fn clone(&self) -> Zset {
        self.check_complete();
        Zset { body: self.body.clone(), large: None }
    }
}

impl Default for Zset {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Table<f64> {
    fn default() -> Self {
        Self::new()
    }
}

/// Compares entries: by score, then by member. Scores aren't NaN.
pub fn entry_order(score: f64, member: &[u8], other_score: f64, other_member: &[u8]) -> Ordering {
    score.partial_cmp(&other_score).unwrap_or(Ordering::Equal).then_with(|| member.cmp(other_member))
}

fn score_of(element: Element<'_>) -> f64 {
    match element {
        Element::Int(value) => value as f64,
        Element::Bytes(text) => parse_double(text).unwrap_or(0.0),
    }
}

impl Ordered {
    fn insert_new(&mut self, member: Box<[u8]>, score: f64) {
        let place = self.table.insert_new(member, score);
        let table = &self.table;
        let member = table.key_at(place);
        self.ranked.insert(Slot { score, place }, |slot| {
            entry_order(slot.score, table.key_at(slot.place), score, member)
        });
    }

    fn set_score(&mut self, place: u32, score: f64) {
        let table = &self.table;
        let (member, old) = (table.key_at(place), *table.value_at(place));
        self.ranked.remove(|slot| entry_order(slot.score, table.key_at(slot.place), old, member));
        self.ranked.insert(Slot { score, place }, |slot| {
            entry_order(slot.score, table.key_at(slot.place), score, member)
        });
        *self.table.value_at_mut(place) = score;
    }

    fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = *self.table.get(member)?;
        let table = &self.table;
        self.ranked.remove(|slot| entry_order(slot.score, table.key_at(slot.place), score, member));
        let last = self.table.len() as u32 - 1;
        if let Some(place) = self.table.find(member)
            && place != last
        {
            // The table is about to move its last entry to this place. The removed member's slot is gone, so
            // every slot that is compared still names its own member.
            let (moved, moved_score) = (self.table.key_at(last), *self.table.value_at(last));
            let table = &self.table;
            self.ranked.set_place(place, |slot| {
                entry_order(slot.score, table.key_at(slot.place), moved_score, moved)
            });
        }
        self.table.remove(member);
        Some(score)
    }
}

impl Zset {
    pub fn new() -> Self {
        Zset { body: Body::Pack(Listpack::new()), large: None }
    }

    /// The listpack of a small sorted set.
    pub fn pack(&self) -> Option<&Listpack> {
        match &self.body {
            Body::Pack(pack) => Some(pack),
            Body::Ordered(_) => None,
        }
    }

    /// An empty set in the encoding for large ones, for a result that is built whole and then compacted.
    pub fn new_ordered() -> Self {
        Zset { body: Body::Ordered(Box::default()), large: None }
    }

    pub fn len(&self) -> usize {
        if let Some(large) = &self.large {
            return large.len();
        }
        match &self.body {
            Body::Pack(pack) => pack.len() / 2,
            Body::Ordered(ordered) => ordered.table.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn heap_bytes(&self) -> usize {
        let body = match &self.body {
            Body::Pack(pack) => pack.heap_bytes(),
            Body::Ordered(ordered) => {
                size_of::<Ordered>() + ordered.table.heap_bytes() + ordered.ranked.heap_bytes()
            }
        };
        body + self.large.as_ref().map_or(0, |large| large.heap_bytes())
    }

    pub fn encoding(&self) -> &'static str {
        match &self.body {
            Body::Pack(_) => "listpack",
            Body::Ordered(_) => "skiplist",
        }
    }

    fn find_in_pack(pack: &Listpack, member: &[u8]) -> Option<Pos> {
        pack.first().and_then(|first| pack.find(member, first, 2))
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.body {
            Body::Pack(pack) => {
                let score = pack.next(Self::find_in_pack(pack, member)?)?;
                Some(score_of(pack.get(score)))
            }
            Body::Ordered(ordered) => {
                let score = ordered.table.get(member).copied();
                self.check_found(score.is_some(), member);
                score
            }
        }
    }

    /// Sets the score of a member. Returns its old score, or `None` if it is new.
    pub fn insert(&mut self, member: &[u8], score: f64, limits: &CollectionLimits) -> Option<f64> {
        if let Body::Pack(pack) = &mut self.body {
            if let Some(pos) = Self::find_in_pack(pack, member) {
                let old = pack.next(pos).map_or(0.0, |at| score_of(pack.get(at)));
                if old != score {
                    pack.remove_run(pos, 2);
                    Self::insert_into_pack(pack, member, score);
                }
                return Some(old);
            }
            if pack.len() / 2 < limits.zset_max_listpack_entries
                && member.len() <= limits.zset_max_listpack_value
                && pack.has_room(member.len() + 64)
            {
                Self::insert_into_pack(pack, member, score);
                return None;
            }
            self.to_ordered();
        }
        let Body::Ordered(ordered) = &mut self.body else { return None };
        match ordered.table.find(member) {
            Some(place) => {
                let old = *ordered.table.value_at(place);
                if old != score {
                    ordered.set_score(place, score);
                    if let Some(large) = &mut self.large
                        && !planted::SCORE_NOT_NOTED.on()
                    {
                        large.set(member, false);
                    }
                }
                Some(old)
            }
            None => {
                ordered.insert_new(member.into(), score);
                if let Some(large) = &mut self.large {
                    large.check_absent(member);
                    large.set(member, true);
                }
                None
            }
        }
    }

    fn insert_into_pack(pack: &mut Listpack, member: &[u8], score: f64) {
        let text = format_score(score);
        let mut at = pack.first();
        while let Some(pos) = at {
            let Some(score_pos) = pack.next(pos) else { break };
            let own = pack.get(pos);
            if entry_order(score_of(pack.get(score_pos)), own.bytes(&mut itoa::Buffer::new()), score, member)
                == Ordering::Greater
            {
                let new = pack.insert_before(pos, member);
                pack.insert_after(new, text.as_bytes());
                return;
            }
            at = pack.next(score_pos);
        }
        pack.push_back(member);
        pack.push_back(text.as_bytes());
    }

    /// Removes a member, and returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.body {
            Body::Pack(pack) => {
                let pos = Self::find_in_pack(pack, member)?;
                let score = pack.next(pos).map(|at| score_of(pack.get(at)));
                pack.remove_run(pos, 2);
                score
            }
            Body::Ordered(ordered) => {
                let score = ordered.remove(member);
                if let Some(large) = &mut self.large {
                    match score {
                        Some(_) => large.removed(member),
                        None => large.check_absent(member),
                    }
                }
                score
            }
        }
    }

    /// Converts to the table with ranks.
    pub fn to_ordered(&mut self) {
        let Body::Pack(pack) = &self.body else { return };
        let mut ordered =
            Box::new(Ordered { table: Table::with_capacity(pack.len() / 2 + 1), ranked: Ranked::new() });
        let mut elements = pack.iter();
        while let (Some(member), Some(score)) = (elements.next(), elements.next()) {
            ordered.insert_new(member.to_box(), score_of(score));
        }
        self.body = Body::Ordered(ordered);
    }

    /// Converts to a listpack if it fits the limits: for a result that was built whole.
    pub fn compact(&mut self, limits: &CollectionLimits) {
        let Body::Ordered(ordered) = &self.body else { return };
        if self.large.is_some()
            || ordered.table.len() > limits.zset_max_listpack_entries
            || ordered.table.iter().any(|(member, _)| member.len() > limits.zset_max_listpack_value)
        {
            return;
        }
        let mut pack = Listpack::new();
        for (member, score) in self.iter_from(0) {
            pack.push_back(member.bytes(&mut itoa::Buffer::new()));
            pack.push_back(format_score(score).as_bytes());
        }
        self.body = Body::Pack(pack);
    }

    /// How many entries stand before the first for which `before` is false. `before` must be true for a
    /// prefix of the order and false for the rest.
    pub fn partition(&self, mut before: impl FnMut(f64, &[u8]) -> bool) -> usize {
        self.check_complete();
        match &self.body {
            Body::Pack(_) => self
                .iter_from(0)
                .take_while(|(member, score)| before(*score, member.bytes(&mut itoa::Buffer::new())))
                .count(),
            Body::Ordered(ordered) => ordered.ranked.rank(|slot| {
                if before(slot.score, ordered.table.key_at(slot.place)) {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }),
        }
    }

    /// The rank of a member, ascending, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        self.check_complete();
        match &self.body {
            Body::Pack(_) => {
                let rank = self.iter_from(0).position(|(own, _)| own.is(member))?;
                Some((rank, self.score(member)?))
            }
            Body::Ordered(ordered) => {
                let score = *ordered.table.get(member)?;
                Some((
                    ordered.ranked.rank(|slot| {
                        entry_order(slot.score, ordered.table.key_at(slot.place), score, member)
                    }),
                    score,
                ))
            }
        }
    }

    /// The entry at `rank`.
    pub fn get(&self, rank: usize) -> Option<(Element<'_>, f64)> {
        self.iter_from(rank).next()
    }

    /// The entries from `rank` on, ascending.
    pub fn iter_from(&self, rank: usize) -> Box<dyn Iterator<Item = (Element<'_>, f64)> + '_> {
        self.check_complete();
        match &self.body {
            Body::Pack(pack) => {
                let mut elements = rank
                    .checked_mul(2)
                    .and_then(|index| pack.at(index))
                    .map(|pos| pack.iter_from(pos))
                    .into_iter()
                    .flatten();
                Box::new(std::iter::from_fn(move || Some((elements.next()?, score_of(elements.next()?)))))
            }
            Body::Ordered(ordered) => Box::new(
                ordered
                    .ranked
                    .iter_from(rank)
                    .map(|slot| (Element::Bytes(ordered.table.key_at(slot.place)), slot.score)),
            ),
        }
    }

    /// The entries from `rank` on, descending.
    pub fn iter_back_from(&self, rank: usize) -> Box<dyn Iterator<Item = (Element<'_>, f64)> + '_> {
        self.check_complete();
        match &self.body {
            Body::Pack(pack) => {
                let mut at = rank.checked_mul(2).and_then(|index| pack.at(index));
                Box::new(std::iter::from_fn(move || {
                    let pos = at?;
                    let score = pack.next(pos)?;
                    at = pack.prev(pos).and_then(|score| pack.prev(score));
                    Some((pack.get(pos), score_of(pack.get(score))))
                }))
            }
            Body::Ordered(ordered) => Box::new(
                ordered
                    .ranked
                    .iter_back_from(rank)
                    .map(|slot| (Element::Bytes(ordered.table.key_at(slot.place)), slot.score)),
            ),
        }
    }

    /// Removes the entries of a range of ranks, and returns how many.
    pub fn remove_ranks(&mut self, ranks: Range<usize>) -> usize {
        let end = ranks.end.min(self.len());
        if ranks.start >= end {
            return 0;
        }
        self.check_complete();
        let count = end - ranks.start;
        match &mut self.body {
            Body::Pack(pack) => {
                if let Some(pos) = pack.at(ranks.start * 2) {
                    pack.remove_run(pos, count * 2);
                }
            }
            Body::Ordered(ordered) => {
                for _ in 0..count {
                    let Some(slot) = ordered.ranked.get(ranks.start) else { break };
                    let member: Box<[u8]> = ordered.table.key_at(slot.place).into();
                    ordered.remove(&member);
                    if let Some(large) = &mut self.large {
                        large.removed(&member);
                    }
                }
            }
        }
        count
    }

    /// Visits entries from `cursor` on and returns the next cursor; 0 is the end.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'_>, f64)) -> u64 {
        match &self.body {
            Body::Ordered(ordered) if self.large.is_some() => {
                self.check_complete();
                let visit = |member: &[u8], score: &f64| visit(Element::Bytes(member), *score);
                large::scan_by_position(&ordered.table, cursor, count, visit)
            }
            Body::Ordered(ordered) => {
                ordered.table.scan(cursor, count, |member, score| visit(Element::Bytes(member), *score))
            }
            Body::Pack(_) => {
                self.iter_from(0).for_each(|(member, score)| visit(member, score));
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encodings_change_at_the_limits_of_redis() {
        let limits = CollectionLimits::default();
        let mut zset = Zset::new();
        for at in 0..128 {
            zset.insert(format!("m{at}").as_bytes(), f64::from(at), &limits);
        }
        assert_eq!(zset.encoding(), "listpack");
        zset.insert(b"one more", 1.0, &limits);
        assert_eq!(zset.encoding(), "skiplist");
        zset.remove(b"m3");
        zset.compact(&limits);
        assert_eq!((zset.encoding(), zset.len()), ("listpack", 128));
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Insert(u8, i8),
        Remove(u8),
        RemoveRanks(u8, u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (any::<u8>(), -20i8..20).prop_map(|(member, score)| Step::Insert(member, score)),
            4 => any::<u8>().prop_map(Step::Remove),
            1 => (any::<u8>(), 0u8..5).prop_map(|(start, count)| Step::RemoveRanks(start, count)),
        ]
    }

    fn key(member: u8) -> Vec<u8> {
        if member.is_multiple_of(3) {
            member.to_string().into_bytes()
        } else {
            format!("m{member}").into_bytes()
        }
    }

    proptest! {
        #[test]
        fn a_sorted_set_equals_a_sorted_vector(entries_max in prop_oneof![Just(1000usize), Just(20)], steps in prop::collection::vec(step(), 0..500)) {
            let limits = CollectionLimits { zset_max_listpack_entries: entries_max, ..CollectionLimits::default() };
            let mut zset = Zset::new();
            let mut model: Vec<(f64, Vec<u8>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(member, score) => {
                        let (member, score) = (key(member), f64::from(score) / 4.0);
                        let old = model.iter().position(|entry| entry.1 == member).map(|at| model.remove(at).0);
                        prop_assert_eq!(zset.insert(&member, score, &limits), old);
                        model.push((score, member));
                        model.sort_by(|a, b| entry_order(a.0, &a.1, b.0, &b.1));
                    }
                    Step::Remove(member) => {
                        let member = key(member);
                        let old = model.iter().position(|entry| entry.1 == member).map(|at| model.remove(at).0);
                        prop_assert_eq!(zset.remove(&member), old);
                    }
                    Step::RemoveRanks(start, count) => {
                        let start = usize::from(start).min(model.len());
                        let end = (start + usize::from(count)).min(model.len());
                        prop_assert_eq!(zset.remove_ranks(start..end), end - start);
                        model.drain(start..end);
                    }
                }
                prop_assert_eq!(zset.len(), model.len());
            }
            if let Body::Ordered(ordered) = &zset.body {
                ordered.ranked.check_invariants();
            }
            let all = |entries: Box<dyn Iterator<Item = (Element<'_>, f64)> + '_>| -> Vec<(f64, Vec<u8>)> { entries.map(|(member, score)| (score, member.to_vec())).collect() };
            prop_assert_eq!(&all(zset.iter_from(0)), &model);
            for (rank, (score, member)) in model.iter().enumerate() {
                prop_assert_eq!(zset.rank(member), Some((rank, *score)));
                prop_assert_eq!(zset.score(member), Some(*score));
            }
            if !model.is_empty() {
                let middle = model.len() / 2;
                prop_assert_eq!(all(zset.iter_from(middle)), model[middle..].to_vec());
                prop_assert_eq!(all(zset.iter_back_from(middle)), model[..=middle].iter().rev().cloned().collect::<Vec<_>>());
            }
            prop_assert_eq!(zset.partition(|score, _| score < 0.0), model.iter().filter(|entry| entry.0 < 0.0).count());
            let mut scanned = Vec::new();
            let mut cursor = 0;
            loop {
                cursor = zset.scan(cursor, 7, |member, score| scanned.push((score, member.to_vec())));
                if cursor == 0 { break; }
            }
            scanned.sort_by(|a, b| entry_order(a.0, &a.1, b.0, &b.1));
            prop_assert_eq!(scanned, model);
        }
    }
}
