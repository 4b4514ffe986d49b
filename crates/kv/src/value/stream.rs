//! The stream type: an append-only sequence of entries under ordered identifiers, and consumer groups over it.
//!
//! Entries lie in nodes, listpacks of some kilobytes in a B-tree under the identifier of their first entry (see `stream/node.rs` for the layout,
//! which is Redis's, so that RDB is a copy). A deleted entry stays in its node as a tombstone until all of the node's entries are deleted.
//!
//! Counters that survive deletion:
//! * `last_id`: the largest identifier ever given, never reused;
//! * `first_id`: the smallest live identifier, 0-0 if there is none;
//! * `max_deleted_id`: the largest identifier that XDEL removed. An identifier at or before it cannot be turned into a count of entries;
//! * `entries_added`: entries ever added. With the two above it gives a group's lag without a scan.

mod group;
mod id;
pub mod listpack;
mod node;

pub use group::{Consumer, Group, Pending};
pub use id::{StreamId, parse_number};
pub use node::{Entry, Node, Pairs};

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// When a node is full. Zero means no limit.
#[derive(Debug, Clone, Copy)]
pub struct NodeLimits {
    pub bytes_max: usize,
    pub entries_max: usize,
}

/// A listpack is never larger than this.
const NODE_BYTES_MAX: usize = 1 << 30;

