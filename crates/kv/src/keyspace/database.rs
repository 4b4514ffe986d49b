//! A database: what commands do with keys.
//!
//! Invariants
//! * A key that has expired is never seen: each look-up deletes it first.
//! * An entry's `expiry` and the list of expiry times point at each other.

use super::changes::{Changes, Class, Expired};
use super::dictionary::{Dictionary, EntryPosition};
use super::entry::{Entry, Key};
use super::expiry::{Expiries, Expiry, ROUND};
use super::saving::Walk;
use crate::tiering::evict::{Mark, Policy};
use crate::value::Value;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

pub struct Keyspace {
    /// The number that `SELECT` takes.
    pub index: u16,
    /// Unix time in milliseconds, the same for all of a command.
    pub now_ms: i64,
    pub changes: Changes,
    /// Look-ups of reading commands that found a key, and that did not.
    pub hits: u64,
    pub misses: u64,
    pub expired: u64,
    /// Whether reads leave no trace: `CLIENT NO-TOUCH`, `OBJECT`.
    pub is_touching: bool,
    /// Clients are paused: expired keys are not seen, and not deleted either.
    pub keeps_expired: bool,
    /// Whether storage has keys that are not here.
    pub has_storage: bool,
    /// What marks entries for eviction. `None`: the seconds of the last access.
    pub(super) policy: Option<Box<dyn Policy>>,
    pub(super) dictionary: Dictionary,
    pub(super) expiries: Expiries,
    pub(super) seed: (u64, u64),
    pub(super) random: u64,
    /// Where a save stands, if one goes on.
    pub(super) walk: Option<Box<Walk>>,
}

impl Keyspace {
    pub fn new(index: u16, seed: (u64, u64)) -> Keyspace {
        Keyspace {
            index,
            now_ms: 0,
            changes: Changes::default(),
            hits: 0,
            misses: 0,
            expired: 0,
            is_touching: true,
            keeps_expired: false,
            has_storage: false,
            policy: None,
            dictionary: Dictionary::new(),
            expiries: Expiries::default(),
            seed,
            random: seed.0 | 1,
            walk: None,
        }
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        hash_with(self.seed, key)
    }

    /// Finds a key that has not expired.
    fn find(&mut self, key: &[u8]) -> Option<EntryPosition> {
        let place = self.dictionary.find(self.hash(key), key)?;
        let number = self.dictionary.at(place).expiry;
        if number != 0 && self.expiries.at_ms(number).is_some_and(|at_ms| at_ms <= self.now_ms) {
            if !self.keeps_expired {
                self.expire(place);
            }
            return None;
        }
        Some(place)
    }

    fn expire(&mut self, place: EntryPosition) {
        let at_ms = self.expiries.at_ms(self.dictionary.at(place).expiry);
        if let Some(entry) = self.take(place) {
            self.expired += 1;
            if self.has_storage
                && let Some(at_ms) = at_ms
            {
                let generation = entry.value.large().map(|large| large.generation);
                self.changes.expired.push(Expired { key: entry.key.clone(), at_ms, generation });
            }
            self.changes.record(&entry.key, Class::Expired, "expired");
        }
    }

    /// The mark of an entry that is used now, which had `mark`.
    fn used(&mut self, mark: u32) -> u32 {
        match &mut self.policy {
            None => (self.now_ms / 1000) as u32,
            Some(policy) => policy.used(Mark(mark), next_random(&mut self.random)).0,
        }
    }

    fn admitted(&mut self, hash: u64) -> u32 {
        match &mut self.policy {
            None => (self.now_ms / 1000) as u32,
            Some(policy) => policy.admitted(hash).0,
        }
    }

    fn mark_used(&mut self, place: EntryPosition) -> &mut Entry {
        let access = self.used(self.dictionary.at(place).access);
        let entry = self.dictionary.at_mut(place);
        entry.access = access;
        entry
    }

