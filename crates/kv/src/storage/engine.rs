//! Storage in the engine of this repository: a `terrace::Db`.
//!
//! | tree | key | value |
//! | --- | --- | --- |
//! | `kv` | row key (`row`) | flags, expiry time, RDB form, or the head of a large collection |
//! | `kv.elements` | row key of an element | flags, expiry time, value |
//! | `kv.expiry` | expiry time, row key | empty |
//! | `kv.meta` | `db` and number | space and count of a database |
//! | | `space` | the next space to give out |
//! | | `kept`, a space and a name | what is kept under the name: libraries of functions, how far an import is |
//! | | `log` | the record of the write-back log up to which everything is here |
//! | | `gone` and space | the space of an emptied database, whose rows are being removed: generations, 8 bytes each, that are not gone with it |
//! | | `large` and generation | a large collection that is gone, whose elements are being removed |
//! | | `generation` | the least generation that no collection has had |
//!
//! Counts are rows of the batch that changes them, so they are exact after a crash. A write is made on the caller's thread if it waits for
//! nothing, else by the instance's background threads. As a count is written as an absolute number, writes are made in order: one is in flight at a time.
//!
//! Not here: which keys may be written when (`tiering`).

use crate::storage::row::{self, NAME_MAX, Position};
use crate::storage::{
    Durability, Element, Elements, ElementsDone, ExpiredDone, Get, GetDone, Key, Outcome, Part, ScanDone,
    Scanned, ScannedKey, Storage, StorageError, Stored, View, Write, WriteDone,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use terrace::{Batch, Db, ErrorKind, Tree, TryGet, TryWrite};
use terrace_io::disk::Disk;

mod behind;
mod load;
mod removal;
mod swap;
mod view;

use removal::{Removal, gone_collection_key, gone_space_key};

/// Rows that are not needed any more, and that one transaction removes.
const REMOVED_TOGETHER: usize = 1000;
/// Bytes of a piece of a large collection, about.
const PIECE_BYTES: usize = 1 << 20;

/// A database's present generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Space {
    id: u32,
    count: u64,
}

impl Space {
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.id.to_be_bytes());
        bytes[4..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }
    fn parse(bytes: &[u8]) -> Result<Space, StorageError> {
        let corrupt = || StorageError::Corrupt("a database's row has a wrong length".into());
        let (id, count) = bytes.split_first_chunk::<4>().ok_or_else(corrupt)?;
        let count = count.try_into().map_err(|_| corrupt())?;
        Ok(Space { id: u32::from_be_bytes(*id), count: u64::from_be_bytes(count) })
    }
}

/// What `kv.meta` says, or will say when the write in flight is made.
#[derive(Clone, Debug, Default)]
struct Meta {
    spaces: BTreeMap<u16, Space>,
    next_space: u32,
    next_generation: u64,
    log_position: u64,
}

fn meta_key(db: u16) -> [u8; 4] {
    let [high, low] = db.to_be_bytes();
    [b'd', b'b', high, low]
}

fn parse_meta_key(key: &[u8]) -> Result<u16, StorageError> {
    let db = <[u8; 2]>::try_from(&key[2..])
        .map_err(|_| StorageError::Corrupt("a database's key has a wrong length".into()))?;
    Ok(u16::from_be_bytes(db))
}

fn kept_key(name: &str) -> Vec<u8> {
    [b"kept ", name.as_bytes()].concat()
}

impl Meta {
    fn read(tree: &Tree) -> Result<Meta, StorageError> {
        let mut meta = Meta::default();
        for pair in tree.prefix("db")? {
            let (key, value) = pair?;
            meta.spaces.insert(parse_meta_key(&key)?, Space::parse(&value)?);
        }
        if let Some(next) = tree.get("space")? {
            let next = next
                .try_into()
                .map_err(|_| StorageError::Corrupt("the next space has a wrong length".into()))?;
            meta.next_space = u32::from_be_bytes(next);
        }
        if let Some(next) = tree.get("generation")? {
            let next = next
                .try_into()
                .map_err(|_| StorageError::Corrupt("the next generation has a wrong length".into()))?;
            meta.next_generation = u64::from_be_bytes(next);
        }
        if let Some(position) = tree.get("log")? {
            let position = position.try_into().map_err(|_| {
                StorageError::Corrupt("the position in the write-back log has a wrong length".into())
            })?;
            meta.log_position = u64::from_be_bytes(position);
        }
        Ok(meta)
    }

