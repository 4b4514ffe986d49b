//! A list: a sequence of listpacks, each of bounded size.
//!
//! Elements at both ends are reached at once; an element in the middle by adding the lengths of the
//! listpacks before it. An element larger than a listpack's limit has one to itself.
//!
//! Invariants: no listpack is empty; `known_len` is the sum of their lengths; `pack_bytes` the sum of their heap bytes.
//!
//! A large list (`packs`) has here the listpacks that are in memory: some from its left end on, and some up to its right end.

mod packs;

use super::large::{self, Large};
use super::limits::CollectionLimits;
use super::listpack::{Element, Listpack, Pos};
use packs::{PACK_BYTES_LARGE, Packs};
use std::collections::VecDeque;

pub use packs::{ListPart, Missing};

/// Bounds a listpack in bytes if its limit is in elements.
const PACK_BYTES_SAFE: usize = 8192;
/// What an element adds to a listpack at most, beside its bytes.
const ELEMENT_OVERHEAD: usize = 10;

#[derive(Debug, Clone)]
struct Node {
    pack: Listpack,
    len: usize,
    /// The number of its row, if the list is large: numbers ascend.
    number: u64,
}

#[derive(Debug, Default)]
pub struct List {
    nodes: VecDeque<Node>,
    known_len: usize,
    pack_bytes: usize,
    /// `None`: the list is stored whole.
    packs: Option<Box<Packs>>,
}

/// A copy is a collection of its own: it is not large yet.
impl Clone for List {
    fn clone(&self) -> List {
        self.check_complete();
        let (known_len, pack_bytes) = (self.known_len, self.pack_bytes);
        List { nodes: self.nodes.clone(), known_len, pack_bytes, packs: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Left,
    Right,
}

/// On which side of the pivot an element is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

impl List {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.large().map_or(self.known_len, Large::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn heap_bytes(&self) -> usize {
        let large = self.packs.as_ref().map_or(0, |packs| packs.heap_bytes());
        self.nodes.capacity() * size_of::<Node>() + self.pack_bytes + large
    }

    /// Whether a listpack has room for an element.
    fn fits(&self, at: usize, data_len: usize, limits: &CollectionLimits) -> bool {
        let node = &self.nodes[at];
        let bytes = node.pack.byte_len() + data_len + ELEMENT_OVERHEAD;
        (self.packs.is_none() || bytes <= PACK_BYTES_LARGE)
            && match limits.list_max_listpack_size {
                count if count >= 0 => (node.len as i64) < count.max(1) && bytes <= PACK_BYTES_SAFE,
                class => bytes <= 4096 << (-class - 1).clamp(0, 4),
            }
    }

    /// The listpack at an end, if there is one and it is in memory.
    fn end_node(&self, end: End) -> Option<usize> {
        let split = self.split();
        match end {
            End::Left => (split > 0).then_some(0),
            End::Right => {
                let first_of_right = if self.is_known() { 0 } else { split };
                (self.nodes.len() > first_of_right).then(|| self.nodes.len() - 1)
            }
        }
    }

    pub fn encoding(&self) -> &'static str {
        "quicklist"
    }

    /// The listpacks in order.
    pub fn packs(&self) -> impl ExactSizeIterator<Item = &Listpack> {
        self.check_complete();
        self.nodes.iter().map(|node| &node.pack)
    }

    /// Inserts a listpack at an end, or between two that are in memory.
    fn insert_node(&mut self, at: usize, mut node: Node, end: Option<End>) {
        if self.nodes.len() == self.nodes.capacity() {
            self.nodes.reserve_exact((self.nodes.len() / 2).max(1));
        }
        if self.packs.is_some() {
            node.number = self.number_at(at, end);
            self.note(node.number, false);
            self.resized(0, node.len);
            if end == Some(End::Left) {
                self.move_split(1);
            }
        }
        self.known_len += node.len;
        self.pack_bytes += node.pack.heap_bytes();
        self.nodes.insert(at, node);
    }

    fn remove_node(&mut self, at: usize) {
        if let Some(node) = self.take_node(at) {
            self.resized(node.len, 0);
            self.note_removed(at, node.number);
        }
    }

    /// Takes a listpack out of memory.
    fn take_node(&mut self, at: usize) -> Option<Node> {
        let node = self.nodes.remove(at)?;
        self.known_len -= node.len;
        self.pack_bytes -= node.pack.heap_bytes();
        if self.nodes.capacity() > 16 && self.nodes.len() < self.nodes.capacity() / 4 {
            self.nodes.shrink_to(self.nodes.len() * 2);
        }
        Some(node)
    }

    /// Changes one node and keeps the sums true. An empty node is removed.
    fn edit<R>(&mut self, at: usize, change: impl FnOnce(&mut Node) -> R) -> R {
        let node = &mut self.nodes[at];
        let (len, bytes, number) = (node.len, node.pack.heap_bytes(), node.number);
        let result = change(node);
        let len_now = node.len;
        self.known_len = self.known_len + len_now - len;
        self.pack_bytes = self.pack_bytes + node.pack.heap_bytes() - bytes;
        self.resized(len, len_now);
        if len_now == 0 {
            self.remove_node(at);
        } else {
            self.note(number, true);
        }
        result
    }

    fn node_of(data: &[u8]) -> Node {
        let mut pack = Listpack::new();
        pack.push_back(data);
        Node { pack, len: 1, number: 0 }
    }

    /// Adds an element at an end. If the list is large and the listpack there is not in memory, the element begins one.
    pub fn push(&mut self, end: End, data: &[u8], limits: &CollectionLimits) {
        match self.end_node(end).filter(|&at| self.fits(at, data.len(), limits)) {
            Some(at) => self.edit(at, |node| {
                match end {
                    End::Left => node.pack.push_front(data),
                    End::Right => node.pack.push_back(data),
                }
                node.len += 1;
            }),
            None => {
                let at = if end == End::Left { 0 } else { self.nodes.len() };
                self.insert_node(at, Self::node_of(data), Some(end));
            }
        }
    }

    pub fn pop(&mut self, end: End) -> Option<Box<[u8]>> {
        let Some(at) = self.end_node(end) else {
            if !self.is_empty() {
                large::count_miss();
            }
            return None;
        };
        self.edit(at, |node| {
            let pos = if end == End::Left { node.pack.first() } else { node.pack.last() }?;
            let data = node.pack.get(pos).to_box();
            node.pack.remove(pos);
            node.len -= 1;
            Some(data)
        })
    }

    /// The node that holds the element at `index`, and the element's index inside it.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        let len = self.len();
        if index >= len {
            return None;
        }
        let (left, right) = match self.is_known() {
            true if index < len / 2 => (self.nodes.len(), self.nodes.len()),
            true => (0, 0),
            false => (self.split(), self.split()),
        };
        let mut rest = index;
        for (at, node) in self.nodes.iter().enumerate().take(left) {
            if rest < node.len {
                return Some((at, rest));
            }
            rest -= node.len;
        }
        let mut after = len - index;
        for (at, node) in self.nodes.iter().enumerate().skip(right).rev() {
            if after <= node.len {
                return Some((at, node.len - after));
            }
            after -= node.len;
        }
        large::count_miss();
        None
    }

    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        let (at, inner) = self.locate(index)?;
        let pack = &self.nodes[at].pack;
        pack.at(inner).map(|pos| pack.get(pos))
    }

