//! Storage that refuses, fails and stalls as a test asks, over the engine.

use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use terrace_io::disk::Disk;
use terrace_kv::storage::engine::EngineStorage;
use terrace_kv::storage::{
    Durability, ElementsDone, ExpiredDone, Get, GetDone, Key, Outcome, Position, ScanDone, Storage,
    StorageError, View, Write, WriteDone,
};

/// What becomes of a write that changes a key of a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// Storage is as it was before.
    Refused,
    /// The write is made and reported as unknown.
    UnknownWritten,
    /// The write is not made and reported as unknown.
    UnknownLost,
    /// A read of the key fails.
    Unreadable,
}

type HeldRead = (Vec<Key>, GetDone);

#[derive(Default)]
struct State {
    faults: HashSet<(Fault, Box<[u8]>)>,
    holds_writes: bool,
    holds_reads: bool,
    holds_scans: bool,
    scans: Vec<(u16, Position, usize, ScanDone)>,
    writes: Vec<(Write, Durability, WriteDone)>,
    reads: Vec<HeldRead>,
}

pub struct Faulty {
    inner: Arc<EngineStorage>,
    state: Mutex<State>,
    held: Condvar,
}

fn unavailable() -> StorageError {
    StorageError::Unavailable("the volume does not answer".into())
}

impl Faulty {
    pub fn new(inner: Arc<EngineStorage>) -> Arc<Faulty> {
        Arc::new(Faulty { inner, state: Mutex::default(), held: Condvar::new() })
    }

    pub fn fail(&self, fault: Fault, key: &str) {
        self.state.lock().faults.insert((fault, key.as_bytes().into()));
    }

    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    pub fn hold_writes(&self) {
        self.state.lock().holds_writes = true;
    }

    pub fn hold_reads(&self) {
        self.state.lock().holds_reads = true;
    }

    pub fn hold_scans(&self) {
        self.state.lock().holds_scans = true;
    }

    pub fn wait_for_scan(&self) {
        self.wait_until(|state| !state.scans.is_empty());
    }

    /// Waits until a write stands still.
    pub fn wait_for_write(&self) {
        self.wait_until(|state| !state.writes.is_empty());
    }

    /// Waits until reads of at least `keys` keys are held back.
    pub fn wait_for_reads(&self, keys: usize) {
        self.wait_until(|state| state.reads.iter().map(|(keys, _)| keys.len()).sum::<usize>() >= keys);
    }

    fn wait_until(&self, is_there: impl Fn(&State) -> bool) {
        let mut state = self.state.lock();
        while !is_there(&state) {
            let waited = self.held.wait_for(&mut state, Duration::from_secs(60));
            assert!(!waited.timed_out(), "storage was not asked");
        }
    }

    /// Carries on with what stands still, and holds nothing any more.
    pub fn release(&self) {
        let (writes, reads, scans) = {
            let mut state = self.state.lock();
            (state.holds_writes, state.holds_reads, state.holds_scans) = (false, false, false);
            let writes = std::mem::take(&mut state.writes);
            (writes, std::mem::take(&mut state.reads), std::mem::take(&mut state.scans))
        };
        for (db, from, limit, done) in scans {
            self.inner.scan(db, from, limit, done);
        }
        for (write, durability, done) in writes {
            // One completion, now or later.
            let done = Arc::new(Mutex::new(Some(done)));
            let late = done.clone();
            let told = Box::new(move |outcome| late.lock().take().unwrap()(outcome));
            if let Some(outcome) = self.apply(write, durability, told) {
                done.lock().take().unwrap()(outcome);
            }
        }
        for (keys, done) in reads {
            let answers = self.read(&keys, &done).unwrap();
            for (key, answer) in keys.iter().zip(answers) {
                match answer {
                    Get::Hit(stored) => done(key, Ok(Some(stored))),
                    Get::Absent => done(key, Ok(None)),
                    Get::Pending => {}
                }
            }
        }
    }

    fn is_faulty(&self, fault: Fault, key: &Key) -> bool {
        self.state.lock().faults.contains(&(fault, key.name.as_bytes().into()))
    }

