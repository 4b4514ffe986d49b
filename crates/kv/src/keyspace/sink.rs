//! Where records of a save gather on their way from the databases to the file.
//!
//! Records are added under the lock of the core: by the walk in pieces, and by commands that are about to change a key which the walk has not reached. The saver takes
//! them without that lock, so a command that finds too much here waits for the disk ([`Sink::preserve`]) and the saver goes on: memory stays bounded however
//! fast keys change.

use super::entry::Entry;
use super::saving::Detached;
use crate::rdb::file::{write_key, write_select};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Records that wait for the disk at which commands wait too.
const BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub struct Sink {
    pending: Mutex<Pending>,
    taken: Condvar,
    /// Keys that were added.
    keys: AtomicU64,
    /// Bytes of keys that were saved because a command changed them.
    preserved: AtomicU64,
    /// The save has ended or is to end: nothing takes records any more.
    is_closed: AtomicBool,
    result: Mutex<Option<Result<u64, String>>>,
}

#[derive(Default)]
struct Pending {
    records: Vec<u8>,
    /// The database that the records select last.
    db: Option<u16>,
    detached: Vec<Detached>,
}

impl Sink {
    /// Bytes of the records that wait for the disk.
    pub fn len(&self) -> usize {
        self.pending.lock().records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn add(&self, db: u16, entry: &Entry, at_ms: Option<i64>) {
        let at_ms = at_ms.map(|at_ms| at_ms.max(0) as u64);
        self.add_record(db, &entry.key, at_ms, |out| entry.value.write_rdb(out));
    }

    pub fn add_record(
        &self,
        db: u16,
        key: &[u8],
        expires_ms: Option<u64>,
        value: impl FnOnce(&mut Vec<u8>) -> u8,
    ) {
        let mut pending = self.pending.lock();
        let selects = pending.db.replace(db) != Some(db);
        if selects {
            write_select(&mut pending.records, u32::from(db));
        }
        write_key(&mut pending.records, key, expires_ms, value);
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a key that is about to be changed. Waits while too much waits for the disk.
    pub fn preserve(&self, db: u16, entry: &Entry, at_ms: Option<i64>) {
        if self.is_closed() {
            return;
        }
        self.preserved.fetch_add(entry.bytes() as u64, Ordering::Relaxed);
        self.add(db, entry, at_ms);
        let mut pending = self.pending.lock();
        while pending.records.len() > BYTES_MAX && !self.is_closed() {
            // With an end, as the save may be closed between the look and the wait.
            self.taken.wait_for(&mut pending, Duration::from_millis(10));
        }
    }

    /// Takes the records.
    pub fn take(&self) -> Vec<u8> {
        let records = std::mem::take(&mut self.pending.lock().records);
        self.taken.notify_all();
        records
    }

    pub fn detach(&self, detached: Detached) {
        if !self.is_closed() {
            self.pending.lock().detached.push(detached);
        }
    }

    /// Goes on with the contents of databases that were emptied; false if there are none left. Called by the saver alone.
    pub fn detached_go_on(&self, bytes: usize) -> bool {
        // The walk adds to this sink: it is taken out meanwhile.
        let Some(mut detached) = self.pending.lock().detached.pop() else { return false };
        if !detached.go_on(bytes) {
            self.pending.lock().detached.push(detached);
        }
        true
    }

    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    pub fn preserved(&self) -> u64 {
        self.preserved.load(Ordering::Relaxed)
    }

    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.taken.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The save has ended: the size of the file, or why there is none.
    pub fn end(&self, result: Result<u64, String>) {
        *self.result.lock() = Some(result);
        self.close();
        // What nothing will save any more.
        *self.pending.lock() = Pending::default();
    }

    pub fn has_ended(&self) -> bool {
        self.result.lock().is_some()
    }

    pub fn take_result(&self) -> Option<Result<u64, String>> {
        self.result.lock().take()
    }
}