    /// The value of a key, for a command that reads.
    pub fn read(&mut self, key: &[u8]) -> Option<&Value> {
        let Some(place) = self.find(key) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        if !self.is_touching {
            return Some(&self.dictionary.at(place).value);
        }
        Some(&self.mark_used(place).value)
    }

    /// The value of a key, without a trace of the look-up.
    pub fn peek(&mut self, key: &[u8]) -> Option<&Value> {
        let place = self.find(key)?;
        Some(&self.dictionary.at(place).value)
    }

    /// As [`Keyspace::peek`], without deleting a key that has expired: several values can be held at once.
    pub fn peek_shared(&self, key: &[u8]) -> Option<&Value> {
        let entry = self.dictionary.at(self.dictionary.find(self.hash(key), key)?);
        let at_ms = self.expiries.at_ms(entry.expiry);
        at_ms.is_none_or(|at_ms| at_ms > self.now_ms).then_some(&entry.value)
    }

    /// The value of a key and when it expires, also if it has expired.
    pub fn resident(&self, key: &[u8]) -> Option<(&Value, Option<i64>)> {
        let entry = self.dictionary.at(self.dictionary.find(self.hash(key), key)?);
        Some((&entry.value, self.expiries.at_ms(entry.expiry)))
    }

    /// The value of a key, also if it has expired, for what the storage tier does with it.
    pub fn resident_mut(&mut self, key: &[u8]) -> Option<&mut Value> {
        let place = self.dictionary.find(self.hash(key), key)?;
        Some(&mut self.dictionary.at_mut(place).value)
    }

    /// Puts a key that is not here into memory, as storage has it: no change.
    pub fn load(&mut self, key: &[u8], value: Value, at_ms: Option<i64>) {
        self.insert_keeping_expiry(key, value);
        self.set_expiry(key, at_ms);
    }

    /// Takes a key out of memory, which is no change either.
    pub fn forget(&mut self, key: &[u8]) {
        if let Some(place) = self.dictionary.find(self.hash(key), key) {
            self.take(place);
        }
    }

