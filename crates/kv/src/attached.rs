//! The storage tier attached to the databases: what the server does before a command, after it and at the end of a turn, so that changes are durable and
//! keys that are not in memory are found. Without a storage tier none of this runs. The policies are `tiering`'s; here they meet values and clients.
//!
//! 1. Before a command (`Core::prepare`): each of its keys is in memory, on its way to storage, known to be absent, or read first. A client whose keys are
//!    being read is parked; its later commands wait behind it.
//! 2. After a command, transaction or script (`Core::finish`): what it touched and changed is one group of the queue. Its reply, and all later replies of the
//!    client, are held until the group is stored. A read of a key that is not stored yet is such a group too.
//! 3. At the end of a turn (`Core::write_changes`): all groups that can be written are one write (write-through).
//!    With write-back they are a record of its log instead, and are written later (`write_back`).
//! 4. Completions come from other threads through the [`Mailbox`], which wakes the event loop.
//!
//! Eviction takes clean values out of memory (`dispatch::evict`). Keys that a parked or blocked client was told of are pinned ([`Tier::pin`]), so that a key
//! that was found absent stays so until a write fails: a later change of the key happens in memory and stays there. Failed writes are counted
//! ([`Tier::losses`]), and what was found absent before counts no more.
//!
//! Here is the state. What runs on it is in `dispatch`: `reads` (1), `writes` (2 and 3), `evict`, `scan` (`SCAN`, `KEYS` and `RANDOMKEY` over storage and memory).

pub mod large;
pub mod touched;
pub mod write_back;

use crate::client::ClientId;
use crate::keyspace::Databases;
use crate::planted;
use crate::storage::{
    Elements, Key, Name, Outcome, Part, Position, Scanned, ScannedKey, Storage, StorageError, Stored,
};
use crate::tiering::fetch::{FetchId, Fetches, Limits};
use crate::tiering::filter::{Filter, PARTS, Says};
use crate::tiering::queue::{Before, FlightId, GroupId, Queue};
use crate::value::Value;
use hashbrown::{HashMap, HashSet};
use large::{Asker, Collections};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What storage has completed.
pub enum Event {
    Fetched {
        id: FetchId,
        key: Key,
        read: Result<Option<Stored>, StorageError>,
    },
    Wrote {
        id: FlightId,
        outcome: Outcome,
    },
    Scanned {
        client: ClientId,
        piece: Result<Scanned, StorageError>,
    },
    /// A piece of a large collection.
    Elements {
        asker: Asker,
        generation: u64,
        piece: Result<Elements, StorageError>,
    },
    Expired(Result<Vec<Key>, StorageError>),
    /// A piece of the walk that builds a part of the filter.
    Walked(Result<Scanned, StorageError>),
    /// The write-back log is durable up to a record.
    Synced(Result<u64, StorageError>),
    /// A key of a write was read whose outcome is not known.
    Settled {
        key: Key,
        read: Result<Option<Stored>, StorageError>,
    },
}

/// Where completions leave their results. At most one for each read, write and scan in flight.
#[derive(Default)]
pub struct Mailbox {
    events: Mutex<Vec<Event>>,
    waker: Mutex<Option<Arc<mio::Waker>>>,
}

impl Mailbox {
    pub fn send(&self, event: Event) {
        let mut events = self.events.lock();
        events.push(event);
        if events.len() == 1
            && let Some(waker) = &*self.waker.lock()
        {
            // The loop looks at the mailbox in each of its ticks: a wake-up that fails delays it.
            let _ = waker.wake();
        }
    }

    pub fn set_waker(&self, waker: Arc<mio::Waker>) {
        *self.waker.lock() = Some(waker);
    }

    pub fn is_empty(&self) -> bool {
        self.events.lock().is_empty()
    }

    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock())
    }
}

/// What a parked client has learnt about its keys.
#[derive(Default)]
pub(crate) struct Wait {
    pub(crate) absent: HashSet<Key>,
    /// The keys of the command, pinned.
    pub(crate) keys: Vec<Key>,
    pub(crate) losses: u64,
    /// Keys, or elements of large collections, that are being read for it.
    pub(crate) unread: usize,
    pub(crate) error: Option<StorageError>,
}

