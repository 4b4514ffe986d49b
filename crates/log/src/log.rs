//! The redo log: what makes a commit durable.
//!
//! One stream of positions (GLSN), several rings of blocks. A mini-transaction takes one gapless range of
//! GLSNs while it holds its latches (`order`); each of its records goes to the partition of its page
//! (`partition`; CloudJump §4.1.1), and waits there until a thread needs it durable: that thread writes for all
//! (`writer`, group commit). The **horizon** is the end of the gapless durable prefix over all
//! partitions; only it releases commits and lets pages be written.
//!
//! A position is *appended* when its range was given out, *durable* when the horizon has passed it.
//! Between them it is *written* when the operating system has it: enough for a commit that only has to survive the end of the process.
//! Appended always lies on the end of a range. Above durable a crash may keep any part; recovery
//! keeps the gapless prefix up to the end of a range (`recovery`).
//!
//! **Room** (`space`): blocks are reserved before the first latch; a ring cannot overflow. A thread that finds no room
//! wakes the checkpoint and waits, bounded.
//!
//! A failed write or sync **poisons** the log: nothing after it is acknowledged, nothing retries it.
//!
//! Lock: `order`, for memory work; the caller's stamp callback runs under it, so that whoever reads
//! `appended` and then looks for dirty pages finds every page changed below it. I/O with no lock held.
//!
//! Not here: reading (`recovery`), how far back it must reach (`terrace_engine`'s checkpoint).

pub mod background;
mod writer;

use crate::hold::{Hold, HoldState, Mark};
use crate::order::{Order, partition_of};
use crate::partition::{PartitionStart, file_name};
use crate::space::Verdict;
use crate::{Glsn, LogError, LogRoom, LsnRange, PageId, PageRedo, Redo, Urgency, block, record_bound};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_io::AlignedBuf;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::disk::{Class, Disk, DiskError, File};
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::observe;
use terrace_io::sched::Event;
use writer::Until;

/// The background writer writes when a fourth of what may wait does, so that others need not.
const WRITE_AT: usize = 4;
/// How long a reservation sleeps between looks, in nanoseconds.
const PATIENCE: Nanos = 100_000_000;

#[derive(Default, Debug)]
pub struct LogCounters {
    /// Bytes of records and mini-transactions appended.
    pub bytes: AtomicU64,
    pub ranges: AtomicU64,
    /// Writes of one partition, with their syncs or without; and the blocks in them.
    pub writes: AtomicU64,
    pub blocks: AtomicU64,
    /// Reservations that had to wait for a checkpoint.
    pub room_waits: AtomicU64,
}

