//! Eviction: keeps what is allocated within `maxmemory`.
//!
//! With a storage tier, evicting a key takes a clean value out of memory and loses nothing. These stay: a key whose change is not stored yet, and keys on which
//! something outside the storage tier rests — watched keys, keys that a parked or blocked client has been told of, keys that a walk looks at.
//! Without one, `maxmemory-policy` says which keys are deleted, as in Redis.
//!
//! Elements of a large collection are evicted some at a time, and its head when none is left.
//!
//! Keys are evicted before a command is run, never within one, so that keys that were made known for a command are there while it runs.
//!
//! When nothing can be evicted: if changes wait for storage, commands wait until they are stored ([`Core::waits_for_room`]); otherwise commands that need
//! memory are refused, unless there is no value at all to evict.

use crate::client::{Client, ClientId};
use crate::config::Choice;
use crate::keyspace::evict::Sampled;
use crate::keyspace::{Class, Key};
use crate::server::Core;
use crate::storage;

/// Samples in a row without a key that may be evicted, after which there is none.
const TRIES_MAX: usize = 64;
/// Rounds in which a policy may spare all candidates before the first one goes.
const SPARED_MAX: usize = 64;
/// Keys that one command evicts at most: the rest is for the next ones.
const EVICTED_TOGETHER: usize = 4096;
/// The share of the limit that is allocated, and perhaps freed, between two looks at the whole process, as a divisor.
const REFRESH_SHARE: usize = 64;

/// The least share of the limit that values have, as a divisor, however much the program and the storage tier take.
const FLOOR: usize = 8;
/// The share of the limit that is left for a command and the copies of a value on its way to storage, as a divisor, and in bytes at most.
const RESERVE: usize = 8;
const RESERVE_BYTES_MAX: usize = 32 << 20;
/// The largest share of the room that fragments are counted with, as a divisor.
const FRAGMENTS: usize = 3;

impl Core {
    /// Bytes that may be allocated.
    fn room(&self) -> usize {
        let max = self.server.config.limits.memory_bytes_max;
        match self.server.tier {
            // The process is bounded: what the system counts and the allocator does not is taken off.
            Some(_) => {
                let room = (max - (max / RESERVE).min(RESERVE_BYTES_MAX))
                    .saturating_sub(self.server.meter.elsewhere)
                    .max(max / FLOOR);
                // Evicting frees whole pages late: what cannot be handed out counts up to a share alone, or it would drive the eviction that makes more of it.
                room - self.server.meter.fragments.min(room / FRAGMENTS)
            }
            None => max,
        }
    }

    /// Evicts until memory is within its limit, or nothing can be evicted; returns whether it is, or gets there. `client` is taken out of the list.
    pub fn make_room(&mut self, mut client: Option<&mut Client>) -> bool {
        if self.server.config.limits.memory_bytes_max == 0 {
            return true;
        }
        if self.server.meter.moved() > self.server.config.limits.memory_bytes_max / REFRESH_SHARE {
            self.refresh_memory();
        }
        let mut evicted = 0;
        while self.server.meter.used() > self.room() && evicted < EVICTED_TOGETHER {
            if !self.evict_one() {
                self.pass_on_changes(client.as_deref_mut());
                return self.has_no_values();
            }
            evicted += 1;
        }
        if evicted > 0 {
            self.pass_on_changes(client);
        }
        true
    }

    /// Whether memory holds no value at all, and none is on its way to storage. What is over the limit then is the program and the storage tier,
    /// and refusing a command would free nothing of it: what the command brings is evicted before the next one.
    fn has_no_values(&self) -> bool {
        self.server.tier.as_ref().is_some_and(|tier| tier.queue.is_empty())
            && self.dbs.all.iter().all(|db| db.is_empty())
    }

    /// Looks at the memory of the process, and evicts if it is over the limit.
    pub fn watch_memory(&mut self) {
        if self.server.config.limits.memory_bytes_max > 0 {
            self.refresh_memory();
            self.make_room(None);
        }
    }

    fn refresh_memory(&mut self) {
        self.server.meter.refresh();
        let max = self.server.config.limits.memory_bytes_max;
        if self.server.tier.is_some() && self.server.meter.process > max {
            crate::memory::give_back();
            self.server.meter.refresh();
        }
    }

    /// Whether memory is over its limit, and storing what waits would make room.
    pub fn waits_for_room(&mut self, client: &mut Client) -> bool {
        self.stores_changes() && !self.make_room(Some(client))
    }

