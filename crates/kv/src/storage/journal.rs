//! The log of write-back: what was changed and is not in storage yet, on the volume, so that a crash loses nothing that `appendfsync` promises.
//!
//! What the commands of a turn changed is one record: the present values of the changed keys. Records are numbered without gaps. Storage keeps, in the
//! write that makes it so, up to which record it has everything ([`Storage::log_position`]); the records after that are replayed by a start. As they hold
//! values, it does no harm that storage has newer ones of some keys; only the end of the log has to be at least as new as what storage has, so rows are
//! written after the log is durable up to the newest record that they hold.
//!
//! Records are appended to segments, files that are named by their first record. An append is handed to the operating system at once: it survives
//! the end of the process. A sync is a worker's work. After one is asked for, the next record begins a sector of its own, so that what is durable is not
//! written again. A segment whose records are all in storage is removed. A start replays and removes all of them.
//!
//! A crash leaves records that are whole, then one that is not, or the end of a file. Numbers are not given out again while a file has them.
//! An append or a sync that fails is final: the log takes nothing more, and replies wait for storage from then on.
//!
//! | file | holds |
//! | --- | --- |
//! | `record` | the bytes of a record |
//! | `read` | reading the log back |
//! | `replay` | writing what it says to storage |

pub mod read;
pub mod record;
pub mod replay;

use crate::planted;
use crate::storage::StorageError;
use parking_lot::Mutex;
use record::Record;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_io::disk::{Class, Disk, DiskError, File, FileWrite, Op};
use terrace_io::sched::{Event as Wake, Step, Worker, WorkerHandle};
use terrace_io::{SECTOR, World};

const CLASS: Class = Class::LogWrite;
/// A segment takes no more records when it is this long.
const SEGMENT_BYTES: u64 = 16 << 20;
/// A buffer for the bytes of an append is kept for the next one if it is no longer than this.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// A segment that takes records is removed if it has this many bytes, all of them in storage.
const REMOVED_BYTES_MIN: u64 = 1 << 20;

fn segment_name(first: u64) -> String {
    format!("kv-log.{first:016x}")
}

fn segment_number(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("kv-log.")?, 16).ok()
}

impl From<DiskError> for StorageError {
    fn from(error: DiskError) -> StorageError {
        StorageError::Unavailable(format!("the write-back log: {error}"))
    }
}

/// The segment that records are appended to.
struct Tail {
    file: Arc<dyn File>,
    end: u64,
    /// What the last sector has, which is not whole.
    sector: Vec<u8>,
}

struct Segment {
    name: String,
    first: u64,
    bytes: u64,
}

/// What the worker is to do.
#[derive(Default)]
struct Wanted {
    /// Segments with appends that are not durable, in order, and whether one of them is new.
    files: Vec<Arc<dyn File>>,
    is_new: bool,
    upto: u64,
    syncs: bool,
    /// The worker is syncing.
    is_syncing: bool,
    removes: Vec<String>,
}

/// What a sync has to make durable.
struct Sync {
    files: Vec<Arc<dyn File>>,
    is_new: bool,
    upto: u64,
}

impl Wanted {
    fn take_sync(&mut self) -> Sync {
        let last = self.files.last().cloned();
        let files = std::mem::take(&mut self.files);
        // Appends to the last one may go on during the sync.
        self.files.extend(last);
        Sync { files, is_new: std::mem::take(&mut self.is_new), upto: self.upto }
    }
}

impl Sync {
    /// Returns up to which record the log is durable.
    fn run(self, disk: &dyn Disk) -> Result<u64, StorageError> {
        for file in &self.files {
            file.sync(CLASS)?;
        }
        if self.is_new {
            disk.sync_dir()?;
        }
        Ok(self.upto)
    }
}

struct Syncer {
    disk: Arc<dyn Disk>,
    wanted: Arc<Mutex<Wanted>>,
    wake: Arc<Wake>,
    done: SyncDone,
}

/// Told up to which record the log is durable, or that it cannot be made so. Called from another thread.
pub type SyncDone = Box<dyn Fn(Result<u64, StorageError>) + Send>;