impl LogCounters {
    fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// What a log is made of and where it goes on.
pub struct LogSetup {
    pub world: World,
    pub volume: Arc<dyn Disk>,
    /// One for each partition.
    pub files: Vec<Arc<dyn File>>,
    pub starts: Vec<PartitionStart>,
    /// Blocks of each ring.
    pub blocks: u64,
    /// The low half of the instance's id.
    pub instance: u64,
    pub epoch: u32,
    pub checkpoint: Glsn,
    /// The first GLSN to give out.
    pub next: Glsn,
    /// The longest that a reservation waits for room.
    pub room_wait_max: Nanos,
    /// Bytes of records that may wait to be written before a reservation writes them itself.
    pub waiting_max: usize,
    /// Blocks stay for a reader that copies the log, from those that recovery found on, and it is kept what was appended when.
    pub holds: bool,
}

/// Called once, by a thread that writes the log: it must not wait.
pub type Promise = Box<dyn FnOnce(Result<(), LogError>) + Send>;

pub struct Log {
    world: World,
    volume: Arc<dyn Disk>,
    files: Vec<Arc<dyn File>>,
    blocks: u64,
    instance: u64,
    epoch: u32,
    room_wait_max: Nanos,
    waiting_max: usize,
    holds: bool,
    order: Mutex<Order, { Mutexes::LogOrder as u8 }>,
    appended: AtomicU64,
    horizon: AtomicU64,
    /// Never below the horizon.
    written_to: AtomicU64,
    checkpoint: AtomicU64,
    /// The horizon or `written_to` moved, or the log is poisoned.
    written: Event,
    /// Room became free, or the log is poisoned.
    room_freed: Event,
    room_waiters: AtomicU64,
    /// For the checkpoint worker: the ring is half full, or a thread asks.
    pub checkpoint_wanted: Arc<Event>,
    /// Enough waits to be written without being asked for: for the background writer.
    pub much_waits: Arc<Event>,
    /// Much was written that the reader for whom blocks stay has not looked at.
    pub much_to_read: Arc<Event>,
    checkpoint_asked: AtomicBool,
    /// The checkpoint worker rests until something is appended.
    at_rest: AtomicBool,
    /// Callers to be told when the log is durable to a place.
    promises: Mutex<Vec<(Glsn, Promise)>, { Mutexes::LogPromises as u8 }>,
    poisoned: Mutex<Option<String>, { Mutexes::LogOrder as u8 }>,
    is_poisoned: AtomicBool,
    pub counters: LogCounters,
}

impl Log {
    pub fn new(setup: LogSetup) -> Log {
        let LogSetup {
            world,
            volume,
            files,
            starts,
            blocks,
            instance,
            epoch,
            checkpoint,
            next,
            room_wait_max,
            waiting_max,
            holds,
        } = setup;
        assert_eq!(files.len(), starts.len());
        let mut order = Order::new(next, blocks, &starts);
        if holds {
            let first =
                |start: &PartitionStart| start.batches.first().map_or(start.next, |batch| batch.sequence);
            order.hold = Some(Hold::new(starts.iter().map(first).collect()));
        }
        Log {
            world,
            volume,
            files,
            blocks,
            instance,
            epoch,
            room_wait_max,
            waiting_max,
            order: Mutex::new(order),
            holds,
            appended: AtomicU64::new(next),
            horizon: AtomicU64::new(next),
            written_to: AtomicU64::new(next),
            checkpoint: AtomicU64::new(checkpoint),
            written: Event::new(),
            room_freed: Event::new(),
            room_waiters: AtomicU64::new(0),
            checkpoint_wanted: Arc::new(Event::new()),
            much_waits: Arc::new(Event::new()),
            much_to_read: Arc::new(Event::new()),
            checkpoint_asked: AtomicBool::new(false),
            at_rest: AtomicBool::new(false),
            promises: Mutex::default(),
            poisoned: Mutex::new(None),
            is_poisoned: AtomicBool::new(false),
            counters: LogCounters::default(),
        }
    }

    /// Stops the log for good: a write that everything relies on has failed.
    pub fn poison(&self, cause: &str) {
        self.poisoned.lock().get_or_insert_with(|| cause.to_string());
        self.is_poisoned.store(true, Ordering::Release);
        self.written.notify();
        self.room_freed.notify();
    }

    fn healthy(&self) -> Result<(), LogError> {
        if !self.is_poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(LogError::Poisoned(self.failure().unwrap_or_default()))
    }

    /// Calls `promise` when the log is durable to `upto`, or has stopped: at once if that is so now, else the background
    /// writer does, which writes the log for it. Returns without waiting.
    pub fn when_durable(&self, upto: Glsn, promise: Promise) {
        if self.durable() >= upto {
            return promise(Ok(()));
        }
        self.promises.lock().push((upto, promise));
        self.much_waits.notify();
    }

    /// Makes the log durable as far as a caller wants to be told, and tells. False if none does.
    pub fn keep_promises(&self) -> bool {
        let promises = std::mem::take(&mut *self.promises.lock());
        let Some(upto) = promises.iter().map(|(upto, _)| *upto).max() else { return false };
        let done = self.make_durable(upto);
        // If the log stopped, some of it was durable before.
        let durable = self.durable();
        let kept = |upto| if upto <= durable { Ok(()) } else { done.clone() };
        promises.into_iter().for_each(|(upto, promise)| promise(kept(upto)));
        true
    }

