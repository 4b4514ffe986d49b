//! Reads of storage on behalf of commands whose keys are not in memory.
//!
//! A key has at most one fetch, whoever wants it (single-flight). A fetch is deferred, queued or in flight:
//!
//! * deferred: only updates want it (write-back). Deferred fetches are begun together when there are [`Limits::together`] of them or the oldest is
//!   [`Limits::defer_ms`] old; a read of the key queues its fetch at once. TierBase §4.1.2.
//! * queued: it begins when fewer than [`Limits::in_flight`] are in flight.
//! * in flight: storage reads.
//!
//! A write of the key supersedes its fetch: its waiters go on with what is in memory, and the result is dropped when it comes, so that a late
//! fetch never overwrites a newer write. A wanted key whose fetch was superseded and that was evicted meanwhile is fetched anew: the older read is
//! never joined, for it may have seen storage before the write.
//!
//! Not here: what a waiter is, and whether the key is resident or may be absent.

use crate::planted;
use crate::storage::Key;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};

/// Number of a fetch.
pub type FetchId = u64;

/// What waits for a key; the caller's number, such as a client's.
pub type Waiter = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// A reader waits.
    Now,
    /// An update that may be batched with others.
    Deferred,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub in_flight: usize,
    /// Deferred fetches that are begun together.
    pub together: usize,
    /// How long a fetch is deferred at most.
    pub defer_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { in_flight: 256, together: 64, defer_ms: 2 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FetchState {
    Deferred,
    Queued,
    InFlight,
}

#[derive(Debug)]
struct Fetch {
    id: FetchId,
    state: FetchState,
    waiters: Vec<Waiter>,
}

/// How a fetch ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetched {
    /// The value belongs into memory, and these go on.
    Current(Vec<Waiter>),
    /// The key was written meanwhile: the value is to be dropped.
    Superseded,
}

#[derive(Default)]
pub struct Fetches {
    limits: Limits,
    next: FetchId,
    by_key: HashMap<Key, Fetch>,
    /// Keys in the order in which their fetches were wanted, by number: deferred ones and queued ones.
    deferred: BTreeMap<FetchId, (Key, u64)>,
    queued: VecDeque<(FetchId, Key)>,
    in_flight: usize,
    /// Fetches in flight that were superseded, until they end.
    superseded: usize,
}

impl Fetches {
    pub fn new(limits: Limits) -> Fetches {
        Fetches { limits, ..Fetches::default() }
    }

    /// `waiter` waits for a key that is not in memory and may be in storage.
    pub fn want(&mut self, key: &Key, waiter: Waiter, urgency: Urgency, now_ms: u64) {
        if let Some(fetch) = self.by_key.get_mut(key) {
            if !fetch.waiters.contains(&waiter) {
                fetch.waiters.push(waiter);
            }
            if fetch.state == FetchState::Deferred && urgency == Urgency::Now {
                fetch.state = FetchState::Queued;
                self.deferred.remove(&fetch.id);
                self.queued.push_back((fetch.id, key.clone()));
            }
            return;
        }
        let id = self.next;
        self.next += 1;
        let state = match urgency {
            Urgency::Now => {
                self.queued.push_back((id, key.clone()));
                FetchState::Queued
            }
            Urgency::Deferred => {
                self.deferred.insert(id, (key.clone(), now_ms));
                FetchState::Deferred
            }
        };
        self.by_key.insert(key.clone(), Fetch { id, state, waiters: vec![waiter] });
    }

    /// The fetches to begin now. The caller reads them together.
    pub fn begin(&mut self, now_ms: u64) -> Vec<(FetchId, Key)> {
        let oldest = self.deferred.first_key_value().map(|(_, (_, since))| *since);
        let is_due = oldest.is_some_and(|since| now_ms.saturating_sub(since) >= self.limits.defer_ms);
        if is_due || self.deferred.len() >= self.limits.together {
            for (id, (key, _)) in std::mem::take(&mut self.deferred) {
                if let Some(fetch) = self.by_key.get_mut(&key) {
                    fetch.state = FetchState::Queued;
                }
                self.queued.push_back((id, key));
            }
        }
        let mut begun = Vec::new();
        while self.in_flight < self.limits.in_flight {
            let Some((id, key)) = self.queued.pop_front() else { break };
            // Superseded ones are not read at all.
            match self.by_key.get_mut(&key).filter(|fetch| fetch.id == id) {
                Some(fetch) => fetch.state = FetchState::InFlight,
                None => continue,
            }
            self.in_flight += 1;
            begun.push((id, key));
        }
        begun
    }

    /// When deferred fetches are due, if there are any.
    pub fn due_ms(&self) -> Option<u64> {
        self.deferred.first_key_value().map(|(_, (_, since))| since + self.limits.defer_ms)
    }