/// A walk of a client over the keys of a database.
pub(crate) struct Scan {
    pub(crate) db: u16,
    /// As [`Storage::is_ordered`].
    pub(crate) is_ordered: bool,
    /// Whether types are asked for.
    pub(crate) has_types: bool,
    pub(crate) from: Position,
    pub(crate) limit: usize,
    /// Whether the walk goes on to the end of the database.
    pub(crate) is_whole: bool,
    /// Whether it begins again at the start of the database if it finds nothing.
    pub(crate) wraps: bool,
    pub(crate) found: Vec<ScannedKey>,
    /// Keys on their way to storage when it was asked. They are pinned: one that memory does not have later was deleted, whatever storage has found.
    pub(crate) held: Vec<Key>,
    /// The same of all keys: the database was being emptied.
    pub(crate) was_emptying: bool,
    /// Those of them that belong to the piece; `None`: those in its range of positions.
    pub(crate) shown: Option<Vec<Key>>,
    /// [`Tier::losses`] when it was asked: memory forgets keys whose writes fail.
    pub(crate) losses: u64,
    /// As a cursor.
    pub(crate) next: Option<Position>,
    pub(crate) result: Option<Result<(), StorageError>>,
}

/// Parts of the filter that are being built: one, or all that are due if storage has an order of its own.
pub(crate) struct Rebuild {
    pub(crate) parts: Vec<usize>,
    /// The positions that are walked.
    pub(crate) range: (Position, Position),
    /// Databases that are to be walked, the present one last.
    pub(crate) databases: Vec<u16>,
    pub(crate) from: Position,
    /// Whether storage walks.
    pub(crate) is_asked: bool,
}

/// Memory of the filter of absent keys at most, and the number of keys that it is made for while nothing is stored.
const FILTER_BYTES_MAX: u64 = 64 << 20;
const FILTER_KEYS: u64 = 1 << 20;

/// What a write in flight changes about the counts when it has landed.
pub(crate) struct Counted {
    pub(crate) emptied: Vec<u16>,
    pub(crate) added: BTreeMap<u16, i64>,
    /// Whether its changes are in the write-back log.
    pub(crate) is_logged: bool,
}

/// Counters of `INFO tiering`.
#[derive(Default)]
pub struct Counters {
    /// Keys that commands found in memory, or on their way to storage.
    pub resident: u64,
    pub fetched: u64,
    /// Fetches that found nothing.
    pub absent: u64,
    /// Absent keys that the filter knew of.
    pub filtered: u64,
    pub groups: u64,
    pub writes: u64,
    pub rows: u64,
    /// Bytes of the names and values of those rows.
    pub row_bytes: u64,
    pub failed_groups: u64,
    /// Keys that groups changed: several changes of a key may become one row.
    pub changes: u64,
    /// Keys that storage was asked for, and calls that asked.
    pub reads: u64,
    pub read_calls: u64,
}

/// What memory knew better than storage when the save began.
#[derive(Default)]
pub struct Overlay {
    /// Databases that were being emptied: storage's rows of them are old.
    pub emptied: HashSet<u16>,
    /// Keys on their way to storage; `None`: deleted.
    pub keys: HashMap<Key, Option<Stored>>,
    /// Elements of large collections on their way to storage, by generation.
    pub elements: HashMap<u64, Vec<(Name, Option<Stored>)>>,
}

/// A key that memory has, and when it expires as storage keeps it.
pub fn resident<'a>(dbs: &'a Databases, key: &Key) -> Option<(&'a Value, Option<u64>)> {
    let (value, at_ms) = dbs.all.get(usize::from(key.db))?.resident(&key.name)?;
    Some((value, at_ms.map(|at_ms| at_ms.max(0) as u64)))
}

/// What storage keeps of a key that memory has.
pub fn stored_form(dbs: &Databases, collections: &Collections, key: &Key) -> Option<Stored> {
    match key.part {
        Part::Whole => {
            let (value, expires_ms) = resident(dbs, key)?;
            Some(Stored { expires_ms, rdb: value.head().map_or_else(|| value.to_rdb(), |head| head.bytes()) })
        }
        Part::Element(generation) => {
            let (value, _) = resident(dbs, collections.name(generation)?)?;
            value.large().filter(|large| large.generation == generation)?;
            let element = value.element(&key.name)?;
            let expires_ms = element.expires_ms.map(|at_ms| at_ms.max(0) as u64);
            Some(Stored { expires_ms, rdb: element.value })
        }
        Part::Gone(_) => Some(Stored::default()),
    }
}

