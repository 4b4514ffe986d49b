//! Changes on their way to storage: in order per key, coalesced, atomic.
//!
//! A [`Group`] is what one command, transaction or script did: the keys that it read or changed. Groups come in the order of execution and wait until they
//! are cut off into a [`Flight`]: one atomic write of the present values of all keys that its groups changed. So the changes of one key
//! between two cuts are one row (coalescing), and the value is serialised once.
//!
//! Keys connect groups. A value that is serialised now carries the changes of every waiting group that touched the key, so groups that share a key
//! must be written together; the cut takes whole components of that relation ([`Queue::component`]). A component waits while any of its keys is
//! in flight: this is the queue of a key. A flight that fails takes the waiting components of its keys with it, for what they did rests on values
//! that are lost; clients of other keys see nothing of it.
//!
//! A flight that storage refuses is divided into its components and issued again, so that a refusal reaches its own clients alone.
//!
//! Reading a key whose change is waiting or in flight makes a group without changes, so that no client is told of a value that may be lost.
//!
//! Invariants (`check_invariants`)
//! * A changed key is touched by a waiting group; a key in flight belongs to one flight.
//! * Bytes of waiting changes are the sum over the keys.
//!
//! With write-back, changes are in a log before they come here, and that makes transactions atomic. Such changes need no groups of their own: they wait in
//! the order in which their keys became dirty, and are cut off some at a time (`logged`).
//!
//! Elements of large collections are keys here as others are. Each change of one comes with its collection's key, so that is in the component of all its
//! elements, and a reader of the collection waits for them.
//!
//! Not here: when to cut (`tiering::write_policy`), what is written (the caller serialises), I/O.

mod logged;

use crate::planted;
use crate::storage::{Key, Outcome, Row, StorageError, Stored, Write};
use hashbrown::{HashMap, HashSet};
use std::collections::{BTreeMap, VecDeque};

pub use logged::Since;

/// Number of a group, in the order of execution.
pub type GroupId = u64;
/// Number of a write.
pub type FlightId = u64;

/// A key's row in storage before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Before {
    pub existed: bool,
    pub expires_ms: Option<u64>,
}

/// A key that a group has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    pub key: Key,
    /// What storage has of it. The queue knows better if the key waits or is in flight already.
    pub before: Before,
    /// Whether the key exists now.
    pub exists: bool,
    /// Its bytes in memory now, for the bound of the changes that wait.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Group {
    id: GroupId,
    touched: Vec<Key>,
    emptied: Vec<u16>,
    logged: Option<logged::Logged>,
}

impl Group {
    fn keys(&self) -> impl Iterator<Item = &Key> {
        let dirty = self.logged.iter().flat_map(|logged| &logged.dirty);
        self.touched.iter().chain(dirty.map(|(key, _)| key))
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    before: Before,
    exists: bool,
    bytes: u64,
    /// Since which record of the write-back log it waits.
    since: Since,
}

impl Waiting {
    /// By how much it changes the count of its database.
    fn change(&self, key: &Key) -> i64 {
        if key.is_whole() { i64::from(self.exists) - i64::from(self.before.existed) } else { 0 }
    }
}

/// Groups that are being written together.
#[derive(Debug)]
struct Flight {
    groups: Vec<Group>,
    /// Without the values if its changes are in the log: those are in memory until it has landed.
    write: Write,
    bytes: u64,
}

impl Flight {
    /// The write with its values, which the flight keeps no more.
    fn give_values(&mut self) -> Write {
        let give = |row: &mut Row| {
            let value = row.value.as_mut();
            let value =
                value.map(|it| Stored { expires_ms: it.expires_ms, rdb: std::mem::take(&mut it.rdb) });
            Row { key: row.key.clone(), value, ..*row }
        };
        let Write { emptied, alive, rows, log_position } = &mut self.write;
        Write {
            emptied: emptied.clone(),
            alive: alive.clone(),
            rows: rows.iter_mut().map(give).collect(),
            log_position: *log_position,
        }
    }
}

/// What became of a flight.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Landed {
    pub written: Vec<GroupId>,
    pub failed: Vec<GroupId>,
    /// Keys whose values in memory are what storage has: they may be evicted.
    pub clean: Vec<Key>,
    /// Keys whose values in memory are to be dropped.
    pub lost: Vec<Key>,
    /// Keys whose values in memory are to be these: what another flight is writing.
    pub restored: Vec<(Key, Option<Stored>)>,
    pub error: Option<StorageError>,
    /// It is not known what storage has of the flight: counts are to be read again.
    pub is_unknown: bool,
}

