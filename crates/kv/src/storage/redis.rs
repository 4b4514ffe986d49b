//! Storage in another server: Redis (7.0 or later) or Valkey.
//!
//! A key is stored as the same key in the database of the same number, with its time of expiry, so that other clients of the server below see it. This process is the only one that
//! writes: what others write below is not seen while memory has the key.
//!
//! * A write is one transaction of `RESTORE … REPLACE ABSTTL` and `UNLINK`; a read is `DUMP` and `PEXPIRETIME`.
//! * Keys expire by the server's own clock. How many keys a database has, it says with each write and twice a second ([`Storage::expires_by_itself`]).
//! * A scan is the server's own `SCAN`, in the order of its tables ([`Storage::is_ordered`]); its cursors are passed on.
//! * Collections are stored whole.
//! * There is no view at one point in time: a snapshot is taken from the server below.
//!
//! What is acknowledged is as durable as that server makes it. A connection that fails is made again; until then every call fails with the reason. A write in flight then
//! has an unknown outcome: `link` says why it is settled when it is reported.
//!
//! | file | holds |
//! | --- | --- |
//! | `address` | where the server is, as text |
//! | `hello` | whether a server can be storage; closing older connections |
//! | `link` | the connections and their thread |
//! | `reply` | RESP2 |
//! | `transaction` | a write as commands |
//! | `payload` | values as payloads of `DUMP` |
//! | `note` | the reserved key |

mod address;
mod hello;
mod link;
mod note;
mod payload;
mod reply;
mod transaction;

use crate::rdb::kind;
use crate::storage::{
    Durability, ExpiredDone, Get, GetDone, Key, Outcome, Position, ScanDone, Scanned, ScannedKey, Storage,
    StorageError, Stored, View, Write, WriteDone,
};
pub use address::Address;
use hello::{Greeting, Hello};
use link::{Commands, Failure, Link, Op, READS, WRITES};
use note::{LOG, Note, RESERVED, kept_field};
use parking_lot::Mutex;
use reply::Reply;
pub use reply::write_command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_io::World;
use terrace_io::disk::Disk;
use transaction::{Transaction, is_reserved, keys_of, outcome};

/// Keys that one op reads.
const READ_TOGETHER: usize = 16;
/// Keys that are drawn for `RANDOMKEY`: the first that memory does not know to be deleted is taken.
const DRAWN: usize = 10;
/// Writes that are on their way at a time: one is sent while another one's answer is on its way back.
const WRITES_IN_FLIGHT: usize = 4;
/// What a stored name has at most: the other adapters' limit.
const NAME_MAX: usize = crate::storage::row::NAME_MAX;

pub struct Options {
    pub address: Address,
    /// How many databases are needed.
    pub databases: u16,
    /// How long the server may be silent while it is asked something.
    pub timeout: Duration,
    /// Where the write-back log is kept.
    pub log_disk: Option<Arc<dyn Disk>>,
}

pub struct RedisStorage {
    link: Arc<Link>,
    /// How the server is named in errors.
    place: Arc<str>,
    counts: Arc<Vec<AtomicU64>>,
    note: Arc<Mutex<Note>>,
    log_disk: Option<Arc<dyn Disk>>,
    warnings: Vec<String>,
}