pub struct Journal {
    disk: Arc<dyn Disk>,
    tail: Option<Tail>,
    /// For the bytes of the next append.
    buffer: Vec<u8>,
    segments: VecDeque<Segment>,
    last: u64,
    failure: Option<StorageError>,
    wanted: Arc<Mutex<Wanted>>,
    wake: Arc<Wake>,
    _worker: Box<dyn WorkerHandle>,
    /// Records and bytes since the start.
    pub records: u64,
    pub appended_bytes: u64,
    /// Records with the bytes that were appended up to them, one a write to storage, and the bytes up to the record that was released last.
    marks: VecDeque<(u64, u64)>,
    released_bytes: u64,
}

impl Journal {
    /// A log whose next record has a number above `last`. Removes the segments of the log before, which has to be replayed.
    pub fn begin(
        world: &World,
        disk: Arc<dyn Disk>,
        last: u64,
        done: SyncDone,
    ) -> Result<Journal, DiskError> {
        for name in disk.list()?.iter().filter(|name| segment_number(name).is_some()) {
            disk.remove(name)?;
        }
        disk.sync_dir()?;
        let (wanted, wake): (Arc<Mutex<Wanted>>, Arc<Wake>) = Default::default();
        let syncer = Syncer { disk: disk.clone(), wanted: wanted.clone(), wake: wake.clone(), done };
        let worker = world.sched.try_spawn(Box::new(syncer)).map_err(|error| DiskError::Failed {
            name: disk.describe(),
            what: "start a thread for",
            offset: 0,
            len: 0,
            cause: error.to_string(),
        })?;
        Ok(Journal {
            disk,
            tail: None,
            buffer: Vec::new(),
            segments: VecDeque::new(),
            last,
            failure: None,
            wanted,
            wake,
            _worker: worker,
            records: 0,
            appended_bytes: 0,
            marks: VecDeque::new(),
            released_bytes: 0,
        })
    }

    /// Bytes of the segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes of records that storage may not have.
    pub fn live_bytes(&self) -> u64 {
        self.appended_bytes - self.released_bytes
    }

    /// Remembers how long the log is, for [`Journal::live_bytes`]: what is dirty now is being written.
    pub fn mark(&mut self) {
        if self.marks.back().is_none_or(|(record, _)| *record != self.last) {
            self.marks.push_back((self.last, self.appended_bytes));
        }
    }

    /// Why it takes nothing more, if it does not.
    pub fn failure(&self) -> Option<&StorageError> {
        self.failure.as_ref()
    }

    /// It takes nothing more.
    pub fn fail(&mut self, error: StorageError) {
        self.failure.get_or_insert(error);
    }

    /// Appends a record: it survives the end of the process.
    pub fn append(&mut self, record: &Record) -> Result<(), StorageError> {
        self.append_with(record.number, |out| record.encode(out))
    }

