//! Large collections: making known what a command needs of them, and what a group changed of them.
//!
//! 1. Before a command, when its keys are in memory (`Core::prepare_large`): elements that it names and that are not known are fetched as keys are. If it needs all
//!    elements, they are read a piece at a time; `HSCAN` reads one piece. The client is parked meanwhile.
//! 2. When a group ends (`changes_of`): a collection that has grown large gets a generation; changed elements are changed keys of the group, with their
//!    head; a generation that no key has any more is gone, and that is a change of the group too.

use super::reads::{Prepared, error_text};
use crate::attached::large::{Asker, Collections, ElementWalk, Walked};
use crate::attached::touched::Touched;
use crate::attached::{Event, Tier, Wait};
use crate::client::{Client, ClientId};
use crate::command::needs::{self, Needs};
use crate::command::table::CommandMatch;
use crate::command::{Arg, CommandError, collections};
use crate::keyspace::Databases;
use crate::planted;
use crate::server::Core;
use crate::storage::{Elements, Key, Part, Position, StorageError, Stored};
use crate::tiering::fetch::{Urgency, Waiter};
use crate::tiering::queue::{Before, Changed};
use crate::value::Value;
use crate::value::large::ElementValue;
use crate::value::list::Missing;
use smallvec::SmallVec;
use std::collections::HashSet;

/// Elements that one read of a load returns.
const ELEMENTS_TOGETHER: usize = 1000;
/// The largest piece of one `HSCAN`.
const COUNT_MAX: usize = 10_000;
/// Elements that are evicted together.
const EVICTED_TOGETHER: usize = 32;
/// Memory of a changed element or head beside its name and value.
const CHANGE_BYTES: u64 = 64;

/// The large collection of a generation, in memory.
pub(super) fn collection<'d>(
    dbs: &'d mut Databases,
    collections: &Collections,
    generation: u64,
) -> Option<&'d mut Value> {
    let key = collections.name(generation)?;
    let value = dbs.get(key.db)?.resident_mut(&key.name)?;
    let is_it =
        value.large().is_some_and(|large| large.generation == generation || planted::GENERATION_IGNORED.on());
    is_it.then_some(value)
}

/// An element as a collection takes it.
pub(super) fn element_value(stored: &Stored) -> ElementValue {
    let of = |at_ms| i64::try_from(at_ms).unwrap_or(i64::MAX);
    ElementValue { expires_ms: stored.expires_ms.map(of), value: stored.rdb.clone() }
}

/// What is unknown that a command needs.
#[derive(Default)]
struct Unknown {
    elements: Vec<Key>,
    /// Rows in memory that are needed with them.
    known: Vec<Key>,
    /// Collections that are to be read whole.
    whole: Vec<u64>,
    walk: Option<u64>,
}

impl Unknown {
    fn is_empty(&self) -> bool {
        self.elements.is_empty() && self.whole.is_empty() && self.walk.is_none()
    }
}