    /// The entry of a key, without a trace of the look-up.
    pub fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let place = self.find(key)?;
        self.preserve(place);
        Some(self.dictionary.at_mut(place))
    }

    /// The value of a key, for a command that changes it. Call [`Keyspace::changed`] after a change.
    pub fn write(&mut self, key: &[u8]) -> Option<&mut Value> {
        let place = self.find(key)?;
        self.preserve(place);
        Some(&mut self.mark_used(place).value)
    }

    pub fn contains(&mut self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// Sets a value. The key does not expire then.
    pub fn insert(&mut self, key: &[u8], value: impl Into<Value>) {
        self.insert_keeping_expiry(key, value);
        self.set_expiry(key, None);
    }

    /// Sets a value; an existing key keeps its time of expiry.
    pub fn insert_keeping_expiry(&mut self, key: &[u8], value: impl Into<Value>) {
        let value = value.into();
        if let Some(place) = self.find(key) {
            self.preserve(place);
            self.mark_used(place).value = value;
            return;
        }
        let hash = self.hash(key);
        self.will_add(hash, key);
        let access = self.admitted(hash);
        let entry = Entry { key: Key::new(key), value, access, expiry: 0 };
        let seed = self.seed;
        self.dictionary.insert(hash, Box::new(entry), |key| hash_with(seed, key));
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<Value> {
        let place = self.find(key)?;
        self.take(place).map(|entry| entry.value)
    }

    pub(super) fn take(&mut self, place: EntryPosition) -> Option<Box<Entry>> {
        self.preserve(place);
        if let Some(policy) = &mut self.policy {
            policy.deleted(Mark(self.dictionary.at(place).access));
        }
        self.clear_expiry(place);
        let seed = self.seed;
        self.dictionary.remove(place, |key| hash_with(seed, key))
    }

    fn clear_expiry(&mut self, place: EntryPosition) -> bool {
        let number = std::mem::take(&mut self.dictionary.at_mut(place).expiry);
        if number == 0 {
            return false;
        }
        if let Some((moved, old)) = self.expiries.remove(number)
            && let Some(place) = self.dictionary.find_by(moved.hash, |entry| entry.expiry == old)
        {
            self.dictionary.at_mut(place).expiry = number;
        }
        true
    }

    /// Unix time in milliseconds at which a key expires.
    pub fn expiry(&mut self, key: &[u8]) -> Option<i64> {
        let place = self.find(key)?;
        self.expiries.at_ms(self.dictionary.at(place).expiry)
    }

    /// Changes when a key expires; returns whether the key exists and its time of expiry changed.
    pub fn set_expiry(&mut self, key: &[u8], at_ms: Option<i64>) -> bool {
        let Some(place) = self.find(key) else { return false };
        let number = self.dictionary.at(place).expiry;
        if number == 0 && at_ms.is_none() {
            return false;
        }
        self.preserve(place);
        match at_ms {
            None => return self.clear_expiry(place),
            Some(at_ms) if number != 0 => self.expiries.set(number, at_ms),
            Some(at_ms) => {
                let hash = self.hash(key);
                self.dictionary.at_mut(place).expiry = self.expiries.push(Expiry { at_ms, hash });
            }
        }
        true
    }

    /// Records that a command changed a key; `event` is the name of the notice.
    pub fn changed(&mut self, key: &[u8], class: Class, event: &'static str) {
        self.changes.record(key, class, event);
    }

    pub fn len(&self) -> usize {
        self.dictionary.len()
    }

    pub fn is_empty(&self) -> bool {
        self.dictionary.is_empty()
    }

    /// Keys that expire.
    pub fn expiring(&self) -> usize {
        self.expiries.len()
    }

    /// Average time to live of the keys that expire, over a sample.
    pub fn average_ttl_ms(&self) -> i64 {
        let sample: Vec<i64> =
            self.expiries.iter().take(100).map(|expiry| (expiry.at_ms - self.now_ms).max(0)).collect();
        if sample.is_empty() { 0 } else { sample.iter().map(|&ms| ms / sample.len() as i64).sum() }
    }

    /// Deletes all keys and returns the old contents, to be dropped by the caller when it has time.
    pub fn clear(&mut self) -> Contents {
        self.changes.count += self.len() as u64;
        if !self.is_empty() || self.has_storage {
            self.changes.all = true;
        }
        let old = self.swap_contents(Contents::default());
        self.detach_walk(old)
    }

    /// Exchanges the contents.
    fn swap_contents(&mut self, contents: Contents) -> Contents {
        Contents {
            dictionary: std::mem::replace(&mut self.dictionary, contents.dictionary),
            expiries: std::mem::replace(&mut self.expiries, contents.expiries),
        }
    }

    /// Exchanges the contents with another database, for `SWAPDB`.
    pub fn exchange(&mut self, other: &mut Keyspace) {
        std::mem::swap(&mut self.dictionary, &mut other.dictionary);
        std::mem::swap(&mut self.expiries, &mut other.expiries);
        std::mem::swap(&mut self.policy, &mut other.policy);
        std::mem::swap(&mut self.walk, &mut other.walk);
        for db in [self, other] {
            db.changes.count += 1;
        }
    }

    /// Visits some keys; returns the next cursor, 0 at the end. Expired keys are visited too.
    pub fn scan(&self, cursor: u64, visit: impl FnMut(&Entry)) -> u64 {
        self.dictionary.scan(cursor, visit)
    }

    pub fn for_each(&self, mut visit: impl FnMut(&Entry, Option<i64>)) {
        self.dictionary.for_each(|entry| visit(entry, self.expiries.at_ms(entry.expiry)));
    }

    pub fn random_key(&mut self) -> Option<Key> {
        // Expired keys are deleted as they are met.
        while !self.is_empty() {
            let mut state = self.random;
            let key = self.dictionary.random(|| next_random(&mut state)).map(|entry| entry.key.clone());
            self.random = state;
            let key = key?;
            if self.find(&key).is_some() {
                return Some(key);
            }
        }
        None
    }

    pub fn next_random(&mut self) -> u64 {
        next_random(&mut self.random)
    }

    /// Deletes expired keys until few of those looked at had expired, or `rounds` are over; returns whether more are likely.
    pub fn sweep(&mut self, rounds: usize) -> bool {
        if self.keeps_expired {
            return false;
        }
        for _ in 0..rounds {
            let mut expired = 0;
            for _ in 0..ROUND {
                let Some((expiry, number)) = self.expiries.sample() else { return false };
                if expiry.at_ms <= self.now_ms
                    && let Some(place) = self.dictionary.find_by(expiry.hash, |entry| entry.expiry == number)
                {
                    self.expire(place);
                    self.expiries.sample_again();
                    expired += 1;
                }
            }
            if expired * 4 <= ROUND {
                return false;
            }
        }
        true
    }

    /// Goes on with a resize; false if there is none.
    pub fn resize_step(&mut self) -> bool {
        let seed = self.seed;
        self.dictionary.step(&|key| hash_with(seed, key))
    }

    /// Memory of the tables, without keys and values.
    pub fn overhead_bytes(&self) -> usize {
        self.dictionary.heap_bytes() + self.expiries.heap_bytes()
    }
}

/// What a database holds.
pub struct Contents {
    pub(super) dictionary: Dictionary,
    pub(super) expiries: Expiries,
}

impl Default for Contents {
    fn default() -> Contents {
        Contents { dictionary: Dictionary::new(), expiries: Expiries::default() }
    }
}

impl Contents {
    pub fn len(&self) -> usize {
        self.dictionary.len()
    }

    pub fn is_empty(&self) -> bool {
        self.dictionary.is_empty()
    }
}

pub(super) fn hash_with(seed: (u64, u64), key: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed.0, seed.1);
    hasher.write(key);
    hasher.finish()
}