    /// The space of a database, a new one if it has none yet.
    fn space(&mut self, db: u16) -> &mut Space {
        let next = &mut self.next_space;
        self.spaces.entry(db).or_insert_with(|| {
            let id = *next;
            *next += 1;
            Space { id, count: 0 }
        })
    }
}

impl From<terrace::Error> for StorageError {
    fn from(error: terrace::Error) -> StorageError {
        let message = error.to_string();
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::NotFound => StorageError::Invalid(message),
            ErrorKind::Corrupt => StorageError::Corrupt(message),
            _ => StorageError::Unavailable(message),
        }
    }
}

pub struct EngineStorage {
    db: Db,
    rows: Tree,
    expiry: Tree,
    elements: Tree,
    meta_tree: Tree,
    meta: Arc<Mutex<Meta>>,
    log_disk: Option<Arc<dyn Disk>>,
    /// Itself, for work in the background.
    me: Weak<EngineStorage>,
    /// Ends between two transactions when the storage is dropped.
    removal: Arc<Removal>,
}

impl Drop for EngineStorage {
    fn drop(&mut self) {
        self.removal.is_closing.store(true, Ordering::Relaxed);
    }
}

impl EngineStorage {
    /// Opens the trees of an instance. Rows of databases that were emptied before a crash go on being removed.
    pub fn open(db: Db) -> Result<Arc<EngineStorage>, StorageError> {
        EngineStorage::open_with_log(db, None)
    }

    /// As [`EngineStorage::open`], with a place for the write-back log.
    pub fn open_with_log(
        db: Db,
        log_disk: Option<Arc<dyn Disk>>,
    ) -> Result<Arc<EngineStorage>, StorageError> {
        let (rows, expiry, meta_tree) = (db.tree("kv")?, db.tree("kv.expiry")?, db.tree("kv.meta")?);
        let elements = db.tree("kv.elements")?;
        let meta = Meta::read(&meta_tree)?;
        let removal = Arc::new(Removal {
            db: db.clone(),
            rows: rows.clone(),
            expiry: expiry.clone(),
            elements: elements.clone(),
            meta: meta_tree.clone(),
            is_closing: AtomicBool::new(false),
            running: Mutex::default(),
        });
        let storage = Arc::new_cyclic(|me| EngineStorage {
            db,
            rows,
            expiry,
            elements,
            meta_tree,
            meta: Arc::new(Mutex::new(meta)),
            log_disk,
            me: me.clone(),
            removal,
        });
        storage.removal.begin();
        Ok(storage)
    }

    /// The instance, for metrics.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The tree and the row of a key; `None`: there is none.
    fn place(&self, key: &Key) -> Option<(&Tree, Vec<u8>)> {
        match key.part {
            Part::Whole if key.name.len() > NAME_MAX => None,
            Part::Whole => {
                let space = self.meta.lock().spaces.get(&key.db)?.id;
                Some((&self.rows, row::row_key(space, &key.name)))
            }
            Part::Element(generation) => Some((&self.elements, row::element_key(generation, &key.name))),
            Part::Gone(generation) => Some((&self.meta_tree, gone_collection_key(generation))),
        }
    }

    /// Adds the row of an element, or that a collection is gone.
    fn add_part(&self, row: &crate::storage::Row, generation: u64, meta: &mut Meta, batch: &mut Batch) {
        if generation >= meta.next_generation {
            meta.next_generation = generation + 1;
            batch.put(&self.meta_tree, "generation", meta.next_generation.to_be_bytes());
        }
        if row.key.part == Part::Gone(generation) {
            return batch.put(&self.meta_tree, gone_collection_key(generation), []);
        }
        let key = row::element_key(generation, &row.key.name);
        match &row.value {
            Some(value) => batch.put(&self.elements, key, row::encode_element(&row.key.name, value)),
            None => batch.delete(&self.elements, key),
        }
    }

