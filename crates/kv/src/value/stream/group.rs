//! Consumer groups: a position in the stream, and the entries that were delivered and not acknowledged, each with its consumer.
//!
//! The group's list of pending entries is the truth; each consumer keeps the identifiers of its own. Both change together, here.

use super::StreamId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An entry that a consumer was given and has not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    pub consumer: Arc<[u8]>,
    /// Milliseconds since the epoch.
    pub delivered_ms: u64,
    pub deliveries: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Consumer {
    /// Milliseconds since the epoch.
    pub seen_ms: u64,
    pending: BTreeSet<StreamId>,
}

impl Consumer {
    pub fn pending(&self) -> &BTreeSet<StreamId> {
        &self.pending
    }
}

#[derive(Debug, Clone, Default)]
pub struct Group {
    pub last_id: StreamId,
    /// Entries of the stream up to `last_id`, if known.
    pub entries_read: Option<u64>,
    pending: BTreeMap<StreamId, Pending>,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
}

impl Group {
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Group {
        Group { last_id, entries_read, ..Group::default() }
    }

    pub fn pending(&self) -> &BTreeMap<StreamId, Pending> {
        &self.pending
    }

    pub fn consumers(&self) -> &BTreeMap<Arc<[u8]>, Consumer> {
        &self.consumers
    }

    pub fn heap_bytes(&self) -> usize {
        const TREE_NODE: usize = 24;
        let pending = self.pending.len() * (2 * size_of::<StreamId>() + size_of::<Pending>() + 2 * TREE_NODE);
        pending
            + self.consumers.keys().map(|name| name.len() + size_of::<Consumer>() + TREE_NODE).sum::<usize>()
    }

    /// Creates a consumer. `false` if it exists.
    pub fn create_consumer(&mut self, name: &[u8], now_ms: u64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        self.consumers.insert(name.into(), Consumer { seen_ms: now_ms, ..Consumer::default() });
        true
    }

    /// The consumer's name as the group shares it, created if absent; it is seen now.
    pub fn see_consumer(&mut self, name: &[u8], now_ms: u64) -> Arc<[u8]> {
        self.create_consumer(name, now_ms);
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.seen_ms = now_ms;
        }
        self.consumers.get_key_value(name).map_or_else(|| name.into(), |(name, _)| name.clone())
    }

    /// Removes a consumer with its pending entries. Returns how many those were.
    pub fn delete_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// Puts entry `id` on the list of `pending.consumer`, taking it from the one that has it. The consumer must exist.
    pub fn assign(&mut self, id: StreamId, pending: Pending) {
        if let Some(before) = self.pending.get(&id)
            && before.consumer != pending.consumer
            && let Some(owner) = self.consumers.get_mut(&before.consumer)
        {
            owner.pending.remove(&id);
        }
        if let Some(owner) = self.consumers.get_mut(&pending.consumer) {
            owner.pending.insert(id);
            self.pending.insert(id, pending);
        }
    }

    /// Takes entry `id` off all lists.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(owner) = self.consumers.get_mut(&pending.consumer) {
            owner.pending.remove(&id);
        }
        true
    }

    /// Notes a further delivery of a pending entry.
    pub fn redeliver(&mut self, id: StreamId, now_ms: u64) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_ms = now_ms;
            pending.deliveries += 1;
        }
    }

    /// For reading RDB: a pending entry whose consumer is not known yet.
    pub fn load_pending(&mut self, id: StreamId, delivered_ms: u64, deliveries: u64) -> bool {
        self.pending.insert(id, Pending { consumer: Arc::from(&b""[..]), delivered_ms, deliveries }).is_none()
    }

    /// For reading RDB: the consumer of a pending entry. `false` if the entry is not pending or has one.
    pub fn load_owner(&mut self, consumer: &Arc<[u8]>, id: StreamId) -> bool {
        let Some(owner) = self.consumers.get_mut(consumer) else { return false };
        let Some(pending) = self.pending.get_mut(&id) else { return false };
        pending.consumer = consumer.clone();
        owner.pending.insert(id)
    }

    /// Whether each pending entry is on the list of exactly the consumer it names.
    pub fn is_consistent(&self) -> bool {
        let owned: usize = self.consumers.values().map(|consumer| consumer.pending.len()).sum();
        owned == self.pending.len()
            && self.pending.iter().all(|(id, pending)| {
                self.consumers.get(&pending.consumer).is_some_and(|owner| owner.pending.contains(id))
            })
    }
}
