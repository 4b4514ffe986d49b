//! A large list: a row a listpack, and which of them are in memory.
//!
//! Rows are numbered in the order of the list. A listpack that is added at an end gets a number [`STEP`] beyond the last one; one that is inserted between two gets the
//! number in the middle, and if there is none, some neighbours get new numbers. While no listpack was inserted or removed between others, numbers from the first to
//! the last are `STEP` apart and each is there: the list is *even*. The next listpack from either end of an even list can be read by its number; any other list is read
//! whole.
//!
//! In memory are listpacks from the left end on and listpacks up to the right end. The *gap* between both has the numbers that are not in memory. Nothing in the gap
//! is ever changed: commands change what they see. A load reads listpacks in any order; those that do not touch either side are *loose* until it is through.
//!
//! Invariants
//! * Numbers ascend. Those of the gap lie between the two sides.
//! * A listpack whose change is not stored yet is on one of the two sides.

use super::{End, List, Node};
use crate::planted;
use crate::value::large::{BYTES_MAX, BadElement, ElementValue, Head, LARGE_LIST, Large, PackNumbers};
use crate::value::listpack::Listpack;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a listpack of a large list, unless one element has more. A push writes half of it on average; a row's key and page entry are a few percent of it.
pub const PACK_BYTES_LARGE: usize = 2048;
/// The distance of the numbers of neighbours. From [`CENTRE`], either end can grow by 2^47 listpacks.
const STEP: u64 = 1 << 16;
const CENTRE: u64 = 1 << 63;
/// The distance that numbers have at least when listpacks get new ones.
const GAP_MIN: u64 = 16;
/// What a loose listpack costs beside its bytes, about.
const LOOSE_OVERHEAD: usize = 64;

#[derive(Debug)]
pub struct Packs {
    large: Large,
    gap: Option<Gap>,
    loose: BTreeMap<u64, Node>,
    is_even: bool,
}

/// What is not in memory: `nodes[..split]` stand before it, `nodes[split..]` behind it.
#[derive(Clone, Copy, Debug)]
struct Gap {
    split: usize,
    /// No number outside of these is in the gap. If the list is even, both are in it.
    first: u64,
    last: u64,
}

/// Which elements of a list a command looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListPart {
    /// `left` elements from the left end on, and `right` ones up to the right end.
    Ends { left: usize, right: usize },
    /// The listpack at an end, so that an element that is pushed joins it, if it can be read by itself.
    Push(End),
    /// One, by an index that may be negative.
    Index(i64),
    /// Those from one index to another.
    Window(i64, i64),
    /// Those outside of a window.
    Outside(i64, i64),
}

/// What is not in memory that a command needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    Nothing,
    /// Names of the rows to read, and of those in memory that are needed too.
    Packs {
        to_read: Vec<[u8; 8]>,
        known: Vec<[u8; 8]>,
    },
    Whole,
}

impl ListPart {
    /// How many elements have to be known from the left end on, and up to the right end.
    fn ends(&self, len: usize) -> (usize, usize) {
        let nearer = |start: usize, end: usize| match end <= len - start {
            _ if start >= end => (0, 0),
            true => (end, 0),
            false => (0, len - start),
        };
        let of = |start: i64, stop: i64| {
            let from_end = |index: i64| if index < 0 { index.saturating_add(len as i64) } else { index };
            let (start, stop) = (from_end(start).max(0), from_end(stop).min(len as i64 - 1));
            if start > stop { (0, 0) } else { (start as usize, stop as usize + 1) }
        };
        match *self {
            ListPart::Ends { left, right } => (left.min(len), right.min(len)),
            ListPart::Push(End::Left) => (1, 0),
            ListPart::Push(End::Right) => (0, 1),
            ListPart::Index(index) => {
                let (start, end) = of(index, index);
                nearer(start, end)
            }
            ListPart::Window(start, stop) => {
                let (start, end) = of(start, stop);
                nearer(start, end)
            }
            ListPart::Outside(start, stop) => match of(start, stop) {
                (start, end) if start < end => (start, len - end),
                _ => (len, 0),
            },
        }
    }
}