    /// Adds a write to a batch, and to `meta`.
    fn add(&self, write: &Write, meta: &mut Meta, batch: &mut Batch) -> Result<(), StorageError> {
        let mut changed = Vec::new();
        let alive = if write.emptied.is_empty() { Vec::new() } else { removal::alive(write) };
        for &db in &write.emptied {
            if let Some(space) = meta.spaces.remove(&db) {
                batch.put(&self.meta_tree, gone_space_key(space.id), &alive[..]);
                batch.delete(&self.meta_tree, meta_key(db));
            }
        }
        for row in &write.rows {
            if let Part::Element(generation) | Part::Gone(generation) = row.key.part {
                self.add_part(row, generation, meta, batch);
                continue;
            }
            if row.key.name.len() > NAME_MAX {
                let (bytes, name) = (row.key.name.len(), NAME_MAX);
                return Err(StorageError::Invalid(format!(
                    "a stored key has at most {name} bytes, this one {bytes}"
                )));
            }
            let space = meta.space(row.key.db);
            let key = row::row_key(space.id, &row.key.name);
            let expires_ms = row.value.as_ref().and_then(|value| value.expires_ms);
            if row.expired_ms != expires_ms {
                if let Some(expired_ms) = row.expired_ms {
                    batch.delete(&self.expiry, row::expiry_key(expired_ms, &key));
                }
                if let Some(expires_ms) = expires_ms {
                    batch.put(&self.expiry, row::expiry_key(expires_ms, &key), []);
                }
            }
            match &row.value {
                Some(value) => batch.put(&self.rows, &key, row::encode(value)),
                None => batch.delete(&self.rows, &key),
            }
            match (row.existed, row.value.is_some()) {
                (false, true) => space.count += 1,
                (true, false) => space.count = space.count.saturating_sub(1),
                _ => continue,
            }
            if !changed.contains(&row.key.db) {
                changed.push(row.key.db);
            }
        }
        for db in changed {
            batch.put(&self.meta_tree, meta_key(db), meta.space(db).bytes());
        }
        if let Some(position) = write.log_position {
            meta.log_position = position;
            batch.put(&self.meta_tree, "log", position.to_be_bytes());
        }
        batch.put(&self.meta_tree, "space", meta.next_space.to_be_bytes());
        Ok(())
    }
}

/// Waits as `durability` asks; `None` if `done` will be called.
fn commit(commit: terrace::Commit, durability: Durability, done: WriteDone) -> Option<Outcome> {
    let waited = match durability {
        Durability::Durable => {
            commit.then(move |durable| done(outcome_of_wait(durable)));
            return None;
        }
        Durability::Written => commit.wait_for(terrace::Durability::Written),
        Durability::Unwaited => commit.wait_for(terrace::Durability::None),
    };
    Some(outcome_of_wait(waited))
}

/// A transaction that is committed but could not be made durable: the log failed, and the instance is closed to writes.
fn outcome_of_wait(waited: terrace::Result<()>) -> Outcome {
    match waited {
        Ok(()) => Outcome::Written,
        Err(error) => Outcome::Unknown(error.into()),
    }
}

fn scan(rows: &Tree, space: u32, from: Position, limit: usize) -> Result<Scanned, StorageError> {
    let mut scanned = Scanned::default();
    let mut range = rows.range(row::start_of(space, from)..row::start_of(space + 1, Position::default()))?;
    while let Some((key, value)) = range.advance()? {
        let (_, position, name) = row::parse(key)?;
        let is_new = scanned.keys.last().is_none_or(|last: &ScannedKey| last.position != position);
        if is_new && scanned.keys.len() >= limit {
            scanned.next = Some(position);
            break;
        }
        let (expires_ms, rdb) = row::decode(value)?;
        let type_byte = rdb.first().copied().unwrap_or_default();
        scanned.keys.push(ScannedKey { position, name: name.into(), type_byte, expires_ms });
    }
    Ok(scanned)
}

/// Whether a write makes rows needless that are removed in the background.
fn removes(write: &Write) -> bool {
    !write.emptied.is_empty() || write.rows.iter().any(|row| matches!(row.key.part, Part::Gone(_)))
}

