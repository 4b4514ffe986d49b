//! A save's walk over a database: the state of one point in time, while commands go on.
//!
//! The walk goes through the dictionary in the order of its cursor, a piece at a time. A command that is about to change or remove a key which the walk has
//! not reached has the key saved first ([`Keyspace::preserve`]): copy on write, key by key. Such keys, and keys that were added since, are remembered until the walk
//! passes them. So nothing is copied but the keys that change during the save.
//!
//! The cursor counts with its bits reversed, so a key was passed if its reversed hash is below the reversed cursor, whatever the size of the table is.
//!
//! When all keys of a database are deleted, its contents go to the walk as a whole ([`Detached`]); when two databases are exchanged, their walks are exchanged with
//! them. The walk knows the number that the database had.

use super::database::{Contents, Keyspace, hash_with};
use super::dictionary::{Dictionary, EntryPosition};
use super::entry::{Entry, Key};
use super::expiry::Expiries;
use super::sink::Sink;
use crate::planted;
use std::collections::HashSet;
use std::sync::Arc;

/// Buckets that a piece of a walk visits at most.
const BUCKETS_TOGETHER: usize = 4096;

/// Where a save stands in a database.
pub struct Walk {
    /// The number of the database when the save began.
    db: u16,
    /// `None`: all keys were visited.
    cursor: Option<u64>,
    /// Keys that the walk has not reached, and is not to save: saved already, or added since the save began.
    ahead: HashSet<Key>,
    sink: Arc<Sink>,
}

impl Walk {
    pub fn new(db: u16, sink: Arc<Sink>) -> Walk {
        Walk { db, cursor: Some(0), ahead: HashSet::new(), sink }
    }

    fn has_passed(&self, hash: u64) -> bool {
        self.cursor.is_none_or(|cursor| hash.reverse_bits() < cursor.reverse_bits())
    }

    /// A key is about to be changed, removed (`entry` is what it was), or added.
    fn will_change(&mut self, hash: u64, key: &[u8], entry: Option<(&Entry, Option<i64>)>) {
        if planted::NOT_COPIED_ON_WRITE.on() || self.has_passed(hash) || self.ahead.contains(key) {
            return;
        }
        self.ahead.insert(Key::new(key));
        if let Some((entry, at_ms)) = entry {
            self.sink.preserve(self.db, entry, at_ms);
        }
    }

    /// Saves keys until about `bytes` are in the sink. Returns whether all keys were visited.
    fn go_on(
        &mut self,
        dictionary: &Dictionary,
        expiries: &Expiries,
        seed: (u64, u64),
        bytes: usize,
    ) -> bool {
        for _ in 0..BUCKETS_TOGETHER {
            let Some(cursor) = self.cursor else { return true };
            if self.sink.len() >= bytes {
                return false;
            }
            let Walk { db, ahead, sink, .. } = self;
            let next = dictionary.scan(cursor, |entry| {
                let is_passed = hash_with(seed, &entry.key).reverse_bits() < cursor.reverse_bits();
                if !is_passed && !ahead.remove(&entry.key) {
                    sink.add(*db, entry, expiries.at_ms(entry.expiry));
                }
            });
            self.cursor = (next != 0).then_some(next);
            if self.cursor.is_none() {
                self.ahead = HashSet::new();
            }
        }
        self.cursor.is_none()
    }
}

/// The contents of a database whose keys were all deleted while it was being saved.
pub struct Detached {
    walk: Walk,
    contents: Contents,
    seed: (u64, u64),
}

impl Detached {
    pub fn go_on(&mut self, bytes: usize) -> bool {
        self.walk.go_on(&self.contents.dictionary, &self.contents.expiries, self.seed, bytes)
    }
}

impl Keyspace {
    pub fn begin_walk(&mut self, sink: &Arc<Sink>) {
        self.walk = Some(Box::new(Walk::new(self.index, sink.clone())));
    }

    pub fn end_walk(&mut self) {
        self.walk = None;
    }

    /// Goes on with the walk. Returns whether all keys were visited.
    pub fn walk_on(&mut self, bytes: usize) -> bool {
        let Keyspace { walk, dictionary, expiries, seed, .. } = self;
        walk.as_mut().is_none_or(|walk| walk.go_on(dictionary, expiries, *seed, bytes))
    }

    /// Saves the entry at `place` if a save has yet to reach it. Called before each change.
    #[inline]
    pub(super) fn preserve(&mut self, place: EntryPosition) {
        if self.walk.is_some() {
            self.preserve_for_walk(place);
        }
    }