    /// As [`Journal::append`], of a record that `encode` appends to a buffer.
    pub fn append_with(
        &mut self,
        number: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), StorageError> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        debug_assert!(number > self.last, "records are numbered in order");
        self.hand(number, encode).inspect_err(|error| self.failure = Some(error.clone()))
    }

    fn hand(&mut self, number: u64, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), StorageError> {
        let mut tail = match self.tail.take().filter(|tail| tail.end < SEGMENT_BYTES) {
            Some(tail) => tail,
            None => self.begin_segment(number)?,
        };
        let start = tail.end - tail.sector.len() as u64;
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        bytes.extend_from_slice(&tail.sector);
        encode(&mut bytes);
        let len = bytes.len();
        let appended = len as u64 - (tail.end - start);
        bytes.resize(len.next_multiple_of(SECTOR), 0);
        let ops = vec![Op::Write { offset: start, buf: &bytes }];
        let mut writes = [FileWrite { file: &*tail.file, ops }];
        self.disk.write_handed(CLASS, &mut writes).into_iter().collect::<Result<(), DiskError>>()?;
        drop(writes);
        tail.end = start + len as u64;
        tail.sector.clear();
        tail.sector.extend_from_slice(&bytes[len / SECTOR * SECTOR..len]);
        if bytes.capacity() <= BUFFER_BYTES_MAX {
            self.buffer = bytes;
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.bytes = tail.end;
        }
        let mut wanted = self.wanted.lock();
        if !wanted.files.last().is_some_and(|file| Arc::ptr_eq(file, &tail.file)) {
            wanted.files.push(tail.file.clone());
        }
        drop(wanted);
        self.last = number;
        self.records += 1;
        self.appended_bytes += appended;
        self.tail = Some(tail);
        Ok(())
    }

    fn begin_segment(&mut self, first: u64) -> Result<Tail, StorageError> {
        let name = segment_name(first);
        let file = self.disk.create(&name)?;
        self.wanted.lock().is_new = true;
        self.segments.push_back(Segment { name, first, bytes: 0 });
        Ok(Tail { file, end: 0, sector: Vec::new() })
    }

    /// Has what was appended synced; [`SyncDone`] is told.
    pub fn sync_soon(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.end_sector();
        let mut wanted = self.wanted.lock();
        (wanted.syncs, wanted.upto) = (true, self.last);
        drop(wanted);
        self.wake.notify();
    }

    /// Syncs on the caller's thread; returns up to which record the log is durable. `None`: the worker is syncing or about to.
    pub fn sync_here(&mut self) -> Option<Result<u64, StorageError>> {
        if let Some(error) = &self.failure {
            return Some(Err(error.clone()));
        }
        let mut wanted = self.wanted.lock();
        if wanted.syncs || wanted.is_syncing {
            return None;
        }
        wanted.upto = self.last;
        let sync = wanted.take_sync();
        drop(wanted);
        self.end_sector();
        if planted::SYNC_SKIPPED.on() {
            return Some(Ok(self.last));
        }
        Some(sync.run(&*self.disk))
    }

    /// What is durable is not written again: the next record begins a sector.
    fn end_sector(&mut self) {
        if let Some(tail) = &mut self.tail {
            let end = tail.end.next_multiple_of(SECTOR as u64);
            self.appended_bytes += end - tail.end;
            tail.end = end;
            tail.sector.clear();
        }
    }

    /// Storage has everything up to a record.
    pub fn release(&mut self, upto: u64) {
        while let Some((record, bytes)) = self.marks.front().copied()
            && record <= upto
        {
            self.released_bytes = bytes;
            self.marks.pop_front();
        }
        let mut names = Vec::new();
        while self.segments.front().is_some() {
            let is_whole = match self.segments.get(1) {
                Some(next) => next.first <= upto + 1,
                None => self.last <= upto && self.bytes() >= REMOVED_BYTES_MIN,
            };
            if !is_whole {
                break;
            }
            names.extend(self.segments.pop_front().map(|segment| segment.name));
        }
        if names.is_empty() {
            return;
        }
        if self.segments.is_empty() {
            self.tail = None;
        }
        self.wanted.lock().removes.extend(names);
        self.wake.notify();
    }
}

impl Worker for Syncer {
    fn name(&self) -> &'static str {
        "kv-log"
    }

    fn step(&mut self) -> Step {
        let mut wanted = self.wanted.lock();
        let removes = std::mem::take(&mut wanted.removes);
        let sync = std::mem::take(&mut wanted.syncs).then(|| wanted.take_sync());
        wanted.is_syncing = sync.is_some();
        drop(wanted);
        for name in &removes {
            // What stays is removed by a start.
            let _ = self.disk.remove(name);
        }
        let is_idle = sync.is_none() && removes.is_empty();
        if let Some(sync) = sync {
            let synced = sync.run(&*self.disk);
            self.wanted.lock().is_syncing = false;
            (self.done)(synced);
        }
        if is_idle { Step::Idle } else { Step::Worked }
    }

    fn wake_event(&self) -> Arc<Wake> {
        self.wake.clone()
    }
}

#[cfg(test)]
mod tests;