    /// Whether changes are on their way to storage.
    pub fn stores_changes(&self) -> bool {
        self.server.tier.as_ref().is_some_and(|tier| !tier.queue.is_empty())
    }

    /// A client whose commands go on when changes have been stored.
    pub fn stall(&mut self, client: ClientId) {
        if let Some(tier) = &mut self.server.tier {
            tier.stalled.push(client);
        }
    }

    fn evict_one(&mut self) -> bool {
        let eviction = self.server.config.limits.eviction;
        if self.server.tier.is_some() {
            return self.evict_clean(eviction.samples);
        }
        let Some(sampled) = self.choose(eviction.choice, eviction.expiring_only, eviction.samples) else {
            return false;
        };
        let (index, sampled) = sampled;
        let db = &mut self.dbs.all[index];
        db.remove(&sampled.key);
        db.changed(&sampled.key, Class::Evicted, "evicted");
        self.server.stats.evicted += 1;
        true
    }

    /// A database, by chance in proportion to its keys.
    fn database_to_evict(&mut self, expiring: bool) -> Option<usize> {
        let len = |db: &crate::keyspace::Keyspace| if expiring { db.expiring() } else { db.len() };
        let total: usize = self.dbs.all.iter().map(len).sum();
        let mut at = (self.dbs.all[0].next_random() as usize).checked_rem(total)?;
        self.dbs.all.iter().position(|db| {
            let is_it = at < len(db);
            at = at.saturating_sub(len(db));
            is_it
        })
    }

    /// The key that goes without a storage tier, with the index of its database.
    fn choose(&mut self, choice: Choice, expiring: bool, samples: usize) -> Option<(usize, Sampled)> {
        if choice == Choice::None {
            return None;
        }
        let index = self.database_to_evict(expiring)?;
        let db = &mut self.dbs.all[index];
        if choice == Choice::Random {
            return db.sample(expiring).map(|sampled| (index, sampled));
        }
        let mut drawn: Vec<Sampled> = (0..samples).filter_map(|_| db.sample(expiring)).collect();
        let chosen = match choice {
            Choice::Ttl => (0..drawn.len()).min_by_key(|&at| drawn[at].at_ms.unwrap_or(i64::MAX)),
            Choice::Lfu => db.choose(&drawn),
            _ => (0..drawn.len()).min_by_key(|&at| drawn[at].candidate.mark.0),
        }?;
        Some((index, drawn.swap_remove(chosen)))
    }

    /// Takes one clean value out of memory, or some elements of a large one; false if there seems to be none.
    pub fn evict_clean(&mut self, samples: usize) -> bool {
        for round in 0..SPARED_MAX {
            let Some(index) = self.database_to_evict(false) else { return false };
            let mut drawn: Vec<Sampled> = Vec::with_capacity(samples);
            for _ in 0..TRIES_MAX {
                let Some(sampled) = self.dbs.all[index].sample(false) else { break };
                if self.may_evict(index as u16, &sampled.key)
                    && !drawn.iter().any(|other| other.key == sampled.key)
                {
                    drawn.push(sampled);
                }
                if drawn.len() >= samples {
                    break;
                }
            }
            if drawn.is_empty() {
                return false;
            }
            let db = &mut self.dbs.all[index];
            let chosen = match db.policy() {
                Some(_) => db.choose(&drawn),
                None => Some(0),
            };
            if let Some(chosen) = chosen.or((round + 1 == SPARED_MAX).then_some(0)) {
                let chosen = &drawn[chosen];
                let is_large = db.resident(&chosen.key).is_some_and(|(value, _)| value.large().is_some());
                if is_large {
                    if !self.evict_of_large(index, chosen) {
                        continue;
                    }
                } else {
                    db.evict(chosen);
                }
                self.server.stats.evicted += 1;
                return true;
            }
        }
        false
    }

    /// Whether memory may forget a key of a database.
    pub fn may_evict(&self, db: u16, key: &Key) -> bool {
        let Some(tier) = &self.server.tier else { return true };
        let place = (db, key.clone());
        if self.server.watching.contains_key(&place) || self.server.waiting.contains_key(&place) {
            return false;
        }
        if tier.pins.is_empty() && tier.queue.is_empty() {
            return true;
        }
        let value = self.dbs.all.get(usize::from(db)).and_then(|db| db.resident(key));
        if value.is_some_and(|(value, _)| value.large().is_some()) {
            // Its elements may, each by itself.
            return true;
        }
        let key = storage::Key::new(db, key);
        !tier.pins.contains_key(&key) && tier.queue.may_evict(&key)
    }
}