impl RedisStorage {
    /// Connects to the server, which belongs to this process from then on.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(world: &World, options: Options) -> Result<Arc<RedisStorage>, StorageError> {
        let Options { address, databases, timeout, log_disk } = options;
        let number = || format!("{:016x}{:016x}", world.random.next_u64(), world.random.next_u64());
        let place: Arc<str> = format!("redis://{address}").into();
        let hello = Hello { address, timeout, databases, owner: number(), new_id: number() };
        let counts: Arc<Vec<AtomicU64>> = Arc::new((0..databases).map(|_| AtomicU64::new(0)).collect());
        let told = counts.clone();
        let greet = Box::new(move |greeting: &Greeting| take_counts(&told, greeting));
        let (link, greeting) = Link::open(world, hello, greet).map_err(StorageError::Unavailable)?;
        take_counts(&counts, &greeting);
        let Greeting { note, warnings, .. } = greeting;
        let warnings = warnings.into_iter().map(|warning| format!("{place}: {warning}")).collect();
        let (link, note) = (Arc::new(link), Arc::new(Mutex::new(note)));
        Ok(Arc::new(RedisStorage { link, place, counts, note, log_disk, warnings }))
    }

    /// The identity of the server's data.
    pub fn id(&self) -> String {
        self.note.lock().text(note::ID).unwrap_or_default().to_owned()
    }

    /// The server's address, without a login.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What a person should know of the server.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn unavailable(&self, why: &str) -> StorageError {
        StorageError::Unavailable(named(&self.place, why))
    }

    /// Why a write cannot be made.
    fn refusal(&self, write: &Write) -> Option<StorageError> {
        let wrong = |text: String| Some(StorageError::Invalid(text));
        for row in &write.rows {
            if !row.key.is_whole() {
                return wrong("this storage keeps collections whole".into());
            }
            if row.key.name.len() > NAME_MAX {
                return wrong(format!("a stored key has at most {NAME_MAX} bytes"));
            }
            if is_reserved(row.key.db, &row.key.name) || usize::from(row.key.db) >= self.counts.len() {
                return wrong("the key is reserved".into());
            }
        }
        None
    }

    /// Runs a transaction and waits for it.
    fn run(&self, transaction: Transaction, counted: &[u16]) -> Outcome {
        match self.link.ask(WRITES, None, transaction.end(counted)) {
            Ok(replies) => {
                let (outcome, found) = outcome(&replies, counted);
                set_counts(&self.counts, &found);
                self.named_outcome(outcome)
            }
            Err(failure) => failed_write(&self.place, failure),
        }
    }

    fn named_outcome(&self, outcome: Outcome) -> Outcome {
        named_outcome(&self.place, outcome)
    }

    /// Asks for names; `take` makes them of the replies, with where to go on.
    fn names(
        &self,
        db: u16,
        commands: Commands,
        take: impl FnOnce(Vec<Reply>) -> Result<(Vec<Vec<u8>>, u64), String> + Send + 'static,
        done: impl FnOnce(Result<Scanned, StorageError>) + Send + 'static,
    ) {
        let place = self.place.clone();
        let done = move |replies: Result<Vec<Reply>, Failure>| {
            let found = replies.map_err(Failure::text).and_then(take).map(|(names, cursor)| {
                let names = names.into_iter().filter(|name| !is_reserved(db, name));
                let of = |name: Vec<u8>| ScannedKey {
                    position: Position::of(&name),
                    name: name.into(),
                    type_byte: kind::STRING,
                    expires_ms: None,
                };
                Scanned { keys: names.map(of).collect(), next: (cursor > 0).then_some(Position(cursor)) }
            });
            done(found.map_err(|why| StorageError::Unavailable(named(&place, &why))));
        };
        let op = Op { db: Some(db), commands: Box::new(move || commands), done: Box::new(done) };
        self.link.submit(READS, op);
    }

    fn walk(
        &self,
        db: u16,
        from: Position,
        limit: usize,
        done: impl FnOnce(Result<Scanned, StorageError>) + Send + 'static,
    ) {
        let mut commands = Commands::default();
        let (mut cursor, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (cursor, count) = (cursor.format(from.0), count.format(limit.max(1)));
        commands.add(&[b"SCAN", cursor.as_bytes(), b"COUNT", count.as_bytes()]);
        self.names(db, commands, scanned, done);
    }
}

fn named(place: &str, why: &str) -> String {
    if why.starts_with("redis://") { why.to_owned() } else { format!("{place}: {why}") }
}

fn named_outcome(place: &str, outcome: Outcome) -> Outcome {
    let error = |error: StorageError| StorageError::Unavailable(named(place, &error.to_string()));
    match outcome {
        Outcome::Written => Outcome::Written,
        Outcome::NotWritten(why) => Outcome::NotWritten(error(why)),
        Outcome::Unknown(why) => Outcome::Unknown(error(why)),
    }
}

fn failed_write(place: &str, failure: Failure) -> Outcome {
    named_outcome(
        place,
        match failure {
            Failure::NotRun(why) => Outcome::NotWritten(StorageError::Unavailable(why)),
            Failure::Unknown(why) => Outcome::Unknown(StorageError::Unavailable(why)),
        },
    )
}

fn set_counts(counts: &[AtomicU64], found: &[(u16, u64)]) {
    for (db, count) in found {
        counts[usize::from(*db)].store(*count, Ordering::Release);
    }
}

