//! Fetching the keys of commands.

use crate::attached::{Event, Wait};
use crate::client::Client;
use crate::command::table::CommandMatch;
use crate::command::{Arg, CommandError, sort, stored_keys as keys};
use crate::rdb::{Object, SliceSource};
use crate::server::{Core, Server};
use crate::storage::{Get, GetDone, Key, Part, StorageError, Stored};
use crate::tiering::fetch::{FetchId, Fetched, Urgency};
use crate::value::Value;
use crate::value::large::Head;
use std::collections::HashMap;
use std::sync::Arc;

/// Whether a command may run.
pub enum Prepared {
    Ready,
    /// Its client is parked.
    Parked,
    Refused(CommandError),
}

/// Waits for keys that have expired in storage: no client has this number.
const EXPIRY_WAITER: u64 = 0;
/// Time between two looks at storage for expired keys, and how many one look takes.
const EXPIRY_MS: u64 = 500;
const EXPIRED_TOGETHER: usize = 1000;

pub fn error_text(error: &StorageError) -> String {
    format!("ERR storage: {error}")
}

pub(super) fn value_of(server: &Server, stored: &Stored) -> Result<Value, StorageError> {
    if let Some(head) = Head::parse(&stored.rdb)? {
        return Ok(Value::of_head(&head));
    }
    let corrupt = |why: String| StorageError::Corrupt(format!("a stored value cannot be read: {why}"));
    let (kind, bytes) = stored.rdb.split_first().ok_or_else(|| corrupt("it is empty".into()))?;
    let mut source = SliceSource::new(bytes);
    let object = Object::read(&mut source, *kind).map_err(|error| corrupt(error.to_string()))?;
    Ok(Value::from_rdb(object, &server.collection_limits))
}

impl Core {
    /// Takes up what storage has completed.
    pub fn take_events(&mut self) {
        let Some(tier) = &self.server.tier else { return };
        for event in tier.mailbox.take() {
            match event {
                Event::Fetched { id, key, read } => self.fetched(id, &key, read),
                Event::Wrote { id, outcome } => self.landed(id, outcome),
                Event::Scanned { client, piece } => self.scanned(client, piece),
                Event::Elements { asker, generation, piece } => self.elements_read(asker, generation, piece),
                Event::Expired(keys) => self.expire_stored(keys),
                Event::Walked(piece) => self.filter_walked(piece),
                Event::Synced(synced) => self.log_synced(synced, self.durability()),
                Event::Settled { key, read } => self.settled(&key, read),
            }
        }
    }

    /// Lets parked clients go on whose keys are there; false if there was none.
    pub fn resume_parked(&mut self) -> bool {
        let Some(tier) = &mut self.server.tier else { return false };
        let resumed = std::mem::take(&mut tier.resume);
        let any = !resumed.is_empty();
        for id in resumed {
            let Some(mut client) = self.server.clients.take(id) else { continue };
            if let Some(args) = client.parked.take() {
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                self.execute(&mut client, &args);
                self.server.clients.touched.push(id);
            }
            self.server.clients.put_back(client);
        }
        any
    }