/// What storage will have of a key before the present group changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Noted {
    pub before: Before,
    /// The generation of a large collection.
    pub generation: Option<u64>,
}

pub struct Tier {
    pub storage: Arc<dyn Storage>,
    pub mailbox: Arc<Mailbox>,
    pub queue: Queue,
    pub counters: Counters,
    pub filter: Filter,
    pub collections: Collections,
    /// Write-back, if there is a place for its log.
    pub back: Option<write_back::WriteBack>,
    pub(crate) rebuild: Option<Rebuild>,
    /// Parts of the filter that are known if this write empties storage.
    pub(crate) emptied_parts: Option<(FlightId, Vec<usize>)>,
    /// Parts of the filter that are to be built.
    pub(crate) to_build: VecDeque<usize>,
    /// How often storage was asked for absent keys of each part.
    pub(crate) asked_absent: Box<[u8]>,
    pub(crate) fetches: Fetches,
    pub(crate) waits: HashMap<ClientId, Wait>,
    pub(crate) scans: HashMap<ClientId, Scan>,
    /// Clients that are parked and may go on.
    pub(crate) resume: Vec<ClientId>,
    /// Whose replies wait for a group.
    pub(crate) holders: HashMap<GroupId, Vec<ClientId>>,
    pub(crate) flights: HashMap<FlightId, Counted>,
    /// Keys that each database has in storage, by the writes that have landed.
    pub(crate) stored: BTreeMap<u16, u64>,
    /// Values that memory lost as their writes failed.
    pub(crate) losses: u64,
    /// The keys of the present group.
    pub(crate) touched: touched::Touched,
    pub(crate) changed: Vec<Key>,
    pub(crate) emptied: Vec<u16>,
    /// Clients that waited for a key and are served by the present group, with the length of their output before.
    pub served: Vec<(ClientId, usize)>,
    /// Keys that stay in memory, or whose absence is relied on, by how often.
    pub(crate) pins: HashMap<Key, u32>,
    /// Clients whose commands wait until memory has room.
    pub(crate) stalled: Vec<ClientId>,
    /// Clients whose `SWAPDB` waits until everything is stored.
    pub(crate) swaps: Vec<ClientId>,
    /// Storage has said how many keys it has, and no write is issued until those in flight have landed.
    pub(crate) wants_counts: bool,
    /// Since when changes wait, Unix time in milliseconds.
    pub(crate) dirty_since_ms: Option<i64>,
    /// When storage was asked for expired keys.
    pub(crate) expired_asked_ms: u64,
    pub(crate) is_asking_expired: bool,
}

impl Tier {
    pub fn new(storage: Arc<dyn Storage>, databases: u16) -> Tier {
        let stored: BTreeMap<u16, u64> = (0..databases).map(|db| (db, storage.count(db))).collect();
        let mut filter = Filter::new(FILTER_BYTES_MAX);
        if stored.values().all(|keys| *keys == 0) {
            while let Some(part) = filter.begin_rebuild(FILTER_KEYS) {
                filter.end_rebuild(part, true);
            }
        }
        Tier {
            filter,
            collections: Collections::new(storage.next_generation()),
            back: None,
            rebuild: None,
            emptied_parts: None,
            to_build: VecDeque::new(),
            asked_absent: vec![0; PARTS].into(),
            storage,
            mailbox: Arc::default(),
            queue: Queue::new(),
            counters: Counters::default(),
            fetches: Fetches::new(Limits::default()),
            waits: HashMap::new(),
            scans: HashMap::new(),
            resume: Vec::new(),
            holders: HashMap::new(),
            flights: HashMap::new(),
            stored,
            losses: 0,
            touched: Default::default(),
            changed: Vec::new(),
            emptied: Vec::new(),
            served: Vec::new(),
            pins: HashMap::new(),
            stalled: Vec::new(),
            swaps: Vec::new(),
            wants_counts: false,
            dirty_since_ms: None,
            expired_asked_ms: 0,
            is_asking_expired: false,
        }
    }