/// What the row of a key says.
fn stored(key: &Key, row: &[u8]) -> Result<Stored, StorageError> {
    match key.part {
        Part::Whole => {
            let (expires_ms, rdb) = row::decode(row)?;
            Ok(Stored { expires_ms, rdb: rdb.to_vec() })
        }
        Part::Element(generation) => {
            Ok(row::decode_element(&row::element_key(generation, &key.name), row)?.value)
        }
        Part::Gone(_) => Ok(Stored::default()),
    }
}

fn elements(tree: &Tree, generation: u64, from: Position, limit: usize) -> Result<Elements, StorageError> {
    let (mut piece, mut bytes) = (Elements::default(), 0);
    let end = row::element_start(generation + 1, Position::default());
    let mut range = tree.range(row::element_start(generation, from)..end)?;
    while let Some((key, value)) = range.advance()? {
        let element = row::decode_element(key, value)?;
        let is_new = piece.found.last().is_none_or(|last: &Element| last.position != element.position);
        if is_new && (piece.found.len() >= limit || bytes >= PIECE_BYTES) {
            piece.next = Some(element.position);
            break;
        }
        bytes += element.name.len() + element.value.rdb.len();
        piece.found.push(element);
    }
    Ok(piece)
}

impl Storage for EngineStorage {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn get_many(&self, keys: &[Key], done: &GetDone) -> Result<Vec<Get>, StorageError> {
        let mut answers = Vec::with_capacity(keys.len());
        for key in keys {
            // A key that is too long for a row has none.
            let Some((tree, row_key)) = self.place(key) else {
                answers.push(Get::Absent);
                continue;
            };
            let (late, its) = (done.clone(), key.clone());
            let read = tree.try_get(row_key, move |read| {
                let read = read.map_err(StorageError::from);
                late(&its, read.and_then(|row| row.as_deref().map(|row| stored(&its, row)).transpose()));
            });
            let answer = match read {
                Ok(TryGet::Hit(row)) => stored(key, &row).map(Get::Hit),
                Ok(TryGet::Absent) => Ok(Get::Absent),
                Ok(TryGet::Pending) => Ok(Get::Pending),
                Ok(TryGet::Busy) => {
                    Err(StorageError::Unavailable("too many reads wait for storage already".into()))
                }
                Err(error) => Err(error.into()),
            };
            // One key's error is its own: the others have their answers.
            answers.push(answer.unwrap_or_else(|error| {
                done(key, Err(error));
                Get::Pending
            }));
        }
        Ok(answers)
    }

    fn write(&self, write: Write, durability: Durability, done: WriteDone) -> Option<Outcome> {
        if write.log_position.is_some() {
            self.write_behind(write, done);
            return None;
        }
        let mut batch = Batch::new();
        let before = self.meta.lock().clone();
        let mut after = before.clone();
        if let Err(error) = self.add(&write, &mut after, &mut batch) {
            return Some(Outcome::NotWritten(error));
        }
        *self.meta.lock() = after;
        let removes = removes(&write);
        let outcome = match self.db.try_write(&batch) {
            Ok(TryWrite::Done(ticket)) => commit(ticket, durability, done),
            Ok(TryWrite::WouldWait(_)) => {
                // The completion of a write that is made in the background comes when it is durable, whatever was asked for.
                let done = Arc::new(Mutex::new(Some(done)));
                let late = done.clone();
                let (meta, meta_tree) = (self.meta.clone(), self.meta_tree.clone());
                let removal = removes.then(|| self.removal.clone());
                let submitted = self.db.write_soon(batch, move |durable| {
                    if durable.is_err()
                        && let Ok(present) = Meta::read(&meta_tree)
                    {
                        *meta.lock() = present;
                    }
                    if let Some(removal) = removal.filter(|_| durable.is_ok()) {
                        removal.begin();
                    }
                    if let Some(done) = late.lock().take() {
                        done(match durable {
                            Ok(()) => Outcome::Written,
                            Err(error) => Outcome::Unknown(error.into()),
                        });
                    }
                });
                match submitted {
                    Ok(()) => return None,
                    Err(batch) => {
                        // Every background thread is taken: this one waits.
                        let done = done.lock().take();
                        match (self.db.submit(&batch), done) {
                            (Ok(ticket), Some(done)) => commit(ticket, durability, done),
                            (Ok(ticket), None) => Some(outcome_of_wait(ticket.wait())),
                            (Err(error), _) => Some(Outcome::NotWritten(error.into())),
                        }
                    }
                }
            }
            Err(error) => Some(Outcome::NotWritten(error.into())),
        };
        if matches!(outcome, Some(Outcome::NotWritten(_))) {
            *self.meta.lock() = before;
        } else if removes {
            self.removal.begin();
        }
        outcome
    }