    /// The log is not written any more: tells who still wants to be called what became of it.
    pub fn end_promises(&self) {
        let durable = self.durable();
        for (upto, promise) in std::mem::take(&mut *self.promises.lock()) {
            let closed = || LogError::Poisoned("the engine was closed".into());
            promise(if upto <= durable { Ok(()) } else { Err(closed()) });
        }
    }

    /// Why the log stopped, if it did.
    pub fn failure(&self) -> Option<String> {
        self.poisoned.lock().clone()
    }

    pub fn partitions(&self) -> usize {
        self.files.len()
    }

    /// Bytes of all rings together.
    pub fn capacity(&self) -> u64 {
        self.blocks * (block::BLOCK * self.files.len()) as u64
    }

    /// Blocks in use of the fullest ring, and blocks of a ring.
    pub fn usage(&self) -> (u64, u64) {
        (self.order.lock().used(), self.blocks)
    }

    /// Whether so much room is taken that a checkpoint is due.
    pub fn wants_checkpoint(&self) -> bool {
        let order = self.order.lock();
        order.room.wants_checkpoint(order.used())
    }

    /// Whether room is so short, or a thread waits for it, that pages are flushed whatever limits tables have.
    pub fn needs_checkpoint(&self) -> bool {
        let order = self.order.lock();
        order.room.needs_checkpoint(order.used()) || self.room_waiters.load(Ordering::SeqCst) > 0
    }

    /// How far it has come from where a checkpoint is wanted to where it is needed: blocks, and all of them.
    pub fn pressure(&self) -> (u64, u64) {
        let order = self.order.lock();
        order.room.pressure(order.used())
    }

    /// The checkpoint worker looks now: later requests are new ones.
    pub fn checkpoint_heard(&self) {
        self.checkpoint_asked.store(false, Ordering::SeqCst);
    }

    /// The checkpoint worker has nothing to do until something is appended above `seen`. False: it was.
    pub fn checkpoint_rests(&self, seen: Glsn) -> bool {
        self.at_rest.store(true, Ordering::SeqCst);
        self.appended.load(Ordering::SeqCst) <= seen
    }

    /// As [`Log::starts_for`], and not behind what stays for a reader.
    pub fn kept_starts_for(&self, checkpoint: Glsn) -> Vec<u64> {
        let order = self.order.lock();
        order.kept(order.starts_for(checkpoint))
    }

    pub fn hold_state(&self) -> HoldState {
        self.order.lock().hold.as_ref().map_or(HoldState::None, Hold::state)
    }

    /// From `at`, the beginning of a range, on the log stays readable; what lies before may go.
    pub fn hold_from(&self, at: Glsn) {
        let mut order = self.order.lock();
        let starts = order.starts_for(at);
        order.hold.iter_mut().for_each(|hold| hold.move_to(at, starts.clone()));
    }

    /// What lies below is needed by no reader for whom blocks stay.
    pub fn held_from(&self) -> Glsn {
        self.order.lock().hold.as_ref().map_or(Glsn::MAX, Hold::from)
    }

    /// When what was appended up to `upto`; each mark is given out once.
    pub fn take_marks(&self, upto: Glsn) -> Vec<Mark> {
        self.order.lock().hold.as_mut().map_or(Vec::new(), |hold| hold.take_marks(upto))
    }

    /// The files of the partitions.
    pub fn files(&self) -> &[Arc<dyn File>] {
        &self.files
    }

    /// Where scans start for a checkpoint at `checkpoint`, a block sequence for each partition.
    pub fn starts_for(&self, checkpoint: Glsn) -> Vec<u64> {
        self.order.lock().starts_for(checkpoint)
    }

