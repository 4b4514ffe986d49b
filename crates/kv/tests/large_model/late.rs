//! Storage in memory whose writes, reads and ranges end late and out of order, and which checks that heads agree with their elements.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use terrace_io::disk::Disk;
use terrace_kv::storage::{
    Durability, Element, Elements, ElementsDone, ExpiredDone, Get, GetDone, Key, Outcome, Part, Position,
    ScanDone, Storage, StorageError, Stored, View, Write, WriteDone,
};
use terrace_kv::value::large::{Head, LARGE_LIST};
use terrace_kv::value::listpack::Listpack;
use terrace_sim::SimWorld;

pub type LateRead = (Key, Option<Option<Stored>>, GetDone);
pub type LateElements = (u64, Position, usize, Option<Elements>, ElementsDone);

#[derive(Default)]
pub struct Rows {
    pub rows: BTreeMap<Key, Stored>,
    /// Collections whose elements are to be removed.
    pub gone: BTreeSet<u64>,
    pub next_generation: u64,
    pub log_position: u64,
    pub is_immediate: bool,
    pub checks_heads: bool,
    pub writes: VecDeque<(Write, WriteDone)>,
    pub reads: Vec<LateRead>,
    pub ranges: Vec<LateElements>,
}

pub fn head(stored: &Stored) -> Option<Head> {
    Head::parse(&stored.rdb).unwrap()
}

impl Rows {
    pub fn apply(&mut self, write: &Write) {
        for db in &write.emptied {
            let heads = self.rows.iter().filter(|(key, _)| key.db == *db && key.is_whole());
            let heads: Vec<u64> =
                heads.filter_map(|(_, stored)| head(stored)).map(|head| head.generation).collect();
            let alive = write.all_alive();
            self.gone.extend(heads.into_iter().filter(|generation| !alive.contains(generation)));
            self.rows.retain(|key, _| key.db != *db || !key.is_whole());
        }
        for row in &write.rows {
            let is_emptied = write.emptied.contains(&row.key.db);
            let present = self.rows.get(&row.key);
            if let Part::Element(generation) | Part::Gone(generation) = row.key.part {
                self.next_generation = self.next_generation.max(generation + 1);
            }
            let is_true = match row.key.part {
                Part::Whole => row.expired_ms == present.and_then(|stored| stored.expires_ms),
                Part::Element(generation) => !self.gone.contains(&generation),
                Part::Gone(generation) => {
                    self.gone.insert(generation);
                    continue;
                }
            };
            if !is_emptied && is_true {
                assert_eq!(row.existed, present.is_some(), "the row of {:?}", row.key);
            }
            match &row.value {
                Some(value) => _ = self.rows.insert(row.key.clone(), value.clone()),
                None => _ = self.rows.remove(&row.key),
            }
        }
        self.log_position = write.log_position.unwrap_or(self.log_position);
        if self.checks_heads {
            self.check_heads();
        }
    }

    fn elements_of(&self, generation: u64) -> impl Iterator<Item = (&Key, &Stored)> {
        self.rows.iter().filter(move |(key, _)| key.part == Part::Element(generation))
    }

    pub fn check_heads(&self) {
        let whole = self.rows.iter().filter(|(key, _)| key.is_whole());
        for (key, head) in whole.filter_map(|(key, stored)| Some((key, head(stored)?))) {
            // A row of a list has many elements.
            let len = |stored: &Stored| match head.kind {
                LARGE_LIST => Listpack::from_bytes(stored.rdb.clone()).unwrap().len() as u64,
                _ => 1,
            };
            let found: u64 = self.elements_of(head.generation).map(|(_, stored)| len(stored)).sum();
            assert_eq!(found, head.len, "elements of {key:?} of generation {}", head.generation);
        }
    }

    pub fn remove_gone(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        let is_gone = |key: &Key| matches!(key.part, Part::Element(generation) if gone.contains(&generation));
        self.rows.retain(|key, _| !is_gone(key));
    }

    pub fn read_range(&self, generation: u64, from: Position, limit: usize) -> Elements {
        let mut found: Vec<Element> = self
            .elements_of(generation)
            .map(|(key, value)| Element {
                position: Position::of_element(&key.name),
                name: key.name.as_bytes().into(),
                value: value.clone(),
            })
            .filter(|element| element.position >= from)
            .collect();
        found.sort_by_key(|element| element.position);
        let next = found.get(limit).map(|element| element.position);
        found.truncate(limit);
        Elements { found, next }
    }
}

pub struct Late {
    pub rows: Mutex<Rows>,
    pub log: Arc<dyn Disk>,
    pub sim: SimWorld,
}

fn unavailable() -> StorageError {
    StorageError::Unavailable("not now".into())
}

impl Storage for Late {
    fn name(&self) -> &'static str {
        "late"
    }
    fn get_many(&self, keys: &[Key], done: &GetDone) -> Result<Vec<Get>, StorageError> {
        let mut rows = self.rows.lock();
        let rows = &mut *rows;
        let one = |key: &Key| {
            if rows.is_immediate {
                return rows.rows.get(key).cloned().map_or(Get::Absent, Get::Hit);
            }
            // Read now, or when the answer comes.
            let read = self.sim.random.one_in(2).then(|| rows.rows.get(key).cloned());
            rows.reads.push((key.clone(), read, done.clone()));
            Get::Pending
        };
        Ok(keys.iter().map(one).collect())
    }
    fn write(&self, write: Write, _: Durability, done: WriteDone) -> Option<Outcome> {
        let mut rows = self.rows.lock();
        if rows.is_immediate {
            rows.apply(&write);
            return Some(Outcome::Written);
        }
        rows.writes.push_back((write, done));
        None
    }
    fn writes_in_flight_max(&self) -> usize {
        1
    }
    fn scan(&self, _: u16, _: Position, _: usize, done: ScanDone) {
        done(Err(unavailable()));
    }
    fn next_generation(&self) -> Option<u64> {
        Some(self.rows.lock().next_generation.max(1))
    }
    fn elements(&self, generation: u64, from: Position, limit: usize, done: ElementsDone) {
        let mut rows = self.rows.lock();
        // Small pieces, so that much happens between them.
        let limit = limit.min(40);
        let read = self.sim.random.one_in(2).then(|| rows.read_range(generation, from, limit));
        rows.ranges.push((generation, from, limit, read, done));
    }
    fn expired(&self, _: u64, _: usize, done: ExpiredDone) {
        done(Ok(Vec::new()));
    }
    fn view(&self) -> Result<Box<dyn View>, StorageError> {
        Err(unavailable())
    }
    fn keep(&self, _: &str, _: &[u8]) -> Result<(), StorageError> {
        Err(unavailable())
    }
    fn kept(&self, _: &str) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(None)
    }
    fn swap(&self, first: u16, second: u16, log_position: Option<u64>) -> Result<(), StorageError> {
        let mut rows = self.rows.lock();
        let other = |db| match db {
            _ if db == first => second,
            _ if db == second => first,
            _ => db,
        };
        let swapped = std::mem::take(&mut rows.rows).into_iter();
        rows.rows = swapped.map(|(key, stored)| (Key { db: other(key.db), ..key }, stored)).collect();
        rows.log_position = log_position.unwrap_or(rows.log_position);
        Ok(())
    }
    fn count(&self, db: u16) -> u64 {
        self.rows.lock().rows.keys().filter(|key| key.db == db && key.is_whole()).count() as u64
    }
    fn log_position(&self) -> u64 {
        self.rows.lock().log_position
    }
    fn log_disk(&self) -> Option<Arc<dyn Disk>> {
        Some(self.log.clone())
    }
}