impl Packs {
    pub fn heap_bytes(&self) -> usize {
        let loose: usize = self.loose.values().map(|node| node.pack.heap_bytes() + LOOSE_OVERHEAD).sum();
        size_of::<Packs>() - size_of::<Large>() + self.large.heap_bytes() + loose
    }
}

fn name(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn parse_name(name: &[u8]) -> Option<u64> {
    name.try_into().ok().map(u64::from_be_bytes)
}

/// A listpack divided so that its parts have [`PACK_BYTES_LARGE`] bytes at most, unless one element has more.
fn divided(pack: &Listpack) -> Vec<Node> {
    let mut parts: Vec<Node> = Vec::new();
    for element in pack.iter() {
        let mut buffer = itoa::Buffer::new();
        let data = element.bytes(&mut buffer);
        match parts.last_mut() {
            Some(last) if last.pack.byte_len() + data.len() + super::ELEMENT_OVERHEAD <= PACK_BYTES_LARGE => {
                last.pack.push_back(data);
                last.len += 1;
            }
            _ => parts.push(List::node_of(data)),
        }
    }
    parts
}

/// What a list that is being changed notes.
impl List {
    /// Whether all listpacks are in memory.
    pub(super) fn is_known(&self) -> bool {
        self.packs.as_ref().is_none_or(|packs| packs.gap.is_none())
    }

    /// How many listpacks stand before the gap; all, if there is none.
    pub(super) fn split(&self) -> usize {
        let gap = self.packs.as_ref().and_then(|packs| packs.gap);
        gap.map_or(self.nodes.len(), |gap| gap.split)
    }

    pub(super) fn move_split(&mut self, by: isize) {
        if let Some(gap) = self.packs.as_mut().and_then(|packs| packs.gap.as_mut()) {
            gap.split = gap.split.saturating_add_signed(by);
        }
    }

    pub(super) fn check_complete(&self) {
        if let Some(packs) = &self.packs {
            packs.large.check_complete();
        }
    }

    /// The number of elements of a listpack has changed.
    pub(super) fn resized(&mut self, before: usize, now: usize) {
        if let Some(packs) = &mut self.packs {
            packs.large.resized(before, now);
        }
    }

    /// A listpack has changed.
    pub(super) fn note(&mut self, number: u64, existed: bool) {
        if let Some(packs) = &mut self.packs {
            packs.large.note(&name(number), existed);
        }
    }

    /// The listpack that stood at a place is gone.
    pub(super) fn note_removed(&mut self, at: usize, number: u64) {
        let (nodes, split) = (self.nodes.len(), self.split());
        let Some(packs) = &mut self.packs else { return };
        packs.large.note(&name(number), true);
        let is_left_end = at == 0 && (packs.gap.is_none() || split > 0);
        let is_right_end = at == nodes && (packs.gap.is_none() || at >= split);
        packs.is_even &= is_left_end || is_right_end || planted::UNEVEN_TAKEN_FOR_EVEN.on();
        if let Some(gap) = &mut packs.gap
            && at < gap.split
        {
            gap.split -= 1;
        }
    }

    /// The first and the last number.
    fn ends(&self) -> Option<(u64, u64)> {
        let gap = self.packs.as_ref()?.gap;
        let first = self.end_node(End::Left).map(|at| self.nodes[at].number);
        let last = self.end_node(End::Right).map(|at| self.nodes[at].number);
        Some((first.or(gap.map(|gap| gap.first))?, last.or(gap.map(|gap| gap.last))?))
    }

    /// The number of a listpack that is to be inserted at an end, or at a place between two.
    pub(super) fn number_at(&mut self, at: usize, end: Option<End>) -> u64 {
        let Some((first, last)) = self.ends() else { return CENTRE };
        match end {
            Some(End::Left) => first - STEP,
            Some(End::Right) => last + STEP,
            None if at == 0 => first - STEP,
            None if at == self.nodes.len() => last + STEP,
            None => self.number_between(at),
        }
    }

    /// A number between those of the listpacks before a place and at it. If there is none, as many neighbours as needed get new numbers.
    fn number_between(&mut self, at: usize) -> u64 {
        if let Some(packs) = &mut self.packs {
            packs.is_even &= planted::UNEVEN_TAKEN_FOR_EVEN.on();
        }
        let (before, behind) = (self.nodes[at - 1].number, self.nodes[at].number);
        if behind - before > 1 {
            return before + (behind - before) / 2;
        }
        let mut around = 1;
        loop {
            let (start, end) = (at.saturating_sub(around), (at + around).min(self.nodes.len()));
            // With the new one.
            let count = (end - start) as u64 + 1;
            let lower = match start {
                0 => self.nodes[0].number - STEP * (count + 1),
                _ => self.nodes[start - 1].number,
            };
            let upper = match self.nodes.get(end) {
                Some(node) => node.number,
                None => self.nodes[end - 1].number + STEP * (count + 1),
            };
            let distance = (upper - lower) / (count + 1);
            if distance < GAP_MIN {
                around *= 2;
                continue;
            }
            for place in start..end {
                self.note(self.nodes[place].number, true);
            }
            let mut number = lower;
            let mut new = lower;
            for place in start..end {
                number += distance;
                if place == at {
                    new = number;
                    number += distance;
                }
                self.nodes[place].number = number;
                self.note(number, false);
            }
            return new;
        }
    }
}

/// What storage and memory know of a large list.
impl List {
    pub fn large(&self) -> Option<&Large> {
        self.packs.as_ref().map(|packs| &packs.large)
    }

    pub fn large_mut(&mut self) -> Option<&mut Large> {
        self.packs.as_mut().map(|packs| &mut packs.large)
    }

    /// A large list of which nothing is in memory.
    pub fn of_head(head: &Head) -> List {
        let numbers = head.packs.unwrap_or_default();
        let gap = Gap { split: 0, first: numbers.first, last: numbers.last };
        let packs = Packs {
            large: Large::of(head),
            gap: Some(gap),
            loose: BTreeMap::new(),
            is_even: numbers.is_even,
        };
        List { packs: Some(Box::new(packs)), ..List::new() }
    }

    pub fn head(&self) -> Option<Head> {
        let packs = self.packs.as_ref()?;
        let (first, last) = self.ends().unwrap_or((CENTRE, CENTRE));
        let numbers = PackNumbers { first, last, is_even: packs.is_even };
        Some(Head {
            kind: LARGE_LIST,
            generation: packs.large.generation,
            len: packs.large.len() as u64,
            next_ms: None,
            packs: Some(numbers),
        })
    }

    pub fn is_to_be_large(&self) -> bool {
        self.packs.is_none() && self.pack_bytes > BYTES_MAX
    }

    pub fn become_large(&mut self, generation: u64) {
        let mut large = Large::complete(generation, self.known_len);
        let mut nodes = VecDeque::with_capacity(self.nodes.len());
        for node in std::mem::take(&mut self.nodes) {
            match node.pack.byte_len() <= PACK_BYTES_LARGE {
                true => nodes.push_back(node),
                false => nodes.extend(divided(&node.pack)),
            }
        }
        self.pack_bytes = 0;
        for (node, number) in nodes.iter_mut().zip((CENTRE..).step_by(STEP as usize)) {
            node.number = number;
            large.note(&name(number), false);
            self.pack_bytes += node.pack.heap_bytes();
        }
        self.nodes = nodes;
        self.packs = Some(Box::new(Packs { large, gap: None, loose: BTreeMap::new(), is_even: true }));
    }

    pub fn end_large(&mut self) {
        self.check_complete();
        self.packs = None;
    }

    fn find(&self, number: u64) -> Option<&Node> {
        let at = self.nodes.binary_search_by_key(&number, |node| node.number).ok()?;
        self.nodes.get(at)
    }

    pub fn has_element(&self, name: &[u8]) -> bool {
        let Some(packs) = &self.packs else { return false };
        parse_name(name)
            .is_some_and(|number| self.find(number).is_some() || packs.loose.contains_key(&number))
    }

    pub fn elements_in_memory(&self) -> usize {
        self.packs.as_ref().map_or(0, |packs| packs.loose.len() + self.nodes.len())
    }

    pub fn stored_element(&self, name: &[u8]) -> Option<ElementValue> {
        self.packs.as_ref()?;
        let node = self.find(parse_name(name)?)?;
        Some(ElementValue { expires_ms: None, value: node.pack.as_bytes().to_vec() })
    }

    /// What is missing of a part.
    pub fn missing(&self, part: &ListPart) -> Missing {
        let Some(packs) = &self.packs else { return Missing::Nothing };
        let Some(gap) = packs.gap else { return Missing::Nothing };
        let (left, right) = part.ends(self.len());
        let len_of =
            |nodes: std::ops::Range<usize>| -> usize { self.nodes.range(nodes).map(|node| node.len).sum() };
        let in_gap = self.len().saturating_sub(self.known_len);
        let left = left.saturating_sub(len_of(0..gap.split)).min(in_gap);
        let right = right.saturating_sub(len_of(gap.split..self.nodes.len())).min(in_gap);
        if left + right == 0 || (!packs.is_even && matches!(part, ListPart::Push(_))) {
            return Missing::Nothing;
        }
        let numbers = (gap.last.saturating_sub(gap.first)) / STEP + 1;
        let a_pack = (in_gap as u64 / numbers).max(1);
        let packs_of = |elements: usize| (elements as u64).div_ceil(a_pack).min(numbers);
        let (left_packs, right_packs) = (packs_of(left), packs_of(right));
        // One read of a range costs less than many of single rows.
        if !packs.is_even || (numbers > 4 && 2 * (left_packs + right_packs) > numbers) {
            return Missing::Whole;
        }
        let from_left = (0..left_packs).map(|at| gap.first + at * STEP);
        let from_right = (0..right_packs).map(|at| gap.last - at * STEP);
        let mut to_read: Vec<u64> =
            from_left.chain(from_right).filter(|number| !packs.loose.contains_key(number)).collect();
        to_read.sort_unstable();
        to_read.dedup();
        let left_known = if left > 0 { gap.split } else { 0 };
        let right_known = if right > 0 { gap.split } else { self.nodes.len() };
        let known = self.nodes.range(..left_known).chain(self.nodes.range(right_known..));
        Missing::Packs {
            to_read: to_read.into_iter().map(name).collect(),
            known: known.map(|node| name(node.number)).collect(),
        }
    }

    /// Takes a listpack of storage into memory: no change.
    pub fn admit(&mut self, name: &[u8], stored: &ElementValue) -> Result<(), BadElement> {
        let Some(packs) = &mut self.packs else { return Ok(()) };
        let number = parse_name(name).ok_or(BadElement)?;
        // What is not in the gap is known, or was removed.
        let Some(gap) = packs.gap.filter(|gap| (gap.first..=gap.last).contains(&number)) else {
            return Ok(());
        };
        if packs.loose.contains_key(&number) {
            return Ok(());
        }
        let pack = Listpack::from_bytes(stored.value.clone()).map_err(|_| BadElement)?;
        let len = pack.len();
        if len == 0 || (packs.is_even && (number - gap.first) % STEP != 0) {
            return Err(BadElement);
        }
        packs.loose.insert(number, Node { pack, len, number });
        if packs.is_even {
            self.join_loose()?;
        }
        Ok(())
    }

    /// Storage does not have a listpack. One of the gap of an even list has to be there.
    pub fn note_absent(&mut self, name: &[u8]) -> Result<(), BadElement> {
        let number = parse_name(name).ok_or(BadElement)?;
        let gap = self.packs.as_ref().and_then(|packs| packs.gap);
        match gap.is_some_and(|gap| (gap.first..=gap.last).contains(&number)) {
            true => Err(BadElement),
            false => Ok(()),
        }
    }

    /// Puts loose listpacks beside the sides that they touch.
    fn join_loose(&mut self) -> Result<(), BadElement> {
        let Some(packs) = &mut self.packs else { return Ok(()) };
        let Some(gap) = &mut packs.gap else { return Ok(()) };
        let (mut left, mut right) = (Vec::new(), VecDeque::new());
        let mut is_closed = false;
        while !is_closed {
            is_closed = gap.first == gap.last;
            if let Some(node) = packs.loose.remove(&gap.first) {
                gap.first += STEP;
                left.push(node);
            } else if let Some(node) = packs.loose.remove(&gap.last) {
                gap.last -= STEP;
                right.push_front(node);
            } else {
                is_closed = false;
                break;
            }
        }
        let joined: usize = left.iter().chain(&right).map(|node| node.len).sum();
        if is_closed && self.known_len + joined != packs.large.len() {
            // They are read again, and refused again.
            gap.first -= left.len() as u64 * STEP;
            gap.last += right.len() as u64 * STEP;
            return Err(BadElement);
        }
        let split = gap.split;
        gap.split += left.len();
        left.extend(right);
        if is_closed {
            packs.gap = None;
            packs.large.completed();
        }
        self.place(split, left);
        Ok(())
    }

    /// Listpacks of storage take their places.
    fn place(&mut self, at: usize, nodes: Vec<Node>) {
        for node in &nodes {
            self.known_len += node.len;
            self.pack_bytes += node.pack.heap_bytes();
        }
        let mut behind = self.nodes.split_off(at);
        self.nodes.extend(nodes);
        self.nodes.append(&mut behind);
    }

    /// A load is through: what it has not read is not there, and the head has to say the same.
    pub fn end_load(&mut self) -> Result<(), BadElement> {
        let Some(packs) = &mut self.packs else { return Ok(()) };
        let Some(gap) = packs.gap else { return Ok(()) };
        let loose: Vec<Node> = std::mem::take(&mut packs.loose).into_values().collect();
        let len: usize = loose.iter().map(|node| node.len).sum();
        if self.known_len + len != packs.large.len() {
            return Err(BadElement);
        }
        packs.gap = None;
        packs.large.completed();
        self.place(gap.split, loose);
        Ok(())
    }

    /// Takes about `count` listpacks that `may_evict` out of memory, from the middle on: those at the ends are the ones that commands ask for. Returns how many went.
    pub fn evict_elements(&mut self, count: usize, mut may_evict: impl FnMut(&[u8]) -> bool) -> usize {
        let nodes = self.nodes.len();
        let Some(packs) = &mut self.packs else { return 0 };
        if !packs.loose.is_empty() {
            return std::mem::take(&mut packs.loose).len();
        }
        let mut gap = packs.gap;
        let mut evicted = 0;
        while evicted < count && !self.nodes.is_empty() {
            let split = gap.map_or(nodes / 2, |gap| gap.split);
            let is_free = |at: Option<usize>, may_evict: &mut dyn FnMut(&[u8]) -> bool| {
                at.filter(|&at| self.nodes.get(at).is_some_and(|node| may_evict(&name(node.number))))
            };
            let (left, right) = (split.checked_sub(1), Some(split));
            let sides = if split > self.nodes.len() / 2 { [left, right] } else { [right, left] };
            let Some(at) = is_free(sides[0], &mut may_evict).or_else(|| is_free(sides[1], &mut may_evict))
            else {
                break;
            };
            let Some(node) = self.take_node(at) else { break };
            let now = gap.get_or_insert(Gap { split, first: node.number, last: node.number });
            if !planted::GAP_NOT_MOVED.on() {
                now.first = now.first.min(node.number);
            }
            now.last = now.last.max(node.number);
            now.split = split - usize::from(at < split);
            evicted += 1;
        }
        if evicted > 0
            && let Some(packs) = &mut self.packs
        {
            packs.gap = gap;
            packs.large.evicted(None);
        }
        evicted
    }
}

#[cfg(test)]
mod tests;