/// A write to issue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    pub id: FlightId,
    pub write: Write,
}

#[derive(Default)]
pub struct Queue {
    next_group: GroupId,
    next_flight: FlightId,
    groups: VecDeque<Group>,
    waiting: HashMap<Key, Waiting>,
    waiting_bytes: u64,
    flights: BTreeMap<FlightId, Flight>,
    in_flight: HashMap<Key, FlightId>,
    /// Databases that a flight empties.
    emptying: HashSet<u16>,
    /// Waiting groups that empty databases: most often none.
    emptying_groups: usize,
    /// Parts of refused flights that are to be issued on their own.
    again: VecDeque<Flight>,
    /// By how much the flights change the count of each database, and by how much the changes that wait do.
    unstored: BTreeMap<u16, i64>,
    waiting_counts: BTreeMap<u16, i64>,
}

impl Queue {
    pub fn new() -> Queue {
        Queue::default()
    }

    /// Whether the present state of a key is in memory alone: it may not be evicted, and if it is not resident it is deleted.
    pub fn holds(&self, key: &Key) -> bool {
        self.waiting.contains_key(key) || self.in_flight.contains_key(key) || self.is_emptying(key.db)
    }

    /// Whether memory may forget a key that is resident.
    pub fn may_evict(&self, key: &Key) -> bool {
        planted::DIRTY_EVICTED.on() || !self.holds(key)
    }

    /// Whether a database is being emptied or waits for that.
    pub fn is_emptying(&self, db: u16) -> bool {
        self.emptying.contains(&db) || self.waits_to_be_emptied(db)
    }

    fn waits_to_be_emptied(&self, db: u16) -> bool {
        self.emptying_groups > 0 && self.groups.iter().any(|group| group.emptied.contains(&db))
    }

    /// Adds what a command did: `touched` are all keys it read or changed, of which `changed` were changed. `emptied` databases lost all keys before.
    pub fn add(&mut self, touched: Vec<Key>, changed: Vec<Changed>, emptied: Vec<u16>) -> GroupId {
        let id = self.number();
        let mut touched = touched;
        for &db in &emptied {
            self.forget_waiting(db);
        }
        let named: HashSet<Key> = touched.iter().cloned().collect();
        for change in changed {
            if !named.contains(&change.key) {
                touched.push(change.key.clone());
            }
            self.wait(change, &emptied, Since::default());
        }
        self.emptying_groups += usize::from(!emptied.is_empty());
        self.groups.push_back(Group { id, touched, emptied, logged: None });
        id
    }

    /// A number for a group that is not here.
    pub fn number(&mut self) -> GroupId {
        self.next_group += 1;
        self.next_group - 1
    }

    /// A change waits. Returns its key if none of it waited before.
    fn wait(&mut self, changed: Changed, emptied: &[u16], since: logged::Since) -> Option<Key> {
        let Changed { key, mut before, exists, bytes } = changed;
        if let Some(waiting) = self.waiting.get_mut(&key) {
            // It has kept what storage had.
            self.waiting_bytes = self.waiting_bytes + bytes - waiting.bytes;
            let old = *waiting;
            (waiting.exists, waiting.bytes) = (exists, bytes);
            if exists != old.exists {
                *self.waiting_counts.entry(key.db).or_default() += waiting.change(&key) - old.change(&key);
            }
            return None;
        }
        // What storage has: the newest of a flush that waits, the key's flight, a flush in flight.
        if self.waits_to_be_emptied(key.db) || emptied.contains(&key.db) {
            before = Before::default();
        } else if let Some(stored) = self.stored_by_flight(&key) {
            before = stored;
        } else if self.emptying.contains(&key.db) {
            before = Before::default();
        }
        self.put_waiting(key.clone(), Waiting { before, exists, bytes, since });
        Some(key)
    }

    fn put_waiting(&mut self, key: Key, waiting: Waiting) {
        self.waiting_bytes += waiting.bytes;
        *self.waiting_counts.entry(key.db).or_default() += waiting.change(&key);
        self.waiting.insert(key, waiting);
    }

    fn take_waiting(&mut self, key: &Key) -> Option<Waiting> {
        let waiting = self.waiting.remove(key)?;
        self.waiting_bytes -= waiting.bytes;
        *self.waiting_counts.entry(key.db).or_default() -= waiting.change(key);
        Some(waiting)
    }

    /// The row of a key in flight.
    fn row_in_flight(&self, key: &Key) -> Option<&Row> {
        let id = self.in_flight.get(key)?;
        let row = |flight: &'_ Flight| flight.write.rows.binary_search_by(|row| row.key.cmp(key)).ok();
        match self.flights.get(id) {
            Some(flight) => flight.write.rows.get(row(flight)?),
            // A part that is to be issued again has no number.
            None => self.again.iter().find_map(|flight| flight.write.rows.get(row(flight)?)),
        }
    }