/// Xorshift with a multiplication.
pub(super) fn next_random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Str;

    fn keyspace() -> Keyspace {
        Keyspace::new(0, (1, 2))
    }

    #[test]
    fn an_expired_key_is_not_seen() {
        let mut db = keyspace();
        db.insert(b"key", Str::raw(b"value"));
        db.set_expiry(b"key", Some(100));
        db.now_ms = 99;
        assert!(db.read(b"key").is_some());
        db.now_ms = 100;
        assert!(db.read(b"key").is_none());
        assert_eq!((db.len(), db.expiring(), db.expired), (0, 0, 1));
    }

    #[test]
    fn times_stay_with_their_keys_as_others_are_removed() {
        let mut db = keyspace();
        for number in 0..1000i64 {
            let key = number.to_string();
            db.insert(key.as_bytes(), Str::int(number));
            db.set_expiry(key.as_bytes(), Some(1_000_000 + number));
        }
        for number in (0..1000).step_by(3) {
            assert!(db.remove(number.to_string().as_bytes()).is_some());
        }
        for number in (1..1000).step_by(3) {
            assert!(db.set_expiry(number.to_string().as_bytes(), None));
        }
        for number in 0..1000i64 {
            let expected = (number % 3 == 2).then_some(1_000_000 + number);
            assert_eq!(db.expiry(number.to_string().as_bytes()), expected, "{number}");
        }
    }

    #[test]
    fn a_sweep_deletes_expired_keys_that_nobody_reads() {
        let mut db = keyspace();
        for number in 0..1000 {
            let key = number.to_string();
            db.insert(key.as_bytes(), Str::int(number));
            db.set_expiry(key.as_bytes(), Some(if number % 2 == 0 { 10 } else { 1000 }));
        }
        db.now_ms = 500;
        for _ in 0..200 {
            db.sweep(16);
        }
        assert_eq!((db.len(), db.expired), (500, 500));
    }
}