    /// A fetch that was begun has ended.
    pub fn end(&mut self, id: FetchId, key: &Key) -> Fetched {
        self.in_flight -= 1;
        match self.by_key.get(key) {
            Some(fetch) if fetch.id == id => {}
            _ if planted::LATE_FETCH_TAKEN.on() => return Fetched::Current(Vec::new()),
            _ => {
                self.superseded -= 1;
                return Fetched::Superseded;
            }
        }
        Fetched::Current(self.by_key.remove(key).map(|fetch| fetch.waiters).unwrap_or_default())
    }

    /// A key is written: its fetch counts no more, and its waiters go on.
    pub fn supersede(&mut self, key: &Key) -> Vec<Waiter> {
        if self.by_key.is_empty() {
            return Vec::new();
        }
        let Some(fetch) = self.by_key.remove(key) else { return Vec::new() };
        match fetch.state {
            FetchState::Deferred => _ = self.deferred.remove(&fetch.id),
            FetchState::Queued => {}
            FetchState::InFlight => self.superseded += 1,
        }
        fetch.waiters
    }

    /// A database is emptied: as if each of its keys was written.
    pub fn supersede_database(&mut self, db: u16) -> Vec<Waiter> {
        let keys: Vec<Key> = self.by_key.keys().filter(|key| key.db == db).cloned().collect();
        let mut waiters: Vec<Waiter> = keys.iter().flat_map(|key| self.supersede(key)).collect();
        waiters.sort_unstable();
        waiters.dedup();
        waiters
    }

    /// A waiter is gone, such as a client that disconnected. Fetches without a waiter still fill memory.
    pub fn forget(&mut self, waiter: Waiter) {
        self.by_key.values_mut().for_each(|fetch| fetch.waiters.retain(|other| *other != waiter));
    }

    /// Whether the key waits for storage.
    pub fn is_wanted(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// Keys that wait for storage.
    pub fn wanted(&self) -> usize {
        self.by_key.len()
    }
    /// Reads in flight, superseded ones included.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(0, name.as_bytes())
    }

    #[test]
    fn a_key_has_one_fetch_whoever_wants_it() {
        let mut fetches = Fetches::new(Limits::default());
        fetches.want(&key("a"), 1, Urgency::Now, 0);
        let begun = fetches.begin(0);
        assert_eq!(begun.len(), 1);
        fetches.want(&key("a"), 2, Urgency::Now, 0);
        fetches.want(&key("a"), 2, Urgency::Now, 0);
        assert!(fetches.begin(0).is_empty());
        assert_eq!(fetches.end(begun[0].0, &key("a")), Fetched::Current(vec![1, 2]));
        assert_eq!((fetches.wanted(), fetches.in_flight()), (0, 0));
    }

    #[test]
    fn a_superseded_fetch_is_neither_taken_nor_joined() {
        let mut fetches = Fetches::new(Limits::default());
        fetches.want(&key("a"), 1, Urgency::Now, 0);
        let old = fetches.begin(0);
        assert_eq!(fetches.supersede(&key("a")), [1]);
        // It was written and evicted: the next reader begins a new fetch.
        fetches.want(&key("a"), 2, Urgency::Now, 0);
        let new = fetches.begin(0);
        assert_eq!(new.len(), 1);
        assert_eq!(fetches.end(old[0].0, &key("a")), Fetched::Superseded);
        assert_eq!(fetches.end(new[0].0, &key("a")), Fetched::Current(vec![2]));
    }

    #[test]
    fn deferred_fetches_begin_together_and_a_read_begins_at_once() {
        let mut fetches = Fetches::new(Limits { in_flight: 10, together: 3, defer_ms: 5 });
        fetches.want(&key("a"), 1, Urgency::Deferred, 100);
        fetches.want(&key("b"), 1, Urgency::Deferred, 101);
        assert!(fetches.begin(104).is_empty());
        assert_eq!(fetches.due_ms(), Some(105));
        fetches.want(&key("b"), 2, Urgency::Now, 104);
        assert_eq!(fetches.begin(104).len(), 1);
        assert_eq!(fetches.begin(105).len(), 1);
        assert_eq!(fetches.due_ms(), None);
        for name in ["c", "d", "e"] {
            fetches.want(&key(name), 3, Urgency::Deferred, 200);
        }
        assert_eq!(fetches.begin(200).len(), 3);
    }

    #[test]
    fn no_more_are_in_flight_than_the_limit() {
        let mut fetches = Fetches::new(Limits { in_flight: 2, ..Limits::default() });
        for name in ["a", "b", "c"] {
            fetches.want(&key(name), 1, Urgency::Now, 0);
        }
        let begun = fetches.begin(0);
        assert_eq!(begun.len(), 2);
        // The queued one is superseded: it is never read.
        fetches.supersede(&key("c"));
        fetches.end(begun[0].0, &begun[0].1);
        assert!(fetches.begin(0).is_empty());
    }
}