    /// Replaces the element at `index`. Returns whether there is one.
    pub fn set(&mut self, index: usize, data: &[u8], limits: &CollectionLimits) -> bool {
        self.check_complete();
        let Some((at, inner)) = self.locate(index) else { return false };
        let node = &self.nodes[at];
        if node.len == 1 || self.fits(at, data.len(), limits) {
            self.edit(at, |node| {
                if let Some(pos) = node.pack.at(inner) {
                    node.pack.replace(pos, data);
                }
            });
        } else {
            let Some(pos) = node.pack.at(inner) else { return false };
            self.insert_at(at, pos, Side::Before, data, limits);
            self.remove_range(index + 1, 1);
        }
        true
    }

    /// Inserts `data` beside the element at `pos` of node `at`.
    fn insert_at(&mut self, at: usize, pos: Pos, side: Side, data: &[u8], limits: &CollectionLimits) {
        if self.fits(at, data.len(), limits) {
            self.edit(at, |node| {
                match side {
                    Side::Before => node.pack.insert_before(pos, data),
                    Side::After => node.pack.insert_after(pos, data),
                };
                node.len += 1;
            });
            return;
        }
        let cut = match side {
            Side::Before => Some(pos),
            Side::After => self.nodes[at].pack.next(pos),
        };
        let first = self.nodes[at].pack.first();
        let before = match cut {
            None => at + 1,
            Some(cut) if Some(cut) == first => at,
            Some(cut) => {
                let tail = self.edit(at, |node| {
                    let tail = node.pack.split_off(cut);
                    let len = tail.len();
                    node.len -= len;
                    Node { pack: tail, len, number: 0 }
                });
                self.insert_node(at + 1, tail, None);
                at + 1
            }
        };
        // Prefer a neighbour with room over a node of one element.
        if before > 0 && before <= self.nodes.len() && self.fits(before - 1, data.len(), limits) {
            self.edit(before - 1, |node| {
                node.pack.push_back(data);
                node.len += 1;
            });
        } else if before < self.nodes.len() && self.fits(before, data.len(), limits) {
            self.edit(before, |node| {
                node.pack.push_front(data);
                node.len += 1;
            });
        } else {
            self.insert_node(before, Self::node_of(data), None);
        }
    }