    /// What storage will have of a key in flight.
    fn stored_by_flight(&self, key: &Key) -> Option<Before> {
        let value = self.row_in_flight(key)?.value.as_ref();
        Some(Before { existed: value.is_some(), expires_ms: value.and_then(|value| value.expires_ms) })
    }

    /// The changes of an emptied database that wait need not be written.
    fn forget_waiting(&mut self, db: u16) {
        let gone: Vec<Key> = self.waiting.keys().filter(|key| key.goes_with(db)).cloned().collect();
        for key in gone {
            self.take_waiting(&key);
        }
        for logged in self.groups.iter_mut().filter_map(|group| group.logged.as_mut()) {
            logged.dirty.retain(|(key, _)| !key.goes_with(db));
        }
    }

    /// A group without changes for a reader of these keys, if one of them is not stored yet: its reply waits for the group.
    pub fn gate<'a>(&mut self, keys: impl IntoIterator<Item = &'a Key, IntoIter: Clone>) -> Option<GroupId> {
        let mut keys = keys.into_iter();
        if planted::READ_BEFORE_WRITTEN.on() || self.is_empty() || !keys.clone().any(|key| self.holds(key)) {
            return None;
        }
        Some(self.add(keys.by_ref().cloned().collect(), Vec::new(), Vec::new()))
    }

    fn count_emptying(&mut self) {
        self.emptying_groups = self.groups.iter().filter(|group| !group.emptied.is_empty()).count();
    }

    /// Bytes of the changes that wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }
    /// Bytes of the values in flight.
    pub fn flight_bytes(&self) -> u64 {
        self.flights.values().map(|flight| flight.bytes).sum()
    }
    /// The keys that a flight writes.
    pub fn keys_of_flight(&self, id: FlightId) -> Vec<Key> {
        let rows = self.flights.get(&id).into_iter().flat_map(|flight| &flight.write.rows);
        rows.map(|row| row.key.clone()).collect()
    }
    /// Keys whose changes wait.
    pub fn waiting_keys(&self) -> usize {
        self.waiting.len()
    }
    /// Writes in flight.
    pub fn flights(&self) -> usize {
        self.flights.len()
    }
    /// Whether nothing waits and nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.flights.is_empty() && self.again.is_empty()
    }
    /// Whether there is something to cut off.
    pub fn has_waiting(&self) -> bool {
        !self.groups.is_empty() || !self.again.is_empty()
    }

    /// How many keys a database has, of which storage has `stored` by the writes that have landed.
    pub fn count(&self, db: u16, stored: u64) -> u64 {
        let waiting = self.waiting_counts.get(&db).copied().unwrap_or_default();
        let in_flight = self.unstored.get(&db).copied().unwrap_or_default();
        let count = match (self.waits_to_be_emptied(db), self.emptying.contains(&db)) {
            (true, _) => waiting,
            (false, true) => in_flight + waiting,
            (false, false) => stored as i64 + in_flight + waiting,
        };
        count.max(0) as u64
    }

    /// The keys that wait or are in flight.
    pub fn held(&self) -> impl Iterator<Item = &Key> {
        let in_flight = self.in_flight.keys().filter(|key| !self.waiting.contains_key(*key));
        self.waiting.keys().chain(in_flight)
    }

    /// The waiting groups that are connected with `seeds` through shared keys: true for each that is. A group that empties a database shares
    /// every key of it.
    fn component(&self, seeds: impl IntoIterator<Item = Key>, databases: &HashSet<u16>) -> Vec<bool> {
        let mut keys: HashSet<Key> = seeds.into_iter().collect();
        let mut key_databases: HashSet<u16> = keys.iter().map(|key| key.db).collect();
        let mut databases = databases.clone();
        let mut is_in = vec![false; self.groups.len()];
        loop {
            let mut grown = false;
            for (group, is_in) in self.groups.iter().zip(&mut is_in) {
                let shares = group.keys().any(|key| keys.contains(key) || databases.contains(&key.db))
                    || group.emptied.iter().any(|db| databases.contains(db) || key_databases.contains(db));
                if !*is_in && shares {
                    (*is_in, grown) = (true, true);
                    keys.extend(group.keys().cloned());
                    key_databases.extend(group.keys().map(|key| key.db));
                    databases.extend(&group.emptied);
                }
            }
            if !grown {
                return is_in;
            }
        }
    }

    /// Cuts off what can be written now; `value` serialises the present value of a key. `None` if nothing can: call it again when a flight lands.
    pub fn cut(&mut self, mut value: impl FnMut(&Key) -> Option<Stored>) -> Option<Cut> {
        if let Some(flight) = self.again.pop_front() {
            // Its rows are counted already.
            return Some(self.launch(flight));
        }
        if self.groups.is_empty() {
            return None;
        }
        let has_to_wait = match self.in_flight.is_empty() && self.emptying.is_empty() {
            true => vec![false; self.groups.len()],
            false if planted::QUEUE_REORDERS.on() => vec![false; self.groups.len()],
            false => self.component(self.in_flight.keys().cloned(), &self.emptying),
        };
        let mut groups = Vec::new();
        let mut rest = VecDeque::new();
        for (group, waits) in std::mem::take(&mut self.groups).into_iter().zip(has_to_wait) {
            if waits { rest.push_back(group) } else { groups.push(group) }
        }
        self.groups = rest;
        self.count_emptying();
        if groups.is_empty() {
            return None;
        }
        let mut write = Write::default();
        for group in &groups {
            for &db in &group.emptied {
                if !write.emptied.contains(&db) {
                    write.emptied.push(db);
                }
            }
            for key in group.keys() {
                if planted::COALESCED_ACROSS_EXEC.on() && write.rows.len() == 1 {
                    break;
                }
                let Some(waiting) = self.take_waiting(key) else { continue };
                write.rows.extend(row(key, waiting.before, value(key)));
            }
        }
        if planted::COALESCED_ACROSS_EXEC.on() && !self.waiting.is_empty() {
            let touched = self.waiting.keys().cloned().collect();
            self.groups.push_front(Group { id: GroupId::MAX, touched, ..Group::default() });
        }
        Some(self.take_off(groups, write))
    }

    /// Launches a flight of rows that no flight had before.
    fn take_off(&mut self, groups: Vec<Group>, mut write: Write) -> Cut {
        // In the order of the keys: neighbours share a leaf, and the order does not depend on a hash table.
        write.rows.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        for row in &write.rows {
            *self.unstored.entry(row.key.db).or_default() += change(row);
        }
        let bytes = |row: &Row| row.value.as_ref().map_or(0, |value| value.rdb.len()) + row.key.name.len();
        let bytes = write.rows.iter().map(|row| bytes(row) as u64).sum();
        self.launch(Flight { groups, write, bytes })
    }

    fn launch(&mut self, mut flight: Flight) -> Cut {
        let is_logged = flight.groups.iter().all(|group| group.logged.is_some());
        let id = self.next_flight;
        self.next_flight += 1;
        for row in &flight.write.rows {
            self.in_flight.insert(row.key.clone(), id);
        }
        self.emptying.extend(&flight.write.emptied);
        let write = if is_logged { flight.give_values() } else { flight.write.clone() };
        self.flights.insert(id, flight);
        Cut { id, write }
    }

    /// Ends a flight. Unknown numbers say nothing, so that a completion may come twice.
    pub fn land(&mut self, id: FlightId, outcome: Outcome) -> Landed {
        let Some(flight) = self.flights.remove(&id) else { return Landed::default() };
        for row in &flight.write.rows {
            *self.unstored.entry(row.key.db).or_default() -= change(row);
            if self.in_flight.get(&row.key) == Some(&id) {
                self.in_flight.remove(&row.key);
            }
        }
        for db in &flight.write.emptied {
            self.emptying.remove(db);
        }
        match outcome {
            Outcome::Written => {
                let rows = flight.write.rows.into_iter();
                let clean = rows.map(|row| row.key).filter(|key| !self.waiting.contains_key(key)).collect();
                let written = flight.groups.iter().map(|group| group.id).collect();
                Landed { written, clean, ..Landed::default() }
            }
            Outcome::NotWritten(error) => match divide(flight) {
                Ok(parts) => {
                    for part in &parts {
                        for row in &part.write.rows {
                            *self.unstored.entry(row.key.db).or_default() += change(row);
                            // No later change of these keys may pass them.
                            self.in_flight.insert(row.key.clone(), FlightId::MAX);
                        }
                    }
                    self.again.extend(parts);
                    Landed::default()
                }
                Err(flight) => self.fail(flight, error, false),
            },
            Outcome::Unknown(error) => self.fail(flight, error, true),
        }
    }

    fn fail(&mut self, flight: Flight, error: StorageError, is_unknown: bool) -> Landed {
        let mut lost: HashSet<Key> = flight.write.rows.iter().map(|row| row.key.clone()).collect();
        let mut failed: Vec<GroupId> = flight.groups.iter().map(|group| group.id).collect();
        let emptied = flight.write.emptied.iter().copied().collect();
        let rest_on_it = self.component(lost.iter().cloned(), &emptied);
        let mut rest = VecDeque::new();
        for (group, is_failed) in std::mem::take(&mut self.groups).into_iter().zip(rest_on_it) {
            if !is_failed {
                rest.push_back(group);
                continue;
            }
            failed.push(group.id);
            for db in group.emptied {
                // Memory has forgotten what other flights are writing there.
                lost.extend(self.in_flight.keys().filter(|key| key.db == db).cloned());
            }
            for key in group.touched {
                if self.take_waiting(&key).is_some() {
                    lost.insert(key);
                }
            }
        }
        self.groups = rest;
        self.count_emptying();
        if planted::FAILED_ENTRY_KEPT.on() {
            lost.clear();
        }
        let mut lost: Vec<Key> = lost.into_iter().collect();
        lost.sort();
        let mut restored = Vec::new();
        lost.retain(|key| {
            let row = self.row_in_flight(key);
            restored.extend(row.map(|row| (key.clone(), row.value.clone())));
            row.is_none()
        });
        Landed { failed, lost, restored, error: Some(error), is_unknown, ..Landed::default() }
    }

    /// # Panics
    /// If an invariant of the header does not hold.
    pub fn check_invariants(&self) {
        assert_eq!(self.waiting_bytes, self.waiting.values().map(|waiting| waiting.bytes).sum::<u64>());
        let touched: HashSet<&Key> = self.groups.iter().flat_map(Group::keys).collect();
        let mut counts = BTreeMap::new();
        self.waiting
            .iter()
            .for_each(|(key, waiting)| *counts.entry(key.db).or_default() += waiting.change(key));
        assert!(self.waiting_counts.iter().all(|(db, count)| counts.get(db).copied().unwrap_or(0) == *count));
        assert!(self.waiting.keys().all(|key| touched.contains(key)), "a change waits without a group");
        let rows = self.flights.values().map(|flight| flight.write.rows.len()).sum::<usize>();
        let again = self.again.iter().map(|flight| flight.write.rows.len()).sum::<usize>();
        assert_eq!(self.in_flight.len(), rows + again, "a key is in two flights");
    }
}