    /// Keys of a database, wherever they are.
    pub fn count(&self, db: u16) -> u64 {
        self.queue.count(db, self.stored.get(&db).copied().unwrap_or_default())
    }

    /// Takes over what storage has said of its keys, if it deletes some by itself, once nothing is being written: then it is what the landed writes left.
    pub(crate) fn take_counts(&mut self) {
        self.wants_counts = self.storage.expires_by_itself() && self.queue.flights() > 0;
        if self.storage.expires_by_itself() && !self.wants_counts {
            let storage = &self.storage;
            self.stored.iter_mut().for_each(|(db, stored)| *stored = storage.count(*db));
        }
    }

    /// Whether everything that was changed is stored.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty()
            && self.mailbox.is_empty()
            && self.back.as_ref().is_none_or(|back| back.promises.is_kept())
    }

    /// Whether nothing is on its way to storage and no walk goes on, so that databases can be exchanged.
    pub(crate) fn may_swap(&self) -> bool {
        let is_stored =
            self.queue.is_empty() && self.back.as_ref().is_none_or(|back| back.promises.is_kept());
        (is_stored || planted::SWAPPED_WHILE_DIRTY.on()) && self.scans.is_empty() && self.rebuild.is_none()
    }

    /// Exchanges two databases in storage, and what is known of storage. Those that wait for its keys look again.
    pub(crate) fn swap(&mut self, first: u16, second: u16) -> Result<(), StorageError> {
        debug_assert!(self.may_swap(), "everything is stored");
        let log_position = self.back.as_ref().map(|back| back.promises.last());
        self.storage.swap(first, second, log_position)?;
        let stored = |db| self.stored.get(&db).copied().unwrap_or_default();
        let (one, other) = (stored(first), stored(second));
        self.stored.extend([(first, other), (second, one)]);
        for db in [first, second] {
            self.resume.extend(self.fetches.supersede_database(db));
        }
        self.collections.swap_databases(first, second);
        self.filter.forget();
        self.to_build.clear();
        // What was found absent counts no more.
        self.losses += 1;
        Ok(())
    }

    /// What memory knows better than storage does now.
    pub fn overlay(&self, dbs: &Databases) -> Overlay {
        let mut overlay = Overlay::default();
        overlay.emptied.extend((0..dbs.all.len() as u16).filter(|&db| self.queue.is_emptying(db)));
        for key in self.queue.held() {
            let value = stored_form(dbs, &self.collections, key);
            match key.part {
                Part::Whole => _ = overlay.keys.insert(key.clone(), value),
                Part::Element(generation) => {
                    overlay.elements.entry(generation).or_default().push((key.name.clone(), value));
                }
                Part::Gone(_) => {}
            }
        }
        overlay
    }

    /// Keys that are being read or wait for it.
    pub fn wanted(&self) -> usize {
        self.fetches.wanted()
    }

    /// How many values memory has lost as their writes failed.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// A client is gone.
    pub fn forget(&mut self, client: ClientId) {
        self.fetches.forget(client);
        self.collections.forget_client(client);
        self.end_element_walk(client);
        self.end_wait(client);
        self.end_scan(client);
    }

    /// Keeps keys in memory until [`Tier::unpin`].
    pub fn pin(&mut self, keys: &[Key]) {
        for key in keys {
            *self.pins.entry(key.clone()).or_default() += 1;
        }
    }

    pub fn unpin(&mut self, keys: &[Key]) {
        for key in keys {
            if let Some(count) = self.pins.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.pins.remove(key);
                }
            }
        }
    }

    /// Ends the wait of a parked client.
    pub(crate) fn end_wait(&mut self, client: ClientId) -> Option<Wait> {
        if self.waits.is_empty() {
            return None;
        }
        let wait = self.waits.remove(&client)?;
        self.unpin(&wait.keys);
        Some(wait)
    }

    pub(crate) fn end_scan(&mut self, client: ClientId) -> Option<Scan> {
        let scan = self.scans.remove(&client)?;
        self.unpin(&scan.held);
        Some(scan)
    }

    /// How long the oldest change waits, in milliseconds.
    pub fn dirty_ms(&self, now_ms: i64) -> i64 {
        let since = self.queue.oldest().map(|oldest| oldest.ms).or(self.dirty_since_ms);
        since.map_or(0, |since| (now_ms - since).max(0))
    }
}