    /// Inserts `data` beside the first element that equals `pivot`. Returns whether there is one.
    pub fn insert(&mut self, pivot: &[u8], side: Side, data: &[u8], limits: &CollectionLimits) -> bool {
        self.check_complete();
        for at in 0..self.nodes.len() {
            let pack = &self.nodes[at].pack;
            if let Some(pos) = pack.first().and_then(|first| pack.find(pivot, first, 1)) {
                self.insert_at(at, pos, side, data, limits);
                return true;
            }
        }
        false
    }

    /// Removes `count` elements from `start` on.
    pub fn remove_range(&mut self, start: usize, count: usize) {
        let mut rest = count.min(self.len().saturating_sub(start));
        // The end of the list is removed from its last listpack on: listpacks between are asked for nothing.
        let is_tail = start + rest == self.len();
        while rest > 0 {
            let found = if is_tail { self.locate(self.len() - 1) } else { self.locate(start) };
            let Some((at, inner)) = found else { return };
            let len = self.nodes[at].len;
            let here = if is_tail { rest.min(len) } else { rest.min(len - inner) };
            let inner = if is_tail { len - here } else { inner };
            if here == len {
                self.remove_node(at);
            } else {
                self.edit(at, |node| {
                    if let Some(pos) = node.pack.at(inner) {
                        node.pack.remove_run(pos, here);
                        node.len -= here;
                    }
                });
            }
            rest -= here;
        }
    }

    /// Removes elements that equal `data`: at most `limit` from `from`, or all if `limit` is 0.
    pub fn remove_equal(&mut self, data: &[u8], from: End, limit: usize) -> usize {
        self.check_complete();
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut removed = 0;
        let mut visited = 0;
        while visited < self.nodes.len() && removed < limit {
            let at = if from == End::Left { visited } else { self.nodes.len() - 1 - visited };
            let nodes = self.nodes.len();
            let pack = &self.nodes[at].pack;
            if pack.first().and_then(|first| pack.find(data, first, 1)).is_none() {
                visited += 1;
                continue;
            }
            removed += self.edit(at, |node| {
                let here = match from {
                    End::Left => remove_from_left(&mut node.pack, data, limit - removed),
                    End::Right => remove_from_right(&mut node.pack, data, limit - removed),
                };
                node.len -= here;
                here
            });
            if self.nodes.len() == nodes {
                visited += 1;
            }
        }
        removed
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Element<'_>> {
        self.check_complete();
        self.nodes.iter().flat_map(|node| node.pack.iter())
    }

    /// The elements from `index` on. An element that is not in memory ends them, and counts as a miss.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = Element<'_>> {
        let (at, inner) = self.locate(index).unwrap_or((self.nodes.len(), 0));
        let first =
            self.nodes.get(at).and_then(|node| node.pack.at(inner).map(|pos| node.pack.iter_from(pos)));
        let is_cut = !self.is_known() && at < self.split();
        let end = if is_cut { self.split() } else { self.nodes.len() };
        let others = self.nodes.range((at + 1).min(end)..end).flat_map(|node| node.pack.iter());
        let miss = std::iter::from_fn(move || {
            if is_cut {
                large::count_miss();
            }
            None
        });
        first.into_iter().flatten().chain(others).chain(miss)
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        assert!(self.nodes.iter().all(|node| node.len > 0 && node.len == node.pack.len()));
        assert_eq!(self.known_len, self.nodes.iter().map(|node| node.len).sum::<usize>());
        assert_eq!(self.pack_bytes, self.nodes.iter().map(|node| node.pack.heap_bytes()).sum::<usize>());
    }
}