    fn apply(&self, write: Write, durability: Durability, done: WriteDone) -> Option<Outcome> {
        let has = |fault| write.rows.iter().any(|row| self.is_faulty(fault, &row.key));
        if has(Fault::Refused) {
            return Some(Outcome::NotWritten(unavailable()));
        }
        if has(Fault::UnknownLost) {
            return Some(Outcome::Unknown(unavailable()));
        }
        if has(Fault::UnknownWritten) {
            let told = Box::new(move |outcome| {
                assert_eq!(outcome, Outcome::Written);
                done(Outcome::Unknown(unavailable()));
            });
            let outcome = self.inner.write(write, durability, told)?;
            assert_eq!(outcome, Outcome::Written);
            return Some(Outcome::Unknown(unavailable()));
        }
        self.inner.write(write, durability, done)
    }

    fn read(&self, keys: &[Key], done: &GetDone) -> Result<Vec<Get>, StorageError> {
        let mut answers = Vec::new();
        for key in keys {
            if self.is_faulty(Fault::Unreadable, key) {
                done(key, Err(unavailable()));
                answers.push(Get::Pending);
                continue;
            }
            answers.extend(self.inner.get_many(std::slice::from_ref(key), done)?);
        }
        Ok(answers)
    }
}

impl Storage for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn get_many(&self, keys: &[Key], done: &GetDone) -> Result<Vec<Get>, StorageError> {
        let mut state = self.state.lock();
        if state.holds_reads {
            state.reads.push((keys.to_vec(), done.clone()));
            self.held.notify_all();
            return Ok(vec![Get::Pending; keys.len()]);
        }
        drop(state);
        self.read(keys, done)
    }

    fn write(&self, write: Write, durability: Durability, done: WriteDone) -> Option<Outcome> {
        let mut state = self.state.lock();
        if state.holds_writes {
            state.writes.push((write, durability, done));
            self.held.notify_all();
            return None;
        }
        drop(state);
        self.apply(write, durability, done)
    }

    fn writes_in_flight_max(&self) -> usize {
        self.inner.writes_in_flight_max()
    }

    fn scan(&self, db: u16, from: Position, limit: usize, done: ScanDone) {
        let mut state = self.state.lock();
        if state.holds_scans {
            state.scans.push((db, from, limit, done));
            self.held.notify_all();
            return;
        }
        drop(state);
        self.inner.scan(db, from, limit, done);
    }

    fn next_generation(&self) -> Option<u64> {
        self.inner.next_generation()
    }

    fn elements(&self, generation: u64, from: Position, limit: usize, done: ElementsDone) {
        self.inner.elements(generation, from, limit, done);
    }

    fn expired(&self, now_ms: u64, limit: usize, done: ExpiredDone) {
        self.inner.expired(now_ms, limit, done);
    }

    fn view(&self) -> Result<Box<dyn View>, StorageError> {
        self.inner.view()
    }

    fn keep(&self, name: &str, value: &[u8]) -> Result<(), StorageError> {
        self.inner.keep(name, value)
    }

    fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, StorageError> {
        self.inner.kept(name)
    }

    fn swap(&self, first: u16, second: u16, log_position: Option<u64>) -> Result<(), StorageError> {
        self.inner.swap(first, second, log_position)
    }

    fn count(&self, db: u16) -> u64 {
        self.inner.count(db)
    }

    fn log_position(&self) -> u64 {
        self.inner.log_position()
    }

    fn log_disk(&self) -> Option<Arc<dyn Disk>> {
        self.inner.log_disk()
    }
}

/// Storage that answers again when it is dropped, so that the server, which waits for its writes, can end.
pub struct Healed(pub Arc<Faulty>);

impl Drop for Healed {
    fn drop(&mut self) {
        self.0.heal();
        self.0.release();
    }
}

impl std::ops::Deref for Healed {
    type Target = Faulty;
    fn deref(&self) -> &Faulty {
        &self.0
    }
}
