//! Changes that are in the write-back log before they wait here.
//!
//! The log is replayed after a crash, so a transaction is whole whichever of its rows storage had. What is left to keep is the order per key, and from
//! which record on the log is needed. Dirty keys wait in the order in which they became dirty. A cut takes some of the oldest, and one flight is out at a
//! time. A change of a key that waits adds nothing to the list, so that memory is bounded by the dirty keys, not by the number of changes.
//!
//! A flight that fails is put back: clients were told of its changes.

use super::{Changed, Cut, FlightId, Group, Queue, row};
use crate::planted;
use crate::storage::{Key, Row, Stored, Write};
use crate::tiering::queue::Before;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Since when a key is dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Since {
    /// The record of the log that made it dirty.
    pub record: u64,
    /// Unix time in milliseconds.
    pub ms: i64,
}

/// What a group of such changes adds.
#[derive(Debug)]
pub(super) struct Logged {
    since: Since,
    /// In order; one whose key waits since another record is out of date.
    pub(super) dirty: VecDeque<(Key, Since)>,
}

impl Queue {
    /// Adds changes that are in a record of the log, or will be before they are cut off.
    pub fn add_logged(
        &mut self,
        since: Since,
        changed: impl IntoIterator<Item = Changed>,
        emptied: Vec<u16>,
    ) {
        for &db in &emptied {
            self.forget_waiting(db);
        }
        let mut dirty: SmallVec<[(Key, Since); 1]> = SmallVec::new();
        for change in changed {
            dirty.extend(self.wait(change, &emptied, since).map(|key| (key, since)));
        }
        let last = self.groups.back_mut().and_then(|group| group.logged.as_mut());
        match last.filter(|_| emptied.is_empty()) {
            Some(last) => last.dirty.extend(dirty),
            None if emptied.is_empty() && dirty.is_empty() => {}
            None => {
                self.emptying_groups += usize::from(!emptied.is_empty());
                let id = self.number();
                let logged = Some(Logged { since, dirty: dirty.into_iter().collect() });
                self.groups.push_back(Group { id, emptied, logged, ..Group::default() });
            }
        }
    }

    /// Since when the oldest change waits that is in the log.
    pub fn oldest(&self) -> Option<Since> {
        let of_group = |group: &Group| {
            let logged = group.logged.as_ref()?;
            if !group.emptied.is_empty() {
                return Some(logged.since);
            }
            let is_current = |(key, since): &&(Key, Since)| {
                self.waiting.get(key).is_some_and(|waiting| waiting.since == *since)
            };
            logged.dirty.iter().find(is_current).map(|(_, since)| *since)
        };
        self.groups.iter().find_map(of_group)
    }

    /// Cuts off the oldest of what waits, about `bytes_max` bytes. `None` while a write is in flight, or if nothing waits, or if the oldest is not in the log.
    pub fn cut_logged(
        &mut self,
        bytes_max: u64,
        mut value: impl FnMut(&Key) -> Option<Stored>,
    ) -> Option<Cut> {
        if !self.flights.is_empty() || !self.again.is_empty() {
            return None;
        }
        let (mut write, mut taken, mut bytes) = (Write::default(), Vec::new(), 0);
        while bytes < bytes_max
            && let Some(mut group) = self.groups.pop_front()
        {
            let Some(logged) = &mut group.logged else {
                self.groups.push_front(group);
                break;
            };
            let emptied = std::mem::take(&mut group.emptied);
            write.emptied.extend(&emptied);
            let mut dirty = VecDeque::new();
            while bytes < bytes_max
                && let Some((key, since)) = logged.dirty.pop_front()
            {
                if self.waiting.get(&key).is_none_or(|waiting| waiting.since != since) {
                    continue;
                }
                let Some(waiting) = self.take_waiting(&key) else { continue };
                bytes += waiting.bytes;
                write.rows.extend(row(&key, waiting.before, value(&key)));
                dirty.push_back((key, since));
            }
            let (id, since, is_done) = (group.id, logged.since, logged.dirty.is_empty());
            taken.push(Group { id, emptied, logged: Some(Logged { since, dirty }), ..Group::default() });
            if !is_done {
                self.groups.push_front(group);
            }
        }
        self.count_emptying();
        (!taken.is_empty()).then(|| self.take_off(taken, write))
    }

    /// Puts a flight that failed back in front of what waits: its values are in memory still. `stored` is asked what
    /// storage has of each row now. Returns whether there was such a flight.
    pub fn put_back(&mut self, id: FlightId, mut stored: impl FnMut(&Row) -> Before) -> bool {
        let Some(flight) = self.flights.remove(&id) else { return false };
        // The flight has given its values away: each row counts with its share.
        let share = flight.bytes / (flight.write.rows.len() as u64).max(1);
        let logged = flight.groups.iter().filter_map(|group| group.logged.as_ref());
        let since: HashMap<Key, Since> = logged.flat_map(|logged| logged.dirty.iter().cloned()).collect();
        for row in flight.write.rows {
            *self.unstored.entry(row.key.db).or_default() -= super::change(&row);
            if self.in_flight.get(&row.key) == Some(&id) {
                self.in_flight.remove(&row.key);
            }
            if self.waits_to_be_emptied(row.key.db) && row.key.goes_with(row.key.db) {
                // A flush that was executed later makes the row needless.
                continue;
            }
            let is_emptied = flight.write.emptied.contains(&row.key.db);
            let before = if is_emptied { Before::default() } else { stored(&row) };
            let since = since.get(&row.key).copied().unwrap_or_default();
            let waiting = match self.take_waiting(&row.key) {
                Some(waiting) => super::Waiting { before, since, ..waiting },
                None => super::Waiting { before, exists: row.value.is_some(), bytes: share, since },
            };
            self.put_waiting(row.key, waiting);
        }
        for db in &flight.write.emptied {
            self.emptying.remove(db);
        }
        if planted::PUT_BACK_BEHIND.on() {
            self.groups.extend(flight.groups);
        } else {
            flight.groups.into_iter().rev().for_each(|group| self.groups.push_front(group));
        }
        self.count_emptying();
        true
    }
}

#[cfg(test)]
mod tests;