fn remove_from_left(pack: &mut Listpack, data: &[u8], limit: usize) -> usize {
    let mut removed = 0;
    let mut from = pack.first();
    while removed < limit {
        let Some(found) = from.and_then(|from| pack.find(data, from, 1)) else { break };
        from = pack.remove(found);
        removed += 1;
    }
    removed
}

fn remove_from_right(pack: &mut Listpack, data: &[u8], limit: usize) -> usize {
    let mut removed = 0;
    let mut at = pack.last();
    while let Some(pos) = at
        && removed < limit
    {
        at = pack.prev(pos);
        if pack.get(pos).is(data) {
            pack.remove(pos);
            removed += 1;
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Push(bool, Vec<u8>),
        Pop(bool),
        Set(usize, Vec<u8>),
        Insert(usize, bool, Vec<u8>),
        RemoveRange(usize, usize),
        RemoveEqual(usize, bool, usize),
    }

    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0u8..8).prop_map(|value| value.to_string().into_bytes()),
            2 => prop::collection::vec(any::<u8>(), 0..40),
            1 => (3000usize..9000).prop_map(|len| vec![b'z'; len]),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (any::<bool>(), element()).prop_map(|(left, data)| Step::Push(left, data)),
            1 => any::<bool>().prop_map(Step::Pop),
            1 => (any::<usize>(), element()).prop_map(|(at, data)| Step::Set(at, data)),
            2 => (any::<usize>(), any::<bool>(), element()).prop_map(|(at, before, data)| Step::Insert(at, before, data)),
            1 => (any::<usize>(), 0usize..6).prop_map(|(at, count)| Step::RemoveRange(at, count)),
            1 => (any::<usize>(), any::<bool>(), 0usize..3).prop_map(|(at, left, limit)| Step::RemoveEqual(at, left, limit)),
        ]
    }

    proptest! {
        #[test]
        fn a_list_equals_a_vector(
            size in prop_oneof![Just(-2i64), Just(-1), Just(1), Just(3)],
            steps in prop::collection::vec(step(), 0..150),
        ) {
            let limits = CollectionLimits { list_max_listpack_size: size, ..CollectionLimits::default() };
            let (mut list, mut model) = (List::new(), Vec::<Vec<u8>>::new());
            for step in steps {
                match step {
                    Step::Push(true, data) => { list.push(End::Left, &data, &limits); model.insert(0, data); }
                    Step::Push(false, data) => { list.push(End::Right, &data, &limits); model.push(data); }
                    _ if model.is_empty() => {}
                    Step::Pop(true) => prop_assert_eq!(list.pop(End::Left).map(Vec::from), Some(model.remove(0))),
                    Step::Pop(false) => prop_assert_eq!(list.pop(End::Right).map(Vec::from), model.pop()),
                    Step::Set(at, data) => {
                        let at = at % model.len();
                        prop_assert!(list.set(at, &data, &limits));
                        model[at] = data;
                    }
                    Step::Insert(at, before, data) => {
                        let pivot = model[at % model.len()].clone();
                        let first = model.iter().position(|element| *element == pivot).unwrap();
                        let side = if before { Side::Before } else { Side::After };
                        prop_assert!(list.insert(&pivot, side, &data, &limits));
                        model.insert(first + usize::from(!before), data);
                    }
                    Step::RemoveRange(at, count) => {
                        let at = at % model.len();
                        list.remove_range(at, count);
                        model.drain(at..(at + count).min(model.len()));
                    }
                    Step::RemoveEqual(at, left, limit) => {
                        let data = model[at % model.len()].clone();
                        let removed = list.remove_equal(&data, if left { End::Left } else { End::Right }, limit);
                        let bound = if limit == 0 { usize::MAX } else { limit };
                        let mut gone = 0;
                        if !left { model.reverse(); }
                        model.retain(|element| { let keep = gone == bound || *element != data; gone += usize::from(!keep); keep });
                        if !left { model.reverse(); }
                        prop_assert_eq!(removed, gone);
                    }
                }
                list.check_invariants();
                prop_assert_eq!(list.len(), model.len());
            }
            prop_assert!(list.iter().map(Element::to_vec).eq(model.iter().cloned()));
            let from = model.len() / 2;
            prop_assert!(list.iter_from(from).map(Element::to_vec).eq(model[from..].iter().cloned()));
            for (at, element) in model.iter().enumerate() {
                prop_assert!(list.get(at).unwrap().is(element));
            }
        }
    }
}