/// A script names a key that it did not declare, and memory does not say what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyNotInMemory;

impl Tier {
    /// Whether memory alone says what a key is.
    pub(crate) fn knows(&self, dbs: &Databases, key: &Key) -> bool {
        // A database that does not exist is the handler's to refuse.
        let Some(db) = dbs.all.get(usize::from(key.db)) else { return true };
        db.resident(&key.name).is_some() || self.queue.holds(key)
    }

    /// Tells the filter of a write that is issued.
    pub(crate) fn note_filter(&mut self, id: FlightId, write: &crate::storage::Write) {
        if !write.emptied.is_empty() {
            self.filter.emptied();
            // With no other write in flight, storage has the rows of this one and nothing else when it has landed.
            let is_alone = self.flights.keys().all(|flight| *flight == id) && self.emptied_parts.is_none();
            if is_alone && self.stored.iter().all(|(db, keys)| *keys == 0 || write.emptied.contains(db)) {
                self.emptied_parts = Some((id, self.filter.begin_empty(FILTER_KEYS)));
            }
        }
        for row in write.rows.iter().filter(|row| row.key.is_whole()) {
            let position = Position::of(&row.key.name);
            match row.value {
                Some(_) => self.filter.insert(row.key.db, position),
                None => self.filter.deleted(position),
            }
        }
    }

    /// A write has landed: whether storage has lost all keys that it had before, if that was the write.
    pub(crate) fn end_emptied(&mut self, id: FlightId, is_written: bool) {
        if let Some((_, parts)) = self.emptied_parts.take_if(|(flight, _)| *flight == id) {
            parts.into_iter().for_each(|part| self.filter.end_rebuild(part, is_written));
        }
    }

    /// Whether storage cannot have a key.
    pub(crate) fn is_filtered(&self, key: &Key) -> bool {
        self.filter.says(key.db, Position::of(&key.name)) == Says::Absent
    }

    /// Notes a key, as [`Tier::note`] does, if memory has it whole; returns whether it has. A large collection is looked at first.
    pub(crate) fn note_resident(&mut self, dbs: &Databases, key: &Key) -> bool {
        let found = resident(dbs, key).filter(|(value, _)| value.large().is_none());
        let Some((_, expires_ms)) = found else { return false };
        if !self.touched.contains(key) {
            let before = Before { existed: true, expires_ms };
            self.touched.add(key.clone(), Noted { before, generation: None });
        }
        true
    }

    /// Notes what storage will have of a key before the present group changes it.
    pub(crate) fn note(&mut self, dbs: &Databases, key: &Key) {
        if self.touched.contains(key) {
            return;
        }
        let entry = dbs.all.get(usize::from(key.db)).and_then(|db| db.resident(&key.name));
        let expires_ms = entry.and_then(|(_, at_ms)| at_ms).map(|at_ms| at_ms.max(0) as u64);
        let generation = entry.and_then(|(value, _)| value.large()).map(|large| large.generation);
        let before = Before { existed: entry.is_some(), expires_ms };
        self.touched.add(key.clone(), Noted { before, generation });
    }

    /// Notes the keys of a command that a script runs. The script's own keys are noted before it; another one has to be in memory, and all of it.
    pub fn note_nested(&mut self, dbs: &Databases, keys: &[Key]) -> Result<(), KeyNotInMemory> {
        let is_in_part = |key: &Key| {
            let entry = dbs.all.get(usize::from(key.db)).and_then(|db| db.resident(&key.name));
            entry.and_then(|(value, _)| value.large()).is_some_and(|large| !large.is_complete())
        };
        for key in keys {
            let is_known = || (self.knows(dbs, key) && !is_in_part(key)) || self.is_filtered(key);
            if !self.touched.contains(key) && !is_known() {
                return Err(KeyNotInMemory);
            }
            self.note(dbs, key);
        }
        Ok(())
    }
}