fn take_counts(counts: &[AtomicU64], greeting: &Greeting) {
    for (db, (count, size)) in counts.iter().zip(&greeting.counts).enumerate() {
        count.store(keys_of(db as u16, *size as i64), Ordering::Release);
    }
}

/// Names and cursor of the answer to `SCAN`.
fn scanned(mut replies: Vec<Reply>) -> Result<(Vec<Vec<u8>>, u64), String> {
    let reply = replies.pop();
    if let Some(Reply::Error(text)) = reply {
        return Err(text);
    }
    let wrong = || "SCAN is answered with something else than a cursor and keys".to_owned();
    let Some(Reply::Array(parts)) = reply else { return Err(wrong()) };
    let [Reply::Bulk(cursor), Reply::Array(names)] = &parts[..] else { return Err(wrong()) };
    let cursor = std::str::from_utf8(cursor).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    if Position(cursor) > Position::MAX {
        return Err(format!("the cursor {cursor} of its SCAN is too large"));
    }
    let names = names.iter().map(|name| name.bytes().map(<[u8]>::to_vec).ok_or_else(wrong));
    Ok((names.collect::<Result<_, _>>()?, cursor))
}

/// A key's value by the answers to `DUMP` and `PEXPIRETIME`. It may have expired between them.
fn stored(dumped: &Reply, expires: &Reply) -> Result<Option<Stored>, StorageError> {
    match (dumped, expires) {
        (Reply::Error(text), _) | (_, Reply::Error(text)) => Err(StorageError::Unavailable(text.clone())),
        (Reply::Null, _) | (_, Reply::Int(-2)) => Ok(None),
        (Reply::Bulk(dumped), Reply::Int(at_ms)) => {
            Ok(Some(Stored { expires_ms: u64::try_from(*at_ms).ok(), rdb: payload::open(dumped)? }))
        }
        (dumped, expires) => {
            let text = format!("DUMP and PEXPIRETIME are answered with {dumped:?} and {expires:?}");
            Err(StorageError::Unavailable(text))
        }
    }
}

/// The type byte of a type's name.
fn type_byte(name: &Reply) -> Option<u8> {
    Some(match name {
        Reply::Text(name) => match name.as_str() {
            "string" => kind::STRING,
            "list" => kind::LIST,
            "set" => kind::SET,
            "zset" => kind::ZSET,
            "stream" => kind::STREAM_LISTPACKS,
            "hash" => kind::HASH,
            _ => return None,
        },
        _ => return None,
    })
}

/// Databases that a write changes, each once.
fn changed(write: &Write) -> Vec<u16> {
    let mut found = write.emptied.clone();
    found.extend(write.rows.iter().map(|row| row.key.db));
    found.sort_unstable();
    found.dedup();
    found
}

/// The transaction of a write.
fn transaction(write: Write, note: &Mutex<Note>) -> Transaction {
    let mut transaction = Transaction::begin();
    let Write { emptied, mut rows, log_position, .. } = write;
    for &db in &emptied {
        transaction.select(db);
        transaction.add(&[b"FLUSHDB", b"ASYNC"]);
        if db == 0 {
            transaction.add(&note.lock().command());
        }
    }
    rows.sort_by_key(|row| row.key.db);
    for row in rows {
        transaction.select(row.key.db);
        transaction.row(&row.key.name, row.value);
    }
    if let Some(position) = log_position {
        transaction.select(0);
        transaction.add(&log_command(&position.to_string()));
    }
    transaction
}

fn log_command(position: &str) -> [&[u8]; 4] {
    [b"HSET", RESERVED, LOG.as_bytes(), position.as_bytes()]
}