    #[cold]
    fn preserve_for_walk(&mut self, place: EntryPosition) {
        let Keyspace { walk: Some(walk), dictionary, expiries, seed, .. } = self else { return };
        let entry = dictionary.at(place);
        let at_ms = expiries.at_ms(entry.expiry);
        walk.will_change(hash_with(*seed, &entry.key), &entry.key, Some((entry, at_ms)));
    }

    /// A key is added that was not there.
    #[inline]
    pub(super) fn will_add(&mut self, hash: u64, key: &[u8]) {
        if let Some(walk) = &mut self.walk {
            walk.will_change(hash, key, None);
        }
    }

    /// Takes the walk off with the contents that it goes over.
    pub(super) fn detach_walk(&mut self, contents: Contents) -> Contents {
        let Some(walk) = self.walk.take() else { return contents };
        let sink = walk.sink.clone();
        sink.detach(Detached { walk: *walk, contents, seed: self.seed });
        Contents::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Str;
    use std::collections::HashMap;

    fn db(keys: usize) -> Keyspace {
        let mut db = Keyspace::new(3, (7, 9));
        for number in 0..keys {
            db.insert(format!("key:{number}").as_bytes(), Str::raw(b"before"));
        }
        db
    }

    /// The keys and values of what was saved.
    fn read(sink: &Sink) -> HashMap<Vec<u8>, Vec<u8>> {
        let mut file = crate::rdb::file::FileWriter::new(Vec::new()).unwrap();
        file.raw(&sink.take()).unwrap();
        let bytes = file.finish().unwrap().0;
        let mut reader = crate::rdb::file::FileReader::new(&bytes[..], bytes.len() as u64).unwrap();
        let mut found = HashMap::new();
        while let Some(record) = reader.next_record().unwrap() {
            let crate::rdb::file::Record::Key(record) = record else { panic!("a key") };
            assert_eq!(record.db, 3);
            let crate::rdb::Object::String(value) = record.object else { panic!("a string") };
            assert!(found.insert(record.key, value).is_none(), "a key is saved once");
        }
        found
    }

    #[test]
    fn a_walk_saves_the_state_of_its_beginning_whatever_changes_meanwhile() {
        change_during_walks();
    }

    /// See `crate::planted`.
    #[test]
    #[ignore = "plants a bug in the whole process: make planted"]
    fn planted_a_key_that_is_changed_before_it_is_saved_is_found() {
        planted::NOT_COPIED_ON_WRITE.set(true);
        let is_found = std::panic::catch_unwind(change_during_walks).is_err();
        planted::NOT_COPIED_ON_WRITE.set(false);
        assert!(is_found);
    }

    /// Changes, removes and adds keys by chance between small pieces of a walk, across resizes of the table.
    fn change_during_walks() {
        for seed in 1..40u64 {
            let keys = (seed as usize * 37) % 900 + 1;
            let mut db = db(keys);
            let sink = Arc::new(Sink::default());
            db.begin_walk(&sink);
            let mut random = seed;
            let mut number = || super::super::database::next_random(&mut random) as usize;
            loop {
                if db.walk_on(sink.len() + 30) {
                    break;
                }
                for _ in 0..number() % 60 {
                    let key = format!("key:{}", number() % (2 * keys));
                    match number() % 5 {
                        0 | 1 => db.insert(key.as_bytes(), Str::raw(b"after")),
                        2 => _ = db.remove(key.as_bytes()),
                        3 => _ = db.set_expiry(key.as_bytes(), Some(1 << 50)),
                        _ => {
                            if let Some(value) = db.write(key.as_bytes()) {
                                *value = Str::raw(b"after").into();
                            }
                        }
                    }
                }
                if seed % 8 == 0 && number() % 20 == 0 {
                    db.clear();
                    while sink.detached_go_on(usize::MAX) {}
                }
                if seed % 3 == 0 {
                    // Most keys go: the table shrinks.
                    (0..keys).filter(|key| key % 16 != 0).for_each(|key| {
                        db.remove(format!("key:{key}").as_bytes());
                    });
                }
            }
            let found = read(&sink);
            assert_eq!(found.len(), keys, "seed {seed}");
            assert!(found.values().all(|value| value == b"before"), "seed {seed}");
        }
    }

    #[test]
    fn exchanged_databases_are_saved_under_their_old_numbers() {
        let (mut one, mut other) = (db(10), Keyspace::new(4, (7, 9)));
        other.insert(b"key", Str::raw(b"other"));
        let sink = Arc::new(Sink::default());
        one.begin_walk(&sink);
        one.exchange(&mut other);
        assert!(one.walk_on(usize::MAX), "the walk went with the contents");
        assert!(other.walk_on(usize::MAX));
        assert_eq!(read(&sink).len(), 10);
    }
}