    fn writes_in_flight_max(&self) -> usize {
        1
    }

    fn scan(&self, db: u16, from: Position, limit: usize, done: ScanDone) {
        let Some(space) = self.meta.lock().spaces.get(&db).copied() else {
            return done(Ok(Scanned::default()));
        };
        let rows = self.rows.clone();
        self.soon(done, move || scan(&rows, space.id, from, limit));
    }

    fn expired(&self, now_ms: u64, limit: usize, done: ExpiredDone) {
        let databases: Vec<(u32, u16)> =
            self.meta.lock().spaces.iter().map(|(db, space)| (space.id, *db)).collect();
        let (rows, expiry) = (self.rows.clone(), self.expiry.clone());
        self.soon(done, move || {
            let mut keys = Vec::new();
            let mut range = expiry.range(..=row::expiry_key(now_ms, &[u8::MAX; row::PREFIX]))?;
            while let Some((key, _)) = range.advance()? {
                let (expires_ms, row_key) = row::parse_expiry(key)?;
                let (space, _, name) = row::parse(row_key)?;
                // A row of an emptied database is removed with its space.
                let Some((_, db)) = databases.iter().find(|(id, _)| *id == space) else { continue };
                // The hint is believed if the row says the same.
                let current =
                    rows.get(row_key)?.map(|row| row::decode(&row).map(|(time, _)| time)).transpose()?;
                if current.flatten() == Some(expires_ms) {
                    keys.push(Key::new(*db, name));
                }
                if keys.len() >= limit {
                    break;
                }
            }
            Ok(keys)
        });
    }

    fn next_generation(&self) -> Option<u64> {
        // Generation 0 is never used.
        Some(self.meta.lock().next_generation.max(1))
    }

    fn elements(&self, generation: u64, from: Position, limit: usize, done: ElementsDone) {
        let tree = self.elements.clone();
        self.soon(done, move || elements(&tree, generation, from, limit));
    }

    fn view(&self) -> Result<Box<dyn View>, StorageError> {
        Ok(Box::new(view::EngineView::new(&self.db, &self.rows, &self.elements, &self.meta_tree)?))
    }

    fn keep(&self, name: &str, value: &[u8]) -> Result<(), StorageError> {
        Ok(self.meta_tree.put(kept_key(name), value)?)
    }

    fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.meta_tree.get(kept_key(name))?)
    }

    fn swap(&self, first: u16, second: u16, log_position: Option<u64>) -> Result<(), StorageError> {
        self.exchange(first, second, log_position)
    }

    fn count(&self, db: u16) -> u64 {
        self.meta.lock().spaces.get(&db).map_or(0, |space| space.count)
    }

    fn log_position(&self) -> u64 {
        self.meta.lock().log_position
    }

    fn log_disk(&self) -> Option<Arc<dyn Disk>> {
        self.log_disk.clone()
    }
}

impl EngineStorage {
    /// Runs `work` on a background thread and calls `done` with its result.
    fn soon<T: 'static>(
        &self,
        done: Box<dyn FnOnce(Result<T, StorageError>) + Send>,
        work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) {
        let place = Arc::new(Mutex::new(Some(done)));
        let late = place.clone();
        let is_taken = self.db.run_soon(move |turn| {
            let result = turn.map_err(StorageError::from).and_then(|()| work());
            if let Some(done) = late.lock().take() {
                done(result);
            }
        });
        if !is_taken && let Some(done) = place.lock().take() {
            done(Err(StorageError::Unavailable("too many reads wait for storage already".into())));
        }
    }
}

#[cfg(test)]
mod tests;