impl Storage for RedisStorage {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn get_many(&self, keys: &[Key], done: &GetDone) -> Result<Vec<Get>, StorageError> {
        let exists = |key: &Key| {
            key.is_whole() && !is_reserved(key.db, &key.name) && usize::from(key.db) < self.counts.len()
        };
        let mut asked: Vec<&Key> = keys.iter().filter(|key| exists(key)).collect();
        asked.sort_by_key(|key| key.db);
        for keys in
            asked.chunk_by(|one, other| one.db == other.db).flat_map(|of_db| of_db.chunks(READ_TOGETHER))
        {
            let Some(db) = keys.first().map(|key| key.db) else { continue };
            let mut commands = Commands::default();
            for key in keys {
                commands.add(&[b"DUMP", &key.name]);
                commands.add(&[b"PEXPIRETIME", &key.name]);
            }
            let keys: Vec<Key> = keys.iter().map(|key| (*key).clone()).collect();
            let (done, place) = (done.clone(), self.place.clone());
            let of_error = |place: &str, error: StorageError| match error {
                StorageError::Unavailable(why) => StorageError::Unavailable(named(place, &why)),
                other => other,
            };
            let ended = move |replies: Result<Vec<Reply>, Failure>| match replies {
                Ok(replies) => {
                    for (key, pair) in keys.iter().zip(replies.chunks(2)) {
                        let read = match pair {
                            [dumped, expires] => stored(dumped, expires),
                            _ => Err(StorageError::Unavailable("an answer is missing".into())),
                        };
                        done(key, read.map_err(|error| of_error(&place, error)));
                    }
                }
                Err(failure) => {
                    let error = StorageError::Unavailable(named(&place, &failure.text()));
                    keys.iter().for_each(|key| done(key, Err(error.clone())));
                }
            };
            let op = Op { db: Some(db), commands: Box::new(move || commands), done: Box::new(ended) };
            self.link.submit(READS, op);
        }
        Ok(keys.iter().map(|key| if exists(key) { Get::Pending } else { Get::Absent }).collect())
    }

    fn write(&self, write: Write, _: Durability, done: WriteDone) -> Option<Outcome> {
        if let Some(error) = self.refusal(&write) {
            return Some(Outcome::NotWritten(error));
        }
        let counted = changed(&write);
        let (counts, note, place) = (self.counts.clone(), self.note.clone(), self.place.clone());
        let (link, log_position, of_end) = (Arc::downgrade(&self.link), write.log_position, counted.clone());
        let ended = move |replies: Result<Vec<Reply>, Failure>| {
            let outcome = match replies {
                Ok(replies) => {
                    let (outcome, found) = outcome(&replies, &counted);
                    set_counts(&counts, &found);
                    named_outcome(&place, outcome)
                }
                Err(failure) => failed_write(&place, failure),
            };
            match &outcome {
                Outcome::Written => {
                    if let Some(position) = log_position {
                        note.lock().set(LOG, position.to_string().as_bytes());
                    }
                }
                // Another server may be the master by now.
                Outcome::NotWritten(error) if error.to_string().contains(": READONLY ") => {
                    if let Some(link) = link.upgrade() {
                        link.reconnect(&error.to_string());
                    }
                }
                _ => {}
            }
            done(outcome);
        };
        let note = self.note.clone();
        let commands = Box::new(move || transaction(write, &note).end(&of_end));
        self.link.submit(WRITES, Op { db: None, commands, done: Box::new(ended) });
        None
    }