impl Core {
    /// Makes known what a command needs of the large collections of its keys, which are known. `None` if it is.
    pub(super) fn prepare_large(
        &mut self,
        client: &mut Client,
        found: CommandMatch,
        args: &[Arg<'_>],
        keys: &[Key],
        by_patterns: &[(Key, Needs)],
        urgency: Urgency,
        wait: Option<Wait>,
    ) -> Option<Prepared> {
        let tier = self.server.tier.as_ref()?;
        let is_range = needs::is_range(found);
        let is_concerned = |key: &Key| {
            let value = self.dbs.all.get(usize::from(key.db)).and_then(|db| db.resident(&key.name));
            value.and_then(|(value, _)| value.large()).is_some_and(|large| is_range || !large.is_complete())
        };
        if tier.collections.is_empty() || !keys.iter().any(is_concerned) {
            return None;
        }
        let mut needs = needs::of_command(client, found, args);
        needs.extend_from_slice(by_patterns);
        // A client that waits for the new name is served at once, and may need anything of it.
        let serves =
            |key: &Key| self.server.waiting.contains_key(&(key.db, crate::keyspace::Key::new(&key.name)));
        if needs::renames(found) && keys.iter().any(serves) {
            needs.iter_mut().for_each(|(_, needs)| *needs = Needs::Whole);
        }
        let unknown = self.unknown(client.id, &needs);
        if unknown.is_empty() {
            return None;
        }
        client.was_cold = true;
        let (id, now_ms) = (client.id, self.dbs.all[0].now_ms.max(0) as u64);
        let tier = self.server.tier.as_deref_mut()?;
        let mut wait = wait.unwrap_or(Wait { losses: tier.losses, ..Wait::default() });
        wait.unread = unknown.elements.len();
        wait.keys = keys.iter().chain(&unknown.elements).chain(&unknown.known).cloned().collect();
        tier.pin(&wait.keys);
        tier.waits.insert(id, wait);
        for element in &unknown.elements {
            tier.fetches.want(element, id, urgency, now_ms);
        }
        let begun: Vec<(u64, u64)> = unknown
            .whole
            .iter()
            .filter_map(|&generation| Some((generation, tier.collections.want_all(generation, id)?)))
            .collect();
        for (generation, load) in begun {
            self.ask_elements(Asker::Load(load), generation, Position::default(), ELEMENTS_TOGETHER);
        }
        if let Some(generation) = unknown.walk
            && let Err(error) = self.begin_walk(client, args, generation)
        {
            self.server.tier.as_deref_mut()?.end_wait(id);
            return Some(Prepared::Refused(error));
        }
        self.begin_reads();
        let rest = self.unknown(id, &needs);
        let tier = self.server.tier.as_deref_mut()?;
        let error = tier.waits.get_mut(&id).and_then(|wait| wait.error.take());
        if rest.is_empty() || error.is_some() {
            tier.end_wait(id);
            tier.fetches.forget(id);
            return error.map(|error| Prepared::Refused(CommandError::Text(error_text(&error).into())));
        }
        Some(self.park(client, args))
    }

    fn unknown(&self, client: ClientId, needs: &[(Key, Needs)]) -> Unknown {
        let mut unknown = Unknown::default();
        let mut named: HashSet<Key> = HashSet::new();
        let Some(tier) = &self.server.tier else { return unknown };
        for (key, needs) in needs {
            let Some(db) = self.dbs.all.get(usize::from(key.db)) else { continue };
            let Some((value, at_ms)) = db.resident(&key.name) else { continue };
            let Some(large) = value.large() else { continue };
            // A key that has expired is deleted before the command looks at it.
            if at_ms.is_some_and(|at_ms| at_ms <= db.now_ms) {
                continue;
            }
            let mut load = || {
                if !large.is_complete() && !unknown.whole.contains(&large.generation) {
                    unknown.whole.push(large.generation);
                }
            };
            match needs {
                Needs::Head => {}
                Needs::Whole => load(),
                Needs::List(part) => {
                    let Value::List(list) = value else { continue };
                    let of = |name: [u8; 8]| Key::element(key.db, large.generation, &name);
                    match list.missing(part) {
                        Missing::Nothing => {}
                        Missing::Whole => load(),
                        Missing::Packs { to_read, known } => {
                            unknown.known.extend(known.into_iter().map(of));
                            let new = to_read.into_iter().map(of).filter(|key| named.insert(key.clone()));
                            unknown.elements.extend(new);
                        }
                    }
                }
                // The command refuses it.
                Needs::Elements(_) if matches!(value, Value::List(_)) => {}
                // Fields that are not in memory may have expired.
                Needs::Elements(_) if large.later_ms().is_some_and(|at_ms| at_ms <= db.now_ms) => load(),
                Needs::Elements(names) => {
                    for name in names {
                        if value.has_element(name) || large.knows_absent(name) {
                            continue;
                        }
                        let element = Key::element(key.db, large.generation, name);
                        if named.insert(element.clone()) {
                            unknown.elements.push(element);
                        }
                    }
                }
                Needs::Range => {
                    let walk = tier.collections.walks.get(&client);
                    let has_piece =
                        walk.is_some_and(|walk| walk.piece.is_some() && walk.generation == large.generation);
                    if !has_piece {
                        unknown.walk = Some(large.generation);
                    }
                }
            }
        }
        unknown
    }

    fn ask_elements(&mut self, asker: Asker, generation: u64, from: Position, limit: usize) {
        let Some(tier) = &mut self.server.tier else { return };
        let mailbox = tier.mailbox.clone();
        let done = Box::new(move |piece| mailbox.send(Event::Elements { asker, generation, piece }));
        tier.storage.elements(generation, from, limit, done);
    }

    /// Reads a piece for a client's `HSCAN`.
    fn begin_walk(&mut self, client: &Client, args: &[Arg<'_>], generation: u64) -> Result<(), CommandError> {
        let scan = collections::Scan::parse(args)?;
        let (from, limit) = (Position(scan.cursor), scan.count.min(COUNT_MAX));
        let Some(tier) = &mut self.server.tier else { return Ok(()) };
        tier.end_element_walk(client.id);
        let is_its = |key: &&Key| key.part == Part::Element(generation);
        let held: Vec<Key> = tier.queue.held().filter(is_its).cloned().collect();
        tier.pin(&held);
        tier.collections.walks.insert(client.id, ElementWalk { generation, from, held, piece: None });
        if from > Position::ELEMENT_MAX {
            let piece = Ok(Elements::default());
            tier.mailbox.send(Event::Elements { asker: Asker::Client(client.id), generation, piece });
            return Ok(());
        }
        self.ask_elements(Asker::Client(client.id), generation, from, limit);
        Ok(())
    }

    /// A piece of a collection has come.
    pub(super) fn elements_read(
        &mut self,
        asker: Asker,
        generation: u64,
        piece: Result<Elements, StorageError>,
    ) {
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        tier.collections.counters.ranged += piece.as_ref().map_or(0, |piece| piece.found.len() as u64);
        let id = match asker {
            Asker::Load(id) => id,
            Asker::Client(client) => {
                // The client may be gone.
                let Some(walk) = tier.collections.walks.get_mut(&client) else { return };
                if walk.generation == generation {
                    match piece {
                        Ok(piece) => walk.piece = Some(Ok(piece)),
                        Err(error) => {
                            tier.end_element_walk(client);
                            if let Some(wait) = tier.waits.get_mut(&client) {
                                wait.error = Some(error);
                            }
                        }
                    }
                    tier.resume.push(client);
                }
                return;
            }
        };
        if tier.collections.loads.get(&generation).is_none_or(|load| load.id != id) {
            return;
        }
        let mut value = collection(&mut self.dbs, &tier.collections, generation);
        let piece = piece.and_then(|piece| {
            if let Some(value) = &mut value {
                let mut found = piece.found.iter();
                found.try_for_each(|element| value.admit(&element.name, &element_value(&element.value)))?;
                if piece.next.is_none() {
                    value.end_load()?;
                }
            }
            Ok(piece)
        });
        let next = match (piece, value) {
            (Ok(piece), Some(_)) => piece.next,
            (Err(error), _) => {
                let load = tier.collections.loads.get(&generation);
                for client in load.into_iter().flat_map(|load| &load.waiters) {
                    if let Some(wait) = tier.waits.get_mut(client) {
                        wait.error = Some(error.clone());
                    }
                }
                None
            }
            (Ok(_), None) => None,
        };
        match next {
            Some(next) => self.ask_elements(Asker::Load(id), generation, next, ELEMENTS_TOGETHER),
            None => {
                let load = tier.collections.loads.remove(&generation);
                tier.resume.extend(load.into_iter().flat_map(|load| load.waiters));
            }
        }
    }

    /// The read of an element has ended.
    pub(super) fn element_fetched(
        &mut self,
        key: &Key,
        generation: u64,
        waiters: Vec<Waiter>,
        read: Result<Option<Stored>, StorageError>,
    ) {
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        tier.collections.counters.fetched += 1;
        // A collection that is gone: its waiters find what followed it.
        let value = collection(&mut self.dbs, &tier.collections, generation);
        let taken = match (read, value) {
            (Err(error), _) => Err(error),
            (Ok(_), None) => Ok(()),
            (Ok(Some(stored)), Some(value)) => {
                value.admit(&key.name, &element_value(&stored)).map_err(StorageError::from)
            }
            (Ok(None), Some(value)) => value.note_absent(&key.name).map_err(StorageError::from),
        };
        if let Err(error) = taken {
            for waiter in &waiters {
                if let Some(wait) = tier.waits.get_mut(waiter) {
                    wait.error = Some(error.clone());
                }
            }
        }
        // A client that waits for many goes on with the last of them, or with an error.
        for waiter in waiters {
            let wait = tier.waits.get_mut(&waiter);
            let goes_on = wait.is_none_or(|wait| {
                wait.unread = wait.unread.saturating_sub(1);
                wait.unread == 0 || wait.error.is_some()
            });
            if goes_on {
                tier.resume.push(waiter);
            }
        }
    }

    /// Takes elements of a large collection out of memory, and its head when no element is left. Returns whether anything went.
    pub(super) fn evict_of_large(&mut self, index: usize, sampled: &crate::keyspace::evict::Sampled) -> bool {
        let Some(tier) = self.server.tier.as_deref_mut() else { return false };
        let db = &mut self.dbs.all[index];
        let random = db.next_random();
        let key = Key::new(index as u16, &sampled.key);
        let Some(value) = db.resident_mut(&sampled.key) else { return false };
        let Some(generation) = value.large().map(|large| large.generation) else { return false };
        if tier.collections.loads.contains_key(&generation) {
            return false;
        }
        let (queue, pins) = (&tier.queue, &tier.pins);
        let may_evict = |name: &[u8]| {
            let element = Key::element(key.db, generation, name);
            queue.may_evict(&element) && !pins.contains_key(&element)
        };
        let evicted = value.evict_elements(random, EVICTED_TOGETHER, may_evict);
        tier.collections.counters.evicted += evicted as u64;
        let is_empty =
            value.elements_in_memory() == 0 && value.large().is_some_and(|large| large.absent_len() == 0);
        if is_empty && !tier.pins.contains_key(&key) && tier.queue.may_evict(&key) {
            let waiters = tier.collections.forget(generation);
            tier.resume.extend(waiters);
            db.evict(sampled);
            return true;
        }
        evicted > 0
    }
}

impl Tier {
    /// Ends a client's walk over a collection.
    pub(crate) fn end_element_walk(&mut self, client: ClientId) -> Option<Walked> {
        let walk = self.collections.walks.remove(&client)?;
        self.unpin(&walk.held);
        walk.end()
    }

    /// An element is stored as memory has it. That it is absent need not be kept, if the collection is complete.
    pub(crate) fn element_is_clean(&self, dbs: &mut Databases, key: &Key) {
        if let Part::Element(generation) = key.part
            && let Some(value) = collection(dbs, &self.collections, generation)
            && let Some(large) = value.large_mut()
            && large.is_complete()
        {
            large.forget_absent(&key.name);
        }
    }

    /// What a group changed: its keys, their elements, and the collections that are gone.
    pub(super) fn changes_of(
        &mut self,
        dbs: &mut Databases,
        changed: &mut Vec<Key>,
        touched: &Touched,
    ) -> SmallVec<[Changed; 1]> {
        let mut changes = SmallVec::with_capacity(changed.len());
        let mut alive: HashSet<u64> = HashSet::new();
        let mut dead: Vec<(u16, u64)> = Vec::new();
        for key in changed.drain(..) {
            let noted = touched.get(&key);
            debug_assert!(noted.is_some(), "a command changed {key:?}, which the table does not name");
            let noted = noted.unwrap_or_default();
            dead.extend(noted.generation.map(|generation| (key.db, generation)));
            let value = dbs.get(key.db).and_then(|db| db.resident_mut(&key.name));
            let Some(value) = value else {
                changes.push(Changed { key, before: noted.before, exists: false, bytes: 0 });
                continue;
            };
            if value.is_to_be_large()
                && let Some(generation) = self.collections.take_generation()
            {
                value.become_large(generation);
            }
            let Some(large) = value.large_mut() else {
                let bytes = (value.heap_bytes() + key.name.len()) as u64;
                changes.push(Changed { key, before: noted.before, exists: true, bytes });
                continue;
            };
            let (generation, elements) = (large.generation, large.take_changed());
            alive.insert(generation);
            self.collections.note(generation, &key);
            let db = key.db;
            if !planted::HEAD_NOT_WRITTEN.on() || noted.generation != Some(generation) {
                let bytes = key.name.len() as u64 + CHANGE_BYTES;
                changes.push(Changed { key, before: noted.before, exists: true, bytes });
            }
            for element in elements {
                let stored = value.element(&element.name);
                let bytes = element.name.len() + stored.as_ref().map_or(0, |stored| stored.value.len());
                changes.push(Changed {
                    key: Key::element(db, generation, &element.name),
                    before: Before { existed: element.existed, expires_ms: None },
                    exists: stored.is_some(),
                    bytes: bytes as u64 + CHANGE_BYTES,
                });
            }
        }
        dead.retain(|(_, generation)| !alive.contains(generation));
        for (db, generation) in dead {
            let waiters = self.collections.forget(generation);
            self.resume.extend(waiters);
            let (key, before) = (Key::gone(db, generation), Before::default());
            changes.push(Changed { key, before, exists: true, bytes: CHANGE_BYTES });
        }
        changes
    }
}