    /// The horizon, and of each ring the first block that is not on the device: all that is durable stands before these.
    pub fn durable_blocks(&self) -> (Glsn, Vec<u64>) {
        let order = self.order.lock();
        (order.horizon(), order.rings.iter().map(|ring| ring.synced_to()).collect())
    }

    /// Reads the file of a partition.
    pub fn file(&self, partition: usize) -> &dyn File {
        &*self.files[partition]
    }

    /// The superblock names this checkpoint and its starts durably: what lies before is free.
    pub fn release(&self, checkpoint: Glsn, starts: &[u64]) {
        let mut order = self.order.lock();
        order.rings.iter_mut().zip(starts).for_each(|(ring, start)| ring.release_before(*start));
        drop(order);
        self.checkpoint.store(checkpoint, Ordering::Release);
        self.room_freed.notify();
    }

    fn ask_for_checkpoint(&self) {
        if !self.checkpoint_asked.swap(true, Ordering::SeqCst) {
            self.checkpoint_wanted.notify();
        }
    }

    fn full(&self) -> LogError {
        LogError::Full { capacity: self.capacity(), checkpoint: self.checkpoint.load(Ordering::Acquire) }
    }

    /// One look for room. None: too many records wait to be written.
    fn try_reserve(&self, bytes: u64, urgency: Urgency) -> Option<Verdict> {
        let mut order = self.order.lock();
        if order.waiting > self.waiting_max {
            return None;
        }
        let used = order.used();
        let verdict = order.room.reserve(used, bytes, urgency);
        let wants_checkpoint = order.room.wants_checkpoint(used);
        drop(order);
        if wants_checkpoint || verdict == Verdict::Wait {
            self.ask_for_checkpoint();
        }
        Some(verdict)
    }

    /// Whether half of the memory for records that wait to be written is taken: a caller that must not wait stops here, so that what undoes its
    /// change has room without writing the log itself.
    pub fn is_behind(&self) -> bool {
        let behind = self.order.lock().waiting > self.waiting_max / 2;
        if behind {
            self.much_waits.notify();
        }
        behind
    }

    fn wait_for_room(&self, bytes: u64, urgency: Urgency) -> Result<(), LogError> {
        let since = self.world.clock.now();
        self.room_waiters.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            let freed = self.room_freed.ticket();
            if let Err(error) = self.healthy() {
                break Err(error);
            }
            let verdict = self.try_reserve(bytes, urgency);
            let waits = matches!(verdict, Some(Verdict::Wait) | None);
            if waits && urgency == Urgency::Normal && terrace_io::cancel::refuses(observe::Wait::LogRoom) {
                self.much_waits.notify();
                break Err(LogError::Cancelled);
            }
            match verdict {
                Some(Verdict::Granted) => break Ok(()),
                Some(Verdict::Never) => break Err(self.full()),
                Some(Verdict::Wait) if self.world.clock.now() - since > self.room_wait_max => {
                    break Err(self.full());
                }
                Some(Verdict::Wait) if urgency == Urgency::Normal && terrace_io::cancel::asked() => {
                    break Err(LogError::Cancelled);
                }
                Some(Verdict::Wait) => {
                    let _shown = observe::wait(observe::Wait::LogRoom);
                    self.world.sched.wait(&self.room_freed, freed, Some(PATIENCE));
                }
                None => {
                    if let Err(error) = self.write_until(self.appended(), Until::Durable) {
                        break Err(error);
                    }
                }
            }
        };
        self.room_waiters.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Redo for Log {
    fn reserve(self: Arc<Self>, bytes: u64, urgency: Urgency) -> Result<LogRoom, LogError> {
        self.healthy()?;
        if self.try_reserve(bytes, urgency) != Some(Verdict::Granted) {
            LogCounters::add(&self.counters.room_waits, 1);
            self.wait_for_room(bytes, urgency)?;
        }
        Ok(LogRoom::new(self, bytes))
    }

    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.order.lock().room.give_back(bytes);
            if self.room_waiters.load(Ordering::SeqCst) > 0 {
                self.room_freed.notify();
            }
        }
    }

