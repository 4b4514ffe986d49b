//! A start writes to storage what the write-back log has and storage has not, before the first client is served.
//!
//! The last write says that storage has everything up to the last record. A crash before it leaves the log as it was: it is replayed again.

use super::read::Replayed;
use crate::planted;
use crate::storage::{Durability, Get, Key, Outcome, Row, Storage, StorageError, Stored, Write, heads};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc;
use terrace_io::disk::Disk;

/// Rows and about the bytes of one write.
const ROWS_TOGETHER: usize = 1000;
const BYTES_TOGETHER: usize = 4 << 20;

type Answer = (Key, Result<Option<Stored>, StorageError>);

/// What storage has of keys; waits for it.
fn present(storage: &dyn Storage, keys: &[Key]) -> Result<HashMap<Key, Option<Stored>>, StorageError> {
    let (told, heard) = mpsc::channel::<Answer>();
    let told = parking_lot::Mutex::new(told);
    let done = Arc::new(move |key: &Key, read| _ = told.lock().send((key.clone(), read)));
    let mut found = HashMap::new();
    let answers = storage.get_many(keys, &(done as crate::storage::GetDone))?;
    let mut pending = 0;
    for (key, answer) in keys.iter().zip(answers) {
        match answer {
            Get::Hit(stored) => _ = found.insert(key.clone(), Some(stored)),
            Get::Absent => _ = found.insert(key.clone(), None),
            Get::Pending => pending += 1,
        }
    }
    for _ in 0..pending {
        let gone = |_| StorageError::Unavailable("storage does not answer".into());
        let (key, read) = heard.recv().map_err(gone)?;
        found.insert(key, read?);
    }
    Ok(found)
}

fn write(storage: &dyn Storage, write: Write) -> Result<(), StorageError> {
    let (told, heard) = mpsc::channel();
    let done = Box::new(move |outcome| _ = told.send(outcome));
    let outcome = match storage.write(write, Durability::Durable, done) {
        Some(outcome) => outcome,
        None => heard.recv().map_err(|_| StorageError::Unavailable("storage does not answer".into()))?,
    };
    match outcome {
        Outcome::Written => Ok(()),
        Outcome::NotWritten(error) | Outcome::Unknown(error) => Err(error),
    }
}

/// Brings storage up to date with its log. Returns where the log is, if there is a place for one, and its last record.
pub fn catch_up(storage: &dyn Storage) -> Result<Option<(Arc<dyn Disk>, u64)>, StorageError> {
    let Some(disk) = storage.log_disk() else { return Ok(None) };
    let replayed = super::read::read(&*disk, storage.log_position())?;
    let last = replayed.last;
    replay(storage, replayed)?;
    Ok(Some((disk, last)))
}

fn replay(storage: &dyn Storage, replayed: Replayed) -> Result<(), StorageError> {
    if replayed.last == storage.log_position() || planted::LOG_NOT_REPLAYED.on() {
        return Ok(());
    }
    let Replayed { emptied, rows, last } = replayed;
    if !emptied.is_empty() {
        let alive = heads(rows.iter()).collect();
        write(storage, Write { emptied: emptied.into_iter().collect(), alive, ..Write::default() })?;
    }
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        let (mut bytes, mut part) = (0, Vec::new());
        while part.len() < ROWS_TOGETHER
            && bytes < BYTES_TOGETHER
            && let Some((key, value)) = rows.next()
        {
            bytes += key.name.len() + value.as_ref().map_or(0, |value| value.rdb.len());
            part.push((key, value));
        }
        let keys: Vec<Key> = part.iter().map(|(key, _)| key.clone()).collect();
        let mut present = present(storage, &keys)?;
        let rows = part.into_iter().filter_map(|(key, value)| {
            let before = present.remove(&key).flatten();
            let expired_ms = before.as_ref().and_then(|before| before.expires_ms);
            (before.is_some() || value.is_some()).then(|| Row {
                key,
                value,
                existed: before.is_some(),
                expired_ms,
            })
        });
        let rows: Vec<Row> = rows.collect();
        if !rows.is_empty() {
            write(storage, Write { rows, ..Write::default() })?;
        }
    }
    write(storage, Write { log_position: Some(last), ..Write::default() })
}