    /// Makes the keys of a command known, or parks its client until they are.
    pub fn prepare(&mut self, client: &mut Client, found: CommandMatch, args: &[Arg<'_>]) -> Prepared {
        // A fetch for an update waits for others; a read of the key begins it at once.
        let is_deferred = self.is_write_back() && super::pauses::may_write(client, found);
        let urgency = if is_deferred { Urgency::Deferred } else { Urgency::Now };
        let now_ms = self.dbs.all[0].now_ms.max(0) as u64;
        let Some(tier) = &mut self.server.tier else { return Prepared::Ready };
        let id = client.id;
        if keys::is_walker(found) {
            return match self.prepare_walk(client, found, args) {
                Ok(true) => Prepared::Ready,
                Ok(false) => self.park(client, args),
                Err(error) => Prepared::Refused(error),
            };
        }
        let mut keys = keys::of_command(client, found, args);
        if keys.is_empty() {
            return Prepared::Ready;
        }
        let mut by_patterns = sort::named_by_patterns(&self.dbs, client.db, found, args);
        by_patterns.retain(|(key, _)| !keys.contains(key));
        keys.extend(by_patterns.iter().map(|(key, _)| key.clone()));
        let losses = tier.losses;
        client.was_cold = !tier.waits.is_empty() && tier.waits.contains_key(&id);
        let mut wait = tier.end_wait(id).filter(|wait| wait.losses == losses || wait.error.is_some());
        if let Some(error) = wait.as_mut().and_then(|wait| wait.error.take()) {
            return Prepared::Refused(CommandError::Text(error_text(&error).into()));
        }
        // Most often there is one key, and memory has it: it is looked up once.
        if let [key] = &keys[..]
            && tier.note_resident(&self.dbs, key)
        {
            tier.counters.resident += 1;
            return Prepared::Ready;
        }
        let is_absent =
            |wait: &Option<Wait>, key: &Key| wait.as_ref().is_some_and(|wait| wait.absent.contains(key));
        let mut cold: Vec<&Key> = Vec::new();
        for key in &keys {
            if tier.knows(&self.dbs, key) {
                tier.counters.resident += 1;
            } else if tier.is_filtered(key) {
                tier.counters.filtered += 1;
            } else if !is_absent(&wait, key) {
                cold.push(key);
            }
        }
        if !cold.is_empty() {
            client.was_cold = true;
            for key in &cold {
                tier.fetches.want(key, id, urgency, now_ms);
            }
            let mut wait_now = wait.unwrap_or(Wait { losses, ..Wait::default() });
            wait_now.keys.clear();
            // It does not wait yet: answers that come at once let no client go on.
            wait_now.unread = usize::MAX;
            tier.waits.insert(id, wait_now);
            self.begin_reads();
            let Some(tier) = &mut self.server.tier else { return Prepared::Ready };
            wait = tier.waits.remove(&id);
            if let Some(error) = wait.as_mut().and_then(|wait| wait.error.take()) {
                tier.fetches.forget(id);
                return Prepared::Refused(CommandError::Text(error_text(&error).into()));
            }
            if cold.iter().any(|key| !tier.knows(&self.dbs, key) && !is_absent(&wait, key)) {
                if let Some(mut wait) = wait {
                    tier.pin(&keys);
                    wait.unread = cold.iter().filter(|key| tier.fetches.is_wanted(key)).count();
                    // All were read, but one is not here, as it had expired.
                    if wait.unread == 0 {
                        tier.resume.push(id);
                    }
                    wait.keys = keys.into_vec();
                    tier.waits.insert(id, wait);
                }
                return self.park(client, args);
            }
        }
        if let Some(prepared) = self.prepare_large(client, found, args, &keys, &by_patterns, urgency, wait) {
            return prepared;
        }
        // The sorted key was read just now: its elements name keys.
        if by_patterns.is_empty()
            && sort::named_by_patterns(&self.dbs, client.db, found, args)
                .iter()
                .any(|(key, _)| !keys.contains(key))
        {
            return self.prepare(client, found, args);
        }
        if let Some(tier) = &mut self.server.tier {
            keys.iter().for_each(|key| tier.note(&self.dbs, key));
        }
        Prepared::Ready
    }

    pub(super) fn park(&mut self, client: &mut Client, args: &[Arg<'_>]) -> Prepared {
        client.parked = Some(args.iter().map(|arg| arg.to_vec()).collect());
        Prepared::Parked
    }

    /// The keys of a client that waited and is to be served. False if one of them is not in memory any more.
    pub fn note_served(&mut self, client: &Client, found: CommandMatch, args: &[Arg<'_>]) -> bool {
        let Some(tier) = &mut self.server.tier else { return true };
        let keys = keys::of_command(client, found, args);
        // Its keys were found before it waited, and memory forgets them only when a write fails.
        if client.losses_seen != tier.losses && keys.iter().any(|key| !tier.knows(&self.dbs, key)) {
            return false;
        }
        keys.iter().for_each(|key| tier.note(&self.dbs, key));
        true
    }

    /// Begins the reads that are due and takes up those that storage answers at once.
    pub fn begin_reads(&mut self) {
        let Some(tier) = &mut self.server.tier else { return };
        let begun = tier.fetches.begin(self.dbs.all[0].now_ms.max(0) as u64);
        if begun.is_empty() {
            return;
        }
        tier.counters.read_calls += 1;
        tier.counters.reads += begun.len() as u64;
        let keys: Vec<Key> = begun.iter().map(|(_, key)| key.clone()).collect();
        let ids: HashMap<Key, FetchId> = begun.iter().map(|(id, key)| (key.clone(), *id)).collect();
        let mailbox = tier.mailbox.clone();
        let done: GetDone = Arc::new(move |key, read| {
            if let Some(&id) = ids.get(key) {
                mailbox.send(Event::Fetched { id, key: key.clone(), read });
            }
        });
        let storage = tier.storage.clone();
        match storage.get_many(&keys, &done) {
            Ok(answers) => {
                for ((id, key), answer) in begun.into_iter().zip(answers) {
                    match answer {
                        Get::Hit(stored) => self.fetched(id, &key, Ok(Some(stored))),
                        Get::Absent => self.fetched(id, &key, Ok(None)),
                        Get::Pending => {}
                    }
                }
            }
            Err(error) => {
                for (id, key) in begun {
                    self.fetched(id, &key, Err(error.clone()));
                }
            }
        }
    }

    /// A read has ended.
    pub fn fetched(&mut self, id: FetchId, key: &Key, read: Result<Option<Stored>, StorageError>) {
        let Some(tier) = &mut self.server.tier else { return };
        let Fetched::Current(waiters) = tier.fetches.end(id, key) else { return };
        if let Part::Element(generation) = key.part {
            return self.element_fetched(key, generation, waiters, read);
        }
        let read = match read {
            Ok(Some(stored)) => value_of(&self.server, &stored).map(|value| Some((value, stored.expires_ms))),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        if matches!(read, Ok(None)) {
            self.note_absent(key);
        }
        let Some(tier) = &mut self.server.tier else { return };
        let mut has_expired = false;
        match &read {
            Ok(None) => tier.counters.absent += 1,
            Ok(Some(_)) => tier.counters.fetched += 1,
            Err(_) => {}
        }
        for waiter in waiters {
            let Some(wait) = tier.waits.get_mut(&waiter) else { continue };
            match &read {
                Ok(None) => _ = wait.absent.insert(key.clone()),
                Ok(Some(_)) => {}
                Err(error) => wait.error = Some(error.clone()),
            }
            wait.unread = wait.unread.saturating_sub(1);
            // Each time it goes on, all its keys are looked at.
            if wait.unread == 0 || wait.error.is_some() {
                tier.resume.push(waiter);
            }
        }
        if let Ok(Some((value, expires_ms))) = read
            && let Some(db) = self.dbs.get(key.db)
            && db.resident(&key.name).is_none()
        {
            let at_ms = expires_ms.map(|at_ms| i64::try_from(at_ms).unwrap_or(i64::MAX));
            has_expired = at_ms.is_some_and(|at_ms| at_ms <= db.now_ms);
            let generation = value.large().map(|large| large.generation);
            db.load(&key.name, value, at_ms);
            if let (Some(tier), Some(generation)) = (&mut self.server.tier, generation) {
                tier.collections.note(generation, key);
            }
        }
        if has_expired {
            tier_note_expired(self, key);
        }
    }

    /// Asks storage from time to time for keys that have expired without being read.
    pub fn ask_expired(&mut self, now_ms: u64) {
        let Some(tier) = &mut self.server.tier else { return };
        if self.dbs.all[0].keeps_expired
            || tier.is_asking_expired
            || now_ms.saturating_sub(tier.expired_asked_ms) < EXPIRY_MS
        {
            return;
        }
        (tier.is_asking_expired, tier.expired_asked_ms) = (true, now_ms);
        let mailbox = tier.mailbox.clone();
        let done = Box::new(move |keys| mailbox.send(Event::Expired(keys)));
        tier.storage.expired(now_ms, EXPIRED_TOGETHER, done);
    }

    /// Storage has found expired keys: they are read, and deleted as every key that is found to have expired.
    pub(super) fn expire_stored(&mut self, keys: Result<Vec<Key>, StorageError>) {
        let Some(tier) = &mut self.server.tier else { return };
        tier.is_asking_expired = false;
        tier.take_counts();
        // What cannot be read now is asked for again.
        for key in keys.unwrap_or_default() {
            if !tier.knows(&self.dbs, &key) {
                tier.fetches.want(&key, EXPIRY_WAITER, Urgency::Now, 0);
            }
        }
        self.begin_reads();
    }
}

/// Deletes a key that had expired when it was read, as a group of its own.
fn tier_note_expired(core: &mut Core, key: &Key) {
    // A command that is being prepared has noted nothing yet.
    if let Some(db) = core.dbs.get(key.db) {
        db.contains(&key.name);
    }
    core.pass_on_changes(None);
    core.finish(None, 0);
}