    fn writes_in_flight_max(&self) -> usize {
        WRITES_IN_FLIGHT
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn expires_by_itself(&self) -> bool {
        true
    }

    fn reserves(&self, db: u16, name: &[u8]) -> bool {
        is_reserved(db, name)
    }

    fn scan(&self, db: u16, from: Position, limit: usize, done: ScanDone) {
        let (link, place) = (Arc::downgrade(&self.link), self.place.clone());
        self.walk(db, from, limit, move |piece| {
            let mut piece = match piece {
                Ok(piece) if !piece.keys.is_empty() => piece,
                other => return done(other),
            };
            let mut commands = Commands::default();
            piece.keys.iter().for_each(|found| commands.add(&[b"TYPE", &found.name]));
            let ended = move |replies: Result<Vec<Reply>, Failure>| {
                let types =
                    replies.map_err(|failure| StorageError::Unavailable(named(&place, &failure.text())));
                done(types.map(|types| {
                    let mut types = types.iter();
                    piece.keys.retain_mut(|found| {
                        // One without a type has expired since.
                        let byte = types.next().and_then(type_byte);
                        found.type_byte = byte.unwrap_or(found.type_byte);
                        byte.is_some()
                    });
                    piece
                }));
            };
            let op = Op { db: Some(db), commands: Box::new(move || commands), done: Box::new(ended) };
            match link.upgrade() {
                Some(link) => link.submit(READS, op),
                None => (op.done)(Err(Failure::NotRun("the storage was closed".into()))),
            }
        });
    }

    fn scan_names(&self, db: u16, from: Position, limit: usize, done: ScanDone) {
        self.walk(db, from, limit, done);
    }

    fn random(&self, db: u16, _: Position, _: usize, done: ScanDone) {
        let mut commands = Commands::default();
        (0..DRAWN).for_each(|_| commands.add(&[b"RANDOMKEY"]));
        let take = |replies: Vec<Reply>| {
            if let Some(Reply::Error(text)) = replies.first() {
                return Err(text.clone());
            }
            Ok((replies.iter().filter_map(|name| name.bytes().map(<[u8]>::to_vec)).collect(), 0))
        };
        self.names(db, commands, take, done);
    }

    fn expired(&self, _: u64, _: usize, done: ExpiredDone) {
        // They are deleted below already: what is asked for is how many keys are left.
        let some = |(_, count): &(usize, &AtomicU64)| count.load(Ordering::Acquire) > 0;
        let databases: Vec<u16> =
            self.counts.iter().enumerate().filter(some).map(|(db, _)| db as u16).collect();
        if databases.is_empty() {
            return done(Ok(Vec::new()));
        }
        let mut commands = Commands::default();
        for &db in &databases {
            commands.add(&[b"SELECT", itoa::Buffer::new().format(db).as_bytes()]);
            commands.add(&[b"DBSIZE"]);
        }
        let counts = self.counts.clone();
        let ended = move |replies: Result<Vec<Reply>, Failure>| {
            for (db, pair) in databases.iter().zip(replies.unwrap_or_default().chunks(2)) {
                if let [Reply::Ok, Reply::Int(size)] = pair {
                    set_counts(&counts, &[(*db, keys_of(*db, *size))]);
                }
            }
            done(Ok(Vec::new()));
        };
        // Behind the writes, so that the counts are those after them.
        let op = Op { db: None, commands: Box::new(move || commands), done: Box::new(ended) };
        self.link.submit(WRITES, op);
    }

    fn view(&self) -> Result<Box<dyn View>, StorageError> {
        let text = "storage in another server has no snapshots: take one there (BGSAVE)";
        Err(StorageError::Invalid(text.into()))
    }

    fn keep(&self, name: &str, value: &[u8]) -> Result<(), StorageError> {
        let field = kept_field(name);
        let mut commands = Commands::default();
        commands.add(&[b"SELECT", b"0"]);
        commands.add(&[b"HSET", RESERVED, field.as_bytes(), value]);
        let replies = self.link.ask(WRITES, None, commands);
        let replies = replies.map_err(|failure| self.unavailable(&failure.text()))?;
        for reply in replies {
            if let Reply::Error(text) = reply {
                return Err(self.unavailable(&text));
            }
        }
        self.note.lock().set(&field, value);
        Ok(())
    }

    fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.note.lock().get(&kept_field(name)).map(<[u8]>::to_vec))
    }

    fn swap(&self, first: u16, second: u16, log_position: Option<u64>) -> Result<(), StorageError> {
        let mut transaction = Transaction::begin();
        let has_note = first == 0 || second == 0;
        if has_note {
            transaction.select(0);
            transaction.add(&[b"UNLINK", RESERVED]);
        }
        let (one, other) = (first.to_string(), second.to_string());
        transaction.add(&[b"SWAPDB", one.as_bytes(), other.as_bytes()]);
        transaction.select(0);
        if has_note {
            transaction.add(&self.note.lock().command());
        }
        let log = log_position.map(|position| position.to_string());
        if let Some(position) = &log {
            transaction.add(&log_command(position));
        }
        match self.run(transaction, &[first, second]) {
            Outcome::Written => {
                log.iter().for_each(|position| self.note.lock().set(LOG, position.as_bytes()));
                Ok(())
            }
            Outcome::NotWritten(error) => Err(error),
            // It may be done, and nothing here may see it: the next start finds out.
            Outcome::Unknown(error) => {
                let why = format!("it is not known whether databases were exchanged: start again ({error})");
                self.link.stop(why.clone());
                Err(self.unavailable(&why))
            }
        }
    }

    fn count(&self, db: u16) -> u64 {
        self.counts.get(usize::from(db)).map_or(0, |count| count.load(Ordering::Acquire))
    }

    fn log_position(&self) -> u64 {
        self.note.lock().number(LOG).unwrap_or(0)
    }

    fn log_disk(&self) -> Option<Arc<dyn Disk>> {
        self.log_disk.clone()
    }

    fn failure(&self) -> Option<StorageError> {
        self.link.down().map(|why| self.unavailable(&why))
    }
}