    /// Ends the room: what is left of it goes back at once.
    fn append(
        &self,
        room: &mut LogRoom,
        pages: &[PageRedo<'_>],
        stamp: &mut dyn FnMut(LsnRange),
    ) -> LsnRange {
        let mut order = self.order.lock();
        let range = order.range(pages);
        let bound: u64 = pages.iter().map(|page| record_bound(page.ops.len())).sum();
        assert!(
            bound > 0 && bound <= room.bytes,
            "up to {bound} bytes of records in room for {}",
            room.bytes
        );
        // Before `appended` says so: a checkpoint that reads it must find the pages dirty.
        stamp(range);
        let bytes = order.push(range, pages);
        if self.holds {
            let now = self.world.clock.unix_ms();
            order.hold.iter_mut().for_each(|hold| hold.note(now, range.end));
        }
        order.room.give_back(std::mem::take(&mut room.bytes));
        self.appended.store(range.end, Ordering::SeqCst);
        // No other thread adds to them: they are added to here, under the lock.
        let add =
            |counter: &AtomicU64, n| counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        add(&self.counters.bytes, bytes as u64);
        add(&self.counters.ranges, 1);
        let enough = self.waiting_max / WRITE_AT;
        let crossed = order.waiting > enough && order.waiting - bytes <= enough;
        drop(order);
        if crossed {
            self.much_waits.notify();
        }
        if self.at_rest.load(Ordering::SeqCst) && self.at_rest.swap(false, Ordering::SeqCst) {
            self.checkpoint_wanted.notify();
        }
        if self.room_waiters.load(Ordering::SeqCst) > 0 {
            self.room_freed.notify();
        }
        range
    }

    fn durable(&self) -> Glsn {
        self.horizon.load(Ordering::Acquire)
    }

    fn appended(&self) -> Glsn {
        self.appended.load(Ordering::Acquire)
    }

    fn make_durable(&self, upto: Glsn) -> Result<(), LogError> {
        if self.durable() >= upto {
            return Ok(());
        }
        self.write_until(upto, Until::Durable)
    }

    fn make_written(&self, upto: Glsn) -> Result<(), LogError> {
        if self.reached(Until::Written) >= upto {
            return Ok(());
        }
        self.write_until(upto, Until::Written)
    }

    fn make_durable_own(&self, pages: &[PageId], upto: Glsn) -> Result<(), LogError> {
        if !crate::planted::OWN_HORIZON_ONLY.on() {
            return self.make_durable(upto);
        }
        let own: Vec<usize> = pages.iter().map(|id| partition_of(*id, self.files.len())).collect();
        let shares = self.take(|number, ring| own.contains(&number) && ring.can_write(upto));
        if shares.is_empty() { Ok(()) } else { self.write(shares, Until::Durable) }
    }
}

/// Makes the rings' files, zero-filled: writing over written blocks costs half a sync of extending a
/// file. Durable when it returns, the names after `sync_dir`.
pub fn create(volume: &dyn Disk, partitions: usize, blocks: u64) -> Result<(), DiskError> {
    for partition in 0..partitions {
        let file = volume.create(&file_name(partition))?;
        let end = blocks * block::BLOCK as u64;
        file.grow(end, true)?;
        // Written once, so that no commit of the first round makes the file system note that a block is in use.
        let zeros = AlignedBuf::zeroed((1 << 20).min(end as usize));
        for offset in (0..end).step_by(zeros.len()) {
            let len = zeros.len().min((end - offset) as usize);
            file.write(Class::LogWrite, offset, &zeros[..len])?;
        }
        file.sync(Class::LogWrite)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