/// What XADD and XTRIM remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimTo {
    /// Keep at most this many entries.
    MaxLength(u64),
    /// Keep entries from this identifier on.
    MinId(StreamId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    pub to: TrimTo,
    /// Only whole nodes are removed.
    pub approximate: bool,
    /// At most this many entries are removed. Zero means no limit.
    pub limit: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Stream {
    nodes: BTreeMap<StreamId, Node>,
    length: u64,
    pub last_id: StreamId,
    pub first_id: StreamId,
    pub max_deleted_id: StreamId,
    pub entries_added: u64,
    groups: BTreeMap<Arc<[u8]>, Group>,
    /// Heap bytes of all nodes.
    node_bytes: usize,
}

impl Stream {
    pub fn new() -> Stream {
        Stream::default()
    }

    /// Live entries.
    pub fn len(&self) -> u64 {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (&StreamId, &Node)> {
        self.nodes.iter()
    }

    pub fn heap_bytes(&self) -> usize {
        const TREE_NODE: usize = 24;
        let nodes = self.nodes.len() * (size_of::<StreamId>() + size_of::<Node>() + TREE_NODE);
        self.node_bytes
            + nodes
            + self.groups.iter().map(|(name, group)| name.len() + group.heap_bytes()).sum::<usize>()
    }

    /// Appends an entry. `id` must be larger than `last_id`; `fields` alternates names and values.
    pub fn append(&mut self, id: StreamId, fields: &[&[u8]], limits: NodeLimits) {
        debug_assert!(id > self.last_id || self.entries_added == 0 && self.last_id == StreamId::MIN);
        let bytes: usize = fields.iter().map(|field| field.len()).sum();
        let bytes_max = match limits.bytes_max {
            0 => NODE_BYTES_MAX,
            limit => limit.min(NODE_BYTES_MAX),
        };
        let last = self.nodes.iter_mut().next_back().filter(|(_, node)| {
            let full = node.pack_bytes().saturating_add(bytes) >= bytes_max;
            let many = limits.entries_max > 0 && node.entries() >= limits.entries_max as u64;
            !full && !many
        });
        match last {
            Some((master, node)) => {
                let before = node.heap_bytes();
                node.append(*master, id, fields);
                self.node_bytes += node.heap_bytes() - before;
            }
            None => {
                if let Some((_, full)) = self.nodes.iter_mut().next_back() {
                    let before = full.heap_bytes();
                    full.shrink();
                    self.node_bytes -= before - full.heap_bytes();
                }
                let mut node = Node::new(fields);
                node.append(id, id, fields);
                self.node_bytes += node.heap_bytes();
                self.nodes.insert(id, node);
            }
        }
        self.length += 1;
        self.entries_added += 1;
        self.last_id = id;
        if self.length == 1 {
            self.first_id = id;
        }
    }

    /// Adopts a node from RDB. `false` if it is malformed or its identifier is taken.
    pub fn adopt_node(&mut self, master: StreamId, pack: Vec<u8>) -> bool {
        let Some(node) = Node::adopt(master, pack) else { return false };
        self.node_bytes += node.heap_bytes();
        self.length = self.length.saturating_add(node.live());
        self.nodes.insert(master, node).is_none()
    }

    /// Live entries from `start` to `end`, both included, in order.
    pub fn range(&self, start: StreamId, end: StreamId) -> impl Iterator<Item = Entry<'_>> {
        let first = self.nodes.range(..=start).next_back().map_or(start, |(master, _)| *master);
        let nodes = (first <= end).then(|| self.nodes.range(first..=end)).into_iter().flatten();
        nodes
            .flat_map(|(master, node)| node.entries_from(*master))
            .skip_while(move |entry| entry.id < start)
            .take_while(move |entry| entry.id <= end)
            .filter(|entry| !entry.deleted)
    }

    /// Live entries from `end` down to `start`, both included.
    pub fn range_back(&self, start: StreamId, end: StreamId) -> impl Iterator<Item = Entry<'_>> {
        self.nodes
            .range(..=end)
            .rev()
            .flat_map(|(master, node)| {
                let mut entries: Vec<_> = node.entries_from(*master).collect();
                entries.reverse();
                entries
            })
            .skip_while(move |entry| entry.id > end)
            .take_while(move |entry| entry.id >= start)
            .filter(|entry| !entry.deleted)
    }

    pub fn contains(&self, id: StreamId) -> bool {
        self.range(id, id).next().is_some()
    }

    fn first_live(&self) -> StreamId {
        self.range(StreamId::MIN, StreamId::MAX).next().map_or(StreamId::MIN, |entry| entry.id)
    }

    pub fn last_live(&self) -> Option<StreamId> {
        self.range_back(StreamId::MIN, StreamId::MAX).next().map(|entry| entry.id)
    }

    /// Removes an entry. `max_deleted_id` and `first_id` follow.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some((master, node)) = self.nodes.range_mut(..=id).next_back() else { return false };
        let master = *master;
        let before = node.heap_bytes();
        if !node.delete(master, id) {
            return false;
        }
        self.node_bytes = self.node_bytes - before + node.heap_bytes();
        if node.live() == 0 {
            self.node_bytes -= node.heap_bytes();
            self.nodes.remove(&master);
        }
        self.length -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        if self.length == 0 {
            self.first_id = StreamId::MIN;
        } else if id == self.first_id {
            self.first_id = self.first_live();
        }
        true
    }

    /// Removes entries from the start. Returns how many.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let mut removed = 0;
        while let Some(mut first) = self.nodes.first_entry() {
            if let TrimTo::MaxLength(max) = trim.to
                && self.length <= max
            {
                break;
            }
            let live = first.get().live();
            if trim.limit > 0 && removed + live > trim.limit {
                break;
            }
            let master = *first.key();
            let whole = match trim.to {
                TrimTo::MaxLength(max) => self.length - live >= max,
                TrimTo::MinId(min) => {
                    first.get().entries_from(master).last().is_none_or(|last| last.id < min)
                }
            };
            if whole {
                self.node_bytes -= first.get().heap_bytes();
                first.remove();
                self.length -= live;
                removed += live;
                continue;
            }
            if !trim.approximate {
                let node = first.get_mut();
                let before = node.heap_bytes();
                let in_node = match trim.to {
                    TrimTo::MaxLength(max) => node.delete_first(master, self.length - max, StreamId::MAX),
                    TrimTo::MinId(min) => node.delete_first(master, u64::MAX, min),
                };
                self.node_bytes = self.node_bytes - before + node.heap_bytes();
                self.length -= in_node;
                removed += in_node;
            }
            break;
        }
        if self.length == 0 {
            self.first_id = StreamId::MIN;
        } else if removed > 0 {
            self.first_id = self.first_live();
        }
        removed
    }

    /// Whether XDEL removed an entry at or after `from` that a count of entries from there would include.
    pub fn has_tombstones_from(&self, from: StreamId) -> bool {
        self.length > 0
            && self.max_deleted_id != StreamId::MIN
            && self.first_id <= self.max_deleted_id
            && from <= self.max_deleted_id
    }

    /// How many entries were ever added up to `id`. Nothing if that is not known.
    pub fn entries_up_to(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.length == 0 && id <= self.last_id || id == self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id {
            return None;
        }
        let no_gaps = self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id;
        let before_first = self.entries_added.saturating_sub(self.length);
        match id.cmp(&self.first_id) {
            std::cmp::Ordering::Less if no_gaps => Some(before_first),
            std::cmp::Ordering::Equal if no_gaps => Some(before_first + 1),
            _ => None,
        }
    }

    /// Entries that the group has not read; negative if a client set the group's counter too high. Nothing if that is not known.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let read = match group.entries_read {
            Some(read) if !self.has_tombstones_from(group.last_id) => read,
            _ => self.entries_up_to(group.last_id)?,
        };
        Some((self.entries_added as i64).wrapping_sub(read as i64))
    }

    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&Arc<[u8]>, &Group)> {
        self.groups.iter()
    }

    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    pub fn group_mut(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.groups.get_mut(name)
    }

    /// Creates a group. `false` if the name is taken.
    pub fn create_group(&mut self, name: &[u8], group: Group) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        self.groups.insert(name.into(), group);
        true
    }

    pub fn destroy_group(&mut self, name: &[u8]) -> bool {
        self.groups.remove(name).is_some()
    }

    /// Notes that the group is given entry `id`: moves the group's position and its count of entries read.
    pub fn advance_group(&mut self, name: &[u8], id: StreamId) {
        let Some(group) = self.groups.get(name) else { return };
        if id <= group.last_id {
            return;
        }
        let read = match group.entries_read {
            Some(read) if !self.has_tombstones_from(id) => Some(read + 1),
            read if self.entries_added == 0 => read,
            _ => self.entries_up_to(id),
        };
        if let Some(group) = self.groups.get_mut(name) {
            group.entries_read = read;
            group.last_id = id;
        }
    }

    /// Checks the invariants that bytes from outside may violate.
    pub fn is_consistent(&self) -> bool {
        let last = self
            .nodes
            .last_key_value()
            .and_then(|(master, node)| node.entries_from(*master).last())
            .map(|entry| entry.id);
        let counted: u64 = self.nodes.values().map(Node::live).sum();
        counted == self.length && last.is_none_or(|last| last <= self.last_id) && self.in_order()
    }

    /// Whether each node ends before the next one begins.
    fn in_order(&self) -> bool {
        let mut before: Option<StreamId> = None;
        self.nodes.iter().all(|(master, node)| {
            let apart = before.is_none_or(|before| before < *master);
            before = node.entries_from(*master).last().map(|entry| entry.id);
            apart
        })
    }

    /// For reading RDB of versions that do not store it.
    pub fn derive_first_id(&mut self) {
        self.first_id = self.first_live();
    }

    /// Nodes after `after`, for tests and for storage that keeps nodes as rows.
    pub fn nodes_after(&self, after: StreamId) -> impl Iterator<Item = (&StreamId, &Node)> {
        self.nodes.range((Bound::Excluded(after), Bound::Unbounded))
    }
}

#[cfg(test)]
mod tests;