/// The row of a change. What came and went between two cuts was never stored, and has none.
fn row(key: &Key, before: Before, value: Option<Stored>) -> Option<Row> {
    let Before { existed, expires_ms } = before;
    (existed || value.is_some()).then(|| Row { key: key.clone(), value, existed, expired_ms: expires_ms })
}

/// By how much a row changes the count of its database.
fn change(row: &Row) -> i64 {
    if row.key.is_whole() { i64::from(row.value.is_some()) - i64::from(row.existed) } else { 0 }
}

/// Divides a flight into its components; gives it back if it is one.
fn divide(flight: Flight) -> Result<Vec<Flight>, Flight> {
    if !flight.write.emptied.is_empty() || flight.groups.len() < 2 {
        return Err(flight);
    }
    // The component of each key, as the smallest index of a group in it.
    let mut owner: Vec<usize> = (0..flight.groups.len()).collect();
    let mut of_key: HashMap<&Key, usize> = HashMap::new();
    fn root(owner: &[usize], mut at: usize) -> usize {
        while owner[at] != at {
            at = owner[at];
        }
        at
    }
    for (index, group) in flight.groups.iter().enumerate() {
        for key in &group.touched {
            let other = *of_key.entry(key).or_insert(index);
            let (one, other) = (root(&owner, index), root(&owner, other));
            owner[one.max(other)] = one.min(other);
        }
    }
    let roots: Vec<usize> = (0..owner.len()).map(|at| root(&owner, at)).collect();
    let part_of_key: HashMap<Key, usize> =
        of_key.into_iter().map(|(key, group)| (key.clone(), roots[group])).collect();
    if roots.iter().all(|at| *at == roots[0]) {
        return Err(flight);
    }
    let mut parts: BTreeMap<usize, Flight> = BTreeMap::new();
    let empty = || Flight { groups: Vec::new(), write: Write::default(), bytes: 0 };
    for (group, root) in flight.groups.into_iter().zip(roots) {
        parts.entry(root).or_insert_with(empty).groups.push(group);
    }
    for row in flight.write.rows {
        let root = part_of_key.get(&row.key).copied().unwrap_or_default();
        parts.entry(root).or_insert_with(empty).write.rows.push(row);
    }
    Ok(parts.into_values().collect())
}

#[cfg(test)]
mod tests;
